"""The demo is left by any signal that asks it to, once."""

import signal

import pytest

from gauss_cdc_lab.demo.scene import Interrupted, Interrupts

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def come(number: signal.Signals, interrupts: Interrupts) -> None:
    """Do what Python does when a signal has come; a real one would be the test run's, too."""
    handler = signal.getsignal(number)
    assert callable(handler)
    assert getattr(handler, "__self__", None) is interrupts
    handler(number, None)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_interrupts_and_no_other_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted):
            come(number, interrupts)
        for later in NUMBERS:
            come(later, interrupts)

    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_comes_while_it_is_held_interrupts_behind_that(
    number: signal.Signals,
) -> None:
    went_on = []

    def start() -> None:
        with interrupts.held():
            come(number, interrupts)
            went_on.append(number)

    with Interrupts() as interrupts, pytest.raises(Interrupted):
        start()

    assert went_on == [number]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_at_the_end_interrupts_nothing(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.end()
        come(number, interrupts)
