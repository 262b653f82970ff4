"""The hash SM3 (GB/T 32905-2016), which Python has only where its OpenSSL has it.

A login hashes 32 bytes once, so plainness counts here and speed does not.

>>> digest(b"abc").hex()
'66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0'
"""

from __future__ import annotations

import struct
from typing import Final

_START: Final = (
    *(0x7380166F, 0x4914B2B9, 0x172442D7, 0xDA8A0600),
    *(0xA96F30BC, 0x163138AA, 0xE38DEE4D, 0xB0FB0E4E),
)
_WORD: Final = 0xFFFF_FFFF
_BLOCK_BYTES: Final = 64


def digest(message: bytes) -> bytes:
    """Hash `message` to 32 bytes."""
    zeros = -(len(message) + 9) % _BLOCK_BYTES
    padded = message + b"\x80" + bytes(zeros) + struct.pack(">Q", len(message) * 8)
    state: tuple[int, ...] = _START
    for start in range(0, len(padded), _BLOCK_BYTES):
        state = _compress(state, struct.unpack_from(">16I", padded, start))
    return struct.pack(">8I", *state)


def _compress(state: tuple[int, ...], block: tuple[int, ...]) -> tuple[int, ...]:
    words = list(block)
    for j in range(16, 68):
        mixed = words[j - 16] ^ words[j - 9] ^ _rotate(words[j - 3], 15)
        spread = mixed ^ _rotate(mixed, 15) ^ _rotate(mixed, 23)
        words.append(spread ^ _rotate(words[j - 13], 7) ^ words[j - 6])
    a, b, c, d, e, f, g, h = state
    for j in range(64):
        constant, choose, majority = (
            (0x79CC4519, e ^ f ^ g, a ^ b ^ c)
            if j < 16
            else (0x7A879D8A, (e & f) | (~e & g), (a & b) | (a & c) | (b & c))
        )
        first = _rotate(_rotate(a, 12) + e + _rotate(constant, j % 32), 7)
        second = first ^ _rotate(a, 12)
        left = majority + d + second + (words[j] ^ words[j + 4]) & _WORD
        right = choose + h + first + words[j] & _WORD
        a, b, c, d = left, a, _rotate(b, 9), c
        e, f, g, h = right ^ _rotate(right, 9) ^ _rotate(right, 17), e, _rotate(f, 19), g
    return tuple(old ^ new for old, new in zip(state, (a, b, c, d, e, f, g, h), strict=True))


def _rotate(word: int, by: int) -> int:
    word &= _WORD
    return (word << by | word >> (32 - by)) & _WORD
