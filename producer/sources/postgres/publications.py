"""Publications: what they hold, and how ours is created, extended and dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg2 import sql
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.sources.postgres.catalog import TREE, asking
from schemas.tables import ReplicaIdentity, TableId, TableSchema

_WHOLE_ROWS: Final = 180_000  # from here on an identity of published tables has sent columns only
_FILTERS: Final = 150_000  # from here on a publication may have schemas, WHERE and columns
_OURS: Final = "made by gauss-cdc, which adds the tables of its [tables]"
_LOCK_MS: Final = 1000  # for the lock on a table that is added: the stream waits meanwhile
_ACTIONS: Final = ("insert", "update", "delete", "truncate")


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication and what it publishes."""

    name: str
    tables: tuple[TableId, ...]  # sorted; partitions themselves unless via_root
    all_tables: bool
    actions: frozenset[str]  # of insert, update, delete, truncate
    via_root: bool
    oid: int
    version: str  # another one: it was altered, or made again
    filtered: Mapping[TableId, str] = field(default_factory=dict)  # what it leaves out, from 15 on
    computed: Mapping[TableId, str] = field(default_factory=dict)  # sent columns that no copy has
    # Rows may be equal in their key, cannot be told by it, or stand at another server.
    loose: Mapping[TableId, str] = field(default_factory=dict)
    is_ours: bool = False  # made by `run` or `check --fix`, as its comment says; we may alter it

    @property
    def partly(self) -> Mapping[TableId, str]:
        """Return the tables that a copy would not equal, and what it publishes of them."""
        if self.actions != {*_ACTIONS}:
            said = ", ".join(action for action in _ACTIONS if action in self.actions)
            return dict.fromkeys(self.tables, f"publishes only {said or 'nothing'}")
        return {**self.loose, **self.computed, **self.filtered}

    @property
    def whole(self) -> tuple[TableId, ...]:
        """Return the tables of which it publishes every change, row and column."""
        partly = self.partly
        return tuple(table for table in self.tables if table not in partly)


def publication(connection: Connection, name: str) -> Publication | None:
    """Read a publication; None if there is none of this name."""
    with asking(connection, publication=name) as cursor:
        cursor.execute(
            "SELECT to_jsonb(p), coalesce(obj_description(oid, 'pg_publication') = %s, false)"
            " AND pg_has_role(pubowner, 'USAGE'), oid, concat(oid, ':', xmin::text)"
            " FROM pg_publication p WHERE pubname = %s",
            [_OURS, name],
        )
        if (row := cursor.fetchone()) is None:
            return None
        said: Mapping[str, Any] = row[0]
        has_filters = connection.server_version >= _FILTERS
        tables = _tables(cursor, row[2], said, has_schemas=has_filters)
        filtered = _filtered(cursor, name) if has_filters else {}
        loose = {t: why for t, why in _loose(cursor).items() if t in tables}
        if said.get("pubviaroot", False):
            loose |= _parted(cursor, tables)
        computed = {t: why for t, why in _computed(cursor, said).items() if t in tables}
    return Publication(
        name=name,
        tables=tuple(sorted(tables)),
        all_tables=said["puballtables"],
        actions=frozenset(a for a in _ACTIONS if said.get(f"pub{a}", False)),
        via_root=said.get("pubviaroot", False),
        oid=row[2],
        version=row[3],
        filtered=filtered,
        computed=computed,
        loose=loose,
        is_ours=row[1],
    )


# As pg_publication_tables has it, whose function opens each table from 16 on: it waits for whoever
# alters one, and fails where one is dropped meanwhile.
_TABLES: Final = """
WITH RECURSIVE named (oid) AS (
    SELECT prrelid FROM pg_publication_rel WHERE prpubid = %(publication)s
    UNION
    SELECT c.oid FROM pg_class c
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
    AND (%(all_tables)s {by_schema})
), below (oid, is_part) AS (
    SELECT oid, false FROM named
    UNION
    SELECT i.inhrelid, true FROM below b JOIN pg_class p ON p.oid = b.oid AND p.relkind = 'p'
    JOIN pg_inherits i ON i.inhparent = b.oid
)
SELECT n.nspname, c.relname, c.oid FROM below b JOIN pg_class c ON c.oid = b.oid
JOIN pg_namespace n ON n.oid = c.relnamespace
GROUP BY 1, 2, 3, c.relkind
HAVING CASE WHEN %(via_root)s THEN NOT bool_or(b.is_part) ELSE c.relkind = 'r' END
"""
_BY_SCHEMA: Final = """OR c.relnamespace IN (
    SELECT pnnspid FROM pg_publication_namespace WHERE pnpubid = %(publication)s)"""


def _tables(
    cursor: Any, oid: int, said: Mapping[str, Any], *, has_schemas: bool
) -> dict[TableId, int]:
    cursor.execute(
        _TABLES.format(by_schema=_BY_SCHEMA if has_schemas else ""),
        {
            "publication": oid,
            "all_tables": said["puballtables"],
            "via_root": said.get("pubviaroot", False),
        },
    )
    return {TableId(*table): oid for *table, oid in cursor.fetchall()}


def _filtered(cursor: Any, name: str) -> dict[TableId, str]:
    """Return tables of which a publication leaves out rows or columns, and what it publishes."""
    cursor.execute(
        """
        SELECT n.nspname, c.relname, r.prattrs IS NOT NULL FROM pg_publication_rel r
        JOIN pg_publication p ON p.oid = r.prpubid
        JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE p.pubname = %s AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)
        """,
        [name],
    )
    return {
        TableId(*table): "has a column list for it" if has_list else "has a WHERE for it"
        for *table, has_list in cursor.fetchall()
    }


def _computed(cursor: Any, said: Mapping[str, Any]) -> dict[TableId, str]:
    """Return the tables whose stored generated columns are sent; from 18 on, where it is asked."""
    if said.get("pubgencols", "n") == "n":
        return {}
    cursor.execute(
        """
        SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND EXISTS (
            SELECT FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attgenerated = 's' AND NOT a.attisdropped)
        """
    )
    return {TableId(*table): "sends its generated columns" for table in cursor.fetchall()}


def _loose(cursor: Any) -> dict[TableId, str]:
    """Return partitioned tables whose key some partition does not have, and how they are sent."""
    cursor.execute(
        """
        SELECT n.nspname, c.relname, i.indexrelid::regclass::text FROM pg_index i
        JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'p' AND NOT i.indisvalid AND (i.indisprimary OR i.indisreplident)
        """
    )
    return {
        TableId(*table): f"has it with key {index}, which is not valid: rows may be equal in it"
        for *table, index in cursor.fetchall()
    }


# REPLICA IDENTITY of a root is not that of its partitions, which decides what is sent of old rows.
# A partition without any refuses UPDATE and DELETE: nothing of it is needed.
_PARTS: Final = f"""{TREE}, part (root, oid, sort, kind, names) AS (
    SELECT t.root, c.oid, c.relkind, c.relreplident, (
        SELECT array_agg(a.attname) FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = i.indrelid
            AND a.attnum = ANY ((i.indkey::int2[])[:i.indnkeyatts - 1])
        WHERE i.indrelid = c.oid AND i.indimmediate
        AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END)
    FROM tree t JOIN pg_class r ON r.oid = t.root AND r.relkind = 'p'
    JOIN pg_class c ON c.oid = t.oid
)
SELECT p.root, p.sort = 'f', min(p.oid::regclass::text)
FROM part p JOIN part r ON r.oid = p.root
WHERE p.sort = 'f' OR p.sort = 'r'
AND (p.kind = 'f' OR p.kind IN ('d', 'i') AND p.names IS NOT NULL)
AND CASE WHEN r.names IS NULL THEN r.kind <> 'f' OR p.kind <> 'f'
    ELSE p.kind <> 'f' AND NOT r.names <@ p.names END
GROUP BY 1, 2 ORDER BY 2
"""  # noqa: S608  a constant


def _parted(cursor: Any, tables: Mapping[TableId, int]) -> dict[TableId, str]:
    """Return partitioned tables of whose partitions not every change is sent as the root's."""
    cursor.execute(_PARTS, {"oids": [*tables.values()]})
    roots = {oid: table for table, oid in tables.items()}
    return {
        roots[root]: f"has it with the foreign partition {part}, whose changes are not sent"
        if is_foreign
        else f"has it with {part}, whose replica identity is not that of its root: old rows cannot"
        " be found"
        for root, is_foreign, part in cursor.fetchall()
    }


def unsent_identity(table: TableSchema, version: int) -> str:
    """Say why UPDATE and DELETE would fail in a published table from 18 on; "": they do not."""
    is_full = table.replica_identity is ReplicaIdentity.FULL
    identity = {*table.identity_columns}
    made = [c.name for c in table.columns if c.generated and (is_full or c.name in identity)]
    if version < _WHOLE_ROWS or not made:
        return ""
    return (
        f"its replica identity has generated columns ({', '.join(made)}): once it is published, "
        "the source refuses UPDATE and DELETE in it"
    )


def extend_publication(connection: Connection, name: str, tables: Sequence[TableId]) -> None:
    """Publish further tables; raises NotPermitted, and SourceError where one is being altered."""
    statement = sql.SQL("SET LOCAL lock_timeout = {}; ALTER PUBLICATION {} ADD TABLE {}")
    with asking(connection, publication=name) as cursor:
        cursor.execute(
            statement.format(sql.Literal(_LOCK_MS), sql.Identifier(name), _table_list(tables))
        )


def create_publication(
    connection: Connection,
    name: str,
    tables: Sequence[TableId],
    options: Mapping[str, str] | None = None,
) -> None:
    """Create a publication for exactly these tables.

    `options` are those of WITH, e.g. publish_via_partition_root = true.  The role
    must own the tables and may CREATE in the database: NotPermitted.
    """
    with asking(connection, publication=name) as cursor:
        cursor.execute(_create_publication(name, tables, options))


def mark_ours(connection: Connection, name: str) -> None:
    """Say that `run` may add tables to a publication; nothing decides what else it holds."""
    with asking(connection, publication=name) as cursor:
        cursor.execute(
            sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(
                sql.Identifier(name), sql.Literal(_OURS)
            )
        )


def drop_unused_publication(connection: Connection, name: str) -> bool:
    """Drop a publication unless a slot of this database may decode with it; False: it remains."""
    with asking(connection, publication=name) as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_replication_slots"
            " WHERE database = current_database() AND plugin = 'pgoutput'"
        )
        if cursor.fetchone()[0]:
            return False
        cursor.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))
    return True


def publication_sql(
    connection: Connection,
    name: str,
    tables: Sequence[TableId],
    options: Mapping[str, str] | None = None,
) -> str:
    """Return the statement of `create_publication`, for a user who may run it."""
    return _create_publication(name, tables, options).as_string(connection)


def _create_publication(
    name: str, tables: Sequence[TableId], options: Mapping[str, str] | None
) -> sql.Composed:
    statement = sql.SQL("CREATE PUBLICATION {}").format(sql.Identifier(name))
    if tables:
        statement += sql.SQL(" FOR TABLE {}").format(_table_list(tables))
    if options:
        statement += sql.SQL(" WITH ({})").format(
            sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(key), sql.Literal(value))
                for key, value in options.items()
            )
        )
    return statement


def _table_list(tables: Sequence[TableId]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in tables)
