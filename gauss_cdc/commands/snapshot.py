"""`snapshot`: ask a `run` to read tables again while its stream goes on."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gauss_cdc import wiring
from gauss_cdc.commands.base import ExampleCommand, configured
from gauss_cdc.config import load
from producer.errors import Unsupported
from producer.sources.patterns import chooser
from producer.sources.postgres import catalog, requests
from schemas.tables import TableId


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
    config = load(config_path)
    if config.source.kind != "postgres":
        raise Unsupported("tables of this kind of source cannot be read again by themselves")
    tables = [TableId(*name.partition(".")[::2]) for name in names]
    options = wiring.producer_options(config)
    wanted = chooser(options.include, options.exclude)
    for table in tables:
        if not wanted(table):
            raise click.UsageError(f"{table} is not in [tables]")
    connection = catalog.connect(options.source)
    try:
        if cancel:
            for table in tables:
                if not requests.forget(connection, options.slot, table):
                    raise click.UsageError(f"nobody asks for {table}")
        elif tables:
            requests.ask(connection, options.slot, tables)
        for request in requests.requests(connection, options.slot):
            said = {"table": str(request.table), "asked_at": request.asked_at.isoformat()}
            click.echo(json.dumps(said))
    finally:
        connection.close()
