"""`verify`: source and target at one commit, while both are live."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
from rich import box
from rich.table import Table
from rich.text import Text

from gauss_cdc import rereads
from gauss_cdc.commands.base import (
    DurationType,
    ExampleCommand,
    configured,
    fail,
    tables_of,
    with_target,
)
from gauss_cdc.config import Config, load
from gauss_cdc.inspect.advice import captured
from gauss_cdc.logs import printable
from gauss_cdc.verify.report import UNDECIDED, Outcome, RowKind, TableReport, exit_code
from gauss_cdc.verify.request import MOST_KEYS, Request, Sample, VerifyObserver
from gauss_cdc.verify.rounds import verify
from gauss_cdc.watch import StopSignal, TableBars, console, say
from producer.errors import NotPermitted
from producer.sources.requests import Keys
from schemas.errors import LOAD_AGAIN

_SAMPLE: Final = re.compile(r"(\d+(?:\.\d+)?)(%?)")
_STYLES: Final = {
    Outcome.EQUAL: "green",
    Outcome.DIFFERENT: "red",
    Outcome.UNDECIDED: "yellow",
}


class SampleType(click.ParamType[Sample]):
    """A share of rows, `5%`, or a number of rows of each table."""

    name = "sample"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Sample:
        """Parse it, or report its format."""
        if isinstance(value, Sample):
            return value
        found = _SAMPLE.fullmatch(value)
        if found is not None and found[2] and 0 < float(found[1]) <= 100:
            return Sample(share=float(found[1]) / 100)
        if found is not None and found[1].isdecimal() and not found[2] and int(found[1]) > 0:
            return Sample(rows=int(found[1]))
        return self.fail(f"{value!r} is neither a share, as 5%, nor a number of rows", param, ctx)


@click.command("verify", cls=ExampleCommand, example="gauss-cdc verify --table public.account")
@configured
@with_target
@click.option(
    "--table", "tables", multiple=True, help="Only this table, as schema.name; repeatable."
)
@click.option("--sample", type=SampleType(), help="Compare a share of the rows (5%), or so many.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True,
              help="Differing rows of a table that are kept; all are counted.")  # fmt: skip
@click.option("--repair", is_flag=True, help="Ask `run` to read again what differs.")
@click.option("--show-keys", is_flag=True, help="Print keys of differing rows: values of cells.")
@click.option(
    "--timeout", type=DurationType(), help="Wait so long for the target; default: no limit."
)
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON on stdout.")
def verify_tables(
    config_path: Path,
    *,
    name: str | None,
    tables: tuple[str, ...],
    sample: Sample | None,
    limit: int,
    repair: bool,
    show_keys: bool,
    timeout: timedelta | None,
    as_json: bool,
) -> None:
    """Compare source and target by row at one commit, while both are live.

    With --repair a `run` reads the rows that differ again while its stream goes on; or all rows of
    the table, as for `gauss-cdc snapshot`, where they are many or it cannot name them.

    Exit code 7 if rows differ, 8 if a table could not be compared or the target does not reach
    the source's position in time.
    """
    wanted = [str(table) for table in tables_of(tables)]
    stop = StopSignal(None)
    config = load(config_path).single(name)
    if repair:
        rereads.check(config)
    until = None if timeout is None else time.monotonic() + timeout.total_seconds()

    def pause(seconds: float) -> bool:
        if seconds and until is not None and time.monotonic() > until:
            return True
        return stop.asked(seconds)

    keys = max(limit, MOST_KEYS) if repair else limit
    request = Request(wanted, sample or Sample(), keys, limit)
    with TableBars("comparing") as bars:
        found = verify(config, request, VerifyObserver(say, bars.show, pause))
    if stop.asked():
        sys.exit(stop.exit_code)
    if found is None:
        fail(
            "the target does not hold the source's position yet: nothing was compared; do `run` and"
            " `apply` go on? `gauss-cdc status` shows where they stand",
            UNDECIDED,
        )
    if not found:
        fail("neither the stream nor [tables] has a table: nothing was compared", UNDECIDED)
    if as_json:
        click.echo(
            json.dumps([report.as_json(show_keys=show_keys, limit=limit) for report in found])
        )
    else:
        console.print(_reports_table(found))
        for line in _reasons(found):
            say(line, style="yellow")
        if show_keys:
            for report in found:
                _print_keys(report, limit)
    different = {one.table: one.keys for one in found if one.outcome is Outcome.DIFFERENT}
    if repair:  # a mark of the target's own stays until all was read again
        different |= {one.table: [] for one in found if one.is_left_marked}
    if different:
        mend(config, different, repair=repair)
    sys.exit(exit_code(found))


def mend(config: Config, tables: Mapping[str, Keys], *, repair: bool) -> None:
    """Ask for what differs, or say how it is made equal again.

    `tables`: the keys of the rows that differ, by schema.table; () for all rows.
    """
    if repair:
        wanted = captured(config, tables)
        if left := [name for name in tables if name not in wanted]:
            say(f"not read again, since [tables] does not name it: {', '.join(left)}")
        if not wanted:
            return
        named = {name: keys for name in wanted if (keys := tables[name])}
        with rereads.session(config) as source:
            try:
                source.ask(tables_of(wanted), config.label, named)  # of several targets, this one
            except NotPermitted as error:
                if not named:
                    raise
                say(f"all rows are read, not only those that differ: {error}", style="yellow")
                named = {}
                source.ask(tables_of(wanted), config.label)
        whose = f" for {config.label}" if config.label else ""
        rows = {name: f" (differing rows: {len(keys):,})" for name, keys in named.items()}
        said = [f"{name}{rows.get(name, '')}" for name in wanted]
        say(f"`run` is asked to read again{whose}: {', '.join(said)}", style="yellow")
        say("`gauss-cdc snapshot` lists what is not done yet; then compare again")
    elif rereads.possible(config):
        say("`--repair` asks `run` to read what differs again", style="yellow")
    else:
        say(f"what differs is mended by a load: {LOAD_AGAIN}", style="yellow")


def _reports_table(found: list[TableReport]) -> Table:
    """For people; in 80 columns names of tables are folded, and nothing is cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("table", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    for name in ("commit", "source", "target"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("differing rows", overflow="fold")
    for report in found:
        table.add_row(
            Text(printable(report.table)),
            Text(report.outcome.value, style=_STYLES[report.outcome]),
            f"{report.epoch}/{report.seq}",
            f"{report.source_rows:,}",
            f"{report.target_rows:,}",
            ", ".join(f"{report.counts[k]:,} {k}" for k in RowKind if k in report.counts),
        )
    return table


def _reasons(found: list[TableReport]) -> Iterator[str]:
    """Why a table is not decided, and what else is known of it."""
    for report in found:
        for line in report.remarks():
            yield f"{report.table}: {line}"


def _print_keys(report: TableReport, limit: int) -> None:
    """Keys of rows, on the terminal only: they never reach a log."""
    for row in report.rows[:limit]:
        key = ", ".join(f"{n}={v}" for n, v in zip(report.key, row.key, strict=False))
        columns = f" ({', '.join(row.columns)})" if row.columns else ""
        say(f"{report.table}: {row.kind.value}: {key}{columns}")
    if (rest := report.differing - min(limit, len(report.rows))) > 0:
        say(f"{report.table}: {rest:,} more")
