"""What a row costs in the producer's pure core, by the size of its transaction.

    python benchmarks/core.py [--native] [rows]
    python benchmarks/core.py --gauss [rows]

Bytes of pgoutput are decoded, assembled, encoded, grouped and named by cuts; everything but
sockets, librdkafka and acknowledgements by row.  Prints process CPU in µs, best of three
rounds: of a row in one long transaction, and what each transaction of a size costs beside its
rows.  `--native`: with the native module, and what its walker takes of it.  `--gauss`: the same
rows as GaussDB sends them, by decode-style, in batches and one by one, without and with the
native module.  Absolute numbers belong to the machine; compare two trees in turns.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from gauss_cdc_lab.emulator.formats import encoder
from gauss_cdc_lab.emulator.model import PROFILES, Field, Mode, Op, Row, Transaction
from producer import native
from producer.core.changes import Message
from producer.core.delivery.engine import Engine, WriterState
from producer.core.delivery.tally import PlainTally
from producer.core.events import (
    Acknowledged,
    CutsDurable,
    Flush,
    InputDrained,
    Limits,
    Records,
    SendRows,
    Ticked,
    WriteCuts,
)
from producer.core.records.cut_code import encode_commits
from producer.core.records.encode import compile_encoder
from producer.core.router import Binding, partition_of, table_key
from producer.core.stream.assemble import Assembler, AssemblerPorts
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.relations import Relations
from producer.core.stream.walk import MAX_ROWS, Lent, Native, Stage
from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.buffer import HOLD_BYTES
from producer.sources.gauss.resolver import RelationResolver
from producer.sources.gauss.spill import SpillFile
from producer.sources.gauss.stream import GaussStream
from producer.sources.postgres.pgoutput import decode
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers.records import Trust
from producer.wire.replication import WalMessage
from schemas.control import Commits, Head, Identity, Topic
from schemas.positions import NOWHERE, Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema
from schemas.types.names import oid_of

ROUNDS = 3
SIZES = (1, 5, 20, 100)  # rows of a transaction, over five tables
GAUSS_SIZES = (5, 500)
SLICE = 2_000
TABLES = [
    TableSchema(
        TableId("public", f"t{number}"),
        (
            Column("id", 20, nullable=False),
            Column("owner", 25),
            Column("balance", 23),
            Column("limit", 1700, (12 << 16 | 2) + 4),
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
CELLS = [b"123456", b"Alice Example", b"-7", b"1000.00", b"2024-05-01 12:00:00.123456+00", None]


Messages: TypeAlias = Callable[[Sequence[WalMessage]], Iterable[tuple[Lsn, Message]]]
# of the tables in force, and whether a native walker takes the stream
Open: TypeAlias = Callable[[dict[TableId, TableSchema], native.Choice], Messages]


def _cells(cells: list[bytes | None]) -> bytes:
    texts = (b"n" if c is None else b"t" + struct.pack(">i", len(c)) + c for c in cells)
    return struct.pack(">h", len(cells)) + b"".join(texts)


def _relation(number: int, table: TableSchema) -> bytes:
    head = struct.pack(">cI", b"R", number) + b"public\0" + table.id.name.encode() + b"\0d"
    columns = [
        struct.pack(">B", column.name in table.key)
        + column.name.encode()
        + struct.pack(">xIi", column.type_oid, column.type_mod)
        for column in table.columns
    ]
    return head + struct.pack(">h", len(columns)) + b"".join(columns)


def stream(rows: int, size: int) -> Iterator[WalMessage]:
    """Messages of transactions of `size` changes."""
    for number, table in enumerate(TABLES):
        yield NOWHERE, NOWHERE, _relation(number, table)
    row = _cells(CELLS)
    key = _cells([CELLS[0], *[None] * 5])
    changes = [
        *(struct.pack(">cIc", b"I", number, b"N") + row for number in range(5)),
        *(struct.pack(">cIc", b"U", number, b"N") + row for number in range(5)),
        *(struct.pack(">cIc", b"D", number, b"K") + key for number in range(5)),
    ]
    at = 1_000
    for xid in range(rows // size):
        place = Lsn(at)
        yield place, place, struct.pack(">cqqI", b"B", at + 100 * size, 800_000_000_000_000, xid)
        for n in range(size):
            yield Lsn(at + 100 * n), Lsn(at + 100 * n), changes[(xid + n) % 15]
        at += 100 * size
        yield place, place, struct.pack(">cBqqq", b"C", 0, at, at + 8, 800_000_000_000_000)
        at += 8


# ---------------------------------------------------------------- GaussDB
TYPES = ("bigint", "text", "integer", "numeric", "timestamp with time zone", "character varying")


def gauss_stream(rows: int, size: int, style: str, *, is_batch: bool) -> list[WalMessage]:
    """Messages of the same transactions in a style of parallel decoding."""
    mode = Mode(parallel_decode_num=8, decode_style=style, sending_batch=is_batch)
    writer = encoder(mode, PROFILES["og7"], "utf-8")
    new = [
        Field(column.name, name, column.type_oid, cell)
        for column, name, cell in zip(TABLES[0].columns, TYPES, CELLS, strict=True)
    ]
    kinds = [(Op.INSERT, new, None), (Op.UPDATE, new, new[:1]), (Op.DELETE, None, new[:1])]
    at, out = 1_000, []
    for xid in range(1, 1 + rows // size):
        items = []
        for n in range(size):
            op, after, before = kinds[(xid + n) % 15 // 5]
            table = TABLES[(xid + n) % 5].id
            items.append(Row(Lsn(at + 100 * n), op, *table, after, before))
        end = at + 100 * size
        when = "2025-05-09 06:13:20.123456+00"
        transaction = Transaction(xid, xid, Lsn(at), Lsn(end), Lsn(end + 8), when, items)
        out += [(start, start, payload) for start, payload in writer.feed(transaction)]
        at = end + 8
    return [*out, *((start, start, payload) for start, payload in writer.idle())]


def gauss(style: str, *, is_batch: bool) -> Open:
    """Return what opens a stream of this style."""
    written = Format("mppdb_decoding", style, is_batch)

    def opened(shapes: dict[TableId, TableSchema], choice: native.Choice) -> Messages:
        relations = RelationResolver(
            shapes,
            wanted=lambda _: True,
            read_catalog=dict(shapes).get,
            oid_of=oid_of,
            names_run_together=style == "t",
        )
        decoder = NAMING[written.plugin, style](written)
        held = native.held(
            choice,
            style=style,
            is_batch=is_batch,
            by_csn=False,
            newest_csn=0,
            hold_bytes=HOLD_BYTES,
        )
        stream = GaussStream(
            decoder, relations, spill=SpillFile, resume=Lsn(1), held=held, style=style
        )
        return stream.messages

    return opened


# ---------------------------------------------------------------- the core
def bound(table: TableSchema, parts: Native | None = None) -> Binding:
    """Bind a table as the publisher does, without topics and registry."""
    key = table_key(table.id)
    return Binding(
        table=table,
        topic=f"bank.{table.id}",
        schema_id=7,
        partitions=1,
        encoder=compile_encoder(
            table,
            prefix="bank",
            schema_id=7,
            database="bank",
            native=parts.encoder if isinstance(parts, native.NativeParts) else None,
        ),
        key=key,
        key_of=None,
        partition_of=None,
        partition=partition_of(key, 1),
    )


def counted(records: Records) -> Counter[str]:
    """Count records by topic, which are all of one partition here."""
    if isinstance(records, list):
        return Counter(record[0] for record in records)
    counts: Counter[str] = Counter()
    for places, _ in records.transactions():  # type: ignore[attr-defined]
        counts.update({topic: count for (topic, _), count in places.items()})
    return counts


def pgoutput(shapes: dict[TableId, TableSchema], _choice: native.Choice) -> Messages:
    """Open a stream of PostgreSQL."""
    return PgoutputStream(
        decode,
        shapes,
        wanted=lambda _: True,
        publication="bank",
        judge=lambda _: Trust.FOREIGN,
    ).messages


def once(
    messages: list[WalMessage],
    parts: Native | None,
    opens: Open = pgoutput,
    *,
    at_once: int = SLICE,
    walks: native.Choice = "auto",
) -> tuple[float, int]:
    """Run everything through the core, `at_once` messages at a time; CPU seconds, and rows.

    `walks`: "off": natively nothing but cells and books.
    """
    shapes = {table.id: table for table in TABLES}
    walker = None if parts is None else parts.walker(epoch=1, resume=Lsn(1), max_row_bytes=1 << 20)
    books = {"ddl_topic": "bank.ddl", "untracked_topics": frozenset[str]()}
    group = (PlainTally if parts is None else parts.tally)(**books)  # type: ignore[arg-type]
    known = dict(shapes)
    assembler = Assembler(
        relations=Relations(
            known,
            read_catalog=shapes.get,
            wanted=lambda _: True,
            new_tables_are_complete=True,
        ),
        ports=AssemblerPorts(lambda table: bound(table, parts), lambda _: b"", lambda: 10**15),
        epoch=1,
        seq=0,
        redelivery=Redelivery(Lsn(1)),
        ddl_topic="bank.ddl",
        max_row_bytes=1 << 20,
        walker=walker,
    )
    decoded = opens(known, walks if parts is not None else "off")
    topics = {f"bank.{table.id}": Topic("id", 1) for table in TABLES}
    head = Head(1, 1, 1, "instance", 0, Lsn(1), -1)
    identity = Identity("7000", 1, "bank", "slot", "pgoutput")
    engine = Engine(WriterState(head, 0, identity, "", "", topics, {}), Limits(), group)
    offsets = dict.fromkeys(topics, 0)
    sent: list[tuple[str, int, int, int]] = []
    rows = cuts = 0

    def step(happened: object) -> None:
        nonlocal sent, rows, cuts
        for command in engine.step(happened):  # type: ignore[arg-type]
            if isinstance(command, SendRows):
                rows += len(command.records)
                for topic, count in counted(command.records).items():
                    at = offsets[topic]
                    sent.append((topic, 0, at, at + count))
                    offsets[topic] += count
            elif isinstance(command, Flush):
                answered, sent = sent, []
                step(Acknowledged(answered))
            elif isinstance(command, WriteCuts):
                for cut in command.cuts:
                    if isinstance(cut, Commits):
                        encode_commits(cut)
                step(CutsDurable(tuple(range(cuts, cuts + len(command.cuts)))))
                cuts += len(command.cuts)

    began = time.process_time()
    step(Ticked(10.0, 10_000_000))
    for start in range(0, len(messages), at_once):
        for happened in assembler.feed(decoded(messages[start : start + at_once])):
            step(happened)
        step(Ticked(10.0 + start / 1e6, 10_000_000))
    step(InputDrained())
    return time.process_time() - began, rows


def walked(messages: list[WalMessage], parts: Native) -> tuple[float, int]:
    """Run only the walker; CPU seconds, and rows."""
    walker = parts.walker(epoch=1, resume=Lsn(1), max_row_bytes=1 << 20)
    for number, table in enumerate(TABLES):
        binding = bound(table)
        assert binding.encoder.plan is not None
        assert binding.key is not None
        walker.bind(number, binding.encoder.plan, topic=binding.topic, partition=0, key=binding.key)
    rows = 0
    began = time.process_time()
    at, lent = len(TABLES), Lent(Stage.NONE, 0, 0, 0)
    while at < len(messages):
        walk = walker.walk(messages, at, lent, now_us=10**15, max_rows=MAX_ROWS)
        at, lent = walk.at, walk.open
        rows += sum(len(part.records) for part in walk.walked)
    return time.process_time() - began, rows


def print_gauss(rows: int) -> None:
    """Print what a row of GaussDB's styles costs."""
    parts = native.parts("auto")
    ways: dict[str, tuple[Native | None, native.Choice]] = {
        "in Python": (None, "off"),
        "cells natively": (parts, "off"),
        "walked": (parts, "auto"),
    }
    for style in "btj":
        for is_batch in (False, True):
            opens = gauss(style, is_batch=is_batch)
            for size in GAUSS_SIZES:
                messages = gauss_stream(rows, size, style, is_batch=is_batch)
                at_once = 1 if is_batch else SLICE
                costs = {
                    way: min(
                        once(messages, made, opens, at_once=at_once, walks=walks)
                        for _ in range(ROUNDS)
                    )
                    for way, (made, walks) in ways.items()
                }
                megabytes = sum(len(payload) for _, _, payload in messages) / 1e6
                print(
                    f"{style}, {'in batches' if is_batch else 'one by one'}, "
                    f"transactions of {size:3} rows, µs a row (MB a second of a core): "
                    + ", ".join(
                        f"{way} {cost / n * 1e6:.2f} ({megabytes / cost:.0f})"
                        for way, (cost, n) in costs.items()
                    )
                )


def main() -> None:
    """Print a table."""
    arguments = sys.argv[1:]
    is_native = "--native" in arguments
    rows = next((int(argument) for argument in arguments if argument.isdigit()), 100_000)
    if is_native and native.parts("auto") is None:
        sys.exit("the native module was not built")
    if "--gauss" in arguments:
        print_gauss(rows)
        return
    costs: dict[int, float] = {}
    walker: dict[int, float] = {}
    for size in (rows, *SIZES):
        messages = list(stream(rows, size))
        best = min(
            once(messages, native.parts("auto") if is_native else None) for _ in range(ROUNDS)
        )
        costs[size] = best[0] / best[1] * 1e6
        if is_native and (parts := native.parts("auto")) is not None:
            best = min(walked(messages, parts) for _ in range(ROUNDS))
            walker[size] = best[0] / best[1] * 1e6
    long = costs.pop(rows)
    of_it = f", {walker[rows]:.2f} of it the walker" if is_native else ""
    print(f"a row of a long transaction: {long:.2f} µs{of_it}")
    for size, cost in costs.items():
        of_it = f", {walker[size]:.2f} of it the walker" if is_native else ""
        print(
            f"transactions of {size:3} rows: {cost:.2f} µs a row{of_it}, {cost / long:.1f} times; "
            f"{(cost - long) * size:.1f} µs a transaction beside its rows"
        )


if __name__ == "__main__":
    main()
