"""Messages of a source become numbered records, in commit order."""
