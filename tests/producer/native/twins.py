"""One stream taken twice: by Python alone, and with the native walker; and what both say."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, TypeAlias

from producer.core.changes import Message
from producer.core.events import Happened, PositionReached, Record, RowsAssembled, Walked
from producer.core.records.encode import compile_encoder, compile_key_encoder, key_columns
from producer.core.records.row_plan import KeyPlan, RowPlan
from producer.core.router import Binding, placing, table_key
from producer.core.stream.assemble import Assembler, AssemblerPorts
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.relations import Relations
from producer.core.stream.unfit import Unfit
from producer.core.stream.walk import Lent, Walk, Walker
from producer.errors import CdcError
from producer.sources.postgres.pgoutput import decode
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers.records import Trust
from producer.wire.replication import WalMessage
from schemas.control import SchemaChange
from schemas.envelope import EnvelopeOptions
from schemas.tables import UNCHANGED, Missing, TableId, TableSchema

EPOCH, SEQ = 2, 40
NOW_US = 1_714_561_200_223_456
Cell: TypeAlias = bytes | Missing | None


def native() -> Any:
    """Import the extension module; a test that needs it fails where it was not built."""
    return importlib.import_module("producer.native._native")


# ---------------------------------------------------------------- payloads
def begin(commit_lsn: int, xid: int, committed_at: int = 800_000_000_000_000) -> bytes:
    return struct.pack(">cQqI", b"B", commit_lsn, committed_at, xid)


def commit(commit_lsn: int, end_lsn: int, committed_at: int = 800_000_000_000_000) -> bytes:
    return struct.pack(">cBQQq", b"C", 0, commit_lsn, end_lsn, committed_at)


def relation(number: int, table: TableSchema) -> bytes:
    columns = [
        struct.pack(">B", column.name in table.identity_columns)
        + column.name.encode()
        + struct.pack(">xIi", column.type_oid, column.type_mod)
        for column in table.columns
    ]
    return b"".join(
        (
            struct.pack(">cI", b"R", number),
            table.id.schema.encode() + b"\0" + table.id.name.encode() + b"\0",
            table.replica_identity.value.encode(),
            struct.pack(">H", len(columns)),
            *columns,
        )
    )


def cells(row: Sequence[Cell]) -> bytes:
    def one(cell: Cell) -> bytes:
        if cell is None:
            return b"n"
        if cell is UNCHANGED:
            return b"u"
        assert isinstance(cell, bytes)
        return b"t" + struct.pack(">I", len(cell)) + cell

    return struct.pack(">H", len(row)) + b"".join(map(one, row))


def insert(number: int, new: Sequence[Cell]) -> bytes:
    return struct.pack(">cIc", b"I", number, b"N") + cells(new)


def update(number: int, new: Sequence[Cell], kind: str = "", old: Sequence[Cell] = ()) -> bytes:
    before = kind.encode() + cells(old) if kind else b""
    return struct.pack(">cI", b"U", number) + before + b"N" + cells(new)


def delete(number: int, kind: str, old: Sequence[Cell]) -> bytes:
    return struct.pack(">cI", b"D", number) + kind.encode() + cells(old)


def truncate(number: int) -> bytes:
    return struct.pack(">cIBI", b"T", 1, 0, number)


def placed(payloads: Sequence[bytes], start: int = 1_000) -> list[WalMessage]:
    """Give each message a position."""
    return [(start + 10 * n, start + 10 * n, payload) for n, payload in enumerate(payloads)]


# ---------------------------------------------------------------- the two
@dataclass
class Limited:
    """A walker that is asked for some rows at most: what is behind them is Python's."""

    walker: Walker
    limits: Iterator[int]
    walks: list[Walk] = field(default_factory=list)

    def bind(
        self,
        relation: int,
        plan: RowPlan,
        *,
        topic: str,
        partition: int,
        key: bytes | None,
        by_key: KeyPlan | None = None,
    ) -> None:
        self.walker.bind(relation, plan, topic=topic, partition=partition, key=key, by_key=by_key)

    def forget(self, relation: int) -> None:
        self.walker.forget(relation)

    def walk(
        self,
        messages: Sequence[WalMessage] | Sized,
        at: int,
        open_: Lent,
        *,
        now_us: int,
        max_rows: int,
    ) -> Walk:
        most = min(max_rows, next(self.limits))
        walk = self.walker.walk(messages, at, open_, now_us=now_us, max_rows=most)
        self.walks.append(walk)
        return walk


@dataclass
class World:
    """The tables of a source, and how they are written."""

    known: Sequence[TableSchema]
    catalog: dict[TableId, TableSchema] = field(default_factory=dict)
    options: EnvelopeOptions = field(default_factory=EnvelopeOptions)
    resume: int = 500
    max_row_bytes: int = 1 << 20
    puts_aside: bool = False
    keyed: bool = False
    encoding: str = "utf-8"
    partitions: int = 0  # by primary key; 0: all rows of a table in one

    def walker(self) -> Walker:
        module = native()
        walker: Walker = module.Walker(
            module.Places(), epoch=EPOCH, resume=self.resume, max_row_bytes=self.max_row_bytes
        )
        return walker


def binding(table: TableSchema, schema_id: int, world: World) -> Binding:
    """Bind a table as the publisher does."""
    how: dict[str, Any] = {"prefix": "bank", "options": world.options}
    how |= {"encoding": world.encoding}
    encoder = compile_encoder(table, schema_id=schema_id, database="bank", **how)
    key_of = compile_key_encoder(table, schema_id=9, **how) if world.keyed and table.key else None
    is_placed = world.partitions > 0 and bool(table.key)
    is_by_key = key_of is not None or is_placed
    names = table.names()
    return Binding(
        table,
        f"bank.{table.id}",
        schema_id,
        max(1, world.partitions),
        encoder,
        None if world.keyed else table_key(table.id),
        key_of,
        placing(table, world.partitions) if is_placed else None,
        0,
        tuple(names.index(name) for name in table.key) if is_by_key else (),
        tombstones=key_of is not None,
        key_plan=KeyPlan(
            key_columns(table, world.options),
            b"\0" + (9).to_bytes(4, "big") if key_of is not None else None,
            world.partitions if is_placed else 0,
            tombstones=key_of is not None,
        )
        if is_by_key
        else None,
    )


@dataclass
class Taken:
    """What came out of a stream."""

    happened: list[Happened] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)
    aside: list[Unfit] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    error: str = ""
    walks: list[Walk] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return [event for event in flat(self.happened) if isinstance(event, tuple)]

    @property
    def walked_rows(self) -> int:
        return sum(len(w.records) for walk in self.walks for w in walk.walked)


Messages: TypeAlias = Callable[[Sequence[WalMessage]], Iterable[tuple[int, Message]]]
# of a world, its tables in force, what comes out, and whether there is a walker
Open: TypeAlias = Callable[[World, dict[TableId, TableSchema], Taken, bool], Messages]


def pgoutput(world: World, known: dict[TableId, TableSchema], out: Taken, _: bool) -> Messages:
    """Open a stream of PostgreSQL."""
    return PgoutputStream(
        decode,
        known,
        wanted=is_wanted,
        publication="p",
        judge=lambda _: Trust.FOREIGN,
        resume=world.resume,
        on_begin=out.begun.append,
    ).messages


def is_wanted(table: TableId) -> bool:
    return table.schema != "private"


def take(
    world: World,
    messages: Sequence[WalMessage],
    *,
    limits: Sequence[int] | None = None,
    read: int = 1 << 30,
    opens: Open = pgoutput,
) -> Taken:
    """Take a stream, `read` messages at once; `limits`: rows of the walker, call by call."""
    out = Taken()
    known = {table.id: table for table in world.known}
    published: list[TableSchema] = []
    walker = None if limits is None else Limited(world.walker(), cycle(limits))

    def publish(table: TableSchema) -> Binding:
        published.append(table)
        return binding(table, len(published), world)

    def encode_change(change: SchemaChange) -> bytes:
        out.changes.append(change)
        return b"change %d" % len(out.changes)

    assembler = Assembler(
        relations=Relations(
            known,
            read_catalog={**known, **world.catalog}.get,
            wanted=is_wanted,
            new_tables_are_complete=True,
        ),
        ports=AssemblerPorts(
            publish, encode_change, lambda: NOW_US, out.aside.append if world.puts_aside else None
        ),
        epoch=EPOCH,
        seq=SEQ,
        redelivery=Redelivery(world.resume),
        ddl_topic="bank.ddl",
        max_row_bytes=world.max_row_bytes,
        walker=walker,
    )
    decoded = opens(world, known, out, walker is not None)
    try:
        for at in range(0, len(messages), read):
            out.happened += assembler.feed(decoded(messages[at : at + read]))
    except (CdcError, OverflowError, AssertionError) as error:  # a NULL in a primary key
        out.error = f"{type(error).__name__}: {error}"
    out.walks = [] if walker is None else walker.walks
    return out


def flat(happened: Sequence[Happened]) -> list[Any]:
    """Records, ends of transactions, and the rest, without batches and positions."""
    out: list[Any] = []
    for event in happened:
        match event:
            case RowsAssembled(records):
                out += records
            case Walked(records):
                rows = iter(records)
                for counts, ended in records.transactions():
                    out += [next(rows) for _ in range(sum(counts.values()))]
                    out += [] if ended is None else [ended]
            case PositionReached():
                pass
            case _:
                out.append(event)
    return out


def last_position(happened: Sequence[Happened]) -> int:
    return max((e.position for e in happened if isinstance(e, PositionReached)), default=0)


def agree(
    world: World,
    messages: Sequence[WalMessage],
    limits: Sequence[int],
    read: int,
    opens: Open = pgoutput,
) -> Taken:
    """Take a stream twice; both say the same.  Returns what came out with the walker."""
    plain = take(world, messages, read=read, opens=opens)
    walked = take(world, messages, limits=limits, read=read, opens=opens)
    assert walked.error == plain.error
    assert flat(walked.happened) == flat(plain.happened)
    assert last_position(walked.happened) == last_position(plain.happened)
    assert (walked.changes, walked.aside) == (plain.changes, plain.aside)
    assert walked.begun == plain.begun
    return walked
