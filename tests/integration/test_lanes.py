"""The stream that wakes the loop, and what Spark's tasks read, with a real Spark."""

import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg2
import psycopg2.extensions
import pytest
from py4j.protocol import Py4JError

from gauss_cdc_lab.services.process import poll
from schemas.control import LoadPhase
from schemas.tables import Column, TableId, TableSchema
from spark_consumers import native
from spark_consumers.cuts.complete import Promised
from spark_consumers.cuts.ledger import LACKS_ROW
from spark_consumers.errors import ApplyError, Incomplete, KafkaDown, NotText, QueryEnded
from spark_consumers.kafka import parts, read
from spark_consumers.kafka.read import CutReader, RangeReader
from spark_consumers.loop.ahead import Several
from spark_consumers.loop.job import Applier, Observer, PassOptions
from spark_consumers.model import Asked, CommitRows, Ledger
from spark_consumers.sinks.postgres.sink import PostgresSink
from spark_consumers.spark import daemon, jobs, lanes
from spark_consumers.spark.executors import Done, Job, Share, secrets
from spark_consumers.spark.jobs import OpenBatch, Secrets, Untaken, run_job
from spark_consumers.spark.lanes import Lanes, Tasks
from spark_consumers.spark.stream import Checkpoint, SparkStream, Starting
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


class Batching:
    """`lanes.Batching` without a query: a batch is always open, or none ever."""

    def __init__(self, spark) -> None:
        self._batch = None if spark is None else OpenBatch(spark)

    def open(self, _seconds: float = 0):
        return self._batch

    @contextmanager
    def job(self, _seconds: float = 0):
        yield self._batch


class Copy:
    """A source in Kafka, a target, and what brings one to the other: tasks, wherever they may."""

    def __init__(
        self,
        kafka: str,
        prefix: str,
        url: str,
        spark,
        *,
        of_tasks=None,
        by_tasks=True,
        batches=None,
        source=None,
        now=time.monotonic,
        **options: object,
    ) -> None:
        self.spark = spark
        self.source, self.url = source or KafkaFeed(kafka, prefix, A, B, LOG, WIDE), url
        self.cuts = CutReader(self.source.client, prefix, self.source.registry)
        self.driver = RangeReader(self.source.client, prefix, self.source.registry)
        self.notes: list[str] = []
        self.troubles: list[str] = []
        self.asked: Asked = {}
        self.tasks = Tasks(
            batches or Batching(spark),
            self.source.registry,
            source=prefix,
            client={**self.source.client, **(of_tasks or {})},
            asked=self.asked,
            on_note=self.notes.append,
            on_trouble=self.troubles.append,
            now=now,
        )
        self.lanes = Lanes(self.driver, self.tasks if by_tasks else None, source=prefix)
        self.sink = PostgresSink(url, prefix, asked=self.asked, **options)
        self.applier = Applier(
            self.cuts, self.lanes, self.sink, PassOptions(max_rows=1_000_000),
            several=Several(self.lanes.together, self.lanes.several),
        )  # fmt: skip

    @property
    def task_rows(self) -> int:
        return self.applier.ways.by_tasks.total()

    def load(self, schema: TableSchema, *rows: list[str | None]) -> None:
        feed = self.source.feed
        feed.load(schema, LoadPhase.BEGIN)
        self.drain()
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


@pytest.fixture(autouse=True)
def for_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows a segment has, it is for tasks."""
    monkeypatch.setattr(lanes, "_DRIVER_ROWS", 0)


@pytest.fixture(params=[True, False], ids=["replica", "enforced"])
def copy(kafka, topic_prefix, new_database: Callable[[], str], spark, request) -> Iterator[Copy]:
    one = Copy(kafka, topic_prefix, new_database(), spark, replica_role=request.param)
    yield one
    assert one.troubles == []
    one.close()


def test_what_tasks_read_is_applied_as_what_the_driver_reads(copy: Copy) -> None:
    for schema in (A, B, LOG):
        copy.load(schema, ["1", "one"], ["2", "t\\w\to\n"], ["3", None])
    assert copy.rows("a") == copy.rows("log") == [(1, "one"), (2, "t\\w\to\n"), (3, None)]
    assert copy.task_rows == 9

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
    assert copy.task_rows == 9 + 8 + 7


def test_rows_of_a_table_too_wide_for_a_staging_table(copy: Copy) -> None:
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


def test_rows_that_are_not_the_commit_s_are_not_applied(copy: Copy) -> None:
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
    assert f'"{topic_prefix}: commits 1..2, 2 rows of public.a"' in said
    assert f'"{topic_prefix}: load of public.a, 1 rows"' in said
    assert (
        copy.notes[-1]
        == f"{topic_prefix}: commits 1..2, 2 rows of public.a: 1 tasks read 2 records"
    )
    commands = "".join(_of_processes("cmdline"))
    assert daemon.MODULE in commands
    for secret in (password, of_kafka):
        assert secret not in said + commands + "".join(copy.notes)
        assert secret not in "".join(_of_processes("environ"))
    assert copy.task_rows == 3
    copy.close()


def _of_processes(what: str) -> Iterator[str]:
    """Commands, which all users of the machine see, or environments."""
    for path in Path("/proc").glob(f"[0-9]*/{what}"):
        with suppress(OSError):  # a process that has ended
            yield path.read_text("utf-8", "replace")


# ---------------------------------------------------------------- a commit too large to be held
def large(copy: Copy, wider: TableSchema) -> list:
    """Rows of three tables behind schema changes."""
    return [
        alter(A, wider),
        *(insert(wider, str(n), "x" * 20, "w") for n in range(100, 300)),
        *(update(wider, str(n), "new", ...) for n in range(100, 150)),
        *(update(wider, str(-n), ..., ..., old=str(n)) for n in range(150, 160)),
        *(delete(wider, str(n)) for n in range(0, 300, 7) if n not in range(10, 100)
          and n not in range(150, 160)),
        truncate(B),
        *(insert(B, str(n), "y" * 50) for n in range(120)),
        *(insert(LOG, str(n % 9), "z") for n in range(120)),
        *(Row(LOG, "d", [str(n), "z"]) for n in range(4)),
    ]  # fmt: skip


def in_parts(monkeypatch: pytest.MonkeyPatch, *, most: int = 1_000) -> None:
    """Let large commits be those that take more than 2 KB, and parts be some rows."""
    monkeypatch.setattr(lanes, "_DRIVER_ROWS", 10**9)
    monkeypatch.setattr(lanes, "_PART_ROWS", 60)
    monkeypatch.setattr(read, "PART_RECORDS", 20)
    monkeypatch.setattr(read, "WHOLE_BYTES", 2 * most)
    monkeypatch.setattr(parts, "_FIRST", 10)
    monkeypatch.setattr(parts, "PART_BYTES", 4_000)


@pytest.mark.parametrize(
    ("how", "is_replica", "by_tasks"),
    [
        ("by tasks", True, True),
        ("foreign keys act", False, True),
        ("by the driver", True, False),
        ("at once", True, True),
        ("schema changes stand between rows", True, True),
        ("two commits", True, True),
    ],
)
def test_a_commit_that_is_too_large_to_be_held_ends_as_any_other(
    kafka, topic_prefix, new_database: Callable[[], str], spark, monkeypatch,
    how: str, is_replica: bool, by_tasks: bool,
) -> None:  # fmt: skip
    copy = Copy(
        kafka, topic_prefix, new_database(), spark, by_tasks=by_tasks, replica_role=is_replica
    )
    for schema in (A, B, LOG):
        copy.load(schema, *([str(n), "old"] for n in range(10)))
    wider = typed("a", Column("w", 25, -1, "text"))
    copy.source.know(wider)
    if how != "at once":
        in_parts(monkeypatch)
    else:
        monkeypatch.setattr(lanes, "_DRIVER_ROWS", 10**9)
    commit, read_before = large(copy, wider), copy.task_rows
    if how == "schema changes stand between rows":
        commit.insert(0, insert(A, "1000", "x"))
    steps, seq = copy.applier.steps, copy.applier.commits

    copy.apply(*([commit[:1], commit[1:]] if how == "two commits" else [commit]))

    assert copy.applier.commits > seq
    assert copy.applier.steps == steps + (2 if how == "two commits" else 1)
    found = copy.rows("a WHERE id < 1000")
    gone = [n for n in range(0, 300, 7) if n not in range(10, 100) and n not in range(150, 160)]
    left = [n for n in [*range(10), *range(100, 150), *range(160, 300)] if n not in gone]
    assert [row[0] for row in found] == [*range(-159, -149), *left]
    assert [row[1:] for row in found if row[0] < 0] == [("x" * 20, "w")] * 10
    assert {row[1:] for row in found if 100 <= row[0] < 150} == {("new", "w")}
    assert copy.rows("b") == [(n, "y" * 50) for n in range(120)]
    logs = copy.rows("log")
    assert len(logs) == 10 + 120 - 4
    assert set(copy.sink.ledger().inexact) <= {"public.wide"}  # which is not loaded
    rows = len(commit) - 1 if how in ("by tasks", "two commits") else 0
    assert copy.task_rows - read_before == rows
    jobs = [note for note in copy.notes if ": parts " in note]
    assert (len(jobs) > 0) is (rows > 0)
    copy.close()


@pytest.mark.parametrize("by_tasks", [True, False])
def test_a_row_that_is_lacking_in_a_later_part_leaves_nothing(
    kafka, topic_prefix, new_database: Callable[[], str], spark, monkeypatch, *, by_tasks: bool
) -> None:
    copy = Copy(kafka, topic_prefix, new_database(), spark, by_tasks=by_tasks)
    copy.load(A)
    copy.load(B)
    in_parts(monkeypatch)
    rows = [insert(A, str(n), "x" * 20) for n in range(200)]
    copy.source.feed.commits([*rows, insert(B, "1", "y")])
    topic = copy.source.names.table(A.id)
    last = max(at for t, at in copy.source.feed.content if t == topic)
    copy.source.feed.content[topic, last].ordinal = 198  # 199 is nowhere, 198 is there twice

    with pytest.raises(Incomplete):
        copy.drain()

    assert copy.rows("a") == copy.rows("b") == []
    copy.close()


# ---------------------------------------------------------------- what a task does for the sink
def test_rows_that_were_settled_by_a_key_that_is_gone_are_read_again(
    kafka, topic_prefix, new_database: Callable[[], str], spark
) -> None:
    copy = Copy(kafka, topic_prefix, new_database(), spark, message_rows=0)
    copy.load(A)
    copy.apply([insert(A, "1", "x"), insert(A, "2", "y")])
    assert bool(copy.asked) is native.IS_BUILT
    with psycopg2.connect(copy.url) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (id, v)")
        cursor.execute("SELECT pg_terminate_backend(%s)", [copy.sink._pid])
    connection.close()
    jobs = len(copy.notes)

    copy.apply([insert(A, "3", "z"), Row(A, "u", ["2", "y"], ["2", "yy"])])

    assert copy.rows("a") == [(1, "x"), (2, "yy"), (3, "z")]
    # The connection was lost; the key was another one; the rows are as they were read.
    assert len(copy.notes) - jobs == (3 if native.IS_BUILT else 2)
    assert copy.troubles == []
    copy.close()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "UTF8"])
def test_bytes_that_are_no_text_go_into_a_database_without_an_encoding(
    kafka, topic_prefix, new_database: Callable[..., str], spark, encoding: str
) -> None:
    copy = Copy(kafka, topic_prefix, new_database(encoding), spark)
    copy.load(A)
    raw = b"a\xff\t\\"

    if encoding == "UTF8":
        with pytest.raises(NotText) as caught:
            copy.apply([insert(A, "1", raw), insert(A, "2", "x")])
        assert str(caught.value.where["table"]) == "public.a"
        assert copy.rows("a") == []
    else:
        copy.apply([insert(A, "1", raw), insert(A, "2", "x")])
        sent = "a WHERE encode(convert_to(v, 'SQL_ASCII'), 'hex') = '" + raw.hex() + "'"
        assert len(copy.rows(f"(SELECT id, 1 FROM {sent}) AS found")) == 1
        assert copy.task_rows == 2
    copy.close()


def test_secrets_for_tasks_are_in_a_file_of_their_user(spark) -> None:
    given = Secrets({"sasl.password": "x"})
    file = given.given(spark)
    assert file is not None
    path = Path(file.path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert secrets(file) == {"sasl.password": "x"}
    given.close()
    assert not path.parent.exists()
    assert Secrets({}).given(spark) is None


# ---------------------------------------------------------------- jobs
def _forever(_: int) -> None:
    from threading import Event

    Event().wait()


def test_a_job_that_runs_is_cancelled_by_a_stop(spark) -> None:
    with pytest.raises(Py4JError, match="CANCELLED"):
        run_job(OpenBatch(spark), [1, 2], _forever, description="forever", stop=lambda: True)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


@contextmanager
def all_cores_taken(spark) -> Iterator[None]:
    """Another job has them all; Spark waits for ever, and says so below its log level."""
    is_over = threading.Event()

    def hold() -> None:
        with suppress(Py4JError):
            run_job(OpenBatch(spark), range(8), _forever, description="holds", stop=is_over.is_set)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert poll(spark.sparkContext.statusTracker().getActiveStageIds, 60)
        with pytest.MonkeyPatch.context() as patch:  # who comes next waits for less
            patch.setattr(jobs, "_IDLE", 1.5)
            yield
    finally:
        is_over.set()
        holder.join()


def test_a_job_that_gets_no_core_ends(spark) -> None:
    with all_cores_taken(spark), pytest.raises(Untaken, match="no executor took the job"):
        run_job(OpenBatch(spark), range(8), _forever, description="second", stop=lambda: False)


@pytest.mark.parametrize("in_parts_too", [False, True])
def test_where_no_executor_takes_a_job_the_driver_reads_and_jobs_pause(
    kafka, topic_prefix, new_database: Callable[[], str], spark, monkeypatch, *, in_parts_too: bool
) -> None:
    time_ = [0.0]
    copy = Copy(kafka, topic_prefix, new_database(), spark, now=lambda: time_[0])
    copy.load(A)
    if in_parts_too:
        in_parts(monkeypatch, most=200)

    def rows(first: int) -> list[Row]:
        return [insert(A, str(n), "x" * 20) for n in range(first, first + 100)]

    with all_cores_taken(spark):
        copy.apply(rows(0))
        assert len(copy.rows("a")) == 100
        (said,) = copy.troubles
        assert "no executor took the job" in said
        assert said.endswith("; the driver reads for 60 s")
        time_[0] = 59.0
        copy.apply(rows(100))  # no job is tried
    assert (copy.task_rows, len(copy.troubles)) == (0, 1)
    copy.apply(rows(200))
    assert copy.task_rows == 0
    time_[0] = 60.0

    copy.apply(rows(300))

    assert copy.task_rows == 100
    assert len(copy.rows("a")) == 400
    assert len(copy.troubles) == 1
    copy.close()


def _out_of_reach(_: Job, shares: Sequence[Share]) -> Sequence[Done]:
    """What `read_shares` returns after its patience, which is longer than a test's."""
    return [Done(error=KafkaDown("the broker is silent")) for _ in shares]


@pytest.mark.parametrize("in_parts_too", [False, True])
def test_where_executors_do_not_reach_kafka_the_driver_reads_and_says_so_once(
    kafka, topic_prefix, new_database: Callable[[], str], spark, monkeypatch, *, in_parts_too: bool
) -> None:
    """Their network is another one than the driver's, or their secret."""
    monkeypatch.setattr(lanes, "read_shares", _out_of_reach)
    copy = Copy(kafka, topic_prefix, new_database(), spark, now=lambda: 0.0)
    copy.source.feed.load(A, LoadPhase.BEGIN)
    copy.source.feed.load(A, LoadPhase.END)
    if in_parts_too:
        in_parts(monkeypatch, most=200)

    copy.apply([insert(A, str(n), "x" * 20) for n in range(100)])

    assert len(copy.rows("a")) == 100
    (said,) = copy.troubles
    assert "a task could not read: the broker is silent" in said
    assert said.endswith("; the driver reads for 60 s")
    assert (copy.task_rows, copy.notes) == (0, [])
    copy.close()


def test_a_job_that_a_stop_ends_is_no_trouble(spark) -> None:
    said: list[str] = []
    tasks = Tasks(
        Batching(spark), lambda _: {}, source="p", client={}, asked={}, stop=lambda: True,
        on_trouble=said.append,
    )  # fmt: skip
    share = Share((), Promised(1, CommitRows(), None))
    with all_cores_taken(spark):
        assert tasks.read([share], {}, "stopped") is None
    assert said == []
    assert tasks.at_once() > 0


def test_without_spark_the_driver_reads() -> None:
    tasks = Tasks(Batching(None), lambda _: {}, source="p", client={}, asked={})

    assert tasks.at_once() == 0
    assert tasks.read([], {}, "nothing") is None


def test_where_executors_are_not_to_be_used_the_driver_reads(
    kafka, topic_prefix, new_database: Callable[[], str], spark
) -> None:
    copy = Copy(kafka, topic_prefix, new_database(), spark, by_tasks=False)
    copy.load(A, ["1", "one"])
    copy.apply([insert(A, "2", "two")], [update(A, "1", "ONE")])

    assert copy.rows("a") == [(1, "ONE"), (2, "two")]
    assert (copy.task_rows, copy.notes, copy.troubles) == (0, [], [])
    copy.close()


# ---------------------------------------------------------------- the stream
def test_rows_are_applied_at_all_times_and_the_query_s_batches_hold_them(
    kafka, topic_prefix, new_database: Callable[[], str], spark, tmp_path: Path
) -> None:
    """While Spark starts, before the first batch, between batches, and while a query is gone."""
    copy = Copy(kafka, topic_prefix, new_database(), spark)
    copy.load(A)
    steps: dict[str, int] = {}  # by what Spark was doing
    ended: list[ApplyError] = []
    batches: dict[tuple[str, int], int] = {}  # rows of each batch, as Spark counts them
    may_start = threading.Event()

    def start():
        may_start.wait()
        return spark

    stream = SparkStream(
        Starting(start), Checkpoint(str(tmp_path)), source=topic_prefix,
        client=copy.source.client, wait=copy.cuts.wait, every=0.5,
    )  # fmt: skip
    applier = Applier(copy.cuts, copy.driver, copy.sink, on_applied=stream.applied)

    def reported() -> str:
        """What Spark does; the first query is ended by someone else when it has reported."""
        if not may_start.is_set():
            return "Spark starts"
        queries = spark.streams.active
        progress = [q.lastProgress for q in queries if q.lastProgress is not None]
        batches.update({(str(p.runId), p.batchId): p.numInputRows for p in progress})
        if ended:
            return "again" if progress and progress[0].numInputRows else "begins again"
        if any(batches.values()) and "stopped" not in steps:
            for query in queries:  # which waits for its batch, and that for our pass
                threading.Thread(target=query.stop).start()
            return "stopped"
        return "reports" if progress else "query starts"

    def drain() -> Ledger:
        seq = copy.source.feed.seq
        copy.source.feed.commits([insert(A, str(seq + 1), "x")])
        copy.source.publish()
        ledger = applier.drain()
        assert applier.commits == seq + 1
        doing = reported()
        steps[doing] = steps.get(doing, 0) + 1
        if steps["Spark starts"] == 3:
            may_start.set()
        return ledger

    class Noting(Observer):
        def on_retry(self, error: ApplyError, seconds: float) -> None:
            ended.append(error)

    stream.begin()
    stream.run(drain, lambda _=0: "again" in steps, Noting())
    stream.close()

    assert steps["Spark starts"] == 3
    assert steps["query starts"] > 0
    assert steps["begins again"] > 0
    assert [type(error) for error in ended] == [QueryEnded]
    assert 0 < sum(batches.values()) <= applier.rows
    assert spark.streams.active == []
    assert len(copy.rows("a")) == copy.source.feed.seq
    copy.close()


class Streamed:
    """A target that a loop of its own follows, with a query whose jobs are used."""

    def __init__(self, kafka, prefix, url, spark, checkpoint, source=None) -> None:
        self.stream = SparkStream(
            Starting(lambda: spark), Checkpoint(str(checkpoint)), source=prefix,
            client={"bootstrap.servers": kafka}, wait=lambda _: self.copy.cuts.wait(0.1),
            every=2.0,
        )  # fmt: skip
        self.copy = copy = Copy(
            kafka, prefix, url, spark, batches=self.stream.batches, source=source
        )
        self.applier = copy.applier = Applier(
            copy.cuts, copy.lanes, copy.sink, PassOptions(max_rows=100),
            several=Several(copy.lanes.together, copy.lanes.several),
            on_applied=self.stream.applied,
        )  # fmt: skip
        self.progress: dict[tuple[str, int], int] = {}
        self.groups: set[str] = set()  # queries
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.stream.begin()
        self.stream.run(self.applier.drain, lambda _=0: self._is_over.is_set(), Observer())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self.stream.close()
        self.copy.close()

    def look(self) -> int:
        """Rows that Spark's progress has counted so far, in all batches."""
        for query in self.copy.spark.streams.active:
            self.groups.add(str(query.runId))
            for one in query.recentProgress:
                self.progress[str(one.runId), one.batchId] = one.numInputRows
        return sum(self.progress.values())

    def until(self, is_so: Callable[[], bool]) -> None:
        assert self._thread.is_alive()
        poll(lambda: is_so() or not self._thread.is_alive(), 120)
        assert is_so(), (self.look(), self.applier.rows, self.copy.notes, self.copy.troubles)


def test_jobs_belong_to_micro_batches_and_spark_counts_each_row_once(
    kafka, topic_prefix, new_database: Callable[[], str], spark, tmp_path: Path
) -> None:
    """Also with a checkpoint that is ahead of its target, and with one that is far behind."""
    first, second, checkpoint = new_database(), new_database(), tmp_path / "one"
    with Streamed(kafka, topic_prefix, first, spark, checkpoint) as one:
        source = one.copy.source
        for phase in (LoadPhase.BEGIN, LoadPhase.END):
            source.feed.load(A, phase)
        source.publish()
        one.until(lambda: one.stream.batches.open() is not None)
        old = tmp_path / "old"
        shutil.copytree(checkpoint, old)
        seq, rows = 0, one.applier.rows
        while not one.copy.task_rows:  # until a batch is open when they come
            source.feed.commits(*([insert(A, str(seq := seq + 1), "x")] for _ in range(200)))
            source.publish()
            one.until(lambda: one.applier.commits == source.feed.seq)
        one.until(lambda: one.look() == one.applier.rows)
        tracker = spark.sparkContext.statusTracker()
        jobs = [job for group in one.groups for job in tracker.getJobIdsForGroup(group)]
        assert len(jobs) == len(one.copy.notes) > 0
        assert one.applier.rows == rows + seq

    with Streamed(kafka, topic_prefix, second, spark, checkpoint, source) as other:
        other.until(lambda: other.applier.commits == source.feed.seq)  # the ledger says so
        source.feed.heartbeat()  # for the query nothing new was there before
        source.publish()
        other.until(lambda: other.look() == other.applier.rows)
    with Streamed(kafka, topic_prefix, first, spark, old, source) as again:
        source.feed.commits([insert(A, "0", "last")])
        source.publish()
        again.until(lambda: again.look() == again.applier.rows == 1)

    for copy in (one.copy, other.copy, again.copy):
        assert copy.troubles == []
    assert len(one.copy.rows("a")) == seq + 1
    assert len(other.copy.rows("a")) == seq
