"""Serial decoding: an output plugin is called for each item, and each call is a message.

Positions in the headers: BEGIN has the transaction's
first LSN, a row its own, COMMIT the end of its record.  With skip-empty-xacts BEGIN
waits for the first item and then has position 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gauss_cdc_lab.emulator.formats.ddl import deparse_lines, tagged, truncate_line
from gauss_cdc_lab.emulator.formats.filters import Filter
from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.formats.rows import RowFormat
from gauss_cdc_lab.emulator.model import (
    Ddl,
    DdlOutput,
    Heartbeat,
    Item,
    Mode,
    Profile,
    Row,
    Sent,
    Transaction,
    Truncate,
)
from schemas.positions import NOWHERE


class SerialFrame(Protocol):
    """How a plugin prints both ends of a transaction."""

    def begin(self, transaction: Transaction) -> bytes:
        """Its BEGIN line."""

    def commit(self, transaction: Transaction) -> bytes:
        """Its COMMIT line."""


class NamedFrame:
    """mppdb_decoding and test_decoding: the xid on both lines, the CSN on the last.

    Where GaussDB puts the user's name is not documented: it is left out.
    """

    def __init__(self, mode: Mode, profile: Profile) -> None:
        self._mode, self._profile = mode, profile

    def begin(self, transaction: Transaction) -> bytes:
        """`BEGIN [xid] [ORIGIN_ID n]`."""
        xid = f" {transaction.xid}" if self._mode.include_xids else ""
        has_origin = self._mode.include_originid and self._profile.origin
        origin = f" ORIGIN_ID {transaction.origin_id}" if has_origin else ""
        return f"BEGIN{xid}{origin}".encode()

    def commit(self, transaction: Transaction) -> bytes:
        """`COMMIT [xid] [(at time)] CSN n`; PostgreSQL has no CSN."""
        xid = f" {transaction.xid}" if self._mode.include_xids else ""
        at = f" (at {transaction.committed_at})" if self._mode.include_timestamp else ""
        csn = f" CSN {transaction.csn}" if self._profile.gauss else ""
        return f"COMMIT{xid}{at}{csn}".encode()


class SqlFrame:
    """sql_decoding: always CSN and time, whatever the options say."""

    def begin(self, transaction: Transaction) -> bytes:
        """`BEGIN csn`."""
        return b"BEGIN %d" % transaction.csn

    def commit(self, transaction: Transaction) -> bytes:
        """`COMMIT (at time) csn`."""
        return f"COMMIT (at {transaction.committed_at}) {transaction.csn}".encode()


class Serial:
    """An `Encoder` of one slot read without decoder threads."""

    def __init__(
        self, mode: Mode, profile: Profile, *, names: Names, frame: SerialFrame, rows: RowFormat
    ) -> None:
        self._mode, self._profile, self._names = mode, profile, names
        self._frame, self._rows = frame, rows
        self._filter = Filter(mode)

    def feed(self, item: Transaction | Heartbeat) -> Iterator[Sent]:
        """Yield a transaction's messages.  How a heartbeat looks here is not documented: none."""
        if isinstance(item, Heartbeat) or item.first_lsn is None or self._filter.foreign(item):
            return
        begun = False
        if not self._mode.skip_empty_xacts:
            yield Sent(item.first_lsn, self._frame.begin(item))
            begun = True
        excluded = self._filter.excluded(item)
        changed = False
        for change in item.items:
            if isinstance(change, Row):
                printed = not excluded and (self._profile.rows_after_ddl or not changed)
            else:
                changed = True
                printed = self._prints(change)
            if not printed:
                continue
            if not begun:
                yield Sent(NOWHERE, self._frame.begin(item))
                begun = True
            # The list is asked behind the delayed BEGIN: such a transaction is not left out.
            if not isinstance(change, Row):
                yield from self._other(change)
            elif self._filter.listed(change):
                row = self._filter.without_generated(change)
                yield Sent(change.lsn, self._rows.row(row))
        if begun:
            yield Sent(item.end_lsn, self._frame.commit(item))

    def idle(self) -> Iterator[Sent]:
        """Yield nothing: no message waits here."""
        return iter(())

    def _prints(self, item: Item) -> bool:
        """Whether there is anything to say of DDL or TRUNCATE."""
        if isinstance(item, Truncate):
            return self._profile.truncate
        assert isinstance(item, Ddl)
        if self._profile.ddl is DdlOutput.DEPARSE:
            return item.content is not None
        if self._profile.ddl is DdlOutput.TAGGED:
            return tagged(self._mode, item) is not None
        return False

    def _other(self, item: Item) -> Iterator[Sent]:
        if isinstance(item, Truncate):
            yield Sent(item.lsn, truncate_line(item, self._names))
            return
        assert isinstance(item, Ddl)
        position = item.lsn if item.end_lsn is None else item.end_lsn
        if self._profile.ddl is DdlOutput.DEPARSE:
            yield Sent(position, deparse_lines(self._mode.plugin, item, position))
        elif (payload := tagged(self._mode, item)) is not None:
            yield Sent(position, payload)
