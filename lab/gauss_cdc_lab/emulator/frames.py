"""Bytes of the server's side: messages, rows, the stream's `w` and `k`, the client's `r`.

Message framing is PostgreSQL's and big endian.  `k` and `r` are the server's own C
structs in its byte order, little endian, padding included.
Written without a look at the producer's wire code: both read the same text, and
the tests let them meet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.positions import Lsn

NORMAL: Final = 1
EPOCH_2000: Final = 946_684_800  # seconds between 1970 and 2000

TEXT: Final = 25
INT4: Final = 23

_LENGTH: Final = struct.Struct("!i")
_DATA: Final = struct.Struct("!cqqq")
_KEEPALIVE: Final = struct.Struct("<cQiiqBBBB4s")
_STATUS: Final = struct.Struct("<xQQQQQiiqB3xI")
STATUS_BYTES: Final = _STATUS.size

FEATURE_NOT_SUPPORTED: Final = "0A000"


class ErrorResponse(Exception):
    """An ErrorResponse, as openGauss builds it; on a walsender every one ends the connection."""

    def __init__(
        self,
        message: str,
        state: str,
        *,
        number: int = 0,
        module: str = "BACKEND",
        detail: str = "",
        hint: str = "",
        context: str = "",
    ) -> None:
        super().__init__(message)
        self.message, self.state, self.number = message, state, number
        self.module, self.detail, self.hint, self.context = module, detail, hint, context

    def frame(self, severity: str) -> bytes:
        """The message, in the order of fields that the server writes."""
        fields = (
            ("S", severity),
            ("c", str(self.number)),
            ("M", self.message),
            ("C", self.state),
            ("d", self.module),
            ("D", self.detail),
            ("H", self.hint),
            ("W", self.context),
        )
        body = b"".join(
            name.encode() + text.encode() + b"\0" for name, text in fields if text or name == "M"
        )
        return message(b"E", body + b"\0")


@dataclass(frozen=True, slots=True)
class Status:
    """A standby status update; only `flush` moves a logical slot."""

    received: int
    written: int
    flushed: Lsn
    applied: int
    reply_requested: bool


def message(letter: bytes, body: bytes = b"") -> bytes:
    """One backend message."""
    return letter + _LENGTH.pack(len(body) + 4) + body


def ready(state: bytes = b"I") -> bytes:
    """ReadyForQuery."""
    return message(b"Z", state)


def parameter(name: str, value: str) -> bytes:
    """ParameterStatus."""
    return message(b"S", f"{name}\0{value}\0".encode())


def complete(tag: str) -> bytes:
    """CommandComplete."""
    return message(b"C", tag.encode() + b"\0")


def described(columns: Iterable[tuple[str, int, int, int]]) -> bytes:
    """RowDescription of (name, type OID, type length, type modifier), all of no table."""
    listed = list(columns)
    body = struct.pack("!h", len(listed))
    for name, oid, length, modifier in listed:
        body += name.encode() + b"\0" + struct.pack("!ihihih", 0, 0, oid, length, modifier, 0)
    return message(b"T", body)


def row(values: Sequence[bytes | str | None]) -> bytes:
    """DataRow of text values."""
    body = struct.pack("!h", len(values))
    for value in values:
        if value is None:
            body += b"\xff\xff\xff\xff"
        else:
            raw = value.encode() if isinstance(value, str) else value
            body += _LENGTH.pack(len(raw)) + raw
    return message(b"D", body)


def copy_both() -> bytes:
    """CopyBothResponse without columns."""
    return message(b"W", b"\0\0\0")


def copy_data(body: bytes) -> bytes:
    """CopyData."""
    return message(b"d", body)


def xlog_data(start: int, sent_at: int, payload: bytes) -> bytes:
    """`w`: walEnd always equals dataStart; `sent_at` in µs since 2000."""
    return copy_data(_DATA.pack(b"w", start, start, sent_at) + payload)


def keepalive(
    wal_end: int, sent_at: int, *, role: int, reply: bool = False, catchup: bool = False
) -> bytes:
    """`k`: 33 bytes.  Bytes from 27 on are what happened to be there; ours are zero."""
    return copy_data(
        _KEEPALIVE.pack(b"k", wal_end, role, NORMAL, sent_at, reply, catchup, 0, 0, bytes(4))
    )


def read_status(body: bytes) -> Status:
    """`r` with all that follows the letter; Refused if it is PostgreSQL's short one."""
    if len(body) < STATUS_BYTES:
        raise ErrorResponse("insufficient data left in message", "08P01", number=9499)
    received, written, flushed, applied, _, _, _, _, reply, _ = _STATUS.unpack_from(body)
    return Status(received, written, flushed, applied, bool(reply))
