"""Random ranges of random logs: what a plain consumer finds there, or an error that says why not.

Rows of committed, aborted and open transactions, what compaction left, what has expired, and
the offsets of markers.
"""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.control import Range
from schemas.topics import Topics
from spark_consumers.errors import ApplyError, Incomplete, RangeExpired
from spark_consumers.kafka.cluster import Cluster
from spark_consumers.kafka.content import Content, Decoders
from spark_consumers.kafka.ranges import Fetch, MessageFetch, NativeFetch, Place, choose
from spark_consumers.model import Rows
from spark_consumers.source.reader import divided
from tests.sim.registry import schema_of
from tests.spark_consumers.kafka.test_ranges import A, B, row

ROUNDS, PHASES = 30, 4
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1",
    "delete.retention.ms": "0",
}
Found = dict[Place, dict[int, bytes]]  # by offset


@dataclass
class RandomLog:
    """Topics of two tables; that of B is compacted."""

    bootstrap: str
    prefix: str
    dice: random.Random
    known: dict[bool, Found] = field(default_factory=lambda: {True: {}, False: {}})  # ever found

    def __post_init__(self) -> None:
        self.client = {"bootstrap.servers": self.bootstrap}
        self.names, self.admin = Topics(self.prefix), AdminClient(self.client)
        self.cluster = Cluster(self.client)
        self.plain = {
            is_committed: Consumer(
                {**self.client, "group.id": self.prefix, "isolation.level": level,
                 "enable.partition.eof": True, "enable.auto.commit": False,
                 "fetch.wait.max.ms": 10},
            )
            for is_committed, level in ((True, "read_committed"), (False, "read_uncommitted"))
        }  # fmt: skip
        self.topics = {self.names.table(table.id): table for table in (A, B)}
        self.places = [(topic, partition) for topic in self.topics for partition in range(2)]
        made = [
            NewTopic(topic, 2, 1, config=COMPACTED if table is B else {})
            for topic, table in self.topics.items()
        ]
        for future in self.admin.create_topics(made).values():
            future.result()
        self.writers = [
            Producer(
                {
                    **self.client,
                    "transactional.id": f"{self.prefix}{n}",
                    "log_level": 0,
                    "transaction.timeout.ms": 600_000,
                }
            )
            for n in range(2)
        ]
        for writer in self.writers:
            writer.init_transactions(30)
        self.seq = 0

    def write(self, writer: Producer, places: Sequence[Place]) -> None:
        """Some rows in a transaction that is left open."""
        writer.begin_transaction()
        for _ in range(self.dice.randrange(1, 40)):
            topic, partition = self.dice.choice(places)
            self.seq += 1
            value = row(self.topics[topic], self.seq)
            writer.produce(topic, value, b"%d" % self.dice.randrange(5), partition)
        assert not writer.flush(30)

    def grows(self, times: int) -> None:
        writer = self.writers[0]
        for _ in range(times):
            self.write(writer, self.places)
            if self.dice.random() < 0.7:
                writer.commit_transaction(30)
            else:
                writer.abort_transaction(30)

    def expires(self) -> None:
        """Rows of one partition go."""
        place = self.dice.choice(self.places[:2])  # nobody may delete in what is compacted
        until = self.dice.choice([*self.now(is_committed=True)[place]])
        for future in self.admin.delete_records([TopicPartition(*place, until)]).values():
            future.result()

    def now(self, *, is_committed: bool) -> Found:
        """All that a plain consumer finds from the beginning to the end."""
        consumer, first = self.plain[is_committed], self.cluster.first(self.places)
        found: Found = {place: {} for place in self.places}
        consumer.assign([TopicPartition(*place, first[place]) for place in self.places])
        left, until = set(self.places), time.monotonic() + 60
        while left:
            assert time.monotonic() < until
            for message in consumer.consume(1_000, 0.05):
                place = message.topic(), message.partition()
                if message.error() is None:
                    found[place][message.offset()] = message.value()
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    left.discard(place)
        consumer.assign([])
        for place, rows in found.items():
            self.known[is_committed].setdefault(place, {}).update(rows)
        return found

    def is_compacted(self) -> bool:
        """Whether there are holes where rows were found before."""
        now, known = self.now(is_committed=True), self.known[True]
        return all(len(now[place]) < len(known[place]) // 2 for place in self.places[2:])

    def ranges(self, found: Found, ends: Mapping[Place, int]) -> list[Range]:
        """Some ranges; most have nothing but rows that are there.

        None goes beyond the end: what is not visible yet is waited for.
        """
        out, is_whole = set(), self.dice.random() < 0.7
        for topic, partition in self.dice.sample(self.places, self.dice.randrange(1, 4)):
            rows = found[topic, partition]
            for at in range(0, self.dice.randrange(1, 5) * 40, 40):
                start = self.dice.choice([*rows]) if is_whole else at + self.dice.randrange(40)
                end = start + 1
                while end < start + 30 and (end in rows if is_whole else self.dice.random() < 0.9):
                    end += 1
                end = min(end, ends[topic, partition])
                if start < end:
                    out.add(Range(topic, partition, start, end))
        apart: list[Range] = []
        for r in sorted(out):
            if not apart or apart[-1][:2] != r[:2] or apart[-1].end <= r.start:
                apart.append(r)
        return apart


@pytest.fixture
def log(kafka: str, topic_prefix: str, request: pytest.FixtureRequest) -> RandomLog:
    return RandomLog(kafka, topic_prefix, random.Random(request.param))


def of(found: Found, ranges: list[Range]) -> list[tuple[Place, int, bytes]]:
    """What is there of the ranges, in their order."""
    return [
        (place, at, found[place][at])
        for topic, partition, start, end in ranges
        for place in [(topic, partition)]
        for at in range(start, end)
        if at in found[place]
    ]


class Shares(MessageFetch):
    """Reads as tasks of the data source do: some offsets of one partition at a time."""

    def __call__(self, ranges: Sequence[Range], content: Content, **options: Any) -> None:
        for share in divided(ranges, 7):
            super().__call__(share, content, **options)


@pytest.mark.parametrize("log", range(2), indirect=True)
def test_ranges_are_what_a_plain_consumer_finds_or_the_error_says_why_not(log: RandomLog) -> None:
    cluster = log.cluster

    def opened(kind: type[Fetch]) -> Fetch:
        arguments = {"consumer": Consumer, "now": time.monotonic}
        if kind is Shares:
            return Shares(log.client, log.prefix, cluster.first, **arguments)
        is_native = kind is NativeFetch
        fetch = choose(log.client, log.prefix, cluster.first, native_parts=is_native, **arguments)
        assert type(fetch) is kind
        return fetch

    fetches = {kind: opened(kind) for kind in (NativeFetch, MessageFetch, Shares)}
    outcomes = Counter[str]()

    def read(ranges: list[Range], kind: type[Fetch], *, is_committed: bool) -> Rows | ApplyError:
        stable = log.dice.choice([{}, cluster.stable(log.places)])
        content = Content(Decoders(log.names, schema_of, native=kind is NativeFetch))
        try:
            fetches[kind](ranges, content, is_committed=is_committed, stable=stable)
            return content.all()
        except (Incomplete, RangeExpired) as error:
            return error

    def check(ranges: list[Range], found: Found, *, is_committed: bool) -> None:
        need, known = sum(r.end - r.start for r in ranges), log.known[is_committed]
        for kind in fetches:
            said = read(ranges, kind, is_committed=is_committed)
            outcomes[type(said).__name__] += 1
            if isinstance(said, ApplyError):
                if len(of(found, ranges)) == need:  # some were lost since
                    assert len(of(log.now(is_committed=is_committed), ranges)) < need
                first = cluster.first(log.places)
                is_expired = any(r.start < first[r.topic, r.partition] for r in ranges)
                # Of several shares another one may fail first.
                assert isinstance(said, RangeExpired) == is_expired or (
                    is_expired and kind is Shares
                )
                continue
            rows = of(known, ranges)
            assert len(rows) == need
            content = Content(Decoders(log.names, schema_of, native=False))
            for topic in {place[0] for place, *_ in rows}:
                mine = [(place[1], at, v) for place, at, v in rows if place[0] == topic]
                content.take(topic, mine)
            assert said == content.all()

    for phase in range(PHASES):
        log.grows(log.dice.randrange(5, 20))
        if phase == PHASES - 2:  # it stays open: nothing behind it is committed
            log.write(log.writers[1], log.places[:2])
        for is_committed in (True, False):
            found = log.now(is_committed=is_committed)
            if phase:
                log.expires()
            ends = (cluster.stable if is_committed else cluster.high)(log.places)
            for _ in range(ROUNDS // 2):
                check(log.ranges(found, ends), found, is_committed=is_committed)
    log.writers[1].abort_transaction(30)
    until = time.monotonic() + 120
    while not log.is_compacted():
        assert time.monotonic() < until
        log.grows(1)  # what is written last is not compacted
    found, ends = log.now(is_committed=True), cluster.stable(log.places)
    for _ in range(ROUNDS):
        check(log.ranges(found, ends), found, is_committed=True)
    assert all(outcomes[of.__name__] > 10 for of in (Rows, Incomplete, RangeExpired)), outcomes
    for reader in (*fetches.values(), *log.plain.values()):
        reader.close()
