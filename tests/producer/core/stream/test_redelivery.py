"""Conversations between a source that sends again and what was delivered."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import pytest

from producer.core.changes import Begin
from producer.core.stream.redelivery import Delivered, DeliveredPart, Redelivery
from producer.errors import HistoryDiffers
from producer.wire.replication import EPOCH_2000_US
from schemas.positions import Lsn
from schemas.tables import TableId

CONFIRMED, RESUME = 100, 500
A, B = TableId("public", "a"), TableId("public", "b")
TOPICS = {A: "bank.public.a", B: "bank.public.b"}
EXACT = frozenset(TOPICS.values())
OID = 16384  # of A
NOON = 1_000_000


def known(start: int, xid: int, *, at: int = NOON, is_compared: bool = True) -> Delivered:
    return Delivered(start, xid, EPOCH_2000_US + at, is_compared)


@dataclass
class Play:
    """A source that sends one transaction after the other."""

    parts: list[DeliveredPart]
    confirmed: int = CONFIRMED
    read: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.redelivery = Redelivery(
            RESUME,
            confirmed=self.confirmed,
            parts=self._parts(),
            topics=TOPICS,
            oids={OID: A},
            note=self.notes.append,
        )

    def _parts(self) -> Iterator[DeliveredPart]:
        for part in self.parts:
            self.read.append(part.resume)
            yield part

    def sends(self, start: int, xid: int, *tables: TableId, at: int = NOON) -> Self:
        self.redelivery.begin(Begin(Lsn(start), at, xid))
        self.redelivery.rows_of(tables)
        return self


PARTS = [
    DeliveredPart(200, (known(110, 1), known(150, 2)), EXACT),
    DeliveredPart(300, (known(210, 3),), EXACT),
    DeliveredPart(RESUME, (), EXACT),
]


def test_the_same_transactions_are_passed_over_and_the_first_new_one_ends_it() -> None:
    play = Play(PARTS)

    play.sends(110, 1, A).sends(150, 2, A).sends(210, 3, B)
    assert not play.redelivery.is_over
    play.sends(RESUME, 4, A)

    assert play.redelivery.is_over
    (note,) = play.notes
    assert "3 transactions from 0/64 on" in note


def test_cuts_are_read_as_far_as_the_stream_has_come() -> None:
    play = Play(PARTS)

    play.sends(110, 1, A)
    assert play.read == [200]
    play.sends(150, 2, A).sends(210, 3, A)
    assert play.read == [200, 300]


def test_one_that_is_not_sent_again_stops_when_a_later_one_is() -> None:
    with pytest.raises(HistoryDiffers, match=r"does not send .* \(lsn=0/96, xid=2\)"):
        Play(PARTS).sends(110, 1, A).sends(210, 3, A)


@pytest.mark.parametrize("position", [RESUME, RESUME + 1])
def test_one_that_is_not_sent_again_stops_where_the_source_has_nothing_before_resume(
    position: int,
) -> None:
    play = Play(PARTS).sends(110, 1, A).sends(150, 2, A)
    play.redelivery.reached(RESUME - 1)

    with pytest.raises(HistoryDiffers, match="xid=3"):
        play.redelivery.reached(position)


def test_another_one_at_the_position_of_one_that_was_delivered_stops() -> None:
    with pytest.raises(HistoryDiffers, match=r"is not the one .* \(lsn=0/6E, ours=1, theirs=9\)"):
        Play(PARTS).sends(110, 9)
    with pytest.raises(HistoryDiffers, match=r"ours=1, theirs=1"):
        Play(PARTS).sends(110, 1, at=NOON + 1)


@pytest.mark.parametrize("xid", [0, 1])
@pytest.mark.parametrize("at", [0, NOON])
def test_what_a_source_does_not_tell_is_not_compared(xid: int, at: int) -> None:
    play = Play(PARTS).sends(110, xid, at=at)

    assert not play.redelivery.is_unknown


def test_one_that_was_not_delivered_stops_at_a_row_of_a_table_that_was_exact() -> None:
    play = Play([DeliveredPart(200, (), frozenset({TOPICS[B]})), DeliveredPart(RESUME, (), EXACT)])

    play.sends(120, 1, A).sends(130, 2).sends(140, 3, TableId("public", "other"), A)
    assert play.redelivery.is_unknown
    with pytest.raises(HistoryDiffers, match=r"not delivered, .*xid=4, table=public.b"):
        play.sends(150, 4, A, B)


def test_a_table_that_the_other_history_renamed_is_found_by_its_oid() -> None:
    play = Play([DeliveredPart(RESUME, (), EXACT, names_hold=True)])
    other = TableId("public", "renamed")

    play.redelivery.begin(Begin(Lsn(120), NOON, 1))
    play.redelivery.rows_of([other], [OID + 1])
    with pytest.raises(HistoryDiffers, match=r"not delivered, .*table=public.a"):
        play.redelivery.rows_of([other], [OID])


def test_an_oid_says_nothing_where_what_was_delivered_may_have_renamed_its_table() -> None:
    parts = [DeliveredPart(200, (), EXACT), DeliveredPart(RESUME, (), EXACT, names_hold=True)]
    other = TableId("public", "former")

    play = Play(parts).sends(199, 1)
    play.redelivery.rows_of([other], [OID])
    play.sends(200, 2)
    with pytest.raises(HistoryDiffers):
        play.redelivery.rows_of([other], [OID])


def test_a_table_that_was_exact_under_the_name_of_then_is_found_by_it() -> None:
    """It is called otherwise now, or is not delivered any more."""
    former = TableId("public", "former")
    parts = [
        DeliveredPart(200, (), (), names=lambda: {"public.former"}),
        DeliveredPart(RESUME, (), ()),
    ]
    Play(parts).sends(120, 1, TableId("hidden", "former"), A).sends(210, 2, former)

    with pytest.raises(HistoryDiffers, match=r"was not delivered, .*table=public\.former"):
        Play(parts).sends(120, 1, former)


def test_a_table_that_was_not_exact_is_not_found_by_its_oid_either() -> None:
    play = Play([DeliveredPart(RESUME, (), {TOPICS[B]}, names_hold=True)]).sends(120, 1)

    play.redelivery.rows_of([TableId("public", "renamed")], [OID])

    assert play.redelivery.is_unknown


def test_what_was_asked_for_one_transaction_is_not_asked_for_the_next() -> None:
    play = Play([DeliveredPart(RESUME, (known(150, 2),), EXACT)])

    play.sends(120, 1)  # one that was not delivered, without rows
    play.sends(150, 2, A)

    assert not play.redelivery.is_unknown


def test_a_table_is_exact_at_a_commit_as_the_record_that_covers_it_says() -> None:
    hidden = [DeliveredPart(200, (), frozenset()), DeliveredPart(RESUME, (), EXACT)]

    Play(hidden).sends(199, 1, A)
    with pytest.raises(HistoryDiffers):
        Play(hidden).sends(200, 1, A)


def test_no_row_is_asked_for_of_one_that_was_delivered() -> None:
    play = Play(PARTS).sends(110, 1)
    tables = iter([A])

    play.redelivery.rows_of(tables)

    assert list(tables) == [A]


def test_transactions_of_ours_and_of_tables_that_are_not_delivered_now_may_be_missing() -> None:
    ours = known(300, 0, at=5, is_compared=False)
    gone = known(310, 7, is_compared=False)
    parts = [
        DeliveredPart(300, (ours,), EXACT),
        DeliveredPart(RESUME, (gone, known(320, 8)), EXACT),
    ]

    play = Play(parts).sends(320, 8, A)
    play.redelivery.reached(RESUME)

    assert play.redelivery.is_over


def test_a_commit_may_begin_where_a_transaction_of_ours_stands() -> None:
    ours = known(300, 0, at=5, is_compared=False)
    for parts in (
        [DeliveredPart(300, (ours,), EXACT), DeliveredPart(RESUME, (known(300, 8),), EXACT)],
        [DeliveredPart(RESUME, (ours, known(300, 8)), EXACT)],
    ):
        play = Play(parts).sends(300, 8, A)
        play.redelivery.reached(RESUME)

        assert play.notes


def test_what_was_confirmed_is_not_expected() -> None:
    play = Play(PARTS, confirmed=150).sends(150, 2, A).sends(210, 3, A)
    play.redelivery.end()

    assert play.redelivery.is_over


@pytest.mark.parametrize("confirmed", [0, RESUME, RESUME + 1])
def test_nothing_is_compared_where_nothing_is_sent_again_or_the_place_is_not_known(
    confirmed: int,
) -> None:
    play = Play(PARTS, confirmed=confirmed)

    assert play.redelivery.is_over
    play.sends(110, 9, A)
    assert (play.read, play.notes) == ([], [])


def test_the_way_out_is_named() -> None:
    with pytest.raises(HistoryDiffers) as caught:
        Play(PARTS).sends(110, 9)

    assert "`gauss-cdc run --accept-gap`" in caught.value.hint
    assert caught.value.exit_code == 19
