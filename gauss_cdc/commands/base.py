"""What every command has: an example in its help, --config, and how it fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from gauss_cdc.watch import console
from schemas.positions import Lsn

USAGE: Final = 2
INTERRUPTED: Final = 130
EXISTING_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


class Command(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = f"\b\nExample:\n  {example}" if example else None


class PositionType(click.ParamType[Lsn]):
    """A position in the source's log."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Lsn:
        """Read it, or say how it is written."""
        try:
            return value if isinstance(value, Lsn) else Lsn.parse(value)
        except ValueError:
            self.fail(f"{value!r} is no position: write it as 16/B374D848", param, ctx)


def configured(command: Any) -> Any:
    """Give a command --config, as the argument `config_path`."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        default="gauss-cdc.toml",
        show_default=True,
        help="Configuration file.",
    )(command)


def fail(message: str, code: int) -> NoReturn:
    """Say why on stderr and leave with this exit code."""
    console.print(f"gauss-cdc: {message}", style="red", markup=False, highlight=False)
    sys.exit(code)
