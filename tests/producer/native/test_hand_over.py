"""Whatever stands between rows, the walker's records are those of Python.

A server with event triggers: statements between rows, rows before their table's record, names
that change, logical messages, transactions of an earlier run, and what only the catalog shows.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any, TypeAlias

import pytest

from producer.core.catalog.catalog_differences import Altered, Described, Dropped, Finding, Unseen
from producer.core.changes import (
    Begin,
    Commit,
    Delete,
    Insert,
    Logical,
    Message,
    Relation,
    RelationColumn,
    Truncate,
    Update,
)
from producer.core.delivery.engine import Engine, WriterState
from producer.core.events import Acknowledged, Flush, Happened, Limits, SendRows, WriteCuts
from producer.core.records.cut_code import encode_commits
from producer.core.records.encode import compile_encoder
from producer.core.records.messages import MessageWriter
from producer.core.router import Binding, table_key
from producer.core.stream.assemble import Assembler, AssemblerPorts
from producer.core.stream.redelivery import Delivered, DeliveredPart, Redelivery
from producer.core.stream.relations import Relations
from producer.core.stream.unfit import Unfit
from producer.core.stream.walk import MAX_ROWS, Lent, Stage
from producer.errors import CdcError, SchemaRefused
from producer.sources.postgres.pgoutput import decode
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers.records import Trust
from producer.wire.replication import EPOCH_2000_US
from schemas.control import Commits, Origin, SchemaChange
from schemas.envelope import EnvelopeOptions
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema
from tests.producer.core.play import IDENTITY, START
from tests.producer.native.twins import EPOCH, NOW_US, SEQ, Limited, flat, last_position, native
from tests.producer.sources.postgres.test_stream import CHANNEL, PUBLICATION, channel, shape
from tests.sim.payloads import payload

RESUME = 1_000
MOST_BYTES = 900
MESSAGES = MessageWriter("bank.message", 8, 9, "bank", "bank", EnvelopeOptions())
Step: TypeAlias = "list[tuple[int, Message]] | Finding"


def table(oid: int, name: str, *columns: Column) -> TableSchema:
    numbered = tuple(replace(column, number=at) for at, column in enumerate(columns, 1))
    return TableSchema(
        TableId("public", name), numbered, ("id",), (), ReplicaIdentity.DEFAULT, ("id",), oid=oid
    )


INT, TEXT = Column("id", 23, type_name="integer", nullable=False), Column("v", 25, type_name="text")
NUMBER = Column("n", 1700, type_name="numeric")
ACCOUNT = table(16385, "account", INT, TEXT, NUMBER)
ITEM = table(16390, "item", INT, TEXT)


@dataclass
class Server:
    """A source that does anything, but says what it does as PostgreSQL says it."""

    rng: random.Random
    steps: list[Step] = field(default_factory=list)
    told: dict[int, TableSchema] = field(default_factory=dict)  # what the session described
    tables: dict[int, TableSchema] = field(
        default_factory=lambda: {ACCOUNT.oid: ACCOUNT, ITEM.oid: ITEM}
    )
    out: list[tuple[int, Message]] = field(default_factory=list)
    at: int = 700
    oids: int = 17_000

    def say(self, message: Message) -> None:
        self.at += self.rng.choice([1, 2, 8])
        self.out.append((self.at, message))

    # ------------------------------------------------------------ rows
    def row(self, oid: int) -> None:
        of = self.tables[oid]
        self.describe(of)
        new: list[Any] = [self.cell(column) for column in of.columns]
        key: list[Any] = [new[0], *[None] * (len(new) - 1)]
        match self.rng.randrange(6):
            case 0:
                self.say(Delete(oid, "K", key))
            case 1:
                new[-1] = self.rng.choice([UNCHANGED, new[-1]])
                self.say(Update(oid, "", None, new))
            case 2:
                self.say(Update(oid, "K", key, new))
            case _:
                self.say(Insert(oid, new))

    def cell(self, column: Column) -> bytes | None:
        odd = self.rng.random()
        if odd < 0.01 or (column.nullable and odd < 0.1):
            return None  # a NULL in a column that was NOT NULL
        if column.type_oid == 25:
            return b"x" * self.rng.choice([0, 5, 40, 2_000 if odd > 0.98 else 7])
        return b"NaN" if column.type_oid == 1700 and odd > 0.95 else b"%d" % self.rng.randrange(99)

    def describe(self, of: TableSchema) -> None:
        if self.told.get(of.oid) != of or self.rng.random() < 0.05:
            self.told[of.oid] = of
            columns = tuple(
                RelationColumn(c.name, c.type_oid, c.type_mod, c.name == "id") for c in of.columns
            )
            self.say(Relation(of.oid, *of.id, of.replica_identity, columns))

    # ------------------------------------------------------------ statements
    def record(self, **body: Any) -> None:
        if CHANNEL not in self.told or self.rng.random() < 0.1:
            self.told[CHANNEL] = ITEM
            self.say(channel())
        raw = {"version": 1, "event": "end", "top": True, "plain": True} | body
        self.say(Insert(CHANNEL, [b"1", json.dumps(raw).encode()]))

    def statement(self) -> None:
        rng = self.rng
        oid = rng.choice(list(self.tables))
        of = self.tables[oid]
        match rng.randrange(8):
            case 0 | 1:
                number = 1 + max(c.number for c in of.columns)
                added = Column(f"c{number}", 25, type_name="text", number=number)
                self.tables[oid] = replace(of, columns=(*of.columns, added))
                rewritten = rng.choice([[], [f"{oid}:4"]])  # values nobody knows
                self.record(tag="ALTER TABLE", tables=[shape(self.tables[oid])],
                            rewritten=rewritten, sql="ALTER TABLE …")  # fmt: skip
            case 2:
                name = f"{of.id.name[:4]}{rng.randrange(1_000)}"
                self.tables[oid] = replace(of, id=TableId("public", name))
                self.record(tag="ALTER TABLE", tables=[shape(self.tables[oid])])
            case 3:
                renamed = replace(of.columns[1], name=f"r{rng.randrange(1_000)}")
                columns = (of.columns[0], renamed, *of.columns[2:])
                self.tables[oid] = replace(of, columns=columns)
                self.record(tag="ALTER TABLE", tables=[shape(self.tables[oid])])
            case 4:
                self.create()
            case 5 if len(self.tables) > 1:
                del self.tables[oid]
                gone = ["table", "public", of.id.name, str(of.id), oid, True, None, None]
                self.record(event="drop", tag="DROP TABLE", dropped=[gone])
            case 6:
                self.record(event="gap", tag="X", oids=rng.choice([None, [oid]]))
            case _:
                self.record(tag="CREATE VIEW", sql="CREATE VIEW w AS SELECT 1")

    def create(self) -> None:
        """CREATE TABLE, with rows, which may come before its record; or without a record."""
        rng = self.rng
        self.oids += 1
        made = table(self.oids, f"made{rng.randrange(6)}", INT, TEXT)
        if made.id in {of.id for of in self.tables.values()}:
            return
        self.tables[made.oid] = made
        for _ in range(rng.randrange(3)):
            self.row(made.oid)
        if rng.random() < 0.8:
            command = ["CREATE TABLE AS", "table", "public", str(made.id), made.oid, None]
            self.record(tag="CREATE TABLE AS", tables=[shape(made)], commands=[command])

    # ------------------------------------------------------------ transactions
    def transaction(self, xid: int, *, is_old: bool = False) -> None:
        rng = self.rng
        start = self.at + rng.choice([0, 300])
        self.say(Begin(Lsn(start), 7, xid))
        for _ in range(rng.choice([0, 1, 2, 6, 15])):
            match rng.randrange(20):
                case 0 | 1 if not is_old:
                    self.statement()
                case 2:
                    some = rng.sample(list(self.tables), 1)
                    for oid in some:
                        self.describe(self.tables[oid])
                    self.say(Truncate(tuple(some), cascade=False, restart_identity=False))
                case 3:
                    self.say(Logical(True, Lsn(self.at + 1), "p", b"content"))
                case _:
                    self.row(rng.choice(list(self.tables)))
        end = max(self.at, start) + 8
        self.say(Commit(Lsn(start), Lsn(end), 7))
        self.at = end

    def between(self) -> None:
        """What may come while no transaction is open."""
        rng = self.rng
        if rng.random() < 0.1:
            self.say(Logical(False, Lsn(self.at + 1), "p", b"between"))
        if rng.random() < 0.15:
            self.steps.append(self.out)
            self.out = []
            of = rng.choice(list(self.tables.values()))
            columns = tuple(RelationColumn(c.name, c.type_oid, -1, c.name == "id")
                            for c in of.columns)  # fmt: skip
            found: list[Finding] = [
                Unseen(of.id, "was rewritten"),
                Described(of.id, Relation(of.oid, *of.id, of.replica_identity, columns)),
                Dropped(of.id, of),
                Altered(of.id, of, of, "labels"),
            ]
            self.steps.append(rng.choice(found))


def history(seed: int) -> tuple[list[Step], list[Delivered]]:
    """Steps of a stream; and the transactions of an earlier run, one of which may differ."""
    rng = random.Random(seed)
    server = Server(rng)
    known: list[Delivered] = []
    for xid in range(700, 700 + rng.randrange(3)):
        server.transaction(xid, is_old=True)
    for _, message in server.out:
        if isinstance(message, Begin) and rng.random() > 0.05:
            start, xid = message.commit_lsn + (rng.random() < 0.06), message.xid
            xid += rng.random() < 0.02
            known.append(Delivered(start, xid, EPOCH_2000_US + 7, is_compared=True))
    if rng.random() < 0.05:  # one that is not sent again
        known.append(Delivered(RESUME - 1, 750, EPOCH_2000_US + 7, is_compared=True))
    server.at = max(server.at, RESUME)
    for xid in range(800, 800 + rng.randrange(2, 9)):
        server.transaction(xid)
        server.between()
    server.steps.append(server.out)
    return server.steps, known


@dataclass
class Said:
    """What came out."""

    happened: list[Happened] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)
    published: list[TableSchema] = field(default_factory=list)
    aside: list[Unfit] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    known: dict[TableId, TableSchema] = field(default_factory=dict)
    error: str = ""
    walked: int = 0


def run(
    seed: int, limits: list[int] | None, read: int, *, refuses: bool = False, keyed: bool = False
) -> Said:
    """Take a history; `limits`: of the walker's calls, None: there is none."""
    steps, transactions = history(seed)
    out = Said(known={ACCOUNT.id: ACCOUNT, ITEM.id: ITEM})
    walker = None
    if limits is not None:
        module = native()
        made = module.Walker(module.Places(), epoch=EPOCH, resume=RESUME, max_row_bytes=MOST_BYTES)
        walker = Limited(made, cycle(limits))

    def wanted(table: TableId) -> bool:
        return table.schema == "public" and not table.name.endswith("5")

    def publish(table: TableSchema) -> Binding:
        if refuses and len(table.columns) > 3:
            raise SchemaRefused("no", subject=str(table.id))
        if table not in out.published:
            out.published.append(table)
        schema_id = 1 + out.published.index(table)
        encoder = compile_encoder(table, prefix="bank", schema_id=schema_id, database="bank")
        key = table_key(table.id)
        by_key = keyed and table.id.name.startswith("item")
        return Binding(
            table, f"bank.{table.id}", schema_id, 1 + by_key, encoder, key, None,
            (lambda cells: len(cells[0] or b"") % 2) if by_key else None, 0,  # type: ignore[arg-type]
            (0,) if by_key else (),
        )  # fmt: skip

    def encode_change(change: SchemaChange) -> bytes:
        out.changes.append(change)
        return b"change %d" % len(out.changes)

    relations = Relations(
        out.known,
        read_catalog={of.id: of for of in (ACCOUNT, ITEM)}.get,
        wanted=wanted,
        new_tables_are_complete=True,
        reports_ddl=True,
    )
    topics = {of.id: f"bank.{of.id}" for of in (ACCOUNT, ITEM)}
    part = DeliveredPart(RESUME, transactions, topics.values())
    assembler = Assembler(
        relations=relations,
        ports=AssemblerPorts(publish, encode_change, lambda: NOW_US, out.aside.append),
        redelivery=Redelivery(RESUME, confirmed=1, parts=[part], topics=topics),
        epoch=EPOCH, seq=SEQ, ddl_topic="bank.ddl", max_row_bytes=MOST_BYTES,
        messages=MESSAGES, quarantines=True, walker=walker,
    )  # fmt: skip
    stream = PgoutputStream(
        decode, out.known, wanted=wanted, publication=PUBLICATION, judge=lambda _: Trust.OURS,
        resume=RESUME, has_triggers=True, on_begin=out.begun.append,
    )  # fmt: skip
    position = RESUME
    try:
        for step in steps:
            if not isinstance(step, list):
                if not assembler.is_open:
                    out.happened += assembler.explain([step], position)
                continue
            received = [(lsn, lsn, payload(message)) for lsn, message in step]
            for at in range(0, len(received), read):
                out.happened += assembler.feed(stream.messages(received[at : at + read]))
            position = received[-1][0] + 8 if received else position
    except (CdcError, KeyError) as error:
        out.error = f"{type(error).__name__}: {error}"
    if walker is not None:
        out.walked = sum(len(w.records) for walk in walker.walks for w in walk.walked)
    return out


def agree(seed: int, **how: bool) -> Said:
    rng = random.Random(-seed)
    read = rng.choice([1, 2, 5, 1 << 20])
    limits = [rng.choice([0, 1, 2, 3, 1 << 20]) for _ in range(4)]
    plain, walked = run(seed, None, read, **how), run(seed, limits, read, **how)
    assert walked.error == plain.error, seed
    assert flat(walked.happened) == flat(plain.happened), seed
    assert last_position(walked.happened) == last_position(plain.happened), seed
    assert (walked.changes, walked.published) == (plain.changes, plain.published), seed
    assert (walked.aside, walked.begun, walked.known) == (
        plain.aside, plain.begun, plain.known
    ), seed  # fmt: skip
    return walked


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_any_history_of_a_server_with_triggers_is_the_same(first: int) -> None:
    said = [agree(seed, refuses=seed % 7 == 0, keyed=seed % 3 == 0)
            for seed in range(first, first + 100)]  # fmt: skip

    # It is not the same for want of anything native.
    assert sum(one.walked for one in said) > 100
    assert sum(not one.error for one in said) > 70
    assert {c.origin for one in said for c in one.changes} == {Origin.TRIGGER, Origin.INFERRED}
    assert any(one.aside for one in said)


def test_a_group_that_is_almost_full_has_room_for_a_batch() -> None:
    """A cut is smaller than 256 KiB, however many transactions come at once."""
    far, topic, limits = 1 << 48, "bank.public.item", Limits()
    payloads: list[bytes] = []
    for at in range(far, far + 100 * (limits.group_commits + MAX_ROWS + 1), 100):
        payloads += [
            payload(Begin(Lsn(at), 1 << 50, (1 << 32) - 1)),
            payload(Insert(ITEM.oid, [b"1", b"x"])),
            payload(Commit(Lsn(at), Lsn(at + 99), 1 << 50)),
        ]
    messages = [(far, far, one) for one in payloads]
    module = native()
    places = module.Places()
    walker = module.Walker(places, epoch=EPOCH, resume=0, max_row_bytes=MOST_BYTES)
    plan = compile_encoder(ITEM, prefix="bank", schema_id=1, database="bank").plan
    assert plan is not None
    walker.bind(ITEM.oid, plan, topic=topic, partition=0, key=b"key")
    most = limits.group_commits - 1
    begun = Lent(Stage.NONE, 1 << 30, 0, 0)
    first = walker.walk(messages[: 3 * most], 0, begun, now_us=NOW_US, max_rows=MAX_ROWS)
    second = walker.walk(messages, first.at, first.open, now_us=NOW_US, max_rows=MAX_ROWS)
    tally = module.NativeTally(places, ddl_topic="bank.ddl", untracked_topics=frozenset())
    engine = Engine(WriterState(START, 7, IDENTITY, "content", "cluster", {}, {}), limits, tally)

    batches = [*first.walked, *second.walked]
    assert [walked.commits for walked in batches] == [most, MAX_ROWS - 1, 0]
    commands = [command for walked in batches for command in engine.step(walked)]
    assert [type(command) for command in commands] == [SendRows, SendRows, Flush]
    (write,) = engine.step(Acknowledged([(topic, 0, far, far + most + MAX_ROWS - 1)]))

    assert isinstance(write, WriteCuts)
    (cut,) = write.cuts
    assert isinstance(cut, Commits)
    assert len(cut.commits) == most + MAX_ROWS - 1
    assert len(encode_commits(cut)) < 256 << 10
