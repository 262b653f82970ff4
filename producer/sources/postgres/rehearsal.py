"""Runs a statement at the source and rolls it back; returns what its stream would contain.

It takes the statement's locks for as long as it runs: `lock_timeout` and
`statement_timeout` keep that short.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.stream.inference import difference
from producer.errors import SourceError
from producer.options import Options
from producer.sources import patterns
from producer.sources.base import SEARCH_PATH_OF_STATEMENTS, STATEMENT_TIMEOUT, Rehearsed
from producer.sources.postgres import catalog
from producer.sources.postgres.captured import captured_tables
from producer.sources.postgres.snapshot import stream_shapes
from producer.sources.postgres.triggers import install as ddl_triggers
from producer.sources.postgres.triggers.follow import Follower
from producer.sources.postgres.triggers.records import TriggerMessage, read
from producer.sources.session_settings import RESTRICT
from schemas.control import Origin
from schemas.tables import TableSchema

_LOCK_TIMEOUT: Final = "2s"


def at_postgres(
    options: Options, connection: Connection, statement: str, role: str = ""
) -> Rehearsed:
    """Let the event triggers watch; they are made for the rehearsal where there are none.

    `role`: that of `run`.  Raises SourceError where the source refuses the statement.
    """
    known, reported = _watched(options, connection, statement, role)
    follower = Follower(
        {table.id: table for table in known},
        patterns.chooser(options.include, options.exclude),
        options.publication,
        difference,
    )
    changes = [(change, one.settings) for one in reported for change in follower.follow(one)]
    return Rehearsed(statement, Origin.TRIGGER, tuple(changes))


def _watched(
    options: Options, connection: Connection, statement: str, role: str
) -> tuple[list[TableSchema], list[TriggerMessage]]:
    """Return the captured tables before, and what the triggers recorded."""
    connection.autocommit = False
    try:
        with connection.cursor() as cursor:
            if not ddl_triggers.state(connection).version:
                ddl_triggers.check_rights(connection)
                ddl_triggers.make(
                    connection,
                    cursor,
                    options.publication,
                    options.include,
                    options.exclude,
                    role=role,
                )
            tables = catalog.table_schemas(connection, captured_tables(connection, options))
            cursor.execute("SET LOCAL gauss_cdc.plan = 'on'")
            cursor.execute("SET LOCAL client_min_messages = notice")
            cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            cursor.execute(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
            cursor.execute(f"SET LOCAL search_path TO {SEARCH_PATH_OF_STATEMENTS}")
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
