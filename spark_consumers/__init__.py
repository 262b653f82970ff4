"""Kafka -> target: ranges cut exactly at commits, one atomic step of the target each."""
