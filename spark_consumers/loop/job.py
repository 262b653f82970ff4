"""One pass: ledger -> cuts -> segments -> rows -> stage -> step.

Pure over its ports: what reads cuts, what reads rows and the target are given, so that
the simulation runs this very code.  The position is read from the target itself: a
lost, reused or future checkpoint of Spark has no effect.

    ledger    where the target stands: an epoch, a record `n`, a commit `seq`
    cuts      all accepted records behind that; another writer's are left out by its number
    segments  runs of commits that become one step; a schema change, a piece of a load and a START
              are steps of their own
    rows      the exact offsets that a segment names, read ahead while the step before is applied
    stage     what can be prepared outside the target's transaction
    step      one transaction: compare the ledger, apply, move it; see `sinks/step`

An attempt that fails is made again from the ledger, `attempts` times without progress.  A target
that does not have what a change needs is marked, and the step goes on without that: a mark is
part of the ledger, so that `wait` and `status` see it with the commit that it is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from schemas.control import Cut, Start, State
from schemas.errors import Verdict
from spark_consumers.cuts.ledger import (
    ALTERED,
    LACKS_ROW,
    LEFT_OUT,
    Known,
    all_topics,
    remarked,
    starts_anew,
    state_of,
    stated,
)
from spark_consumers.cuts.segments import segments
from spark_consumers.cuts.sizes import Sizes
from spark_consumers.errors import (
    ApplyError,
    ChangeLeftOut,
    Fenced,
    Incomplete,
    RowMissing,
    TableAltered,
    TargetFailed,
)
from spark_consumers.loop.ahead import ALONE, Ahead, Begin, InTurn, ReadRows, Several
from spark_consumers.model import Ledger, Segment, Ways
from spark_consumers.sinks.base import Sink

_WHY: Final = {TableAltered: ALTERED, ChangeLeftOut: LEFT_OUT}
ReadCuts: TypeAlias = Callable[[Ledger], Iterable[tuple[int, Cut]]]


@dataclass(frozen=True, slots=True)
class PassOptions:
    """How segments are cut, and how often a pass is tried."""

    max_rows: int = 5_000
    many_rows: int = 0  # of a segment where much waits; 0: always `max_rows`
    strict: bool = False  # one source transaction = one target transaction
    ddl_apart: bool = True  # a commit with schema changes is a step of its own
    attempts: int = 5  # passes without progress before a RETRY error is raised
    together: int = 1_000  # rows of `strict` commits that are read at once
    target: str = ""  # its name: loads for another one are passed by


@dataclass(frozen=True, slots=True)
class AppliedStep:
    """One step that was applied, and the sums since the start."""

    segment: Segment
    ledger: Ledger
    steps: int
    commits: int
    rows: int
    ways: Ways  # it grows with the next step


class Observer:
    """The events of a run; a program overrides the methods that it needs."""

    def on_step(self, name: str) -> None:
        """A step of the loop begins."""

    def on_standby(self) -> None:
        """Another applier holds the target: this one waits its turn."""

    def on_pass(self, reached: Ledger | None) -> None:
        """A pass over new cuts begins (None), or has brought the target to their end."""

    def on_progress(self, progress: AppliedStep) -> None:
        """A step of the target is durable."""

    def on_left_out(self, error: ApplyError) -> None:
        """What ended with `error` is left out: the next epoch loads every table again."""

    def on_attempt(self, error: ApplyError) -> None:
        """An attempt failed, and the next one begins at once or nearly so."""

    def on_retry(self, error: ApplyError, seconds: float) -> None:
        """An error may pass: the loop tries again after so many seconds."""

    def on_leave(self, error: ApplyError) -> None:
        """The run was asked to stop while it waited to try again after `error`."""


# What is tried again though it may never pass.
_MAY_STAY: Final = (Incomplete, TargetFailed)
DEFAULTS: Final = PassOptions()
SILENT: Final = Observer()


def _never() -> bool:
    return False


def _at_once(_: int) -> None:
    return None


def _untold(_: AppliedStep) -> None:
    return None


class Applier:
    """Moves one target to the end of the cuts, step by step."""

    def __init__(
        self,
        read_cuts: ReadCuts,
        read_rows: ReadRows,
        sink: Sink,
        options: PassOptions = DEFAULTS,
        *,
        observer: Observer = SILENT,
        pause: Callable[[int], None] = _at_once,
        begin: Begin = InTurn,
        several: Several = ALONE,
        on_applied: Callable[[AppliedStep], None] = _untold,
        known: Known = all_topics,
    ) -> None:
        """`read_cuts(ledger)` gives the accepted records behind it; `read_rows(segment)` its rows.

        `pause(attempt)` waits before a pass is tried again; by default it does not.

        `begin`: what comes next is read by it, while the target applies.  `several`: how tasks of
        Spark read what waits.  `on_applied` is told of each step, before `observer`.  `known`: see
        `begun_late`.
        """
        self._begin, self._several = begin, several
        self._sizes = Sizes(options.max_rows, options.many_rows)
        self._read_cuts, self._read_rows, self._sink = read_cuts, read_rows, sink
        self._options = options
        self._observer, self._pause, self._on_applied = observer, pause, on_applied
        self._known = known
        self._ledger: Ledger | None = None
        self._stated: State | None = None  # the newest that was read
        self._lacking: dict[str, str] = {}  # marks of tables that lack a row, or were altered ...
        self._lacking_at = (0, 0, 0)  # ... behind this place
        self._is_marked = False  # the plan under way began there, with their marks
        self.steps = self.commits = self.rows = 0
        self.ways = Ways()

    @property
    def ledger(self) -> Ledger | None:
        """Where the target stands, as far as this loop knows; None: it must be asked."""
        return self._ledger

    def drain(self, stop: Callable[[], bool] = _never) -> Ledger:
        """Apply everything that the cuts hold now; return where the target stands.

        `stop` is asked between two steps.  An attempt that came too late, or failed, is abandoned:
        the ledger is read again and decides.  What stays, after `attempts` passes without progress,
        is raised, unless the cuts continue with an epoch that loads all tables: then nothing before
        it counts.
        """
        self._observer.on_pass(None)
        ledger = self._drain(stop)
        self._observer.on_pass(ledger)
        return ledger

    def _drain(self, stop: Callable[[], bool]) -> Ledger:
        attempt, before = 0, self.steps
        while True:
            try:
                return self._pass(stop)
            except ApplyError as error:
                place, self._ledger = _place(self._ledger), None
                if isinstance(error, Fenced):
                    raise
                if isinstance(error, RowMissing) and self._mark(error, place):
                    continue
                if error.verdict is not Verdict.RETRY:
                    if not self._begin_anew(error, stop):
                        raise
                    continue
                if self.steps != before:
                    attempt, before = 0, self.steps
                attempt += 1
                if attempt >= self._options.attempts or stop():
                    if not isinstance(error, _MAY_STAY) or not self._begin_anew(error, stop):
                        raise
                    continue
                self._observer.on_attempt(error)
                self._pause(attempt)
            except BaseException:
                self._ledger = None
                raise

    def _pass(self, stop: Callable[[], bool]) -> Ledger:
        self._sink.check()
        while True:
            if self._ledger is None:
                self._observer.on_step("read ledger")
                self._ledger = self._sink.ledger()
            if not self._some(self._ledger, stop):
                return self._ledger

    def _mark(self, error: RowMissing, place: tuple[int, int, int]) -> bool:
        """Mark a table that lacks a row behind a place: from the step there on it is not exact.

        Changes that the source did not send, or another client of the target, may be the reason.
        Other tables go on.  False: it is marked, and that did not help.
        """
        table = str(error.where.get("table", ""))
        known = self._lacking if place == self._lacking_at else {}
        if not table or (table in known and self._is_marked):
            return False  # else the target was set back, and a plan came past the place
        why = _WHY.get(type(error), LACKS_ROW)
        self._lacking, self._lacking_at = {**known, table: why}, place
        self._observer.on_attempt(error)
        return True

    def _begin_anew(self, stuck: ApplyError, stop: Callable[[], bool]) -> bool:
        """Leave out what cannot be applied, where an epoch behind it loads everything again.

        This is what makes `run --accept-gap` a way out of whatever stopped here.
        """
        if stop():
            return False
        try:
            ledger = self._sink.ledger()
            start = starts_anew(ledger, self._read_cuts(ledger))
            if start is None:
                return False
            self._apply(segments(ledger, [start]), _never)
        except ApplyError:
            return False  # the caller raises the error that stopped the pass
        self._observer.on_left_out(stuck)
        return True

    def _some(self, ledger: Ledger, stop: Callable[[], bool]) -> bool:
        """Apply segments until the cuts end; True if a new plan is needed."""
        self._observer.on_step("read cuts")
        plan = segments(
            self._with_marks(self._with_topics(ledger)),
            self._noting(self._read_cuts(ledger)),
            sizes=self._sizes,
            strict=self._options.strict,
            ddl_apart=self._options.ddl_apart,
            target=self._options.target,
            known=self._known,
        )
        return self._apply(self._first_lacking(plan), stop)

    def _first_lacking(self, plan: Iterable[Segment]) -> Iterator[Segment]:
        """Have the step that failed at this place mark its tables under their later names, too."""
        lacking = self._lacking if self._is_marked else {}
        for segment in plan:
            yield replace(segment, marks={**lacking, **segment.marks}) if lacking else segment
            lacking = {}

    def _noting(self, coming: Iterable[tuple[int, Cut]]) -> Iterator[tuple[int, Cut]]:
        for offset, cut in coming:
            if isinstance(cut, State) and not isinstance(cut, Start):
                self._stated = cut
            yield offset, cut

    def _with_topics(self, ledger: Ledger) -> Ledger:
        """Return the ledger with the topics of a STATE behind it, which ended what was read.

        It is read once, and changes nothing by itself: the next step carries it [H43].
        """
        cut, place = self._stated, _place(ledger)
        if cut is None or place != (cut.head.epoch, cut.head.n, cut.head.last_seq):
            return ledger
        return stated(ledger, cut)

    def _with_marks(self, ledger: Ledger) -> Ledger:
        """Return the ledger with the marks of tables that lack a row; the next step has them."""
        self._is_marked = bool(self._lacking) and _place(ledger) == self._lacking_at
        if not self._is_marked:
            return ledger
        marks = {t: remarked(ledger.inexact.get(t), why) for t, why in self._lacking.items()}
        inexact = {**ledger.inexact, **marks}
        return replace(ledger, inexact=inexact, state=state_of(inexact))

    def _apply(self, plan: Iterable[Segment], stop: Callable[[], bool]) -> bool:
        """Apply a plan; True if it does not hold any more.  What was read ahead ends with it."""
        options = self._options
        ahead = Ahead(
            plan,
            self._read_rows,
            self._sink.stage,
            self._begin,
            sizes=self._sizes,
            together=min(options.together, options.max_rows),
            several=self._several,
        )
        with closing(ahead):
            while not stop():
                self._observer.on_step("read rows")
                if (following := ahead.next()) is None:
                    break
                segment, rows, staged = following
                self._observer.on_step("step")
                self._ledger = self._sink.step(segment, staged)
                self._count(segment, rows)
                if self._ledger.inexact != segment.upto.inexact:
                    self._ledger = None  # what was staged ahead goes when it is read
                    return True  # the step learned of a loss: later ledgers must carry it
        return False

    def _count(self, segment: Segment, rows: Any) -> None:
        self.steps += 1
        self.commits += len(segment.commit_rows)
        self.rows += segment.rows
        self.ways.add(segment, rows)
        if self._ledger is not None:
            step = AppliedStep(
                segment, self._ledger, self.steps, self.commits, self.rows, self.ways
            )
            self._on_applied(step)
            self._observer.on_progress(step)


def _place(ledger: Ledger | None) -> tuple[int, int, int]:
    return (0, 0, 0) if ledger is None else (ledger.epoch, ledger.n, ledger.seq)
