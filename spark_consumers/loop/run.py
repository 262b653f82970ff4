"""The consumer's loop, once: for the command line and for programs.

    standby  another applier holds the target: this one asks again, until it has the target
    first    a pass over what the cuts hold, while what wakes the loop gets ready
    passes   one whenever cuts come, until stopped
    pause    behind an error that may pass; then `first` again.  It doubles up to 15 s, and is short
             again once a step was applied
    left     by any other error, or when asked to; the sink is closed, and what wakes the loop

Nothing is cleaned up behind an error: the ledger is read again and decides where the loop goes on,
as it does behind a crash.  A stop lets the step under way end.  No Spark here: what wakes the loop
is a port, and the simulation runs this very code.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Final, Protocol

import tenacity

from schemas.control import Cut
from schemas.errors import Verdict
from spark_consumers.cuts.ledger import Known, all_topics
from spark_consumers.errors import ApplyError
from spark_consumers.loop.ahead import ALONE, Begin, InTurn, ReadRows, Several
from spark_consumers.loop.job import DEFAULTS, SILENT, AppliedStep, Applier, Observer, PassOptions
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Sink

_LONGEST_PAUSE: Final = 15.0  # seconds between two turns
_LONGEST_BREAK: Final = 5.0  # seconds between two attempts of a pass
_ASK: Final = 0.3  # seconds between two questions whether another applier is gone
POLL: Final = 0.1  # seconds for which a stop is not noticed


class Stop(Protocol):
    """Whether the run is to stop."""

    def __call__(self, seconds: float = 0, /) -> bool:
        """Wait up to so many seconds; True: leave."""


class Waker(Protocol):
    """Runs a pass whenever something new may stand in cuts."""

    def begin(self) -> None:
        """Get ready, in the background; may be called again."""

    def run(self, drain: Callable[[], Ledger], stop: Stop, observer: Observer) -> None:
        """Call `drain` until `stop`; raise what ended it before."""

    def applied(self, progress: AppliedStep, /) -> None:
        """A step of the target is durable."""

    def close(self) -> None:
        """Let go of what `begin` started."""


class Polling:
    """The plain waker: the process itself waits for cuts, without Spark."""

    def __init__(self, wait: Callable[[float], object]) -> None:
        """`wait(seconds)` returns when cuts may have come, or when the time is over."""
        self._wait = wait

    def begin(self) -> None:
        """Nothing has to start."""

    def run(self, drain: Callable[[], Ledger], stop: Stop, observer: Observer) -> None:
        """Wait and drain, in turn."""
        del observer
        while not stop():
            self._wait(POLL)
            drain()

    def applied(self, progress: AppliedStep, /) -> None:
        """Nobody waits for it."""

    def close(self) -> None:
        """Nothing was started."""


def run(
    sink: Sink,
    read_cuts: Callable[[Ledger], Iterable[tuple[int, Cut]]],
    read_rows: ReadRows,
    waker: Waker,
    *,
    options: PassOptions = DEFAULTS,
    stop: Stop,
    observer: Observer = SILENT,
    begin: Begin = InTurn,
    several: Several = ALONE,
    known: Known = all_topics,
) -> None:
    """Apply what the cuts hold and what comes, until `stop`; close waker and sink.

    `read_cuts`, `read_rows`, `several`, `known`: see `Applier`.  `begin`: what comes next is read
    by it, while the target applies.

    Raises the ApplyError that needs a person, and any error that is not an ApplyError.
    """
    applier = Applier(
        read_cuts,
        read_rows,
        sink,
        options,
        observer=observer,
        pause=lambda attempt: _sleep(min(0.2 * 2**attempt, _LONGEST_BREAK)),
        begin=begin,
        several=several,
        on_applied=waker.applied,
        known=known,
    )
    has_started = False
    reached = tries = 0

    def _sleep(seconds: float) -> None:
        stop(seconds)

    def turn() -> None:
        """What a crash may have left over, while the waker gets ready; then what comes."""
        nonlocal has_started
        if not has_started:
            observer.on_step("start: take the target")
            while sink.start() is None:
                observer.on_standby()
                if stop(_ASK):
                    return
            has_started = True
        observer.on_step("start: first pass")
        waker.begin()
        applier.drain(stop)
        waker.run(lambda: applier.drain(stop), stop, observer)

    def may_pass(error: BaseException) -> bool:
        return isinstance(error, ApplyError) and error.verdict is Verdict.RETRY and not stop()

    def wait(_: tenacity.RetryCallState) -> float:
        """Grow with consecutive failures; progress resets the backoff."""
        nonlocal reached, tries
        tries = tries + 1 if applier.steps == reached else 0
        reached = applier.steps
        return min(_LONGEST_PAUSE, 0.5 * 2.0**tries) * random.uniform(0.5, 1)  # noqa: S311

    def note(state: tenacity.RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        assert isinstance(error, ApplyError)
        observer.on_retry(error, state.upcoming_sleep)

    with closing(sink), closing(waker):
        try:
            tenacity.Retrying(
                retry=tenacity.retry_if_exception(may_pass),
                wait=wait,
                sleep=_sleep,
                before_sleep=note,
                reraise=True,
            )(turn)
        except ApplyError as error:
            if error.verdict is not Verdict.RETRY or not stop():
                raise
            observer.on_leave(error)
