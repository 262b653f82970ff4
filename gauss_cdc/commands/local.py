"""`demo`, `emulator`, `services`, `config`: commands that need no server."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import click

from gauss_cdc.commands.base import EXISTING_FILE, DurationType, ExampleCommand, configured, fail
from gauss_cdc.config import load
from gauss_cdc.sandbox import services
from gauss_cdc.watch import console
from producer.errors import DecodeError


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
    from gauss_cdc.sandbox import demo as stage  # noqa: PLC0415  only here

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


@click.command(
    cls=ExampleCommand, example="gauss-cdc emulator --facade postgresql://postgres@host/bank"
)
@click.option("--replay", type=EXISTING_FILE, help="Serve a recorded stream.")
@click.option("--facade", help="DSN of a PostgreSQL to present as openGauss or GaussDB.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: a free one.")
@click.option("--ha-port", type=click.IntRange(0, 65535), default=0, help="Default: the next.")
@click.option("--user", default="cdc_user", show_default=True, help="Who may log in.")
@click.option(
    "--password",
    envvar="GAUSS_CDC_EMULATOR_PASSWORD",
    required=True,
    help="Of that user; better in $GAUSS_CDC_EMULATOR_PASSWORD.",
)
@click.option(
    "--stored",
    type=click.Choice(["sha256", "combined", "md5", "sm3"]),
    default="sha256",
    show_default=True,
    help="How the server stores the password.",
)
@click.option(
    "--login",
    type=click.Choice(["sha256", "md5", "sm3", "password"]),
    default="sha256",
    show_default=True,
    help="The method of its line in pg_hba.conf.",
)
@click.option(
    "--product",
    type=click.Choice(["og3", "og5", "og6", "og7", "gaussdb"]),
    help="Default: openGauss 7, or what was recorded.",
)
@click.option("--paced", is_flag=True, help="Replay at the pace of the recording.")
@click.option("--catalog", help="With --replay: DSN of a scratch database that answers SQL.")
@click.option("--tables", type=EXISTING_FILE, help="With --catalog: the recording's tables_*.json.")
@click.option("--certificate", type=EXISTING_FILE, help="Offer TLS with this certificate …")
@click.option("--key", type=EXISTING_FILE, help="… and this key.")
@click.option("--no-thread-pool", is_flag=True, help="Replication at the main port, too.")
@click.option(
    "--sender-timeout", type=DurationType(), default="30s", show_default=True, help="0s: never."
)
@click.option(
    "--busy",
    type=DurationType(),
    default="0s",
    help="How long a slot stays active after its client disappeared.",
)
@click.option(
    "--background",
    type=DurationType(),
    default="1s",
    show_default=True,
    help="With --facade: interval of empty commits while a stream runs; 0s: never.",
)
def emulator(
    *,
    login: str,
    stored: str,
    no_thread_pool: bool,
    sender_timeout: timedelta,
    busy: timedelta,
    background: timedelta,
    replay: Path | None,
    facade: str | None,
    product: str | None,
    **given: Any,
) -> None:
    """A server with GaussDB's protocol: it replays a recording, or presents a PostgreSQL."""
    from gauss_cdc.sandbox.emulator import program  # noqa: PLC0415  only here
    from gauss_cdc.sandbox.emulator.frames import ErrorResponse  # noqa: PLC0415
    from gauss_cdc.sandbox.emulator.login import Line, StoredPassword  # noqa: PLC0415
    from gauss_cdc.sandbox.emulator.recording import DamagedRecording  # noqa: PLC0415
    from gauss_cdc.sandbox.emulator.server import Emulator  # noqa: PLC0415

    if (replay is None) == (facade is None):
        raise click.UsageError("give either --replay or --facade")

    def announce(started: Emulator) -> None:
        console.print(f"{started.product.version}")
        console.print(f"ordinary sessions at port {started.port}, HA port {started.ha_port}")
        click.echo(str(started.port))

    wanted = program.EmulatorOptions(
        replay=replay,
        facade=facade,
        line=Line(login),
        stored=StoredPassword(stored),
        product=product or "",
        has_thread_pool=not no_thread_pool,
        sender_timeout_ms=round(sender_timeout.total_seconds() * 1000),
        busy_seconds=busy.total_seconds(),
        background_seconds=background.total_seconds(),
        **given,
    )
    try:
        program.run(wanted, announce)
    except (ErrorResponse, OSError) as exc:
        fail(f"the emulator cannot start: {exc}", 1)
    except DamagedRecording as exc:
        fail(str(exc), DecodeError.exit_code)


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


@click.group("config")
def config_group() -> None:
    """The configuration file."""


@config_group.command(
    "show", cls=ExampleCommand, example="gauss-cdc config show --config bank.toml"
)
@configured
def config_show(config_path: Path) -> None:
    """Check the file and print every setting with its value; secrets as stars."""
    click.echo(load(config_path).model_dump_json(indent=2, by_alias=True))
