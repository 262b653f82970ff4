"""Micro-batches that stay open until the target holds what they name; no Spark."""

import itertools
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from gauss_cdc_lab.services.process import poll
from spark_consumers.spark.micro_batches import MOST_CUTS, MicroBatches

PATIENCE = 60.0


class Query:
    """A batch, held by a thread of its own."""

    def __init__(self, batches: MicroBatches[str], end: int, batch: str = "batch") -> None:
        self.rows: int | None = None
        self._batches = batches
        self._thread = threading.Thread(target=self._hold, args=(batch, end), daemon=True)
        self._thread.start()
        poll(lambda: self.is_over or self.is_waiting, PATIENCE)
        assert self.is_over or self.is_waiting

    def _hold(self, batch: str, end: int) -> None:
        self.rows = self._batches.hold(batch, end)

    @property
    def is_waiting(self) -> bool:
        return self._batches.open() is not None

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> int:
        self._thread.join(PATIENCE)
        assert self.rows is not None
        return self.rows


def test_a_batch_ends_with_the_first_whole_pass_that_began_after_it() -> None:
    """Every order of passes that begin, end and fail, and of a close, around a batch."""
    for order in itertools.product(["begin", "end", "fail", "close"], repeat=4):
        for asked_at in range(len(order) + 1):
            batches, running, query = MicroBatches[str](0), ExitStack(), None
            is_ours = is_busy = is_over = False  # is_ours: did the pass begin after the batch?
            for at, event in enumerate([*order, "last"]):
                if at == asked_at:
                    query = Query(batches, 1)
                if event == "begin" and not is_busy:
                    running.enter_context(batches.one_pass())
                    is_busy, is_ours = True, query is not None
                elif event == "end" and is_busy:
                    running.close()
                    is_busy, is_over = False, is_over or is_ours
                elif event == "fail" and is_busy:
                    with pytest.raises(ValueError, match="failed"), running:
                        raise ValueError("failed")
                    is_busy = False
                elif event == "close":
                    batches.close()
                    is_over = True
                if query is not None and is_over:
                    query.end()
                assert query is None or query.is_over is is_over, (order, asked_at)
            batches.close()
            if query is not None:
                query.end()


def test_a_batch_ends_where_the_target_holds_what_it_names_and_tells_its_rows() -> None:
    batches = MicroBatches[str](0)
    batches.applied(5, 7)  # between two batches: rows of the next one
    query = Query(batches, 10)
    batches.applied(9, 20)
    assert query.is_waiting

    batches.applied(10, 300)

    assert query.end() == 327
    batches.applied(12, 1)
    assert Query(batches, 12).end() == 1


def test_a_batch_stays_open_for_what_comes_next_unless_spark_lags_behind_the_target() -> None:
    time = [0.0]
    batches = MicroBatches[str](5, now=lambda: time[0])
    batches.applied(10, 1)
    query = Query(batches, 10)
    assert batches.open() == "batch"

    batches.applied(10 + MOST_CUTS - 1, 2)
    assert query.is_waiting
    batches.applied(10 + MOST_CUTS, 4)
    assert query.end() == 7

    query = Query(batches, 10 + MOST_CUTS)
    time[0] = 5.0
    with batches.job() as batch:  # whose end wakes the batch
        assert batch == "batch"
    assert query.end() == 0


def test_a_batch_does_not_end_while_a_job_of_its_runs_and_no_job_begins_then() -> None:
    batches = MicroBatches[str](0)
    query = Query(batches, 10)
    with batches.job() as batch:
        assert batch == "batch"
        batches.applied(10, 1)
        poll(lambda: not query.is_waiting, PATIENCE)
        assert batches.open() is None
        with batches.job() as other:
            assert other is None
        assert not query.is_over

    assert query.end() == 1


def test_a_batch_is_waited_for_where_a_query_runs() -> None:
    batches = MicroBatches[str](0)
    assert batches.open(PATIENCE) is None  # no query: at once
    found: list[str | None] = []

    def waiting(ask: Callable[[], str | None]) -> threading.Thread:
        thread = threading.Thread(target=lambda: found.append(ask()), daemon=True)
        thread.start()
        return thread

    with batches.coming():
        first = waiting(lambda: batches.open(PATIENCE))
        query = Query(batches, 10)
        first.join(PATIENCE)
        batches.applied(10, 1)
        query.end()
        second = waiting(lambda: batches.open(PATIENCE))
    second.join(PATIENCE)  # the query ended

    assert found == ["batch", None]


def test_nothing_waits_when_the_loop_has_ended() -> None:
    batches = MicroBatches[str](PATIENCE)
    query = Query(batches, 10)
    with batches.job(), suppress(StopIteration):
        batches.close()
        assert query.end() == 0  # a job that a stop ends is not waited for
        assert batches.open(PATIENCE) is None

    assert Query(batches, 10).end() == 0
    assert batches.wait_for_place() == 0


def test_where_the_loop_has_come_is_known_with_its_first_step() -> None:
    """Within a pass: a catch-up is one pass, and Spark's tasks are for it, too."""
    batches = MicroBatches[str](0)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(batches.wait_for_place()))
    with batches.one_pass():
        thread.start()
        batches.applied(17, 1)
        thread.join(PATIENCE)

    assert found == [17]
