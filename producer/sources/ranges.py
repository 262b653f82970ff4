"""Reads a table in ranges of its key, beside the stream: what the kinds of sources share.

A thread has the sessions (`RangesThread`), so that neither waits for the other.  Texts of keys are
compared with those of the stream: a key is read so only where equal values have one text.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Final, Protocol

from producer.core.key_ranges import Key, NamedKeys, RangeRead, key_of, key_places
from producer.errors import CdcError, SourceError
from producer.sources.session import Asks
from schemas.encodings import WITHOUT
from schemas.findings import Finding, Level
from schemas.quoting import constant, names
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema

SMALL: Final = "it is small"  # and read in a moment
# How a range is read: by the key's index, in its order.
IN_ORDER: Final = {
    "enable_seqscan": "off",
    "enable_sort": "off",
    "enable_bitmapscan": "off",
    "max_parallel_workers_per_gather": "0",
    "idle_in_transaction_session_timeout": "0",
}
MOST: Final = 4  # times the bytes of a range: it ends there, whatever was asked for
# Types by oid whose equal values have one text, with what stands behind `::` in a literal.
_ONE_TEXT: Final = {
    16: "bool",
    17: "bytea",
    20: "int8",
    21: "int2",
    23: "int4",
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
    2950: "uuid",
}
# These too, with a fixed number of digits behind the point, and with a collation that tells texts
# apart which differ.
_NUMERIC: Final = 1700
_TEXTS: Final = {25: "text", 1042: "bpchar", 1043: "varchar"}


class RangeSessions(Protocol):
    """Sessions with the source; used by one thread, but for `interrupt`."""

    def read(self, after: Key | NamedKeys | None) -> RangeRead:
        """Read what `KeyRanges.ask` asks for; raises CdcError."""

    def interrupt(self) -> None:
        """Have a wait for the server end."""

    def close(self) -> None:
        """End the sessions; the next reading opens others."""


class RangesThread:
    """`ports.KeyRanges`: what is asked is done by a thread."""

    def __init__(self, sessions: RangeSessions, *, rows: int) -> None:
        """`rows`: how many the table has, as far as the source knows."""
        self.estimated_rows = rows
        self._wakes, self._woken = os.pipe()
        self._asked: SimpleQueue[Key | NamedKeys | None] = SimpleQueue()
        self._answer: RangeRead | CdcError | None = None
        self._is_closed = False
        self._sessions = sessions
        self._thread = threading.Thread(target=self._run, name="load ranges", daemon=True)
        self._thread.start()

    @property
    def fileno(self) -> int:
        return self._wakes

    def ask(self, after: Key | NamedKeys | None) -> None:
        self._asked.put(after)

    def take(self) -> RangeRead | CdcError | None:
        if (answer := self._answer) is not None:
            self._answer = None
            os.read(self._wakes, 1)
        return answer

    def close(self) -> None:
        self._is_closed = True
        self._asked.put(None)
        self._sessions.interrupt()  # the thread lets go of all else: a connection may end slowly

    def _run(self) -> None:
        while True:
            after = self._asked.get()
            if self._is_closed:
                break
            try:
                answer: RangeRead | CdcError = self._sessions.read(after)
            except CdcError as error:
                answer = error
                self._sessions.close()
            self._answer = answer
            os.write(self._woken, b"x")
        self._sessions.close()
        os.close(self._wakes)
        os.close(self._woken)


def bounded(
    read: RangeRead, after: Key | NamedKeys, *, keys: Sequence[Key], limit: int, is_whole: bool
) -> RangeRead:
    """Say where a range ends, or which named keys have no row.

    `keys`: of these, those that were looked for, as the server prints them.  `limit`: rows that
    were asked for.  `is_whole`: all of them came; else it was ended when it was large.
    """
    assert read.shape is not None
    places, rows = key_places(read.shape), read.rows
    if not isinstance(after, NamedKeys):
        is_last = is_whole and len(rows) < limit
        return replace(read, last=None if is_last else key_of(rows[-1], places))
    there = {key_of(row, places) for row in rows}
    gone, left = tuple(key for key in keys if key not in there), after.keys[limit:]
    if not is_whole:  # what has no row may not have been read
        gone, left = (), (*gone, *left)
    return replace(read, gone=gone, left=left)


# ---------------------------------------------------------------- which tables
def why_no_key(
    table: TableSchema, encoding: str, *, tells_apart: bool, texts_in: Sequence[str] = ()
) -> str:
    """Say why a table's key does not do; "": it does.

    `table`: as the stream describes it.  `tells_apart`: its key's collations tell texts apart
    which differ.  `texts_in`: encodings in which texts are compared; (): in any that is known.
    """
    if not table.key:
        return "it has no primary key"
    if table.replica_identity not in {ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL}:
        return "its replica identity is an index"
    columns = {column.name: column for column in table.columns}
    key = [columns[name] for name in table.key]
    for column in key:
        if _literal_type(column) is None:
            return f"equal values of {column.type_name} may have different texts"
    if not tells_apart:
        return "its key's collation takes different texts for equal"
    if any(column.type_oid in _TEXTS for column in key):
        if encoding == WITHOUT:
            return "the database has no encoding"
        if texts_in and encoding not in texts_in:
            return f"its key has texts, in {encoding}"
    return ""


def waiting(table: TableId, why: str) -> Iterator[Finding]:
    """Say of a large table that is not read in ranges that it holds all others; `why` it is not."""
    if why and why != SMALL:
        what = f"all tables wait while it is read again: {why}"
        yield Finding(Level.NOTE, f"table {table}", what)


def _literal_type(column: Column) -> str | None:
    oid = column.type_oid
    if oid == _NUMERIC:
        return "numeric" if column.type_mod >= 0 else None
    return _ONE_TEXT.get(oid) or _TEXTS.get(oid)


# ---------------------------------------------------------------- statements
def selected(
    session: Asks,
    rows_of: str,
    shape: TableSchema,
    after: Key | NamedKeys,
    *,
    limit: int,
    types: Callable[[], Sequence[str]],
) -> tuple[str, tuple[Key, ...]]:
    """Write the query of a range; with named keys, return those looked for, as they are printed.

    `rows_of`: the table, as SQL.  `types`: of the key's columns, asked where keys are named.
    """
    if not isinstance(after, NamedKeys):
        return _select_behind(rows_of, shape, after, limit), ()
    keys = _as_printed(session, shape, after.keys[:limit], types())
    return _select_named(rows_of, shape, keys), keys


def _select_behind(rows_of: str, shape: TableSchema, after: Key, limit: int) -> str:
    """Write the query of the rows behind a key, () for the first ones, in its order."""
    key = names(shape.key)
    where = f"WHERE ({key}) > {_written(after, _literal_types(shape))} " if after else ""
    return (
        f"SELECT {names(c.name for c in shape.columns)} FROM {rows_of}"  # noqa: S608  quoted
        f" {where}ORDER BY {key} LIMIT {limit}"
    )


def _select_named(rows_of: str, shape: TableSchema, keys: Sequence[Key]) -> str:
    """Write the query of the rows of some keys: each is looked up in the key's index."""
    types = _literal_types(shape)
    same = " AND ".join(f"t.{names([name])} = v.{names([name])}" for name in shape.key)
    return (
        f"SELECT {', '.join(f't.{names([c.name])}' for c in shape.columns)}"  # noqa: S608  quoted
        f" FROM (VALUES {', '.join(_written(key, types) for key in keys)}) v ({names(shape.key)})"
        f" JOIN {rows_of} t ON {same}"
    )


def _as_printed(
    session: Asks, shape: TableSchema, keys: Sequence[Key], types: Sequence[str]
) -> tuple[Key, ...]:
    """Have the server print keys as it prints those of rows, each once.

    `types`: of the key's columns, as SQL writes them.  Raises SourceError.
    """
    if any(len(key) != len(shape.key) for key in keys):
        raise SourceError("keys are asked for that are not of this table", table=shape.id)
    rows = session.query(f"VALUES {', '.join(_written(key, types) for key in keys)}")
    return tuple(dict.fromkeys(tuple((cell or "").encode() for cell in row) for row in rows))


def _literal_types(shape: TableSchema) -> list[str | None]:
    columns = {column.name: column for column in shape.columns}
    return [_literal_type(columns[name]) for name in shape.key]


def _written(key: Key, types: Sequence[str | None]) -> str:
    """Write a key as a row of constants of these types."""
    cells = (f"{constant(k.decode())}::{t}" for k, t in zip(key, types, strict=True))
    return f"({', '.join(cells)})"
