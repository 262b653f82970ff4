"""Messages -> records -> confirmations.  Pure: no socket, clock, thread, Kafka."""
