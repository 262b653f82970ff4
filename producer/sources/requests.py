"""Requests for re-reads: rows of a table in our schema at the source.

Who asks need not reach `run`, and a request outlives every restart: it stays until the table was
read again at a point behind it, or until it is taken back.

A row that names no table pauses all re-reads: it needs no right and no column that requests do not.
"""
# ruff: noqa: S608  every value in a statement is quoted

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from producer.errors import NotOurs, NotPermitted
from producer.sources.rights import (
    foreign_problems,
    has_own_schema,
    make_own_schema,
    may_write_own,
    own_guard,
)
from producer.sources.session import Asks
from schemas.findings import Finding, Level, refused
from schemas.ownership import REQUESTS, look
from schemas.quoting import constant, identifier
from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import TableId

(_NAME,) = REQUESTS.names
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
NOT_READ: Final = "requests for re-reads are not read"
_SUBJECT: Final = "re-reads"
_CANNOT_ASK: Final = "`snapshot` and `verify --repair` cannot ask for tables"
_STATEMENTS: Final = (
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
    """Return what is asked for, oldest first; nothing where the role may not answer it.

    Raises NotOurs.
    """
    if not (guard := _guard(session)):
        return []
    says_who = session.query(_SAYS_WHO)
    by = "(array_agg(asked_by::text ORDER BY number))[1]" if says_who else "NULL"
    rows = session.query(
        f"{guard}SELECT table_schema, table_name, max(number)::text,"
        f" extract(epoch FROM min(asked_at))::text, {by} FROM {_TABLE}"
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


def check(session: Asks) -> Iterator[Finding]:
    """Say whether the table is not ours, or cannot be used, and what mends it."""
    problems = [refused(_SUBJECT, e, Level.WARNING) for e in foreign_problems(session, REQUESTS)]
    yield from problems
    if not problems and not may_write_own(session, _NAME):
        yield Finding(Level.NOTE, _SUBJECT, _CANNOT_ASK, _way_out(session))


class OpenRequests:
    """What a `run` sees of them: it goes on where the table is not ours, and says so once."""

    def __init__(self, slot: str) -> None:
        self._slot, self._said = slot, ""

    def newest(self, session: Asks, note: Callable[[str], None]) -> Mapping[TableId, int]:
        """Return the newest request for each table."""
        try:
            found = {asked.table: asked.number for asked in requests(session, self._slot)}
        except NotOurs as error:
            if str(error) != self._said:
                note(f"{NOT_READ}: {error}")
            self._said = str(error)
            return {}
        self._said = ""
        return found


def ask(session: Asks, slot: str, tables: Sequence[TableId]) -> None:
    """Ask for tables; makes the table of requests with the first one.

    Raises NotPermitted, NotOurs.
    """
    try:
        if not (guard := _guard(session)):
            make_own_schema(session)
            session.query(_MAKE)
            guard = own_guard(session, REQUESTS)  # somebody may have been faster
        for table in tables:
            session.query(
                f"{guard}INSERT INTO {_TABLE} (slot, table_schema, table_name) VALUES"
                f" ({constant(slot)}, {constant(table.schema)}, {constant(table.name)})"
            )
    except NotOurs:
        raise
    except NotPermitted as error:
        raise NotPermitted("tables cannot be asked for", hint=_way_out(session)) from error


def make_for(session: Asks, role: str) -> None:
    """Make the table, where it is missing, for a role that does not own the schema any more."""
    if look(session.query, REQUESTS).oids:
        return
    user = identifier(role)
    session.query(_MAKE)
    session.query(f"GRANT SELECT, INSERT, DELETE ON {_TABLE} TO {user}")
    session.query(f"GRANT USAGE ON SEQUENCE {_TABLE}_number_seq TO {user}")


def forget(session: Asks, slot: str, table: TableId, number: int | None = None) -> int:
    """Remove requests for a table, up to a number; return how many there were."""
    if not (guard := _guard(session)):
        return 0
    upto = "" if number is None else f" AND number <= {number:d}"
    removed = session.query(
        f"{guard}DELETE FROM {_TABLE} WHERE slot = {constant(slot)}"
        f" AND table_schema = {constant(table.schema)} AND table_name = {constant(table.name)}"
        f"{upto} RETURNING number"
    )
    return len(removed)


def _way_out(session: Asks) -> str:
    if has_own_schema(session):
        return _STATEMENTS
    ((role,),) = session.query("SELECT current_user::text")
    return f"as an administrator: CREATE SCHEMA {OWN_SCHEMA} AUTHORIZATION {identifier(role or '')}"


def _guard(session: Asks) -> str:
    """Write what stands before a statement on the table; "" where the role may not use it."""
    return own_guard(session, REQUESTS) if session.query(_USABLE)[0][0] != "0" else ""
