r"""The one table of Python's types: what a column's value is in Python, by the shape of its Avro.

    int, float, bool, str, bytes    as they are
    Decimal                         numeric and money; NaN and infinity, too
    date, time, datetime            of the calendar that Python has; with a zone where the type has
                                    one; timedelta of an interval without months
    list, dict, tuple               arrays and vectors, hstore as a map, a point's (x, y)
    str                             of the source's own text, where Python has no type

Pure.  A single value that its type does not hold (an infinite date, 24:00) is a str, too: the
source's own text of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from json import loads
from typing import Any, Final, TypeAlias

from schemas.encodings import from_exact
from schemas.envelope import without_null
from schemas.types import (
    SHAPES,
    AvroType,
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
from spark_consumers.dialects.spark_types import decimal_of, encoded_bytes

Convert: TypeAlias = Callable[[Any], Any]  # physical Avro value -> Python's

_DAY_0: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  of a type without a zone
_DAY: Final = 86_400_000_000  # µs


def converter(avro: AvroType) -> Convert | None:
    """Return what makes Python's value of a field's; None: it is that already.

    `avro` is the field's type without the null of its union.  Raises LookupError for a shape that
    is not in the table of types.
    """
    make = _TABLE[shape_of(avro).key]
    return None if make is None else make(avro)


def of_exact(source: str, convert: Convert | None) -> Any:
    """Return the value of a text of `source.exact`, which its Avro type does not hold."""
    if isinstance(convert, _Decimals):
        try:
            return Decimal(source)
        except InvalidOperation:
            pass
    return from_exact(source)


class _Decimals:
    """Makes a Decimal, exact whatever the context's precision."""

    def __init__(self, make: Convert) -> None:
        self._make = make

    def __call__(self, value: Any) -> Decimal:
        found: Decimal = self._make(value)
        return found


def _decimal(avro: AvroType) -> Convert:
    assert isinstance(avro, dict)
    scale = int(avro.get("scale", avro.get("connect.parameters", {}).get("scale", 0)))
    return _Decimals(decimal_of(scale))


def _variable(_: AvroType) -> Convert:
    return _Decimals(lambda both: decimal_of(both["scale"])(both["value"]))


def _date(days: int) -> date:
    return date.fromordinal(days + _DAY_0)


def _micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _millis(millis: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=millis)


def _time(micros: int) -> time | str:
    if micros >= _DAY:
        return "24:00:00"
    return (_EPOCH + timedelta(microseconds=micros)).time()


def _time_of_millis(millis: int) -> time | str:
    return _time(millis * 1000)


def _duration(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


def _point(point: dict[str, Any]) -> tuple[float, float]:
    return point["x"], point["y"]


def _array(avro: AvroType) -> Convert | None:
    assert isinstance(avro, dict)
    convert = converter(without_null(avro["items"]))
    if convert is None:
        return None
    return lambda items: [None if one is None else convert(one) for one in items]


def _always(convert: Convert) -> Callable[[AvroType], Convert]:
    return lambda _: convert


_AS_TEXT: Final = dumper
_TABLE: Final[dict[str, Callable[[AvroType], Convert | None] | None]] = {
    numeric.INT.key: None,
    numeric.LONG.key: None,
    numeric.FLOAT.key: None,
    numeric.DOUBLE.key: None,
    numeric.BOOLEAN.key: None,
    numeric.FIXED.key: _decimal,
    numeric.VARIABLE_SHAPE.key: _variable,
    text.STRING.key: None,
    text.UUID.key: None,
    text.XML.key: None,
    text.TSVECTOR.key: _AS_TEXT,
    text.ENUM.key: None,
    json.JSON.key: None,
    extensions.LTREE.key: None,
    extensions.HSTORE.key: _always(loads),
    extensions.HSTORE_MAP.key: None,
    extensions.VECTOR.key: None,
    temporal.DATE.key: _always(_date),
    temporal.CONNECT_DATE.key: _always(_date),
    temporal.MICROS.key: _always(_micros),
    temporal.MILLIS.key: _always(_millis),
    temporal.CONNECT_STAMP.key: _always(_millis),
    temporal.ZONED.key: _always(datetime.fromisoformat),
    temporal.TIME.key: _always(_time),
    temporal.TIME_MILLIS.key: _always(_time_of_millis),
    temporal.CONNECT_TIME.key: _always(_time_of_millis),
    temporal.ZONED_TIME.key: _AS_TEXT,
    temporal.DURATION.key: _always(_duration),
    temporal.INTERVAL.key: _AS_TEXT,
    binary.BYTES.key: None,
    binary.ENCODED.key: encoded_bytes,
    binary.BIT.key: _AS_TEXT,
    binary.BITS.key: _AS_TEXT,
    geometric.POINT.key: _always(_point),
    "array": _array,
}
assert _TABLE.keys() == SHAPES.keys()
