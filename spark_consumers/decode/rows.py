"""Rows of one writer's schema on their way to a target, and how they are read, as data.

`Rows` fill with framed values and are then a sequence of changes.  Where the native part was
built, they hold COPY text, and make changes only for those who ask for them.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import fastavro

from schemas.envelope import envelope_schema, without_null
from schemas.tables import TableId, TableSchema
from schemas.types import AvroType, shape_of
from spark_consumers import native
from spark_consumers.model import Change

if TYPE_CHECKING:
    from spark_consumers.native._native import PackedRows

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]  # (data, at) -> (value, after)

_EMPTY: Final = TableSchema(TableId("", ""), ())
# What bytes raise that are no value of their type.
REFUSALS: Final = (ValueError, LookupError, ArithmeticError, EOFError, struct.error)
COMMIT_ORDER: Final = attrgetter("seq", "ordinal")
_FRAME: Final = struct.Struct(">bI")
_MOST_DIGITS: Final = 30  # behind the point, that native code writes
# Which Avro types an opcode reads: a shape is found by a name, and others may use it differently.
_READS: Final = {
    **dict.fromkeys(("int", "date", "micros", "millis", "time", "time_millis"), ("int", "long")),
    **dict.fromkeys(("duration",), ("int", "long")),
    **dict.fromkeys(("text", "zoned", "zoned_time"), ("string",)),
    **dict.fromkeys(("bool", "bit"), ("boolean",)),
    **dict.fromkeys(("decimal", "bytea", "bytes"), ("bytes",)),
    "float4": ("float",),
    "float8": ("double",),
    "variable": ("record", "io.debezium.data.VariableScaleDecimal"),
}


class PlainRows(list[Change]):
    """Rows that Python reads, one by one; what the methods of `PackedRows` do, too."""

    def take(self, values: Sequence[bytes], at: int) -> int:
        """Take framed values from `at` on; return the index of the first that Python must read."""
        del values
        return at

    def put(self, change: Change) -> None:
        """Append a change that Python read."""
        self.append(change)

    def order(self) -> None:
        """Put the changes into commit order; those of one place stay in theirs."""
        self.sort(key=COMMIT_ORDER)

    def split(self, seq: int, ordinal: int) -> PlainRows:
        """Take away the rows behind a place, and return them; they stand in commit order."""
        at = bisect_right(self, (seq, ordinal), key=COMMIT_ORDER)
        behind = PlainRows(self[at:])
        del self[at:]
        return behind


Rows: TypeAlias = "PlainRows | PackedRows"


@dataclass(frozen=True, slots=True)
class CellPlan:
    """How the Avro of a cell becomes text: `opcode` of its shape, or "" for Python."""

    opcode: str
    nullable: bool  # the Avro type is ["null", T]
    scale: int  # of a decimal
    read: Read  # (data, at) -> (value of T, after); raises one of `refusals`
    dump: Callable[[Any], Any] | None  # its text, or what else is wanted; None: itself (ValueRows)
    kind: str  # of T


@dataclass(frozen=True, slots=True)
class PackPlan:
    """How values of one schema are read, where the envelope is as this release writes it."""

    frame: bytes  # what a value begins with
    columns: tuple[str, ...]  # real names
    cells: tuple[CellPlan, ...]
    refusals: tuple[type[Exception], ...] = REFUSALS


def is_ours(envelope: dict[str, Any]) -> bool:
    """Say whether everything but the row is as this release writes it."""
    return bool(envelope["fields"][2:] == envelope_schema("", _EMPTY)["fields"][2:])


def pack_plan(
    schema_id: int, columns: tuple[str, ...], fields: Sequence[dict[str, Any]]
) -> PackPlan:
    """Plan the fields of a Value record."""
    named: dict[str, Any] = {}  # defined by a column before
    cells = tuple(_cell(field["type"], named) for field in fields)
    return PackPlan(_FRAME.pack(0, schema_id), columns, cells)


def can_read(opcode: str, kind: str) -> bool:
    """Say whether native code reads a kind of Avro by an opcode."""
    return kind in _READS.get(opcode, ())


def make_rows(plan: PackPlan | None) -> Rows:
    """Make empty rows: packed where there is a plan, and where this process can."""
    packed = None if plan is None else native.packed_rows(plan)
    return PlainRows() if packed is None else packed


def _cell(union: Any, named: dict[str, Any]) -> CellPlan:
    avro = without_null(union)
    shape, read = shape_of(avro), _reader(avro, named)
    scale = _scale(avro)
    kind = avro["type"] if isinstance(avro, dict) else avro
    knows = can_read(shape.opcode, kind) and 0 <= scale <= _MOST_DIGITS
    opcode = shape.opcode if knows else ""
    return CellPlan(opcode, isinstance(union, list), scale, read, shape.dump(avro), kind)


def _reader(avro: Any, named: dict[str, Any]) -> Read:
    """Return a reader of a type; `named` gets the ones that it defines."""
    defined = _defined(physical(avro), named)
    schema: Any = None  # parsed once it is needed: most cells are read natively

    def read(data: bytes, at: int) -> tuple[Any, int]:
        nonlocal schema
        if schema is None:
            schema = fastavro.parse_schema(defined)
        stream = io.BytesIO(data)
        stream.seek(at)
        value = fastavro.schemaless_reader(stream, schema, None)
        return value, stream.tell()

    return read


def _defined(avro: Any, named: dict[str, Any]) -> Any:
    """Put definitions in the place of names; an array's items may be a name, or define one."""
    if isinstance(avro, str):
        return named.get(avro, avro)
    if isinstance(avro, list):
        return [_defined(branch, named) for branch in avro]
    if avro["type"] == "array":
        return {**avro, "items": _defined(avro["items"], named)}
    if avro["type"] == "record":
        named[f"{avro['namespace']}.{avro['name']}"] = avro
    return avro


def _scale(avro: AvroType) -> int:
    """The scale of a decimal, as `schemas.types.numeric` finds it; 0 for others."""
    if not isinstance(avro, dict):
        return 0
    return int(avro.get("scale", avro.get("connect.parameters", {}).get("scale", 0)))


def physical(schema: Any) -> Any:
    """Return the schema without logical types: the table of types does its own conversions."""
    if isinstance(schema, dict):
        return {k: physical(v) for k, v in schema.items() if k not in ("logicalType", "default")}
    return [physical(branch) for branch in schema] if isinstance(schema, list) else schema
