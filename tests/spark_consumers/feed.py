"""Builds what a producer would have written: cut records, rows, segments."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    DdlPlace,
    Head,
    Heartbeat,
    Hole,
    Identity,
    LoadPhase,
    Origin,
    Prev,
    Range,
    SchemaChange,
    Start,
    State,
    TableLoad,
    Topic,
)
from schemas.tables import UNCHANGED, Column, TableId, TableSchema, Unique
from schemas.topics import Topics
from spark_consumers.cuts.segments import segments
from spark_consumers.model import Change, Ledger, Rows, Segment

IDENTITY = Identity("7000", 1, "bank", "gauss_cdc", "pgoutput")
SOURCE = "bank"


def table(name: str, columns: str, *, key: str = "id", unique: str = "") -> TableSchema:
    """`table("t", "id integer, v text")`."""
    parts = [column.strip().split(" ", 1) for column in columns.split(",")]
    return TableSchema(
        TableId("public", name),
        tuple(Column(n, hash_oid(t), -1, t, nullable=n not in key.split()) for n, t in parts),
        tuple(key.split()),
        tuple(Unique(f"{name}_{u}_key", tuple(u.split("+"))) for u in unique.split()),
    )


def hash_oid(type_name: str) -> int:
    """Any number that differs by type."""
    return sum(type_name.encode()) + 1


@dataclass
class Feed:
    """A producer's memory: the next n, seq and offsets."""

    source: str = SOURCE
    n: int = 0
    epoch: int = 0
    seq: int = 0
    writer: int = 0
    at: int = 0  # next offset of cuts
    ends: dict[str, int] = field(default_factory=dict)  # next offset of each topic
    records: list[tuple[int, Cut]] = field(default_factory=list)
    content: dict[tuple[str, int], Change | SchemaChange] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    had_loads: bool = False  # the tables of all loads are gone

    def head(self) -> Head:
        return Head(self.n, self.epoch, self.writer, f"i{self.writer}", self.seq, self.n * 10, -1)

    def _put(self, cut: Cut) -> Cut:
        self.records.append((self.at, cut))
        self.at += 2  # a marker follows each record
        return cut

    def start(self, *, epoch: int | None = None, continues: bool | None = None) -> Cut:
        prev = None
        if epoch is not None or not self.epoch:
            prev = Prev(self.epoch, self.seq, self.n) if self.epoch else None
            self.epoch, self.seq = epoch or 1, 0
        self.n += 1
        self.writer += 1
        return self._put(
            Start(
                self.head(), IDENTITY, "hash", "cluster", dict(self.topics), {},
                prev, continues, None, had_loads=self.had_loads,
            )
        )  # fmt: skip

    def load_again(self, *tables: TableSchema) -> Cut:
        """Begin an epoch that loads these tables anew."""
        start = self.start(epoch=self.epoch + 1, continues=False)
        assert isinstance(start, Start)
        self.records[-1] = (
            self.records[-1][0],
            replace(start, loads={str(table.id): "PENDING" for table in tables}),
        )
        return self.records[-1][1]

    def state(self, loads: Mapping[str, str] | None = None) -> Cut:
        topics = dict(self.topics)
        state = State(self.head(), IDENTITY, "hash", "cluster", topics, loads or {})
        return self._put(replace(state, had_loads=self.had_loads))

    def heartbeat(self) -> Cut:
        return self._put(Heartbeat(self.head()))

    def topic(self, schema: TableSchema) -> str:
        return Topics(self.source).table(schema.id)

    def commits(self, *transactions: "list[Row | SchemaChange] | Tx") -> Commits:
        """One COMMITS record; rows go to partition 0 of their topic."""
        self.n += 1
        starts: dict[str, int] = {}
        counts: list[dict[str, int]] = []
        entries = []
        for given in transactions:
            tx = given if isinstance(given, Tx) else Tx(given)
            self.seq += 1
            mine: dict[str, int] = {}
            ddl = []
            for ordinal, row in enumerate(tx.rows):
                if isinstance(row, SchemaChange):
                    topic = Topics(self.source).ddl
                    record: Change | SchemaChange = at_place(row, self.epoch, self.seq, ordinal)
                else:
                    topic = self.topic(row.table)
                    record = row.change(self.seq, ordinal)
                offset = self.ends.setdefault(topic, 5)
                starts.setdefault(topic, offset)
                if isinstance(record, SchemaChange):
                    ddl.append(DdlPlace(ordinal, offset))
                self.content[topic, offset] = record
                self.ends[topic] = offset + 1
                mine[topic] = mine.get(topic, 0) + 1
            counts.append(mine)
            entries.append((self.seq, len(tx.rows), tuple(ddl), tx.holes))
        topics = sorted(starts)
        ranges = tuple(Range(t, 0, starts[t], self.ends[t]) for t in topics)
        for topic in topics:
            self.ends[topic] += 1  # the marker
        commits = tuple(
            CommitEntry(
                seq, seq + 700, seq * 10, seq * 10, seq * 10 + 1, seq * 1_000_000, rows,
                {topics.index(t): c for t, c in mine.items()}, ddl, holes,
            )
            for (seq, rows, ddl, holes), mine in zip(entries, counts, strict=True)
        )  # fmt: skip
        cut = Commits(self.head(), commits, ranges)
        self._put(cut)
        return cut

    def load(
        self, schema: TableSchema, phase: LoadPhase, *rows: list[str | None], mode: str = "EXACT",
        first: int = 0, target: str | None = None,
    ) -> TableLoad:  # fmt: skip
        """BEGIN carries the table's SchemaChange, CHUNK its rows, from the ordinal `first` on."""
        self.n += 1
        ranges: tuple[Range, ...] = ()
        if phase is LoadPhase.BEGIN:
            topic = Topics(self.source).ddl
            at = self.ends.setdefault(topic, 5)
            self.content[topic, at] = create(schema, self.epoch)
            self.ends[topic] = at + 1
            ranges = (Range(topic, 0, at, at + 1),)
        if rows:
            topic = self.topic(schema)
            at = self.ends.setdefault(topic, 5)
            for place, row in enumerate(rows):
                self.content[topic, at + place] = Change(
                    0, first + place, "r", schema.names(), None, list(row)
                )
            self.ends[topic] = at + len(rows)
            ranges = (Range(topic, 0, at, at + len(rows)),)
        cut = TableLoad(self.head(), schema.id, phase, mode, ranges, len(rows), target=target)
        self._put(cut)
        return cut

    def read_cuts(self, ledger: Ledger) -> list[tuple[int, Cut]]:
        return [(at, cut) for at, cut in self.records if at >= ledger.next_offset]

    def read_rows(self, segment: Segment) -> Rows:
        changes: dict[TableId, list[Change]] = {}
        ddl = []
        for r in segment.ranges:
            for offset in range(r.start, r.end):
                record = self.content[r.topic, offset]
                if isinstance(record, SchemaChange):
                    ddl.append(record)
                else:
                    table_id = Topics(self.source).table_of(r.topic)
                    assert table_id is not None
                    changes.setdefault(table_id, []).append(record)
        for rows in changes.values():
            rows.sort(key=lambda c: (c.seq, c.ordinal))
        return Rows(changes, ddl)

    def segments(self, ledger: Ledger, **options: object) -> list[Segment]:
        return list(segments(ledger, self.read_cuts(ledger), **options))  # type: ignore[arg-type]


@dataclass
class Tx:
    """One source transaction."""

    rows: "list[Row | SchemaChange]"
    holes: tuple[Hole, ...] = ()


@dataclass
class Row:
    """One change, before it has a place."""

    table: TableSchema
    op: str
    before: list[str | None] | None = None
    after: list[object] | None = None

    def change(self, seq: int, ordinal: int) -> Change:
        return Change(seq, ordinal, self.op, self.table.names(), self.before, self.after)  # type: ignore[arg-type]


def insert(of: TableSchema, *cells: str | None) -> Row:
    return Row(of, "c", None, list(cells))


def update(of: TableSchema, *cells: object, old: str | None = None) -> Row:
    """An update; `old` is the old key where it changed, `...` a value that was not sent."""
    return Row(of, "u", None if old is None else old_row(of, old), [_sent(c) for c in cells])


def delete(of: TableSchema, *key: str) -> Row:
    return Row(of, "d", old_row(of, *key))


def truncate(of: TableSchema) -> Row:
    return Row(of, "t")


def old_row(of: TableSchema, *key: str) -> list:
    cells = dict(zip(of.key, key, strict=True))
    return [cells.get(name, UNCHANGED) for name in of.names()]


def _sent(cell: object) -> object:
    return UNCHANGED if cell is ... else cell


def create(schema: TableSchema, epoch: int = 1, origin: Origin = Origin.SNAPSHOT) -> SchemaChange:
    return alter(None, schema, epoch=epoch, origin=origin, tag="CREATE TABLE")


def alter(
    before: TableSchema | None,
    after: TableSchema | None,
    *,
    sql: str | None = None,
    epoch: int = 1,
    origin: Origin = Origin.TRIGGER,
    tag: str = "ALTER TABLE",
) -> SchemaChange:
    return SchemaChange(epoch, 0, 0, 1, 1, 1, origin, tag, before, after, None, sql)


def at_place(change: SchemaChange, epoch: int, seq: int, ordinal: int) -> SchemaChange:
    from dataclasses import replace

    return replace(change, epoch=epoch, seq=seq, ordinal=ordinal)


def started() -> tuple[Feed, Ledger]:
    """A feed, and the ledger behind its first record."""
    feed = Feed()
    feed.start()
    return feed, feed.segments(Ledger("bank"))[-1].upto


def loaded(*tables: TableSchema, chunks: int = 2, rows: int = 3) -> Feed:
    """A feed with the loads of some tables, each `chunks` times `rows` rows."""
    feed = Feed()
    feed.start()
    for schema in tables:
        feed.load(schema, LoadPhase.BEGIN)
        for chunk in range(chunks):
            feed.load(schema, LoadPhase.CHUNK, *([f"{chunk}.{row}", "x"] for row in range(rows)))
        feed.load(schema, LoadPhase.END)
    return feed
