"""DDL that the server deparsed: formats, what a statement says, and the shape after it."""
