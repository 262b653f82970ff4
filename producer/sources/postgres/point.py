"""A place between two commits, with a snapshot of exactly the commits before it.

A temporary slot gives both: its consistent point, and the snapshot that it exports.  Transactions
whose COMMIT record begins before that point are in the snapshot, all others in any stream behind
it; this is the rule by which the slot of the stream drops what was delivered, too.  The slot is
needed until a session has imported the snapshot, and ends with its own session.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog.look import Before
from producer.core.loads.window import NothingThere
from producer.core.ports import Reading
from producer.errors import ConnectionLost, SourceBusy, TableChanging
from producer.options import Options
from producer.sources.postgres import catalog_look, running, snapshot
from producer.sources.postgres.captured import captured, reading_problems
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.primary import Primary
from schemas.positions import Lsn
from schemas.tables import TableId

SHORTEST: Final = 2.0  # seconds for the slot: the stream waits meanwhile
LONGEST: Final = 8.0  # SIGTERM is answered within 10
_NAME_BYTES: Final = 63  # of a slot


@dataclass(frozen=True, slots=True)
class PostgresPoint:
    """`ports.Point`."""

    at: Lsn
    reading: Reading
    looked: Before | None
    _session: ExitStack

    def close(self) -> None:
        self._session.close()


def make_point(
    options: Options,
    connection: Connection,
    table: TableId,
    server: tuple[str, int],
    *,
    patience: float,
    primary: Primary,
    if_gone: bool = False,
) -> PostgresPoint | None:
    """Make a point and protect the table from DDL; None: it is not captured any more.

    `if_gone`: a point that shows it gone, instead.

    `server`: system id and timeline of the one that streams.  An address may lead to another one
    by now, which was promoted: a point there is none of the stream [H40].
    Raises SourceBusy where the slot waits for open transactions after `patience` seconds,
    TableChanging where DDL came between the point and the protection, and what else the server
    refuses.
    """
    is_there = table in captured(connection, options).tables
    if not is_there and not if_gone:
        return None
    for problem in reading_problems(connection, [table] if is_there else []):
        raise problem
    with ExitStack() as stack, ReplicationConnection.open(options.source) as wire:
        suffix = f"_{wire.backend_pid}"
        name = options.slot[: _NAME_BYTES - len(suffix)] + suffix
        said = wire.identify()
        if (said.system_id, said.timeline) != server:
            raise ConnectionLost("another server has this address by now", timeline=said.timeline)
        since = catalog_look.baseline(connection, options, [table])
        wire.begin_slot(name, options.plugin, temporary=True)
        end = time.monotonic() + patience
        while (made := primary.begun(wire, end - time.monotonic())) is None:
            if time.monotonic() >= end:
                found = primary.blockers(wire.backend_pid)
                running.end_waiter(connection, wire.backend_pid)
                raise _waits(found, primary.delay, patience)
        session = stack.enter_context(snapshot.imported(options.source, made.snapshot or ""))
        at = made.consistent_point
        if (table in captured(session, options).tables) is not is_there:
            # One that was dropped and made again has left the publication.
            how = "was made again, and is not published yet" if is_there else "is there again"
            raise TableChanging(f"a table {how}", table=table)
        if not is_there:
            return PostgresPoint(at, NothingThere(), None, stack.pop_all())
        snapshot.hold(session, connection, [table])
        looked = catalog_look.baseline(session, options, [table], since=since)
        reading = snapshot.SnapshotReading(session, connection, are_held=True)
        return PostgresPoint(at, reading, looked, stack.pop_all())


def _waits(found: list[running.Blocker], delay: str, patience: float) -> SourceBusy:
    """Say for whom a slot waits."""
    who = delay or "; ".join(f"{blocker}: {blocker.way_out}" for blocker in found[:1])
    return SourceBusy(
        "a place between two commits waits for open transactions",
        waited=f"{patience:g} s",
        waits_for=who,
    )
