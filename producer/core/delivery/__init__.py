"""When a group is closed, and what its cut says: the engine and its books."""
