"""`config`."""

from __future__ import annotations

from pathlib import Path

import click

from gauss_cdc.commands.base import ExampleCommand, configured
from gauss_cdc.config import load


@click.group("config")
def config_group() -> None:
    """The configuration file."""


@config_group.command(
    "show", cls=ExampleCommand, example="gauss-cdc config show --config bank.toml"
)
@configured
def config_show(config_path: Path) -> None:
    """Check the file and print every setting with its value; secrets as stars."""
    click.echo(load(config_path).shown())
