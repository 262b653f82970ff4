"""Settings of the stream; the stream itself runs in tests/integration."""

from spark_consumers.stream import spark_confs


def test_more_partitions_need_a_larger_pool() -> None:
    assert spark_confs(500)["spark.kafka.consumer.cache.capacity"] == "1000"
