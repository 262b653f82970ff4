r"""The rows of `COPY … TO STDOUT (FORMAT csv, FORCE_QUOTE *)`, as cells of bytes.

COPY's text form is as exact, but it escapes backslashes, and in
GBK, GB18030 and BIG5 a character may end in the byte of one.  Whether the server
doubles that byte depends on the product and on a setting of it
(copy_special_character_version), and is not visible in the stream.  A double quote
is never part of a longer character in any server encoding, so csv is the same
whether its writer counts bytes or characters.

A value is always in quotes, doubled inside; NULL is nothing at all.

>>> rows = CsvRows(3)
>>> rows.feed(b'"1",,"a ""b"" c"\n') + rows.finish()
[[b'1', None, b'a "b" c']]
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from producer.errors import DecodeError

Row: TypeAlias = list[bytes | None]

_ENOUGH_BYTES: Final = 64 << 10  # so many are split at once: one call of the regular expression
# A field with what ends it; possessive, so that no text makes it look twice.
_FIELD: Final = re.compile(rb'("[^"]*+(?:""[^"]*+)*+")?([,\n])')


class CsvRows:
    """Splits chunks into rows; the server sends a row a chunk, but that is not required."""

    __slots__ = ("_chunks", "_quotes", "_size", "_width")

    def __init__(self, width: int) -> None:
        """`width` is the number of columns that were asked for."""
        self._width = width
        self._chunks: list[bytes] = []
        self._size = self._quotes = 0

    def feed(self, chunk: bytes) -> list[Row]:
        """Take a chunk; return the complete rows once there are many."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._quotes += chunk.count(b'"')
        # Outside of quotes, behind the end of a line: the end of a row.
        if self._size < _ENOUGH_BYTES or self._quotes % 2 or not chunk.endswith(b"\n"):
            return []
        return self._cut()

    def finish(self) -> list[Row]:
        """Give the last rows; raises DecodeError if the copy ended inside of one."""
        return self._cut() if self._chunks else []

    def _cut(self) -> list[Row]:
        data = b"".join(self._chunks)
        self._chunks, self._size, self._quotes = [], 0, 0
        width = self._width
        if not width:  # a row is an empty line
            if data.strip(b"\n"):
                raise DecodeError("COPY sent unrequested columns")
            return [[] for _ in data]
        fields = _FIELD.findall(data)
        if sum(len(field) for field, _ in fields) + len(fields) != len(data):
            raise DecodeError("COPY sent an invalid row, or ended inside one")
        if len(fields) % width or any(
            (end == b"\n") != (at % width == 0) for at, (_, end) in enumerate(fields, 1)
        ):
            raise DecodeError("COPY sent a row with another number of columns", width=width)
        cells = [_value(field) for field, _ in fields]
        return [cells[at : at + width] for at in range(0, len(cells), width)]


def _value(field: bytes) -> bytes | None:
    if not field:
        return None
    value = field[1:-1]
    return value.replace(b'""', b'"') if b'"' in value else value
