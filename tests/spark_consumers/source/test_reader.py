"""The readers as Spark drives them, on the simulation's broker: offsets, crashes, batches.

Spark itself runs in tests/e2e/test_spark_source.py.
"""

import json
import pickle
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
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

from spark_consumers.errors import RangeExpired, ShapeChanged, StreamError
from spark_consumers.kafka.registry import SchemaCache
from spark_consumers.source.options import SourceOptions
from spark_consumers.source.reader import ChangesReader, ChangesStream
from spark_consumers.source.rows import OURS
from spark_consumers.versions import Version
from tests.sim.ports import TOPICS
from tests.sim.registry import schema_of
from tests.spark_consumers.published import A, B, Published, commit, load

_KINDS = {
    "STRING": StringType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "ARRAY<STRING>": ArrayType(StringType()),
    "MAP<STRING,STRING>": MapType(StringType(), StringType()),
}


def schema(*names: str) -> StructType:
    made = {"comment": f"columns as of schema {Published.schema_id(TOPICS.table(A.id))}"}
    return StructType(
        [
            *(StructField(name, StringType()) for name in names),
            *(StructField(n, _KINDS[k], metadata=made) for n, k in OURS),
        ]
    )


def options(source: Published, **more: Any) -> SourceOptions:
    newest = Published.schema_id(TOPICS.table(A.id))
    registry = SchemaCache(lambda number: json.dumps(schema_of(number)), lambda _: newest)
    return SourceOptions(A.id, "bank", {}, registry, **more)


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
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self._reader: ChangesStream | None = None

    def run(self, crashes: float) -> None:
        """Read what there is, and wait for more; raise Crash by chance."""
        try:
            self._run(crashes)
        except Crash:
            assert self._reader is not None
            self._reader.stop()
            self._reader = None
            raise

    def _run(self, crashes: float) -> None:
        reader = self._reader
        if reader is None:
            reader = self._reader = ChangesStream(
                self._options, schema("id", "v"), clients=self._clients
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


@pytest.mark.parametrize("gives_start", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_each_commit_is_in_one_batch_once_whatever_crashes(seed: int, gives_start: bool) -> None:
    rng = random.Random(seed)
    source = Published()
    load(source, 3)
    source.publish()
    start = rng.choice(["snapshot", "latest", Version(1, 0), Version(1, 2)])
    size = rng.choice([1, 2, 5, 1_000])
    engine = Engine(source, options(source, start=start, rows=size), rng, gives_start=gives_start)
    expected: list[tuple[int, int]] = []
    largest = size

    def wanted(seq: int, rows: int) -> None:
        if not (isinstance(start, Version) and Version(source.feed.epoch, seq) < start):
            place = int(Version(source.feed.epoch, seq))
            expected.extend((place, ordinal) for ordinal in range(rows))

    if start in ("snapshot", Version(1, 0)):
        wanted(0, 3)
        largest = max(largest, 3)
    for _ in range(rng.randint(3, 8)):
        while True:
            try:
                engine.run(0.2)
                break
            except Crash:
                if start == "latest" and not engine.offsets:  # it begins anew
                    expected.clear()
        match rng.randrange(6):
            case 0:
                source.feed.heartbeat()
            case 1:
                source.feed.state()
            case 2:
                source.feed.load_again(A, B)
                expected.append((int(Version(source.feed.epoch, 0)), -1))  # truncate
                wanted(0, 2)
                load(source, 2)
            case _:
                sizes = [rng.choice([0, 1, 2, 4]) for _ in range(rng.randint(1, 4))]
                largest = max(largest, *sizes)
                commit(source, *sizes)
                for at, n in enumerate(sizes):
                    wanted(source.feed.seq - len(sizes) + 1 + at, n)
        source.publish()
    engine.run(0)

    batches = [engine.sink[number] for number in sorted(engine.sink)]
    places = [[(row["_commit_version"], row["_ordinal"]) for row in batch] for batch in batches]
    assert [place for batch in places for place in batch] == expected
    full = [batch for batch in places if batch]
    assert all(before[-1][0] < after[0][0] or before[-1][0] % 2**40 == 0
               for before, after in pairwise(full))  # fmt: skip
    assert all(sum(ordinal >= 0 for _, ordinal in batch) <= largest for batch in full)


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
