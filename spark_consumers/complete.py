"""The counts of a segment: what was read is exactly what its cut lists.

Whatever a reader missed, or saw twice, is noticed here, before anything is applied.  Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas.control import LoadPhase, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from spark_consumers.errors import Incomplete
from spark_consumers.model import Change, Rows, Segment
from spark_consumers.native import is_packed

if TYPE_CHECKING:
    from spark_consumers.native._native import PackedRows


def check_complete(segment: Segment, content: Rows) -> None:
    """Raise Incomplete unless `content` is exactly what the segment's cut promises.

    For every commit the ordinals 0..rows-1, DDL and TRUNCATE included; a TRUNCATE may
    stand in several partitions under one ordinal.  For loads, the number of rows of each table.
    """
    if segment.loads:
        _check_loads(segment, content)
        return
    ticks = _Ticks(segment)
    for changes in content.changes.values():
        if is_packed(changes):
            ticks.take_packed(changes)
        else:
            ticks.take(changes)
    ticks.take(content.ddl)
    ticks.check()


def chunk_rows(segment: Segment) -> dict[TableId, int]:
    """Rows that a segment of loads brings to each table."""
    rows: dict[TableId, int] = {}
    for load in segment.loads:
        if load.phase is LoadPhase.CHUNK:
            rows[load.table] = rows.get(load.table, 0) + load.rows
    return rows


def _check_loads(segment: Segment, content: Rows) -> None:
    rows = chunk_rows(segment)
    found = {table: len(changes) for table, changes in content.changes.items()}
    for table in rows.keys() | found.keys():
        there, promised = found.get(table, 0), rows.get(table, 0)
        if there != promised:
            what = f"{there} of {promised} rows of a load"
            raise _incomplete(segment, what, table=table)
    shapes = segment.rows - sum(rows.values())
    if shapes not in (0, len(content.ddl)):  # BEGIN need not count its own
        raise _incomplete(segment, f"{len(content.ddl)} of {shapes} shapes of loads")


class _Ticks:
    """A tick for each ordinal of each commit of a segment."""

    def __init__(self, segment: Segment) -> None:
        self._segment, self._first = segment, segment.commit_rows.first
        self._places = segment.commit_rows.places()
        self._bytes = self._places.tobytes()
        self._ticks = bytearray(self._places[-1])

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
        of = self._ticks[self._places[commit] : self._places[commit + 1]]
        raise _incomplete(
            self._segment,
            f"{of.count(0)} of {len(of)} rows are missing",
            seq=self._first + commit,
        )

    def _take(self, change: Change | SchemaChange) -> None:
        seq, ordinal = change.seq, change.ordinal
        if not 0 <= ordinal < self._segment.commit_rows.get(seq, 0):
            raise _incomplete(
                self._segment,
                "a record that is not of this commit stands in its range",
                seq=seq,
                ordinal=ordinal,
            )
        place = self._places[seq - self._first] + ordinal
        if self._ticks[place] and not (isinstance(change, Change) and change.op == "t"):
            raise _incomplete(self._segment, "a row is there twice", seq=seq, ordinal=ordinal)
        self._ticks[place] = 1


def _incomplete(segment: Segment, what: str, **where: object) -> Incomplete:
    return Incomplete(
        what,
        hint=f"if it stays, the topic and the cuts differ: {LOAD_AGAIN}",
        n=segment.cut.head.n,
        **where,
    )
