"""Tables that are read: before the stream, at a place of it, or beside it."""
