"""`gauss-cdc`: one command for each task of an operator.  Thin: parse, call, print.

Output for people goes to stderr, for programs to stdout.  Exit codes: 0 done, 1 a finding
or a fault, 2 bad usage or configuration, 5 a file or an output, 130 interrupted, others
as the error classes say (`producer/errors.py`, `spark_consumers/errors.py`; listed in
docs/reference/exit-codes.md).
"""

from __future__ import annotations

import io
import logging
import os
import select
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple, NoReturn, TextIO, cast

import click

from gauss_cdc import logs
from gauss_cdc.commands.base import FAULT, INTERRUPTED, OUTPUT, USAGE, fail
from gauss_cdc.errors import ConfigError
from gauss_cdc.runtime.errors import Unavailable
from gauss_cdc.secrets import Masking
from producer.errors import CdcError
from schemas.version import VERSION
from spark_consumers.errors import ApplyError

_log = logging.getLogger("gauss_cdc")


class _Place(NamedTuple):
    """Where a command is defined, and what `--help` says of it."""

    module: str  # of gauss_cdc.commands
    name: str
    does: str  # the first sentence of its own help


# A command imports its own layer only: `apply` needs no producer.
_COMMANDS: Final = {
    "run": _Place("run", "run", "Source -> Kafka, until stopped."),
    "apply": _Place(
        "apply", "apply", "Kafka -> target with Spark, in commit order, until stopped."
    ),
    "zip": _Place(
        "apply",
        "make_zip",
        "Write our code as a zip for `spark-submit --py-files`, and a program beside it.",
    ),
    "check": _Place("check", "check", "Report problems before they stop a run."),
    "doctor": _Place(
        "doctor",
        "doctor",
        "Say what is wrong or soon will be, and what to do, the most urgent first.",
    ),
    "dashboard": _Place(
        "dashboard",
        "dashboard",
        "Write alert rules for Prometheus and a dashboard for Grafana.",
    ),
    "size": _Place(
        "size",
        "size",
        "Say what the source needs: cores, memory, partitions, disk, time of a load, lag.",
    ),
    "ui": _Place("ui", "ui", "Serve a page that shows where everything stands."),
    "status": _Place(
        "looking",
        "status",
        "Show the positions of source, cuts and target: lag in commits, bytes and seconds.",
    ),
    "wait": _Place(
        "looking",
        "wait",
        "Wait until the target holds every commit before a position; print its position.",
    ),
    "verify": _Place(
        "verify",
        "verify_tables",
        "Compare source and target by row at one commit, while both are live.",
    ),
    "cuts": _Place(
        "looking",
        "cuts",
        "Show which commits are durable, and the offsets of their rows.",
    ),
    "tail": _Place("looking", "tail", "Show row changes in readable form; default: all tables."),
    "slot": _Place("slot", "slot_group", "The replication slot."),
    "snapshot": _Place(
        "snapshot",
        "snapshot",
        "Read captured tables again, while the stream goes on.",
    ),
    "ddl": _Place(
        "ddl",
        "ddl_group",
        "Schema changes: event triggers of a PostgreSQL source; the effect of a statement.",
    ),
    "config": _Place("config", "config_group", "The configuration file."),
}
# Of the laboratory, a distribution of its own: its entry points say where they are defined.
_LABORATORY: Final = {
    "decode": "Print a recording's transactions as JSON lines; needs no server.",
    "demo": "Run everything on this machine: load, kills, and a comparison of source and target.",
    "emulator": (
        "A server with GaussDB's protocol: it replays a recording, or presents a PostgreSQL."
    ),
    "record": "Record what the source sends, without confirming it: nothing is lost.",
    "services": "Local PostgreSQL, Kafka and registry for a first try; never for production.",
}
_ENTRY_POINTS: Final = "gauss_cdc.commands"
# Packages that not every installation has, and the extra of pyproject.toml that brings them.
_EXTRAS: Final = {"pyspark": "apply", "pyarrow": "apply"}
_LISTED: Final = {name: place.does for name, place in _COMMANDS.items()} | _LABORATORY


class _OnDemand(Mapping[str, click.Command]):
    """The commands, each imported when it is asked for."""

    def __init__(self) -> None:
        self._found: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._found:
            self._found[name] = _of_laboratory(name) if name in _LABORATORY else _own(name)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_LISTED)

    def __len__(self) -> int:
        return len(_LISTED)


def _own(name: str) -> click.Command:
    place = _COMMANDS[name]
    module = import_module(f"gauss_cdc.commands.{place.module}")
    return cast("click.Command", getattr(module, place.name))


def _of_laboratory(name: str) -> click.Command:
    """A command of the laboratory; where it is not installed, one that says how to get it."""
    for found in entry_points(group=_ENTRY_POINTS, name=name):
        return cast("click.Command", found.load())

    def refuse() -> None:
        raise click.UsageError(
            f"`{name}` is a command of the laboratory, which is not installed: "
            f"`pip install gauss-cdc-lab=={VERSION}`, in a clone `pip install ./lab`"
        )

    return click.Command(
        name,
        callback=refuse,
        help=_LABORATORY[name],
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )


class _PipeBroke(Exception):
    """A BrokenPipeError, which click would silently turn into exit code 1."""


class _Group(click.Group):
    """Imports commands on demand; passes errors of pipes on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = _OnDemand()  # type: ignore[assignment]  # nobody adds one

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        listed = [click.Command(name, help=does) for name, does in _LISTED.items()]
        click.Group(commands=listed).format_commands(ctx, formatter)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as exc:  # of --help
            raise _PipeBroke from exc

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as exc:
            raise _PipeBroke from exc


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="gauss-cdc")
@click.option("-v", "--verbose", is_flag=True, help="The same as --log-level debug.")
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS, case_sensitive=False),
    help="Lowest level; default: info for `run` and `apply`, else warning.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Format of stderr: text lines, or one JSON object a line.",
)
def cli(*, verbose: bool, log_level: str | None, log_format: str | None) -> None:
    """Change data capture into Kafka, applied by PySpark in commit order."""
    logs.reset()
    logs.set_up(level=log_level or ("debug" if verbose else None), format=log_format)


def main() -> None:
    """Run the command line; turn every error into a message and an exit code."""
    sys.stderr = cast("TextIO", Masking(sys.stderr))
    if isinstance(sys.stdout, io.TextIOWrapper):  # unprintable characters are escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    logs.set_up()
    threading.excepthook = _thread_failed
    try:
        cli(standalone_mode=False)
        _flush()
    except click.ClickException as exc:
        if logs.is_json():
            fail(exc.format_message(), exc.exit_code)
        exc.show()
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except ConfigError as exc:
        fail(str(exc), USAGE)
    except Unavailable as exc:
        fail(str(exc), 1)
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        if package not in _EXTRAS:
            _report_fault()
        fail(f"{package} is not installed: pip install 'gauss-cdc[{_EXTRAS[package]}]'", USAGE)
    except (CdcError, ApplyError) as exc:
        fail(str(exc), exc.exit_code)
    except (BrokenPipeError, _PipeBroke) as exc:
        _leave_without_reader(exc)
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        fail(f"{where}{exc.strerror or exc}", OUTPUT)
    except Exception:  # noqa: BLE001  the one place where everything ends
        _report_fault()


def _report_fault() -> NoReturn:
    """Log the error that is being handled, which is a fault of ours, and end."""
    _log.critical("a fault of gauss-cdc: please report it with these lines", exc_info=True)
    sys.exit(FAULT)


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    """Log a fault in one of our threads."""
    if args.exc_value is not None:
        _log.critical("a fault in a thread of gauss-cdc", exc_info=args.exc_value)


def _flush() -> None:
    """Write what is left, while an error can still be reported: a disk may be full."""
    if not sys.stdout.closed:
        sys.stdout.flush()


def _leave_without_reader(error: Exception) -> None:
    """End quietly if the reader of stdout has closed it, as `head` does."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    fail(f"a connection broke: {error.__cause__ or error}", OUTPUT)
