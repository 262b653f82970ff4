"""Bytes from Kafka -> changes, by the writer's schema.

Pure: no registry and no pyspark.  The reader gives the writer's schema, or a
callable that finds it by id.

A value of `source.exact` is the source's own text, or its bytes where they are not
valid text (schemas/encodings.py), and overrides the Avro value; a column named in
`source.unsent` (or absent from `before_columns`) was not sent, whatever its
field holds.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import fastavro

from schemas.encodings import from_exact
from schemas.envelope import SOURCE_NAME, column_name, without_null
from schemas.tables import UNCHANGED
from schemas.types import AvroType, dumper
from spark_consumers.decode.rows import Rows, is_ours, make_rows, pack_plan, physical
from spark_consumers.model import Cell, Change

_FRAME: Final = struct.Struct(">bI")
FRAME_SIZE: Final = _FRAME.size  # bytes before the payload: all values of a schema share them

SchemaOf = Callable[[int], dict[str, Any]]


def split(value: bytes) -> tuple[int, memoryview]:
    """Return the schema id and the Avro bytes of a framed value; raise ValueError."""
    if len(value) < _FRAME.size or value[0]:
        raise ValueError("value does not begin with Confluent's frame: 00 and a schema id")
    _, schema_id = _FRAME.unpack_from(value)
    return schema_id, memoryview(value)[_FRAME.size :]


class RowDecoder:
    """Reads all values of one writer's schema; make one per schema id and keep it.

    fastavro reads, or refuses, what `Rows` of the native module leave.
    """

    __slots__ = ("_fields", "_native", "_schema", "_value", "columns")

    def __init__(self, writer_schema: dict[str, Any], *, native: bool = True) -> None:
        """`native`: rows are packed where this process can."""
        self._native = native and is_ours(writer_schema)
        self._schema = fastavro.parse_schema(physical(writer_schema))
        fields = self._value = value_fields(writer_schema)
        self.columns = tuple(real_name(field) for field in fields)
        self._fields = tuple(
            (field["name"], dumper(without_null(field["type"]))) for field in fields
        )

    def rows(self, schema_id: int) -> Rows:
        """Make empty rows for values that are framed with this id of the schema."""
        if not self._native:
            return make_rows(None)
        return make_rows(pack_plan(schema_id, self.columns, self._value))

    def decode(self, payload: bytes | memoryview) -> Change:
        """Read one value, without its frame; raise one of `REFUSALS` of `decode.rows`."""
        stream = io.BytesIO(payload)
        record: Any = fastavro.schemaless_reader(stream, self._schema, None)
        if stream.read(1):
            raise ValueError("value does not fill its record")
        source = record["source"]
        before, after = record["before"], record["after"]
        old = new = None
        if before is not None:
            absent = self._absent(source["before_columns"])
            old = self._cells(before, source["before_exact"], absent)
        if after is not None:
            new = self._cells(after, source["exact"], source["unsent"])
        if source["seq"] is None or source["ordinal"] is None:
            raise ValueError("record has no position: it was not written by gauss-cdc")
        return Change(source["seq"], source["ordinal"], record["op"], self.columns, old, new)

    def raw(self, payload: bytes | memoryview) -> dict[str, Any]:
        """Read one value as its Avro record, without the conversions of the table of types."""
        record: Any = fastavro.schemaless_reader(io.BytesIO(payload), self._schema, None)
        return dict(record)

    @staticmethod
    def types(writer_schema: dict[str, Any]) -> list[tuple[str, AvroType]]:
        """Field and type of each column, in the order of `columns`."""
        return [
            (field["name"], without_null(field["type"])) for field in value_fields(writer_schema)
        ]

    def _absent(self, sent: Collection[str] | None) -> list[str]:
        return [] if sent is None else [name for name in self.columns if name not in sent]

    def _correct(
        self, cells: list[Cell], exact: Mapping[str, str] | None, unsent: Iterable[str] | None
    ) -> None:
        """Put exact texts and UNCHANGED in their places."""
        for name, source in (exact or {}).items():
            cells[self.columns.index(name)] = from_exact(source)
        for name in unsent or ():
            cells[self.columns.index(name)] = UNCHANGED

    def _cells(
        self, row: Mapping[str, Any], exact: Mapping[str, str] | None, unsent: Iterable[str] | None
    ) -> list[Cell]:
        known = {*(exact or ()), *(unsent or ())}  # their Avro value may be none that dumps
        cells: list[Cell] = [
            None if row[name] is None or column in known else dump(row[name])
            for column, (name, dump) in zip(self.columns, self._fields, strict=True)
        ]
        self._correct(cells, exact, unsent)
        return cells


def value_fields(writer_schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Fields of the Value record, which is defined where `before` names it; raise ValueError."""
    named = (field["type"] for field in writer_schema["fields"] if field["name"] == "before")
    value = without_null(next(named, None))
    if not isinstance(value, dict):
        raise ValueError("not an envelope: `before` does not define the row")  # noqa: TRY004
    fields: list[dict[str, Any]] = value["fields"]
    return fields


def real_name(field: Mapping[str, Any]) -> str:
    """Return the column's name of a field."""
    avro: AvroType = without_null(field["type"])
    parameters = avro.get("connect.parameters", {}) if isinstance(avro, dict) else {}
    name: str = parameters.get(SOURCE_NAME) or column_name(field["name"])
    return name
