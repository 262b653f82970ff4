"""Rows of several shapes of a table that one write takes.

A write of a lake costs seconds, however few rows it has.  Where a schema change only adds or
drops columns, rows from before it need no write of their own: the table gets its last shape
first, and then all rows as that shape has them.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.control import Origin, SchemaChange
from schemas.tables import Column, TableSchema


@dataclass(frozen=True, slots=True)
class Joined:
    """The columns that all rows of a write get."""

    columns: tuple[Column, ...]
    # The change by which a column came: rows that lack it were written before, and have what the
    # column's `missing` says.  Other columns that a row lacks went before it: NULL.
    come: Mapping[str, SchemaChange]
    gone: frozenset[str]  # what went, without its case


def joined(rows: Joined | None, change: SchemaChange, *, keeps_columns: bool) -> Joined | None:
    """Return the columns of rows before and behind a change; None: they are written apart.

    `rows` are the columns of those before it, if they are joined themselves.  `keeps_columns`: in
    the table a column stays that went at the source, and so do values of rows before it.
    """
    before, after = change.before, change.after
    if before is None or after is None or not _keeps_rows(change, before, after):
        return None
    rows = rows or Joined(before.columns, {}, frozenset())
    old = {column.name for column in before.columns}
    come = [column for column in after.columns if column.name not in old]
    gone = rows.gone | {name.casefold() for name in old - {*after.names()}}
    if any(c.name.casefold() in gone or not _is_said(c, keeps_columns=keeps_columns) for c in come):
        return None
    stay = rows.columns if keeps_columns else ()
    columns = {column.name: column for column in (*stay, *after.columns)}
    changes = {**rows.come, **{column.name: change for column in come}}
    return Joined(tuple(columns.values()), changes, gone)


def _keeps_rows(change: SchemaChange, before: TableSchema, after: TableSchema) -> bool:
    """Say whether no value changes but for columns that come or go."""
    if change.origin is Origin.SNAPSHOT or change.moved is not None or change.lossy is not None:
        return False
    if change.renamed or change.values or (before.id, before.key) != (after.id, after.key):
        return False
    types = {c.name: (c.type_oid, c.type_mod, c.user_type) for c in before.columns}
    return all(
        types.get(c.name) in {None, (c.type_oid, c.type_mod, c.user_type)} for c in after.columns
    )


def _is_said(column: Column, *, keeps_columns: bool) -> bool:
    """Say whether it is known what older rows have in a column that came.

    In a history that is the business of the states that hold when it comes, in a log nobody's.
    """
    if column.missing is not None:
        return not keeps_columns
    return column.is_null_before
