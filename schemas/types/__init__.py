"""The one table of types: what the source has, how it travels, how it comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from schemas.tables import Column
from schemas.types import binary, gauss, geometric, json, net, numeric, temporal, text
from schemas.types.arrays import array_avro, array_dump, array_loader
from schemas.types.base import (
    SOURCE_TYPE,
    AvroType,
    Dump,
    Load,
    NotRepresentable,
    Shape,
    SqlType,
    UnknownType,
)

__all__ = [
    "BY_OID",
    "SHAPES",
    "AvroType",
    "NotRepresentable",
    "SqlType",
    "UnknownType",
    "dumper",
    "spark_text",
    "type_of",
]


def _array_of(element: SqlType) -> SqlType:
    def avro(column: Column) -> AvroType:
        return array_avro(element, column)

    def loader(column: Column) -> Load:
        return array_loader(element, column)

    ddl = {dialect: f"{target}[]" for dialect, target in element.ddl.items()}
    return SqlType(f"{element.name}[]", (element.array_oid,), ARRAY, avro, loader, ddl=ddl)


def _items(avro: AvroType) -> AvroType:
    if not isinstance(avro, dict):
        raise TypeError("an array without its items")
    items = avro["items"]
    item: AvroType = next(i for i in items if i != "null") if isinstance(items, list) else items
    return item


ARRAY: Final = Shape("array", lambda avro: array_dump(dumper(_items(avro))), lambda _avro: None)

_SCALARS: Final = (
    *numeric.TYPES,
    *text.TYPES,
    *temporal.TYPES,
    *binary.TYPES,
    *json.TYPES,
    *net.TYPES,
    *geometric.TYPES,
    *gauss.TYPES,
)
_ARRAYS: Final = tuple(_array_of(entry) for entry in _SCALARS if entry.array_oid)

BY_OID: Final[dict[int, SqlType]] = {
    oid: entry for entry in (*_SCALARS, *_ARRAYS) for oid in entry.oids
}

SHAPES: Final[dict[str, Shape]] = {
    entry.key: entry
    for entry in (
        *(entry.shape for entry in (*_SCALARS, *text.BY_NAME.values())),
        ARRAY,
        numeric.VARIABLE_SHAPE,
        temporal.MILLIS,
        binary.BIT,
        text.ENUM,
    )
}


def type_of(column: Column, *, unknown: Literal["refuse", "text"] = "refuse") -> SqlType:
    """Return the entry of a column's type; raise UnknownType, or carry it as text.

    A column whose shape depends on its modifier gets the entry with that shape.
    """
    entry = BY_OID.get(column.type_oid) or text.BY_NAME.get(column.type_name)
    if entry is None:
        if unknown == "text":
            return text.AS_TEXT
        raise UnknownType(column)
    own = _shape_of(entry.avro(column))
    return entry if own is entry.shape else replace(entry, shape=own)


def dumper(avro: AvroType) -> Dump:
    """Return what turns a field's Avro value into text, from the writer's schema alone.

    `avro` is the field's type without the null of its union.  Raises LookupError
    for a shape that is not in the table.

    >>> dumper({"type": "int", "connect.name": "io.debezium.time.Date"})(19844)
    '2024-05-01'
    """
    return _shape_of(avro).dump(avro)


def spark_text(avro: AvroType) -> str | None:
    """Return Spark SQL with `{c}` for the field that gives the text of `dumper`, or None."""
    return _shape_of(avro).spark(avro)


def _shape_of(avro: AvroType) -> Shape:
    if isinstance(avro, str):  # a primitive, or a named type defined before
        return SHAPES[avro]
    kind = avro["type"]
    if found := SHAPES.get(avro.get("connect.name", "")):
        return found
    source = avro.get("connect.parameters", {}).get(SOURCE_TYPE)
    return SHAPES.get(f"{kind}/{source}") or SHAPES[kind]
