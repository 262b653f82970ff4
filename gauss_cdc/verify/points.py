"""The source under a snapshot whose place in the stream is known: that of a slot made for it.

The slot lives as long as it takes to import its snapshot, and keeps no log.  A server of
PostgreSQL drops it by itself; openGauss and GaussDB have no temporary slots, so its name is
always the same one, and what a killed `verify` left behind is dropped by the next.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from gauss_cdc import wiring
from gauss_cdc.config import Config
from gauss_cdc.verify.sides import ComparedServer, settled
from producer.errors import Unsupported
from producer.options import Options
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.point import exporting_slot, exports_snapshot
from producer.sources.gauss.source import open_session
from producer.sources.postgres import catalog, running
from producer.sources.postgres.connection import ReplicationConnection, reach
from producer.sources.postgres.primary import Primary
from producer.sources.session import Asks
from schemas.quoting import constant

_LOOK: Final = 0.5  # seconds between two looks at what the new slot waits for
_LONGEST_NAME: Final = 63


@dataclass(frozen=True, slots=True)
class SourcePoint:
    """Exactly the commits that begin before `position` are in the server's snapshot."""

    position: int
    server: ComparedServer


@contextmanager
def source_point(
    config: Config, stop: Callable[[], bool], note: Callable[[str], None]
) -> Iterator[SourcePoint | None]:
    """Read the source as of now; None: asked to stop while the slot waited.

    Raises Unsupported where the source's slots export no snapshot.
    """
    options = wiring.producer_options(config)
    with ExitStack() as stack:
        if options.kind == "postgres":
            yield _postgres(options, stack, stop, note)
        else:
            yield _gauss(options, stack, stop, note)


def _postgres(
    options: Options, stack: ExitStack, stop: Callable[[], bool], note: Callable[[str], None]
) -> SourcePoint | None:
    name = f"{options.slot[: _LONGEST_NAME - 16]}_verify_{secrets.token_hex(4)}"
    at = reach(options.source)
    asker = catalog.connect(at)
    stack.callback(asker.close)
    primary = Primary(options.source, asker)
    stack.callback(primary.close)
    with ReplicationConnection.open(at) as maker:
        maker.begin_slot(name, options.plugin, temporary=True)
        said = list[running.Blocker]()
        while (made := primary.begun(maker, _LOOK)) is None:
            if stop():
                running.end_waiter(asker, maker.backend_pid)
                return None
            found = primary.blockers(maker.backend_pid)
            for blocker in found:
                if blocker not in said:
                    note(f"the snapshot waits for {blocker}; {blocker.way_out}")
            said = found
        reading, now = (
            stack.enter_context(ReplicationConnection.open(at, replication=False)) for _ in range(2)
        )
        _import(reading, made.snapshot or "", is_postgres=True)
    settled(reading)
    settled(now)
    return SourcePoint(int(made.consistent_point), ComparedServer(reading, now, is_source=True))


def _gauss(
    options: Options, stack: ExitStack, stop: Callable[[], bool], note: Callable[[str], None]
) -> SourcePoint | None:
    if not exports_snapshot(options):
        raise Unsupported(
            "slots of this source export no snapshot: no state of it is known by its position",
            hint='verify needs interface = "stream" and a slot in the order of the log',
        )

    def note_blockers(found: list[gauss_slots.OpenTransaction]) -> None:
        for blocker in found:
            note(f"the snapshot waits for {blocker}")

    asker = stack.enter_context(open_session(options))
    # SlotTaken: another verify runs.
    with exporting_slot(options, asker, "verify", on_blocked=note_blockers, note=note) as making:
        while (made := making.result(_LOOK)) is None:
            if stop():
                return None
        reading, now = (stack.enter_context(open_session(options)) for _ in range(2))
        _import(reading, made.snapshot or "", is_postgres=False)
    settled(reading)
    settled(now)
    return SourcePoint(int(made.consistent_point), ComparedServer(reading, now, is_source=True))


def _import(session: Asks, snapshot: str, *, is_postgres: bool) -> None:
    session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    session.query(f"SET TRANSACTION SNAPSHOT {constant(snapshot)}")
    if is_postgres:
        session.query("SET LOCAL idle_in_transaction_session_timeout = 0")
