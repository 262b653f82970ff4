"""A row change as JSON: numbers as numbers, arrays and documents nested, all else as text.

Numbers keep every digit of the source, also those that no double holds; what JSON has no
number for (`NaN`, `Infinity`) is text, as are dates, times and bytes: the source's own form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from schemas.envelope import without_null
from schemas.tables import Missing
from schemas.types import AvroType, dumper
from spark_consumers.decode import RowDecoder
from spark_consumers.model import Cell

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMERIC: Final = ("int", "long", "float", "double")
_NUMERIC_NAMES: Final = (
    "org.apache.kafka.connect.data.Decimal",
    "io.debezium.data.VariableScaleDecimal",
)
# Of the text of an array; the delimiter of boxes, `;`, is none of these.
_PART: Final = re.compile(r'[{},]|"(?:[^"\\]|\\.)*+"|[^{},;"\\]++', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_DEEPEST: Final = 7  # dimensions are at most 6; PostgreSQL manual, appendix "Limits"
_JSON: Final = "io.debezium.data.Json"


class RowPrinter:
    """Makes JSON's values of the rows of one writer's schema."""

    def __init__(self, decoder: RowDecoder, schema: dict[str, Any]) -> None:
        self._decoder = decoder
        self._types = decoder.types(schema)

    def row(self, cells: Sequence[Cell] | None, raw: Mapping[str, Any] | None) -> object:
        """Columns that were sent, NULL as null; `raw` is the Avro row of the same cells."""
        if cells is None:
            return None
        out: dict[str, object] = {}
        fields = zip(self._decoder.columns, self._types, cells, strict=True)
        for name, (field, avro), cell in fields:
            if isinstance(cell, Missing):
                continue
            value = raw.get(field) if raw is not None else None
            if _is_list(avro, value):
                out[name] = _nested(avro, value)
            elif isinstance(avro, dict) and avro["type"] == "array" and cell is not None:
                out[name] = _read(avro, cell)
            else:
                out[name] = _typed(avro, cell)
        return out


def _is_list(avro: AvroType, value: object) -> bool:
    """Say whether a value is an array, which the text of a cell holds as one literal."""
    return isinstance(avro, dict) and avro["type"] == "array" and isinstance(value, list)


def _nested(avro: Any, value: Any) -> object:
    """Elements of an array, at any depth."""
    items = without_null(avro["items"])
    if isinstance(items, dict) and items["type"] == "array":
        return [None if one is None else _nested(items, one) for one in value]
    dump = dumper(items)
    return [None if one is None else _typed(items, dump(one)) for one in value]


def _read(avro: Any, text: str) -> object:
    """Elements of an array that Avro has no form for: one of several dimensions.

    What is not read, as arrays with bounds of their own or of boxes, stays text.
    """
    items = without_null(avro["items"])
    stack: list[list[object]] = [[]]
    at = 0
    while at < len(text) and len(stack) <= _DEEPEST:
        if (found := _PART.match(text, at)) is None:
            return text
        at, part = found.end(), found[0]
        if part == "{":
            stack.append([])
        elif part == "}" and len(stack) > 1:
            inner = stack.pop()
            stack[-1].append(inner)
        elif part[0] == '"':
            stack[-1].append(_typed(items, _ESCAPED.sub(r"\1", part[1:-1])))
        elif part not in {",", "}"}:
            stack[-1].append(None if part == "NULL" else _typed(items, part))
    if len(stack) != 1 or len(stack[0]) != 1:
        return text
    return stack[0][0]


def _typed(avro: AvroType, text: str | None) -> object:
    if text is None:
        return None
    kind, name = (avro, None) if isinstance(avro, str) else (avro["type"], avro.get("connect.name"))
    if kind == "boolean":
        return {"t": True, "f": False}.get(text, text)
    if (name is None and kind in _NUMERIC) or name in _NUMERIC_NAMES:
        return Decimal(text) if _NUMBER.fullmatch(text) else text
    if name == _JSON:
        try:
            return json.loads(text, parse_int=Decimal, parse_float=Decimal)
        except (ValueError, RecursionError):
            return text
    return text


def dumps(value: object) -> str:
    """Write JSON; a Decimal is a number with all its digits.

    >>> dumps({"a": [Decimal("1.10"), None, "x"]})
    '{"a": [1.10, null, "x"]}'
    """
    match value:
        case dict():
            return "{" + ", ".join(f"{_text(k)}: {dumps(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(dumps, value)) + "]"
        case Decimal():
            return str(value)
        case str():
            return _text(value)
        case _:
            return json.dumps(value)


def _text(text: str) -> str:
    """Quote; what is not UTF-8 (bytes of a database without encoding) is escaped."""
    return json.dumps(text, ensure_ascii=not text.isprintable() or not _is_utf8(text))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
