"""Replication slots of openGauss and GaussDB: read, create, drop, advance; blocking sessions.

Source: GaussDB manual, "Logical Decoding: Overview" and "Logical Replication
Functions".  Every query uses SQL that PostgreSQL supports, too, where both have the
feature.

A slot ordered by LSN is created over the replication protocol, which exports the
snapshot of a first load; one ordered by CSN (GaussDB) only by SQL, without a
snapshot.  Slots are created and dropped on the primary.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from producer.errors import (
    CdcError,
    DecodersBusy,
    SlotAhead,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SlotOrphaned,
    SlotTaken,
    SourceError,
)
from producer.sources.session import Asks
from schemas.errors import LOAD_AGAIN
from schemas.positions import Lsn, lsn_text, parse_lsn
from schemas.quoting import constant

_log = logging.getLogger(__name__)

OrderedBy: TypeAlias = Literal["lsn", "csn"]

MOST_DECODING: Final = 20  # logical slots that one instance decodes at a time
# The restart_lsn of a slot that the server invalidated; the second is from other versions of
# the manual.
INVALID_RESTARTS: Final = frozenset({"FFFFFFFF/FFFFFFFF", "7FFFFFFF/FFFFFFFF"})

_LOOK: Final = 0.1  # seconds between two readings of a slot that is being created
_UNDO: Final = 30.0  # seconds to drop a slot that is not used any more

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReading:
    """One line of pg_replication_slots."""

    name: str
    plugin: str  # "" a physical slot
    is_logical: bool
    database: str  # "" a physical slot, or one whose database was dropped
    is_active: bool
    catalog_xmin: str = ""
    restart_lsn: str = ""  # as the server writes it; see INVALID_RESTARTS
    confirmed: Lsn | None = None
    confirmed_csn: int | None = None  # None: this server has no such column

    @property
    def is_invalid(self) -> bool:
        """Did the server invalidate it?"""
        return self.restart_lsn.upper() in INVALID_RESTARTS

    @property
    def is_orphaned(self) -> bool:
        """Was its database dropped?"""
        return self.is_logical and not self.database

    @property
    def is_backup(self) -> bool:
        """Does it belong to the backup tool, by its name?"""
        return not self.is_logical and self.name.startswith("gs_roach")

    @property
    def ordered_by(self) -> OrderedBy:
        """The kind of its positions."""
        return "csn" if self.confirmed_csn else "lsn"

    @property
    def told(self) -> Lsn | None:
        """What was confirmed, in the order in which it sends.  None: nothing yet."""
        return Lsn(self.confirmed_csn) if self.confirmed_csn else self.confirmed

    @property
    def restart(self) -> Lsn | None:
        """The position from which the server keeps its log; None where it keeps none for it."""
        return None if self.is_invalid or not self.restart_lsn else parse_lsn(self.restart_lsn)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A session whose open transaction a new slot waits for; without its statement."""

    pid: str
    user: str
    application: str
    state: str
    since: str  # when its transaction began, as the server writes it
    # The same as an age, which does not identify a session; None: unknown.
    seconds: int | None = field(default=None, compare=False)
    what: str = "session"

    def __str__(self) -> str:
        parts = [f"{self.what} {self.pid}"]
        parts += [f"user {self.user}"] if self.user else []
        parts += [f"application {self.application}"] if self.application else []
        parts += [self.state] if self.state else []
        parts += [f"in a transaction since {self.since}"] if self.since else []
        return ", ".join(parts)


# ---- looking


def slots(session: Asks) -> list[SlotReading]:
    """Read all slots, by name."""
    return _read(session, "")


def find(session: Asks, name: str) -> SlotReading | None:
    """Read one; None if there is none of this name."""
    found = _read(session, f"WHERE slot_name = {constant(name)}")
    return found[0] if found else None


def _read(session: Asks, where: str) -> list[SlotReading]:
    # The columns differ by product: they are looked up, since an unknown
    # one would be an error.
    rows = session.query(
        "SELECT attname FROM pg_catalog.pg_attribute"
        " WHERE attrelid = 'pg_catalog.pg_replication_slots'::regclass AND attnum > 0"
    )
    has = {row[0] for row in rows}
    confirmed = "confirmed_flush" if "confirmed_flush" in has else "confirmed_flush_lsn"
    csn = "confirmed_csn::text" if "confirmed_csn" in has else "NULL"
    out = []
    for row in session.query(
        f"SELECT slot_name, plugin, slot_type, database, active, catalog_xmin::text,"  # noqa: S608  quoted
        f" restart_lsn::text, {confirmed}::text, {csn}"
        f" FROM pg_catalog.pg_replication_slots {where} ORDER BY slot_name"
    ):
        name, plugin, kind, database, active, xmin, restart, flush, csn_text = row
        out.append(
            SlotReading(
                name=name or "",
                plugin=plugin or "",
                is_logical=kind == "logical",
                database=database or "",
                is_active=active == "t",
                catalog_xmin=xmin or "",
                restart_lsn=restart or "",
                confirmed=parse_lsn(flush) if flush else None,
                confirmed_csn=int(csn_text or 0) if "confirmed_csn" in has else None,
            )
        )
    return out


def check_usable(slot: SlotReading | None, *, name: str, plugin: str, database: str) -> SlotReading:
    """Return our slot, or raise its problem, each by a class of its own.

    Raises SlotMissing, SlotOrphaned, SlotMismatch, SlotInvalid.
    """
    if slot is None:
        raise SlotMissing("the slot does not exist", slot=name, hint=LOAD_AGAIN)
    if slot.is_orphaned:
        raise SlotOrphaned(
            "the slot's database was dropped: the slot is unusable",
            slot=name,
            hint=LOAD_AGAIN,
        )
    if not slot.is_logical or slot.plugin != plugin or slot.database != database:
        raise SlotMismatch(
            "a slot of this name belongs to another client",
            slot=name,
            plugin=slot.plugin or "none, it is physical",
            database=slot.database,
            hint="choose another name in [source] slot",
        )
    if slot.is_invalid:
        raise SlotInvalid(
            "the server invalidated the slot: changes since its position are gone",
            slot=name,
            restart_lsn=slot.restart_lsn,
            hint=f"raise max_size_for_xlog_retention; {LOAD_AGAIN}",
        )
    return slot


def check_not_moved(slot: SlotReading, ours: Lsn) -> None:
    """Raise SlotAhead where another client moved the slot beyond what we confirmed."""
    if slot.confirmed is not None and slot.confirmed > ours:
        raise SlotAhead(
            "another client moved the slot: changes in between are lost",
            slot=slot.name,
            ours=lsn_text(ours),
            confirmed=lsn_text(slot.confirmed),
            hint=f"one slot, one reader, on one node; {LOAD_AGAIN}",
        )


def check_decoders(found: Sequence[SlotReading], name: str) -> None:
    """Raise DecodersBusy where the server is at its limit of decoded slots."""
    busy = [slot.name for slot in found if slot.is_logical and slot.is_active and slot.name != name]
    if len(busy) >= MOST_DECODING:
        raise DecodersBusy(
            f"the server decodes {MOST_DECODING} slots at a time, and all are in use",
            slots=", ".join(busy),
            hint="stop one of their readers",
        )


# ---- making


def create_by_sql(session: Asks, name: str, plugin: str, *, ordered_by: OrderedBy) -> str:
    """Create a slot by SQL; return its first position as text: an LSN, or a CSN in that form.

    Blocks until all transactions open now have ended; see `Making`.
    """
    order = ", 1" if ordered_by == "csn" else ""
    rows = session.query(
        "SELECT * FROM pg_catalog.pg_create_logical_replication_slot("  # noqa: S608  quoted
        f"{constant(name)}, {constant(plugin)}{order})"
    )
    return rows[0][1] or ""


def blockers(session: Asks, *, but: str = "") -> list[OpenTransaction]:
    """List sessions with open transactions that a new slot would wait for, oldest first.

    Read-only transactions without an id do not block.  A role that is not an
    administrator sees only that other users' sessions exist.
    """
    # With openGauss' thread pool one thread serves many sessions, which have ids.
    rows = session.query(
        "SELECT count(*) FROM pg_catalog.pg_attribute WHERE attname = 'sessionid' AND attrelid IN"
        " ('pg_catalog.pg_locks'::regclass, 'pg_catalog.pg_stat_activity'::regclass)"
    )
    key = "sessionid" if rows[0][0] == "2" else "pid"
    found = [
        OpenTransaction(
            pid or "",
            user or "",
            application or "",
            state or "",
            since or "",
            seconds=None if age is None else int(age),
        )
        for pid, user, application, state, since, age in session.query(
            "SELECT l.pid::text, a.usename, a.application_name, a.state, a.xact_start::text,"  # noqa: S608  no value
            " floor(extract(epoch FROM clock_timestamp() - a.xact_start))::int"
            " FROM pg_catalog.pg_locks l"
            f" LEFT JOIN pg_catalog.pg_stat_activity a ON a.{key} = l.{key}"
            " WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted"
            " AND l.pid IS NOT NULL ORDER BY a.xact_start, l.pid"
        )
    ]
    prepared = [
        OpenTransaction(
            gid or "",
            owner or "",
            "",
            "prepared",
            since or "",
            seconds=int(age or 0),
            what="prepared transaction",
        )
        for gid, owner, since, age in session.query(
            "SELECT gid, owner, prepared::text,"
            " floor(extract(epoch FROM clock_timestamp() - prepared))::int"
            " FROM pg_catalog.pg_prepared_xacts ORDER BY prepared"
        )
    ]
    return [*(blocker for blocker in found if blocker.pid != but), *prepared]


class Making(Generic[T]):
    """A slot that is being created in a session of its own, and the sessions that block it.

    Creation blocks until all transactions open now have ended, so it runs in a
    thread; after `patience` seconds `on_blocked` gets their sessions, and
    again when these change.  `give_up` leaves no partial slot.
    """

    def __init__(
        self,
        make: Callable[[], T],
        *,
        slot: str,
        maker: str,
        asker: Asks,
        on_blocked: Callable[[list[OpenTransaction]], None],
        patience: float = 5.0,
    ) -> None:
        """`make` blocks in a session whose `SELECT pg_backend_pid()` was `maker`.

        `asker` is another session.  Raises SourceError where the slot exists.
        """
        if find(asker, slot) is not None:  # `give_up` must not drop another client's
            raise SourceError("a slot of this name exists already", slot=slot)
        self._make, self._slot, self.maker, self._asker = make, slot, maker, asker
        self._on_blocked, self._patience = on_blocked, patience
        self._tell_at = time.monotonic() + patience
        self._noted: list[OpenTransaction] = []
        self._made: list[T] = []
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name=f"make {slot}", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Say whether `make` has ended, in any way."""
        return not self._thread.is_alive()

    def result(self, wait: float) -> T | None:
        """Return the result of `make`, or None if it does not end within `wait` seconds.

        Raises what `make` raised.
        """
        self._thread.join(wait)
        if self._failed:
            raise self._failed[0]
        if self._made:
            return self._made[0]
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + self._patience
            if (now := blockers(self._asker, but=self.maker)) != self._noted:
                self._noted = now
                self._on_blocked(now)
        return None

    def give_up(self) -> None:
        """End the session that creates the slot, and drop what it left.

        By pg_terminate_backend, as in the manual: a session that waits for
        transactions does not notice a closed connection.

        Raises SlotTaken where that does not end in time.
        """
        deadline = time.monotonic() + _UNDO
        if self._thread.is_alive():
            for pid in {self.maker, *_makers(self._asker, self._slot)}:
                self._asker.query(f"SELECT pg_terminate_backend({int(pid)})")
            self._thread.join(_UNDO)
        while (left := find(self._asker, self._slot)) is not None:
            with contextlib.suppress(SlotTaken, SlotMissing):
                drop(self._asker, self._slot)
                continue
            if time.monotonic() > deadline:
                raise SlotTaken(
                    "the slot that was being created is still in use",
                    slot=self._slot,
                    active=left.is_active,
                    hint=f"SELECT pg_drop_replication_slot('{self._slot}') once it is not",
                )
            time.sleep(_LOOK)  # there is no notification of its session's end
        _log.info("slot creation abandoned slot=%s", self._slot)

    def _run(self) -> None:
        try:
            self._made.append(self._make())
        except BaseException as error:  # noqa: BLE001  raised by `result`
            self._failed.append(error)


def _makers(session: Asks, name: str) -> list[str]:
    """Backends that create a slot of this name now.

    Behind a pool or a proxy it is not the session that answered
    `SELECT pg_backend_pid()`.
    """
    by_protocol = constant(f'CREATE_REPLICATION_SLOT "{name}"')
    by_sql = constant(f"pg_create_logical_replication_slot('{name}'")
    rows = session.query(
        "SELECT pid::text FROM pg_catalog.pg_stat_activity WHERE pid <> pg_backend_pid()"  # noqa: S608  quoted
        f" AND (strpos(query, {by_protocol}) > 0 OR strpos(query, {by_sql}) > 0)"
        " AND state <> 'idle'"
    )
    return [row[0] or "" for row in rows]


# ---- dropping and moving


def drop(session: Asks, name: str) -> None:
    """Drop a slot on the primary.  Raises SlotMissing, SlotTaken."""
    try:
        session.query(f"SELECT pg_catalog.pg_drop_replication_slot({constant(name)})")
    except SourceError as error:
        raise _narrowed(error, name) from error


def advance(session: Asks, name: str, upto: Lsn) -> Lsn:
    """Confirm everything before `upto` for an inactive slot; return its new position.

    Changes up to there are never sent again.  Raises SlotMissing, SlotTaken, and
    SourceError for a position behind the slot's.
    """
    try:
        rows = session.query(
            "SELECT * FROM pg_catalog.pg_replication_slot_advance("  # noqa: S608  quoted
            f"{constant(name)}, {constant(lsn_text(upto))})"
        )
    except SourceError as error:
        raise _narrowed(error, name) from error
    return parse_lsn((rows[0][1] or "0/0").upper())  # printed in small letters


def _narrowed(error: SourceError, name: str) -> CdcError:
    """The code of a missing slot is that of any missing object."""
    if error.where.get("sqlstate") == "42704":
        return SlotMissing(
            error.what, slot=name, hint=f"`gauss-cdc slot list` shows those there are; {LOAD_AGAIN}"
        )
    return error
