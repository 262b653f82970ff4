"""Record batches: their records, their compression, their header.

Format: Kafka documentation, "Record Batch" and "Record" (version 2, with headers).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from producer.core.events import Place, Records
from producer.kafka.direct.requests import Parts, Producing
from producer.kafka.direct.wire import signed

Crc: TypeAlias = Callable[[bytes, int], int]  # of bytes, behind others whose CRC is known


class Full(NamedTuple):
    """Finished records of one partition, which make a batch."""

    topic: str
    partition: int
    rows: int
    records: bytes
    first_ms: int  # since 1970
    last_ms: int


class Packer(Protocol):
    """Collects records by partition."""

    @property
    def size(self) -> int:
        """Bytes of what was not taken."""

    def add(self, records: Records, start: int, room: int, now_ms: int, /) -> int:
        """Take records from `start` on while `size` is below `room`; return the first one left."""

    def seal(self) -> None:
        """Call what is open full."""

    def take(self) -> list[tuple[str, int, int, bytes, int, int]]:
        """Return what is full, as `Full` has it; of a partition in order."""


class _Open:
    """Records of one partition that may get more."""

    __slots__ = ("count", "first_ms", "last_ms", "records")

    def __init__(self, now_ms: int) -> None:
        self.count, self.records = 0, bytearray()
        self.first_ms = self.last_ms = now_ms


class PlainPacker:
    """`Packer` in Python."""

    def __init__(self, batch_bytes: int) -> None:
        """`batch_bytes`: no batch is larger, but for one with a single record."""
        self._batch_bytes = batch_bytes
        self._open: dict[Place, _Open] = {}  # of all partitions, in order of first use
        self._full: list[tuple[str, int, int, bytes, int, int]] = []
        self.size = 0

    def add(self, records: Records, start: int, room: int, now_ms: int) -> int:
        """Take records from `start` on while `size` is below `room`; return the first one left."""
        for at in range(start, len(records)):
            if self.size >= room:
                return at
            topic, partition, key, value, headers = records[at]
            place = topic, partition
            tail = b"".join(
                (
                    _octets(key),
                    _octets(value),
                    signed(len(headers)),
                    *(_octets(part) for name, text in headers for part in (name.encode(), text)),
                )
            )
            open_ = self._open.get(place)
            if open_ is None or not open_.count:
                open_ = _Open(now_ms)
            record = _record(open_, tail, now_ms)
            # A length has at most 10 bytes; the native packer counts as many.
            if open_.count and len(open_.records) + _body_size(record) + 10 > self._batch_bytes:
                self._seal(place, open_)
                open_ = _Open(now_ms)
                record = _record(open_, tail, now_ms)
            self._open[place] = open_
            open_.records += record
            open_.count += 1
            open_.last_ms = now_ms
            self.size += len(record)
        return len(records)

    def seal(self) -> None:
        """Call what is open full."""
        for place, open_ in self._open.items():
            if open_.count:
                self._seal(place, open_)
                self._open[place] = _Open(0)

    def take(self) -> list[tuple[str, int, int, bytes, int, int]]:
        """Return what is full."""
        full, self._full = self._full, []
        self.size -= sum(len(one[3]) for one in full)
        return full

    def _seal(self, place: Place, open_: _Open) -> None:
        records = bytes(open_.records)
        self._full.append((*place, open_.count, records, open_.first_ms, open_.last_ms))


def _record(open_: _Open, tail: bytes, now_ms: int) -> bytes:
    body = b"\0" + signed(now_ms - open_.first_ms) + signed(open_.count) + tail
    return signed(len(body)) + body


def _body_size(record: bytes) -> int:
    return next(len(record) - at for at in range(1, 11) if record[at - 1] < 128)


def _octets(value: bytes | None) -> bytes:
    return signed(-1) if value is None else signed(len(value)) + value


# ---------------------------------------------------------------- compression
class Compression(NamedTuple):
    """How records of a batch are compressed."""

    number: int  # in the attributes of a batch
    compress: Callable[[bytes], bytes]


def _gzip(data: bytes) -> bytes:
    return zlib.compress(data, wbits=31)


def _lz4() -> Callable[[bytes], bytes]:
    """Frames of independent blocks, without a checksum: brokers refuse others."""
    from lz4 import frame  # noqa: PLC0415  only we need it

    return partial(
        frame.compress,
        block_size=frame.BLOCKSIZE_MAX256KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )


def _zstd() -> Callable[[bytes], bytes]:
    import pyarrow as pa  # noqa: PLC0415  it takes 0.4 s and 40 MB

    codec = pa.Codec("zstd")
    return lambda data: bytes(codec.compress(data, asbytes=True))


_CODECS: Final[dict[str, tuple[int, Callable[[], Callable[[bytes], bytes]]]]] = {
    "none": (0, lambda: bytes),
    "gzip": (1, lambda: _gzip),
    "lz4": (3, _lz4),
    "zstd": (4, _zstd),
}
CODECS: Final = frozenset(_CODECS)  # by their names in compression.type


def codec(name: str) -> Compression:
    """Find a codec by its name in compression.type."""
    number, make = _CODECS[name]
    return Compression(number, make())


# ---------------------------------------------------------------- the header
_TRANSACTIONAL: Final = 0x10
_HEADER: Final = struct.Struct(">hiqqqhii")  # what the CRC covers, before the records
_FRAME: Final = struct.Struct(">qiibI")
_BEHIND_LENGTH: Final = _FRAME.size + _HEADER.size - 12  # bytes that the length counts


def batch(
    full: Full,
    body: bytes,
    codec_number: int,
    *,
    producing: Producing,
    sequence: int,
    is_transactional: bool,
    crc32c: Crc,
) -> Parts:
    """Make a record batch; `body`: its records, compressed by the codec or as they are."""
    attributes = codec_number | (_TRANSACTIONAL if is_transactional else 0)
    header = _HEADER.pack(
        attributes,
        full.rows - 1,
        full.first_ms,
        full.last_ms,
        *producing,
        sequence,
        full.rows,
    )
    crc = crc32c(body, crc32c(header, 0))
    return [_FRAME.pack(0, _BEHIND_LENGTH + len(body), -1, 2, crc) + header, body]


def _table() -> list[int]:
    out = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        out.append(crc)
    return out


_TABLE: Final = _table()


def plain_crc32c(data: bytes, before: int = 0) -> int:
    """CRC-32C (Castagnoli) in Python.

    >>> hex(plain_crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = ~before & 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return ~crc & 0xFFFFFFFF
