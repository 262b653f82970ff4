"""Messages of a replication stream, in the byte order of the product.

Format: PostgreSQL manual, "Streaming Replication Protocol".  openGauss speaks
the same messages in its own way (keepalive and status are its C structs, as
they lie in a little-endian memory): hence a `Dialect` of each.

`split` is the hot path of reading: one loop over the frames that arrived, one cheap
tuple per row message.  `Stream.feed` handles everything rare.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from producer.errors import DecodeError
from producer.wire.protocol import MAX_FRAME_BYTES, Frame, check_length
from schemas.positions import NOWHERE, Lsn

# (wal_start, wal_end, payload): plain ints, because there is one per row.
WalMessage: TypeAlias = tuple[Lsn, Lsn, bytes]

EPOCH_2000_US: Final = 946_684_800_000_000  # 2000-01-01 UTC in µs since 1970


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a product lays out the numbers of its stream."""

    keepalive: struct.Struct  # end, sent at (µs since 2000), reply requested
    status: struct.Struct  # kind, the positions, sent at, reply
    written: int  # number of leading positions that report what was received
    flushed: int  # number of following positions that confirm what was flushed
    more_status: bool = False  # does a server ignore what follows a status update?


POSTGRES: Final = Dialect(
    keepalive=struct.Struct(">QqB"),
    status=struct.Struct(">cQQQqB"),
    written=1,  # write
    flushed=2,  # flush, apply
)

# Keepalive: walEnd, role, state, sent at, reply, catchup, and six unused bytes.
# Status: receive, write, flush, apply, applyRead, role, state, sent at, reply, flags.  The
# server copies 64 bytes whatever comes: a shorter update ends the session, and PostgreSQL's
# in the wrong byte order, were it longer, would move the slot out of sight.
OPENGAUSS: Final = Dialect(
    keepalive=struct.Struct("<Q8xqB7x"),
    status=struct.Struct("<cQQQQQ8xqB7x"),
    written=2,
    flushed=3,
    more_status=True,
)

# Cuts whole messages out of (data, from there, greatest length of a frame) and appends them to a
# list; returns where something else begins: another frame, an incomplete one, the end.
Split: TypeAlias = Callable[[bytes, int, int, list[WalMessage]], int]

_FRAME: Final = struct.Struct(">BI").unpack_from
# A CopyData frame with XLogData: tag, length, kind, start, end, sent at; then the payload.
_XLOG_FRAME: Final = struct.Struct(">BIBQQ8x").unpack_from
_XLOG_HEAD: Final = 30  # bytes
_COPY_DATA: Final = ord("d")
_XLOG_DATA: Final = ord("w")
_KEEPALIVE: Final = ord("k")


@dataclass(slots=True)
class Received:
    """What one read brought, in two kinds: messages in order, and the newest keepalive.

    A keepalive may have come between two messages; it is reported as if it had come
    last.  That is safe, since a position is only confirmed when nothing received
    before is undelivered.
    """

    messages: list[WalMessage] = field(default_factory=list)
    # Everything before it is decoded and sent; 0 = no keepalive.  With parallel decoding openGauss
    # reports how far it has read instead, which is ahead of what it sends: never confirm that.
    keepalive_end: Lsn = NOWHERE
    reply_requested: bool = False  # answer at once, or the server closes the connection


def split(data: bytes, at: int, max_bytes: int, messages: list[WalMessage]) -> int:
    """`Split` in Python."""
    size, head, append = len(data), _XLOG_FRAME, messages.append
    while size - at >= _XLOG_HEAD:
        tag, length, kind, start, end = head(data, at)
        stop = at + length + 1
        if kind != _XLOG_DATA or tag != _COPY_DATA or not 29 <= length <= max_bytes or stop > size:
            break
        append((start, end, data[at + 30 : stop]))
        at = stop
    return at


class Stream:
    """Splits the bytes of a copy-both stream into messages."""

    __slots__ = (
        *("_dialect", "_have", "_max_bytes", "_need", "_parts", "_split"),
        *("others", "received_end"),
    )

    def __init__(
        self,
        *,
        max_bytes: int = MAX_FRAME_BYTES,
        dialect: Dialect = POSTGRES,
        split: Split = split,
    ) -> None:
        self._max_bytes, self._dialect, self._split = max_bytes, dialect, split
        self._parts: list[bytes] = []  # of the incomplete frame
        self._have = self._need = 0
        self.others: list[Frame] = []  # everything that is not CopyData; the driver empties it
        self.received_end = NOWHERE  # greatest position seen

    def feed(self, data: bytes) -> Received:
        """Take bytes in and give out what is whole by now.

        Raises DecodeError for an impossible frame, before waiting for its end.
        """
        received = Received()
        self._parts.append(data)
        self._have += len(data)
        if self._have < self._need:
            return received  # a large value is joined once, when it is whole
        if len(self._parts) > 1:
            data = b"".join(self._parts)
        pos, self._need = self._walk(data, received)
        left = data[pos:] if pos else data
        self._parts, self._have = ([left] if left else []), len(left)
        if received.messages:
            self._saw(received.messages[-1][1])
        return received

    def _walk(self, data: bytes, received: Received) -> tuple[int, int]:
        """Walk over whole frames; return where they end and how long the next one is."""
        pos, size, most = 0, len(data), self._max_bytes
        while True:
            pos = self._split(data, pos, most, received.messages)
            if size - pos < 5:  # tag and length
                return pos, 0
            tag, length = _FRAME(data, pos)
            check_length(length, most)
            stop = pos + length + 1
            if stop > size:
                return pos, stop - pos
            if tag == _COPY_DATA:
                self._take_rare(data[pos + 5 : stop], received)
            else:
                self.others.append(Frame(chr(tag), data[pos + 5 : stop]))
            pos = stop

    def _take_rare(self, body: bytes, received: Received) -> None:
        """Take a keepalive; an XLogData comes here only when it is too short to be one."""
        if not body or body[0] != _KEEPALIVE or len(body) != self._dialect.keepalive.size + 1:
            kind = chr(body[0]) if body else ""
            raise DecodeError("not a message of a replication stream", kind=kind, size=len(body))
        end, _, reply = self._dialect.keepalive.unpack_from(body, 1)
        received.keepalive_end = Lsn(end)
        received.reply_requested |= bool(reply)
        self._saw(end)

    def _saw(self, end: Lsn) -> None:
        self.received_end = max(self.received_end, end)


def status_update(
    *,
    write: Lsn,
    flush: Lsn,
    sent_at_us: int,
    reply: bool = False,
    dialect: Dialect = POSTGRES,
) -> bytes:
    """Build the body of a standby status update.

    The server may forget everything before `flush`; 0 confirms nothing and takes
    nothing back.  `sent_at_us` counts from 2000-01-01 UTC.
    """
    positions = [write] * dialect.written + [flush] * dialect.flushed
    return dialect.status.pack(b"r", *positions, sent_at_us, reply)
