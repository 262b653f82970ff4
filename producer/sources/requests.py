"""Requests for re-reads: rows of a table in our schema at the source.

Who asks need not reach `run`, and a request outlives every restart: it stays until the table was
read again at a point behind it, or until it is taken back.

A row that names no table pauses all re-reads: it needs no right and no column that requests do not.
"""
# ruff: noqa: S608  every value in a statement is quoted

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from producer.errors import NotPermitted
from producer.sources.rights import make_own_schema, may_write_own
from producer.sources.session import Asks
from schemas.quoting import constant
from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import TableId

_NAME: Final = "snapshot_requests"
_TABLE: Final = f"{OWN_SCHEMA}.{_NAME}"
# By the catalog: a name in a schema that the role may not use is an error, not NULL.
_USABLE: Final = f"""
SELECT count(*) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = '{OWN_SCHEMA}' AND c.relname = '{_NAME}'
AND has_schema_privilege(n.oid, 'USAGE')
AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'DELETE')
"""
_SAYS_WHO: Final = f"""
SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = '{_TABLE}'::regclass
AND attname = 'asked_by' AND NOT attisdropped
"""
CANNOT_ASK: Final = "`snapshot` and `verify --repair` cannot ask for tables"
_WAY_OUT: Final = (
    "the role may not make or write the table of requests: docs/security.md has the statements"
    ' for an administrator ("Tables read again on request")'
)
_MAKE: Final = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (number bigserial PRIMARY KEY, slot text NOT NULL,"
    " table_schema text NOT NULL, table_name text NOT NULL,"
    " asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),"
    " asked_by text DEFAULT session_user)"
)


class AskedAgain(NamedTuple):
    """Somebody asks for a table to be read again, or, with `EVERYTHING`, for a pause."""

    table: TableId
    number: int  # of the newest request for it
    asked_at: datetime  # of the oldest
    asked_by: str = ""  # role of the oldest; "": a table of requests that does not say it


def requests(session: Asks, slot: str) -> list[AskedAgain]:
    """Return what is asked for, oldest first; nothing where the role may not answer it."""
    if not _is_usable(session):
        return []
    by = "(array_agg(asked_by::text ORDER BY number))[1]"
    rows = session.query(
        "SELECT table_schema, table_name, max(number)::text, extract(epoch FROM min(asked_at))"
        f"::text, {by if session.query(_SAYS_WHO) else 'NULL'} FROM {_TABLE}"
        f" WHERE slot = {constant(slot)} GROUP BY 1, 2 ORDER BY min(asked_at)"
    )
    return [
        AskedAgain(
            TableId(schema or "", table or ""),
            int(number or 0),
            datetime.fromtimestamp(float(asked_at or 0), UTC),
            who or "",
        )
        for schema, table, number, asked_at, who in rows
    ]


def why_not(session: Asks) -> str:
    """Say why the role cannot ask, and what mends it; '' where it can."""
    return "" if may_write_own(session, _NAME) else _WAY_OUT


def newest(session: Asks, slot: str) -> Mapping[TableId, int]:
    """Return the newest request for each table."""
    return {request.table: request.number for request in requests(session, slot)}


def ask(session: Asks, slot: str, tables: Sequence[TableId]) -> None:
    """Ask for tables; makes the table of requests with the first one.

    Raises NotPermitted where the role may not.
    """
    try:
        if not _is_usable(session):
            make_own_schema(session)
            session.query(_MAKE)
        for table in tables:
            session.query(
                f"INSERT INTO {_TABLE} (slot, table_schema, table_name) VALUES"
                f" ({constant(slot)}, {constant(table.schema)}, {constant(table.name)})"
            )
    except NotPermitted as error:
        raise NotPermitted("tables cannot be asked for", hint=_WAY_OUT) from error


def forget(session: Asks, slot: str, table: TableId, number: int | None = None) -> int:
    """Remove requests for a table, up to a number; return how many there were."""
    if not _is_usable(session):
        return 0
    upto = "" if number is None else f" AND number <= {number:d}"
    removed = session.query(
        f"DELETE FROM {_TABLE} WHERE slot = {constant(slot)}"
        f" AND table_schema = {constant(table.schema)} AND table_name = {constant(table.name)}"
        f"{upto} RETURNING number"
    )
    return len(removed)


def _is_usable(session: Asks) -> bool:
    return session.query(_USABLE)[0][0] != "0"
