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
        """Make what must be there before the slot; list the tables captured now."""

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop what this object made for a START that never came, or name what stays."""

    def fingerprint_inputs(self) -> Mapping[str, object]:
        """Name what decides which rows exist, beside [tables]: part of the epoch's content."""

    def identity(self) -> Identity:
        """Say who the source is, with slot and plugin."""

    def close(self) -> None:
        """Let go of slot and lock."""


Opened = Callable[[Options, Callable[[list[TableId]], None]], Source]
