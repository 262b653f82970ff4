"""What others changed at the target, counted where a change of the stream meets it.

The server counts what a transaction inserts and deletes in each table.  What the changes come to
is known: keys that begin, less keys that end.  Where a table is exact both are equal, unless

    overwritten   a row that begins met one with its key: of somebody else's, and it is gone
    missing       a row that changes or ends was not there; one that changes is written again

A missing and an overwritten row of one table in one step are not told apart.  Pure, but for
`Conflicts`.
"""
# ruff: noqa: S608  the statements have no text of others'

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from schemas.tables import TableId, argument
from spark_consumers.errors import RowMissing
from spark_consumers.sinks.base import Met
from spark_consumers.sinks.postgres.catalog import TargetTable
from spark_consumers.sinks.postgres.rights import our_tables

_EVERY: Final = 60.0  # seconds between two lines about one table
_COUNT: Final = (
    "pg_catalog.pg_stat_get_xact_tuples_inserted({0})"
    " - pg_catalog.pg_stat_get_xact_tuples_deleted({0})"
)
_READ: Final = (
    f"SELECT {_COUNT.format('w.oid')} FROM pg_catalog.unnest(%s::oid[])"
    " WITH ORDINALITY AS w (oid, at) ORDER BY w.at"
)
_KEPT: Final = "gauss_cdc.conflicts"  # a setting of the transaction


@dataclass(slots=True)
class Expected:
    """What the changes of one table come to."""

    table: TargetTable
    net: int


def expected(
    changes: Sequence[tuple[TargetTable, int | None]], inexact: Collection[str]
) -> list[Expected]:
    """Leave out tables of which nothing follows: not exact, without a key, not counted there."""
    return [
        Expected(table, net)
        for table, net in changes
        if net is not None and table.key and table.is_counted and str(table.id) not in inexact
    ]


class RowCounts(Protocol):
    """Where what was met is collected; it is of the transaction, and lost with it."""

    has_counts: bool
    met: dict[TableId, Met]


@contextmanager
def counting(cursor: Any, counts: RowCounts, tables: Sequence[Expected]) -> Iterator[None]:
    """Compare what the block does with what is expected of it."""
    if not (tables and counts.has_counts):
        yield
        return
    oids = [one.table.oid for one in tables]
    before = _read(cursor, oids)
    yield
    after = _read(cursor, oids)
    note(counts.met, tables, [now - was for was, now in zip(before, after, strict=True)])


def note(met: dict[TableId, Met], tables: Sequence[Expected], found: Sequence[int]) -> None:
    """Add what differs."""
    for one, change in zip(tables, found, strict=True):
        if change != one.net:
            met[one.table.id] = _sum(met.get(one.table.id), _of(change - one.net))


def lacking(error: RowMissing) -> dict[TableId, Met]:
    """What a step met that ended there."""
    table, rows = error.where["table"], error.where["rows"]
    assert isinstance(table, TableId)
    assert isinstance(rows, int)
    return {table: Met(missing=rows)}


def _of(more: int) -> Met:
    """`more`: how many rows more came than begin, or fewer went than end."""
    return Met(max(0, -more), max(0, more))


def _sum(known: Met | None, one: Met) -> Met:
    overwritten, missing = known or Met()
    return Met(overwritten + one.overwritten, missing + one.missing)


def _read(cursor: Any, oids: list[int]) -> list[int]:
    cursor.execute(_READ, (oids,))
    return [count for (count,) in cursor.fetchall()]


# ---------------------------------------------------------------- of a message
def keep(tables: Sequence[Expected]) -> str:
    """Keep the counts as they are, for `compare`: the end of a list of expressions."""
    counts = ", ".join(_COUNT.format(one.table.oid) for one in tables)
    return f", pg_catalog.set_config('{_KEPT}', pg_catalog.concat_ws(' ', {counts}), true)"


def compare(tables: Sequence[Expected]) -> str:
    """The statement whose row `compared` reads."""
    counts = ", ".join(_COUNT.format(one.table.oid) for one in tables)
    return f"SELECT pg_catalog.current_setting('{_KEPT}'), {counts}"


def compared(row: Sequence[Any]) -> list[int]:
    """What happened between `keep` and `compare`.

    >>> compared(["3 -1", 5, -1])
    [2, 0]
    """
    return [now - int(was) for was, now in zip(row[0].split(), row[1:], strict=True)]


# ---------------------------------------------------------------- the sums
_ADD: Final = """
INSERT INTO gauss_cdc.conflicts AS c VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (source, table_schema, table_name) DO UPDATE
SET overwritten = c.overwritten + excluded.overwritten,
    missing = c.missing + excluded.missing, last_at = now()
"""


@dataclass(slots=True)
class Conflicts:
    """Sums of a source, by table: in the log, and at the target for `status`."""

    source: str
    note: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    label: str = ""  # of one of several targets
    waiting: dict[TableId, Met] = field(default_factory=dict)  # that the target does not have yet
    _unsaid: dict[TableId, Met] = field(default_factory=dict)
    _said_at: dict[TableId, float] = field(default_factory=dict)

    def add(self, met: Mapping[TableId, Met]) -> None:
        """Take what a durable step met."""
        for table, one in met.items():
            self.waiting[table] = _sum(self.waiting.get(table), one)
            self._unsaid[table] = _sum(self._unsaid.get(table), one)
            now = self.clock()
            if now - self._said_at.get(table, float("-inf")) >= _EVERY:
                self._said_at[table] = now
                self.note(_line(table, self._unsaid.pop(table), self.label))

    def write(self, cursor: Any) -> None:
        """Bring the sums to the target."""
        for table, one in self.waiting.items():
            cursor.execute(_ADD, (self.source, *table, *one))


def _line(table: TableId, met: Met, label: str) -> str:
    said = [
        f"{met.overwritten:,} rows that begin met rows of others, and overwrote them",
        f"{met.missing:,} rows that change or end were missing",
    ]
    what = " and ".join(text for text, count in zip(said, met, strict=True) if count)
    typed, target, whose = argument(table), "", ""
    if label:
        target, whose = f" --target {argument(label)}", f" --for {argument(label)}"
    return (
        f"WARNING: others changed {table} at the target: {what}; `gauss-cdc verify --table "
        f"{typed}{target}` compares it, `gauss-cdc snapshot --table {typed}{whose}` reads it again"
    )


def read_conflicts(cursor: Any, source: str) -> dict[str, Met]:
    """Read the sums of a source, by schema.table."""
    if "conflicts" not in our_tables(cursor):
        return {}
    cursor.execute(
        "SELECT table_schema, table_name, overwritten, missing FROM gauss_cdc.conflicts"
        " WHERE source = %s ORDER BY 1, 2",
        (source,),
    )
    return {str(TableId(schema, name)): Met(*met) for schema, name, *met in cursor.fetchall()}
