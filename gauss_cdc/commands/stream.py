"""`run`, `apply`, `zip`: source to Kafka, Kafka to target."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from gauss_cdc import logs, wiring
from gauss_cdc.commands.base import DurationType, ExampleCommand, configured, logged
from gauss_cdc.config import SparkSection, load
from gauss_cdc.pack import pack
from gauss_cdc.reports import ApplyReport, Reporter, RunReport
from gauss_cdc.watch import StepName, StopSignal, TableBars, console
from producer import native
from producer.core.loop import Progress as Streamed
from producer.core.ports import RunObserver
from producer.pipeline import run as run_producer
from schemas.errors import LOAD_AGAIN, Explained
from schemas.tables import TableId

_run_log = logging.getLogger("gauss_cdc.run")

_ANY_WAY_OUT: Final = (
    "`gauss-cdc check` may show more, `gauss-cdc record --redact` records what the source sends "
    f"for a report; if it persists, {LOAD_AGAIN}"
)

_log_every = click.option(
    "--log-every",
    type=DurationType(),
    default="1m",
    show_default=True,
    help="Interval of progress lines; 0s: never.",
)


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
@_log_every
@logged
def run(config_path: Path, *, accept_gap: bool, accept_switch: bool, log_every: timedelta) -> None:
    """Source -> Kafka, until stopped. The first run also loads the existing rows.

    Exit code 0 after SIGTERM or Ctrl-C; 143 or 130 if they came before the stream began.
    """
    stop, step = StopSignal(), StepName()
    config = load(config_path)
    if accept_switch and accept_gap:
        raise click.UsageError("--accept-switch and --accept-gap exclude each other")
    options = wiring.producer_options(config, accept_gap=accept_gap, accept_switch=accept_switch)
    logs.of_service()
    _run_log.info("rows are made by %s", native.described(options.native))
    # Rows are short-lived and have no cycles; the collector's default runs every 700 objects,
    # which costs a tenth of the CPU and finds nothing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    progress = Streamed()
    report = RunReport(progress, by_csn=wiring.is_ordered_by_csn(options))
    with (
        TableBars("loading", leave_when_done=True) as bars,
        Reporter(log_every.total_seconds(), report.write),
    ):

        def on_load(table: TableId, rows: int, expected: int) -> None:
            report.on_load(table, rows, expected)
            bars.show(table, rows, expected)

        watch = RunObserver(
            *(step.set, on_load, _run_log.info, stop.asked),
            on_retry=report.on_retry,
            on_warning=_run_log.warning,
        )
        with _with_hint():
            has_streamed = run_producer(options, watch, progress)
    if not has_streamed:
        sys.exit(stop.exit_code)


@click.command(cls=ExampleCommand, example="gauss-cdc apply --config bank.toml --master 'local[*]'")
@configured
@click.option("--master", help="Spark master; default: [spark] master.")
@click.option("--checkpoint", help="Checkpoint folder; default: [spark] checkpoint.")
@click.option("--packages", help="Maven coordinates of the connector, for other clusters.")
@click.option("--replace", is_flag=True, help="Empty target tables that hold rows before a load.")
@_log_every
@logged
def apply(
    config_path: Path,
    *,
    master: str | None,
    checkpoint: str | None,
    packages: str | None,
    replace: bool,
    log_every: timedelta,
) -> None:
    """Kafka -> target with Spark, in commit order, until stopped."""
    from gauss_cdc.apply import apply as run_apply  # noqa: PLC0415  pyspark takes a second

    stop, step = StopSignal(), StepName()
    config = load(config_path)
    changes: dict[str, Any] = {}
    if master:
        changes["master"] = master
    if checkpoint:
        changes["checkpoint"] = checkpoint
    if packages:
        changes["options"] = {**config.spark.options, "spark.jars.packages": packages}
    try:
        SparkSection(master=changes.get("master", config.spark.master))
    except ValidationError as error:
        raise click.UsageError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    config = config.model_copy(update={"spark": config.spark.model_copy(update=changes)})
    logs.of_service()
    report = ApplyReport(step.set)
    with Reporter(log_every.total_seconds(), report.write), _with_hint():
        run_apply(config, stop.asked, report, replace=replace)


@click.command("zip", cls=ExampleCommand, example="gauss-cdc zip gauss-cdc.zip")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
def make_zip(out: Path) -> None:
    """Write our code as a zip for `spark-submit --py-files`, with the program next to it."""
    program = pack(out)
    console.print(f"spark-submit --py-files {out} {program} apply --config gauss-cdc.toml")


@contextmanager
def _with_hint() -> Iterator[None]:
    """Give each error that stops a hint, at least the general one."""
    try:
        yield
    except Explained as error:
        error.hint = error.hint or _ANY_WAY_OUT
        raise
