"""A row that cannot be written stops the stream, or is put aside with a gap of its table."""

import pytest

from producer.core.changes import (
    Insert,
)
from producer.core.events import (
    TransactionEnded,
)
from producer.core.records.transaction_topic import Counted
from producer.core.stream.unfit import WHY, Unfit
from producer.errors import RowTooLarge, Unsupported
from schemas.control import Hole
from tests.producer.core.assembling import (
    ACCOUNTS,
    FRAMES,
    Play,
    frames,
    insert,
    positions,
    records,
)


def test_a_row_above_the_limit_stops_with_its_place_and_without_its_content() -> None:
    play = Play(max_row_bytes=300)

    with pytest.raises(RowTooLarge, match="2/41/1") as caught:
        play.transaction(insert(1), insert(2, b"secret" * 100))

    assert "secret" not in str(caught.value)
    assert "max-row-bytes" in caught.value.hint


def test_a_row_may_have_as_many_bytes_as_the_limit_says() -> None:
    (record,) = records(Play().transaction(insert(1)))
    assert record[3] is not None
    size = len(record[3])

    assert len(records(Play(max_row_bytes=size).transaction(insert(1)))) == 1
    with pytest.raises(RowTooLarge):
        Play(max_row_bytes=size - 1).transaction(insert(1))


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


@pytest.mark.parametrize(("size", "is_kept"), [((1 << 17) - 1, True), (1 << 17, False)])
def test_cells_are_kept_that_fit_into_a_record_whatever_their_bytes_become(
    size: int, is_kept: bool
) -> None:
    aside: list[Unfit] = []

    Play(max_row_bytes=300, aside=aside).transaction(insert(1, b"x" * size))

    assert [(u.size, bool(u.content)) for u in aside] == [(size + 1, is_kept)]


def test_what_is_kept_is_read_as_text_and_bytes_that_are_none_are_escaped() -> None:
    aside: list[Unfit] = []

    Play(max_row_bytes=30, aside=aside).transaction(insert(1, "Grün".encode() + b"\xff"))

    assert (
        aside[0].content == r'{"before": null, "after": {"id": "1", "owner": "Grün\\xff"}}'.encode()
    )


def test_an_event_that_was_not_counted_is_not_taken_back() -> None:
    counted = Counted("700:99")

    counted.take_back("public.account", 0)

    assert (counted.total, counted.of) == (0, {})
