"""Event triggers that record schema changes in the stream, and what reads them."""
