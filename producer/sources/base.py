"""What the producer needs of a source, whatever its kind."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from producer.core import ports
from producer.options import Options
from producer.sources.session import Asks
from schemas.control import Identity
from schemas.tables import TableId

_LOCK_SPACE: Final = 0x6763_6463  # "gcdc": the first half of our advisory locks


def try_lock(session: Asks, slot: str) -> bool:
    """Take the advisory lock named after a slot, for the life of the session."""
    number = binascii.crc32(slot.encode()) - (1 << 31)
    rows = session.query(f"SELECT pg_try_advisory_lock({_LOCK_SPACE}, {number})")
    return rows[0][0] == "t"


class Source(ports.Source, Protocol):
    """A source, whatever its kind, as `run` opens and closes it."""

    @property
    def encoding(self) -> str:
        """Of cells: Python's name of a codec."""

    def prepare(self, note: Callable[[str], None]) -> list[TableId]:
        """Create what the slot requires; list the tables captured now."""

    def listed(self) -> list[TableId]:
        """List the tables captured now."""

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop what this object created for a START that was not written, or name what remains."""

    def fingerprint_inputs(self) -> Mapping[str, object]:
        """Name the settings besides [tables] that decide which rows exist: the epoch's content."""

    def identity(self) -> Identity:
        """Identify the source, with slot and plugin."""

    def close(self) -> None:
        """Release slot and lock."""


Opened = Callable[[Options, Callable[[list[TableId]], None]], Source]
