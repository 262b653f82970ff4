"""A copy of one table in Delta or Iceberg, kept by a stream of the data source `gauss_cdc`.

    copy = Upsert("lake.account", ["id"], using="iceberg")
    stream = spark.readStream.format("gauss_cdc").options(**where).load()
    stream.writeStream.foreachBatch(copy).option("checkpointLocation", "...").start()

Each micro-batch is one commit of the lake: MERGE of the last state of each key, or the new rows in
place of all where the batch begins anew (TRUNCATE, a load).  Keys that changed and values that the
source did not send are found as for `apply`'s lakes (`sinks.lakes.changes`).

A batch that comes again leaves the same rows.  That needs a look only where a row got another key
and keeps a value that was not sent: its old row is gone then.  Each row has the version of its last
change, and a batch has whole commits: those up to the greatest version are left out.

What is missing is said by the table itself: its property `gauss_cdc.gap` names the commit and the
reason from the gap until the table was read again, and while it is loaded anew.  Without the
property the copy is what the source had at the last commit of the stream, once the first load of
all is over, of which a stream tells neither beginning nor end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas.positions import of_reread
from schemas.tables import TableId
from spark_consumers.cuts.versions import Version
from spark_consumers.dialects.spark import EXACT, literal, quote
from spark_consumers.errors import NotExpressible, RowMissing, SettingRefused
from spark_consumers.kafka.history import LOAD_FOLLOWS, LOADED
from spark_consumers.sinks.lakes import changes
from spark_consumers.sinks.lakes.core import Apply
from spark_consumers.sinks.lakes.delta import NTZ, WIDENING
from spark_consumers.sinks.lakes.writing import write
from spark_consumers.source.rows import OURS
from spark_consumers.spark.jvm import SPARK_ERRORS, kind_of
from spark_consumers.spark.shapes import is_wider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GAP: Final = "gauss_cdc.gap"
VERSION: Final = "_commit_version"  # of a row's last change
_OURS: Final = frozenset(name for name, _ in OURS)
_ROW_MISSING: Final = "a change needs a row that the copy does not have"
_LOG: Final = logging.getLogger("gauss_cdc.upsert")

_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WHOLE: Final = {"float": ("tinyint", "smallint"), "double": ("tinyint", "smallint", "int")}
_NO_TEXT: Final = ("array<", "map<", "struct<", "binary")
_BY_DELTA: Final = ("date", "timestamp_ntz")  # as midnight


class _Note(NamedTuple):
    version: int
    ordinal: int
    kind: str  # gap; truncate; LOADED
    why: str


class _ColumnType(NamedTuple):
    name: str
    type: str  # as Spark's DDL spells it


class Upsert:
    """A function for `foreachBatch`: brings each micro-batch into one table.

    >>> str(Upsert("lake.account", ["id"]))
    'Upsert of lake.account by id'
    """

    def __init__(
        self,
        table: str,
        key: Sequence[str],
        *,
        using: str = "delta",
        on_gap: Callable[[str], None] = _LOG.warning,
    ) -> None:
        """`table` as SQL names it in a catalog; it is made where it is not there, `using` a format.

        `key`: the columns that name a row, as the source's REPLICA IDENTITY sends them.  `on_gap`
        is told once that rows are missing, and why.  Raises SettingRefused.
        """
        if not key or isinstance(key, str):
            raise SettingRefused(
                "Upsert needs the names of the key's columns",
                hint='as ["id"]; a table without a key can be kept as a log of changes only',
            )
        self._table, self._key, self._using = table, tuple(key), using
        self._on_gap = on_gap

    def __str__(self) -> str:
        return f"Upsert of {self._table} by {', '.join(self._key)}"

    def __call__(self, batch: DataFrame, number: int = 0) -> None:
        """Bring whole commits into the table; a batch may come again."""
        del number  # the same rows are the same copy
        spark = batch.sparkSession
        columns = [*(name for name in batch.columns if name not in _OURS), VERSION]
        if lost := [name for name in self._key if name not in columns]:
            raise SettingRefused("the table has no such column", columns=", ".join(lost))
        batch = batch.persist()
        try:
            self._fit(spark, batch, columns)
            known = gap = ""
            if notes := self._notes(batch):
                known = self._gap(spark)
                gap = _gap_after(known, notes)
            if gap and gap != known:  # before its rows: nobody reads them without it
                self._say(spark, gap)
            missing = self._write(spark, _rows(batch, columns))
            # A row that is still to be loaded may be missing.
            if missing and not (gap or (not notes and self._gap(spark))):
                gap = f"{Version.of(missing)}: {_ROW_MISSING}"
                self._say(spark, gap)
            if known and not gap:
                spark.sql(f"ALTER TABLE {self._table} UNSET TBLPROPERTIES IF EXISTS ('{GAP}')")
        finally:
            batch.unpersist()

    # ------------------------------------------------------------ rows
    def _write(self, spark: SparkSession, rows: DataFrame) -> int:
        """Write the last state of each key; return the last version where the copy lacked a row."""
        # No row counts as one that was not there before: the batch may be one that comes again.
        kinds = changes.kinds(rows, self._key)._replace(inserts=0)
        if kinds.moved_unsent:
            rows = self._new(spark, rows)
            kinds = changes.kinds(rows, self._key)._replace(inserts=0)
        if not kinds.rows:
            return 0
        table = TableId(*self._table.rpartition(".")[::2])
        for is_exact in (True, False):
            work = Apply(rows, self._key, is_exact, kinds=kinds)
            try:
                write(spark, work, table, name=self._table, target=self._table, mode="scd1")
            except RowMissing:
                continue  # what can be written is
            return 0 if is_exact else int(rows.agg({"seq": "max"}).collect()[0][0])
        raise AssertionError("a table that is not exact lacks no row")

    def _new(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Leave out commits that the table has: a batch that comes again may have later ones.

        Behind an older checkpoint Spark divides what comes again anew.  Rows of a load, or of a
        re-read with the version of the commit before it, may be in part in the table: they stay.
        """
        held = spark.table(self._table).agg({VERSION: "max"}).collect()[0][0]
        if held is None:
            return rows
        first = of_reread(0) if Version.of(held).seq else 0
        return rows.where(f"seq > {held} OR (seq = {held} AND ordinal >= {first})")

    def _fit(self, spark: SparkSession, batch: DataFrame, columns: Sequence[str]) -> None:
        """Make the table; add columns that came at the source, and widen those that need it."""
        wanted = batch.select(*map(quote, columns)).limit(0)
        wanted = wanted.selectExpr("*", f"CAST(NULL AS MAP<STRING, STRING>) AS {EXACT}")
        if not spark.catalog.tableExists(self._table):
            wanted.writeTo(self._table).using(self._using).create()
            return
        there = _types(spark.table(self._table))
        came = [one for one in _types(wanted).values() if one.name.casefold() not in there]
        if came:
            added = ", ".join(f"{quote(one.name)} {one.type}" for one in came)
            self._alter(spark, f"ADD COLUMNS ({added})")
        for name, (_, now) in _types(wanted).items():
            if name in there and not _holds(there[name].type, now):
                self._widen(spark, there[name], now)

    def _widen(self, spark: SparkSession, column: _ColumnType, now: str) -> None:
        """Have a column hold the stream's values: a write would round them without a word."""
        try:
            # A type that does not hold the older values is refused whatever the table allows.
            self._alter(
                spark,
                f"ALTER COLUMN {quote(column.name)} TYPE {now}",
                widens=_holds(now, column.type) or (column.type, now) == _BY_DELTA,
            )
        except SPARK_ERRORS as error:
            raise NotExpressible(
                "a column of the copy does not hold the stream's type, and is not widened to it",
                table=self._table,
                column=column.name,
                was=column.type,
                now=now,
                condition=kind_of(error),
                hint="begin another table with a new checkpoint, at `snapshot` or behind the"
                " change, or alter the column yourself and start the query again",
            ) from error

    def _alter(self, spark: SparkSession, columns: str, *, widens: bool = False) -> None:
        """Alter columns; Delta's table must allow it first, which not every reader can read."""
        if self._using == "delta":
            needed = {WIDENING: "true"} if widens else {}
            if "timestamp_ntz" in columns:
                needed[NTZ] = "supported"
            if needed:
                self._set(spark, needed)
        spark.sql(f"ALTER TABLE {self._table} {columns}")

    # ------------------------------------------------------------ gaps
    def _notes(self, batch: DataFrame) -> list[_Note]:
        said = batch.where(f"_change_type IN ('gap', 'truncate', '{LOADED}')").selectExpr(
            "_commit_version", "_ordinal", "_change_type", "coalesce(_exact['why'], '')"
        )
        return sorted(_Note(*row) for row in said.collect())

    def _gap(self, spark: SparkSession) -> str:
        """Return what the table says of itself; "": nothing is missing."""
        rows = spark.sql(f"SHOW TBLPROPERTIES {self._table}").collect()
        return next((str(row.value) for row in rows if row.key == GAP), "")

    def _say(self, spark: SparkSession, gap: str) -> None:
        if not _is_loading(gap):
            self._on_gap(f"{self._table} is not exact since commit {gap}")
        self._set(spark, {GAP: gap})

    def _set(self, spark: SparkSession, values: Mapping[str, str]) -> None:
        said = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in values.items())
        spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({said})")


def _types(frame: DataFrame) -> dict[str, _ColumnType]:
    """Return columns by their names without case."""
    columns = (_ColumnType(f.name, f.dataType.simpleString()) for f in frame.schema.fields)
    return {one.name.casefold(): one for one in columns}


def _holds(there: str, came: str) -> bool:
    """Say whether a column of one type holds every value of another one as it is.

    >>> _holds("double", "float"), _holds("float", "double")
    (True, False)
    >>> _holds("array<int>", "array<smallint>")  # Iceberg has no SMALLINT
    True
    >>> _holds("string", "decimal(12,2)"), _holds("decimal(12,2)", "string")
    (True, False)
    >>> _holds("decimal(12,2)", "int"), _holds("double", "bigint")
    (True, False)
    """
    array = "array<"
    while there.startswith(array) and came.startswith(array):
        there, came = (one.removeprefix(array).removesuffix(">") for one in (there, came))
    if there == "string":
        return not came.startswith(_NO_TEXT)
    if came in _DIGITS and there.startswith("decimal"):
        came = f"decimal({_DIGITS[came]},0)"
    return is_wider(came.upper(), there.upper()) or came in _WHOLE.get(there, ())


def _gap_after(known: str, notes: Iterable[_Note]) -> str:
    """Return the first gap that nothing ended, or the load under way; "": neither.

    A load ends a gap before it, or the end of the table.  A TRUNCATE of the source, which gives no
    reason, does not: what hides rows or values may last.  A gap within a load outlives it.

    >>> gap = _Note(int(Version(1, 5)), -1, "gap", "seen: x")
    >>> _gap_after("", [gap, gap._replace(kind="truncate", ordinal=3)])
    '1/5: seen: x'
    >>> begin = _Note(int(Version(1, 6)), -1, "truncate", LOAD_FOLLOWS)
    >>> _gap_after("1/5: seen: x", [begin])
    '1/6: a load follows'
    >>> end = _Note(int(Version(1, 8)), of_reread(0), LOADED, "")
    >>> _gap_after("1/6: a load follows", [end])
    ''
    >>> _gap_after("1/6: a load follows", [gap._replace(version=int(Version(1, 7))), end])
    '1/7: seen: x'
    """
    for note in notes:
        said = f"{Version.of(note.version)}: {note.why}"
        is_behind = (
            not known
            or note.ordinal >= of_reread(0)
            or Version.of(note.version) > Version.parse(known.partition(":")[0])
        )
        if note.kind == "gap":
            known = said if _is_loading(known) else known or said
        elif note.kind == LOADED:
            known = "" if _is_loading(known) else known
        elif note.why and is_behind:
            known = said if note.why == LOAD_FOLLOWS else ""
    return known


def _is_loading(gap: str) -> bool:
    """Say whether what the table says of itself is that its rows are coming anew."""
    return gap.endswith(f": {LOAD_FOLLOWS}")


def _rows(batch: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return rows of the data source as changes, one each (`frames.changes_frame`)."""
    from pyspark.sql import functions as f  # noqa: PLC0415  only where Spark is

    packed = batch.selectExpr(
        "_change_type AS kind", "_commit_version AS seq", "_ordinal AS ordinal",
        f"struct({', '.join(map(quote, columns))}) AS row", "_unsent AS unsent", "_exact AS exact",
    )  # fmt: skip
    old = packed.where("kind = 'update_preimage'").selectExpr(
        "seq AS old_seq", "ordinal AS old_ordinal", "row AS old_row", "exact AS old_exact",
        "unsent AS old_unsent",
    )  # fmt: skip
    both = packed.where(f"kind NOT IN ('update_preimage', 'gap', '{LOADED}')").join(
        old,
        f.expr("kind = 'update_postimage' AND seq = old_seq AND ordinal = old_ordinal"),
        "left",
    )
    names = f"array({', '.join(map(literal, columns))})"
    return both.selectExpr(
        "CASE kind WHEN 'insert' THEN 'c' WHEN 'update_postimage' THEN 'u'"
        " WHEN 'delete' THEN 'd' ELSE 't' END AS op",
        "seq",
        "ordinal",
        "if(kind = 'delete', row, old_row) AS before",
        "if(kind IN ('insert', 'update_postimage'), row, NULL) AS after",
        "if(kind = 'delete', NULL, unsent) AS unsent",
        "if(kind = 'delete', NULL, exact) AS exact",
        "if(kind = 'delete', exact, old_exact) AS before_exact",
        f"array_except({names}, if(kind = 'delete', unsent, old_unsent)) AS before_columns",
    )
