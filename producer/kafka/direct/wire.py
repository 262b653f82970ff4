"""Numbers, texts and arrays of Kafka's protocol, in its flexible versions.

Format: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 for compact types and tags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

from producer.errors import DecodeError

T = TypeVar("T")


def unsigned(number: int) -> bytes:
    """Write an UNSIGNED_VARINT.

    >>> unsigned(300).hex()
    'ac02'
    """
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def signed(number: int) -> bytes:
    """Write a VARINT or VARLONG.

    >>> signed(-1).hex(), signed(150).hex()
    ('01', 'ac02')
    """
    return unsigned(2 * number if number >= 0 else -2 * number - 1)


def text(value: str | None) -> bytes:
    """Write a COMPACT_NULLABLE_STRING."""
    return octets(None if value is None else value.encode())


def octets(value: bytes | None) -> bytes:
    """Write COMPACT_NULLABLE_BYTES."""
    return b"\0" if value is None else unsigned(len(value) + 1) + value


def array(items: Iterable[bytes]) -> bytes:
    """Write a COMPACT_ARRAY."""
    made = list(items)
    return unsigned(len(made) + 1) + b"".join(made)


NO_TAGS = b"\0"


class Response:
    """Reads a response from its begin to its end; raises DecodeError where it is too short."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def int8(self) -> int:
        """INT8, or BOOLEAN."""
        return self._number(">b", 1)

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def unsigned(self) -> int:
        """UNSIGNED_VARINT."""
        number = shift = 0
        while True:
            byte = self._bytes(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise DecodeError("an answer of Kafka has a number that does not end")

    def text(self) -> str | None:
        """COMPACT_NULLABLE_STRING."""
        size = self.unsigned()
        return self._bytes(size - 1).decode("utf-8", "replace") if size else None

    def array(self, item: Callable[[Response], T]) -> list[T]:
        """COMPACT_ARRAY; NULL is empty."""
        count = self.unsigned() - 1
        if count > len(self._data):
            raise DecodeError("an answer of Kafka is longer than its frame")
        return [item(self) for _ in range(count)]

    def tags(self) -> dict[int, Response]:
        """Tagged fields, by number."""
        found = {}
        for _ in range(self.unsigned()):
            number = self.unsigned()
            found[number] = Response(self._bytes(self.unsigned()))
        return found

    def _number(self, form: str, size: int) -> int:
        (number,) = struct.unpack(form, self._bytes(size))
        return int(number)

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise DecodeError("an answer of Kafka is longer than its frame")
        found = self._data[self._at : end]
        self._at = end
        return found
