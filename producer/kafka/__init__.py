"""Kafka and the registry, one file each; no policy."""
