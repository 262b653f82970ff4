"""Runs a statement at the source and rolls it back; returns what its stream would contain.

It takes the statement's locks for as long as it runs: `lock_timeout` and
`statement_timeout` keep that short.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Final

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.inference import difference
from producer.core.shape_change import ShapeChange
from producer.core.sql_words import cut, statements
from producer.errors import SourceError, Unsupported
from producer.options import Options
from producer.sources import patterns
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import gaps
from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.ddl import tddl
from producer.sources.gauss.ddl.deparsed import Deparsed
from producer.sources.gauss.ddl.model import Name, Rename, Statement
from producer.sources.gauss.options import effective
from producer.sources.gauss.snapshot import without_virtual
from producer.sources.postgres import catalog
from producer.sources.postgres.captured import captured_tables
from producer.sources.postgres.snapshot import stream_shapes
from producer.sources.postgres.triggers import install as ddl_triggers
from producer.sources.postgres.triggers.follow import Follower
from producer.sources.postgres.triggers.records import TriggerMessage, read
from producer.sources.session_settings import RESTRICT
from schemas.control import Origin
from schemas.system_schemas import SEARCH_PATH
from schemas.tables import TableId, TableSchema

_LOCK_TIMEOUT: Final = "2s"
_STATEMENT_TIMEOUT: Final = "30s"
_SEARCH_PATH: Final = '"$user", public'
# What ends a transaction is none of these.
_VERBS: Final = frozenset({"CREATE", "ALTER", "DROP", "COMMENT", "TRUNCATE", "RENAME", "REINDEX"})


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What the stream would contain of a statement."""

    statement: str
    origin: Origin
    changes: tuple[tuple[ShapeChange, Mapping[str, str]], ...]  # with the session's settings
    note: str = ""  # what it would not contain, or why `run` would stop


def at_postgres(options: Options, connection: Connection, statement: str) -> Rehearsed:
    """Let the event triggers watch; they are made for the rehearsal where there are none.

    Raises SourceError where the source refuses the statement.
    """
    known, reported = _watched(options, connection, statement)
    follower = Follower(
        {table.id: table for table in known}, _wanted(options), options.publication, difference
    )
    changes = [(change, one.settings) for one in reported for change in follower.follow(one)]
    return Rehearsed(statement, Origin.TRIGGER, tuple(changes))


def at_gauss(options: Options, session: GaussConnection, statement: str) -> Rehearsed:
    """Read the catalog before and after, and the statement as the server would deparse it.

    Where DDL is not decoded: what is inferred at the first row of the new shape.
    Raises SourceError where the source refuses the statement, Unsupported for anything but DDL.
    """
    parsed = _one_statement(statement)
    before = _tables(options, session)
    try:
        session.query("START TRANSACTION")
        session.query(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'")
        session.query(f"SET LOCAL search_path TO {_SEARCH_PATH}")
        [[schema]] = session.query("SELECT current_schema()")
        session.query(statement)
        session.query(f"SET LOCAL search_path TO {SEARCH_PATH}")
        after = _tables(options, session)
    finally:
        session.query("ROLLBACK")
    mode = gaps.decoding_mode(effective(options.plugin_options, options.terms))
    if not mode.is_gaussdb:
        mode = replace(mode, decodes_ddl=gauss_readings.publishes_ddl(session))
    if not mode.decodes_ddl:
        return _inferred(statement, before, after)
    deparsed = Deparsed(dict(before), _wanted(options), after.get)
    reported = deparsed.state(
        _qualified(parsed, str(schema), before), loses_clauses=mode.is_gaussdb
    )
    changes = [
        # Types and names are the catalog's; what older rows hold, the statement's.
        replace(change, after=change.after and after.get(change.after.id, change.after))
        for change in reported
    ]
    return Rehearsed(statement, Origin.DEPARSED, tuple((change, {}) for change in changes))


def _wanted(options: Options) -> Callable[[TableId], bool]:
    return lambda table: patterns.selects(options.include, options.exclude, table)


# ---- openGauss and GaussDB


def _inferred(
    statement: str, before: Mapping[TableId, TableSchema], after: Mapping[TableId, TableSchema]
) -> Rehearsed:
    """Compare shapes, as `run` does at the first row of a new one."""
    try:
        changes = [
            difference(table, after[name])
            for name, table in before.items()
            if name in after and after[name] != table
        ]
    except Unsupported as error:
        return Rehearsed(statement, Origin.INFERRED, (), f"`run` would stop: {error}")
    changes += [
        ShapeChange(None, table, "CREATE TABLE")
        for name, table in after.items()
        if name not in before
    ]
    return Rehearsed(
        statement,
        Origin.INFERRED,
        tuple((change, {}) for change in changes),
        "DDL is not decoded here: this is what the first row of the new shape would show"
        if changes
        else "DDL is not decoded here, and no row would show this",
    )


def _one_statement(text: str) -> Statement:
    """Refuse what could end our transaction: then the rehearsal would be real."""
    first, *more = statements(cut(text))
    if not first or more not in ([], [[]]) or first[0].upper not in _VERBS:
        raise Unsupported(
            "only one statement at a time is planned here, and one that changes the schema",
            hint=f"it begins with {', '.join(sorted(_VERBS))}",
        )
    return tddl.statement(text)


def _tables(options: Options, session: GaussConnection) -> dict[TableId, TableSchema]:
    """Captured tables, as a stream shows them."""
    found = gauss_catalog.expand(session, options.include, options.exclude)
    tables = map(without_virtual, gauss_catalog.table_schemas(session, found))
    return {table.id: table for table in tables}


def _qualified(parsed: Statement, schema: str, known: Container[TableId]) -> Statement:
    """Give names the schema that the server finds them in: deparsed text always has it."""

    def full(name: Name) -> Name:
        if name.schema is not None:
            return name
        there = (s for s in (schema, "public") if TableId(s, name.name) in known)
        return Name(next(there, schema), name.name)

    actions = tuple(
        Rename(full(a.old), Name(a.new.schema or full(a.old).schema, a.new.name))
        if isinstance(a, Rename)
        else a
        for a in parsed.actions
    )
    index = parsed.index and replace(parsed.index, table=full(parsed.index.table))
    return replace(parsed, names=tuple(map(full, parsed.names)), actions=actions, index=index)


# ---- PostgreSQL


def _watched(
    options: Options, connection: Connection, statement: str
) -> tuple[list[TableSchema], list[TriggerMessage]]:
    """Return the captured tables before, and what the triggers recorded."""
    connection.autocommit = False
    try:
        with connection.cursor() as cursor:
            if not ddl_triggers.state(connection).version:
                ddl_triggers.check_rights(connection)
                ddl_triggers.make(
                    connection, cursor, options.publication, options.include, options.exclude
                )
            tables = catalog.table_schemas(connection, captured_tables(connection, options))
            cursor.execute("SET LOCAL gauss_cdc.plan = 'on'")
            cursor.execute("SET LOCAL client_min_messages = notice")
            cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            cursor.execute(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'")
            cursor.execute(f"SET LOCAL search_path TO {_SEARCH_PATH}")
            cursor.execute(RESTRICT.replace("'view', false", "'', true"))
            notices = _Notices()
            connection.notices = notices  # type: ignore[assignment]
            cursor.execute(_inside(statement))
    except psycopg2.Error as error:
        raise SourceError(
            f"the source refuses the statement: {error.diag.message_primary or error}",
            sqlstate=error.pgcode,
            hint=error.diag.message_hint or "nothing was changed",
        ) from error
    finally:
        connection.rollback()
        connection.autocommit = True
    # Here the statement stands in a DO of ours; alone it would be the client's own text.
    is_top = statement.lstrip().upper().startswith("ALTER")
    is_plain = is_top and "using" not in statement.lower()
    reported = [
        replace(read(line), sql=statement, is_top=is_top, is_plain=is_plain)
        for line in notices.records
    ]
    return stream_shapes(tables), reported


class _Notices:
    """The triggers' notices to a session that plans; other notices are ignored."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def append(self, notice: str) -> None:
        """Take a notice, as psycopg2 hands it on."""
        _, mark, record = notice.partition("\n")[0].partition("gauss-cdc.ddl ")
        if mark:
            self.records.append(record.encode())


def _inside(statement: str) -> str:
    """Run a text where it cannot end our transaction: its COMMIT would make the rehearsal real."""
    mark = "$plan$"
    while mark in statement:
        mark = f"{mark[:-1]}_$"
    return f"DO $outer{mark[1:]}BEGIN EXECUTE {mark}{statement}{mark}; END$outer{mark[1:]}"
