"""The world: one file each for source, broker, registry and disk.  No policy."""
