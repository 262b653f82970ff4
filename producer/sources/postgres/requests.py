"""Requests for re-reads: rows of a table in our schema at the source.

Who asks need not reach `run`, and a request outlives every restart: it stays until the table was
read again at a point behind it, or until it is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import NotPermitted
from producer.sources.postgres.catalog import asking
from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import TableId

_TABLE: Final = f"{OWN_SCHEMA}.snapshot_requests"
# By the catalog: a name in a schema that the role may not use is an error, not NULL.
_USABLE: Final = f"""
SELECT count(*) > 0 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = '{OWN_SCHEMA}' AND c.relname = 'snapshot_requests'
AND has_schema_privilege(n.oid, 'USAGE')
AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'DELETE')
"""  # noqa: S608
_WAY_OUT: Final = (
    "the role may not make or write the table of requests: docs/security.md has the statements"
    ' for an administrator ("Tables read again on request")'
)
_MAKE: Final = (
    f"CREATE SCHEMA IF NOT EXISTS {OWN_SCHEMA}",
    (
        f"CREATE TABLE IF NOT EXISTS {_TABLE} (number bigserial PRIMARY KEY, slot text NOT NULL,"
        " table_schema text NOT NULL, table_name text NOT NULL,"
        " asked_at timestamptz NOT NULL DEFAULT clock_timestamp())"
    ),
)


class AskedAgain(NamedTuple):
    """Somebody asks for a table to be read again."""

    table: TableId
    number: int  # of the newest request for it
    asked_at: datetime  # of the oldest


def requests(connection: Connection, slot: str) -> list[AskedAgain]:
    """Return what is asked for, oldest first; nothing where the role may not answer it."""
    with asking(connection) as cursor:
        cursor.execute(_USABLE)
        if not cursor.fetchone()[0]:
            return []
        cursor.execute(
            f"SELECT table_schema, table_name, max(number), min(asked_at) FROM {_TABLE}"  # noqa: S608
            " WHERE slot = %s GROUP BY 1, 2 ORDER BY 4",
            [slot],
        )
        return [AskedAgain(TableId(s, t), number, at) for s, t, number, at in cursor.fetchall()]


def newest(connection: Connection, slot: str) -> Mapping[TableId, int]:
    """Return the newest request for each table."""
    return {request.table: request.number for request in requests(connection, slot)}


def ask(connection: Connection, slot: str, tables: Sequence[TableId]) -> None:
    """Ask for tables; makes the table of requests with the first one.

    Raises NotPermitted where the role may not.
    """
    try:
        with asking(connection) as cursor:
            cursor.execute(_USABLE)
            if not cursor.fetchone()[0]:
                for statement in _MAKE:
                    cursor.execute(statement)
            for table in tables:
                cursor.execute(
                    f"INSERT INTO {_TABLE} (slot, table_schema, table_name) VALUES (%s, %s, %s)",  # noqa: S608
                    [slot, *table],
                )
    except NotPermitted as error:
        raise NotPermitted("tables cannot be asked for", hint=_WAY_OUT) from error


def forget(connection: Connection, slot: str, table: TableId, number: int | None = None) -> int:
    """Remove requests for a table, up to a number; return how many there were."""
    with asking(connection) as cursor:
        cursor.execute(_USABLE)
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute(
            f"DELETE FROM {_TABLE} WHERE slot = %s AND table_schema = %s AND table_name = %s"  # noqa: S608
            " AND number <= coalesce(%s, number)",
            [slot, *table, number],
        )
        return int(cursor.rowcount)
