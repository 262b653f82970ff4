"""Cuts and exact ranges, from a real broker."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from schemas.control import Commits, Phase, Range
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.cuts import segments
from spark_consumers.errors import (
    CutsGap,
    Incomplete,
    KafkaDown,
    RangeExpired,
    StreamError,
    TopicReplaced,
)
from spark_consumers.job import Applier
from spark_consumers.model import Ledger, Rows
from spark_consumers.read import CutReader, RangeReader
from spark_consumers.sinks.postgres import PostgresSink
from tests.integration.kafka_feed import KafkaFeed
from tests.spark_consumers.feed import alter, delete, insert, truncate, update


def typed(name: str, *more: Column) -> TableSchema:
    columns = (
        Column("id", 23, -1, "integer", nullable=False),
        Column("v", 25, -1, "text"),
        *more,
    )
    return TableSchema(TableId("public", name), columns, ("id",), identity_columns=("id",))


A, B = typed("a"), typed("b")


@pytest.fixture
def source(kafka: str, topic_prefix: str) -> KafkaFeed:
    return KafkaFeed(kafka, topic_prefix, A, B)


class Reader:
    """Both readers, and the ledger that a target would hold."""

    def __init__(self, source: KafkaFeed, **options: object) -> None:
        self.source = source
        self.ledger = Ledger(source.feed.source)
        self.cuts = CutReader(source.client, source.feed.source, source.registry)
        self.rows = RangeReader(source.client, source.feed.source, source.registry, **options)

    def read(self, **options: object) -> list[Rows]:
        out = []
        for segment in segments(self.ledger, self.cuts(self.ledger), **options):
            out.append(self.rows(segment))
            self.ledger = segment.upto
        return out

    def close(self) -> None:
        self.cuts.close()
        self.rows.close()


@pytest.fixture
def reader(source: KafkaFeed) -> Iterator[Reader]:
    one = Reader(source, stuck_after=0.3)
    one.read()
    yield one
    one.close()


def texts(rows: Rows) -> dict[str, list]:
    return {str(t): [(c.seq, c.op, c.after) for c in cs] for t, cs in sorted(rows.changes.items())}


def test_rows_of_commits_come_in_commit_order(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits(
        [insert(A, "1", "x"), insert(B, "1", None)], [update(A, "1", ...), truncate(B)]
    )
    source.feed.commits([delete(A, "1")])
    source.publish()

    (rows,) = reader.read()

    assert [(c.seq, c.op, c.after) for c in rows.changes[A.id]][:1] == [(1, "c", ["1", "x"])]
    assert [c.op for c in rows.changes[A.id]] == ["c", "u", "d"]
    assert [c.op for c in rows.changes[B.id]] == ["c", "t"]
    assert reader.read() == []
    source.feed.commits([insert(A, "2", "y")])
    source.publish()
    assert [texts(r) for r in reader.read()] == [{"public.a": [(4, "c", ["2", "y"])]}]


def test_loads_and_ddl_are_read(source: KafkaFeed, reader: Reader) -> None:
    source.feed.load(A, Phase.BEGIN)
    source.feed.load(A, Phase.CHUNK, ["1", "x"], ["2", "y"])
    source.feed.load(A, Phase.END)
    wide = typed("a", Column("w", 25, -1, "text"))
    source.know(wide)
    source.feed.commits([insert(A, "3", "z"), alter(A, wide), insert(wide, "4", "z", "w")])
    source.publish()

    begin, chunk, end, ddl = reader.read()

    assert [d.after for d in begin.ddl] == [A]
    assert texts(chunk) == {"public.a": [(0, "r", ["1", "x"]), (0, "r", ["2", "y"])]}
    assert (end.changes, end.ddl) == ({}, ())
    assert [(d.seq, d.ordinal) for d in ddl.ddl] == [(1, 1)]
    assert [c.columns for c in ddl.changes[A.id]] == [("id", "v"), ("id", "v", "w")]


def test_aborted_rows_and_markers_inside_are_not_read(source: KafkaFeed, reader: Reader) -> None:
    for _ in range(3):
        source.feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")])
        (_, cut), source.feed.records = source.feed.records[-1], source.feed.records[:-1]
        assert isinstance(cut, Commits)
        source.producer.begin_transaction()
        source.send_rows(cut.ranges[0])
        source.producer.abort_transaction(30)
        source.feed.records.append((0, cut))
        source.publish()

    (rows,) = reader.read()

    assert [c.seq for c in rows.changes[A.id]] == [1, 2, 3, 4, 5, 6]


def test_a_range_of_aborted_rows_is_incomplete(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits([insert(A, "1", "x")])
    cut = source.feed.records.pop()[1]
    source.producer.begin_transaction()
    (offset,) = source.send_rows(cut.ranges[0])
    source.producer.abort_transaction(30)
    source.producer.begin_transaction()
    source.send_cut(replace(cut, ranges=(Range(cut.ranges[0].topic, 0, offset, offset + 1),)))
    source.commit()

    with pytest.raises(Incomplete):
        reader.read()


def test_a_reader_goes_on_inside_a_record(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits(*([insert(A, str(i), "x")] for i in range(3)))
    source.feed.commits([insert(A, "9", "x")])
    source.publish()
    first = next(iter(segments(reader.ledger, reader.cuts(reader.ledger), strict=True)))
    assert first.upto.seq == 1

    again = Reader(source)
    again.ledger = first.upto
    reader.ledger = first.upto

    for one in (again, reader):  # also a reader that was left in the middle
        assert [c.seq for rows in one.read(max_rows=1) for c in rows.changes[A.id]] == [2, 3, 4]
    again.close()


def test_a_strangers_open_transaction_does_not_hold_us(source: KafkaFeed, reader: Reader) -> None:
    stranger = source.new_producer(f"{source.feed.source}-stranger")
    stranger.begin_transaction()
    stranger.produce(source.names.table(A.id), b"stranger")
    stranger.flush(30)
    source.feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")])
    source.publish()

    (rows,) = reader.read()

    assert [c.seq for c in rows.changes[A.id]] == [1, 2]
    stranger.abort_transaction(30)


def test_many_rows_over_the_small_consumer(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits([insert(A, str(i), "x" * 50) for i in range(12_000)])
    source.publish()

    (rows,) = reader.read()

    assert [c.ordinal for c in rows.changes[A.id]] == list(range(12_000))


def test_expired_rows_are_told_from_missing_ones(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")])
    source.publish()
    topic = source.names.table(A.id)
    for future in source.admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        future.result()

    with pytest.raises(RangeExpired, match="first=1"):
        reader.read()


def test_expired_cuts_are_told(source: KafkaFeed, reader: Reader) -> None:
    for i in range(3):
        source.feed.commits([insert(A, str(i), "x")])
    source.publish()
    for future in source.admin.delete_records([TopicPartition(source.names.cuts, 0, 4)]).values():
        future.result()
    late = Reader(source)
    late.ledger = reader.ledger

    with pytest.raises(RangeExpired):
        late.read()
    late.ledger = Ledger(source.feed.source)
    with pytest.raises(RangeExpired, match="begins"):
        late.read()
    source.feed.start(epoch=2, continues=False)
    source.feed.commits([insert(A, "7", "x")])
    source.publish()
    late.read()
    assert (late.ledger.epoch, late.ledger.seq) == (2, 1)
    late.close()


def test_a_topic_that_was_made_again_is_refused(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits([insert(A, "1", "x")])
    source.publish()
    topic = source.names.table(A.id)
    reader.ledger = replace(reader.ledger, topics={**reader.ledger.topics, topic: "another"})

    with pytest.raises(TopicReplaced, match=topic):
        reader.read()
    reader.ledger = replace(reader.ledger, topics={}, cluster_id="another")
    with pytest.raises(TopicReplaced, match="cluster"):
        reader.read()


def test_a_log_that_lost_its_tail_is_refused(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits([insert(A, "1", "x")])
    cut = source.feed.records.pop()[1]
    source.producer.begin_transaction()
    source.send_cut(cut)  # names offsets that the topic never had
    source.commit()

    with pytest.raises(TopicReplaced):
        reader.read()
    reader.ledger = replace(reader.ledger, next_offset=1_000)
    with pytest.raises(TopicReplaced):
        reader.read()


@pytest.mark.parametrize("value", [b"", b"text", b"\0\0\0\0\7"])
def test_what_we_did_not_write_is_told_with_its_place(
    source: KafkaFeed, reader: Reader, value: bytes
) -> None:
    source.feed.commits([insert(A, "1", "x")])
    cut = source.feed.records.pop()[1]
    source.producer.begin_transaction()
    source.producer.produce(source.names.table(A.id), value, partition=0)
    source.producer.flush(30)
    source.send_cut(replace(cut, ranges=(Range(source.names.table(A.id), 0, 0, 1),)))
    source.commit()

    with pytest.raises(StreamError, match="offset=0"):
        reader.read()


def test_a_stranger_in_cuts_is_a_gap(source: KafkaFeed, reader: Reader) -> None:
    source.producer.begin_transaction()
    source.send_raw(b"stranger")
    source.commit()

    with pytest.raises(CutsGap):
        reader.read()


def test_waiting_ends_when_a_cut_comes(source: KafkaFeed, reader: Reader) -> None:
    assert not reader.cuts.wait(0.05)
    came: list[bool] = []
    thread = threading.Thread(target=lambda: came.append(reader.cuts.wait(30)))
    thread.start()
    source.feed.commits([insert(A, "1", "x")])
    source.publish()
    thread.join(40)

    assert came == [True]
    assert len(reader.read()) == 1


def test_without_a_broker_it_may_be_tried_again() -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "socket.timeout.ms": 1000}
    cuts = CutReader(client, "none", lambda _: {}, timeout=1)

    with pytest.raises(KafkaDown):
        list(cuts(Ledger("none")))
    cuts.close()


def test_a_target_follows_its_source(source: KafkaFeed, new_database: Callable[[], str]) -> None:
    sink = PostgresSink(new_database(), source.feed.source)
    reader = Reader(source)
    applier = Applier(reader.cuts, reader.rows, sink)
    for schema in (A, B):
        source.feed.load(schema, Phase.BEGIN)
        source.feed.load(schema, Phase.END)
    source.feed.commits([insert(A, "1", "x"), insert(B, "1", "y")], [update(A, "2", ..., old="1")])
    source.publish()

    ledger = applier.drain()

    assert (ledger.seq, ledger.state, ledger.cluster_id) == (2, "EXACT", source.cluster)
    with sink._transaction() as cursor:
        cursor.execute("SELECT * FROM a UNION ALL SELECT * FROM b")
        assert cursor.fetchall() == [(2, "x"), (1, "y")]
    sink.close()
    reader.close()
