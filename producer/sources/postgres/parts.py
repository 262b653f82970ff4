"""How the tables of a load are divided, so that several sessions read them.

A part is what stands behind FROM: the parts of a table have each of its rows once, and one part
gives its rows in the same order whenever it is read under the same snapshot, so that a session
that broke is continued behind the rows that it sent (`readers`).

    from 14 on  ranges of ctid, in the order in which the file has them: no index is needed, nor
                trusted (one of texts lies after a change of the system's collation), every row is
                read once, and parts are equally large; a partitioned table by its partitions
    before      ranges of a key of one column, in its order: a range of ctid would read the whole
                table there; bounds come from the statistics, else between the least and greatest
    whole       small tables, and whatever the two do not fit
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.sources.postgres.catalog import asking
from schemas.quoting import constant, identifier, qualified
from schemas.tables import TableId, TableSchema

CTID_RANGES: Final = 140_000  # from here on such a condition reads its pages only
LEAST_BYTES: Final = 16 << 20  # of a part: a smaller one costs more than it brings
_MOST_BYTES: Final = 1 << 30  # what is read again after a broken connection, at most
_OF_A_WORKER: Final = 4  # parts of a table, so that workers end at about the same time
# Types of keys whose order no collation decides, by oid.
_NUMBERS: Final = {20: "int8", 21: "int2", 23: "int4"}
_ORDERED: Final = {
    **_NUMBERS,
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
    2950: "uuid",
}

# The partitions of a table as of the snapshot: one may be attached meanwhile, with rows that are
# older. `readable`: the role may have rights on the partitioned table only.
_FILES: Final = """
WITH RECURSIVE wanted (ord, oid) AS (
    SELECT w.ord::int, c.oid
    FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS w(schema, name, ord)
    JOIN pg_namespace n ON n.nspname = w.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
), below (ord, oid) AS (
    SELECT ord, oid FROM wanted
    UNION SELECT b.ord, i.inhrelid FROM below b
    JOIN pg_class p ON p.oid = b.oid AND p.relkind = 'p'
    JOIN pg_inherits i ON i.inhparent = b.oid
)
SELECT b.ord, n.nspname, c.relname, c.relkind::text,
       coalesce((SELECT a.amname FROM pg_am a WHERE a.oid = c.relam), 'heap') = 'heap',
       coalesce(CASE WHEN c.relkind = 'r' THEN pg_relation_size(c.oid) END, 0),
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
           AND NOT row_security_active(c.oid)
FROM below b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY b.ord, c.oid
"""


_BOUNDS: Final = """
SELECT b::text FROM (
    SELECT DISTINCT unnest(histogram_bounds::text::{type}[]) FROM pg_stats
    WHERE schemaname = %s AND tablename = %s AND attname = %s AND NOT inherited
) AS s (b) ORDER BY s.b
"""


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of one table."""

    table: TableId
    rows: str  # what stands behind FROM
    lock: str  # what stands behind LOCK TABLE, of the whole table
    by: Literal["whole", "ctid", "key"] = "whole"


@dataclass(frozen=True, slots=True)
class _Relation:
    table: TableId
    kind: str  # pg_class.relkind
    is_heap: bool
    size: int  # bytes
    is_readable: bool


def divided(
    connection: Connection,
    shapes: Sequence[TableSchema],
    workers: int,
    *,
    least_bytes: int = LEAST_BYTES,
    by_ctid: bool | None = None,
) -> dict[TableId, list[TablePart]]:
    """Divide tables for so many workers; under the snapshot, and behind the lock.

    A table without a page has no part. `by_ctid`: None = where the server reads ranges of it.
    """
    if by_ctid is None:
        by_ctid = connection.server_version >= CTID_RANGES
    files = _files(connection, [shape.id for shape in shapes])
    with asking(connection) as cursor:
        cursor.execute("SELECT current_setting('block_size')::int")
        page = int(cursor.fetchone()[0])
    out: dict[TableId, list[TablePart]] = {}
    for shape in shapes:
        found = files.get(shape.id, [])
        size = sum(file.size for file in found)
        part_bytes = max(least_bytes, min(_MOST_BYTES, size // (max(1, workers) * _OF_A_WORKER)))
        out[shape.id] = list(
            _by_ctid(found, shape.id, max(1, part_bytes // page), page)
            if by_ctid
            else _by_key(connection, found, shape, part_bytes)
        )
    return out


def _files(connection: Connection, tables: Sequence[TableId]) -> dict[TableId, list[_Relation]]:
    """Read each table with its partitions, the table itself first."""
    with asking(connection) as cursor:
        cursor.execute(_FILES, [[table.schema for table in tables], [t.name for t in tables]])
        rows = cursor.fetchall()
    out: dict[TableId, list[_Relation]] = {table: [] for table in tables}
    for ord_, schema, name, *rest in rows:
        file = _Relation(TableId(schema, name), *rest)
        of = out[tables[ord_ - 1]]
        of.insert(0 if file.table == tables[ord_ - 1] else len(of), file)
    return out


def _lock(table: TableId, files: Sequence[_Relation]) -> str:
    """Name a table for FROM and LOCK.

    Of an inheritance parent its own rows only: its children are tables of their own. A
    partitioned table has none, and stands for its partitions.
    """
    return ("" if files and files[0].kind == "p" else "ONLY ") + qualified(table)


def _by_ctid(
    files: Sequence[_Relation], table: TableId, pages: int, page: int
) -> Iterator[TablePart]:
    lock = _lock(table, files)
    leaves = [file for file in files if file.kind != "p"]
    if not all(leaf.kind == "r" and leaf.is_heap and leaf.is_readable for leaf in leaves):
        yield TablePart(table, lock, lock)
        return
    for leaf in leaves:
        # The last one is open: it has what was written since the size was read, of which the
        # snapshot shows nothing.
        bounds = [*range(0, -(-leaf.size // page), pages), None]
        if len(bounds) == 2:
            yield TablePart(table, f"ONLY {qualified(leaf.table)}", lock)
            continue
        for low, high in pairwise(bounds):
            below = "" if high is None else f" AND ctid < '({high},0)'"
            rows = f"ONLY {qualified(leaf.table)} WHERE ctid >= '({low},0)'{below}"
            yield TablePart(table, rows, lock, "ctid")


def _by_key(
    connection: Connection, files: Sequence[_Relation], shape: TableSchema, part_bytes: int
) -> Iterator[TablePart]:
    file = files[0] if files else None
    if file is not None and file.kind == "r" and file.is_heap and not file.size:
        return
    bounds: list[str] = []
    key, lock = _key(shape), _lock(shape.id, files)
    if file is not None and file.kind == "r" and key is not None and file.size > part_bytes:
        bounds = _bounds(connection, shape.id, *key, count=-(-file.size // part_bytes))
    if not bounds or key is None:
        yield TablePart(shape.id, lock, lock)
        return
    name = identifier(key[0])
    for low, high in pairwise([None, *bounds, None]):
        limits = [f"{name} >= {constant(low)}"] if low is not None else []
        limits += [f"{name} < {constant(high)}"] if high is not None else []
        rows = f"ONLY {qualified(shape.id)} WHERE {' AND '.join(limits)} ORDER BY {name}"
        yield TablePart(shape.id, rows, lock, "key")


def _key(shape: TableSchema) -> tuple[str, int] | None:
    """Return name and type of a primary key of one column whose order is the same everywhere."""
    types: Mapping[str, int] = {column.name: column.type_oid for column in shape.columns}
    names = shape.key
    if len(names) != 1 or types.get(names[0]) not in _ORDERED:
        return None
    return names[0], types[names[0]]


def _bounds(
    connection: Connection, table: TableId, name: str, type_oid: int, *, count: int
) -> list[str]:
    """Find at most `count` - 1 values of a key that divide a table; [] = it stays whole."""
    with asking(connection, table=table) as cursor:
        cursor.execute(
            _BOUNDS.format(type=_ORDERED[type_oid]),
            [*table, name],
        )
        found: list[str] = [text for (text,) in cursor.fetchall()]
        if inner := found[1:-1]:
            return inner[:: max(1, -(-len(inner) // max(1, count - 1)))]
        if type_oid not in _NUMBERS:
            return []
        column = identifier(name)
        cursor.execute(f"SELECT min({column}), max({column}) FROM ONLY {qualified(table)}")  # noqa: S608
        low, high = cursor.fetchone()
    if low is None or high - low < count:
        return []
    return [str(low + (high - low) * n // count) for n in range(1, count)]
