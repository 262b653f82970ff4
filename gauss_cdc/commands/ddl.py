"""`ddl`: event triggers of a PostgreSQL source; the effect of a statement, at any source."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from gauss_cdc import wiring
from gauss_cdc.commands.base import ExampleCommand, configured, without_password
from gauss_cdc.config import SOURCE_PASSWORD, load
from gauss_cdc.watch import console, say
from producer.kafka.registry import Registry
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.kinds import SOURCES
from producer.sources.postgres.triggers import install as ddl_triggers
from spark_consumers.dialects import DIALECTS


@click.group("ddl")
def ddl_group() -> None:
    """Schema changes: event triggers of a PostgreSQL source; the effect of a statement."""


_dsn = click.option(
    "--dsn",
    callback=without_password(SOURCE_PASSWORD),
    help="Of a superuser at the source; default: [source] dsn.",
)


@ddl_group.command(
    "install",
    cls=ExampleCommand,
    example="gauss-cdc ddl install --dsn postgresql://postgres@db/bank",
)
@configured
@_dsn
def ddl_install(config_path: Path, dsn: str | None) -> None:
    """Create the event triggers at the source, once, as a superuser."""
    options = wiring.producer_options(load(config_path))
    with closing(_source(options, dsn)) as connection:
        made = ddl_triggers.install(
            connection,
            options.publication,
            options.include,
            options.exclude,
            role=options.source.user,
        )
    console.print("event triggers capture every schema change from here on")
    if made.schemas:
        say(f"whole schemas in {made.publication}: {', '.join(made.schemas)}")


@ddl_group.command("uninstall", cls=ExampleCommand, example="gauss-cdc ddl uninstall")
@configured
@_dsn
def ddl_uninstall(config_path: Path, dsn: str | None) -> None:
    """Drop the event triggers; schema changes are inferred then."""
    with closing(_source(wiring.producer_options(load(config_path)), dsn)) as connection:
        was_there = ddl_triggers.uninstall(connection)
    console.print("event triggers dropped" if was_there else "there were none")


@ddl_group.command("show", cls=ExampleCommand, example="gauss-cdc ddl show")
@configured
@_dsn
def ddl_show(config_path: Path, dsn: str | None) -> None:
    """Print our objects at the source, as JSON."""
    with closing(_source(wiring.producer_options(load(config_path)), dsn)) as connection:
        click.echo(json.dumps(asdict(ddl_triggers.state(connection))))


@ddl_group.command(
    "plan",
    cls=ExampleCommand,
    example="gauss-cdc ddl plan 'ALTER TABLE account ADD COLUMN note text'",
)
@configured
@_dsn
@click.option("--target", "into", type=click.Choice(sorted(DIALECTS)), help="Default: [target].")
@click.argument("statement")
def ddl_plan(config_path: Path, dsn: str | None, into: str | None, statement: str) -> None:
    """Show what registry and target would do with a statement. Runs it and rolls it back.

    It holds its locks meanwhile, for 30 seconds at most. Exit code 1 if one would refuse it.
    """
    from gauss_cdc.inspect import ddl_plan as planning  # noqa: PLC0415  only here

    config = load(config_path)
    options = wiring.producer_options(config)
    kinds = [one.target.kind if one.target is not None else "postgres" for one in config.targets]
    dialects = [into] if into else [kind if kind in DIALECTS else "spark" for kind in kinds]
    rehearse = SOURCES[options.kind].rehearse
    if rehearse is None:
        raise click.UsageError(f"a source of kind {options.kind} tells nothing of a statement")
    rehearsed = rehearse(_at(options, dsn), statement, options.source.user)
    with closing(Registry(options.registry_url, options.registry_options)) as registry:
        plans = {
            target: planning.plan(options, registry, rehearsed, target=target)
            for target in dialects
        }
    for target, planned in plans.items():
        if len(plans) > 1:
            click.echo(f"-- at {target}")
        for line in planning.lines(planned, options.incompatible, rehearsed.note):
            click.echo(line)
    if any(one.is_refused for planned in plans.values() for one in planned):
        sys.exit(1)


def _at(options: Options, dsn: str | None) -> Options:
    """Log in elsewhere, or as somebody else, than the configuration says."""
    if dsn is None:
        return options
    return replace(options, source=parse_dsn(dsn, os.environ.get(SOURCE_PASSWORD)), hosts=())


def _source(options: Options, dsn: str | None) -> Any:
    """An ordinary session at a source that has event triggers."""
    log_in = SOURCES[options.kind].triggers
    if log_in is None:
        raise click.UsageError("event triggers are PostgreSQL's; openGauss and GaussDB decode DDL")
    return log_in(_at(options, dsn))
