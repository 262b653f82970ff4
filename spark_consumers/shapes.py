"""A table's columns as one writer's schema has them, for readers in Spark.

Pure.  Avro is read by position, so fields get names of our own (c0, c1, ...): names of columns
may differ by case only, which Spark does not see.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from schemas.envelope import without_null
from spark_consumers.decode import real_name, value_fields
from spark_consumers.dialects.spark_types import SparkType, spark_type

_SOURCE: Final = (
    *("ts_us", "txId", "lsn", "csn", "epoch", "seq", "ordinal"),
    *("exact", "unsent", "before_exact", "before_columns"),
)
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_WIDER: Final = {
    "SMALLINT": {"INT", "BIGINT"},
    "INT": {"BIGINT"},
    "FLOAT": {"DOUBLE"},
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns in order, and the two Avro schemas that `from_avro` wants."""

    columns: Mapping[str, SparkType]  # by real name
    writer: str  # as the records are written, with Spark's own logical types
    reader: str  # what is needed of them

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Self:
        """Return the shape of an envelope; raise LookupError for a type that is not known."""
        fields = value_fields(schema)
        columns = {real_name(field): spark_type(without_null(field["type"])) for field in fields}
        row = {
            "type": "record",
            "name": "Value",
            "fields": [
                {"name": f"c{at}", "type": _as_read(field["type"], column)}
                for at, (field, column) in enumerate(zip(fields, columns.values(), strict=True))
            ],
        }
        parts = {
            **{field["name"]: field["type"] for field in schema["fields"]},
            "before": ["null", row],
            "after": ["null", "Value"],
        }
        source = parts["source"]
        less = {**source, "fields": [f for f in source["fields"] if f["name"] in _SOURCE]}
        return cls(
            columns,
            _envelope(schema, parts),
            _envelope(schema, {**{n: parts[n] for n in ("before", "after", "op")}, "source": less}),
        )

    def field(self, name: str) -> str:
        """Return the field of a column in both schemas.

        >>> Shape({"id": spark_type("int"), "v": spark_type("string")}, "", "").field("v")
        'c1'
        """
        return f"c{list(self.columns).index(name)}"


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


def _as_read(union: Any, column: SparkType) -> Any:
    if isinstance(union, list):
        return [branch if branch == "null" else column.avro for branch in union]
    return column.avro


def _envelope(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    fields = [{"name": name, "type": kind} for name, kind in parts.items()]
    return json.dumps({**{k: schema[k] for k in ("type", "name", "namespace")}, "fields": fields})
