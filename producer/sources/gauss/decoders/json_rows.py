"""Rows of mppdb_decoding and of decode-style j: one JSON object of eight keys.

The server escapes byte by byte, whatever the encoding: in GBK and GB18030 the
second byte of a character may be a backslash, and comes doubled.  So the JSON is
read as bytes (as Latin-1, where each byte is a character), and only the strings
in it are in the database's encoding.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias

from producer.core.changes import Cells
from producer.errors import DecodeError
from producer.sources.gauss.decoders.literals import literal
from producer.sources.gauss.decoders.messages import NamedChange, NamedRow, RowShape
from producer.sources.gauss.decoders.names import QUALIFIED, Cache, reader, row_shape, unquote

_START: Final = b'{"table_name":'
_KEYS: Final = (
    *("table_name", "op_type"),
    *("columns_name", "columns_type", "columns_val"),
    *("old_keys_name", "old_keys_type", "old_keys_val"),
)
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_OPS: Final = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}

_Head: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


class JsonRows:
    """Reads JSON rows of a database in `encoding`."""

    def __init__(self, encoding: str) -> None:
        self._text = reader(encoding)
        self._tables = Cache(self._table)
        self._shapes: Cache[_Head, RowShape] = Cache(self._shape)

    @staticmethod
    def is_row(record: bytes) -> bool:
        """Say by its beginning whether a record is a row; `decode` may still refuse it."""
        return record.startswith(_START)

    def decode(self, record: bytes) -> NamedChange:
        """Decode one row, or raise DecodeError."""
        row = parse(record)
        if not isinstance(row, dict) or tuple(row) != _KEYS:
            raise DecodeError("a JSON row with unknown keys", size=len(record))
        table, op = row["table_name"], row["op_type"]
        if type(table) is not str or type(op) is not str or op not in _OPS:
            raise DecodeError("a JSON row without table or operation", size=len(record))
        new = self._row(row["columns_name"], row["columns_type"], row["columns_val"])
        old = self._row(row["old_keys_name"], row["old_keys_type"], row["old_keys_val"])
        if (new is not None and op == "DELETE") or (old is not None and op == "INSERT"):
            raise DecodeError("a JSON row with a part that its operation does not have", op=op)
        schema, name = self._tables[table]
        return NamedChange(_OPS[op], schema, name, new, old)

    def _row(self, names: object, types: object, values: object) -> NamedRow | None:
        if not isinstance(names, list) or not isinstance(types, list):
            raise DecodeError("a JSON row whose columns are not a list")
        if not isinstance(values, list) or not len(names) == len(types) == len(values):
            raise DecodeError("a JSON row with lists of different lengths")
        if not names:
            return None
        cells: Cells = []
        for value in values:
            if type(value) is not str:
                raise DecodeError("a JSON row with a value that is not a string")
            cells.append(literal(as_bytes(value)))
        try:
            shape = self._shapes[tuple(names), tuple(types)]
        except TypeError:  # lists among them: not hashable
            raise DecodeError("a JSON row with a name that is not a string") from None
        return NamedRow(shape, cells)

    def _table(self, name: str) -> tuple[str, str]:
        match = QUALIFIED.fullmatch(as_bytes(name))
        if match is None:
            raise DecodeError("a table name that is not schema.table", size=len(name))
        return self._text(unquote(match[1])), self._text(unquote(match[2]))

    def _shape(self, head: _Head) -> RowShape:
        names, types = head
        if not all(type(word) is str for word in (*names, *types)):
            raise DecodeError("a JSON row with a name that is not a string")
        return row_shape(
            tuple(self._text(unquote(as_bytes(name))) for name in names),
            (0,) * len(names),
            tuple(self._text(as_bytes(name)) for name in types),
        )


def pieces(record: bytes) -> list[bytes]:
    """Return what stands around the values of a row; a value is a string of JSON."""
    row = parse(record)
    new, old = len(row["columns_val"]), len(row["old_keys_val"])
    # Keys and strings in their order: two pairs, then three lists of each row.
    before_new = 4 + 1 + new + 1 + new + 1
    before_old = before_new + new + 1 + old + 1 + old + 1
    values = {*range(before_new, before_new + new), *range(before_old, before_old + old)}
    out, start = [], 0
    for at, string in enumerate(_STRING.finditer(record)):
        if at in values:
            out.append(record[start : string.start()])
            start = string.end()
    return [*out, record[start:]]


def parse(record: bytes) -> Any:
    """Parse JSON whose strings are bytes: characters up to U+00FF each stand for one.

    Raises DecodeError for what is no JSON, or too deep.
    """
    try:
        return json.loads(record.decode("latin-1"))
    except (ValueError, RecursionError):
        raise DecodeError("not a JSON document", size=len(record)) from None


def as_bytes(text: str) -> bytes:
    """Give the bytes that a string of `parse` stands for.

    Raises DecodeError for other characters.
    """
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        # The server escapes only control characters, and these by two digits.
        raise DecodeError("a JSON string with an invalid escape") from None
