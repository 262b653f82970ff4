"""A tiny producer: one Kafka transaction per cut, with the rows that it names."""

import io
import json
import struct
import time
from dataclasses import replace

import fastavro
from confluent_kafka import KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.control import (
    Commits,
    Cut,
    Range,
    SchemaChange,
    State,
    TableLoad,
    Topic,
    change_to_avro,
    cut_to_avro,
)
from schemas.envelope import envelope_schema
from schemas.load import avsc
from schemas.tables import TableSchema
from schemas.topics import Topics
from spark_consumers.kafka.cluster import Cluster
from spark_consumers.kafka.registry import SchemaCache
from spark_consumers.model import Change
from tests.spark_consumers.feed import Feed

CUT_ID, CHANGE_ID = 1, 2


class KafkaFeed:
    """Publishes what a Feed says, at the offsets that the broker gives."""

    def __init__(self, bootstrap: str, prefix: str, *tables: TableSchema) -> None:
        self.client = {"bootstrap.servers": bootstrap}
        self.feed = Feed(prefix)
        self.names = Topics(prefix)
        self.schemas = {CUT_ID: avsc("cut"), CHANGE_ID: avsc("schema_change")}
        self.ids: dict[str, list[int]] = {}
        self.encoders: dict[tuple[str, ...], object] = {}
        self.admin = AdminClient(self.client)
        self.producer = self.new_producer(f"gauss-cdc.{prefix}")
        self.offsets: dict[tuple[str, int], int] = {}  # the feed's offset -> the broker's
        self.ends, self.last_cut, self.state_at = Cluster(self.client), -1, -1
        self.cluster = self.admin.describe_cluster().result().cluster_id
        self.create(self.names.cuts, self.names.ddl, *(self.names.table(t.id) for t in tables))
        for schema in tables:
            self.know(schema)
        self.feed.start()
        self.publish()

    def know(self, schema: TableSchema) -> None:
        """Register a table's columns."""
        schema_id = len(self.schemas) + 1
        self.ids.setdefault(self.names.table(schema.id), []).append(schema_id)
        self.schemas[schema_id] = envelope_schema(self.feed.source, schema)
        self.encoders[self.names.table(schema.id), schema.names()] = compile_encoder(
            schema, prefix=self.feed.source, schema_id=schema_id, database="bank"
        )

    def new_producer(self, transactional_id: str) -> Producer:
        producer = Producer(
            {**self.client, "transactional.id": transactional_id, "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(30)
        return producer

    def create(self, *topics: str) -> None:
        for future in self.admin.create_topics([NewTopic(t, 1, 1) for t in topics]).values():
            future.result()
        until = time.monotonic() + 30
        left = set(topics)
        while left:  # brokers learn of a new topic a moment after its creation
            for name, future in self.admin.describe_topics(TopicCollection(list(left))).items():
                try:
                    self.feed.topics[name] = Topic(str(future.result().topic_id), 1)
                    left.discard(name)
                except KafkaException:
                    if time.monotonic() > until:
                        raise

    @property
    def registry(self) -> SchemaCache:
        return SchemaCache(
            lambda schema_id: json.dumps(self.schemas[schema_id]),
            lambda subject: self.ids.get(subject.removesuffix("-value"), [None])[-1],
        )

    def publish(self) -> None:
        """Write all records that the feed made since the last call."""
        records, self.feed.records = self.feed.records, []
        for _, cut in records:
            self.producer.begin_transaction()
            self.send_cut(self.with_rows(cut))
            self.commit()

    def commit(self) -> None:
        """Commit, and wait until readers see it: markers come after the answer."""
        self.producer.commit_transaction(30)
        place, until = (self.names.cuts, 0), time.monotonic() + 30
        while self.ends.stable([place])[place] <= self.last_cut:
            assert time.monotonic() < until

    def send_cut(self, cut: Cut) -> None:
        if isinstance(cut, State):
            cut = replace(cut, cluster_id=self.cluster, topics=dict(self.feed.topics))
        else:
            cut = replace(cut, head=replace(cut.head, state_from=self.state_at))
        self.send_raw(avro("cut", cut_to_avro(cut), CUT_ID))
        if isinstance(cut, State):
            self.state_at = self.last_cut

    def send_raw(self, value: bytes | None, key: bytes | None = None) -> None:
        """Put anything into the cuts topic, under our key unless another is given."""

        def delivered(_: object, message: Message) -> None:
            self.last_cut = message.offset()

        key = self.feed.source.encode() if key is None else key
        self.producer.produce(self.names.cuts, value, key, on_delivery=delivered)
        self.producer.flush(30)

    def with_rows(self, cut: Cut) -> Cut:
        """Send a cut's rows; return it with the broker's offsets."""
        if not isinstance(cut, Commits | TableLoad):
            return cut
        ranges = []
        for r in cut.ranges:
            offsets = self.send_rows(r)
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
            ranges.append(Range(r.topic, 0, offsets[0], offsets[-1] + 1))
        ids = {r.topic: tuple(self.ids.get(r.topic, ())) for r in ranges}
        return replace(cut, ranges=tuple(ranges), schema_ids=ids)

    def send_rows(self, r: Range, producer: Producer | None = None) -> list[int]:
        producer = producer or self.producer
        offsets: list[int] = []
        for at in range(r.start, r.end):
            producer.produce(
                r.topic,
                self.value(r.topic, self.feed.content[r.topic, at]),
                partition=0,
                on_delivery=lambda _, message: offsets.append(message.offset()),
            )
            producer.poll(0)
        producer.flush(30)
        return offsets

    def value(self, topic: str, record: Change | SchemaChange) -> bytes:
        if isinstance(record, SchemaChange):
            return avro("schema_change", change_to_avro(record), CHANGE_ID)
        encoder = self.encoders[topic, record.columns]
        tx = TransactionConstants(1, 1, 1, record.seq, 1_000_000, 1_000_000, 1)
        kind = "K" if record.before else ""
        return encoder.encode(
            record.op, kind, cells(record.before, kind), cells(record.after), tx, 1, record.ordinal
        )


def cells(row: list | None, kind: str = "") -> list | None:
    """A row as a decoder gives it: bytes; unsent columns of an old key are NULL there."""
    if row is None:
        return None
    out = [cell.encode() if isinstance(cell, str) else cell for cell in row]
    return [cell if isinstance(cell, bytes) else None for cell in out] if kind else out


def avro(name: str, record: dict, schema_id: int) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, avsc(name), record)
    return out.getvalue()
