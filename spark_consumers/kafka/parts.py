"""A segment that is too large to be held at once, in commit order, part by part.

Each partition is read some records at a time.  What stands up to the first place that a partition
has not reached yet is a part; what is behind it waits for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from schemas.control import Range, SchemaChange
from schemas.tables import TableId
from spark_consumers.cuts.complete import Following, Promised
from spark_consumers.decode.rows import COMMIT_ORDER, PlainRows
from spark_consumers.decode.rows import Rows as TakenRows
from spark_consumers.kafka.content import Content
from spark_consumers.kafka.ranges import Place, count, taken
from spark_consumers.model import Rows
from spark_consumers.native import is_packed

PART_BYTES: Final = 8 << 20  # of a part, about: last states are found in the cache
_FIRST: Final = 1_000  # records of a partition's first part: nobody knows yet what they weigh
_GROWTH: Final = 4
_END: Final = (1 << 62, 1 << 62)


class PartsInOrder:
    """The parts of a segment."""

    def __init__(
        self,
        promise: Promised,
        ranges: Sequence[Range],
        ddl: Sequence[SchemaChange],
        read: Callable[[Sequence[Range]], Content],
    ) -> None:
        """`ranges` are those of rows, `ddl` the segment's schema changes."""
        self._promise = promise
        self._ddl = sorted(ddl, key=COMMIT_ORDER)
        self._partitions: dict[Place, _Partition] = {}
        for place in dict.fromkeys((r.topic, r.partition) for r in ranges):
            mine = sorted(r for r in ranges if (r.topic, r.partition) == place)
            self._partitions[place] = _Partition(mine, read)
        self._waiting: dict[TableId, TakenRows] = {}

    def __iter__(self) -> Iterator[Rows]:
        parts, reached = Following(self._promise), (-1, -1)
        share = PART_BYTES // max(1, len(self._partitions))
        while reached != _END:
            for one in self._partitions.values():
                if one.reached <= reached:
                    for table, rows in one.next(share):
                        self._waiting[table] = _joined(self._waiting.get(table), rows)
            reached = min((one.reached for one in self._partitions.values()), default=_END)
            if reached < (0, 0):
                continue  # nothing but tombstones yet
            part = self._upto(reached)
            parts.take(part, None if reached == _END else reached)
            yield part
        parts.end()

    def _upto(self, place: tuple[int, int]) -> Rows:
        part: dict[TableId, TakenRows] = {}
        for table, rows in list(self._waiting.items()):
            self._waiting[table] = rows.split(*place)
            if len(rows):
                part[table] = rows
        at = len(self._ddl)
        while at and COMMIT_ORDER(self._ddl[at - 1]) > place:
            at -= 1
        ddl, self._ddl = self._ddl[:at], self._ddl[at:]
        return Rows(part, ddl)


def in_turn(ranges: Sequence[Range], read: Callable[[Sequence[Range]], Content]) -> Iterator[Rows]:
    """Give the rows of ranges of one partition, some of them at a time."""
    one = _Partition(sorted(ranges), read)
    while one.reached != _END:
        yield Rows(dict(one.next(PART_BYTES)))


class _Partition:
    """Ranges of one partition, and the place up to which they were read."""

    def __init__(self, ranges: Sequence[Range], read: Callable[[Sequence[Range]], Content]) -> None:
        self._ranges, self._read = ranges, read
        self._at, self._most = 0, _FIRST
        self.reached = (-1, -1)

    def next(self, most_bytes: int) -> Iterator[tuple[TableId, TakenRows]]:
        """Read some more, of about so many bytes."""
        part = taken(self._ranges, self._at, self._most)
        content = self._read(part)
        records = count(part)
        self._at += records
        weight = content.held() / records
        self._most = max(1, min(_GROWTH * records, int(most_bytes / (weight or 1))))
        found = content.all().changes
        last = max((COMMIT_ORDER(rows[-1]) for rows in found.values() if rows), default=(-1, -1))
        is_over = self._at == count(self._ranges)
        self.reached = _END if is_over else max(self.reached, last)
        for table, rows in found.items():
            yield table, rows if is_packed(rows) else PlainRows(rows)


def _joined(known: TakenRows | None, more: TakenRows) -> TakenRows:
    if known is None or not len(known):
        return more
    if is_packed(known) and is_packed(more) and known.columns == more.columns:
        known.absorb(more)
        known.order()
        return known
    return PlainRows(sorted([*known, *more], key=COMMIT_ORDER))
