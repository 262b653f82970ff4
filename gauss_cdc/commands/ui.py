"""`ui`: the page, in a program of its own."""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path

import click

from gauss_cdc import logs
from gauss_cdc.commands.base import (
    AddressType,
    DurationType,
    ExampleCommand,
    configured,
    with_programs,
    with_target,
)
from gauss_cdc.config import load
from gauss_cdc.page.actions import Actions
from gauss_cdc.page.app import pages
from gauss_cdc.page.lookout import Lookout
from gauss_cdc.serve.server import serve
from gauss_cdc.watch import StopSignal, console


@click.command(cls=ExampleCommand, example="gauss-cdc ui --program 127.0.0.1:9188")
@configured
@with_target
@click.option(
    "--listen",
    type=AddressType(),
    default="127.0.0.1:9189",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the page; beyond this machine with TLS and a login of [serve].",
)
@with_programs
@click.option(
    "--every", type=DurationType(), default="2s", show_default=True, help="Between two looks."
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let who has the token ask for re-reads and comparisons; it is printed, or that of "
    "[serve].",
)
def ui(
    config_path: Path,
    *,
    name: str | None,
    listen: str,
    listens: tuple[str, ...],
    every: timedelta,
    allow_actions: bool,
) -> None:
    """Serve a page that shows where everything stands.

    It shows what `status`, `doctor` and the programs' metrics tell, without values of cells and
    without statements, and needs no internet. Where [serve] has a token, a browser asks for it: it
    is the password of any user.
    """
    stop, config = StopSignal(), load(config_path).only(name)
    logs.of_service()
    actions = None
    if allow_actions:
        own = config.serve.token.get_secret_value()
        token = own or secrets.token_urlsafe(16)
        actions = Actions(config, token)
    lookout = Lookout(
        config,
        listens,
        every=every.total_seconds(),
        more=dict if actions is None else actions.facts,
    )
    url = serve(config.listening(listen).serve, None, {}, pages(lookout, actions))
    console.print(f"the page is on {url}/", soft_wrap=True)
    if actions is not None and not own:
        console.print(f"token for actions: {token}", soft_wrap=True)
    while not stop.asked(1):
        pass
