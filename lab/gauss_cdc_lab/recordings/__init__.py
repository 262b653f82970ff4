"""A source's wire in a file: recorded, redacted, decoded."""
