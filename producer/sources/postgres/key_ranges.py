"""Reads a table of PostgreSQL in ranges of its key, beside the stream: `RangeSessions`.

Each range is read in a transaction of its own: lock, snapshot, the place where the log
ends, rows.  The lock comes first: a snapshot does not protect from DDL, and LOCK takes none.  Two
sessions: one has the lock and the snapshot, and copies; the other asks the catalog, of which the
lock holds the table's part still.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog.catalog_rows import as_sent
from producer.core.catalog.look import Before
from producer.core.key_ranges import (
    Key,
    NamedKeys,
    RangeRead,
    Visible,
    key_columns,
)
from producer.core.loads.copy_lines import CopyLines
from producer.errors import ConnectionLost, TableChanging
from producer.options import Options
from producer.sources.labels import has_user_types, refuse_renamed, written
from producer.sources.meaning import meaning, renamed
from producer.sources.postgres import catalog, catalog_look
from producer.sources.postgres.captured import captured
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.running import with_ids
from producer.sources.ranges import (
    IN_ORDER,
    MOST,
    SMALL,
    RangesThread,
    bounded,
    selected,
    why_no_key,
)
from schemas.positions import Lsn, lsn_text, parse_lsn
from schemas.quoting import literal, names
from schemas.tables import TableId, TableSchema

_LOCK_SECONDS: Final = 5

_TABLE: Final = """
SELECT CASE WHEN c.relkind = 'p' THEN coalesce(s.size, 0) ELSE s.size END,
       coalesce(s.rows, 0), c.relkind = 'p', c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
       AND (c.relkind = 'p' OR NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)),
       NOT EXISTS (SELECT FROM pg_attribute a JOIN pg_collation l ON l.oid = a.attcollation
                   WHERE a.attrelid = c.oid AND a.attname = ANY (%s) AND NOT l.collisdeterministic),
       current_setting('server_encoding')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, LATERAL (
    SELECT sum(pg_table_size(p.oid))::bigint, sum(greatest(p.reltuples, 0))::bigint
    FROM (SELECT c.oid WHERE c.relkind <> 'p' UNION ALL
          SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf AND c.relkind = 'p') l (oid)
    JOIN pg_class p ON p.oid = l.oid) s (size, rows)
WHERE n.nspname = %s AND c.relname = %s
"""
# No shape says which collation a column has.
_ORDER: Final = """
SELECT string_agg(a.attcollation::text, ',' ORDER BY a.attnum) FROM pg_attribute a
WHERE a.attrelid = %s AND a.attname = ANY (%s)
"""
_TYPES: Final = """
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
WHERE a.attrelid = %s AND a.attname = ANY (%s)
"""
_SNAPSHOT: Final = (
    "SELECT txid_current_snapshot()::text, pg_current_wal_insert_lsn()::text,"
    " pg_walfile_name(pg_current_wal_insert_lsn())"
)
_IS_FLUSHED: Final = "SELECT pg_current_wal_flush_lsn() >= {}"
_IN_ORDER: Final = IN_ORDER | {"lock_timeout": f"{_LOCK_SECONDS}s"}


def why_not(connection: Connection, table: TableSchema, least_bytes: int) -> str:
    """Say why a table is not read in ranges of its key; "": it is.

    `table`: as the stream describes it.
    """
    return _why_not(_row_of(connection, table), table, least_bytes)


def _row_of(connection: Connection, table: TableSchema) -> tuple[Any, ...] | None:
    with catalog.asking(connection) as cursor:
        cursor.execute(_TABLE, (list(table.key), *table.id))
        row: tuple[Any, ...] | None = cursor.fetchone()
    # The size is read as it is now: NULL where the table was dropped behind the snapshot.
    return None if row is None or row[0] is None else row


def _why_not(row: tuple[Any, ...] | None, table: TableSchema, least_bytes: int) -> str:
    if row is None:
        return "it is not there"
    size, _, _, is_plain, tells_apart, encoding = row
    if size < least_bytes:
        return SMALL
    if not is_plain:
        return "other tables inherit from it"
    return why_no_key(table, encoding, tells_apart=tells_apart)


def open_ranges(
    options: Options, connection: Connection, table: TableId, server: tuple[str, int], least: int
) -> tuple[TableSchema, RangesThread] | None:
    """Open what reads a table in ranges; None: it is read at a point, or is not captured.

    `server`: system id and timeline of the one that streams.  `least`: bytes of a table.
    """
    if table not in captured(connection, options).tables:
        return None
    shape = as_sent(catalog.table_schemas(connection, [table])[0])
    row = _row_of(connection, shape)
    if row is None or _why_not(row, shape, least):
        return None
    size, rows, is_root, *_ = row
    each = size // rows if rows else 0  # bytes; until a range was read, where nobody counted
    reader = _Sessions(options, shape, server, row_bytes=max(1, each), is_root=is_root)
    return shape, RangesThread(reader, rows=rows)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    shown: Visible
    high: Lsn

    @classmethod
    def of(cls, snapshot: str, high: str) -> _Snapshot:
        _, end, running = snapshot.split(":")
        ids = frozenset(map(int, filter(None, running.split(","))))
        return cls(Visible(int(end), ids), parse_lsn(high))


class _Sessions:
    """`RangeSessions`."""

    def __init__(
        self,
        options: Options,
        shape: TableSchema,
        server: tuple[str, int],
        *,
        row_bytes: int,
        is_root: bool,
    ) -> None:
        """`is_root`: its rows are those of its partitions."""
        self._options, self._shape, self._server = options, shape, server
        self._rows_of = _name(shape.id) if is_root else f"ONLY {_name(shape.id)}"
        self._row_bytes = row_bytes
        self._session: ReplicationConnection | None = None
        self._catalog: Connection | None = None
        self._since: Before | None = None  # the catalog when the shape was read first
        self._has_listed = False

    def interrupt(self) -> None:
        if (session := self._session) is not None:
            session.interrupt()

    def close(self) -> None:
        session, self._session = self._session, None
        asks, self._catalog = self._catalog, None
        if session is not None:
            session.close()
        if asks is not None:
            asks.close()

    def read(self, after: Key | NamedKeys | None) -> RangeRead:
        if self._catalog is None:
            self._catalog = catalog.connect(self._options.source)
            self._check_server(self._catalog)
        asks = self._catalog
        # Before the first snapshot: what it does not show may have been delivered long ago.
        listed = [] if self._has_listed else with_ids(asks)
        found = self._look(asks) if after is None else self._read(after, asks)
        self._has_listed = True
        return replace(found, shown=found.shown.beside(listed))

    def _check_server(self, asks: Connection) -> None:
        """An address may lead to another server by now, which was promoted or restored [H40]."""
        with catalog.asking(asks) as cursor:
            cursor.execute("SELECT system_identifier::text FROM pg_control_system()")
            (system_id,) = cursor.fetchone()
        if system_id != self._server[0]:
            raise ConnectionLost("another server has this address by now", system_id=system_id)

    def _check_timeline(self, file: str) -> None:
        if (timeline := int(file[:8], 16)) != self._server[1]:
            raise ConnectionLost("another server has this address by now", timeline=timeline)

    def _look(self, asks: Connection) -> RangeRead:
        """Read the shape, and the catalog under one snapshot; compare it with the first one."""
        table = self._shape.id
        asks.autocommit = False
        try:
            with catalog.asking(asks, table=table) as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute("SET LOCAL lock_timeout = %s", [f"{_LOCK_SECONDS}s"])
                cursor.execute(f"LOCK TABLE {_name(table)} IN ACCESS SHARE MODE")
                cursor.execute(_SNAPSHOT)
                snapshot, high, file = cursor.fetchone()
            self._check_timeline(file)
            is_captured = table in captured(asks, self._options).tables
            found = catalog.found_schemas(asks, [table]).get(table) if is_captured else None
            looked = catalog_look.baseline(asks, self._options, [table], since=self._since)
            self._since = self._since or looked
            place, order = _Snapshot.of(snapshot, high), found and self._order(asks, as_sent(found))
        finally:
            asks.rollback()
            asks.autocommit = True
        self._see_to_flush(asks, place.high)
        shape = found and as_sent(found)
        return RangeRead(shape, place.shown, place.high, looked, order=order or "")

    def _read(self, after: Key | NamedKeys, asks: Connection) -> RangeRead:
        table = self._shape.id
        if self._session is None:
            self._session = ReplicationConnection.open(self._options.source, replication=False)
        session, now = self._session, catalog.QueryingConnection(asks)
        said = meaning(now, table)
        settings = "; ".join(f"SET LOCAL {k} = {literal(v)}" for k, v in _IN_ORDER.items())
        session.query(
            f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {settings};"
            f" LOCK TABLE {_name(table)} IN ACCESS SHARE MODE"
        )
        meant = meaning(now, table)  # the lock may have waited for another table's name
        if said is None or meant is None or said.schema_xid != meant.schema_xid:
            raise renamed(table)
        ((snapshot, high, file),) = session.query(_SNAPSHOT)
        assert snapshot is not None
        assert high is not None
        assert file is not None
        self._check_timeline(file)
        found = catalog.found_schemas(asks, [table]).get(table)
        if found is None:
            raise TableChanging("the table is gone", table=table)
        place, shape = _Snapshot.of(snapshot, high), as_sent(found)
        if key_columns(shape) != key_columns(self._shape):
            raise TableChanging("its key was altered while it was loaded", table=table)
        has_types = has_user_types(shape.columns)
        labels = written(now) if has_types else {}
        order, tuning = self._order(asks, shape), self._options.tuning
        limit = max(1, min(tuning.range_rows, tuning.range_bytes // self._row_bytes))
        lines, size = list[bytes](), 0
        is_whole = True
        types = partial(self._key_types, asks, shape)
        select, keys = selected(session, self._rows_of, shape, after, limit=limit, types=types)
        for some in session.copy_lines(f"COPY ({select}) TO STDOUT"):
            lines += some
            size += sum(map(len, some))
            if size > MOST * tuning.range_bytes:
                is_whole = False
                break
        if has_types:
            # Labels do not wait for the lock: as they were printed, or newer.
            before, shape = shape, as_sent(catalog.table_schemas(asks, [table])[0])
            if shape == before:  # they may have had other names for a moment
                refuse_renamed(table, labels, written(now))
        if is_whole:
            session.query("COMMIT")
        else:
            self._session = None
            session.close()
        if meaning(now, table) != meant:
            raise renamed(table)
        if lines:
            self._row_bytes = max(1, size // len(lines))
        self._see_to_flush(asks, place.high)
        rows = CopyLines(lines, len(shape.columns), table)
        read = RangeRead(shape, place.shown, place.high, rows=rows, order=order)
        return bounded(read, after, keys=keys, limit=limit, is_whole=is_whole)

    @staticmethod
    def _key_types(asks: Connection, shape: TableSchema) -> list[str]:
        with catalog.asking(asks, table=shape.id) as cursor:
            cursor.execute(_TYPES, (shape.oid, list(shape.key)))
            types = dict(cursor.fetchall())
        return [types[name] for name in shape.key]

    @staticmethod
    def _order(asks: Connection, shape: TableSchema) -> str:
        with catalog.asking(asks, table=shape.id) as cursor:
            cursor.execute(_ORDER, (shape.oid, list(shape.key)))
            (order,) = cursor.fetchone()
        return order or ""

    @staticmethod
    def _see_to_flush(asks: Connection, high: Lsn) -> None:
        """Have the log written up to a place: an idle server does so by itself, seconds later."""
        with catalog.asking(asks) as cursor:
            cursor.execute(_IS_FLUSHED.format(literal(lsn_text(high))))
            if not cursor.fetchone()[0]:
                cursor.execute("SELECT txid_current()")


def _name(table: TableId) -> str:
    return f"{names([table.schema])}.{names([table.name])}"
