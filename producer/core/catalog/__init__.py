"""What the catalog shows, and what of it the stream did not report."""
