"""`emulator`."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gauss_cdc.commands.base import (
    EXISTING_FILE,
    DurationType,
    ExampleCommand,
    fail,
    without_password,
)
from gauss_cdc.secrets import from_environment, from_file
from gauss_cdc.watch import console
from gauss_cdc_lab.emulator import program
from gauss_cdc_lab.emulator.frames import ErrorResponse
from gauss_cdc_lab.emulator.login import Line, StoredPassword
from gauss_cdc_lab.emulator.recording import DamagedRecording
from gauss_cdc_lab.emulator.server import Emulator
from producer.errors import DecodeError


@click.command(
    cls=ExampleCommand, example="gauss-cdc emulator --facade postgresql://postgres@host/bank"
)
@click.option("--replay", type=EXISTING_FILE, help="Serve a recorded stream.")
@click.option(
    "--facade",
    callback=without_password(program.UPSTREAM_PASSWORD),
    help="DSN of a PostgreSQL to present as openGauss or GaussDB.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: a free one.")
@click.option("--ha-port", type=click.IntRange(0, 65535), default=0, help="Default: the next.")
@click.option("--user", default="cdc_user", show_default=True, help="Who may log in.")
@click.option(
    "--password-file",
    type=EXISTING_FILE,
    help=f"Of that user; or in ${program.PASSWORD}.",
)
@click.option(
    "--upstream-password-file",
    type=EXISTING_FILE,
    help=f"With --facade or --catalog: of its DSN; or in ${program.UPSTREAM_PASSWORD}.",
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
@click.option(
    "--shards",
    type=click.IntRange(0, 20),
    default=0,
    help="With --facade and gaussdb: a coordinator of so many data nodes.",
)
@click.option("--paced", is_flag=True, help="Replay at the pace of the recording.")
@click.option(
    "--catalog",
    callback=without_password(program.UPSTREAM_PASSWORD),
    help="With --replay: DSN of a scratch database that answers SQL.",
)
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
    password_file: Path | None,
    upstream_password_file: Path | None,
    **given: Any,
) -> None:
    """A server with GaussDB's protocol: it replays a recording, or presents a PostgreSQL."""
    if (replay is None) == (facade is None):
        raise click.UsageError("give either --replay or --facade")
    password = _secret(program.PASSWORD, password_file)
    if not password:
        raise click.UsageError(f"set {program.PASSWORD}, or name a --password-file")

    def announce(started: Emulator) -> None:
        console.print(f"{started.product.version}")
        console.print(f"ordinary sessions at port {started.port}, HA port {started.ha_port}")
        click.echo(str(started.port))

    wanted = program.EmulatorOptions(
        replay=replay,
        facade=facade,
        password=password,
        upstream_password=_secret(program.UPSTREAM_PASSWORD, upstream_password_file),
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


def _secret(variable: str, file: Path | None) -> str:
    """The variable's, else the file's; "": neither is given."""
    if variable in os.environ:
        return from_environment(variable)
    try:
        return from_file(file) if file is not None else ""
    except ValueError as error:
        raise click.UsageError(str(error)) from None
