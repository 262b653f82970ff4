"""Parallel decoding: decoder threads print records, one sender packs them into messages.

Which plugin the slot has does not matter, the style does.  TRUNCATE and DDL are not
sent by openGauss, and rows after them in their transaction are lost
(manual, constraints of logical decoding).

A message's position: when it was sent because its buffer was full, or
because batching is off, the highest position among rows and commit records so far;
when it was sent for idleness, or before there is such a position, where the commit
record of the transaction begins that opened the buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

from gauss_cdc_lab.emulator.formats.binary import BinaryRecords, heartbeat_content
from gauss_cdc_lab.emulator.formats.ddl import tagged
from gauss_cdc_lab.emulator.formats.filters import Filter
from gauss_cdc_lab.emulator.formats.rows import RowFormat
from gauss_cdc_lab.emulator.model import (
    Ddl,
    DdlOutput,
    Heartbeat,
    Mode,
    Profile,
    Row,
    Sent,
    Transaction,
    Truncate,
)
from schemas.positions import NOWHERE, Lsn, lsn_text

_FULL: Final = 1 << 20  # bytes of a message, its 25-byte XLogData header counted
_HEADER: Final = 25
_ITEM: Final = struct.Struct(">IQ")
_END: Final = b"\0\0\0\0"


class RecordStyle(Protocol):
    """How a style prints its records."""

    def begin(self, transaction: Transaction, first_lsn: Lsn) -> bytes:
        """The start of a transaction."""

    def commit(self, transaction: Transaction) -> bytes:
        """Its end."""

    def row(self, row: Row) -> bytes:
        """A row."""

    def ddl(self, lsn: Lsn, payload: bytes) -> bytes:
        """A DDL statement (GaussDB)."""

    def heartbeat(self, beat: Heartbeat) -> bytes:
        """A heartbeat (GaussDB)."""


class TextRecords:
    """Styles `t` and `j`: lines, which a batch precedes with length and position."""

    def __init__(self, mode: Mode, profile: Profile, rows: RowFormat) -> None:
        self._mode, self._profile, self._rows = mode, profile, rows

    def begin(self, transaction: Transaction, first_lsn: Lsn) -> bytes:
        """`BEGIN CSN: …`; where GaussDB puts the user is not documented: it is left out."""
        mode, profile = self._mode, self._profile
        line = f"BEGIN CSN: {transaction.csn} {profile.first_lsn_label}: {lsn_text(first_lsn)}"
        if mode.include_xids and profile.begin_xid:
            line += f" xid: {transaction.xid}"
        if mode.include_timestamp:
            line += f" commit_time: {transaction.committed_at}"
        if mode.include_originid and profile.origin:
            line += f" origin_id: {transaction.origin_id}"
        return self._item(first_lsn, line.encode())

    def commit(self, transaction: Transaction) -> bytes:
        """`commit xid: …`, or what the product writes there."""
        word, _, label = self._profile.commit_label.partition(" ")
        line = word
        if self._mode.include_xids:
            line += f" {label}{transaction.xid}"
        if self._mode.include_timestamp:
            line += f" (at {transaction.committed_at})"
        return self._item(transaction.end_lsn, line.encode())

    def row(self, row: Row) -> bytes:
        """A row in the style's text."""
        return self._item(row.lsn, self._rows.row(row))

    def ddl(self, lsn: Lsn, payload: bytes) -> bytes:
        """A DDL statement, framed like a row; the manual does not say how."""
        return self._item(lsn, payload)

    def heartbeat(self, beat: Heartbeat) -> bytes:
        """A heartbeat's bytes, which are not text in these styles either."""
        return self._item(beat.read, heartbeat_content(beat))

    def _item(self, lsn: int, text: bytes) -> bytes:
        if not self._mode.sending_batch:
            return text
        return _ITEM.pack(len(text) + 8, lsn) + text


class Parallel:
    """An `Encoder` of one slot read with decoder threads."""

    def __init__(self, mode: Mode, profile: Profile, records: RecordStyle) -> None:
        self._mode, self._profile, self._records = mode, profile, records
        self._filter = Filter(mode)
        self._binary = isinstance(records, BinaryRecords)
        self._buffer = bytearray()
        self._opened = NOWHERE  # commit record of the transaction that opened the buffer
        self._written = NOWHERE  # highest position among what was put into a buffer

    def feed(self, item: Transaction | Heartbeat) -> Iterator[Sent]:
        """Yield the messages that a transaction or heartbeat makes due."""
        if isinstance(item, Heartbeat):
            yield from self._beat(item)
            return
        begun = not self._mode.skip_empty_xacts
        if begun:
            yield from self._add(item, self._begin(item), alone=self._by_csn)
        for position, change in self._changes(item):
            self._reach(position)
            if not begun:
                yield from self._add(item, self._begin(item), alone=self._by_csn)
                begun = True
            yield from self._add(item, change)
        if not begun:
            return
        if self._by_csn:  # manual: batches keep to one transaction, BEGIN and COMMIT go alone
            yield from self._rest(Lsn(item.csn))
        self._reach(item.commit_lsn)
        yield from self._add(item, self._records.commit(item), alone=self._by_csn)

    def idle(self) -> Iterator[Sent]:
        """Yield what waits, with the position that its buffer was opened with."""
        return self._rest(self._opened)

    @property
    def _by_csn(self) -> bool:
        return self._mode.output_order == 1

    def _changes(self, transaction: Transaction) -> Iterator[tuple[Lsn, bytes]]:
        """Records of what survives the filters and the transaction's own DDL."""
        if self._filter.foreign(transaction) or self._filter.excluded(transaction):
            return
        changed = False
        for item in transaction.items:
            if isinstance(item, Row):
                if not changed and self._filter.listed(item):
                    yield item.lsn, self._records.row(self._filter.without_generated(item))
                continue
            changed = True
            if isinstance(item, Ddl) and self._profile.ddl is DdlOutput.TAGGED:
                payload = tagged(self._mode, item)
                if payload is not None:
                    yield item.lsn, self._records.ddl(item.lsn, payload)

    def _begin(self, transaction: Transaction) -> bytes:
        return self._records.begin(transaction, self._first_lsn(transaction))

    def _first_lsn(self, transaction: Transaction) -> Lsn:
        if transaction.first_change_lsn is not None:
            return transaction.first_change_lsn
        for item in transaction.items:
            if isinstance(item, Ddl | Truncate) or self._filter.listed(item):
                return item.lsn
        return transaction.commit_lsn

    def _reach(self, position: Lsn) -> None:
        self._written = max(self._written, position)

    def _add(
        self, transaction: Transaction, record: bytes, *, alone: bool = False
    ) -> Iterator[Sent]:
        """Append a record, and send the message if it is due."""
        if not self._buffer:
            self._opened = transaction.commit_lsn
        self._buffer += record
        full = len(self._buffer) + _HEADER > _FULL
        if full or alone or not self._mode.sending_batch:
            position = Lsn(transaction.csn) if self._by_csn else self._written or self._opened
            yield self._ended(position)
        elif self._binary:
            self._buffer += b"P"

    def _ended(self, position: Lsn) -> Sent:
        """The message, ended behind the record that was just appended."""
        if self._binary:
            self._buffer += b"F"
        elif self._mode.sending_batch:
            self._buffer += _END
        return self._taken(position)

    def _rest(self, position: Lsn) -> Iterator[Sent]:
        """What waits, ended by an empty record; binary records have had their `P` already."""
        if self._buffer:
            self._buffer += _END
            yield self._taken(position)

    def _taken(self, position: Lsn) -> Sent:
        payload = bytes(self._buffer)
        self._buffer.clear()
        return Sent(position, payload)

    def _beat(self, beat: Heartbeat) -> Iterator[Sent]:
        """Send a heartbeat alone, behind all that waits: nothing says that it is batched."""
        if self._mode.enable_heartbeat and self._profile.heartbeat:
            yield from self.idle()
            self._buffer += self._records.heartbeat(beat)
            yield self._ended(Lsn(beat.read))
