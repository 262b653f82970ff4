"""`size`: read only."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import click
from rich.filesize import decimal
from rich.table import Table

from gauss_cdc import sizing
from gauss_cdc.commands.base import INTERRUPTED, DurationType, ExampleCommand, configured, fail
from gauss_cdc.config import Config, load
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc.watch import StopSignal, console


@click.command(cls=ExampleCommand, example="gauss-cdc size --over 10m --days 3")
@configured
@click.option(
    "--over",
    type=DurationType(),
    default="10s",
    show_default=True,
    help="Time between two looks at the statistics: choose a busy hour.",
)
@click.option(
    "--days", type=click.FloatRange(0), default=1.0, show_default=True, help="Days without Kafka."
)
@click.option("--json", "as_json", is_flag=True, help="Plain numbers on stdout.")
def size(config_path: Path, *, over: timedelta, days: float, as_json: bool) -> None:
    """Say what the source needs: cores, memory, partitions, disk, time of a load, lag.

    By the source's statistics and the figures of docs/performance.md, times two.
    """
    config = load(config_path)
    rates = _rates(config, over.total_seconds())
    retention = config.kafka.retention.total_seconds()
    needs, lag = sizing.needs(rates, days=days, retention=retention), sizing.lag(rates)
    if as_json:
        click.echo(json.dumps({**rates._asdict(), **needs, "lag": lag}))
        return
    table = Table(show_header=False)
    for name, value in {**rates._asdict(), **needs}.items():
        table.add_row(name.removesuffix("_bytes").replace("_", " "), _shown(name, value))
    table.add_row("lag", lag)
    console.print(table)


def _rates(config: Config, seconds: float) -> sizing.Rates:
    stop = StopSignal()
    with Endpoints(config) as places:
        source = places.source()
        tables = [shape.id for shape in source.captured()]
        one, since = sizing.statistics(source.session(), tables, source.log_end()), time.monotonic()
        if stop.asked(seconds):
            fail("stopped before the second look", INTERRUPTED)
        other = sizing.statistics(source.session(), tables, source.log_end())
        return sizing.Rates.between(one, other, time.monotonic() - since)


def _shown(name: str, value: float) -> str:
    if name.endswith("bytes"):
        return decimal(round(value))
    if name.endswith("bytes_s"):
        return f"{decimal(round(value))}/s"
    if name.endswith("seconds"):
        return str(timedelta(seconds=round(value)))
    return f"{value:,.2f}".removesuffix(".00")
