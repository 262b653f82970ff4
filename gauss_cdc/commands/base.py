"""What every command has: an example in its help, --config, and how it fails."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from gauss_cdc import logs
from gauss_cdc.config_serve import address
from producer.secret_words import holds_secret
from producer.settings import duration
from schemas.errors import LOAD_AGAIN, Explained
from schemas.positions import Lsn, parse_lsn
from schemas.tables import TableId

FAULT: Final = 1
USAGE: Final = 2
OUTPUT: Final = 5  # a file or an output that cannot be written or read, a port in use
INEXACT: Final = 6
INTERRUPTED: Final = 130
EXISTING_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)

_ANY_WAY_OUT: Final = (
    "`gauss-cdc check` may show more, `gauss-cdc record --redact` records what the source sends "
    f"for a report; if it persists, {LOAD_AGAIN}"
)


class ExampleCommand(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = f"\b\nExample:\n  {example}" if example else None


class PositionType(click.ParamType[Lsn]):
    """A position in the source's log."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Lsn:
        """Parse it, or report its format."""
        try:
            return Lsn(value) if isinstance(value, int) else parse_lsn(value)
        except ValueError:
            self.fail(f"{value!r} is not a position: write it as 16/B374D848", param, ctx)


class DurationType(click.ParamType[timedelta]):
    """A time span: `500ms`, `10s`, `5m`; a bare number is seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Parse it, or report its format."""
        try:
            return value if isinstance(value, timedelta) else duration(value, bare_seconds=True)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


def tables_of(names: Iterable[str]) -> list[TableId]:
    """Read the names of tables that were typed, or report their format."""
    try:
        return [TableId.parse(name) for name in names]
    except ValueError as error:
        raise click.UsageError(str(error)) from error


with_log_every = click.option(
    "--log-every",
    type=DurationType(),
    default="1m",
    show_default=True,
    help="Interval of progress lines; 0s: never.",
)


class AddressType(click.ParamType[str]):
    """`host:port`."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Keep it as it is, or report its format."""
        try:
            address(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


with_listen = click.option(
    "--listen",
    type=AddressType(),
    metavar="HOST:PORT",
    help="Address of page, probes and metrics; default: [serve] listen.",
)
with_programs = click.option(
    "--program",
    "listens",
    type=AddressType(),
    multiple=True,
    metavar="HOST:PORT",
    help="Address of one more program with [serve], as `apply --listen` has it.",
)


with_target = click.option(
    "--target", "name", metavar="NAME", help="Of several [[target]], only that of this name."
)


def configured(command: Any) -> Any:
    """Add --config to a command, as the argument `config_path`."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        default="gauss-cdc.toml",
        show_default=True,
        help="Configuration file.",
    )(command)


def without_password(variable: str) -> Callable[..., str | None]:
    """Refuse a secret in an argument, which the list of processes shows to all users."""

    def take(_context: click.Context, _parameter: click.Parameter, dsn: str | None) -> str | None:
        if dsn is not None and holds_secret(dsn):
            raise click.BadParameter(f"a password must not be an argument; set {variable}")
        return dsn

    return take


def logged(command: Any) -> Any:
    """Add --log-level and --log-format to a command; both may precede its name, too."""

    def take(ctx: click.Context, param: click.Parameter, value: str | None) -> None:  # noqa: ARG001
        if value is not None:
            logs.set_up(**{str(param.name).removeprefix("log_"): value})

    for name, values, words in (
        ("--log-format", ["text", "json"], "Text lines, or one JSON object a line."),
        ("--log-level", list(logs.LEVELS), "Lowest level; default: info."),
    ):
        command = click.option(
            name,
            type=click.Choice(values, case_sensitive=False),
            expose_value=False,
            callback=take,
            help=words,
        )(command)
    return command


@contextmanager
def with_hint() -> Iterator[None]:
    """Give each error that stops a hint, at least the general one."""
    try:
        yield
    except Explained as error:
        error.hint = error.hint or _ANY_WAY_OUT
        raise


def fail(message: str, code: int) -> NoReturn:
    """Print the reason on stderr and exit with this code."""
    logs.log(logging.getLogger("gauss_cdc"), logging.ERROR, message, exit_code=code)
    sys.exit(code)
