"""Collapsed changes -> statements on a PostgreSQL target, inside a transaction of the caller.

Every table goes through a temporary staging table of its own, typed like the
target and filled by COPY, so that the server parses the source's text and a
statement moves all rows at once.  The order is safe for both:

    1. TRUNCATE what was truncated, together
    2. COPY, then take unsent values from the rows where they stand *now*
    3. DELETE, children before parents
    4. INSERT, parents before children, in the form of the table's plan; then rows of keys that
       begin in this batch, by COPY into the table itself
    5. DELETE of parents whose children moved away in step 4

Keys that begin in a batch are not at the target, if it is exact and nobody else writes there.
Where one is, the server refuses the COPY, and the step is tried again with all rows staged.

With `session_replication_role = replica` foreign keys and triggers are off and
only the unique indexes matter.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

from psycopg2 import sql

from schemas.errors import LOAD_AGAIN
from schemas.tables import UNCHANGED, TableId
from spark_consumers.cuts.compact import (
    Collapsed,
    by_columns,
    collapse,
    one_by_one,
)
from spark_consumers.dialects.base import refuse_reserved
from spark_consumers.errors import (
    MissingTable,
    NotExpressible,
    RowsUnfit,
    TableAltered,
    TableLookedAtBefore,
    altered_hint,
)
from spark_consumers.model import Asked, Change
from spark_consumers.native import LastStates, RowsSettled, is_packed
from spark_consumers.sinks.base import Met
from spark_consumers.sinks.postgres.catalog import (
    MOST_COLUMNS,
    TargetTable,
    is_as_read,
    parents_first,
    read_tables,
)
from spark_consumers.sinks.postgres.conflicts import counting, expected
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, sqlstate
from spark_consumers.sinks.postgres.keyless import apply_singles, row_missing
from spark_consumers.sinks.postgres.lines import copy_lines, copy_packed, line_of, text_of
from spark_consumers.sinks.postgres.plan import Plan, make_plan
from spark_consumers.sinks.postgres.products import POSTGRES, TargetProduct
from spark_consumers.sinks.postgres.refusals import about
from spark_consumers.sinks.postgres.rights import owner_problems
from spark_consumers.sinks.postgres.shadows import Shadows, written
from spark_consumers.sinks.postgres.shapes import Shapes

_STAGE_COLUMNS: Final = 2  # of a staging table, besides a row's cells and its old key
_DIVISION_BY_ZERO: Final = "22012"
_MANY: Final = 1_000  # staged rows from which it pays to ANALYZE them, or to TRUNCATE


@dataclass(slots=True)
class Catalog:
    """The target's tables as last read, and which staging tables this connection has."""

    is_replica: bool = False  # foreign keys and triggers are off
    product: TargetProduct = POSTGRES
    takes_bytes: bool = False  # the database has no encoding
    tables: dict[TableId, TargetTable] = field(default_factory=dict)
    absent: set[TableId] = field(default_factory=set)  # in this transaction, as `look` found
    schemas: set[str] = field(default_factory=set)  # that are there, in this transaction
    plans: dict[tuple[TableId, tuple[str, ...]], Plan] = field(default_factory=dict)
    staged: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)  # by many rows, in this transaction
    made: int = 0  # so far: names of staging tables and of prepared statements
    guarded: bool = False  # a COPY into a table was refused: every row is staged
    shadows: Shadows | None = None  # None: who looks sees what readers see
    shapes: Shapes | None = None  # None: who looks writes nothing
    # Tables whose shape is the one that was kept, and the prepared statement that fails once it is
    # not.
    compared: dict[TableId, str] = field(default_factory=dict)
    renewed: set[TableId] = field(default_factory=set)  # by the stream, in this transaction
    has_counts: bool = False  # the server counts what is written
    met: dict[TableId, Met] = field(default_factory=dict)  # of others, in this transaction
    asked: Asked = field(default_factory=dict)  # what was asked of packed rows

    def need(self, cursor: Any, tables: Iterable[TableId]) -> None:
        """Read the tables that are not known yet; raise MissingTable."""
        unknown = [table for table in tables if table not in self.tables]
        if not unknown:
            return
        refuse_reserved(*unknown)
        self.find(cursor, unknown)
        for table in unknown:
            if table not in self.tables:
                raise MissingTable(
                    "the target does not have a table of the stream",
                    table=table,
                    hint=f"create it as the source has it, with its rows; or {LOAD_AGAIN}",
                )

    def compare(self, cursor: Any, tables: Iterable[TableId], inexact: Collection[str]) -> None:
        """See that tables are what they were when rows came into them; raise TableAltered."""
        for table in set(tables) - self.compared.keys():
            there = self.tables[table]
            if there.has_heirs and there.shadow is None:
                raise heirs_problem(table)
            if self.shapes is None or str(table) in inexact or there.shadow is not None:
                continue
            if table not in self.renewed:
                if why := self.shapes.difference(cursor, there):
                    raise table_altered(table, why)
                self.made += 1
                # Planned once: to plan it takes longer than to write a row.
                name = f"cdc_as_read_{self.made}"
                cursor.execute(f"PREPARE {name} AS SELECT 1 / ({is_as_read(there)})::int")
                self.compared[table] = name

    def altered(self, cursor: Any, tables: Iterable[TableId]) -> dict[TableId, str]:
        """Name tables that are not what they were when rows came into them, and say why.

        They are read anew, behind a lock: nobody alters them until the transaction ends.
        """
        there = [name for name in tables if name not in self.renewed]
        if self.shapes is None or not there:
            return {}
        cursor.execute(f"LOCK TABLE {', '.join(map(written, there))} IN ROW EXCLUSIVE MODE")
        now = read_tables(cursor, there, self.product)  # not where the rows of a load are
        found = {
            name: why
            for name, table in now.items()
            if (why := self.shapes.difference(cursor, table))
        }
        if changed := [name for name, table in now.items() if name in found or table.has_heirs]:
            self.forget(cursor, *changed)
        return found

    def keep(self, cursor: Any) -> None:
        """Keep the shapes of tables that are others by now."""
        if self.shapes is not None and self.renewed:
            there = read_tables(cursor, self.renewed, self.product)
            self.shapes.keep(cursor, self.renewed, list(there.values()))

    def still(self, cursor: Any, tables: Iterable[TableId]) -> None:
        """See that tables are as they were read; what was written into them locks them.

        Raises TableLookedAtBefore if not.
        """
        several = [f"EXECUTE {self.compared[table]}" for table in tables if table in self.compared]
        if not several:
            return
        try:
            cursor.execute("; ".join(several))
        except DRIVER_ERRORS as error:
            if sqlstate(error) != _DIVISION_BY_ZERO:
                raise
            raise TableLookedAtBefore("a table of the target was altered") from error

    def has(self, cursor: Any, table: TableId) -> bool:
        """Say whether the target has a table; asked once in a transaction, until `forget`."""
        self.look(cursor, [table])
        return table in self.tables

    def look(self, cursor: Any, tables: Iterable[TableId]) -> None:
        """Learn at once which of these tables the target has; see `has`."""
        unknown = {table for table in tables if table not in self.tables} - self.absent
        if unknown:
            refuse_reserved(*unknown)
            self.find(cursor, unknown)
            self.absent |= unknown - self.tables.keys()

    def find(self, cursor: Any, tables: Iterable[TableId]) -> None:
        """Read those that are not known yet, and that the target has; refuse those of others."""
        if unknown := [table for table in tables if table not in self.tables]:
            found = read_tables(cursor, unknown, self.product)
            for problem in owner_problems(cursor, found):
                raise problem
            self.tables |= found
            shadows = self.shadows.find(cursor, unknown) if self.shadows is not None else {}
            there = read_tables(cursor, shadows.values(), self.product) if shadows else {}
            self.tables |= {
                table: replace(there[shadow], id=table, shadow=shadow)
                for table, shadow in shadows.items()
            }

    def forget(self, cursor: Any, *changed: TableId) -> None:
        """Read tables again and stage their rows anew: those that changed; without any, all.

        Also all where foreign keys are beside them, which others' statements follow.
        """
        known = [self.tables[name] for name in changed if name in self.tables]
        is_all = not changed or any(table.parents or table.children for table in known)
        gone = {at for at in self.plans if is_all or at[0] in changed}
        stages = self.staged if is_all else self.staged & {self.plans[at].stage for at in gone}
        if stages:
            names = ", ".join(sorted(stages))
            has_discard = is_all and self.product.has_discard
            cursor.execute("DISCARD TEMP" if has_discard else f"DROP TABLE IF EXISTS {names}")
        self.staged -= stages
        for at in gone:
            del self.plans[at]
        for one in [at for at in self.asked if is_all or at[0] in changed]:
            del self.asked[one]
        for name in [*self.tables] if is_all else changed:
            self.tables.pop(name, None)
            if prepared := self.compared.pop(name, ""):
                cursor.execute(f"DEALLOCATE {prepared}")
        self.absent = set() if is_all else self.absent.difference(changed)
        if is_all:
            self.schemas.clear()

    def make_stage(self, cursor: Any, plan: Plan) -> None:
        """An empty staging table: made once a connection, emptied by each commit.

        Deleted rows stay in it until the transaction ends, and each later part would read them.
        """
        if plan.stage in self.staged:
            has_many = plan.stage in self.filled
            cursor.execute(f"{'TRUNCATE' if has_many else 'DELETE FROM'} {plan.stage}")
            self.filled.discard(plan.stage)
            return
        cursor.execute(plan.create)
        self.staged.add(plan.stage)

    def plan(self, table: TargetTable, columns: tuple[str, ...]) -> Plan:
        """The statements of a table as written with these columns."""
        plan = self.plans.get((table.id, columns))
        if plan is None:
            self.made += 1
            stage = f"cdc_stage_{self.made}"
            plan = make_plan(
                table, columns, is_replica=self.is_replica, stage=stage, product=self.product
            )
            plan = replace(plan, takes_bytes=self.takes_bytes)
            self.plans[table.id, columns] = plan
        return plan


def table_altered(table: TableId, why: str) -> TableAltered:
    """Say that others altered a table."""
    return TableAltered(
        f"the target's table was altered there: {why}",
        table=table,
        hint=altered_hint(table),
    )


def heirs_problem(table: TableId) -> NotExpressible:
    """Say why a table from which others inherit is not written."""
    return NotExpressible(
        "tables of the target inherit from a table of the stream: what changes or removes its rows"
        " would do so with theirs",
        table=table,
        hint="ALTER TABLE … NO INHERIT … of each of them",
    )


@dataclass(slots=True)
class Work:
    """One table's share of a batch; without `todo` its staging table is filled already."""

    plan: Plan
    todo: Collapsed | None
    has_deletes: bool = False
    has_upserts: bool = False
    is_truncated: bool = False
    packed: LastStates | None = None  # lines of the staging table, instead of the rows of `todo`
    lacking: int = 0  # staged rows with values that only the target knows
    unsent: frozenset[int] = frozenset()  # numbers of their written cells
    net: int | None = None  # keys that begin, less those that end; None: it is not known

    @property
    def is_staged(self) -> bool:
        """Say whether anything goes through the staging table."""
        return self.has_deletes or self.has_upserts

    @property
    def rows(self) -> int:
        """How many are staged, of what is known here."""
        if self.packed is not None:
            return self.packed.upserts + self.packed.deletes
        return 0 if self.todo is None else len(self.todo.upserts) + len(self.todo.deletes)

    @property
    def is_joined(self) -> bool:
        """Say whether a statement joins the staging table with others."""
        return self.has_deletes or bool(self.unsent) or not self.plan.is_one_insert


def apply_changes(
    cursor: Any,
    catalog: Catalog,
    changes: Mapping[TableId, Sequence[Change]],
    *,
    inexact: Collection[str] = (),
) -> None:
    """Apply changes in commit order; `inexact` tables may lack rows that a change needs."""
    written = [table for table, rows in changes.items() if rows]
    catalog.need(cursor, written)
    catalog.compare(cursor, written, inexact)
    per_table = [
        [(catalog.tables[table], columns, run) for columns, run in by_columns(rows)]
        for table, rows in changes.items()
    ]
    for batch in zip_longest(*per_table):  # a table written with two shapes goes twice
        works = {}
        for item in batch:
            if item is not None:
                table, columns, run = item
                plan = catalog.plan(table, columns)
                are_known_absent = not table.key or not (
                    catalog.guarded
                    or str(table.id) in inexact
                    # A staged row may point at one that is copied after it.
                    or (table.oid in table.parents and not catalog.is_replica)
                )
                work = _collapsed(
                    plan,
                    columns,
                    run,
                    catalog.asked,
                    in_order=is_in_order(table, columns),
                    are_known_absent=are_known_absent,
                )
                works[table.oid] = work
                if work.is_staged:
                    catalog.make_stage(cursor, plan)
        nets = [(work.plan.table, work.net) for work in works.values()]
        with counting(cursor, catalog, expected(nets, inexact)):
            apply_works(cursor, works, inexact)
        catalog.filled |= {work.plan.stage for work in works.values() if work.rows >= _MANY}
    catalog.still(cursor, written)


def is_in_order(table: TargetTable, columns: Sequence[str]) -> bool:
    """Say whether rows are written one by one: no staging table is so wide, or the key misleads.

    A key that is checked late names two rows for a moment.
    """
    is_too_wide = len(columns) + len(table.key) + _STAGE_COLUMNS > MOST_COLUMNS
    return table.key_is_deferrable or is_too_wide


def _collapsed(
    plan: Plan,
    columns: tuple[str, ...],
    run: Sequence[Change],
    asked: Asked,
    *,
    in_order: bool,
    are_known_absent: bool,
) -> Work:
    """Find the last state per key; rows that are text already stay so where nothing forbids."""
    key, table = plan.table.key, plan.table.id
    with _settled_rows(table, asked):
        if is_packed(run) and not in_order and plan.is_whole and set(key) <= set(columns):
            places = tuple(columns.index(name) for name in key)
            found = run.last_states(places, are_known_absent)
            if found is not None:
                asked[table, columns, False] = places, are_known_absent
                packed = LastStates(*found)
                todo = Collapsed(columns, key, is_truncated=packed.is_truncated)
                return Work(
                    plan, todo, packed.deletes > 0, packed.upserts > 0, packed.is_truncated, packed,
                    net=None if packed.is_truncated else packed.net,
                )  # fmt: skip
        asked.pop((table, columns, False), None)
        todo = (one_by_one if in_order else collapse)(columns, run, key)
    lacking, unsent = _unsent(todo, plan)
    return Work(
        plan, todo, bool(todo.deletes), bool(todo.upserts), todo.is_truncated,
        lacking=lacking, unsent=unsent, net=known_net(todo),
    )  # fmt: skip


@contextmanager
def _settled_rows(table: TableId, asked: Asked) -> Iterator[None]:
    """Raise RowsUnfit where a task brought last states by another key than the target's."""
    try:
        yield
    except RowsSettled as error:
        asked.clear()
        raise RowsUnfit(
            "the target's table is another one than when its rows were read", table=table
        ) from error


def known_net(todo: Collapsed) -> int | None:
    """How many rows the changes add to the table, less those that they take; None: unknown."""
    return None if todo.is_truncated or todo.singles is not None else todo.net


def _unsent(todo: Collapsed, plan: Plan) -> tuple[int, frozenset[int]]:
    """How many rows lack values, and which."""
    found: set[int] = set()
    lacking = 0
    for image in todo.upserts.values():
        if UNCHANGED in image.cells:
            mine = [at for at, p in enumerate(plan.places) if image.cells[p] is UNCHANGED]
            lacking += bool(mine)
            found.update(mine)
    return lacking, frozenset(found)


def load_rows(cursor: Any, catalog: Catalog, table: TableId, changes: Sequence[Change]) -> None:
    """Copy whole rows into a table that was emptied before."""
    catalog.need(cursor, [table])
    for columns, run in by_columns(changes):
        plan = catalog.plan(catalog.tables[table], columns)
        with about(table, plan.columns), _settled_rows(table, catalog.asked):
            found = (
                run.last_states((), are_known_absent=True)
                if plan.is_whole and is_packed(run)
                else None
            )
            if found is not None:
                catalog.asked[table, columns, True] = (), True
                copy_packed(cursor, plan, plan.copy_in, LastStates(*found).fresh_lines)
                continue
            copy_lines(
                cursor, plan, plan.copy_in, (line_of(change.after or [], plan) for change in run)
            )


def clear_tables(cursor: Any, tables: Sequence[TargetTable]) -> None:
    """Empty tables; TRUNCATE where no table outside of them points inside."""
    oids = {table.oid for table in tables}
    fast = [t for t in tables if t.children <= oids]
    while any(not t.children <= {f.oid for f in fast} for t in fast):
        fast = [t for t in fast if t.children <= {f.oid for f in fast}]
    if fast:
        names = sql.SQL(", ").join(map(_name, fast))
        cursor.execute(sql.SQL("TRUNCATE {}").format(names))
    for table in reversed(parents_first(t for t in tables if t not in fast)):
        cursor.execute(sql.SQL("DELETE FROM {}").format(_name(table)))


_CASCADE: Final = """
WITH RECURSIVE follows (oid) AS (
    SELECT %s::oid
    UNION
    SELECT c.conrelid FROM follows f JOIN pg_catalog.pg_constraint c ON c.confrelid = f.oid
    WHERE c.contype = 'f' AND c.confdeltype IN ('c', 'n', 'd')
)
SELECT n.nspname, t.relname FROM follows f
JOIN pg_catalog.pg_class t ON t.oid = f.oid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE f.oid <> %s::oid ORDER BY 1, 2
"""


def refuse_cascade(cursor: Any, table: TargetTable, waiting: Collection[str]) -> None:
    """See that to empty a table empties or changes no other one: its foreign keys act here.

    `waiting` are tables that are to be loaded later: what they hold does not matter.

    Raises NotExpressible if it would.
    """
    if not table.children - {table.oid} or not _has_rows(cursor, table.id):
        return
    cursor.execute(_CASCADE, (table.oid, table.oid))
    for schema, name in cursor.fetchall():
        other = TableId(schema, name)
        if str(other) not in waiting and _has_rows(cursor, other):
            raise NotExpressible(
                "a table that is to be loaded cannot be emptied: a foreign key of the target would "
                "delete or change rows of another one",
                table=table.id,
                other=other,
                hint="let the target's user SET session_replication_role (GRANT SET ON PARAMETER "
                "session_replication_role TO …), or drop the foreign key",
            )


def _has_rows(cursor: Any, table: TableId) -> bool:
    cursor.execute(
        sql.SQL("SELECT EXISTS (SELECT 1 FROM {})").format(sql.Identifier(table.schema, table.name))
    )
    return bool(cursor.fetchone()[0])


def apply_works(cursor: Any, works: Mapping[int, Work], inexact: Collection[str]) -> None:
    """Write one batch of collapsed tables (by oid), in the safe order."""
    order = [works[table.oid] for table in parents_first(w.plan.table for w in works.values())]
    if truncated := [w.plan.table for w in order if w.is_truncated]:
        clear_tables(cursor, truncated)
    for work in order:
        with _of(work):
            _stage(cursor, work)
    for work in order:
        with _of(work):
            _fill(cursor, work, is_exact=str(work.plan.table.id) not in inexact)
    for work in reversed(order):
        if work.has_deletes and not work.plan.is_late:
            with _of(work):
                cursor.execute(work.plan.delete)
    for work in order:
        with _of(work):
            if work.todo and work.todo.singles is not None:
                apply_singles(
                    cursor, work.plan, work.todo.singles,
                    is_exact=str(work.plan.table.id) not in inexact,
                )  # fmt: skip
            elif work.is_staged:
                _insert(cursor, work)
            _copy_fresh(cursor, work)
    for work in reversed(order):
        if work.has_deletes and work.plan.is_late:
            with _of(work):
                cursor.execute(work.plan.delete)


def _of(work: Work) -> AbstractContextManager[None]:
    return about(work.plan.table.id, work.plan.columns)


def _insert(cursor: Any, work: Work) -> None:
    plan, has_fresh = work.plan, work.packed is not None and work.packed.fresh > 0
    if plan.form == "park" and (work.has_upserts or has_fresh):
        for statement in plan.park:
            cursor.execute(statement)
    if not work.has_upserts:
        return
    if plan.form == "replace":
        cursor.execute(plan.delete_keys)
        cursor.execute(plan.insert)
    else:
        cursor.execute(plan.upsert)


def _copy_fresh(cursor: Any, work: Work) -> None:
    if work.packed is not None and work.packed.fresh:
        copy_packed(cursor, work.plan, work.plan.copy_in, work.packed.fresh_lines)


def _stage(cursor: Any, work: Work) -> None:
    todo, plan = work.todo, work.plan
    if todo is None or not work.is_staged:
        return
    if work.packed is not None:
        copy_packed(cursor, plan, plan.copy, work.packed.lines)
    else:
        copy_lines(cursor, plan, plan.copy, _staged_lines(todo, plan))
    if cursor.rowcount != work.rows:
        raise RuntimeError(f"staged {cursor.rowcount} of {work.rows} rows")
    if work.rows >= _MANY and work.is_joined:
        cursor.execute(plan.analyze)


def _staged_lines(todo: Collapsed, plan: Plan) -> Iterator[str]:
    """Rows of the staging table: op, unsent, origin key, cells."""
    key_places = {todo.columns.index(name): at for at, name in enumerate(todo.key)}
    no_origin = "\t\\N" * len(todo.key)
    for image in todo.upserts.values():
        unsent = [at for at, place in enumerate(plan.places) if image.cells[place] is UNCHANGED]
        if not unsent:
            yield f"u\t\\N{no_origin}\t{line_of(image.cells, plan)}"
            continue
        if image.origin is None:
            raise NotExpressible(
                "a new row was sent without all of its values", table=plan.table.id
            )
        origin = "\t".join(text_of(cell) for cell in image.origin)
        marks = "{" + ",".join(map(str, unsent)) + "}"
        yield f"u\t{marks}\t{origin}\t{line_of(image.cells, plan)}"
    for key in todo.deletes:
        cells = "\t".join(
            text_of(key[key_places[place]]) if place in key_places else "\\N"
            for place in plan.places
        )
        yield f"d\t\\N{no_origin}\t{cells}\n"


def _fill(cursor: Any, work: Work, *, is_exact: bool) -> None:
    """Take what was not sent from the row as it stands before the batch."""
    if not work.unsent:
        return
    plan = work.plan
    sets = ", ".join(plan.fill[at] for at in sorted(work.unsent))
    cursor.execute(f"UPDATE {plan.stage} s SET unsent = NULL, {sets} {plan.fill_from}")
    if cursor.rowcount == work.lacking:
        return
    if is_exact:
        raise row_missing(plan, work.lacking - cursor.rowcount)
    cursor.execute(f"DELETE FROM {plan.stage} WHERE unsent IS NOT NULL")


def _name(table: TargetTable) -> sql.Composable:
    return sql.Identifier(table.place.schema, table.place.name)
