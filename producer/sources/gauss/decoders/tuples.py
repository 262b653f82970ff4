"""Rows of test_decoding and of decode-style t: `name[type]:literal` for each column.

    table public.t: UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2 v[text]:'it''s'
    table public t UPDATE: …

The second is style t.  It separates schema and table by a blank and quotes
neither, so that `table a b c INSERT:` has two readings.  We take the first
blank (schemas with blanks are rarer than tables with them), which loses nothing:
`readings` returns all, and the known tables decide which is meant.

A row without columns is refused: it could be the beginning of any other.  An old one
is not in test_decoding: PostgreSQL leaves out its NULLs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from producer.core.changes import Cells
from producer.errors import DecodeError
from producer.sources.gauss.decoders.literals import LITERAL, SKIPPED, cell
from producer.sources.gauss.decoders.messages import NamedChange, NamedRow, NamedTruncate, RowShape
from producer.sources.gauss.decoders.names import (
    NAME,
    QUALIFIED,
    Cache,
    reader,
    row_shape,
    unquoting,
)

# A type may be quoted, an array, and of several words.
_TYPE: Final = rb'(?:"(?:[^"]++|"")++"|\[\]|[^"\[\]])++'
COLUMN: Final = re.compile(rb" (" + NAME + rb"\[" + _TYPE + rb"\]):" + LITERAL)
# The text after the operation of a row that ends within a quoted value, name or type.
_QUOTE: Final = rb'"(?:[^"]++|"")*+'
_UNFINISHED: Final = re.compile(
    rb"(?: old-key:| new-tuple:| NAME\[TYPE\]:LITERAL)*+"
    rb" (?:QUOTE|NAME\[(?:TYPE)?+QUOTE|NAME\[TYPE\]:'(?:[^']++|'')*+)\Z".replace(b"QUOTE", _QUOTE)
    .replace(b"NAME", NAME)
    .replace(b"TYPE", _TYPE)
    .replace(b"LITERAL", SKIPPED)
)
_HEAD: Final = re.compile(rb"(" + NAME + rb")\[(.*)\]", re.DOTALL)
DOTTED: Final = re.compile(
    rb"table ((?:" + NAME + rb")\.(?:" + NAME + rb")): (INSERT|UPDATE|DELETE):"
)
SPACED: Final = re.compile(rb" (INSERT|UPDATE|DELETE):")
_EMPTIED: Final = re.compile(
    rb"table ((?:NAME\.NAME)(?:, (?:NAME\.NAME))*+): TRUNCATE:"
    rb"(?: \(no-flags\)|( restart_seqs)?( cascade)?)".replace(b"NAME", NAME)
)
_OPS: Final = {b"INSERT": "c", b"UPDATE": "u", b"DELETE": "d"}
_NO_TUPLE: Final = b" (no-tuple-data)"
_OLD, _NEW = b" old-key:", b" new-tuple:"
_EMPTY: Final = RowShape((), (), ())
# "table ", two names of at most 63 bytes (NAMEDATALEN) and a blank; a tag is not behind it.
FARTHEST: Final = 6 + 64 + 64


class DottedRows:
    """Rows of test_decoding: `table q(schema).q(table): `."""

    def __init__(self, encoding: str) -> None:
        self._tuples = Tuples(encoding)
        self._tables: Cache[bytes, tuple[str, str]] = Cache(qualified(encoding))

    @staticmethod
    def is_row(record: bytes) -> bool:
        """Say whether a record is a row; TRUNCATE begins as one, and is none."""
        # A row ends with a literal, so these endings are TRUNCATE's alone.
        return record.startswith(b"table ") and not record.endswith(
            (b" TRUNCATE: (no-flags)", b" restart_seqs", b" cascade")
        )

    def decode(self, record: bytes) -> NamedChange:
        """Decode one row, or raise DecodeError."""
        match = DOTTED.match(record)
        if match is None:
            raise DecodeError("a row without table and operation", size=len(record))
        found = self._tuples.read(record, match.end(), match[2], skips_nulls=True)
        if found is None:
            raise DecodeError("a row with an unexpected end", size=len(record))
        schema, table = self._tables[match[1]]
        return NamedChange(_OPS[match[2]], schema, table, *found)


class SpacedRows:
    """Rows of decode-style t: `table schema table `, names as they are in the catalog."""

    def __init__(self, encoding: str) -> None:
        self._tuples = Tuples(encoding)
        self._text = reader(encoding)
        self._tables = Cache(self._table)

    @staticmethod
    def is_row(record: bytes) -> bool:
        """Say by its beginning whether a record is a row; `decode` may still refuse it."""
        return record.startswith(b"table ")

    def decode(self, record: bytes) -> NamedChange:
        """Decode one row, or raise DecodeError."""
        # A name may contain what looks like a tag.  The right one is the first that leads to a
        # row, unless one before it leads into an unterminated quote: then the row is truncated,
        # and its values contain what looks like a tag.
        for match in SPACED.finditer(record, 6, FARTHEST + 8):
            found = self._tuples.read(record, match.end(), match[1])
            if found is not None:
                schema, table = self._tables[record[6 : match.start()]]
                return NamedChange(_OPS[match[1]], schema, table, *found)
            if _UNFINISHED.match(record, match.end()) is not None:
                break
        raise DecodeError("a row without table, operation or all its columns", size=len(record))

    def _table(self, raw: bytes) -> tuple[str, str]:
        middle = raw.find(b" ", 1)
        if middle < 0:
            raise DecodeError("a row without schema and table", size=len(raw))
        return self._text(raw[:middle]), self._text(raw[middle + 1 :])


class Tuples:
    """Reads the columns after the operation, for both kinds of rows."""

    def __init__(self, encoding: str) -> None:
        self._name, self._text = unquoting(encoding), reader(encoding)
        self._shapes = Cache(self._shape)

    def read(
        self, record: bytes, pos: int, op: bytes, *, skips_nulls: bool = False
    ) -> tuple[NamedRow | None, NamedRow | None] | None:
        """Read the new and the old row from `pos` to the end; None if they do not fill it.

        `skips_nulls`: PostgreSQL prints no NULLs in old rows, and nothing of one that has no
        other values.
        """
        new = old = None
        if skips_nulls and op == b"DELETE" and pos == len(record):
            return None, NamedRow(_EMPTY, [])
        if op == b"UPDATE" and record.startswith(_OLD, pos):
            old, pos = self._tuple(record, pos + len(_OLD))
            if skips_nulls and old is None:
                old = NamedRow(_EMPTY, [])
            if old is None or not record.startswith(_NEW, pos):
                return None
            pos += len(_NEW)
        if record[pos:] == _NO_TUPLE:
            return new, old
        row, pos = self._tuple(record, pos)
        if row is None or pos != len(record):
            return None
        return (None, row) if op == b"DELETE" else (row, old)

    def _tuple(self, record: bytes, pos: int) -> tuple[NamedRow | None, int]:
        heads: list[bytes] = []
        cells: Cells = []
        match = COLUMN.match(record, pos)
        while match is not None:
            heads.append(match[1])
            cells.append(cell(match, 2))
            pos = match.end()
            match = COLUMN.match(record, pos)
        if not heads:
            return None, pos
        return NamedRow(self._shapes[tuple(heads)], cells), pos

    def _shape(self, heads: tuple[bytes, ...]) -> RowShape:
        names, types = [], []
        for head in heads:
            match = _HEAD.fullmatch(head)
            assert match is not None  # it is part of COLUMN
            names.append(self._name(match[1]))
            types.append(self._text(match[2]))
        return row_shape(tuple(names), (0,) * len(heads), tuple(types))


def pieces(record: bytes) -> list[bytes] | None:
    """Return what stands around the literals of a row of style t; None for an unusual one."""
    match = SPACED.search(record, 6)
    assert match is not None  # it was decoded
    out, start, pos = [], 0, match.end()
    while pos < len(record):
        for word in (_OLD, _NEW):
            if record.startswith(word, pos):
                pos += len(word)
        column = COLUMN.match(record, pos)
        if column is None:
            return None
        out.append(record[start : column.end(1) + 1])
        start = pos = column.end()
    return [*out, b""]


def qualified(encoding: str) -> Callable[[bytes], tuple[str, str]]:
    """Return the function that reads `q(schema).q(table)`; it raises DecodeError."""
    name = unquoting(encoding)

    def read(raw: bytes) -> tuple[str, str]:
        match = QUALIFIED.fullmatch(raw)
        if match is None:
            raise DecodeError("a table name that is not schema.table", size=len(raw))
        return name(match[1]), name(match[2])

    return read


def emptied(record: bytes, encoding: str) -> NamedTruncate | None:
    """Decode a TRUNCATE line; None for another line."""
    match = _EMPTIED.fullmatch(record)
    if match is None or record.endswith(b":"):
        return None
    read = qualified(encoding)
    tables = tuple(read(found[0]) for found in QUALIFIED.finditer(match[1]))
    return NamedTruncate(tables, cascade=bool(match[3]), restart_identity=bool(match[2]))


def readings(schema: str, table: str) -> tuple[tuple[str, str], ...]:
    """Return every (schema, table) that decode-style t prints like this one.

    >>> readings("a", "b c")
    (('a', 'b c'), ('a b', 'c'))
    """
    whole = f"{schema} {table}"
    blanks = [at for at in range(1, len(whole) - 1) if whole[at] == " "]
    return tuple((whole[:at], whole[at + 1 :]) for at in blanks)
