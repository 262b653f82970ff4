"""`gauss-cdc`: one verb per thing an operator does.  Thin: parse, call, print.

People's output goes to stderr, programs' to stdout.  Exit codes: 0 done, 2 bad
usage or configuration, 130 interrupted, others as the error classes say
(`producer/errors.py`, `spark_consumers/errors.py`; listed in the README).
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Self

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from gauss_cdc import __version__, services, wiring
from gauss_cdc.check import check_all
from gauss_cdc.config import SOURCE_PASSWORD, Config, ConfigError, duration, load
from gauss_cdc.look import cut_line, findings_table, slot_fields, standing_table, tail_lines
from gauss_cdc.metrics import serve
from gauss_cdc.pack import pack
from gauss_cdc.places import Places, Standing
from gauss_cdc.watch import StepName, StopSignal, console, set_up_logging
from producer.drivers import catalog, ddl_triggers, gauss_slots
from producer.drivers.postgres_dial import parse_dsn
from producer.drivers.registry import Registry
from producer.errors import CdcError, SlotMissing, Unsupported
from producer.options import Options
from producer.pipeline import create_slot
from producer.pipeline import run as run_producer
from producer.preflight import Level
from producer.start import Watch
from schemas.positions import Lsn
from schemas.tables import TableId
from spark_consumers.errors import ApplyError

USAGE: Final = 2
INTERRUPTED: Final = 130
_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


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
    # Rows are short-lived and hold no cycles; the collector's default looks for some every 700
    # objects, which costs a tenth of the CPU and finds nothing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    with _LoadBars() as bars:
        watch = Watch(step.set, bars.show, console.print, stop.asked)
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


@cli.command("zip", cls=_Command, example="gauss-cdc zip gauss-cdc.zip")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
def make_zip(out: Path) -> None:
    """Write our code as a zip for `spark-submit --py-files`, and the program beside it."""
    program = pack(out)
    console.print(f"spark-submit --py-files {out} {program} apply --config gauss-cdc.toml")


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

    def __enter__(self) -> Self:
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


# ---------------------------------------------------------------- looking
@cli.command(cls=_Command, example="gauss-cdc check --config bank.toml --fix")
@_configured
@click.option("--fix", is_flag=True, help="Do what may be done safely: make the publication.")
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON on stdout.")
def check(config_path: Path, *, fix: bool, as_json: bool) -> None:
    """Say now what would go wrong later. Exit code 1 if anything is an error."""
    config = _load(config_path)
    findings = list(check_all(config, fix=fix))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        console.print(findings_table(findings))
    if any(finding.level is Level.ERROR for finding in findings):
        sys.exit(1)


@cli.command(cls=_Command, example="gauss-cdc status --json")
@_configured
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON on stdout.")
@click.option("--serve", "port", type=click.IntRange(0, 65535), help="Serve /metrics on this port.")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address for --serve.")
def status(config_path: Path, *, as_json: bool, port: int | None, bind: str) -> None:
    """Where source, cuts and target stand: lag in commits, bytes and seconds."""
    config = _load(config_path)
    if port is not None:
        stop = StopSignal()
        console.print(f"metrics on http://{bind}:{serve(config, bind, port)}/metrics")
        while not stop.asked(1):
            pass
        return
    with Places(config) as places:
        standing = places.standing()
    if as_json:
        click.echo(json.dumps(standing.as_json()))
    else:
        console.print(standing_table(standing))


@cli.command(cls=_Command, example="gauss-cdc wait --timeout 60s")
@_configured
@click.option("--lsn", help="Position at the source; default: where its log ends now.")
@click.option("--timeout", help="Give up after this long, with exit code 4.")
def wait(config_path: Path, *, lsn: str | None, timeout: str | None) -> None:
    """Wait until the target holds every commit before a position; prints where it stands."""
    stop = StopSignal()
    until = time.monotonic() + duration(timeout).total_seconds() if timeout else None

    def pause(seconds: float) -> bool:
        if until is not None and time.monotonic() > until:
            return True
        return stop.asked(seconds)

    with Places(_load(config_path)) as places:
        goal = int(Lsn.parse(lsn)) if lsn else places.wal_end()
        standing = places.wait(goal, pause, lambda _: None)
    if standing is None:
        _fail(f"the target does not hold {Lsn(goal)} yet", INTERRUPTED if stop.asked() else 4)
    assert standing.target is not None
    for table, why in standing.target.inexact.items():
        console.print(f"{table} is not exact: {why}", style="yellow")
    click.echo(f"{standing.target.epoch}/{standing.target.seq}")


@cli.command(cls=_Command, example="gauss-cdc cuts --last 5")
@_configured
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@click.option("--follow", "-f", is_flag=True, help="Go on as they come.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def cuts(config_path: Path, *, last: int, follow: bool, as_json: bool) -> None:
    """Look into the cuts: which commits are durable, and where their rows stand."""
    stop = StopSignal()
    with Places(_load(config_path)) as places:
        start, _ = places.reader().bounds()
        end = places.reader().lso()
        low = max(start, end - 2 * last - 64)
        for offset, cut in places.read_cuts(low, end)[-last:]:
            click.echo(cut_line(offset, cut, as_json=as_json))
        if follow:
            for offset, cut in places.follow(end, stop.asked):
                click.echo(cut_line(offset, cut, as_json=as_json))


@cli.command(cls=_Command, example="gauss-cdc tail public.account --last 10")
@_configured
@click.argument("tables", nargs=-1)
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@click.option("--follow", "-f", is_flag=True, help="Go on as they come.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def tail(
    config_path: Path, tables: tuple[str, ...], *, last: int, follow: bool, as_json: bool
) -> None:
    """Look at row changes as a person would; default: all tables."""
    stop = StopSignal()
    for line in tail_lines(
        _load(config_path), tables, last=last, follow=follow, as_json=as_json, stop=stop.asked
    ):
        click.echo(line)


# ---------------------------------------------------------------- recordings
@cli.command("decode", cls=_Command, example="gauss-cdc decode stream.jsonl.gz --sql")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--tables",
    "tables_path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="JSON about the tables: what the stream does not say.",
)
@click.option("--sql", is_flag=True, help="Statements for PostgreSQL instead of JSON.")
@click.option("--all", "everything", is_flag=True, help="Transactions without row changes, too.")
def decode_file(file: Path, *, tables_path: Path | None, sql: bool, everything: bool) -> None:
    """Print a recording's transactions, one JSON object a line; needs no server.

    Exit code 3 where the file is damaged; what came before is printed.
    """
    from gauss_cdc.decode import print_all  # noqa: PLC0415  only here
    from gauss_cdc.tables_file import read_tables  # noqa: PLC0415

    known = read_tables(tables_path) if tables_path is not None else {}
    out = sys.stdout.buffer

    def write(text: str) -> None:
        out.write(text.encode("utf-8", "surrogateescape") + b"\n")

    try:
        printed = print_all(file, known, write, sql=sql, empty=everything)
        out.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if printed.without_rows:
        console.print(f"{printed.without_rows} transactions without row changes left out (--all)")
    for name in sorted(printed.ambiguous):
        console.print(
            f"table name {name!r}: decode-style t does not tell where the schema ends; "
            "taken as if at its first blank, give --tables to be sure",
            style="yellow",
            markup=False,
        )


@cli.command("record", cls=_Command, example="gauss-cdc record --out stream.jsonl.gz --redact")
@_configured
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="New file; compressed if its name ends with .gz.",
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="How long.")
@click.option("--transactions", type=click.IntRange(1), help="How many.")
@click.option("--redact", is_flag=True, help="Other values of the same length; names stay.")
@click.option("--redact-names", is_flag=True, help="Other names, too.")
@click.option("--slot", help="Another slot than [source] slot.")
@click.option("--plugin", help="Plugin of a slot made by --create; default: [source] plugin.")
@click.option("--create", is_flag=True, help="Make the slot if missing; drop it at the end.")
@click.option("--option", "pairs", multiple=True, metavar="NAME=VALUE", help="Of the plugin.")
def record_stream(
    config_path: Path,
    *,
    out: Path,
    seconds: float | None,
    transactions: int | None,
    redact: bool,
    redact_names: bool,
    slot: str | None,
    plugin: str | None,
    create: bool,
    pairs: tuple[str, ...],
) -> None:
    """Write down what the source sends, confirming nothing: recording loses nothing.

    Until a bound is reached or Ctrl-C.  Not while `run` uses the same slot.
    """
    from gauss_cdc import record as recording  # noqa: PLC0415  only here

    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise click.UsageError(f"--option {wrong[0]}: write NAME=VALUE")
    more = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    options = wiring.producer_options(_load(config_path), load=False)
    options = replace(options, slot=slot or options.slot, plugin=plugin or options.plugin)
    plan = recording.Plan(out, seconds, transactions, redact, redact_names, create, more)
    stop = StopSignal(limit=None)
    try:
        found = recording.record(options, plan, stop.asked)
    except FileExistsError:
        raise click.UsageError(f"--out {out}: the file exists already") from None
    console.print(f"{found.messages} messages, {found.transactions} transactions in {out}")
    if found.unread:
        console.print(f"{found.unread} messages cannot be decoded yet: send us the file, please")
    if found.blanked:
        console.print(f"{found.blanked} of them were emptied, since their values cannot be found")
    console.print("nothing was confirmed: the slot stands where it stood")


# ---------------------------------------------------------------- slot
@cli.group("slot")
def slot_group() -> None:
    """The replication slot."""


@slot_group.command("show", cls=_Command, example="gauss-cdc slot show")
@_configured
def slot_show(config_path: Path) -> None:
    """Print the slot as JSON; exit code 13 if there is none."""
    with Places(_load(config_path)) as places:
        found = Standing(places.source(), None, None).as_json()["source"]
    if found is None:
        _fail("the slot does not exist", SlotMissing.exit_code)
    click.echo(json.dumps(found))


@slot_group.command("create", cls=_Command, example="gauss-cdc slot create")
@_configured
def slot_create(config_path: Path) -> None:
    """Make the slot and open the prefix without a first load: rows older than now stay behind."""
    stop, step = StopSignal(), StepName()
    options = wiring.producer_options(_load(config_path), load=False)
    create_slot(options, Watch(step.set, lambda *_: None, console.print, stop.asked))
    console.print("rows that existed before this moment are not copied")


@slot_group.command("list", cls=_Command, example="gauss-cdc slot list")
@_configured
def slot_list(config_path: Path) -> None:
    """Print every slot of the source's server, one JSON object a line."""
    with Places(_load(config_path)) as places:
        for slot in gauss_slots.slots(places.source_session()):
            click.echo(json.dumps(slot_fields(slot)))


@slot_group.command("advance", cls=_Command, example="gauss-cdc slot advance")
@_configured
@click.option("--lsn", help="Position; default: that of the newest cut, which loses nothing.")
@click.option("--yes", is_flag=True, help="Yes, beyond the newest cut: changes will be lost to us.")
def slot_advance(config_path: Path, *, lsn: str | None, yes: bool) -> None:
    """Let the server drop log that is in Kafka already, while `run` stands still; repeatable."""
    config = _load(config_path)
    with Places(config) as places:
        cuts = places.cuts()
        safe = cuts.resume if cuts is not None else 0
        goal = int(Lsn.parse(lsn)) if lsn else safe
        if goal > safe and not yes:
            raise click.UsageError(
                f"the newest cut is at {Lsn(safe)}: what is behind it would be lost; say --yes"
            )
        session = places.source_session()
        slot = gauss_slots.check_usable(
            gauss_slots.find(session, config.source.slot),
            name=config.source.slot,
            plugin=config.source.output_plugin,
            database=wiring.source_arguments(config).dbname,
        )
        if slot.ordered_by == "csn":
            raise Unsupported(
                "a slot in the order of CSNs is moved by its reader only", slot=slot.name
            )
        if slot.confirmed is not None and slot.confirmed >= goal:
            reached = slot.confirmed
        else:
            reached = gauss_slots.advance(session, config.source.slot, Lsn(goal))
    click.echo(str(reached))


@slot_group.command("drop", cls=_Command, example="gauss-cdc slot drop --yes")
@_configured
@click.option("--yes", is_flag=True, help="Yes, changes since its position will be lost to us.")
def slot_drop(config_path: Path, *, yes: bool) -> None:
    """Drop the slot; the next run needs --accept-gap and loads again."""
    if not yes:
        raise click.UsageError("this loses the slot's position; say --yes")
    config = _load(config_path)
    with Places(config) as places:
        gauss_slots.drop(places.source_session(), config.source.slot)
    console.print(f"slot {config.source.slot} dropped")


# ---------------------------------------------------------------- schema changes
@cli.group("ddl")
def ddl_group() -> None:
    """Schema changes of a PostgreSQL source: event triggers, and what a statement would do."""


_dsn = click.option("--dsn", help="Of a superuser at the source; default: [source] dsn.")


@ddl_group.command(
    "install", cls=_Command, example="gauss-cdc ddl install --dsn postgresql://postgres@db/bank"
)
@_configured
@_dsn
def ddl_install(config_path: Path, dsn: str | None) -> None:
    """Make the event triggers at the source, in schema gauss_cdc; needs a superuser, once."""
    options = wiring.producer_options(_load(config_path))
    with closing(_source(options, dsn)) as connection:
        made = ddl_triggers.install(
            connection, options.publication, options.include, options.exclude
        )
    console.print("event triggers tell every schema change from here on")
    if made.schemas:
        console.print(f"whole schemas in {made.publication}: {', '.join(made.schemas)}")


@ddl_group.command("uninstall", cls=_Command, example="gauss-cdc ddl uninstall")
@_configured
@_dsn
def ddl_uninstall(config_path: Path, dsn: str | None) -> None:
    """Drop the event triggers and all that came with them; schema changes are inferred then."""
    with closing(_source(wiring.producer_options(_load(config_path)), dsn)) as connection:
        was_there = ddl_triggers.uninstall(connection)
    console.print("event triggers dropped" if was_there else "there were none")


@ddl_group.command("show", cls=_Command, example="gauss-cdc ddl show")
@_configured
@_dsn
def ddl_show(config_path: Path, dsn: str | None) -> None:
    """Print what of ours stands at the source, as JSON."""
    with closing(_source(wiring.producer_options(_load(config_path)), dsn)) as connection:
        click.echo(json.dumps(asdict(ddl_triggers.state(connection))))


@ddl_group.command(
    "plan", cls=_Command, example="gauss-cdc ddl plan 'ALTER TABLE account ADD COLUMN note text'"
)
@_configured
@_dsn
@click.argument("statement")
def ddl_plan(config_path: Path, dsn: str | None, statement: str) -> None:
    """Say what registry and target would do with a statement. Runs it and rolls it back.

    It takes its locks meanwhile, for 30 seconds at most. Exit code 1 if somebody would refuse.
    """
    from gauss_cdc import ddl_plan as planning  # noqa: PLC0415  only here

    config = _load(config_path)
    options = wiring.producer_options(config)
    target = config.target.kind if config.target is not None else "postgres"
    registry = Registry(options.registry_url, options.registry_options)
    with closing(_source(options, dsn)) as connection, closing(registry):
        planned = planning.plan(options, connection, registry, statement, target=target)
    for line in planning.lines(planned, options.incompatible):
        click.echo(line)
    if any(one.is_refused for one in planned):
        sys.exit(1)


def _source(options: Options, dsn: str | None) -> Any:
    """An ordinary session at a PostgreSQL source."""
    if options.kind != "postgres":
        raise click.UsageError("event triggers are PostgreSQL's; openGauss and GaussDB decode DDL")
    if dsn is None:
        return catalog.connect(options.source)
    return catalog.connect(parse_dsn(dsn, os.environ.get(SOURCE_PASSWORD)))


# ---------------------------------------------------------------- demo
@cli.command(cls=_Command, example="gauss-cdc demo --kills 8")
@click.option("--seconds", type=float, help="Load after the first load; default 40, or 6 a kill.")
@click.option("--kills", type=click.IntRange(0), default=5, show_default=True, help="Kills.")
@click.option("--seed", type=int, default=1, show_default=True, help="What happens, and when.")
@click.option("--workload", type=click.Choice(["bank", "tpcb"]), default="bank", show_default=True)
@click.option("--workers", type=click.IntRange(1), default=6, show_default=True, help="Sessions.")
@click.option("--rate", type=float, default=300, show_default=True, help="Transactions a second.")
@click.option("--at-least-once", is_flag=True, help="Play with exactly-once = false.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep all in DIR.")
@click.option(
    "--source",
    type=click.Choice(["postgres", "opengauss", "gaussdb"]),
    default="postgres",
    show_default=True,
    help="What the source looks like; all but postgres by `gauss-cdc emulator`.",
)
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON, to stdout.")
def demo(
    *,
    seconds: float | None,
    kills: int,
    seed: int,
    workload: str,
    workers: int,
    rate: float,
    at_least_once: bool,
    keep: Path | None,
    source: Literal["postgres", "opengauss", "gaussdb"],
    as_json: bool,
) -> None:
    """Everything on this machine: load, kills, and the proof that nothing differs.

    Exit code 1 where anything differs.
    """
    from gauss_cdc import demo as stage  # noqa: PLC0415  only here

    plan = stage.Plan(
        workload,
        seconds if seconds is not None else max(40.0, 6.0 * kills),
        kills,
        seed,
        workers,
        rate,
        kills_in_load=kills >= 10,  # chaos
        exactly_once=not at_least_once,
        keep=keep,
        source=source,
    )
    try:
        report = stage.demo(plan, console)
    except stage.PlayFailed as exc:
        _fail(str(exc), 1)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    if not report.is_equal:
        _fail("the target is not equal to the source", 1)


# ---------------------------------------------------------------- emulator
@cli.command(cls=_Command, example="gauss-cdc emulator --facade postgresql://postgres@host/bank")
@click.option("--replay", type=_FILE, help="Serve a recorded stream.")
@click.option("--facade", help="DSN of a PostgreSQL that shall look like openGauss or GaussDB.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: a free one.")
@click.option("--ha-port", type=click.IntRange(0, 65535), default=0, help="Default: the next.")
@click.option("--user", default="cdc_user", show_default=True, help="Who may log in.")
@click.option(
    "--password",
    envvar="GAUSS_CDC_EMULATOR_PASSWORD",
    required=True,
    help="Of that user; better in $GAUSS_CDC_EMULATOR_PASSWORD.",
)
@click.option(
    "--stored",
    type=click.Choice(["sha256", "combined", "md5", "sm3"]),
    default="sha256",
    show_default=True,
    help="How the server keeps the password.",
)
@click.option(
    "--login",
    type=click.Choice(["sha256", "md5", "sm3", "password"]),
    default="sha256",
    show_default=True,
    help="The method of its line in pg_hba.conf.",
)
@click.option(
    "--product",
    type=click.Choice(["og3", "og5", "og6", "og7", "gaussdb"]),
    help="Default: openGauss 7, or what was recorded.",
)
@click.option("--paced", is_flag=True, help="Replay at the pace of the recording.")
@click.option("--catalog", help="With --replay: DSN of a scratch database that answers SQL.")
@click.option("--tables", type=_FILE, help="With --catalog: the recording's tables_*.json.")
@click.option("--certificate", type=_FILE, help="Offer TLS with this certificate …")
@click.option("--key", type=_FILE, help="… and this key.")
@click.option("--no-thread-pool", is_flag=True, help="Replication at the main port, too.")
@click.option("--sender-timeout", default="30s", show_default=True, help="0s: never.")
@click.option("--busy", default="0s", help="How long a slot stays active when its client vanished.")
@click.option(
    "--background",
    default="1s",
    show_default=True,
    help="With --facade: something empty commits this often while a stream runs; 0s: never.",
)
def emulator(
    *,
    login: str,
    stored: str,
    no_thread_pool: bool,
    sender_timeout: str,
    busy: str,
    background: str,
    replay: Path | None,
    facade: str | None,
    product: str | None,
    **given: Any,
) -> None:
    """A server that speaks GaussDB's protocol: a recording, or a PostgreSQL in disguise."""
    from gauss_cdc.emulator import program  # noqa: PLC0415  only here
    from gauss_cdc.emulator.frames import Refused  # noqa: PLC0415
    from gauss_cdc.emulator.login import Line, Stored  # noqa: PLC0415
    from gauss_cdc.emulator.server import Emulator  # noqa: PLC0415

    if (replay is None) == (facade is None):
        raise click.UsageError("say either --replay or --facade")

    def tell(started: Emulator) -> None:
        console.print(f"{started.product.version}")
        console.print(f"ordinary sessions at port {started.port}, HA port {started.ha_port}")
        click.echo(str(started.port))

    wanted = program.Wanted(
        replay=replay,
        facade=facade,
        line=Line(login),
        stored=Stored(stored),
        product=product or "",
        has_thread_pool=not no_thread_pool,
        sender_timeout_ms=round(duration(sender_timeout).total_seconds() * 1000),
        busy_seconds=duration(busy).total_seconds(),
        background_seconds=duration(background).total_seconds(),
        **given,
    )
    try:
        program.run(wanted, tell)
    except (Refused, OSError) as exc:
        _fail(f"the emulator cannot start: {exc}", 1)


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
        sys.exit(INTERRUPTED)
    except ConfigError as exc:
        _fail(str(exc), USAGE)
    except services.ServiceError as exc:
        _fail(str(exc), 1)
    except CdcError as exc:
        _fail(str(exc), exc.exit_code)
    except ApplyError as exc:
        _fail(str(exc), exc.exit_code)
