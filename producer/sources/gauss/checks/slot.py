"""Rules about slots: ours, what blocks it, and how long it may be inactive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from producer.errors import CdcError, SlotMissing
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.checks.case import Case
from schemas.findings import Finding, Level
from schemas.positions import NOWHERE, Lsn, lsn_text

SEGMENT_BYTES: Final = 16 << 20
_LONG_SECONDS: Final = 60
_SAY_FROM: Final = 0.5  # of the distance to invalidation


def slot(case: Case) -> Iterator[Finding]:
    """Is the slot ours, and usable?"""
    options = case.options
    slot = case.readings.slot(options.slot)
    try:
        gauss_slots.check_usable(
            slot,
            name=options.slot,
            plugin=options.plugin,
            database=case.readings.server.database,
        )
    except SlotMissing:
        how = ", by SQL, since it is ordered by CSN" if case.decided.ordered_by == "csn" else ""
        yield Finding(
            Level.OK, "slot", f"{options.slot} does not exist yet: the first `run` creates it{how}"
        )
        return
    except CdcError as error:
        yield Finding(Level.ERROR, "slot", f"{options.slot}: {error.what}", error.hint)
        return
    assert slot is not None
    state = "is active" if slot.is_active else "is inactive"
    confirmed = lsn_text(slot.confirmed or NOWHERE)
    yield Finding(Level.OK, "slot", f"{options.slot} {state}, confirmed to {confirmed}")
    if slot.is_active and options.role != "primary":
        yield Finding(
            Level.WARNING,
            "slot",
            f"{options.slot} is in use: if two nodes read it, each gets a part of the rows",
            "one reader on one node",
        )


def transactions(case: Case) -> Iterator[Finding]:
    """Open transactions block a new slot, and hold back an old one."""
    open_now = case.readings.open_transactions
    if not case.has_slot:
        for blocker in open_now:
            yield Finding(
                Level.WARNING,
                "transactions",
                f"{blocker}: a new slot waits for its end",
                f"let it end, or SELECT pg_terminate_backend({blocker.pid})"
                if blocker.what == "session"
                else f"COMMIT PREPARED or ROLLBACK PREPARED '{blocker.pid}'",
            )
    else:
        for blocker in open_now:
            if (blocker.seconds or 0) >= _LONG_SECONDS:
                yield Finding(
                    Level.WARNING,
                    "transactions",
                    f"{blocker}: the server keeps all log since then",
                )
    role = case.readings.role
    if not (role.is_initial or role.is_system_admin):
        yield Finding(
            Level.NOTE,
            "transactions",
            f"{role.name} is not an administrator: of other users' sessions only locks are visible",
        )


def pruning(case: Case) -> Iterator[Finding]:
    """How far our slot is from being invalidated, by the manual's formula."""
    readings = case.readings
    limit = readings.number("max_size_for_xlog_retention") or 0
    is_armed = (
        readings.is_on("enable_xlog_prune") is True
        and readings.is_on("enable_logicalrepl_xlog_prune") is True
        and limit != 0
    )
    if not is_armed:
        yield Finding(
            Level.WARNING,
            "log",
            "slots are never invalidated: while `run` is stopped the server keeps all log",
            "watch the disk; or enable_xlog_prune = on, enable_logicalrepl_xlog_prune = on and "
            "max_size_for_xlog_retention: beyond it the slot is invalidated",
        )
        return
    if limit < 0:
        yield Finding(
            Level.NOTE,
            "log",
            f"our slot is invalidated, if it is inactive, when the disk is {-limit} % full "
            "(the disk's usage cannot be read here)",
        )
        return
    ours = readings.slot(case.options.slot)
    if ours is None or ours.restart is None:
        yield Finding(Level.OK, "log", f"an inactive slot may keep {limit} segments of 16 MB")
        return
    kept = retained_segments(readings.wal_end, ours.restart)
    keep = readings.number("wal_keep_segments") or 0
    left = max(limit, keep) - kept
    said = f"our slot keeps {kept} of {limit} segments of 16 MB (wal_keep_segments {keep})"
    standbys = max(
        (
            retained_segments(readings.wal_end, slot.restart)
            for slot in readings.slots
            if not slot.is_logical and not slot.is_backup and slot.restart is not None
        ),
        default=0,
    )
    if standbys > kept:
        yield Finding(Level.OK, "log", f"{said}; a standby keeps {standbys}, which protects it")
    elif left < 0 and not ours.is_active:
        yield Finding(
            Level.ERROR,
            "log",
            f"{said}: it is inactive, and the server invalidates it",
            "start `gauss-cdc run` now, or raise max_size_for_xlog_retention",
        )
    else:
        level = Level.WARNING if kept >= limit * _SAY_FROM else Level.OK
        more = f"{left} more" if left > 0 else "no more"
        yield Finding(level, "log", f"{said}; {more}, and it is invalidated when it is inactive")


def retained_segments(end: Lsn, restart: Lsn) -> int:
    """How many segments of the log a slot keeps, including its first one.

    >>> retained_segments(0x5000000, 0x2FFFFFF)
    4
    """
    return max(0, end // SEGMENT_BYTES - restart // SEGMENT_BYTES + 1)


def idle_slots(case: Case) -> Iterator[Finding]:
    """Inactive slots hold back log and catalog: drop them."""
    for slot in case.readings.slots:
        if slot.name == case.options.slot or not slot.is_logical or slot.is_active:
            continue
        if slot.is_invalid or slot.is_orphaned:
            why = "invalidated" if slot.is_invalid else "of a dropped database"
            yield Finding(
                Level.WARNING,
                "slots",
                f"{slot.name} is {why}, and counts in max_replication_slots",
                f"SELECT pg_drop_replication_slot('{slot.name}')",
            )
        elif slot.restart is not None:
            kept = retained_segments(case.readings.wal_end, slot.restart)
            yield Finding(
                Level.WARNING,
                "slots",
                f"{slot.name} is inactive and keeps {kept} segments of 16 MB, and old rows "
                "of the catalog, which slows it down",
                "drop it if it is not used any more",
            )
