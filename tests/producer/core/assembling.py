"""An assembler that is told a stream of PostgreSQL, and what it makes of it."""

import io
from dataclasses import dataclass, field
from typing import Any

import fastavro

from producer.core.changes import (
    Begin,
    Cells,
    Commit,
    Insert,
    Message,
    Relation,
    RelationColumn,
    Update,
)
from producer.core.events import (
    Happened,
    Record,
    RowsAssembled,
)
from producer.core.records.encode import compile_encoder
from producer.core.records.messages import MessageWriter
from producer.core.records.transaction_topic import TransactionWriter
from producer.core.router import Binding
from producer.core.stream.assemble import Assembler, AssemblerPorts
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.relations import Relations
from producer.core.stream.unfit import Unfit
from schemas.control import SchemaChange
from schemas.envelope import (
    EnvelopeOptions,
    envelope_schema,
    message_schema,
    transaction_schema,
)
from schemas.headers import POSITION
from schemas.positions import CommitKey, Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema

ID = TableId("public", "account")
COLUMNS = (
    Column("id", 23, type_name="integer", nullable=False),
    Column("owner", 25, type_name="text"),
)
ACCOUNT = TableSchema(ID, COLUMNS, ("id",), (), ReplicaIdentity.DEFAULT, ("id",))
TOPIC, DDL = "bank.public.account", "bank.ddl"
ACCOUNTS, OTHERS = 16385, 16390
RESUME = 500


def position_of(headers: list[tuple[str, bytes]]) -> CommitKey:
    return CommitKey.parse(dict(headers)[POSITION].decode())


def described(
    *columns: Column, relation: int = ACCOUNTS, table: TableId = ID, key: str = "id"
) -> Relation:
    return Relation(
        relation,
        *table,
        ReplicaIdentity.DEFAULT,
        tuple(RelationColumn(c.name, c.type_oid, c.type_mod, c.name == key) for c in columns),
    )


@dataclass
class Play:
    """An assembler in a world of one table, and what it answered."""

    known: dict[TableId, TableSchema] = field(default_factory=lambda: {ID: ACCOUNT})
    catalog: TableSchema | None = ACCOUNT
    keyed: bool = False
    partitions: int = 1
    redelivery: Redelivery = field(default_factory=lambda: Redelivery(RESUME))
    max_row_bytes: int = 1 << 20
    messages: MessageWriter | None = None
    frames: TransactionWriter | None = None
    published: list[TableSchema] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)
    aside: list[Unfit] | None = None  # where unfit rows go; None: they stop
    quarantines: bool = False
    notes: list[str] = field(default_factory=list)
    positions_are_csns: bool = True

    def __post_init__(self) -> None:
        self.relations = self.make_relations()
        self.assembler = Assembler(
            relations=self.relations,
            ports=AssemblerPorts(
                self.publish,
                self.encode_change,
                lambda: 7,
                None if self.aside is None else self.aside.append,
            ),
            epoch=2,
            seq=40,
            redelivery=self.redelivery,
            ddl_topic=DDL,
            max_row_bytes=self.max_row_bytes,
            messages=self.messages,
            frames=self.frames,
            quarantines=self.quarantines,
            note=self.notes.append,
            positions_are_csns=self.positions_are_csns,
        )
        self.feed(described(*COLUMNS))

    def make_relations(self) -> Relations:
        return Relations(
            self.known,
            read_catalog=lambda table: self.catalog if table == ID else None,
            wanted=lambda table: table == ID,
            new_tables_are_complete=True,
        )

    def publish(self, table: TableSchema) -> Binding:
        self.published.append(table)
        schema_id = len(self.published)
        encoder = compile_encoder(table, prefix="bank", schema_id=schema_id, database="bank")
        at = table.names().index("id")

        def key_of(cells: Cells) -> bytes:
            cell = cells[at]
            assert isinstance(cell, bytes)
            return cell

        def place(cells: Cells) -> int:
            return int(key_of(cells)) % self.partitions

        return Binding(
            table=table,
            topic=TOPIC,
            schema_id=schema_id,
            partitions=self.partitions,
            encoder=encoder,
            key=b"public.account",
            key_of=key_of if self.keyed else None,
            partition_of=place if self.partitions > 1 else None,
            partition=0,
            key_at=(at,) if self.keyed or self.partitions > 1 else (),
            tombstones=self.keyed,
        )

    def encode_change(self, change: SchemaChange) -> bytes:
        self.changes.append(change)
        return b"change"

    def feed(self, *messages: Message, lsn: int = 1000) -> list[Happened]:
        return self.assembler.feed((lsn, message) for message in messages)

    def transaction(self, *messages: Message, start: int = 1000, xid: int = 700) -> list[Happened]:
        return self.feed(begin(start, xid), *messages, commit(start))


def begin(start: int = 1000, xid: int = 700) -> Begin:
    return Begin(Lsn(start), 1_000_000, xid)


def commit(start: int = 1000) -> Commit:
    return Commit(Lsn(start), Lsn(start + 8), 1_000_000)


def insert(number: int, owner: bytes | None = b"Alice", relation: int = ACCOUNTS) -> Insert:
    return Insert(relation, [b"%d" % number, owner])


def records(happened: list[Happened]) -> list[Record]:
    return [r for event in happened if isinstance(event, RowsAssembled) for r in event.records]


def positions(happened: list[Happened]) -> list[CommitKey]:
    return [position_of(record[4]) for record in records(happened)]


def read(record: Record, table: TableSchema = ACCOUNT) -> dict[str, Any]:
    schema = fastavro.parse_schema(envelope_schema("bank", table))
    assert record[3] is not None
    out = fastavro.schemaless_reader(io.BytesIO(record[3][5:]), schema, None)
    assert isinstance(out, dict)
    return out


def kinds(happened: list[Happened]) -> list[type]:
    return [type(event) for event in happened]


MESSAGES = MessageWriter("bank.message", 8, 9, "bank", "bank", EnvelopeOptions())


def message(happened: list[Happened]) -> dict[str, Any]:
    (record,) = (record for record in records(happened) if record[0] == "bank.message")
    assert record[3] is not None
    schema = fastavro.parse_schema(message_schema())
    out = fastavro.schemaless_reader(io.BytesIO(record[3][5:]), schema, None)
    assert isinstance(out, dict)
    return out


FRAMES = TransactionWriter("bank.transaction", 5, 6)


def frames(happened: list[Happened]) -> list[dict[str, Any]]:
    schema = fastavro.parse_schema(transaction_schema())
    out: list[Any] = [
        fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        for topic, _, _, value, _ in records(happened)
        if topic == FRAMES.topic and value is not None
    ]
    return out


def blocks(happened: list[Happened]) -> list[tuple[int, int]]:
    found = [
        read(r)["transaction"] for r in records(happened) if r[0] == TOPIC and r[3] is not None
    ]
    return [(block["total_order"], block["data_collection_order"]) for block in found]


def change(old: int | None, new: int, kind: str = "K") -> Update:
    before: Cells | None = None
    if old is not None:
        before = [b"%d" % old, None if kind == "K" else b"Alice"]
    return Update(ACCOUNTS, kind if before else "", before, [b"%d" % new, b"Bob"])


def placed(happened: list[Happened]) -> list[tuple[bytes, int, str | None]]:
    return [
        (record[2], record[1], None if record[3] is None else read(record)["op"])
        for record in records(happened)
    ]
