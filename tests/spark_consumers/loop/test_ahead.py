"""What is read while the target applies: in order, bounded, and thrown away with its plan."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import pytest

from spark_consumers.cuts import sizes
from spark_consumers.cuts.sizes import Sizes
from spark_consumers.errors import CutsGap, Incomplete
from spark_consumers.loop.ahead import ALONE, Ahead, InTurn, Promise, ReadingThread, Several
from spark_consumers.model import Ledger, Rows, Segment
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


def test_what_was_read_is_staged_in_its_turn() -> None:
    reading, staged = Reading(1, 1, 1), []
    commits = reading.feed.segments(Ledger("bank"), strict=True)[1:]
    ahead = executors(commits, lambda _, rows: staged.extend(rows))

    assert [len(staged) for _ in steps(ahead)] == [1, 2, 3]


# ---------------------------------------------------------------- what tasks read together
class Together(Reading):
    """Commits of 10 rows and more are read by tasks, up to three at once."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.groups: list[list[int]] = []  # by the commits of each job
        self.unread: set[int] = set()  # commits that no task could read
        self.most = 3
        self.options.setdefault("several", Several(self.at_once, self.by_tasks))

    def at_once(self, segment: Segment) -> int:
        return self.most if segment.rows >= 10 else 0

    def by_tasks(self, segments: Sequence[Segment]) -> list[Rows | None]:
        self.groups.append([one.first_seq for one in segments])
        for one in segments:
            if one.first_seq in self.fails:
                raise self.fails[one.first_seq]
        return [
            None if one.first_seq in self.unread else self.feed.read_rows(one) for one in segments
        ]

    def weigh(self, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
        """Let so many rows be what may be held of a segment, and know what a row weighs."""
        self.options["sizes"].learn(self.feed.read_rows(self.feed.segments(Ledger("bank"))[-1]))
        held = int(self.options["sizes"].row_bytes * rows) + 1
        monkeypatch.setattr(sizes, "HELD_BYTES", held)

    def seen(self, begin: Any = AtOnce) -> list[tuple[int, int]]:
        """Each commit, and how many jobs had been before it was handed over."""
        found = []
        for segment, rows in steps(self.ahead(begin)):
            assert rows.changes == self.feed.read_rows(segment).changes
            found.append((segment.first_seq, len(self.groups)))
        return found


def test_large_segments_are_read_together_and_handed_over_in_their_order() -> None:
    reading = Together(10, 10, 10, 10, 1, 1, 10, 1, together=5)

    assert reading.seen(InTurn) == [
        *((1, 1), (2, 1), (3, 1), (4, 2)),
        *((5, 2), (6, 2), (7, 3), (8, 3)),
    ]
    assert reading.groups == [[1, 2, 3], [4], [7]]
    assert reading.read == [(5, 6), (8, 8)]


def test_the_next_group_is_read_while_the_first_of_one_is_applied() -> None:
    reading = Together(*[10] * 8)

    assert [jobs for _, jobs in reading.seen()] == [2, 2, 2, 3, 3, 3, 3, 3]
    assert reading.groups == [[1, 2, 3], [4, 5, 6], [7, 8]]


def test_groups_pass_through_a_thread() -> None:
    reading = Together(*[10, 1, 12, 11, 10, 10, 2, 3, 10], together=4)
    reading.unread = {3, 9}
    with closing(ReadingThread()) as thread:
        assert [seq for seq, _ in reading.seen(thread)] == [*range(1, 10)]
    assert reading.read == [(2, 2), (3, 3), (7, 7), (8, 8), (9, 9)]


@pytest.mark.parametrize("unread", [{1}, {2}, {3}, {1, 3}, {1, 2, 3}])
def test_what_no_task_could_read_is_read_in_its_turn_and_nothing_beside_it(
    unread: set[int],
) -> None:
    """The driver has one reader, which is not to be used twice at once."""
    reading = Together(10, 10, 10, 1, 1)
    reading.unread = unread

    assert [seq for seq, _ in reading.seen()] == [1, 2, 3, 4, 5]
    assert [first for first, _ in reading.read] == [*sorted(unread), 4, 5]


def test_what_a_job_raises_is_raised_in_its_turn() -> None:
    reading = Together(10, 10, 10, 10, 10)
    reading.fails[5] = Incomplete("rows are missing")

    assert applied(reading.ahead(), Incomplete) == [1, 2, 3]
    assert reading.groups == [[1, 2, 3], [4, 5]]


def test_no_more_is_read_together_than_may_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Together(*[10] * 7)
    reading.weigh(monkeypatch, 25)

    # Two together; as much again is read ahead, and no more.
    assert [jobs for _, jobs in reading.seen()] == [2, 2, 3, 3, 4, 4, 4]
    assert reading.groups == [[1, 2], [3, 4], [5, 6], [7]]


def test_a_group_too_large_to_be_held_beside_another_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = Together(30, 30, 10, 10)
    reading.weigh(monkeypatch, 27)

    assert [jobs for _, jobs in reading.seen()] == [1, 2, 2, 2]
    assert reading.groups == [[1], [3, 4]]
    assert reading.read == [(2, 2)]


def test_rows_that_were_read_beside_one_that_waited_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The third of a group is held still while the first, which no task read, is applied."""
    reading = Together(10, 10, 10, 24, 1)
    reading.weigh(monkeypatch, 25)
    reading.options["several"] = Several(lambda one: 3 if one.rows >= 10 else 0, reading.by_tasks)
    monkeypatch.setattr(Sizes, "together", lambda *_: 3)
    reading.unread = {1}

    assert reading.seen() == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]
    assert reading.read == [(1, 1), (4, 4), (5, 5)]


def test_nothing_is_read_beside_what_comes_in_parts() -> None:
    reading = Together(10, 1, 10, 1)
    plan = reading.feed.segments(Ledger("bank"), strict=True)[1:]
    read: list[int] = []

    def parts(segment: Segment) -> list[int]:
        read.append(segment.first_seq)
        return read

    ahead = Ahead(
        plan, parts, staging, AtOnce, sizes=Sizes(25), together=1,
        several=Several(reading.at_once, lambda several: [None for _ in several]),
    )  # fmt: skip

    assert [len(read) for _ in steps(ahead)] == [1, 2, 3, 4]


def test_without_tasks_there_are_no_groups() -> None:
    reading = Together(10, 10, 1, several=ALONE)

    assert [seq for seq, _ in reading.seen()] == [1, 2, 3]
    assert (reading.groups, len(reading.read)) == ([], 3)


# ---------------------------------------------------------------- a thread
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
