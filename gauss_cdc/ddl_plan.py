"""`gauss-cdc ddl plan`: what a statement would do, asked of the servers themselves.

The statement runs at the source in a transaction that is rolled back, with the
event triggers watching, so that before and after are PostgreSQL's own.  It takes
the statement's locks for as long as it runs: `lock_timeout` and
`statement_timeout` keep that short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.captured import captured_tables
from producer.core.relations import Relations
from producer.core.shape_change import ShapeChange
from producer.core.told import Told, read
from producer.drivers import catalog, ddl_triggers, patterns
from producer.drivers.registry import Registry
from producer.errors import SourceError
from producer.options import Options
from producer.sources.postgres import stream_shapes
from schemas.control import Origin, SchemaChange
from schemas.envelope import EnvelopeOptions, envelope_schema, key_schema
from schemas.tables import TableId, TableSchema
from schemas.topics import key_subject, value_subject
from spark_consumers.dialects import DIALECTS, EXTRAS
from spark_consumers.errors import NotExpressible

_LOCK_TIMEOUT = "2s"
_STATEMENT_TIMEOUT = "30s"


@dataclass(frozen=True, slots=True)
class Planned:
    """One change: what the stream, the registry and the target make of it."""

    change: SchemaChange
    holes: tuple[str, ...]
    registry: str  # "as before" | "new version" | "refused"
    statements: tuple[str, ...]
    refusal: str = ""  # why the target's dialect has no statement for it

    @property
    def is_refused(self) -> bool:
        """Say whether somebody would stop here."""
        return bool(self.refusal) or self.registry == "refused"


def plan(
    options: Options, connection: Connection, registry: Registry, statement: str, *, target: str
) -> list[Planned]:
    """Run a statement, look, and undo it; raise SourceError where the source refuses it.

    `target`: a dialect's name, and with it which [ddl] apply = "all" statements exist.
    """
    known, told = _rehearse(options, connection, statement)
    include = [patterns.parse(text) for text in options.include]
    exclude = [patterns.parse(text) for text in options.exclude]
    relations = Relations(
        {table.id: table for table in known},
        read_catalog=lambda _: None,
        wanted=lambda table: (
            any(p.matches(table) for p in include) and not any(p.matches(table) for p in exclude)
        ),
        new_tables_are_complete=True,
        is_told=True,
        publication=options.publication,
    )
    return [
        _planned(options, registry, change, one, target)
        for one in told
        for change in relations.tell(one)
    ]


def _rehearse(
    options: Options, connection: Connection, statement: str
) -> tuple[list[TableSchema], list[Told]]:
    """Return the captured tables before, and what the triggers told."""
    connection.autocommit = False
    try:
        with connection.cursor() as cursor:
            if not ddl_triggers.state(connection).version:
                ddl_triggers.check_rights(connection)
                ddl_triggers.make(
                    connection, cursor, options.publication, options.include, options.exclude
                )
            tables = catalog.table_schemas(connection, captured_tables(connection, options))
            cursor.execute("SET LOCAL gauss_cdc.plan = 'on'; SET LOCAL gauss_cdc.told = ''")
            cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            cursor.execute(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'")
            cursor.execute('SET LOCAL search_path TO "$user", public')
            cursor.execute(_inside(statement))
            cursor.execute("SELECT current_setting('gauss_cdc.told', true)")
            said = cursor.fetchone()
            lines = str(said[0] or "").splitlines() if said is not None else []
    except psycopg2.Error as error:
        raise SourceError(
            f"the source refuses the statement: {error.diag.message_primary or error}",
            sqlstate=error.pgcode,
            hint=error.diag.message_hint or "nothing was changed",
        ) from error
    finally:
        connection.rollback()
        connection.autocommit = True
    told = [replace(read(line.encode()), sql=statement) for line in lines if line]
    return stream_shapes(tables), told


def _inside(statement: str) -> str:
    """Run a text where it cannot end our transaction: its COMMIT would make the rehearsal real."""
    mark = "$plan$"
    while mark in statement:
        mark = f"{mark[:-1]}_$"
    return f"DO $outer{mark[1:]}BEGIN EXECUTE {mark}{statement}{mark}; END$outer{mark[1:]}"


def _planned(
    options: Options, registry: Registry, change: ShapeChange, told: Told, target: str
) -> Planned:
    record = SchemaChange(
        epoch=0,
        seq=0,
        ordinal=0,
        xid=0,
        csn=0,
        lsn=0,
        origin=Origin.TRIGGER,
        tag=change.tag,
        before=change.before,
        after=change.after,
        sql=told.sql,
        canonical=change.canonical,
        lossy=change.lossy,
        kind=change.kind,
        identity=change.identity,
        renamed=change.renamed,
        values=change.values,
        settings=told.settings,
        moved=change.moved,
    )
    refusal, statements = "", list[str]()
    try:
        statements = DIALECTS[target](record)
        if (extras := EXTRAS.get(target)) is not None:
            statements += [f'{text}  -- with [ddl] apply = "all"' for text in extras(record)]
    except NotExpressible as error:
        refusal = str(error)
    return Planned(
        record,
        tuple(f"{hole.table}: {hole.why}" for hole in change.holes),
        _asked(options, registry, change),
        tuple(statements),
        refusal,
    )


def _asked(options: Options, registry: Registry, change: ShapeChange) -> str:
    """What the registry would say to the new value schema, and to the key's."""
    if change.after is None:
        return "as before"
    envelope = EnvelopeOptions(types=options.types)

    def schemas(table: TableSchema) -> Iterator[tuple[str, dict[str, object]]]:
        topic = options.topics.table(table.id)
        yield value_subject(topic), envelope_schema(options.prefix, table, envelope)
        if options.key == "primary-key" and table.key:
            yield key_subject(topic), key_schema(options.prefix, table, envelope)

    after = dict(schemas(change.after))
    if change.before is not None and dict(schemas(change.before)) == after:
        return "as before"
    refused = any(registry.would_refuse(subject, schema) for subject, schema in after.items())
    return "refused" if refused else "new version"


def lines(planned: list[Planned], incompatible: str) -> Iterator[str]:
    """Tell it, a line at a time."""
    if not planned:
        yield "nothing of this is captured: neither the registry nor the target would change"
    for one in planned:
        change = one.change
        table: TableId | None = (
            change.after.id if change.after else change.before.id if change.before else None
        )
        yield f"{change.tag}  {table or f'{change.kind} {change.identity}'}"
        if change.canonical:
            yield f"  as PostgreSQL has it   {change.canonical}"
        if table is not None:
            policy = f", and [ddl] incompatible = {incompatible}" * (one.registry == "refused")
            yield f"  registry               {one.registry}{policy}"
        for hole in one.holes:
            yield f"  hole                   {hole}"
        if one.refusal:
            yield f"  target                 refused: {one.refusal}"
        for statement in one.statements:
            yield f"  target                 {statement}"
        if not one.statements and not one.refusal:
            yield "  target                 nothing"
