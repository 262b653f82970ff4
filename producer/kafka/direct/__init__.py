"""A producer of Kafka with record batches and connections of our own: `[kafka] producer`."""
