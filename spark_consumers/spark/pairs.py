"""Records of a table -> typed changes, as Arrow: one row for each change, with both of its images.

`frames.changes_frame` says what the columns mean.  Values come from the one table of types
(dialects/spark_types.py).  `PairRows` is what native code is measured by, and reads what that
leaves (`batches`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_consumers import native
from spark_consumers.decode import FRAME_SIZE, RowDecoder, split
from spark_consumers.errors import StreamError
from spark_consumers.spark.batches import Batches, Writers, array
from spark_consumers.spark.given import arrow_schema, struct
from spark_consumers.spark.shapes import Cell, cells_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

OPS: Final = ("c", "r", "u", "d", "t")

_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
# Names of types in Spark's DDL -> as `StructType.add` knows them.
_NAMES: Final = {
    "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double",
    "BOOLEAN": "boolean", "STRING": "string", "BINARY": "binary", "DATE": "date",
    "TIMESTAMP": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz",
}  # fmt: skip
# Layouts of what stands behind the new image's columns; the old one's have the first of them.
_OURS: Final = ("bits", "int8", *["int64"] * 8, "int32", "int32", "int32")


def change_schema(types: Mapping[str, str]) -> StructType:
    """Return Spark's schema of the changes of a table with columns of these types."""
    from pyspark.sql.types import ArrayType, MapType, StringType  # noqa: PLC0415

    row, names, texts = (
        struct(**{name: _type(kind) for name, kind in types.items()}),
        ArrayType(StringType()),
        MapType(StringType(), StringType()),
    )
    return struct(
        seq="long", ordinal="long", op="string", before=row, after=row,
        unsent=names, exact=texts, before_exact=texts, before_columns=names,
        csn="long", lsn="long", committed_at="timestamp", xid="long", epoch="long",
        partition="integer", offset="long",
    )  # fmt: skip


def _type(name: str) -> DataType | str:
    """Return a type of Spark by its name in DDL, which only a JVM could read."""
    from pyspark.sql.types import ArrayType  # noqa: PLC0415

    if name.startswith("ARRAY<"):
        item = _type(name[len("ARRAY<") : -1])
        return ArrayType(struct(of=item)["of"].dataType)
    if name.startswith("STRUCT<"):
        parts = (part.split(":") for part in name[len("STRUCT<") : -1].split(","))
        return struct(**{part: _type(kind) for part, kind in parts})
    return name.lower() if _DECIMAL.fullmatch(name) else _NAMES[name]


def pair_batches(
    schema: StructType, schemas: Mapping[int, dict[str, Any]], *, native_parts: bool = True
) -> Batches[PairRows]:
    """Make empty batches of a `change_schema`, for records of these writers' schemas."""
    shape = arrow_schema(schema)
    plain = PairRows(shape)
    for schema_id, writer in schemas.items():
        plain.know(schema_id, writer)
    is_native = native_parts and native.IS_BUILT
    return Batches(plain, _NativePairs(shape, schemas) if is_native else None)


@dataclass(slots=True)
class PairRows:
    """Columns of changes in the making, as Python reads them."""

    schema: pa.Schema
    _images: tuple[_Image, _Image] = field(init=False)
    _ours: dict[str, list[Any]] = field(init=False)
    _readers: dict[int, _RecordReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kind = self.schema.field("after").type
        self._images = _Image(kind), _Image(kind)
        self._ours = {name: [] for name in self.schema.names if name not in ("before", "after")}

    def know(self, schema_id: int, schema: dict[str, Any]) -> None:
        """Make ready for records of a schema."""
        cells, (image, _) = cells_of(schema), self._images
        wanted = [cells.get(name) for name in image.names]
        self._readers[schema_id] = _RecordReader(RowDecoder(schema), cells, wanted)

    def add(self, partition: int, offset: int, value: bytes) -> None:
        """Add the row of a record; raise ValueError, LookupError, EOFError or StreamError."""
        schema_id, payload = split(value)
        if (reader := self._readers.get(schema_id)) is None:
            raise StreamError(
                "a record names a schema that its cut does not name",
                partition=partition,
                offset=offset,
            )
        record = reader.decoder.raw(payload)
        source = record["source"]
        unsent, sent = (reader.ordered(source[name]) for name in ("unsent", "before_columns"))
        if source["seq"] is None or source["ordinal"] is None:
            raise ValueError("record has no position: it was not written by gauss-cdc")
        lacks = () if sent is None else reader.cells.keys() - {*sent}
        old, new = self._images
        ours = (
            source["seq"],
            source["ordinal"],
            record["op"],
            unsent,
            new.put(reader, record["after"], source["exact"], unsent or ()),
            old.put(reader, record["before"], source["before_exact"], tuple(lacks)),
            sent,
            *(source[name] for name in ("csn", "lsn", "ts_us", "txId", "epoch")),
            partition,
            offset,
        )
        for column, cell in zip(self._ours.values(), ours, strict=True):
            column.append(cell)

    def taken(self) -> pa.RecordBatch:
        """Return the rows so far, and begin anew."""
        import pyarrow as pa  # noqa: PLC0415  on executors

        old, new = (image.taken() for image in self._images)
        arrays = {"before": old, "after": new}
        for name, values in self._ours.items():
            arrays[name] = pa.array(values, self.schema.field(name).type)
            values.clear()
        found = [arrays[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(found, schema=self.schema)

    def __len__(self) -> int:
        return len(self._ours["offset"])


@dataclass(frozen=True, slots=True)
class _RecordReader:
    """What reads the records of one schema."""

    decoder: RowDecoder
    cells: Mapping[str, Cell]  # all
    wanted: Sequence[Cell | None]  # by wanted columns

    def ordered(self, names: Sequence[str] | None) -> list[str] | None:
        """Return names of columns in the order of the columns."""
        return None if names is None else [name for name in self.cells if name in names]


class _Image:
    """Old or new rows in the making."""

    def __init__(self, kind: pa.StructType) -> None:
        self._kind = kind
        self.names = [one.name for one in kind]
        self._columns: list[list[Any]] = [[] for _ in self.names]
        self._are_there: list[bool] = []

    def put(
        self,
        reader: _RecordReader,
        row: Mapping[str, Any] | None,
        exact: Mapping[str, str] | None,
        lacks: Sequence[str],
    ) -> list[tuple[str, str]] | None:
        """Put an image; return the texts of which Spark does not hold all."""
        texts, hidden = exact or {}, {*lacks}
        for column, cell in zip(self._columns, reader.wanted, strict=True):
            column.append(None if row is None or cell is None else cell.of(row, texts, hidden))
        self._are_there.append(row is not None)
        left = [
            (name, text) for name, text in texts.items() if not reader.cells[name].type.holds(text)
        ]
        return left or None

    def taken(self) -> pa.Array:
        """Return the images so far, and begin anew."""
        import pyarrow as pa  # noqa: PLC0415  on executors

        cells = [
            pa.array(values, one.type)
            for values, one in zip(self._columns, self._kind, strict=True)
        ]
        there = pa.array(self._are_there, pa.bool_())
        for values in (*self._columns, self._are_there):
            values.clear()
        return _images(self._kind, len(there), there.buffers()[1], cells)


class _NativePairs:
    """Implements `batches.NativeRows`."""

    def __init__(self, shape: pa.Schema, schemas: Mapping[int, dict[str, Any]]) -> None:
        self._shape, self._kind = shape, shape.field("after").type
        writers = Writers({one.name: one.type for one in self._kind}, schemas)
        self._new = new = writers.columns(_OURS)
        self._old = old = writers.columns(_OURS[:1])
        self.of_frames = writers.rows(lambda plan, ways: native.pair_rows(plan, ways, new, old))

    def held(self) -> int:
        return max(self._new.held(), self._old.held())

    def __len__(self) -> int:
        return len(self._new)

    def taken(self) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415  on executors

        count, width = len(self._new), len(self._kind)
        (new, patterns), (old, _) = self._new.taken(), self._old.taken()
        op, *numbers, unsent, sent, partition = new[width + 1 :]
        types = {one.name: one.type for one in self._shape}
        order = ("seq", "ordinal", "csn", "lsn", "committed_at", "xid", "epoch", "offset")
        names = pa.array(map(self._named, patterns), types["unsent"])
        arrays = {
            "before": self._images(count, old),
            "after": self._images(count, new),
            "op": pa.array(OPS, types["op"]).take(array(pa.int8(), count, op)),
            "unsent": names.take(array(pa.int32(), count, unsent)),
            "before_columns": names.take(array(pa.int32(), count, sent)),
            "partition": array(pa.int32(), count, partition),
            **{n: array(types[n], count, one) for n, one in zip(order, numbers, strict=True)},
            **{n: pa.nulls(count, types[n]) for n in ("exact", "before_exact")},
        }
        found = [arrays[name] for name in self._shape.names]
        return pa.RecordBatch.from_arrays(found, schema=self._shape)

    def _named(self, pattern: bytes) -> list[str]:
        """Return the columns of a writer that a pattern names, by its frame and a byte for each."""
        columns = self.of_frames[pattern[:FRAME_SIZE]].columns
        return [n for n, is_named in zip(columns, pattern[FRAME_SIZE:], strict=True) if is_named]

    def _images(self, count: int, found: Sequence[Any]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415  on executors

        cells = [array(one.type, count, of) for one, of in zip(self._kind, found, strict=False)]
        return _images(self._kind, count, pa.py_buffer(found[len(cells)][1]), cells)


def _images(
    kind: pa.StructType, count: int, are_there: pa.Buffer, cells: Sequence[pa.Array]
) -> pa.Array:
    """Return rows of which some are NULL."""
    import pyarrow as pa  # noqa: PLC0415  on executors

    return pa.Array.from_buffers(kind, count, [are_there], children=list(cells))
