"""The large lane: rows that executors copied into staging tables, applied by the server.

One unlogged staging table for each (table, columns) of the segment:

    task         the attempt that copied the row; only those that succeeded count
    seq, ord, op as in the change
    unsent       numbers of cells of the new row that were not sent; NULL: none
    carried      numbers of cells that the old row carries; NULL: there is no old row
    b0… c0…      cells of the old and of the new row, in the target's types

New rows go straight into their table.  Else the server finds the last state per key
(states.py), and the table is written as in the driver's lane (apply.py).  What has no state per
key streams in commit order through `collapse`, some thousand rows at a time, inside the same
transaction: a source transaction of any size passes in bounded memory.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from psycopg2 import sql

from schemas.control import SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import UNCHANGED, TableId
from spark_consumers.complete import chunk_rows
from spark_consumers.errors import Incomplete, MissingColumn, NotExpressible, TargetRefused
from spark_consumers.model import Cell, Change, Segment
from spark_consumers.sinks.base import Bulk, StagedShape
from spark_consumers.sinks.postgres.apply import Catalog, Work, apply_changes, apply_works
from spark_consumers.sinks.postgres.catalog import MOST_COLUMNS
from spark_consumers.sinks.postgres.conflicts import counting, expected
from spark_consumers.sinks.postgres.plan import Plan
from spark_consumers.sinks.postgres.refusals import about
from spark_consumers.sinks.postgres.states import StagedRows, staged_types
from spark_consumers.sinks.step import FIRST, LAST, Place

CHUNK_ROWS: Final = 10_000
_STAGE_COLUMNS: Final = 6  # of a staging table, besides the cells
_UNIQUE_VIOLATION: Final = "23505"
_INSIDE: Final = (
    "task = ANY(%(tasks)s) AND (seq, ord) > (%(after_seq)s, %(after_ord)s) "
    "AND (seq, ord) < (%(before_seq)s, %(before_ord)s)"
)


@dataclass(frozen=True, slots=True)
class StagedBulk:
    """What executors brought near."""

    bulk: Bulk
    stages: Sequence[str]  # names in schema gauss_cdc
    types: Sequence[Sequence[str]]  # of their cells, for each stage
    tasks: Sequence[int]

    @property
    def shapes(self) -> Sequence[StagedShape]:
        return self.bulk.shapes

    @property
    def ddl(self) -> Sequence[SchemaChange]:
        return self.bulk.ddl


def has_stage(shape: StagedShape) -> bool:
    """Say whether a staging table can hold both rows of a change; else they take the driver."""
    return 2 * len(shape.columns) + _STAGE_COLUMNS <= MOST_COLUMNS


def types_of(
    cursor: Any, catalog: Catalog, shapes: Sequence[StagedShape], ddl: Sequence[SchemaChange]
) -> list[tuple[str, ...]]:
    """Types of the staging tables' cells.

    Text where the target does not fit, which the step will report, and where schema changes
    stand between rows.
    """
    plans: dict[StagedShape, Plan] = {}
    if not ddl:
        catalog.find(cursor, [shape.table for shape in shapes])
        for shape in shapes:
            if (table := catalog.tables.get(shape.table)) is not None:
                try:
                    plans[shape] = catalog.plan(table, shape.columns)
                except (MissingColumn, NotExpressible):
                    continue
    return [staged_types(shape.columns, plans.get(shape)) for shape in shapes]


def create_stage(cursor: Any, name: str, types: Sequence[str]) -> None:
    """Make an empty staging table, also over a left-over one."""
    cells = [f"{side}{at} {kind}" for side in "bc" for at, kind in enumerate(types)]
    stage = _stage(name).as_string(cursor)
    cursor.execute(f"DROP TABLE IF EXISTS {stage}")
    fixed = 'task bigint, seq bigint, ord bigint, op "char", unsent int2[], carried int2[]'
    cursor.execute(f"CREATE UNLOGGED TABLE {stage} ({', '.join([fixed, *cells])})")


def drop_stages(cursor: Any, names: Sequence[str]) -> None:
    """Staging tables go in the transaction that used them."""
    for name in names:
        cursor.execute(sql.SQL("DROP TABLE {}").format(_stage(name)))


def check_bulk(cursor: Any, segment: Segment, staged: StagedBulk) -> None:
    """Raise Incomplete unless the staged rows are exactly what the cut promises.

    Counted by the server inside the final transaction, so that nothing can come in between.
    """
    if segment.loads:
        _check_loads(cursor, segment, staged)
        return
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


def _check_loads(cursor: Any, segment: Segment, staged: StagedBulk) -> None:
    """Each table has as many rows as its chunks say."""
    found = dict.fromkeys((shape.table for shape in staged.shapes), 0)
    for shape, name in zip(staged.shapes, staged.stages, strict=True):
        cursor.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE task = ANY(%s)").format(_stage(name)),
            (list(staged.tasks),),
        )
        found[shape.table] += cursor.fetchone()[0]
    promised = chunk_rows(segment)
    for table in found.keys() | promised.keys():
        there, rows = found.get(table, 0), promised.get(table, 0)
        if there != rows:
            raise _incomplete(segment, there, rows)


def apply_bulk(
    cursor: Any,
    catalog: Catalog,
    staged: StagedBulk,
    *,
    after: Place = FIRST,
    before: Place = LAST,
    inexact: Collection[str] = (),
    on_note: Callable[[str], None] = lambda _: None,
) -> None:
    """Apply the staged rows between two places; `on_note` is told what the driver must do."""
    window = _Window(cursor, catalog, staged, after, before)
    shares = window.shares()
    ordered = {at: why for at, share in shares.items() if (why := share.why_in_order())}
    if ordered and not catalog.is_replica:
        other = shares[next(iter(ordered))].rows.plan.table.id
        for at in shares.keys() - ordered.keys():
            ordered[at] = f"foreign keys hold between it and {other}"
    for at, why in sorted(ordered.items()):
        share = shares[at]
        staged.bulk.driver_rows += share.survey.rows
        on_note(
            f"{share.survey.rows:,} rows of {share.rows.plan.table.id} go through the driver, in "
            f"commit order: {why}"
        )
    window.apply([share for at, share in shares.items() if at not in ordered], inexact)
    for chunk in window.in_order(sorted(ordered)):
        changes: dict[TableId, list[Change]] = {}
        for at, change in chunk:
            changes.setdefault(staged.shapes[at].table, []).append(change)
        apply_changes(cursor, catalog, changes, inexact=inexact)


def load_bulk(cursor: Any, catalog: Catalog, staged: StagedBulk, table: TableId) -> None:
    """Insert whole rows into a table that was emptied before."""
    window = _Window(cursor, catalog, staged, FIRST, LAST)
    for at, shape in enumerate(staged.shapes):
        if shape.table != table:
            continue
        catalog.need(cursor, [shape.table])
        rows = window.rows(at)
        with about(shape.table, rows.plan.columns):
            cursor.execute(rows.insert(), window.arguments)


class _Survey(NamedTuple):
    """What staged rows are like."""

    rows: int
    changes: bool | None  # besides new rows; None: there is no row
    truncates: bool | None
    lacks: bool | None  # values were not sent
    new_lacks: bool | None  # of new rows, which the protocol does not know
    unnamed: bool | None  # rows do not carry their key
    moved: bool | None  # keys changed
    net: int  # rows that begin, less those that end


@dataclass(frozen=True, slots=True)
class _Share:
    """One table's rows between two places, behind the last TRUNCATE."""

    rows: StagedRows
    survey: _Survey
    is_truncated: bool
    is_whole: bool  # all rows of the table were written with these columns

    def why_in_order(self) -> str:
        """Why only commit order tells the last state; empty: the server finds it."""
        plan, survey = self.rows.plan, self.survey
        if not self.is_whole:
            return "its rows have different columns"
        if survey.new_lacks:
            return "new rows lack values"
        if not survey.changes:
            return ""
        if not plan.table.key:
            return "it has no key"
        if plan.table.key_is_deferrable:
            return "its key is deferrable: two rows may have it for a moment"
        if not set(plan.table.key) <= set(plan.columns) or survey.unnamed:
            return "rows do not carry its key"
        return ""

    @property
    def has_states(self) -> bool:
        """Say whether the server can look for last states."""
        plan = self.rows.plan
        is_carried = set(plan.table.key) <= set(plan.columns) and not self.survey.unnamed
        return bool(plan.table.key) and is_carried and not plan.table.key_is_deferrable

    @property
    def net(self) -> int | None:
        """How many rows it adds to its table, less those that it takes; None: unknown.

        A key that changed is two records where Kafka's partitions go by it.
        """
        return None if self.is_truncated or self.survey.moved else self.survey.net

    def is_straight(self, inexact: Collection[str]) -> bool:
        """Say whether new rows need no look at what is there."""
        is_exact = str(self.rows.plan.table.id) not in inexact
        return not self.survey.changes and (is_exact or not self.has_states)


class _Window:
    """The staged rows between two places."""

    def __init__(
        self, cursor: Any, catalog: Catalog, staged: StagedBulk, after: Place, before: Place
    ) -> None:
        self._cursor, self._catalog, self._staged = cursor, catalog, staged
        self.arguments = {
            "tasks": list(staged.tasks),
            "after_seq": after[0],
            "after_ord": after[1],
            "before_seq": before[0],
            "before_ord": before[1],
        }

    def rows(self, at: int) -> StagedRows:
        """How SQL reads one staging table; the target's table is known."""
        shape = self._staged.shapes[at]
        return StagedRows(
            plan=self._catalog.plan(self._catalog.tables[shape.table], shape.columns),
            columns=shape.columns,
            types=tuple(self._staged.types[at]),
            stage=self._name(at),
            where=_INSIDE,
        )

    def shares(self) -> dict[int, _Share]:
        """What there is, by the number of its stage."""
        present = [
            at
            for at in range(len(self._staged.shapes))
            if self._one(f"SELECT EXISTS (SELECT FROM {self._name(at)} WHERE {_INSIDE})")[0]
        ]
        tables = Counter(self._staged.shapes[at].table for at in present)
        self._catalog.need(self._cursor, tables)
        return {
            at: self._share(at, is_whole=tables[self._staged.shapes[at].table] == 1)
            for at in present
        }

    def _share(self, at: int, *, is_whole: bool) -> _Share:
        rows = self.rows(at)
        survey = _Survey(*self._one(rows.survey()))
        if not survey.truncates:
            return _Share(rows, survey, is_truncated=False, is_whole=is_whole)
        seq, ordinal = self._one(rows.last_truncation())
        behind = f"{rows.where} AND (seq, ord) > ({int(seq)}, {int(ordinal)})"
        rows = replace(rows, where=behind)
        return _Share(
            rows, _Survey(*self._one(rows.survey())), is_truncated=True, is_whole=is_whole
        )

    def apply(self, shares: Sequence[_Share], inexact: Collection[str]) -> None:
        """Write tables of which the server finds the last states."""
        straight = [share for share in shares if share.is_straight(inexact)]
        works = {
            share.rows.plan.table.oid: self._work(share)
            for share in shares
            if share not in straight
        }
        new = {share.rows.plan.table.oid: self._new(share) for share in straight}
        nets = [(share.rows.plan.table, share.net) for share in shares]
        counted = partial(counting, self._cursor, self._catalog, expected(nets, inexact))
        if not any(share.has_states for share in straight):
            with counted():
                apply_works(self._cursor, {**works, **new}, inexact)
            return
        self._cursor.execute("SAVEPOINT straight")
        try:
            with counted():
                apply_works(self._cursor, {**works, **new}, inexact)
        except TargetRefused as error:
            if error.where.get("sqlstate") != _UNIQUE_VIOLATION:
                raise
            # Someone else's row stands there. The stream's rows win, as in the driver's lane.
            self._cursor.execute("ROLLBACK TO SAVEPOINT straight")
            again = {s.rows.plan.table.oid: self._work(s) for s in straight if s.has_states}
            with counted():
                apply_works(self._cursor, {**works, **new, **again}, inexact)

    def _new(self, share: _Share) -> Work:
        plan = share.rows.plan
        has_rows = share.survey.rows > 0
        return Work(
            plan, None, is_truncated=share.is_truncated,
            straight=(share.rows.insert(), self.arguments) if has_rows else None,
        )  # fmt: skip

    def _work(self, share: _Share) -> Work:
        """Let the server find last states, into the table's own staging table."""
        rows, plan, truncated = share.rows, share.rows.plan, share.is_truncated
        with about(plan.table.id, plan.columns):
            self._catalog.make_stage(self._cursor, plan)
            if share.survey.lacks:
                self._live(rows, is_truncated=truncated)
            else:
                self._run(rows.last_states(is_truncated=truncated))
            self._run(f"ANALYZE {plan.stage}")
            deletes, upserts, lacking = self._one(
                f"SELECT bool_or(op = 'd'), bool_or(op = 'u'), count(unsent) FROM {plan.stage}"
            )
            unsent = []
            if lacking:
                self._run(f"SELECT DISTINCT unnest(unsent) FROM {plan.stage}")
                unsent = [number for (number,) in self._cursor.fetchall()]
        return Work(
            plan, None, has_deletes=bool(deletes), has_upserts=bool(upserts),
            is_truncated=truncated, lacking=lacking, unsent=frozenset(unsent),
        )  # fmt: skip

    def _live(self, rows: StagedRows, *, is_truncated: bool) -> None:
        self._run(rows.unsent())
        unsent = sorted(number for (number,) in self._cursor.fetchall())
        lives = f"{rows.plan.stage}_lives"
        self._run(rows.lives(lives, unsent))
        self._run(f"ANALYZE {lives}")
        self._run(rows.lived_states(lives, unsent, is_truncated=is_truncated))
        self._run(f"DROP TABLE {lives}")

    def _run(self, statement: str) -> None:
        self._cursor.execute(statement, self.arguments)

    def _one(self, statement: str) -> tuple[Any, ...]:
        self._run(statement)
        row: tuple[Any, ...] = self._cursor.fetchone()
        return row

    def _name(self, at: int) -> str:
        return str(_stage(self._staged.stages[at]).as_string(self._cursor))

    def in_order(self, places: Sequence[int]) -> Iterator[list[tuple[int, Change]]]:
        """Changes in commit order, in bounded pieces."""
        if not places:
            return
        parts = []
        for at in places:
            width = range(len(self._staged.shapes[at].columns))
            old = ", ".join(f"b{n}::text" for n in width)
            new = ", ".join(f"c{n}::text" for n in width)
            parts.append(
                f"SELECT {at} AS shape, seq, ord, op::text, unsent, carried, "
                f"ARRAY[{old}]::text[], ARRAY[{new}]::text[] "
                f"FROM {self._name(at)} WHERE {_INSIDE}"
            )
        with self._cursor.connection.cursor(name="gauss_cdc_rows") as rows:
            rows.itersize = CHUNK_ROWS
            rows.execute(" UNION ALL ".join(parts) + " ORDER BY seq, ord, shape", self.arguments)
            while chunk := rows.fetchmany(CHUNK_ROWS):
                yield [(row[0], self._change(*row)) for row in chunk]

    def _change(  # noqa: PLR0917  a row of the query above
        self,
        at: int,
        seq: int,
        ordinal: int,
        op: str,
        unsent: list[int] | None,
        carried: list[int] | None,
        old: list[Cell],
        new: list[Cell],
    ) -> Change:
        before = after = None
        if carried is not None:
            before = [cell if n in carried else UNCHANGED for n, cell in enumerate(old)]
        if op not in ("d", "t"):
            after = new
            for n in unsent or ():
                after[n] = UNCHANGED
        return Change(seq, ordinal, op, self._staged.shapes[at].columns, before, after)


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
