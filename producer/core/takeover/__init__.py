"""One writer after another: what makes going on wrong, and how the next one begins."""
