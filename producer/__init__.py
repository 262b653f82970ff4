"""Source -> Kafka: a stack of pure machines under a thin rim of drivers, and one loop."""
