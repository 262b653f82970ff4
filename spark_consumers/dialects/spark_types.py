r"""The one table of Spark's types: what a column is in Spark, and how its values get there.

Pure.  One line for each Avro shape of the table of types (`schemas/types`); a lake's DDL,
typed frames and the Spark source all read it, so that a column is of one type everywhere.

    DECIMAL, DATE, TIMESTAMP, ...   where Spark has the type; what it cannot hold (NaN in a
                                    decimal, infinity, BC) is NULL, with the source's text beside
    STRING                          of the source's own text, where Spark has none

A value comes in ways that give the same: in the JVM from what `from_avro` makes of the field
(`avro`, then `sql`), in Python from its physical Avro value (`value`, or `native` code that equals
it).  None is asked about a value that was not sent, or whose text stands in `source.exact`.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
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

_E: Final = "{}"  # in `sql`: the value as from_avro gives it
_MONEY: Final = (64, 2)  # what the converter writes for money, whose values are 64-bit numbers


@dataclass(frozen=True, slots=True)
class SparkType:
    """A column's type in Spark, and both ways to its values."""

    name: str  # as Spark's DDL spells it
    avro: AvroType  # the field's type as `from_avro` is to read it
    sql: str  # an expression of `{}`; NULL of NULL
    value: Callable[[Any], Any]  # physical Avro value -> what Arrow takes for this type
    of_text: OfText | None = None  # Spark holds more than Avro: a value from `source.exact`
    native: str = ""  # native code that equals `value`; "text": that of the shape's text; "" = none


@dataclass(frozen=True, slots=True)
class OfText:
    """How a value is read from the source's own text of it, where Avro could not hold it."""

    fits: str  # SQL, of `{}`: whether this text has a value
    sql: str
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
    return lambda avro: SparkType(name, _physical(avro), _E, _same, native=native)


def _read_as(name: str, avro: AvroType) -> Callable[[AvroType], SparkType]:
    """Return a maker of a type that `from_avro` itself reads, by a logical type."""
    return lambda _: SparkType(name, avro, _E, _same, native="int")


def _strings(sql: str = _E) -> Callable[[AvroType], SparkType]:
    """Return a maker of a type whose value is the source's text, as its shape writes it."""
    return lambda avro: _string(_physical(avro), sql, _same if sql == _E else dumper(avro))


def _string(avro: AvroType, sql: str, value: Callable[[Any], Any]) -> SparkType:
    """Return a type of text; NULL is caught here: `reflect` makes a text of it, `if` is false."""
    given = sql if sql == _E else f"if({_E} IS NULL, NULL, {sql})"
    return SparkType(STRING, avro, given, value, _ANY_TEXT, "text")


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
_ANY_TEXT: Final = OfText(f"NOT startswith({_E}, concat(char(92), 'x'))", _E, _text)
_NUMBER: Final = OfText(
    f"try_cast({_E} AS DOUBLE) IS NOT NULL", f"try_cast({_E} AS DOUBLE)", _double, is_near=True
)
_STAMP: Final = OfText(
    f"{_E} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9:.]+$'",
    f"cast({_E} AS TIMESTAMP_NTZ)",
    _stamp,
)


def _physical(avro: AvroType) -> AvroType:
    """Return a type without its logical type; names of records stay."""
    if not isinstance(avro, dict):
        return avro
    return {k: v for k, v in avro.items() if k in ("type", "name", "namespace", "fields", "values")}


def _same(value: Any) -> Any:
    return value


# Expressions.  `_let` binds a value that an expression uses more than once.


def _let(value: str, name: str, body: str) -> str:
    return f"element_at(transform(array({value}), {name} -> {body}), 1)"


def _clock(micros: str) -> str:
    """`HH:MM:SS[.f]` without trailing zeros, of microseconds that are not negative."""

    def two(number: str) -> str:
        return f"if({number} < 10, concat('0', {number}), string({number}))"

    hour, minute = f"({micros} div 3600000000)", f"({micros} div 60000000 % 60)"
    second, fraction = f"({micros} div 1000000 % 60)", f"({micros} % 1000000)"
    digits = f"concat('.', trim(TRAILING '0' FROM lpad({fraction}, 6, '0')))"
    return (
        f"concat({two(hour)}, ':', {two(minute)}, ':', {two(second)},"
        f" if({fraction} = 0, '', {digits}))"
    )


def _integer(data: str) -> str:
    """Decimal digits of a number in two's complement, of any length.

    Above 64 bits Spark SQL has no number: `reflect` calls a static function of a library that is a
    part of Spark.  Negation: the digits before the last that is not zero are inverted.
    """
    is_negative = f"({data} >= X'80')"
    kept = f"trim(TRAILING '0' FROM hex({data}))"
    negated = (
        f"concat('-0x', translate(left({kept}, length({kept}) - 1), '0123456789ABCDEF',"
        f" 'FEDCBA9876543210'), translate(right({kept}, 1), '123456789ABCDEF',"
        f" 'FEDCBA987654321'), repeat('0', length(hex({data})) - length({kept})))"
    )
    return (
        f"if(length({data}) <= 8,"
        f" conv(lpad(hex({data}), 16, if({is_negative}, 'F', '0')), 16, -10),"
        " reflect('org.apache.commons.lang3.math.NumberUtils', 'createBigInteger',"
        f" if({is_negative}, {negated}, concat('0x', hex({data})))))"
    )


def _point(data: str, scale: str) -> str:
    """A number's digits with the point at its place."""
    sign = "if(startswith(n, '-'), '-', '')"
    digits = f"lpad(ltrim('-', n), greatest(length(ltrim('-', n)), {scale} + 1), '0')"
    shifted = _let(
        digits,
        "d",
        f"concat({sign}, left(d, length(d) - {scale}), '.', right(d, {scale}))",
    )
    return _let(
        _integer(data), "n", f"if({scale} <= 0, concat(n, repeat('0', -{scale})), {shifted})"
    )


def _bits(size: str) -> str:
    """Digits of a bit string whose number is in little-endian bytes."""
    byte = f"lpad(conv(hex(substring({_E}, length({_E}) - i, 1)), 16, 2), 8, '0')"
    bits = f"array_join(transform(sequence(0, length({_E}) - 1), i -> {byte}), '')"
    return f"right(concat(repeat('0', {size}), if(length({_E}) = 0, '', {bits})), {size})"


_BACKSLASH: Final = "char(92)"


def _quoted(value: str) -> str:
    escaped = f"replace({value}, {_BACKSLASH}, repeat({_BACKSLASH}, 2))"
    return f"""concat('"', replace({escaped}, '"', concat({_BACKSLASH}, '"')), '"')"""


def _hstore(pairs: str) -> str:
    """Text of an hstore, in its own order: by length of the key, then by its bytes."""
    size_l, size_r = "octet_length(l.key)", "octet_length(r.key)"
    order = (
        f"(l, r) -> CASE WHEN {size_l} <> {size_r} THEN {size_l} - {size_r}"
        " WHEN l.key < r.key THEN -1 WHEN l.key > r.key THEN 1 ELSE 0 END"
    )
    pair = f"concat({_quoted('p.key')}, '=>', if(p.value IS NULL, 'NULL', {_quoted('p.value')}))"
    return f"array_join(transform(array_sort(map_entries({pairs}), {order}), p -> {pair}), ', ')"


def _interval() -> str:
    """PostgreSQL's text of an ISO interval, where a part after a negative one has a `+`."""
    pattern = "P(-?[0-9]+)Y(-?[0-9]+)M(-?[0-9]+)DT(-?[0-9]+)H(-?[0-9]+)M(-?[0-9]+)(?:[.]([0-9]+))?S"

    def part(at: int) -> str:
        return f"regexp_extract({_E}, '{pattern}', {at})"

    def named(number: str, unit: str, before: str) -> str:
        plus = f"if({before} AND bigint({number}) > 0, '+', '')"
        s = f"if(bigint({number}) = 1, '', 's')"
        return f"if(bigint({number}) <> 0, concat({plus}, {number}, ' {unit}', {s}), NULL)"

    year, month, day = part(1), part(2), part(3)
    year_is, month_is, day_is = (f"bigint({x}) < 0" for x in (year, month, day))
    after_month = f"if(bigint({month}) <> 0, {month_is}, {year_is})"
    after_day = f"if(bigint({day}) <> 0, {day_is}, {after_month})"
    is_negative = f"contains(concat({part(4)}, {part(5)}, {part(6)}), '-')"
    sign = f"if({is_negative}, '-', if({after_day}, '+', ''))"
    clock = ", ':', ".join(
        f"if(length({p}) < 2, lpad({p}, 2, '0'), {p})"
        for p in (f"ltrim('-', {part(at)})" for at in (4, 5, 6))
    )
    rest = f"if({part(7)} = '', '', concat('.', {part(7)}))"
    is_time = " OR ".join(f"bigint({part(at)}) <> 0" for at in (4, 5, 6))
    is_date = " OR ".join(f"bigint({part(at)}) <> 0" for at in (1, 2, 3))
    has_time = f"{is_time} OR {part(7)} <> '' OR NOT ({is_date})"
    parts = ", ".join(
        (
            named(year, "year", "false"),
            named(month, "mon", year_is),
            named(day, "day", f"({after_month})"),
            f"if({has_time}, concat({sign}, {clock}, {rest}), NULL)",
        )
    )
    return f"if({_E} RLIKE '^{pattern}$', concat_ws(' ', {parts}), {_E})"


# Values.


def _decimal(scale: int) -> Callable[[bytes], Decimal]:
    def value(data: bytes) -> Decimal:
        sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
        return Decimal((sign, digits, -scale))  # exact, whatever the context's precision

    return value


def _zoned(iso: str) -> int:
    """Microseconds since 1970 of a timestamptz."""
    return temporal.micros(iso.replace("T", " ").removesuffix("Z"))


# Types that depend on the attributes of their schema.


def _int(avro: AvroType) -> SparkType:
    if isinstance(avro, dict) and avro.get("connect.type") == "int16":
        return SparkType("SMALLINT", "int", f"smallint({_E})", _same, native="int")
    return SparkType("INT", "int", _E, _same, native="int")


def _fixed(avro: AvroType) -> SparkType:
    assert isinstance(avro, dict)
    parameters = avro.get("connect.parameters", {})
    scale = int(avro.get("scale", parameters.get("scale", 0)))
    precision = int(avro.get("precision", MAX_PRECISION + 1))
    if (precision, scale) == _MONEY and "connect.decimal.precision" not in parameters:
        precision = 19
    if precision > MAX_PRECISION or not 0 <= scale <= precision:
        return _string("bytes", _point(_E, str(scale)), dumper(avro))
    logical = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    name = f"DECIMAL({precision},{scale})"
    return SparkType(name, logical, _E, _decimal(scale), native="decimal")


def _encoded(avro: AvroType) -> SparkType:
    assert isinstance(avro, dict)
    ways: dict[str, tuple[str, Callable[[str], bytes]]] = {
        "base64": (f"unbase64({_E})", b64decode),
        "base64-url-safe": (f"unbase64(translate({_E}, '-_', '+/'))", urlsafe_b64decode),
        "hex": (f"unhex({_E})", bytes.fromhex),
    }
    sql, value = ways[avro["connect.parameters"][binary.MODE]]
    return SparkType("BINARY", "string", sql, value)


def _bit_string(avro: AvroType) -> SparkType:
    assert isinstance(avro, dict)
    size = int(avro["connect.parameters"]["length"])
    # Without a length the source's text is always there as well.
    return _string("bytes", _bits(str(size if size < 2**31 - 1 else 1)), dumper(avro))


def _array(avro: AvroType) -> SparkType:
    assert isinstance(avro, dict)
    item = spark_type(without_null(avro["items"]))
    sql = _E if item.sql == _E else f"transform({_E}, e -> {item.sql.replace(_E, 'e')})"

    def value(items: list[Any]) -> list[Any]:
        return [None if one is None else item.value(one) for one in items]

    read = {"type": "array", "items": ["null", item.avro]}
    return SparkType(f"ARRAY<{item.name}>", read, sql, value)


def _logical(kind: str, name: str) -> AvroType:
    return {"type": kind, "logicalType": name}


def _millis(_: AvroType) -> SparkType:
    avro = _logical("long", "local-timestamp-millis")
    return SparkType("TIMESTAMP_NTZ", avro, _E, lambda millis: millis * 1000, _STAMP, "millis")


_micros: Final = _read_as("TIMESTAMP_NTZ", _logical("long", "local-timestamp-micros"))
_date: Final = _read_as("DATE", _logical("int", "date"))
_micros_of_day: Final = _strings(_clock(_E))
_millis_of_day: Final = _strings(_clock(f"({_E} * 1000L)"))
_ZONED_TIME: Final = f"concat(left({_E}, length({_E}) - 1), '+00')"
_DURATION: Final = f"if({_E} < 0, concat('-', {_clock(f'(-{_E})')}), {_clock(_E)})"


def _of_zone(_: AvroType) -> SparkType:
    return SparkType("TIMESTAMP", "string", f"timestamp({_E})", _zoned, native="zoned")


def _located(avro: AvroType) -> SparkType:
    sql = f"if({_E} IS NULL, NULL, named_struct('x', {_E}.x, 'y', {_E}.y))"
    return SparkType(
        "STRUCT<x:DOUBLE,y:DOUBLE>",
        _physical(avro),
        sql,
        lambda point: {"x": point["x"], "y": point["y"]},
    )


def _vector(_: AvroType) -> SparkType:
    return SparkType("ARRAY<DOUBLE>", {"type": "array", "items": "double"}, _E, _same)


_TABLE: Final[dict[str, Callable[[AvroType], SparkType]]] = {
    numeric.INT.key: _int,
    numeric.LONG.key: _plain("BIGINT", "int"),
    numeric.FLOAT.key: _plain("FLOAT", "float4"),
    numeric.DOUBLE.key: lambda _: SparkType("DOUBLE", "double", _E, _same, _NUMBER, "float8"),
    numeric.BOOLEAN.key: _plain("BOOLEAN", "bool"),
    numeric.FIXED.key: _fixed,
    numeric.VARIABLE_SHAPE.key: _strings(_point(f"{_E}.value", f"{_E}.scale")),
    text.STRING.key: _strings(),
    text.UUID.key: _strings(),
    text.XML.key: _strings(),
    text.TSVECTOR.key: _strings(),
    text.ENUM.key: _strings(),
    json.JSON.key: _strings(),
    extensions.LTREE.key: _strings(),
    extensions.HSTORE.key: _strings(_hstore(f"from_json({_E}, 'MAP<STRING,STRING>')")),
    extensions.HSTORE_MAP.key: _strings(_hstore(_E)),
    extensions.VECTOR.key: _vector,
    temporal.DATE.key: _date,
    temporal.CONNECT_DATE.key: _date,
    temporal.MICROS.key: _micros,
    temporal.MILLIS.key: _millis,
    temporal.CONNECT_STAMP.key: _millis,
    temporal.ZONED.key: _of_zone,
    temporal.TIME.key: _micros_of_day,
    temporal.TIME_MILLIS.key: _millis_of_day,
    temporal.CONNECT_TIME.key: _millis_of_day,
    temporal.ZONED_TIME.key: _strings(_ZONED_TIME),
    temporal.DURATION.key: _strings(_DURATION),
    temporal.INTERVAL.key: _strings(_interval()),
    binary.BYTES.key: _plain("BINARY", "bytes"),
    binary.ENCODED.key: _encoded,
    binary.BIT.key: _strings(f"if({_E}, '1', '0')"),
    binary.BITS.key: _bit_string,
    geometric.POINT.key: _located,
    "array": _array,
}
assert _TABLE.keys() == SHAPES.keys()
