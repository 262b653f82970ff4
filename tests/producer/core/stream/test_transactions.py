"""Messages outside of rows, and the topic of transactions: begin, end and what they count."""

from dataclasses import replace

import pytest

from producer.core.catalog.catalog_watch import Unseen
from producer.core.changes import (
    Logical,
    Lost,
)
from producer.core.events import (
    RowsAssembled,
    TransactionEnded,
)
from producer.core.stream.redelivery import Delivered, DeliveredPart, Redelivery
from producer.core.stream.transactions import Transactions
from producer.core.stream.walk import Lent, Stage, Walk
from producer.errors import HistoryDiffers
from producer.wire.replication import EPOCH_2000_US
from schemas.positions import Lsn
from tests.producer.core.assembling import (
    ACCOUNT,
    COLUMNS,
    FRAMES,
    ID,
    MESSAGES,
    RESUME,
    TOPIC,
    Play,
    begin,
    blocks,
    change,
    frames,
    insert,
    message,
    position_of,
    read,
    records,
)


def test_messages_are_separate_from_rows_and_have_no_ordinal() -> None:
    happened = Play(messages=MESSAGES).transaction(
        insert(1), Logical(True, Lsn(900), "p", b"c"), insert(2)
    )

    said = message(happened)
    assert (said["op"], said["message"]) == ("m", {"prefix": "p", "content": b"c"})
    assert (said["source"]["txId"], said["source"]["lsn"], said["source"]["seq"]) == (700, 900, 41)
    rows = [r for r in records(happened) if r[0] == TOPIC]
    assert [position_of(record[4]).ordinal for record in rows] == [0, 1]
    (headers,) = (dict(r[4]) for r in records(happened) if r[0] == MESSAGES.topic)
    assert headers.keys() >= {"xid", "csn", "lsn"}
    assert headers["xid"] == dict(rows[0][4])["xid"]
    assert happened[-1].rows == 2  # type: ignore[attr-defined]


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


def test_frames_count_in_the_size_of_what_is_buffered() -> None:
    happened = Play(frames=FRAMES).transaction(insert(1))

    batches = [each for each in happened if isinstance(each, RowsAssembled)]
    key_and_value = {TOPIC: (2, 3), FRAMES.topic: (3,)}
    sent = [record for batch in batches for record in batch.records]
    assert len(sent) == 3
    assert sum(batch.size for batch in batches) == sum(
        len(record[at] or b"") for record in sent for at in key_and_value[record[0]]
    )


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
    play = Play(messages=MESSAGES)

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

    kept = [r for r in records(happened) if r[0] == MESSAGES.topic]
    assert len(kept) == 1
    assert happened[-1].rows == 1
    assert len(play.notes) == 1
    assert "secret" not in play.notes[0]

    size = len(kept[0][2] or b"") + len(kept[0][3] or b"")
    for room, count in ((size, 1), (size - 1, 0)):
        play = Play(messages=MESSAGES, max_row_bytes=room)
        happened = play.transaction(Logical(True, Lsn(1), "gauss-cdc.ddl", b"{}"))
        assert len([r for r in records(happened) if r[0] == MESSAGES.topic]) == count
        assert len(play.notes) == 1 - count


def test_a_message_that_is_left_out_before_it_is_a_record_is_told() -> None:
    play = Play(messages=MESSAGES, max_row_bytes=300)

    play.transaction(Logical(True, Lsn(1), "p", b"x" * 301), insert(1))

    assert len(play.notes) == 1


def test_messages_count_in_the_size_of_what_is_buffered() -> None:
    play = Play(messages=MESSAGES)

    happened = play.transaction(Logical(True, Lsn(1), "p", b"x" * 9_000))

    (batch,) = (each for each in happened if isinstance(each, RowsAssembled))
    assert batch.size == sum(len(r[2] or b"") + len(r[3] or b"") for r in batch.records)


def test_gaps_of_a_transaction_are_in_their_order() -> None:
    (ended,) = Play().assembler.explain([Unseen(ID, why) for why in ("one", "two")], 5_000)

    assert isinstance(ended, TransactionEnded)
    assert [gap.why for gap in ended.holes] == ["one", "two"]


@pytest.mark.parametrize(("positions_are_csns", "csn"), [(True, 5_000), (False, 0)])
def test_a_gap_of_our_own_has_its_place_s_csn_or_none(positions_are_csns: bool, csn: int) -> None:
    """A position of the log among CSNs would make all later ones seem to have gone back."""
    play = Play(positions_are_csns=positions_are_csns)

    (ended,) = play.assembler.explain([Unseen(ID, "was emptied")], 5_000)

    assert isinstance(ended, TransactionEnded)
    assert (ended.xid, ended.csn, ended.commit_start) == (0, csn, 5_000)


@pytest.mark.parametrize("stage", [Stage.NONE, Stage.BEGUN])
def test_the_walker_takes_nothing_before_all_that_was_sent_again_was_compared(stage: Stage) -> None:
    """It leaves a BEGIN to Python only if the transaction was delivered."""
    lost = Delivered(150, 9, EPOCH_2000_US, is_compared=True)
    again = Redelivery(200, confirmed=100, parts=[DeliveredPart(200, [lost], ())])
    transactions = Transactions(
        epoch=1, seq=1, redelivery=again, now_us=lambda: 0, ddl_topic="bank.ddl"
    )
    position = 0 if stage else 208
    walk = Walk(1, [], Lent(stage, 1, 0, 0, commit_lsn=200), position, [])

    with pytest.raises(HistoryDiffers, match="xid=9"):
        transactions.take_back(walk)

    assert not transactions.take()


def test_where_the_walker_took_a_whole_transaction_none_is_open_or_passed_over() -> None:
    transactions = Transactions(
        epoch=1, seq=1, redelivery=Redelivery(200), now_us=lambda: 0, ddl_topic="bank.ddl"
    )
    transactions.open(begin(100))
    assert transactions.is_skipped

    transactions.take_back(Walk(1, [], Lent(Stage.NONE, 1, 0, 0), 0, []))

    assert (transactions.begin, transactions.is_skipped) == (None, False)


@pytest.mark.parametrize(("end", "is_over"), [(200, True), (199, False)])
def test_the_walker_tells_where_a_delivered_transaction_ended(end: int, *, is_over: bool) -> None:
    """Where keepalives tell no position, nothing else says that all was sent again."""
    again = Redelivery(200, confirmed=100, parts=[DeliveredPart(200, [], ())])
    transactions = Transactions(
        epoch=1, seq=1, redelivery=again, now_us=lambda: 0, ddl_topic="bank.ddl"
    )
    transactions.open(begin(150))

    transactions.take_back(Walk(1, [], Lent(Stage.NONE, 1, 0, 0), 0, [], end))

    assert again.is_over == is_over


def test_begin_and_end_say_of_which_epoch_they_are_as_rows_do() -> None:
    begin, row, end = records(Play(frames=FRAMES).transaction(insert(1)))

    told = {name: value for name, value in row[4] if name not in {"position", "lsn"}}
    assert told
    assert told.items() <= dict(begin[4]).items()
    assert begin[4] == end[4]
