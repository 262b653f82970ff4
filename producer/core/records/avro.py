"""Avro's bytes of numbers and texts, for what is written around rows and once per commit.

Avro 1.11 specification, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Zigzag numbers below 2**14 as finished bytes, and the same with Avro's "more follows" bits.
_TABLE: Final = 1 << 14
_SHORT: Final = [bytes((z,)) if z < 128 else bytes((z & 127 | 128, z >> 7)) for z in range(_TABLE)]
_HIGH: Final = [bytes((z & 127 | 128, z >> 7 | 128)) for z in range(_TABLE)]
_MASK: Final = _TABLE - 1


def varint(z: int) -> bytes:
    """Avro's variable length bytes of a zigzag number below 2**64.

    >>> varint(300).hex()
    'ac02'
    """
    if z < _TABLE:
        return _SHORT[z]
    if z < 1 << 28:
        return _HIGH[z & _MASK] + _SHORT[z >> 14]
    if z < 1 << 42:
        return _HIGH[z & _MASK] + _HIGH[z >> 14 & _MASK] + _SHORT[z >> 28]
    return _HIGH[z & _MASK] + _HIGH[z >> 14 & _MASK] + varint(z >> 28)


def long(number: int) -> bytes:
    """Return the bytes of an Avro int or long; raise OverflowError beyond 64 bits."""
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return varint(number + number if number >= 0 else -number - number - 1)


def text(data: bytes) -> bytes:
    """Return the bytes of an Avro string or bytes value."""
    return varint(2 * len(data)) + data


def names(columns: Sequence[str]) -> bytes:
    """Return the bytes of an Avro array of strings."""
    items = b"".join(text(name.encode()) for name in columns)
    return long(len(columns)) + items + b"\x00" if columns else b"\x00"
