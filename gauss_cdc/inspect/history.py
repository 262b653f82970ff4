"""Whether the source still is the one whose commits are in cuts: what `wait` asks last.

A source that was restored, or another server at its address, ends before the position that a
target holds: it has no commit that the target lacks, and the target has some that it lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gauss_cdc import wiring
from producer.core.comparison import SWITCH_ALL
from producer.errors import SourceSwitched
from producer.options import Options
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss.point import open_replication
from producer.sources.postgres import catalog, primary
from producer.sources.postgres.connection import ReplicationConnection
from schemas.control import Identity
from schemas.errors import LOAD_AGAIN
from schemas.positions import Lsn


@dataclass(frozen=True, slots=True)
class ServerNow:
    """What a server says of itself."""

    system_id: str
    timeline: int
    end: int  # of its log; at a standby, of what it has replayed
    is_standby: bool


def postgres_now(connection: Any) -> ServerNow:
    """Ask a PostgreSQL."""
    system_id, timeline = primary.history_of(connection)
    is_standby = catalog.in_recovery(connection)
    return ServerNow(system_id, timeline, catalog.log_end(connection), is_standby)


def gauss_now(options: Options, session: wiring.CatalogSession) -> ServerNow:
    """Ask an openGauss or a GaussDB, as `run` does."""
    end = gauss_readings.wal_end(session)
    if options.interface == "sql":
        system_id, timeline = gauss_catalog.system(session)
    else:
        with open_replication(options) as wire:
            said = wire.identify()
        system_id, timeline = said.system_id, said.timeline
    return ServerNow(system_id, timeline, end, options.role != "primary")


def doubt(
    options: Options,
    was: Identity,
    now: ServerNow,
    resume: int,
    has_left: Callable[[Options, int, int], bool],
) -> str:
    """Say for what to wait until the source is that of the cuts, which reach to `resume`.

    "": it is.  Raises SourceSwitched where it is another one, or lacks what was delivered.
    `has_left` is asked where the timeline is another one.
    """
    if (was.system_id, was.timeline) != (now.system_id, now.timeline):
        if was.system_id == now.system_id and has_left(options, was.timeline, now.timeline):
            return f"the source was promoted, and `run` has not followed it to {now.timeline}"
        raise SourceSwitched(
            "the source is another server than the one whose commits the target holds, or was"
            " restored",
            was=f"{was.system_id}/{was.timeline}",
            now=f"{now.system_id}/{now.timeline}",
            hint=_hint(options),
        )
    if wiring.is_ordered_by_csn(options) or now.end >= resume:
        return ""
    if now.is_standby:
        return "the standby has not replayed what the target holds"
    raise SourceSwitched(
        "the source's log ends before what the target holds: it was restored",
        log_end=Lsn(now.end),
        delivered=Lsn(resume),
        hint=_hint(options),
    )


def has_left(options: Options, was: int, now: int) -> bool:
    """Say whether the server, on timeline `now`, was on an older one."""
    if options.kind != "postgres":
        return False
    with ReplicationConnection.open(options.source) as wire:
        return any(switch.timeline == was for switch in wire.timeline_history(now))


def _hint(options: Options) -> str:
    way_out = LOAD_AGAIN if options.kind == "postgres" else f"{SWITCH_ALL}; {LOAD_AGAIN}"
    return f"is it the right one? {way_out}"
