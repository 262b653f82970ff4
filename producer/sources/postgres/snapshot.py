"""Reads the rows of a table with COPY under an exported snapshot.

COPY's text form is the types' own output, the same as pgoutput's, which a cast
to text is not (`true`, unpadded `char`).  Rows are passed on while the server
sends: memory is bounded by one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from psycopg2 import errors, sql
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog.catalog_rows import as_sent
from producer.core.changes import Cells
from producer.core.loads.copy_lines import CopyLines
from producer.errors import DecodeError, SourceError, TableChanging
from producer.sources.dial import ConnectionArguments
from producer.sources.labels import unrenamed
from producer.sources.meaning import NOT_THERE, Meant, MeantRows, renamed
from producer.sources.postgres import catalog
from schemas.quoting import names, qualified
from schemas.tables import Column, TableId, TableSchema

_LOCK_SECONDS = 5
# A table and all below it, with the file that holds its rows: TRUNCATE and rewrites make another.
# With each row of its schema, which a rename of that writes anew, too.
_FILES = """
WITH RECURSIVE below (oid) AS (
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN unnest(%s::text[], %s::text[]) AS w(s, t) ON n.nspname = w.s AND c.relname = w.t
    UNION SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid)
SELECT c.oid, c.relfilenode, n.xmin::text FROM below b JOIN pg_class c ON c.oid = b.oid
JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1
"""
# What a snapshot says of tables.  The partitions: a statement on a table reads those it has by now.
# Only of a heap (2, from 12 on) it is known that all rows are in its file.
_FACTS = """
SELECT w.s, w.t, c.oid::text, n.xmin::text, b.rows, b.is_empty, b.parts
FROM unnest(%s::text[], %s::text[]) AS w(s, t)
JOIN pg_namespace n ON n.nspname = w.s
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t
CROSS JOIN LATERAL (
    WITH RECURSIVE below (oid) AS (
        SELECT c.oid
        UNION SELECT i.inhrelid FROM below b
            JOIN pg_inherits i ON i.inhparent = b.oid WHERE c.relkind = 'p')
    SELECT coalesce(sum(greatest(r.reltuples, 0)) FILTER (WHERE r.relkind <> 'p'), 0)::bigint,
        bool_and(r.relkind = 'p' OR r.relam = 2 AND pg_relation_size(r.oid) = 0),
        array_agg(r.oid::bigint) FILTER (WHERE c.relkind = 'p')
    FROM below b JOIN pg_class r ON r.oid = b.oid
) b (rows, is_empty, parts)
"""
_BLOCK_BYTES: Final = 128 << 10  # handed on at once
_BLOCK_ROWS: Final = 1_000


@contextmanager
def imported(arguments: ConnectionArguments, snapshot: str) -> Iterator[Connection]:
    """A session that sees exactly what the snapshot saw, for the time of a `with` block."""
    connection = catalog.connect(arguments)
    try:
        with catalog.asking(connection, snapshot=snapshot) as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SET TRANSACTION SNAPSHOT %s", [snapshot])
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield connection
    finally:
        connection.close()


def hold(reading: Connection, now: Connection, tables: Sequence[TableId]) -> None:
    """Protect tables from DDL, as of the snapshot of `reading`, until it is closed.

    A snapshot does not protect from DDL: COPY reads a table that was emptied or rewritten since
    then as empty, without an error, and fails for a changed shape. So DDL and TRUNCATE wait from
    here on, as they do for pg_dump; rows may change. Raises TableChanging where a table was
    changed before.
    """
    if not tables:
        return
    all_of_them = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
    with catalog.asking(reading) as cursor:
        cursor.execute("SET LOCAL lock_timeout = %s", [f"{_LOCK_SECONDS}s"])
        try:
            cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(all_of_them))
        except (
            errors.LockNotAvailable,
            errors.UndefinedTable,
            errors.InvalidSchemaName,
            errors.WrongObjectType,
        ) as error:
            raise TableChanging(
                "a table of the load is being altered, renamed or dropped",
                hint="the load starts over automatically when that is done",
            ) from error
        cursor.execute("SET LOCAL lock_timeout = 0")
    shapes = catalog.table_schemas
    if _files(reading, tables) != _files(now, tables) or (
        shapes(reading, tables) != shapes(now, tables)
    ):
        raise TableChanging(
            "a table was altered or emptied while its load began", hint="the load starts over"
        )


def _files(connection: Connection, tables: Sequence[TableId]) -> list[tuple[int, int, str]]:
    with catalog.asking(connection) as cursor:
        cursor.execute(_FILES, [[t.schema for t in tables], [t.name for t in tables]])
        found: list[tuple[int, int, str]] = cursor.fetchall()
    return found


class SnapshotReading:
    """`ports.Reading` by the session that imported the snapshot, and protects the tables.

    A session beside it would wait without end behind DDL that waits for this one.
    """

    def __init__(self, connection: Connection, now: Connection, *, are_held: bool = False) -> None:
        """`now` sees what was committed since; `are_held`: `hold` was called for the tables."""
        self.connection, self._now, self._are_held = connection, now, are_held
        self._facts: dict[TableId, _Facts] = {}  # a snapshot's do not change

    def shapes(self, tables: list[TableId]) -> list[TableSchema]:
        """Shapes as the stream will describe them."""
        self._facts |= _facts(self.connection, tables)
        return stream_shapes(catalog.table_schemas(self.connection, tables))

    def estimated_rows(self, table: TableId) -> int:
        """A guess for a progress bar; 0 = unknown."""
        facts = self._facts_of(table)
        return facts.rows if facts else 0

    def is_empty(self, table: TableId) -> bool:
        """Say whether it is known to have no rows, before it is read."""
        facts = self._facts_of(table)
        return self._are_held and facts is not None and facts.is_empty

    def _facts_of(self, table: TableId) -> _Facts | None:
        if table not in self._facts:
            self._facts |= _facts(self.connection, [table])
        return self._facts.get(table)

    def copy_rows(
        self,
        table: TableId,
        columns: Sequence[Column],
        hand_on: Callable[[Sequence[Cells]], None],
    ) -> None:
        """Send all rows to `hand_on`, some at a time, as they are in the snapshot.

        Raises TableChanging where a label of an enum was renamed since, or the table's schema.
        """
        was, now = map(catalog.QueryingConnection, (self.connection, self._now))
        if (facts := self._facts_of(table)) is None:
            raise renamed(table)
        if self.is_empty(table):
            return
        meant = MeantRows(table, facts.meant, now, hand_on)
        checked = unrenamed(table, columns, was, now, meant)

        def hand_on_lines(lines: list[bytes]) -> None:
            checked(CopyLines(lines, len(columns), table))

        rows = _Rows(table, hand_on_lines)
        try:
            with catalog.asking(self.connection, table=table) as cursor:
                cursor.copy_expert(_copy(table, columns, facts.partitions), rows)
        except SourceError as error:
            if error.where.get("sqlstate") not in NOT_THERE:
                raise
            raise renamed(table) from error
        rows.finish()
        meant.check()


def _copy(table: TableId, columns: Sequence[Column], partitions: Sequence[int]) -> str:
    """Write the COPY of a table's own rows; of a partitioned one, of those in its partitions."""
    listed = names(column.name for column in columns)
    if columns and not partitions:
        return f"COPY {qualified(table)} ({listed}) TO STDOUT"  # no view can take its place
    only = "" if partitions else "ONLY "
    which = f" WHERE tableoid IN ({', '.join(map(str, partitions))})" if partitions else ""
    return f"COPY (SELECT {listed} FROM {only}{qualified(table)}{which}) TO STDOUT"  # noqa: S608


class _Facts(NamedTuple):
    """What a snapshot says of a table."""

    meant: Meant
    rows: int  # the planner's estimate; 0: unknown
    is_empty: bool  # no file has a block.  While it is held, nobody shortens or replaces one
    partitions: tuple[int, ...]  # of a partitioned one: its oid, and all below


def _facts(connection: Connection, tables: Sequence[TableId]) -> dict[TableId, _Facts]:
    with catalog.asking(connection) as cursor:
        cursor.execute(_FACTS, [[t.schema for t in tables], [t.name for t in tables]])
        return {
            TableId(schema, name): _Facts(Meant(oid, xid), rows, is_empty, tuple(parts or ()))
            for schema, name, oid, xid, rows, is_empty, parts in cursor.fetchall()
        }


def estimated_rows(connection: Connection, table: TableId) -> int:
    """The planner's estimate, for a progress bar; 0 = unknown."""
    return SnapshotReading(connection, connection).estimated_rows(table)


class _Rows:
    """The file object that COPY writes to, a row at a time."""

    def __init__(self, table: TableId, hand_on: Callable[[list[bytes]], None]) -> None:
        self._table, self._hand_on = table, hand_on
        self._rows: list[bytes] = []
        self._size = 0

    def write(self, row: bytes) -> None:
        """Take a row, with the end of its line."""
        self._rows.append(row)
        self._size += len(row)
        if self._size >= _BLOCK_BYTES or len(self._rows) >= _BLOCK_ROWS:
            self.finish()

    def finish(self) -> None:
        """Hand on what was taken."""
        *lines, rest = b"".join(self._rows).split(b"\n")
        if rest:
            raise DecodeError("COPY sent a part of a row", table=self._table)
        self._rows, self._size = [], 0
        if lines:
            self._hand_on(lines)


def stream_shapes(tables: list[TableSchema]) -> list[TableSchema]:
    """Shapes as pgoutput describes them: without generated columns."""
    return [as_sent(table) for table in tables]
