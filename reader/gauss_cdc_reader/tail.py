"""What stands behind a value's rows, by one pattern: field by field it takes longer than the rows.

Pure.  The pattern is of an envelope as this release writes it, with the texts (database, schema,
table) of the value before.  What it does not fit fastavro reads.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastavro

from schemas.envelope import without_null
from spark_consumers.decode.rows import physical

_NUMBER: Final = rb"[\x80-\xff]{0,8}[\x00-\x7f]"  # of 63 bits: all that is written
_FIRST: Final = b"\x00"  # of two branches of a union
_SECOND: Final = b"\x02"
_LETTER: Final = b"\x02(.)"  # a text of one
_SHORT: Final = rb"(?:\x00|\x02([\x00-\x7e])([ -~]*))"  # null, or twice the length, and a text
_PLACE: Final = frozenset({"epoch", "seq", "ordinal"})


class RowTail(NamedTuple):
    """Where a change stands, and what was sent of its rows."""

    op: str
    epoch: int | None
    seq: int | None
    ordinal: int | None
    exact: Mapping[str, str] | None = None
    unsent: Sequence[str] | None = None
    before_exact: Mapping[str, str] | None = None
    before_columns: Sequence[str] | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> RowTail:
        """Take it from an envelope."""
        source = record["source"]
        return cls(record["op"], *map(source.__getitem__, cls._fields[1:]))


class TailReader:
    """Reads it from values of one schema."""

    def __init__(self, fields: Sequence[dict[str, Any]]) -> None:
        """`fields` of the envelope, from `source` on, as this release writes them."""
        record = {"type": "record", "name": "Tail", "fields": physical(fields)}
        self._fields, self._schema = fields, fastavro.parse_schema(record)
        self._texts: dict[str, str] = {}
        self._pattern: re.Pattern[bytes] | None = None
        self._commit, self._epoch, self._seq = (b"", b""), 0, 0  # of the row before, and as numbers

    def __call__(self, stream: io.BytesIO) -> RowTail:
        """Read all that is left; raise one of `REFUSALS` of `decode.rows`."""
        if self._pattern is not None:
            found = self._pattern.fullmatch(stream.getvalue(), stream.tell())
            if found is not None:
                size, text, epoch, seq, ordinal, op = found.groups()
                if (epoch, seq) != self._commit:
                    self._commit = epoch, seq
                    self._epoch, self._seq = _number(epoch), _number(seq)
                if size is None or size[0] == 2 * len(text):
                    return RowTail(op.decode(), self._epoch, self._seq, _number(ordinal))
        record: Any = fastavro.schemaless_reader(stream, self._schema, None)
        if stream.read(1):
            raise ValueError("value does not fill its record")
        source = record["source"]
        texts = {name: source[name] for name in self._texts or _texts(self._fields[0])}
        if texts != self._texts:
            self._texts = texts
            self._pattern = re.compile(b"".join(self._parts()), re.DOTALL)
        return RowTail.of(record)

    def _parts(self) -> Iterator[bytes]:
        for field in (*self._fields[0]["type"]["fields"], *self._fields[1:]):
            name, kind = field["name"], field["type"]
            typed: Any = without_null(kind)
            if name in self._texts:
                yield _text(self._texts[name])
            elif name == "op":
                yield _LETTER
            elif kind == "long":
                yield _NUMBER
            elif name in _PLACE:
                yield _SECOND + b"(" + _NUMBER + b")"
            elif typed == "long":
                yield b"(?:" + _FIRST + b"|" + _SECOND + _NUMBER + b")"
            elif typed == "string":
                yield _SHORT
            elif kind[0] == "null":
                yield _FIRST
            else:  # one of several words
                words = typed["connect.parameters"]["allowed"].split(",")
                yield _FIRST + b"(?:" + b"|".join(map(_text, words)) + b")"


def _texts(source: Mapping[str, Any]) -> list[str]:
    """Return the fields of `source` that are the same in all values, but for another release's."""
    return [field["name"] for field in source["type"]["fields"] if field["type"] == "string"]


def _text(text: str) -> bytes:
    """Return the pattern of a text as Avro has it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "string", text)
    return re.escape(out.getvalue())


def _number(data: bytes) -> int:
    number = 0
    for byte in reversed(data):
        number = number << 7 | byte & 0x7F
    return number >> 1 ^ -(number & 1)
