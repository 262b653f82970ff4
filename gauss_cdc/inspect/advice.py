"""What makes the tables of a target exact that the ledger says are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from gauss_cdc import target, wiring
from gauss_cdc.config import Config
from producer.core.loads.queue import OPEN
from producer.sources.kinds import SOURCES
from producer.sources.patterns import chooser
from schemas.control import ANY, GAP
from schemas.errors import LOAD_AGAIN, shortened
from schemas.tables import TableId, argument
from spark_consumers.cuts.ledger import ALTERED, LATE, is_unloaded
from spark_consumers.errors import altered_hint
from spark_consumers.model import Ledger


def captured(config: Config, names: Iterable[str]) -> list[str]:
    """Return those of some tables that `[tables]` names; ANY may be each of them."""
    options = wiring.producer_options(config)
    wants = chooser(options.include, options.exclude)
    return [name for name in names if name == ANY or wants(TableId.of(name))]


def late_tables(config: Config) -> list[str]:
    """Tables that the target came too late for."""
    with closing(target.kind_of(config).inspector(target.setup(config))) as inspector:
        ledger = inspector.ledger()
    return [] if ledger is None else late(ledger)


def late(at: Ledger) -> list[str]:
    """Tables that the target of a ledger came too late for."""
    return [name for name, why in at.inexact.items() if why == LATE]


def way_out(
    config: Config, at: Ledger, loads: Mapping[str, str], *, newest: tuple[int, int] = (0, 0)
) -> str:
    """Say what makes tables of a target exact that nothing loads now.

    `loads`: phases of tables, as cuts have them.  What only the target knows, `run` does not see.
    `newest`: epoch and n of the newest record of cuts; a load may wait for `apply` there.
    """
    wanted = captured(config, at.inexact)
    left = [name for name in at.inexact if name not in wanted]
    tables = [name for name, why in at.inexact.items() if not is_unloaded(why) and name not in left]
    said = []
    if ANY in tables:  # no load of one table ends it
        tables.remove(ANY)
        said.append(f"rows of a table that nobody can name were lost: {LOAD_AGAIN}")
    if left:
        said.append(
            f"not in [tables] any more: {', '.join(left)}; the target keeps the rows it has, and"
            " they are read again when [tables] names them again"
        )
    for name in [name for name in tables if at.inexact[name] == ALTERED]:
        tables.remove(name)
        said.append(f"others altered {name}: {altered_hint(name)}")
    if tables:
        said += _of_captured(config, tables, loads, is_behind=(at.epoch, at.n) < newest)
    if set(late(at)) - set(left):
        said.append(
            f"the target began late: `apply` asks for what it does not have, or"
            f" `gauss-cdc snapshot --for {target.name_of(config)}` does, for it alone"
        )
    return ". ".join(said)


def _of_captured(
    config: Config, tables: list[str], loads: Mapping[str, str], *, is_behind: bool
) -> Iterator[str]:
    if not SOURCES[config.source.kind].rereads(wiring.producer_options(config)):
        yield f"a load makes every table equal: {LOAD_AGAIN}"
        return
    is_auto = config.source.repair == "auto"
    gaps = [name for name in tables if is_auto and loads.get(name) in {GAP, *OPEN}]
    if gaps:
        yield (
            "`run` reads a table with gaps again by itself, unless it was renamed to what [tables]"
            f" does not name; {_asking(gaps)} asks for it"
        )
    if others := [name for name in tables if name not in gaps]:
        first = "`apply` is behind, and a load may be on its way; if it stays so, " * is_behind
        yield (
            f"{first}{_asking(others)} makes it equal while the stream goes on; one that the source"
            " has no more is to be dropped at the target, and `run` restarted, or left out of"
            " [tables]"
        )


def _asking(tables: Sequence[str]) -> str:
    first, *others = tables
    also = f" (and so of {shortened(others)})" if others else ""
    return f"`gauss-cdc snapshot --table {argument(first)}`{also}"
