"""`doctor`: read only."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from gauss_cdc import doctor as diagnosis
from gauss_cdc.commands.base import ExampleCommand, configured, with_programs, with_target
from gauss_cdc.config import load
from gauss_cdc.inspect.look import findings_table
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc.serve.alarms import PAGE
from gauss_cdc.watch import console
from schemas.findings import Level

_URGENT_FIRST = (Level.ERROR, Level.WARNING, Level.NOTE)


@click.command(cls=ExampleCommand, example="gauss-cdc doctor --bundle report.zip")
@configured
@with_target
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON on stdout.")
@with_programs
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a zip for a report: all that was found, without secrets and cell values.",
)
def doctor(
    config_path: Path,
    *,
    name: str | None,
    as_json: bool,
    listens: tuple[str, ...],
    bundle: Path | None,
) -> None:
    """Say what is wrong or soon will be, and what to do, the most urgent first.

    Asks source, Kafka, registry, target, and each program of [serve]. Exit code 1 if anything is
    an error or a warning; each name is one of docs/operations.md, and of the rules of `dashboard`.
    """
    config = load(config_path).only(name)
    with Endpoints(config) as places:
        asked = diagnosis.ask(config, listens, places)
    found = diagnosis.findings(asked)
    if bundle is not None:
        diagnosis.write_bundle(bundle, config, asked, found)
    if as_json:
        click.echo(json.dumps([diagnosis.as_json(one) for one in found]))
    else:
        console.print(findings_table(found, _URGENT_FIRST))
        if found:
            console.print(f"each name has its paragraph in {PAGE}")
    if any(one.level in (Level.ERROR, Level.WARNING) for one in found):
        sys.exit(1)
