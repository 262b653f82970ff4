"""The demo is left by any signal that asks it to, once."""

import os
import signal

import pytest

from gauss_cdc_lab.demo.scene import Interrupted, Interrupts

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_interrupts_and_no_other_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts():
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), number)
        for later in NUMBERS:
            os.kill(os.getpid(), later)

    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_comes_while_it_is_held_interrupts_behind_that(number: int) -> None:
    went_on = []

    def start() -> None:
        with interrupts.held():
            os.kill(os.getpid(), number)
            went_on.append(number)

    with Interrupts() as interrupts, pytest.raises(Interrupted):
        start()

    assert went_on == [number]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_at_the_end_interrupts_nothing(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.end()
        os.kill(os.getpid(), number)
