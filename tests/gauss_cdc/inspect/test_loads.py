"""Rows, rate and time left of tables that are being loaded."""

import io
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from gauss_cdc.inspect.loads import loads_under_way, waiting_lines
from gauss_cdc.inspect.look import standing_table
from gauss_cdc.inspect.places import CutsStanding, ReplicationStatus
from gauss_cdc.serve.standing import Gauges, WalLeft, of_standing
from producer.core.key_ranges import Upto
from producer.core.loads.queue import EVERYTHING
from producer.core.ports import Wish
from producer.sources.requests import AskedAgain
from schemas.control import Head, LoadPhase, TableLoad
from schemas.tables import TableId
from spark_consumers.cuts.ledger import state_of
from spark_consumers.errors import TargetDown
from spark_consumers.model import Ledger

BIG, SMALL = TableId("public", "big"), TableId("public", "small")


def record(
    table: TableId, phase: LoadPhase, second: float, rows: int = 0, *, by: str = "a", told: int = 0
) -> TableLoad:
    head = Head(1, 1, 1, by, 0, 0, 0, written_at=round(second * 1e6))
    return TableLoad(head, table, phase, rows=rows, upto=Upto(rows=told).text if told else None)


RECORDS = [
    record(SMALL, LoadPhase.CHUNK, 1, 7),  # its BEGIN is too old to be read
    record(BIG, LoadPhase.BEGIN, 10, 1),
    record(BIG, LoadPhase.CHUNK, 12, 16_000),
    record(BIG, LoadPhase.CHUNK, 20, 16_000),
]


def test_a_table_under_way_has_rows_a_rate_and_a_time_left() -> None:
    (found,) = loads_under_way(RECORDS)

    assert (found.table, found.rows, found.rows_per_s, found.left_s) == (BIG, 32_000, 3_200, None)
    assert replace(found, of_about=64_000).left_s == 10
    assert replace(found, of_about=30_000).left_s is None  # more than the estimate: unknown


def test_a_load_that_ended_or_began_again_counts_from_there() -> None:
    ended = [*RECORDS, record(BIG, LoadPhase.END, 21)]
    again = [*ended, record(BIG, LoadPhase.BEGIN, 30, 1)]

    assert loads_under_way(ended) == ()
    (found,) = loads_under_way(again)
    assert (found.rows, found.rows_per_s) == (0, None)


def test_a_load_that_another_run_goes_on_with_has_its_rows_and_the_present_rate() -> None:
    stopped = [*RECORDS, record(BIG, LoadPhase.CHUNK, 3_600, 2_000, by="b")]
    (at_first,) = loads_under_way(stopped)
    (found,) = loads_under_way([*stopped, record(BIG, LoadPhase.CHUNK, 3_604, 4_000, by="b")])

    assert (at_first.rows, at_first.rows_per_s) == (34_000, None)
    assert (found.rows, found.rows_per_s) == (38_000, 1_000)
    assert replace(found, of_about=48_000).left_s == 10


def test_rows_are_told_where_the_beginning_of_a_load_is_too_old_to_be_read() -> None:
    said = [record(BIG, LoadPhase.CHUNK, at, 500, told=9_000_000 + 250 * at) for at in (2, 4)]
    (found,) = loads_under_way(said)

    assert (found.rows, found.rows_per_s) == (9_001_000, 250)


@pytest.mark.parametrize(
    ("marks", "state"),
    [
        ({}, "EXACT"),
        ({"public.a": "rows are in quarantine"}, "INEXACT"),
        ({"public.a": "rows are in quarantine", "public.b": "loading"}, "LOADING"),
        ({"public.b": "not loaded; readers see commit 1/2"}, "LOADING"),
    ],
)
def test_status_says_loading_only_while_a_load_waits_or_goes_on(
    marks: dict[str, str], state: str
) -> None:
    ledger = Ledger("bank", epoch=1, seq=7, state=state_of(marks), inexact=marks)
    console = Console(width=120, file=io.StringIO(), record=True)

    console.print(standing_table(ReplicationStatus(None, None, ledger)))

    assert f" {state} at commit 1/7" in console.export_text()


def test_status_shows_each_of_several_targets() -> None:
    cuts = CutsStanding(1, 9, 9, 0x50, 1, "a", {}, 0)
    lake = ReplicationStatus(
        None,
        cuts,
        Ledger("bank", epoch=1, seq=7, state="EXACT"),
        name="lake",
        notes=("ask for it",),
    )
    standing = ReplicationStatus(
        None, cuts, None, name="copy", down={"target": TargetDown("no answer")}, others=(lake,)
    )
    console = Console(width=120, file=io.StringIO(), record=True)

    console.print(standing_table(standing))

    text = console.export_text()
    assert re.search(r"target copy +│ cannot be reached: no answer", text)
    assert re.search(r"target lake +│ EXACT at commit 1/7", text)
    assert re.search(r"ask for it[^│]+│\n[^\n]+lag +│ 2 commits", text)
    one, other = standing.as_json()["targets"]
    assert (one["name"], one["target"], one["down"]) == ("copy", None, {"target": "no answer"})
    assert (other["name"], other["target"]["seq"], other["lag"]["commits"]) == ("lake", 7, 2)
    assert other["down"] == {}
    assert standing.as_json()["target"] is None


def test_status_shows_it_to_people_to_programs_and_as_metrics() -> None:
    (found,) = loads_under_way(RECORDS)
    cuts = CutsStanding(
        1, 4, 0, 0x50, 1, "a", {}, 0, under_way=(replace(found, of_about=64_000),)
    )  # fmt: skip
    standing = ReplicationStatus(None, cuts, None)
    console = Console(width=120, file=io.StringIO(), record=True)

    console.print(standing_table(standing))

    samples = {
        sample.name: (sample.labels["table"], sample.value)
        for gauge in of_standing(standing, Gauges("bank", "status --serve"), WalLeft(), 0)
        for sample in gauge.samples
        if "table" in sample.labels
    }
    assert samples == {
        "gauss_cdc_load_rows": ("public.big", 32_000),
        "gauss_cdc_load_left_seconds": ("public.big", 10),
    }
    text = console.export_text()
    assert "loading public.big: 32,000 rows of about 64,000, 3,200 rows/s, 10 s left" in text
    assert standing.as_json()["cuts"]["under_way"] == [
        {
            "table": "public.big",
            "rows": 32_000,
            "of_about": 64_000,
            "rows_per_s": 3_200,
            "left_s": 10,
        }
    ]


def test_what_waits_is_said_with_who_asked_and_whether_it_is_held_back() -> None:
    at = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)
    asked = [
        AskedAgain(Wish(BIG), 7, at, "ann"),
        AskedAgain(Wish(SMALL, "lake"), 8, at),
        AskedAgain(Wish(EVERYTHING), 9, at, "ben"),
    ]
    loads = {"public.big": "CHUNK", "public.late": "PENDING", "s.torn": "GAP", "s.done": "END"}

    assert list(waiting_lines(asked, loads, {"public.big"})) == [
        "public.big is being read again, asked for at 2026-11-22 03:04:05 UTC by ann",
        "public.small waits to be read again for lake, asked for at 2026-11-22 03:04:05 UTC",
        "re-reads are paused since 2026-11-22 03:04:05 UTC by ben; `gauss-cdc snapshot --resume`",
        "to be loaded: public.late",
        "to be read again, with gaps: s.torn",
    ]
    *_, last = waiting_lines((), {"s.torn": "GAP"}, (), by_marks=True)
    assert last.startswith("each once the stream shows its two marks")
    assert not list(waiting_lines((), {"s.done": "END"}, (), by_marks=True))
