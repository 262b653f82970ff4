"""Requests for re-reads: rows of a table in our schema at the source.

Who asks need not reach `run`, and a request outlives every restart: it stays until the table was
read again at a point behind it, or until it is taken back.

A row that names no table pauses all re-reads: it needs no right and no column that requests do not.
"""
# ruff: noqa: S608  every value in a statement is quoted

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from producer.core.key_ranges import Key
from producer.core.loads.queue import EVERYTHING
from producer.core.ports import Wish
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
_IS_TABLE: Final = """
SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {name} AND c.relkind IN ('r', 'p')
"""
_COLUMNS: Final = f"""
SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = '{_TABLE}'::regclass
AND attname IN ('asked_by', 'for_target', 'keys') AND NOT attisdropped
"""
Keys: TypeAlias = Sequence[tuple[str, ...]]  # texts of the key's columns, in its order
_NONE: Final[Mapping[TableId, Keys]] = {}
NOT_READ: Final = "requests for re-reads are not read"
_SUBJECT: Final = "re-reads"
_CANNOT_ASK: Final = "`snapshot` and `verify --repair` cannot ask for tables"
_STATEMENTS: Final = (
    "the role may not make or write the table of requests: docs/security.md has the statements"
    ' for an administrator ("Requests for re-reads")'
)
_EXTENDED_BY: Final = (
    "the table of requests is of an older release, and has no column for what is asked; its owner"
    " adds it: {statement}"
)
_MAKE: Final = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (number bigserial PRIMARY KEY, slot text NOT NULL,"
    " table_schema text NOT NULL, table_name text NOT NULL,"
    " asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),"
    " asked_by text DEFAULT session_user, for_target text, keys text)"
)
_WRITES: Final = "SELECT pg_catalog.current_setting('default_transaction_read_only')"
_READ_ONLY: Final = (
    "default_transaction_read_only is on, so none could be answered; switch it off for the role,"
    " and restart `run`"
)
_PAUSE: Final = Wish(EVERYTHING)
_LAST: Final = 253_402_300_799.0  # seconds since 1970 that a datetime can hold; people write any
_EXTEND: Final = f"ALTER TABLE {_TABLE} ADD COLUMN {{}} text"


class AskedAgain(NamedTuple):
    """Somebody asks for a table to be read again, or, with `EVERYTHING`, for a pause."""

    wish: Wish
    number: int  # of the newest request for it
    asked_at: datetime  # of the oldest
    asked_by: str = ""  # role of the oldest; "": a table of requests that does not say it
    is_by_key: bool = False  # rows of some keys are asked for, and no others


def is_table(session: Asks, table: TableId) -> bool:
    """Say whether the source has a table of this name: no view, and none in another case."""
    schema, name = map(constant, table)
    return session.query(_IS_TABLE.format(schema=schema, name=name)) != [["0"]]


def requests(session: Asks, slot: str) -> list[AskedAgain]:
    """Return what is asked for, oldest first; nothing where the role may not answer it.

    Raises NotOurs.
    """
    if not (guard := _guard(session)):
        return []
    there = _columns(session)
    by = "(array_agg(asked_by::text ORDER BY number))[1]" if "asked_by" in there else "NULL"
    whose = "for_target" if "for_target" in there else "NULL::text"
    keyed = "bool_and(keys IS NOT NULL)" if "keys" in there else "false"
    rows = session.query(
        f"{guard}SELECT table_schema, table_name, {whose}, max(number)::text,"
        f" extract(epoch FROM min(asked_at))::text, {by}, ({keyed})::text FROM {_TABLE}"
        f" WHERE slot = {constant(slot)} GROUP BY 1, 2, 3 ORDER BY min(asked_at)"
    )
    return [
        AskedAgain(
            Wish(TableId(schema or "", table or ""), target or ""),
            int(number or 0),
            datetime.fromtimestamp(min(max(float(asked_at or 0), 0.0), _LAST), UTC),
            who or "",
            is_by_key == "true",
        )
        for schema, table, target, number, asked_at, who, is_by_key in rows
    ]


def _columns(session: Asks) -> set[str | None]:
    """Columns that a table of an older release does not have."""
    return {name for (name,) in session.query(_COLUMNS)}


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

    def newest(self, session: Asks, note: Callable[[str], None]) -> Mapping[Wish, int]:
        """Return the newest request for each table."""
        why, found = "", dict[Wish, int]()
        try:
            found = {asked.wish: asked.number for asked in requests(session, self._slot)}
        except NotOurs as error:
            why = str(error)
        if found.keys() - {_PAUSE} and session.query(_WRITES) != [["off"]]:
            # An answer is removed: without that, the table would be read again and again.
            why, found = _READ_ONLY, {w: n for w, n in found.items() if w == _PAUSE}
        if why and why != self._said:
            note(f"{NOT_READ}: {why}")
        self._said = why
        return found


def named(session: Asks, slot: str, wish: Wish) -> tuple[int, Sequence[Key]]:
    """Return the number of the oldest request, and the keys that it names.

    None where one of these requests is for all rows.  Raises NotOurs.
    """
    guard = _guard(session)
    if not guard or "keys" not in (there := _columns(session)):
        return 0, ()
    where = _where(slot, wish.table)
    if "for_target" in there:
        where += f" AND coalesce(for_target, '') = {constant(wish.target)}"
    rows = session.query(
        f"{guard}SELECT number::text, keys, (bool_and(keys IS NOT NULL) OVER ())::text"
        f" FROM {_TABLE} WHERE {where} ORDER BY number LIMIT 1"
    )
    if not rows or rows[0][2] != "true":
        return 0, ()
    number, keys, _ = rows[0]
    return int(number or 0), keys_of(keys or "")


def keys_of(text: str) -> list[Key]:
    """Read keys as `ask` writes them; [] where anybody wrote something else.

    >>> keys_of('[["1", "a"], ["2", "b"]]'), keys_of('[["1", 2]]'), keys_of("x")
    ([(b'1', b'a'), (b'2', b'b')], [], [])
    """
    if r"\u0000" in text:  # of which a server has no text
        return []
    try:
        return [tuple(cell.encode() for cell in key) for key in json.loads(text)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return []


def _cells(slot: str, table: TableId) -> dict[str, str]:
    """Return what each request for a table says, whoever it is for."""
    return {"slot": slot, "table_schema": table.schema, "table_name": table.name}


def _where(slot: str, table: TableId) -> str:
    return " AND ".join(f"{k} = {constant(v)}" for k, v in _cells(slot, table).items())


def ask(
    session: Asks, slot: str, wishes: Sequence[Wish], keys: Mapping[TableId, Keys] = _NONE
) -> None:
    """Ask for tables; makes the table of requests with the first one.

    `keys`: of some tables, of the rows that are asked for alone.  A table of an older release has
    no column for them, or for a target: it is added.  Raises NotPermitted, NotOurs.
    """
    way_out = partial(_way_out, session)
    try:
        if not (guard := _guard(session)):
            make_own_schema(session)
            session.query(_MAKE)
            guard = own_guard(session, REQUESTS)  # somebody may have been faster
        said = [
            _cells(slot, table)
            | ({"for_target": target} if target else {})
            | ({"keys": json.dumps(keys[table])} if table in keys else {})
            for table, target in wishes
        ]
        newer = {"for_target", "keys"} & {name for one in said for name in one}
        for name in sorted(newer and newer - _columns(session)):
            statement = _EXTEND.format(name)
            way_out = partial(_EXTENDED_BY.format, statement=statement)
            session.query(f"{guard}{statement}")
            way_out = partial(_way_out, session)
        for one in said:
            session.query(
                f"{guard}INSERT INTO {_TABLE} ({', '.join(one)}) VALUES"
                f" ({', '.join(map(constant, one.values()))})"
            )
    except NotOurs:
        raise
    except NotPermitted as error:
        raise NotPermitted("tables cannot be asked for", hint=way_out()) from error


def make_for(session: Asks, role: str) -> None:
    """Make the table, where it is missing, for a role that does not own the schema any more."""
    if look(session.query, REQUESTS).oids:
        return
    user = identifier(role)
    session.query(_MAKE)
    session.query(f"GRANT SELECT, INSERT, DELETE ON {_TABLE} TO {user}")
    session.query(f"GRANT USAGE ON SEQUENCE {_TABLE}_number_seq TO {user}")


def forget(
    session: Asks, slot: str, wish: Wish, number: int | None = None, *, alone: bool = False
) -> int:
    """Remove requests for a table, up to a number; return how many there were.

    Where the wish names no target, those for one target go, too.  `alone`: that number only.
    """
    table, target = wish
    guard = _guard(session)
    if not guard or (target and "for_target" not in _columns(session)):
        return 0
    upto = "" if number is None else f" AND number {'=' if alone else '<='} {number:d}"
    upto += f" AND for_target = {constant(target)}" if target else ""
    removed = session.query(
        f"{guard}DELETE FROM {_TABLE} WHERE {_where(slot, table)}{upto} RETURNING number"
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
