"""A writer whose prefix another one took over: librdkafka hides it in many ways."""

import select
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from producer.core.events import Record
from producer.errors import CdcError, Fenced
from producer.kafka.delivery import Answer, Delivery
from tests.writers import WRITERS, WriterClass

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
    assert select.select([delivery.fileno()], [], [], 120)[0]
    (said,) = delivery.answers()
    if isinstance(said, CdcError):
        raise said
    return said


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
    make: WriterClass,
    *,
    exactly_once: bool,
) -> None:
    def writer() -> Delivery:
        made = Delivery(
            {"bootstrap.servers": kafka},
            prefix=topics,
            cuts_topic=f"{topics}.cuts",
            transaction_timeout=60,
            exactly_once=exactly_once,
            max_row_bytes=1 << 20,
            make=make,
        )
        stack.callback(made.close)
        return made

    rows: list[Record] = [(f"{topics}.public.t", 0, b"key", b"value", [])]
    old = writer()
    old.init_transactions(60)
    if before == "a cut":
        deliver(old, rows)
    elif before != "nothing":
        old.send(rows)
        if before == "rows acknowledged":
            old.flush()
            answer(old)
    writer().init_transactions(60)

    with pytest.raises(Fenced) as caught:
        deliver(old, rows)
    assert caught.value.exit_code == 31
