"""What travels inside a replication stream, in PostgreSQL's byte order.

Format: PostgreSQL manual, "Streaming Replication Protocol".  openGauss speaks
the same messages in its own way (little-endian numbers): a second `Dialect`
belongs beside `POSTGRES`, and nothing else changes.

`Stream.feed` is the hot path of reading: one loop over all frames that arrived,
one cheap tuple per row message, everything rare aside.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from producer.errors import DecodeError
from producer.wire.protocol import MAX_FRAME_BYTES, Frame, check_length
from schemas.positions import Lsn

# (wal_start, wal_end, payload): plain ints, because there is one per row.
WalMessage: TypeAlias = tuple[int, int, bytes]

NOWHERE: Final = Lsn(0)
EPOCH_2000_US: Final = 946_684_800_000_000  # 2000-01-01 UTC in µs since 1970


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a product lays out the numbers of its stream."""

    # The whole head of a CopyData frame with XLogData: tag, length, kind, start, end, sent at.
    xlog: struct.Struct
    keepalive: struct.Struct  # end, sent at (µs since 2000), reply requested
    status: struct.Struct  # kind, write, flush, apply, sent at, reply


POSTGRES: Final = Dialect(
    xlog=struct.Struct(">BIBQQ8x"), keepalive=struct.Struct(">QqB"), status=struct.Struct(">cQQQqB")
)

_FRAME: Final = struct.Struct(">BI").unpack_from
_COPY_DATA: Final = ord("d")
_XLOG_DATA: Final = ord("w")
_KEEPALIVE: Final = ord("k")


@dataclass(slots=True)
class Received:
    """What one read brought, in two kinds: messages in order, and the newest keepalive.

    A keepalive may have come between two messages; it is told as if it had come
    last.  That is safe, since a position is only confirmed when nothing received
    before is undelivered.
    """

    messages: list[WalMessage] = field(default_factory=list)
    keepalive_end: Lsn = NOWHERE  # up to where all is decoded and sent; 0 = no keepalive
    reply_requested: bool = False  # answer at once, or the server gives up on us


class Stream:
    """Cuts the bytes of a copy-both stream into messages, however they arrive."""

    __slots__ = ("_dialect", "_have", "_max_bytes", "_need", "_parts", "others", "received_end")

    def __init__(self, *, max_bytes: int = MAX_FRAME_BYTES, dialect: Dialect = POSTGRES) -> None:
        self._max_bytes, self._dialect = max_bytes, dialect
        self._parts: list[bytes] = []  # of the frame that is not whole yet
        self._have = self._need = 0
        self.others: list[Frame] = []  # everything that is not CopyData; the driver empties it
        self.received_end = NOWHERE  # greatest position seen

    def feed(self, data: bytes) -> Received:
        """Take bytes in and give out what is whole by now.

        Raises DecodeError for a frame that cannot be, before waiting for its end.
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
        """Walk over whole frames; tell where they end and how long the next one is."""
        pos, size, most = 0, len(data), self._max_bytes
        head, append = self._dialect.xlog.unpack_from, received.messages.append
        while size - pos >= 5:  # tag and length
            if size - pos >= 30:  # up to the payload of XLogData
                tag, length, kind, start, end = head(data, pos)
                if kind == _XLOG_DATA and tag == _COPY_DATA and 29 <= length <= most:
                    stop = pos + length + 1
                    if stop > size:
                        return pos, stop - pos
                    append((start, end, data[pos + 30 : stop]))
                    pos = stop
                    continue
            else:
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
        return pos, 0

    def _take_rare(self, body: bytes, received: Received) -> None:
        """Take a keepalive; an XLogData comes here only when it is too short to be one."""
        if not body or body[0] != _KEEPALIVE or len(body) != self._dialect.keepalive.size + 1:
            kind = chr(body[0]) if body else ""
            raise DecodeError("no message of a replication stream", kind=kind, size=len(body))
        end, _, reply = self._dialect.keepalive.unpack_from(body, 1)
        received.keepalive_end = Lsn(end)
        received.reply_requested |= bool(reply)
        self._saw(end)

    def _saw(self, end: int) -> None:
        if end > self.received_end:
            self.received_end = Lsn(end)


def status_update(
    *,
    write: Lsn,
    flush: Lsn,
    sent_at_us: int,
    reply: bool = False,
    dialect: Dialect = POSTGRES,
) -> bytes:
    """Build the body of a standby status update.

    `flush` is what the server may forget; 0 tells nothing and takes nothing
    back.  `sent_at_us` counts from 2000-01-01 UTC.
    """
    return dialect.status.pack(b"r", write, flush, flush, sent_at_us, reply)


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A status update as a server reads it; for emulators and tests."""

    write: Lsn
    flush: Lsn
    apply: Lsn
    sent_at_us: int
    reply: bool

    @classmethod
    def parse(cls, body: bytes, dialect: Dialect = POSTGRES) -> StatusUpdate:
        """Read the body that `status_update` builds."""
        if len(body) != dialect.status.size or body[:1] != b"r":
            raise DecodeError("no status update", size=len(body))
        _, write, flush, apply, sent_at_us, reply = dialect.status.unpack(body)
        return cls(Lsn(write), Lsn(flush), Lsn(apply), sent_at_us, bool(reply))


def xlog_data(start: Lsn, end: Lsn, payload: bytes, *, sent_at_us: int = 0) -> bytes:
    """Build the body of an XLogData message; for emulators and tests."""
    return struct.pack(">cQQq", b"w", start, end, sent_at_us) + payload


def keepalive(end: Lsn, *, sent_at_us: int = 0, reply: bool = False) -> bytes:
    """Build the body of a keepalive; for emulators and tests."""
    return b"k" + POSTGRES.keepalive.pack(end, sent_at_us, reply)
