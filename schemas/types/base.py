"""The parts of a type of the source.

`SqlType` is the producer's half: how a column's Avro type is made and how the
server's text becomes an Avro value.  `AvroShape` is the consumer's half, found
from nothing but the writer's schema: how the Avro value becomes text again, in
Python and in Spark SQL.

"Avro value" means the physical value: int, str, bytes, bool, float, list or
dict.  Logical types are never applied: a decimal is its unscaled bytes.

The rule of all entries: `dump(load(text))` is text that PostgreSQL reads as
the same value, or `load` raises `NotRepresentable` and the text itself travels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from schemas.tables import Column

AvroType: TypeAlias = str | dict[str, Any]  # of a column; never a union
Load: TypeAlias = Callable[[str], Any]
Dump: TypeAlias = Callable[[Any], str]

FIRST_OF_USERS: Final = 16384  # oid; a type of a lower one is the server's own

SOURCE_TYPE: Final = (
    "__debezium.source.column.type"  # connect.parameters, where the shape is not enough
)


class NotRepresentable(ValueError):
    """The Avro type is too narrow for this text; `nearest` is for readers who do not look further.

    With `nearest` None the field is NULL, or the type's zero where NULL is not allowed.
    `is_alone`: no other value has this nearest, so that a key may be made of it.
    """

    def __init__(self, nearest: Any = None, *, is_alone: bool = False) -> None:
        super().__init__("value does not fit its Avro type")  # never the value itself
        self.nearest = nearest
        self.is_alone = is_alone and nearest is not None


class UnknownType(LookupError):
    """A column's type is not in the table of types."""

    def __init__(self, column: Column) -> None:
        super().__init__(f"{column.name}: {column.type_name or 'type'} (oid {column.type_oid})")
        self.column = column


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """How values travel, where Debezium gives the choice; its names, its meaning.

    Whatever is chosen, our own consumers read every value back exactly: what an
    Avro type loses stands in `source.exact`.
    """

    decimal_handling: Literal["precise", "string", "double"] = "precise"
    interval_handling: Literal["numeric", "string"] = "numeric"
    binary_handling: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    time_precision: Literal["adaptive", "adaptive-time-microseconds", "connect"] = "adaptive"
    hstore_handling: Literal["json", "map"] = "json"
    unknown_types: Literal["text", "fail"] = "text"  # columns of types that are not in the table

    def chosen(self) -> tuple[str, ...]:
        """Keys of `SqlType.variants`."""
        return (
            f"decimal={self.decimal_handling}",
            f"interval={self.interval_handling}",
            f"binary={self.binary_handling}",
            f"time={self.time_precision}",
            f"hstore={self.hstore_handling}",
        )


@dataclass(frozen=True, slots=True)
class AvroShape:
    """How a value stands in Avro; `key` is its connect.name, else its Avro type."""

    key: str
    dump: Callable[[AvroType], Dump]
    opcode: str = ""  # native code that equals `dump`; "" = none


@dataclass(frozen=True, slots=True)
class SqlType:
    """One type of the source, in all its forms."""

    name: str
    oids: tuple[int, ...]
    shape: AvroShape
    avro: Callable[[Column], AvroType]
    loader: Callable[[Column], Load]
    array_oid: int = 0
    opcode: str = ""  # the encoder's inlined code that equals `loader`; "" = none
    zero: Any = None  # stands for an unsent value where NULL is not allowed; None = by Avro type
    zero_by: Callable[[Column], Any] | None = None  # the same, where it depends on the column
    ddl: Mapping[str, str] = field(default_factory=dict)  # dialect -> type, where not format_type
    variants: Mapping[str, SqlType] = field(default_factory=dict)  # option=value -> how it is then
    element: SqlType | None = None  # of an array

    def load(self, text: str, column: Column) -> Any:
        """Turn the server's text into the Avro value; raise NotRepresentable."""
        return self.loader(column)(text)

    def dump(self, value: Any, column: Column) -> str:
        """Turn the Avro value into text that PostgreSQL reads as the same value."""
        return self.shape.dump(self.avro(column))(value)

    def zero_of(self, column: Column) -> Any:
        """Return what Debezium writes for an unsent value of a NOT NULL column."""
        if self.zero_by is not None:
            return self.zero_by(column)
        return zero(self.avro(column)) if self.zero is None else self.zero


def zero(avro: AvroType) -> Any:
    """Return the least value of an Avro type.

    >>> zero("int"), zero("boolean"), zero({"type": "array", "items": "string"})
    (0, False, [])
    """
    name = avro.get("connect.name", "") if isinstance(avro, dict) else ""
    if name == "org.apache.kafka.connect.data.Decimal":
        return b"\x00"
    if name == "io.debezium.data.VariableScaleDecimal":
        return {"scale": 0, "value": b"\x00"}
    kind = avro["type"] if isinstance(avro, dict) else avro
    if kind == "map":
        return {}
    zeros: dict[str, Any] = {
        "int": 0, "long": 0, "float": 0.0, "double": 0.0, "boolean": False,
        "string": "", "bytes": b"",
    }  # fmt: skip
    return [] if kind == "array" else zeros[kind]


def semantic(avro: str, name: str, **parameters: str) -> dict[str, Any]:
    """Return the Avro type that Confluent's converter makes of a named Connect schema.

    In the converter's order: registries compare schemas by their text.
    """
    out: dict[str, Any] = {"type": avro, "connect.version": 1}
    if parameters:
        out["connect.parameters"] = parameters
    out["connect.name"] = name
    return out


def always(avro: AvroType) -> Callable[[Column], AvroType]:
    """Return an `avro` that does not depend on the column."""
    return lambda _column: avro


def plain(load: Load) -> Callable[[Column], Load]:
    """Return a `loader` that does not depend on the column."""
    return lambda _column: load


def shape(key: str, dump: Dump, opcode: str = "") -> AvroShape:
    """Return a shape that does not depend on the schema's attributes."""
    return AvroShape(key, lambda _avro: dump, "text" if dump is same else opcode)


def same(text: str) -> str:
    """Return the text: strings travel as they are."""
    return text
