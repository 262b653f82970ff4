"""What is read while the target applies: in order, bounded, and thrown away with its plan."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar

import pytest

from schemas.control import LoadPhase
from spark_consumers.ahead import Ahead, InTurn, Promise, ReadingThread
from spark_consumers.errors import CutsGap, Incomplete
from spark_consumers.model import Ledger, Rows, Segment
from spark_consumers.sizes import Sizes
from tests.spark_consumers.feed import Feed, Tx, alter, insert, table, truncate

T = TypeVar("T")
A, B = table("a", "id integer, v text"), table("b", "id integer, v text")
WIDER = table("a", "id integer, v text, w text")


class AtOnce(InTurn[T]):
    """Everything is read as early as it may be."""

    def __init__(self, call: Callable[[], T]) -> None:
        results: list[T] = []
        try:
            results.append(call())
        except Exception as caught:  # noqa: BLE001  raised where the result is asked for
            error: Exception = caught

        def result() -> T:
            if not results:
                raise error
            return results[0]

        super().__init__(result)


class Reading:
    """A feed that notes what is read of it."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        self.feed = Feed()
        self.feed.start()
        for at, size in enumerate(sizes):
            self.feed.commits([insert(A, f"{at}.{row}", "x") for row in range(size)])
        self.read: list[tuple[int, int]] = []
        self.fails: dict[int, Exception] = {}  # by the first commit of what is read
        self.options = {"sizes": Sizes(25), "together": 1, **options}

    def __call__(self, segment: Segment) -> Rows:
        self.read.append((segment.first_seq, segment.last_seq))
        for seq in segment.commit_rows:
            if seq in self.fails:
                raise self.fails[seq]
        return self.feed.read_rows(segment)

    def ahead(self, begin: Any = AtOnce, plan: Iterator[Segment] | None = None) -> Ahead:
        commits = self.feed.segments(Ledger("bank"), strict=True)[1:]
        return Ahead(commits if plan is None else plan, self, staging, begin, **self.options)


def staging(_: Segment, rows: Any) -> Any:
    return rows


def steps(ahead: Ahead) -> Iterator[tuple[Segment, Rows]]:
    with closing(ahead):
        while (step := ahead.next()) is not None:
            yield step.segment, step.staged


def applied(ahead: Ahead, until: type[Exception]) -> list[int]:
    """The first commits of the segments that come before an error."""
    seen: list[int] = []
    with pytest.raises(until):
        seen.extend(segment.first_seq for segment, _ in steps(ahead))
    return seen


def test_the_next_segment_is_read_before_the_one_under_way_is_applied() -> None:
    reading = Reading(1, 1, 1, 1)
    seen = [(s.first_seq, len(reading.read)) for s, _ in steps(reading.ahead())]

    assert seen == [(1, 2), (2, 3), (3, 4), (4, 4)]


def test_in_turn_nothing_is_read_before_it_is_needed() -> None:
    reading = Reading(1, 1, 1)

    assert [len(reading.read) for _ in steps(reading.ahead(InTurn))] == [1, 2, 3]


def test_what_is_too_large_to_be_held_with_what_is_under_way_waits_for_its_turn() -> None:
    reading = Reading(60, 60, 30, 30, 200, 1)
    seen = [(s.first_seq, len(reading.read)) for s, _ in steps(reading.ahead())]

    assert seen == [(1, 1), (2, 3), (3, 4), (4, 4), (5, 5), (6, 6)]


def test_what_a_reading_raises_is_raised_in_its_turn() -> None:
    reading = Reading(1, 1, 1)
    reading.fails[2] = KeyError("no")
    ahead = reading.ahead()

    assert ahead.next() is not None
    with pytest.raises(KeyError), closing(ahead):
        ahead.next()


def test_what_the_plan_raises_comes_behind_what_was_planned_before() -> None:
    reading = Reading(1, 1, 1, together=50)

    def plan() -> Iterator[Segment]:
        yield from reading.feed.segments(Ledger("bank"), strict=True)[1:3]
        raise CutsGap("no")

    assert applied(reading.ahead(plan=plan()), CutsGap) == [1, 2]


def test_small_commits_are_read_at_once_and_handed_over_one_by_one() -> None:
    reading = Reading(together=5)
    feed = reading.feed
    feed.commits([insert(A, "1", "x"), insert(B, "1", "x")])
    feed.commits([insert(B, "2", "x"), truncate(A), insert(A, "3", "x")])
    feed.commits(Tx([insert(A, "4", "x"), alter(A, WIDER), insert(WIDER, "5", "x", "y")]))
    feed.commits([insert(A, f"{at}", "x") for at in range(6, 12)])
    feed.commits([insert(A, "12", "x")])
    plan = feed.segments(Ledger("bank"), strict=True)[1:]

    found = list(steps(reading.ahead(plan=iter(plan))))

    assert reading.read == [(1, 2), (3, 3), (4, 4), (5, 5)]
    assert [segment for segment, _ in found] == plan
    for segment, rows in found:
        wanted = feed.read_rows(segment)
        assert (rows.changes, list(rows.ddl)) == (wanted.changes, list(wanted.ddl))


def test_a_commit_that_cannot_be_read_keeps_none_before_it_back() -> None:
    reading = Reading(1, 1, 1, 1, together=50)
    reading.fails[3] = Incomplete("rows are missing")

    assert applied(reading.ahead(), Incomplete) == [1, 2]
    assert reading.read == [(1, 4), (1, 1), (2, 2), (3, 3)]


def test_rows_that_executors_read_are_not_divided() -> None:
    reading = Reading(1, 1, together=50)
    commits = reading.feed.segments(Ledger("bank"), strict=True)[1:]

    assert [rows for _, rows in steps(executors(commits, together=50))] == [[1], [2]]


def executors(plan: list[Segment], stage: Any = staging, *, together: int = 1) -> Ahead:
    """What executors read of a segment is the number of its first commit here."""
    return Ahead(
        plan, lambda segment: [segment.first_seq], stage, AtOnce, sizes=Sizes(9), together=together
    )


def test_what_executors_bring_is_staged_while_the_segment_before_is_applied() -> None:
    reading, staged = Reading(1, 1, 1), []
    commits = reading.feed.segments(Ledger("bank"), strict=True)[1:]
    ahead = executors(commits, lambda _, rows: staged.extend(rows))

    assert [len(staged) for _ in steps(ahead)] == [2, 3, 3]


def test_nothing_is_staged_while_tables_are_altered_or_made() -> None:
    feed, staged = Feed(), []
    feed.start()
    feed.commits([insert(A, "1", "x")])
    feed.commits(Tx([alter(A, WIDER), insert(WIDER, "2", "x", "y")]))
    feed.commits([insert(WIDER, "3", "x", "y")])
    feed.load(B, LoadPhase.BEGIN)
    feed.load(B, LoadPhase.CHUNK, ["1", "x"])
    feed.commits([insert(B, "2", "x")])
    plan = feed.segments(Ledger("bank"), max_rows=1)
    ahead = executors(plan, lambda segment, _: staged.append(segment.cut.head.n))

    found = [(segment.cut.head.n, staged[-1]) for segment, _ in steps(ahead)]

    assert found == [(1, 2), (2, 3), (3, 3), (4, 6), (6, 6), (7, 7)]


def test_a_thread_reads_one_thing_at_a_time_and_ends_before_its_readers_are_closed() -> None:
    begun, may_end = threading.Semaphore(0), threading.Semaphore(0)
    done: list[int] = []

    def call(number: int) -> int:
        begun.release()
        may_end.acquire()
        done.append(number + 0 * sum(range(1_000_000)))  # who does not wait is faster
        return number

    with closing(ReadingThread()) as thread:
        first: Promise[int] = thread(lambda: call(1))
        second: Promise[int] = thread(lambda: call(2))
        begun.acquire()
        second.abandon()
        may_end.release()
        assert first.result() == 1
        third: Promise[int] = thread(lambda: call(3))
        begun.acquire()
        may_end.release()
        third.abandon()
        assert done == [1, 3]
        with pytest.raises(ZeroDivisionError):
            thread(lambda: 1 // 0).result()


def test_the_whole_plan_passes_through_a_thread() -> None:
    reading = Reading(*range(1, 30), together=7)
    with closing(ReadingThread()) as thread:
        found = [(one, len(rows.changes[A.id])) for one, rows in steps(reading.ahead(thread))]

    assert [(one.first_seq, rows) for one, rows in found] == [(n, n) for n in range(1, 30)]
