"""Sizes follow from rates and from the figures that the documents have."""

import re

from gauss_cdc import sizing
from gauss_cdc.sizing import Rates, Statistics
from tests.tree import ROOT

GIB = 1 << 30


def cells(section: str, first: str, *, at: int = 0) -> list[str]:
    """A row of a table that a benchmark wrote into docs/performance.md."""
    text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    block = re.search(rf"<!-- begin {section} -->(.*?)<!-- end", text, re.DOTALL)
    assert block is not None
    rows = [line.strip("| \n").split(" | ") for line in block[1].splitlines()]
    return [row for row in rows if row[0] == first][at]


def test_the_figures_are_those_of_the_documents() -> None:
    run, apply = cells("drain", "run", at=1), cells("apply", "short")

    assert (float(run[1]) * 1e3, float(run[4])) == (sizing.CAPTURE_ROWS_S, sizing.CAPTURE_CPU)
    assert (float(run[5]), float(run[6])) == (sizing.WALSENDER_CPU, sizing.BROKER_CPU)
    assert (float(apply[2]) * 1e3, float(apply[8])) == (sizing.APPLY_ROWS_S, sizing.APPLY_CPU)
    assert (float(apply[10]), float(apply[11])) == (sizing.DRIVER_MB, sizing.JVM_MB)
    assert float(cells("load", "apply")[1]) * 1e3 == sizing.LOAD_ROWS_S
    assert float(cells("memory", "1,600")[2]) == sizing.RUN_MB
    visible = cells("latency", "run and apply", at=1)
    assert (visible[1], float(visible[4])) == (f"{sizing.LAG_ROWS_S:,}", sizing.LAG_P99_MS)


def test_two_looks_give_rates() -> None:
    one, other = Statistics(10, 100, 50, 1_000), Statistics(20, 200, 70, 1_500)

    assert Rates.between(one, other, 10) == Rates(20, 200, 2, 50)
    assert Rates.between(other, one, 10) == Rates(10, 100, 0, 0)  # the statistics were reset


def test_needs_have_the_margin() -> None:
    rates = Rates(rows=319_000, bytes=GIB, changes_s=100_000, log_bytes_s=1e6)

    needs = sizing.needs(rates, days=3, retention=3_600)

    assert needs["first_load_seconds"] == 2
    assert needs["disk_source_bytes"] == 2 * 3 * 86_400 * 1e6
    assert needs["disk_kafka_bytes"] == 2 * (GIB + 3_600 * 1e6)
    assert round(needs["cores_run"], 3) == 0.368
    assert needs["partitions"] == 1
    assert sizing.needs(rates._replace(changes_s=200_000), days=0, retention=0)["partitions"] == 2


def test_the_lag_is_told_as_far_as_it_was_measured() -> None:
    rates = Rates(1, 1, 1_000, 1)

    assert sizing.lag(rates) == "99 % within 0.18 s"
    assert "not measured" in sizing.lag(rates._replace(changes_s=2_000))
    assert "grows" in sizing.lag(rates._replace(changes_s=130_000))
