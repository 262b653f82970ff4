"""Questions to a cluster whose broker is killed in between."""

from confluent_kafka.admin import AdminClient, NewTopic

from spark_consumers.cluster import Cluster
from spark_consumers.errors import KafkaDown


def asked(cluster, place):
    """The answer, and how many times the question failed before."""
    for refused in range(5):
        try:
            return cluster.high([place]), refused
        except KafkaDown:
            continue
    raise AssertionError("five questions, no answer")


def test_a_broker_that_came_back_is_believed_again(services, kafka, topic_prefix):
    client = {"bootstrap.servers": kafka, "log_level": 0}
    admin = AdminClient(client)
    topic = f"{topic_prefix}.t"
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    cluster = Cluster(client)
    assert asked(cluster, (topic, 0))[0] == {(topic, 0): 0}

    services.kill("kafka")
    services.start("kafka")

    answer, refused = asked(cluster, (topic, 0))
    assert answer == {(topic, 0): 0}
    assert refused <= 2
