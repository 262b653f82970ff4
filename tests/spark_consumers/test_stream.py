"""Settings of the stream; the stream itself runs in tests/integration."""

from spark_consumers.stream import java_client, spark_confs


def test_settings_are_spelled_as_java_spells_them() -> None:
    options = java_client(
        {
            "bootstrap.servers": "b:9093",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "/ca.pem",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "cdc",
            "sasl.password": 'se"cret',
            "linger.ms": "5",
        }
    )

    assert options == {
        "kafka.bootstrap.servers": "b:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
        ' required username="cdc" password="se\\"cret";',
    }


def test_more_partitions_need_a_larger_pool() -> None:
    assert spark_confs(500)["spark.kafka.consumer.cache.capacity"] == "1000"
