"""The line a minute of `run` and `apply`, and the lines of a load."""

import logging
import threading
from collections import Counter

import pytest

from gauss_cdc.reports import ApplyReport, Passing, Reporter, RunReport, apply_lag, run_lag
from producer.core.key_ranges import Upto
from producer.core.loop import Progress as Streamed
from schemas.control import Commits, Head, LoadPhase, TableLoad
from schemas.tables import TableId
from spark_consumers.errors import KafkaDown, Superseded
from spark_consumers.loop.job import AppliedStep as Applied
from spark_consumers.model import Ledger, Segment, Ways

BIG = TableId("public", "big")
HEAD = Head(1, 1, 1, "i", 0, 0, -1)


def applied(
    cut: object, rows: int, commits: int = 0, ways: Ways | None = None, **ledger: object
) -> Applied:
    now = Ledger("bank", epoch=1, **ledger)  # type: ignore[arg-type]
    loads = (cut,) if isinstance(cut, TableLoad) else ()
    segment = Segment(cut, now, now, loads=loads)  # type: ignore[arg-type]
    return Applied(segment, now, 1, commits, rows, ways or Ways())


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", logger="gauss_cdc")
    return caplog


def fields(said: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, object]]]:
    return [(one.getMessage(), one.context) for one in said.records]  # type: ignore[attr-defined]


def test_run_says_rows_since_the_last_line_rate_lag_and_position(said) -> None:
    progress = Streamed(rows=100, commits=10, resume=0x20, received=0x50, takeovers=1)
    report = RunReport(progress)
    report.write(60)
    progress.rows, progress.commits, progress.retries = 700, 20, 1
    report.write(60)

    first, second = (context for message, context in fields(said) if message == "streamed")
    assert (first["rows"], first["rows_per_s"]) == (100, 1.7)
    assert (second["rows"], second["commits"], second["rows_per_s"]) == (600, 10, 10.0)
    assert (second["position"], second["lag_bytes"], second["retries"]) == ("0/20", 0x30, 1)


def test_a_table_that_waits_for_the_stream_is_in_the_line(said) -> None:
    progress = Streamed(takeovers=1)
    report = RunReport(progress)
    report.write(60)
    progress.waits_for = "public.a: the low mark, transaction 11, for 59 s"
    report.write(60)

    assert [context.get("waits_for") for _, context in fields(said)] == [None, progress.waits_for]


def test_csns_are_no_places_in_the_log(said) -> None:
    RunReport(Streamed(takeovers=1, received=1 << 40), by_csn=True).write(60)

    assert not {"lag_bytes", "lag_csns"} & fields(said)[0][1].keys()


def test_what_heartbeats_tell_is_lag(said) -> None:
    now = Streamed(takeovers=1, received=0x50, told_end=0x90, resume=0x20)
    RunReport(now).write(60)
    RunReport(now, by_csn=True).write(60)

    (_, by_position), (_, by_csn) = fields(said)
    assert by_position["lag_bytes"] == by_csn["lag_csns"] == 0x70


def test_a_load_is_seen_without_a_terminal_and_its_end_once(said) -> None:
    report = RunReport(Streamed(takeovers=1))
    report.on_load(BIG, 10_000, 50_000)
    report.on_load(BIG, 20_000, 50_000)
    report.write(60)
    report.on_load(BIG, 50_000, 50_000)  # the estimate, by chance
    report.on_load(BIG, 60_000, 50_000)
    report.on_load(BIG, 60_000, 60_000)

    (loading, first), (loaded, last) = fields(said)
    assert (loading, loaded) == ("loading", "loaded")
    assert (first["table"], first["rows"], first["of_about"]) == ("public.big", 20_000, 50_000)
    assert first["left_s"] <= 30_000 / first["rows_per_s"] + 1
    assert last["rows"] == 60_000


def test_what_an_earlier_run_has_loaded_is_in_the_rows_and_not_in_the_rate(said) -> None:
    report = RunReport(Streamed(takeovers=1))
    report.on_load(BIG, 40_000, 50_000)
    report.write(60)
    report.on_load(BIG, 40_010, 50_000)
    report.write(60)

    (_, first), (_, then) = fields(said)
    assert (first["rows"], first["rows_per_s"], "left_s" in first) == (40_000, 0, False)
    assert then["rows"] == 40_010
    assert then["left_s"] + 1 > 9_000 / max(then["rows_per_s"], 1)


def test_nothing_is_said_of_a_stream_that_has_not_begun(said) -> None:
    RunReport(Streamed()).write(60)

    assert not said.records


def test_apply_says_rows_rate_lag_and_position(said) -> None:
    report = ApplyReport()
    report.on_step("connect")
    report.write(60)
    report.on_progress(applied(Commits(HEAD, (), ()), 600, 5, seq=5, state="EXACT"))
    report.write(60)

    (nothing, first), (message, second) = fields(said)
    assert (nothing, first["step"], message) == ("nothing applied yet", "connect", "applied")
    assert second["step"] == "connect", "it has not come to the head"
    assert (second["rows"], second["commits"], second["rows_per_s"]) == (600, 5, 10.0)
    assert (second["position"], second["state"], second["lag_s"]) == ("1/5", "EXACT", 0.0)


def test_apply_says_by_table_which_way_rows_went_since_the_last_line(said) -> None:
    report, cut = ApplyReport(), Commits(HEAD, (), ())
    before = Ways(Counter({"bank.public.a": 100}), Counter({"bank.public.big": 5}))
    report.on_progress(applied(cut, 105, 5, before))
    report.write(60)
    names = {f"bank.public.{name}": n for n, name in enumerate(("a_u002eb", "c", "d", "e"), 10)}
    report.on_progress(
        applied(
            cut,
            2_000_151,
            6,
            Ways(before.by_driver + Counter(names), Counter({"bank.public.big": 2_000_005})),
        )
    )
    report.write(60)

    (_, first), (_, second) = fields(said)
    assert (first["by_driver"], first["by_tasks"]) == ("public.a 100", "public.big 5")
    assert (second["driver_rows"], second["by_tasks"]) == (46, "public.big 2,000,000")
    assert second["by_driver"] == "public.e 13, public.d 12, public.c 11, 1 more 10"


def test_apply_says_that_it_waits_at_the_head(said) -> None:
    report = ApplyReport()
    report.on_pass(None)
    report.write(60)
    report.on_pass(Ledger("bank", epoch=1))
    report.write(60)
    report.on_progress(applied(Commits(HEAD, (), ()), 600, 5))
    report.write(60)
    report.write(60)
    report.on_pass(None)
    report.write(60)

    assert [message for message, _ in fields(said)] == [
        "nothing applied yet",
        "at the head, waits",
        "applied",
        "at the head, waits",
        "applied",  # nothing, so far: it is catching up
    ]


def test_a_load_that_begins_again_counts_from_zero(said) -> None:
    report = ApplyReport()  # BEGIN has a record, too: the shape
    for phase, rows in (
        (LoadPhase.BEGIN, 1),
        (LoadPhase.CHUNK, 70),
        (LoadPhase.BEGIN, 1),
        (LoadPhase.CHUNK, 30),
        (LoadPhase.END, 0),
    ):
        report.on_progress(applied(TableLoad(HEAD, BIG, phase, rows=rows), rows))

    ((message, context),) = fields(said)
    assert (message, context["table"], context["rows"]) == ("loaded", "public.big", 30)


def test_a_load_of_which_an_earlier_apply_took_a_part_has_all_rows(said) -> None:
    report = ApplyReport()
    for phase, rows, told in ((LoadPhase.CHUNK, 70, 5_070), (LoadPhase.CHUNK, 30, 5_100)):
        cut = TableLoad(HEAD, BIG, phase, rows=rows, upto=Upto(rows=told).text)
        report.on_progress(applied(cut, rows))
    report.on_progress(applied(TableLoad(HEAD, BIG, LoadPhase.END), 0))

    ((_, context),) = fields(said)
    assert context["rows"] == 5_100


def test_lag_is_the_age_of_the_newest_commit_while_something_waits() -> None:
    behind = Streamed(committed_at=1_000_000_000, is_idle=False)
    assert run_lag(behind, 1007.25) == 7.2
    behind.is_idle = True
    assert run_lag(behind, 1007.25) == 0

    ledger = Ledger("bank", committed_at=1_000_000_000)
    assert apply_lag(ledger, 1007.25, is_behind=True) == 7.2
    assert apply_lag(ledger, 1007.25, is_behind=False) == 0


def test_a_reporter_calls_until_it_is_left() -> None:
    called = threading.Semaphore(0)
    with Reporter(0.001, lambda _: called.release()):
        assert called.acquire(timeout=60)
        assert called.acquire(timeout=60)
    with Reporter(0, lambda _: called.release()) as never:
        assert not never._thread.is_alive()


def test_an_error_that_stays_is_said_once_a_minute(said) -> None:
    now = [100.0]
    passing = Passing(logging.getLogger("gauss_cdc.run"), clock=lambda: now[0])
    for seconds in (0.8, 1.0, 2.8, 15.0, 15.0, 15.0, 15.0, 15.0):
        passing.say(f"no broker (waited={seconds}); retrying in {seconds} s")
        now[0] += seconds
    passing.say("another error; retrying in 1.0 s")

    assert [one.getMessage() for one in said.records if one.levelname == "WARNING"] == [
        "no broker (waited=0.8); retrying in 0.8 s",
        "no broker (waited=15.0); retrying in 15.0 s (7 times in 65 s)",
        "another error; retrying in 1.0 s",
    ]


def test_apply_says_what_does_not_answer_with_the_first_attempt(said) -> None:
    report = ApplyReport()
    report.on_attempt(Superseded("the ledger moved"))  # not an unreachable server
    report.on_attempt(KafkaDown("no broker"))
    report.on_attempt(KafkaDown("no broker"))
    report.on_retry(KafkaDown("no broker"), 0.5)

    assert [one.getMessage() for one in said.records] == ["no broker; trying again"]
