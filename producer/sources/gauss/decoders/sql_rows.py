"""Rows of sql_decoding: statements.  An UPDATE is a DELETE and an INSERT in one message.

    delete from public.t where id = 1;insert into public.t values (2, 'x');

An INSERT names no columns, so its shape has none.  A DELETE without replica
identity says `where  (no-tuple-data)`.  Dropped columns leave nothing, but a
dropped last one leaves the comma before it.
"""

from __future__ import annotations

import re
from typing import Final

from producer.core.changes import Cells
from producer.errors import DecodeError
from producer.sources.gauss.decoders.literals import LITERAL, SKIPPED, cell
from producer.sources.gauss.decoders.messages import NamedChange, NamedRow, RowShape
from producer.sources.gauss.decoders.names import NAME, Cache, row_shape, unquoting
from producer.sources.gauss.decoders.tuples import qualified

_TABLE: Final = NAME + rb"\." + NAME
INSERT: Final = re.compile(rb"insert into (" + _TABLE + rb") values \(")
VALUE: Final = re.compile(LITERAL + rb"(?:, |\);)")
DELETE: Final = re.compile(rb"delete from (" + _TABLE + rb") where ")
PREDICATE: Final = re.compile(rb"(" + NAME + rb") = " + LITERAL + rb"(?: and |;)")
_WHOLE_DELETE: Final = re.compile(
    rb"delete from TABLE where (?: \(no-tuple-data\)"
    rb"|NAME = LITERAL(?: and NAME = LITERAL)*+(?: and )?);".replace(b"TABLE", _TABLE)
    .replace(b"NAME", NAME)
    .replace(b"LITERAL", SKIPPED)
)
_NO_TUPLE: Final = b" (no-tuple-data);"


class SqlRows:
    """Reads statements of a database in `encoding`."""

    def __init__(self, encoding: str) -> None:
        self._name = unquoting(encoding)
        self._tables: Cache[bytes, tuple[str, str]] = Cache(qualified(encoding))
        self._shapes = Cache(self._shape)
        # One for each number of values: rows of another number are of another shape.
        self._unnamed: Cache[int, RowShape] = Cache(lambda _: RowShape((), (), ()))

    @staticmethod
    def is_row(record: bytes) -> bool:
        """Say whether a statement of `split` is a row: INSERT or DELETE; UPDATE comes as both."""
        return record.startswith((b"insert into ", b"delete from "))

    @staticmethod
    def split(payload: bytes) -> tuple[bytes, ...]:
        """Split an UPDATE in two; return anything else unchanged."""
        if payload.startswith(b"delete from "):
            match = _WHOLE_DELETE.match(payload)
            if match is not None and match.end() < len(payload):
                return payload[: match.end()], payload[match.end() :]
        return (payload,)

    def decode(self, record: bytes) -> NamedChange:
        """Decode one statement, or raise DecodeError."""
        if (match := INSERT.match(record)) is not None:
            schema, table = self._tables[match[1]]
            return NamedChange("c", schema, table, self._values(record, match.end()), None)
        if (match := DELETE.match(record)) is not None:
            schema, table = self._tables[match[1]]
            return NamedChange("d", schema, table, None, self._predicates(record, match.end()))
        raise DecodeError("a statement that is neither INSERT nor DELETE", size=len(record))

    def _values(self, record: bytes, pos: int) -> NamedRow:
        cells: Cells = []
        while (match := VALUE.match(record, pos)) is not None:
            cells.append(cell(match, 1))
            pos = match.end()
        return NamedRow(self._unnamed[len(cells)], _closed(cells, record, pos, b");"))

    def _predicates(self, record: bytes, pos: int) -> NamedRow | None:
        if record[pos:] == _NO_TUPLE:
            return None
        names: list[bytes] = []
        cells: Cells = []
        while (match := PREDICATE.match(record, pos)) is not None:
            names.append(match[1])
            cells.append(cell(match, 2))
            pos = match.end()
        return NamedRow(self._shapes[tuple(names)], _closed(cells, record, pos, b";"))

    def _shape(self, names: tuple[bytes, ...]) -> RowShape:
        return row_shape(tuple(map(self._name, names)), (0,) * len(names), ("",) * len(names))


def _closed(cells: Cells, record: bytes, pos: int, ending: bytes) -> Cells:
    """Check that a list of values ends where its statement does."""
    # A dropped last column leaves a separator at the end.
    is_ended = pos == len(record) and record.endswith(ending)
    if not cells or not (is_ended or record[pos:] == ending):
        raise DecodeError("a statement with an unexpected end", size=len(record))
    return cells
