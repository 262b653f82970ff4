"""Cuts and exact ranges, from a real broker."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import Mock

import pytest
from confluent_kafka import Producer, TopicPartition

from gauss_cdc.inspect import check_target
from schemas.control import Commits, LoadPhase, Range, cut_to_avro
from schemas.findings import Level
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.cuts.segments import segments
from spark_consumers.errors import (
    ApplyError,
    CutsGap,
    Incomplete,
    KafkaDown,
    RangeExpired,
    RegistryDown,
    SchemaUnknown,
    StreamError,
    TopicMissing,
    TopicReplaced,
)
from spark_consumers.kafka.ranges import MessageFetch, NativeFetch
from spark_consumers.kafka.read import CutReader, RangeReader
from spark_consumers.kafka.registry import SchemaCache
from spark_consumers.loop.job import Applier, PassOptions
from spark_consumers.model import Ledger, Rows, Segment
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.integration.kafka_feed import CUT_ID, KafkaFeed, avro
from tests.spark_consumers.feed import alter, delete, insert, truncate, update
from tests.spark_consumers.loop.test_job import MemorySink


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


class Twins:
    """Reads every segment natively and in Python: both say the same."""

    def __init__(self, source: KafkaFeed, **options: object) -> None:
        self.native, self.python = (
            RangeReader(
                source.client, source.feed.source, source.registry, native=native, **options
            )
            for native in (True, False)
        )
        assert isinstance(self.native._fetch, NativeFetch)
        assert isinstance(self.python._fetch, MessageFetch)

    def __call__(self, segment: Segment) -> Rows:
        try:
            rows = self.native(segment)
        except ApplyError as error:
            with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
                self.python(segment)
            raise
        assert rows == self.python(segment)
        return rows

    def close(self) -> None:
        self.native.close()
        self.python.close()


class Reader:
    """Both readers, and the ledger that a target would hold."""

    def __init__(self, source: KafkaFeed, **options: object) -> None:
        self.source = source
        self.ledger = Ledger(source.feed.source)
        self.cuts = CutReader(source.client, source.feed.source, source.registry)
        self.rows = Twins(source, **options)

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
    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.CHUNK, ["1", "x"], ["2", "y"])
    source.feed.load(A, LoadPhase.END)
    wide = typed("a", Column("w", 25, -1, "text"))
    source.know(wide)
    source.feed.commits([insert(A, "3", "z"), alter(A, wide), insert(wide, "4", "z", "w")])
    source.publish()

    load, ddl = reader.read()  # a load that waits is one step

    assert [d.after for d in load.ddl] == [A]
    assert texts(load) == {"public.a": [(0, "r", ["1", "x"]), (0, "r", ["2", "y"])]}
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


def test_an_open_transaction_of_another_client_does_not_hold_us(
    source: KafkaFeed, reader: Reader
) -> None:
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


def test_expired_rows_are_distinguished_from_missing_ones(
    source: KafkaFeed, reader: Reader
) -> None:
    source.feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")])
    source.publish()
    topic = source.names.table(A.id)
    for future in source.admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        future.result()

    with pytest.raises(RangeExpired, match="first=1"):
        reader.read()


def test_expired_cuts_are_reported(source: KafkaFeed, reader: Reader) -> None:
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
    late.read()
    assert late.ledger == Ledger(source.feed.source), "it waits for what it may begin with"
    source.feed.start(epoch=2, continues=False)
    source.feed.commits([insert(A, "7", "x")])
    source.publish()
    late.read()
    assert (late.ledger.epoch, late.ledger.seq) == (2, 1)
    late.ledger = reader.ledger  # a target that had begun goes on with the new epoch, too
    late.read()
    assert (late.ledger.epoch, late.ledger.seq) == (2, 1)
    late.close()


def test_expired_heartbeats_are_no_loss(source: KafkaFeed, reader: Reader) -> None:
    source.feed.heartbeat()
    source.feed.commits([insert(A, "1", "x")])
    source.publish()
    for future in source.admin.delete_records([TopicPartition(source.names.cuts, 0, 4)]).values():
        future.result()
    late = Reader(source)
    late.ledger = reader.ledger

    late.read()

    assert late.ledger.seq == 1
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


def test_a_target_behind_a_deleted_topic_says_so_and_goes_on_where_all_is_loaded_again(
    source: KafkaFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table was dropped, or left [tables]; its topic was deleted, and a target is behind."""
    for schema in (A, B):
        for phase in (LoadPhase.BEGIN, LoadPhase.CHUNK, LoadPhase.END):
            source.feed.load(schema, phase, *([["1", "x"]] if phase is LoadPhase.CHUNK else []))
    source.feed.commits([insert(A, "2", "x")])
    source.publish()
    reader, sink = Reader(source, stuck_after=2.0), MemorySink()
    sink.held = replace(sink.held, source=source.feed.source)
    rows = reader.rows.native
    applier = Applier(reader.cuts, rows, sink, PassOptions(attempts=1))
    for future in source.admin.delete_topics([source.names.table(A.id)]).values():
        future.result()

    with pytest.raises(TopicMissing, match="does not know a topic") as missing:
        applier.drain()
    assert "--accept-gap" in missing.value.hint  # which readers without an `apply` see, too
    monkeypatch.setattr(check_target, "registry_at", lambda *_: source.registry)
    kafka = Mock(prefix=source.feed.source, client_settings=lambda: source.client)
    (finding,) = check_target._check_next_step(Mock(kafka=kafka), sink.held)
    assert (finding.level, finding.subject, finding.error) == (Level.ERROR, "apply", "TopicMissing")
    assert "--accept-gap" in finding.hint
    stays = threading.Event()
    while True:
        try:
            applier.drain()
        except TopicReplaced as error:
            assert error.where["topic"] == source.names.table(A.id)  # noqa: PT017
            assert "--accept-gap" in error.hint  # noqa: PT017
            break
        except KafkaDown:
            stays.wait(0.1)
    source.feed.topics.pop(source.names.table(A.id), None)
    source.feed.load_again(B)  # what `run --accept-gap` writes
    for phase in (LoadPhase.BEGIN, LoadPhase.CHUNK, LoadPhase.END):
        source.feed.load(B, phase, *([["1", "y"]] if phase is LoadPhase.CHUNK else []))
    source.publish()
    assert applier.drain().epoch == 2
    reader.close()


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
def test_what_we_did_not_write_is_reported_with_its_place(
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


def frame(schema_id: int, payload: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


BOMB = {
    "type": "record",
    "name": "Cut",
    "namespace": "gauss_cdc",
    "fields": [{"name": "n", "type": {"type": "array", "items": "null"}}],
}


def test_records_that_are_not_ours_are_passed_over_and_reported(source: KafkaFeed) -> None:
    source.schemas |= {98: BOMB, 99: "strange"}
    source.feed.heartbeat()
    beat = source.feed.records.pop()[1]
    ahead = avro("cut", cut_to_avro(replace(beat, head=replace(beat.head, n=99))), CUT_ID)
    strange: dict[str, tuple[bytes | None, bytes | None]] = {
        "7 bytes": (b"strange", None),
        "no value": (None, None),
        "nothing": (b"", None),
        "another magic byte": (b"\1" + frame(1)[1:], None),
        "a schema that the registry does not know": (frame(404, b"xy"), None),
        "a schema alone": (frame(1), None),
        "garbage": (frame(1, b"\xff" * 40), None),
        "zeros": (frame(1, bytes(400)), None),
        "the schema of schema changes": (frame(2, bytes(40)), None),
        "a table's schema": (frame(3, bytes(40)), None),
        "nulls without number": (frame(98, b"\xff" * 7 + b"\x7f"), None),
        "a schema of no language": (frame(99, b"7"), None),
        "a large one": (b"x" * 900_000, None),
        "of another key": (ahead, b"another"),
        "of no key": (ahead, b""),
    }
    alarms: list[str] = []
    cuts = CutReader(source.client, source.feed.source, registry_of(source), on_alarm=alarms.append)
    source.producer.begin_transaction()
    for value, key in strange.values():
        source.send_raw(value, key)
    source.commit()
    source.feed.commits([insert(A, "1", "x")])
    source.publish()

    seen = [cut.head.n for _, cut in cuts(Ledger(source.feed.source))]

    assert seen == [1, 2]
    assert cuts.replay.alarms == len(strange)
    assert len(alarms) == 4  # the 1st, 2nd, 4th and 8th: nobody fills a log with them
    assert source.names.cuts in alarms[0]
    cuts.close()


def registry_of(source: KafkaFeed) -> SchemaCache:
    """As a registry, which says of an id that it has not."""

    def fetch(schema_id: int) -> str:
        if schema_id not in source.schemas:
            raise SchemaUnknown("unknown", schema_id=schema_id)
        return json.dumps(source.schemas[schema_id])

    return SchemaCache(fetch)


def test_a_registry_that_is_down_is_no_reason_to_pass_over_a_record(source: KafkaFeed) -> None:
    def fetch(_: int) -> str:
        raise RegistryDown("down")

    cuts = CutReader(source.client, source.feed.source, SchemaCache(fetch))

    with pytest.raises(RegistryDown):
        list(cuts(Ledger(source.feed.source)))
    assert cuts.replay.alarms == 0
    cuts.close()


def test_a_registry_that_knows_no_record_is_reported(source: KafkaFeed) -> None:
    def fetch(schema_id: int) -> str:
        raise SchemaUnknown("unknown", schema_id=schema_id)

    cuts = CutReader(source.client, source.feed.source, SchemaCache(fetch))

    with pytest.raises(SchemaUnknown):
        list(cuts(Ledger(source.feed.source)))
    cuts.close()


def test_a_foreign_record_outside_of_transactions_blocks_no_reader(
    source: KafkaFeed, reader: Reader
) -> None:
    stranger = Producer({**source.client, "log_level": 0})
    stranger.produce(source.names.cuts, b"strange")
    stranger.flush(30)

    assert reader.cuts.wait(30)
    assert reader.read() == []
    assert not reader.cuts.wait(0.01)


def test_a_record_that_does_not_follow_is_doubted_until_the_next_one_of_ours(
    source: KafkaFeed, reader: Reader
) -> None:
    source.feed.commits([insert(A, "1", "x")])
    ours = source.feed.records[-1][1]
    forged = replace(ours, head=replace(ours.head, n=9, last_seq=8), ranges=())
    source.producer.begin_transaction()
    source.send_cut(forged)
    source.commit()
    patient = CutReader(source.client, source.feed.source, source.registry, doubt=3600)

    with pytest.raises(CutsGap, match="accept-gap"):
        reader.read()
    assert list(patient(reader.ledger)) == []
    source.publish()

    assert [cut.head.n for _, cut in patient(reader.ledger)] == [2]
    reader.read()
    assert reader.ledger.seq == 1
    patient.close()


def test_rows_of_another_client_between_ours_are_left_out(
    source: KafkaFeed, reader: Reader
) -> None:
    stranger = Producer({**source.client, "log_level": 0})
    for i in range(3):
        source.feed.commits([insert(A, str(i), "x")])
        for value in (b"strange", frame(404, b"xy"), None):
            stranger.produce(source.names.table(A.id), value, b"public.a")
        stranger.flush(30)
        source.publish()

    (rows,) = reader.read()

    assert [c.seq for c in rows.changes[A.id]] == [1, 2, 3]


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
        source.feed.load(schema, LoadPhase.BEGIN)
        source.feed.load(schema, LoadPhase.END)
    source.feed.commits([insert(A, "1", "x"), insert(B, "1", "y")], [update(A, "2", ..., old="1")])
    source.publish()

    ledger = applier.drain()

    assert (ledger.seq, ledger.state, ledger.cluster_id) == (2, "EXACT", source.cluster)
    with sink._transaction() as cursor:
        cursor.execute("SELECT * FROM public.a UNION ALL SELECT * FROM public.b")
        assert cursor.fetchall() == [(2, "x"), (1, "y")]
    sink.close()
    reader.close()
