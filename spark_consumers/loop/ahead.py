"""Reading ahead: the next segments are read while the target applies one.

    plan -> batch -> read -> stage -> (segment, rows, staged), one by one

A batch is one segment, several commits of `strict` that are read at once and applied one by one,
or several large segments that Spark's tasks read at once.  One batch is read ahead, and only if it
and the one under way are small enough to be held together; a larger one is read in its turn.  What
a reading raises is raised in its turn.  Only what follows the segment under way is read: who gives
up the plan gives up what was read.

The plan, what reads and what stages are used by one call at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from schemas.control import Commits, SchemaChange
from schemas.tables import TableId
from spark_consumers.cuts.segments import joined
from spark_consumers.cuts.sizes import Sizes
from spark_consumers.errors import ApplyError
from spark_consumers.model import Change, Rows, Segment

ReadRows: TypeAlias = Callable[[Segment], Any]
Stage: TypeAlias = Callable[[Segment, Any], Any]
Together: TypeAlias = Callable[[Segment], int]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


_LATER: Final = object()  # in place of what is done in its turn
_Batch: TypeAlias = tuple[Sequence[Segment], bool]  # and whether it is for tasks
_NOTHING: Final[_Batch] = ((), False)


def by_itself(_: Segment) -> int:
    """`Together` without tasks of Spark."""
    return 0


@dataclass(frozen=True, slots=True)
class Several:
    """How tasks of Spark read several segments at once."""

    together: Together = by_itself  # segments like this one in a batch; 0: it is not for tasks
    read: Callable[[Sequence[Segment]], Sequence[Any]] = tuple  # None: it is read in its turn


ALONE: Final = Several()


class Ready(NamedTuple):
    """A segment that can be applied."""

    segment: Segment
    rows: Any = _LATER
    staged: Any = None


class Promise(Protocol[T_co]):
    """The result of a call that was begun."""

    def result(self) -> T_co:
        """Wait for it; raise what the call raised."""

    def abandon(self) -> None:
        """Give it up.  When this returns, the call is not under way any more."""


class Begin(Protocol):
    """Begins a call, and the next one only when the one before is over."""

    def __call__(self, call: Callable[[], T], /) -> Promise[T]:
        """Return at once or later; what the call raises is its promise's."""


@dataclass(frozen=True, slots=True)
class InTurn(Generic[T]):
    """`Begin` without reading ahead: the call is made when its result is needed."""

    call: Callable[[], T]

    def result(self) -> T:
        return self.call()

    def abandon(self) -> None:
        """Nothing is under way."""


class ReadingThread:
    """`Begin` by one thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "reads ahead")

    def __call__(self, call: Callable[[], T], /) -> Promise[T]:
        return _Threaded(self._pool.submit(call))

    def close(self) -> None:
        """Wait for a call that is under way: what it uses is closed next."""
        self._pool.shutdown()


@dataclass(frozen=True, slots=True)
class _Threaded(Generic[T]):
    future: Future[T]

    def result(self) -> T:
        return self.future.result()

    def abandon(self) -> None:
        if not self.future.cancel():
            wait([self.future])


class Ahead:
    """The segments of a plan with their rows."""

    def __init__(
        self,
        plan: Iterable[Segment],
        read: ReadRows,
        stage: Stage,
        begin: Begin,
        *,
        sizes: Sizes,
        together: int,
        several: Several = ALONE,
    ) -> None:
        """`sizes` says what may be held, that under way included, and learns of what was read.

        `together`: as many rows of commits that are applied one by one are read at once.
        """
        self._several = several
        self._batches = _batches(plan, together, self._together)
        self._reader, self._stage = read, stage
        self._begin, self._sizes = begin, sizes
        self._held = 0  # rows of the batch under way
        self._is_over = False
        self._ready: deque[Ready] = deque()
        self._coming: Promise[Sequence[Ready]] | None = None

    def next(self) -> Ready | None:
        """The next segment, its rows and what the sink made of them; None: the plan has ended."""
        if not self._ready:
            # The first batch has nothing to be read beside: another thread would cost its wake-up.
            coming, self._coming = self._coming, None
            self._ready.extend(self._take() if coming is None else coming.result())
            if not self._ready:
                self._is_over = True
                return None
            self._held = sum(map(self._weight, self._ready))
        step = self._ready.popleft()
        if step.rows is _LATER:
            step = step._replace(rows=self._read(step.segment))
            self._held = self._weight(step) + sum(map(self._weight, self._ready))
        step = step._replace(staged=self._stage(step.segment, step.rows))
        if self._coming is None and all(one.rows is not _LATER for one in self._ready):
            self._coming = self._begin(self._take)
        return step

    def close(self) -> None:
        """Throw away what was read and not taken."""
        self._is_over = True
        if self._coming is not None:
            self._coming.abandon()

    def _together(self, segment: Segment) -> int:
        most = self._several.together(segment)
        return min(most, self._sizes.together(segment.rows)) if most else 0

    def _read(self, segment: Segment) -> Any:
        rows = self._reader(segment)
        self._learn(rows)
        return rows

    def _learn(self, rows: Any) -> None:
        if isinstance(rows, Rows):
            self._sizes.learn(rows)

    def _take(self) -> Sequence[Ready]:
        """Read the next batch, or leave it for its turn where it is too large to be held yet."""
        steps, by_tasks = next(self._batches, _NOTHING)
        if self._is_over or not steps:
            return ()
        coming = sum(step.rows for step in steps)
        tables = max((len(step.schema_ids) for step in steps), default=0)
        if self._held and not (
            self._sizes.fit(self._held + coming)
            if by_tasks
            else self._sizes.may_be_held(self._held + coming, tables)
        ):
            return [*map(Ready, steps)]
        if by_tasks:
            found = self._several.read(steps)
            for rows in found:
                self._learn(rows)
            return [
                Ready(step, _LATER if rows is None else rows)
                for step, rows in zip(steps, found, strict=True)
            ]
        if len(steps) < 2:
            return [Ready(step, self._read(step)) for step in steps]
        try:
            rows = self._read(joined(steps))
        except ApplyError:  # of one of them, which is the one to raise it
            rows = _LATER
        if not isinstance(rows, Rows):
            return [*map(Ready, steps)]
        return list(_apart(steps, rows))

    def _weight(self, step: Ready) -> int:
        """How many rows are held of a segment; nothing is held beside one that is read in parts."""
        if step.rows is _LATER:
            return 0
        return step.segment.rows if isinstance(step.rows, Rows) else self._sizes.everything


def _batches(plan: Iterable[Segment], together: int, by_tasks: Together) -> Iterator[_Batch]:
    """Put commits that are small together, and large segments; everything else is alone.

    Each segment is asked for once: that may wait for a micro-batch.
    """
    batch: list[Segment] = []
    rows = most = 0
    try:
        for segment in plan:
            tasks = by_tasks(segment)
            is_small = not tasks and isinstance(segment.cut, Commits) and segment.rows < together
            if batch and not (
                (is_small and not most and rows + segment.rows <= together)
                or (tasks and len(batch) < min(most, tasks))
            ):
                yield batch, most > 0
                batch, rows, most = [], 0, 0
            batch.append(segment)
            rows += segment.rows
            if tasks:
                most = tasks if most == 0 else min(most, tasks)
            if not is_small and len(batch) >= most:
                yield batch, most > 0
                batch, rows, most = [], 0, 0
    except ApplyError:  # comes behind what was planned before
        if batch:
            yield batch, most > 0
        raise
    if batch:
        yield batch, most > 0


def _apart(steps: Sequence[Segment], rows: Rows) -> Iterator[Ready]:
    """Give each of several segments its own of the rows, which were checked to be theirs."""
    step_of = {seq: at for at, step in enumerate(steps) for seq in step.commit_rows}
    changes: list[dict[TableId, list[Change]]] = [{} for _ in steps]
    ddl: list[list[SchemaChange]] = [[] for _ in steps]
    for table, all_of in rows.changes.items():
        for change in all_of:
            changes[step_of[change.seq]].setdefault(table, []).append(change)
    for one in rows.ddl:
        ddl[step_of[one.seq]].append(one)
    for step, own, own_ddl in zip(steps, changes, ddl, strict=True):
        yield Ready(step, Rows(own, own_ddl))
