"""What a row costs in the producer's pure core, by the size of its transaction.

    python benchmarks/core.py [rows]

Bytes of pgoutput are decoded, assembled, encoded, grouped and named by cuts; everything but
sockets, librdkafka and acknowledgements by row.  Prints process CPU in µs, best of three
rounds: of a row in one long transaction, and what each transaction of a size costs beside its
rows.  Absolute numbers belong to the machine; compare two trees in turns.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator

from producer.core.assemble import Assembler, AssemblerPorts
from producer.core.changes import Message
from producer.core.engine import Engine, WriterState
from producer.core.events import (
    Acknowledged,
    CutsDurable,
    Flush,
    InputDrained,
    Limits,
    SendRows,
    Ticked,
    WriteCuts,
)
from producer.core.records.cut_code import encode_commits
from producer.core.records.encode import compile_encoder
from producer.core.relations import Relations
from producer.core.router import Binding, partition_of, table_key
from producer.core.tally import PlainTally
from producer.sources.decoders import DECODERS
from schemas.control import Commits, Head, Identity, Topic
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema

ROUNDS = 3
SIZES = (1, 5, 20, 100)  # rows of a transaction, over five tables
SLICE = 2_000
TABLES = [
    TableSchema(
        TableId("public", f"t{number}"),
        (
            Column("id", 20, nullable=False),
            Column("owner", 25),
            Column("balance", 23),
            Column("opened", 1184),
            Column("note", 1043),
        ),
        ("id",),
        (),
        ReplicaIdentity.DEFAULT,
        ("id",),
    )
    for number in range(5)
]
CELLS = [b"123456", b"Alice Example", b"-7", b"2024-05-01 12:00:00.123456+00", None]


def _cells(cells: list[bytes | None]) -> bytes:
    texts = (b"n" if c is None else b"t" + struct.pack(">i", len(c)) + c for c in cells)
    return struct.pack(">h", len(cells)) + b"".join(texts)


def _relation(number: int, table: TableSchema) -> bytes:
    head = struct.pack(">cI", b"R", number) + b"public\0" + table.id.name.encode() + b"\0d"
    columns = [
        struct.pack(">B", column.name in table.key)
        + column.name.encode()
        + struct.pack(">xIi", column.type_oid, -1)
        for column in table.columns
    ]
    return head + struct.pack(">h", len(columns)) + b"".join(columns)


def stream(rows: int, size: int) -> Iterator[tuple[int, bytes]]:
    """(WAL position, payload) of transactions of `size` changes."""
    for number, table in enumerate(TABLES):
        yield 0, _relation(number, table)
    row = _cells(CELLS)
    key = _cells([CELLS[0], None, None, None, None])
    changes = [
        *(struct.pack(">cIc", b"I", number, b"N") + row for number in range(5)),
        *(struct.pack(">cIc", b"U", number, b"N") + row for number in range(5)),
        *(struct.pack(">cIc", b"D", number, b"K") + key for number in range(5)),
    ]
    at = 1_000
    for xid in range(rows // size):
        yield at, struct.pack(">cqqI", b"B", at + 100 * size, 800_000_000_000_000, xid)
        for n in range(size):
            yield at + 100 * n, changes[(xid + n) % 15]
        at += 100 * size
        yield at, struct.pack(">cBqqq", b"C", 0, at, at + 8, 800_000_000_000_000)
        at += 8


def bound(table: TableSchema) -> Binding:
    """Bind a table as the publisher does, without topics and registry."""
    key = table_key(table.id)
    return Binding(
        table=table,
        topic=f"bank.{table.id}",
        schema_id=7,
        partitions=1,
        encoder=compile_encoder(table, prefix="bank", schema_id=7, database="bank"),
        key=key,
        key_of=None,
        partition_of=None,
        partition=partition_of(key, 1),
    )


def once(messages: list[tuple[int, bytes]]) -> tuple[float, int]:
    """Run everything through the core; CPU seconds, and rows."""
    decode = DECODERS["pgoutput"]
    shapes = {table.id: table for table in TABLES}
    assembler = Assembler(
        relations=Relations(
            dict(shapes),
            read_catalog=shapes.get,
            wanted=lambda _: True,
            new_tables_are_complete=True,
        ),
        ports=AssemblerPorts(bound, lambda _: b"", lambda: 10**15),
        epoch=1,
        seq=0,
        resume=1,
        ddl_topic="bank.ddl",
        max_row_bytes=1 << 20,
    )
    topics = {f"bank.{table.id}": Topic("id", 1) for table in TABLES}
    head = Head(1, 1, 1, "instance", 0, 1, -1)
    identity = Identity("7000", 1, "bank", "slot", "pgoutput")
    group = PlainTally(ddl_topic="bank.ddl", untracked_topics=frozenset())
    engine = Engine(WriterState(head, 0, identity, "", "", topics, {}), Limits(), group)
    offsets = dict.fromkeys(topics, 0)
    sent: list[tuple[str, int, int, int]] = []
    rows = cuts = 0

    def step(happened: object) -> None:
        nonlocal sent, rows, cuts
        for command in engine.step(happened):  # type: ignore[arg-type]
            if isinstance(command, SendRows):
                rows += len(command.records)
                for record in command.records:
                    topic, at = record[0], offsets[record[0]]
                    sent.append((topic, 0, at, at + 1))
                    offsets[topic] += 1
            elif isinstance(command, Flush):
                answered, sent = sent, []
                step(Acknowledged(answered))
            elif isinstance(command, WriteCuts):
                for cut in command.cuts:
                    if isinstance(cut, Commits):
                        encode_commits(cut)
                step(CutsDurable(tuple(range(cuts, cuts + len(command.cuts)))))
                cuts += len(command.cuts)

    def decoded(part: list[tuple[int, bytes]]) -> Iterator[tuple[int, Message]]:
        for lsn, payload in part:
            yield lsn, decode(payload)

    began = time.process_time()
    step(Ticked(10.0, 10_000_000))
    for start in range(0, len(messages), SLICE):
        for happened in assembler.feed(decoded(messages[start : start + SLICE])):
            step(happened)
        step(Ticked(10.0 + start / 1e6, 10_000_000))
    step(InputDrained())
    return time.process_time() - began, rows


def main() -> None:
    """Print a table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    costs: dict[int, float] = {}
    for size in (rows, *SIZES):
        messages = list(stream(rows, size))
        best = min(once(messages) for _ in range(ROUNDS))
        costs[size] = best[0] / best[1] * 1e6
    long = costs.pop(rows)
    print(f"a row of a long transaction: {long:.1f} µs")
    for size, cost in costs.items():
        print(
            f"transactions of {size:3} rows: {cost:.1f} µs a row, {cost / long:.1f} times; "
            f"{(cost - long) * size:.0f} µs a transaction beside its rows"
        )


if __name__ == "__main__":
    main()
