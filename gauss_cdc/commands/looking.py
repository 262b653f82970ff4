"""`status`, `wait`, `cuts`, `tail`: read only."""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import click

from gauss_cdc import logs
from gauss_cdc.commands.base import (
    INEXACT,
    INTERRUPTED,
    DurationType,
    ExampleCommand,
    PositionType,
    configured,
    fail,
    tables_of,
    with_target,
)
from gauss_cdc.config import load
from gauss_cdc.inspect.advice import captured, way_out
from gauss_cdc.inspect.look import cut_line, standing_table, tail_lines
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc.inspect.watching import watch_standing
from gauss_cdc.serve.answers import ways_told
from gauss_cdc.serve.server import serve
from gauss_cdc.serve.standing import StandingMetrics
from gauss_cdc.watch import StopSignal, console, say
from schemas.positions import Lsn, lsn_text

_HANGS = 2.0  # seconds after Ctrl-C for a look at a place that is silent


@click.command(cls=ExampleCommand, example="gauss-cdc status --json")
@configured
@with_target
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON on stdout.")
@click.option("--serve", "port", type=click.IntRange(0, 65535), help="Serve /metrics on this port.")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address for --serve.")
@click.option(
    "--watch",
    "every",
    type=DurationType(),
    is_flag=False,
    flag_value="2s",
    metavar="[DURATION]",
    help="Look again and again, on a terminal, until Ctrl-C; every 2s unless said.",
)
def status(
    config_path: Path,
    *,
    name: str | None,
    as_json: bool,
    port: int | None,
    bind: str,
    every: timedelta | None,
) -> None:
    """Show the positions of source, cuts and target: lag in commits, bytes and seconds.

    Where `apply` listens at [serve], also how many records of each table its driver and Spark's
    tasks read.  A server that cannot be reached is named, and the others are shown: the exit code
    is then that of its error (10 source, 30 Kafka, 40 registry, 60 target, or a nearer one).
    """
    config = load(config_path).only(name)
    if every is not None:
        if as_json or port is not None:
            raise click.UsageError("--watch, --json and --serve exclude each other")
        if not console.is_terminal:
            raise click.UsageError("--watch draws on a terminal; for programs: status --json")
        watch_standing(config, every.total_seconds(), StopSignal(limit=_HANGS), ways_told)
        return
    if port is not None:
        stop, config = StopSignal(), config.single(name)
        logs.of_service()
        host = f"[{bind}]" if ":" in bind else bind
        section = config.listening(f"{host}:{port}").serve
        console.print(f"metrics on {serve(section, StandingMetrics(config), {}, {})}/metrics")
        while not stop.asked(1):
            pass
        return
    with Endpoints(config) as places:
        standing = places.standing()
    ways = ways_told(config)
    if as_json:
        click.echo(json.dumps({**standing.as_json(), "ways": ways}))
    else:
        console.print(standing_table(standing, ways))
    for one in standing.each:
        for error in one.down.values():
            sys.exit(error.exit_code)


@click.command(cls=ExampleCommand, example="gauss-cdc wait --timeout 60s")
@configured
@with_target
@click.option(
    "--lsn",
    type=PositionType(),
    help="Position at the source; default: the current end of its log.",
)
@click.option("--timeout", type=DurationType(), help="Stop after this time, with exit code 4.")
def wait(
    config_path: Path, *, name: str | None, lsn: Lsn | None, timeout: timedelta | None
) -> None:
    """Wait until the target holds every commit before a position; print its position.

    Of several targets each one, and a line for each. Not before the end of a first load. Exit code
    6 if it holds them, and some table of [tables] is not exact; 18 if the source is not the one
    that they are of, or was restored.
    """
    stop = StopSignal()
    until = None if timeout is None else time.monotonic() + timeout.total_seconds()

    def pause(seconds: float) -> bool:
        if until is not None and time.monotonic() > until:
            return True
        return stop.asked(seconds)

    targets, goal, inexact = load(config_path).only(name).targets, lsn, list[str]()
    for config in targets:
        target = f"target {config.name}" if len(targets) > 1 else "target"
        with Endpoints(config) as places:
            goal = places.source().goal() if goal is None else goal
            standing = places.wait(goal, pause, lambda _: None, say, is_given=lsn is not None)
        if standing is None:
            fail(
                f"the {target} does not hold {lsn_text(goal)} yet; do `run` and `apply` go on? "
                "`gauss-cdc status` shows where they stand",
                INTERRUPTED if stop.asked() else 4,
            )
        at = standing.target
        assert at is not None
        click.echo(f"{config.name} " * (len(targets) > 1) + f"{at.epoch}/{at.seq}")
        for table, why in at.inexact.items():
            say(f"{table} is not exact: {why}", style="yellow")
        loads = {} if standing.cuts is None else standing.cuts.loads
        if advice := way_out(config, at, loads):
            say(advice, style="yellow")
        if count := len(captured(config, at.inexact)):
            inexact.append(
                f"the {target} holds the position, but {count} of its tables are not exact"
            )
    if inexact:
        fail("; ".join(inexact), INEXACT)


@click.command(cls=ExampleCommand, example="gauss-cdc cuts --last 5")
@configured
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@click.option("--follow", "-f", is_flag=True, help="Continue with new ones as they come.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def cuts(config_path: Path, *, last: int, follow: bool, as_json: bool) -> None:
    """Show which commits are durable, and the offsets of their rows."""
    stop = StopSignal()
    with Endpoints(load(config_path)) as places:
        start = places.first_cut()
        if start is None:
            console.print("no cuts yet: the first `run` writes them")
            return
        end = places.reader().lso()
        low = max(start, end - 2 * last - 64)
        for offset, cut in places.read_cuts(low, end)[-last:]:
            click.echo(cut_line(offset, cut, as_json=as_json))
        if follow:
            for offset, cut in places.follow(end, stop.asked):
                click.echo(cut_line(offset, cut, as_json=as_json))


@click.command(cls=ExampleCommand, example="gauss-cdc tail public.account --last 10")
@configured
@click.argument("tables", nargs=-1)
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@click.option("--follow", "-f", is_flag=True, help="Continue with new ones as they come.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def tail(
    config_path: Path, tables: tuple[str, ...], *, last: int, follow: bool, as_json: bool
) -> None:
    """Show row changes in readable form; default: all tables."""
    wanted, stop = tables_of(tables), StopSignal()
    for line in tail_lines(
        load(config_path), wanted, last=last, follow=follow, as_json=as_json, stop=stop.asked
    ):
        click.echo(line)
