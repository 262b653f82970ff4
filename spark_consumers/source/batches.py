"""The records of a task -> batches of Arrow, in the order of the records.

A fetch fills `Batches` as it fills `kafka.content.Content`.  Where the native part was built,
records become columns straight from their bytes.  Those that it leaves are rows of `ChangeRows`,
which get their places between the others in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from schemas.envelope import without_null
from spark_consumers import native
from spark_consumers.decode import FRAME_SIZE, real_name, value_fields
from spark_consumers.decode.rows import PackPlan, can_read, is_ours, pack_plan
from spark_consumers.dialects.spark_types import SparkType, spark_type
from spark_consumers.kafka.content import undecodable
from spark_consumers.kafka.history import TableNote
from spark_consumers.source.rows import KINDS, ChangeRows

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_consumers.native._native import ArrowColumns, ArrowRows

_ROWS: Final = 10_000  # of a batch, about
_BYTES: Final = 64 << 20  # of values, after which it is closed

# Arrow's type -> how native code lays it out.
_LAYOUTS: Final = {
    **dict.fromkeys(("string", "binary"), "bytes"),
    **{name: name for name in ("int16", "int32", "int64")},
    "float": "float32",
    "double": "float64",
    "bool": "bits",
    "date32[day]": "int32",
}
# What native code reads -> the layouts that it writes.
_FITS: Final = {
    "int": ("int16", "int32", "int64"),
    "float4": ("float32", "float64"),
    "float8": ("float64",),
    "bool": ("bits",),
    "decimal": ("decimal128",),
    **dict.fromkeys(("millis", "zoned"), ("int64",)),
    **dict.fromkeys(("bytes", "text"), ("bytes",)),
}


class Batches:
    """Rows of a task in the making."""

    def __init__(
        self,
        wanted: Sequence[str],
        schema: pa.Schema,
        schemas: Mapping[int, dict[str, Any]],
        *,
        native_parts: bool = True,
    ) -> None:
        """`wanted`: names of the table's columns in `schema`; ours stand behind them."""
        self._wanted, self._schema = wanted, schema
        self._rows = ChangeRows(wanted, schema)
        for schema_id, writer in schemas.items():
            self._rows.know(schema_id, writer)
        self._places: list[int] = []  # of rows by Python: how many native ones are before
        self._weight = 0  # of values that Python read
        self._done: list[pa.RecordBatch] = []
        self._columns: ArrowColumns | None = None
        self._framed: dict[bytes, ArrowRows] = {}
        if native_parts and native.IS_BUILT:
            self._columns, self._framed = _arrow_rows(wanted, schema, schemas)

    def rows_for(self, topic: str, partition: int, offset: int, value: bytes) -> ArrowRows | None:
        """Return what takes values that begin as this one does; None: Python reads them."""
        del topic, partition, offset
        return self._framed.get(value[:FRAME_SIZE])

    def put(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Take one record as Python reads it."""
        if self.are_full:  # also of what 32-bit offsets reach, where native code stops
            self._close()
        with undecodable(topic, partition, offset):
            self._rows.add(value)
        self._weight += len(value)
        self._note_places()

    def take(self, topic: str, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Take (partition, offset, value) of values that begin alike."""
        rows = self.rows_for(topic, *records[0])
        values, at = [value for _, _, value in records], 0
        while (at := at if rows is None else rows.take(values, at)) < len(values):
            self.put(topic, *records[at])
            at += 1

    def note(self, note: TableNote) -> None:
        """Take something that is not a change of a row."""
        self._rows.note(note)
        self._note_places()

    @property
    def are_full(self) -> bool:
        """Whether it is time to take them."""
        columns = self._columns
        held = 0 if columns is None else columns.held()
        count = 0 if columns is None else len(columns)
        return (
            bool(self._done) or count + len(self._rows) >= _ROWS or max(held, self._weight) > _BYTES
        )

    def taken(self) -> list[pa.RecordBatch]:
        """Return the rows so far, and begin anew."""
        self._close()
        done, self._done = self._done, []
        return done

    def _note_places(self) -> None:
        count = 0 if self._columns is None else len(self._columns)
        self._places += [count] * (len(self._rows) - len(self._places))

    def _close(self) -> None:
        import pyarrow as pa  # noqa: PLC0415  on executors

        places, self._places, self._weight = self._places, [], 0
        parts = []
        if self._columns is not None and len(self._columns):
            parts.append(_batch(self._columns, self._wanted, self._schema))
        if places:
            parts.append(self._rows.taken())
        if len(parts) > 1:
            order, at = list[int](), 0
            for number, place in enumerate(places):
                order += (*range(at, place), parts[0].num_rows + number)
                at = place
            order += range(at, parts[0].num_rows)
            parts = pa.Table.from_batches(parts).take(order).combine_chunks().to_batches()
        self._done += parts


@dataclass(frozen=True, slots=True)
class _Writer:
    """How the columns of one writer's schema are read."""

    plan: PackPlan
    types: Mapping[str, SparkType]

    @classmethod
    def of(cls, schema_id: int, schema: dict[str, Any]) -> _Writer:
        fields = value_fields(schema)
        types = {real_name(one): spark_type(without_null(one["type"])) for one in fields}
        return cls(pack_plan(schema_id, tuple(types), fields), types)

    def way(self, column: str, kind: pa.DataType) -> str:
        """Return how native code reads a column into Arrow's type; "": it does not."""
        at = self.plan.columns.index(column)
        cell, way = self.plan.cells[at], self.types[column].native
        can = bool(cell.opcode) if way == "text" else can_read(way, cell.kind)
        if way == "decimal" and str(kind).startswith("decimal128"):
            can = can and cell.scale == kind.scale
        return way if can and _layout(kind)[0] in _FITS[way] else ""

    def rows(self, wanted: Sequence[str], ways: Mapping[str, bool], into: ArrowColumns) -> Any:
        """Return what takes its values; `ways`: wanted column -> whether it is native."""
        cells = tuple(
            replace(cell, dump=kind.value)
            for cell, kind in zip(self.plan.cells, self.types.values(), strict=True)
        )
        places = {name: at for at, name in enumerate(wanted)}
        return native.arrow_rows(
            replace(self.plan, cells=cells),
            [
                (places[name], kind.native if ways[name] else "")
                if name in places
                else (-1, cell.kind)
                for (name, kind), cell in zip(self.types.items(), cells, strict=True)
            ],
            into,
        )


def _arrow_rows(
    wanted: Sequence[str], schema: pa.Schema, schemas: Mapping[int, dict[str, Any]]
) -> tuple[ArrowColumns, dict[bytes, ArrowRows]]:
    """Return native columns, and what fills them, by the frames of values.

    A column that one of the writers has in a way that native code does not read is of objects.
    """
    writers = [_Writer.of(number, one) for number, one in schemas.items() if is_ours(one)]
    kinds = dict(zip(wanted, schema.types, strict=False))
    ways = {
        name: all(one.way(name, kind) for one in writers if name in one.types)
        for name, kind in kinds.items()
    }
    columns = native.arrow_columns(
        [_layout(kind) if ways[name] else ("", 0) for name, kind in kinds.items()]
    )
    return columns, {one.plan.frame: one.rows(wanted, ways, columns) for one in writers}


def _layout(kind: pa.DataType) -> tuple[str, int]:
    """Return how native code lays out Arrow's type, or "", and what its decimals stay below."""
    name = str(kind)
    if name.startswith("decimal128"):
        return "decimal128", 10**kind.precision
    return "int64" if name.startswith("timestamp[us") else _LAYOUTS.get(name, ""), 0


def _batch(columns: ArrowColumns, wanted: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of native columns, and begin anew."""
    import pyarrow as pa  # noqa: PLC0415  on executors

    count = len(columns)
    found, patterns = columns.taken()

    def array(kind: pa.DataType, of: Any) -> pa.Array:
        if isinstance(of, list):
            return pa.array(of, kind)
        buffers = [None if one is None else pa.py_buffer(one) for one in of]
        return pa.Array.from_buffers(kind, count, buffers)

    *own, change, version, time, ordinal, unsent, exact = schema.types
    kind, *numbers, lacks = found[len(wanted) :]
    names = [[name for name, lacks in zip(wanted, one, strict=True) if lacks] for one in patterns]
    arrays = [
        *map(array, own, found),
        pa.array(KINDS, change).take(array(pa.int8(), kind)),
        *map(array, (version, time, ordinal), numbers),
        pa.array(names, unsent).take(array(pa.int32(), lacks)),
        pa.nulls(count, exact),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
