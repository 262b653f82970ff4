"""The versions of tables, as one snapshot of a PostgreSQL catalog has them.

`core/catalog/look` says what they are for.  Ids of transactions are read from the rows of catalogs
(`xmin`): VACUUM FULL and a freeze keep them, every statement that alters an object writes its own.
"""
# ruff: noqa: S608  statements of our own, put together of constants and quoted names

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog.catalog_facts import Facts, Leaf, UsedType
from producer.core.catalog.look import Before, Cause, Doubt, Rewritten, Seen
from producer.errors import SourceError
from producer.sources.postgres.catalog import MULTIRANGES, asking
from schemas.errors import Verdict
from schemas.quoting import literal, qualified
from schemas.tables import TableId, TableSchema

_SCHEMAS: Final = 150_000  # from here on a publication may have schemas, WHERE and columns
_LOCKED: Final = "55P03"
_PROBED: Final = 1000  # rows at a file's beginning, where VACUUM FULL leaves the oldest ones
_PROBE_MS: Final = 1000
_LOCK_MS: Final = 500

# What of the publication has a table, itself or as what it is a partition of. The path of a
# partition belongs to it: one that was detached for a while was not published meanwhile.
_ENTRIES: Final = """
WITH RECURSIVE line (oid, at, path) AS (
    SELECT o, o, '' FROM unnest(%(oids)s::oid[]) AS o
    UNION ALL
    SELECT l.oid, i.inhparent, l.path || ':' || i.xmin::text FROM line l
    JOIN pg_class c ON c.oid = l.at AND c.relispartition
    JOIN pg_inherits i ON i.inhrelid = l.at
), entry (oid, entry, name) AS (
    SELECT l.oid, concat(r.oid, ':', r.xmin::text, l.path), NULL FROM line l
    JOIN pg_publication_rel r ON r.prrelid = l.at AND r.prpubid = %(publication)s {whole}
    {by_schema}
)
SELECT oid, string_agg(entry, ',' ORDER BY entry),
       CASE WHEN count(*) = count(name) THEN max(name) END
FROM entry GROUP BY oid
"""
_WHOLE: Final = "AND r.prqual IS NULL AND r.prattrs IS NULL"
_BY_SCHEMA: Final = """
    UNION ALL
    SELECT l.oid, concat(s.oid, ':', s.xmin::text, l.path), t.xmin::text
    FROM line l JOIN pg_class c ON c.oid = l.at
    JOIN pg_publication_namespace s
        ON s.pnnspid = c.relnamespace AND s.pnpubid = %(publication)s
    -- The row of its row type is written when a table is made, renamed, or moved.
    JOIN pg_type t ON t.oid = c.reltype
"""
# Enums and composite types in a table's values, at any depth.  What made the type wrote its row and
# those of all its parts by one command; one that a later command wrote tells of an alteration.
_LABELS: Final = """
WITH RECURSIVE used (tab, typ) AS (
    SELECT attrelid, atttypid FROM pg_attribute
    WHERE attrelid = ANY (%(oids)s::oid[]) AND attnum > 0 AND NOT attisdropped
      AND atttypid >= 16384
    UNION
    SELECT u.tab, x.oid FROM used u JOIN pg_type t ON t.oid = u.typ CROSS JOIN LATERAL (
        SELECT t.typbasetype UNION ALL SELECT t.typelem
        UNION ALL SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid
        {multirange}
        UNION ALL SELECT atttypid FROM pg_attribute
        WHERE attrelid = t.typrelid AND t.typtype = 'c' AND attnum > 0 AND NOT attisdropped
    ) AS x (oid) WHERE x.oid >= 16384)
SELECT u.tab, u.typ, array_agg(p.number ORDER BY p.number), array_agg(p.said ORDER BY p.number),
       coalesce(array_agg(p.xmin::text::bigint)
                FILTER (WHERE p.xmin <> t.xmin OR p.cmin <> t.cmin::text), '{{}}')
FROM used u JOIN pg_type t ON t.oid = u.typ CROSS JOIN LATERAL (
    SELECT oid::bigint, xmin::text::bigint, xmin, cmin::text FROM pg_enum
    WHERE enumtypid = t.oid
    UNION ALL
    SELECT attnum::bigint, attisdropped::int, xmin, cmin::text FROM pg_attribute
    WHERE attrelid = t.typrelid AND t.typtype = 'c' AND attnum > 0
) AS p (number, said, xmin, cmin)
GROUP BY 1, 2
"""
_MULTIRANGE: Final = "UNION ALL SELECT rngtypid FROM pg_range WHERE rngmultitypid = t.oid"
# A constraint keeps its oid where REINDEX CONCURRENTLY gives it another index.  What made a table
# wrote the row of its column `ctid`, which nothing alters; that of its row type is written again
# where it is renamed or moved.  A key that was made with the table has the id of a command soon
# behind it: some make a TOAST table, defaults and checks.  Three have to be between to lose
# a row: another identity, a row that comes, and one that goes.
_MADE: Final = """
SELECT o.oid, coalesce(p.oid, 0)::bigint, coalesce(k.oid, i.indexrelid, 0)::bigint,
       coalesce(p.xmin, b.xmin, a.xmin) <> a.xmin
           OR coalesce(p.cmin, b.cmin, a.cmin)::text::bigint - a.cmin::text::bigint
               > 3 + CASE WHEN c.reltoastrelid = 0 THEN 0 ELSE 4 END
                 + (SELECT count(*) FROM pg_attrdef WHERE adrelid = o.oid)
                 + (SELECT count(*) FROM pg_constraint WHERE conrelid = o.oid AND contype = 'c'),
       t.xmin <> a.xmin OR t.cmin::text <> a.cmin::text,
       ARRAY(SELECT attnum FROM pg_attribute
             WHERE attrelid = o.oid AND attnum > 0 AND attisdropped)
FROM unnest(%(oids)s::oid[]) AS o (oid)
JOIN pg_class c ON c.oid = o.oid
JOIN pg_type t ON t.oid = c.reltype
JOIN pg_attribute a ON a.attrelid = o.oid AND a.attname = 'ctid' AND a.attnum < 0
LEFT JOIN pg_constraint p ON p.conrelid = o.oid AND p.contype = 'p'
LEFT JOIN pg_index i ON i.indrelid = o.oid AND i.indisreplident AND NOT i.indisprimary
LEFT JOIN pg_attribute b ON b.attrelid = i.indexrelid AND b.attnum = 1
LEFT JOIN pg_constraint k ON k.conrelid = o.oid AND k.conindid = i.indexrelid AND k.contype = 'u'
"""
# ATTACH writes the rows of all columns with that of pg_inherits.  Where a table was made as a
# partition, theirs came before it, by one transaction.
_LEAVES: Final = """
WITH RECURSIVE tree (root, oid, path, is_born) AS (
    SELECT o, o, '{}'::bigint[], true FROM unnest(%(oids)s::oid[]) AS o
    UNION ALL
    SELECT t.root, i.inhrelid, t.path || i.xmin::text::bigint,
           t.is_born AND EXISTS (
               SELECT FROM pg_attribute a WHERE a.attrelid = i.inhrelid AND a.attnum > 0
               AND NOT a.attisdropped AND a.xmin = i.xmin AND a.xmax = '0'::xid
               AND a.cmin::text::bigint < i.cmin::text::bigint)
    FROM tree t JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'p'
    JOIN pg_inherits i ON i.inhparent = t.oid
)
SELECT t.root, c.oid, n.nspname, c.relname, c.relfilenode, c.xmin::text::bigint, t.path, t.is_born
FROM tree t JOIN pg_class c ON c.oid = t.oid AND c.relkind = 'r'
JOIN pg_namespace n ON n.oid = c.relnamespace
"""


@dataclass(frozen=True, slots=True)
class LeafFile:
    """Where a leaf has its rows."""

    table: TableId
    file: int
    xid: int


def horizon(connection: Connection) -> int:
    """Return the lowest id of a transaction that had not ended when the snapshot was taken."""
    (found,) = _rows(connection, "SELECT txid_snapshot_xmin(txid_current_snapshot())", {})[0]
    return int(found)


def first_unseen(connection: Connection) -> int:
    """Return the id from which on the snapshot shows none; those that run may have greater ones."""
    (found,) = _rows(connection, "SELECT txid_snapshot_xmax(txid_current_snapshot())", {})[0]
    return int(found)


def versions(
    connection: Connection,
    tables: Sequence[tuple[Seen, TableSchema]],
    publication: int,
    *,
    all_tables: bool,
    all_names: bool,
    now: int,
    before: Before | None,
) -> tuple[list[Seen], dict[int, LeafFile]]:
    """Read the versions of published tables, and compare them with the look before.

    Tables come with all their columns.  `publication`: its oid; `all_tables`: it is for them,
    `all_names`: a table is captured whatever its name is; `now`: the horizon of this look.
    Returns the tables in their order, and the files of leaves that are to be probed, once the
    snapshot is let go.
    """
    facts = {seen.oid: _facts(seen, described) for seen, described in tables}
    if not facts:
        return [], {}
    values = {"oids": list(facts), "publication": publication}
    if not all_tables:
        is_new = connection.server_version >= _SCHEMAS
        statement = _ENTRIES.format(
            whole=_WHOLE if is_new else "", by_schema=_BY_SCHEMA if is_new else ""
        )
        for oid, entries, name in _rows(connection, statement, values):
            facts[oid].entries, facts[oid].name = entries, name or ""
    has_them = connection.server_version >= MULTIRANGES
    labels_of = _LABELS.format(multirange=_MULTIRANGE if has_them else "")
    for oid, used, numbers, said, altered in _rows(connection, labels_of, values):
        parts = tuple(zip(numbers, said, strict=True))
        facts[oid].types[used] = UsedType(parts, tuple(altered))
    for oid, primary, other, *how, gone in _rows(connection, _MADE, values):
        facts[oid].key = primary, other
        facts[oid].has_late_key, is_renamed = how
        facts[oid].is_renamed = is_renamed and not (all_tables and all_names)
        facts[oid].gone = frozenset(gone)
    files: dict[int, LeafFile] = {}
    for root, oid, schema, name, file, xid, path, is_born in _rows(connection, _LEAVES, values):
        facts[root].leaves[oid] = Leaf(file, tuple(path), is_born)
        files[oid] = LeafFile(TableId(schema, name), file, xid)
    found = [_compared(seen, facts[seen.oid], now, before) for seen, _ in tables]
    suspected = {each.leaf for seen in found for doubt in seen.doubts for each in doubt.rewritten}
    return found, {oid: files[oid] for oid in suspected}


def _facts(seen: Seen, table: TableSchema) -> Facts:
    return Facts(
        seen.oid,
        seen.is_partitioned,
        generated=frozenset(c.number for c in table.columns if c.generated),
        ordinary=frozenset(c.number for c in table.columns if not c.generated),
        without_missing=frozenset(
            c.number for c in table.columns if not c.generated and c.missing is None
        ),
    )


def _compared(seen: Seen, facts: Facts, now: int, before: Before | None) -> Seen:
    was = None if before is None else before.versions.get(seen.oid)
    doubts: tuple[Doubt, ...] = ()
    if before is not None:
        doubts = tuple(facts.doubts(was, before.files, before.horizon))
    return replace(seen, version=facts.version(now, was), files=facts.files, doubts=doubts)


def cleared(
    connection: Connection,
    tables: Sequence[Seen],
    files: Mapping[int, LeafFile],
    before: Before,
    unseen: int,
) -> Iterator[Seen]:
    """Leave out what older rows disprove; `files`: of the leaves that `versions` named.

    `unseen`: `first_unseen` of their snapshot, which does not hold here: rows came since.
    """
    for seen in tables:
        if not any(doubt.rewritten for doubt in seen.doubts):
            yield seen
            continue
        doubts: list[Doubt] = []
        for doubt in seen.doubts:
            left = tuple(
                probed
                for each in doubt.rewritten
                if (probed := _probed(connection, each, files[each.leaf], before.horizon, unseen))
            )
            if left or doubt.cause is not Cause.FILES:
                doubts.append(replace(doubt, rewritten=left))
        yield replace(seen, doubts=tuple(doubts))


def _probed(
    connection: Connection, suspected: Rewritten, file: LeafFile, behind: int, unseen: int
) -> Rewritten | None:
    """Look at the first rows of a file; None: one is older than the look before.

    A row from `unseen` on came behind this look, into the file as the stream will tell it.  The
    name may mean another table by now: its rows tell nothing, and the look is to be taken again.

    Raises SourceError where the table is being altered.
    """
    named = f"to_regclass({literal(qualified(file.table))})::oid"
    statement = f"""
        SELECT coalesce(bool_or(age(written) > {_age(behind)}), false),
               coalesce(bool_or(written = c.xmin AND ended = '0'::xid
                                AND by::text::bigint <= c.cmin::text::bigint), false)
                   OR coalesce(bool_or(c.is_altered), false),
               count(r.written) FILTER (WHERE age(written) > {_age(unseen)}) = 0
                   AND count(r.written) < {_PROBED},
               min(c.xmin::text), min(c.relfilenode::bigint),
               {named} IS DISTINCT FROM {suspected.leaf:d}
                   OR coalesce(bool_or(r.at <> {suspected.leaf:d}), false)
        FROM (SELECT xmin, cmin, relfilenode, EXISTS (
                  SELECT FROM pg_attribute a WHERE a.attrelid = k.oid AND a.attnum > 0
                  AND a.xmin = k.xmin) AS is_altered
              FROM pg_class k WHERE oid = {suspected.leaf:d}) c
        LEFT JOIN (SELECT xmin AS written, xmax AS ended, cmin AS by, tableoid AS at
                   FROM ONLY {qualified(file.table)} LIMIT {_PROBED}) r ON true
    """
    try:
        with asking(connection) as cursor:
            cursor.execute("BEGIN READ ONLY")
            for name, value in (
                ("lock_timeout", _LOCK_MS),
                ("statement_timeout", _PROBE_MS),
                ("row_security", "off"),  # a policy would hide rows: an error is better
                ("synchronize_seqscans", "off"),
            ):
                cursor.execute(f"SET LOCAL {name} = '{value}'")
            cursor.execute(statement)
            is_older, is_written, is_void, xid, now, is_another = cursor.fetchone()
    except SourceError as error:
        if error.verdict is Verdict.RETRY or error.where.get("sqlstate") == _LOCKED:
            raise
        return replace(suspected, xid=file.xid)  # it takes long, or is not to be read
    finally:
        if not connection.closed:
            with asking(connection) as cursor:
                cursor.execute("ROLLBACK")
    if is_older and not is_another:
        return None
    is_same = not is_another and now is not None and now == file.file
    return replace(
        suspected,
        xid=int(xid or 0),
        is_emptied=is_same and not is_written,
        is_void=is_same and is_void,
        is_gone=not is_same,
    )


def _age(xid: int) -> str:
    """Write the age of a transaction's id; the catalog has its low half."""
    return f"age('{xid & 0xFFFF_FFFF}'::xid)"


def _rows(connection: Connection, statement: str, values: Mapping[str, Any]) -> list[Any]:
    with asking(connection) as cursor:
        cursor.execute(statement, values)
        found: list[Any] = cursor.fetchall()
        return found
