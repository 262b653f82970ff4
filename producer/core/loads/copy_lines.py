r"""Lines of COPY's text format, as rows.

Format: PostgreSQL manual, COPY, "Text Format": cells between tabs, `\N` is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from producer.core.changes import Cells
from producer.errors import DecodeError
from schemas.tables import TableId

_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class CopyLines(Sequence[Cells]):
    """Rows whose cells are made when they are asked for: native code needs none."""

    __slots__ = ("_table", "_width", "lines")

    def __init__(self, lines: list[bytes], width: int, table: TableId) -> None:
        """`lines`: without their ends; `width`: columns of `table`."""
        self.lines, self._width, self._table = lines, width, table

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Cells]:
        return map(self._cells, self.lines)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return CopyLines(self.lines[at], self._width, self._table)
        return self._cells(self.lines[at])

    def some(self, places: Sequence[int]) -> CopyLines:
        """Rows at some places."""
        return CopyLines([self.lines[at] for at in places], self._width, self._table)

    def _cells(self, line: bytes) -> Cells:
        if not self._width:
            return []
        cells: Cells = [
            None if field == b"\\N" else _unescape(field) if b"\\" in field else field
            for field in line.split(b"\t")
        ]
        if len(cells) != self._width:
            raise DecodeError("COPY sent a row with another number of columns", table=self._table)
        return cells


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), field)
