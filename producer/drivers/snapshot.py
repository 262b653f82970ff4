"""Reads the rows of a table with COPY under an exported snapshot.

COPY's text form is the types' own output, the same as pgoutput's, which a cast
to text is not (`true`, unpadded `char`).  Rows are handed on while the server
sends: memory stays bounded by one batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from psycopg2 import sql
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.decoders.messages import Cells
from producer.drivers import catalog
from producer.drivers.postgres_dial import ConnectionArguments
from producer.errors import DecodeError
from schemas.tables import Column, TableId

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@contextmanager
def imported(arguments: ConnectionArguments, snapshot: str) -> Iterator[Connection]:
    """A session that sees exactly what the snapshot saw, until it is left."""
    connection = catalog.connect(arguments)
    try:
        with catalog.asking(connection, snapshot=snapshot) as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SET TRANSACTION SNAPSHOT %s", [snapshot])
            # A policy would leave out rows in silence, and the stream sends them: better an error.
            cursor.execute("SET LOCAL row_security = off")
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield connection
    finally:
        connection.close()


def estimated_rows(connection: Connection, table: TableId) -> int:
    """The planner's guess, for a progress bar; 0 = unknown."""
    with catalog.asking(connection, table=table) as cursor:
        cursor.execute(
            "SELECT greatest(coalesce(sum(c.reltuples), 0), 0)::bigint FROM pg_class c"
            " WHERE c.oid = to_regclass(%s) OR c.oid IN (SELECT i.inhrelid FROM pg_inherits i"
            " WHERE i.inhparent = to_regclass(%s))",
            [_regclass(connection, table)] * 2,
        )
        return int(cursor.fetchone()[0])


def copy_rows(
    connection: Connection,
    table: TableId,
    columns: Sequence[Column],
    hand_on: Callable[[list[Cells]], None],
) -> None:
    """Send all rows to `hand_on` in lists of some hundred, as cells of text."""
    with catalog.asking(connection, table=table) as cursor:
        cursor.execute("SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)",
                       [_regclass(connection, table)])  # fmt: skip
        (relkind,) = cursor.fetchone()
        # An inheritance parent's own rows only: its children are tables of their own. A
        # partitioned table has none, and stands for its partitions.
        source = sql.SQL("" if relkind == "p" else "ONLY ") + sql.Identifier(*table)
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
        statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(names, source)
        parser = _Rows(len(columns), table, hand_on)
        cursor.copy_expert(statement.as_string(cursor), parser, size=1 << 16)
        parser.finish()


def _regclass(connection: Connection, table: TableId) -> str:
    return sql.Identifier(*table).as_string(connection)


class _Rows:
    """What COPY writes into: cuts lines, whole rows only."""

    def __init__(self, width: int, table: TableId, hand_on: Callable[[list[Cells]], None]) -> None:
        self._width, self._table, self._hand_on = width, table, hand_on
        self._rest = b""

    def write(self, data: bytes | str) -> int:
        """Take a piece of COPY's output."""
        raw = data.encode() if isinstance(data, str) else data
        lines = (self._rest + raw).split(b"\n")
        self._rest = lines.pop()
        if lines:
            self._hand_on([self._cells(line) for line in lines])
        return len(data)

    def finish(self) -> None:
        """Check that nothing was left over."""
        if self._rest:
            raise DecodeError("COPY ended inside a row", table=self._table)

    def _cells(self, line: bytes) -> Cells:
        if not self._width:
            return []
        cells: Cells = [
            None if field == b"\\N" else _unescape(field) if b"\\" in field else field
            for field in line.split(b"\t")
        ]
        if len(cells) != self._width:
            raise DecodeError("COPY sent a row of another width", table=self._table)
        return cells


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), field)
