"""Kafka and the registry as the driver reads them."""
