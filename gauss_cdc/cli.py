"""`gauss-cdc`: one verb per thing an operator does.  Thin: parse, call, print.

People's output goes to stderr, programs' to stdout.  Exit codes: 0 done, 2 bad
usage or configuration, 130 interrupted, others as the error classes say
(`producer/errors.py`, `spark_consumers/errors.py`; listed in the README).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from gauss_cdc import __version__, services, wiring
from gauss_cdc.config import Config, ConfigError, load
from gauss_cdc.watch import StepName, StopSignal, console, set_up_logging
from producer.errors import CdcError
from producer.pipeline import run as run_producer
from producer.start import Watch
from schemas.tables import TableId
from spark_consumers.errors import ApplyError

USAGE: Final = 2


class _Command(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = f"\b\nExample:\n  {example}" if example else None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gauss-cdc")
@click.option("-v", "--verbose", is_flag=True, help="Log state changes of the drivers.")
def cli(*, verbose: bool) -> None:
    """Change data capture into Kafka, applied by PySpark in commit order."""
    set_up_logging(verbose=verbose)


def _configured(command: Any) -> Any:
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        default="gauss-cdc.toml",
        show_default=True,
        help="Configuration file.",
    )(command)


def _load(path: Path) -> Config:
    return load(path)


# ---------------------------------------------------------------- source -> Kafka
@cli.command(cls=_Command, example="gauss-cdc run --config bank.toml")
@_configured
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Where going on is impossible (slot lost, source promoted, topics replaced): open a new "
    "epoch and load every table again. Says what differed.",
)
def run(config_path: Path, *, accept_gap: bool) -> None:
    """Source -> Kafka, until stopped. The first run also loads the existing rows."""
    stop, step = StopSignal(), StepName()
    options = wiring.producer_options(_load(config_path), accept_gap=accept_gap)
    with _LoadBars() as bars:
        watch = Watch(step.set, bars.show, lambda text: console.print(text), stop.asked)
        run_producer(options, watch)


# ---------------------------------------------------------------- Kafka -> target
@cli.command(cls=_Command, example="gauss-cdc apply --config bank.toml --master 'local[*]'")
@_configured
@click.option("--master", help="Spark master; default: [spark] master.")
@click.option("--checkpoint", help="Checkpoint folder; default: [spark] checkpoint.")
@click.option("--packages", help="Maven coordinates of the connector, for other clusters.")
@click.option("--replace", is_flag=True, help="Empty target tables that hold rows before a load.")
def apply(
    config_path: Path,
    *,
    master: str | None,
    checkpoint: str | None,
    packages: str | None,
    replace: bool,
) -> None:
    """Kafka -> target with Spark, in commit order, until stopped."""
    from gauss_cdc.apply import apply as run_apply  # noqa: PLC0415  pyspark takes a second

    stop, step = StopSignal(), StepName()
    config = _load(config_path)
    changes: dict[str, Any] = {}
    if master:
        changes["master"] = master
    if checkpoint:
        changes["checkpoint"] = checkpoint
    if packages:
        changes["options"] = {**config.spark.options, "spark.jars.packages": packages}
    config = config.model_copy(update={"spark": config.spark.model_copy(update=changes)})
    run_apply(config, stop, step, replace=replace, on_progress=lambda _: None)


class _LoadBars:
    """Progress bars of a first load, shown from its first chunk on."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("loading {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[TableId, TaskID] = {}

    def __enter__(self) -> _LoadBars:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, table: TableId, rows: int, expected: int) -> None:
        if table not in self._tasks:
            self._progress.start()
            self._tasks[table] = self._progress.add_task(str(table))
        self._progress.update(self._tasks[table], completed=rows, total=max(rows, expected))
        if all(task.finished for task in self._progress.tasks):
            self._progress.stop()


# ---------------------------------------------------------------- services
@cli.group("services")
def services_group() -> None:
    """Local PostgreSQL, Kafka and registry for a first try; never for production."""


_dir = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default="services",
    show_default=True,
    help="Folder that keeps their data.",
)


@services_group.command("up", cls=_Command, example="gauss-cdc services up --dir try")
@_dir
def services_up(directory: Path) -> None:
    """Start them and leave them running; writes DIR/gauss-cdc.toml."""
    addresses = services.up(directory, console=console)
    console.print(f"PostgreSQL  {addresses.postgres_url('source')} and …/target")
    console.print(f"Kafka       {addresses.kafka_bootstrap}")
    console.print(f"registry    {addresses.registry_url}")
    click.echo(str(directory / "gauss-cdc.toml"))


@services_group.command("down", cls=_Command, example="gauss-cdc services down --dir try")
@_dir
def services_down(directory: Path) -> None:
    """Stop them; their data stays."""
    console.print(f"stopped: {', '.join(services.down(directory)) or 'nothing was running'}")


@services_group.command("env", cls=_Command, example='eval "$(gauss-cdc services env --dir try)"')
@_dir
def services_env(directory: Path) -> None:
    """Print their addresses as shell variables."""
    for name, value in services.env(directory).items():
        click.echo(f"export {name}={shlex.quote(value)}")


# ---------------------------------------------------------------- configuration
@cli.group("config")
def config_group() -> None:
    """The configuration file."""


@config_group.command("show", cls=_Command, example="gauss-cdc config show --config bank.toml")
@_configured
def config_show(config_path: Path) -> None:
    """Check the file and print every setting with its value; secrets as stars."""
    click.echo(_load(config_path).model_dump_json(indent=2, by_alias=True))


# ---------------------------------------------------------------- the top
def _fail(message: str, code: int) -> NoReturn:
    console.print(f"gauss-cdc: {message}", style="red", markup=False, highlight=False)
    sys.exit(code)


def main() -> None:
    """Run the command line; turn every expected error into a message and an exit code."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ConfigError as exc:
        _fail(str(exc), USAGE)
    except services.ServiceError as exc:
        _fail(str(exc), 1)
    except CdcError as exc:
        _fail(str(exc), exc.exit_code)
    except ApplyError as exc:
        _fail(str(exc), exc.exit_code)
