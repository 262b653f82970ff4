"""The world, one file each; no policy."""
