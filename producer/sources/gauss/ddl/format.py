r"""The `fmt` language: expands a deparsed DDL document to SQL.

A document is a JSON object whose member `fmt` is SQL with places to fill in:

    %%            a percent sign
    %{name}X      the member `name`, by conversion X
    %{name:sep}X  each element of the array `name`, with `sep` between

    I  a string, as an identifier
    D  an object, as a dotted name: schema (may be missing), object, attribute (may be)
    s  a string as it is; or an object with a `fmt` of its own, nothing if its
       `present` is false
    L  a string, as a literal; dollar-quoted if it holds a quote or a backslash
    T  an object, as a type: schema "" leaves the name unquoted (`TIMESTAMP`)
    n  a number

The separator of an array's element that is not present is left out, too.  Members
that no `fmt` names are information, and are not read.  openGauss spells
`schemaname`, `objname`, `typename`; GaussDB `schema_name`, `object_name`,
`type_name`: one document uses one spelling, a name given in both is refused.

What the language does not know is an error in the server's own words (SQLSTATE
22023), never a guess: PostgreSQL's older proposal had an `O` and an `R`, which neither
server prints.

Source: openGauss, deparsing of DDL; GaussDB manual, "DDL in logical decoding".

>>> expand({"fmt": "DROP TABLE %{identity}D", "identity": {"schemaname": "s", "objname": "T"}})
'DROP TABLE s."T"'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from producer.errors import DdlMalformed
from producer.sources.gauss.ddl.quoting import quote_identifier

Json: TypeAlias = Any  # str | bool | int | Decimal | list | Object | None
Object: TypeAlias = Mapping[str, Any]

MAX_DEPTH: Final = 60  # real documents: 6
# A member may be named any number of times, so a short document could expand without end.
_FREE_WORK: Final = 1 << 16
_WORK_PER_CHARACTER: Final = 16
_MAX_EXPONENT: Final = 1000

_SCHEMA: Final = ("schemaname", "schema_name")
_OBJECT: Final = ("objname", "object_name")
_ATTRIBUTE: Final = ("attrname", "attr_name", "attribute_name")
_TYPE: Final = ("typename", "type_name")
_SUFFIX: Final = "_XYZZYX_"
_RUNS: Final = re.compile(r"\$(?:_XYZZYX_)*(?:_XYZZYX|_XYZZY|_XYZZ|_XYZ|_XY|_X|_)?")
_CONVERSIONS: Final = frozenset("IDsLTn")


def parse(text: str) -> Object:
    """Read a document; raise DdlMalformed unless it is one JSON object, without doubles."""
    try:
        document = json.loads(
            text, object_pairs_hook=_unique, parse_float=Decimal, parse_constant=_no_constant
        )
    except RecursionError:
        raise DdlMalformed("a DDL document nested too deeply", size=len(text)) from None
    except ValueError:
        raise DdlMalformed("a DDL document that is not JSON", size=len(text)) from None
    if not isinstance(document, dict):
        raise DdlMalformed("a DDL document that is not a JSON object", size=len(text))
    return document


def expand(document: Object) -> str:
    """Return the document's SQL; raise DdlMalformed."""
    work = _Work(_FREE_WORK + _WORK_PER_CHARACTER * _size(document))
    return "".join(_expanded(document, work, 0))


def fragment(value: Json) -> str:
    """Return the SQL of a part as `%{…}s` would; "" for what is not present."""
    text = _string(value, "", _Work(_FREE_WORK + _WORK_PER_CHARACTER * _size(value)), 0)
    return text or ""


def type_text(value: Json) -> str:
    """Return the SQL of a type as `%{…}T` would."""
    return _type(value, "")


def member(of: Object, spellings: Iterable[str]) -> str | None:
    """Return a string member under whichever spelling it has; None if it has none.

    Raises DdlMalformed for several spellings, or for what is no string.
    """
    found = [name for name in spellings if name in of]
    if len(found) > 1:
        raise DdlMalformed(f'element "{found[1]}" next to "{found[0]}" in JSON object')
    return _text_of(of, found[0]) if found else None


def dotted(value: Object) -> tuple[str | None, str]:
    """Return schema and name of an object that `D` takes.  Raises DdlMalformed without a name."""
    name = member(value, _OBJECT)
    if name is None:
        raise _missing(_OBJECT[0])
    return member(value, _SCHEMA), name


def type_parts(value: Object) -> tuple[str | None, str, str, bool]:
    """Return schema, name, modifier and whether it is an array, of what `T` takes.

    Raises DdlMalformed without a name, or without a boolean `typarray`.
    """
    name = member(value, _TYPE)
    if name is None:
        raise _missing(_TYPE[0])
    is_array = value.get("typarray")
    if "typarray" not in value:
        raise DdlMalformed("missing typarray element")
    if not isinstance(is_array, bool):
        raise DdlMalformed('element "typarray" is not of type boolean')
    return member(value, _SCHEMA), name, member(value, ("typmod",)) or "", is_array


def is_present(value: Json) -> bool:
    """Say whether an object is present: one with `present` false means nothing.

    Raises DdlMalformed where `present` is no boolean.
    """
    if not isinstance(value, dict) or "present" not in value:
        return True
    if not isinstance(value["present"], bool):
        raise DdlMalformed('element "present" is not of type boolean')
    return value["present"]


# ---- expansion


class _Work:
    """The remaining limits of an expansion."""

    __slots__ = ("_left",)

    def __init__(self, limit: int) -> None:
        self._left = limit

    def spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise DdlMalformed("a DDL document that expands beyond the limit")


def _expanded(document: Object, work: _Work, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise DdlMalformed("a DDL document nested too deeply", depth=depth)
    fmt = _text_of(document, "fmt")
    work.spend(len(fmt) + 1)
    for literal, name, separator, conversion in _pieces(fmt):
        yield literal
        if name is None:
            continue
        if name not in document:
            raise _missing(name)
        value, convert = document[name], _CONVERT[conversion]
        if separator is None:
            text = convert(value, name, work, depth)
            if text:
                work.spend(len(text))
                yield text
            continue
        if not isinstance(value, list):
            raise DdlMalformed(f'element "{name}" is not a JSON array')
        parts: list[str] = []
        for element in value:
            text = convert(element, name, work, depth)
            work.spend(1)
            if text is not None:
                work.spend(len(text) + len(separator))
                parts.append(text)
        yield separator.join(parts)


def _pieces(fmt: str) -> Iterator[tuple[str, str | None, str | None, str]]:
    """Split a `fmt` into text, each with the specifier that follows: name, separator, letter."""
    at, size = 0, len(fmt)
    while (percent := fmt.find("%", at)) >= 0:
        text, at = fmt[at:percent], percent + 1
        if at == size:
            raise DdlMalformed("unterminated format specifier")
        if fmt[at] == "%":
            yield f"{text}%", None, None, ""
            at += 1
            continue
        if fmt[at] != "{":
            raise DdlMalformed("missing conversion name in conversion specifier")
        end = fmt.find("}", at)
        if end < 0 or end + 1 == size:
            raise DdlMalformed("unterminated format specifier")
        name, colon, separator = fmt[at + 1 : end].partition(":")
        conversion = fmt[end + 1]
        if not name:
            raise DdlMalformed("missing conversion name in conversion specifier")
        if ":" in separator:
            raise DdlMalformed('invalid conversion specifier ":"')
        if conversion not in _CONVERSIONS:
            raise DdlMalformed(f'invalid conversion specifier "{conversion}"')
        yield text, name, separator if colon else None, conversion
        at = end + 2
    yield fmt[at:], None, None, ""


# ---- conversions; None: not present


def _string(value: Json, name: str, work: _Work, depth: int) -> str | None:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        if not is_present(value):
            return None
        return "".join(_expanded(value, work, depth + 1))
    raise _expected("string or struct", "s", name, value)


def _identifier(value: Json, name: str, work: _Work, depth: int) -> str:
    del work, depth
    if not isinstance(value, str):
        raise _expected("string", "I", name, value)
    return quote_identifier(_clean(value))


def _dotted(value: Json, name: str, work: _Work, depth: int) -> str:
    del work, depth
    if not isinstance(value, dict):
        raise _expected("struct", "D", name, value)
    schema, table = dotted(value)
    parts = (schema, table, member(value, _ATTRIBUTE))
    return ".".join(quote_identifier(part) for part in parts if part is not None)


def _literal(value: Json, name: str, work: _Work, depth: int) -> str:
    r"""Quote a string as the server does.

    >>> [_literal(text, "v", _Work(9), 0) for text in ("row", "it's", "$$it's", "it's $")]
    ["'row'", "$$it's$$", "$_$$$it's$_$", "$_$it's $$_$"]
    """
    del work, depth
    if not isinstance(value, str):
        raise _expected("string", "L", name, value)
    text = _clean(value)
    if "'" not in text and "\\" not in text:
        return f"'{text}'"
    # The server lengthens its delimiter along a fixed word until the text does not hold it.
    longest = max((len(run[0]) for run in _RUNS.finditer(text)), default=0)
    delimiter = "$" + _SUFFIX * (longest // len(_SUFFIX)) + _SUFFIX[: longest % len(_SUFFIX)]
    return f"{delimiter}${text}{delimiter}$"


def _type(value: Json, name: str, work: _Work | None = None, depth: int = 0) -> str:
    del work, depth
    if not isinstance(value, dict):
        raise _expected("struct", "T", name, value)
    schema, type_name, modifier, is_array = type_parts(value)
    if schema is None:
        head = quote_identifier(type_name)
    elif schema:
        head = f"{quote_identifier(schema)}.{quote_identifier(type_name)}"
    else:
        head = type_name  # TIMESTAMP, INTERVAL: their modifiers are separate
    return f"{head}{modifier}{'[]' if is_array else ''}"


def _number(value: Json, name: str, work: _Work, depth: int) -> str:
    del work, depth
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _expected("numeric", "n", name, value)
    number = value if isinstance(value, (int, Decimal)) else Decimal(repr(value))
    if isinstance(number, Decimal):
        if not number.is_finite() or abs(number.adjusted()) > _MAX_EXPONENT:
            raise DdlMalformed(f'element "{name}" is a number out of range')
        return format(number, "f")
    return str(number)


_CONVERT: Final[dict[str, Callable[[Json, str, _Work, int], str | None]]] = {
    "I": _identifier,
    "D": _dotted,
    "s": _string,
    "L": _literal,
    "T": _type,
    "n": _number,
}


# ---- members


def _text_of(of: Object, name: str) -> str:
    if name not in of:
        raise _missing(name)
    value = of[name]
    if not isinstance(value, str):
        raise DdlMalformed(f'element "{name}" is not of type string')
    return _clean(value)


def _clean(text: str) -> str:
    if "\0" in text:
        raise DdlMalformed("a zero byte in a DDL document")
    return text


def _missing(name: str) -> DdlMalformed:
    return DdlMalformed(f'missing element "{name}" in JSON object')


def _expected(what: str, letter: str, name: str, value: Json) -> DdlMalformed:
    found = next((word for kind, word in _KINDS if isinstance(value, kind)), "null")
    return DdlMalformed(f'expected JSON {what} for %{letter} element "{name}", got {found}')


_KINDS: Final = (
    (bool, "boolean"),
    (str, "string"),
    ((int, float, Decimal), "numeric"),
    (list, "array"),
    (dict, "struct"),
)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        double = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DdlMalformed(f'element "{double}" occurs twice in JSON object')
    return found


def _no_constant(text: str) -> None:
    raise ValueError(text)  # NaN and Infinity are not JSON


def _size(value: Json) -> int:
    """Count the characters of a document; raise DdlMalformed where it is nested too deeply."""
    total, level = 0, [value]
    for _ in range(2 * MAX_DEPTH + 2):
        if not level:
            return total
        deeper: list[Json] = []
        for each in level:
            total += 1
            if isinstance(each, str):
                total += len(each)
            elif isinstance(each, list):
                deeper += each
            elif isinstance(each, dict):
                total += sum(map(len, each))
                deeper += each.values()
        level = deeper
    raise DdlMalformed("a DDL document nested too deeply")
