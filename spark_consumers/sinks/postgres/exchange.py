"""END of a load beside a table's rows: the rows that readers see become those of the shadow.

Only what differs is written, like any other batch: the relation stays, with its views, grants,
keys, indexes and triggers, readers go on, and those with an older snapshot keep their rows, which
TRUNCATE would take from them.  Rows of a table without a key are all written.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

from typing import Any, Final

from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from spark_consumers.dialects.base import quote
from spark_consumers.errors import MissingTable
from spark_consumers.sinks.postgres.apply import Catalog, Work, apply_works, is_in_order
from spark_consumers.sinks.postgres.catalog import TargetTable, read_tables
from spark_consumers.sinks.postgres.plan import Plan, exact
from spark_consumers.sinks.postgres.refusals import about
from spark_consumers.sinks.postgres.shadows import Shadows, written

_EXACT_TEXT: Final = "SET LOCAL extra_float_digits TO 3"  # before PostgreSQL 12 it was 0


def exchange(cursor: Any, catalog: Catalog, shadows: Shadows, table: TableId) -> None:
    """Let readers see the rows of a table's shadow, and drop it.

    Raises MissingTable where the table itself is gone.
    """
    shadow = catalog.tables[table]
    columns = tuple(shadow.columns)
    catalog.forget(cursor, table)
    found = read_tables(cursor, [table], catalog.product)
    if table not in found:
        raise MissingTable(
            "the target does not have a table that is loaded beside its rows",
            table=table,
            hint=LOAD_AGAIN,
        )
    seen = catalog.tables[table] = found[table]
    plan = catalog.plan(seen, columns)
    cursor.execute(f"ANALYZE {written(shadow.place)}")
    with about(table, plan.columns):
        has_key = bool(seen.key) and set(seen.key) <= set(plan.columns)
        if has_key and not is_in_order(seen, columns):
            _write_differences(cursor, catalog, plan, shadow)
        else:
            names = ", ".join(map(quote, plan.columns))
            cursor.execute(f"DELETE FROM {plan.name}")
            cursor.execute(
                f"INSERT INTO {plan.name} {plan.into}SELECT {names} FROM {written(shadow.place)}"
            )
    shadows.leave(cursor, table)
    catalog.forget(cursor, table)


def _write_differences(cursor: Any, catalog: Catalog, plan: Plan, shadow: TargetTable) -> None:
    """Stage rows that go, come or change, and write them in the form of the table's plan."""
    seen = plan.table
    catalog.make_stage(cursor, plan)
    if not catalog.product.has_images:
        cursor.execute(_EXACT_TEXT)
    same = " AND ".join(
        f"{exact(f't.{quote(name)}', kind)} = {exact(f's.{quote(name)}', kind)}"
        for name in seen.key
        for kind in (seen.columns[name].type_name,)
    )
    cells = [
        f"coalesce(s.{quote(n)}, t.{quote(n)})" if n in seen.key else f"s.{quote(n)}"
        for n in plan.columns
    ]
    into = ", ".join(f"c{at}" for at in range(len(cells)))
    cursor.execute(
        f"INSERT INTO {plan.stage} (op, {into}) "
        f"SELECT CASE WHEN s.ctid IS NULL THEN 'd' ELSE 'u' END::\"char\", {', '.join(cells)} "
        f"FROM {written(shadow.place)} s FULL JOIN {plan.name} t ON {same} "
        f"WHERE s.ctid IS NULL OR t.ctid IS NULL OR {_differ(catalog, plan, shadow)}"
    )
    cursor.execute(plan.analyze)
    cursor.execute(f"SELECT bool_or(op = 'd'), bool_or(op = 'u') FROM {plan.stage}")
    deletes, upserts = cursor.fetchone()
    work = Work(plan, None, has_deletes=bool(deletes), has_upserts=bool(upserts))
    apply_works(cursor, {seen.oid: work}, ())


def _differ(catalog: Catalog, plan: Plan, shadow: TargetTable) -> str:
    """Compare rows as they are stored: equal is not the same, 1.0 and 1.00."""
    ours, theirs = [], []
    for name in plan.columns:
        kind = plan.table.columns[name].type_name
        if not catalog.product.has_images:
            kind = "text"
        elif shadow.columns[name].type_name == kind:
            kind = ""
        cast = f"::{kind}" if kind else ""
        ours.append(f"t.{quote(name)}{cast}")
        theirs.append(f"s.{quote(name)}{cast}")
    if not catalog.product.has_images:
        return f"ROW({', '.join(ours)}) IS DISTINCT FROM ROW({', '.join(theirs)})"
    return f"ROW({', '.join(ours)})::record *<> ROW({', '.join(theirs)})::record"
