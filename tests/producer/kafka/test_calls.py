"""Calls in a thread: one answer each, an error of ours is one, and another ends the run."""

from collections.abc import Iterator

import pytest

from producer.core.events import PartDurable
from producer.errors import BrokerDown
from producer.kafka.calls import CallThread


@pytest.fixture
def one() -> Iterator[CallThread]:
    made = CallThread()
    yield made
    assert made.close(10)


def failing(error: Exception) -> PartDurable:
    raise error


def test_a_call_is_under_way_until_its_answer_is_taken(one: CallThread) -> None:
    error = BrokerDown("gone")
    for call, answer in ((PartDurable, PartDurable()), (lambda: failing(error), error)):
        one.begin(call)
        assert one.is_busy

        while not (answers := one.answers()):
            assert one.is_busy
            one.wait(10)

        assert answers == [answer]
        assert not one.is_busy
        assert one.answers() == []


def test_a_fault_in_a_call_is_raised_in_the_loop_and_calls_go_on(one: CallThread) -> None:
    one.begin(lambda: failing(RuntimeError("a fault")))
    one.wait(10)

    with pytest.raises(RuntimeError, match="a fault"):
        one.answers()

    one.begin(PartDurable)
    one.wait(10)
    assert one.answers() == [PartDurable()]
