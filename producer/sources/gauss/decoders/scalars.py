"""Values that several plugins print alike: times, numbers, heartbeats."""

from __future__ import annotations

import struct
from typing import Final

from producer.errors import DecodeError
from producer.sources.gauss.decoders.messages import ServerHeartbeat

SEND_US_A_RECORDING: Final = "please send us a recording: gauss-cdc record --redact"

_HEARTBEAT: Final = struct.Struct(">cQQq")


def heartbeat(raw: bytes) -> ServerHeartbeat:
    """Decode GaussDB's `h`: two positions and a time, big-endian.

    Manual, "Logical Decoding Options", enable-heartbeat.  It was not recorded.

    Raises DecodeError for another size.
    """
    if len(raw) != _HEARTBEAT.size:
        raise DecodeError("heartbeat of a wrong size", size=len(raw))
    _, read, flushed, at = _HEARTBEAT.unpack(raw)
    return ServerHeartbeat(read, flushed, at)


def stamp(raw: bytes | None) -> str | None:
    """Read a time as it was printed; None where there is none.

    Raises DecodeError for what cannot be printed.
    """
    if raw is None:
        return None
    text = raw.decode("latin-1")
    if not text or not text.isascii() or not text.isprintable():
        raise DecodeError("a commit time that is not text", size=len(raw))
    return text


def number(raw: bytes | None) -> int | None:
    """Read a decimal number; None where there is none."""
    return None if raw is None else int(raw)


def shown(letter: int) -> str:
    """Print a byte of the wire for an error: `Q`, or `0x1F`."""
    return chr(letter) if 0x20 < letter < 0x7F else f"0x{letter:02X}"


def unknown_line(line: bytes) -> DecodeError:
    """Make the error for an unknown line; it shows only its first byte."""
    return DecodeError(
        "a line of an unknown kind",
        hint=SEND_US_A_RECORDING,
        letter=shown(line[0]) if line else "none",
        size=len(line),
    )
