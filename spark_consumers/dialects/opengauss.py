"""Schema changes in the SQL of openGauss and GaussDB.

PostgreSQL's statements (see there), without what 9.2 did not have: a schema or
an index that may be there already is looked for first, in a DO block.  Types
that only PostgreSQL has become text, which holds their values as they are.

Checked on PostgreSQL, not on a server of this family: it follows the manual.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from schemas.control import Origin, SchemaChange
from schemas.tables import Column, TableSchema
from spark_consumers.dialects import postgres
from spark_consumers.dialects.base import NOT_TOLD, LeftOut, literal
from spark_consumers.dialects.definitions import block

_NAME: Final = r'"(?:[^"]|"")+"'
_SCHEMA: Final = re.compile(rf"CREATE SCHEMA IF NOT EXISTS ({_NAME})")

# Types of PostgreSQL that this family lacks (openGauss 7, SQL reference, data types).
_LACKING: Final = re.compile(
    r"(?:pg_catalog\.)?(?:macaddr8|jsonpath|pg_lsn|pg_snapshot|xid8|\w+multirange)(\[\])?"
)
_TEXT, _TEXT_ARRAY = 25, 1009
# GaussDB manual, "DDL in logical decoding", table 1; CREATE TABLE and its like are `statements`.
_OBJECTS: Final = frozenset({
    *("index", "view", "materialized view", "function", "procedure", "sequence", "schema"),
    *("trigger", "package", "package body", "type", "table", "column"),
})  # fmt: skip


def statements(change: SchemaChange, *, inside: bool = False) -> list[str]:
    """Return what brings a copy from `change.before` to `change.after`, in order."""
    known = replace(change, before=_known(change.before), after=_known(change.after))
    return [_spelled(statement) for statement in postgres.statements(known, inside=inside)]


def extras(change: SchemaChange, *, code: bool = False) -> list[str | LeftOut]:
    """Return what goes beyond rows: NOT NULL, defaults, other objects.

    Only where a server of this family sent the statement: its text is not PostgreSQL's.
    """
    after = change.after
    if change.origin is not Origin.DEPARSED:
        return []
    if after is not None:
        return list(postgres.beyond(change, after, code=code))
    is_object = change.before is None and change.kind in _OBJECTS
    # Of tables only comments: a table that is not captured has no copy.
    if not is_object or (change.kind in {"table", "column"} and change.tag != "COMMENT"):
        return []
    if change.canonical is None:
        return [NOT_TOLD]
    return list(postgres.defined(change.kind, change.canonical, code=code))


def column_type(table: TableSchema, column: Column) -> str:
    """The type of a column as this family writes it."""
    return postgres.column_type(table, _column(column))


def _known(table: TableSchema | None) -> TableSchema | None:
    return table and replace(table, columns=tuple(map(_column, table.columns)))


def _column(column: Column) -> Column:
    if (found := _LACKING.fullmatch(column.type_name)) is None:
        return column
    is_array = found[1] is not None
    return replace(
        column,
        type_oid=_TEXT_ARRAY if is_array else _TEXT,
        type_mod=-1,
        type_name="text[]" if is_array else "text",
    )


def _spelled(statement: str) -> str:
    """Write without IF NOT EXISTS what 9.2 has without it; CREATE TABLE has it."""
    if found := _SCHEMA.fullmatch(statement):
        is_there = (
            f"SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = {literal(_plain(found[1]))}"
        )
        made = literal(f"CREATE SCHEMA {found[1]}")
        return block(f"BEGIN IF NOT EXISTS ({is_there}) THEN EXECUTE {made}; END IF; END")
    return statement


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"')
