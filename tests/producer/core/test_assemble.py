"""Messages become records with their places: one source transaction after the other."""

import io
import sys
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import fastavro
import pytest

from producer.core.assemble import Assembler, AssemblerPorts
from producer.core.catalog_watch import Altered, Described, Dropped, Unseen
from producer.core.changes import (
    Begin,
    Cells,
    Commit,
    Delete,
    Insert,
    Logical,
    Lost,
    Message,
    OriginMessage,
    Relation,
    RelationColumn,
    Truncate,
    TypeMessage,
    Undecoded,
    Update,
)
from producer.core.events import (
    Happened,
    PositionReached,
    Record,
    RowsAssembled,
    SchemaUsed,
    TransactionEnded,
)
from producer.core.records.encode import compile_encoder
from producer.core.records.messages import MessageWriter
from producer.core.records.transaction_topic import TransactionWriter
from producer.core.relations import Relations
from producer.core.router import Binding, partition_of, table_key
from producer.core.unfit import WHY, Unfit
from producer.errors import DecodeError, HistoryDiffers, RowTooLarge, Unsupported
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers.records import Trust
from schemas.control import Hole, SchemaChange
from schemas.envelope import (
    EnvelopeOptions,
    envelope_schema,
    message_schema,
    transaction_schema,
)
from schemas.headers import POSITION
from schemas.positions import CommitKey, Lsn
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema, UserType

ROOT = Path(__file__).parents[3]
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
    transactions: dict[int, int] = field(default_factory=dict)
    max_row_bytes: int = 1 << 20
    messages: MessageWriter | None = None
    frames: TransactionWriter | None = None
    published: list[TableSchema] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)
    aside: list[Unfit] | None = None  # where unfit rows go; None: they stop
    quarantines: bool = False
    notes: list[str] = field(default_factory=list)

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
            resume=RESUME,
            ddl_topic=DDL,
            max_row_bytes=self.max_row_bytes,
            known=self.transactions,
            messages=self.messages,
            frames=self.frames,
            quarantines=self.quarantines,
            note=self.notes.append,
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


# ---------------------------------------------------------------- numbering
def test_a_transaction_is_numbered_at_its_first_row_and_its_rows_from_zero() -> None:
    play = Play()

    happened = play.transaction(insert(1), insert(2))

    assert kinds(happened) == [SchemaUsed, RowsAssembled, TransactionEnded]
    assert positions(happened) == [CommitKey(2, 41, 0), CommitKey(2, 41, 1)]
    assert happened[-1] == TransactionEnded(
        seq=41,
        xid=700,
        csn=1000,
        commit_start=1000,
        end_lsn=1008,
        committed_at=946_684_801_000_000,
        rows=2,
    )


def test_each_row_has_its_headers_its_key_and_its_own_lsn() -> None:
    play = Play()
    play.feed(begin())

    (one,) = records(play.feed(insert(1), lsn=0x16_0000_0001))

    assert one[:3] == (TOPIC, 0, b"public.account")
    assert one[4] == [
        ("xid", b"700"),
        ("csn", b"1000"),
        ("lsn", b"16/1"),
        ("position", b"2/41/0"),
    ]
    source = read(one)["source"]
    assert (source["lsn"], source["epoch"], source["seq"], source["ordinal"]) == (
        0x16_0000_0001,
        2,
        41,
        0,
    )


def test_empty_and_filtered_transactions_get_no_number_but_move_the_position() -> None:
    play = Play()
    other = TableId("private", "t")

    empty = play.transaction(start=1000)
    filtered = play.transaction(
        described(*COLUMNS, relation=OTHERS, table=other),
        insert(1, relation=OTHERS),
        Truncate((OTHERS,), cascade=False, restart_identity=False),
        start=2000,
    )

    assert empty == [PositionReached(1008)]
    assert filtered == [PositionReached(2008)]
    assert positions(play.transaction(insert(1), start=3000)) == [CommitKey(2, 41, 0)]


def test_a_transaction_may_come_in_pieces() -> None:
    play = Play()

    first = play.feed(begin(), insert(1))
    assert play.assembler.is_open
    second = play.feed(insert(2))
    last = play.feed(commit())

    assert positions(first + second) == [CommitKey(2, 41, 0), CommitKey(2, 41, 1)]
    assert kinds(last) == [TransactionEnded]
    assert not play.assembler.is_open


def test_large_transactions_are_handed_over_in_batches() -> None:
    play = Play()
    big = b"x" * (400 << 10)

    happened = play.transaction(*(insert(n, big) for n in range(7)))

    batches = [event for event in happened if isinstance(event, RowsAssembled)]
    assert [len(batch.records) for batch in batches] == [3, 3, 1]
    assert all(
        batch.size == sum(len(r[2]) + len(r[3] or b"") for r in batch.records) for batch in batches
    )


# ---------------------------------------------------------------- what was delivered before
def test_a_transaction_is_dropped_only_if_it_begins_to_commit_strictly_before_resume() -> None:
    play = Play()

    assert play.transaction(insert(1), start=RESUME - 1) == []
    assert positions(play.transaction(insert(1), start=RESUME)) == [CommitKey(2, 41, 0)]


def test_a_relation_described_inside_a_dropped_transaction_is_in_force() -> None:
    play = Play()
    play.catalog = wider = replace(ACCOUNT, columns=(*COLUMNS, Column("note", 25)))

    play.transaction(
        described(*wider.columns),
        Insert(ACCOUNTS, [b"1", b"Alice", b"x"]),
        Truncate((ACCOUNTS,), cascade=False, restart_identity=False),
        start=RESUME - 1,
    )

    happened = play.transaction(Insert(ACCOUNTS, [b"1", b"Alice", b"x"]))
    assert read(records(happened)[1], wider)["after"] == {"id": 1, "owner": "Alice", "note": "x"}


def test_a_transaction_sent_again_must_be_the_one_of_the_last_cut() -> None:
    play = Play(transactions={400: 700})

    assert play.transaction(insert(1), start=400, xid=700) == []
    assert play.transaction(insert(1), start=300, xid=699) == []
    with pytest.raises(HistoryDiffers, match="ours=700"):
        play.transaction(insert(1), start=400, xid=701)


# ---------------------------------------------------------------- what cannot be
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([begin(), begin()], id="BEGIN inside a transaction"),
        pytest.param([commit()], id="COMMIT outside"),
        pytest.param([insert(1)], id="a row outside"),
        pytest.param([Truncate((ACCOUNTS,), cascade=False, restart_identity=False)], id="TRUNCATE"),
        pytest.param([begin(), insert(1, relation=1)], id="unknown relation"),
        pytest.param([begin(), Insert(ACCOUNTS, [b"1"])], id="another width"),
        pytest.param([begin(), Update(ACCOUNTS, "O", [b"1"], [b"1", b"a"])], id="another old row"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(messages: list[Message]) -> None:
    with pytest.raises(DecodeError):
        Play().feed(*messages)


def test_names_origins_and_logical_messages_are_no_rows() -> None:
    happened = Play().transaction(
        TypeMessage(1, "public", "mood"),
        OriginMessage(Lsn(1), "x"),
        Logical(True, Lsn(1), "p", b"c"),
    )
    assert happened == [PositionReached(1008)]


MESSAGES = MessageWriter("bank.message", 8, 9, "bank", "bank", EnvelopeOptions())


def message(happened: list[Happened]) -> dict[str, Any]:
    (record,) = (record for record in records(happened) if record[0] == "bank.message")
    assert record[3] is not None
    schema = fastavro.parse_schema(message_schema())
    out = fastavro.schemaless_reader(io.BytesIO(record[3][5:]), schema, None)
    assert isinstance(out, dict)
    return out


def test_messages_are_separate_from_rows_and_have_no_ordinal() -> None:
    happened = Play(messages=MESSAGES).transaction(
        insert(1), Logical(True, Lsn(900), "p", b"c"), insert(2)
    )

    said = message(happened)
    assert (said["op"], said["message"]) == ("m", {"prefix": "p", "content": b"c"})
    assert (said["source"]["txId"], said["source"]["lsn"], said["source"]["seq"]) == (700, 900, 41)
    rows = [r for r in records(happened) if r[0] == TOPIC]
    assert [position_of(record[4]).ordinal for record in rows] == [0, 1]
    assert happened[-1].rows == 2  # type: ignore[attr-defined]


# ---------------------------------------------------------------- transaction metadata
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


def test_begin_stands_before_the_first_event_and_end_behind_the_last_with_their_number() -> None:
    happened = Play(frames=FRAMES).transaction(insert(1), change(1, 2), insert(3))

    begin, end = frames(happened)
    committed = 946_684_801_000
    assert begin == {
        "status": "BEGIN", "id": "700:1000", "event_count": None, "data_collections": None,
        "ts_ms": committed,
    }  # fmt: skip
    assert end == {
        "status": "END", "id": "700:1000", "event_count": 3, "ts_ms": committed,
        "data_collections": [{"data_collection": "public.account", "event_count": 3}],
    }  # fmt: skip
    assert [r[0] for r in records(happened)] == [FRAMES.topic, TOPIC, TOPIC, TOPIC, FRAMES.topic]
    assert blocks(happened) == [(1, 1), (2, 2), (3, 3)]
    rows = [record for record in records(happened) if record[0] == TOPIC]
    assert [position_of(record[4]).ordinal for record in rows] == [0, 1, 2]
    assert happened[-1].rows == 3  # type: ignore[attr-defined]


def test_a_key_change_is_two_events_and_a_tombstone_is_none() -> None:
    happened = Play(keyed=True, frames=FRAMES).transaction(change(1, 2))

    assert frames(happened)[1]["event_count"] == 2
    assert blocks(happened) == [(1, 1), (2, 2)]


def test_a_row_that_widens_its_schema_is_counted_once() -> None:
    strict = replace(ACCOUNT, columns=(COLUMNS[0], replace(COLUMNS[1], nullable=False)))
    play = Play({ID: strict}, strict, frames=FRAMES)

    happened = play.transaction(insert(1, None), insert(2))

    assert len(play.published) == 2
    assert frames(happened)[1]["event_count"] == 2


def test_messages_are_counted_with_the_rows_and_lonely_ones_are_in_no_transaction() -> None:
    play = Play(messages=MESSAGES, frames=FRAMES)

    happened = play.transaction(insert(1), Logical(True, Lsn(900), "p", b"c"))
    lonely = play.feed(Logical(False, Lsn(2000), "p", b"c"))

    assert message(happened)["transaction"]["total_order"] == 2
    assert [c["data_collection"] for c in frames(happened)[1]["data_collections"]] == [
        "public.account", "message",
    ]  # fmt: skip
    assert frames(lonely) == []
    assert message(lonely)["transaction"] is None


def test_a_transaction_without_events_has_no_begin() -> None:
    happened = Play(frames=FRAMES).transaction(Lost("public", "account", "seen", "why"))

    assert records(happened) == []


def test_without_the_setting_no_row_is_in_a_transaction() -> None:
    happened = Play().transaction(insert(1))

    assert read(records(happened)[0])["transaction"] is None
    assert frames(happened) == []


def test_a_transaction_of_messages_alone_is_numbered_without_rows() -> None:
    *_, ended = Play(messages=MESSAGES).transaction(Logical(True, Lsn(1), "p", b""))

    assert isinstance(ended, TransactionEnded)
    assert (ended.seq, ended.rows) == (41, 0)


def test_a_message_outside_of_transactions_is_one_of_its_own_and_comes_once() -> None:
    play = Play(messages=MESSAGES)
    happened = play.feed(Logical(False, Lsn(1000), "p", b"c"))

    assert message(happened)["source"]["txId"] is None
    ended = happened[-1]
    assert isinstance(ended, TransactionEnded)
    assert (ended.seq, ended.commit_start, ended.end_lsn) == (41, 999, 1000)
    assert play.feed(Logical(False, Lsn(RESUME), "p", b"sent again")) == []
    assert play.transaction(insert(1))[-1].seq == 42  # type: ignore[attr-defined]


def test_a_commit_that_begins_where_a_message_ends_was_not_delivered_with_it() -> None:
    """SELECT pg_logical_emit_message(false, …); COMMIT: both have one position."""
    play = Play(messages=MESSAGES, transactions={RESUME - 1: 0})

    assert play.feed(Logical(False, Lsn(RESUME), "p", b"sent again")) == []
    happened = play.transaction(insert(1), start=RESUME)

    assert [position_of(record[4]).seq for record in records(happened)] == [41]


def test_a_message_of_any_prefix_is_payload_and_a_large_one_is_left_out() -> None:
    play = Play(messages=MESSAGES, max_row_bytes=300)

    happened = play.transaction(
        Logical(True, Lsn(1), "gauss-cdc.ddl", b"{}"),
        Logical(True, Lsn(1), "p", b"secret" * 100),
        Logical(True, Lsn(1), "p" * 280, b"secret"),
        insert(1),
    )

    prefixes = [r[2] for r in records(happened) if r[0] == MESSAGES.topic]
    assert len(prefixes) == 1
    assert happened[-1].rows == 1
    assert len(play.notes) == 1
    assert "secret" not in play.notes[0]


def test_a_row_above_the_limit_stops_with_its_place_and_without_its_content() -> None:
    play = Play(max_row_bytes=300)

    with pytest.raises(RowTooLarge, match="2/41/1") as caught:
        play.transaction(insert(1), insert(2, b"secret" * 100))

    assert "secret" not in str(caught.value)
    assert "max-row-bytes" in caught.value.hint


def test_an_unfit_row_is_put_aside_takes_no_ordinal_and_leaves_a_gap() -> None:
    aside: list[Unfit] = []
    play = Play(max_row_bytes=300, aside=aside)

    happened = play.transaction(
        insert(1), insert(2, b"secret" * 100), insert(3), insert(4, b"x" * 500), insert(5)
    )

    ended = happened[-1]
    assert isinstance(ended, TransactionEnded)
    assert (ended.seq, ended.rows) == (41, 3)
    assert ended.holes == (Hole("public.account", "seen", WHY),)
    assert [position.ordinal for position in positions(happened)] == [0, 1, 2]
    assert [(u.table, u.op, u.position, u.size) for u in aside] == [
        ("public.account", "c", "2/41/1", 601),
        ("public.account", "c", "2/41/2", 501),
    ]
    assert "secret" not in aside[0].why


def test_a_transaction_of_unfit_rows_alone_is_a_commit_with_a_gap() -> None:
    play = Play(max_row_bytes=300, aside=[])

    ended = play.transaction(insert(2, b"x" * 500))[-1]

    assert isinstance(ended, TransactionEnded)
    assert (ended.seq, ended.rows, len(ended.holes)) == (41, 0, 1)
    assert play.transaction(insert(3), start=2000)[-1].seq == 42  # type: ignore[attr-defined]


def test_counts_of_the_transaction_topic_leave_unfit_rows_out() -> None:
    play = Play(max_row_bytes=400, aside=[], frames=FRAMES)

    happened = play.transaction(insert(1), insert(2, b"x" * 500), insert(3))

    end = frames(happened)[1]
    assert end["event_count"] == 2
    assert end["data_collections"] == [{"data_collection": "public.account", "event_count": 2}]


def test_a_key_that_cannot_be_written_makes_its_row_unfit() -> None:
    aside: list[Unfit] = []
    play = Play(keyed=True, partitions=3, aside=aside)

    happened = play.transaction(insert(1), Insert(ACCOUNTS, [b"no number", b"x"]), insert(2))

    assert [position.ordinal for position in positions(happened)] == [0, 1]
    assert [u.why for u in aside] == ["a value cannot be written"]
    assert b"no number" in aside[0].content
    with pytest.raises(Unsupported, match="quarantine") as caught:
        Play(keyed=True, partitions=3).transaction(Insert(ACCOUNTS, [b"no number", b"x"]))
    assert "no number" not in str(caught.value)


# ---------------------------------------------------------------- tables
def test_a_table_is_bound_once_and_again_after_it_is_described_again() -> None:
    play = Play()
    play.transaction(insert(1), insert(2))
    play.transaction(insert(3), start=2000)
    assert len(play.published) == 1

    happened = play.transaction(described(*COLUMNS), insert(4), start=3000)

    assert len(play.published) == 2
    assert happened[0] == SchemaUsed(TOPIC, 2)


def test_a_new_shape_goes_out_as_ddl_before_its_first_row() -> None:
    play = Play()
    play.catalog = wider = replace(ACCOUNT, columns=(*COLUMNS, Column("note", 25)))

    happened = play.transaction(
        insert(1), described(*wider.columns), Insert(ACCOUNTS, [b"2", b"Bob", None])
    )

    assert [record[0] for record in records(happened)] == [TOPIC, DDL, TOPIC]
    assert positions(happened) == [CommitKey(2, 41, n) for n in range(3)]
    (change,) = play.changes
    assert (change.seq, change.ordinal, change.tag) == (41, 1, "ALTER TABLE")
    assert (change.before, change.after) == (ACCOUNT, wider)
    ended = happened[-1]
    assert isinstance(ended, TransactionEnded)
    assert (ended.rows, ended.ddl_ordinals, ended.holes) == (3, (1,), ())
    used = [event.schema_id for event in happened if isinstance(event, SchemaUsed)]
    assert used == [1, 2]


def test_gaps_of_a_change_are_in_its_transaction_only() -> None:
    play = Play()
    need = Column("rate", 23, nullable=False)
    play.catalog = replace(ACCOUNT, columns=(*COLUMNS, need))

    first = play.transaction(described(*COLUMNS, need), Insert(ACCOUNTS, [b"2", b"Bob", b"1"]))
    second = play.transaction(Insert(ACCOUNTS, [b"3", b"Eve", b"1"]), start=2000)

    assert isinstance(first[-1], TransactionEnded)
    assert isinstance(second[-1], TransactionEnded)
    assert [gap.table for gap in first[-1].holes] == ["public.account"]
    assert second[-1].holes == ()
    assert second[-1].ddl_ordinals == ()


def test_null_in_a_column_that_was_called_not_null_widens_the_schema() -> None:
    strict = (COLUMNS[0], replace(COLUMNS[1], nullable=False))
    play = Play({ID: replace(ACCOUNT, columns=strict)}, replace(ACCOUNT, columns=strict))

    happened = play.transaction(insert(1), insert(2, None), insert(3, None))

    assert kinds(happened) == [
        SchemaUsed,
        RowsAssembled,
        SchemaUsed,
        RowsAssembled,
        TransactionEnded,
    ]
    assert [table.columns[1].nullable for table in play.published] == [False, True]
    assert [len(event.records) for event in happened if isinstance(event, RowsAssembled)] == [1, 2]
    assert positions(happened) == [CommitKey(2, 41, n) for n in range(3)]
    assert play.changes == []


# ---------------------------------------------------------------- truncate
def test_truncate_is_one_record_a_partition_and_numbered_like_rows() -> None:
    truncate = Truncate((ACCOUNTS,), cascade=False, restart_identity=False)

    (one,) = records(Play().transaction(truncate))
    many = records(Play(partitions=3).transaction(truncate))

    assert read(one)["op"] == "t"
    assert [(record[1], read(record)["op"]) for record in many] == [(0, "t"), (1, "t"), (2, "t")]
    assert [position_of(record[4]).ordinal for record in many] == [0, 1, 2]


def test_a_truncate_has_no_key_where_rows_have_avro_keys() -> None:
    truncate = Truncate((ACCOUNTS,), cascade=False, restart_identity=False)

    (plain,) = records(Play().transaction(truncate))
    (keyed,) = records(Play(keyed=True).transaction(truncate))

    assert (plain[2], keyed[2]) == (b"public.account", None)


# ---------------------------------------------------------------- keys
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


def test_with_key_table_a_key_change_is_one_record() -> None:
    assert placed(Play().transaction(change(1, 2))) == [(b"public.account", 0, "u")]


@pytest.mark.parametrize("kind", ["K", "O"])
def test_a_key_change_is_the_update_and_a_delete_of_the_old_key_with_its_tombstone(
    kind: str,
) -> None:
    play = Play(keyed=True)

    happened = play.transaction(change(1, 2, kind), insert(3))

    assert placed(happened) == [(b"2", 0, "u"), (b"1", 0, "d"), (b"1", 0, None), (b"3", 0, "c")]
    assert [key.ordinal for key in positions(happened)] == [0, 1, 1, 2]
    buried = read(records(happened)[1])
    assert buried["before"] == {"id": 1, "owner": "Alice" if kind == "O" else None}
    assert buried["after"] is None
    assert isinstance(happened[-1], TransactionEnded)
    assert happened[-1].rows == 3  # a tombstone is a record, but no row


def test_an_update_that_leaves_the_key_alone_is_one_record() -> None:
    play = Play(keyed=True)

    assert placed(play.transaction(change(None, 2), change(2, 2, "O"))) == [
        (b"2", 0, "u"),
        (b"2", 0, "u"),
    ]


def test_a_delete_is_followed_by_its_tombstone() -> None:
    happened = Play(keyed=True).transaction(Delete(ACCOUNTS, "K", [b"7", None]))

    assert placed(happened) == [(b"7", 0, "d"), (b"7", 0, None)]


def test_rows_placed_by_key_change_places_with_it_and_have_no_tombstones() -> None:
    play = Play(partitions=3)

    happened = play.transaction(insert(1), change(1, 2), Delete(ACCOUNTS, "K", [b"2", None]))

    key = b"public.account"
    assert placed(happened) == [(key, 1, "c"), (key, 2, "u"), (key, 1, "d"), (key, 2, "d")]


def test_a_long_key_that_did_not_change_is_taken_from_the_old_row() -> None:
    play = Play(keyed=True)

    happened = play.transaction(Update(ACCOUNTS, "K", [b"7", None], [UNCHANGED, b"Bob"]))

    assert placed(happened) == [(b"7", 0, "u")]


@pytest.mark.parametrize(
    ("type_oid", "old", "new", "moves"),
    [
        (1700, b"1.0", b"1.00", False),
        (1700, b"1.0", b"1.01", True),
        (1042, b"a ", b"a", False),
        (25, b"a ", b"a", True),
        (99_001, b"1.0", b"1.00", False),
    ],
)
def test_a_key_that_is_equal_for_the_source_did_not_move(
    type_oid: int, old: bytes, new: bytes, moves: bool
) -> None:
    price = UserType("d", "price", "numeric", 1700) if type_oid == 99_001 else None
    columns = (Column("id", type_oid, nullable=False, user_type=price), COLUMNS[1])
    table = replace(ACCOUNT, columns=columns)
    play = Play({ID: table}, table, keyed=True)
    play.feed(described(*columns))

    happened = play.transaction(Update(ACCOUNTS, "K", [old, None], [new, b"Bob"]))

    assert len(records(happened)) == (3 if moves else 1)


# ---------------------------------------------------------------- small things
def test_partitions_are_librdkafkas() -> None:
    assert partition_of(b"public.account", 7) == 1_175_623_704 % 7  # crc32
    assert {partition_of(b"%d" % n, 4) for n in range(50)} == {0, 1, 2, 3}
    assert table_key(TableId("s", "金额")) == "s.金额".encode()


# ---------------------------------------------------------------- sources that report more
def test_csn_and_user_of_the_source_stand_in_headers_and_in_the_end() -> None:
    play = Play()

    happened = play.feed(Begin(Lsn(1000), 0, 700, csn=77, user="ana"), insert(1), commit())

    headers = dict(records(happened)[0][4])
    assert (headers["csn"], headers["user"]) == (b"77", b"ana")
    ended = happened[-1]
    assert isinstance(ended, TransactionEnded)
    assert (ended.csn, ended.user, ended.commit_start) == (77, "ana", 1000)


def test_what_is_lost_becomes_a_gap_of_its_transaction_once() -> None:
    play = Play()
    lost = Lost("public", "account", "seen", "DELETE without old values")

    happened = play.transaction(insert(1), lost, lost)

    ended = happened[-1]
    assert isinstance(ended, TransactionEnded)
    assert ended.holes == (Hole("public.account", "seen", "DELETE without old values"),)


def test_a_transaction_with_nothing_but_a_gap_is_numbered_for_it() -> None:
    play = Play()

    happened = play.transaction(Lost("public", "account", "seen", "why"))

    (ended,) = happened
    assert isinstance(ended, TransactionEnded)
    assert (ended.seq, ended.rows, len(ended.holes)) == (41, 0, 1)


def test_a_gap_of_a_table_that_is_not_captured_is_ignored() -> None:
    (only,) = Play().transaction(Lost("public", "other", "seen", "why"))

    assert only == PositionReached(1008)


def test_undecodable_bytes_that_were_not_kept_stop_the_stream() -> None:
    with pytest.raises(DecodeError):
        Play().transaction(Undecoded(b"?", "unknown letter"))


# ---- what the catalog shows


def test_what_the_catalog_shows_is_a_transaction_of_its_own_between_two_others() -> None:
    play = Play()
    play.feed(described(*COLUMNS), begin(1000), insert(1), commit(1000))
    unseen = Unseen(ID, "was dropped and made again")

    happened = play.assembler.explain([unseen, unseen], 2000)

    (ended,) = happened
    assert isinstance(ended, TransactionEnded)
    assert (ended.seq, ended.rows, ended.commit_start, ended.end_lsn) == (42, 0, 2000, 2000)
    assert ended.holes == (unseen.gap,)
    assert not play.assembler.is_open
    # The next commit may begin just there: it comes again after a restart, and counts.
    assert positions(play.feed(begin(2000), insert(2), commit(2000))) == [CommitKey(2, 43, 0)]
    again = Play()
    again.assembler._resume = 2000  # as a new self goes on
    assert len(records(again.feed(described(*COLUMNS), begin(2000), insert(2), commit(2000)))) == 1


def test_a_shape_of_the_catalog_is_reported_as_the_next_row_would_and_once() -> None:
    wide = replace(ACCOUNT, columns=(*COLUMNS, Column("more", 23, type_name="integer")))
    play = Play(catalog=wide)
    play.feed(described(*COLUMNS), begin(1000), insert(1), commit(1000))
    shown = Described(ID, described(*wide.columns))

    first = play.assembler.explain([shown], 2000)
    assert [change.after for change in play.changes] == [play.relations.known[ID]]
    assert play.relations.known[ID].names() == ("id", "owner", "more")
    assert (first[-1].rows, first[-1].ddl_ordinals, first[-1].holes) == (1, (0,), ())
    assert play.assembler.explain([shown], 2000)[-1:] != [first[-1]]
    assert len(play.changes) == 1, "the same again is not a change"


def test_a_table_that_is_gone_is_dropped_and_may_come_back() -> None:
    play = Play()

    happened = play.assembler.explain([Dropped(ID, ACCOUNT)], 2000)

    assert [(c.tag, c.before, c.after) for c in play.changes] == [("DROP TABLE", ACCOUNT, None)]
    assert happened[-1].ddl_ordinals == (0,)
    assert play.relations.known == {}
    play.feed(described(*COLUMNS), begin(3000), insert(1), commit(3000))
    assert [c.tag for c in play.changes] == ["DROP TABLE", "CREATE TABLE"]


def test_values_that_read_otherwise_are_a_gap_and_a_shape() -> None:
    play = Play()
    after = replace(ACCOUNT, columns=(COLUMNS[0], replace(COLUMNS[1], type_name="citext")))

    happened = play.assembler.explain([Altered(ID, ACCOUNT, after, "labels")], 2000)

    assert happened[-1].holes == (Hole("public.account", "seen", "labels"),)
    assert play.relations.known == {ID: after}
    assert play.changes[0].lossy == "labels"


# ---------------------------------------------------------------- the way of a row
@pytest.mark.parametrize("keyed", [False, True])
def test_a_row_enters_no_module_twice(keyed: bool) -> None:
    """From the decoder on, once its table is bound."""
    play = Play(keyed=keyed)
    calls: list[str] = []
    decoded = 0

    def module(frame: FrameType | None) -> str:
        path = Path(frame.f_code.co_filename) if frame is not None else ROOT
        return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT / "producer") else ""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (here := module(frame)) and here != module(frame.f_back):
            calls.append(here)

    def decode(message: Any) -> Message:
        nonlocal decoded
        if isinstance(message, Insert):
            decoded += 1
            sys.setprofile(note if decoded == 2 else before)  # the second of three rows
        return message  # type: ignore[no-any-return]

    before = sys.getprofile()
    stream = PgoutputStream(
        decode, play.known, wanted=lambda _: True, publication="", judge=lambda _: Trust.FOREIGN
    )
    messages: list[Any] = [described(*COLUMNS), begin(), insert(1), insert(2), insert(3), commit()]
    play.assembler.feed(stream.messages([(1000, 1000, message) for message in messages]))

    entered = [name for name, _ in groupby(calls)]
    assert "producer/core/row_writer.py" in entered
    assert "producer/core/transactions.py" in entered
    assert len(entered) == len(set(entered))
