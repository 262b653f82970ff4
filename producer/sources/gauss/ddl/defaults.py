r"""The value that a DEFAULT gives to older rows, where it is a constant.

GaussDB sends `ADD COLUMN c integer DEFAULT (1.7)::integer` without rows: each older
row has 2.  This module reads constants as the manual writes them, casts between
types whose rules are simple, and a few functions of constants (only immutable ones
are deparsed); the column's own type is the last cast.  Any other default is
unknown: the source computed it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from enum import Enum, auto
from typing import Final, NamedTuple

from producer.core.statements.sql_words import Words
from producer.sources.gauss.ddl.columns import take_type
from producer.sources.gauss.ddl.model import TypeSpec
from producer.sources.gauss.ddl.types import column_of
from schemas.tables import Column
from schemas.types import BY_OID

_BOOL, _TEXT, _VARCHAR, _BPCHAR, _NUMERIC = 16, 25, 1043, 1042, 1700
_BIT, _VARBIT = 1560, 1562
_BYTEA: Final = 17
_INTEGERS: Final = {  # tinyint has no sign
    21: (-(2**15), 2**15 - 1),
    23: (-(2**31), 2**31 - 1),
    20: (-(2**63), 2**63 - 1),
    5545: (0, 255),
}
_FLOATS: Final = frozenset({700, 701})
_TEXTS: Final = frozenset({_TEXT, _VARCHAR, _BPCHAR, 3969, 90})  # nvarchar2, clob
_HEADER: Final = 4  # of a length in atttypmod
_OF_THE_CLOCK: Final = frozenset({"now", "today", "tomorrow", "yesterday", "allballs"})
_MOST_BRACKETS: Final = 1000  # each is searched for again within the one around it
_MOST_DIGITS: Final = 1000  # beyond the point or before it
_BACKSLASHES: Final = re.compile(r"\\+")
_BARE: Final = re.compile(r"(?!null$)[^\s{}\",\\]+", re.IGNORECASE)
_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|''", re.DOTALL
)
_CONTROLS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ELEMENTS: Final[Mapping[int, int]] = {
    entry.array_oid: oid for oid, entry in BY_OID.items() if entry.array_oid
}


class _Kind(Enum):
    NULL = auto()
    STRING = auto()  # a plain one: of no type yet
    NUMBER = auto()
    BOOL = auto()
    BITS = auto()
    ARRAY = auto()
    TYPED = auto()  # the text of a value of type `oid`


class _Value(NamedTuple):
    kind: _Kind
    text: str = ""
    oid: int = 0
    mod: int = -1
    elements: tuple[_Value, ...] = ()


class _Unknown(Exception):
    """The default is not a constant, or its rules are not known here."""


def value_of(default: str | None, column: Column | None = None) -> tuple[bool, str | None]:
    """Read a default as a constant: whether it is one, and its text; None is NULL.

    `column` has the type to which it is converted, as by an assignment.

    >>> value_of("'it''s'::text"), value_of("(-5)"), value_of("now()"), value_of(None)
    ((True, "it's"), (True, '-5'), (False, None), (True, None))
    >>> value_of("(1.7)::integer"), value_of("1e2"), value_of("ABS(-1)"), value_of("B'101'")
    ((True, '2'), (True, '100'), (True, '1'), (True, '101'))
    """
    if default is None:
        return True, None
    if default.count("(") + default.count("[") > _MOST_BRACKETS:
        return False, None
    words = Words(default)
    try:
        value = _whole(words)
        if column is not None and column.type_oid:
            value = _cast(value, column.type_oid, column.type_mod, is_explicit=False)
        return True, None if value.kind is _Kind.NULL else _text(value)
    except (_Unknown, RecursionError, InvalidOperation):
        return False, None


def _text(value: _Value) -> str:
    if value.kind is not _Kind.ARRAY:
        return value.text
    shown = []
    for element in value.elements:
        if element.kind is _Kind.NULL:
            shown.append("NULL")
            continue
        text = _text(element)
        if element.kind is _Kind.ARRAY or text.startswith("{"):
            raise _Unknown  # arrays of several dimensions are unknown
        if _BARE.fullmatch(text):
            shown.append(text)
        else:
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            shown.append(f'"{escaped}"')
    return f"{{{','.join(shown)}}}"


# ---------------------------------------------------------------- reading


def _operand(words: Words) -> _Value:
    value = _primary(words)
    while words.take("::"):
        value = _cast_as(value, words)
    return value


def _primary(words: Words) -> _Value:
    word = words.look()
    if word.text == "(" and (inside := words.brackets()) is not None:
        return _whole(inside)
    if word.upper in {"-", "+"}:
        words.step()
        value = _operand(words)
        if value.kind is not _Kind.NUMBER:
            raise _Unknown
        # Not by the sign's own operation, which rounds to the context's digits.
        number = _number(value) if word.upper == "+" else _number(value).copy_negate()
        return value._replace(text=_shown(number))
    if word.kind == "number":
        words.step()
        return _Value(_Kind.NUMBER, _shown(Decimal(word.text)))
    if word.kind == "string":
        words.step()
        return _string(word.text)
    if words.take("NULL"):
        return _Value(_Kind.NULL)
    if found := words.take_any("TRUE", "FALSE"):
        return _Value(_Kind.BOOL, found.lower())
    if words.is_next("ARRAY") and words.look(1).text == "[":
        return _array(words)
    if words.is_next("CAST") and words.look(1).text == "(":
        words.step()
        inside = words.brackets()
        assert inside is not None
        value = _operand(inside)
        if not inside.take("AS"):
            raise _Unknown
        value = _cast_as(value, inside)
        if inside:
            raise _Unknown
        return value
    return _call(words)


def _whole(words: Words) -> _Value:
    value = _operand(words)
    if words:
        raise _Unknown
    return value


def _array(words: Words) -> _Value:
    words.step()
    inside = words.brackets("[")
    assert inside is not None
    return _Value(_Kind.ARRAY, elements=tuple(_whole(part) for part in inside.parts()))


def _call(words: Words) -> _Value:
    """A function of a constant, or a type before one: `date '2024-01-01'`."""
    name = words.dotted()
    if not name or (len(name) > 1 and name[0] != "pg_catalog"):
        raise _Unknown
    inside = words.brackets()
    if inside is None and words.look().kind == "string":
        column = column_of("", _spec(Words(".".join(name))))
        if column is None:
            raise _Unknown
        return _cast(_string(words.step().text), column.type_oid, column.type_mod)
    compute = _FUNCTIONS.get(name[-1])
    if inside is None or compute is None:
        raise _Unknown
    return compute(_whole(inside))


def _spec(words: Words) -> TypeSpec:
    spec = take_type(words)
    if spec is None:
        raise _Unknown
    return spec


def _string(text: str) -> _Value:
    """Read a string according to its quoting."""
    if text.startswith("$"):
        mark = text[: text.index("$", 1) + 1]
        return _Value(_Kind.STRING, text[len(mark) : -len(mark)])
    prefix, inside = text[: text.index("'")].upper(), text[text.index("'") + 1 : -1]
    match prefix:
        case "E":
            return _Value(_Kind.STRING, _ESCAPE.sub(_unescaped, inside))
        case "B" if set(inside) <= {"0", "1"}:
            return _Value(_Kind.BITS, inside)
        case "X" if inside.isalnum():
            try:
                return _Value(_Kind.BITS, "".join(f"{int(digit, 16):04b}" for digit in inside))
            except ValueError:
                raise _Unknown from None
        case "" | "N":
            runs = [len(run) for run in _BACKSLASHES.findall(inside)]
            # With standard_conforming_strings off all are doubled: the meaning is another.
            if runs and not any(length % 2 for length in runs):
                raise _Unknown
            return _Value(_Kind.STRING, inside.replace("''", "'"))
        case _:
            raise _Unknown


def _unescaped(found: re.Match[str]) -> str:
    if found[0] == "''":
        return "'"
    octal, byte, short, long, char = found.groups()
    code = int(octal, 8) if octal else int(byte or short or long, 16) if char is None else -1
    if code < 0:
        return _CONTROLS.get(char, char)
    if not 0 < code <= 0x10FFFF or 0xD800 <= code < 0xE000 or ((octal or byte) and code > 0x7F):
        raise _Unknown  # a byte of some encoding, or not a character
    return chr(code)


# ---------------------------------------------------------------- functions


def _number(value: _Value) -> Decimal:
    if value.kind is not _Kind.NUMBER:
        raise _Unknown
    return Decimal(value.text)


def _shown(number: Decimal) -> str:
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise _Unknown
    return format(number.copy_abs() if number.is_zero() else number, "f")


def _computed(compute: Callable[[Decimal], Decimal]) -> Callable[[_Value], _Value]:
    return lambda value: value._replace(text=_shown(compute(_number(value))))


def _with_ascii(compute: Callable[[str], str]) -> Callable[[_Value], _Value]:
    def computed(value: _Value) -> _Value:
        is_text = value.kind is _Kind.STRING or value.oid in _TEXTS
        if not is_text or not value.text.isascii():
            raise _Unknown  # by a locale
        return _Value(_Kind.TYPED, compute(value.text), _TEXT)

    return computed


_FUNCTIONS: Final[Mapping[str, Callable[[_Value], _Value]]] = {
    "abs": _computed(Decimal.copy_abs),
    "ceil": _computed(lambda n: n.to_integral_value("ROUND_CEILING")),
    "ceiling": _computed(lambda n: n.to_integral_value("ROUND_CEILING")),
    "floor": _computed(lambda n: n.to_integral_value("ROUND_FLOOR")),
    "round": _computed(lambda n: n.to_integral_value(ROUND_HALF_UP)),
    "upper": _with_ascii(str.upper),
    "lower": _with_ascii(str.lower),
}


# ---------------------------------------------------------------- casts


def _cast_as(value: _Value, words: Words) -> _Value:
    spec = _spec(words)
    column = column_of("", spec)
    if column is not None:
        return _cast(value, column.type_oid, column.type_mod)
    if value.kind not in {_Kind.STRING, _Kind.NULL} or spec.modifiers != ():
        raise _Unknown
    return value  # a user's type reads the string; the column's own will


def _cast(value: _Value, oid: int, mod: int, *, is_explicit: bool = True) -> _Value:
    """Return the value after a cast; raise _Unknown."""
    if value.kind is _Kind.NULL:
        return value
    if value.kind is _Kind.ARRAY:
        if (inner := _ELEMENTS.get(oid)) is None:
            raise _Unknown
        return value._replace(
            elements=tuple(
                _cast(element, inner, mod, is_explicit=is_explicit) for element in value.elements
            )
        )
    if oid in _TEXTS:
        return _as_text(value, oid, mod)
    if value.kind is _Kind.TYPED and value.oid not in _TEXTS:
        if value.oid == oid and (value.mod in {-1, mod} or mod == -1):
            return value._replace(mod=value.mod if mod == -1 else mod)
        raise _Unknown
    is_string = value.kind in {_Kind.STRING, _Kind.TYPED}
    if oid in _INTEGERS or oid == _NUMERIC:
        return _as_number(value, oid, mod, is_string=is_string)
    if oid in {_BIT, _VARBIT} and value.kind is _Kind.BITS:
        return _as_bits(value, oid, mod, is_explicit=is_explicit)
    if oid in _FLOATS and value.kind is _Kind.NUMBER:
        return _Value(_Kind.TYPED, value.text, oid)
    if oid == _BOOL and value.kind is _Kind.BOOL:
        return value
    if not is_string or value.text.strip().lower() in _OF_THE_CLOCK:
        raise _Unknown
    text = _bytes(value.text) if oid == _BYTEA else value.text
    return _Value(_Kind.TYPED, text, oid, mod)


def _bytes(text: str) -> str:
    """Return what the server prints of a bytea; only ASCII is the same in every encoding."""
    if text.startswith("\\x"):
        return text
    if not text.isascii() or "\\" in text:
        raise _Unknown
    return f"\\x{text.encode('ascii').hex()}"


def _as_text(value: _Value, oid: int, mod: int) -> _Value:
    if value.kind is _Kind.BITS or (value.kind is _Kind.TYPED and value.oid not in _TEXTS):
        raise _Unknown
    # Characters or bytes are counted, by the database's compatibility.
    if mod != -1 and len(value.text.encode()) > mod - _HEADER:
        raise _Unknown
    return _Value(_Kind.TYPED, value.text, oid, mod)


def _as_number(value: _Value, oid: int, mod: int, *, is_string: bool) -> _Value:
    if is_string:
        text = value.text.strip()
        if not text.isascii() or "_" in text:
            raise _Unknown
        number = Decimal(text)
        if oid != _NUMERIC and number != number.to_integral_value():
            raise _Unknown
    else:
        number = _number(value)
    if oid == _NUMERIC and is_string and not number.is_finite():
        return _Value(_Kind.TYPED, value.text, oid, mod)
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise _Unknown
    if oid == _NUMERIC:
        if mod != -1:
            precision, scale = (mod - _HEADER) >> 16, (mod - _HEADER) & 0x7FF
            if scale > precision:
                raise _Unknown  # a negative scale
            with localcontext() as context:
                context.prec = 2 * _MOST_DIGITS + precision
                number = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
            if number and number.adjusted() >= precision - scale:
                raise _Unknown
        return _Value(_Kind.NUMBER, _shown(number))
    whole = number.to_integral_value(ROUND_HALF_UP)
    low, high = _INTEGERS[oid]
    if not low <= whole <= high:
        raise _Unknown
    return _Value(_Kind.NUMBER, _shown(whole))


def _as_bits(value: _Value, oid: int, mod: int, *, is_explicit: bool) -> _Value:
    if mod == -1 or len(value.text) == mod or (oid == _VARBIT and len(value.text) < mod):
        return value
    if not is_explicit:
        raise _Unknown
    text = value.text[:mod]
    return value._replace(text=text.ljust(mod, "0") if oid == _BIT else text)
