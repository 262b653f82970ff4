"""A small step as one message: its statements with their values, and one round trip.

    the ledger moves, or the statement fails where it is not what is known of it
    rows are deleted, inserted and updated by statements that hold their values

The server runs the statements of one query as one transaction (PostgreSQL manual, "Multiple
Statements in a Simple Query"): all of it becomes visible, or nothing.  What a message cannot
express, and whatever the server refuses, goes the usual way, which finds out what is wrong.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.control import SchemaChange, TableLoad
from schemas.tables import UNCHANGED, TableId
from spark_consumers.cuts.compact import Collapsed, Image, Key, by_columns, collapse, one_by_one
from spark_consumers.dialects.base import quote
from spark_consumers.model import Cell, Change, Ledger, Rows, Segment
from spark_consumers.native import RowsSettled
from spark_consumers.sinks.base import Met
from spark_consumers.sinks.postgres import conflicts
from spark_consumers.sinks.postgres.apply import Catalog, is_in_order, known_net
from spark_consumers.sinks.postgres.catalog import TargetTable, parents_first
from spark_consumers.sinks.postgres.driver import part
from spark_consumers.sinks.postgres.ledger import move_or_fail
from spark_consumers.sinks.postgres.plan import Plan
from spark_consumers.sinks.step import FIRST, LAST, Place, present

_OR_FAIL = "SELECT 1 / count(*) FROM"
_Statement = tuple[str, Sequence[object]]


class NotOneMessage(Exception):
    """A message cannot express the step."""


@dataclass(slots=True)
class StepMessage:
    """One transaction of the sink, as `step` asks for it: nothing is done until it is sent."""

    catalog: Catalog
    rows: Rows
    known: Ledger  # what the target holds, unless someone else came in between
    guard: str  # before a statement on the ledger
    statements: list[_Statement] = field(default_factory=list)
    counted: list[conflicts.Expected] = field(default_factory=list)

    def text(self) -> tuple[str, list[object]]:
        """Everything, in one text, and its values."""
        texts = [text for text, _ in self.statements]
        if self.counted:
            texts.append(conflicts.compare(self.counted))
        return "; ".join(texts), [value for _, values in self.statements for value in values]

    def answered(self, cursor: Any) -> dict[TableId, Met]:
        """What others changed, once it is done."""
        met: dict[TableId, Met] = {}
        if self.counted:
            conflicts.note(met, self.counted, conflicts.compared(cursor.fetchone()))
        return met

    @property
    def ddl(self) -> Sequence[SchemaChange]:
        if self.rows.ddl:
            raise NotOneMessage
        return ()

    def lock_ledger(self) -> Ledger:
        return self.known

    def check_staged(self, segment: Segment) -> None:
        """Rows were counted when they were read, and have not moved since."""

    def parts(self) -> Iterator[None]:
        yield

    def alter(self, change: SchemaChange, *, is_exact: bool) -> bool:
        raise NotOneMessage(change, is_exact)

    def load(self, cut: TableLoad, *, keeps: bool) -> bool:
        raise NotOneMessage(cut, keeps)

    def there(self, tables: Collection[TableId]) -> Collection[TableId]:
        raise NotOneMessage(tables)

    def move_ledger(self, before: Ledger, upto: Ledger) -> None:
        """First of all: who is late waits here, and writes nothing."""
        more = conflicts.keep(self.counted) if self.counted else ""
        self.statements.insert(0, move_or_fail(before, upto, self.guard, more))

    def write(self, after: Place, before: Place, inexact: Mapping[str, str]) -> None:
        if (after, before) != (FIRST, LAST):
            raise NotOneMessage
        changes = present(self.rows.changes, inexact)
        written = {table: rows for table, rows in changes.items() if rows}
        if not written:
            return
        if not written.keys() <= self.catalog.compared.keys():
            raise NotOneMessage  # they are compared with what they were, or are not exact
        try:
            works = [_work(self.catalog, *item) for item in written.items()]
        except RowsSettled as error:
            raise NotOneMessage from error
        if not self.catalog.is_replica:
            self.statements.append(("SET CONSTRAINTS ALL DEFERRED", ()))
        if self.catalog.has_counts:
            nets = [(work.plan.table, known_net(work.todo)) for work in works]
            self.counted = conflicts.expected(nets, inexact)
        by_oid = {work.plan.table.oid: work for work in works}
        order = [by_oid[t.oid] for t in parents_first(work.plan.table for work in works)]
        for work in reversed(order):
            if not work.plan.is_late:
                self.statements += work.deletes()
        for work in order:
            self.statements += work.puts(is_exact=str(work.plan.table.id) not in inexact)
        for work in reversed(order):
            if work.plan.is_late:
                self.statements += work.deletes()
        self.statements += [(f"EXECUTE {self.catalog.compared[table]}", ()) for table in written]


@dataclass(slots=True)
class _TableChanges:
    """One table's rows."""

    plan: Plan
    todo: Collapsed

    def deletes(self) -> Iterator[_Statement]:
        """Rows that go."""
        if self.todo.deletes:
            yield self._delete(self.todo.deletes)

    def puts(self, *, is_exact: bool) -> Iterator[_Statement]:
        """Rows that come, and those that change where only a part of them was sent."""
        plan, whole = self.plan, []
        for key, image in self.todo.upserts.items():
            if UNCHANGED not in image.cells:
                whole.append(image.cells)
            elif is_exact and plan.form == "upsert" and image.origin == key:
                yield self._update(key, image)
            else:
                raise NotOneMessage
        if plan.form == "replace" and self.todo.upserts:
            yield self._delete(list(self.todo.upserts))
        whole += [single.new or [] for single in self.todo.singles or ()]
        if whole:
            head, tail = plan.put
            row = f"({', '.join(['%s'] * len(plan.places))})"
            values = [cells[place] for cells in whole for place in plan.places]
            yield f"{part(head)}{', '.join([row] * len(whole))}{part(tail)}", values

    def _delete(self, keys: Sequence[Key]) -> _Statement:
        one = f"({self._names(self.todo.key)})"
        return (
            f"DELETE FROM {part(self.plan.name)} t WHERE {' OR '.join([one] * len(keys))}",
            [cell for key in keys for cell in key],
        )

    def _update(self, key: Key, image: Image) -> _Statement:
        """What was sent of one row; fails where the row is not there."""
        sent: dict[str, Cell] = {
            name: image.cells[place]
            for name, place in zip(self.plan.columns, self.plan.places, strict=True)
            if name not in self.todo.key and image.cells[place] is not UNCHANGED
        }
        if not sent:
            raise NotOneMessage
        sets = ", ".join(f"{part(quote(name))} = %s" for name in sent)
        name, where = part(self.plan.name), self._names(self.todo.key)
        return (
            f"WITH one AS (UPDATE {name} t SET {sets} WHERE {where} RETURNING 1) {_OR_FAIL} one",
            [*sent.values(), *key],
        )

    def _names(self, key: Sequence[str]) -> str:
        # Without a cast, which would cut what is too long for the type.
        of = self.plan.table.columns
        return " AND ".join(f"t.{part(quote(n))} {part(of[n].key_equality)} %s" for n in key)


def _work(catalog: Catalog, table_id: TableId, changes: Sequence[Change]) -> _TableChanges:
    table = catalog.tables.get(table_id)
    if table is None:
        raise NotOneMessage  # it must be read first
    runs = list(by_columns(changes))
    if len(runs) > 1:
        raise NotOneMessage
    ((columns, run),) = runs
    if set(columns) - set(table.columns):
        raise NotOneMessage
    plan = catalog.plan(table, columns)
    if plan.takes_bytes or plan.form == "park" or not plan.places:
        raise NotOneMessage
    todo = _collapsed(table, columns, list(run))
    if todo.deletes and todo.upserts and table.children and not catalog.is_replica:
        raise NotOneMessage  # which keys are equal is the server's
    if todo.is_truncated or any(single.old is not None for single in todo.singles or ()):
        raise NotOneMessage
    return _TableChanges(plan, todo)


def _collapsed(table: TargetTable, columns: tuple[str, ...], run: Sequence[Change]) -> Collapsed:
    how = one_by_one if is_in_order(table, columns) else collapse
    return how(columns, run, table.key)
