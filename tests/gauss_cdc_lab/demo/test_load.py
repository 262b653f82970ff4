"""The load waits while its target has enough to do."""

import math
from collections.abc import Callable
from itertools import chain, repeat

import pytest

from gauss_cdc_lab.demo import load
from gauss_cdc_lab.demo.bank import Bank
from gauss_cdc_lab.demo.load import Load

NOWHERE = "postgresql://127.0.0.1:1/none"  # nothing is started


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_LOOK", 0.0)


def looking(*answers: bool) -> tuple[Load, Callable[[], int]]:
    """A load, and how often its target was looked at; behind `answers` it has always enough."""
    coming, looked = chain(answers, repeat(True)), []

    def is_enough() -> bool:
        looked.append(next(coming))
        return looked[-1]

    return Load(NOWHERE, Bank(), seed=1, is_enough=is_enough), lambda: len(looked)


def test_an_event_waits_until_the_target_has_come_closer() -> None:
    one, looks = looking(True, True, True, False)

    assert one._wait() > 0.0
    assert looks() == 4


def test_who_is_close_enough_is_not_waited_for() -> None:
    one, looks = looking(False)

    assert one._wait() == 0.0
    assert looks() == 1


def test_a_worker_goes_on_slowly_while_the_target_is_far_behind() -> None:
    one, _ = looking()

    assert one._wait(0.01) >= 0.01


def test_nobody_waits_behind_the_end() -> None:
    one, looks = looking()
    one.stop()

    assert one._wait(math.inf) == 0.0
    assert looks() == 1
