"""`snapshot`: ask a `run` to read tables again while its stream goes on."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gauss_cdc import rereads
from gauss_cdc.commands.base import ExampleCommand, configured
from gauss_cdc.config import load


@click.command(cls=ExampleCommand, example="gauss-cdc snapshot --table public.account")
@configured
@click.option("--table", "names", multiple=True, help="schema.table, as [tables] captures it.")
@click.option("--cancel", is_flag=True, help="Take the request back, unless it has begun.")
def snapshot(config_path: Path, *, names: tuple[str, ...], cancel: bool) -> None:
    """Read captured tables again, one after the other, while the stream goes on.

    A request is a row in the source, in a table of schema gauss_cdc: it waits for a `run`, and
    outlives its restarts. Without --table, prints the requests that are open, one JSON object a
    line. While a table is read, all others wait.
    """
    with rereads.session(load(config_path)) as source:
        try:
            if cancel:
                source.cancel(names)
            elif names:
                source.ask(names)
        except (rereads.NotAsked, rereads.NotCaptured) as error:
            raise click.UsageError(str(error)) from error
        for request in source.asked():
            said = {"table": str(request.table), "asked_at": request.asked_at.isoformat()}
            click.echo(json.dumps(said))
