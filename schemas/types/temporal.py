"""Dates and times, which travel as Debezium's integers and ISO strings.

The texts are those of DateStyle ISO and IntervalStyle postgres, which the
producer asks of its session.  Days before year 1, after 9999, and infinity are
values for PostgreSQL but not for Spark, Python and most readers: they travel
as exact text, next to the number that Debezium would write.

PostgreSQL manual, chapter "Date/Time Types"; Debezium documentation,
PostgreSQL connector, "Temporal values": time.precision.mode and
interval.handling.mode.  Under `connect` the nearest value of a text that does
not fit is inside years 1..9999 and below 24:00, so that readers who apply
Avro's logical types can read it.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Any, Final

from schemas.tables import Column
from schemas.types.base import (
    AvroType,
    Load,
    NotRepresentable,
    SqlType,
    always,
    plain,
    semantic,
    shape,
)

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_MONTH: Final = 365.25 / 12 * _DAY
_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
# What Debezium writes for infinity: the driver's constants.
_INFINITY: Final = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}
_INFINITE_DAY: Final = {"infinity": 2**31 - 1, "-infinity": -(2**31)}

_DATE: Final = re.compile(r"([0-9]{4,})-([0-9]{2})-([0-9]{2})( BC)?")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_STAMP: Final = re.compile(r"([0-9]{4,}-[0-9]{2}-[0-9]{2}) ([0-9:.]{8,15})( BC)?")
_ZONED: Final = re.compile(
    r"([0-9]{4,}-[0-9]{2}-[0-9]{2}) ([0-9:.]{8,15})([+-][0-9]{2}(?::[0-9]{2}){0,2})( BC)?"
)
_INTERVAL: Final = re.compile(
    r"(?:(-?\+?[0-9]+) years? ?)?(?:([-+]?[0-9]+) mons? ?)?(?:([-+]?[0-9]+) days? ?)?"
    r"(?:([-+]?)([0-9]{2,}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)
_ISO_INTERVAL: Final = re.compile(
    r"P(-?[0-9]+)Y(-?[0-9]+)M(-?[0-9]+)DT(-?[0-9]+)H(-?[0-9]+)M(-?[0-9]+)(?:\.([0-9]+))?S"
)


def days(text: str) -> int:
    """Days since 1970-01-01 of an ISO date; raise NotRepresentable outside years 1..9999.

    >>> days("1970-01-02"), days("0001-01-01")
    (1, -719162)
    """
    try:
        if len(text) == 10:
            return date.fromisoformat(text).toordinal() - _EPOCH
    except ValueError:
        pass
    raise NotRepresentable(_INFINITE_DAY.get(text) or _far_days(text), is_alone=True)


def _far_days(text: str) -> int | None:
    """Return days of any date that PostgreSQL writes, or None.

    >>> _far_days("0001-01-01 BC"), _far_days("10000-01-01")
    (-719528, 2932897)
    """
    if (match := _DATE.fullmatch(text)) is None:
        return None
    year = 1 - int(match[1]) if match[4] else int(match[1])
    turn, place = divmod(year - 1, 400)  # the calendar repeats every 400 years of 146097 days
    try:
        day = date(place + 1, int(match[2]), int(match[3]))
    except ValueError:
        return None
    found = day.toordinal() - _EPOCH + turn * 146_097
    return found if abs(found) < 2**31 else None  # an int of Avro; the server's end at 5874897


def micros_of_day(text: str) -> int:
    """Microseconds of `HH:MM:SS[.ffffff]`, 24:00:00 included; raise NotRepresentable.

    >>> micros_of_day("00:00:01.5")
    1500000
    """
    if (match := _TIME.fullmatch(text)) is None:
        raise NotRepresentable
    hour, minute, second, fraction = match.groups()
    return (
        int(hour) * _HOUR
        + int(minute) * _MINUTE
        + int(second) * _SECOND
        + (int(fraction.ljust(6, "0")) if fraction else 0)
    )


@lru_cache(maxsize=4096)
def _midnight(text: str) -> int:
    return days(text) * _DAY


def micros(text: str) -> int:
    """Microseconds since 1970 of a timestamp; raise NotRepresentable outside years 1..9999."""
    try:
        if text[10:11] == " ":
            return _midnight(text[:10]) + micros_of_day(text[11:])
    except NotRepresentable:
        pass
    nearest = _far_micros(text)
    # Years that Avro cannot count to share theirs with infinity, which stays the only key there.
    is_alone = text in _INFINITY or nearest != _INFINITY["infinity"]
    raise NotRepresentable(nearest, is_alone=is_alone)


def _far_micros(text: str) -> int | None:
    if text in _INFINITY:
        return _INFINITY[text]
    if (match := _STAMP.fullmatch(text)) is None:
        return None
    if (far := _far_days(match[1] + (match[3] or ""))) is None:
        return None
    found = far * _DAY + micros_of_day(match[2])
    return max(_INFINITY["-infinity"], min(found, _INFINITY["infinity"]))  # Avro counts from 1970


def _millis(text: str) -> int:
    try:
        value = micros(text)
    except NotRepresentable as exc:
        if exc.nearest is None:
            raise
        raise NotRepresentable(exc.nearest // 1000, is_alone=exc.is_alone) from None
    if value % 1000:
        raise NotRepresentable(value // 1000)
    return value // 1000


def zoned(text: str, digits: int = 6) -> str:
    """ISO text in UTC of a timestamptz; raise NotRepresentable outside years 1..9999.

    The fraction has as many digits as the column's type, as Debezium writes it.

    >>> zoned("2024-05-01 12:00:00.5+00"), zoned("2024-05-01 12:00:00+02:30", 0)
    ('2024-05-01T12:00:00.500000Z', '2024-05-01T09:30:00Z')
    >>> zoned("0001-01-01 12:00:00+02:30", 0), zoned("9999-12-31 12:00:00-02:30", 0)
    ('0001-01-01T09:30:00Z', '9999-12-31T14:30:00Z')
    """
    if text[-3:] == "+00" and text[10:11] == " ":
        return f"{text[:10]}T{_padded(text[11:-3], digits)}Z"
    if text in _INFINITY:
        raise NotRepresentable(text, is_alone=True)
    if (match := _ZONED.fullmatch(text)) is None or match[4] or len(match[1]) > 10:
        raise NotRepresentable(match and _far_zoned(match, digits), is_alone=True)
    total = days(match[1]) * _DAY + micros_of_day(match[2]) - _offset(match[3])
    if not _FIRST_DAY <= total // _DAY <= _LAST_DAY:
        raise NotRepresentable
    return f"{_date_text(total // _DAY)}T{_padded(_time_text(total % _DAY), digits)}Z"


def _padded(time: str, digits: int) -> str:
    if digits == 0:
        return time
    seconds, _, fraction = time.partition(".")
    return f"{seconds}.{fraction:0<{digits}}"


def _far_zoned(match: re.Match[str], digits: int) -> str | None:
    """Year 0 and before, or 10000 and after, as Java's ISO_OFFSET_DATE_TIME writes them."""
    if _offset(match[3]):
        return None
    year, rest = match[1][:-6], match[1][-6:]
    year = f"{1 - int(year):05d}" if match[4] else f"+{year}"
    time = _padded(match[2], digits)
    return f"{'0000' if year == '00000' else year}{rest}T{time}Z"


def _offset(text: str) -> int:
    """Microseconds of `+HH[:MM[:SS]]`."""
    parts = [int(part) for part in text[1:].split(":")] + [0, 0]
    total = parts[0] * _HOUR + parts[1] * _MINUTE + parts[2] * _SECOND
    return -total if text[0] == "-" else total


def _zoned_time(text: str) -> str:
    """`HH:MM:SS[.f]Z`; another offset is part of the value and travels as text."""
    if text.endswith("+00") and _TIME.fullmatch(text[:-3]):
        return text[:-3] + "Z"
    cut = max(text.rfind("+"), text.rfind("-"))
    if cut == -1:
        raise NotRepresentable
    total = (micros_of_day(text[:cut]) - _offset(text[cut:])) % _DAY
    raise NotRepresentable(_time_text(total) + "Z")


def _interval(text: str) -> int:
    """Microseconds of an interval without days and months, whose text comes back the same."""
    match = _INTERVAL.fullmatch(text)
    if match is None or not text:
        raise NotRepresentable
    years, months, day, sign, hour, minute, second, fraction = match.groups()
    total = 0
    if hour:
        total = int(hour) * _HOUR + int(minute) * _MINUTE + int(second) * _SECOND
        total += int((fraction or "").ljust(6, "0"))
        total = -total if sign == "-" else total
    if years or months or day:
        average = (int(years or 0) * 12 + int(months or 0)) * _MONTH
        nearest = int(average) + int(day or 0) * _DAY + total
        raise NotRepresentable(max(-(2**63), min(nearest, 2**63 - 1)))
    if not -(2**63) < total < 2**63:
        raise NotRepresentable
    return total


def _time_millis(text: str) -> int:
    value, rest = divmod(micros_of_day(text), 1000)
    if rest:
        raise NotRepresentable(value)
    return value


def _connect_time(text: str) -> int:
    value, rest = divmod(micros_of_day(text), 1000)
    if rest or value >= _DAY // 1000:
        raise NotRepresentable(min(value, _DAY // 1000 - 1))
    return value


def _connect_date(text: str) -> int:
    try:
        return days(text)
    except NotRepresentable as exc:
        raise NotRepresentable(_clamped(exc.nearest, _FIRST_DAY, _LAST_DAY)) from None


def _connect_stamp(text: str) -> int:
    try:
        return _millis(text)
    except NotRepresentable as exc:
        last = (_LAST_DAY + 1) * _DAY // 1000 - 1
        nearest = _clamped(exc.nearest, _FIRST_DAY * _DAY // 1000, last)
        raise NotRepresentable(nearest) from None


def _clamped(value: int | None, low: int, high: int) -> int | None:
    return None if value is None else max(low, min(value, high))


def _iso_interval(text: str) -> str:
    """Write `PnYnMnDTnHnMnS` with all its parts, as Debezium does.

    >>> _iso_interval("1 year 2 mons -3 days -04:05:06.7")
    'P1Y2M-3DT-4H-5M-6.7S'
    """
    match = _INTERVAL.fullmatch(text)
    if match is None or not text:
        raise NotRepresentable(text)
    years, months, day, sign, hour, minute, second, fraction = match.groups()
    sign = "-" if sign == "-" else ""

    def part(digits: str | None, before: str = "") -> str:
        number = int(digits or 0)
        return f"{before if number else ''}{number}"

    rest = (fraction or "").rstrip("0")
    seconds = f"{sign}{int(second)}.{rest}" if rest else part(second, sign)
    iso = (
        f"P{part(years)}Y{part(months)}M{part(day)}D"
        f"T{part(hour, sign)}H{part(minute, sign)}M{seconds}S"
    )
    if _postgres_interval(iso) != text:
        raise NotRepresentable(iso)
    return iso


def _postgres_interval(iso: str) -> str:
    """Undo `_iso_interval`: IntervalStyle postgres, where a part after a negative one has a `+`."""
    match = _ISO_INTERVAL.fullmatch(iso)
    if match is None:
        return iso  # the server reads ISO as well
    years, months, day, hour, minute, second, fraction = match.groups()
    parts = []
    was_negative = False
    for digits, unit in ((years, "year"), (months, "mon"), (day, "day")):
        if number := int(digits):
            plus = "+" if was_negative and number > 0 else ""
            parts.append(f"{plus}{number} {unit}{'' if number == 1 else 's'}")
            was_negative = number < 0
    is_negative = "-" in hour + minute + second
    clock = [abs(int(hour)), abs(int(minute)), abs(int(second))]
    if any(clock) or fraction or not parts:
        sign = "-" if is_negative else "+" if was_negative else ""
        text = ":".join(f"{number:02d}" for number in clock)
        parts.append(f"{sign}{text}.{fraction}" if fraction else f"{sign}{text}")
    return " ".join(parts)


def _date_text(day: int) -> str:
    return date.fromordinal(day + _EPOCH).isoformat()


def _time_text(total: int) -> str:
    """Write `HH:MM:SS[.f]` without trailing zeros, as the server does."""
    seconds, fraction = divmod(total, _SECOND)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _stamp_text(value: int) -> str:
    return f"{_date_text(value // _DAY)} {_time_text(value % _DAY)}"


def _interval_text(value: int) -> str:
    return f"-{_time_text(-value)}" if value < 0 else _time_text(value)


def _zoned_text(value: str) -> str:
    time = value[11:-1]
    return f"{value[:10]} {time.rstrip('0').rstrip('.') if '.' in time else time}+00"


DATE: Final = shape("io.debezium.time.Date", _date_text, "date")
TIME: Final = shape("io.debezium.time.MicroTime", _time_text, "time")
ZONED_TIME: Final = shape("io.debezium.time.ZonedTime", lambda v: v[:-1] + "+00", "zoned_time")
MICROS: Final = shape("io.debezium.time.MicroTimestamp", _stamp_text, "micros")
MILLIS: Final = shape("io.debezium.time.Timestamp", lambda v: _stamp_text(v * 1000), "millis")
ZONED: Final = shape("io.debezium.time.ZonedTimestamp", _zoned_text, "zoned")
DURATION: Final = shape("io.debezium.time.MicroDuration", _interval_text, "duration")


TIME_MILLIS: Final = shape("io.debezium.time.Time", lambda v: _time_text(v * 1000), "time_millis")
INTERVAL: Final = shape("io.debezium.time.Interval", _postgres_interval)
CONNECT_DATE: Final = shape("org.apache.kafka.connect.data.Date", _date_text, "date")
CONNECT_TIME: Final = shape(
    "org.apache.kafka.connect.data.Time", lambda v: _time_text(v * 1000), "time_millis"
)
CONNECT_STAMP: Final = shape(
    "org.apache.kafka.connect.data.Timestamp", lambda v: _stamp_text(v * 1000), "millis"
)


def _logical(avro: str, name: str, logical: str) -> dict[str, Any]:
    return {**semantic(avro, name), "logicalType": logical}


def _time_avro(column: Column) -> AvroType:
    if 0 <= column.type_mod <= 3:
        return semantic("int", TIME_MILLIS.key)
    return semantic("long", TIME.key)


def _time_loader(column: Column) -> Load:
    return _time_millis if 0 <= column.type_mod <= 3 else micros_of_day


def _stamp_avro(column: Column) -> AvroType:
    return semantic("long", MILLIS.key if 0 <= column.type_mod <= 3 else MICROS.key)


def _stamp_loader(column: Column) -> Load:
    return _millis if 0 <= column.type_mod <= 3 else micros


def _zoned_loader(column: Column) -> Load:
    digits = column.type_mod if 0 <= column.type_mod <= 6 else 6
    return lambda text: zoned(text, digits)


_connect_date_avro: Final = _logical("int", CONNECT_DATE.key, "date")
_connect_time_avro: Final = _logical("int", CONNECT_TIME.key, "time-millis")
_connect_stamp_avro: Final = _logical("long", CONNECT_STAMP.key, "timestamp-millis")

TYPES: Final = (
    SqlType(
        "date", (1082,), DATE, always(semantic("int", DATE.key)), plain(days), 1182, "date",
        variants={"time=connect": SqlType(
            "date", (1082,), CONNECT_DATE, always(_connect_date_avro), plain(_connect_date), 1182,
            "date",
        )},
    ),
    SqlType(
        "time without time zone", (1083,), TIME, _time_avro, _time_loader, 1183,
        variants={
            "time=adaptive-time-microseconds": SqlType(
                "time without time zone", (1083,), TIME, always(semantic("long", TIME.key)),
                plain(micros_of_day), 1183,
            ),
            "time=connect": SqlType(
                "time without time zone", (1083,), CONNECT_TIME, always(_connect_time_avro),
                plain(_connect_time), 1183,
            ),
        },
    ),
    SqlType(
        "time with time zone", (1266,), ZONED_TIME, always(semantic("string", ZONED_TIME.key)),
        plain(_zoned_time), 1270, zero="00:00:00Z",
    ),
    SqlType(
        "timestamp without time zone", (1114,), MICROS, _stamp_avro, _stamp_loader, 1115,
        "timestamp",
        variants={"time=connect": SqlType(
            "timestamp without time zone", (1114,), CONNECT_STAMP, always(_connect_stamp_avro),
            plain(_connect_stamp), 1115, "timestamp",
        )},
    ),
    SqlType(
        "timestamp with time zone", (1184,), ZONED, always(semantic("string", ZONED.key)),
        _zoned_loader, 1185, "timestamptz", zero="1970-01-01T00:00:00Z",
    ),
    SqlType(
        "interval", (1186,), DURATION, always(semantic("long", DURATION.key)), plain(_interval),
        1187,
        variants={"interval=string": SqlType(
            "interval", (1186,), INTERVAL, always(semantic("string", INTERVAL.key)),
            plain(_iso_interval), 1187, zero="P0Y0M0DT0H0M0S",
        )},
    ),
)  # fmt: skip
