"""Loads for one target: what it takes, and how all others pass it by."""

from dataclasses import replace

import pytest

from schemas.control import Hole, LoadPhase
from spark_consumers.cuts.ledger import LATE, remarked, shown
from spark_consumers.errors import CutsGap
from spark_consumers.model import Ledger, Segment
from tests.spark_consumers.feed import Feed, Tx, insert, loaded, table

A = table("a", "id integer, v text")
B = table("b", "id integer, v text")
NEW = Ledger("bank")


def load_for(feed: Feed, target: str, *rows: str) -> None:
    feed.load(A, LoadPhase.BEGIN, mode="AGAIN", target=target)
    feed.load(A, LoadPhase.CHUNK, *([row, "x"] for row in rows), mode="AGAIN", target=target)
    feed.load(A, LoadPhase.END, mode="AGAIN", target=target)


def behind(feed: Feed) -> Ledger:
    return feed.segments(NEW)[-1].upto


@pytest.fixture
def feed() -> Feed:
    """Two tables that are exact everywhere."""
    return loaded(A, B)


def test_the_target_takes_its_load_and_is_loading_until_its_end(feed: Feed) -> None:
    at = behind(feed)
    feed.load(A, LoadPhase.BEGIN, mode="AGAIN", target="lake")

    begun = feed.segments(at, target="lake")[-1].upto
    assert begun.inexact == {"public.a": "loading for lake"}
    assert (begun.state, shown(begun, "public.a")) == ("LOADING", "")

    feed.load(A, LoadPhase.CHUNK, ["1", "x"], mode="AGAIN", target="lake")
    feed.load(A, LoadPhase.END, mode="AGAIN", target="lake")
    (segment,) = feed.segments(begun, target="lake")
    assert [load.phase for load in segment.loads] == [LoadPhase.CHUNK, LoadPhase.END]
    assert (segment.rows, segment.upto.inexact, segment.upto.state) == (1, {}, "EXACT")


@pytest.mark.parametrize("name", ["", "other"])
def test_another_target_passes_it_by_in_one_step_of_the_ledger(feed: Feed, name: str) -> None:
    at = behind(feed)
    load_for(feed, "lake", "1", "2")

    (segment,) = feed.segments(at, target=name)

    assert (segment.loads, segment.ranges, segment.rows) == ((), (), 0)
    assert segment.after == at
    offset = feed.records[-1][0] + 1
    assert segment.upto == replace(at, n=at.n + 3, next_offset=offset, resume=segment.upto.resume)


def test_commits_around_it_are_one_step_all_the_same(feed: Feed) -> None:
    at = behind(feed)
    load_for(feed, "lake", "1")
    feed.commits([insert(A, "7", "x")])
    load_for(feed, "lake", "1")
    feed.commits([insert(A, "8", "x")])
    load_for(feed, "lake", "1")

    (segment,) = feed.segments(at)

    assert (segment.first_seq, segment.last_seq, segment.rows) == (1, 2, 2)
    assert (segment.after, segment.upto.n, segment.upto.seq) == (at, at.n + 11, 2)


def test_and_so_is_a_load_for_all_around_it(feed: Feed) -> None:
    at = behind(feed)
    feed.load(B, LoadPhase.BEGIN, mode="AGAIN")
    load_for(feed, "lake", "1")
    feed.load(B, LoadPhase.CHUNK, ["9", "x"], mode="AGAIN")
    feed.load(B, LoadPhase.END, mode="AGAIN")

    (segment,) = feed.segments(at)

    assert {load.table for load in segment.loads} == {B.id}
    assert (segment.rows, segment.upto.n, segment.upto.inexact) == (1, at.n + 6, {})


def test_a_record_that_is_missing_is_noticed_also_by_who_passes_it_by(feed: Feed) -> None:
    at = behind(feed)
    load_for(feed, "lake", "1")
    del feed.records[-2]

    with pytest.raises(CutsGap):
        feed.segments(at)


def test_a_target_that_gets_the_name_meanwhile_takes_no_half_of_it(feed: Feed) -> None:
    at = behind(feed)
    marked = replace(at, inexact={"public.a": "seen: a row was missing"})
    feed.load(A, LoadPhase.BEGIN, mode="AGAIN", target="lake")
    renamed = feed.segments(marked, target="other")[-1].upto
    feed.load(A, LoadPhase.CHUNK, ["1", "x"], mode="AGAIN", target="lake")
    feed.load(A, LoadPhase.END, mode="AGAIN", target="lake")

    (segment,) = feed.segments(renamed, target="lake")

    assert segment.loads == ()
    assert segment.upto.inexact == marked.inexact, "its gap is not mended"


def test_one_that_is_renamed_takes_its_load_to_the_end(feed: Feed) -> None:
    at = behind(feed)
    feed.load(A, LoadPhase.BEGIN, mode="AGAIN", target="lake")
    begun = feed.segments(at, target="lake")[-1].upto
    feed.load(A, LoadPhase.END, mode="AGAIN", target="lake")

    assert feed.segments(begun, target="pond")[-1].upto.inexact == {}


def test_a_late_target_takes_nothing_of_a_load_that_began_before_it(feed: Feed) -> None:
    late = replace(behind(feed), inexact={"public.a": LATE})
    feed.load(A, LoadPhase.CHUNK, ["1", "x"], mode="AGAIN", target="lake")
    feed.load(A, LoadPhase.END, mode="AGAIN", target="lake")

    assert feed.segments(late, target="lake")[-1].upto.inexact == {"public.a": LATE}


def test_a_gap_keeps_the_mark_of_the_load_which_begins_again(feed: Feed) -> None:
    at = behind(feed)
    feed.load(A, LoadPhase.BEGIN, mode="AGAIN", target="lake")
    feed.commits(Tx([], (Hole("public.a", "seen", "a row"),)))

    assert feed.segments(at, target="lake")[-1].upto.inexact == {"public.a": "loading for lake"}
    assert feed.segments(at)[-1].upto.inexact == {"public.a": "seen: a row"}
    assert remarked("loading for lake; readers see commit 1/2", "seen: x") == (
        "loading for lake; readers see commit 1/2"
    )


def test_a_load_for_all_takes_its_place(feed: Feed) -> None:
    at = behind(feed)
    feed.load(A, LoadPhase.BEGIN, mode="AGAIN", target="lake")
    feed.load(A, LoadPhase.BEGIN, mode="AGAIN")
    feed.load(A, LoadPhase.END, mode="AGAIN")

    for name in ("lake", "other"):
        assert feed.segments(at, target=name)[-1].upto.inexact == {}


def read(segments: list[Segment]) -> int:
    return sum(segment.rows for segment in segments)


def test_its_rows_are_not_even_read(feed: Feed) -> None:
    at = behind(feed)
    load_for(feed, "lake", "1", "2", "3")

    assert read(feed.segments(at)) == 0
    assert read(feed.segments(at, target="lake")) == 3
