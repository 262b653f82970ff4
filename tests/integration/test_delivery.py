"""Deliveries by both writers on a real broker: fenced in many ways, aborted, refused."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gauss_cdc_lab.services.process import poll
from producer.core.events import Record
from producer.errors import CdcError, Fenced, RowTooLarge
from producer.kafka.delivery import Answer, Delivery
from producer.kafka.writer import MakeWriter
from spark_consumers.kafka.cluster import Cluster
from tests.writers import WRITERS

CUT = (b"bank", b"cut")


@pytest.fixture
def topics(kafka: str, topic_prefix: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka})
    made = admin.create_topics(
        [NewTopic(f"{topic_prefix}.{name}", 1, 1) for name in ("cuts", "public.t")]
    )
    for each in made.values():
        each.result(60)
    return topic_prefix


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as closing:
        yield closing


def answer(delivery: Delivery) -> Answer:
    until = time.monotonic() + 120
    while not (answers := delivery.answers()):
        assert time.monotonic() < until
        delivery.wait(1)
    (said,) = answers
    if isinstance(said, CdcError):
        raise said
    return said


def writer(kafka: str, prefix: str, make: MakeWriter, *, exactly_once: bool = True) -> Delivery:
    return Delivery(
        {"bootstrap.servers": kafka},
        prefix=prefix,
        cuts_topic=f"{prefix}.cuts",
        transaction_timeout=60,
        exactly_once=exactly_once,
        max_row_bytes=1 << 20,
        make=make,
    )


def deliver(delivery: Delivery, rows: list[Record]) -> None:
    delivery.send(rows)
    delivery.flush()
    answer(delivery)
    delivery.write_cuts([CUT])
    answer(delivery)


@pytest.mark.parametrize("make", WRITERS)
@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("before", ["nothing", "rows sent", "rows acknowledged", "a cut"])
def test_a_writer_that_is_fenced_says_so(
    kafka: str,
    topics: str,
    stack: ExitStack,
    before: str,
    make: MakeWriter,
    *,
    exactly_once: bool,
) -> None:
    def open_one() -> Delivery:
        made = writer(kafka, topics, make, exactly_once=exactly_once)
        stack.callback(made.close)
        return made

    rows: list[Record] = [(f"{topics}.public.t", 0, b"key", b"value", [])]
    old = open_one()
    old.init_transactions(60)
    if before == "a cut":
        deliver(old, rows)
    elif before != "nothing":
        old.send(rows)
        if before == "rows acknowledged":
            old.flush()
            answer(old)
    open_one().init_transactions(60)

    with pytest.raises(Fenced) as caught:
        deliver(old, rows)
    assert caught.value.exit_code == 31


@pytest.mark.parametrize("make", WRITERS)
def test_aborted_rows_are_read_by_nobody_and_the_writer_goes_on(
    kafka: str, topics: str, make: MakeWriter
) -> None:
    topic = f"{topics}.public.t"
    with closing(writer(kafka, topics, make)) as delivery:
        delivery.init_transactions(60)
        delivery.send([(topic, 0, b"key", b"not acknowledged", [])])
        delivery.abort(60)
    with closing(writer(kafka, topics, make)) as delivery:
        delivery.init_transactions(60)
        delivery.send([(topic, 0, b"key", b"acknowledged", [])])
        delivery.flush()
        answer(delivery)
        delivery.abort(60)
        deliver(delivery, [(topic, 0, b"key", b"committed", [])])

    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": topics, "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.poll(60)
    consumer.close()
    assert found is not None
    assert found.value() == b"committed"


@pytest.mark.parametrize("make", WRITERS)
def test_a_record_that_the_broker_refuses_as_too_large_is_named_so(
    kafka: str, topic_prefix: str, make: MakeWriter
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    small = NewTopic(f"{topic_prefix}.small", 1, 1, config={"max.message.bytes": "1000"})
    for each in admin.create_topics([small]).values():
        each.result(60)
    with closing(writer(kafka, topic_prefix, make)) as delivery:
        delivery.init_transactions(60)
        delivery.send([(f"{topic_prefix}.small", 0, b"key", random.randbytes(5000), [])])
        delivery.flush()
        with pytest.raises(RowTooLarge):
            answer(delivery)


@pytest.mark.parametrize("make", WRITERS)
@pytest.mark.parametrize("is_called", [False, True])
def test_a_writer_that_is_left_leaves_nothing_undecided(
    kafka: str, topics: str, make: MakeWriter, *, is_called: bool
) -> None:
    """A start that compares before it fences would wait until Kafka ends the transaction."""
    rows: list[Record] = [(f"{topics}.public.t", 0, b"key", b"value", [])]
    left = writer(kafka, topics, make)
    left.init_transactions(60)
    left.send(rows)
    left.flush()
    answer(left)
    if is_called:
        left.write_cuts([CUT])
    left.close()

    places = [(f"{topics}.{name}", 0) for name in ("cuts", "public.t")]
    cluster = Cluster({"bootstrap.servers": kafka})
    assert poll(lambda: cluster.stable(places) == cluster.high(places), 30)
