"""librdkafka as readers use it, on the simulated broker: a consumer, an admin client, bytes.

Values lie in the simulated Kafka as objects; a reader is given the Avro bytes that the
product's encoders make of them, so that `CutReader` and `RangeReader` run as they ship.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import fastavro
from confluent_kafka import KafkaError, TopicPartition

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.control import Cut, change_to_avro, cut_to_avro
from schemas.envelope import envelope_schema
from schemas.load import avsc
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema
from spark_consumers.kafka.read import Clients
from tests.sim.broker import Broker, Entry, Place
from tests.sim.ports import TOPICS, Framed, Garbage, Value
from tests.sim.world import Actor

_CUT, _CHANGE = 1, 2
_PARSED: Final = {name: fastavro.parse_schema(avsc(name)) for name in ("cut", "schema_change")}
KEYED: Final = ("a", "b", "d")


# ---------------------------------------------------------------- bytes
class Bytes:
    """What the values of one world are in Kafka, and the registry that reads them."""

    def __init__(self) -> None:
        self._schemas: dict[int, dict[str, Any]] = {
            _CUT: avsc("cut"), _CHANGE: avsc("schema_change"),
        }  # fmt: skip
        self._encoders: dict[tuple[TableId, tuple[str, ...]], Any] = {}
        self._known: dict[int, tuple[Entry, bytes | None]] = {}

    def schema_of(self, schema_id: int) -> dict[str, Any]:
        """The registry."""
        return self._schemas[schema_id]

    def of(self, entry: Entry) -> bytes | None:
        """A record's value."""
        known = self._known.get(id(entry))
        if known is None or known[0] is not entry:
            known = self._known[id(entry)] = entry, self._encoded(entry.value)
        return known[1]

    def _encoded(self, value: Any) -> bytes | None:
        match value:
            case None:
                return None
            case Garbage():
                return b"\xffnone of ours"
            case Framed():
                return _avro("schema_change", change_to_avro(value.change), _CHANGE)
            case Value():
                return self._row(value)
            case _:
                cut: Cut = value
                return _avro("cut", cut_to_avro(cut), _CUT)

    def _row(self, row: Value) -> bytes:
        where = row.table, row.columns
        if where not in self._encoders:
            schema_id = len(self._schemas) + 1
            table = _shape(row.table, row.columns)
            self._schemas[schema_id] = envelope_schema(TOPICS.prefix, table)
            self._encoders[where] = compile_encoder(
                table, prefix=TOPICS.prefix, schema_id=schema_id, database="bank"
            )
        kind = "" if row.before is None else ("K" if UNCHANGED in row.before else "O")
        before = row.before
        if kind == "K" and before is not None:
            before = tuple(None if cell is UNCHANGED else cell for cell in before)
        tx = TransactionConstants(row.xid, 1, 1, row.seq, 0, 0, row.epoch)
        encoded: bytes = self._encoders[where].encode(
            row.op, kind, before and list(before), row.after and list(row.after), tx, 1,
            row.ordinal,
        )  # fmt: skip
        return encoded


def _shape(table: TableId, columns: tuple[str, ...]) -> TableSchema:
    """Texts only: what a type does to a value has tests of its own."""
    key = ("id",) if table.name in KEYED else ()
    return TableSchema(
        table,
        tuple(Column(name, 25, -1, "text", nullable=name not in key) for name in columns),
        key,
        (),
        ReplicaIdentity.DEFAULT if key else ReplicaIdentity.FULL,
        key or columns,
    )


def _avro(name: str, record: Any, schema_id: int) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, _PARSED[name], record)
    return out.getvalue()


# ---------------------------------------------------------------- the clients
class Message(NamedTuple):
    """A record, or the end of a partition, or an error."""

    place: Place
    at: int
    entry: Entry | None
    bytes_: Bytes | None
    code: int | None = None

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> Any:
        return self.entry and self.entry.key

    def value(self) -> bytes | None:
        return self.bytes_.of(self.entry) if self.bytes_ and self.entry else None

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


class SimConsumer:
    """A consumer that was assigned its partitions."""

    def __init__(
        self, actor: Actor, broker: Broker, bytes_: Bytes, settings: Mapping[str, Any]
    ) -> None:
        self._actor, self._broker, self._bytes = actor, broker, bytes_
        self._is_committed = settings["isolation.level"] == "read_committed"
        self._at: dict[Place, int] = {}
        self._ended: dict[Place, int] = {}

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self._at = {(p.topic, p.partition): p.offset for p in places}
        self._ended = {}

    def poll(self, timeout: float) -> Message | None:
        """The next record, or the end of a partition; None when the time is over."""
        for _ in range(2):
            for place in sorted(self._at):
                if (message := self._next(place)) is not None:
                    return message
            until = self._broker.world.now + timeout
            self._actor.park("waits for records", until=lambda u=until: self._broker.world.now >= u)
        return None

    def consume(self, count: int, timeout: float) -> list[Message]:
        """Up to `count` messages."""
        first = self.poll(timeout)
        out = [] if first is None else [first]
        while first is not None and len(out) < count:
            found = (self._next(place) for place in sorted(self._at))
            message = next((m for m in found if m is not None), None)
            if message is None:
                break
            out.append(message)
        return out

    def close(self) -> None:
        self._at = {}

    def _next(self, place: Place) -> Message | None:
        broker, at = self._broker, self._at[place]
        if at < broker.starts[place] or at > broker.high(place):
            del self._at[place]
            return Message(place, at, None, None, KafkaError._AUTO_OFFSET_RESET)
        end = broker.lso(place) if self._is_committed else broker.high(place)
        for offset, entry in broker.read(place, at, end, is_committed=self._is_committed)[:1]:
            self._at[place] = offset + 1
            return Message(place, offset, entry, self._bytes)
        self._at[place] = max(at, end)
        if self._ended.get(place) == end:
            return None
        self._ended[place] = end
        return Message(place, end, None, None, KafkaError._PARTITION_EOF)


class SimCluster:
    """What the cluster says of itself."""

    def __init__(self, actor: Actor, broker: Broker) -> None:
        self._actor, self._broker = actor, broker

    def id(self) -> str:
        return self._broker.cluster_id

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        self._actor.park("asks for topics")
        return {name: self._broker.topic_ids[name] for name in names}

    def first(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self._broker.starts[place] for place in places}

    def stable(self, places: Iterable[Place]) -> dict[Place, int]:
        self._actor.park("asks for the LSO")
        return {place: self._broker.lso(place) for place in places}

    def high(self, places: Iterable[Place]) -> dict[Place, int]:
        self._actor.park("asks for the high watermark")
        return {place: self._broker.high(place) for place in places}


def clients(actor: Actor, broker: Broker, bytes_: Bytes) -> Clients:
    """What a reader of this process is given."""

    def sleep(_seconds: float) -> None:
        actor.park("waits for the LSO of rows", weight=1.0)

    return Clients(
        consumer=lambda settings: SimConsumer(actor, broker, bytes_, settings),
        cluster=lambda *_, **__: SimCluster(actor, broker),
        now=lambda: broker.world.now,
        sleep=sleep,
    )
