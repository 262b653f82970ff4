"""Cut records become steps that follow each other, and nothing is skipped in silence."""

from dataclasses import replace

import pytest

from schemas.control import Hole, LoadPhase, Range, TableLoad
from spark_consumers.cuts.complete import check_complete, promised
from spark_consumers.cuts.segments import joined, segments
from spark_consumers.errors import CutsGap
from spark_consumers.model import Ledger, Segment
from tests.spark_consumers.feed import (
    Feed,
    Tx,
    alter,
    insert,
    loaded,
    started,
    table,
)

A = table("a", "id integer, v text")
B = table("b", "id integer, v text")
C = table("c", "id integer, v text")
NEW = Ledger("bank")


def test_commits_of_several_records_are_one_segment() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x"), insert(B, "1", "x")], [insert(A, "2", "x")])
    feed.heartbeat()
    feed.commits([insert(A, "3", "x")])

    (segment,) = feed.segments(ledger)

    assert (segment.first_seq, segment.last_seq, segment.rows) == (1, 3, 4)
    assert segment.ranges == (
        Range("bank.public.a", 0, 5, 7),
        Range("bank.public.a", 0, 8, 9),
        Range("bank.public.b", 0, 5, 6),
    )
    assert segment.commit_rows == {1: 2, 2: 1, 3: 1}
    assert (segment.upto.n, segment.upto.seq, segment.upto.next_offset) == (3, 3, 7)
    assert segment.cut.head.n == 3
    assert (segment.upto.csn, segment.upto.committed_at) == (30, 3_000_000)
    check_complete(promised(segment), feed.read_rows(segment))


def test_strict_means_one_commit_each() -> None:
    feed, ledger = started()
    feed.commits(*([insert(A, str(i), "x")] for i in range(3)))

    assert [s.commit_rows for s in feed.segments(ledger, strict=True)] == [{1: 1}, {2: 1}, {3: 1}]


@pytest.mark.parametrize("records", [1, 3])
def test_ddl_is_a_segment_of_its_own(records: int) -> None:
    feed, ledger = started()
    all_three = [[insert(A, "1", "x")], [insert(A, "2", "x"), alter(A, B)], [insert(A, "3", "x")]]
    for some in [all_three] if records == 1 else [[one] for one in all_three]:
        feed.commits(*some)

    plan = feed.segments(ledger)

    assert [(s.rows, s.is_barrier) for s in plan] == [(1, False), (2, True), (1, False)]
    check_complete(promised(plan[1]), feed.read_rows(plan[1]))
    (whole,) = feed.segments(ledger, ddl_apart=False)
    assert (whole.rows, whole.is_barrier) == (4, True)
    check_complete(promised(whole), feed.read_rows(whole))


def test_what_follows_a_schema_change_is_joined_and_a_gap_keeps_nothing_apart() -> None:
    feed, ledger = started()
    gap = Tx([insert(B, "2", "x")], (Hole("public.c", "seen", "why"),))
    feed.commits([alter(A, B)], [insert(B, "1", "x")], gap, [insert(B, "3", "x")])

    assert [(s.rows, s.is_barrier) for s in feed.segments(ledger)] == [(1, True), (3, False)]


def phases(plan: list[Segment]) -> list[str]:
    """Steps of loads by segment: the table's name and the phase, or its chunk's rows."""
    return [
        " ".join(
            f"{load.table.name}{load.rows if load.phase is LoadPhase.CHUNK else load.phase[0]}"
            for load in segment.loads
        )
        for segment in plan
    ]


def test_steps_of_loads_are_one_segment_up_to_its_rows() -> None:
    feed = loaded(A, B)

    assert phases(feed.segments(NEW)[1:]) == ["aB a3 a3 aE bB b3 b3 bE"]
    assert phases(feed.segments(NEW, max_rows=6)[1:]) == ["aB a3 a3 aE bB", "b3 b3 bE"]
    assert phases(feed.segments(NEW, max_rows=3)[1:]) == ["aB a3", "a3 aE bB", "b3", "b3 bE"]
    alone = ["aB", "a3", "a3", "aE bB", "b3", "b3", "bE"]
    assert phases(feed.segments(NEW, max_rows=2)[1:]) == alone
    for size in (2, 3, 6, 100):
        plan = feed.segments(NEW, max_rows=size)
        assert [s.after for s in plan[1:]] == [s.upto for s in plan[:-1]]
        assert plan[-1].upto == feed.segments(NEW)[-1].upto
        for segment in plan:
            check_complete(promised(segment), feed.read_rows(segment))


def test_commits_and_takeovers_are_not_put_to_loads() -> None:
    feed = loaded(A)
    feed.commits([insert(A, "9", "x")])
    feed.load(B, LoadPhase.BEGIN)
    feed.heartbeat()
    feed.load(B, LoadPhase.END)
    feed.start()
    feed.load(A, LoadPhase.BEGIN)

    plan = feed.segments(NEW)

    assert phases(plan) == ["", "aB a3 a3 aE", "", "bB bE", "", "aB"]
    assert [s.after for s in plan[1:]] == [s.upto for s in plan[:-1]]


def test_a_load_that_begins_again_is_not_put_to_rows_of_the_one_before() -> None:
    feed = loaded(A, B, A)

    assert phases(feed.segments(NEW)[1:]) == ["aB a3 a3 aE bB b3 b3 bE", "aB a3 a3 aE"]


def test_rows_of_some_keys_are_alone_and_mark_nothing() -> None:
    feed = loaded(A)
    feed.load(A, LoadPhase.CHUNK, ["1", "x"], mode="MEND")
    feed.load(A, LoadPhase.CHUNK, ["2", "x"], mode="MEND")
    feed.commits([insert(A, "9", "x")])

    plan = feed.segments(NEW)

    assert phases(plan) == ["", "aB a3 a3 aE", "a1", "a1", ""]
    assert plan[-1].upto.inexact == {}


def test_one_step_locks_no_more_tables_than_a_target_can() -> None:
    tables = [table(f"t{at}", "id integer") for at in range(120)]
    feed = loaded(*tables, chunks=0)

    assert [len(s.loads) for s in feed.segments(NEW)[1:]] == [100, 100, 40]


def test_schemas_of_a_load_are_those_of_all_its_chunks() -> None:
    feed = loaded(A, B)
    for at, (offset, record) in enumerate(feed.records):
        if isinstance(record, TableLoad) and record.rows:
            ids = {f"bank.public.{record.table.name}": (at, 7)}
            feed.records[at] = offset, replace(record, schema_ids=ids)

    assert feed.segments(NEW)[1].schema_ids == {
        "bank.public.a": (2, 7, 3),
        "bank.public.b": (6, 7),
    }


@pytest.mark.parametrize("say", [Feed.heartbeat, Feed.state])
def test_a_heartbeat_shows_that_a_record_is_missing(say) -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")])
    say(feed)

    with pytest.raises(CutsGap):
        list(segments(ledger, feed.records[2:]))


def test_a_step_of_a_load_that_is_missing_is_noticed() -> None:
    feed = loaded(A)
    ledger = feed.segments(NEW)[0].upto

    with pytest.raises(CutsGap):
        list(segments(ledger, [*feed.records[1:2], *feed.records[3:]]))


def test_a_mark_that_goes_with_a_state_is_a_step_of_its_own_behind_what_was_before() -> None:
    feed = Feed()
    feed.load_again(A, B)
    feed.load(A, LoadPhase.BEGIN)
    feed.state({"public.a": "BEGIN"})
    feed.load(A, LoadPhase.END)
    feed.state({"public.a": "END"})

    plan = feed.segments(NEW)

    assert [type(segment.cut).__name__ for segment in plan] == [
        "Start", "TableLoad", "State", "TableLoad",
    ]  # fmt: skip
    assert [segment.after for segment in plan[1:]] == [segment.upto for segment in plan[:-1]]
    assert [dict(segment.upto.inexact) for segment in plan[1:]] == [
        {"public.a": "loading", "public.b": "not loaded"},
        {"public.a": "loading"},
        {},
    ]


def test_what_stands_before_the_beginning_of_an_empty_target_is_left_out() -> None:
    feed = Feed()
    feed.start()
    feed.heartbeat()
    start, beat = feed.records
    assert len(list(segments(NEW, [(0, beat[1]), (2, start[1])]))) == 1

    assert list(segments(NEW, [beat])) == []
    assert list(segments(NEW, [])) == []


def test_parts_of_a_record_are_joined_to_what_it_is_whole() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")], [insert(A, "2", "x"), insert(B, "1", "x")])
    feed.commits([insert(B, "2", "x")], Tx([insert(A, "3", "x")], (Hole("public.c", "seen", "w"),)))
    (whole,) = feed.segments(ledger)

    parts = feed.segments(ledger, strict=True)

    assert [part.ranges for part in parts[:2]] == [
        (Range("bank.public.a", 0, 5, 6),),  # of b it has none
        (Range("bank.public.a", 0, 6, 7), Range("bank.public.b", 0, 5, 6)),
    ]
    assert joined(parts) == whole
    assert joined(parts[1:3]).commit_rows == {2: 2, 3: 1}
    assert joined(parts[1:3]).after == parts[1].after


def test_neighbours_of_another_partition_or_topic_stay_apart() -> None:
    feed, ledger = started()
    cut = feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")], [insert(A, "3", "x")])
    ranges = tuple(Range(topic, at, 5 + at, 6 + at) for topic, at in (("x", 0), ("x", 1), ("y", 2)))
    entries = tuple(replace(entry, counts={at: 1}) for at, entry in enumerate(cut.commits))
    feed.records[-1] = feed.records[-1][0], replace(cut, commits=entries, ranges=ranges)

    (segment,) = feed.segments(ledger)

    assert segment.ranges == ranges


def test_schema_changes_are_alone_unless_the_target_takes_them_among_others() -> None:
    feed, ledger = started()
    feed.commits([alter(A, B)])
    feed.commits([insert(B, "1", "x")])
    assert [s.rows for s in feed.segments(ledger)] == [1, 1]

    (whole,) = feed.segments(ledger, ddl_apart=False)
    assert (whole.rows, whole.is_barrier) == (2, True)
    assert joined(feed.segments(ledger)).is_barrier
