"""`gauss-cdc check` for PostgreSQL: it reports problems of the server before they stop a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Final, Literal

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog.catalog_rows import as_sent, not_sent
from producer.errors import CdcError, NotPermitted
from producer.options import Options
from producer.sources import patterns, requests
from producer.sources.postgres import catalog, gaps, key_ranges, publications, running
from producer.sources.postgres import options as pgoutput_options
from producer.sources.postgres.captured import (
    captured,
    make_publication,
    publication_problems,
    reading_problems,
)
from producer.sources.postgres.catalog_look import OF_SENT
from producer.sources.postgres.decoding_standby import check_standby
from producer.sources.postgres.managed import DOCUMENT
from producer.sources.postgres.primary import Primary
from producer.sources.postgres.role import check_role
from producer.sources.postgres.standbys import check_standbys
from producer.sources.postgres.triggers import install as ddl_triggers
from producer.sources.ranges import waiting
from schemas.errors import shortened
from schemas.findings import Finding, Level, refused
from schemas.quoting import qualified
from schemas.tables import ReplicaIdentity, TableId, TableSchema
from schemas.types import TypeOptions, UnknownType, type_of, unseen_renames

_TYPES = TypeOptions()
_OLDEST = 100_000
_NAMED: Final = 5  # of many tables


def check_source(options: Options, connection: Connection, *, fix: bool) -> Iterator[Finding]:
    """Server settings, rights, publication, slot, and every captured table."""
    with closing(Primary(options.source, connection)) as primary:
        yield from _check_source(options, connection, primary, fix=fix)


def _check_source(
    options: Options, connection: Connection, primary: Primary, *, fix: bool
) -> Iterator[Finding]:
    info = catalog.server_info(connection)
    yield from check_server(info)
    try:
        check_role(options.source, connection)
    except CdcError as error:
        yield refused("server", error)
        return
    yield from check_standby(connection, primary)
    yield from _options(options, info.version)
    tables = catalog.expand(connection, options.include, options.exclude)
    found = captured(connection, options)
    if publications.publication(connection, options.publication) is not None:
        tables = sorted({*found.tables, *found.missing})
    for name in found.absent:
        yield Finding(Level.ERROR, f"table {name}", patterns.ABSENT, "correct [tables]")
    if not tables:
        yield Finding(
            Level.ERROR,
            "tables",
            f"nothing matches {', '.join(options.include)}",
            "create tables, or correct [tables]",
        )
    yield from _publication(options, connection, primary, tables, fix=fix)
    yield from _slot(options, connection)
    if primary.is_read:
        yield from check_standbys(
            connection,
            options.slot,
            asked=options.failover_slot,
            is_cluster=len(options.source.hosts) > 1,
        )
    # A first load reads every table; a running stream needs the right for its next load only.
    is_there = catalog.slot_state(connection, options.slot) is not None
    for problem in reading_problems(connection, tables):
        yield refused("rights", problem, Level.WARNING if is_there else Level.ERROR)
    for table in catalog.table_schemas(connection, tables):
        yield from check_table(table, options.types, info.version)
        yield from check_key(table, options.key)
        why = key_ranges.why_not(connection, as_sent(table), options.tuning.beside_bytes)
        yield from waiting(table.id, why)
    yield from _not_logged(options, connection)
    yield from _triggers(options, connection, info)
    yield from requests.check(catalog.QueryingConnection(connection))


def _options(options: Options, version: int) -> Iterator[Finding]:
    """Options that this server's pgoutput does not accept, and those that omit changes."""
    for problem in pgoutput_options.problems(options.plugin_options, version=version):
        yield Finding(Level.ERROR, "options", str(problem))
    if options.messages and (absent := pgoutput_options.no_messages(version)) is not None:
        yield Finding(Level.ERROR, "options", str(absent), absent.hint)
    if sentence := pgoutput_options.why_not_full(options.plugin_options):
        yield Finding(Level.WARNING, "options", sentence)


def _triggers(
    options: Options, connection: Connection, info: catalog.ServerInfo
) -> Iterator[Finding]:
    """How schema changes are captured, and which are lost."""
    found = ddl_triggers.state(connection, options.publication)
    if found.version and found.problem:
        yield Finding(
            Level.ERROR if found.enabled else Level.WARNING,
            "schema changes",
            f"are inferred: {found.problem}",
            "a superuser runs `gauss-cdc ddl install` again",
        )
        return
    if found.reports_ddl:
        yield Finding(Level.OK, "schema changes", "captured by event triggers")
        if found.version != ddl_triggers.VERSION:
            yield Finding(
                Level.WARNING,
                "schema changes",
                "the triggers belong to another release",
                "run `gauss-cdc ddl install` again",
            )
        wanted = (set(options.include), set(options.exclude))
        if found.publication and found.publication != options.publication:
            yield Finding(
                Level.WARNING,
                "schema changes",
                f"new tables join publication {found.publication}, not {options.publication}",
                "run `gauss-cdc ddl install` again",
            )
        elif found.publication and (set(found.include), set(found.exclude)) != wanted:
            yield Finding(
                Level.WARNING,
                "schema changes",
                "the triggers were installed for other [tables]",
                "run `gauss-cdc ddl install` again",
            )
        return
    may_install = info.version >= ddl_triggers.OLDEST and info.service is None
    yield Finding(
        Level.NOTE,
        "schema changes",
        gaps.WITHOUT_TRIGGERS,
        "a superuser may run `gauss-cdc ddl install`" if may_install else "",
    )


def check_server(info: catalog.ServerInfo) -> Iterator[Finding]:
    """Version, settings, and whose service it is."""
    if info.version < _OLDEST:
        yield Finding(
            Level.ERROR,
            "server",
            f"{info.version_text}: too old",
            "pgoutput requires PostgreSQL 10",
        )
    elif info.version < ddl_triggers.OLDEST:
        yield Finding(Level.WARNING, "server", "before 13 schema changes can only be inferred")
    else:
        yield Finding(Level.OK, "server", info.version_text.split(" on ")[0])
    if (service := info.service) is not None:
        yield Finding(Level.NOTE, "service", f"{service.name}: see {DOCUMENT} for its recipe")
        if service.warning:
            yield Finding(Level.WARNING, "slot", service.warning)
    if info.wal_level != "logical":
        yield Finding(
            Level.ERROR,
            "wal_level",
            f"is {info.wal_level}",
            "ALTER SYSTEM SET wal_level = logical, then restart the server"
            if service is None
            else service.wal_level,
        )
    for name, used, most in (
        ("max_replication_slots", info.slots_used, info.max_replication_slots),
        ("max_wal_senders", info.wal_senders_used, info.max_wal_senders),
    ):
        level = Level.OK if used < most else Level.WARNING
        hint = "" if used < most else f"raise {name}, unless our slot is one of them"
        yield Finding(level, name, f"{used} of {most} used", hint)
    if info.max_slot_wal_keep_size == "-1":
        yield Finding(
            Level.WARNING,
            "max_slot_wal_keep_size",
            "is unlimited: while `run` is stopped the server keeps all WAL",
            "set a limit that fits the disk; beyond it the server invalidates the slot",
        )
    if info.idle_slot_timeout not in ("", "0"):
        yield Finding(
            Level.WARNING,
            "idle_replication_slot_timeout",
            f"is {info.idle_slot_timeout}: a slot that `run` does not use for so long is lost",
            "set 0, or longer than `run` may stand still; else all tables are loaded again",
        )
    if info.encoding != "UTF8":
        yield Finding(Level.WARNING, "encoding", f"database is {info.encoding}, we read UTF8")


def _publication(
    options: Options,
    connection: Connection,
    primary: Primary,
    tables: list[TableId],
    *,
    fix: bool,
) -> Iterator[Finding]:
    name = options.publication
    found = publications.publication(connection, name)
    if found is None:
        problems = list(publication_problems(connection, options))
        if problems:
            yield from map(partial(refused, "publication"), problems)
            return
        if not fix:
            yield Finding(
                Level.WARNING,
                "publication",
                f"{name} does not exist",
                "the first `run` creates it, or `check --fix` now",
            )
            return
        make_publication(primary.connection, name, tables)
        primary.await_replay()
        yield Finding(Level.FIXED, "publication", f"{name} created for {len(tables)} tables")
        return
    has = captured(connection, options)
    for table, why in has.loose.items():
        yield Finding(
            Level.ERROR,
            f"table {table}",
            f"is not captured: {name} {why}",
            "give each partition this key, and ALTER INDEX … ATTACH PARTITION its index: then it "
            "is loaded",
        )
    missing = has.missing
    if missing and fix:
        try:
            publications.extend_publication(primary.connection, name, missing)
        except NotPermitted as error:
            yield refused("publication", error)
        else:
            yield Finding(
                Level.FIXED,
                "publication",
                f"{name} has {shortened([str(table) for table in missing])}, too",
                "`run` reads the rows that they have",
            )
            missing = ()
    if missing:
        yield Finding(
            Level.WARNING if has.tables else Level.ERROR,  # nothing at all would be captured
            "publication",
            f"{name} lacks {', '.join(map(str, missing))}: not captured",
            "`gauss-cdc check --fix` adds them, and `run` reads the rows that they have",
        )
    problems = list(publication_problems(connection, options))
    yield from (refused("publication", problem) for problem in problems)
    if not missing and not problems:
        yield Finding(Level.OK, "publication", f"{name} has all {len(tables)} tables")


def _slot(options: Options, connection: Connection) -> Iterator[Finding]:
    slot = catalog.slot_state(connection, options.slot)
    if slot is None:
        for blocker in running.blockers(connection):
            yield Finding(
                Level.WARNING,
                "transactions",
                f"{blocker}: a new slot waits for its end",
                blocker.way_out,
            )
        return
    if slot.plugin != options.plugin or slot.database != options.source.dbname:
        yield Finding(
            Level.ERROR,
            "slot",
            f"{options.slot} is of plugin {slot.plugin}, database {slot.database}",
            "choose another name in source.slot",
        )
    if slot.is_invalid:
        yield Finding(
            Level.ERROR,
            "slot",
            f"{options.slot} was invalidated by the server",
            "`gauss-cdc run --accept-gap` opens a new epoch and loads again",
        )
    if slot.active_pid is not None:
        yield Finding(Level.OK, "slot", f"{options.slot} is active, pid {slot.active_pid}")


_NOT_SENT: Final = "a view at the target may compute them"


def check_table(
    table: TableSchema, types: TypeOptions = _TYPES, version: int = 0
) -> Iterator[Finding]:
    """Problems of one table: what a server's cannot be captured, or not as it is defined."""
    subject = f"table {table.id}"
    for column in table.columns:
        try:
            type_of(column, types)
        except UnknownType:
            yield Finding(
                Level.ERROR,
                subject,
                f"column {column.name} is of type {column.type_name}, which is not in the table of"
                " types",
                'set [types] unknown-types = "text", or exclude the table',
            )
    identity = table.replica_identity
    made = [c.name for c in table.columns if c.generated and c.name in table.identity_columns]
    if refused_there := publications.unsent_identity(table, version):
        yield Finding(Level.ERROR, subject, refused_there, OF_SENT)
    elif made and identity is not ReplicaIdentity.FULL:
        yield Finding(
            Level.ERROR,
            subject,
            f"generated columns ({', '.join(made)}) identify its rows, which the source does "
            "not send: UPDATE and DELETE cannot be applied",
            f"ALTER TABLE {qualified(table.id)} REPLICA IDENTITY FULL",
        )
    if what := not_sent(table):
        yield Finding(Level.NOTE, subject, what, _NOT_SENT)
    if why := unseen_renames(table.columns):
        yield Finding(
            Level.WARNING,
            subject,
            f"{why}: the table is never called exact",
            "store names as text, or exclude the table; `gauss-cdc verify` shows what differs",
        )
    keyless = not as_sent(table).key
    if identity is ReplicaIdentity.NOTHING or (identity is ReplicaIdentity.DEFAULT and keyless):
        yield Finding(
            Level.WARNING,
            subject,
            "has no replica identity: INSERT works, UPDATE and DELETE are refused by the source",
            f"give it a primary key, or ALTER TABLE {qualified(table.id)} REPLICA IDENTITY FULL",
        )
    elif keyless:
        yield Finding(
            Level.WARNING, subject, "has no primary key: each change is matched by the whole row"
        )


def check_key(table: TableSchema, key: Literal["table", "primary-key"]) -> Iterator[Finding]:
    """Problems of readers that use record keys."""
    if key == "primary-key" and not as_sent(table).key:
        yield Finding(
            Level.WARNING,
            f"table {table.id}",
            "has no primary key: its records have null keys",
            "consumers that upsert by key need one; else exclude the table",
        )


def _not_logged(options: Options, connection: Connection) -> Iterator[Finding]:
    """Tables that the patterns choose, and that are never in the WAL."""
    wanted = patterns.chooser(options.include, options.exclude)
    with catalog.asking(connection) as cursor:
        cursor.execute(
            "SELECT n.nspname, c.relname FROM pg_class c"  # noqa: S608  constants
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'"
            f" AND NOT {catalog.IS_LOGGED}"
        )
        for schema, name in cursor.fetchall():
            table = TableId(schema, name)
            if wanted(table):
                yield Finding(
                    Level.WARNING,
                    f"table {table}",
                    "is unlogged, or one of its partitions is: not captured",
                    "ALTER TABLE … SET LOGGED",
                )
        cursor.execute(
            "SELECT DISTINCT relname::text FROM pg_class"
            " WHERE relkind = 'r' AND relpersistence = 't' ORDER BY relname::text"
        )
        if temporary := [name for (name,) in cursor.fetchall()]:
            some = ", ".join(temporary[:_NAMED]) + (", …" if len(temporary) > _NAMED else "")
            yield Finding(Level.NOTE, "temporary tables", f"are never captured: {some}")
