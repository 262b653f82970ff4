"""A producer's topics on the simulation's broker, for readers of history."""

from dataclasses import replace
from typing import Any

from schemas.control import Commits, Cut, LoadPhase, Range, SchemaChange, State, TableLoad, Topic
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.model import Change
from tests.sim.broker import Broker
from tests.sim.ports import CUTS, TOPICS
from tests.sim.reading import clients
from tests.sim.registry import Value, encode_change, encode_cut, encode_row
from tests.sim.world import World
from tests.spark_consumers.feed import Feed, insert
from tests.spark_consumers.kafka.test_read import Free

A, B = (
    TableSchema(
        TableId("public", name), (Column("id", 25, nullable=False), Column("v", 25)), ("id",)
    )
    for name in "ab"
)
WIDE = replace(A, columns=(*A.columns, Column("w", 25)))
_TABLES = {(TOPICS.table(table.id), table.names()): table for table in (A, B, WIDE)}


def schema_id(table: TableSchema) -> int:
    """The id of the schema of a table's rows."""
    row = Value(table.id, table.names(), "t", None, 1, 1, 0, 7)
    return int.from_bytes(encode_row(table, row)[1:5], "big")


# The later one is the newer one.
NARROW_ID, WIDE_ID = schema_id(A), schema_id(WIDE)


class Published:
    """Publishes what a Feed says on the simulation's broker, at the offsets that it gives."""

    def __init__(self) -> None:
        topics = (TOPICS.cuts, TOPICS.ddl, TOPICS.table(A.id), TOPICS.table(B.id))
        self.broker = Broker(World(0), dict.fromkeys(topics, 1))
        self.client = self.broker.connect("p", "gauss-cdc.bank")
        assert self.broker.init_transactions(self.client)
        self.clients: Any = clients(Free(self.broker.world), self.broker)  # type: ignore[arg-type]
        self.state_at = self.last_cut = -1
        self.begin()

    def begin(self, writer: int = 0) -> None:
        ids = self.broker.topic_ids
        self.feed = Feed("bank", writer=writer, topics={name: Topic(ids[name], 1) for name in ids})
        self.feed.start()
        self.publish()

    def publish(self) -> None:
        """Write all records that the feed made since the last call."""
        records, self.feed.records = self.feed.records, []
        for _, made in records:
            assert self.broker.begin(self.client)
            cut = self.placed(made)
            self.last_cut = self.broker.append(self.client, CUTS, b"bank", encode_cut(cut))
            if isinstance(cut, State):
                self.state_at = self.last_cut
            self.broker.commit(self.client)
            self.mark()

    def placed(self, cut: Cut) -> Cut:
        """Write a cut's rows; return it with what the broker knows."""
        if isinstance(cut, State):
            topics = {name: Topic(one, 1) for name, one in self.broker.topic_ids.items()}
            return replace(cut, cluster_id=self.broker.cluster_id, topics=topics)
        cut = replace(cut, head=replace(cut.head, state_from=self.state_at))
        if isinstance(cut, Commits | TableLoad):
            ids = {r.topic: self.schema_ids(r) for r in cut.ranges if r.topic != TOPICS.ddl}
            return replace(cut, ranges=tuple(self.rows(r) for r in cut.ranges), schema_ids=ids)
        return cut

    def schema_ids(self, r: Range) -> tuple[int, ...]:
        """The ids of the schemas of a range's rows, the newest one last."""
        records = (self.feed.content[r.topic, at] for at in range(r.start, r.end))
        names = dict.fromkeys(c.columns for c in records if isinstance(c, Change))
        return tuple(schema_id(_TABLES[r.topic, one]) for one in names)

    def rows(self, r: Range) -> Range:
        """Write the records of a range; return it as the broker has it."""
        first = self.broker.high((r.topic, 0))
        for at in range(r.start, r.end):
            record = self.feed.content[r.topic, at]
            self.broker.append(self.client, (r.topic, 0), b"", self.value(r.topic, record))
        return Range(r.topic, 0, first, first + r.end - r.start)

    def value(self, topic: str, record: Change | SchemaChange) -> bytes:
        if isinstance(record, SchemaChange):
            return encode_change(record)
        after = record.after and tuple(str(cell).encode() for cell in record.after)
        place = (self.feed.epoch, record.seq, record.ordinal)
        table = _TABLES[topic, record.columns]
        return encode_row(table, Value(table.id, record.columns, record.op, after, *place, 7))

    def abort(self, rows: int) -> None:
        """Write rows of A in a transaction that comes to nothing."""
        assert self.broker.begin(self.client)
        for at in range(rows):
            row = Value(A.id, A.names(), "c", (b"aborted", b""), self.feed.epoch, 1, at, 7)
            self.broker.append(self.client, (TOPICS.table(A.id), 0), b"", encode_row(A, row))
        self.broker.abort(self.client)
        self.mark()

    def mark(self) -> None:
        """Write the markers of what was decided."""
        for transaction in self.broker.transactions:
            for place in list(transaction.pending):
                self.broker._marker(transaction, place)

    def forget(self, before: int) -> None:
        """What retention does to cuts."""
        self.broker.starts[CUTS] = before

    def make_again(self, topic: str) -> None:
        self.broker.logs[topic, 0].clear()
        self.broker.topic_ids[topic] += " again"


def commit(source: Published, *rows: int) -> None:
    """So many transactions, each with so many rows of A and one of B."""
    source.feed.commits(
        *([*(insert(A, str(at), "x") for at in range(n)), insert(B, "1", "x")] for n in rows)
    )


def load(source: Published, rows: int, mode: str = "EXACT") -> None:
    source.feed.load(A, LoadPhase.BEGIN, mode=mode)
    source.feed.load(A, LoadPhase.CHUNK, *([str(at), "x"] for at in range(rows)), mode=mode)
    source.feed.load(A, LoadPhase.END, mode=mode)
