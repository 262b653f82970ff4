"""Reads a table of openGauss or GaussDB in ranges of its key, beside the stream: `RangeSessions`.

Each range is read in a transaction of its own: lock, snapshot, the place where the log ends, rows.
The lock comes first: a snapshot does not protect from DDL.  The manual does not say that LOCK takes
none: so the table's file is compared, as the snapshot and as the catalog of now has it.

Two sessions: one has the lock and the snapshot, and copies; the other asks the catalog, of which
the lock holds the table's part still.

No snapshot of these servers says which transactions it shows.  One that has an id holds its lock
until it is visible.  So those that hold one are listed first, and the snapshot is taken behind
that: it shows each other one that the stream had brought when the range was asked for.  That needs
a stream that tells ids, in the order of the log, and a server that gives out all of them itself.

What the stream does not show of a table, a look at the catalog does (`storage`): it makes a gap,
and the load begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from producer.core.catalog.look import Before
from producer.core.changes import Cells
from producer.core.key_ranges import (
    Key,
    NamedKeys,
    RangeRead,
    Visible,
    key_columns,
)
from producer.errors import SourceError, TableChanging
from producer.options import Options
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import point, readings
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.evidence import limited
from producer.sources.gauss.options import Effective
from producer.sources.gauss.server import Server
from producer.sources.gauss.snapshot import GaussReading
from producer.sources.labels import has_user_types
from producer.sources.meaning import Meant, meaning, renamed
from producer.sources.ranges import (
    IN_ORDER,
    MOST,
    SMALL,
    RangesThread,
    bounded,
    selected,
    why_no_key,
)
from producer.sources.session import Asks
from schemas.quoting import one_of, qualified
from schemas.tables import TableId, TableSchema

_OF_SESSIONS: Final = ("UTF8", "UNICODE")  # encodings; constants of statements are in them
_FOLDING: Final = frozenset({"B", "M"})  # compatibilities whose collations may take A for a
_TABLE: Final = (
    "SELECT pg_catalog.pg_table_size(c.oid)::text, greatest(c.reltuples, 0)::bigint::text,"
    " c.relkind = 'r' AND {plain} AND NOT EXISTS"
    " (SELECT 1 FROM pg_catalog.pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid))"
    " FROM pg_catalog.pg_class c WHERE c.oid = {oid}"
)
_FILE: Final = (
    "SELECT c.relfilenode::text, c.xmin::text FROM pg_catalog.pg_class c WHERE c.oid = {oid}"
)
# Of the key's columns: their types, and collations, which no shape says.
_KEY: Final = (
    "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attcollation::text"
    " FROM pg_catalog.pg_attribute a WHERE a.attname IN {columns} AND a.attrelid = {oid}"
    " ORDER BY a.attnum"
)


def reads_ranges(decided: Effective, server: Server, node: str) -> bool:
    """Say whether any table can be read so; `node`: of a distributed server."""
    return (
        server.is_primary
        and not node
        and (decided.interface, decided.ordered_by) == ("stream", "lsn")
        and decided.plugin != "sql_decoding"  # tells no ids
    )


def why_not(session: Asks, table: TableSchema, server: Server, least_bytes: int) -> str:
    """Say why a table is not read in ranges of its key; "": it is, or it is being altered."""
    try:
        return _why_not(_row_of(session, table.id), table, server, least_bytes)
    except TableChanging:
        return ""


def _row_of(session: Asks, table: TableId) -> tuple[int, int, bool] | None:
    """Return size in bytes, estimated rows, and whether it is a table without relatives.

    The server takes the table's lock to tell its size, and the stream waits meanwhile: raises
    TableChanging where another has that.
    """
    plain = "true"
    if "parttype" in gauss_catalog.catalog_columns(session, "pg_class"):
        plain = "c.parttype = 'n'"
    try:
        with limited(session):
            rows = session.query(_TABLE.format(plain=plain, oid=gauss_snapshot.oid_of(table)))
    except SourceError as error:
        if error.where.get("sqlstate") not in gauss_snapshot.LOCKED:
            raise
        raise TableChanging("a table is being altered, or emptied", table=table) from error
    if not rows or rows[0][0] is None:
        return None
    size, count, is_plain = rows[0]
    return int(size or 0), int(count or 0), is_plain == "t"


def _why_not(
    row: tuple[int, int, bool] | None, table: TableSchema, server: Server, least_bytes: int
) -> str:
    if row is None:
        return "it is not there"
    size, _, is_plain = row
    if size < least_bytes:
        return SMALL
    if not is_plain:
        return "it has partitions, or inherits"
    if has_user_types(table.columns):
        return "it has columns of types that users made"
    tells_apart = server.compatibility not in _FOLDING
    return why_no_key(table, server.encoding, tells_apart=tells_apart, texts_in=_OF_SESSIONS)


def open_ranges(
    options: Options,
    asking: GaussConnection,
    table: TableId,
    *,
    server: Server,
    open_session: Callable[[], GaussConnection],
    least: int,
) -> tuple[TableSchema, RangesThread] | None:
    """Open what reads a table in ranges; None: it is read at a point, or is not captured.

    `least`: bytes of a table.
    """
    if not point.may_read(options, asking, table):
        return None
    shape = gauss_snapshot.without_virtual(gauss_catalog.table_schemas(asking, [table])[0])
    row = _row_of(asking, table)
    if row is None or _why_not(row, shape, server, least):
        return None
    size, rows, _ = row
    since = point.started(asking)
    each = size // rows if rows else 0  # bytes; until a range was read, where nobody counted
    sessions = _GaussSessions(
        options,
        lambda: point.of_server(since, open_session()),
        shape,
        meaning(asking, table),
        row_bytes=max(1, each),
        encoding=server.encoding,
    )
    return shape, RangesThread(sessions, rows=rows)


class _GaussSessions:
    """`RangeSessions`."""

    def __init__(
        self,
        options: Options,
        open_session: Callable[[], GaussConnection],
        shape: TableSchema,
        meant: Meant | None,
        *,
        row_bytes: int,
        encoding: str,
    ) -> None:
        self._options, self._open, self._shape, self._meant = options, open_session, shape, meant
        self._row_bytes, self._encoding = row_bytes, encoding
        self._session: GaussConnection | None = None
        self._asks: GaussConnection | None = None
        self._since: Before | None = None  # the catalog when the shape was read first

    def interrupt(self) -> None:
        for session in (self._session, self._asks):
            if session is not None:
                session.interrupt()

    def close(self) -> None:
        sessions = self._session, self._asks
        self._session = self._asks = None
        for session in sessions:
            if session is not None:
                session.close()

    def read(self, after: Key | NamedKeys | None) -> RangeRead:
        if self._asks is None:
            self._asks = self._open()
        if self._session is None:
            self._session = self._open()
            settings = gauss_snapshot.QUIET | IN_ORDER
            for name in gauss_catalog.settings(self._session, settings):
                self._session.query(f"SET {name} = {settings[name]}")
        session, asks, table = self._session, self._asks, self._shape.id
        running = point.running(asks)  # before any statement that may take the snapshot
        session.query(f"SET statement_timeout = {gauss_snapshot.LOCK_SECONDS * 1000}")
        session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        gauss_snapshot.lock(session, [table])
        if meaning(asks, table) != self._meant:  # the lock may be another table's
            raise renamed(table)
        file = _FILE.format(oid=gauss_snapshot.oid_of(table))
        if session.query(file) != asks.query(file):  # the snapshot may be older than the lock
            raise TableChanging("it was altered or emptied while it was locked", table=table)
        session.query("SET statement_timeout = 0")
        if (next_xid := readings.next_xid(asks)) is None:
            raise SourceError("the server does not say which transactions there are", table=table)
        shown, high = Visible.but(running, next_xid), point.log_end(asks)
        shape = gauss_catalog.table_schema_or_none(asks, table)
        if shape is None:
            raise TableChanging("the table is gone", table=table)
        shape = gauss_snapshot.without_virtual(shape)
        reading = GaussReading(session, self._encoding, asks)
        if after is None:
            found = RangeRead(shape, shown, high, self._looked(reading, shape))
        else:
            found = self._rows(reading, RangeRead(shape, shown, high), after)
        if self._session is not None:
            session.query("COMMIT")
        if meaning(asks, table) != self._meant:
            raise renamed(table)
        point.commit_something(asks)
        return found

    def _looked(self, reading: GaussReading, shape: TableSchema) -> Before:
        """Read the catalog under the snapshot, and compare it with the first look [H52]."""
        versions = gauss_snapshot.hold(reading, reading.now, [shape.id])
        looked = Before.of_files(0, versions=versions)
        if self._since is not None and looked != self._since:
            raise TableChanging("it was altered while its load waited", table=shape.id)
        self._since = looked
        return looked

    def _rows(self, reading: GaussReading, at: RangeRead, after: Key | NamedKeys) -> RangeRead:
        shape, tuning = at.shape, self._options.tuning
        assert shape is not None
        if key_columns(shape) != key_columns(self._shape):
            raise TableChanging("its key was altered while it was loaded", table=shape.id)
        types, order = self._key(reading.now, shape)
        limit = max(1, min(tuning.range_rows, tuning.range_bytes // self._row_bytes))
        rows_of = f"ONLY {qualified(shape.id)}"
        select, keys = selected(
            reading.session, rows_of, shape, after, limit=limit, types=lambda: types
        )
        rows: list[Cells] = []
        size, is_whole = 0, True
        for some in reading.copied(shape.id, select, len(shape.columns)):
            rows += some
            size += sum(len(cell) for row in some for cell in row if isinstance(cell, bytes))
            if size > MOST * tuning.range_bytes:
                is_whole = False
                break
        if not is_whole and self._session is not None:  # the rest of the copy is not read
            self._session.close()
            self._session = None
        if rows:
            self._row_bytes = max(1, size // len(rows))
        read = replace(at, rows=rows, order=order)
        return bounded(read, after, keys=keys, limit=limit, is_whole=is_whole)

    @staticmethod
    def _key(asks: Asks, shape: TableSchema) -> tuple[list[str], str]:
        """Return the types of the key's columns, and in which order they are."""
        oid = gauss_snapshot.oid_of(shape.id)
        rows = asks.query(_KEY.format(columns=one_of(shape.key), oid=oid))
        if len(rows) != len(shape.key):
            raise SourceError("the key's columns are not there", table=shape.id)
        types = {name: text or "" for name, text, _ in rows}
        return [types[name] for name in shape.key], ",".join(c or "" for *_, c in rows)
