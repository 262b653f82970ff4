"""What the producer needs of a source, whatever its kind."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from producer.core import takeover
from producer.core.catalog_watch import Look
from producer.core.changes import Cells, Message
from producer.core.takeover import MadeSlot
from producer.options import Options
from producer.sources.gauss.catalog import Asks
from producer.sources.postgres.triggers.records import Trust
from producer.wire.replication import Received, WalMessage
from schemas.control import Identity
from schemas.positions import Lsn
from schemas.tables import Column, TableId, TableSchema

_LOCK_SPACE: Final = 0x6763_6463  # "gcdc": the first half of our advisory locks


def try_lock(session: Asks, slot: str) -> bool:
    """Take the advisory lock named after a slot, for the life of the session."""
    number = binascii.crc32(slot.encode()) - (1 << 31)
    rows = session.query(f"SELECT pg_try_advisory_lock({_LOCK_SPACE}, {number})")
    return rows[0][0] == "t"


class Wire(Protocol):
    """The session that streams."""

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read what has arrived, or wait; see `sources/postgres/connection.py`."""

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        """Confirm everything before `flush`; 0 only says that we are alive."""

    def fileno(self) -> int:
        """What to poll for input."""

    @property
    def received_end(self) -> Lsn:
        """The greatest position the source has mentioned; 0 before."""


class Reading(Protocol):
    """The source under one snapshot: what a first load reads."""

    def shapes(self, tables: list[TableId]) -> list[TableSchema]:
        """Shapes as the stream will describe them."""

    def estimated_rows(self, table: TableId) -> int:
        """A guess for a progress bar; 0 = unknown."""

    def copy_rows(
        self,
        table: TableId,
        columns: Sequence[Column],
        hand_on: Callable[[list[Cells]], None],
    ) -> None:
        """Send all rows to `hand_on`, some at a time."""


class Source(takeover.Source, Protocol):
    """A source as takeover, load and loop use it."""

    tables: list[TableId]  # of the load, once the slot was made

    @property
    def wire(self) -> Wire:
        """The session that streams."""

    @property
    def encoding(self) -> str:
        """Of cells: Python's name of a codec."""

    @property
    def keepalives_move(self) -> bool:
        """Say whether a keepalive's position may be confirmed when nothing is outstanding."""

    @property
    def new_tables_are_complete(self) -> bool:
        """Say whether a table that appears has no rows older than its first change."""

    @property
    def ids_are_oids(self) -> bool:
        """Say whether the stream's relation ids are the tables' oids."""

    @property
    def tells_changes(self) -> bool:
        """Say whether every schema change comes as a record of our triggers."""

    def prepare(self, note: Callable[[str], None]) -> list[TableId]:
        """Make what must be there before the slot; list the tables captured now."""

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop what this object made for a START that never came, or name what stays."""

    def decides(self) -> Mapping[str, object]:
        """Name what decides which rows exist, beside [tables]: part of the epoch's content."""

    def identity(self) -> Identity:
        """Say who the source is, with slot and plugin."""

    def reading(self, made: MadeSlot) -> AbstractContextManager[Reading]:
        """Open a session under the slot's own snapshot."""

    def messages(self, received: Sequence[WalMessage]) -> Iterator[tuple[int, Message]]:
        """Decode; (position of the row, message) in the order of commits.

        A source that holds transactions gives many messages for one; take slices.
        """

    def start_reading(self, known: dict[TableId, TableSchema], *, resume: int, csn: int) -> None:
        """Get ready for the stream: tables' shapes as of `resume`, the newest CSN delivered."""

    def shape(self, table: TableId) -> TableSchema | None:
        """Read one table's shape as it is now; None if it is gone."""

    def look(self, known: Mapping[TableId, TableSchema], *, unless: str) -> Look | None:
        """Read the catalog, to compare it with what the stream has told.

        None: not now, not here, or all is as it was when the look had the signature `unless`.
        """

    def type_name(self, type_oid: int, modifier: int) -> str:
        """Name a type as format_type() does."""

    def table_name(self, oid: int) -> TableId | None:
        """Say what the table of an oid is called now; None if it is gone."""

    def judge(self, oid: int) -> Trust:
        """Say who writes a table that is named as our triggers' own."""

    def keep_alive(self, *, force: bool = False) -> None:
        """Tell the server that we live, confirming nothing."""

    def close(self) -> None:
        """Let go of slot and lock."""


Opened = Callable[[Options, Callable[[list[TableId]], None]], Source]
