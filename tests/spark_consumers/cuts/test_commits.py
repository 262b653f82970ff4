"""A record of commits is divided between commits only, and adds up."""

from dataclasses import replace

import pytest

from schemas.control import Commits, Hole, Range
from spark_consumers.cuts.segments import segments
from spark_consumers.errors import CutsGap
from spark_consumers.model import Ledger
from tests.spark_consumers.feed import (
    Tx,
    insert,
    started,
    table,
)

A = table("a", "id integer, v text")
B = table("b", "id integer, v text")
C = table("c", "id integer, v text")
NEW = Ledger("bank")


def test_a_record_is_split_between_commits() -> None:
    feed, ledger = started()
    feed.commits(*([insert(A, str(i), "x"), insert(B, str(i), "x")] for i in range(3)))

    first, second, third = feed.segments(ledger, max_rows=2)

    assert first.ranges == (Range("bank.public.a", 0, 5, 6), Range("bank.public.b", 0, 5, 6))
    assert third.ranges == (Range("bank.public.a", 0, 7, 8), Range("bank.public.b", 0, 7, 8))
    assert [(s.upto.n, s.upto.seq, s.upto.next_offset) for s in (first, second, third)] == [
        (1, 1, 2),
        (1, 2, 2),
        (2, 3, 3),
    ]
    assert [s.after for s in (second, third)] == [first.upto, second.upto]
    assert [s.upto.resume for s in (first, second, third)] == [10, 10, 20]


def test_a_split_record_is_taken_up_where_the_ledger_stands() -> None:
    feed, ledger = started()
    feed.commits(*([insert(A, str(i), "x")] for i in range(3)))
    middle = feed.segments(ledger, max_rows=1)[1].upto

    (segment,) = feed.segments(middle)

    assert (segment.first_seq, segment.last_seq) == (3, 3)
    assert segment.ranges == (Range("bank.public.a", 0, 7, 8),)
    assert feed.segments(replace(ledger, seq=3)) == []
    assert feed.segments(replace(ledger, seq=9)) == [], "all of them were known"


def test_a_commit_above_the_limit_is_alone_and_whole() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")], [insert(A, str(i), "x") for i in range(9)])

    assert [s.rows for s in feed.segments(ledger, max_rows=4)] == [1, 9]


def test_gaps_mark_their_table() -> None:
    feed, ledger = started()
    feed.commits(Tx([insert(A, "1", "x")], (Hole("public.b", "seen", "truncate"),)))

    (segment,) = feed.segments(ledger)

    assert (segment.upto.state, segment.upto.inexact) == (
        "LOADING",
        {"public.b": "seen: truncate"},
    )


@pytest.mark.parametrize(
    "damage",
    [
        {"ranges": (Range("bank.public.a", 0, 5, 9),)},
        {"rows": 3},
        {"counts": {1: 1}},
        {"n": 5},
        {"seqs": (1, 3)},
        {"seqs": (2, 3)},
    ],
)
def test_a_cut_that_does_not_add_up_is_refused(damage: dict) -> None:
    feed, ledger = started()
    cut = feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")])
    commits = cut.commits
    if "rows" in damage:
        commits = tuple(replace(entry, rows=3) for entry in commits)
    if "counts" in damage:
        commits = tuple(replace(entry, counts=damage["counts"]) for entry in commits)
    if "seqs" in damage:
        commits = tuple(replace(e, seq=s) for e, s in zip(commits, damage["seqs"], strict=True))
    head = replace(cut.head, n=damage.get("n", cut.head.n))
    broken = Commits(head, commits, damage.get("ranges", cut.ranges))

    with pytest.raises(CutsGap):
        list(segments(ledger, [(2, broken)]))
