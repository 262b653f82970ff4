"""Messages become records with their places: one source transaction after the other."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from producer.core.changes import (
    Begin,
    Cells,
    Delete,
    Insert,
    Logical,
    Lost,
    Message,
    OriginMessage,
    SentAgain,
    Truncate,
    TypeMessage,
    Undecoded,
    Update,
)
from producer.core.events import (
    PositionReached,
    RowsAssembled,
    SchemaUsed,
    TransactionEnded,
)
from producer.core.shape_change import StatementChanges
from producer.core.stream.redelivery import Delivered, DeliveredPart, Redelivery
from producer.core.stream.relations import Relations
from producer.errors import DecodeError, HistoryDiffers
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers.records import Trust
from producer.wire.replication import EPOCH_2000_US
from schemas.control import Hole, Origin
from schemas.positions import CommitKey, Lsn
from schemas.tables import UNCHANGED, Column, TableId
from tests.producer.core.assembling import (
    ACCOUNT,
    ACCOUNTS,
    COLUMNS,
    ID,
    MESSAGES,
    OTHERS,
    RESUME,
    TOPIC,
    Play,
    begin,
    commit,
    described,
    insert,
    kinds,
    positions,
    read,
    records,
)

ROOT = Path(__file__).parents[4]


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


class ByOid(Play):
    """The world of a server whose relation ids are oids."""

    def make_relations(self) -> Relations:
        return Relations(
            {ID: replace(ACCOUNT, oid=ACCOUNTS)},
            read_catalog=lambda _: replace(ACCOUNT, oid=ACCOUNTS),
            name_table=lambda _: ID,
            root_of=lambda oid: {PART: ACCOUNTS}.get(oid, 0),
            wanted=lambda table: table in {ID, WHOLE},
            new_tables_are_complete=True,
        )


WHOLE, PART = TableId("public", "whole"), 16395
AS_ROOT = (described(*COLUMNS, relation=OTHERS, table=WHOLE), described(*COLUMNS))


@pytest.mark.parametrize(
    "row",
    [
        insert(1, relation=OTHERS),
        Update(OTHERS, "", None, [b"1", b"Bob"]),
        Delete(OTHERS, "K", [b"1", None]),
    ],
)
def test_a_row_that_comes_as_one_of_a_root_is_missing_in_its_own_table(row: Message) -> None:
    """The catalog shows no partition any more where it is one for a transaction."""
    *_, ended = ByOid().transaction(AS_ROOT[0], TypeMessage(9, "public", "mood"), AS_ROOT[1], row)

    assert isinstance(ended, TransactionEnded)
    assert [hole.table for hole in ended.holes] == ["public.account", "public.whole"]


@pytest.mark.parametrize(("root", "count"), [(OTHERS, 2), (ACCOUNTS, 0)])
def test_a_row_of_a_partition_whose_root_had_one_for_a_while(root: int, count: int) -> None:
    """Its own root is captured, and the row came as one of the table above that."""
    part = described(*COLUMNS, relation=PART, table=TableId("public", "part"))
    play, row = ByOid(), insert(1, relation=root)

    *_, ended = play.transaction(*AS_ROOT[: 1 if root == OTHERS else 2], part, row)

    assert isinstance(ended, TransactionEnded)
    assert len(ended.holes) == count


@pytest.mark.parametrize(
    "messages",
    [
        (*AS_ROOT, insert(1)),
        (AS_ROOT[1], insert(1), AS_ROOT[0], insert(2, relation=OTHERS)),
        (
            *AS_ROOT,
            Truncate((OTHERS, ACCOUNTS), cascade=False, restart_identity=False),
            insert(2, relation=OTHERS),
        ),
        (AS_ROOT[0], described(*COLUMNS, relation=7), insert(1, relation=OTHERS)),
    ],
)
def test_a_row_behind_its_own_description_is_of_that_table(messages: Iterable[Message]) -> None:
    *_, ended = ByOid().transaction(*messages)

    assert isinstance(ended, TransactionEnded)
    assert ended.holes == ()


def test_a_description_that_follows_from_a_statement_is_of_no_row() -> None:
    """Renamed tables are described again; then the trigger deletes its record."""
    renamed = described(*COLUMNS)
    *_, ended = ByOid().transaction(
        AS_ROOT[0],
        StatementChanges((), Origin.TRIGGER),
        renamed,
        Delete(OTHERS, "K", [b"1", None]),
        described(*COLUMNS),
        insert(1),
    )

    assert isinstance(ended, TransactionEnded)
    assert ended.holes == ()
    *_, ended = ByOid().transaction(
        StatementChanges((), Origin.TRIGGER), insert(1), *AS_ROOT, insert(2, relation=OTHERS)
    )
    assert isinstance(ended, TransactionEnded)
    assert len(ended.holes) == 2, "behind the next row a description counts again"


def test_a_row_that_came_as_one_of_a_root_and_was_delivered_before_is_no_gap() -> None:
    play = ByOid(redelivery=Redelivery(2000))
    row = insert(1, relation=OTHERS)

    assert not [one for one in play.transaction(*AS_ROOT, row) if hasattr(one, "holes")]


def test_undecodable_bytes_that_were_not_kept_stop_the_stream() -> None:
    with pytest.raises(DecodeError):
        Play().transaction(Undecoded(b"?", "unknown letter"))


@pytest.mark.parametrize(
    "row",
    [
        Insert(ACCOUNTS, [b"1"]),
        Insert(ACCOUNTS, [b"1", b"Alice", b"x"]),
        Update(ACCOUNTS, "O", [b"1"], [b"1", b"Alice"]),
    ],
)
def test_a_row_of_another_width_than_its_table_stops_the_stream(row: Message) -> None:
    with pytest.raises(DecodeError, match="does not fit its relation"):
        Play().transaction(row)


def test_a_long_key_value_that_is_not_sent_again_is_that_of_the_old_row() -> None:
    binding = replace(Play().publish(ACCOUNT), key_at=(0, 1))
    old: Cells = [b"1", b"Alice"]

    assert binding.moved(old, [UNCHANGED, b"Bob"]) == ([b"1", b"Bob"], old)
    assert binding.moved(old, [b"1", UNCHANGED]) == (old, None)


def test_rows_that_are_sent_again_and_were_not_delivered_stop_the_stream() -> None:
    parts = [DeliveredPart(RESUME, (), {TOPIC})]
    play = Play(redelivery=Redelivery(RESUME, confirmed=100, parts=parts, topics={ID: TOPIC}))

    with pytest.raises(HistoryDiffers):
        play.feed(begin(200), SentAgain((ID,)))


def test_rows_of_a_table_under_another_name_stop_the_stream_too() -> None:
    parts = [DeliveredPart(RESUME, (), {TOPIC}, names_hold=True)]
    again = Redelivery(RESUME, confirmed=100, parts=parts, topics={ID: TOPIC}, oids={7: ID})
    play = Play(redelivery=again)

    with pytest.raises(HistoryDiffers):
        play.feed(begin(200), SentAgain((TableId("public", "renamed"),), [7]))


def test_what_is_sent_again_is_over_with_the_end_of_the_last_that_was_delivered() -> None:
    last = Delivered(RESUME - 8, 700, EPOCH_2000_US + 1_000_000, is_compared=True)
    parts = [DeliveredPart(RESUME, (last,), {TOPIC})]
    play = Play(redelivery=Redelivery(RESUME, confirmed=100, parts=parts, topics={ID: TOPIC}))
    assert not play.assembler.has_compared

    assert play.transaction(insert(1), start=RESUME - 8) == []

    assert play.assembler.has_compared


def test_a_message_behind_what_was_delivered_shows_that_a_commit_is_missing() -> None:
    last = Delivered(RESUME - 8, 700, EPOCH_2000_US + 1_000_000, is_compared=True)
    parts = [DeliveredPart(RESUME, (last,), {TOPIC})]
    again = Redelivery(RESUME, confirmed=100, parts=parts, topics={ID: TOPIC})
    play = Play(redelivery=again, messages=MESSAGES)

    with pytest.raises(HistoryDiffers):
        play.feed(Logical(False, Lsn(RESUME + 1), "p", b"c"))


@pytest.mark.parametrize(
    "outside", [Lost("", "", "seen", "why"), StatementChanges((), Origin.TRIGGER), insert(2)]
)
def test_what_follows_a_transaction_that_was_delivered_is_not_passed_over(outside: Any) -> None:
    play = Play()
    play.transaction(insert(1), start=RESUME - 100)

    with pytest.raises(DecodeError, match="outside a transaction"):
        play.feed(outside)


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
    assert "producer/core/stream/row_writer.py" in entered
    assert "producer/core/stream/transactions.py" in entered
    assert len(entered) == len(set(entered))
