"""What a server reads and builds of replication: the other side of `producer.wire.replication`."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from producer.errors import DecodeError
from producer.wire.replication import POSTGRES, Dialect
from schemas.positions import Lsn


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A status update as a server reads it."""

    write: Lsn
    flush: Lsn
    apply: Lsn
    sent_at_us: int
    reply: bool

    @classmethod
    def parse(cls, body: bytes, dialect: Dialect = POSTGRES) -> StatusUpdate:
        """Read the body that `status_update` builds, or another client of the same server."""
        size = dialect.status.size
        if body[:1] != b"r" or len(body) < size or (len(body) > size and not dialect.more_status):
            raise DecodeError("no status update", size=len(body))
        _, *positions, sent_at_us, reply = dialect.status.unpack_from(body)
        write, flush, apply = positions[dialect.written - 1 : dialect.written + 2]
        return cls(Lsn(write), Lsn(flush), Lsn(apply), sent_at_us, bool(reply))


def xlog_data(start: Lsn, end: Lsn, payload: bytes, *, sent_at_us: int = 0) -> bytes:
    """Build the body of an XLogData message."""
    return struct.pack(">cQQq", b"w", start, end, sent_at_us) + payload


def keepalive(
    end: Lsn, *, sent_at_us: int = 0, reply: bool = False, dialect: Dialect = POSTGRES
) -> bytes:
    """Build the body of a keepalive."""
    return b"k" + dialect.keepalive.pack(end, sent_at_us, reply)
