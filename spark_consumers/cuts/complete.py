"""The counts of a segment: what was read is exactly what its cut lists.

Whatever a reader missed, or saw twice, is noticed here, before anything is applied.  Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.control import LoadPhase, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from spark_consumers import native
from spark_consumers.errors import Incomplete
from spark_consumers.model import Change, CommitRows, Rows, Segment
from spark_consumers.native import is_packed

if TYPE_CHECKING:
    from spark_consumers.native._native import PackedRows

_WORD: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Promised:
    """What a segment's cut says of its content; it travels to the tasks of Spark."""

    n: int
    commit_rows: CommitRows
    loaded: Mapping[TableId, int] | None  # rows of each table that is loaded; None: commits
    shapes: int = 0  # of tables whose loads begin


def promised(segment: Segment) -> Promised:
    """What must be read of a segment."""
    loaded = chunk_rows(segment) if segment.loads else None
    shapes = segment.rows - sum(loaded.values()) if loaded is not None else 0
    return Promised(segment.cut.head.n, segment.commit_rows, loaded, shapes)


def check_complete(promise: Promised, content: Rows) -> None:
    """Raise Incomplete unless `content` is exactly what a segment's cut promises.

    For every commit the ordinals 0..rows-1, DDL and TRUNCATE included; a TRUNCATE may
    stand in several partitions under one ordinal.  For loads, the number of rows of each table.
    """
    if promise.loaded is not None:
        _check_loads(promise, promise.loaded, content)
        return
    parts = Following(promise)
    parts.take(content)
    parts.end()


def chunk_rows(segment: Segment) -> dict[TableId, int]:
    """Rows that a segment of loads brings to each table."""
    rows: dict[TableId, int] = {}
    for load in segment.loads:
        if load.phase is LoadPhase.CHUNK:
            rows[load.table] = rows.get(load.table, 0) + load.rows
    return rows


def _check_loads(promise: Promised, rows: Mapping[TableId, int], content: Rows) -> None:
    found = {table: len(changes) for table, changes in content.changes.items()}
    for table in rows.keys() | found.keys():
        there, wanted = found.get(table, 0), rows.get(table, 0)
        if there != wanted:
            what = f"{there} of {wanted} rows of a load"
            raise _incomplete(promise, what, table=table)
    if promise.shapes not in (0, len(content.ddl)):  # BEGIN need not count its own
        raise _incomplete(promise, f"{len(content.ddl)} of {promise.shapes} shapes of loads")


class Following:
    """Checks the parts of a segment that come in commit order: each ends where the next begins."""

    def __init__(self, promise: Promised) -> None:
        self._promise, self._first = promise, promise.commit_rows.first
        self._places = promise.commit_rows.places()  # of each commit's ordinals, in a line
        self._reached = 0  # in that line

    def take(self, part: Rows, upto: tuple[int, int] | None = None) -> None:
        """Raise Incomplete unless a part has all that is behind the last one, up to a place.

        None: to the end.
        """
        end = self._places[-1]
        if upto is not None:
            seq, ordinal = upto
            if not 0 <= ordinal < self._promise.commit_rows.get(seq, 0):
                raise _stranger(self._promise, seq, ordinal)
            end = self._places[seq - self._first] + ordinal + 1
        ticks = _Ticks(self._promise, self._places, self._reached, end)
        for changes in part.changes.values():
            if is_packed(changes):
                ticks.take_packed(changes)
            else:
                ticks.take(changes)
        ticks.take(part.ddl)
        ticks.check()
        self._reached = end

    def end(self) -> None:
        """Raise Incomplete unless the parts were everything."""
        if self._reached != self._places[-1]:
            left = self._places[-1] - self._reached
            raise _incomplete(self._promise, f"{left} rows are missing at the end")


class _Ticks:
    """A tick for each place from one to another, in the line of all ordinals of a segment."""

    def __init__(self, promise: Promised, places: array[int], start: int, end: int) -> None:
        """`places` are those of the commits in that line."""
        self._promise, self._first = promise, promise.commit_rows.first
        self._places = array("q", [at - start for at in places]) if start else places
        self._bytes = self._places.tobytes()
        self._ticks = bytearray(end - start)

    def take_packed(self, changes: PackedRows) -> None:
        """Tick what is there; raises Incomplete for what has no place, or is there twice."""
        if (unfit := changes.tick(self._first, self._bytes, self._ticks)) >= 0:
            self._take(changes[unfit])  # raises

    def take(self, changes: Sequence[Change | SchemaChange]) -> None:
        """Tick what is there; raises Incomplete for what has no place, or is there twice."""
        for change in changes:
            self._take(change)

    def check(self) -> None:
        """Raise Incomplete where one is missing."""
        if (missing := self._ticks.find(0)) < 0:
            return
        commit = bisect_right(self._places, missing) - 1
        of = self._ticks[max(0, self._places[commit]) : self._places[commit + 1]]
        raise _incomplete(
            self._promise,
            f"{of.count(0)} of {len(of)} rows are missing",
            seq=self._first + commit,
        )

    def _take(self, change: Change | SchemaChange) -> None:
        seq, ordinal = change.seq, change.ordinal
        if not 0 <= ordinal < self._promise.commit_rows.get(seq, 0):
            raise _stranger(self._promise, seq, ordinal)
        place = self._places[seq - self._first] + ordinal
        is_again = not isinstance(change, SchemaChange) and change.op == "t"
        if not 0 <= place < len(self._ticks) or (self._ticks[place] and not is_again):
            raise _incomplete(self._promise, "a row is there twice", seq=seq, ordinal=ordinal)
        self._ticks[place] = 1


class Sums:
    """Checks the parts of one commit that come in any order: how many ordinals, and their sum.

    Each ordinal counts as a number of 64 bits that looks like chance: another set of as many has
    the same sum once in 2^64.  A table's records are of one partition, so that no TRUNCATE is
    there twice.
    """

    def __init__(self, promise: Promised) -> None:
        """The promise of a segment with one commit."""
        self._promise = promise
        self._rows = sum(promise.commit_rows.values())
        self._left, self._sum = self._rows, ordinals(range(self._rows))

    def take(self, found: tuple[int, int]) -> None:
        """Count a part, by `sums_of`."""
        rows, total = found
        self._left -= rows
        self._sum = (self._sum - total) & _WORD

    def end(self) -> None:
        """Raise Incomplete unless the parts were everything, once."""
        if self._left or self._sum:
            raise _incomplete(
                self._promise,
                f"{self._left} of {self._rows} rows are missing"
                if self._left
                else "rows of a commit are missing or there twice",
                seq=self._promise.commit_rows.first,
            )


def sums_of(content: Rows, seq: int) -> tuple[int, int] | None:
    """Give what `Sums` counts of the rows of one commit; None: a row is another commit's."""
    rows = total = 0
    for changes in content.changes.values():
        if is_packed(changes):
            found = changes.ordinals(seq)
            if found is None:
                return None
        elif all(change.seq == seq for change in changes):
            found = ordinals([change.ordinal for change in changes])
        else:
            return None
        rows, total = rows + len(changes), total + found
    return rows, total & _WORD


def ordinals(several: Sequence[int]) -> int:
    """Add up ordinals, each as a number that looks like chance (splitmix64).

    >>> ordinals([1, 0]) == ordinals(range(2)), ordinals([0, 3]) == ordinals([1, 2])
    (True, False)
    """
    if isinstance(several, range) and native.IS_BUILT:
        return native.mixed(several.start, several.stop)
    return sum(map(_mixed, several)) & _WORD


def _mixed(number: int) -> int:
    number = (number + 0x9E3779B97F4A7C15) & _WORD
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _WORD
    return number ^ number >> 31


def _stranger(promise: Promised, seq: int, ordinal: int) -> Incomplete:
    what = "a record that is not of this commit stands in its range"
    return _incomplete(promise, what, seq=seq, ordinal=ordinal)


def _incomplete(promise: Promised, what: str, **where: object) -> Incomplete:
    return Incomplete(
        what,
        hint=f"if it stays, the topic and the cuts differ: {LOAD_AGAIN}",
        n=promise.n,
        **where,
    )
