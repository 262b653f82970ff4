"""How rows of a table version are written, as data: for the native module.

What it writes are the bytes of `reference`: tests/producer/native/test_encode.py.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro

from producer.core.records.avro import text
from schemas.encodings import exact_bytes
from schemas.tables import Column
from schemas.types import AvroType, NotRepresentable, SqlType
from schemas.types.numeric import DECIMAL, VARIABLE
from schemas.types.temporal import MICROS

# What a cell raises that has no Avro form as it is.
NO_FORM: Final = (TypeError, ValueError, LookupError, AttributeError, OverflowError)


def writer(avro: Any) -> Callable[[Any], bytes]:
    """Return a writer of an Avro type."""
    schema = fastavro.parse_schema(avro)

    def write(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    return write


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """All that encoding needs of one column."""

    column: Column
    field: str  # its Avro name
    type: SqlType
    avro: AvroType
    nullable: bool  # of the Avro field
    placeholder: Any  # Avro value of an unsent value
    absent: Any  # Avro value of a column that is not part of the old key


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How a cell becomes Avro: `opcode`, and its numbers.

    bool, text, date, float8, bytea
    int2, int4, int8
    decimal        precision, scale: Avro's decimal, two's complement of the unscaled number
    variable       a record of scale and such a number
    timestamptz    digits of the fraction that are printed
    micros, millis   timestamp, µs or ms since 1970
    python         `write`: cell -> Avro; raises one of NO_FORM
    """

    opcode: str
    numbers: tuple[int, ...]
    nullable: bool  # the Avro type is ["null", T]
    in_old_key: bool  # sent in an old row that is a key only
    absent: bytes  # Avro, union included, where it is not
    unsent: bytes  # the same, of an unchanged TOAST value
    name: bytes  # Avro
    write: Callable[[bytes], bytes] | None  # of "python": Avro of T
    # What of a cell that has no Avro form as it is stands in its place, union included, and its
    # entry in the map of exact texts; b"": it has a form after all.
    exact: Callable[[bytes], tuple[bytes, bytes]] | None


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What is constant in a table version.  All parts are finished Avro but `head`."""

    head: bytes  # Confluent's framing
    origin: bytes  # source: version, connector, name
    database: bytes  # source.db, and that a sequence follows
    table: bytes  # source: schema, table
    key_only: bytes  # before_columns of an event whose old row is a key; b"": none has one
    columns: tuple[ColumnPlan, ...]
    id: str  # of the table: schema.table


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the primary key, as it is in the record key and in what a partition is of."""

    at: int  # of the row
    plan: ColumnPlan  # `nullable`, `in_old_key`, `absent`, `unsent`, `name` mean nothing
    spelling: str  # "": as it was sent; "numeric": no zeros behind; "character": no blanks


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """What a row's primary key decides: its record key, its partition, or both."""

    columns: tuple[KeyColumn, ...]  # in key order
    head: bytes | None = None  # Confluent's framing of the key; None: the key is the table's
    partitions: int = 0  # of which its texts choose one; 0: all rows are in one
    tombstones: bool = False  # a record without value follows each delete


def key_column(at: int, plan: FieldPlan, spelling: str) -> KeyColumn:
    """Plan a column of a key; texts are UTF-8."""
    opcode, numbers = _opcode(plan)
    return KeyColumn(
        at,
        ColumnPlan(
            opcode=opcode or "python",
            numbers=numbers,
            nullable=False,
            in_old_key=False,
            absent=b"",
            unsent=b"",
            name=b"",
            write=None if opcode else _by_python(plan),
            exact=None,
        ),
        spelling,
    )


def column_plans(plans: Sequence[FieldPlan], old_key: frozenset[str]) -> tuple[ColumnPlan, ...]:
    """Plan each column; texts are UTF-8."""
    return tuple(_column(plan, in_old_key=plan.column.name in old_key) for plan in plans)


def _column(plan: FieldPlan, *, in_old_key: bool) -> ColumnPlan:
    opcode, numbers = _opcode(plan)
    name = text(plan.column.name.encode())
    write = writer(["null", plan.avro] if plan.nullable else plan.avro)

    def exact(cell: bytes) -> tuple[bytes, bytes]:
        value, said = avro_value(plan, cell, "utf-8")
        return write(value), b"" if said is None else name + text(said.encode())

    return ColumnPlan(
        opcode or "python",
        numbers,
        plan.nullable,
        in_old_key,
        write(plan.absent),
        write(plan.placeholder),
        name,
        None if opcode else _by_python(plan),
        exact,
    )


def _by_python(plan: FieldPlan) -> Callable[[bytes], bytes]:
    load, write = plan.type.loader(plan.column), writer(plan.avro)
    return lambda cell: write(load(cell.decode()))


def avro_value(plan: FieldPlan, cell: bytes, encoding: str) -> tuple[Any, str | None]:
    """Return the Avro value of a cell, or the nearest one, and its exact text where it differs."""
    try:
        source, said = cell.decode(encoding), None
    except UnicodeDecodeError:
        source, said = cell.decode(encoding, "replace"), exact_bytes(cell)
    try:
        return plan.type.load(source, plan.column), said
    except (ValueError, LookupError, OverflowError) as exc:
        nearest = exc.nearest if isinstance(exc, NotRepresentable) else None
        return plan.absent if nearest is None else nearest, source if said is None else said


def _opcode(plan: FieldPlan) -> tuple[str, tuple[int, ...]]:
    opcode, shape = plan.type.opcode, plan.type.shape.key
    match opcode:
        case "bool" | "int2" | "int4" | "int8" | "text" | "date" | "float8" | "bytea":
            return opcode, ()
        case "timestamp":
            return ("micros" if shape == MICROS.key else "millis"), ()
        case "timestamptz":
            # As many digits as the type has, which is not the column's own where that is a domain.
            size = len(plan.type.load("2000-01-01 00:00:00+00", plan.column))
            return opcode, (max(0, size - 21),)
        case _:
            pass
    if shape == DECIMAL and plan.type.name == "numeric":
        assert isinstance(plan.avro, dict)  # a domain's modifier is here, not at its column
        return "decimal", (plan.avro["precision"], plan.avro["scale"])
    if shape == VARIABLE:
        return "variable", ()
    return "", ()
