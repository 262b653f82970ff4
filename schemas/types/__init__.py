"""The one table of types: source text to Avro value, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from schemas.tables import Column, UserType
from schemas.types import binary, extensions, gauss, geometric, json, net, numeric, temporal, text
from schemas.types.arrays import array_avro, array_dump, array_loader
from schemas.types.base import (
    FIRST_OF_USERS,
    SOURCE_TYPE,
    AvroShape,
    AvroType,
    Dump,
    Load,
    NotRepresentable,
    SqlType,
    TypeOptions,
    UnknownType,
    always,
    plain,
)

__all__ = [
    "AS_PRINTED",
    "BY_OID",
    "FIRST_OF_USERS",
    "NAMES",
    "SHAPES",
    "AvroType",
    "NotRepresentable",
    "SqlType",
    "TypeOptions",
    "UnknownType",
    "dumper",
    "shape_of",
    "type_of",
    "unseen_renames",
]


def _array_of(element: SqlType) -> SqlType:
    def avro(column: Column) -> AvroType:
        return array_avro(element, column)

    def loader(column: Column) -> Load:
        return array_loader(element, column)

    ddl = {dialect: f"{target}[]" for dialect, target in element.ddl.items()}
    return SqlType(
        f"{element.name}[]", (element.array_oid,), ARRAY, avro, loader, ddl=ddl, element=element
    )


def _items(avro: AvroType) -> AvroType:
    if not isinstance(avro, dict):
        raise TypeError("an array without its items")
    items = avro["items"]
    item: AvroType = next(i for i in items if i != "null") if isinstance(items, list) else items
    return item


ARRAY: Final = AvroShape("array", lambda avro: array_dump(dumper(_items(avro))))

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

# Their values name objects of the source: by what a session searches, and as they are called now.
NAMES: Final = frozenset(
    oid for entry in text.TYPES if "postgres" in entry.ddl for oid in (*entry.oids, entry.array_oid)
)
# A target has their values as the source prints them, xml (and its array) without its encoding. No
# cast there does what one at the source does.
AS_PRINTED: Final = NAMES | {142, 143}

_ENTRIES: Final = (*_SCALARS, *extensions.TYPES)

SHAPES: Final[dict[str, AvroShape]] = {
    entry.key: entry
    for entry in (
        *(entry.shape for entry in _ENTRIES),
        *(variant.shape for entry in _ENTRIES for variant in entry.variants.values()),
        ARRAY,
        numeric.VARIABLE_SHAPE,
        temporal.MILLIS,
        temporal.TIME_MILLIS,
        binary.BIT,
        text.ENUM,
    )
}

_DEFAULT: Final = TypeOptions()


def unseen_renames(columns: Iterable[Column]) -> str:
    """Say that values of some columns change and nothing is sent; "": of none.

    >>> unseen_renames([Column("id", 23, -1, "integer"), Column("of", 2205, -1, "regclass")])
    'values of of name objects of the source, and change with their names unseen'
    """
    named = [c.name for c in columns if c.type_oid in NAMES or _is_naming(c.user_type)]
    if not named:
        return ""
    which = ", ".join(named)
    return f"values of {which} name objects of the source, and change with their names unseen"


def _is_naming(said: UserType | None) -> bool:
    if said is None:
        return False
    parts = [label.split(":") for label in said.labels if said.kind == "c" and label[:1].isdigit()]
    return said.type_oid in NAMES or any(int(p[1]) in NAMES for p in parts) or _is_naming(said.of)


def type_of(column: Column, options: TypeOptions = _DEFAULT) -> SqlType:
    """Return the entry of a column's type under these options; raise UnknownType.

    A column whose shape depends on its modifier gets the entry with that shape,
    a domain that of what it is made of.
    """
    entry = _find(column, options)
    own = shape_of(entry.avro(column))
    return entry if own is entry.shape else replace(entry, shape=own)


def _find(column: Column, options: TypeOptions) -> SqlType:
    entry = BY_OID.get(column.type_oid)
    if entry is None:
        return _user_type(column, options)
    if entry.element is not None:
        element = _chosen(entry.element, options)
        return entry if element is entry.element else _array_of(element)
    return _chosen(entry, options)


def _chosen(entry: SqlType, options: TypeOptions) -> SqlType:
    found = (entry.variants.get(choice) for choice in options.chosen())
    return next((variant for variant in found if variant is not None), entry)


def _user_type(column: Column, options: TypeOptions) -> SqlType:
    """Return the entry of a type that is not built in, from what the catalog says of it."""
    said = column.user_type
    if said is not None and said.kind == "d":
        base = Column(column.name, said.type_oid, said.type_mod, said.made_of, user_type=said.of)
        return _bound(_find(base, options), base)
    if said is not None and said.kind == "a" and said.delimiter == ",":
        inner = Column(column.name, said.type_oid, -1, said.made_of, user_type=said.of)
        return _array_of(_bound(_find(inner, options), inner))
    if said is not None and said.kind == "e":
        return text.enum_type(said.labels)
    if said is not None and said.kind == "b" and (entry := extensions.BY_NAME.get(said.name)):
        return _chosen(entry, options)
    if options.unknown_types == "fail":
        raise UnknownType(column)
    return text.AS_TEXT


def _bound(entry: SqlType, base: Column) -> SqlType:
    """Return an entry that reads the modifier of `base` instead of its own column's."""
    return replace(
        entry,
        avro=always(entry.avro(base)),
        loader=plain(entry.loader(base)),
        zero=entry.zero_of(base),
        zero_by=None,
    )


def dumper(avro: AvroType) -> Dump:
    """Return what turns a field's Avro value into text, from the writer's schema alone.

    `avro` is the field's type without the null of its union.  Raises LookupError
    for a shape that is not in the table.

    >>> dumper({"type": "int", "connect.name": "io.debezium.time.Date"})(19844)
    '2024-05-01'
    """
    return shape_of(avro).dump(avro)


def shape_of(avro: AvroType) -> AvroShape:
    """Find a shape by connect.name and type, the source's type first where the schema names it.

    Raises LookupError for a type that no table of ours has.
    """
    if isinstance(avro, str):  # a primitive, or a named type defined before
        return SHAPES[avro]
    source = avro.get("connect.parameters", {}).get(SOURCE_TYPE)
    keys = [key for key in (avro.get("connect.name"), avro["type"]) if key]
    for key in (*(f"{key}/{source}" for key in keys), *keys):
        if found := SHAPES.get(key):
            return found
    raise LookupError(avro["type"])
