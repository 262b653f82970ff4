"""Values and names replaced by others of the same kind and length.

Digits become digits, letters letters of the same case, other characters ones that
take as many bytes; signs, quotes, blanks and backslashes stay, so that the message
remains valid.  Equal values stay equal, and short ones different, so that keys still
identify rows.  The secret is forgotten with the object.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import struct
from enum import Enum
from functools import cache
from itertools import chain, count
from typing import Final

from producer.sources.gauss.decoders.literals import NUMBER
from producer.sources.gauss.decoders.names import SQL_ASCII

_HEX: Final = re.compile(rb"\\x[0-9a-f]*")
_SHORT: Final = 12  # bytes; longer values do not meet by chance
_ATTEMPTS: Final = 20_000
_MOST: Final = 1_000_000  # short values that are kept apart

_DIGITS: Final = b"0123456789"
_LEADING: Final = b"123456789"  # of a number of several digits: 07 would be 7
_LOWER: Final = bytes(range(ord("a"), ord("z") + 1))
_UPPER: Final = _LOWER.upper()
_HEX_DIGITS: Final = b"0123456789abcdef"
_HIGH: Final = bytes(range(0xA1, 0xFF))
# What may stand for each byte of ASCII: itself, if it is no digit or letter.
_ASCII: Final = tuple(
    next((some for some in (_DIGITS, _LOWER, _UPPER) if byte in some), bytes((byte,)))
    for byte in range(0x80)
)


class MaskKind(Enum):
    """What a value must stay."""

    TEXT = "text"
    BITS = "bits"
    BOOL = "bool"  # t or f
    NAME = "name"


class Masks:
    """Makes replacements for the values of a database in `encoding`: Python's name."""

    def __init__(self, encoding: str, secret: bytes | None = None) -> None:
        self._encoding = encoding
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._given: dict[tuple[MaskKind, bytes], bytes] = {}
        self._used: set[tuple[MaskKind, bytes]] = set()
        self._others = _alphabets(encoding)
        self._high = b"".join(self._others.get((1, False), ())) or _HIGH

    def value(self, raw: bytes, kind: MaskKind = MaskKind.TEXT) -> bytes:
        """Return the replacement; equal values get equal ones."""
        if kind is MaskKind.BOOL or (len(raw) > _SHORT and kind is not MaskKind.NAME):
            return self._made(raw, kind, 0)
        given = self._given.get((kind, raw))
        if given is not None:
            return given
        for attempt in count():
            made = self._made(raw, kind, attempt)
            # Many attempts are for values of which nearly all there can be are in use.
            if (kind, made) not in self._used or attempt == _ATTEMPTS:
                break
        if len(self._given) < _MOST:
            self._given[kind, raw] = made
            self._used.add((kind, made))
        return made

    def _made(self, raw: bytes, kind: MaskKind, attempt: int) -> bytes:
        seed = b"%s:%d:" % (kind.value.encode(), attempt)
        # Two bytes for each unit of at least one byte.
        noise = hashlib.shake_256(self._secret + seed + raw).digest(2 * len(raw))
        picks = iter(struct.unpack(f">{len(raw)}H", noise))
        if kind is MaskKind.BOOL and raw in {b"t", b"f"}:
            return b"t" if next(picks) % 2 else b"f"
        if kind is MaskKind.BITS:
            return bytes(
                b"01"[pick % 2] if c in b"01" else c for c, pick in zip(raw, picks, strict=False)
            )
        if kind is MaskKind.TEXT and NUMBER.fullmatch(raw):
            return bytes(map(_digit, raw, picks, chain([0], raw), chain(raw[1:], [0])))
        if kind is MaskKind.TEXT and _HEX.fullmatch(raw):
            return raw[:2] + bytes(
                _HEX_DIGITS[pick % 16] for _, pick in zip(raw[2:], picks, strict=False)
            )
        if raw.isascii():  # nearly all values: without a call for each byte
            return bytes(
                (letters := _ASCII[byte])[pick % len(letters)]
                for byte, pick in zip(raw, picks, strict=True)
            )
        try:
            text = raw.decode(self._encoding)
        except UnicodeDecodeError:  # bytes of no encoding
            return bytes(self._byte(c, pick) for c, pick in zip(raw, picks, strict=False))
        return b"".join(map(self._character, text, picks))

    def _character(self, character: str, pick: int) -> bytes:
        raw = character.encode(self._encoding)
        if len(raw) == 1:
            return bytes((self._byte(raw[0], pick),))
        alphabet = self._others.get(_class(raw))
        return alphabet[pick % len(alphabet)] if alphabet else raw

    def _byte(self, byte: int, pick: int) -> int:
        letters = _ASCII[byte] if byte < 0x80 else self._high
        return letters[pick % len(letters)]


def _digit(byte: int, pick: int, before: int, after: int) -> int:
    """Replace a digit of a number; a first one that others follow stays 0 or not 0."""
    if byte not in _DIGITS:
        return byte
    if before not in b"0123456789." and after in _DIGITS:
        return _LEADING[pick % 9] if byte in _LEADING else byte
    return _DIGITS[pick % 10]


def _class(raw: bytes) -> tuple[int, bool]:
    """Say what a replacement must share: length, and a second byte that JSON escapes."""
    return len(raw), b"\\" in raw


@cache
def _alphabets(encoding: str) -> dict[tuple[int, bool], list[bytes]]:
    """Find characters that may stand for others of the same class."""
    found: dict[tuple[int, bool], list[bytes]] = {}
    if encoding == SQL_ASCII:
        return found
    for code in chain(
        range(0xE0, 0xF7), range(0x3B1, 0x3C2), range(0x430, 0x450),
        range(0x4E00, 0x9FA6), range(0xAC00, 0xAC80), range(0x20000, 0x20100),
    ):  # fmt: skip
        try:
            raw = chr(code).encode(encoding)
        except UnicodeEncodeError:
            continue
        # Second bytes that look like quotes or brackets would be a nuisance to read.
        if not any(byte in b"\"'[]{}|~`@^_" for byte in raw[1:]):
            found.setdefault(_class(raw), []).append(raw)
    return found
