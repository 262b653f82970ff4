"""A PostgreSQL catalog as `core.catalog_watch` compares it: one snapshot, then a position."""
# ruff: noqa: S608  statements of our own, put together of constants

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog_rows import as_sent
from producer.core.catalog_watch import Look, Part, Seen
from producer.errors import CdcError, SourceError
from producer.options import Options
from producer.sources import patterns
from producer.sources.postgres import catalog, publications
from schemas.errors import Verdict
from schemas.quoting import identifier, qualified
from schemas.system_schemas import SYSTEM
from schemas.tables import TableId, TableSchema

_LOCK_MS: Final = 500  # a partition tree is read under a lock; without it, look again later
# A table is altered or dropped while it is read: the server reads some properties as they are
# now, not as of the snapshot.
_MOVING: Final = frozenset({"55P03", "XX000", "42P01", "42703", "42704"})
_LONG_HASHES: Final = 110_000
_SCHEMAS: Final = 150_000  # from here on a publication may have schemas

# Everything that decides the content of the stream, as one line of text: while it stays the
# same, nothing else is read.  Only catalogs are read: the query waits for no table lock.
_OURS: Final = """
WITH ours AS (
    SELECT c.*, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'c') AND c.relpersistence <> 't' AND n.nspname !~ %(system)s)
"""
# Sums of hashes: in no order, and no md5, which a server in FIPS mode refuses.
_SIGNATURE: Final = f"""
{_OURS}
SELECT concat_ws(' ',
    (SELECT sum({{hash}}(concat_ws(',', oid, nspname, relname, relkind, relpersistence,
        relreplident, CASE WHEN relispartition THEN relfilenode END){{seed}})) FROM ours),
    (SELECT sum({{hash}}(concat_ws(',', a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod,
        a.attisdropped){{seed}}))
     FROM pg_attribute a JOIN ours ON ours.oid = a.attrelid WHERE a.attnum > 0),
    (SELECT sum({{hash}}(concat_ws(',', i.indexrelid, i.indrelid, i.indisprimary, i.indisunique,
        i.indisreplident, i.indisvalid, i.indimmediate, i.indkey){{seed}}))
     FROM pg_index i JOIN ours ON ours.oid = i.indrelid),
    (SELECT sum({{hash}}(concat_ws(',', enumtypid, enumlabel, enumsortorder){{seed}}))
     FROM pg_enum),
    (SELECT sum({{hash}}(concat_ws(',', inhrelid, inhparent){{seed}})) FROM pg_inherits),
    (SELECT sum({{hash}}(to_jsonb(p)::text{{seed}})) FROM pg_publication p),
    (SELECT sum({{hash}}(to_jsonb(r)::text{{seed}})) FROM pg_publication_rel r){{more}})
"""
_BY_SCHEMA: Final = """,
    (SELECT sum(hashtextextended(to_jsonb(s)::text, 0)) FROM pg_publication_namespace s)"""
_MEMBERS: Final = """
SELECT r.prrelid, r.oid FROM pg_publication_rel r
JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = %(name)s
"""
_TABLES: Final = f"""
{_OURS}
SELECT oid, nspname, relname, relkind::text, relpersistence::text, relispartition
FROM ours WHERE relkind <> 'c'
"""


def not_captured(options: Options, table: TableId) -> str:
    """Say how to capture a table."""
    return (
        f"table {table} matches [tables] and is not captured: ALTER PUBLICATION "
        f"{identifier(options.publication)} ADD TABLE {qualified(table)} "
        "(its rows are loaded beside the stream then)"
    )


def without_identity(table: TableId) -> str:
    """Say why a table is not published by itself."""
    return (
        f"table {table} matches [tables] and is not captured: it has no key, and once it is"
        " published UPDATE and DELETE fail in it; with a key, or after ALTER TABLE"
        f" {qualified(table)} REPLICA IDENTITY FULL, it is captured by itself"
    )


def how_captured(
    connection: Connection, options: Options, tables: Sequence[TableId], *, is_ours: bool
) -> list[str]:
    """Say for each table how to capture it; `is_ours`: `run` publishes what has a key by itself."""
    try:
        shapes = catalog.table_schemas(connection, tables)
    except SourceError as error:  # one of them is just being dropped
        if error.verdict is Verdict.RETRY:
            raise
        return [not_captured(options, table) for table in tables]
    return [
        not_captured(options, table)
        if shape.identity_columns
        else without_identity(table)
        if is_ours
        else f"{not_captured(options, table)}; first ALTER TABLE {qualified(table)} REPLICA"
        " IDENTITY FULL: it has no key, and once it is published UPDATE and DELETE fail in it"
        for table, shape in zip(tables, shapes, strict=True)
    ]


def look(
    connection: Connection,
    options: Options,
    known: Mapping[TableId, TableSchema],
    *,
    unless: str,
    on_failure: Callable[[SourceError], None] = lambda _: None,
) -> Look | None:
    """Take a look; None where nothing has changed since the look with the signature `unless`.

    Also None where a table is being altered.
    """
    try:
        return _look(connection, options, known, unless)
    except SourceError as error:
        if error.where.get("sqlstate") not in _MOVING:
            raise
        on_failure(error)
        return None


def _look(
    connection: Connection, options: Options, known: Mapping[TableId, TableSchema], unless: str
) -> Look | None:
    wanted = patterns.chooser(options.include, options.exclude)
    with _one_snapshot(connection):
        signature = _signature(connection)
        if signature == unless:
            return None
        publication = publications.publication(connection, options.publication)
        published = set(publication.tables) if publication else set()
        oids = {table.oid for table in known.values()}
        tables: dict[int, Seen] = {}
        via_root = publication is not None and publication.via_root
        missing: list[TableId] = []
        arrived: list[TableId] = []
        for oid, table, kind, persistence, is_partition in _tables(connection):
            seen = Seen(table, oid, kind == "p", persistence == "p", table in published)
            tables[oid] = seen
            # Of a partitioned table either the root is published, or each partition.
            stands = not is_partition if via_root else not seen.is_partitioned
            if stands and seen.is_logged and wanted(table):
                if not seen.is_published:
                    missing.append(table)
                elif oid not in oids and table not in known:
                    arrived.append(table)
        asked = [
            seen
            for seen in tables.values()
            if seen.is_published and (seen.oid in oids or seen.id in known)
        ]
        shapes = catalog.table_schemas(connection, [seen.id for seen in asked])
        parts = _parts(connection, [seen.oid for seen in asked if seen.is_partitioned])
        members = dict(_rows(connection, _MEMBERS, {"name": options.publication}))
        for seen, shape in zip(asked, shapes, strict=True):
            tables[seen.oid] = Seen(
                seen.id,
                seen.oid,
                seen.is_partitioned,
                seen.is_logged,
                is_published=True,
                shape=as_sent(shape),
                parts=parts.get(seen.oid, {}),
                membership=members.get(seen.oid, 0),
            )
        is_ours = publication is not None and publication.is_ours
        return Look(
            int(catalog.log_end(connection)),
            tables,
            tuple(sorted(missing)),
            signature,
            tuple(sorted(arrived)),
            is_ours,
        )


@contextmanager
def _one_snapshot(connection: Connection) -> Iterator[None]:
    _run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        _run(connection, f"SET LOCAL lock_timeout = {_LOCK_MS}")
        yield
    except CdcError:
        if not connection.closed:
            _run(connection, "ROLLBACK")
        raise
    _run(connection, "COMMIT")


def _run(connection: Connection, statement: str) -> None:
    with catalog.asking(connection) as cursor:
        cursor.execute(statement)


def _signature(connection: Connection) -> str:
    version = connection.server_version
    is_long = version >= _LONG_HASHES
    statement = _SIGNATURE.format(
        hash="hashtextextended" if is_long else "hashtext",
        seed=", 0" if is_long else "",
        more=_BY_SCHEMA if version >= _SCHEMAS else "",
    )
    return str(_rows(connection, statement, {"system": SYSTEM})[0][0])


def _tables(connection: Connection) -> Iterator[tuple[int, TableId, str, str, bool]]:
    for oid, schema, name, *rest in _rows(connection, _TABLES, {"system": SYSTEM}):
        yield oid, TableId(schema, name), *rest


def _parts(connection: Connection, roots: list[int]) -> dict[int, dict[int, Part]]:
    """Partitions below roots, at any depth, with how each became one.

    The rows of pg_inherits and of a table's system columns are written once: by one transaction
    where the table was made as a partition.
    """
    if not roots:
        return {}
    out: dict[int, dict[int, Part]] = {}
    for root, oid, *part in _rows(
        connection,
        """
        WITH RECURSIVE tree (root, oid) AS (
            SELECT inhparent, inhrelid FROM pg_inherits WHERE inhparent = ANY (%(roots)s::oid[])
            UNION ALL
            SELECT t.root, i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid)
        SELECT t.root, c.oid, c.relfilenode, c.relpages = 0,
               i.xmin::text = a.xmin::text
        FROM tree t JOIN pg_class c ON c.oid = t.oid
        JOIN pg_inherits i ON i.inhrelid = c.oid
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'ctid' AND a.attnum < 0
        """,
        {"roots": roots},
    ):
        out.setdefault(root, {})[oid] = Part(*part)
    return out


def _rows(connection: Connection, statement: str, values: Mapping[str, Any]) -> list[Any]:
    with catalog.asking(connection) as cursor:
        cursor.execute(statement, values)
        found: list[Any] = cursor.fetchall()
        return found
