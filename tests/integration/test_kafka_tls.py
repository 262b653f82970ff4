"""Kafka's TLS and logins on a real broker: librdkafka and Spark's Java client decide alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from producer.errors import BrokerDown, CdcError
from producer.kafka.delivery import Delivery
from producer.kafka.topics import TopicAdmin, TopicSettings
from spark_consumers.errors import ApplyError, KafkaDown
from spark_consumers.kafka.cluster import Cluster
from spark_consumers.security import java_client, java_properties, portable, with_secrets
from tests.integration.private_kafka import PASSWORD, PrivateKafka, private_kafka
from tests.writers import WRITERS, WriterClass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker() -> Iterator[PrivateKafka]:
    with private_kafka() as running:
        yield running


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> Callable[[dict[str, Any]], str]:
    """Ask by the client that Spark's Kafka source has; the cluster's id, or an exception."""
    jvm: Any = spark.sparkContext._jvm

    def ask(client: dict[str, Any]) -> str:
        for name, value in java_properties(client).items():
            jvm.java.lang.System.setProperty(name, value)
        properties = jvm.java.util.Properties()
        for name, value in java_client(client).items():
            properties.setProperty(name.removeprefix("kafka."), value)
        properties.setProperty("default.api.timeout.ms", "20000")
        properties.setProperty("request.timeout.ms", "10000")
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            return str(admin.describeCluster().clusterId().get())
        finally:
            admin.close()

    return ask


def good(broker: PrivateKafka, how: str) -> dict[str, Any]:
    match how:
        case "PLAIN" | "SCRAM-SHA-512":
            return broker.settings(
                "good", sasl_mechanism=how, sasl_username="cdc", sasl_password=PASSWORD
            )
        case "OAUTHBEARER":
            return broker.settings("good", sasl_mechanism=how) | {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "cdc",
                "sasl.oauthbearer.client.secret": PASSWORD,
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.token.endpoint.url": broker.token_url,
            }
        case _:
            assert broker.client is not None
            return broker.settings("mtls") | {
                "ssl.certificate.pem": broker.client.pem,
                "ssl.key.pem": broker.client.key_pem(),
            }


WAYS = ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "mTLS")


@pytest.fixture(scope="module")
def topics(broker: PrivateKafka) -> str:
    """A prefix with a topic of rows and one of cuts."""
    admin = AdminClient({"bootstrap.servers": broker.plain})
    made = admin.create_topics([NewTopic(f"bank.{name}", 1, 1) for name in ("rows", "cuts")])
    for each in made.values():
        each.result(60)
    return "bank"


@pytest.mark.parametrize("make", WRITERS)
@pytest.mark.parametrize("how", WAYS)
def test_both_writers_write_with_each_login(
    broker: PrivateKafka, topics: str, how: str, make: WriterClass
) -> None:
    delivery = Delivery(
        good(broker, how),
        prefix=topics,
        cuts_topic=f"{topics}.cuts",
        transaction_timeout=60,
        exactly_once=True,
        max_row_bytes=1 << 20,
        make=make,
    )
    with closing(delivery):
        delivery.init_transactions(60)
        acknowledged, _ = delivery.write_now(
            [[(f"{topics}.rows", 0, b"key", b"value", [])]], lambda _: [(b"bank", b"cut")]
        )
    assert [end - start for *_, start, end in acknowledged] == [1]


@pytest.mark.parametrize("how", WAYS)
def test_every_client_logs_in_by_the_same_settings(
    broker: PrivateKafka, java: Callable[[dict[str, Any]], str], how: str
) -> None:
    settings = good(broker, how)

    ours = TopicAdmin(settings, TopicSettings()).cluster_id()

    assert Cluster(settings).id() == ours
    assert Cluster(with_secrets(*portable(settings))).id() == ours  # as tasks have them
    assert java(settings) == ours


def wrong(broker: PrivateKafka, how: str) -> dict[str, Any]:
    match how:
        case "password":
            return good(broker, "SCRAM-SHA-512") | {"sasl.password": "wrong-one"}
        case "plain password":
            return good(broker, "PLAIN") | {"sasl.password": "wrong-one"}
        case "no certificate":
            return broker.settings("mtls")
        case "another authority":
            from tests.certificates import authority

            return {**good(broker, "SCRAM-SHA-512"), "ssl.ca.pem": authority("Other").pem} | {
                "ssl.ca.location": ""
            }
        case listener:
            return broker.settings(listener)


WRONG = {
    "password": True,  # is it the login that is refused?
    "plain password": True,
    "expired": False,
    "selfsigned": False,
    "wrongname": False,
    "another authority": False,
    "no certificate": False,
}


@pytest.fixture(scope="module")
def refusals(
    broker: PrivateKafka, java: Callable[[dict[str, Any]], str]
) -> dict[str, list[Exception]]:
    """What each client raised at each: all asked at once, for it takes librdkafka seconds."""
    clients: list[Callable[[dict[str, Any]], str]] = [
        lambda settings: TopicAdmin(settings, TopicSettings()).cluster_id(),
        lambda settings: Cluster(settings).id(),
        java,
    ]

    def asked(how: str, ask: Callable[[dict[str, Any]], str]) -> Exception:
        settings = {name: value for name, value in wrong(broker, how).items() if value}
        with pytest.raises(Exception) as caught:  # noqa: PT011  looked at by the tests
            ask(settings)
        return caught.value

    with ThreadPoolExecutor(32) as pool:
        futures = {how: [pool.submit(asked, how, ask) for ask in clients] for how in WRONG}
        return {how: [future.result() for future in mine] for how, mine in futures.items()}


@pytest.mark.parametrize("how", WRONG)
def test_every_client_refuses_what_is_not_right(
    refusals: dict[str, list[Exception]], how: str
) -> None:
    from py4j.protocol import Py4JJavaError

    ours, theirs, javas = refusals[how]

    assert isinstance(ours, CdcError)
    assert isinstance(theirs, ApplyError)
    # A wrong password is no passing error; TLS may fail while a broker starts again.
    assert isinstance(ours, BrokerDown) is not WRONG[how]
    assert isinstance(theirs, KafkaDown) is not WRONG[how]
    for error in (ours, theirs):
        assert "reason" in error.where
        assert "wrong-one" not in str(error)
    assert isinstance(javas, Py4JJavaError)
    cause = javas.java_exception.getCause().getClass().getSimpleName()
    assert cause in {"SaslAuthenticationException", "SslAuthenticationException"}


def test_spark_reads_by_these_settings(broker: PrivateKafka, spark: SparkSession) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.plain})
    for made in admin.create_topics([NewTopic("seen", 1, 1)]).values():
        made.result()
    settings = good(broker, "SCRAM-SHA-512")
    with closing(Producer({**settings, "acks": "all"})) as producer:
        producer.produce("seen", b"a row")
        producer.flush()

    rows = (
        spark.read.format("kafka")
        .options(**java_client(settings))
        .options(assign='{"seen":[0]}', startingOffsets="earliest")
        .load()
        .selectExpr("cast(value as string)")
        .collect()
    )

    assert [row[0] for row in rows] == ["a row"]
