"""Bytes of the server's side, against worked examples."""

import struct

import pytest

from gauss_cdc_lab.emulator.frames import (
    ErrorResponse,
    copy_data,
    keepalive,
    read_status,
    xlog_data,
)

# 3.3: walEnd 0/CFE5E68, PRIMARY, NORMAL, reply requested.
KEEPALIVE = bytes.fromhex(
    "6B 68 5E FE 0C 00 00 00 00 02 00 00 00 01 00 00"
    "00 00 C0 A3 77 5B CC 02 00 01 00 00 00 00 00 00 00"
)
# 3.4: confirm 0/CFE5E68.
STATUS = bytes.fromhex(
    "72 68 5E FE 0C 00 00 00 00 68 5E FE 0C 00 00 00"
    "00 68 5E FE 0C 00 00 00 00 00 00 00 00 00 00 00"
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
    "00 00 C0 A3 77 5B CC 02 00 00 00 00 00 00 00 00 00"
)
# E11: BEGIN of E1 as a complete message.
XLOG_DATA = bytes.fromhex(
    "64 00 00 00 3B 77 00 00 00 00 0C FE 5E 00 00 00"
    "00 00 0C FE 5E 00 00 02 CC 5B 77 A3 C0 00 00 00"
    "00 19 00 00 00 00 0C FE 5C 80 42 00 00 00 00 00"
    "00 09 35 00 00 00 00 0C FE 5C 80 46"
)
SENT_AT = 0x0002_CC5B_77A3_C000


def test_a_keepalive_is_the_servers_struct() -> None:
    assert keepalive(0xCFE_5E68, SENT_AT, role=2, reply=True) == copy_data(KEEPALIVE)


def test_a_row_is_wrapped_big_endian() -> None:
    assert xlog_data(0xCFE_5E00, SENT_AT, XLOG_DATA[30:]) == XLOG_DATA


def test_a_status_is_read_however_much_follows() -> None:
    for more in (b"", b"\1\1\1"):
        status = read_status(STATUS + more)
        assert (status.flushed, status.reply_requested) == (0xCFE_5E68, False)


def test_what_the_jdbc_driver_sends_is_read() -> None:
    body = struct.pack(
        "<cQQQQQiiqB", b"r", 2**63 - 1, 7, 5, 2**63 - 1, 3, 2**31 - 1, 2**31 - 1, 9, 1
    )

    status = read_status(body + bytes(4) + b"\1\1\1")
    assert (status.written, status.flushed, status.reply_requested) == (7, 5, True)


@pytest.mark.parametrize("size", [1, 34, 64])
def test_a_short_status_is_refused(size: int) -> None:
    with pytest.raises(ErrorResponse, match="insufficient data left in message"):
        read_status(STATUS[:size])


def test_an_error_has_its_fields_in_the_servers_order() -> None:
    refused = ErrorResponse("m", "22023", number=7, module="B", detail="d", hint="h", context="w")

    body = b"SFATAL\0c7\0Mm\0C22023\0dB\0Dd\0Hh\0Ww\0\0"
    assert refused.frame("FATAL") == b"E" + (len(body) + 4).to_bytes(4, "big") + body
