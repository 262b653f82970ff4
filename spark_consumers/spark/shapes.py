"""A table's columns as one writer's schema has them, in Spark's types.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.envelope import without_null
from spark_consumers.decode import real_name, value_fields
from spark_consumers.dialects.spark_types import SparkType, spark_type

_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_WIDER: Final = {
    "SMALLINT": {"INT", "BIGINT"},
    "INT": {"BIGINT"},
    "FLOAT": {"DOUBLE"},
}


@dataclass(frozen=True, slots=True)
class Cell:
    """How one column is read from records of one schema."""

    name: str
    field: str
    type: SparkType

    def of(self, row: Mapping[str, Any], exact: Mapping[str, str], hidden: set[str]) -> Any:
        """Return its value; a text that Spark does not hold stays in `exact`."""
        if self.name in hidden:
            return None
        if (text := exact.get(self.name)) is not None:
            return None if self.type.of_text is None else self.type.of_text.value(text)
        value = row[self.field]
        return None if value is None else self.type.value(value)


def cells_of(schema: Mapping[str, Any]) -> dict[str, Cell]:
    """Return the columns of an envelope; raise LookupError for a type that is not known."""
    cells = {}
    for field in value_fields(schema):
        name = real_name(field)
        cells[name] = Cell(name, field["name"], spark_type(without_null(field["type"])))
    return cells


def types_of(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the columns' types in Spark."""
    return {name: cell.type.name for name, cell in cells_of(schema).items()}


def is_wider(old: str, new: str) -> bool:
    """Say whether every value of one of Spark's types is the same under another one.

    >>> is_wider("INT", "BIGINT"), is_wider("DECIMAL(10,2)", "DECIMAL(12,2)")
    (True, True)
    >>> is_wider("BIGINT", "INT"), is_wider("DECIMAL(10,2)", "DECIMAL(10,4)")
    (False, False)
    """
    if (was := _DECIMAL.fullmatch(old)) and (now := _DECIMAL.fullmatch(new)):
        (precision, scale), (wider, longer) = map(int, was.groups()), map(int, now.groups())
        return longer >= scale and wider - longer >= precision - scale
    return old == new or new in _WIDER.get(old, ())
