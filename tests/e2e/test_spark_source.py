"""The data source `gauss_cdc` over the whole path, against PostgreSQL's own output."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path as Folder
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import PySparkException

from gauss_cdc_lab.services import Addresses, spark_confs, use_java
from gauss_cdc_lab.services.process import (
    LOOPBACK,
    ProcessCommand,
    accepts,
    end_session,
    free_ports,
    poll,
)
from producer.core.ports import Wish
from producer.core.stream.unfit import WHY
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection
from producer.sources.postgres.catalog import connect as connect_to
from schemas.tables import TableId
from spark_consumers.api import CommitGroup, Options, changes, for_each_commit_group
from spark_consumers.cuts.versions import Version
from spark_consumers.source import GaussCdcSource
from tests.e2e.path import Path, ask, until
from tests.e2e.sink_program import MANIFESTS, into_files
from tests.e2e.test_ddl import install
from tests.spark_consumers.typed import expected, shown
from tests.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KILLS = int(os.environ.get("GAUSS_CDC_SOURCE_KILLS", "1"))


@pytest.fixture
def path(
    addresses: Addresses, new_database: Callable[..., str], topic_prefix: str
) -> Iterator[Path]:
    with Path(addresses, topic_prefix, new_database(), new_database()) as one:
        yield one


def options(path: Path, addresses: Addresses, table: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": addresses.kafka_bootstrap,
        "registry": addresses.registry_url,
        "prefix": path.prefix,
        "table": table,
        **more,
    }


def read(spark: "SparkSession", given: dict[str, str]) -> "DataFrame":
    spark.dataSource.register(GaussCdcSource)
    return spark.read.format("gauss_cdc").options(**given).load()


def test_a_table_whose_topic_was_set_apart_is_read_by_its_name(
    path: Path, addresses: Addresses, spark: "SparkSession", tmp_path: Folder
) -> None:
    """Kafka takes the topics of both for one: one of them has another name."""
    names = ("app.a_b", "app_a.b")
    for name in names:
        ask(path.source, f"CREATE SCHEMA {name.partition('.')[0]}")
        ask(path.source, f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        ask(path.source, f"INSERT INTO {name} VALUES (1, '{name}')")
    path.start()
    path.arrive()
    for name in names:
        ask(path.source, f"INSERT INTO {name} VALUES (2, '{name}')")
    path.arrive()

    where = Options(path.options.client, addresses.registry_url, path.prefix)
    for name in names:
        frame = read(spark, options(path, addresses, name))
        assert sorted((row.id, row.v) for row in frame.collect()) == [(1, name), (2, name)]
        commits = changes(spark, where, TableId(*name.split("."))).collect()
        assert [(row.op, row.after.id, row.after.v) for row in commits] == [("c", 2, name)]

    stop, seen = threading.Event(), set[tuple[str, int]]()

    def take(group: CommitGroup) -> None:
        for table in group.tables:
            seen.update((str(table), row.after.id) for row in group.changes(table).collect())
        if {number for _, number in seen} == {1, 2} and len(seen) == len(names) * 2:
            stop.set()

    for_each_commit_group(spark, where, take, checkpoint=str(tmp_path), stop=stop)
    assert seen == {(name, number) for name in names for number in (1, 2)}


TYPES = {
    "id": "integer", "n": "numeric(9,2)", "free": "numeric", "at": "timestamptz", "ts": "timestamp",
    "d": "date", "t": "time", "b": "bytea", "j": "jsonb", "a": "integer[]", "dec": "numeric(5,1)[]",
    "f": "double precision", "bool": "boolean", "long": "text",
}  # fmt: skip
ROW = (
    "1.50", "12345678901234567890.5", "2024-05-01 12:00:00.123456+02", "2024-05-01 12:00:00.5",
    "2024-05-01", "24:00:00", "\\\\x00ff", '{"a": 1}', "{1,NULL}", "{1.5,NULL}", "0.1", "t", "金",
)  # fmt: skip
STRANGE = (
    "NaN", "NaN", "infinity", "0044-03-15 01:02:03 BC", "-infinity", "00:00:00.1", "\\\\x", "[]",
    "{{1},{2}}", "{NaN}", "NaN", "f", "",
)  # fmt: skip


def test_rows_are_the_sources_cell_by_cell(
    path: Path, addresses: Addresses, spark: "SparkSession"
) -> None:
    columns = ", ".join(
        f'"{name}" {kind} NOT NULL' + " PRIMARY KEY" * (name == "id")
        for name, kind in TYPES.items()
    )
    insert = f"INSERT INTO t VALUES (%s{', %s' * len(ROW)})"
    long = "".join(chr(97 + (at * at) % 26) + str(at) for at in range(4_000))
    ask(path.source, f'CREATE TABLE t ({columns}); ALTER TABLE t ALTER "long" SET STORAGE EXTERNAL')
    ask(path.source, insert, 1, *ROW)
    # A look between TRUNCATE and ALTER may suspect the table: a row more, of a gap.
    path.options = replace(path.options, look_seconds=3600)
    path.start()
    path.arrive()
    ask(path.source, insert, 2, *STRANGE)
    ask(path.source, insert, 3, *ROW[:-1], long)
    ask(path.source, "UPDATE t SET f = 2 WHERE id = 3")
    ask(path.source, "DELETE FROM t WHERE id = 2")
    ask(path.source, "TRUNCATE t")
    ask(path.source, "ALTER TABLE t ADD more text")
    ask(
        path.source,
        "INSERT INTO t SELECT (jsonb_populate_record(NULL::t, to_jsonb(x))).* FROM"
        " (SELECT 4 AS id, '1'::numeric AS n, 1 AS free, now() AS at, now()::timestamp AS ts,"
        " now()::date AS d, '1:00'::time AS t, ''::bytea AS b, '1'::jsonb AS j, '{}'::int[] AS a,"
        " '{}'::numeric[] AS dec, 1 AS f, true AS bool, '' AS long, 'x' AS more) x",
    )
    path.arrive()

    frame = read(spark, options(path, addresses, "public.t"))
    types = {one.name: one.dataType.simpleString().upper() for one in frame.schema}
    rows = sorted(frame.collect(), key=lambda row: (row._commit_version, row._ordinal))

    found = [(row._change_type, row.id, row._unsent) for row in rows]
    assert found == [
        ("insert", 1, None),
        ("insert", 2, None),
        ("insert", 3, None),
        ("update_postimage", 3, ["long"]),
        ("delete", 2, [name for name in (*TYPES, "more") if name != "id"]),
        ("truncate", None, None),
        ("insert", 4, None),
    ]
    texts = texts_of(path.source, (1, *ROW), (2, *STRANGE), (3, *ROW[:-1], long))
    for row, wanted in zip(rows, texts, strict=False):
        for (name, kind), text in zip(TYPES.items(), wanted, strict=True):
            value = expected(types[name], text)
            if kind == "timestamptz" and isinstance(value, datetime):
                value = value.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)
            exact = (row._exact or {}).get(name)
            assert shown(row[name]) == value or (row[name], exact) == (None, text), (name, text)
    assert rows[2].long == long
    assert rows[3].long is None
    assert [row.more for row in rows] == [None] * 6 + ["x"]
    assert [Version.of(row._commit_version) for row in rows[:3]] == [(1, 0), (1, 1), (1, 2)]

    some = options(path, addresses, "public.t", startingVersion="1/2", endingVersion="1/3")
    assert [row._change_type for row in sorted(read(spark, some).collect())] == [
        "insert",
        "update_postimage",
    ]
    secret = read(spark, {**some, "kafka.sasl.password": "hidden!", "kafka.client.id": "x"})
    assert "hidden!" not in secret._jdf.queryExecution().toString()
    with pytest.raises(PySparkException, match="startingVersion is snapshot"):
        read(spark, {**some, "startingVersion": "yesterday"})


def test_a_view_in_sql_a_table_as_path_and_bounds_by_time(
    path: Path, addresses: Addresses, spark: "SparkSession"
) -> None:
    """As people know it from other sources: USING, load(name), Java's names, startingTimestamp."""
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    ask(path.source, "INSERT INTO t VALUES (1, 'loaded')")
    path.start()
    path.arrive()
    ask(path.source, "INSERT INTO t VALUES (2, 'before')")
    path.arrive()
    (row,) = read(spark, options(path, addresses, "t", startingVersion="1/1")).collect()
    at = row._commit_timestamp.astimezone(UTC)
    ask(path.source, "INSERT INTO t VALUES (3, 'after')")
    path.arrive()

    java = {"kafka.fetch.max.wait.ms": "10", "kafka.auto.offset.reset": "earliest"}
    given = {**options(path, addresses, "public.t"), **java}
    listed = ", ".join(f"`{name}` '{value}'" for name, value in given.items())
    name = f"copy_{path.prefix}"
    spark.sql(f"CREATE TEMPORARY VIEW {name} USING gauss_cdc OPTIONS ({listed})")
    rows = spark.sql(f"SELECT v FROM {name} WHERE _change_type = 'insert' ORDER BY id")
    assert [row.v for row in rows.collect()] == ["loaded", "before", "after"]
    spark.catalog.dropTempView(name)
    spark.sql(f"CREATE TABLE {name} USING gauss_cdc OPTIONS ({listed})")  # Spark adds its own
    spark.sql(f"DROP TABLE {name}")

    del given["table"]
    later = at + timedelta(microseconds=1)
    for start, end, wanted in (
        (at, later, ["before"]),
        (later, None, ["after"]),
        (None, at, ["loaded", "before"]),
    ):
        reader = spark.read.format("gauss_cdc").options(**given)
        if start is not None:
            reader = reader.option("startingTimestamp", start.isoformat())
        if end is not None:
            reader = reader.option("endingTimestamp", end.isoformat())
        assert [row.v for row in reader.load("public.t").orderBy("id").collect()] == wanted


def texts_of(url: str, *rows: tuple[Any, ...]) -> list[list[str | None]]:
    """What PostgreSQL prints of these values in columns of these types."""
    cells = ", ".join(f"(%s::{kind})::text" for kind in TYPES.values())
    return [list(ask(url, f"SET TimeZone = 'UTC'; SELECT {cells}", *row)[0]) for row in rows]


class Crash(Exception):
    """Of the sink's."""


def test_a_stream_gives_each_commit_once_and_whole_through_crashes(
    path: Path, addresses: Addresses, spark: "SparkSession", tmp_path: Folder
) -> None:
    """A batch that was not committed comes again as it was; transfers never change the sum."""
    ask(path.source, "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)")
    ask(path.source, "ALTER TABLE account REPLICA IDENTITY FULL")
    ask(path.source, "INSERT INTO account SELECT n, 100 FROM generate_series(0, 9) n")
    path.start()
    path.arrive()
    spark.dataSource.register(GaussCdcSource)
    batches: dict[int, list[Any]] = {}

    def transfer(number: int) -> None:
        ask(
            path.source,
            "UPDATE account SET balance = balance - 1 WHERE id = %s;"
            "UPDATE account SET balance = balance + 1 WHERE id = %s",
            number % 10,
            (number + 3) % 10,
        )

    def run(ends_in: int | None) -> None:
        def take(batch: "DataFrame", number: int) -> None:
            rows = sorted(batch.collect(), key=lambda r: (r._commit_version, r._ordinal))
            assert batches.setdefault(number, rows) == rows
            if number == ends_in:
                raise Crash

        frame = spark.readStream.format("gauss_cdc").options(
            **options(path, addresses, "account", maxRowsPerTrigger="12")
        )
        query = (
            frame.load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        if ends_in is None:
            query.processAllAvailable()
            query.stop()
            return
        with pytest.raises(PySparkException):
            query.awaitTermination(60)

    for number in range(12):
        transfer(number)
    path.arrive()
    run(0)  # the very first batch, which has no beginning in the checkpoint
    run(2)
    for number in range(12, 20):
        transfer(number)
    path.arrive()
    run(None)
    transfer(20)
    path.arrive()
    run(None)

    rows = [row for number in sorted(batches) for row in batches[number]]
    loaded, changed = rows[:10], rows[10:]
    assert {(row.id, row.balance, row._change_type) for row in loaded} == {
        (n, 100, "insert") for n in range(10)
    }
    places = [(row._commit_version, row._ordinal, row._change_type) for row in changed]
    assert len(places) == len(set(places)) == 21 * 4
    assert places == sorted(places, key=lambda place: place[:2])
    balances = {row.id: row.balance for row in loaded}
    for number in sorted(batches):
        assert len(batches[number]) <= 24  # an update is one record and two rows
        for row in batches[number]:
            if row._change_type == "update_preimage":
                assert balances[row.id] == row.balance
            else:
                balances[row.id] = row.balance
        assert sum(balances.values()) == 1_000
    now = ask(path.source, "SELECT id, balance FROM account")
    assert balances == dict(now)


def test_a_stream_of_several_tables_has_each_commit_in_all_of_them(
    path: Path, addresses: Addresses, spark: "SparkSession", tmp_path: Folder
) -> None:
    """Each transaction pays into an account: at every commit balances are what was paid."""
    ask(path.source, "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)")
    ask(path.source, 'CREATE TABLE "Pay.ment" (id int PRIMARY KEY, account int, amount int)')
    ask(path.source, "INSERT INTO account SELECT n, 0 FROM generate_series(0, 4) n")
    path.start()
    path.arrive()
    for number in range(30):
        ask(
            path.source,
            'INSERT INTO "Pay.ment" VALUES (%s, %s, %s);'
            "UPDATE account SET balance = balance + %s WHERE id = %s",
            number, number % 5, number, number, number % 5,
        )  # fmt: skip
    path.arrive()
    spark.dataSource.register(GaussCdcSource)
    asked = options(path, addresses, "", tables='account, public."Pay.ment"')
    balances, paid, batches = dict[int, int](), dict[int, int](), set[int]()

    def take(batch: "DataFrame", number: int) -> None:
        for row in batch.orderBy("_commit_version", "_ordinal").collect():
            account, payment = row["public.account"], row['public."Pay.ment"']
            assert (account is None) == (row._table == 'public."Pay.ment"')
            if account is not None:
                balances[account.id] = account.balance
            else:
                paid[payment.account] = paid.get(payment.account, 0) + payment.amount
        assert balances == {n: paid.get(n, 0) for n in range(5)}
        batches.add(number)

    frame = spark.readStream.format("gauss_cdc").options(**asked, maxRowsPerTrigger="7").load()
    query = frame.writeStream.foreachBatch(take)
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    running.processAllAvailable()
    running.stop()
    assert sum(balances.values()) == sum(range(30))
    assert len(batches) > 5
    upto = read(spark, {**asked, "endingVersion": "1/12"})
    rows = upto.where("_change_type = 'insert'").groupBy("_table").count().collect()
    assert {tuple(row) for row in rows} == {("public.account", 5), ('public."Pay.ment"', 12)}


def test_a_driver_that_is_killed_leaves_each_commit_once_and_whole(
    path: Path, addresses: Addresses, spark: "SparkSession", tmp_path: Folder
) -> None:
    """Spark's Parquet sink counts a file by the manifest of its micro-batch."""
    ask(path.source, "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)")
    ask(path.source, "ALTER TABLE account REPLICA IDENTITY FULL")
    ask(path.source, "INSERT INTO account SELECT n, 100 FROM generate_series(0, 9) n")
    path.start()
    path.arrive()
    use_java(addresses)
    given = options(path, addresses, "account", maxRowsPerTrigger="5")
    commits = 0

    def transfer(times: int) -> None:
        nonlocal commits
        for number in range(commits, commits + times):
            ask(
                path.source,
                "UPDATE account SET balance = balance - 1 WHERE id = %s;"
                "UPDATE account SET balance = balance + 1 WHERE id = %s",
                number % 10,
                (number + 3) % 10,
            )
        commits += times
        path.arrive()

    for _ in range(KILLS):
        transfer(10)
        before = len(manifests(tmp_path))
        driver = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.e2e.sink_program"),
                *(json.dumps(given), str(tmp_path)),
            ],
            cwd=ROOT,
            start_new_session=True,
        )
        until(
            lambda: len(manifests(tmp_path)) >= before + 3 or driver.poll() is not None,  # noqa: B023
            "batches of the sink",
            time.sleep,
        )
        os.killpg(driver.pid, signal.SIGKILL)  # its JVM and its workers, too
        assert driver.wait() == -signal.SIGKILL
    transfer(3)
    query = into_files(spark, given, str(tmp_path))
    query.processAllAvailable()
    query.stop()
    spark.conf.unset(MANIFESTS)

    last, balances = -1, dict[int, int]()
    kinds: dict[int, list[str]] = {}
    for files in manifests(tmp_path):
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        rows.sort(key=lambda row: (row["_commit_version"], row["_ordinal"]))
        assert len(rows) <= 10  # a chunk of ten rows, or two commits of four
        assert rows[0]["_commit_version"] > last
        last = rows[-1]["_commit_version"]
        for row in rows:
            kinds.setdefault(row["_commit_version"], []).append(row["_change_type"])
            if row["_change_type"] == "update_preimage":
                assert balances[row["id"]] == row["balance"]
            else:
                balances[row["id"]] = row["balance"]
        assert sum(balances.values()) == 1_000
    assert kinds.pop(int(Version(1, 0))) == ["insert"] * 10
    update = ["update_preimage", "update_postimage"]
    assert kinds == {int(Version(1, seq)): update * 2 for seq in range(1, commits + 1)}


def manifests(folder: Folder) -> list[list[str]]:
    """Files of each micro-batch that the Parquet sink has committed, in order."""
    found = sorted(
        (file for file in (folder / "rows" / "_spark_metadata").glob("*") if file.name.isdigit()),
        key=lambda file: int(file.name),
    )
    return [
        [unquote(urlsplit(json.loads(line)["path"]).path) for line in text.splitlines()[1:]]
        for text in (file.read_text(encoding="utf-8") for file in found)
        if "\n" in text
    ]


def test_what_is_missing_and_what_begins_anew_are_rows_of_the_stream(
    path: Path, addresses: Addresses, spark: "SparkSession", tmp_path: Folder
) -> None:
    """A row put aside, TRUNCATE, a table that is read again, renamed or dropped, a new epoch."""
    path.options = replace(path.options, max_row_bytes=1 << 20, unfit_row="quarantine")
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    ask(path.source, "INSERT INTO t VALUES (1, 'a')")
    path.start()
    path.arrive()
    install(path.source, path.prefix)
    spark.dataSource.register(GaussCdcSource)
    seen: list[Any] = []

    def found() -> list[tuple[Any, ...]]:
        """What a stream that is started again reads now, in order."""
        seen.clear()

        def take(batch: "DataFrame", _number: int) -> None:
            seen.extend(sorted(batch.collect(), key=lambda r: (r._commit_version, r._ordinal)))

        frame = spark.readStream.format("gauss_cdc").options(**options(path, addresses, "t"))
        query = (
            frame.load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        query.stop()
        return [
            (str(Version.of(row._commit_version)), row._change_type, row.id,
             (row._exact or {}).get("why"))
            for row in seen
        ]  # fmt: skip

    assert found() == [("1/0", "insert", 1, None)]
    huge = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 60000) i)"
    ask(path.source, f"INSERT INTO t VALUES (2, 'b'), (3, {huge}), (4, 'c')")
    ask(path.source, "INSERT INTO t VALUES (5, 'd'); TRUNCATE t; INSERT INTO t VALUES (6, 'e')")
    path.arrive()
    assert found() == [
        ("1/1", "gap", None, f"seen: {WHY}"),
        ("1/1", "insert", 2, None),
        ("1/1", "insert", 4, None),
        ("1/2", "insert", 5, None),
        ("1/2", "truncate", None, None),
        ("1/2", "insert", 6, None),
    ]
    assert None not in {row._commit_timestamp for row in seen}

    path.stop()
    ask(path.source, "INSERT INTO t VALUES (7, 'f')")
    path.options = replace(path.options, accept_gap=True)
    path.start()
    path.arrive()
    ask(path.source, "DELETE FROM t WHERE id = 6")
    path.arrive()
    assert found() == [
        ("2/0", "truncate", None, "a load follows"),
        ("2/0", "insert", 6, None),
        ("2/0", "insert", 7, None),
        ("2/0", "loaded", None, None),
        ("2/1", "delete", 6, None),
    ]
    assert found() == []

    with connect_to(parse_dsn(path.source)) as connection:
        requests.ask(
            QueryingConnection(connection), path.options.slot, [Wish(TableId("public", "t"))]
        )

    def is_read_again() -> bool:
        with connect_to(parse_dsn(path.source)) as connection:
            return not requests.requests(QueryingConnection(connection), path.options.slot)

    until(is_read_again, "the re-read", time.sleep)
    path.arrive()
    assert found() == [
        ("2/1", "truncate", None, "a load follows"),
        ("2/1", "insert", 7, None),
        ("2/1", "loaded", None, None),
    ]

    ask(path.source, "ALTER TABLE t RENAME TO other; INSERT INTO other VALUES (8, 'g')")
    ask(path.source, "ALTER TABLE other RENAME TO t; INSERT INTO t VALUES (9, 'h')")
    ask(path.source, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text)")
    ask(path.source, "INSERT INTO t VALUES (10, 'i')")
    path.arrive()
    rows = found()
    assert [row[1:3] for row in rows] == [
        ("truncate", None),
        ("gap", None),
        ("insert", 9),
        ("truncate", None),
        ("insert", 10),
    ]
    assert [row[3] for row in rows if row[3]] == [
        "ALTER TABLE: now public.other",
        "ALTER TABLE: its rows stand under public.other",
        "DROP TABLE",
    ]


@pytest.fixture
def connect(addresses: Addresses, tmp_path: Folder) -> Iterator[str]:
    """URL of a Spark Connect server; `viewfs://other/state` is a folder of it."""
    (port,) = free_ports(1)
    (tmp_path / "state").mkdir()
    settings = {
        **spark_confs(addresses),
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.hadoop.fs.viewfs.mounttable.other.link./state": (tmp_path / "state").as_uri(),
    }
    server = ProcessCommand(
        (
            Folder(pyspark.__file__).parent / "bin" / "spark-submit",
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        ),
        tmp_path,
        environment={
            "JAVA_HOME": str(addresses.java_home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        },
    ).spawn(tmp_path / "server.log")
    try:
        poll(lambda: accepts(port) or not server.alive, 120)
        assert accepts(port), (tmp_path / "server.log").read_text()
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        end_session(server.pid)
        server.wait(60)


def test_everything_works_over_spark_connect(
    path: Path, addresses: Addresses, connect: str, tmp_path: Folder
) -> None:
    """A program without a JVM of its own: neither the data source nor the API asks for one."""
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")
    ask(path.source, "INSERT INTO t VALUES (1)")
    path.start()
    path.arrive()
    ask(path.source, "INSERT INTO t VALUES (2)")
    ask(path.source, "DELETE FROM t WHERE id = 1")
    path.arrive()

    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.e2e.spark_program", connect),
            json.dumps(options(path, addresses, "t")),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["batch"] == [["insert", 1], ["insert", 2], ["delete", 1]]
    assert found["stream"] == found["nested"] == 3
    assert found["changes"] == 2
    assert found["groups"] == [[0, ["r"]], [1, ["c"]], [2, ["d"]], ["delete"]]
    assert list((tmp_path / "state").rglob("*.txt"))
