"""Values that Spark has not, in a lake: as constants of columns and as keys; errors of Spark."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas.control import LoadPhase, Origin
from schemas.errors import LOAD_AGAIN
from schemas.tables import UNCHANGED, Column, TableSchema
from spark_consumers.errors import (
    ApplyError,
    NotExpressible,
    TargetFailed,
    TargetRefused,
)
from spark_consumers.loop.job import Applier, Observer, PassOptions
from spark_consumers.model import Ledger, Rows, Segment
from spark_consumers.sinks.lakes import writing
from spark_consumers.sinks.lakes.delta import DeltaTables
from spark_consumers.spark.lake_rows import FrameRows
from tests.integration.test_lakes import A, Lake, make_lake
from tests.spark_consumers.feed import Row, alter, insert, update

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["make_lake"]
KINDS = pytest.mark.parametrize("make_lake", ["iceberg", "delta"], indirect=True)
DELTA = pytest.mark.parametrize("make_lake", ["delta"], indirect=True)
ICEBERG = pytest.mark.parametrize("make_lake", ["iceberg"], indirect=True)
Make = Callable[[str], Lake]


def loaded(lake: Lake, table: TableSchema = A, *rows: list[str]) -> Lake:
    lake.feed.start()
    load(lake, table, *rows)
    lake.apply()
    return lake


def load(lake: Lake, table: TableSchema, *rows: list[str]) -> None:
    lake.feed.load(table, LoadPhase.BEGIN)
    lake.feed.load(table, LoadPhase.CHUNK, *(rows or (["1", "x", "long"], ["2", "x", "long"])))
    lake.feed.load(table, LoadPhase.END)


class Left(Observer):
    """What the loop left out."""

    def __init__(self) -> None:
        self.out: list[ApplyError] = []

    def on_left_out(self, error: ApplyError) -> None:
        self.out.append(error)


def drained(lake: Lake) -> tuple[Ledger, list[ApplyError]]:
    """What `apply` does: by its loop, which leaves out what cannot be applied."""
    sink, left = lake.sink(), Left()
    sink.start()

    class Staging:
        check, ledger, step = sink.check, sink.ledger, sink.step

        def stage(self, segment: Segment, rows: Rows) -> FrameRows:
            del rows
            return lake.staged(segment)

    options = PassOptions(1_000, ddl_apart=False)
    applier = Applier(lake.feed.read_cuts, lake.feed.read_rows, Staging(), options, observer=left)  # type: ignore[arg-type]
    return applier.drain(), left.out


# ---------------------------------------------------------------- constants of added columns
DEFAULTS = {
    "since": (1184, -1, "timestamp with time zone", "infinity"),
    "until": (1114, -1, "timestamp without time zone", "-infinity"),
    "day": (1082, -1, "date", "0044-03-15 BC"),
    "rate": (1700, 655366, "numeric(10,2)", "NaN"),
}
HELD = {
    "cost": (790, -1, "money", "$1,000.50"),
    "tags": (1009, -1, "text[]", "{}"),
    "days": (1182, -1, "date[]", "{2024-01-02,NULL}"),
    "at": (1184, -1, "timestamp with time zone", "2024-01-02 03:04:05+02"),
}


def _wide() -> TableSchema:
    added = (
        Column(name, oid, mod, kind, missing=text)
        for name, (oid, mod, kind, text) in (DEFAULTS | HELD).items()
    )
    return replace(A, columns=(*A.columns, *added))


@pytest.mark.parametrize(
    ("make_lake", "mode"),
    [("iceberg", "scd1"), ("iceberg", "scd2"), ("delta", "scd1")],
    indirect=["make_lake"],
)
def test_a_default_that_spark_cannot_hold_is_a_text_beside_older_rows(
    make_lake: Make, mode: str
) -> None:
    """ALTER TABLE a ADD COLUMN since timestamptz NOT NULL DEFAULT 'infinity'."""
    lake, wide = loaded(make_lake(mode)), _wide()
    lake.feed.commits([insert(A, "3", "y", "t"), alter(A, wide)])
    lake.apply()

    state = () if mode == "scd1" else ("_is_current",)
    rows = lake.rows(wide, "id", "_exact", *DEFAULTS, "cost", "tags", "days", *state)
    current = [row for row in rows if mode == "scd1" or row[-1]]
    assert [row[0] for row in current] == [1, 2, 3]
    texts = {name: text for name, (*_, text) in DEFAULTS.items()}
    for _, exact, *cells in current:
        assert exact == texts
        assert cells[: len(DEFAULTS)] == [None] * len(DEFAULTS)
        assert [str(cell) for cell in cells[len(DEFAULTS) :][:3]] == [
            *("1000.50", "[]", "[datetime.date(2024, 1, 2), None]"),
        ]


@DELTA
@pytest.mark.parametrize("way", ["altered", "altered, made before", "loaded, made before"])
def test_a_column_without_a_time_zone_comes_to_a_table_that_had_none(
    make_lake: Make, way: str
) -> None:
    """Delta has a feature for it, which a table gets at its beginning; older ones lack it."""
    lake = make_lake("scd1")
    assert isinstance(lake.tables, DeltaTables)
    if "before" in way:
        del lake.tables._properties["delta.feature.timestampNtz"]
    loaded(lake)
    assert bool(lake.tables._enabling(A.id, "TIMESTAMP_NTZ")) is ("before" in way)
    timed = replace(A, columns=(*A.columns, Column("at", 1114, -1, "timestamp")))
    if "altered" in way:
        lake.feed.commits([alter(A, timed)], [insert(A, "3", "y", "t")])
        lake.apply()
        assert lake.rows(timed, "id", "at") == [(1, None), (2, None), (3, None)]
    load(lake, timed, ["1", "x", "t", "2024-01-02"])
    lake.apply()

    assert [str(at) for _, at in lake.rows(timed, "id", "at")] == ["2024-01-02 00:00:00"]
    assert not lake.tables._enabling(A.id, "TIMESTAMP_NTZ")


@ICEBERG
def test_a_default_that_nobody_knows_stops_until_all_is_loaded_again(make_lake: Make) -> None:
    lake = loaded(make_lake("scd1"))
    wide = replace(A, columns=(*A.columns, Column("w", 2950, -1, "uuid", missing="A0")))
    lake.feed.commits([alter(A, wide, origin=Origin.DEPARSED)])
    with pytest.raises(NotExpressible, match="no safe form") as raised:
        drained(lake)
    assert raised.value.hint == LOAD_AGAIN

    lake.feed.load_again(wide)
    load(lake, wide, ["1", "x", "long", "a0"])
    ledger, left_out = drained(lake)

    assert (ledger.epoch, ledger.state, len(left_out)) == (2, "EXACT", 1)
    assert lake.rows(wide, "id", "w") == [(1, "a0")]


# ---------------------------------------------------------------- keys
K = replace(A, key=("id", "v"), identity_columns=("id", "v"))
NONE = r"\xff"  # for `frame` of test_lakes, what `infinity` is for a timestamp: none that Spark has


def _refused(lake: Lake) -> None:
    with pytest.raises(NotExpressible, match="a key has a value that Spark cannot hold") as raised:
        drained(lake)
    assert LOAD_AGAIN in raised.value.hint


@KINDS
def test_a_load_whose_keys_spark_cannot_hold_is_refused(make_lake: Make) -> None:
    """PRIMARY KEY (id, valid_to), DEFAULT 'infinity': closing a row is an UPDATE of its key."""
    lake = make_lake("scd1")
    lake.feed.start()
    load(lake, K, ["1", "2024", "closed"], ["1", NONE, "open"])
    _refused(lake)

    lake.feed.load_again(A)  # `v` is in the key no more
    load(lake, A, ["1", NONE, "open"])
    ledger, left_out = drained(lake)
    assert (ledger.state, len(left_out)) == ("EXACT", 1)
    assert lake.rows(A, "id", "v", "_exact") == [(1, None, {"v": NONE})]


@ICEBERG
@pytest.mark.parametrize("mode", ["scd1", "scd2"])
def test_changes_whose_key_spark_cannot_hold_are_refused(make_lake: Make, mode: str) -> None:
    lake = loaded(make_lake(mode), K)
    for row in (
        insert(K, "1", NONE, "open"),
        update(K, "1", NONE, "changed"),
        Row(K, "u", ["2", "x", UNCHANGED], ["2", NONE, "open"]),
        Row(K, "u", ["2", NONE, UNCHANGED], ["2", "2024", "open"]),
        Row(K, "d", ["2", NONE, UNCHANGED]),
    ):
        feed = deepcopy(lake.feed)
        feed.commits([row, insert(K, "5", "y", "t")])
        _refused(replace(lake, feed=feed))
    assert lake.rows(K) == [(1, "x", "long"), (2, "x", "long")]


@ICEBERG
def test_a_log_has_keys_that_spark_cannot_hold(make_lake: Make) -> None:
    lake = loaded(make_lake("log"), K, ["1", NONE, "open"])
    lake.feed.commits([update(K, "1", NONE, "changed")])
    lake.apply()

    assert lake.rows(K, "id", "t") == [(1, "changed"), (1, "open")]


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT CAST('secret' AS INT)", "CAST_INVALID_INPUT, sqlstate=22018"),
        ("SELECT CAST(concat('secret', id) AS INT) FROM range(3)", "sqlstate=22018"),
        ("SELECT 1 / id FROM range(3)", "sqlstate=22012"),
        ("SELECT * FROM nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
    ],
)
def test_what_no_other_attempt_changes_is_refused(spark: SparkSession, sql: str, says: str) -> None:
    with (
        pytest.raises(TargetRefused, match="Spark refuses a write") as raised,
        writing.errors("a write", A.id),
    ):
        spark.sql(sql).collect()

    assert says in str(raised.value)
    assert str(raised.value).endswith(LOAD_AGAIN)
    assert "secret" not in str(raised.value)


@ICEBERG
def test_a_null_where_none_may_be_is_refused(make_lake: Make) -> None:
    lake = loaded(make_lake("scd1"))
    none = "CAST(NULL AS MAP<STRING, STRING>) AS _exact"
    rows = lake.spark.sql(f"SELECT if(id > 0, NULL, 1) AS id, 'v' AS v, 't' AS t, {none}"
                          " FROM range(2)")  # fmt: skip
    writer = rows.writeTo(lake.tables.name(A.id))
    with pytest.raises(TargetRefused), writing.errors("a write", A.id):
        writer.append()


def test_what_may_pass_is_tried_again_and_names_the_way_out(spark: SparkSession) -> None:
    with (
        pytest.raises(TargetFailed, match=r"if it stays: .*--accept-gap") as raised,
        writing.errors("a write", A.id),
    ):
        spark._jvm.java.util.ArrayList().get(7)
    assert raised.value.verdict.name == "RETRY"
