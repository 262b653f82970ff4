"""What a delivery does without a broker: every wait ends, every error is ours."""

import select
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer

from producer.core.events import Record
from producer.errors import (
    BrokerDown,
    CdcError,
)
from producer.kafka.delivery import Delivery
from producer.kafka.writer import MakeWriter, Writer
from schemas.errors import Verdict
from tests.writers import WRITERS, WriterClass

ROW: Record = ("bank.public.account", 0, b"key", b"value", [("xid", b"1")])


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> WriterClass:
    made: WriterClass = request.param
    return made


@pytest.fixture
def delivery(nobody: str, writer: WriterClass) -> Iterator[Delivery]:
    made = Delivery(
        {"bootstrap.servers": nobody, "queue.buffering.max.messages": 10},
        prefix="bank",
        cuts_topic="bank.cuts",
        transaction_timeout=60,
        exactly_once=False,
        max_row_bytes=1000,
        silence=0.5,
        make=writer,
    )
    yield made
    made.close()  # ends, though what was sent waits for a broker that is gone


def test_a_full_queue_takes_what_it_has_room_for_and_does_not_block(delivery: Delivery) -> None:
    sent = delivery.send([ROW] * 25)

    assert sent == 10
    assert delivery.send([ROW] * 25, sent) == 10
    assert delivery.progress == 0
    assert delivery.poll() == []


def test_a_flush_without_a_broker_ends_and_says_so(delivery: Delivery) -> None:
    delivery.send([ROW])
    delivery.flush()
    assert delivery.is_busy

    assert select.select(delivery.filenos(), [], [], 30)[0]
    (answer,) = delivery.answers()

    assert isinstance(answer, BrokerDown)
    assert not delivery.is_busy


def test_writing_at_once_without_a_broker_ends(delivery: Delivery) -> None:
    for count in (1, 25):
        with pytest.raises(BrokerDown):
            delivery.write_now([[ROW] * count], lambda _: [(b"", b"")])


def test_the_fence_without_a_broker_ends(delivery: Delivery) -> None:
    with pytest.raises(CdcError) as caught:
        delivery.init_transactions(0.5)
    assert caught.value.verdict is Verdict.RETRY


def test_a_run_that_leaves_with_a_flush_under_way_does_not_wait_for_it(delivery: Delivery) -> None:
    delivery.send([ROW] * 5)
    delivery.flush()  # the fixture closes


# ---------------------------------------------------------------- librdkafka's own broker
@pytest.fixture
def slow_broker() -> Iterator[str]:
    """A broker inside librdkafka: it takes transactions, 100 ms each way, and fences nobody."""
    cluster = Producer({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 100, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=30).brokers.values()
    yield f"{broker.host}:{broker.port}"
    cluster.flush(1)


def transactional(address: str, make: MakeWriter) -> Delivery:
    made = Delivery(
        {"bootstrap.servers": address},
        prefix="bank",
        cuts_topic="bank.cuts",
        transaction_timeout=60,
        exactly_once=True,
        max_row_bytes=1000,
        make=make,
    )
    made.init_transactions(30)
    return made


def test_a_commit_that_timed_out_is_asked_for_again_and_is_no_success(
    slow_broker: str, monkeypatch: pytest.MonkeyPatch, writer: WriterClass
) -> None:
    tries = []

    class Counted(writer):
        def commit(self, seconds: float) -> bool:
            tries.append(seconds)
            return super().commit(seconds)

    monkeypatch.setattr("producer.kafka.delivery._COMMIT_TRY", 0.02)
    delivery = transactional(slow_broker, Counted)
    for first in (0, 4):  # three rows and a marker
        rows, _ = delivery.write_now([[ROW] * 3], lambda _: [(b"bank", b"cut")])
        assert [run[2:] for run in rows] == [(first, first + 3)]
    assert len(tries) > 2
    delivery.close()


def test_every_process_of_a_prefix_has_one_transactional_id(
    nobody: str, writer: WriterClass
) -> None:
    seen = []

    def made(settings: Mapping[str, Any]) -> Writer:
        seen.append(settings.get("transactional.id"))
        return writer(settings)

    for _ in range(2):
        Delivery(
            {"bootstrap.servers": nobody},
            prefix="bank",
            cuts_topic="bank.cuts",
            transaction_timeout=60,
            exactly_once=True,
            max_row_bytes=1000,
            make=made,
        ).close()
    assert seen == ["gauss-cdc.bank"] * 2
