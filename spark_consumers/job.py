"""The loop: ledger -> cuts -> segments -> rows -> stage -> step.

No Spark and no Kafka here: what reads cuts, what reads rows and the target are
given, so that the simulation runs this very loop.  A micro-batch only says
"there is more"; where to go on is asked of the target itself, so that a lost,
reused or future checkpoint of Spark decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from schemas.control import Cut
from spark_consumers.cuts import segments, starts_anew
from spark_consumers.errors import ApplyError, Fenced, Incomplete, Verdict
from spark_consumers.model import Ledger, Segment, Sink

ReadCuts: TypeAlias = Callable[[Ledger], Iterable[tuple[int, Cut]]]
ReadRows: TypeAlias = Callable[[Segment], Any]


@dataclass(frozen=True, slots=True)
class Options:
    """How segments are cut, and how stubborn a pass is."""

    max_rows: int = 5_000
    strict: bool = False  # one source transaction = one target transaction
    attempts: int = 5  # passes without progress before a RETRY error is raised


@dataclass(frozen=True, slots=True)
class Progress:
    """One step that was applied, and the sums since the start."""

    segment: Segment
    ledger: Ledger
    steps: int
    commits: int
    rows: int


def _ignore(_: object) -> None:
    return None


def _never() -> bool:
    return False


class Applier:
    """Moves one target to the end of the cuts, step by step."""

    def __init__(
        self,
        read_cuts: ReadCuts,
        read_rows: ReadRows,
        sink: Sink,
        options: Options = Options(),
        *,
        on_step: Callable[[str], None] = _ignore,
        on_progress: Callable[[Progress], None] = _ignore,
        on_left_out: Callable[[ApplyError], None] = _ignore,
        pause: Callable[[int], None] = _ignore,
    ) -> None:
        """`pause(attempt)` waits before a pass is tried again; by default it does not.

        `on_left_out` takes the error that ended an epoch whose rest was left out.
        """
        self._read_cuts, self._read_rows, self._sink = read_cuts, read_rows, sink
        self._options = options
        self._on_step, self._on_progress, self._pause = on_step, on_progress, pause
        self._on_left_out = on_left_out
        self._ledger: Ledger | None = None
        self.steps = self.commits = self.rows = 0

    @property
    def ledger(self) -> Ledger | None:
        """Where the target stands, as far as this loop knows; None: it must be asked."""
        return self._ledger

    def drain(self, stop: Callable[[], bool] = _never) -> Ledger:
        """Apply everything that the cuts hold now; return where the target stands.

        An attempt that came too late, or broke off, is given up: the ledger is read
        again and decides.  What stays, after `attempts` passes without progress, is raised,
        unless the cuts go on with an epoch that is loaded anew: then nothing before it counts.
        """
        attempt, before = 0, self.steps
        while True:
            try:
                return self._pass(stop)
            except ApplyError as error:
                self._ledger = None
                if isinstance(error, Fenced):
                    raise
                if error.verdict is not Verdict.RETRY:
                    if not self._begin_anew(error, stop):
                        raise
                    continue
                if self.steps != before:
                    attempt, before = 0, self.steps
                attempt += 1
                if attempt >= self._options.attempts or stop():
                    if not isinstance(error, Incomplete) or not self._begin_anew(error, stop):
                        raise
                    continue
                self._pause(attempt)
            except BaseException:
                self._ledger = None
                raise

    def _pass(self, stop: Callable[[], bool]) -> Ledger:
        if self._ledger is None:
            self._on_step("read ledger")
            self._ledger = self._sink.ledger()
        while self._some(self._ledger, stop):
            pass
        return self._ledger

    def _begin_anew(self, stuck: ApplyError, stop: Callable[[], bool]) -> bool:
        """Leave out what cannot be applied, where an epoch behind it loads everything again.

        This is what makes `run --accept-gap` a way out of whatever stopped here.
        """
        if stop():
            return False
        try:
            ledger = self._sink.ledger()
            anew = starts_anew(ledger, self._read_cuts(ledger))
            if anew is None:
                return False
            self._apply(segments(ledger, [anew]), _never)
        except ApplyError:
            return False  # the error that stopped says more
        self._on_left_out(stuck)
        return True

    def _some(self, ledger: Ledger, stop: Callable[[], bool]) -> bool:
        """Apply segments until the cuts end; True if the plan must be made anew."""
        self._on_step("read cuts")
        plan = segments(
            ledger,
            self._read_cuts(ledger),
            max_rows=self._options.max_rows,
            strict=self._options.strict,
        )
        return self._apply(plan, stop)

    def _apply(self, plan: Iterable[Segment], stop: Callable[[], bool]) -> bool:
        for segment in plan:
            if stop():
                return False
            self._on_step("read rows")
            rows = self._read_rows(segment)
            self._on_step("stage")
            staged = self._sink.stage(segment, rows)
            self._on_step("step")
            self._ledger = self._sink.step(segment, staged)
            self._count(segment)
            if self._ledger.inexact != segment.upto.inexact:
                return True  # the step learned of a loss: later ledgers must carry it
        return False

    def _count(self, segment: Segment) -> None:
        self.steps += 1
        self.commits += len(segment.commit_rows)
        self.rows += segment.rows
        if self._ledger is not None:
            self._on_progress(Progress(segment, self._ledger, self.steps, self.commits, self.rows))


def make_foreach_batch(
    applier: Applier,
    *,
    stop: Callable[[], bool] = _never,
    linger: float = 0.0,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[Any, int], None]:
    """Bind the loop; the result is what `foreachBatch` wants.

    With `linger` seconds the batch stays and goes on draining, which spares Spark's
    trigger; `wait(seconds)` returns when cuts may have come, or when the time is over.
    """

    def apply_batch(_batch: Any, _batch_id: int) -> None:
        until = clock() + linger
        applier.drain(stop)
        while not stop() and (left := until - clock()) > 0:
            wait(min(left, 0.1))
            applier.drain(stop)

    return apply_batch
