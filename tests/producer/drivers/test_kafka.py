"""What the Kafka driver does without a broker: every wait ends, every error is ours."""

import select
import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer.core.events import Record
from producer.drivers.kafka import CutsReader, Delivery, of_error, ours
from producer.errors import (
    BrokerDown,
    CdcError,
    Fenced,
    GroupUnusable,
    RowTooLarge,
    Verdict,
)
from producer.errors import KafkaError as OurKafkaError

ROW: Record = ("bank.public.account", 0, b"key", b"value", [("xid", b"1")])


@pytest.fixture
def nobody() -> str:
    """An address of this machine where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def delivery(nobody: str) -> Iterator[Delivery]:
    made = Delivery(
        {"bootstrap.servers": nobody, "queue.buffering.max.messages": 10},
        prefix="bank",
        cuts_topic="bank.cuts",
        transaction_timeout=60,
        exactly_once=False,
        max_row_bytes=1000,
        silence=0.5,
    )
    yield made
    began = time.monotonic()
    made.close()
    assert time.monotonic() - began < 5, "what waits for a broker that is gone kept us"


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

    assert select.select([delivery.fileno()], [], [], 30)[0]
    (answer,) = delivery.answers()

    assert isinstance(answer, BrokerDown)
    assert not delivery.is_busy


def test_writing_at_once_without_a_broker_ends(delivery: Delivery) -> None:
    for count in (1, 25):
        with pytest.raises(BrokerDown):
            delivery.write_now([ROW] * count, lambda _: (b"", b""))


def test_the_fence_without_a_broker_ends(delivery: Delivery) -> None:
    with pytest.raises(CdcError) as caught:
        delivery.init_transactions(0.5)
    assert caught.value.verdict is Verdict.RETRY


def test_a_run_that_leaves_with_a_flush_under_way_does_not_wait_for_it(delivery: Delivery) -> None:
    delivery.send([ROW] * 5)
    delivery.flush()  # the fixture closes


def test_bounds_without_a_broker_end(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.drivers.kafka._ASK", 0.5)
    reader = CutsReader({"bootstrap.servers": nobody}, "bank.cuts")
    try:
        for ask in (reader.bounds, reader.lso):
            with pytest.raises(BrokerDown):
                ask()
        assert reader.read(5, 5) == []
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError._FENCED, Fenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced),
        (KafkaError._TRANSPORT, BrokerDown),
        (KafkaError._MSG_TIMED_OUT, BrokerDown),
        (KafkaError.MSG_SIZE_TOO_LARGE, RowTooLarge),
        (KafkaError._PURGE_QUEUE, GroupUnusable),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, GroupUnusable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, OurKafkaError),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, OurKafkaError),
    ],
)
def test_the_class_of_an_error_says_what_to_do(code: int, error: type[CdcError]) -> None:
    assert type(of_error(KafkaError(code))) is error


def test_a_system_error_is_what_caused_it() -> None:
    hidden = SystemError("returned a result with an exception set")
    hidden.__cause__ = KafkaException(KafkaError(KafkaError._FENCED))

    assert type(ours(hidden)) is Fenced
    assert type(ours(SystemError("other"))) is OurKafkaError
    kept = BrokerDown("as it is")
    assert ours(kept) is kept
