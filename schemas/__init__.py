"""The contract: everything that stands in Kafka.  Pure, standard library only."""
