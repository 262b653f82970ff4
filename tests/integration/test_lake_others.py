"""Lakes that others change: another mode, another source, Spark's own maintenance, a person.

Where `apply` refuses, the way out that its message names is gone here, too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from schemas.control import LoadPhase
from schemas.errors import LOAD_AGAIN, Verdict
from schemas.findings import Level
from schemas.tables import Column, TableSchema
from spark_consumers.errors import MissingTable, TargetNotEmpty, TargetRefused
from spark_consumers.lakes import read_at
from spark_consumers.loop.job import Applier, PassOptions
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.kinds import SINKS
from spark_consumers.sinks.lakes import iceberg, places
from spark_consumers.sinks.lakes.core import SOURCE, Watermark
from spark_consumers.sinks.lakes.delta import DeltaTables
from spark_consumers.sinks.lakes.iceberg import IcebergTables
from spark_consumers.sinks.lakes.marks import TableMarks
from spark_consumers.sinks.lakes.reading import LakeReading
from tests.integration.test_lakes import A, B, KilledError, Lake, make_lake
from tests.spark_consumers.feed import Feed, alter, insert, update

__all__ = ["make_lake"]
KINDS = pytest.mark.parametrize("make_lake", ["iceberg", "delta"], indirect=True)
ICEBERG = pytest.mark.parametrize("make_lake", ["iceberg"], indirect=True)
DELTA = pytest.mark.parametrize("make_lake", ["delta"], indirect=True)
Make = Callable[[str], Lake]
DAY = 86_400


def loaded(lake: Lake, *tables: TableSchema) -> Lake:
    """Two rows in each table."""
    lake.feed.start()
    for table in tables or (A,):
        _load(lake, table, ["1", "x", "long"], ["2", "x", "long"])
    lake.apply()
    return lake


def _load(lake: Lake, table: TableSchema, *rows: list[str]) -> None:
    lake.feed.load(table, LoadPhase.BEGIN)
    lake.feed.load(table, LoadPhase.CHUNK, *rows)
    lake.feed.load(table, LoadPhase.END)


def drained(lake: Lake, *, replaces: bool = False) -> None:
    """All that waits goes by the loop, which leaves out what a new epoch loads again."""
    sink = lake.sink()
    sink._replaces = replaces
    sink.start()
    options = PassOptions(1_000, ddl_apart=False)
    ledger = Applier(lake.feed.read_cuts, lake.staged, sink, options).drain()
    assert not ledger.inexact


def loaded_again(lake: Lake, *, replaces: bool = False) -> None:
    """What `gauss-cdc run --accept-gap` does."""
    lake.feed.load_again(A)
    _load(lake, A, ["4", "new", "long"])
    drained(lake, replaces=replaces)
    assert lake.rows(A) == [(4, "new", "long")]


def newest(lake: Lake) -> Watermark:
    mark = lake.marks().newest()
    assert mark is not None
    return mark


def delta(lake: Lake, mode: str = "scd1", keep: float = 7 * DAY) -> DeltaTables:
    """The tables of a lake, as another configuration has them."""
    assert isinstance(lake.tables, DeltaTables)
    return DeltaTables(lambda: lake.spark, lake.tables._place, lake.feed.source, mode, keep)


def in_mode(lake: Lake, mode: str) -> Lake:
    """The same lake after `[target] mode` was edited."""
    tables: DeltaTables | IcebergTables
    if isinstance(lake.tables, IcebergTables):
        tables = IcebergTables(lambda: lake.spark, places.defined(lake.spark, lake.dsn), mode)
    else:
        tables = delta(lake, mode)
    return replace(lake, tables=tables, mode=mode)


def maintained(lake: Lake, keep: float = 1_000.0) -> None:
    """An hour later; that nothing promised expires is shown by `test_lakes`."""
    lake.clock += 100
    sink = lake.sink(keep)
    sink.start()
    with patch.object(type(lake.tables), "expire"):  # VACUUM takes seconds
        sink.maintain()


# ---------------------------------------------------------------- the configuration
@pytest.mark.parametrize(
    ("make_lake", "modes"),
    [("iceberg", "scd1 log"), ("delta", "scd2 scd1")],
    indirect=["make_lake"],
)
def test_tables_of_another_mode_are_loaded_again_or_stay(make_lake: Make, modes: str) -> None:
    was, now = modes.split()
    lake = loaded(make_lake(was))
    seq = newest(lake).ledger.seq
    lake.feed.commits([update(A, "1", "y", "long")])
    later = in_mode(lake, now)

    with pytest.raises(TargetRefused, match=r"another \[target\] mode") as raised:
        later.apply()

    assert LOAD_AGAIN in raised.value.hint
    inspector = SINKS[lake.kind].inspector(Setup(lake.feed.source, dsn=lake.dsn, mode=now))
    (finding,) = inspector.tables([A], are_loaded=True)
    assert finding.level is Level.ERROR
    assert "was loaded in another" in finding.what
    if now != "log":
        marks = TableMarks(lambda: lake.spark, later.tables, lake.feed.source)
        with pytest.raises(TargetRefused, match=r"another \[target\] mode"):
            LakeReading(later.tables, marks, now).values(A, {})
    lake.apply()  # the mode is set back
    assert {row[1] for row in lake.rows(A) if row[0] == 1} == (
        {"y"} if was == "scd1" else {"x", "y"}
    )
    later.feed.commits([update(A, "1", "z", "long")])
    later.clock = lake.clock
    loaded_again(later)
    assert ("_change_type" in later.tables.read(A.id).columns) is (now == "log")
    before = read_at(lake.spark, lake.feed.source, f"1/{seq}", kind=lake.kind, dsn=lake.dsn)
    assert before["public.a"].count() == 2
    assert before.ledger.seq == seq


@KINDS
def test_a_table_of_another_source_or_of_nobody_is_not_taken(make_lake: Make) -> None:
    """PostgreSQL as a target refuses both, without --replace."""
    lake = loaded(make_lake("scd1"))
    other = replace(lake, feed=Feed(f"{lake.feed.source}_two"))
    if isinstance(lake.tables, DeltaTables):
        other.tables = delta(other)
        nobodys = "USING delta TBLPROPERTIES ('delta.minReaderVersion' = '1')"
    else:
        nobodys = "USING iceberg TBLPROPERTIES ('format-version' = '1')"
    name, theirs = lake.tables.name(A.id), lake.tables.name(B.id)

    def rows(table: str) -> list[int]:
        return sorted(row.id for row in lake.spark.sql(f"SELECT id FROM {table}").collect())

    for table, of in ((A, "another source's"), (B, "no apply made it")):
        other.feed = Feed(other.feed.source)
        if table is B:
            lake.spark.sql(f"CREATE TABLE {theirs} (id INT, mine STRING) {nobodys}")
            lake.spark.sql(f"INSERT INTO {theirs} VALUES (1, 'noted'), (2, 'noted')")
        other.feed.start()
        _load(other, table, ["7", "theirs", "t"])
        with pytest.raises(TargetNotEmpty, match=of) as raised:
            other.apply()
        assert "--replace" in raised.value.hint
        assert rows(lake.tables.name(table.id)) == [1, 2]

    _load(other, A, ["7", "theirs", "t"])
    drained(other, replaces=True)
    assert other.rows(B) == [(7, "theirs", "t")]
    assert other.rows(A) == [(7, "theirs", "t")]
    # What was taken is its own now, with all that a change of columns needs.
    renamed = replace(B, columns=(*B.columns[:2], replace(B.columns[2], name="w")))
    other.feed.commits([replace(alter(B, renamed), renamed={"t": "w"})])
    other.feed.commits([update(renamed, "7", "y", "w")])
    other.apply()
    assert other.rows(renamed, "id", "v", "w") == [(7, "y", "w")]
    other.feed.commits([alter(renamed, None)], [alter(None, B), insert(B, "8", "z", "t")])
    other.apply()
    assert other.rows(B) == [(8, "z", "t")]
    assert rows(name) == [7]


@DELTA
def test_a_longer_keep_holds_for_tables_that_are_there(make_lake: Make) -> None:
    lake = loaded(make_lake("scd1"))
    name, key = lake.tables.name(A.id), "delta.deletedFileRetentionDuration"

    def said() -> str:
        return {
            row.key: row.value for row in lake.spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
        }[key]

    longer = replace(lake, tables=delta(lake, keep=90 * DAY))
    maintained(longer, 90 * DAY)

    assert said() == f"interval {92 * DAY} seconds"
    assert lake.rows(A) == [(1, "x", "long"), (2, "x", "long")]
    head = lake.tables.head(A.id)
    maintained(longer, 90 * DAY)
    assert lake.tables.head(A.id) == head
    maintained(lake)
    assert said() == f"interval {9 * DAY} seconds"


# ---------------------------------------------------------------- versions
@KINDS
def test_a_version_that_others_expired_ends_with_a_way_out(make_lake: Make) -> None:
    """The nightly maintenance of a warehouse, on a table that rests, behind any other head."""
    lake = loaded(make_lake("scd1"), A, B)
    name = lake.tables.name(A.id)
    lake.spark.sql(f"INSERT OVERWRITE {name} (id) VALUES (99)")
    if lake.kind == "iceberg":
        time.sleep(1)
        lake.spark.sql(
            "CALL lake.system.expire_snapshots(table => 'public.a',"
            " older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)"
        )
    else:
        lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        lake.spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
        lake.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    before, files = newest(lake), lake.files(B)
    lake.feed.commits([insert(B, "3", "y", "t")])
    lake.apply()

    maintained(lake)

    assert newest(lake).cared_at > before.cared_at
    assert lake.files(B) - files, "other tables are cared for"
    lake.feed.commits([insert(A, "3", "y", "t")])
    with pytest.raises(MissingTable) as raised:
        lake.apply()
    assert raised.value.verdict is not Verdict.RETRY
    assert raised.value.hint == LOAD_AGAIN
    loaded_again(lake)


@KINDS
def test_a_strangers_rows_are_no_compaction(
    make_lake: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come while `rewrite_data_files` or OPTIMIZE finds nothing to do."""
    lake = loaded(make_lake("scd1"))
    name, run = lake.tables.name(A.id), lake.spark.sql
    maintained(lake)  # now there is one file
    head = lake.tables.head(A.id)
    assert head is not None
    assert newest(lake).tables["public.a"].version == head.id

    mallory = lake.spark.newSession()
    places.defined(mallory, lake.dsn)

    def sql(text: str, *more: Any, **other: Any) -> Any:
        out = run(text, *more, **other)
        if text.startswith("OPTIMIZE") or "rewrite_data_files" in text:
            mallory.sql(f"INSERT INTO {name} (id, v) VALUES (99, 'mallory')")
        return out

    monkeypatch.setattr(lake.spark, "sql", sql)
    maintained(lake)
    monkeypatch.undo()

    assert lake.rows(A) == [(1, "x", "long"), (2, "x", "long")]
    lake.feed.commits([insert(A, "3", "y", "t")])
    lake.apply()
    assert [row[0] for row in lake.rows(A)] == [1, 2, 3]


@DELTA
def test_a_table_that_rested_longer_than_delta_keeps_is_put_back(make_lake: Make) -> None:
    """Nothing was applied for longer than `keep` and two days; then it dies in a step."""
    lake = make_lake("scd1")
    lake.tables = delta(lake, keep=1)
    loaded(lake)
    time.sleep(5)  # of 3, which Delta keeps
    assert lake.rows(A) == [(1, "x", "long"), (2, "x", "long")]
    lake.feed.commits([update(A, "1", "y", "long")])
    lake.dies.append("rows applied")
    with pytest.raises(KilledError):
        lake.apply()
    lake.feed.commits([update(A, "2", "y", "long")])

    lake.apply()

    assert lake.rows(A) == [(1, "y", "long"), (2, "y", "long")]


@DELTA
def test_auto_compaction_of_the_session_is_no_other_writer(make_lake: Make) -> None:
    lake = loaded(make_lake("scd1"))
    settings = {"enabled": "true", "minNumFiles": "2"}
    for name, value in settings.items():
        lake.spark.conf.set(f"spark.databricks.delta.autoCompact.{name}", value)
    for row in ("3", "4", "5"):
        lake.feed.commits([insert(A, row, "y", "t")])
        lake.apply()
    assert [row[0] for row in lake.rows(A)] == [1, 2, 3, 4, 5]


@ICEBERG
def test_a_table_whose_format_somebody_raised_goes_on_and_is_loaded_again(make_lake: Make) -> None:
    lake = loaded(make_lake("scd1"))
    name = lake.tables.name(A.id)
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')")
    lake.feed.commits([update(A, "1", "y", ...)])
    lake.apply()
    assert lake.rows(A) == [(1, "y", "long"), (2, "x", "long")]
    wide = replace(A, columns=(*A.columns, Column("w", 25, -1, "text")))
    lake.feed.load(wide, LoadPhase.BEGIN)
    lake.feed.load(wide, LoadPhase.CHUNK, ["4", "y", "t", "w"])
    lake.feed.load(wide, LoadPhase.END)

    lake.apply()

    assert lake.rows(wide, "id", "w") == [(4, "w")]


@ICEBERG
def test_columns_of_a_dead_attempt_are_nobody_elses(make_lake: Make) -> None:
    """scd2: a column comes, goes, another one comes, in one step, whose attempt dies."""
    lake = loaded(make_lake("scd2"))
    one, two = (
        replace(A, columns=(*A.columns, Column(name, 25, -1, "text"))) for name in ("p", "q")
    )
    lake.feed.commits([alter(A, one)], [alter(one, A)])
    lake.feed.commits([alter(A, two), insert(two, "3", "y", "t", "q")])
    lake.dies.append("rows applied")
    with pytest.raises(KilledError):
        lake.apply()
    lake.feed.commits([insert(two, "4", "y", "t", "q")])  # the next step ends elsewhere

    lake.apply()

    assert [row[0] for row in lake.rows(A, "id")] == [1, 2, 3, 4]


@DELTA
def test_an_older_commit_never_shows_rows_of_a_table_made_again(make_lake: Make) -> None:
    """Somebody removed the table; a load made it again: Delta counts from 0 once more."""
    lake = loaded(make_lake("scd1"))
    seq = newest(lake).ledger.seq
    lake.feed.commits([insert(A, "3", "y", "t")])
    lake.apply()
    shutil.rmtree(f"{lake.dsn}/public/a")
    _load(lake, A, ["50", "new", "t"])
    lake.apply()
    for row in range(60, 63):
        lake.feed.commits([insert(A, str(row), "new", "t")])
        lake.apply()

    tables = read_at(lake.spark, lake.feed.source, f"1/{seq}", kind="delta", dsn=lake.dsn)

    with pytest.raises(LookupError, match="not the table any more"):
        tables["public.a"]
    assert [row[0] for row in lake.rows(A)] == [50, 60, 61, 62]


@DELTA
def test_a_table_that_others_replaced_is_put_back(make_lake: Make) -> None:
    """Delta gives it another id then, and keeps its versions."""
    lake = loaded(make_lake("scd1"))
    seq = newest(lake).ledger.seq
    name = delta(lake).name(A.id)
    lake.spark.sql(f"CREATE OR REPLACE TABLE {name} USING delta AS SELECT * FROM {name} LIMIT 0")
    with pytest.raises(LookupError, match="not the table any more"):
        lake.rows(A)
    lake.feed.commits([insert(A, "3", "y", "t")])

    lake.apply()

    assert [row[0] for row in lake.rows(A)] == [1, 2, 3]
    older = read_at(lake.spark, lake.feed.source, f"1/{seq}", kind="delta", dsn=lake.dsn)
    assert older["public.a"].count() == 2
    assert delta(lake).made(A.id, 0)
    assert not delta(lake).made(A.id, 99)


class _WithoutJvm:
    """A session as Spark Connect has it, without its server."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> object:
        if name in {"_jvm", "_jsparkSession", "sparkContext"}:
            raise AttributeError(f"[JVM_ATTRIBUTE_NOT_SUPPORTED] {name}")
        return getattr(self._spark, name)


@DELTA
def test_a_session_without_a_jvm_reads_a_lake(make_lake: Make) -> None:
    lake = loaded(make_lake("scd1"))
    session: Any = _WithoutJvm(lake.spark)

    tables = read_at(session, lake.feed.source, kind="delta", dsn=lake.dsn)

    assert tables["public.a"].count() == 2
    shutil.rmtree(f"{lake.dsn}/public/a")
    with pytest.raises(LookupError, match="not the table any more"):
        tables["public.a"]


# ---------------------------------------------------------------- lakes of an earlier build
def _making_as_before(patched: pytest.MonkeyPatch) -> None:
    """It gave a table no property that says whose it is."""
    make, said = DeltaTables.make, iceberg._properties
    patched.setattr(
        DeltaTables, "make", lambda self, table, columns, source="": make(self, table, columns)
    )

    def unsaid(columns: str, source: str) -> dict[str, str]:
        return {key: text for key, text in said(columns, source).items() if key != SOURCE}

    patched.setattr(iceberg, "_properties", unsaid)


@KINDS
def test_a_table_of_an_earlier_build_that_was_compacted_may_be_dropped_and_made_again(
    make_lake: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    _making_as_before(monkeypatch)
    lake = loaded(make_lake("scd1"))
    for key in range(3, 8):  # files enough to be compacted
        lake.feed.commits([insert(A, str(key), "y", "t")])
        lake.apply()
    monkeypatch.undo()  # the upgrade
    maintained(lake)
    head = lake.tables.head(A.id)
    assert head is not None
    assert head.stamp.at is None  # no step wrote that version
    assert not head.source

    lake.feed.commits([alter(A, None)], [alter(None, A), insert(A, "8", "z", "t")])
    lake.apply()

    assert lake.rows(A) == [(8, "z", "t")]


@pytest.mark.parametrize(
    ("make_lake", "was", "now"),
    [("iceberg", "scd1", "log"), ("delta", "scd2", "scd1"), ("delta", "log", "scd1")],
    indirect=["make_lake"],
)
def test_a_table_of_an_earlier_build_is_of_the_mode_that_its_columns_show(
    make_lake: Make, was: str, now: str
) -> None:
    """Its watermarks named no mode, and those of a table that rests do not to this day."""
    lake = make_lake(was)
    lake.feed.start()
    _load(lake, A, ["1", "x", "long"], ["2", "x", "long"])
    lake.clock += 100
    sink = lake.sink()
    sink._mode = ""
    sink.start()
    for segment in lake.segments(sink.ledger()):
        sink.step(segment, lake.staged(segment))
    assert newest(lake).tables["public.a"].mode == ""
    lake.feed.commits([update(A, "1", "y", "long")])

    with pytest.raises(TargetRefused, match=r"another \[target\] mode") as raised:
        in_mode(lake, now).apply()

    assert raised.value.where["mode"] == was
    lake.apply()
    assert newest(lake).tables["public.a"].mode == was


@DELTA
def test_a_table_that_somebody_removed_stops_no_maintenance(make_lake: Make) -> None:
    lake = loaded(make_lake("scd1"), A, B)
    shutil.rmtree(f"{lake.dsn}/public/a")
    lake.clock += 4_000
    sink = lake.sink(1_000.0)
    sink.start()

    with patch.object(DeltaTables, "expire", autospec=True) as expire:
        sink.maintain()

    expired = [call.args[1] for call in expire.call_args_list]
    assert [place for place in expired if place.schema == "public"] == [B.id]
