"""Playbooks of the delivery engine: what happened, and what is to be done about it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.core.delivery.engine import Engine, Phase, WriterState
from producer.core.delivery.tally import Runs
from producer.core.events import (
    CommitPart,
    Confirm,
    CutsDurable,
    Fate,
    Flush,
    InputDrained,
    Limits,
    PartDurable,
    PositionReached,
    Record,
    SchemaUsed,
    SendRows,
    StopAsked,
    Stopped,
    Ticked,
    TopicsChanged,
    Walked,
    WriteCuts,
)
from producer.core.key_ranges import Upto, voided
from producer.errors import GroupUnusable
from schemas.control import (
    PENDING,
    Commits,
    DdlPlace,
    Heartbeat,
    Hole,
    LoadPhase,
    Looked,
    Range,
    State,
    Topic,
)
from tests.producer.core.play import (
    ACCOUNT,
    AUDIT,
    DDL,
    IDENTITY,
    MESSAGES,
    START,
    TOPICS,
    Playbook,
    ended,
    plain_tally,
    row,
    rows,
)

A0, A1, U0 = (ACCOUNT, 0), (ACCOUNT, 1), (AUDIT, 0)


def offsets(place: tuple[str, int], *at: int) -> list[tuple[str, int, int]]:
    return [(*place, offset) for offset in at]


# ---------------------------------------------------------------- a group, from rows to confirm
def test_rows_go_out_as_they_come_and_the_slot_moves_only_after_rows_and_cut_are_durable() -> None:
    play = Playbook()
    first = rows(2)

    play.feed(first).expect(SendRows(first.records))
    play.feed(ended(1, 2, end_lsn=250)).expect()
    play.feed(InputDrained()).expect(Flush())
    play.acknowledge((*A0, 10)).expect()
    play.acknowledge((*A0, 11)).kinds(WriteCuts)
    play.durable(3).expect(Confirm(250))


def test_a_cut_says_everything_about_its_commits() -> None:
    play = Playbook()
    play.feed(SchemaUsed(ACCOUNT, 42), rows(1), ended(1, 1), rows(2), ended(2, 2), InputDrained())

    (cut,) = play.acknowledge(*offsets(A0, 10, 11, 12)).cuts

    assert isinstance(cut, Commits)
    assert (cut.head.n, cut.head.last_seq, cut.head.resume, cut.head.state_from) == (2, 2, 310, 7)
    assert [(e.seq, e.xid, e.commit_start, e.end_lsn) for e in cut.commits] == [
        (1, 701, 200, 210),
        (2, 702, 300, 310),
    ]
    assert cut.ranges == (Range(ACCOUNT, 0, 10, 13),)
    assert [e.counts for e in cut.commits] == [{0: 1}, {0: 2}]
    assert cut.schema_ids == {ACCOUNT: (42,)}


def test_messages_are_awaited_and_named_by_no_cut() -> None:
    play = Playbook()
    play.feed(rows(1), rows(1, topic=MESSAGES), ended(1, 1), rows(1, topic=MESSAGES))
    play.feed(ended(2, 0), InputDrained())

    play.acknowledge((*A0, 10), (MESSAGES, 0, 7)).expect()
    (cut,) = play.acknowledge((MESSAGES, 0, 8)).cuts

    assert isinstance(cut, Commits)
    assert cut.ranges == (Range(ACCOUNT, 0, 10, 11),)
    assert [e.counts for e in cut.commits] == [{0: 1}, {}]


@pytest.mark.parametrize(
    "limits",
    [Limits(group_rows=3), Limits(group_commits=2), Limits(cut_bytes=132)],
    ids=["rows", "commits", "size of the cut"],
)
def test_a_group_closes_by(limits: Limits) -> None:
    play = Playbook(limits)

    play.feed(rows(2), ended(1, 2)).kinds(SendRows)
    play.feed(rows(1), ended(2, 1)).kinds(SendRows, Flush)


def test_a_group_closes_by_age_when_more_keeps_coming() -> None:
    play = Playbook(Limits(group_seconds=0.5))

    play.feed(rows(1), ended(1, 1)).kinds(SendRows)
    play.at(10.25).expect()
    play.feed(rows(1), ended(2, 1)).kinds(SendRows)
    play.at(10.5).expect(Flush())


def test_a_group_never_closes_inside_a_source_transaction() -> None:
    play = Playbook(Limits(group_rows=1, group_commits=1, group_seconds=0.1))

    play.feed(rows(5)).kinds(SendRows)
    play.at(20).expect()
    play.feed(InputDrained()).expect()
    play.feed(rows(5)).kinds(SendRows)


def test_a_group_stays_open_while_rows_of_an_open_transaction_are_in_it() -> None:
    play = Playbook(Limits(group_rows=100, group_seconds=60))

    play.feed(rows(1), ended(1, 1), rows(1)).kinds(SendRows, SendRows)
    play.feed(InputDrained()).expect()
    play.at(20).expect()
    play.feed(ended(2, 1), InputDrained()).expect(Flush())


def test_a_full_group_waits_for_the_end_of_the_transaction_that_is_open() -> None:
    play = Playbook(Limits(group_rows=2))

    play.feed(rows(1), ended(1, 1), rows(5)).kinds(SendRows, SendRows)
    play.feed(ended(2, 5)).expect(Flush())


def test_rows_of_the_group_before_count_no_more() -> None:
    play = Playbook(Limits(group_rows=3))
    play.feed(rows(2), ended(1, 2), InputDrained()).acknowledge(*offsets(A0, 0, 1)).durable(2)

    play.feed(rows(2), ended(2, 2)).kinds(SendRows)
    play.feed(rows(1), ended(3, 1)).kinds(SendRows, Flush)


def test_what_waited_is_taken_until_the_next_group_is_full() -> None:
    play = Playbook(Limits(group_commits=1))
    second, third = rows(1), rows(1)
    play.feed(rows(1), ended(1, 1), second, ended(2, 1), third, ended(3, 1))
    play.acknowledge((*A0, 0))

    play.durable(2).expect(Confirm(210), SendRows(second.records), Flush())
    assert play.engine.buffered == third.size
    play.acknowledge((*A0, 2)).durable(4).expect(Confirm(310), SendRows(third.records), Flush())


def test_the_position_does_not_go_back() -> None:
    """One of our own transactions may stand where a load has read on already [H16]."""
    play = Playbook()
    play.feed(rows(1), ended(1, 1, end_lsn=90), InputDrained())

    (cut,) = play.acknowledge((*A0, 0)).cuts

    assert cut.head.resume == 100
    play.durable(2).expect(Confirm(100))
    assert play.engine.resume == 100


def test_a_batch_of_the_walker_is_rows_and_ends_of_their_transactions() -> None:
    play = Playbook(Limits(group_rows=4))
    batch = Batch(
        [row(), row(AUDIT), row(), row()], [({A0: 1, U0: 1}, ended(1, 2)), ({A0: 2}, None)]
    )
    play.feed(SchemaUsed(AUDIT, 6))

    play.feed(Walked(batch, 1, 2, 210, 0)).expect(SendRows(batch))
    play.feed(ended(2, 2)).expect(Flush())
    waits = Batch([row()], [({A0: 1}, ended(3, 1))])
    play.feed(Walked(waits, 1, 1, 410, 0)).expect()
    assert play.engine.buffered == waits.size
    (cut,) = play.acknowledge(*offsets(A0, 0, 1, 2), (*U0, 5)).cuts

    assert isinstance(cut, Commits)
    assert [entry.seq for entry in cut.commits] == [1, 2]
    assert [entry.counts for entry in cut.commits] == [{0: 1, 1: 1}, {0: 2}]
    assert cut.schema_ids == {AUDIT: (6,)}
    play.durable(9).expect(Confirm(310), SendRows(waits))
    assert play.engine.buffered == 0
    play.feed(InputDrained()).expect(Flush())


class Batch(list[Record]):
    """Records of the native walker, and how they are divided."""

    size = 30

    def __init__(self, records: list[Record], divided: list[Any]) -> None:
        super().__init__(records)
        self.transactions = lambda: divided

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple({record[0] for record in self})


def test_a_full_group_is_closed_before_the_rows_of_the_next_transaction() -> None:
    play = Playbook(Limits(group_seconds=1))
    play.feed(rows(1), ended(1, 1))
    play.feed(Ticked(11, 0)).expect(Flush())
    later = rows(1)

    play.feed(later).expect()
    play.acknowledge((*A0, 5)).kinds(WriteCuts)
    play.durable(9).expect(Confirm(210), SendRows(later.records))


def test_an_old_group_is_closed_by_the_next_row_too() -> None:
    play = Playbook(Limits(group_seconds=1))
    play.feed(rows(1), ended(1, 1))
    play.engine._now = 12  # no tick came in between

    play.feed(rows(1)).expect(Flush())
    assert play.engine.buffered == 10


def test_rows_that_are_acknowledged_already_need_no_flush() -> None:
    play = Playbook()
    play.feed(rows(1)).kinds(SendRows)
    play.acknowledge((*A0, 1)).expect()
    play.feed(ended(1, 1)).expect()
    play.feed(InputDrained()).kinds(WriteCuts)


def test_input_is_buffered_while_a_commit_is_in_flight() -> None:
    play = Playbook()
    second = rows(3)
    play.feed(rows(1), ended(1, 1), InputDrained()).kinds(SendRows, Flush)

    play.feed(second, ended(2, 3)).expect()
    assert play.engine.buffered == 30
    play.acknowledge((*A0, 4)).kinds(WriteCuts)
    play.feed(InputDrained()).expect()
    play.durable(6).expect(Confirm(210), SendRows(second.records), Flush())
    assert play.engine.buffered == 0


# ---------------------------------------------------------------- ranges
def test_a_range_never_bridges_a_gap() -> None:
    play = Playbook()
    play.feed(rows(2), ended(1, 2), rows(2), ended(2, 2), InputDrained())

    (cut,) = play.acknowledge(*offsets(A0, 10, 11, 14, 15)).cuts

    assert isinstance(cut, Commits)
    assert cut.ranges == (Range(ACCOUNT, 0, 10, 12), Range(ACCOUNT, 0, 14, 16))
    assert [e.counts for e in cut.commits] == [{0: 2}, {1: 2}]


def test_a_commit_may_lie_in_several_ranges_and_a_range_may_hold_several_commits() -> None:
    play = Playbook()
    play.feed(rows(1), rows(1, AUDIT), ended(1, 2), rows(3), ended(2, 3), InputDrained())

    (cut,) = play.acknowledge(*offsets(U0, 0), *offsets(A0, 10, 11, 20, 21)).cuts

    assert isinstance(cut, Commits)
    assert cut.ranges == (
        Range(ACCOUNT, 0, 10, 12),
        Range(AUDIT, 0, 0, 1),
        Range(ACCOUNT, 0, 20, 22),
    )
    assert [e.counts for e in cut.commits] == [{0: 1, 1: 1}, {0: 1, 2: 2}]


def test_a_gap_between_two_groups_is_not_a_range_either() -> None:
    play = Playbook()
    play.feed(rows(1), ended(1, 1), InputDrained()).acknowledge((*A0, 10)).durable(3)
    play.feed(rows(1), ended(2, 1), InputDrained())

    (cut,) = play.acknowledge((*A0, 12)).cuts  # 11 is the commit marker

    assert isinstance(cut, Commits)
    assert cut.ranges == (Range(ACCOUNT, 0, 12, 13),)


@pytest.mark.parametrize(
    "acknowledged",
    [
        pytest.param([(*A0, -1)], id="unknown offset"),
        pytest.param([(*A0, 5), (*A0, 4)], id="offsets go backwards"),
        pytest.param([(*A0, 5), (*A0, 6), (*A0, 7)], id="more than were sent"),
    ],
)
def test_acknowledgements_that_cannot_be_trusted_make_the_group_unusable(
    acknowledged: list[tuple[str, int, int]],
) -> None:
    play = Playbook()
    play.feed(rows(2), ended(1, 2), InputDrained())

    with pytest.raises(GroupUnusable):
        play.acknowledge(*acknowledged)


def test_a_cut_without_an_offset_makes_the_group_unusable() -> None:
    play = Playbook()
    play.feed(rows(1), ended(1, 1), InputDrained()).acknowledge((*A0, 4)).kinds(WriteCuts)

    with pytest.raises(GroupUnusable):
        play.feed(CutsDurable(()))


# ---------------------------------------------------------------- DDL and gaps
def test_ddl_and_gaps_are_alone_in_their_record_but_in_the_same_kafka_transaction() -> None:
    play = Playbook()
    gap = Hole("public.account", "suspected", "why")
    play.feed(rows(1), ended(1, 1), rows(1), ended(2, 1))
    play.feed(rows(1, DDL), rows(1), ended(3, 2, ddl=(0,)))
    play.feed(rows(1), ended(4, 1, holes=(gap,)), rows(1), ended(5, 1), InputDrained())

    cuts = play.acknowledge(*offsets(A0, *range(5)), (DDL, 0, 77)).cuts
    assert [isinstance(cut, Commits) and [e.seq for e in cut.commits] for cut in cuts] == [
        [1, 2],
        [3],
        [4],
        [5],
    ]
    assert [cut.head.n for cut in cuts] == [2, 3, 4, 5]
    assert [cut.head.last_seq for cut in cuts] == [2, 3, 4, 5]
    assert isinstance(cuts[1], Commits)
    assert cuts[1].commits[0].ddl == (DdlPlace(ordinal=0, offset=77),)
    assert cuts[1].ranges == (Range(DDL, 0, 77, 78), Range(ACCOUNT, 0, 2, 3))
    assert isinstance(cuts[2], Commits)
    assert cuts[2].commits[0].holes == (gap,)
    play.durable(1, 2, 3, 4).expect(Confirm(610))


# ---------------------------------------------------------------- giants
GIANT = Limits(transaction_timeout=300, group_seconds=1000, heartbeat_seconds=1000)


def test_a_giant_commits_its_rows_in_parts_and_its_cut_comes_last_with_all_ranges() -> None:
    play = Playbook(GIANT)
    play.feed(rows(2)).kinds(SendRows)
    play.at(60).feed(rows(1)).kinds(SendRows)
    play.at(109.9).expect()
    play.at(110).expect(Flush())
    play.at(200).expect()
    play.acknowledge(*offsets(A0, 0, 1, 2)).expect(CommitPart())
    assert play.engine.phase is Phase.PARTING
    play.acknowledge().expect()
    play.feed(rows(1)).expect()
    play.feed(PartDurable()).kinds(SendRows)
    play.at(311).expect(Flush())
    play.acknowledge((*A0, 4)).expect(CommitPart())
    play.feed(PartDurable()).expect()
    play.at(312).expect()
    play.feed(rows(1), ended(1, 4), InputDrained()).kinds(SendRows, Flush)

    (cut,) = play.acknowledge((*A0, 6)).cuts

    assert isinstance(cut, Commits)
    assert cut.ranges == tuple(Range(ACCOUNT, 0, *r) for r in [(0, 3), (4, 5), (6, 7)])
    assert cut.commits[0].counts == {0: 3, 1: 1, 2: 1}
    play.durable(9).expect(Confirm(210))


def test_rows_of_a_part_count_no_more_towards_the_group() -> None:
    play = Playbook(replace(GIANT, group_rows=2))
    play.feed(rows(5)).at(110)
    play.acknowledge(*offsets(A0, *range(5))).feed(PartDurable())

    play.feed(rows(1), ended(1, 6)).kinds(SendRows)
    play.feed(rows(1), ended(2, 1)).kinds(SendRows, Flush)


def test_whole_commits_before_a_giant_get_their_cut_with_its_first_part() -> None:
    play = Playbook(GIANT)
    play.feed(SchemaUsed(ACCOUNT, 5), rows(1), ended(1, 1), rows(2), SchemaUsed(ACCOUNT, 6))
    play.feed(rows(1)).kinds(SendRows)
    play.at(110).expect(Flush())

    (cut,) = play.acknowledge(*offsets(A0, 0, 1, 2, 3)).cuts

    assert isinstance(cut, Commits)
    assert [e.seq for e in cut.commits] == [1]
    assert cut.ranges == (Range(ACCOUNT, 0, 0, 1),)
    play.durable(5).expect(Confirm(210))

    play.feed(rows(1), ended(2, 4), InputDrained())
    (last,) = play.acknowledge((*A0, 7)).cuts
    assert isinstance(last, Commits)
    assert last.ranges == (Range(ACCOUNT, 0, 1, 4), Range(ACCOUNT, 0, 7, 8))
    assert last.schema_ids == {ACCOUNT: (5, 6)}


# ---------------------------------------------------------------- schema ids
def test_a_schema_waits_for_its_turn_behind_the_rows_before_it() -> None:
    play = Playbook()
    play.feed(SchemaUsed(ACCOUNT, 5), rows(1), ended(1, 1), InputDrained())
    play.feed(rows(1), SchemaUsed(ACCOUNT, 6), rows(1), ended(2, 2)).expect()
    (first,) = play.acknowledge((*A0, 0)).cuts
    play.durable(3).feed(InputDrained())

    (second,) = play.acknowledge(*offsets(A0, 2, 3)).cuts

    assert isinstance(first, Commits)
    assert isinstance(second, Commits)
    assert first.schema_ids == {ACCOUNT: (5,)}
    assert second.schema_ids == {ACCOUNT: (5, 6)}
    play.durable(5).feed(rows(1), ended(3, 1), InputDrained())
    (third,) = play.acknowledge((*A0, 5)).cuts
    assert isinstance(third, Commits)
    assert third.schema_ids == {ACCOUNT: (6,)}


# ---------------------------------------------------------------- idle
def test_an_idle_position_is_confirmed_only_behind_a_durable_heartbeat() -> None:
    play = Playbook(Limits(heartbeat_seconds=5))

    play.feed(PositionReached(900)).expect()
    (cut,) = play.at(15).cuts
    assert isinstance(cut, Heartbeat)
    assert (cut.head.n, cut.head.last_seq, cut.head.resume) == (1, 0, 900)
    play.feed(PositionReached(950)).expect()  # one in flight is enough
    play.durable(8).expect(Confirm(900))


def test_an_urgent_keepalive_is_answered_at_once_but_not_in_a_storm() -> None:
    play = Playbook(Limits(heartbeat_seconds=5))
    play.at(11)

    (cut,) = play.feed(PositionReached(900, is_urgent=True)).cuts
    assert cut.head.resume == 900
    play.durable(8).expect(Confirm(900))
    play.feed(PositionReached(950, is_urgent=True)).expect()
    (cut,) = play.at(11.3).cuts
    assert cut.head.resume == 950
    play.durable(9).expect(Confirm(950))
    play.feed(PositionReached(960)).at(14).expect()


def test_a_position_that_nobody_waits_for_is_in_no_hurry() -> None:
    play = Playbook(Limits(heartbeat_seconds=5))

    play.feed(PositionReached(900)).at(14.5).expect()


def test_a_storm_is_less_than_a_fifth_of_a_second() -> None:
    engine = Engine(WriterState(START, 7, IDENTITY, "c", "k", TOPICS, {}), Limits(), plain_tally())

    assert engine.step(PositionReached(900, is_urgent=True)) == []
    assert [type(command) for command in engine.step(Ticked(0.2, 0))] == [WriteCuts]


@pytest.mark.parametrize("is_urgent", [False, True])
def test_there_is_no_heartbeat_while_anything_is_open(is_urgent: bool) -> None:
    play = Playbook(Limits(heartbeat_seconds=1, group_seconds=1000))
    idle = PositionReached(900, is_urgent)

    play.feed(rows(1)).kinds(SendRows)
    play.feed(idle, Ticked(20, 0)).expect()
    play.feed(ended(1, 1), idle, Ticked(30, 0)).expect()
    play.feed(InputDrained(), idle, Ticked(40, 0)).expect(Flush())
    play.acknowledge((*A0, 1)).kinds(WriteCuts)
    play.feed(idle, Ticked(50, 0)).expect()


def test_positions_that_go_back_change_nothing() -> None:
    play = Playbook(Limits(heartbeat_seconds=5))
    play.feed(PositionReached(900), PositionReached(50)).at(15)
    play.durable(3).expect(Confirm(900))

    (cut,) = play.feed(PositionReached(60)).at(20).cuts

    assert cut.head.resume == 900
    play.durable(4).expect(Confirm(900))


def test_where_the_source_s_log_ends_is_told_and_moves_nothing() -> None:
    """What a heartbeat of the server names may still be to come."""
    play = Playbook(Limits(heartbeat_seconds=5))
    (cut,) = play.feed(PositionReached(900), Ticked(15, 15, told_end=5_000)).cuts
    assert (cut.head.resume, cut.head.source_end) == (900, 5_000)
    play.durable(3).expect(Confirm(900))

    (cut,) = play.feed(Ticked(20, 20, told_end=6_000)).cuts
    assert (cut.head.resume, cut.head.source_end) == (900, 6_000)
    play.durable(4).expect(Confirm(900))
    assert play.feed(Ticked(30, 30)).cuts[0].head.source_end is None


def test_the_first_heartbeat_of_a_turn_confirms_what_the_last_turn_made_durable() -> None:
    engine = Engine(WriterState(START, 7, IDENTITY, "c", "k", TOPICS, {}), Limits(), plain_tally())

    (wanted,) = engine.step(Ticked(5, 5))

    assert isinstance(wanted, WriteCuts)
    assert engine.step(CutsDurable((2,))) == [Confirm(100)]


# ---------------------------------------------------------------- STATE
def test_state_is_written_after_topics_changed_and_heads_name_it_afterwards() -> None:
    play = Playbook()
    topics = {**TOPICS, "bank.public.new": Topic("id", 1)}
    play.feed(TopicsChanged(topics), rows(1), ended(1, 1), InputDrained())

    state, cut = play.acknowledge((*A0, 4)).cuts
    assert isinstance(state, State)
    assert isinstance(cut, Commits)
    assert state.topics == topics
    assert (state.head.n, state.head.last_seq, state.head.resume) == (1, 0, 100)
    assert (state.head.state_from, cut.head.state_from) == (-1, 7)
    play.durable(20, 21).expect(Confirm(210))

    (beat,) = play.at(100).cuts
    assert beat.head.state_from == 20


def test_a_changed_catalog_is_noted_at_once_and_not_before_what_was_found() -> None:
    first, later = Looked(7, "1:5", {"16": "a"}), Looked(9, "1:5", {"16": "b"})
    play = Playbook()
    play.engine.mark_looked(first)
    state, _ = play.at(0.1).cuts
    assert isinstance(state, State)
    assert state.looked == first
    play.durable(10, 11)

    play.engine.mark_looked(replace(first, horizon=8))
    assert [type(cut) for cut in play.at(100).cuts] == [Heartbeat], "the catalog is the same"
    play.durable(12)
    assert play.engine.lend().looked == replace(first, horizon=8)

    play.feed(rows(1), ended(1, 1), InputDrained(), rows(1), ended(2, 1))
    play.engine.mark_looked(later)
    assert [type(cut) for cut in play.acknowledge((*A0, 4)).cuts] == [Commits]
    play.durable(13).feed(InputDrained())
    state, found = play.acknowledge((*A0, 5)).cuts
    assert isinstance(state, State)
    assert (state.looked, found.head.last_seq) == (later, 2)


def test_a_topic_that_is_another_one_by_the_same_name_needs_a_state() -> None:
    """It got partitions, or was made again: readers compare its id."""
    play = Playbook()
    topics = {**TOPICS, next(iter(TOPICS)): Topic("another", 9)}
    play.feed(TopicsChanged(topics), rows(1), ended(1, 1), InputDrained())

    state, _ = play.acknowledge((*A0, 4)).cuts
    assert isinstance(state, State)
    assert state.topics == topics


def test_topics_that_did_not_change_need_no_state() -> None:
    play = Playbook()
    play.feed(TopicsChanged(TOPICS), rows(1), ended(1, 1), InputDrained())
    assert len(play.acknowledge((*A0, 4)).cuts) == 1


def test_state_comes_after_so_many_records() -> None:
    play = Playbook(Limits(state_records=3, heartbeat_seconds=5))
    kinds = []
    for turn in range(1, 6):
        cuts = play.at(10 + 5 * turn).cuts
        kinds.append([type(cut) for cut in cuts])
        play.durable(*range(10 * turn, 10 * turn + len(cuts)))

    one, two = [Heartbeat], [State, Heartbeat]
    assert kinds == [one, one, two, one, two]


def test_state_comes_after_an_hour() -> None:
    play = Playbook(Limits(heartbeat_seconds=5))

    assert [type(cut) for cut in play.at(3600).cuts] == [Heartbeat]
    play.durable(3)
    assert [type(cut) for cut in play.at(3610).cuts] == [State, Heartbeat]
    play.durable(4, 5)
    assert [type(cut) for cut in play.at(3620).cuts] == [Heartbeat]


def test_a_part_of_a_giant_with_new_topics_writes_state_alone() -> None:
    play = Playbook(GIANT)
    play.feed(TopicsChanged({ACCOUNT: Topic("id", 1)}), rows(1)).at(110)

    (cut,) = play.acknowledge((*A0, 0)).cuts

    assert isinstance(cut, State)
    play.durable(5).expect(Confirm(100))


# ---------------------------------------------------------------- loads beside the stream
def test_a_load_begins_when_all_is_durable_what_is_to_be_noted_too() -> None:
    play = Playbook(Limits(heartbeat_seconds=5))
    assert play.engine.is_settled
    play.engine.mark_loads({"public.t": PENDING})
    assert not play.engine.is_settled
    (state, _) = play.at(11).cuts
    assert isinstance(state, State)
    assert (state.loads, play.engine.is_settled) == ({"public.t": PENDING}, False)
    play.durable(8, 9)
    assert play.engine.is_settled
    play.feed(rows(1))
    assert not play.engine.is_settled


def test_what_is_lent_is_what_is_durable_and_what_comes_back_goes_on() -> None:
    play = Playbook(Limits(heartbeat_seconds=5, state_records=5))
    topics = {**TOPICS, "bank.public.new": Topic("id", 1)}
    play.feed(TopicsChanged(topics)).at(11)
    play.durable(8, 9)
    play.engine.mark_loads({"public.t": None})  # there was none

    lent = play.engine.lend()
    assert (lent.topics, lent.state_from, lent.loads) == (topics, 8, {})
    assert (lent.head.n, lent.head.last_seq, lent.head.resume) == (1, 0, 100)

    play.at(14)
    head = replace(lent.head, n=3, resume=150)
    before = play.engine.loads
    upto = {"public.u": "as far as this"}
    play.engine.take_back(replace(lent, head=head, loads={"public.t": "END"}, upto=upto))
    assert play.engine.loads is not before
    assert play.engine.lend().upto == upto
    play.at(16).expect()  # the load's records are as good as a heartbeat
    (cut,) = play.at(19).cuts
    assert (cut.head.n, cut.head.resume, play.engine.loads) == (3, 150, {"public.t": "END"})
    play.durable(12).expect(Confirm(150))
    assert play.engine.loads == {"public.t": "END"}
    assert [type(cut) for cut in play.at(24).cuts] == [State, Heartbeat], (
        "3 of our own, and 2 of the load"
    )


def test_a_position_that_no_record_says_is_not_that_of_a_load_that_comes_back() -> None:
    play = Playbook(Limits(heartbeat_seconds=5))
    play.feed(PositionReached(300))
    lent = play.engine.lend()

    play.engine.take_back(replace(lent, head=replace(lent.head, n=1, resume=150)))

    assert play.engine.resume == 150


# ---------------------------------------------------------------- leaving
def test_leaving_idle_confirms_the_last_position_and_stops() -> None:
    play = Playbook()
    play.feed(PositionReached(900)).expect()

    play.feed(StopAsked()).kinds(WriteCuts)
    play.durable(5).expect(Confirm(900), Stopped(abort=False))
    play.feed(rows(1), StopAsked(), Ticked(999, 0)).expect()


def test_a_busy_source_does_not_keep_us_from_leaving() -> None:
    play = Playbook()
    play.feed(PositionReached(900), StopAsked()).kinds(WriteCuts)
    play.feed(PositionReached(950)).expect()
    play.durable(5).expect(Confirm(900), Stopped(abort=False))


def test_leaving_finishes_whole_transactions() -> None:
    play = Playbook(Limits(group_seconds=1000))
    play.feed(rows(1), ended(1, 1)).kinds(SendRows)

    play.feed(StopAsked()).expect(Flush())
    play.acknowledge((*A0, 4)).kinds(WriteCuts)
    play.durable(5).expect(Confirm(210), Stopped(abort=False))


def test_leaving_tells_the_position_that_was_reached_meanwhile() -> None:
    play = Playbook(Limits(group_seconds=1000))
    play.feed(rows(1), ended(1, 1), StopAsked()).acknowledge((*A0, 4)).kinds(WriteCuts)
    play.feed(PositionReached(900)).expect()

    play.durable(5).kinds(Confirm, WriteCuts)
    play.durable(7).expect(Confirm(900), Stopped(abort=False))


@pytest.mark.parametrize("before", [[], [rows(1), ended(1, 1)]])
def test_leaving_aborts_only_what_is_not_whole(before: list[Any]) -> None:
    play = Playbook()
    play.feed(*before, rows(1))

    play.feed(StopAsked()).expect(Stopped(abort=True))


def test_after_input_was_dropped_on_leaving_no_position_is_true_any_more() -> None:
    play = Playbook()
    play.feed(rows(1), ended(1, 1), InputDrained(), rows(1), ended(2, 1), StopAsked())
    play.feed(PositionReached(5000, is_urgent=True)).acknowledge((*A0, 4)).kinds(WriteCuts)

    play.durable(5).expect(Confirm(210), Stopped(abort=False))


# ---------------------------------------------------------------- what watchers see
def test_progress_is_what_is_durable() -> None:
    play = Playbook()
    play.feed(rows(1), ended(1, 1), InputDrained())
    assert (play.engine.seq, play.engine.resume, play.engine.phase) == (0, 100, Phase.FLUSHING)
    play.acknowledge((*A0, 4)).durable(5)
    assert (play.engine.seq, play.engine.resume, play.engine.phase) == (1, 210, Phase.SENDING)


# ---------------------------------------------------------------- properties
@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.data())
def test_runs_give_back_each_offset_once_and_in_order(gaps: list[int], data: st.DataObject) -> None:
    runs, added, at = Runs(), [], 0
    for gap in gaps:
        at += gap
        runs.add(at, at + 1)
        added.append(at)

    taken: list[int] = []
    while runs.count:
        for start, end in runs.take(data.draw(st.integers(1, runs.count))):
            taken += range(start, end)

    assert taken == added


PLACES = [A0, A1, U0]


@settings(max_examples=300, deadline=None)
@given(
    commits=st.lists(
        st.lists(st.sampled_from(PLACES), min_size=1, max_size=6), min_size=1, max_size=6
    ),
    data=st.data(),
)
def test_acknowledgements_in_any_order_never_confirm_early_and_ranges_hold_exactly_each_commit(
    commits: list[list[tuple[str, int]]], data: st.DataObject
) -> None:
    play = Playbook(Limits(group_rows=data.draw(st.integers(1, 12)), group_seconds=1000))
    broker: dict[tuple[str, int], int] = {}  # next offset
    queues: dict[tuple[str, int], list[int]] = {place: [] for place in PLACES}
    expected: list[list[tuple[str, int, int]]] = [[] for _ in commits]
    sent: list[tuple[str, int]] = []
    owners = [(place, at) for at, commit in enumerate(commits) for place in commit]
    cut_offset, durable_rows = 100, 0
    found: list[list[tuple[str, int, int]]] = []
    todo = [
        event
        for seq, commit in enumerate(commits, 1)
        for event in (*(rows(1, *place) for place in commit), ended(seq, len(commit)))
    ]
    writing: tuple[Commits, ...] = ()
    last_end = 0

    def obey() -> None:
        nonlocal writing
        for command in play.said:
            match command:
                case SendRows(records):
                    for topic, partition, *_ in records:
                        place = topic, partition
                        owner = owners[len(sent)]
                        assert owner[0] == place
                        sent.append(place)
                        offset = broker.get(place, 0) + data.draw(st.sampled_from([0, 0, 0, 1]))
                        broker[place] = offset + 1
                        queues[place].append(offset)
                        expected[owner[1]].append((*place, offset))
                case WriteCuts(cuts):
                    assert not any(queues.values()), "a cut before its acknowledgements"
                    writing = tuple(cut for cut in cuts if isinstance(cut, Commits))
                    assert len(writing) == len(cuts)
                case Confirm(lsn):
                    assert lsn == last_end, "confirmed something that is not durable"
                case Flush():
                    pass
                case other:
                    pytest.fail(f"unexpected {other}")

    while todo or any(queues.values()) or writing or not play.engine.is_idle:
        choices = [name for name, can in (
            ("input", bool(todo)),
            ("ack", any(queues.values())),
            ("commit", bool(writing)),
            ("drained", not todo),
        ) if can]  # fmt: skip
        match data.draw(st.sampled_from(choices)):
            case "input":
                play.feed(todo.pop(0))
            case "ack":
                place = data.draw(st.sampled_from([p for p in PLACES if queues[p]]))
                count = data.draw(st.integers(1, len(queues[place])))
                play.acknowledge(*[(*place, queues[place].pop(0)) for _ in range(count)])
            case "commit":
                for cut in writing:
                    found += named(cut)
                last_end = writing[-1].head.resume
                offsets = tuple(range(cut_offset, cut_offset + len(writing)))
                cut_offset += len(writing)
                durable_rows += sum(e.rows for cut in writing for e in cut.commits)
                writing = ()
                play.feed(CutsDurable(offsets))
            case "drained":
                play.feed(InputDrained())
        obey()

    assert [sorted(commit) for commit in found] == [sorted(commit) for commit in expected]
    assert durable_rows == len(sent)


def named(cut: Commits) -> list[list[tuple[str, int, int]]]:
    """The offsets that a cut names, per commit: a range's are handed out in commit order."""
    left = [list(range(r.start, r.end)) for r in cut.ranges]
    out = []
    for entry in cut.commits:
        mine = []
        for index, count in entry.counts.items():
            r = cut.ranges[index]
            mine += [(r.topic, r.partition, left[index].pop(0)) for _ in range(count)]
        out.append(mine)
    assert not any(left), "a range holds offsets of no commit"
    return out


def test_a_drop_that_waits_does_not_take_the_note_of_a_table_that_came_after_it() -> None:
    play, table = Playbook(), "public.account"
    dropped = replace(ended(2, 0, ddl=(0,)), fates=(Fate(table, None),))
    play.engine.mark_loads({table: LoadPhase.END})
    play.feed(rows(1), ended(1, 1), InputDrained(), dropped)

    play.engine.mark_loads({table: PENDING})
    play.acknowledge((*A0, 10)).durable(3, 4)

    assert dict(play.engine.loads) == {table: PENDING}


def test_a_source_that_does_not_wait_is_told_no_idle_position_at_once() -> None:
    """Also where rows come first, so that the turn begins without a heartbeat."""
    play = Playbook()
    play.engine = Engine(play.engine.lend(), Limits(), plain_tally())

    play.feed(rows(1)).at(play.now).feed(ended(1, 1), InputDrained()).acknowledge((ACCOUNT, 0, 5))
    play.durable(*range(len(play.cuts)))

    play.feed(PositionReached(9_000)).at(play.now + 1).expect()
    play.feed(PositionReached(9_000, is_urgent=True)).kinds(WriteCuts)


# ---------------------------------------------------------------- loads for one target
LAKE = Upto((b"7",), target="lake").text


def with_load_for_one() -> Playbook:
    play = Playbook()
    loads = {"public.account": LAKE, "public.third": LAKE}
    play.engine.take_back(replace(play.engine.lend(), targeted=loads))
    return play


def test_a_load_for_one_target_that_begins_again_is_noted_no_later_than_its_reason() -> None:
    play = with_load_for_one()
    play.feed(rows(1))
    play.engine.begin_anew("public.account")
    play.engine.begin_anew("public.other")  # it has none
    play.feed(ended(1, 1), InputDrained())

    state, commits = play.acknowledge((*A0, 0)).cuts

    assert isinstance(state, State)
    assert state.targeted == {"public.account": voided(LAKE), "public.third": LAKE}
    assert isinstance(commits, Commits)


def test_so_it_is_by_a_gap_of_its_table() -> None:
    play, gap = with_load_for_one(), Hole("public.account", "seen", "a row in quarantine")
    play.feed(rows(1), ended(1, 1, holes=(gap,)), InputDrained())

    _, state = play.acknowledge((*A0, 0)).cuts

    assert isinstance(state, State)
    assert state.targeted == {"public.account": voided(LAKE), "public.third": LAKE}


def test_the_loads_behind_a_rename_are_noted_behind_it() -> None:
    """Topics stand in front of rows in them; a reader forgets tables that the loads do not name."""
    play = Playbook()
    loads = {"public.account": "GAP", "public.third": "CHUNK"}
    targeted = {"public.third": LAKE}
    play.engine.take_back(replace(play.engine.lend(), loads=loads, targeted=targeted))
    renamed = (Fate("public.account", "public.konto"),)
    play.feed(TopicsChanged({"bank.new": Topic("9", 1)}))
    play.feed(rows(1, DDL), replace(ended(1, 1, ddl=(0,)), fates=renamed))
    play.feed(rows(1), ended(2, 1, holes=(Hole("public.third", "seen", "lost"),)))
    play.feed(InputDrained())

    front, *commits, behind = play.acknowledge((DDL, 0, 5), (*A0, 0)).cuts

    assert isinstance(front, State)
    assert isinstance(behind, State)
    assert {type(one) for one in commits} == {Commits}
    assert front.topics["bank.new"] == behind.topics["bank.new"] == Topic("9", 1)
    assert (front.loads, front.targeted) == (loads, targeted)
    assert behind.loads == {"public.konto": "GAP", "public.third": "BEGIN"}
    assert behind.targeted == {"public.third": voided(LAKE)}
    assert behind.head == replace(commits[-1].head, state_from=-1)
    play.durable(*range(8, 10 + len(commits)))
    play.feed(rows(1), ended(3, 1), InputDrained())
    (only,) = play.acknowledge((*A0, 1)).cuts  # nothing else is due
    assert isinstance(only, Commits)


def test_how_far_loads_are_is_said_of_those_that_go_on() -> None:
    play = Playbook()
    upto = {"public.account": "so far", "public.other": "so far"}
    loads = {"public.account": "CHUNK", "public.other": "BEGIN"}
    play.engine.take_back(replace(play.engine.lend(), loads=loads, upto=upto))
    play.engine.mark_loads({"public.new": PENDING})
    play.feed(rows(1), ended(1, 1), InputDrained())

    state, _ = play.acknowledge((*A0, 0)).cuts

    assert isinstance(state, State)
    assert state.upto == {"public.account": "so far"}
