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
            out[name] = _nested(avro, value) if _is_list(avro, value) else _typed(avro, cell)
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
    """Quote; what is no text in UTF-8 (bytes of a database without encoding) is escaped."""
    return json.dumps(text, ensure_ascii=not text.isprintable() or not _is_utf8(text))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
