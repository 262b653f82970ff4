"""A lake as the demo's target: sampled by `read_at` while everything is killed, and compared."""

from __future__ import annotations

import random
import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg2
from psycopg2 import sql

from gauss_cdc_lab.demo.compare import Comparison
from gauss_cdc_lab.demo.load import Workload, question
from gauss_cdc_lab.demo.sampler import Broken, Sampler

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_consumers.lakes import TablesAt

_PAUSE: Final = 0.2
_COMMIT: Final = re.compile(r"v?(\d+)(?:\.metadata)?\.json")
_REST: Final = 0.5  # times as long as a question took: kills fall between two of them
_LONG_REST: Final = 3.0  # before and behind the kills
_HELD: Final = "_valid_from <= {0} AND (_valid_to IS NULL OR _valid_to > {0})"


class LakeSampler(Sampler):
    """Asks the workload's question of the newest commit and of older ones, by `read_at`.

    What holds a history is asked of any commit since the load, not only of those that end a step.
    """

    def __init__(self, kind: str, mode: str, folder: str, source: str, workload: Workload) -> None:
        super().__init__(folder, source, workload)
        self._kind, self._mode = kind, mode
        self._random = random.Random(source)  # noqa: S311  any will do
        self._first: tuple[int, int] | None = None  # the first commit that is exact

    def ask_again(self, commits: int) -> tuple[int, int]:
        """Ask at so many commits, evenly over all since the load; return commits and questions.

        A history answers for all of them at once.  Else each step is asked once, and `read_at` must
        find it from the first and the last of the commits that belong to it.
        """
        spark, seen = _session(self._kind, self._url), self.seen
        if self._first is None:
            return 0, 0
        epoch, first = self._first
        span = range(first, self._tables(spark, None).ledger.seq + 1)
        asked = sorted({span[len(span) * at // commits] for at in range(commits)})
        if self._mode != "scd1":
            self._history(spark, self._tables(spark, None), epoch, asked)
            return len(asked), 1
        ends = self._ends(spark, epoch)
        by_step: dict[int, list[int]] = {}
        for seq in asked:
            by_step.setdefault(ends[bisect_right(ends, seq) - 1], []).append(seq)
        for end, some in by_step.items():
            for seq in {some[0], some[-1]}:
                tables = self._tables(spark, f"{epoch}/{seq}")
                if (tables.ledger.epoch, tables.ledger.seq) != (epoch, end):
                    found = (tables.ledger.epoch, tables.ledger.seq)
                    seen.broken.append(Broken(epoch, seq, found, (epoch, end)))
            self._question(spark, tables, epoch, end)
        return len(asked), len(by_step)

    def _history(
        self, spark: SparkSession, tables: TablesAt, epoch: int, asked: Sequence[int]
    ) -> None:
        """Ask at many commits: a state counts in each that it held at."""
        seen, load = self.seen, self._workload
        rows = [((epoch << 40) + seq,) for seq in asked]
        spark.createDataFrame(rows, "_at bigint").createOrReplaceTempView("asked")
        parts = "asked"
        for name in tables:
            table = name.rpartition(".")[2]
            if table in load.sums:
                states(tables, name, self._mode).createOrReplaceTempView(table)
                parts += (
                    f" LEFT JOIN (SELECT /*+ BROADCAST(asked) */ _at, {load.sums[table]}"  # noqa: S608
                    f" FROM {table} JOIN asked ON {_HELD.format('_at')} GROUP BY _at) USING (_at)"
                )
        found = spark.sql(f"SELECT _at, {load.told} FROM {parts}").collect()  # noqa: S608  ours
        seen.samples += len(found)
        for at, *sums in found:
            if tuple(sums) != load.expected:
                seen.broken.append(Broken(epoch, at - (epoch << 40), tuple(sums), load.expected))
        if len(found) != len(asked):
            seen.broken.append(Broken(epoch, asked[-1], (len(found),), (len(asked),)))

    def _watch(self) -> None:
        spark = _session(self._kind, self._url)
        while not self._stop.is_set():
            began = time.monotonic()
            self._ask(spark)
            rest = _REST if self.is_lag_measured and self.is_exact else _LONG_REST
            self._stop.wait(max(_PAUSE, rest * (time.monotonic() - began)))

    def _ask(self, spark: SparkSession) -> None:
        from pyspark.errors import AnalysisException  # noqa: PLC0415  where Spark is

        seen, first = self.seen, self._first
        commit, seq = None, 1 << 62
        if first is not None and first[0] == seen.epoch and self._random.random() < 0.5:
            seq = self._random.randint(first[1], seen.seq)
            # A history answers for it in each later version, too.
            if self._mode == "scd1" or self._random.random() < 0.5:
                commit = f"{seen.epoch}/{seq}"
        try:
            tables = self._tables(spark, commit)
        except (AnalysisException, LookupError):
            if first is not None:
                raise
            return  # nothing was applied yet
        ledger = tables.ledger
        if ledger.state != "EXACT":
            seen.not_exact += self._exact.is_set()
            return
        self._first = self._first or (ledger.epoch, ledger.seq)
        self._question(spark, tables, ledger.epoch, min(seq, ledger.seq))
        if commit is None:
            self._note(ledger.epoch, ledger.seq, ledger.committed_at)
        self._exact.set()

    def _tables(self, spark: SparkSession, commit: str | None) -> TablesAt:
        from spark_consumers.lakes import read_at  # noqa: PLC0415  where Spark is

        return read_at(spark, self._source, commit, kind=self._kind, dsn=self._url)  # type: ignore[arg-type]

    def _ends(self, spark: SparkSession, epoch: int) -> Sequence[int]:
        from spark_consumers.lakes import steps  # noqa: PLC0415  where Spark is

        found = steps(spark, self._source, kind=self._kind, dsn=self._url)  # type: ignore[arg-type]
        return [version.seq for version in found if version.epoch == epoch]

    def _question(self, spark: SparkSession, tables: TablesAt, epoch: int, seq: int) -> None:
        seen, expected = self.seen, self._workload.expected
        for name in tables:
            if (table := name.rpartition(".")[2]) in self._workload.sums:
                frame = rows_at(tables, name, self._mode, (epoch, seq))
                frame.createOrReplaceTempView(table)
        row = spark.sql(question(self._workload)).first()
        seen.samples += 1
        seen.commits.add((epoch, seq))
        if row is None or tuple(row) != expected:
            seen.broken.append(Broken(epoch, seq, tuple(row or ()), expected))

    def _note(self, epoch: int, seq: int, committed_at: int) -> None:
        seen, now = self.seen, time.monotonic()
        if (epoch, seq) < (seen.epoch, seen.seq):
            place = ("not before", seen.epoch, seen.seq)
            seen.broken.append(Broken(epoch, seq, (epoch, seq), place))
        if self.is_lag_measured:
            seen.standstill = max(seen.standstill, now - (seen.moved_at or now))
            if committed_at:
                seen.lags.append(max(0.0, time.time() - committed_at / 1e6))
        if (epoch, seq) != (seen.epoch, seen.seq):
            seen.moved_at = now
        seen.epoch, seen.seq = epoch, seq


def writes(folder: str) -> int:
    """Count what the tables of a lake were given: the numbers of their newest commits."""
    newest: Counter[Path] = Counter()
    for place in ("_delta_log", "metadata"):
        for file in Path(folder).glob(f"public/*/{place}/*.json"):
            if found := _COMMIT.fullmatch(file.name):
                newest[file.parent] = max(newest[file.parent], int(found[1]))
    return newest.total()


def rows_at(tables: TablesAt, name: str, mode: str, commit: tuple[int, int]) -> DataFrame:
    """The source's rows at a commit (epoch, seq), of whatever the lake holds."""
    if mode == "scd1":
        return tables[name]
    return states(tables, name, mode).where(_HELD.format((commit[0] << 40) + commit[1]))


def states(tables: TablesAt, name: str, mode: str) -> DataFrame:
    """The states of a table's rows, with `_valid_from` and `_valid_to`.

    Values that a change of a log left out come from the change before, under its key.
    """
    frame = tables[name]
    if mode == "scd2":
        return frame
    from pyspark.sql.functions import expr  # noqa: PLC0415  where Spark is

    key = ", ".join(f"`{c}`" for c in tables.key(name))
    cells = [c for c in frame.columns if c not in tables.key(name) and not c.startswith("_")]
    place = "struct(_ordinal, _change_type != 'update_preimage')"
    gone = "_change_type IN ('delete', 'update_preimage')"
    last = frame.groupBy(*tables.key(name), "_commit_version").agg(
        expr(f"max_by({gone}, {place}) AS _gone"),
        *(
            expr(
                f"max_by(struct(`{c}` AS v), {place}) FILTER (WHERE NOT {gone}"
                f" AND NOT array_contains(coalesce(_unsent, array()), '{c}')) AS `{c}`"
            )
            for c in cells
        ),
    )
    over = f"OVER (PARTITION BY {key} ORDER BY _commit_version)"
    return (
        last.selectExpr(
            *(f"`{c}`" for c in tables.key(name)),
            *(f"last(`{c}`, true) {over} AS `{c}`" for c in cells),
            "_gone",
            "_commit_version AS _valid_from",
            f"lead(_commit_version) {over} AS _valid_to",
        )
        .selectExpr(
            *(f"`{c}`" for c in tables.key(name)),
            *(f"`{c}`.v AS `{c}`" for c in cells),
            "_gone",
            "_valid_from",
            "_valid_to",
        )
        .where("NOT _gone")
    )


def compare_lake(source_url: str, folder: str, kind: str, mode: str, source: str) -> Comparison:
    """Compare every table of the source with the lake's newest commit."""
    from spark_consumers.lakes import read_at  # noqa: PLC0415  where Spark is

    found = Comparison()
    tables = read_at(_session(kind, folder), source, kind=kind, dsn=folder)  # type: ignore[arg-type]
    commit = tables.ledger.epoch, tables.ledger.seq
    with closing(psycopg2.connect(source_url)) as connection, connection.cursor() as cursor:
        cursor.execute("SET TimeZone = 'UTC'")
        for name in tables:
            table = sql.Identifier(*name.split(".", 1))
            cursor.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table))
            columns = [column.name for column in cursor.description or ()]
            frame = rows_at(tables, name, mode, commit)
            if mode == "log":  # a row that changed its key left behind what was not sent
                unsent = tables[name].selectExpr("explode(_unsent) AS c").distinct().collect()
                columns = [c for c in columns if c not in {row[0] for row in unsent}]
            elif mode == "scd1" and (more := {*frame.columns} - {*columns, "_exact"}):
                found.differences.append(f"{name}: columns only in the lake: {sorted(more)}")
            cells = [f"`{column}`" for column in columns]
            here = Counter(repr(_plain(row)) for row in frame.select(*cells).collect())
            cursor.execute(
                sql.SQL("SELECT {} FROM {}").format(
                    sql.SQL(", ").join(map(sql.Identifier, columns)), table
                )
            )
            there = Counter(repr(_plain(row)) for row in cursor.fetchall())
            found.rows[name] = there.total()
            if here != there:
                found.differences.append(
                    f"{name}: {(here - there).total()} rows only in the lake,"
                    f" {(there - here).total()} only at the source"
                )
    return found


def _plain(row: Any) -> tuple[object, ...]:
    """Cells as both sides give them: an instant without its zone, a number without its scale."""
    from datetime import UTC, datetime  # noqa: PLC0415
    from decimal import Decimal  # noqa: PLC0415

    def cell(value: object) -> object:
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat()
        return str(value.normalize()) if isinstance(value, Decimal) else value

    return tuple(cell(value) for value in row)


def _session(kind: str, folder: str) -> SparkSession:
    """A session of our own, which reads only."""
    import logging  # noqa: PLC0415
    import os  # noqa: PLC0415

    from pyspark.logger import PySparkLogger  # noqa: PLC0415  where Spark is
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from gauss_cdc.runtime import jars, java  # noqa: PLC0415
    from spark_consumers.sinks.lakes import places  # noqa: PLC0415

    os.environ["JAVA_HOME"] = str(java.find(shims=jars.cache()).home)
    settings = places.delta_settings(folder) if kind == "delta" else places.iceberg_settings(folder)
    # It prints what it also raises: that there is no watermark yet.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    names = ["spark", kind]
    found = jars.fetch(names)
    return (
        SparkSession.builder.master("local[1]")
        .appName("gauss-cdc sampler")
        .config(map={**settings})
        .config("spark.jars", ",".join(str(path) for name in names for path in found[name]))
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        # Of few rows a plan costs more to compile than to run.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
