"""`dashboard`: files for Prometheus and Grafana."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gauss_cdc.commands.base import ExampleCommand
from gauss_cdc.serve.alarms import PAGE
from gauss_cdc.serve.dashboard import dashboard as grafana
from gauss_cdc.serve.dashboard import rules


@click.command(cls=ExampleCommand, example="gauss-cdc dashboard monitoring")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--runbook",
    default=PAGE,
    show_default=True,
    metavar="URL",
    help="Where you serve docs/operations.md; the link of each alert begins with it.",
)
def dashboard(folder: Path, *, runbook: str) -> None:
    """Write alert rules for Prometheus and a dashboard for Grafana."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gauss-cdc-rules.yml").write_text(rules(runbook), "utf-8")
    (folder / "gauss-cdc-dashboard.json").write_text(json.dumps(grafana(), indent=1), "utf-8")
