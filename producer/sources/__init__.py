"""Kinds of sources: a folder each, and a line in `kinds`."""
