"""Source -> Kafka: pure state machines, a thin layer of drivers, and one loop."""
