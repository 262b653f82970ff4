"""The readers as Spark drives them, on the simulation's broker: offsets, crashes, batches.

Spark itself runs in tests/e2e/test_spark_source.py.
"""

import json
import pickle
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.cloudpickle import dumps
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from schemas.control import Range
from schemas.positions import of_reread
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import RangeExpired, ShapeChanged, StreamError
from spark_consumers.kafka.history import TableNote
from spark_consumers.kafka.ranges import NativeFetch
from spark_consumers.kafka.registry import SchemaCache
from spark_consumers.native import IS_BUILT
from spark_consumers.source.options import SourceOptions
from spark_consumers.source.reader import ChangesReader, ChangesStream, CommitShare
from spark_consumers.source.rows import OURS
from spark_consumers.spark import batches, executors
from spark_consumers.spark.executors import KEPT
from tests.sim.ports import CUTS, TOPICS
from tests.sim.registry import Decoded, Value, encode_row, schema_of
from tests.spark_consumers.feed import alter, insert, truncate
from tests.spark_consumers.published import (
    NARROW_ID,
    WIDE,
    WIDE_ID,
    A,
    B,
    Published,
    commit,
    load,
)

_KINDS = {
    "STRING": StringType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "ARRAY<STRING>": ArrayType(StringType()),
    "MAP<STRING,STRING>": MapType(StringType(), StringType()),
}


def schema(*names: str) -> StructType:
    newest = WIDE_ID if "w" in names else NARROW_ID
    made = {"comment": f"columns as of schema {newest}"}
    return StructType(
        [
            *(StructField(name, StringType()) for name in names),
            *(StructField(n, _KINDS[k], metadata=made) for n, k in OURS),
        ]
    )


def options(source: Published, **more: Any) -> SourceOptions:
    registry = SchemaCache(lambda number: json.dumps(schema_of(number)), lambda _: NARROW_ID)
    return SourceOptions((A.id,), "bank", {}, registry, **more)


def rows_of(
    reader: ChangesReader | ChangesStream, partitions: Sequence[Any]
) -> list[dict[str, Any]]:
    shares = partitions or [None]  # as Spark has it
    found = [row for one in shares for b in reader.read(one) for row in b.to_pylist()]
    return sorted(found, key=lambda row: (row["_commit_version"], row["_ordinal"]))


class Crash(Exception):
    """Of the driver."""


class Engine:
    """What Spark's micro-batches do with a source; its two logs and its sink outlive a crash.

    `gives_start`: it says where the query stands and how much it wants, as 4.2 and later.
    """

    def __init__(
        self, source: Published, options: SourceOptions, rng: random.Random, *, gives_start: bool
    ) -> None:
        self._clients = source.clients
        self._options, self._rng, self._gives_start = options, rng, gives_start
        self.columns = ["id", "v"]  # as load() found them
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self._reader: ChangesStream | None = None

    @property
    def is_new(self) -> bool:
        """Whether its next run begins with a new reader."""
        return self._reader is None

    def run(self, crashes: float) -> None:
        """Read what there is, and wait for more; raise Crash by chance."""
        try:
            self._run(crashes)
        except (Crash, StreamError) as error:
            assert self._reader is not None
            self._reader.stop()
            self._reader = None
            if not isinstance(error, ShapeChanged):
                raise
            self.columns.append("w")
            self.run(crashes)

    def _run(self, crashes: float) -> None:
        reader = self._reader
        if reader is None:
            reader = self._reader = ChangesStream(
                self._options, schema(*self.columns), clients=self._clients
            )
            if self.offsets:
                newest = json.loads(self.offsets[-1])
                if not self._gives_start:
                    assert reader.partitions(newest, newest) == []
                if self.commits < len(self.offsets):
                    self._batch(reader, self._start(reader), crashes)
        while True:
            start = self._start(reader)
            end = self._latest(reader, start)
            self._may_crash(crashes)
            if end == start:
                return
            self.offsets.append(end)
            self._batch(reader, start, crashes)

    def _start(self, reader: ChangesStream) -> str:
        if self.commits:
            return self.offsets[self.commits - 1]
        return json.dumps(reader.initialOffset())

    def _latest(self, reader: ChangesStream, start: str) -> str:
        if not self._gives_start:
            return json.dumps(reader.latestOffset())
        limit = type("ReadMaxRows", (), {"max_rows": self._options.rows})()
        return json.dumps(reader.latestOffset(json.loads(start), limit))

    def _batch(self, reader: ChangesStream, start: str, crashes: float) -> None:
        self._may_crash(crashes)
        number = len(self.offsets) - 1
        parts = reader.partitions(json.loads(start), json.loads(self.offsets[number]))
        rows = rows_of(reader, parts)
        self._may_crash(crashes)
        assert self.sink.setdefault(number, rows) == rows
        self._may_crash(crashes)
        self.commits += 1

    def _may_crash(self, crashes: float) -> None:
        if self._rng.random() < crashes:
            raise Crash


def plain(source: Published) -> list[tuple[Any, ...]]:
    """What a plain consumer of the table's topic finds, had nothing expired."""
    values = (Decoded().of(entry) for _, entry in source.broker.decided((TOPICS.table(A.id), 0)))
    out = []
    for one in values:
        if one is not None:
            cells = dict(
                zip(one.columns, (cell.decode() for cell in one.after or ()), strict=False)
            )
            kind = {"c": "insert", "r": "insert", "t": "truncate"}[one.op]
            place = int(Version(one.epoch, one.seq)), one.ordinal
            out.append((*place, kind, *map(cells.get, ("id", "v", "w"))))
    return sorted(out)


def changes_at_random(source: Published, rng: random.Random) -> list[tuple[Any, ...]]:
    """Go on: commits, some with schema changes, epochs, what is aborted; return notes of loads."""
    notes: list[tuple[Any, ...]] = []
    feed = source.feed
    match rng.randrange(8):
        case 0:
            feed.heartbeat()
        case 1:
            feed.state()
        case 2:
            feed.load_again(A, B)
            load(source, 2)
            for at, kind in ((-1, "truncate"), (of_reread(feed.n), "loaded")):
                notes.append((int(Version(feed.epoch, 0)), at, kind, None, None, None))
        case 3:
            source.abort(rng.randint(1, 3))
        case 4:
            old, new = (A, WIDE) if rng.random() < 0.7 else (WIDE, A)
            feed.commits(
                [insert(old, "8", *"xy"[: len(old.columns) - 1]), alter(old, new, epoch=feed.epoch),
                 insert(new, "9", *"xy"[: len(new.columns) - 1]), insert(B, "1", "x")],
                [truncate(new)],
            )  # fmt: skip
        case _:
            commit(source, *(rng.choice([0, 1, 2, 4]) for _ in range(rng.randint(1, 4))))
    source.publish()
    return notes


@pytest.mark.parametrize("gives_start", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_each_commit_is_in_one_batch_once_whatever_crashes(seed: int, gives_start: bool) -> None:
    rng = random.Random(seed)
    source = Published()
    load(source, 3)
    source.publish()
    notes: list[tuple[Any, ...]] = []
    for _ in range(rng.randrange(8)):
        notes += changes_at_random(source, rng)
    here, newest = (source.feed.epoch, source.feed.seq), Version(source.feed.epoch, 0)
    start = rng.choice(["snapshot", "latest", Version(1, 0), min(Version(1, 2), Version(*here)),
                        Version(*here)])  # fmt: skip
    size = rng.choice([1, 2, 5, 1_000])
    engine = Engine(source, options(source, start=start, rows=size), rng, gives_start=gives_start)
    first = newest if start == "snapshot" else start
    for _ in range(rng.randint(3, 12)):
        while True:
            if start == "latest" and not engine.offsets and engine.is_new:
                first = Version(source.feed.epoch, source.feed.seq + 1)
            try:
                engine.run(0.2)
                break
            except Crash:
                if rng.random() < 0.3:  # the source goes on
                    notes += changes_at_random(source, rng)
        notes += changes_at_random(source, rng)
    is_expired = rng.random() < 0.3
    if is_expired:
        place = rng.choice([(TOPICS.table(A.id), 0), CUTS])
        high = source.broker.high(place)
        source.broker.starts[place] = max(0, high - rng.randrange(1, 12))
        commit(source, 1)  # where nothing is left, the next record tells
        source.publish()
    try:
        engine.run(0)
        is_expired = False
    except RangeExpired:
        assert is_expired

    batches = [
        [(row["_commit_version"], row["_ordinal"], row["_change_type"],
          *(row.get(name) for name in ("id", "v", "w"))) for row in engine.sink[number]]
        for number in sorted(engine.sink)
    ]  # fmt: skip
    found = [row for batch in batches for row in batch]
    assert isinstance(first, Version)
    wanted = sorted(row for row in (*plain(source), *notes) if row[0] >= int(first))
    assert found == (wanted[: len(found)] if is_expired else wanted)
    full = [batch for batch in batches if batch]
    assert all(before[-1][0] < after[0][0] or before[-1][0] % 2**40 == 0
               for before, after in pairwise(full))  # fmt: skip
    commits = Counter(row[0] for row in found if row[0] % 2**40)  # loads are not divided
    largest = max(size, *commits.values(), 0)
    assert all(sum(row[0] % 2**40 > 0 for row in batch) <= largest for batch in full)


def test_a_batch_has_its_commits_and_an_end_that_has_not_come_is_an_error() -> None:
    source = Published()
    load(source, 2)
    commit(source, 1, 3)
    source.publish()

    def found(**more: Any) -> list[int]:
        reader = ChangesReader(options(source, **more), schema("id", "v"), clients=source.clients)
        return [Version.of(r["_commit_version"]).seq for r in rows_of(reader, reader.partitions())]

    assert found() == [0, 0, 1, 2, 2, 2]
    assert found(start=Version(1, 2)) == [2, 2, 2]
    assert found(end=Version(1, 0)) == [0, 0]
    assert found(start="latest") == []
    with pytest.raises(StreamError, match="do not go as far"):
        found(end=Version(1, 3))


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_batch_of_several_tables_has_all_that_its_commits_wrote_into_them(size: int) -> None:
    source = Published()
    load(source, 2)
    commit(source, 2, 0, 1)
    source.feed.commits([truncate(A), insert(B, "2", "x")])
    source.publish()
    of_table = StructType([StructField(name, StringType()) for name in ("id", "v")])
    of_both = StructType(
        [
            *(StructField(str(one.id), of_table) for one in (A, B)),
            StructField("_table", StringType()),
            *schema().fields,
        ]
    )
    asked = replace(options(source, rows=size), tables=(A.id, B.id), is_nested=True)
    reader = ChangesStream(asked, of_both, clients=source.clients)
    found, at = [], reader.initialOffset()
    while (end := reader.latestOffset()) != at:
        batch = rows_of(reader, reader.partitions(at, end))
        again = ChangesStream(asked, of_both, clients=source.clients)
        assert rows_of(again, again.partitions(at, end)) == batch
        found.append(batch)
        at = end

    def told(row: dict[str, Any]) -> tuple[Any, ...]:
        seq = Version.of(row["_commit_version"]).seq
        (other,) = {"public.a", "public.b"} - {row["_table"]}
        assert row[other] is None
        return seq, row["_change_type"], row["_table"], row[row["_table"]]["id"]

    rows = [told(row) for batch in found for row in batch]
    assert rows == [
        *((0, "insert", "public.a", one) for one in "01"),
        (1, "insert", "public.a", "0"), (1, "insert", "public.a", "1"),
        (1, "insert", "public.b", "1"),
        (2, "insert", "public.b", "1"),
        (3, "insert", "public.a", "0"), (3, "insert", "public.b", "1"),
        (4, "truncate", "public.a", None), (4, "insert", "public.b", "2"),
    ]  # fmt: skip
    ends = [told(batch[-1])[0] for batch in found]
    assert len(ends) == len({*ends}), "a commit in two batches"


def test_a_batch_is_bounded_by_times_of_the_source() -> None:
    source = Published()
    load(source, 2)
    commit(source, 1, 2, 3)  # at 1, 2 and 3 s
    source.publish()

    def found(start: float | None = None, end: float | None = None) -> list[int]:
        more = {
            name: datetime.fromtimestamp(at, UTC)
            for name, at in (("start", start), ("end", end))
            if at is not None
        }
        reader = ChangesReader(options(source, **more), schema("id", "v"), clients=source.clients)
        return [Version.of(r["_commit_version"]).seq for r in rows_of(reader, reader.partitions())]

    assert found(start=2) == found(start=1.000001) == [2, 2, 3, 3, 3]
    assert found(start=0) == [1, 2, 2, 3, 3, 3]
    assert found(start=2, end=2.999999) == found(start=1.5, end=2) == [2, 2]
    assert found(end=1.5) == [0, 0, 1]
    assert found(end=0.5) == [0, 0]
    assert found(start=2, end=9) == found(start=2)
    with pytest.raises(StreamError, match="no commit is as late"):
        found(start=3.000001)
    with pytest.raises(StreamError, match="before the first"):
        found(start=3, end=1.5)


def test_what_begins_behind_the_newest_commit_is_an_error_unless_it_is_the_next() -> None:
    source = Published()
    load(source, 2)
    commit(source, 1, 1)
    source.publish()

    def begin(start: Any) -> Version:
        made = ChangesStream(options(source, start=start), schema("id"), clients=source.clients)
        return Version(*map(made.initialOffset().get, ("epoch", "seq")))

    assert begin(Version(1, 3)) == begin("latest") == (1, 2)
    assert begin(Version(2, 0)) == Version(2, 0).before()
    for version in (Version(1, 4), Version(2, 1), Version(3, 0)):
        with pytest.raises(StreamError, match="newest=1/2"):
            begin(version)


def test_readers_travel_to_executors_without_connections() -> None:
    given = {"table": "a", "prefix": "bank", "registry": "http://r", "kafka.client.id": "x"}
    reader = ChangesStream(SourceOptions.of(given), schema("id", "v"))

    there = pickle.loads(dumps(reader))

    assert there._options == reader._options
    assert there._schema == reader._schema


def test_a_frame_that_is_older_than_a_column_is_refused() -> None:
    """Also if the registry has its schema by the time that the query begins."""
    source = Published()
    commit(source, 1)
    source.publish()

    other = schema("id", "v")
    other["v"].dataType = LongType()
    with pytest.raises(ShapeChanged, match="type changed"):
        ChangesReader(options(source), other, clients=source.clients).partitions()
    old = schema("id")
    for field in old:
        field.metadata = {"comment": "columns as of schema 1"}
    with pytest.raises(ShapeChanged, match="a column was added"):
        ChangesReader(options(source), old, clients=source.clients).partitions()


def test_rows_that_retention_removed_end_the_query_with_a_word_of_it() -> None:
    source = Published()
    commit(source, 2, 2)
    source.publish()
    source.broker.starts[TOPICS.table(A.id), 0] = 1

    for start, said in ((Version(1, 1), "rows of these commits"), ("snapshot", "rows of the tab")):
        given = options(source, start=start)
        with pytest.raises(RangeExpired, match=said):
            ChangesReader(given, schema("id", "v"), clients=source.clients).partitions()


class Log:
    """A topic of the broker inside librdkafka, which tasks read natively."""

    def __init__(self) -> None:
        self.producer = Producer({"test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 0})
        (broker,) = self.producer.list_topics(timeout=30).brokers.values()
        registry = SchemaCache(lambda number: json.dumps(schema_of(number)), lambda _: NARROW_ID)
        client = {"bootstrap.servers": f"{broker.host}:{broker.port}"}
        self.reader = ChangesReader(
            SourceOptions((A.id,), "bank", client, registry), schema("id", "v")
        )

    def put(self, seqs: Sequence[int | None]) -> None:
        for seq in seqs:
            value = seq and encode_row(A, Value(A.id, A.names(), "c", (b"k", b"v"), 1, seq, 0, 7))
            self.producer.produce(TOPICS.table(A.id), value, partition=0)
        assert not self.producer.flush(30)

    def read(self, start: int, end: int) -> Iterator[Any]:
        ranges = (Range(TOPICS.table(A.id), 0, start, end),)
        return self.reader.read(CommitShare(A.id, ranges, {NARROW_ID: schema_of(NARROW_ID)}))


def seqs_of(batches: Iterator[Any]) -> list[int]:
    found = [version for batch in batches for version in batch["_commit_version"].to_pylist()]
    return [Version.of(version).seq for version in found]


@pytest.fixture
def log() -> Iterator[Log]:
    KEPT.close()  # of another test
    yield Log()
    KEPT.close()


def test_tasks_read_their_shares_in_order_by_one_reader_of_their_worker(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "PART_RECORDS", 3)
    log.put([*range(1, 9), None, *range(9, 20)])

    notes = CommitShare(A.id, (), {}, (TableNote(A.id, Version(1, 5), "gap"),))
    assert seqs_of(log.reader.read(notes)) == [5]
    assert KEPT._fetch is None
    assert seqs_of(log.read(0, 10)) == [*range(1, 10)]
    fetch = KEPT._fetch
    assert isinstance(fetch, NativeFetch) == IS_BUILT
    assert seqs_of(log.read(10, 20)) == [*range(10, 20)]
    assert KEPT._fetch is fetch


def test_a_reader_does_not_stay_behind_a_task_that_did_not_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "PART_RECORDS", 2)
    monkeypatch.setattr(batches, "_ROWS", 2)
    log.put([*range(1, 9)])
    found = log.read(0, 8)
    next(found)
    assert KEPT._fetch is not None

    found.close()  # type: ignore[attr-defined]

    assert KEPT._fetch is None
    log.producer.produce(TOPICS.table(A.id), b"strange", partition=0)
    assert not log.producer.flush(30)
    with pytest.raises(StreamError, match="cannot be decoded"):
        list(log.read(6, 9))
    assert KEPT._fetch is None
