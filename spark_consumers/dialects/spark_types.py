r"""The one table of Spark's types: what a column is in Spark, and how its values get there.

Pure.  One line for each Avro shape of the table of types (`schemas/types`); a lake's DDL,
typed frames and the Spark source all read it, so that a column is of one type everywhere.

    DECIMAL, DATE, TIMESTAMP, ...   where Spark has the type; what it cannot hold (NaN in a
                                    decimal, infinity, BC) is NULL, with the source's text beside
    STRING                          of the source's own text, where Spark has none

A value comes from its physical Avro value, by `value` or by `native` code that equals it.  Neither
is asked about a value that was not sent, or whose text stands in `source.exact`.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

from schemas.envelope import without_null
from schemas.types import (
    SHAPES,
    AvroType,
    NotRepresentable,
    binary,
    dumper,
    extensions,
    geometric,
    json,
    numeric,
    shape_of,
    temporal,
    text,
)

MAX_PRECISION: Final = 38
STRING: Final = "STRING"

_ENCODINGS: Final[dict[str, Callable[[str], bytes]]] = {
    "base64": b64decode, "base64-url-safe": urlsafe_b64decode, "hex": bytes.fromhex,
}  # fmt: skip
_EXACT: Final = Context(prec=200_000)  # whatever the thread's precision: numeric has 147,455 digits
_MONEY: Final = (64, 2)  # what the converter writes for money, whose values are 64-bit numbers


@dataclass(frozen=True, slots=True)
class SparkType:
    """A column's type in Spark, and the ways to its values."""

    name: str  # as Spark's DDL spells it
    value: Callable[[Any], Any]  # physical Avro value -> what Arrow takes for this type
    of_text: OfText | None = None  # Spark holds more than Avro: a value from `source.exact`
    native: str = ""  # native code that equals `value`; "text": that of the shape's text; "" = none

    def holds(self, text: str) -> bool:
        """Say whether it holds all that a text of `source.exact` says."""
        way = self.of_text
        return way is not None and not way.is_near and way.value(text) is not None


@dataclass(frozen=True, slots=True)
class OfText:
    """How a value is read from the source's own text of it, where Avro could not hold it."""

    value: Callable[[str], Any]  # None: it has none
    is_near: bool = False  # the value is not all that the text says, and both are given


def spark_type(avro: AvroType) -> SparkType:
    """Return the type of a field by its Avro type, without the null of its union.

    Raises LookupError for a shape that is not in the table of types.

    >>> spark_type({"type": "int", "connect.name": "io.debezium.time.Date"}).name
    'DATE'
    """
    return _TABLE[shape_of(avro).key](avro)


def _plain(name: str, native: str) -> Callable[[AvroType], SparkType]:
    """Return a maker of a type whose physical Avro value is the value."""
    return lambda _: SparkType(name, _same, native=native)


def _string(avro: AvroType) -> SparkType:
    """Return the type of what is the source's text, as its shape writes it."""
    return SparkType(STRING, dumper(avro), _ANY_TEXT, "text")


def _text(exact: str) -> str | None:
    return None if exact.startswith("\\x") else exact


def _double(exact: str) -> float | None:
    try:
        return float(exact)
    except ValueError:
        return None


def _stamp(exact: str) -> int | None:
    try:
        return temporal.micros(exact)
    except NotRepresentable:
        return None


# Bytes that are not text are written as \\x and hex digits (schemas/encodings.py).
_ANY_TEXT: Final = OfText(_text)
_NUMBER: Final = OfText(_double, is_near=True)
_STAMP: Final = OfText(_stamp)


def _same(value: Any) -> Any:
    return value


# Values.


def decimal_of(scale: int) -> Callable[[bytes], Decimal]:
    """Return what makes a number of its unscaled bytes."""

    def value(data: bytes) -> Decimal:
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)

    return value


def _zoned(iso: str) -> int:
    """Microseconds since 1970 of a timestamptz."""
    return temporal.micros(iso.replace("T", " ").removesuffix("Z"))


# Types that depend on the attributes of their schema.


def _int(avro: AvroType) -> SparkType:
    if isinstance(avro, dict) and avro.get("connect.type") == "int16":
        return SparkType("SMALLINT", _same, native="int")
    return SparkType("INT", _same, native="int")


def _fixed(avro: AvroType) -> SparkType:
    assert isinstance(avro, dict)
    parameters = avro.get("connect.parameters", {})
    scale = int(avro.get("scale", parameters.get("scale", 0)))
    precision = int(avro.get("precision", MAX_PRECISION + 1))
    if (precision, scale) == _MONEY and "connect.decimal.precision" not in parameters:
        precision = 19
    if precision > MAX_PRECISION or not 0 <= scale <= precision:
        return _string(avro)
    return SparkType(f"DECIMAL({precision},{scale})", decimal_of(scale), native="decimal")


def encoded_bytes(avro: AvroType) -> Callable[[str], bytes]:
    """Return what makes bytes of their text, by the mode that the type names."""
    assert isinstance(avro, dict)
    return _ENCODINGS[avro["connect.parameters"][binary.MODE]]


def _encoded(avro: AvroType) -> SparkType:
    return SparkType("BINARY", encoded_bytes(avro))


def _array(avro: AvroType) -> SparkType:
    assert isinstance(avro, dict)
    item = spark_type(without_null(avro["items"]))

    def value(items: list[Any]) -> list[Any]:
        return [None if one is None else item.value(one) for one in items]

    return SparkType(f"ARRAY<{item.name}>", value)


def _millis(_: AvroType) -> SparkType:
    return SparkType("TIMESTAMP_NTZ", lambda millis: millis * 1000, _STAMP, "millis")


def _of_zone(_: AvroType) -> SparkType:
    return SparkType("TIMESTAMP", _zoned, native="zoned")


def _located(_: AvroType) -> SparkType:
    return SparkType("STRUCT<x:DOUBLE,y:DOUBLE>", lambda point: {"x": point["x"], "y": point["y"]})


def _vector(_: AvroType) -> SparkType:
    return SparkType("ARRAY<DOUBLE>", _same)


_date: Final = _plain("DATE", "int")
_TABLE: Final[dict[str, Callable[[AvroType], SparkType]]] = {
    numeric.INT.key: _int,
    numeric.LONG.key: _plain("BIGINT", "int"),
    numeric.FLOAT.key: _plain("FLOAT", "float4"),
    numeric.DOUBLE.key: lambda _: SparkType("DOUBLE", _same, _NUMBER, "float8"),
    numeric.BOOLEAN.key: _plain("BOOLEAN", "bool"),
    numeric.FIXED.key: _fixed,
    numeric.VARIABLE_SHAPE.key: _string,
    text.STRING.key: _string,
    text.UUID.key: _string,
    text.XML.key: _string,
    text.TSVECTOR.key: _string,
    text.ENUM.key: _string,
    json.JSON.key: _string,
    extensions.LTREE.key: _string,
    extensions.HSTORE.key: _string,
    extensions.HSTORE_MAP.key: _string,
    extensions.VECTOR.key: _vector,
    temporal.DATE.key: _date,
    temporal.CONNECT_DATE.key: _date,
    temporal.MICROS.key: _plain("TIMESTAMP_NTZ", "int"),
    temporal.MILLIS.key: _millis,
    temporal.CONNECT_STAMP.key: _millis,
    temporal.ZONED.key: _of_zone,
    temporal.TIME.key: _string,
    temporal.TIME_MILLIS.key: _string,
    temporal.CONNECT_TIME.key: _string,
    temporal.ZONED_TIME.key: _string,
    temporal.DURATION.key: _string,
    temporal.INTERVAL.key: _string,
    binary.BYTES.key: _plain("BINARY", "bytes"),
    binary.ENCODED.key: _encoded,
    binary.BIT.key: _string,
    binary.BITS.key: _string,
    geometric.POINT.key: _located,
    "array": _array,
}
assert _TABLE.keys() == SHAPES.keys()
