"""A place between two commits, with a snapshot of exactly the commits before it.

A second slot, ordered by LSN, gives both: its consistent point, and the snapshot that it exports.
Transactions whose COMMIT record begins before that point are in the snapshot, all others in any
stream behind it: the slot of the stream drops what was delivered by the same rule.  These servers
have no temporary slots, so the name is always the same, and the next one drops what a crash left.

The streams of these servers tell one end of a COMMIT record only (`stream.py`).  A point lies
between two records: what ends at or before it began before it.

Where no slot exports a snapshot, a window that is quiet takes its place (`core/loads/window.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Final

from producer.core.catalog.look import Before
from producer.core.loads.window import MarkTokens, NothingThere, QuietWindow
from producer.core.ports import Reading
from producer.errors import (
    ConnectionLost,
    NotPermitted,
    SlotMissing,
    SlotTaken,
    SourceBusy,
    SourceError,
    TableChanging,
)
from producer.options import Options
from producer.sources import patterns
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import marks
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.options import Effective, effective
from producer.sources.gauss.slots import Making, OpenTransaction
from producer.sources.gauss.snapshot import GaussReading
from producer.sources.rights import problems_of_reading
from producer.sources.session import Asks
from producer.wire.commands import SlotCreated
from schemas.positions import NOWHERE, Lsn, parse_lsn
from schemas.quoting import constant, qualified
from schemas.tables import TableId

_SECONDS: Final = 2.0  # for the slot: the stream waits meanwhile
_NAME_BYTES: Final = 63  # of a slot
_PAUSE: Final = 0.01  # between two looks at transactions that end: there is no notification
_LOCK_MS: Final = 1000
_STARTED: Final = "SELECT extract(epoch FROM pg_postmaster_start_time())::text"


def of_one_server(asking: Asks, session: GaussConnection) -> GaussConnection:
    """Return a session, if its server is that of `asking`; else close it, and raise ConnectionLost.

    An address may lead to another server by now, which was promoted: its positions, snapshots and
    locks are none of the stream's [H40].
    """
    return of_server(started(asking), session)


def of_server(since: str | None, session: GaussConnection) -> GaussConnection:
    """Return a session, if its server is the one that `started` then; as `of_one_server` does."""
    if started(session) == since:
        return session
    session.close()
    raise ConnectionLost("another server has this address by now", host=session.arguments.host)


def started(asking: Asks) -> str | None:
    """Say when a server started: no other one did at the same microsecond."""
    return asking.query(_STARTED)[0][0]


def exports_snapshot(options: Options) -> bool:
    """Only a slot made over the replication protocol, ordered by LSN, exports a snapshot."""
    return _exports_snapshot(effective(options.plugin_options, options.terms))


def _exports_snapshot(decided: Effective) -> bool:
    return decided.interface == "stream" and decided.ordered_by == "lsn"


@dataclass(frozen=True, slots=True)
class GaussPoint:
    """`ports.Point`."""

    at: Lsn
    reading: Reading
    _session: ExitStack
    looked: Before  # of its table; none of one that is gone

    def close(self) -> None:
        self._session.close()


def make_point(
    options: Options,
    asking: GaussConnection,
    open_session: Callable[[], GaussConnection],
    table: TableId,
    note: Callable[[str], None],
    *,
    if_gone: bool = False,
) -> GaussPoint | None:
    """Make a point and protect the table from DDL; None: it is not captured any more.

    `if_gone`: a point that shows it gone, instead.

    Raises SourceBusy while the slot waits for open transactions, TableChanging where DDL came
    between the point and the protection, and what else the server refuses.
    """
    is_there = may_read(options, asking, table)
    if not is_there and not if_gone:
        return None
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
        shown, looked = _held(reading, asking, table, is_there=is_there)
        commit_something(asking)
        return GaussPoint(made.consistent_point, shown, stack.pop_all(), looked)


def _held(
    reading: GaussReading, asking: Asks, table: TableId, *, is_there: bool
) -> tuple[Reading, Before]:
    """Protect the table from DDL, or see that the snapshot does not show it, either."""
    if is_there:
        versions = gauss_snapshot.hold(reading, asking, [table])
        return reading, Before.of_files(0, versions=versions)
    if gauss_catalog.table_schema_or_none(reading.session, table) is not None:
        raise TableChanging("a table that was gone is there again", table=table)
    return NothingThere(), Before.of_files(0)


def may_read(options: Options, asking: Asks, table: TableId) -> bool:
    """Say whether a table is captured; raise what forbids to read it."""
    if not patterns.selects(options.include, options.exclude, table):
        return False
    if table not in gauss_catalog.expand(asking, ("*.*",)):
        return False
    rights = gauss_catalog.table_rights(asking, [table])
    for problem in problems_of_reading(rights, gauss_catalog.user(asking)):
        raise problem
    return True


def rereads(options: Options) -> bool:
    """Say whether a table can be read again: at a point, or in a window."""
    decided = effective(options.plugin_options, options.terms)
    return _exports_snapshot(decided) or has_windows(decided)


def has_windows(decided: Effective) -> bool:
    """Say whether tables are loaded by windows, whose ends the stream shows.

    In the order of CSNs by rows of ours (`marks`); only a stream can be in that order.
    """
    if decided.ordered_by == "lsn":
        return not _exports_snapshot(decided)
    return decided.interface == "stream"


def make_window(
    options: Options,
    asking: GaussConnection,
    open_session: Callable[[], GaussConnection],
    table: TableId,
    *,
    locks: bool,
    if_gone: bool = False,
) -> QuietWindow | None:
    """Make a window for a table; see `core/loads/window.py`; None: it is not captured any more.

    A commit record is in the log before its rows are visible: transactions that have an id at the
    low mark are waited for.  `locks`: the table is locked instead, for the moment of the window,
    so that nobody can change it meanwhile, and who has changed it has ended.  `if_gone`: a window
    that shows it gone, instead.

    Raises SourceBusy while transactions are open, or the lock is not had; TableChanging.
    """
    is_there = may_read(options, asking, table)
    if not is_there and not if_gone:
        return None
    locks = locks and is_there
    is_by_csn = effective(options.plugin_options, options.terms).ordered_by == "csn"
    guard = marks.prepare(asking, options.slot) if is_by_csn else ""

    def mark() -> tuple[Lsn, int]:
        if is_by_csn:
            return NOWHERE, marks.commit_mark(asking, options.slot, guard)
        return log_end(asking), 0

    with ExitStack() as stack:
        with _locked(open_session, table) if locks else nullcontext():
            low = mark()
            if not locks:
                _await_ended(asking)
            reading = stack.enter_context(gauss_snapshot.imported(open_session, None))
            high = mark()
        shown, looked = _held(reading, asking, table, is_there=is_there)
        if not is_by_csn:
            _flush(asking)
            return QuietWindow(table, shown, stack.pop_all().close, low[0], high[0], looked=looked)
        return QuietWindow(
            table, shown, stack.pop_all().close, marks=MarkTokens(low[1], high[1]), looked=looked
        )


def log_end(asking: Asks) -> Lsn:
    """Where the next record is put; what is written, or flushed, may lag behind."""
    ((end,),) = asking.query("SELECT pg_current_xlog_insert_location()::text")
    return parse_lsn(end or "")


_RUNNING: Final = (
    "SELECT DISTINCT l.transactionid::text FROM pg_catalog.pg_locks l"
    " WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted"
)


def running(asking: Asks) -> frozenset[int]:
    """Return the ids of the transactions that have one: they hold it until they are visible."""
    return frozenset(int(row[0] or 0) for row in asking.query(_RUNNING))


def _await_ended(asking: Asks) -> None:
    """Wait for the transactions that have an id now."""
    deadline = time.monotonic() + _SECONDS
    left = running(asking)
    while left := left & running(asking):
        if time.monotonic() > deadline:
            raise SourceBusy(
                "a place between two commits waits for open transactions",
                waits_for="; ".join(map(str, gauss_slots.blockers(asking)[:1])),
            )
        time.sleep(_PAUSE)


@contextmanager
def _locked(open_session: Callable[[], GaussConnection], table: TableId) -> Iterator[None]:
    """Let nobody change a table; who waits for its lock is asked to wait a second at most."""
    with open_session() as session:
        session.query("BEGIN")
        session.query(f"SET LOCAL statement_timeout = {_LOCK_MS}")
        try:
            session.query(f"LOCK TABLE {qualified(table)} IN SHARE MODE")
        except NotPermitted as error:
            raise NotPermitted(
                "the table is changed without a pause, and may not be locked for a moment",
                table=table,
                hint=f"GRANT UPDATE ON {qualified(table)} to the role: LOCK TABLE needs it",
            ) from error
        except SourceError as error:
            if error.where.get("sqlstate") not in gauss_snapshot.LOCKED:
                raise
            raise SourceBusy("a table's lock was not had in a second", table=table) from error
        yield


def commit_something(asking: Asks) -> int:
    """Write a commit record without changes; return the transaction's id.

    A parallel stream that is idle tells no position: only a commit behind a place shows that
    nothing before it is still to come.
    """
    ((xid,),) = asking.query("SELECT txid_current()::text")
    return int(xid or "")


def _flush(asking: Asks) -> None:
    """Flush the log up to here: SQL functions decode what is flushed.

    A commit waits for that whatever the settings say, if files were dropped in its transaction.
    One that has nothing but an id does not wait.
    """
    try:
        asking.query("BEGIN")
        asking.query("CREATE TEMP TABLE gauss_cdc_flush (n int) ON COMMIT DROP")
    except NotPermitted as error:
        raise NotPermitted(
            "the role may make no temporary table, which flushes the log",
            hint="GRANT TEMPORARY ON DATABASE ... TO the role: tables are loaded by windows",
        ) from error
    finally:
        asking.query("COMMIT")


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
    with open_replication(options) as maker:
        of_one_server(asking, maker)
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


def open_replication(options: Options) -> GaussConnection:
    """Open a session for replication with whichever server has the role."""
    return GaussConnection.open(
        options.source,
        hosts=options.hosts,
        role=options.role,
        replication_port=options.ha_port or 0,
    )
