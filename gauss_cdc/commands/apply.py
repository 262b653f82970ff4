"""`apply`, `zip`: Kafka to target."""

from __future__ import annotations

import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from gauss_cdc import logs
from gauss_cdc.commands.base import (
    ExampleCommand,
    configured,
    logged,
    with_hint,
    with_listen,
    with_log_every,
    with_target,
)
from gauss_cdc.config import SparkSection, load
from gauss_cdc.late import LateTables
from gauss_cdc.pack import pack
from gauss_cdc.reports import ApplyReport, Reporter
from gauss_cdc.several import WITH_PARENT, apply_each, leave_with_parent
from gauss_cdc.watch import StepName, StopSignal, console

_log = logging.getLogger("gauss_cdc.apply")

_LATE_EVERY: Final = 5.0  # seconds


@click.command(cls=ExampleCommand, example="gauss-cdc apply --config bank.toml --master 'local[*]'")
@configured
@with_target
@click.option("--master", help="Spark master; default: [spark] master.")
@click.option("--checkpoint", help="Checkpoint folder; default: [spark] checkpoint.")
@click.option("--packages", help="Maven coordinates of the connector, for other clusters.")
@click.option(
    "--replace",
    is_flag=True,
    help="Empty target tables that hold rows before a load, in a lake others', too.",
)
@with_listen
@with_log_every
@logged
@click.option(WITH_PARENT, "has_parent", is_flag=True, hidden=True)
def apply(
    config_path: Path,
    *,
    name: str | None,
    has_parent: bool,
    master: str | None,
    checkpoint: str | None,
    packages: str | None,
    replace: bool,
    listen: str | None,
    log_every: timedelta,
) -> None:
    """Kafka -> target with Spark, in commit order, until stopped.

    Serves each of several [[target]] by a process of its own. One that ends begins again, and holds
    no other up. Where none runs any more, it ends with the exit code of the first.
    """
    from gauss_cdc.apply import apply as run_apply  # noqa: PLC0415  not for `zip`, or `--help`
    from gauss_cdc.session import SUBMITTED  # noqa: PLC0415

    stop, step = StopSignal(), StepName()
    if has_parent:
        leave_with_parent(stop.ask)
    config = load(config_path).only(name)
    if replace or listen is not None or SUBMITTED in os.environ:
        config = config.single(name)
    if len(config.targets) > 1:
        logs.of_service()
        sys.exit(apply_each([one.name for one in config.targets], sys.argv[1:], stop.asked))
    config = config.of_apply(listen)
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
    logs.of_service(config.label)
    report = ApplyReport(step.set)
    if config.serve.listen:
        from gauss_cdc.page.app import pages_of  # noqa: PLC0415  only where it is asked for
        from gauss_cdc.serve.programs import serve_apply  # noqa: PLC0415

        report = serve_apply(config, step.set, pages_of(config))
    late = LateTables(config, lambda: report.ledger)
    with (
        Reporter(log_every.total_seconds(), report.write),
        Reporter(_LATE_EVERY, late.look),
        with_hint(),
    ):
        run_apply(config, stop.asked, report, replace=replace)


@click.command("zip", cls=ExampleCommand, example="gauss-cdc zip gauss-cdc.zip")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
def make_zip(out: Path) -> None:
    """Write our code as a zip for `spark-submit --py-files`, and a program beside it."""
    program = pack(out)
    console.print(f"spark-submit --py-files {out} {program} apply --config gauss-cdc.toml")
