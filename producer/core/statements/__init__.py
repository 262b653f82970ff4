"""Schema changes as SQL text: read, written, compared, and what of it is disclosed."""
