"""The topics of our own, `<prefix>.cuts` and `<prefix>.ddl`: who writes and reads them."""
