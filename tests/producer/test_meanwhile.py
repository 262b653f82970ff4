"""Calls that run in a thread of their own: one after the other, and no error is lost."""

import threading
from collections.abc import Iterator

import pytest

from producer.errors import BrokerDown
from producer.meanwhile import InOrder, Meanwhile


@pytest.fixture
def behind() -> Iterator[InOrder]:
    calls = InOrder()
    yield calls
    calls.close()


def refused() -> None:
    raise BrokerDown("Kafka does not answer")


def test_the_caller_goes_on_while_a_call_is_under_way(behind: InOrder) -> None:
    may_end = threading.Event()
    done: list[int] = []

    behind(lambda: (may_end.wait(60), done.append(1)))
    went_on = list(done)
    may_end.set()
    behind.wait()

    assert went_on == []
    assert done == [1]


def test_a_call_begins_when_the_one_before_has_ended(behind: InOrder) -> None:
    order: list[int] = []

    for at in range(20):
        behind(lambda at=at: order.append(at))  # type: ignore[misc]
    behind.wait()

    assert order == list(range(20))


def test_an_error_comes_with_the_next_call_which_does_not_begin(behind: InOrder) -> None:
    begun: list[int] = []
    behind(refused)

    with pytest.raises(BrokerDown):
        behind(lambda: begun.append(1))
    behind.wait()

    assert begun == []


def test_an_error_of_the_last_call_comes_with_the_wait(behind: InOrder) -> None:
    behind(refused)

    with pytest.raises(BrokerDown):
        behind.wait()


def test_to_close_waits_for_what_is_under_way() -> None:
    behind, may_end, done = InOrder(), threading.Event(), list[int]()
    behind(lambda: (may_end.wait(60), done.append(1)))

    threading.Timer(0, may_end.set).start()
    behind.close()

    assert done == [1]


def test_the_source_is_told_that_we_live_during_a_call() -> None:
    beaten = threading.Event()
    calls = Meanwhile(beaten.set)

    assert calls(beaten.wait, 60) is True
    calls.close()
