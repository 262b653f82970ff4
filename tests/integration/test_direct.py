"""The direct writer on a real broker: what it stores, and what becomes of it when things break."""

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gauss_cdc.sandbox.services import LocalServices
from producer.core.events import Acknowledgement, Record
from producer.kafka.delivery import Delivery
from producer.kafka.direct import brokers
from producer.kafka.direct.connection import BrokerConnection
from producer.kafka.writer import MakeWriter
from schemas.headers import row_headers, transaction_headers
from schemas.positions import CommitKey
from tests.writers import EVERY_WRITER, Direct, PlainDirect

DIRECT: list[MakeWriter] = [Direct, PlainDirect]
Read = list[tuple[Any, ...]]  # offset, key, value, headers


def make_topics(kafka: str, prefix: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    wanted = [NewTopic(f"{prefix}.cuts", 1, 1)]
    large = {"max.message.bytes": str(9 << 20)}  # as ours are
    wanted += [NewTopic(f"{prefix}.{name}", partitions, 1, config=large) for name in ("a", "b")]
    for each in admin.create_topics(wanted).values():
        each.result(60)


def delivery(kafka: str, prefix: str, make: MakeWriter, **client: Any) -> Delivery:
    return Delivery(
        {"bootstrap.servers": kafka, **client},
        prefix=prefix,
        cuts_topic=f"{prefix}.cuts",
        transaction_timeout=60,
        exactly_once=True,
        max_row_bytes=8 << 20,
        make=make,
    )


def read(kafka: str, topic: str, partition: int) -> Read:
    """All committed records of a partition."""
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": topic, "isolation.level": "read_committed",
         "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: Read = []
    now = time.time() * 1000
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            break
        kind, at = message.timestamp()
        assert kind == TIMESTAMP_CREATE_TIME
        assert now - 600_000 < at < now + 60_000
        found.append((message.offset(), message.key(), message.value(), message.headers()))
    consumer.close()
    return found


def rows(prefix: str, count: int, *, seed: int = 0) -> list[Record]:
    """Records of four partitions, of many shapes."""
    rng = random.Random(seed)
    out: list[Record] = [
        (f"{prefix}.a", 0, None, None, []),
        (f"{prefix}.b", 1, b"", b"", [("user", "ü".encode()), ("user", b"")]),
        (f"{prefix}.a", 1, b"large", rng.randbytes(3 << 20), []),
    ]
    for at in range(count):
        headers = row_headers(transaction_headers(at, at << 30), at << 35, CommitKey(7, at, 1))
        value = bytes(rng.choices(b"abcd", k=rng.randrange(400)))
        out.append((f"{prefix}.{rng.choice('ab')}", rng.randrange(2), b"k", value, headers))
    return out


def check(kafka: str, sent: Sequence[Record], runs: Sequence[Acknowledgement]) -> None:
    """Every record stands once, in order, at the offset that was acknowledged."""
    for place in {(topic, partition) for topic, partition, *_ in sent}:
        found = read(kafka, *place)
        wanted = [
            (key, value, headers or None) for t, p, key, value, headers in sent if (t, p) == place
        ]
        assert [one[1:] for one in found] == wanted
        offsets = [at for t, p, a, b in runs if (t, p) == place for at in range(a, b)]
        assert [one[0] for one in found] == offsets


@pytest.mark.parametrize("make", EVERY_WRITER)
def test_topics_hold_the_same_whichever_writer_wrote(
    kafka: str, topic_prefix: str, make: MakeWriter
) -> None:
    make_topics(kafka, topic_prefix)
    sent: list[Record] = []
    runs: list[Acknowledgement] = []
    with closing(delivery(kafka, topic_prefix, make)) as writer:
        writer.init_transactions(60)
        for seed in range(3):
            more = rows(topic_prefix, 2000, seed=seed)
            acknowledged, _ = writer.write_now([more], lambda _: [(b"bank", b"cut")])
            sent += more
            runs += acknowledged

    check(kafka, sent, runs)
    assert [one[1:] for one in read(kafka, f"{topic_prefix}.cuts", 0)] == [
        (b"bank", b"cut", None)
    ] * 3


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_each_compression_is_read_by_others(
    kafka: str, topic_prefix: str, compression: str
) -> None:
    make_topics(kafka, topic_prefix)
    sent = rows(topic_prefix, 500)
    how = {"compression.type": compression}
    with closing(delivery(kafka, topic_prefix, Direct, **how)) as writer:
        writer.init_transactions(60)
        runs, _ = writer.write_now([sent], lambda _: [(b"bank", b"cut")])

    check(kafka, sent, runs)


@pytest.mark.parametrize("make", DIRECT)
def test_lost_connections_lose_and_repeat_nothing(
    kafka: str, topic_prefix: str, make: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer may be lost after its request was done: rows, partitions, ends."""
    rng, lost = random.Random(1), []

    class Flaky(BrokerConnection):
        """Is lost before it is read, now and then."""

        def move(self) -> None:
            if self.unanswered and rng.random() < 0.1:
                lost.append(self.unanswered)
                raise ConnectionResetError("by the test")
            super().move()

    make_topics(kafka, topic_prefix)
    sent: list[Record] = []
    runs: list[Acknowledgement] = []
    how = {"batch.size": 20_000}
    with closing(delivery(kafka, topic_prefix, make, **how)) as writer:
        writer.init_transactions(60)
        monkeypatch.setattr(brokers, "BrokerConnection", Flaky)
        for seed in range(6):
            more = rows(topic_prefix, 1500, seed=seed)[3:]
            acknowledged, _ = writer.write_now([more], lambda _: [(b"bank", b"cut")])
            sent += more
            runs += acknowledged

    assert len(lost) > 5
    check(kafka, sent, runs)
    assert len(read(kafka, f"{topic_prefix}.cuts", 0)) == 6


def test_a_broker_that_is_killed_and_comes_back_is_used_again() -> None:
    with own_broker() as (kafka, restart):
        make_topics(kafka, "bank")
        sent: list[Record] = []
        runs: list[Acknowledgement] = []
        with closing(delivery(kafka, "bank", Direct)) as writer:
            writer.init_transactions(60)
            for seed in range(3):
                more = rows("bank", 3000, seed=seed)
                at = writer.send(more)
                if seed == 1:
                    restart()
                while at < len(more):
                    at = writer.send(more, at)
                acknowledged, _ = writer.write_now([], lambda _: [(b"bank", b"cut")])
                sent += more
                runs += acknowledged

        check(kafka, sent, runs)


@contextmanager
def own_broker() -> Iterator[tuple[str, Callable[[], None]]]:
    """A broker of this test's own, and what kills and starts it."""
    with tempfile.TemporaryDirectory(prefix="gauss-cdc-test-") as folder:
        services = LocalServices(Path(folder))
        address = services.start("kafka").kafka_bootstrap

        def restart() -> None:
            services.kill("kafka")
            assert services.start("kafka").kafka_bootstrap == address

        try:
            yield address, restart
        finally:
            services.stop()
