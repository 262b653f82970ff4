"""Values as SQL literals, the way all plugins but the binary style print them.

Which types stand bare is a list in the server's source; everything else is quoted,
and backslashes are not doubled.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from gauss_cdc_lab.emulator.frames import FEATURE_NOT_SUPPORTED, ErrorResponse
from gauss_cdc_lab.emulator.model import Field, Row
from schemas.tables import Missing

_BOOL: Final = 16
_BITS: Final = frozenset({1560, 1562})
_FLOAT4: Final = 700
_FLOAT8: Final = 701
# int8 int2 int4 oid float4 float8 numeric tinyint
_BARE: Final = frozenset({20, 21, 23, 26, _FLOAT4, _FLOAT8, 1700, 5545})
_FLOAT4_BYTES: Final = struct.Struct("f")


def literal(field: Field) -> bytes:
    """The value as SQL; PostgreSQL's unsent TOAST value has a word of its own.

    >>> literal(Field("a", "text", 25, b"it's")), literal(Field("a", "boolean", 16, b"t"))
    (b"'it''s'", b'true')
    """
    value, oid = field.value, field.type_oid
    if value is None:
        return b"null"
    if isinstance(value, Missing):
        return b"unchanged-toast-datum"
    if oid in _BARE:
        return value
    if oid in _BITS:
        return b"B'%b'" % value
    if oid == _BOOL:
        return b"true" if value == b"t" else b"false"
    return b"'%b'" % value.replace(b"'", b"''")


def short_literal(field: Field) -> bytes:
    """A literal of sql_decoding, which prints floats with extra_float_digits = 0."""
    digits = {_FLOAT4: 6, _FLOAT8: 15}.get(field.type_oid)
    if digits is None or not isinstance(field.value, bytes):
        return literal(field)
    return shortened(field.value, digits)


def shortened(text: bytes, digits: int) -> bytes:
    """A float's text with so many significant digits, leading zero as it was.

    >>> shortened(b".30000000000000004", 15), shortened(b"1.7976931348623157e+308", 15)
    (b'.3', b'1.79769313486232e+308')
    """
    number = float(text)
    if digits == 6:  # the server rounds the float4, not its decimal text
        try:
            number = _FLOAT4_BYTES.unpack(_FLOAT4_BYTES.pack(number))[0]
        except OverflowError:
            return text
    if not math.isfinite(number):
        return text  # NaN, Infinity; and what was rounded up beyond the largest double
    short = b"%.*g" % (digits, number)
    if text.startswith((b".", b"-.")):  # openGauss has no zero there, PostgreSQL does
        short = short.replace(b"0.", b".", 1) if short.startswith((b"0.", b"-0.")) else short
    return short


def known(row: Row) -> Row:
    """The row, or Refused if it lacks a TOAST value that this format always has."""
    for fields in (row.new, row.old):
        for field in fields or ():
            if isinstance(field.value, Missing):
                raise ErrorResponse(
                    f"column {field.name} of {row.schema}.{row.table} was not logged: openGauss"
                    " logs all values; give the emulated table REPLICA IDENTITY FULL",
                    FEATURE_NOT_SUPPORTED,
                )
    return row
