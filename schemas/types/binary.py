"""Bytes and bit strings.

Debezium's Bits hold a bit string's number in little-endian bytes; the length
of `bit(n)` is a parameter of the schema, that of a `varbit` value is nowhere,
so every varbit also travels as text.
"""

from __future__ import annotations

import re
from typing import Any, Final

from schemas.tables import Column
from schemas.types.base import (
    SOURCE_TYPE,
    AvroType,
    Dump,
    Load,
    NotRepresentable,
    Shape,
    SqlType,
    always,
    plain,
    semantic,
    shape,
)

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


def _is_one_bit(column: Column) -> bool:
    return column.type_mod in (-1, 1)


def _bit_avro(column: Column) -> AvroType:
    if _is_one_bit(column):
        return {"type": "boolean", "connect.parameters": {SOURCE_TYPE: "BIT"}}
    return semantic("bytes", BITS.key, length=str(column.type_mod))


def _little(text: str, size: int) -> bytes:
    return int(text or "0", 2).to_bytes((size + 7) // 8, "little")


def _bit_loader(column: Column) -> Load:
    size = column.type_mod

    def load(text: str) -> Any:
        if len(text) != size or text.strip("01"):
            raise NotRepresentable
        return _little(text, size)

    def load_one(text: str) -> bool:
        if text not in ("0", "1"):
            raise NotRepresentable
        return text == "1"

    return load_one if _is_one_bit(column) else load


def _varbit(text: str) -> bytes:
    raise NotRepresentable(_little(text, len(text)))


def _varbit_avro(column: Column) -> AvroType:
    size = column.type_mod if column.type_mod > 0 else _VARBIT_MAX
    return semantic("bytes", BITS.key, length=str(size))


def _dump_bits(avro: AvroType) -> Dump:
    if not isinstance(avro, dict):
        raise TypeError("bits without their length")
    size = int(avro["connect.parameters"]["length"])
    if size == _VARBIT_MAX:
        size = 1  # no length: the value's text travels beside, never pad to 2 GB for it
    return lambda value: f"{int.from_bytes(value, 'little'):0{size}b}"


BYTES: Final = shape("bytes", _dump_bytes, "concat(chr(92), 'x', lower(hex({c})))")
BIT: Final = shape(
    "boolean/BIT", lambda v: "1" if v else "0", "CASE WHEN {c} THEN '1' WHEN NOT {c} THEN '0' END"
)
BITS: Final = Shape("io.debezium.data.Bits", _dump_bits, lambda _avro: None)

TYPES: Final = (
    SqlType("bytea", (17,), BYTES, always("bytes"), plain(_bytea), 1001, "bytea"),
    SqlType("bit", (1560,), BITS, _bit_avro, _bit_loader, 1561),
    SqlType("bit varying", (1562,), BITS, _varbit_avro, plain(_varbit), 1563),
)
