"""What Delta and Iceberg have in common: settings around one statement, MERGE, errors."""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.errors import AnalysisException

from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from spark_consumers.dialects.spark import EXACT, literal, quote
from spark_consumers.errors import (
    MissingColumn,
    MissingTable,
    RowMissing,
    Superseded,
    TargetFailed,
    TargetRefused,
)
from spark_consumers.sinks.lakes import changes, core, history
from spark_consumers.sinks.lakes.changes import GONE, KEPT, Net
from spark_consumers.sinks.lakes.core import Add, Apply
from spark_consumers.spark.jvm import SPARK_ERRORS, kind_of, text_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# What a lake raises where another writer was faster; the class stands in the JVM's text.
_CONFLICTS: Final = (
    "CommitFailedException",
    "ConcurrentTransactionException",
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "ValidationException",
    "DELTA_CONCURRENT",
)
_SHOWS: Final = {"scd2": "_is_current", "log": "_change_type"}  # a column of no other mode
# What no other attempt changes: a feature that is not there, a value, a constraint, a limit.  The
# error of a task stands in the text of its job's.
_LASTING: Final = re.compile(r"SQLSTATE: ((?:0A|22|23|54)[0-9A-Z]{3}|42000)")


@contextmanager
def errors(what: str, table: TableId) -> Iterator[None]:
    """Make an error of ours of what Spark raises; nothing of a row is repeated."""
    try:
        yield
    except SPARK_ERRORS as error:
        text, kind = text_of(error), kind_of(error)
        if isinstance(error, AnalysisException):
            raise TargetRefused(
                f"Spark refuses {what}", table=table, condition=kind, hint=LOAD_AGAIN
            ) from error
        if any(name in text for name in _CONFLICTS):
            raise Superseded("another writer was faster", table=table) from error
        if found := _LASTING.search(text):
            raise TargetRefused(
                f"Spark refuses {what}", table=table, condition=kind, sqlstate=found[1],
                hint=LOAD_AGAIN,
            ) from error  # fmt: skip
        raise TargetFailed(f"Spark failed: {what}", table=table, cause=kind) from error


def expired(table: TableId, version: int) -> MissingTable:
    """Make an error of a version that cannot be put back."""
    return MissingTable(
        "the version that the watermark names was expired by others",
        table=table,
        version=version,
        hint=LOAD_AGAIN,
    )


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set them around one statement: they hold for every write of the session."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value_before in before.items():
            if value_before is not None:
                spark.conf.set(name, value_before)
            else:
                spark.conf.unset(name)


# To compile a plan costs more than to run it over few rows, and a step makes tens of plans.
_PLAINLY: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_COMPILED: Final = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}
_FEW_ROWS: Final = 50_000
_FEW_BYTES: Final = 32 << 20  # of a table that a MERGE reads
# Of a table whose files may be written anew by each step, and stay for as long as it is promised.
_SMALL_BYTES: Final = 1 << 20


class Fitting:
    """Settings by how much there is to do; what the user has set stays."""

    def __init__(
        self, spark: Callable[[], SparkSession], small: Mapping[str, str] | None = None
    ) -> None:
        """`small`: for a write to a table of few bytes."""
        self._spark, self._small = spark, small or {}
        self._free: set[str] | None = None  # what the user has not set

    @contextmanager
    def step(self, rows: int) -> Iterator[None]:
        """Run a step of so many rows."""
        spark = self._spark()
        if self._free is None:
            self._free = {*_PLAINLY, *self._small} - spark.conf.getAll.keys()
        free = self._free & _PLAINLY.keys()
        if rows > _FEW_ROWS:
            yield
            return
        with settings(spark, {name: _PLAINLY[name] for name in free}):
            yield

    @contextmanager
    def table(self, size: int, rows: int) -> Iterator[None]:
        """Run a write of so many rows to a table of so many bytes.

        In a step of many rows, too, most tables may have few.
        """
        plans = _COMPILED if size > _FEW_BYTES or rows > _FEW_ROWS else _PLAINLY
        wanted = {**plans, **(self._small if size <= _SMALL_BYTES else {})}
        free = self._free or ()
        with settings(self._spark(), {name: wanted[name] for name in wanted if name in free}):
            yield


@dataclass(frozen=True, slots=True)
class Append:
    """Rows that come to those that are there."""

    frame: DataFrame


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Rows instead of those that are there."""

    frame: DataFrame


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE of what `source` holds; `{target}` stands for the table."""

    source: DataFrame
    statement: str


Write: TypeAlias = Append | Overwrite | Merge


def planned(work: Add | Apply, table: TableId, target: DataFrame, mode: str) -> Write:
    """Return the one write that brings rows into a table.

    Raises MissingColumn, and TargetRefused for a table of another mode.
    """
    rows: DataFrame = work.rows
    there = target.schema
    after = next(field for field in rows.schema.fields if field.name == "after")
    columns = after.dataType.names  # type: ignore[attr-defined]
    known = {name.casefold(): name for name in there.names}
    if missing := [name for name in columns if name.casefold() not in known]:
        raise MissingColumn(
            "the lake's table lacks columns of the stream", table=table, columns=",".join(missing)
        )
    core.check_mode(_mode_of(there.names, columns, mode), mode, table)
    if mode == "log":
        return Append(_fitted(changes.log(rows, columns), there))
    if isinstance(work, Add):
        changes.check_loaded(rows, table, work.key)
    if mode == "scd2":
        if isinstance(work, Add):
            return Append(_fitted(history.loaded(rows, columns), there))
        states = history.history(
            rows, target, table, columns, work.key, is_exact=work.is_exact, of=work.kinds
        )
        return Merge(states.frame, states.statement)
    if isinstance(work, Add):
        cells = [f"after.{quote(name)} AS {quote(name)}" for name in columns]
        return Append(_fitted(rows.selectExpr(*cells, f"exact AS {EXACT}"), there))
    net = changes.net(rows, target, table, columns, work.key, is_exact=work.is_exact, of=work.kinds)
    if net.has_kept and work.is_exact:
        _require_rows(target, net, work.key, table)
    if net.is_whole:
        return Overwrite(_fitted(net.frame, there))
    if net.is_plain:
        return Append(_fitted(net.frame, there))
    return Merge(net.frame, _merge(net, columns, work.key))


def _mode_of(there: Collection[str], columns: Collection[str], mode: str) -> str:
    """Return in which mode a table with these columns was loaded, of which some are the source's.

    An earlier build did not note it.  What left the source may stay in a history, by any name.

    >>> _mode_of(["id", "_exact", "_is_current"], ["id"], "scd1"), _mode_of(["id"], ["id"], "log")
    ('scd2', 'scd1')
    """
    shown = [was for was, name in _SHOWS.items() if name in there and name not in columns]
    return mode if mode in shown else next(iter(shown), "scd1")


def write(
    spark: SparkSession, work: Add | Apply, table: TableId, *, name: str, target: str, mode: str
) -> None:
    """Bring rows into a table; `name` is what is read of it, `target` what is written to."""
    match planned(work, table, spark.table(name), mode):
        case Append(frame):
            frame.writeTo(target).append()
        case Overwrite(frame):
            from pyspark.sql.functions import lit  # noqa: PLC0415  only where Spark is

            frame.writeTo(target).overwrite(lit(True))  # noqa: FBT003
        case Merge(source, statement):
            # By Spark Connect all queries of a program have one session, and write at once.
            view = f"gauss_cdc_{uuid.uuid4().hex}"
            source.createOrReplaceTempView(view)
            try:
                spark.sql(statement.replace("{target}", target).replace("{source}", view))
            finally:
                spark.catalog.dropTempView(view)


def _require_rows(target: DataFrame, net: Net, key: Sequence[str], table: TableId) -> None:
    """Raise RowMissing where the lake lacks a row whose values were not all sent."""
    waiting = net.frame.where(f"NOT {GONE} AND size({KEPT}) > 0")
    if not waiting.join(target, list(key), "left_anti").isEmpty():
        raise RowMissing("a change needs a row that the lake does not have", table=table)


def _fitted(frame: DataFrame, there: StructType) -> DataFrame:
    """Return the frame in the table's own columns and types; what it lacks is NULL."""
    known = {name.casefold(): name for name in frame.columns}
    return frame.selectExpr(
        *(
            f"CAST({quote(known[f.name.casefold()]) if f.name.casefold() in known else 'NULL'}"
            f" AS {f.dataType.simpleString()}) AS {quote(f.name)}"
            for f in there.fields
        )
    )


def _merge(net: Net, columns: Sequence[str], key: Sequence[str]) -> str:
    """Write the MERGE of the last state of each key."""
    own = [*columns, EXACT]

    def kept(name: str) -> str:
        value = f"s.{quote(name)}"
        if not net.has_kept:
            return value
        if name == EXACT:
            stays = f"map_filter(t.{EXACT}, (k, v) -> array_contains(s.{KEPT}, k))"
            none = "CAST(map() AS MAP<STRING, STRING>)"
            both = f"map_concat(coalesce({stays}, {none}), coalesce({value}, {none}))"
            return f"if(size(s.{KEPT}) = 0, {value}, if(size({both}) > 0, {both}, NULL))"
        return f"if(array_contains(s.{KEPT}, {literal(name)}), t.{quote(name)}, {value})"

    on = " AND ".join(f"t.{quote(k)} = s.{quote(k)}" for k in key)
    changed = ", ".join(f"t.{quote(c)} = {kept(c)}" for c in own if c not in key)
    names = ", ".join(map(quote, own))
    values = ", ".join(f"s.{quote(c)}" for c in own)
    # A row that is not there whole: `_require_rows` refuses it where the table is exact.
    whole = f" AND size(s.{KEPT}) = 0" if net.has_kept else ""
    return (
        f"MERGE INTO {{target}} t USING {{source}} s ON {on}"
        f" WHEN MATCHED AND s.{GONE} THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {changed}"
        f" WHEN NOT MATCHED AND NOT s.{GONE}{whole} THEN INSERT ({names}) VALUES ({values})"
    )
