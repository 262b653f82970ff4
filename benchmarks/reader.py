"""How fast a service reads changes, beside confluent_kafka with fastavro by hand.

    python benchmarks/reader.py [--rows N] [--rounds N]

W4 (inserts into one table of 6 columns) stands in Kafka, written by `run`.  In each round each
reads all of it, in an order that is reversed each round:

    by hand    `consume`, and fastavro by the schema that a record names: raw values, no order of
               commits, nothing of loads, gaps or repeated rows
    changes    `Reader.changes` of the table, values as Python types
    commits    `Reader.commits`, whole and counted

`native`: with the native module of gauss-cdc.  CPU is that of this process.
"""

# ruff: noqa: INP001  a command, not a package

from __future__ import annotations

import io
import struct
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import fastavro
from confluent_kafka import Consumer, TopicPartition
from report import Report, finish, number, parser, ratio
from rig import Rig, rig, unique, wal_end
from workloads import TABLES, make_tables, w4

from gauss_cdc_reader import Reader
from spark_consumers.kafka.registry import registry_at

_FRAME = struct.Struct(">bI")


def by_hand(at: Rig, prefix: str, rows: int) -> int:
    """Read all rows of the table as a program of thirty lines does."""
    schema_of = registry_at(at.addresses.registry_url)
    consumer = Consumer(
        {
            "bootstrap.servers": at.addresses.kafka_bootstrap,
            "group.id": unique("hand"),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(f"{prefix}.public.t0", 0, 0)])
    parsed: dict[int, Any] = {}
    found = 0
    while found < rows:
        for message in consumer.consume(10_000, 0.05):
            value = message.value()
            if message.error() or value is None:
                continue
            _, schema_id = _FRAME.unpack_from(value)
            schema = parsed.get(schema_id)
            if schema is None:
                schema = parsed[schema_id] = fastavro.parse_schema(schema_of(schema_id))
            change: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
            found += change["op"] == "c"  # not the mark of a load
    consumer.close()
    return found


def by_reader(at: Rig, prefix: str, rows: int, *, way: str, native: bool) -> int:
    """Read all rows of the table by the reader."""
    reader = Reader(
        at.addresses.kafka_bootstrap,
        registry=at.addresses.registry_url,
        prefix=prefix,
        native=native,
    )
    found = 0
    if way == "changes":
        for _, change in reader.changes("public.t0"):
            found += change.op == "c"
            if found == rows:
                break
        return found
    for commit in reader.commits():
        for change in commit.changes:
            found += change.op == "c"
        if found == rows:
            break
    return found


WAYS: dict[str, Callable[[Rig, str, int], int]] = {
    "by hand": by_hand,
    "changes": partial(by_reader, way="changes", native=False),
    "changes, native": partial(by_reader, way="changes", native=True),
    "commits": partial(by_reader, way="commits", native=False),
    "commits, native": partial(by_reader, way="commits", native=True),
}


def main() -> None:
    """Measure, print."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=500_000)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    if given.quick:
        given.rows, given.rounds = min(given.rows, 20_000), 1
    report = Report("reader")
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    with rig(given.set) as at:
        source, prefix = at.database(), unique("reader")
        make_tables(source, TABLES[:1])
        config = at.configuration(prefix, source)
        at.drain(config, wal_end(source), url=source)  # an empty table is loaded
        rows = w4(source, given.rows).total()
        at.drain(config, wal_end(source), url=source)
        for turn in range(given.rounds):
            for name in list(WAYS)[:: -1 if turn % 2 else 1]:
                began, used = time.monotonic(), time.process_time()
                found = WAYS[name](at, prefix, rows)
                took[name].append((time.monotonic() - began, time.process_time() - used))
                if found != rows:
                    raise SystemExit(f"{name}: {found} of {rows} rows")
    hand = took["by hand"]
    lines = [
        [
            name,
            number(rows / median(seconds for seconds, _ in mine) / 1000),
            ratio(median(h / o for (h, _), (o, _) in zip(hand, mine, strict=True)), 1),
            number(median(cpu for _, cpu in mine) * 1e6 / rows),
            ratio(median(h / o for (_, h), (_, o) in zip(hand, mine, strict=True)), 1),
        ]
        for name, mine in took.items()
    ]
    head = ["way", "krow/s", "of by hand", "CPU-s/Mrow", "CPU: times less than by hand"]
    report.table(f"Reading {rows:,} rows, median of {given.rounds} rounds", head, lines)
    finish(report, given)


if __name__ == "__main__":
    main()
