"""What was read is counted: nothing is missing, nothing is there twice."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schemas.control import Hole, LoadPhase, TableLoad
from schemas.envelope import envelope_schema
from spark_consumers.cuts.complete import (
    Following,
    Promised,
    Sums,
    check_complete,
    ordinals,
    promised,
    sums_of,
)
from spark_consumers.decode import RowDecoder
from spark_consumers.errors import Incomplete
from spark_consumers.model import Change, CommitRows, Ledger, Rows
from tests.spark_consumers.feed import (
    Feed,
    Tx,
    alter,
    delete,
    insert,
    loaded,
    started,
    table,
    truncate,
)

A = table("a", "id integer, v text")
B = table("b", "id integer, v text")
C = table("c", "id integer, v text")
NEW = Ledger("bank")


def rows_of(feed: Feed, ledger: Ledger) -> tuple:
    (segment,) = feed.segments(ledger)
    return segment, feed.read_rows(segment)


@pytest.mark.parametrize("damage", ["lost", "twice", "foreign"])
def test_rows_that_are_not_the_commits_are_refused(damage: str) -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x"), delete(A, "1"), truncate(A)])
    segment, content = rows_of(feed, ledger)
    changes = list(content.changes[A.id])
    if damage == "lost":
        changes.pop()
    elif damage == "twice":
        changes.append(changes[0])
    else:
        changes.append(Change(2, 0, "d", A.names(), None, None))

    check_complete(promised(segment), content)
    with pytest.raises(Incomplete):
        check_complete(promised(segment), Rows({A.id: changes}))


def test_a_truncation_may_stand_in_several_partitions() -> None:
    feed, ledger = started()
    feed.commits([truncate(A)])
    segment, content = rows_of(feed, ledger)

    check_complete(promised(segment), Rows({A.id: [*content.changes[A.id]] * 2}))


def test_a_load_with_fewer_rows_than_stated_is_refused() -> None:
    feed, ledger = started()
    feed.load(A, LoadPhase.CHUNK, ["1", "x"], ["2", "x"])
    segment, content = rows_of(feed, ledger)

    with pytest.raises(Incomplete):
        check_complete(promised(segment), Rows({A.id: content.changes[A.id][:1]}))


def test_rows_of_loads_are_counted_for_each_table() -> None:
    segment, content = rows_of(feed := loaded(A, B), feed.segments(NEW)[0].upto)
    a, b = content.changes[A.id], content.changes[B.id]

    check_complete(promised(segment), content)
    check_complete(promised(segment), Rows({**content.changes, C.id: []}, content.ddl))
    for wrong in ({A.id: a[1:], B.id: [*b, b[0]]}, {A.id: a}, {A.id: a, B.id: b, C.id: b[:1]}):
        with pytest.raises(Incomplete):
            check_complete(promised(segment), Rows(wrong, content.ddl))


def test_a_shape_that_a_load_begins_with_is_counted() -> None:
    feed = loaded(A, B)
    for at in (1, 5):
        offset, record = feed.records[at]
        assert isinstance(record, TableLoad)
        feed.records[at] = offset, replace(record, rows=1)
    segment, content = rows_of(feed, feed.segments(NEW)[0].upto)

    check_complete(promised(segment), content)
    with pytest.raises(Incomplete):
        check_complete(promised(segment), Rows(content.changes, content.ddl[:1]))


def plain(changes: list[Change]) -> Any:
    return changes


def packed(changes: list[Change]) -> Any:
    """As they are read: natively, where that is built."""
    rows = RowDecoder(envelope_schema("bank", A)).rows(1)
    for change in changes:
        rows.put(change)
    return rows


@pytest.mark.parametrize("held", [plain, packed])
@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ([(1, 0)], "1 of 2 rows are missing"),
        ([(1, 1)], "1 of 2 rows are missing"),
        ([(3, 0), (3, 1)], "2 of 3 rows are missing"),
        ([(3, 2)], "1 of 3 rows are missing"),
    ],
)
def test_rows_that_are_missing_are_named_by_their_commit(
    held: Callable[[list[Change]], Any], lost: list[tuple[int, int]], said: str
) -> None:
    feed, ledger = started()
    two, three = ([insert(A, str(at), "x") for at in range(size)] for size in (2, 3))
    feed.commits(two, Tx([], (Hole("public.b", "seen", "why"),)), three)
    segment, content = rows_of(feed, ledger)
    rows = [c for c in content.changes[A.id] if (c.seq, c.ordinal) not in lost]

    check_complete(promised(segment), Rows({A.id: held(list(content.changes[A.id]))}))
    with pytest.raises(Incomplete, match=said) as caught:
        check_complete(promised(segment), Rows({A.id: held(rows)}))
    assert caught.value.where["seq"] == lost[0][0]


@pytest.mark.parametrize("held", [plain, packed])
@pytest.mark.parametrize("at", [0, 1])
def test_a_row_that_is_not_of_the_commit_is_named_wherever_it_is(
    held: Callable[[list[Change]], Any], at: int
) -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x"), insert(A, "2", "x")])
    segment, content = rows_of(feed, ledger)
    rows = list(content.changes[A.id])
    rows.insert(at, replace(rows[0], seq=9))

    with pytest.raises(Incomplete, match="not of this commit") as caught:
        check_complete(promised(segment), Rows({A.id: held(rows)}))
    assert caught.value.where["seq"] == 9


def test_a_schema_change_that_is_there_twice_is_refused() -> None:
    feed, ledger = started()
    feed.commits([alter(A, B), insert(B, "1", "x")])
    segment, content = rows_of(feed, ledger)

    check_complete(promised(segment), content)
    with pytest.raises(Incomplete, match="twice"):
        check_complete(promised(segment), Rows(content.changes, [*content.ddl] * 2))


# ---------------------------------------------------------------- parts in commit order
COMMITS = Promised(1, CommitRows(4, [2, 0, 3]), None)  # 4: 0 1, 6: 0 1 2
Place = tuple[int, int]


def part(*places: Place, held: Callable[[list[Change]], Any] = plain) -> Rows:
    """Rows at these places; `held` as tasks and the driver have them."""
    return Rows({A.id: held([Change(*at, "d", A.names(), ["1", "x"], None) for at in places])})


ALL: list[Place] = [(4, 0), (4, 1), (6, 0), (6, 1), (6, 2)]


@pytest.mark.parametrize("held", [plain, packed])
@pytest.mark.parametrize("cuts", [(), (0,), (1,), (1, 1), (0, 2, 3), (0, 1, 2, 3), (4,)])
def test_parts_that_follow_each_other_are_everything(
    held: Callable[[list[Change]], Any], cuts: tuple[int, ...]
) -> None:
    following, start = Following(COMMITS), 0
    for at in cuts:
        following.take(part(*ALL[start : at + 1], held=held), ALL[at])
        start = at + 1
    following.take(part(*ALL[start:], held=held))
    following.end()


@pytest.mark.parametrize("held", [plain, packed])
@pytest.mark.parametrize(
    ("first", "upto", "said"),
    [
        ([(4, 0), (6, 0)], (6, 0), "1 of 2 rows are missing"),
        ([(4, 0), (4, 1)], (6, 1), "2 of 2 rows are missing"),
        ([(4, 0), (4, 1), (6, 0)], (4, 1), "twice"),  # behind the place
        ([(4, 0), (4, 0), (4, 1)], (4, 1), "twice"),
        ([(4, 0), (5, 0), (4, 1)], (4, 1), "not of this commit"),
        ([(4, 0)], (4, 2), "not of this commit"),
        ([(4, 0)], (5, 0), "not of this commit"),
        ([], (7, 0), "not of this commit"),
    ],
)
def test_a_part_that_is_not_what_stands_up_to_its_place_is_refused(
    held: Callable[[list[Change]], Any], first: list[Place], upto: Place, said: str
) -> None:
    following = Following(COMMITS)

    with pytest.raises(Incomplete, match=said):
        following.take(part(*first, held=held), upto)


@pytest.mark.parametrize("held", [plain, packed])
@pytest.mark.parametrize(
    ("second", "said"),
    [
        ([(4, 1), (6, 0), (6, 1), (6, 2)], "twice"),  # was in the first part
        ([(6, 1), (6, 2)], "1 of 3 rows are missing"),
        ([(6, 0), (6, 1), (6, 2), (9, 0)], "not of this commit"),
    ],
)
def test_a_part_begins_where_the_one_before_it_ended(
    held: Callable[[list[Change]], Any], second: list[Place], said: str
) -> None:
    following = Following(COMMITS)
    following.take(part((4, 0), (4, 1)), (4, 1))

    with pytest.raises(Incomplete, match=said):
        following.take(part(*second, held=held))


def test_parts_that_end_too_early_are_not_everything() -> None:
    following = Following(COMMITS)
    following.take(part(*ALL[:3]), (6, 0))

    with pytest.raises(Incomplete, match="2 rows are missing at the end"):
        following.end()


# ---------------------------------------------------------------- parts in any order
ONE = Promised(1, CommitRows(4, [6]), None)


@pytest.mark.parametrize("held", [plain, packed])
@pytest.mark.parametrize("parts", [[[0, 1, 2, 3, 4, 5]], [[5, 1], [], [0, 2, 4], [3]]])
def test_parts_of_a_commit_are_everything_in_any_order(
    held: Callable[[list[Change]], Any], parts: list[list[int]]
) -> None:
    sums = Sums(ONE)
    for places in parts:
        found = sums_of(part(*((4, at) for at in places), held=held), 4)
        assert found == (len(places), ordinals(places))
        sums.take(found)
    sums.end()


@pytest.mark.parametrize(
    "places",
    [
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4, 4],
        [0, 1, 2, 3, 5, 5],
        [0, 1, 2, 4, 4, 4],
        [1, 2, 3, 4, 5, 6],
        [0, 1, 2, 3, 4, 5, 5],
        [0, 0, 0, 5, 5, 5],
        [],
    ],
)
def test_ordinals_that_are_missing_or_there_twice_are_noticed(places: list[int]) -> None:
    sums = Sums(ONE)
    sums.take((len(places[:2]), ordinals(places[:2])))
    sums.take((len(places[2:]), ordinals(places[2:])))

    with pytest.raises(Incomplete) as caught:
        sums.end()
    assert caught.value.where["seq"] == 4


@pytest.mark.parametrize("held", [plain, packed])
def test_rows_of_another_commit_have_no_sum(held: Callable[[list[Change]], Any]) -> None:
    assert sums_of(part((4, 0), (5, 1), held=held), 4) is None
    assert sums_of(part((4, 0), held=held), 5) is None
    assert sums_of(Rows({}), 4) == (0, 0)
    both = Rows({A.id: held(list(part((4, 0)).changes[A.id])), B.id: part((4, 3)).changes[A.id]})
    assert sums_of(both, 4) == (2, ordinals([0, 3]))
