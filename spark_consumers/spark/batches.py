"""The records of a task -> batches of Arrow, in the order of the records.

A fetch fills `Batches` as it fills `kafka.content.Content`.  Where the native part was built,
records become columns straight from their bytes.  Those that it leaves are rows of Python, which
get their places between the others in the end.  What a row is, and which columns of ours stand
beside the table's, is of no concern here: `source.batches` has a row for each image of a row,
`pairs` one for each change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from spark_consumers import native
from spark_consumers.decode import FRAME_SIZE, value_fields
from spark_consumers.decode.rows import PackPlan, can_read, is_ours, pack_plan
from spark_consumers.dialects.spark_types import SparkType
from spark_consumers.kafka.content import undecodable
from spark_consumers.spark.shapes import cells_of

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


class PythonRows(Protocol):
    """Rows that Python reads, one record after the other."""

    def add(self, partition: int, offset: int, value: bytes, /) -> None:
        """Add the rows of a record; raise one of `REFUSALS` of `decode.rows`."""

    def taken(self) -> pa.RecordBatch:
        """Return the rows so far, and begin anew."""

    def __len__(self) -> int: ...


class NativeRows(Protocol):
    """Rows that native code reads."""

    @property
    def of_frames(self) -> Mapping[bytes, ArrowRows]:
        """What takes values, by their frames."""

    def held(self) -> int:
        """Bytes of values that have no fixed size."""

    def taken(self) -> pa.RecordBatch:
        """Return the rows so far, and begin anew."""

    def __len__(self) -> int: ...


P = TypeVar("P", bound=PythonRows)


class Batches(Generic[P]):
    """Rows of a task in the making."""

    def __init__(self, plain: P, natively: NativeRows | None) -> None:
        """`natively`: None where the native part is not there, or not to be used."""
        self._plain, self._native = plain, natively
        self._places: list[int] = []  # of rows by Python: how many native ones are before
        self._weight = 0  # of values that Python read
        self._done: list[pa.RecordBatch] = []

    def rows_for(self, topic: str, partition: int, offset: int, value: bytes) -> ArrowRows | None:
        """Return what takes values that begin as this one does; None: Python reads them."""
        del topic, partition, offset
        return None if self._native is None else self._native.of_frames.get(value[:FRAME_SIZE])

    def put(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Take one record as Python reads it."""
        if self.are_full:  # also of what 32-bit offsets reach, where native code stops
            self._close()
        with undecodable(topic, partition, offset):
            self._plain.add(partition, offset, value)
        self._weight += len(value)
        self._note_places()

    def take(self, topic: str, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Take (partition, offset, value) of values that begin alike."""
        rows, at = self.rows_for(topic, *records[0]), 0
        while (at := at if rows is None else rows.take(records, at)) < len(records):
            self.put(topic, *records[at])
            at += 1

    def let_add(self, add: Callable[[P], None]) -> None:
        """Let rows of Python be added that are of no record."""
        add(self._plain)
        self._note_places()

    @property
    def are_full(self) -> bool:
        """Whether it is time to take them."""
        natively = self._native
        held, count = (0, 0) if natively is None else (natively.held(), len(natively))
        return (
            bool(self._done)
            or count + len(self._plain) >= _ROWS
            or max(held, self._weight) > _BYTES
        )

    def taken(self) -> list[pa.RecordBatch]:
        """Return the rows so far, and begin anew."""
        self._close()
        done, self._done = self._done, []
        return done

    def _note_places(self) -> None:
        count = 0 if self._native is None else len(self._native)
        self._places += [count] * (len(self._plain) - len(self._places))

    def _close(self) -> None:
        import pyarrow as pa  # noqa: PLC0415  on executors

        places, self._places, self._weight = self._places, [], 0
        parts = []
        if self._native is not None and len(self._native):
            parts.append(self._native.taken())
        if places:
            parts.append(self._plain.taken())
        if len(parts) > 1:
            order, at = list[int](), 0
            for number, place in enumerate(places):
                order += (*range(at, place), parts[0].num_rows + number)
                at = place
            order += range(at, parts[0].num_rows)
            parts = pa.Table.from_batches(parts).take(order).combine_chunks().to_batches()
        self._done += parts


# What reads values, by its plan, by the ways of its columns, into columns.
Make = Callable[[Any, "list[tuple[int, str]]"], "ArrowRows"]


@dataclass(frozen=True, slots=True)
class _Writer:
    """How the columns of one writer's schema are read."""

    plan: PackPlan
    types: Mapping[str, SparkType]

    @classmethod
    def of(cls, schema_id: int, schema: dict[str, Any]) -> _Writer:
        types = {name: cell.type for name, cell in cells_of(schema).items()}
        return cls(pack_plan(schema_id, tuple(types), value_fields(schema)), types)

    def way(self, column: str, kind: pa.DataType) -> str:
        """Return how native code reads a column into Arrow's type; "": it does not."""
        at = self.plan.columns.index(column)
        cell, way = self.plan.cells[at], self.types[column].native
        can = bool(cell.opcode) if way == "text" else can_read(way, cell.kind)
        if way == "decimal" and str(kind).startswith("decimal128"):
            can = can and cell.scale == kind.scale
        return way if can and layout(kind)[0] in _FITS[way] else ""

    def rows(self, wanted: Sequence[str], ways: Mapping[str, bool], make: Make) -> ArrowRows:
        """Return what takes its values; `ways`: wanted column -> whether it is native."""
        cells = tuple(
            replace(cell, dump=kind.value)
            for cell, kind in zip(self.plan.cells, self.types.values(), strict=True)
        )
        places = {name: at for at, name in enumerate(wanted)}
        return make(
            replace(self.plan, cells=cells),
            [
                (places[name], kind.native if ways[name] else "")
                if name in places
                else (-1, cell.kind)
                for (name, kind), cell in zip(self.types.items(), cells, strict=True)
            ],
        )


class Writers:
    """The schemas of the records, and how native code lays out what they have.

    A column that one of the writers has in a way that native code does not read is of objects.
    """

    def __init__(
        self, wanted: Mapping[str, pa.DataType], schemas: Mapping[int, dict[str, Any]]
    ) -> None:
        """`wanted`: the table's columns, and Arrow's types of them."""
        self._wanted = list(wanted)
        self._writers = [_Writer.of(n, one) for n, one in schemas.items() if is_ours(one)]
        self._ways = {
            name: all(one.way(name, kind) for one in self._writers if name in one.types)
            for name, kind in wanted.items()
        }
        self._layouts = [
            layout(kind) if self._ways[name] else ("", 0) for name, kind in wanted.items()
        ]

    def columns(self, ours: Sequence[str]) -> ArrowColumns:
        """Return empty columns, and ours behind them."""
        return native.arrow_columns(self._layouts, [*ours])

    def rows(self, make: Make) -> dict[bytes, ArrowRows]:
        """Return what fills columns, by the frames of values."""
        return {one.plan.frame: one.rows(self._wanted, self._ways, make) for one in self._writers}


def layout(kind: pa.DataType) -> tuple[str, int]:
    """Return how native code lays out Arrow's type, or "", and what its decimals stay below."""
    name = str(kind)
    if name.startswith("decimal128"):
        return "decimal128", 10**kind.precision
    return "int64" if name.startswith("timestamp[us") else _LAYOUTS.get(name, ""), 0


def array(kind: pa.DataType, count: int, of: Any) -> pa.Array:
    """Return a column of native code as an array."""
    import pyarrow as pa  # noqa: PLC0415  on executors

    if isinstance(of, list):
        return pa.array(of, kind)
    buffers = [None if one is None else pa.py_buffer(one) for one in of]
    return pa.Array.from_buffers(kind, count, buffers)
