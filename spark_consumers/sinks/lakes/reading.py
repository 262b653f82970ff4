"""What `verify` compares of a lake: its tables at the newest watermark, as Spark reads them.

Dates and timestamps come as the numbers that Spark has, of which Python's calendar holds some only.
A value whose text stands in `_exact` is that text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from schemas.tables import TableSchema
from schemas.types import AvroType, temporal
from spark_consumers.dialects.spark import EXACT, quote
from spark_consumers.dialects.spark_types import SparkType, spark_type
from spark_consumers.errors import NotExpressible
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import TargetReading, ValueOf
from spark_consumers.sinks.lakes import core, writing
from spark_consumers.sinks.lakes.marks import TableMarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_consumers.sinks.lakes.delta import DeltaTables
    from spark_consumers.sinks.lakes.iceberg import IcebergTables

_ARRAY: Final = re.compile(r"array<(.*)>")
# As PostgreSQL prints them.
_SHOWN: Final[Mapping[str, Callable[[int], str]]] = {
    "date": temporal.DATE.dump("int"),
    "timestamp_ntz": temporal.MICROS.dump("long"),
    "timestamp": temporal.MICROS.dump("long"),
}


class LakeReading(TargetReading):
    """Implements `TargetReading`; what others wrote behind a watermark's version is read, too."""

    def __init__(self, tables: DeltaTables | IcebergTables, marks: TableMarks, mode: str) -> None:
        if mode == "log":
            raise NotExpressible(
                "a log of changes has no rows to compare", hint='compare a copy in mode = "scd1"'
            )
        self._tables, self._marks, self._mode = tables, marks, mode
        self._mark = marks.newest()
        self._frames: dict[str, DataFrame] = {}

    def ledger(self) -> Ledger | None:
        return None if self._mark is None else self._mark.ledger

    def values(
        self, table: TableSchema, avro: Mapping[str, AvroType]
    ) -> Mapping[str, ValueOf] | None:
        with writing.errors("to read a table", table.id):
            frame = self._frame(str(table.id))
        if frame is None:
            return None
        there = {name.casefold() for name in frame.columns}
        return {
            name: partial(_value, spark_type(kind))
            for name, kind in avro.items()
            if name.casefold() in there
        }

    def rows(self, table: TableSchema) -> Iterator[Sequence[Any]]:
        frame, names = self._frames[str(table.id)], table.names()
        kinds = {name.casefold(): kind for name, kind in frame.dtypes}
        cells = [_physical(quote(name), kinds[name.casefold()]) for name in names]
        with writing.errors("to read a table", table.id):
            for row in frame.selectExpr(*cells, EXACT).toLocalIterator():
                *values, texts = row
                for name in texts or ():
                    if name in names:
                        values[names.index(name)] = (texts[name],)
                yield values

    def shown(self, table: TableSchema, name: str, value: Any) -> str:
        kinds = {name.casefold(): kind for name, kind in self._frames[str(table.id)].dtypes}
        way = _SHOWN.get(kinds[name.casefold()])
        return str(value) if way is None or not isinstance(value, int) else way(value)

    def _frame(self, name: str) -> DataFrame | None:
        """The table at the watermark, or as others have left it since."""
        mark = self._mark
        if mark is None or (named := mark.tables.get(name)) is None:
            return None
        core.check_mode(named.mode, self._mode, named.place)
        head = self._tables.head(named.place)
        if head is None or not core.is_same(named, head):
            return None
        newest = self._marks.newest()
        is_same = newest is not None and newest.tables.get(name) == named
        # What bears no stamp is no step of an applier, and here it stands behind this version.
        at = head.id if is_same and head.stamp.at is None else named.version
        frame = self._tables.read(named.place, at)
        self._frames[name] = frame.where("_is_current") if self._mode == "scd2" else frame
        return self._frames[name]


def _value(kind: SparkType, value: Any, exact: str | None) -> Any:
    """Return what a column holds of a value: what Arrow takes for it, or its text beside."""
    if exact is None:
        return None if value is None else kind.value(value)
    if kind.of_text is None or not kind.holds(exact):
        return (exact,)
    return kind.of_text.value(exact)


def _physical(value: str, kind: str) -> str:
    """Write an expression of what `SparkType.value` gives.

    >>> _physical("c", "array<date>")
    'transform(c, x -> unix_date(x))'
    """
    if (array := _ARRAY.fullmatch(kind)) is not None:
        items = _physical("x", array[1])
        return value if items == "x" else f"transform({value}, x -> {items})"
    match kind:
        case "date":
            return f"unix_date({value})"
        case "timestamp":
            return f"unix_micros({value})"
        case "timestamp_ntz":
            return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {value})"
        case _:
            return value
