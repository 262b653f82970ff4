"""Bytes and bit strings.

Debezium's Bits hold a bit string's number in little-endian bytes; the length
of `bit(n)` is a parameter of the schema, that of a `varbit` value is nowhere,
so every varbit also travels as text.  Debezium writes `bit(1)` and `varbit(1)` as
booleans.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final

from schemas.tables import Column
from schemas.types.base import (
    SOURCE_TYPE,
    AvroShape,
    AvroType,
    Dump,
    Load,
    NotRepresentable,
    SqlType,
    always,
    plain,
    semantic,
    shape,
)

MODE: Final = "binary.handling.mode"  # connect.parameters of a string that holds bytes

_OCTAL: Final = re.compile(rb"\\([0-3][0-7]{2}|\\)")
_VARBIT_MAX: Final = 2**31 - 1


def _bytea(text: str) -> bytes:
    r"""Read both forms of `bytea_output`.

    >>> _bytea(r"\x00ff"), _bytea(r"a\000\\")
    (b'\x00\xff', b'a\x00\\')
    """
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    return _OCTAL.sub(
        lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 8)]), text.encode("latin-1")
    )


def _dump_bytes(value: bytes) -> str:
    return "\\x" + value.hex()


def _dump_encoded(avro: AvroType) -> Dump:
    """Undo binary-handling: the schema says which, where Debezium's does not."""
    mode = avro["connect.parameters"][MODE] if isinstance(avro, dict) else ""
    decode = {"base64": b64decode, "base64-url-safe": urlsafe_b64decode, "hex": bytes.fromhex}[mode]
    return lambda value: _dump_bytes(decode(value))


def variants(load: Callable[[str], bytes]) -> dict[str, SqlType]:
    """Return how bytes travel as text, by binary-handling; `load` reads the source's text."""
    encoders: dict[str, Callable[[bytes], str]] = {
        "base64": lambda value: b64encode(value).decode(),
        "base64-url-safe": lambda value: urlsafe_b64encode(value).decode(),
        "hex": bytes.hex,
    }

    def variant(mode: str, encode: Callable[[bytes], str]) -> SqlType:
        avro = {"type": "string", "connect.parameters": {SOURCE_TYPE: "BYTEA", MODE: mode}}
        return SqlType("bytea", (), ENCODED, always(avro), plain(lambda text: encode(load(text))))

    return {f"binary={mode}": variant(mode, encode) for mode, encode in encoders.items()}


_ONE_BIT: Final[AvroType] = {"type": "boolean", "connect.parameters": {SOURCE_TYPE: "BIT"}}


def _is_one_bit(column: Column) -> bool:
    return column.type_mod in (-1, 1)


def _bit_avro(column: Column) -> AvroType:
    if _is_one_bit(column):
        return _ONE_BIT
    return semantic("bytes", BITS.key, length=str(column.type_mod))


def _little(text: str, size: int) -> bytes:
    # Java's BitSet, which Debezium takes them from, ends behind the last bit that is set.
    return int(text or "0", 2).to_bytes((size + 7) // 8, "little").rstrip(b"\x00")


def _bit_loader(column: Column) -> Load:
    size = column.type_mod

    def load(text: str) -> Any:
        if len(text) != size or text.strip("01"):
            raise NotRepresentable
        return _little(text, size)

    return _one_bit if _is_one_bit(column) else load


def _one_bit(text: str) -> bool:
    if text not in ("0", "1"):
        raise NotRepresentable
    return text == "1"


def _varbit(text: str) -> bytes:
    raise NotRepresentable(_little(text, len(text)))


def _varbit_loader(column: Column) -> Load:
    return _one_bit if column.type_mod == 1 else _varbit


def _varbit_avro(column: Column) -> AvroType:
    if column.type_mod == 1:
        return _ONE_BIT
    size = column.type_mod if column.type_mod > 0 else _VARBIT_MAX
    return semantic("bytes", BITS.key, length=str(size))


def _dump_bits(avro: AvroType) -> Dump:
    if not isinstance(avro, dict):
        raise TypeError("bits without their length")
    size = int(avro["connect.parameters"]["length"])
    if size == _VARBIT_MAX:
        size = 1  # no length: the value's text is sent as well, so do not pad to 2 GB
    return lambda value: f"{int.from_bytes(value, 'little'):0{size}b}"


BYTES: Final = shape("bytes", _dump_bytes, "bytea")
ENCODED: Final = AvroShape("string/BYTEA", _dump_encoded)
BIT: Final = shape("boolean/BIT", lambda v: "1" if v else "0", "bit")
BITS: Final = AvroShape("io.debezium.data.Bits", _dump_bits)

TYPES: Final = (
    SqlType(
        "bytea", (17,), BYTES, always("bytes"), plain(_bytea), 1001, "bytea",
        variants=variants(_bytea),
    ),
    SqlType("bit", (1560,), BITS, _bit_avro, _bit_loader, 1561),
    SqlType("bit varying", (1562,), BITS, _varbit_avro, _varbit_loader, 1563),
)  # fmt: skip
