"""Reading ahead: the next segments are fetched and decoded while the target applies one.

    plan -> batch -> read -> (segment, rows), one by one

A batch is one segment, or several commits of `strict` that are read at once and applied one by
one.  One batch is read ahead, and only if it and the one under way are small enough to be held
together; a larger one is read in its turn.  What a reading raises is raised in its turn, too.
Only what follows the segment under way is read: who gives up the plan gives up what was read.

The plan and what reads are used by one call at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from schemas.control import Commits, SchemaChange
from schemas.tables import TableId
from spark_consumers.cuts import joined
from spark_consumers.errors import ApplyError
from spark_consumers.model import Change, Rows, Segment
from spark_consumers.sizes import Sizes

ReadRows: TypeAlias = Callable[[Segment], Any]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


_UNREAD: Final = object()  # in place of rows: they are read when it is their turn
_Read: TypeAlias = tuple[Segment, Any]


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
        begin: Begin,
        *,
        sizes: Sizes,
        together: int,
    ) -> None:
        """`sizes` says what may be held, that under way included, and learns of what was read.

        `together`: as many rows of commits that are applied one by one are read at once.
        """
        self._batches, self._reader = _batches(plan, together), read
        self._begin, self._sizes = begin, sizes
        self._held = 0  # rows of the batch under way
        self._is_over = False
        self._ready: deque[_Read] = deque()
        self._coming: Promise[Sequence[_Read]] | None = None

    def next(self) -> tuple[Segment, Any] | None:
        """The next segment and its rows; None: the plan has ended."""
        if not self._ready:
            # The first batch has nothing to be read beside: another thread would cost its wake-up.
            coming, self._coming = self._coming, None
            self._ready.extend(self._take() if coming is None else coming.result())
            if not self._ready:
                self._is_over = True
                return None
            self._held = sum(_weight(one) for one in self._ready)
        segment, rows = self._ready.popleft()
        if rows is _UNREAD:
            rows = self._read(segment)
            self._held = _weight((segment, rows))
        if self._coming is None and not (self._ready and self._ready[-1][1] is _UNREAD):
            self._coming = self._begin(self._take)
        return segment, rows

    def close(self) -> None:
        """Throw away what was read and not taken."""
        self._is_over = True
        if self._coming is not None:
            self._coming.abandon()

    def _read(self, segment: Segment) -> Any:
        rows = self._reader(segment)
        if isinstance(rows, Rows):
            self._sizes.learn(rows)
        return rows

    def _take(self) -> Sequence[_Read]:
        """Read the next batch, or leave it for its turn where it is too large to be held yet."""
        steps = next(self._batches, ())
        if self._is_over:
            return ()
        coming = sum(step.rows for step in steps)
        if self._held and not self._sizes.may_be_held(self._held + coming):
            return [(step, _UNREAD) for step in steps]
        if len(steps) < 2:
            return [(step, self._read(step)) for step in steps]
        try:
            rows = self._read(joined(steps))
        except ApplyError:  # of one of them, which is the one to raise it
            rows = _UNREAD
        if not isinstance(rows, Rows):
            return [(step, _UNREAD) for step in steps]
        return list(_apart(steps, rows))


def _batches(plan: Iterable[Segment], together: int) -> Iterator[Sequence[Segment]]:
    """Put commits that are small together; everything else is alone."""
    batch: list[Segment] = []
    rows = 0
    try:
        for segment in plan:
            is_small = isinstance(segment.cut, Commits) and segment.rows < together
            if batch and (not is_small or rows + segment.rows > together):
                yield batch
                batch, rows = [], 0
            batch.append(segment)
            rows += segment.rows
            if not is_small:
                yield batch
                batch, rows = [], 0
    except ApplyError:  # comes behind what was planned before
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _apart(steps: Sequence[Segment], rows: Rows) -> Iterator[_Read]:
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
        yield step, Rows(own, own_ddl)


def _weight(read: _Read) -> int:
    """How many rows the driver holds of a segment."""
    segment, rows = read
    return segment.rows if isinstance(rows, Rows) else 0
