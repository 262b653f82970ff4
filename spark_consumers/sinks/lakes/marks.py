"""Watermarks as rows of a table of the lake: one row a step, and all of it in the version's stamp.

The newest one is found in the table's head alone, without a query; readers who look for an older
commit read the rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from schemas.tables import TableId
from schemas.topics import rewritten
from spark_consumers.errors import Superseded
from spark_consumers.model import Ledger
from spark_consumers.sinks.lakes.core import Stamp, TableMark, TableVersion, Watermark
from spark_consumers.spark.given import given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = "gauss_cdc"
COLUMNS: Final = (
    "number BIGINT, epoch BIGINT, n BIGINT, seq BIGINT, csn BIGINT, committed_at TIMESTAMP,"
    " state STRING, fence BIGINT, tables MAP<STRING, BIGINT>, places MAP<STRING, STRING>,"
    " written_at TIMESTAMP, mark STRING"
)


def table_of(source: str) -> TableId:
    """The table of a source's watermarks."""
    return TableId(SCHEMA, f"watermark_{source}")


class MarkTable(Protocol):
    """What both kinds of lakes do for it."""

    def head(self, table: TableId) -> TableVersion | None:
        """See `core.TableVersions`."""

    def make(self, table: TableId, columns: str) -> None:
        """Make a table where there is none."""

    def append(
        self, table: TableId, head: TableVersion | None, frame: DataFrame, stamp: Stamp
    ) -> TableVersion:
        """Add rows behind `head`; raise Superseded, and add nothing, where that is not the last."""

    def replace(
        self, table: TableId, head: TableVersion, frame: DataFrame, stamp: Stamp
    ) -> TableVersion:
        """Make these the only rows; raise Superseded, and do nothing, where `head` is not last."""

    def expire(self, table: TableId, oldest: int, keep: float) -> None:
        """See `core.Care`."""

    def read(self, table: TableId, version: int | None = None) -> DataFrame:
        """The table, at a version."""


class TableMarks:
    """Implements `core.Marks`."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        tables: MarkTable,
        source: str,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._spark, self._tables, self._now = spark, tables, now
        self._table, self._source = table_of(source), source
        self._seen: tuple[Watermark | None, TableVersion | None] = (None, None)

    @property
    def known(self) -> Watermark | None:
        """The newest one that was read or written here.

        None: none yet, or it may be another by now.
        """
        return self._seen[0]

    def newest(self) -> Watermark | None:
        head = self._tables.head(self._table)
        mark = None if head is None else read_mark(head.stamp.note)
        if head is not None and mark is None:  # somebody else touched the table
            row = self._tables.read(self._table).selectExpr("max_by(mark, number)").first()
            mark = read_mark(row[0] or "") if row is not None else None
        self._seen = (mark, head)
        return mark

    def fence(self) -> int | None:
        """The fence of the newest one.  None: there is none."""
        mark = self.newest()
        return None if mark is None else mark.ledger.fence

    def append(self, before: Watermark | None, mark: Watermark) -> None:
        seen, head = self._seen
        if seen != before:
            raise Superseded("another applier wrote a watermark")
        if head is None:
            self._tables.make(self._table, COLUMNS)
            head = self._tables.head(self._table)
            if head is not None and read_mark(head.stamp.note) is not None:
                raise Superseded("another applier wrote a watermark")
        now = int(self._now() * 1e6)
        mark = replace(mark, written_at=now, cared_at=mark.cared_at or now)
        frame = self._frame([mark])
        self._seen = (None, None)
        version = self._tables.append(self._table, head, frame, Stamp(note=write_mark(mark)))
        self._seen = (mark, version)
        if not version.follows:  # the row is there, and so may be others: look again
            raise Superseded("another applier touched the watermarks")

    def around(self, since: int) -> tuple[int | None, int | None]:
        """Look for the last one before `since`, and for the first one from then on."""
        is_older = f"unix_micros(written_at) < {since}"
        row = self._tables.read(self._table).selectExpr(
            f"max(number) FILTER (WHERE {is_older})", f"min(number) FILTER (WHERE NOT {is_older})"
        ).first()  # fmt: skip
        assert row is not None
        return row[0], row[1]

    def keep(self, first: int) -> Iterable[Watermark]:
        """Leave those from this number on, in one file: each step adds a file, and a version.

        The version before stays, for who reads at this moment.
        """
        mark, head = self._seen
        assert mark is not None
        assert head is not None
        there = self._tables.read(self._table, head.id).where(f"number >= {first}")
        named = there.selectExpr("number", "explode(map_values(places)) AS place")
        begins = named.groupBy("place").agg({"number": "min"}).select("min(number)").distinct()
        numbers = [first, *(row[0] for row in begins.collect())]
        rows = there.where(f"number IN ({', '.join(map(str, numbers))})").select("mark").collect()
        frame = there.coalesce(1)
        self._seen = (None, None)
        version = self._tables.replace(self._table, head, frame, Stamp(note=write_mark(mark)))
        if not version.follows:
            raise Superseded("another applier touched the watermarks")
        self._seen = (mark, version)
        self._tables.expire(self._table, head.id, 0)
        return [mark for row in rows if (mark := read_mark(row[0])) is not None]

    def _frame(self, marks: Sequence[Watermark]) -> DataFrame:
        return given(self._spark(), [*map(_row, marks)], COLUMNS)


def write_mark(mark: Watermark) -> str:
    """Write a watermark as text."""
    return json.dumps(asdict(mark), default=dict, ensure_ascii=False)


def read_mark(text: str) -> Watermark | None:
    """Read what `write_mark` wrote.  None for ""."""
    if not text:
        return None
    raw: Mapping[str, Any] = json.loads(text)
    ledger = Ledger.read(raw["ledger"])
    tables = {
        rewritten(table, ledger.topics): TableMark(
            t["version"],
            tuple(t["key"]),
            TableId(*t["place"]),
            t.get("mode", ""),
            t.get("made", ""),
        )
        for table, t in raw["tables"].items()
    }
    return Watermark(raw["number"], ledger, tables, raw["written_at"], raw["cared_at"])


def _row(mark: Watermark) -> tuple[object, ...]:
    from datetime import UTC, datetime  # noqa: PLC0415

    def at(micros: int) -> datetime:
        return datetime.fromtimestamp(micros / 1e6, UTC)

    ledger = mark.ledger
    return (
        mark.number, ledger.epoch, ledger.n, ledger.seq, ledger.csn, at(ledger.committed_at),
        ledger.state, ledger.fence, {name: t.version for name, t in mark.tables.items()},
        {name: str(t.place) for name, t in mark.tables.items()}, at(mark.written_at),
        write_mark(mark),
    )  # fmt: skip
