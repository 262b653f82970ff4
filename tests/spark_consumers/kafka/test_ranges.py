"""Exact ranges, read natively and in Python: both say the same, and where natively is refused.

On the broker inside librdkafka; transactions and rights are in tests/integration/test_read.py.

Under AddressSanitizer: build and preload as `make fuzz` does, and run
`pytest -s tests/spark_consumers/kafka/test_ranges.py`.
"""

import gc
import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition, cimpl

from schemas.control import Range
from schemas.tables import Column, TableId, TableSchema
from schemas.topics import Topics
from spark_consumers.errors import ApplyError, StreamError
from spark_consumers.kafka.cluster import Cluster
from spark_consumers.kafka.content import Content, Decoders
from spark_consumers.kafka.ranges import COMMON, Fetch, MessageFetch, NativeFetch, choose
from spark_consumers.model import Rows
from spark_consumers.native import ConsumerRefused, _native, range_consumer
from tests.e2e.path import until
from tests.sim.registry import Value, encode_row, schema_of

NAMES = Topics("bank")
LIBRARY = cimpl.__file__


def shape(name: str, *more: Column) -> TableSchema:
    columns = (Column("id", 25, nullable=False), Column("n", 1700), *more)
    return TableSchema(TableId("public", name), columns, ("id",), identity_columns=("id",))


A, B, WIDE = shape("a"), shape("b"), shape("a", Column("more", 25))


def row(table: TableSchema, seq: int, *, number: bytes = b"1.5") -> bytes:
    cells = (b"k%d" % seq, number, b"x" * (seq % 300))[: len(table.columns)]
    return encode_row(table, Value(table.id, table.names(), "c", cells, 1, seq, 0, 7))


class Log:
    """Topics of a mock broker, their readers, and what they hold."""

    def __init__(self) -> None:
        self.producer = Producer({"test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 0})
        (broker,) = self.producer.list_topics(timeout=30).brokers.values()
        self.client = {"bootstrap.servers": f"{broker.host}:{broker.port}"}
        self.high: dict[tuple[str, int], int] = {}
        self.cluster = Cluster(self.client)
        options: dict[str, Any] = {"consumer": Consumer, "now": time.monotonic}
        self.readers: list[Fetch] = [
            choose(self.client, "bank", self.cluster.first, native_parts=native, **options)
            for native in (True, False)
        ]
        assert list(map(type, self.readers)) == [NativeFetch, MessageFetch]

    def put(self, table: TableSchema, partition: int, *values: bytes | None) -> Range:
        topic = NAMES.table(table.id)
        for value in values:
            self.producer.produce(topic, value, partition=partition)
        assert not self.producer.flush(30)
        start = self.high.get((topic, partition), 0)
        self.high[topic, partition] = start + len(values)
        return Range(topic, partition, start, start + len(values))

    def read(self, ranges: Sequence[Range]) -> Rows:
        """What both read; raises what both raise."""
        said: list[Rows | ApplyError] = [one(fetch, ranges, self.high) for fetch in self.readers]
        natively, plainly = said
        if isinstance(natively, ApplyError):
            assert (type(natively), str(natively)) == (type(plainly), str(plainly))
            raise natively
        assert natively == plainly
        return natively

    def close(self) -> None:
        for fetch in self.readers:
            fetch.close()


def one(fetch: Fetch, ranges: Sequence[Range], stable: dict[Any, int]) -> Rows | ApplyError:
    content = Content(Decoders(NAMES, schema_of, native=isinstance(fetch, NativeFetch)))
    try:
        fetch(ranges, content, is_committed=True, stable=stable)
        return content.all()
    except ApplyError as error:
        return error


def held(*tables: TableSchema) -> int:
    """What 100 rows of each of these schemas weigh together."""
    content = Content(Decoders(NAMES, schema_of, native=True))
    for table in tables:
        content.take(NAMES.table(table.id), [(0, n, row(table, n)) for n in range(100)])
    return content.held()


def test_a_table_with_two_schemas_weighs_what_its_rows_take_as_objects() -> None:
    assert held(A, B) == held(A) + held(B)
    assert held(A, WIDE) > 4 * (held(A) + held(WIDE))


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.close()


def test_any_ranges_of_any_records_are_read_alike(log: Log) -> None:
    dice = random.Random(7)
    ranges: list[Range] = []
    for seq in range(300):
        table, partition = dice.choice([A, A, B, WIDE]), dice.randrange(2)
        ours = [
            dice.choice([row(table, seq), row(table, seq, number=b"NaN"), None])
            for _ in range(dice.randrange(1, 40))
        ]
        ranges.append(log.put(table, partition, *ours))
        if not dice.randrange(4):
            log.put(table, partition, *dice.choices([b"strange", b"", None, b"\0" * 9], k=3))
    count = 0
    for start in (0, 1, 2, 90, 91, 50, 120, 200, 130):  # on, past some, and back
        found = log.read(ranges[start : start + dice.randrange(1, 40)])
        count += sum(map(len, found.changes.values()))
    assert count > 1000
    assert len(log.read(ranges).changes) == 2


def test_what_comes_later_is_read_on_from_where_it_stood(log: Log) -> None:
    for seq in range(20):
        first, second = log.put(A, 0, row(A, seq)), log.put(B, 0, *[row(B, seq)] * 700)
        assert {str(t): len(r) for t, r in log.read([first, second]).changes.items()} == {
            "public.a": 1,
            "public.b": 700,
        }


def test_more_partitions_than_stay_assigned_are_read(log: Log) -> None:
    ranges = [log.put(A, partition % 4, *[row(A, 1)] * 5) for partition in range(40)]
    tables = [shape(f"t{n}") for n in range(20)]
    ranges += [log.put(table, 0, row(table, 1)) for table in tables]
    log.high = dict.fromkeys(log.high, 1 << 40)  # more is to come everywhere

    for start in range(0, len(ranges), 7):
        log.read(ranges[start:])

    assert len(log.readers[0]._ahead) == 16  # type: ignore[attr-defined]


def test_an_error_of_one_reading_is_not_that_of_the_next(log: Log) -> None:
    """librdkafka keeps an error that nobody fetched; it is there by the time another has it."""
    ours, theirs = (log.put(A, partition, *[row(A, 1)] * 5) for partition in (0, 1))
    for r in (ours, theirs):
        log.read([ours])
        native, plain = log.readers
        assert isinstance(native, NativeFetch)
        assert isinstance(plain, MessageFetch)
        for consumer in native._consumers.values():
            consumer.know([r.topic], 10_000)
            consumer.want(r.topic, r.partition, [(100, 101)])
        beyond = TopicPartition(r.topic, r.partition, 100)
        (consumer,) = plain._consumers.values()
        consumer.assign([beyond])
        with closing(Consumer({**log.client, **COMMON, "group.id": "another"})) as another:
            another.assign([beyond])
            until(lambda another=another: another.poll(1) is not None, "the error", Event().wait)
        consumer.assign([])

        for read in (ours, r):
            assert len(log.read([read]).changes[A.id]) == 5


@pytest.mark.parametrize("value", [b"", b"text", b"\0\0\0\0\1", b"\0\xff\0\0\1x"])
def test_a_record_that_nobody_can_read_is_named(log: Log, value: bytes) -> None:
    r = log.put(A, 0, row(A, 1), value, row(A, 3))

    with pytest.raises(StreamError, match=r"offset=1"):
        log.read([r])
    good = [r._replace(end=1), r._replace(start=2)]
    assert len(log.read(good).changes[A.id]) == 2


def test_a_thread_that_reads_lets_others_work(log: Log) -> None:
    log.put(A, 0, row(A, 1))
    consumer = range_consumer([*log.client.items()], library=LIBRARY)  # type: ignore[list-item]
    topic, refused = NAMES.table(A.id), []
    consumer.know([topic], 10_000)
    number = consumer.want(topic, 0, [(1, 2)])
    thread = Thread(target=lambda: consumer.read(number, {}, 500))
    thread.start()
    while thread.is_alive():
        try:
            consumer.stop(topic, 0)
        except RuntimeError as error:
            refused.append(str(error))
    thread.join()

    assert set(refused) == {"two threads call one consumer"}
    consumer.close()
    consumer.close()
    with pytest.raises(ValueError, match="closed"):
        consumer.know([topic], 1)
    with pytest.raises(IndexError):
        consumer.record(number)


def threads() -> set[str]:
    return {task.name for task in Path("/proc/self/task").iterdir()}


@pytest.mark.parametrize("is_child", [False, True])
def test_the_collector_ends_a_reader_of_this_process(*, is_child: bool) -> None:
    before = threads()
    cycle: list[Any] = [range_consumer([("log_level", "0")], library=LIBRARY)]
    cycle.append(cycle)
    made = threads() - before
    child = os.fork() if is_child else 0
    del cycle
    gc.collect()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    elif is_child:
        os._exit(0)

    assert made
    assert not made & threads()


@pytest.mark.parametrize(
    "setting",
    [
        ("oauth_cb", print),
        ("plugin.library.paths", "monitoring"),
        ("default.topic.config", {}),
        ("no.such.setting", "1"),
        ("linger.ms", None),
    ],
)
def test_what_is_refused_natively_python_reads(
    log: Log, caplog: pytest.LogCaptureFixture, setting: tuple[str, Any]
) -> None:
    caplog.set_level(logging.INFO, "spark_consumers.kafka.ranges")
    client = {**log.client, setting[0]: setting[1]}

    made = choose(
        client, "bank", log.cluster.first, consumer=Consumer, now=time.monotonic, native_parts=True
    )

    assert isinstance(made, MessageFetch)
    assert setting[0] in caplog.text


@pytest.mark.parametrize("path", ["", "/nowhere/librdkafka.so"])
def test_a_library_without_its_functions_is_refused(path: str) -> None:
    with pytest.raises(ConsumerRefused):
        range_consumer([], library=path or _native.__file__)


def test_another_consumer_than_the_library_s_is_read_by_messages(log: Log) -> None:
    made = choose(
        log.client, "bank", log.cluster.first,
        consumer=partial(Consumer), now=time.monotonic, native_parts=True,
    )  # fmt: skip

    assert isinstance(made, MessageFetch)
