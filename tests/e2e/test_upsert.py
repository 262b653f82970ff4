"""`Upsert`: a stream of the data source as a copy in Delta and Iceberg, against the source."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path as Folder
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from gauss_cdc_lab.services import Addresses
from producer.core.ports import Wish
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection
from producer.sources.postgres.catalog import connect as connect_to
from schemas.positions import of_reread
from schemas.tables import TableId
from spark_consumers.errors import NotExpressible, SettingRefused
from spark_consumers.kafka.history import LOAD_FOLLOWS
from spark_consumers.source import GaussCdcSource
from spark_consumers.upsert import GAP, Upsert
from tests.e2e.path import Path, ask, pause, until
from tests.e2e.test_spark_source import options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONG = "(SELECT string_agg(md5(({})::text || i::text), '') FROM generate_series(1, 200) i)"


class Crashed(Exception):
    """The driver ended behind the lake's commit and before the checkpoint's."""


@pytest.fixture
def path(
    addresses: Addresses, new_database: Callable[..., str], topic_prefix: str
) -> Iterator[Path]:
    with Path(addresses, topic_prefix, new_database(), new_database()) as one:
        yield one


@pytest.fixture
def copy(request: Any, spark: "SparkSession", topic_prefix: str) -> Iterator[Upsert]:
    """A copy of a table by id that does not exist yet."""
    spark.dataSource.register(GaussCdcSource)
    catalog = "spark_catalog" if request.param == "delta" else "lake"
    schema = f"{catalog}.{topic_prefix}"
    spark.sql(f"CREATE SCHEMA {schema}")
    yield Upsert(f"{schema}.copy", ["id"], using=request.param, on_gap=GAPS.append)
    spark.sql(f"DROP TABLE IF EXISTS {schema}.copy")
    spark.sql(f"DROP SCHEMA {schema}")
    GAPS.clear()


GAPS: list[str] = []
EPOCH = 1 << 40  # its version of commit 0


def follow(
    spark: "SparkSession",
    given: dict[str, str],
    checkpoint: Folder,
    copy: Callable[["DataFrame", int], None],
) -> None:
    """Run a stream until it has what there is."""
    frame = spark.readStream.format("gauss_cdc").options(**given).load()
    query = (
        frame.writeStream.foreachBatch(copy).option("checkpointLocation", str(checkpoint)).start()
    )
    try:
        query.processAllAvailable()
    except PySparkException as error:
        if "Crashed" in str(error):
            raise Crashed from error
        raise
    finally:
        query.stop()


def changes(spark: "SparkSession", shape: str, *rows: tuple[Any, ...]) -> "DataFrame":
    """Rows of the data source: columns, kind, version, ordinal; `_unsent` and `_exact` if any."""
    width = shape.count(", ") + 1
    ours = (
        "_change_type string, _commit_version bigint, _ordinal bigint, _unsent array<string>,"
        " _exact map<string, string>"
    )
    cells = ((*row, *(None,) * (width + 5 - len(row))) for row in rows)
    return spark.createDataFrame(list(cells), f"{shape}, {ours}")


def copied(spark: "SparkSession", copy: Upsert, *columns: str) -> list[tuple[Any, ...]]:
    spark.sql(f"REFRESH TABLE {copy._table}")
    return sorted(tuple(row) for row in spark.table(copy._table).select(*columns).collect())


def gap(spark: "SparkSession", copy: Upsert) -> str:
    found = spark.sql(f"SHOW TBLPROPERTIES {copy._table}").collect()
    return next((row.value for row in found if row.key == GAP), "")


def read_again(path: Path) -> None:
    with closing(connect_to(parse_dsn(path.source))) as connection:
        session = QueryingConnection(connection)
        requests.ask(session, path.options.slot, [Wish(TableId("public", "t"))])
        until(lambda: not requests.requests(session, path.options.slot), "the re-read", pause)
    path.arrive()


@pytest.mark.parametrize(
    ("copy", "identity"), [("delta", "DEFAULT"), ("iceberg", "FULL")], indirect=["copy"]
)
def test_a_copy_has_the_rows_of_the_source(
    path: Path, addresses: Addresses, spark: "SparkSession", tmp_path: Folder, copy: Upsert,
    identity: str,
) -> None:  # fmt: skip
    """Changed keys, values that are not sent, TRUNCATE, columns that come, batches again."""
    chance = random.Random(identity)
    again: set[int] = set()
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v int, long text)")
    ask(path.source, f"ALTER TABLE t REPLICA IDENTITY {identity}")
    ask(path.source, "ALTER TABLE t ALTER long SET STORAGE EXTERNAL")
    ask(path.source, f"INSERT INTO t SELECT n, 0, {LONG.format('n')} FROM generate_series(1, 30) n")
    path.start()
    given = options(path, addresses, "t", maxRowsPerTrigger="25")
    columns = ["id", "v", "long"]
    batches = 0

    def once_or_twice(batch: "DataFrame", number: int) -> None:
        nonlocal batches
        batches += 1
        copy(batch, number)
        if number in (1, 3) and number not in again:
            again.add(number)
            raise Crashed

    def agree() -> None:
        path.arrive()
        for _ in range(50):
            with suppress(Crashed):
                follow(spark, given, tmp_path / "checkpoint", once_or_twice)
                break
        rows = ask(path.source, f"SELECT {', '.join(columns)} FROM t ORDER BY 1")
        assert copied(spark, copy, *columns) == rows
        assert GAPS == []
        assert gap(spark, copy) == ""

    def change(times: int) -> None:
        for _ in range(times):
            key = f"(SELECT id FROM t OFFSET {chance.randrange(20)} LIMIT 1)"
            free = "(SELECT max(id) + 1 FROM t)"
            ask(path.source, chance.choice([
                f"UPDATE t SET v = v + 1 WHERE id = {key}",  # long is not sent
                f"UPDATE t SET id = {free} WHERE id = {key}",  # nor here, and its key is another
                (f"UPDATE t SET id = {free}, v = v + 1 WHERE id = {key};"
                 f"INSERT INTO t SELECT min(id) - 1, 7, {LONG.format(9)} FROM t"),
                f"UPDATE t SET long = {LONG.format(chance.random())}, v = 9 WHERE id = {key}",
                f"DELETE FROM t WHERE id = {key}",
                "INSERT INTO t SELECT coalesce(max(id), 0) + 1, 1, 'short' FROM t",
                (f"BEGIN; UPDATE t SET id = -1000 WHERE id = {key};"
                 f"UPDATE t SET id = {free} WHERE id = (SELECT id FROM t WHERE id > 0 LIMIT 1);"
                 "UPDATE t SET id = (SELECT max(id) + 1 FROM t) WHERE id = -1000; COMMIT"),
            ]))  # fmt: skip

    agree()
    change(40)
    agree()
    assert again == {1, 3}
    ask(path.source, "TRUNCATE t; INSERT INTO t SELECT n, 2, 'x' FROM generate_series(1, 25) n")
    change(10)
    agree()
    ask(path.source, "ALTER TABLE t ADD more text")
    ask(path.source, "UPDATE t SET more = 'came' WHERE id % 2 = 0")
    columns.append("more")
    agree()
    assert batches > 6


@pytest.mark.parametrize("copy", ["iceberg"], indirect=True)
def test_a_gap_stands_in_the_copy_until_the_table_is_read_again(
    path: Path, addresses: Addresses, spark: "SparkSession", tmp_path: Folder, copy: Upsert
) -> None:
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v int, long text)")
    ask(path.source, "ALTER TABLE t ALTER long SET STORAGE EXTERNAL")
    ask(path.source, f"INSERT INTO t SELECT n, 0, {LONG.format('n')} FROM generate_series(1, 5) n")
    path.start()
    path.arrive()
    # Behind the load: rows that the copy does not have.
    given = options(path, addresses, "t", startingVersion="latest")
    follow(spark, given, tmp_path / "checkpoint", copy)
    ask(path.source, "UPDATE t SET v = 1 WHERE id = 1")
    ask(path.source, "INSERT INTO t VALUES (6, 6, 'x')")
    path.arrive()
    follow(spark, given, tmp_path / "checkpoint", copy)

    assert copied(spark, copy, "id", "v") == [(6, 6)]
    assert "a row that the copy does not have" in gap(spark, copy)
    assert len(GAPS) == 1
    assert copy._table in GAPS[0]
    since = gap(spark, copy)
    ask(path.source, "UPDATE t SET v = 1 WHERE id = 2")
    path.arrive()
    follow(spark, given, tmp_path / "checkpoint", copy)
    assert gap(spark, copy) == since
    assert len(GAPS) == 1

    read_again(path)
    follow(spark, given, tmp_path / "checkpoint", copy)
    assert copied(spark, copy, "id", "v", "long") == ask(
        path.source, "SELECT id, v, long FROM t ORDER BY 1"
    )
    assert gap(spark, copy) == ""
    assert len(GAPS) == 1

    ask(path.source, "ALTER TABLE t ADD n int DEFAULT 5")  # no row of it is sent
    ask(path.source, "INSERT INTO t VALUES (7, 7, 'y')")
    path.arrive()
    follow(spark, given, tmp_path / "checkpoint", copy)
    assert (6, None) in copied(spark, copy, "id", "n")
    assert "values of n in rows that were not sent" in gap(spark, copy)


@pytest.mark.parametrize("copy", ["delta"], indirect=True)
def test_a_column_that_comes_has_the_type_of_the_stream(
    spark: "SparkSession", copy: Upsert
) -> None:
    copy(changes(spark, "id int, day date", (1, None, "insert", EPOCH, 0)))

    shape = "id int, p struct<x:double,y:double>, at timestamp_ntz"
    copy(changes(spark, shape, (2, (1.0, 2.0), None, "insert", EPOCH + 1, 0)))

    found = {f.name: f.dataType.simpleString() for f in spark.table(copy._table).schema.fields}
    assert f"p {found['p']}, at {found['at']}" in shape
    copy(changes(spark, "id int, day timestamp_ntz", (3, None, "insert", EPOCH + 2, 0)))
    assert copied(spark, copy, "id", "day") == [(1, None), (2, None), (3, None)]


@pytest.mark.parametrize("copy", ["iceberg"], indirect=True)
def test_a_load_beside_the_stream_is_marked_from_its_beginning_to_its_end(
    spark: "SparkSession", copy: Upsert
) -> None:
    """Commits between these two may change a row that is still to be loaded: nothing is lost."""
    shape, nothing = "id int, v int, long string", (None, None, None)
    begin = (*nothing, "truncate", EPOCH + 1, of_reread(9), None, {"why": LOAD_FOLLOWS})
    seen = (*nothing, "gap", EPOCH + 1, -1, None, {"why": "seen: y"})
    changed = (1, 2, None, "update_postimage", EPOCH + 2, 0, ["long"])
    chunk = (1, 2, "x", "insert", EPOCH + 2, of_reread(10))
    end = (*nothing, "loaded", EPOCH + 2, of_reread(11))

    def apply(*rows: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], str]:
        copy(changes(spark, shape, *rows))
        return copied(spark, copy, "id", "v", "long"), gap(spark, copy)

    first = (1, 1, "x", "insert", EPOCH, 0)
    assert apply(first) == ([(1, 1, "x")], "")
    assert apply(seen) == ([(1, 1, "x")], "1/1: seen: y")
    assert len(GAPS) == 1
    loading = "1/1: a load follows"
    for _ in range(2):  # batches come again
        assert apply(begin) == ([], loading)
        assert apply(changed) == ([], loading)
        assert apply(chunk) == ([(1, 2, "x")], loading)
        assert apply(end) == ([(1, 2, "x")], "")
    assert apply(begin, changed, chunk, end) == ([(1, 2, "x")], "")
    assert len(GAPS) == 1

    assert apply(begin) == ([], loading)
    assert apply(chunk, (*seen[:4], EPOCH + 3, *seen[5:]), end) == ([(1, 2, "x")], "1/3: seen: y")
    assert len(GAPS) == 2


@pytest.mark.parametrize("copy", ["delta"], indirect=True)
def test_a_gap_that_lasts_is_not_ended_by_a_truncate(
    path: Path, addresses: Addresses, spark: "SparkSession", tmp_path: Folder, copy: Upsert
) -> None:
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v int)")
    ask(path.source, "INSERT INTO t VALUES (1, 1)")
    path.start()
    path.arrive()
    given = options(path, addresses, "t")
    follow(spark, given, tmp_path / "checkpoint", copy)
    assert gap(spark, copy) == ""

    ask(path.source, f"ALTER PUBLICATION {path.prefix} SET (publish = 'insert, truncate')")
    until(lambda: any("not exact any more" in note for note in path.notes), "the gap", pause)
    ask(path.source, "TRUNCATE t; INSERT INTO t VALUES (2, 2)")
    ask(path.source, "UPDATE t SET v = 3")  # is not sent
    path.arrive()
    follow(spark, given, tmp_path / "checkpoint", copy)
    assert copied(spark, copy, "id", "v") == [(2, 2)]
    assert gap(spark, copy) != ""


@pytest.mark.parametrize("copy", ["delta", "iceberg"], indirect=True)
def test_a_column_is_widened_with_the_stream_or_the_stream_ends(
    spark: "SparkSession", copy: Upsert
) -> None:
    """No value is rounded into the type that a column had before."""
    shape = "id {}, f {}, n {}, few array<{}>"
    was = (shape.format("int", "float", "decimal(10,2)", "smallint"), Decimal("1.50"))
    now = (shape.format("bigint", "double", "decimal(12,2)", "smallint"), Decimal("9999999999.25"))
    copy(changes(spark, was[0], (1, 1.5, was[1], [1], "insert", EPOCH, 0)))

    copy(changes(spark, now[0], (1 << 40, 0.1, now[1], [2], "insert", EPOCH + 1, 0)))
    copy(changes(spark, was[0], (2, 2.5, was[1], [3], "insert", EPOCH + 2, 0)))  # from before

    every = [(1, 1.5, was[1], [1]), (2, 2.5, was[1], [3]), (1 << 40, 0.1, now[1], [2])]
    assert copied(spark, copy, "id", "f", "n", "few") == every
    for other in ("decimal(9,2)", "decimal(12,4)", "string"):
        shape = f"id bigint, f {other}"
        with pytest.raises(NotExpressible, match=r"column=f.*was=double"):
            copy(changes(spark, shape, (1, None, "insert", EPOCH + 3, 0)))
    assert copied(spark, copy, "id", "f", "n", "few") == every
    assert (GAPS, gap(spark, copy)) == ([], "")


@pytest.mark.parametrize("copy", ["delta"], indirect=True)
def test_a_column_that_holds_the_stream_stays_as_it_is(spark: "SparkSession", copy: Upsert) -> None:
    """Nor does the table ask more of its readers, also where the stream ends."""
    own = "id int, s string, n decimal(12,2), f double, b boolean"
    copy(changes(spark, own, (1, "1.5", Decimal(1), 1.0, True, "insert", EPOCH, 0)))
    before = spark.sql(f"SHOW TBLPROPERTIES {copy._table}").collect()

    now = "id int, s decimal(12,2), n int, f int, b boolean"
    copy(changes(spark, now, (2, Decimal("2.25"), 2, 2, True, "insert", EPOCH + 1, 0)))
    with pytest.raises(NotExpressible, match="column=b"):
        copy(changes(spark, "id int, b int", (3, 3, "insert", EPOCH + 2, 0)))

    found = copied(spark, copy, "id", "s", "n", "f")
    assert found == [(1, "1.5", Decimal(1), 1.0), (2, "2.25", Decimal(2), 2.0)]
    assert spark.sql(f"SHOW TBLPROPERTIES {copy._table}").collect() == before


@pytest.mark.parametrize("copy", ["delta"], indirect=True)
def test_a_batch_that_comes_again_with_later_commits_loses_none(
    spark: "SparkSession", copy: Upsert
) -> None:
    """An older checkpoint was put back: what comes again is divided anew."""
    shape = "id int, v int, long string"
    copy(changes(spark, shape, (1, 1, "kept", "insert", EPOCH, 0)))
    moved = [
        (1, None, None, "update_preimage", EPOCH + 1, 0, ["v", "long"]),
        (101, 2, None, "update_postimage", EPOCH + 1, 0, ["long"]),
    ]
    later = [(500, 5, "later", "insert", EPOCH + 2, 0)]
    copy(changes(spark, shape, *moved))

    for _ in range(2):
        copy(changes(spark, shape, *moved, *later))

        assert copied(spark, copy, "id", "v", "long") == [(101, 2, "kept"), (500, 5, "later")]
        assert (GAPS, gap(spark, copy)) == ([], "")


def test_a_copy_needs_a_key() -> None:
    keys: list[list[str] | str] = [[], "id"]
    for key in keys:
        with pytest.raises(SettingRefused, match="key"):
            Upsert("lake.t", key)
