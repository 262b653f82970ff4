"""The consumer's loop over its ports: turns, pauses, a stop, and what leaves it."""

from collections.abc import Callable

import pytest

from spark_consumers.errors import (
    ApplyError,
    Fenced,
    QueryEnded,
    RowMissing,
    TargetDown,
    TargetRefused,
)
from spark_consumers.loop.job import AppliedStep, Observer, PassOptions
from spark_consumers.loop.run import Polling, Stop, run
from tests.spark_consumers.feed import Feed, insert, table
from tests.spark_consumers.loop.test_job import MemorySink

A = table("a", "id integer, v text")


class Errors(Observer):
    """What a run reported of its errors."""

    def __init__(self) -> None:
        self.retries: list[str] = []
        self.left: list[str] = []

    def on_retry(self, error: ApplyError, seconds: float) -> None:
        self.retries.append(error.what)

    def on_leave(self, error: ApplyError) -> None:
        self.left.append(error.what)


class Running:
    """A run of a feed into memory, with a clock of its own."""

    def __init__(self) -> None:
        self.feed, self.sink, self.errors = Feed(), MemorySink(), Errors()
        self.feed.start()
        self.feed.commits([insert(A, "1", "x")])
        self.is_over = False
        self.paused: list[float] = []
        self.until: Callable[[], bool] = lambda: self.sink.held.seq == self.feed.seq

    def stop(self, seconds: float = 0, /) -> bool:
        if seconds:
            self.paused.append(seconds)
        return self.is_over

    def wait(self, _seconds: float) -> None:
        self.is_over = self.until()

    def run(self) -> None:
        run(
            self.sink, self.feed.read_cuts, self.feed.read_rows, Polling(self.wait),
            options=PassOptions(attempts=2), stop=self.stop, observer=self.errors,
        )  # fmt: skip


def broken(running: Running, *errors: BaseException, where: str = "before") -> None:
    """Make the first steps fail, one for each error."""
    left = list(errors)

    def trouble(at: str) -> None:
        if at == where and left:
            raise left.pop(0)

    running.sink.trouble = trouble


def test_a_run_applies_what_is_there_and_what_comes_until_it_is_stopped() -> None:
    running = Running()
    running.until = lambda: running.sink.held.seq == 3
    inner = running.wait

    def wait(seconds: float) -> None:
        inner(seconds)
        running.feed.commits([insert(A, "9", "x")])

    running.wait = wait  # type: ignore[method-assign]

    running.run()

    assert running.sink.seqs[:3] == [1, 2, 3]
    assert (running.sink.starts, running.sink.closes) == (1, 1)
    assert running.errors.retries == running.paused == []


def test_one_pass_runs_before_anything_wakes_the_loop() -> None:
    running = Running()
    applied: list[list[int]] = []
    told: list[int] = []  # commits that were applied, by step

    class Waker:
        def begin(self) -> None:
            applied.append(list(running.sink.seqs))

        def run(self, drain: Callable[[], object], stop: Stop, observer: Observer) -> None:
            applied.append(list(running.sink.seqs))

        def applied(self, progress: AppliedStep) -> None:
            told.append(progress.commits)

        def close(self) -> None:
            applied.append([])

    run(
        running.sink, running.feed.read_cuts, running.feed.read_rows, Waker(), stop=running.stop
    )  # fmt: skip

    assert applied == [[], [1], []]
    assert told == [0, 1]


def test_a_temporary_error_is_reported_and_the_next_turn_continues() -> None:
    running = Running()
    broken(running, TargetDown("one"), TargetDown("two"), QueryEnded("three"))

    running.run()

    assert running.sink.seqs == [1]
    assert running.errors.retries == ["two"]  # after the attempts of a pass
    assert running.sink.starts == 1


def test_nothing_begins_while_another_applier_is_there() -> None:
    running = Running()
    running.sink.others = 3

    running.run()

    assert (running.sink.starts, running.sink.seqs) == (4, [1])
    assert len(running.paused) == 3
    assert running.errors.retries == []


def test_a_run_that_waits_for_another_applier_leaves_when_it_is_asked_to() -> None:
    running = Running()
    running.sink.others = 99
    running.is_over = True

    running.run()

    assert (running.sink.starts, running.sink.seqs, running.sink.closes) == (1, [], 1)


def test_a_run_without_work_notices_that_it_was_replaced() -> None:
    running = Running()

    def wait(_seconds: float) -> None:
        running.sink.is_overtaken = True

    running.wait = wait  # type: ignore[method-assign]

    with pytest.raises(Fenced):
        running.run()

    assert running.sink.seqs == [1]


def test_a_start_that_fails_is_tried_again() -> None:
    running = Running()
    broken(running, TargetDown("no connection"), where="start")

    running.run()

    assert running.errors.retries == ["no connection"]
    assert running.sink.starts == 2
    assert running.sink.seqs == [1]


def test_pauses_grow_with_failures_in_a_row_up_to_a_limit() -> None:
    running = Running()
    broken(running, *[TargetDown("down")] * 12)

    running.run()

    pauses = [p for p in running.paused if p != 0.4]  # 0.4: inside of a pass
    assert len(pauses) == len(running.errors.retries) == 6
    for at, pause in enumerate(pauses):
        longest = min(15, 0.5 * 2 ** (at + 1))
        assert longest / 2 <= pause <= longest


@pytest.mark.parametrize("error", [Fenced, TargetRefused, RowMissing, KeyError])
def test_what_needs_a_person_or_a_programmer_leaves_and_the_sink_is_closed(error) -> None:
    running = Running()
    broken(running, error("no"))

    with pytest.raises(error):
        running.run()

    assert running.errors.retries == []
    assert running.sink.closes == 1


def test_a_stop_while_the_target_is_down_leaves_without_an_error() -> None:
    running = Running()

    def trouble(_: str) -> None:
        running.is_over = True
        raise TargetDown("down")

    running.sink.trouble = trouble

    running.run()

    assert running.errors.left == ["down"]
    assert running.errors.retries == []
    assert running.sink.closes == 1
