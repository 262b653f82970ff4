"""Parts of cuts by commits, against what the feed put there."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.control import Commits, Hole
from spark_consumers.cuts.versions import Version, fitting, part
from tests.spark_consumers.feed import Feed, Row, Tx, insert, table

A, B = table("a", "id integer"), table("b", "id integer")

shapes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6)


def cut_of(feed: Feed, shape: list[tuple[int, int]]) -> Commits:
    return feed.commits(
        *([*(insert(A, "1") for _ in range(a)), *(insert(B, "1") for _ in range(b))]
          for a, b in shape)
    )  # fmt: skip


@given(shapes, shapes, st.integers(-1, 13), st.integers(0, 14))
def test_a_part_has_exactly_the_rows_of_its_commits(before, shape, after: int, upto: int) -> None:
    feed = Feed()
    feed.start()
    cut_of(feed, before)
    cut = cut_of(feed, shape)

    found = part(cut, feed.topic(A), after, upto)

    records = [feed.content[r.topic, at] for r in found.ranges for at in range(r.start, r.end)]
    first = len(before) + 1
    wanted = [
        seq for seq, (a, _) in enumerate(shape, first) for _ in range(a) if after < seq <= upto
    ]
    assert [record.seq for record in records] == wanted
    assert all(record.columns == ("id",) for record in records)


@given(shapes, st.integers(0, 6), st.integers(1, 9))
def test_commits_are_taken_whole_and_at_least_one(shape, after: int, room: int) -> None:
    feed = Feed()
    feed.start()
    cut = cut_of(feed, shape)
    after = min(after, len(shape) - 1)

    last = fitting(cut, feed.topic(A), after, room)

    rows = [a for a, _ in shape]
    taken = sum(rows[after:last])
    assert after < last <= len(shape)
    assert taken <= room or last == after + 1 or sum(rows) <= room
    assert last == len(shape) or taken + rows[last] > room


def test_gaps_are_those_of_the_commits_asked_for() -> None:
    feed = Feed()
    feed.start()
    gap = Hole("public.a", "seen", "rewritten")
    cut = feed.commits([insert(A, "1")], Tx([Row(A, "t")], (gap,)))

    assert part(cut, feed.topic(A), 0, 1).special == []
    assert [(e.seq, e.holes) for e in part(cut, feed.topic(A), 1).special] == [(2, (gap,))]


def test_versions_grow_over_epochs() -> None:
    versions = [Version(1, 0), Version(1, 5), Version(1, 2**40 - 1), Version(2, 0), Version(900, 7)]

    assert sorted(map(int, versions)) == [int(version) for version in versions]
    assert [Version.of(int(version)) for version in versions] == versions
