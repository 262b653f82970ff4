"""Records of Kafka: rows, logical messages, transaction metadata."""
