"""`decode` and `record`: the stream of a source in a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gauss_cdc.commands.base import ExampleCommand, PositionType, configured
from gauss_cdc.watch import StopSignal, console
from schemas.positions import Lsn


@click.command("decode", cls=ExampleCommand, example="gauss-cdc decode stream.jsonl.gz --sql")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--tables",
    "tables_path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="JSON about the tables: what the stream does not contain.",
)
@click.option("--sql", is_flag=True, help="Statements for PostgreSQL instead of JSON.")
@click.option("--all", "everything", is_flag=True, help="Transactions without row changes, too.")
def decode_file(file: Path, *, tables_path: Path | None, sql: bool, everything: bool) -> None:
    """Print a recording's transactions as JSON lines; needs no server.

    Exit code 3 where the file is damaged; what came before is printed.
    """
    from gauss_cdc_lab.recordings.decode import print_all  # noqa: PLC0415  only here
    from gauss_cdc_lab.recordings.tables_file import read_tables  # noqa: PLC0415

    known = read_tables(tables_path) if tables_path is not None else {}
    out = sys.stdout.buffer

    def write(text: str) -> None:
        out.write(text.encode("utf-8", "surrogateescape") + b"\n")

    try:
        printed = print_all(file, known, write, sql=sql, empty=everything)
        out.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if printed.without_rows:
        console.print(f"{printed.without_rows} transactions without row changes left out (--all)")
    for line, said in printed.errors:
        console.print(
            f"line {line}: the server ended the stream: {said}", style="yellow", markup=False
        )
    for name in sorted(printed.ambiguous):
        console.print(
            f"table name {name!r}: decode-style t does not mark the end of the schema; "
            "the first blank is assumed, give --tables to be sure",
            style="yellow",
            markup=False,
        )


@click.command(
    "record", cls=ExampleCommand, example="gauss-cdc record --out stream.jsonl.gz --redact"
)
@configured
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
@click.option("--create", is_flag=True, help="Create the slot if missing; drop it at the end.")
@click.option("--from", "low", type=PositionType(), help="With --to: decode this range again …")
@click.option("--to", "high", type=PositionType(), help="… without a slot; not PostgreSQL.")
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
    low: Lsn | None,
    high: Lsn | None,
    pairs: tuple[str, ...],
) -> None:
    """Record what the source sends, without confirming it: nothing is lost.

    Until a bound is reached or Ctrl-C.  Not while `run` uses the same slot.  With --from and --to
    a part of openGauss' or GaussDB's log (ten WAL files at most) is decoded again, for
    administrators: `decode --sql` makes statements of it.
    """
    from gauss_cdc_lab.recordings import record as recording  # noqa: PLC0415  only here

    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise click.UsageError(f"--option {wrong[0]}: write NAME=VALUE")
    more = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    options = recording.source(config_path, slot=slot, plugin=plugin)
    if (low is None) != (high is None):
        raise click.UsageError("give both --from and --to, or none")
    between = None if low is None or high is None else (low, high)
    plan = recording.RecordingPlan(
        out, seconds, transactions, redact, redact_names, create, more, between
    )
    stop = StopSignal(limit=None)
    try:
        found = recording.record(options, plan, stop.asked)
    except FileExistsError:
        raise click.UsageError(f"--out {out}: the file exists already") from None
    console.print(f"{found.messages} messages, {found.transactions} transactions in {out}")
    if found.undone:
        console.print(f"{found.undone} transactions omitted: rolled back, or only prepared")
    if found.unread:
        console.print(f"{found.unread} messages cannot be decoded yet: send us the file, please")
    if found.blanked:
        console.print(f"{found.blanked} of them were emptied, since their values cannot be found")
    console.print("nothing was confirmed: the slot did not move")
