"""What `gauss-cdc record` asks of a source, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from producer.errors import SlotMissing
from producer.options import Options
from producer.wire.replication import Received
from schemas.positions import Lsn


class OverheardSession(Protocol):
    """A session that turned to streaming."""

    def tap(self, take: Callable[[bytes], None]) -> None:
        """Hand on every byte."""

    def receive(self, timeout: float) -> Received:
        """Read what has arrived."""

    def send_status(self, flush: Lsn) -> None:
        """Say that we live."""


RECORDED_SETTINGS: Final = (
    *("server_version", "server_encoding", "TimeZone", "DateStyle", "IntervalStyle"),
    "sql_compatibility",
)


@dataclass(frozen=True, slots=True)
class Overheard:
    """A stream that has begun, or a part of the log, and what its reader must know."""

    server: str  # its product and version
    plugin: str
    sent: Mapping[str, str]  # the plugin's options
    database: str
    encoding: str
    settings: Mapping[str, str]  # of `RECORDED_SETTINGS`
    confirmed: Lsn | None = None  # by the slot
    wire: OverheardSession | None = None
    changes: Iterable[tuple[int, int, bytes]] = ()  # start, end, payload: of the part


@dataclass(frozen=True, slots=True)
class Wished:
    """What is to be recorded."""

    more: Mapping[str, str]  # options of the plugin
    create: bool = False  # the slot, if there is none; it is dropped at the end
    between: tuple[Lsn, Lsn] | None = None  # decode this part of the log again; no slot is used


def check_may_create(options: Options, wished: Wished) -> None:
    """Raise SlotMissing unless a slot may be made."""
    if not wished.create:
        raise SlotMissing(
            "there is no slot to record from",
            hint="record --create makes one for as long as it records",
            slot=options.slot,
        )
