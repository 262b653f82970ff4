"""The text of replication commands, and what their result rows say.

Format: PostgreSQL manual, "Streaming Replication Protocol".  The walsender has
a grammar of its own: identifiers in double quotes and strings in single quotes,
either doubled inside, backslashes meaning nothing.  openGauss' is older: a slot
is always permanent and its snapshot always exported, unless it is used here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from producer.errors import DecodeError
from schemas.positions import Lsn, lsn_text, parse_lsn
from schemas.quoting import identifier, literal

Rows: TypeAlias = Sequence[Sequence[str | None]]

IDENTIFY_SYSTEM: Final = "IDENTIFY_SYSTEM"

SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")


class Snapshot(StrEnum):
    """What happens to the snapshot of a new slot."""

    EXPORT = "EXPORT_SNAPSHOT"  # usable by others until this session's next command
    NONE = "NOEXPORT_SNAPSHOT"
    USE = "USE_SNAPSHOT"  # for the transaction this session has open


_IN_OPTIONS: Final = {
    Snapshot.EXPORT: "export",
    Snapshot.NONE: "nothing",
    Snapshot.USE: "use",
}


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """Who the server is."""

    system_id: str
    timeline: int
    xlogpos: Lsn  # where its log is flushed up to
    dbname: str | None  # None on a connection without a database


@dataclass(frozen=True, slots=True)
class SlotCreated:
    """A new slot, and the snapshot of everything before its first change."""

    name: str
    consistent_point: Lsn
    snapshot: str  # for SET TRANSACTION SNAPSHOT; "" unless exported
    plugin: str


@dataclass(frozen=True, slots=True)
class TimelineSwitch:
    """Where a former timeline ended."""

    timeline: int
    at: Lsn


def create_slot(
    name: str,
    plugin: str,
    *,
    temporary: bool = False,
    snapshot: Snapshot = Snapshot.EXPORT,
    failover: bool = False,
) -> str:
    r"""Text that makes a logical slot; `failover`: standbys have it, too (servers from 17 on).

    >>> create_slot("bank", "pgoutput")
    'CREATE_REPLICATION_SLOT "bank" LOGICAL "pgoutput" EXPORT_SNAPSHOT'
    >>> create_slot("bank", "pgoutput", failover=True)
    'CREATE_REPLICATION_SLOT "bank" LOGICAL "pgoutput" (SNAPSHOT \'export\', FAILOVER)'
    """
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    if failover:
        options = f"(SNAPSHOT '{_IN_OPTIONS[snapshot]}', FAILOVER)"
        return f"CREATE_REPLICATION_SLOT {_slot(name)} {kind} {identifier(plugin)} {options}"
    return f"CREATE_REPLICATION_SLOT {_slot(name)} {kind} {identifier(plugin)} {snapshot.value}"


def create_gauss_slot(name: str, plugin: str) -> str:
    """Text that makes a logical slot of openGauss or GaussDB, ordered by LSN.

    >>> create_gauss_slot("bank", "mppdb_decoding")
    'CREATE_REPLICATION_SLOT "bank" LOGICAL "mppdb_decoding"'
    """
    return f"CREATE_REPLICATION_SLOT {_slot(name)} LOGICAL {identifier(plugin)}"


def make_failover(name: str) -> str:
    """Text that has standbys synchronize a slot (servers from 17 on)."""
    return f"ALTER_REPLICATION_SLOT {_slot(name)} (FAILOVER)"


def drop_slot(name: str, *, wait: bool = False) -> str:
    """Text that drops a slot; `wait` until it is inactive (servers from 11 on)."""
    return f"DROP_REPLICATION_SLOT {_slot(name)}{' WAIT' if wait else ''}"


def start(slot: str, options: Mapping[str, str | None], at: Lsn) -> str:
    r"""Text that turns the connection into a stream; an option's value may be left out.

    >>> start("bank", {"proto_version": "1", "binary": None}, Lsn(0))
    'START_REPLICATION SLOT "bank" LOGICAL 0/0 ("proto_version" \'1\', "binary")'
    """
    # Never an empty list: `()` is a syntax error in openGauss.
    listed = ", ".join(
        identifier(name) if value is None else f"{identifier(name)} {literal(value)}"
        for name, value in options.items()
    )
    begun = f"START_REPLICATION SLOT {_slot(slot)} LOGICAL {lsn_text(at)}"
    return f"{begun} ({listed})" if listed else begun


def timeline_history(timeline: int) -> str:
    """Text that asks for the history of a timeline; timeline 1 has none."""
    return f"TIMELINE_HISTORY {timeline:d}"


def name_list(names: Iterable[str]) -> str:
    """The value of pgoutput's `publication_names`: identifiers, each quoted.

    >>> name_list(["bank", 'two"parts'])
    '"bank","two""parts"'
    """
    return ",".join(identifier(name) for name in names)


def _slot(name: str) -> str:
    if SLOT_NAME.fullmatch(name) is None:
        raise ValueError(f"not a slot name: {name!r}; lower-case letters, digits and _ only")
    return identifier(name)


# ---- answers


def parse_identity(rows: Rows) -> SystemIdentity:
    """Read the answer to IDENTIFY_SYSTEM."""
    system_id, timeline, xlogpos, dbname = _one(rows, 4)
    return SystemIdentity(_some(system_id), _number(timeline), _lsn(xlogpos), dbname)


def parse_slot_created(rows: Rows) -> SlotCreated:
    """Read the answer to CREATE_REPLICATION_SLOT."""
    name, point, snapshot, plugin = _one(rows, 4)
    return SlotCreated(_some(name), _lsn(point), snapshot or "", plugin or "")


def parse_timeline_history(rows: Rows) -> tuple[TimelineSwitch, ...]:
    """Read the answer to TIMELINE_HISTORY: former timelines, oldest first.

    The current one is not in it.  Raises DecodeError.
    Format: PostgreSQL manual, "Streaming Replication Protocol", TIMELINE_HISTORY.
    """
    _, content = _one(rows, 2)
    switches = []
    for line in _some(content).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = line.split(maxsplit=2)
        if len(parts) < 2:
            raise DecodeError("timeline history has an invalid line")
        switches.append(TimelineSwitch(_number(parts[0]), _lsn(parts[1])))
    return tuple(switches)


def _one(rows: Rows, width: int) -> Sequence[str | None]:
    if len(rows) != 1 or len(rows[0]) < width:
        raise DecodeError("answer with unexpected columns or rows", rows=len(rows), want=width)
    return rows[0][:width]


def _some(value: str | None) -> str:
    if value is None:
        raise DecodeError("answer lacks a value")
    return value


def _number(value: str | None) -> int:
    found = _some(value)
    if not (found.isascii() and found.isdigit()):
        raise DecodeError("answer does not contain a number")
    return int(found)


def _lsn(value: str | None) -> Lsn:
    try:
        return parse_lsn(_some(value))
    except ValueError:
        raise DecodeError("answer does not contain an LSN") from None
