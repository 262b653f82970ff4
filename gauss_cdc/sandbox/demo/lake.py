"""A lake as the demo's target: sampled by `read_at` while everything is killed, and compared."""

from __future__ import annotations

import random
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import psycopg2
from psycopg2 import sql

from gauss_cdc.sandbox.demo.compare import Comparison
from gauss_cdc.sandbox.demo.load import Workload
from gauss_cdc.sandbox.demo.sampler import Broken, Sampler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE: Final = 0.2
_OLDER: Final = 50  # commits that a sample may look back


class LakeSampler(Sampler):
    """Asks the workload's question of the newest commit and of older ones, by `read_at`."""

    def __init__(self, kind: str, folder: str, source: str, workload: Workload) -> None:
        super().__init__(folder, source, workload)
        self._kind, self._random = kind, random.Random(source)  # noqa: S311  any will do

    def _watch(self) -> None:
        spark = _session(self._kind, self._url)
        while not self._stop.is_set():
            self._ask(spark)
            self._stop.wait(_PAUSE)

    def _ask(self, spark: SparkSession) -> None:
        from pyspark.errors import AnalysisException  # noqa: PLC0415  where Spark is

        from spark_consumers.lakes import read_at  # noqa: PLC0415

        seen = self.seen
        back = self._random.choice([0, 0, self._random.randint(1, _OLDER)])
        commit = f"{seen.epoch}/{seen.seq - back}" if back and seen.seq > back else None
        try:
            tables = read_at(spark, self._source, commit, kind=self._kind, dsn=self._url)  # type: ignore[arg-type]
        except (AnalysisException, LookupError):
            return  # nothing was applied yet
        ledger = tables.ledger
        if ledger.state != "EXACT":
            seen.not_exact += self._exact.is_set()
            return
        self._exact.set()
        for name, frame in tables.items():
            frame.createOrReplaceTempView(name.rpartition(".")[2])
        row = spark.sql(self._workload.question).first()
        seen.samples += 1
        if row is None or tuple(row) != self._workload.expected:
            found = tuple(row or ())
            seen.broken.append(Broken(ledger.epoch, ledger.seq, found, self._workload.expected))
        if commit is None:
            self._note(ledger.epoch, ledger.seq, ledger.committed_at)

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


def compare_lake(source_url: str, folder: str, kind: str, source: str) -> Comparison:
    """Compare every table of the source with the lake's newest commit."""
    from spark_consumers.lakes import read_at  # noqa: PLC0415  where Spark is

    found = Comparison()
    tables = read_at(_session(kind, folder), source, kind=kind, dsn=folder)  # type: ignore[arg-type]
    with closing(psycopg2.connect(source_url)) as connection, connection.cursor() as cursor:
        cursor.execute("SET TimeZone = 'UTC'")
        for name, frame in tables.items():
            columns = [column for column in frame.columns if column != "_exact"]
            cells = [f"`{column}`" for column in columns]
            here = {repr(_plain(row)) for row in frame.select(*cells).collect()}
            cursor.execute(
                sql.SQL("SELECT {} FROM {}").format(
                    sql.SQL(", ").join(map(sql.Identifier, columns)),
                    sql.Identifier(*name.split(".", 1)),
                )
            )
            there = {repr(_plain(row)) for row in cursor.fetchall()}
            found.rows[name] = len(there)
            if here != there:
                found.differences.append(
                    f"{name}: {len(here - there)} rows only in the lake,"
                    f" {len(there - here)} only at the source"
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
    import os  # noqa: PLC0415

    from pyspark.sql import SparkSession  # noqa: PLC0415  where Spark is

    from gauss_cdc.runtime import jars, java  # noqa: PLC0415
    from spark_consumers.sinks.lakes import places  # noqa: PLC0415

    os.environ["JAVA_HOME"] = str(java.find(shims=jars.cache()).home)
    settings = places.delta_settings(folder) if kind == "delta" else places.iceberg_settings(folder)
    names = ["spark", kind]
    found = jars.fetch(names)
    session = (
        SparkSession.builder.master("local[1]")
        .appName("gauss-cdc sampler")
        .config(map={**settings})
        .config("spark.jars", ",".join(str(path) for name in names for path in found[name]))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session
