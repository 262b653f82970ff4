"""Calls in a thread and in steps: one answer each, and an error is an answer."""

import os
from collections.abc import Iterator

import pytest

from producer.core.events import PartDurable
from producer.errors import BrokerDown
from producer.kafka import calls
from producer.kafka.calls import Call, Calls, InSteps, InThread


@pytest.fixture(params=["thread", "steps"])
def one(request: pytest.FixtureRequest) -> Iterator[Calls]:
    readable, writable = os.pipe()
    os.write(writable, b"!")
    made: Calls = InThread() if request.param == "thread" else InSteps(lambda: (readable,))
    yield made
    made.close(10)
    os.close(readable)
    os.close(writable)


def call(steps: int, error: BrokerDown | None = None) -> Call[PartDurable]:
    for _ in range(steps):
        yield
    if error is not None:
        raise error
    return PartDurable()


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_call_is_under_way_until_its_answer_is_taken(one: Calls, steps: int) -> None:
    for error in (None, BrokerDown("gone")):
        one.begin(call(steps, error))
        assert one.is_busy

        while not (answers := one.answers()):
            assert one.is_busy
            calls.wait(one, 10)

        assert answers == [error or PartDurable()]
        assert not one.is_busy
        assert one.answers() == []


def test_a_call_in_steps_goes_on_with_each_look_at_its_answer() -> None:
    one = InSteps(lambda: ())
    one.begin(call(2))

    assert one.answers() == []
    assert one.answers() == [PartDurable()]
