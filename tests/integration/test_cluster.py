"""Questions to a cluster whose broker is killed in between."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from gauss_cdc_lab.services import LocalServices
from gauss_cdc_lab.services.process import poll
from spark_consumers.errors import KafkaDown
from spark_consumers.kafka.cluster import Cluster
from tests.services_fixtures import open_directory

PATIENCE = 120  # seconds; a client that keeps an old leader epoch is refused for ever


def answers(cluster, place) -> bool:
    try:
        return cluster.high([place]) == {place: 0}
    except KafkaDown:
        return False


@pytest.fixture
def services() -> Iterator[LocalServices]:
    """A broker that nobody else uses."""
    own = LocalServices(open_directory())
    own.start("kafka")
    yield own
    own.remove()


def test_a_broker_that_came_back_is_believed_again(services, topic_prefix):
    client = {"bootstrap.servers": services.addresses.kafka_bootstrap, "log_level": 0}
    admin = AdminClient(client)
    topic = f"{topic_prefix}.t"
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    cluster = Cluster(client)
    assert poll(lambda: answers(cluster, (topic, 0)), PATIENCE)

    services.kill("kafka")
    services.start("kafka")

    assert poll(lambda: answers(cluster, (topic, 0)), PATIENCE)
