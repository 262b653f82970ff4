"""What a delivery does without a broker: every wait ends, every error is ours."""

import select
from collections.abc import Iterator

import pytest

from producer.core.events import Record
from producer.errors import (
    BrokerDown,
    CdcError,
)
from producer.kafka.delivery import Delivery
from schemas.errors import Verdict

ROW: Record = ("bank.public.account", 0, b"key", b"value", [("xid", b"1")])


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
