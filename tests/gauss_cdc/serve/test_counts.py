"""What the loops count, and what probes are told of it."""

import time

import pytest

from gauss_cdc.serve.counts import (
    BOUNDS,
    OTHER,
    ApplyCounts,
    Latencies,
    RunCounts,
    Shown,
    Turns,
    by_table,
)
from producer.core.loop import Progress as Streamed
from schemas.control import CommitEntry, Commits, Head, Range
from spark_consumers.errors import RowMissing, TargetDown
from spark_consumers.loop.job import AppliedStep as Applied
from spark_consumers.model import CommitRows, Ledger, Segment, Ways

LAG = 60.0


def now_us(age: float = 0) -> int:
    return round((time.time() - age) * 1e6)


class Clock:
    """A clock that is moved by hand."""

    at = 0.0

    def __call__(self) -> float:
        return self.at


def test_a_bucket_has_what_is_not_above_its_bound() -> None:
    seen = Latencies()
    for seconds in (-1.0, 0.005, 0.006, 1e6):
        seen.add(seconds)

    assert seen.counts[:2] == [2, 1]
    assert (seen.counts[len(BOUNDS)], seen.total) == (1, 1_000_000.011)


def test_tables_behind_the_limit_are_summed_and_one_that_is_shown_stays() -> None:
    shown = Shown(2)

    assert shown.summed({"a.a": 1, "a.b": 2, "a.c": 4, "a.d": 8}) == {"a.a": 1, "a.b": 2, OTHER: 12}
    assert shown.summed({"a.d": 9, "a.b": 3}) == {OTHER: 9, "a.b": 3}
    assert shown.greatest({"a.c": 5, "a.d": 3, "a.a": 1}) == {OTHER: 5, "a.a": 1}
    assert shown.others == 2


def test_a_topic_is_its_table() -> None:
    records = {"bank.public.account": 3, "bank.ddl": 1, "bank.a_u002eb.t": 2}

    assert by_table(records, "bank") == {"public.account": 3, '"a.b".t': 2}


def test_only_a_loop_that_does_not_turn_is_not_alive() -> None:
    clock = Clock()
    turns = Turns(100, clock)

    clock.at = 99.9
    assert turns.health() == "alive"
    clock.at = 100
    assert (turns.health(), turns.age) == ("stuck", 100)
    turns.turn()
    assert turns.health() == "alive"


@pytest.fixture
def run() -> RunCounts:
    steps: list[str] = []
    return RunCounts(Streamed(), steps.append, Turns(1), by_csn=False, ready_lag=LAG)


def test_a_run_is_ready_when_it_streams_and_is_not_behind(run: RunCounts) -> None:
    said = [run.ready()]
    for step in ("start: lock", "start: look", "load: CHUNK", "run: read", "run: rows sent"):
        run.on_step(step)
        said.append(run.ready())
    run.progress.is_idle, run.progress.committed_at = False, now_us(2 * LAG)
    said.append(run.ready())
    run.on_retry("Kafka does not answer; retrying in 1 s")
    said.append(run.ready())
    run.on_step("start: connect")
    said.append(run.ready())

    assert said == [
        *("starting", "starting", "starting", "loading", "ready", "ready"),
        *("behind", "retrying", "starting"),
    ]


def test_a_run_that_waits_for_the_lock_stands_by(run: RunCounts) -> None:
    run.on_step("start: lock")
    run.on_step("start: lock")
    assert run.ready() == "standby"
    run.on_retry("the source does not answer; retrying in 1 s")
    assert run.ready() == "retrying"
    run.on_step("start: lock")
    run.on_step("start: look")
    assert run.ready() == "starting"


def test_what_is_durable_is_counted_by_topic_and_by_its_age(run: RunCounts) -> None:
    ranges = (Range("bank.public.a", 0, 10, 13), Range("bank.public.a", 1, 0, 2))
    entry = CommitEntry(1, 1, 0, 1, 2, now_us(), 5, {0: 3, 1: 2})
    cut = Commits(Head(1, 7, 1, "i", 1, 0, 1), (entry,), ranges)

    run.on_durable((cut,), [now_us(0.2), now_us(7)])
    run.on_durable((cut,), [])

    assert (run.records, run.epoch) == ({"bank.public.a": 10}, cut.head.epoch)
    assert [run.latencies.counts[BOUNDS.index(bound)] for bound in (0.25, 10.0)] == [1, 1]


@pytest.fixture
def apply() -> ApplyCounts:
    steps: list[str] = []
    return ApplyCounts(steps.append, Turns(1), ready_lag=LAG)


def applied(age: float, commits: int = 1) -> Applied:
    ledger = Ledger("bank", epoch=1, committed_at=now_us(age))
    entries = CommitRows(1, [1] * commits)
    cut = Commits(Head(1, 1, 1, "i", 1, 0, 1), (), ())
    return Applied(Segment(cut, ledger, ledger, commit_rows=entries), ledger, 1, 1, 1, Ways())


def test_an_apply_is_ready_when_it_follows_and_is_not_behind(apply: ApplyCounts) -> None:
    said = [apply.ready()]
    apply.on_standby()
    said.append(apply.ready())
    for reached in (None, Ledger("bank"), Ledger("bank", epoch=1)):
        apply.on_pass(reached)
        said.append(apply.ready())
    apply.on_retry(TargetDown("the target does not answer"), 1.0)
    said.append(apply.ready())
    apply.on_progress(applied(0))
    said.append(apply.ready())

    assert said == [
        *("starting", "standby", "starting", "starting", "ready"),
        *("retrying", "ready"),
    ]


def test_only_steps_with_commits_have_a_latency(apply: ApplyCounts) -> None:
    apply.on_progress(applied(0.2))
    apply.on_progress(applied(0.2, commits=0))

    assert sum(apply.latencies.counts) == 1


def test_errors_are_counted_and_by_the_table_that_they_name(apply: ApplyCounts) -> None:
    apply.on_attempt(RowMissing("a row is not there", table="public.a"))
    apply.on_retry(TargetDown("the target does not answer"), 1.0)

    assert (apply.retries, apply.errors) == (2, {"public.a": 1})
