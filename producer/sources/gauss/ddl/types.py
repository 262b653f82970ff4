"""Converts a type as DDL writes it to the oid, modifier and name of the catalog.

The modifier is packed as in pg_attribute.atttypmod, and the name is what
format_type() prints, so that a catalog reading is the same and not a second
change.  Only built-in types have an oid here; that of others is in the catalog.
"""

from __future__ import annotations

import re
from typing import Final

from producer.sources.gauss.ddl.model import TypeSpec
from producer.sources.gauss.ddl.quoting import quote_identifier
from schemas.tables import Column
from schemas.types import BY_OID
from schemas.types.names import oid_of

_BY_LENGTH: Final = frozenset({1042, 1043, 3969})  # character, character varying, nvarchar2
_BY_DIGITS: Final = frozenset({1083, 1114, 1184, 1266})  # time, timestamp, both with zone
_BITS: Final = frozenset({1560, 1562})
_NUMERIC, _INTERVAL, _BPCHAR, _BIT = 1700, 1186, 1042, 1560
_HEADER: Final = 4  # VARHDRSZ
_FULL_RANGE, _FULL_PRECISION = 0x7FFF, 0xFFFF
_FIELD_BITS: Final = {"year": 2, "month": 1, "day": 3, "hour": 10, "minute": 11, "second": 12}
_FIELD_ORDER: Final = ("year", "month", "day", "hour", "minute", "second")
# Words that mean CHAR(1) and BIT(1) in SQL; the catalog's own names do not.
_ONE: Final = frozenset({"char", "character", "nchar", "national character", "national char"})
_OF_SQL: Final = {
    "char varying": "character varying",
    "national character": "character",
    "national char": "character",
    "nchar": "character",
    "national character varying": "character varying",
    "national char varying": "character varying",
    "char": "character",
    "dec": "numeric",
    "binary_integer": "integer",
    "binary_double": "double precision",
}


def column_of(name: str, spec: TypeSpec) -> Column | None:
    """Return the column without anything but its type; None if the type is not built in."""
    written = spec.name if spec.schema is None else f"pg_catalog.{spec.name}"
    if spec.schema is None:
        written = _OF_SQL.get(spec.name, spec.name)
    elif spec.schema != "pg_catalog":
        return None
    is_internal_char = spec.schema == "pg_catalog" and spec.name == "char"
    scalar = oid_of('"char"' if is_internal_char else written)
    if scalar is None or spec.modifiers is None:
        return None
    modifiers = spec.modifiers
    if spec.schema is None and not modifiers and (spec.name in _ONE or spec.name == "bit"):
        modifiers = (1,)
    mod = _packed(scalar, modifiers, spec.fields)
    if mod is None:
        return None
    oid = scalar
    if spec.is_array:
        entry = BY_OID.get(scalar)
        if entry is None or not entry.array_oid:
            return None
        oid = entry.array_oid
    text = _printed(scalar, modifiers, spec.fields)
    return Column(name, oid, mod, f"{text}[]" if spec.is_array else text)


def written(spec: TypeSpec) -> str:
    """Write a type for messages and for comparisons."""
    head = quote_identifier(spec.name) if spec.schema is not None else spec.name
    schema = f"{quote_identifier(spec.schema)}." if spec.schema else ""
    modifiers = f"({','.join(map(str, spec.modifiers))})" if spec.modifiers else ""
    fields = f" {spec.fields}" if spec.fields else ""
    return f"{schema}{head}{fields}{modifiers}{'[]' if spec.is_array else ''}"


def _packed(oid: int, modifiers: tuple[int, ...], fields: str) -> int | None:
    """Return atttypmod; None for modifiers that the type does not take."""
    match modifiers:
        case () if oid == _INTERVAL and fields:
            return _interval(fields, _FULL_PRECISION)
        case ():
            return -1
        case (length,) if oid in _BY_LENGTH and length > 0:
            return length + _HEADER
        case (digits,) if oid in _BY_DIGITS and digits >= 0:
            return digits
        case (digits,) if oid == _INTERVAL and digits >= 0:
            return _interval(fields, digits)
        case (length,) if oid in _BITS and length > 0:
            return length
        case (precision,) if oid == _NUMERIC and precision > 0:
            return (precision << 16) + _HEADER
        case (precision, scale) if oid == _NUMERIC and precision > 0:
            return (precision << 16 | scale & 0x7FF) + _HEADER
        case _:
            return None


def _interval(fields: str, precision: int) -> int:
    if not fields:
        return _FULL_RANGE << 16 | precision
    first, _, last = fields.partition(" to ")
    start, end = _FIELD_ORDER.index(first), _FIELD_ORDER.index(last or first)
    mask = sum(1 << _FIELD_BITS[name] for name in _FIELD_ORDER[start : end + 1])
    return mask << 16 | precision


def _printed(oid: int, modifiers: tuple[int, ...], fields: str) -> str:
    """Print the type as format_type() does: modifiers of times are within the name."""
    name = BY_OID[oid].name if oid in BY_OID else ""
    if oid == _BPCHAR and not modifiers:
        return "bpchar"
    if oid == _BIT and not modifiers:
        return '"bit"'
    if fields:
        name = f"{name} {fields}"
    if not modifiers:
        return name
    inside = f"({','.join(map(str, modifiers))})"
    if oid == _NUMERIC and len(modifiers) == 1:
        inside = f"({modifiers[0]},0)"
    return re.sub(r"^(timestamp|time|\S.*?)(?= with| without|$)", rf"\1{inside}", name, count=1)
