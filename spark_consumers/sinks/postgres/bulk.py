"""The large lane: rows that executors copied into staging tables, applied by the server.

One unlogged staging table for each (table, columns) of the segment, all text:

    task         the attempt that copied the row; only those that succeeded count
    seq, ord, op as in the change
    unsent       numbers of cells of the new row that were not sent; NULL: none
    carried      numbers of cells that the old row carries; NULL: there is no old row
    b0… c0…      cells of the old and of the new row

Where a table's changes are simple (a key that stays, all values sent, no
TRUNCATE) the server finds the last state per key.  Everything else streams in
commit order through `collapse`, some thousand rows at a time, inside the same
transaction: a source transaction of any size passes in bounded memory.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg2 import sql

from schemas.control import SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import UNCHANGED, TableId
from spark_consumers.cuts import entries
from spark_consumers.errors import Incomplete
from spark_consumers.model import Cell, Change, Segment
from spark_consumers.sinks.base import StagedShape
from spark_consumers.sinks.postgres.apply import Catalog, Work, apply_changes, apply_works
from spark_consumers.sinks.postgres.catalog import MOST_COLUMNS
from spark_consumers.sinks.postgres.driver import part
from spark_consumers.sinks.postgres.plan import Plan
from spark_consumers.sinks.postgres.refusals import about
from spark_consumers.sinks.step import FIRST, LAST, Place

CHUNK_ROWS: Final = 10_000
_STAGE_COLUMNS: Final = 6  # of a staging table, besides the cells


@dataclass(frozen=True, slots=True)
class StagedBulk:
    """What executors brought near."""

    shapes: Sequence[StagedShape]
    stages: Sequence[str]  # names in schema gauss_cdc
    tasks: Sequence[int]
    ddl: Sequence[SchemaChange]


def has_stage(shape: StagedShape) -> bool:
    """Say whether a staging table can hold both rows of a change; else they take the driver."""
    return 2 * len(shape.columns) + _STAGE_COLUMNS <= MOST_COLUMNS


def create_stage(cursor: Any, name: str, shape: StagedShape) -> None:
    """Make an empty staging table, also over a left-over one."""
    cells = [f"{side}{at} text" for side in "bc" for at in range(len(shape.columns))]
    stage = _stage(name)
    cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(stage))
    cursor.execute(
        sql.SQL(
            'CREATE UNLOGGED TABLE {} (task bigint, seq bigint, ord bigint, op "char", '
            "unsent text, carried text, {})"
        ).format(stage, sql.SQL(", ".join(cells)))
    )


def drop_stages(cursor: Any, names: Sequence[str]) -> None:
    """Staging tables go in the transaction that used them."""
    for name in names:
        cursor.execute(sql.SQL("DROP TABLE {}").format(_stage(name)))


def check_bulk(cursor: Any, segment: Segment, staged: StagedBulk) -> None:
    """Raise Incomplete unless the staged rows are exactly what the cut promises.

    Counted by the server inside the final transaction, so that nothing can come in between.
    """
    found: dict[int, list[int]] = {}  # seq -> rows, distinct ordinals, lowest, highest
    if staged.stages:
        union = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT seq, ord, op FROM {} WHERE task = ANY(%(tasks)s)").format(_stage(n))
            for n in staged.stages
        )
        count = sql.SQL(
            "SELECT seq, count(*) FILTER (WHERE op <> 't')"
            " + count(DISTINCT ord) FILTER (WHERE op = 't'),"
            " count(DISTINCT ord), min(ord), max(ord) FROM ({}) AS staged GROUP BY seq"
        ).format(union)
        cursor.execute(count, {"tasks": list(staged.tasks)})
        found = {seq: rest for seq, *rest in cursor.fetchall()}
    if not entries(segment):  # a load: only the number of its rows must match
        rows = sum(counts[0] for counts in found.values())
        if rows not in (segment.rows, segment.rows - len(staged.ddl)):
            raise _incomplete(segment, rows, segment.rows)
        return
    for change in staged.ddl:
        rows, distinct, low, high = found.get(change.seq, [0, 0, change.ordinal, change.ordinal])
        found[change.seq] = [
            rows + 1, distinct + 1, min(low, change.ordinal), max(high, change.ordinal)
        ]  # fmt: skip
    for seq, rows in segment.commit_rows.items():
        if rows and found.pop(seq, None) != [rows, rows, 0, rows - 1]:
            raise _incomplete(segment, -1, rows)
    if found:
        raise _incomplete(segment, sum(counts[0] for counts in found.values()), 0)


def apply_bulk(
    cursor: Any,
    catalog: Catalog,
    staged: StagedBulk,
    *,
    after: Place = FIRST,
    before: Place = LAST,
    inexact: Collection[str] = (),
) -> None:
    """Apply the staged rows between two places."""
    window = _Window(cursor, staged, after, before)
    present = [at for at in range(len(staged.shapes)) if window.has_rows(at)]
    catalog.need(cursor, [staged.shapes[at].table for at in present])
    plans = {
        at: catalog.plan(catalog.tables[shape.table], shape.columns)
        for at in present
        for shape in [staged.shapes[at]]
    }
    tables = [staged.shapes[at].table for at in present]
    simple = [
        at
        for at in present
        if tables.count(staged.shapes[at].table) == 1 and window.is_simple(at, plans[at])
    ]
    if not catalog.is_replica and len(simple) < len(present):
        simple = []  # foreign keys hold between tables: then all go in commit order
    works = {}
    for at in simple:
        with about(plans[at].table.id, plans[at].columns):
            catalog.make_stage(cursor, plans[at])
            works[plans[at].table.oid] = window.last_states(at, plans[at])
    apply_works(cursor, works, inexact)
    rest = [at for at in present if at not in simple]
    for chunk in window.in_order(rest):
        changes: dict[TableId, list[Change]] = {}
        for at, change in chunk:
            changes.setdefault(staged.shapes[at].table, []).append(change)
        apply_changes(cursor, catalog, changes, inexact=inexact)


def load_bulk(cursor: Any, catalog: Catalog, staged: StagedBulk) -> None:
    """Insert whole rows into tables that were emptied before."""
    for shape, name in zip(staged.shapes, staged.stages, strict=True):
        catalog.need(cursor, [shape.table])
        plan = catalog.plan(catalog.tables[shape.table], shape.columns)
        cells = ", ".join(
            f"c{place}::{part(plan.table.columns[column].type_name)}"
            for place, column in zip(plan.places, plan.columns, strict=True)
        )
        into = sql.SQL(", ").join(map(sql.Identifier, plan.columns)).as_string(cursor)
        always = any(plan.table.columns[c].is_always for c in plan.columns)
        over = "OVERRIDING SYSTEM VALUE " if always else ""
        with about(shape.table, plan.columns):
            cursor.execute(
                sql.SQL("INSERT INTO {} ({}) {}SELECT {} FROM {} WHERE task = ANY(%s)").format(
                    sql.SQL(part(plan.name)),
                    sql.SQL(part(into)),
                    sql.SQL(over),
                    sql.SQL(cells),
                    _stage(name),
                ),
                (list(staged.tasks),),
            )


class _Window:
    """The staged rows between two places."""

    def __init__(self, cursor: Any, staged: StagedBulk, after: Place, before: Place) -> None:
        self._cursor, self._staged = cursor, staged
        self._arguments = {
            "tasks": list(staged.tasks),
            "after_seq": after[0],
            "after_ord": after[1],
            "before_seq": before[0],
            "before_ord": before[1],
        }

    def _from(self, at: int) -> str:
        name = _stage(self._staged.stages[at]).as_string(self._cursor)
        return (
            f"FROM {name} WHERE task = ANY(%(tasks)s) "
            "AND (seq, ord) > (%(after_seq)s, %(after_ord)s) "
            "AND (seq, ord) < (%(before_seq)s, %(before_ord)s)"
        )

    def has_rows(self, at: int) -> bool:
        self._cursor.execute(f"SELECT EXISTS (SELECT {self._from(at)})", self._arguments)
        return bool(self._cursor.fetchone()[0])

    def is_simple(self, at: int, plan: Plan) -> bool:
        """Say whether the last change of each key has all values."""
        columns = self._staged.shapes[at].columns
        if plan.table.key_is_deferrable:  # two rows may have it for a moment
            return False
        if not plan.table.key or not set(plan.table.key) <= set(columns):
            return False
        key = [columns.index(name) for name in plan.table.key]
        moved = " OR ".join(f"b{k} <> c{k}" for k in key)
        unnamed = " OR ".join(f"coalesce(c{k}, b{k}) IS NULL" for k in key)
        self._cursor.execute(
            "SELECT EXISTS (SELECT "
            f"{self._from(at)} AND (op = 't' OR unsent IS NOT NULL OR {moved} OR {unnamed}))",
            self._arguments,
        )
        return not self._cursor.fetchone()[0]

    def last_states(self, at: int, plan: Plan) -> Work:
        """Let the server find them, into the table's own staging table."""
        columns = self._staged.shapes[at].columns
        key = {columns.index(name) for name in plan.table.key}

        def cell(place: int, column: str) -> str:
            text = f"coalesce(c{place}, b{place})" if place in key else f"c{place}"
            return f"{text}::{part(plan.table.columns[column].type_name)}"

        cells = [cell(p, c) for p, c in zip(plan.places, plan.columns, strict=True)]
        names = ", ".join(f"c{number}" for number in range(len(plan.columns)))
        keys = ", ".join(f"coalesce(c{place}, b{place})" for place in sorted(key))
        self._cursor.execute(
            f"INSERT INTO {plan.stage} (op, {names}) "
            f"SELECT DISTINCT ON ({keys}) CASE WHEN op = 'd' THEN 'd' ELSE 'u' END, "
            f"{', '.join(cells)} {self._from(at)} ORDER BY {keys}, seq DESC, ord DESC",
            self._arguments,
        )
        self._cursor.execute(f"ANALYZE {plan.stage}")
        self._cursor.execute(f"SELECT bool_or(op = 'd'), bool_or(op = 'u') FROM {plan.stage}")
        deletes, upserts = self._cursor.fetchone()
        return Work(plan, None, has_deletes=bool(deletes), has_upserts=bool(upserts))

    def in_order(self, places: Sequence[int]) -> Iterator[list[tuple[int, Change]]]:
        """Changes in commit order, in bounded pieces."""
        if not places:
            return
        parts = []
        for at in places:
            width = range(len(self._staged.shapes[at].columns))
            old = ", ".join(f"b{n}" for n in width)
            new = ", ".join(f"c{n}" for n in width)
            parts.append(
                f"SELECT {at} AS shape, seq, ord, op::text, unsent, carried, "
                f"ARRAY[{old}]::text[], ARRAY[{new}]::text[] {self._from(at)}"
            )
        with self._cursor.connection.cursor(name="gauss_cdc_rows") as rows:
            rows.itersize = CHUNK_ROWS
            rows.execute(" UNION ALL ".join(parts) + " ORDER BY seq, ord, shape", self._arguments)
            while chunk := rows.fetchmany(CHUNK_ROWS):
                yield [(row[0], self._change(*row)) for row in chunk]

    def _change(  # noqa: PLR0917  a row of the query above
        self,
        at: int,
        seq: int,
        ordinal: int,
        op: str,
        unsent: str | None,
        carried: str | None,
        old: list[Cell],
        new: list[Cell],
    ) -> Change:
        before = after = None
        if carried is not None:
            known = _numbers(carried)
            before = [cell if n in known else UNCHANGED for n, cell in enumerate(old)]
        if op not in ("d", "t"):
            after = new
            for n in _numbers(unsent or ""):
                after[n] = UNCHANGED
        return Change(seq, ordinal, op, self._staged.shapes[at].columns, before, after)


def _numbers(text: str) -> set[int]:
    return {int(part) for part in text.split(",") if part}


def _stage(name: str) -> sql.Identifier:
    return sql.Identifier("gauss_cdc", name)


def _incomplete(segment: Segment, found: int, promised: int) -> Incomplete:
    what = "rows of a commit are missing or there twice" if found < 0 else f"{found} rows staged"
    return Incomplete(
        what,
        promised=promised,
        n=segment.cut.head.n,
        hint=f"if it stays, the topic and the cuts differ: {LOAD_AGAIN}",
    )
