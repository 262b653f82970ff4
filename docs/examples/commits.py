"""Print a source's transactions, whole and in commit order, one JSON object a line.

python commits.py localhost:9092 http://localhost:8081 bank [epoch/seq]

`epoch/seq` is the last transaction that you have: the one behind it is printed first.  Without it
everything that Kafka holds is printed.  Rows of a load belong to no transaction: they are left out.
A greater epoch may begin another history, see docs/subscribers.md.

Simplified: the cuts are read from their beginning at each start (about 50 bytes a transaction); the
transactions of one record are held in memory; `n` alone shows that a record is missing (`seq` and
`prev` would show it, too), and what does not follow ends the program, though somebody else may have
written it; the ids of cluster and topics in START and STATE are not compared.
"""

import json
import sys
from collections import defaultdict
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

Record = dict[str, Any]


def poll(consumer: Consumer) -> Message:
    """Wait for the next record."""
    while (message := consumer.poll(1)) is None:
        pass
    if message.error():
        raise KafkaException(message.error())
    return message


def decode(message: Message) -> Record:
    """Decode a value by the schema that it names."""
    return avro(message.value(), SerializationContext(message.topic(), MessageField.VALUE))


def is_accepted(cut: Record, known: Record | None) -> bool:
    """Say whether a record counts, `known` being the last that did; exit if one is missing."""
    if cut["version"] > 4:
        sys.exit(f"cuts of version {cut['version']}: a newer release wrote them")
    if known is None:  # the log may begin anywhere: wait for a record that says who writes
        return cut["kind"] in {"START", "STATE"}
    is_start, is_same = cut["kind"] == "START", cut["instance"] == known["instance"]
    if is_start and cut["continues"] is False and cut["epoch"] > known["epoch"]:
        return True  # another history: all tables are loaded again, whatever came before
    if cut["writer"] <= known["writer"] and (is_start or not is_same):
        return False  # of a producer that another one has taken over from
    is_known = is_start or is_same  # else the START of this producer is missing
    if is_known and cut["kind"] == "COMMITS" and cut["last_seq"] <= known["last_seq"]:
        return False  # named again after a takeover: nothing in it is new
    step = cut["kind"] in {"START", "COMMITS", "TABLE"}  # HEARTBEAT and STATE repeat n
    if not is_known or cut["n"] != known["n"] + step:
        sys.exit(f"cuts are missing between n = {known['n']} and n = {cut['n']}")
    return True


def read(cut: Record) -> dict[int, dict[int, Record]]:
    """Read exactly the offsets that a record names; return seq -> ordinal -> change."""
    wanted = {
        (r["topic"], r["partition"], at)
        for r in cut["ranges"]
        for at in range(r["start"], r["end"])
    }
    first = {(topic, part): at for topic, part, at in sorted(wanted, reverse=True)}
    rows.assign([TopicPartition(*place, at) for place, at in first.items()])
    found: dict[int, dict[int, Record]] = defaultdict(dict)
    while wanted:  # a cut may be visible a moment before its rows: wait for them
        message = poll(rows)
        place = (message.topic(), message.partition(), message.offset())
        if place in wanted and message.value() is not None:  # else a tombstone, which is no row
            _, seq, ordinal = map(int, dict(message.headers())["position"].split(b"/"))
            found[seq][ordinal] = decode(message)
        wanted.discard(place)
    return found


bootstrap, registry, prefix, *last = sys.argv[1:]
settings = {
    "bootstrap.servers": bootstrap,
    "group.id": f"commits-example-{prefix}",  # must be set; no offsets are kept in it
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # rows that have expired are an error, never skipped
    "fetch.wait.max.ms": 50,
}
avro = AvroDeserializer(SchemaRegistryClient({"url": registry}))
cuts, rows = Consumer(settings), Consumer(settings)
cuts.assign([TopicPartition(f"{prefix}.cuts", 0, OFFSET_BEGINNING)])
known: Record | None = None  # the newest record that counts
after = tuple(map(int, last[0].split("/"))) if last else (0, 0)  # the newest transaction shown
while True:
    message = poll(cuts)
    if message.key() != prefix.encode():
        continue  # not written by gauss-cdc
    cut = decode(message)
    if not is_accepted(cut, known):
        continue
    upto = (cut["epoch"], cut["last_seq"])
    if known is None and last and upto > after:
        sys.exit(f"the transactions behind {last[0]} are not in Kafka any more")
    known = cut
    if cut["kind"] != "COMMITS" or upto <= after:
        continue
    found = read(cut)
    for commit in cut["commits"]:
        position, changes = (cut["epoch"], commit["seq"]), found[commit["seq"]]
        if position <= after:
            continue
        if sorted(changes) != list(range(commit["rows"])):
            sys.exit(f"transaction {position} is not complete")
        line = {"epoch": cut["epoch"], "commit": commit}
        line["changes"] = [change for _, change in sorted(changes.items())]
        print(json.dumps(line, default=str), flush=True)
        after = position
