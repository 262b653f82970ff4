"""Decode-styles t and j: lines of text, one a message or many in a batch.

In a batch each line stands behind `u32 length | u64 lsn` and a length of 0 ends it.
BEGIN and COMMIT are the same in both styles; rows are `tuples`' or `json_rows`'.
A line's LSN is COMMIT's end in a batch; without batches the message's header has
the start of the commit record, and its end is not sent.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from producer.errors import DecodeError
from producer.sources.gauss.decoders.ddl import gauss_ddl, is_gauss_ddl
from producer.sources.gauss.decoders.formats import Format
from producer.sources.gauss.decoders.json_rows import JsonRows
from producer.sources.gauss.decoders.messages import DecodedMessage, TxBegin, TxCommit
from producer.sources.gauss.decoders.scalars import heartbeat, number, stamp, unknown_line
from producer.sources.gauss.decoders.tuples import SpacedRows
from schemas.positions import Lsn, lsn_text

# At the end of a line a truncated time looks like a time, so the pattern requires all of it.
_TIME: Final = rb"\d{4,6}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?[+-]\d\d(?::\d\d){0,2}(?: BC)?"
_BEGIN: Final = re.compile(
    rb"BEGIN CSN: (\d{1,20}) (first|commit)_lsn: ([0-9A-F]{1,8})/([0-9A-F]{1,8})"
    rb"(?: xid: (\d{1,20}))?(?: commit_time: (" + _TIME + rb"))?(?: origin_id: (\d{1,10}))?",
    re.IGNORECASE,
)
# openGauss says `commit xid:`, GaussDB's manual `COMMIT XID:`.
_COMMIT: Final = re.compile(
    rb"COMMIT(?: XID: (\d{1,20}))?(?: \(at ([^()]{1,64})\))?", re.IGNORECASE
)
_ITEM: Final = struct.Struct(">IQ").unpack_from


class Lines:
    """Decoder of styles t and j."""

    def __init__(self, written: Format) -> None:
        self._batch, self._encoding = written.batch, written.encoding
        self._rows = (JsonRows if written.style == "j" else SpacedRows)(written.encoding)

    def split(self, start: Lsn, payload: bytes) -> list[tuple[Lsn, bytes]]:
        """Split a message into its lines.  Raises DecodeError."""
        return list(self.walk(start, payload)) if self._batch else [(start, payload)]

    def walk(self, start: Lsn, payload: bytes) -> Iterator[tuple[Lsn, bytes]]:
        """Yield the lines one by one."""
        if not self._batch:
            yield start, payload
            return
        if payload[:1] == b"h" and len(payload) == 29 and payload[25:] == b"\0\0\0\0":
            yield start, payload[:25]  # a heartbeat without length, as the manual may be read
            return
        pos, size = 0, len(payload)
        while size - pos >= 12:
            length, lsn = _ITEM(payload, pos)
            end = pos + 4 + length
            if length < 9 or end > size:
                break
            yield lsn, payload[pos + 12 : end]
            pos = end
        if payload[pos:] != b"\0\0\0\0":
            raise DecodeError("unterminated batch", position=lsn_text(start), at=pos, size=size)

    def is_row(self, record: bytes) -> bool:
        return self._rows.is_row(record)

    def decode(self, position: Lsn, record: bytes) -> DecodedMessage:
        """Decode one line; DecodeError for anything that is not exactly one."""
        try:
            if self._rows.is_row(record):
                return self._rows.decode(record)
            if record[:1] == b"h":
                return heartbeat(record)
            if is_gauss_ddl(record):
                return gauss_ddl(record, self._encoding)
            return _begin(record) or self._end(position, record)
        except DecodeError as error:
            error.where.setdefault("position", lsn_text(position))
            raise

    def _end(self, position: Lsn, line: bytes) -> TxCommit:
        if (match := _COMMIT.fullmatch(line)) is None:
            raise unknown_line(line)
        xid, at = number(match[1]), stamp(match[2])
        if self._batch:
            return TxCommit(xid, None, at, end_lsn=position)
        return TxCommit(xid, None, at, commit_lsn=position)


def _begin(line: bytes) -> TxBegin | None:
    if (match := _BEGIN.fullmatch(line)) is None:
        return None
    csn, kind, high, low, xid, at, origin = match.groups()
    lsn = Lsn(int(high, 16) << 32 | int(low, 16))
    return TxBegin(
        xid=number(xid),
        csn=int(csn),
        # openGauss 3.0 has commit_lsn, which is another position.
        first_lsn=lsn if kind.lower() == b"first" else None,
        committed_at=stamp(at),
        origin_id=number(origin),
    )
