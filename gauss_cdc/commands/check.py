"""`check`: read only, except for `--fix`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from gauss_cdc.commands.base import ExampleCommand, configured, with_target
from gauss_cdc.config import load
from gauss_cdc.inspect.check import check_all
from gauss_cdc.inspect.look import findings_table
from gauss_cdc.watch import console
from schemas.findings import Level


@click.command(cls=ExampleCommand, example="gauss-cdc check --config bank.toml --fix")
@configured
@with_target
@click.option(
    "--fix",
    is_flag=True,
    help="Make safe corrections: create the publication, or add the tables that it lacks.",
)
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON on stdout.")
def check(config_path: Path, *, name: str | None, fix: bool, as_json: bool) -> None:
    """Report problems before they stop a run. Exit code 1 if anything is an error."""
    config = load(config_path).only(name)
    findings = list(check_all(config, fix=fix))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        console.print(findings_table(findings))
    if any(finding.level is Level.ERROR for finding in findings):
        sys.exit(1)
