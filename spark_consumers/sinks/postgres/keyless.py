"""Rows of tables without a key: they are found by all of their values.

A change names a whole row, and of equal ones any is right.  What a batch leaves of its changes is
rows that go and rows that come.  Those that go are found together: one by one, each would read the
table from its beginning.
"""
# ruff: noqa: S608  every name in a statement is quoted

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from psycopg2 import sql

from schemas.errors import LOAD_AGAIN
from schemas.tables import UNCHANGED
from spark_consumers.cuts.compact import Single, netted
from spark_consumers.dialects.base import quote
from spark_consumers.errors import RowMissing
from spark_consumers.model import Cell
from spark_consumers.sinks.postgres.catalog import TargetColumn
from spark_consumers.sinks.postgres.driver import part
from spark_consumers.sinks.postgres.lines import check_text, copy_lines, line_of
from spark_consumers.sinks.postgres.plan import Plan

_MOST: Final = 500  # rows that one statement looks for
_Row: TypeAlias = tuple[Cell, ...]


def apply_singles(cursor: Any, plan: Plan, singles: Sequence[Single], *, is_exact: bool) -> None:
    """Take out the rows that go, and put in those that come; row by row where they are not known.

    Where rows may be missing, an update of one that is puts none in.  A column that only the
    target has keeps its value: there, a row is updated.
    """
    is_all = set(plan.table.columns) == set(plan.columns)
    if is_exact and (is_all or (plan.table.uniques and plan.form == "replace")):
        singles = netted(singles)
    gone: list[list[Cell]] = []
    fresh: list[str] = []
    for single in singles:
        if single.old is None:
            _take_out(cursor, plan, gone)
            fresh.append(line_of(single.new or [], plan))
            continue
        if fresh:
            copy_lines(cursor, plan, plan.copy_in, fresh)
            fresh = []
        if single.new is None and is_exact and UNCHANGED not in single.old:
            gone.append(single.old)
        else:
            _take_out(cursor, plan, gone)
            _apply_single(cursor, plan, single, is_exact=is_exact)
    _take_out(cursor, plan, gone)
    if fresh:
        copy_lines(cursor, plan, plan.copy_in, fresh)


def _take_out(cursor: Any, plan: Plan, gone: list[list[Cell]]) -> None:
    """Delete these rows; the list is empty afterwards."""
    alike: dict[tuple[bool, ...], Counter[_Row]] = {}
    for cells in gone:
        check_text(plan, line_of(cells, plan))
        row = tuple([cells[place] for place in plan.places])
        alike.setdefault(tuple([cell is None for cell in row]), Counter())[row] += 1
    for is_null, rows in alike.items():
        for some in _in_parts(rows):
            cells = [cell for row in some for cell in row if cell is not None]
            cursor.execute(_finding(plan, is_null, some), cells)
            if (lacking := sum(some.values()) - cursor.rowcount) != 0:
                raise row_missing(plan, lacking)
    gone.clear()


def _in_parts(rows: Counter[_Row]) -> Iterator[Counter[_Row]]:
    some: Counter[_Row] = Counter()
    for row, count in rows.items():
        some[row] = count
        if len(some) == _MOST:
            yield some
            some = Counter()
    if some:
        yield some


def _finding(plan: Plan, is_null: Sequence[bool], rows: Counter[_Row]) -> str:
    """The statement that deletes rows, which are NULL in the same columns.

    Its arguments are their other cells, row by row.  The server decides whether it reads the table
    once, or an index for each row.  Rows that differ may be the same one in the target's types:
    then each is found where any is, and as many go as all of them.
    """
    tests: list[str] = []
    kinds: list[str] = []
    for name, is_nothing in zip(plan.columns, is_null, strict=True):
        column, quoted = plan.table.columns[name], part(quote(name))
        if is_nothing:
            # A row of NULLs `IS NULL` as well, and is a value.
            tests.append(f"t.{quoted} IS NOT DISTINCT FROM NULL")
            continue
        cell = f"r.c{len(kinds)}"
        kinds.append(f", %s::{part(column.type_name)}")
        tests += _same(column, f"t.{quoted}", cell)
    values = ", ".join(f"({at}, {n}{''.join(kinds)})" for at, n in enumerate(rows.values()))
    names = ", ".join(["at", "often", *(f"c{at}" for at in range(len(kinds)))])
    table = part(plan.name)
    return (
        f"DELETE FROM {table} d USING (SELECT t.tableoid, t.ctid, sum(r.often) AS often,"
        f" row_number() OVER (PARTITION BY min(r.at)) AS nth FROM (VALUES {values}) r ({names})"
        f" JOIN {table} t ON {' AND '.join(tests or ['true'])} GROUP BY t.tableoid, t.ctid) x"
        " WHERE x.nth <= x.often AND d.ctid = x.ctid AND d.tableoid = x.tableoid"
    )


def _same(column: TargetColumn, place: str, cell: str) -> list[str]:
    """The tests that a column has a value; both are expressions of SQL.

    Equal is not the same: 1.0 and 1.00, 0 and -0, a day and 24 hours. An index wants `=`.
    """
    equal = [f"{place} {part(column.equality)} {cell}"] if column.equality else []
    return [*equal, f"{place}::text = {cell}::text"]


def row_missing(plan: Plan, count: int) -> RowMissing:
    """Rows that the stream changes and the target lacks."""
    return RowMissing(
        "changes need rows that the target does not have",
        table=plan.table.id,
        rows=count,
        hint=f"someone else wrote to the target; {LOAD_AGAIN}",
    )


def _apply_single(cursor: Any, plan: Plan, single: Single, *, is_exact: bool) -> None:
    for cells in (single.old, single.new):
        if cells:
            check_text(plan, line_of(cells, plan))
    old = single.old or []
    known = [(n, old[p]) for n, p in zip(plan.columns, plan.places, strict=True)]
    tests: list[sql.Composable] = []
    values: list[Cell] = []
    for name, cell in known:
        if cell is UNCHANGED:
            continue
        column = plan.table.columns[name]
        quoted = sql.SQL(part(quote(name)))
        if cell is None:
            # A row of NULLs `IS NULL` as well, and is a value.
            tests.append(sql.SQL("{} IS NOT DISTINCT FROM NULL").format(quoted))
            continue
        same = _same(column, part(quote(name)), f"%s::{part(column.type_name)}")
        tests += [sql.SQL(test) for test in same]
        values += [cell] * len(same)
    if not tests and known:
        # Of a partition with an identity of its own. Any row may be meant: none is changed.
        if not is_exact:
            return
        raise RowMissing(
            "an old row of a table without a key carries no values",
            table=plan.table.id,
            rows=1,
            hint="ALTER TABLE … REPLICA IDENTITY FULL at the source, of each partition too, or give"
            f" it a primary key; then {LOAD_AGAIN}",
        )
    table = sql.SQL(part(plan.name))
    one = sql.SQL("(tableoid, ctid) IN (SELECT tableoid, ctid FROM {} WHERE {} LIMIT 1)").format(
        table, sql.SQL(" AND ").join(tests or [sql.SQL("true")])
    )
    if single.new is None:
        cursor.execute(sql.SQL("DELETE FROM {} WHERE {}").format(table, one), values)
    else:
        sets, news = [], []
        for name, place in zip(plan.columns, plan.places, strict=True):
            cell = single.new[place]
            if cell is not UNCHANGED:
                kind = sql.SQL(part(plan.table.columns[name].type_name))
                sets.append(sql.SQL("{} = %s::{}").format(sql.SQL(part(quote(name))), kind))
                news.append(cell)
        cursor.execute(
            sql.SQL("UPDATE {} SET {} WHERE {}").format(table, sql.SQL(", ").join(sets), one),
            news + values,
        )
    if cursor.rowcount != 1 and is_exact:
        raise row_missing(plan, 1)
