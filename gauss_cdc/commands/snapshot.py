"""`snapshot`: ask a `run` to read tables again while its stream goes on."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gauss_cdc import rereads
from gauss_cdc.commands.base import ExampleCommand, configured, tables_of
from gauss_cdc.config import load
from gauss_cdc.inspect.advice import captured, late_tables
from gauss_cdc.watch import say
from producer.core.loads.queue import EVERYTHING


@click.command(cls=ExampleCommand, example="gauss-cdc snapshot --table public.account")
@configured
@click.option("--table", "names", multiple=True, help="schema.table, as [tables] captures it.")
@click.option("--for", "whose", metavar="TARGET", help="For the target of this name alone.")
@click.option("--cancel", is_flag=True, help="Take the request back, unless it has begun.")
@click.option("--pause", is_flag=True, help="Begin no re-read from now on, whoever asks for it.")
@click.option("--resume", is_flag=True, help="Go on with what waits.")
def snapshot(
    config_path: Path,
    *,
    names: tuple[str, ...],
    whose: str | None,
    cancel: bool,
    pause: bool,
    resume: bool,
) -> None:
    """Read captured tables again, while the stream goes on.

    A request is a row in the source, in a table of schema gauss_cdc: it waits for a `run`, and
    outlives its restarts. Without --table, prints the requests that are open, one JSON object a
    line. While a small table is read, all others wait; a large one is read beside the stream.

    --for names the target ([target] name) that takes the load; others pass it by, and stay exact.
    Without --table it asks for all that this configuration's target came too late for. A table that
    is not exact for any target is loaded for all.

    --pause holds back interrupted loads, added tables and repairs, too; a table that is being read
    is read to its end. `status` shows what waits, and what is read.
    """
    if (pause and (resume or names or whose)) or (cancel and not names):
        raise click.UsageError("--pause stands alone; --cancel needs --table")
    config = load(config_path)
    is_late = bool(whose) and not names  # what the target lacks may have been dropped since
    if whose and not names:
        mine = config.only(whose)
        names = tuple(captured(mine, late_tables(mine)))
    elif whose and not cancel and whose not in (own := [one.name for one in config.targets]):
        say(
            f"{whose} is no target of this configuration, which has {', '.join(own)}: only the"
            " target of that name in another one takes the load",
            style="yellow",
        )
    tables = tables_of(names)
    with rereads.session(config) as source:
        try:
            if pause:
                source.pause()
            if resume:
                source.resume()
            if cancel:
                source.cancel(tables, whose or "")
            elif tables:
                if not is_late:
                    source.check_names(tables)
                source.ask(tables, whose or "")
        except (rereads.NotAsked, rereads.NotCaptured) as error:
            raise click.UsageError(str(error)) from error
        for request in source.asked():
            table, only = request.wish
            what: dict[str, object] = (
                {"paused": True} if table == EVERYTHING else {"table": str(table)}
            )
            what |= {"for": only} if only else {}
            what |= {"only": "rows that differ"} if request.is_by_key else {}
            who = {"asked_by": request.asked_by} if request.asked_by else {}
            said = {**what, "asked_at": request.asked_at.isoformat(), **who}
            click.echo(json.dumps(said))
