"""`run`: source to Kafka."""

from __future__ import annotations

import gc
import logging
import sys
from datetime import timedelta
from pathlib import Path

import click

from gauss_cdc import logs, wiring
from gauss_cdc.commands.base import (
    ExampleCommand,
    configured,
    logged,
    with_hint,
    with_listen,
    with_log_every,
)
from gauss_cdc.config import load
from gauss_cdc.reports import Reporter, RunReport
from gauss_cdc.watch import StepName, StopSignal, TableBars
from producer import native
from producer.core.loop import Progress as Streamed
from producer.core.ports import RunObserver
from producer.pipeline import run as run_producer
from producer.sources.kinds import SOURCES
from schemas.tables import TableId

_log = logging.getLogger("gauss_cdc.run")


@click.command(cls=ExampleCommand, example="gauss-cdc run --config bank.toml")
@configured
@click.option(
    "--accept-gap",
    is_flag=True,
    help="If run or apply cannot continue (slot lost, source promoted, topics replaced, cuts "
    "lost): create a new slot, open a new epoch and load every table again, once.",
)
@click.option(
    "--accept-switch",
    is_flag=True,
    help="If a promoted server lacks commits that were delivered, or the slot is lost: continue, "
    "and read the tables again that may differ, once. openGauss, GaussDB: after a forced "
    "switch-over continue by a new slot, and read every table again.",
)
@with_listen
@with_log_every
@logged
def run(
    config_path: Path,
    *,
    accept_gap: bool,
    accept_switch: bool,
    listen: str | None,
    log_every: timedelta,
) -> None:
    """Source -> Kafka, until stopped. The first run also loads the existing rows.

    Exit code 0 after SIGTERM or Ctrl-C; 143 or 130 if they came before the stream began.
    """
    stop, step = StopSignal(), StepName()
    config = load(config_path).listening(listen)
    if accept_switch and accept_gap:
        raise click.UsageError("--accept-switch and --accept-gap exclude each other")
    options = wiring.producer_options(config, accept_gap=accept_gap, accept_switch=accept_switch)
    logs.of_service()
    _log.info("rows are made by %s", native.described(options.native))
    # Rows are short-lived and have no cycles; the collector's default runs every 700 objects,
    # which costs a tenth of the CPU and finds nothing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    progress = Streamed()
    by_csn = SOURCES[options.kind].ordered_by(options) == "csn"
    counts = None
    if config.serve.listen:
        from gauss_cdc.page.app import pages_of  # noqa: PLC0415  only where it is asked for
        from gauss_cdc.serve.programs import serve_run  # noqa: PLC0415

        counts = serve_run(config, progress, step.set, pages_of(config), by_csn=by_csn)
    report = counts or RunReport(progress, by_csn=by_csn)
    with (
        TableBars("loading", leave_when_done=True) as bars,
        Reporter(log_every.total_seconds(), report.write),
    ):

        def on_load(table: TableId, rows: int, expected: int) -> None:
            report.on_load(table, rows, expected)
            bars.show(table, rows, expected)

        watch = RunObserver(
            *(counts.on_step if counts else step.set, on_load, _log.info, stop.asked),
            on_retry=report.on_retry,
            on_warning=_log.warning,
            on_bytes=counts.bytes.update if counts else None,
            on_durable=counts.on_durable if counts else None,
        )
        with with_hint():
            has_streamed = run_producer(options, watch, progress)
    if not has_streamed:
        sys.exit(stop.exit_code)
