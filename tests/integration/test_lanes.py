"""The stream that wakes the loop, and the lane of executors, with a real Spark."""

import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg2
import psycopg2.extensions
import pytest
from py4j.protocol import Py4JError

from gauss_cdc_lab.services.process import poll
from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.control import Commits, LoadPhase
from schemas.envelope import envelope_schema
from schemas.tables import Column, TableId, TableSchema
from spark_consumers import jobs, lanes, native
from spark_consumers.decode import RowDecoder, split
from spark_consumers.errors import ApplyError, Incomplete, NotText, QueryEnded
from spark_consumers.executors import secrets
from spark_consumers.job import Applier, Observer, PassOptions
from spark_consumers.jobs import Secrets, run_job
from spark_consumers.kafka import read
from spark_consumers.kafka.read import CutReader, RangeReader
from spark_consumers.lanes import Lanes, SparkBulk
from spark_consumers.ledger import LACKS_ROW
from spark_consumers.model import Segment
from spark_consumers.sinks.base import StagedShape
from spark_consumers.sinks.postgres.bulk import create_stage
from spark_consumers.sinks.postgres.loader import CopyLoader
from spark_consumers.sinks.postgres.sink import PostgresSink
from spark_consumers.stream import Checkpoint, SparkStream, Starting
from tests.integration.kafka_feed import KafkaFeed
from tests.spark_consumers.feed import Row, alter, delete, insert, truncate, update


def typed(name: str, *more: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    columns = (
        Column("id", 23, -1, "integer", nullable=False),
        Column("v", 25, -1, "text"),
        *more,
    )
    return TableSchema(TableId("public", name), columns, key, identity_columns=key or ("id", "v"))


A, B, LOG = typed("a"), typed("b"), typed("log", key=())
WIDE = typed("wide", *(Column(f"c{n}", 25, -1, "text") for n in range(796)))


class Copy:
    """A source in Kafka, a target, and what brings one to the other."""

    def __init__(
        self,
        kafka: str,
        prefix: str,
        url: str,
        spark,
        *,
        is_driven=False,
        of_tasks=None,
        **options: object,
    ) -> None:
        self.source, self.url = KafkaFeed(kafka, prefix, A, B, LOG, WIDE), url
        self.cuts = CutReader(self.source.client, prefix, self.source.registry)
        self.driver = RangeReader(self.source.client, prefix, self.source.registry)
        self.notes: list[str] = []
        self.lanes = Lanes(
            lambda: spark,
            self.driver,
            self.source.registry,
            source=prefix,
            client={**self.source.client, **(of_tasks or {})},
            loader=CopyLoader(psycopg2.extensions.parse_dsn(url)),
            driver_rows=0,
            is_driven=lambda: is_driven,
            on_note=self.notes.append,
        )
        self.sink = PostgresSink(url, prefix, **options)
        self.segments: list[Segment] = []
        self.applier = Applier(self.cuts, self.read, self.sink, PassOptions(max_rows=1_000_000))

    def read(self, segment: Segment):
        self.segments.append(segment)
        return self.lanes(segment)

    def load(self, schema: TableSchema, *rows: list[str | None]) -> None:
        feed = self.source.feed
        feed.load(schema, LoadPhase.BEGIN)
        if rows:
            feed.load(schema, LoadPhase.CHUNK, *rows)
        feed.load(schema, LoadPhase.END)
        self.drain()

    def apply(self, *transactions):
        self.source.feed.commits(*transactions)
        return self.drain()

    def drain(self):
        self.source.publish()
        return self.applier.drain()

    def rows(self, name: str) -> list[tuple]:
        with psycopg2.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {name} ORDER BY 1, 2")
            rows = cursor.fetchall()
        connection.close()
        return rows

    def close(self) -> None:
        self.lanes.close()
        self.cuts.close()
        self.driver.close()
        self.sink.close()


@pytest.fixture(params=[True, False], ids=["replica", "enforced"])
def copy(kafka, topic_prefix, new_database: Callable[[], str], spark, request) -> Iterator[Copy]:
    one = Copy(kafka, topic_prefix, new_database(), spark, replica_role=request.param)
    yield one
    assert one.rows("pg_tables WHERE tablename LIKE 'stage%'") == []
    one.close()


def test_the_executors_lane_does_what_the_drivers_does(copy: Copy) -> None:
    for schema in (A, B, LOG):
        copy.load(schema, ["1", "one"], ["2", "t\\w\to\n"], ["3", None])
    assert copy.rows("a") == copy.rows("log") == [(1, "one"), (2, "t\\w\to\n"), (3, None)]

    ledger = copy.apply(  # simple changes
        [insert(A, "4", "four"), update(A, "1", "ONE"), delete(A, "2"), insert(B, "5", "x")],
        [delete(A, "4"), insert(A, "4", "again"), update(B, "5", "y"), delete(B, "1")],
    )
    assert copy.rows("a") == [(1, "ONE"), (3, None), (4, "again")]
    assert copy.rows("b") == [(2, "t\\w\to\n"), (3, None), (5, "y")]
    assert ledger.seq == 2

    copy.apply(  # what only commit order can tell
        [update(A, "9", ..., old="1"), insert(A, "1", "new"), update(A, "9", ...)],
        [truncate(B), insert(B, "7", "after")],
        [insert(LOG, "1", "one"), Row(LOG, "d", ["1", "one"])],
    )
    assert copy.rows("a") == [(1, "new"), (3, None), (4, "again"), (9, "ONE")]
    assert copy.rows("b") == [(7, "after")]
    assert copy.rows("log") == [(1, "one"), (2, "t\\w\to\n"), (3, None)]
    assert all(s.ranges for s in copy.segments if isinstance(s.cut, Commits))


def test_a_table_too_wide_for_a_staging_table_takes_the_driver(copy: Copy) -> None:
    rest = ["x"] * 796
    copy.load(WIDE, ["1", "one", *rest], ["2", "two", *rest])

    copy.apply([insert(WIDE, "3", "three", *rest), update(WIDE, "1", "ONE", *[...] * 796)])

    written = [row[:3] for row in copy.rows("wide")]
    assert written == [(1, "ONE", "x"), (2, "two", "x"), (3, "three", "x")]


def test_ddl_inside_a_large_commit(copy: Copy) -> None:
    copy.load(A, ["1", "one"])
    wide = typed("a", Column("w", 25, -1, "text"))
    copy.source.know(wide)

    copy.apply([insert(A, "2", "two"), alter(A, wide), insert(wide, "3", "three", "w")])

    assert copy.rows("a") == [(1, "one", None), (2, "two", None), (3, "three", "w")]


def test_a_table_of_which_the_target_lacks_a_row_is_marked(copy: Copy) -> None:
    copy.load(A)

    copy.apply([insert(A, "1", "x"), update(A, "2", ...)])

    assert copy.rows("a") == [(1, "x")]
    assert copy.sink.ledger().inexact["public.a"] == LACKS_ROW


def test_rows_of_attempts_that_do_not_count_are_not_seen(copy: Copy) -> None:
    copy.load(A)
    inner = copy.applier._read_rows

    class Twice:
        """As if a first attempt of each task had been lost after its commit."""

        def __init__(self, bulk: SparkBulk) -> None:
            self.bulk, self.shapes, self.ddl = bulk, bulk.shapes, bulk.ddl
            self.driver_rows = 0

        def copy(self, stages):
            self.bulk.copy(stages)
            return self.bulk.copy(stages)

    def read(segment: Segment):
        rows = inner(segment)
        return Twice(rows) if isinstance(rows, SparkBulk) else rows

    copy.applier = Applier(copy.cuts, read, copy.sink)
    copy.apply([insert(A, "1", "x"), insert(A, "2", "y")])

    assert copy.rows("a") == [(1, "x"), (2, "y")]


def test_counts_decide_in_the_large_lane(copy: Copy) -> None:
    copy.load(A)
    copy.source.feed.commits([insert(A, "1", "x"), insert(A, "2", "y")])
    topic = copy.source.names.table(A.id)
    first = min(at for t, at in copy.source.feed.content if t == topic)
    copy.source.feed.content[topic, first].ordinal = 1  # ordinal 0 is nowhere, 1 is there twice

    with pytest.raises(Incomplete):
        copy.drain()

    assert copy.rows("a") == []
    copy.sink.start()


def test_many_rows_in_one_commit(copy: Copy) -> None:
    copy.load(A, *[[str(i), "old"] for i in range(1_000)])
    copy.apply(
        [insert(A, str(i), "x" * 20) for i in range(1_000, 40_000)]
        + [update(A, str(i), ...) for i in range(500)]
        + [update(A, str(-i), ..., old=str(i)) for i in range(1, 500)]
    )

    assert len(copy.rows("a")) == 40_000
    assert copy.rows("a WHERE id < 0")[:2] == [(-499, "old"), (-498, "old")]


def test_a_job_is_named_by_its_commits_and_no_password_is_seen(
    kafka, topic_prefix, new_database: Callable[[], str], spark, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    password, of_kafka = "of-the-target-only", "of-kafka-only"
    login = {**psycopg2.extensions.parse_dsn(new_database()), "password": password}
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    copy = Copy(
        kafka, topic_prefix, psycopg2.extensions.make_dsn(**login), spark,
        of_tasks={"sasl.password": of_kafka},
    )  # fmt: skip
    copy.load(A, ["1", "one"])

    copy.apply([insert(A, "2", "two")], [insert(A, "3", "three")])

    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    events = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
    said = "".join(path.read_text("utf-8") for path in events.rglob("*") if path.is_file())
    assert f'"{topic_prefix}: commits 1..2, 2 rows"' in said
    assert f'"{topic_prefix}: load of {topic_prefix}.public.a, 1 rows"' in said
    assert copy.notes[-1] == f"{topic_prefix}: commits 1..2, 2 rows: executors staged 2 in 1 tasks"
    commands = "".join(_of_processes("cmdline"))
    assert "pyspark.daemon" in commands
    for secret in (password, of_kafka):
        assert secret not in said + commands + "".join(copy.notes)
        assert secret not in "".join(_of_processes("environ"))
    assert copy.applier.rows - copy.applier.driver_rows == 3
    copy.close()


def _of_processes(what: str) -> Iterator[str]:
    """Commands, which all users of the machine see, or environments."""
    for path in Path("/proc").glob(f"[0-9]*/{what}"):
        with suppress(OSError):  # a process that has ended
            yield path.read_text("utf-8", "replace")


@pytest.mark.parametrize("fits", [True, False])
def test_a_large_commit_is_the_driver_s_where_it_is_faster_and_the_rows_fit(
    kafka, topic_prefix, new_database: Callable[[], str], spark, monkeypatch, *, fits: bool
) -> None:
    copy = Copy(kafka, topic_prefix, new_database(), spark, is_driven=True)
    monkeypatch.setattr(read, "_PART", 2)
    monkeypatch.setattr(lanes, "DRIVER_BYTES", 10_000 if fits else 50)

    copy.load(B)
    copy.load(A, *([str(n), "x" * 50] for n in range(5)))
    copy.apply([update(A, str(n), "y") for n in range(3)] + [delete(A, "4"), insert(B, "1", "z")])

    assert copy.rows("a") == [(0, "y"), (1, "y"), (2, "y"), (3, "x" * 50)]
    assert copy.rows("b") == [(1, "z")]
    assert copy.applier.driver_rows == (10 if fits and native.IS_BUILT else 0)
    # A commit that fits is tried at any time; more than that is never cut for executors.
    assert not copy.lanes.spreads({})
    copy.close()


def test_secrets_for_tasks_are_in_a_file_of_their_user(spark) -> None:
    given = Secrets({"target": {"password": "x"}, "kafka": {}})
    file = given.given(spark)
    assert file is not None
    path = Path(file.path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert secrets(file) == {"target": {"password": "x"}, "kafka": {}}
    given.close()
    assert not path.parent.exists()
    assert Secrets({"target": {}, "kafka": {}}).given(spark) is None


def _forever(_: int) -> None:
    from threading import Event

    Event().wait()


def test_a_job_that_runs_is_cancelled_by_a_stop(spark) -> None:
    with pytest.raises(Py4JError, match="CANCELLED"):
        run_job(spark, [1, 2], _forever, description="forever", stop=lambda: True)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_a_job_that_gets_no_core_is_said(spark, monkeypatch) -> None:
    """Another job has them all; Spark waits for ever, and says so below its log level."""
    monkeypatch.setattr(jobs, "_IDLE", 1.5)
    said: list[str] = []
    is_over = threading.Event()

    def of_second(line: str) -> bool:
        return line.startswith("second: no executor takes the job")

    def collect(name: str, stop: Callable[[], bool]) -> None:
        with suppress(Py4JError):
            run_job(spark, range(8), _forever, description=name, stop=stop, on_idle=said.append)

    holder = threading.Thread(target=collect, args=("first", is_over.is_set))
    holder.start()
    tracker = spark.sparkContext.statusTracker()
    assert poll(tracker.getActiveStageIds, 60)
    end = time.monotonic() + 60
    collect("second", lambda: any(map(of_second, said)) or time.monotonic() > end)
    is_over.set()
    holder.join()

    assert any(map(of_second, said))


def test_rows_are_applied_at_all_times_and_a_query_reports_to_spark(
    kafka, topic_prefix, new_database: Callable[[], str], spark, tmp_path: Path
) -> None:
    """While Spark starts, before the first batch, between batches, and while a query is gone."""
    copy = Copy(kafka, topic_prefix, new_database(), spark)
    copy.load(A)
    applier = Applier(copy.cuts, copy.driver, copy.sink)
    steps: dict[str, int] = {}  # by what Spark was doing
    ended: list[ApplyError] = []
    batches: list[int] = []  # what each batch read, as Spark counts it
    may_start = threading.Event()

    def start():
        may_start.wait()
        return spark

    def reported() -> str:
        """What Spark does; the first query is ended by someone else when it has reported."""
        if not may_start.is_set():
            return "Spark starts"
        queries = spark.streams.active
        progress = [q.lastProgress for q in queries if q.lastProgress is not None]
        batches.extend(p.numInputRows for p in progress if p.numInputRows)
        if ended:
            return "again" if batches[-1:] != [0] and progress else "begins again"
        if batches and "stopped" not in steps:
            for query in queries:  # which waits for its batch, and that for our pass
                threading.Thread(target=query.stop).start()
            return "stopped"
        return "reports" if progress else "query starts"

    def drain() -> None:
        seq = copy.source.feed.seq
        copy.source.feed.commits([insert(A, str(seq + 1), "x")])
        copy.source.publish()
        applier.drain()
        assert applier.commits == seq + 1
        doing = reported()
        steps[doing] = steps.get(doing, 0) + 1
        if steps["Spark starts"] == 3:
            may_start.set()

    class Noting(Observer):
        def on_retry(self, error: ApplyError, seconds: float) -> None:
            ended.append(error)

    stream = SparkStream(
        Starting(start), Checkpoint(str(tmp_path)), source=topic_prefix,
        client=copy.source.client, wait=copy.cuts.wait, every=0.5,
    )  # fmt: skip
    stream.begin()
    stream.run(drain, lambda _=0: "again" in steps, Noting())
    stream.close()

    assert steps["Spark starts"] == 3
    assert steps["query starts"] > 0
    assert steps["begins again"] > 0
    assert [type(error) for error in ended] == [QueryEnded]
    assert sum(batches) <= applier.commits + 2
    assert spark.streams.active == []
    assert len(copy.rows("a")) == copy.source.feed.seq
    copy.close()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "UTF8"])
def test_bytes_that_are_no_text_go_into_a_database_without_an_encoding(
    new_database: Callable[..., str], encoding: str
) -> None:
    url = new_database(encoding)
    encoder = compile_encoder(A, prefix="p", schema_id=7, database="d")
    tx = TransactionConstants(700, 99, 1, 1, 0, 0, 1)
    raw = b"a\xff\t\\"
    value = encoder.encode("u", "O", [b"1", b"old"], [b"1", raw], tx, 1, 0)
    connection = psycopg2.connect(url)
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA gauss_cdc")
        create_stage(cursor, "stage", ("text", "text"))
    connection.close()
    loader = CopyLoader(psycopg2.extensions.parse_dsn(url))
    decoder = RowDecoder(envelope_schema("p", A))
    rows = decoder.rows(7)
    rows.put(decoder.decode(split(value)[1]))
    refused = loader.for_tasks().load(["stage"], 0, [(0, rows)], loader.secrets)

    connection = psycopg2.connect(url)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT encode(convert_to(c1, 'SQL_ASCII'), 'hex') FROM gauss_cdc.stage")
        found = cursor.fetchall()
    connection.close()
    if encoding == "SQL_ASCII":
        assert (refused, found) == (None, [(raw.hex(),)])
    else:
        assert found == []
        error = loader.explained(refused, [StagedShape(A.id, ("id", "v"))])
        assert (type(error), error.where["column"]) == (NotText, "v")
