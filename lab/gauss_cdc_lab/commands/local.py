"""`demo`, `services`: on this machine only."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Literal

import click

from gauss_cdc.commands.base import ExampleCommand, fail
from gauss_cdc.watch import console
from gauss_cdc_lab import services


@click.command(cls=ExampleCommand, example="gauss-cdc demo --kills 8")
@click.option("--seconds", type=float, help="Load after the first load; default 40, or 6 a kill.")
@click.option("--kills", type=click.IntRange(0), default=5, show_default=True, help="Kills.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all random choices.")
@click.option("--workload", type=click.Choice(["bank", "tpcb"]), default="bank", show_default=True)
@click.option("--workers", type=click.IntRange(1), default=6, show_default=True, help="Sessions.")
@click.option("--rate", type=float, help="Transactions a second; default 300, with a lake 100.")
@click.option("--at-least-once", is_flag=True, help="Play with exactly-once = false.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep all in DIR.")
@click.option(
    "--source",
    type=click.Choice(["postgres", "opengauss", "gaussdb"]),
    default="postgres",
    show_default=True,
    help="Product of the source; all but postgres are emulated by `gauss-cdc emulator`.",
)
@click.option(
    "--target",
    type=click.Choice(["postgres", "delta", "iceberg"]),
    default="postgres",
    show_default=True,
    help="Kind of target; a lake is a folder, and is sampled by read_at.",
)
@click.option(
    "--mode",
    type=click.Choice(["scd1", "scd2", "log"]),
    default="scd1",
    show_default=True,
    help="What a lake holds.",
)
@click.option(
    "--commits-again",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="With a lake: ask once more at the end, at N commits.",
)
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON, to stdout.")
def demo(
    *,
    seconds: float | None,
    kills: int,
    seed: int,
    workload: str,
    workers: int,
    rate: float | None,
    at_least_once: bool,
    keep: Path | None,
    source: Literal["postgres", "opengauss", "gaussdb"],
    target: Literal["postgres", "delta", "iceberg"],
    mode: Literal["scd1", "scd2", "log"],
    commits_again: int,
    as_json: bool,
) -> None:
    """Run everything on this machine: load, kills, and a comparison of source and target.

    Exit code 1 if anything differs.
    """
    from gauss_cdc_lab import demo as stage  # noqa: PLC0415  only here

    plan = stage.DemoPlan(
        workload,
        seconds if seconds is not None else max(40.0, 6.0 * kills),
        kills,
        seed,
        workers,
        rate if rate is not None else stage.RATES.get(target, 300.0),
        kills_in_load=kills >= 10,  # chaos
        exactly_once=not at_least_once,
        keep=keep,
        source=source,
        target=target,
        mode=mode,
        commits_again=commits_again,
    )
    try:
        report = stage.demo(plan, console)
    except stage.PlayFailed as exc:
        fail(str(exc), 1)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    if not report.is_equal:
        fail("the target is not equal to the source", 1)


@click.group("services")
def services_group() -> None:
    """Local PostgreSQL, Kafka and registry for a first try; never for production."""


_dir = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default="services",
    show_default=True,
    help="Folder of their data.",
)


@services_group.command("up", cls=ExampleCommand, example="gauss-cdc services up --dir try")
@_dir
def services_up(directory: Path) -> None:
    """Start them in the background; write DIR/gauss-cdc.toml."""
    addresses = services.up(directory, console=console)
    user = addresses.postgres_user
    console.print(f"PostgreSQL  {addresses.public_url('source', user)} and …/target", markup=False)
    console.print(f"passwords   {directory / 'secrets'}", markup=False)
    console.print(f"Kafka       {addresses.kafka_bootstrap}")
    console.print(f"registry    {addresses.registry_url}")
    click.echo(str(directory / "gauss-cdc.toml"))


@services_group.command("down", cls=ExampleCommand, example="gauss-cdc services down --dir try")
@_dir
def services_down(directory: Path) -> None:
    """Stop them; their data remains."""
    console.print(f"stopped: {', '.join(services.down(directory)) or 'nothing was running'}")


@services_group.command(
    "env", cls=ExampleCommand, example='eval "$(gauss-cdc services env --dir try)"'
)
@_dir
def services_env(directory: Path) -> None:
    """Print their addresses, and the administrator's password, as shell variables."""
    for name, value in services.env(directory).items():
        click.echo(f"export {name}={shlex.quote(value)}")
