"""Numbers, money and booleans.

`numeric(p,s)` is Connect's Decimal (unscaled two's complement bytes), `numeric`
without a scale is Debezium's VariableScaleDecimal, which keeps the display
scale.  PostgreSQL manual, chapter "Numeric Types"; type_mod of numeric is
`(p << 16 | s & 0x7ff) + 4`, with s signed since PostgreSQL 15.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from schemas.tables import Column
from schemas.types.base import (
    AvroShape,
    AvroType,
    Dump,
    Load,
    NotRepresentable,
    SqlType,
    always,
    plain,
    same,
    shape,
)

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
# openGauss leaves out the zero before the point: `.1`, `-.5`.
_NUMBER: Final = re.compile(r"(-?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]+))?")
_MONEY: Final = re.compile(r"(-?)\$([0-9]{1,3}(?:,[0-9]{3})*\.[0-9]{2})")
_INT_DIGITS: Final = 4300
_MOST_DIGITS: Final = 20_000
_INFINITIES: Final = (math.inf, -math.inf)
_INT_BITS: Final = 14_000  # fewer digits than that, for sure

VARIABLE_SCALE_DECIMAL: Final[AvroType] = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.doc": "Variable scaled decimal",
    "connect.version": 1,
    "connect.name": VARIABLE,
}


def precision_scale(column: Column) -> tuple[int, int] | None:
    """Return the precision and scale of the Avro decimal, or None for `numeric`.

    Avro wants 0 <= scale <= precision; both are widened so that nothing is lost.

    >>> precision_scale(Column("n", 1700, (10 << 16 | 2) + 4))
    (10, 2)
    >>> precision_scale(Column("n", 1700, (3 << 16 | -2 & 0x7FF) + 4))  # numeric(3,-2)
    (5, 0)
    """
    if column.type_mod < 4:
        return None
    precision = (column.type_mod - 4) >> 16 & 0xFFFF
    scale = (((column.type_mod - 4) & 0x7FF) ^ 1024) - 1024
    return (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)


def unscaled(number: int) -> bytes:
    r"""Return the shortest two's complement, as Java's BigInteger writes it.

    >>> unscaled(0), unscaled(-128), unscaled(128)
    (b'\x00', b'\x80', b'\x00\x80')
    """
    size = ((number if number >= 0 else ~number).bit_length() >> 3) + 1
    return number.to_bytes(size, "big", signed=True)


def _point(data: bytes, scale: int) -> str:
    number = int.from_bytes(data, "big", signed=True)
    if scale <= 0:
        return _digits(number * 10**-scale)
    digits = _digits(abs(number)).rjust(scale + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _dump_variable(value: dict[str, Any]) -> str:
    """Write a number with the scale that came along; raise ValueError for one of no server.

    A few forged bytes would else become a text of any length.
    """
    if abs(value["scale"]) > _MOST_DIGITS:
        raise ValueError("a scale beyond that of any number")
    return _point(value["value"], value["scale"])


def _digits(number: int) -> str:
    return str(number if number.bit_length() < _INT_BITS else Decimal(number))


def _integer(low: int, high: int) -> Load:
    def load(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise NotRepresentable
        return number

    return load


def _numeric_avro(column: Column) -> AvroType:
    if (known := precision_scale(column)) is None:
        return VARIABLE_SCALE_DECIMAL
    return decimal(*known)


def decimal(precision: int, scale: int) -> AvroType:
    """Return the Avro type of a decimal as Confluent's converter writes it."""
    return {
        "type": "bytes",
        "scale": scale,
        "precision": precision,
        "connect.version": 1,
        "connect.parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)},
        "connect.name": DECIMAL,
        "logicalType": "decimal",
    }


def _numeric_loader(column: Column) -> Load:
    if (known := precision_scale(column)) is None:
        return _variable
    return _fixed(*known)


def _fixed(precision: int, scale: int) -> Load:
    limit = 10**precision

    def load(text: str) -> bytes:
        match = _NUMBER.fullmatch(text)
        if match is None or len(match[3] or "") > scale:
            raise NotRepresentable  # NaN
        number = int(match[1] + match[2] + (match[3] or "").ljust(scale, "0"))
        if not -limit < number < limit:
            raise NotRepresentable
        return unscaled(number)

    return load


def _variable(text: str) -> dict[str, Any]:
    if (match := _NUMBER.fullmatch(text)) is None:
        raise NotRepresentable  # NaN, Infinity
    fraction = match[3] or ""
    digits = match[1] + match[2] + fraction
    # Python reads and writes 4300 digits of an int, PostgreSQL 147455, and so does Decimal, in a
    # time that grows by their square: 20 ms here, a second there.
    if len(digits) > _MOST_DIGITS:
        raise NotRepresentable
    number = int(digits if len(digits) < _INT_DIGITS else Decimal(digits))
    return {"scale": len(fraction), "value": unscaled(number)}


def _money(text: str) -> bytes:
    if (match := _MONEY.fullmatch(text)) is None:
        raise NotRepresentable  # another lc_monetary
    return unscaled(int(match[1] + match[2].replace(",", "").replace(".", "")))


def _money_text(text: str) -> str:
    """`$1,000.00` as Debezium writes it under decimal-handling = string: `1000.00`."""
    if (match := _MONEY.fullmatch(text)) is None:
        raise NotRepresentable(text)
    return match[1] + match[2].replace(",", "")


def _money_double(text: str) -> float:
    try:
        plain_text = _money_text(text)
    except NotRepresentable:
        raise NotRepresentable from None
    value = float(plain_text)
    if Decimal(_dump_float8(value)) != Decimal(plain_text):
        raise NotRepresentable(value)
    return value


def _double_loader(column: Column) -> Load:
    """Read decimal-handling = double; digits that a double has not travel as text.

    Without a scale in the column's type, 1.50 and 1.5 are different texts.
    """
    has_scale = column.type_mod >= 4

    def load(text: str) -> float:
        value = float(text)
        back = _dump_float8(value)
        if back != text and not (
            has_scale and math.isfinite(value) and Decimal(back) == Decimal(text)
        ):
            raise NotRepresentable(value)
        return value

    return load


def _zero_text(column: Column) -> str:
    """Zero as the server writes it in a column, for decimal-handling = string."""
    _, scale = precision_scale(column) or (0, 0)
    return f"{0:.{scale}f}"


def _decimal_scale(avro: AvroType) -> int:
    if not isinstance(avro, dict):
        raise TypeError("a decimal without its scale")
    return int(avro["scale"] if "scale" in avro else avro["connect.parameters"]["scale"])


def _dump_decimal(avro: AvroType) -> Dump:
    scale = _decimal_scale(avro)
    return lambda value: _point(value, scale)


def _float4(text: str) -> float:
    try:
        (value,) = struct.unpack("<f", struct.pack("<f", float(text)))
    except OverflowError:
        raise NotRepresentable from None
    return float(value)


def _float8(text: str) -> float:
    """Read a double.  sql_decoding prints 15 digits, by which the greatest is too great.

    >>> _float8("-1.79769313486232e+308"), _float8("-Infinity")
    (-1.7976931348623157e+308, -inf)
    """
    value = float(text)
    if value in _INFINITIES and not text.lstrip("+-").startswith(("I", "i")):
        return math.copysign(sys.float_info.max, value)
    return value


def _special(text: str) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


def _dump_float8(value: float) -> str:
    text = repr(value)
    return _special(text.removesuffix(".0"))


def _dump_float4(value: float) -> str:
    """Shortest digits that are the same 32-bit number."""
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124  NaN
        return _special(repr(value))
    for digits in range(1 if abs(value) < 2**-126 else 6, 9):  # 6 digits always come back, but tiny
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == struct.pack("<f", value):
            return text
    return f"{value:.9g}"


def _bool(text: str) -> bool:
    return _BOOLS[text]


_BOOLS: Final = {"t": True, "f": False, "true": True, "false": False, "1": True, "0": False}

INT: Final = shape("int", str, "int")
LONG: Final = shape("long", str, "int")
FLOAT: Final = shape("float", _dump_float4)
DOUBLE: Final = shape("double", _dump_float8, "float8")
BOOLEAN: Final = shape("boolean", lambda v: "t" if v else "f", "bool")
FIXED: Final = AvroShape(DECIMAL, _dump_decimal, "decimal")
TEXT: Final = shape("string", same)
VARIABLE_SHAPE: Final = shape(VARIABLE, _dump_variable, "variable")

# Debezium does not say its precision; the converter takes 64 for it.
_MONEY_AVRO: Final[AvroType] = {
    "type": "bytes",
    "scale": 2,
    "precision": 64,
    "connect.version": 1,
    "connect.parameters": {"scale": "2"},
    "connect.name": DECIMAL,
    "logicalType": "decimal",
}

_int4: Final = _integer(-(2**31), 2**31 - 1)
_int8: Final = _integer(-(2**63), 2**63 - 1)
_int2: Final[Callable[[Column], Load]] = plain(_integer(-(2**15), 2**15 - 1))
_INT16: Final[AvroType] = {"type": "int", "connect.type": "int16"}

TYPES: Final = (
    SqlType("smallint", (21,), INT, always(_INT16), _int2, 1005, "int2"),
    SqlType("integer", (23,), INT, always("int"), plain(_int4), 1007, "int4"),
    SqlType("bigint", (20,), LONG, always("long"), plain(_int8), 1016, "int8"),
    SqlType("oid", (26,), LONG, always("long"), plain(_int8), 1028, "int8"),
    SqlType("real", (700,), FLOAT, always("float"), plain(_float4), 1021),
    SqlType("double precision", (701,), DOUBLE, always("double"), plain(_float8), 1022, "float8"),
    SqlType("boolean", (16,), BOOLEAN, always("boolean"), plain(_bool), 1000, "bool"),
    SqlType(
        "numeric", (1700,), FIXED, _numeric_avro, _numeric_loader, 1231, "numeric",
        variants={
            "decimal=string": SqlType(
                "numeric", (1700,), TEXT, always("string"), plain(same), 1231, "text",
                zero_by=_zero_text,
            ),
            "decimal=double": SqlType(
                "numeric", (1700,), DOUBLE, always("double"), _double_loader, 1231,
            ),
        },
    ),
    SqlType(
        "money", (790,), FIXED, always(_MONEY_AVRO), plain(_money), 791,
        variants={
            "decimal=string": SqlType(
                "money", (790,), TEXT, always("string"), plain(_money_text), 791, zero="0.00",
            ),
            "decimal=double": SqlType(
                "money", (790,), DOUBLE, always("double"), plain(_money_double), 791,
            ),
        },
    ),
)  # fmt: skip
