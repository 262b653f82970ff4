"""`run`, `apply`, `zip`: source to Kafka, Kafka to target."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, Self

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from gauss_cdc import wiring
from gauss_cdc.commands.base import Command, configured
from gauss_cdc.config import load
from gauss_cdc.pack import pack
from gauss_cdc.watch import StepName, StopSignal, console, say
from producer.pipeline import run as run_producer
from producer.start import Watch
from schemas.tables import TableId


@click.command(cls=Command, example="gauss-cdc run --config bank.toml")
@configured
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Where going on is impossible (slot lost, source promoted, topics replaced): open a new "
    "epoch and load every table again. Says what differed.",
)
def run(config_path: Path, *, accept_gap: bool) -> None:
    """Source -> Kafka, until stopped. The first run also loads the existing rows."""
    stop, step = StopSignal(), StepName()
    options = wiring.producer_options(load(config_path), accept_gap=accept_gap)
    # Rows are short-lived and hold no cycles; the collector's default looks for some every 700
    # objects, which costs a tenth of the CPU and finds nothing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    with _LoadBars() as bars:
        watch = Watch(step.set, bars.show, say, stop.asked)
        run_producer(options, watch)


@click.command(cls=Command, example="gauss-cdc apply --config bank.toml --master 'local[*]'")
@configured
@click.option("--master", help="Spark master; default: [spark] master.")
@click.option("--checkpoint", help="Checkpoint folder; default: [spark] checkpoint.")
@click.option("--packages", help="Maven coordinates of the connector, for other clusters.")
@click.option("--replace", is_flag=True, help="Empty target tables that hold rows before a load.")
def apply(
    config_path: Path,
    *,
    master: str | None,
    checkpoint: str | None,
    packages: str | None,
    replace: bool,
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
    config = config.model_copy(update={"spark": config.spark.model_copy(update=changes)})
    run_apply(config, stop, step, replace=replace, on_progress=lambda _: None)


@click.command("zip", cls=Command, example="gauss-cdc zip gauss-cdc.zip")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
def make_zip(out: Path) -> None:
    """Write our code as a zip for `spark-submit --py-files`, and the program beside it."""
    program = pack(out)
    console.print(f"spark-submit --py-files {out} {program} apply --config gauss-cdc.toml")


class _LoadBars:
    """Progress bars of a first load, shown from its first chunk on."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("loading {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[TableId, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, table: TableId, rows: int, expected: int) -> None:
        if table not in self._tasks:
            self._progress.start()
            self._tasks[table] = self._progress.add_task(str(table))
        self._progress.update(self._tasks[table], completed=rows, total=max(rows, expected))
        if all(task.finished for task in self._progress.tasks):
            self._progress.stop()
