"""A PostgreSQL catalog as `core.catalog_watch` compares it: one snapshot, then a position."""
# ruff: noqa: S608  statements of our own, put together of constants

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog.catalog_facts import is_older
from producer.core.catalog.catalog_rows import as_sent
from producer.core.catalog.look import Before, Cause, Look, Seen, Unchanged
from producer.core.key_ranges import Visible
from producer.errors import CdcError, SourceError, TableChanging
from producer.options import Options
from producer.sources import patterns
from producer.sources.postgres import catalog, catalog_versions, publications
from producer.sources.postgres.running import with_ids
from schemas.errors import Verdict
from schemas.quoting import identifier, qualified
from schemas.system_schemas import SYSTEM
from schemas.tables import TableId, TableSchema

_TRIES: Final = 3  # of a look: some tables are truncated all the time
_LOCK_MS: Final = 500  # a partition tree is read under a lock; without it, look again later
# A table is altered or dropped while it is read: the server reads some properties as they are
# now, not as of the snapshot.
_MOVING: Final = frozenset({"55P03", "XX000", "42P01", "42703", "42704"})
_LONG_HASHES: Final = 110_000
_GENERATED: Final = 120_000
_SCHEMAS: Final = 150_000  # from here on a publication may have schemas

# Everything that decides the content of the stream, as one line of text: while it stays the
# same, nothing else is read.  And what decides whether a new table can be published: it is tried
# again when that is another.  Only catalogs are read: the query waits for no table lock.
_OURS: Final = """
WITH ours AS (
    SELECT c.*, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'c', 'v', 'f', 'm') AND c.relpersistence <> 't'
      AND n.nspname !~ %(system)s)
"""
# Our event triggers: one that was altered may have been off for a while.
_TRIGGERS: Final = """
    (SELECT string_agg(oid || ':' || xmin::text, ',' ORDER BY oid)
     FROM pg_event_trigger WHERE left(evtname, 14) = 'gauss_cdc_ddl_')"""
# Views and foreign tables are row types, too: a column may be of one.
# Sums of hashes: in no order, and no md5, which a server in FIPS mode refuses.
_SIGNATURE: Final = f"""
{_OURS}
SELECT concat_ws(' ',
    (SELECT sum({{hash}}(concat_ws(',', oid, nspname, relname, relkind, relpersistence,
        relreplident, relfilenode, pg_has_role(relowner, 'USAGE')){{seed}}))
     FROM ours WHERE relkind IN ('r', 'p', 'c')),
    (SELECT sum({{hash}}(concat_ws(',', oid, has_schema_privilege(oid, 'USAGE')){{seed}}))
     FROM pg_namespace WHERE nspname !~ %(system)s),
    (SELECT sum({{hash}}(concat_ws(',', a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod,
        a.attisdropped{{generated}}){{seed}}))
     FROM pg_attribute a JOIN ours ON ours.oid = a.attrelid WHERE a.attnum > 0),
    (SELECT sum({{hash}}(concat_ws(',', i.indexrelid, i.indrelid, i.indisprimary, i.indisunique,
        i.indisreplident, i.indisvalid, i.indimmediate, i.indkey){{seed}}))
     FROM pg_index i JOIN ours ON ours.oid = i.indrelid),
    (SELECT sum({{hash}}(concat_ws(',', enumtypid, enumlabel, enumsortorder, xmin::text){{seed}}))
     FROM pg_enum),
    (SELECT sum({{hash}}(concat_ws(',', inhrelid, inhparent, xmin::text){{seed}}))
     FROM pg_inherits),
    (SELECT sum({{hash}}(concat_ws(',', oid, xmin::text, to_jsonb(p)::text,
        pg_has_role(pubowner, 'USAGE'), obj_description(oid, 'pg_publication')){{seed}}))
     FROM pg_publication p),
    (SELECT sum({{hash}}(concat_ws(',', oid, xmin::text, to_jsonb(r)::text){{seed}}))
     FROM pg_publication_rel r), {_TRIGGERS}{{more}})
"""
_BY_SCHEMA: Final = """,
    (SELECT sum(hashtextextended(concat_ws(',', xmin::text, to_jsonb(s)::text), 0))
     FROM pg_publication_namespace s),
    (SELECT sum(hashtextextended(concat_ws(',', t.oid, t.xmin::text), 0))
     FROM pg_type t JOIN ours ON ours.reltype = t.oid
     WHERE EXISTS (SELECT FROM pg_publication_namespace))"""
_TABLES: Final = f"""
{_OURS}
SELECT oid, nspname, relname, relkind::text, {catalog.IS_LOGGED},
       (SELECT inhparent FROM pg_inherits WHERE inhrelid = c.oid AND c.relispartition)
FROM ours c WHERE relkind IN ('r', 'p')
"""


# What is done to a table while others have rows of it open.
_LOCKLESS: Final = {Cause.ENTRIES, Cause.NAME, Cause.LABELS, Cause.PARTS}
_MEANWHILE: Final = "while open transactions were waited for"

OF_SENT: Final = (
    "give it a primary key, or a replica identity USING INDEX, of columns that are not generated"
)


def not_captured(options: Options, table: TableId) -> str:
    """Say how to capture a table."""
    return (
        f"table {table} matches [tables] and is not captured: ALTER PUBLICATION "
        f"{identifier(options.publication)} ADD TABLE {qualified(table)} "
        "(its rows are loaded beside the stream then)"
    )


def without_identity(table: TableSchema, version: int) -> str:
    """Say why a table is not published by itself by a server; "": nothing is against it."""
    if why := publications.unsent_identity(table, version):
        return f"table {table.id} matches [tables] and is not captured: {why}; {OF_SENT}"
    if not table.identity_columns:
        why, way = "it has no key, and once it is published UPDATE and DELETE fail in it", "a key"
    elif {c.name for c in table.columns if c.generated} & set(table.identity_columns):
        why = "generated columns identify its rows, which are not sent: who reads a change stops"
        way = "another key"
    else:
        return ""
    return (
        f"table {table.id} matches [tables] and is not captured: {why}; with {way}, or after ALTER"
        f" TABLE {qualified(table.id)} REPLICA IDENTITY FULL, it is captured by itself"
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
        not_captured(options, shape.id)
        if not (why := without_identity(shape, connection.server_version))
        else why
        if is_ours or publications.unsent_identity(shape, connection.server_version)
        else f"{not_captured(options, shape.id)}; first ALTER TABLE {qualified(shape.id)} REPLICA"
        " IDENTITY FULL: what identifies its rows is not sent, and UPDATE and DELETE fail"
        for shape in shapes
    ]


def look(
    connection: Connection,
    options: Options,
    known: Mapping[TableId, TableSchema],
    *,
    unless: str,
    before: Before | None = None,
    on_failure: Callable[[SourceError], None] = lambda _: None,
) -> Look | Unchanged | None:
    """Take a look, unless the last one had the signature `unless`, and nothing has changed.

    `before`: the look before, with which tables are compared.  None where one is being altered.
    """
    try:
        for _ in range(_TRIES):
            found = _look(connection, options, known, unless, before)
            if isinstance(found, Unchanged) or not _has_gone(found):
                break
    except SourceError as error:
        if error.where.get("sqlstate") not in _MOVING:
            raise
        on_failure(error)
        return None
    return found


def _has_gone(look: Look) -> bool:
    """Say whether a file went while it was looked at: what wrote it cannot be told any more."""
    doubts = (doubt for seen in look.tables.values() for doubt in seen.doubts)
    return any(each.is_gone for doubt in doubts for each in doubt.rewritten)


def _look(
    connection: Connection,
    options: Options,
    known: Mapping[TableId, TableSchema],
    unless: str,
    before: Before | None,
) -> Look | Unchanged:
    wanted = patterns.chooser(options.include, options.exclude)
    with _one_snapshot(connection):
        signature = _signature(connection)
        horizon = catalog_versions.horizon(connection)
        if signature == unless:
            return Unchanged(horizon)
        triggers = _triggers(connection)
        publication = publications.publication(connection, options.publication)
        published = set(publication.whole) if publication else set()
        partly = publication.partly if publication else {}
        oids = {table.oid for table in known.values()}
        compared = oids if before is None else oids | before.versions.keys()
        tables: dict[int, Seen] = {}
        parents: dict[int, int] = {}  # of partitions
        via_root = publication is not None and publication.via_root
        arrived: list[TableId] = []
        for oid, table, kind, is_logged, parent in _tables(connection):
            if parent is not None:
                parents[oid] = parent
            seen = Seen(
                table,
                oid,
                kind == "p",
                is_logged,
                table in published,
                partly=partly.get(table, ""),
            )
            tables[oid] = seen
            is_new = oid not in oids and table not in known
            if is_new and seen.is_published and is_logged and wanted(table):
                arrived.append(table)
        tables |= _sent_as_others(tables, parents)
        missing = [*_missing(tables, parents, wanted, via_root=via_root)]
        asked = [
            seen
            for seen in tables.values()
            if seen.is_published and (seen.oid in compared or seen.id in known or wanted(seen.id))
        ]
        shapes = catalog.table_schemas(connection, [seen.id for seen in asked])
        described = [
            replace(seen, shape=as_sent(shape)) for seen, shape in zip(asked, shapes, strict=True)
        ]
        found, files = described, dict[int, catalog_versions.LeafFile]()
        if publication is not None:
            found, files = catalog_versions.versions(
                connection,
                [*zip(described, shapes, strict=True)],
                publication.oid,
                all_tables=publication.all_tables,
                all_names=patterns.take_all(options.include, options.exclude),
                now=horizon,
                before=before,
            )
        unseen = catalog_versions.first_unseen(connection)
        given = Visible(unseen).beside(with_ids(connection) if via_root else []).running
        end = catalog.log_end(connection)
    if before is not None and files:
        found = list(catalog_versions.cleared(connection, found, files, before, unseen))
    return Look(
        end,
        {**tables, **{seen.oid: seen for seen in found}},
        tuple(sorted(missing)),
        signature,
        tuple(sorted(arrived)),
        publication is not None and publication.all_tables,
        publication is not None and publication.is_ours,
        horizon=horizon,
        first_unseen=max([unseen, *(xid + 1 for xid in given)]),
        below=_below(tables, parents) if via_root else {},
        publication="" if publication is None else publication.version,
        triggers=triggers,
    )


def baseline(
    connection: Connection,
    options: Options,
    tables: Sequence[TableId],
    *,
    since: Before | None = None,
) -> Before:
    """Look at captured tables, in the caller's snapshot: what the next look is compared with.

    `since`: what was seen before, while others ran that have ended by now: a slot, whose snapshot
    this is, waits for all transactions that ran when it was begun, and not for those that began
    since.  These commit behind it, and may have rows from before a statement that waits for no lock
    of theirs: with a former label, under another name, or in a publication that left them out.  No
    later look would suspect them, so this one raises TableChanging.
    """
    publication = publications.publication(connection, options.publication)
    horizon = catalog_versions.horizon(connection)
    triggers = _triggers(connection)
    if publication is None:
        return Before(horizon, "", {}, triggers=triggers)
    if since is not None and since.publication != publication.version:
        raise TableChanging(f"the publication was altered {_MEANWHILE}")
    wanted = set(tables)
    seen = [
        Seen(table, oid, kind == "p", is_logged=True, is_published=True)
        for oid, table, kind, *_ in _tables(connection)
        if table in wanted
    ]
    shapes = catalog.table_schemas(connection, [each.id for each in seen])
    asked = [*zip(seen, shapes, strict=True)]
    found, _ = catalog_versions.versions(
        connection,
        asked,
        publication.oid,
        all_tables=publication.all_tables,
        all_names=True,  # a name of another time is no less this table's
        now=horizon,
        before=since,
    )
    for each in found:
        if since is not None and _has_come(each, since):
            raise TableChanging(f"the table came to the publication {_MEANWHILE}", table=each.id)
        for doubt in each.doubts:
            if doubt.cause in _LOCKLESS:
                what = doubt.cause.value.format(publication=options.publication)
                raise TableChanging(f"the table, {_MEANWHILE}, {what}", table=each.id)
    return Before.at(horizon, publication.version, found, triggers)


def _has_come(seen: Seen, since: Before) -> bool:
    """Say whether a table was put into the publication since, and may have rows from before that.

    One that was made in a published schema has none; nor has any under one of all tables.
    """
    if seen.oid in since.versions or seen.version is None or not seen.version.entries:
        return False
    xids = (int(entry.split(":")[1]) for entry in seen.version.entries.split(","))
    return not any(is_older(xid, since.horizon) for xid in xids)


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
        generated=", a.attgenerated" if version >= _GENERATED else "",
    )
    return str(_rows(connection, statement, {"system": SYSTEM})[0][0])


def _triggers(connection: Connection) -> str:
    """Return the version of our event triggers; "": there are none."""
    return _rows(connection, f"SELECT {_TRIGGERS}", {})[0][0] or ""


def _sent_as_others(tables: Mapping[int, Seen], parents: Mapping[int, int]) -> dict[int, Seen]:
    """Return tables that are not published, and whose rows are sent as those of other tables."""
    out: dict[int, Seen] = {}
    leaves: dict[int, list[Seen]] = {oid: [] for oid, seen in tables.items() if seen.is_partitioned}
    for oid, seen in tables.items():
        roots = [*_above(oid, tables, parents)]
        if not seen.is_partitioned:
            for root in roots:
                leaves[root].append(seen)
        if seen.is_published:
            continue
        if names := tuple(tables[root].id for root in roots if tables[root].is_published):
            out[oid] = replace(seen, sent_as=names)
        elif top := next((tables[root] for root in roots if tables[root].partly), None):
            why = f"sends its rows as those of {top.id}, and {top.partly}"
            out[oid] = replace(seen, partly=why)
    for oid, found in leaves.items():
        is_left = not tables[oid].is_published and oid not in out
        if is_left and all(leaf.is_published for leaf in found):
            out[oid] = replace(tables[oid], sent_as=tuple(sorted(leaf.id for leaf in found)))
    return out


def _missing(
    tables: Mapping[int, Seen],
    parents: Mapping[int, int],
    wanted: Callable[[TableId], bool],
    *,
    via_root: bool,
) -> Iterator[TableId]:
    """Yield tables that are to be captured, and of which nothing is published.

    Of a partitioned table either the root is, where [tables] name it, or each partition.
    """
    for oid, seen in tables.items():
        if not (seen.is_logged and wanted(seen.id)) or seen.is_published or seen.partly:
            continue
        above = [*_above(oid, tables, parents)] if via_root else []
        if above:
            stands = not seen.sent_as and not any(wanted(tables[root].id) for root in above)
        else:
            stands = via_root or not seen.is_partitioned
        if stands:
            yield seen.id


def _below(tables: Mapping[int, Seen], parents: Mapping[int, int]) -> dict[int, frozenset[int]]:
    """Return all partitions below each partitioned table."""
    out: dict[int, set[int]] = {oid: set() for oid, seen in tables.items() if seen.is_partitioned}
    for oid in tables:
        for root in _above(oid, tables, parents):
            out[root].add(oid)
    return {root: frozenset(oids) for root, oids in out.items()}


def _above(oid: int, tables: Mapping[int, Seen], parents: Mapping[int, int]) -> Iterator[int]:
    """Yield what a table is a partition of, upwards."""
    while (oid := parents.get(oid, 0)) in tables:
        yield oid


def _tables(connection: Connection) -> Iterator[tuple[int, TableId, str, bool, int | None]]:
    for oid, schema, name, *rest in _rows(connection, _TABLES, {"system": SYSTEM}):
        yield oid, TableId(schema, name), *rest


def _rows(connection: Connection, statement: str, values: Mapping[str, Any]) -> list[Any]:
    with catalog.asking(connection) as cursor:
        cursor.execute(statement, values)
        found: list[Any] = cursor.fetchall()
        return found
