"""Do cuts and topics say the same, offset by offset?

An independent reader: Confluent's consumer and deserializer, and the rules of
the cuts written out once more.  Two promises are checked in both directions:

    every offset that an accepted cut names holds a committed record of exactly
    that commit, and the ordinals 0..rows-1 of a commit are there once
    every committed record of a data or DDL topic is named by exactly one cut

The second one holds in exactly-once mode, where an attempt that failed is
aborted and invisible; otherwise a record outside of all cuts is only counted.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

Raw = Mapping[str, Any]
Place = tuple[str, int]  # topic, partition

_MOST: Final = 20  # problems printed
_REREAD: Final = 1 << 61  # ordinals of tables that are read again begin here
_SILENT_SECONDS: Final = 30.0


@dataclass(slots=True)
class Audit:
    """What was read, and what is wrong with it."""

    takeovers: int = 0
    cuts: int = 0
    commits: int = 0
    records: int = 0
    loaded: int = 0
    uncovered: int = 0
    decoded: int = 0
    problems: list[str] = field(default_factory=list)

    def complain(self, what: str) -> None:
        """Remember a problem; the first ones are enough."""
        if len(self.problems) < _MOST:
            self.problems.append(what)


@dataclass(slots=True)
class _Claims:
    """What the cuts say about the topics."""

    owner: dict[Place, dict[int, tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # offset -> (epoch, seq)
    rows: dict[tuple[int, int], int] = field(default_factory=dict)  # (epoch, seq) -> rows
    ddl: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)
    loads: set[tuple[str, int, int]] = field(default_factory=set)  # topic, partition, offset


def audit(
    client: Mapping[str, Any],
    registry_url: str,
    prefix: str,
    *,
    exactly_once: bool = True,
    decode_every: int = 25,
) -> Audit:
    """Read everything below a prefix and compare it with the cuts."""
    found = Audit()
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry_url}))
    consumer = Consumer(
        {
            **client,
            "group.id": f"audit-{prefix}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        cuts = f"{prefix}.cuts"
        places = _places(consumer, prefix)
        records = [
            (message.offset() or 0, _value(deserialize, message))
            for message in _read(consumer, [place for place in places if place[0] == cuts])
        ]
        claims = _claims(found, _accepted(found, records))
        data = [place for place in places if place[0] not in (cuts, f"{prefix}.quarantine")]
        _check(
            found,
            claims,
            _read(consumer, data),
            deserialize if decode_every else None,
            exactly_once=exactly_once,
            every=max(1, decode_every),
        )
    finally:
        consumer.close()
    return found


# ---------------------------------------------------------------- cuts
def _accepted(found: Audit, records: list[tuple[int, Raw]]) -> Iterator[Raw]:
    """The records that count, by the rules of the protocol."""
    current: Raw | None = None
    n = seq = resume = 0
    for offset, cut in records:
        kind = cut["kind"]
        if kind == "START" and (current is None or cut["writer"] > current["writer"]):
            found.takeovers += 1
            if current is not None and cut["n"] != n + 1:
                found.complain(f"cuts {offset}: START has n {cut['n']} after {n}")
            if current is not None and cut["epoch"] == current["epoch"] and cut["last_seq"] != seq:
                found.complain(f"cuts {offset}: START knows seq {cut['last_seq']}, not {seq}")
            if current is None or cut["epoch"] != current["epoch"]:
                resume = 0
            current, n, seq = cut, cut["n"], cut["last_seq"]
        elif current is None:
            continue
        elif (cut["writer"], cut["instance"]) != (current["writer"], current["instance"]):
            found.complain(f"cuts {offset}: a writer that was overtaken wrote {kind}")
            continue
        elif kind in ("HEARTBEAT", "STATE"):
            if cut["n"] != n:
                found.complain(f"cuts {offset}: {kind} has n {cut['n']}, not {n}")
        elif cut["n"] != n + 1:
            found.complain(f"cuts {offset}: {kind} has n {cut['n']} after {n}")
            n = cut["n"]
        else:
            n = cut["n"]
            if kind == "COMMITS":
                numbers = [entry["seq"] for entry in cut["commits"]]
                if numbers != list(range(seq + 1, seq + 1 + len(numbers))):
                    found.complain(f"cuts {offset}: commits {numbers[:3]}… after {seq}")
                seq = numbers[-1]
        if cut["resume"] < resume:
            found.complain(f"cuts {offset}: resume went back")
        resume = cut["resume"]
        found.cuts += 1
        yield cut


def _claims(found: Audit, accepted: Iterator[Raw]) -> _Claims:
    claims = _Claims()
    for cut in accepted:
        epoch = cut["epoch"]
        if cut["kind"] == "TABLE":
            key = epoch, cut["last_seq"]
            for r in cut["ranges"]:
                for offset in range(r["start"], r["end"]):
                    _claim(found, claims, (r["topic"], r["partition"]), offset, key)
                    claims.loads.add((r["topic"], r["partition"], offset))
            continue
        if cut["kind"] != "COMMITS":
            continue
        # Inside a range the commits stand one after the other, in their order.
        at = [r["start"] for r in cut["ranges"]]
        for entry in cut["commits"]:
            key = epoch, entry["seq"]
            claims.rows[key] = entry["rows"]
            found.commits += 1
            for index, count in entry["counts"].items():
                r, i = cut["ranges"][int(index)], int(index)
                for offset in range(at[i], at[i] + count):
                    _claim(found, claims, (r["topic"], r["partition"]), offset, key)
                at[i] += count
            for place in entry["ddl"]:
                claims.ddl[0, place["offset"]] = (*key, place["ordinal"])
        if at != [r["end"] for r in cut["ranges"]]:
            found.complain(f"cut n {cut['n']}: its counts do not fill its ranges")
    return claims


def _claim(found: Audit, claims: _Claims, place: Place, offset: int, key: tuple[int, int]) -> None:
    owner = claims.owner[place]
    if offset in owner:
        found.complain(f"{place} {offset}: named by commits {owner[offset]} and {key}")
    owner[offset] = key


# ---------------------------------------------------------------- topics
def _check(
    found: Audit,
    claims: _Claims,
    messages: Iterator[Message],
    deserialize: AvroDeserializer | None,
    *,
    exactly_once: bool,
    every: int,
) -> None:
    ordinals: dict[tuple[int, int], list[int]] = defaultdict(list)
    loaded: dict[tuple[int, int], list[int]] = defaultdict(list)
    for message in messages:
        place = str(message.topic()), int(message.partition() or 0)
        offset = int(message.offset() or 0)
        key = claims.owner[place].pop(offset, None)
        found.records += 1
        epoch, seq, ordinal = _position(message)
        if key is None and ordinal >= _REREAD:
            continue  # `t`: plain readers are told that a table begins anew
        if key is None:
            found.uncovered += 1
            if exactly_once:
                found.complain(f"{place} {offset}: {epoch}/{seq}/{ordinal} stands in no cut")
            continue
        if (epoch, seq) != key:
            found.complain(f"{place} {offset}: is {epoch}/{seq}/{ordinal}, the cut says {key}")
            continue
        is_load = (*place, offset) in claims.loads
        (loaded if is_load else ordinals)[key].append(ordinal)
        if is_load:
            found.loaded += 1
        elif place[0].endswith(".ddl") and claims.ddl.get((0, offset)) != (*key, ordinal):
            found.complain(f"{place} {offset}: {epoch}/{seq}/{ordinal} is not the cut's DDL there")
        if deserialize is not None and offset % every == 0:
            found.decoded += 1
            _compare_value(found, place, offset, _value(deserialize, message), (*key, ordinal))
    for place, owner in claims.owner.items():
        for offset, key in owner.items():
            found.complain(f"{place} {offset}: a cut names it for {key}, no reader sees it")
    for key, rows in claims.rows.items():
        if sorted(ordinals[key]) != list(range(rows)):
            found.complain(f"commit {key}: {len(ordinals[key])} of {rows} rows are there")
    for key, numbers in loaded.items():
        if len(set(numbers)) != len(numbers):
            found.complain(f"loads behind {key}: two rows have one ordinal")


def _compare_value(
    found: Audit, place: Place, offset: int, value: Raw, position: tuple[int, int, int]
) -> None:
    said = value.get("source") or value
    if (said["epoch"], said["seq"], said["ordinal"]) != position:
        found.complain(f"{place} {offset}: value and header name different positions")


def _position(message: Message) -> tuple[int, int, int]:
    headers: Any = message.headers() or ()
    for name, value in headers:
        if name == "position":
            epoch, seq, ordinal = (int(part) for part in value.decode().split("/"))
            return epoch, seq, ordinal
    return -1, -1, -1


def _value(deserialize: AvroDeserializer, message: Message) -> Raw:
    value: Any = deserialize(
        message.value(), SerializationContext(str(message.topic()), MessageField.VALUE)
    )
    assert isinstance(value, dict)
    return value


# ---------------------------------------------------------------- reading
def _places(consumer: Consumer, prefix: str) -> list[Place]:
    topics = consumer.list_topics(timeout=_SILENT_SECONDS).topics
    return [
        (name, partition)
        for name in sorted(topics)
        if name.startswith(f"{prefix}.")
        for partition in sorted(topics[name].partitions)
    ]


def _read(consumer: Consumer, places: list[Place]) -> Iterator[Message]:
    """Every committed record of these partitions, from their starts to their ends of now."""
    if not places:
        return
    consumer.assign([TopicPartition(*place, 0) for place in places])
    open_places = set(places)
    until = time.monotonic() + _SILENT_SECONDS
    while open_places:
        messages = consumer.consume(1000, 0.05)  # waits until there are 1,000, or for so long
        if messages:
            until = time.monotonic() + _SILENT_SECONDS
        elif time.monotonic() > until:
            raise TimeoutError(f"Kafka says nothing about {sorted(open_places)}")
        for message in messages:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its own constant
                open_places.discard((str(message.topic()), int(message.partition() or 0)))
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
    consumer.unassign()
