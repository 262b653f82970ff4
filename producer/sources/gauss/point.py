"""A place between two commits, with a snapshot of exactly the commits before it.

A second slot, ordered by LSN, gives both: its consistent point, and the snapshot that it exports.
Transactions whose COMMIT record begins before that point are in the snapshot, all others in any
stream behind it: the slot of the stream drops what was delivered by the same rule.  These servers
have no temporary slots, so the name is always the same, and the next one drops what a crash left.

The streams of these servers tell one end of a COMMIT record only (`stream.py`).  A point lies
between two records: what ends at or before it began before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from producer.errors import ConnectionLost, SlotMissing, SlotTaken, SourceBusy
from producer.options import Options
from producer.sources import patterns
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.options.effective import effective
from producer.sources.gauss.slots import Making, OpenTransaction
from producer.sources.gauss.snapshot import GaussReading
from producer.sources.rights import problems_of_reading
from producer.sources.session import Asks
from producer.wire.commands import SlotCreated
from schemas.quoting import constant
from schemas.tables import TableId

_SECONDS: Final = 2.0  # for the slot: the stream waits meanwhile
_NAME_BYTES: Final = 63  # of a slot


def exports_snapshot(options: Options) -> bool:
    """Only a slot made over the replication protocol, ordered by LSN, exports a snapshot."""
    decided = effective(options.plugin_options, options.terms)
    return options.interface == "stream" and decided.ordered_by == "lsn"


@dataclass(frozen=True, slots=True)
class GaussPoint:
    """`ports.Point`."""

    at: int
    reading: GaussReading
    _session: ExitStack

    def close(self) -> None:
        self._session.close()


def make_point(
    options: Options,
    asking: GaussConnection,
    open_session: Callable[[], GaussConnection],
    table: TableId,
    note: Callable[[str], None],
) -> GaussPoint | None:
    """Make a point and protect the table from DDL; None: it is not captured any more.

    Raises SourceBusy while the slot waits for open transactions, TableChanging where DDL came
    between the point and the protection, and what else the server refuses.
    """
    if not patterns.selects(options.include, options.exclude, table):
        return None
    if table not in gauss_catalog.expand(asking, ("*.*",)):
        return None
    rights = gauss_catalog.table_rights(asking, [table])
    for problem in problems_of_reading(rights, gauss_catalog.user(asking)):
        raise problem
    with (
        ExitStack() as stack,
        exporting_slot(options, asking, "point", note=note) as making,
    ):
        if (made := making.result(_SECONDS)) is None:
            blockers = gauss_slots.blockers(asking, but=making.maker)
            raise SourceBusy(
                "a place between two commits waits for open transactions",
                waits_for="; ".join(map(str, blockers[:1])),
            )
        reading = stack.enter_context(gauss_snapshot.imported(open_session, made.snapshot or ""))
        gauss_snapshot.hold(reading, asking, table)
        commit_something(asking)
        return GaussPoint(int(made.consistent_point), reading, stack.pop_all())


def commit_something(asking: Asks) -> None:
    """Write a commit record without changes.

    A parallel stream that is idle tells no position: only a commit behind a place shows that
    nothing before it is still to come.
    """
    asking.query("SELECT txid_current()")


@contextmanager
def exporting_slot(
    options: Options,
    asking: Asks,
    what: str,
    *,
    on_blocked: Callable[[list[OpenTransaction]], None] = lambda _: None,
    note: Callable[[str], None],
) -> Iterator[Making[SlotCreated]]:
    """A slot that is being made, with its snapshot, until the end of a `with` block.

    Raises SlotTaken where another client uses the slot of this name.
    """
    name = f"{options.slot[: _NAME_BYTES - len(what) - 1]}_{what}"
    with suppress(SlotMissing):
        gauss_slots.drop(asking, name)
    with GaussConnection.open(
        options.source, hosts=options.hosts, role=options.role,
        replication_port=options.ha_port or 0,
    ) as maker:  # fmt: skip
        making = Making(
            lambda: maker.create_slot(name, options.plugin),
            slot=name,
            maker=maker.query("SELECT pg_backend_pid()")[0][0] or "",
            asker=asking,
            on_blocked=on_blocked,
        )
        try:
            yield making
        finally:
            if making.is_over:
                _drop(asking, name, note)
            else:
                making.give_up()


def _drop(asking: Asks, name: str, note: Callable[[str], None]) -> None:
    """Drop the slot, which would keep log."""
    try:
        gauss_slots.drop(asking, name)
    except SlotMissing:
        return
    except (SlotTaken, ConnectionLost) as error:
        note(
            f"slot {name} remains and keeps log ({error.what}): the next one drops it, or "
            f"SELECT pg_drop_replication_slot({constant(name)})"
        )
