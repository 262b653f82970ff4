"""Worked examples of style `b`, byte by byte."""

from dataclasses import replace

import pytest

from gauss_cdc_lab.emulator.model import Field, Heartbeat, Mode, Op, Row, Transaction
from schemas.positions import Lsn
from tests.gauss_cdc_lab.emulator.formats.made import insert, number, sent, transaction

PLAIN = Mode(parallel_decode_num=2, decode_style="b", include_timestamp=False)
TIMED = replace(PLAIN, include_timestamp=True)

E1 = """00 00 00 19 00 00 00 00 0C FE 5C 80 42 00 00 00
        00 00 00 09 35 00 00 00 00 0C FE 5C 80 46"""
E2 = """00 00 00 33 00 00 00 00 0C FE 5D 40 49 00 06 70
        75 62 6C 69 63 00 05 74 65 73 74 31 4E 00 02 00
        01 61 00 00 00 17 00 00 00 01 31 00 01 62 00 00
        00 17 00 00 00 01 32 46"""
E3 = """00 00 00 12 00 00 00 00 0C FE 5E 68 43 58 00 00
        00 00 00 01 31 1C 46"""
E4 = """00 00 00 50 00 00 00 00 0C FE 6A 10 55 00 06 70
        75 62 6C 69 63 00 02 74 32 4E 00 03 00 02 69 64
        00 00 00 17 00 00 00 01 37 00 06 22 4E 61 6D 65
        22 00 00 00 19 FF FF FF FF 00 01 63 00 00 04 13
        00 00 00 00 4F 00 01 00 02 69 64 00 00 00 17 00
        00 00 01 37 46"""
E5 = """00 00 00 17 00 00 00 00 0C FE 6B 00 44 00 06 70
        75 62 6C 69 63 00 04 6E 6F 70 6B 46"""
E6 = """00 00 00 44 00 00 00 00 0C FE 70 00 42 00 00 00
        00 00 00 09 38 00 00 00 00 0C FE 70 00 58 00 00
        00 00 00 01 31 1F 54 00 00 00 1D 32 30 32 34 2D
        31 32 2D 31 37 20 31 30 3A 30 30 3A 30 30 2E 31
        32 33 34 35 36 2B 30 38 46"""
E7 = """00 00 00 43 00 00 00 00 0C FE 70 00 42 00 00 00
        00 00 00 09 38 00 00 00 00 0C FE 70 00 54 00 00
        00 1D 32 30 32 34 2D 31 32 2D 31 37 20 31 30 3A
        30 30 3A 30 30 2E 31 32 33 34 35 36 2B 30 38 4E
        00 00 00 03 63 64 63 46"""
E8 = """00 00 00 34 00 00 00 00 0C FE 72 00 43 58 00 00
        00 00 00 01 31 1F 54 00 00 00 1D 32 30 32 34 2D
        31 32 2D 31 37 20 31 30 3A 30 30 3A 30 30 2E 31
        32 33 34 35 36 2B 30 38 46"""
E9 = """00 00 00 19 00 00 00 00 0C FE 5C 80 42 00 00 00
        00 00 00 09 35 00 00 00 00 0C FE 5C 80 50 00 00
        00 33 00 00 00 00 0C FE 5D 40 49 00 06 70 75 62
        6C 69 63 00 05 74 65 73 74 31 4E 00 02 00 01 61
        00 00 00 17 00 00 00 01 31 00 01 62 00 00 00 17
        00 00 00 01 32 50 00 00 00 12 00 00 00 00 0C FE
        5E 68 43 58 00 00 00 00 00 01 31 1C 50 00 00 00
        00"""
E10 = (
    bytes.fromhex("0000002C 00000000 0CFE64D0")
    + b"BEGIN CSN: 2359 first_lsn: 0/CFE64D0"
    + bytes.fromhex("0000003C 00000000 0CFE6500")
    + b"table public test1 INSERT: a[integer]:3 b[integer]:4"
    + bytes.fromhex("00000019 00000000 0CFE6620")
    + b"COMMIT XID: 78110"
    + bytes(4)
)
E14 = """00 00 00 21 00 00 00 00 0C FE 73 00 68 00 00 00 00 0C FE 73 00 00 00 00 00 0C FE 73 00
         00 00 01 93 D2 57 F5 7B 46"""

UPDATE = Row(
    Lsn(0xCFE6A10),
    Op.UPDATE,
    "public",
    "t2",
    (number("id", 7), Field("Name", "text", 25, None), Field("c", "varchar", 1043, b"")),
    (number("id", 7),),
)
DELETE = Row(Lsn(0xCFE6B00), Op.DELETE, "public", "nopk", None, None)


def at(csn: int, xid: int, first: int, end: int, *items: Row) -> Transaction:
    return replace(
        transaction(*items, xid=xid),
        csn=csn,
        first_change_lsn=Lsn(first),
        end_lsn=Lsn(end),
    )


def in_test1(lsn: int, a: int, b: int) -> Row:
    return insert(lsn, number("a", a), number("b", b), table="test1")


@pytest.mark.parametrize(
    ("mode", "product", "fed", "number_", "hexes"),
    [
        (PLAIN, "og5", at(2357, 78108, 0xCFE5C80, 0xCFE5E68, in_test1(0xCFE5D40, 1, 2)), 0, E1),
        (PLAIN, "og5", at(2357, 78108, 0xCFE5C80, 0xCFE5E68, in_test1(0xCFE5D40, 1, 2)), 1, E2),
        (PLAIN, "og5", at(2357, 78108, 0xCFE5C80, 0xCFE5E68, in_test1(0xCFE5D40, 1, 2)), 2, E3),
        (PLAIN, "gaussdb", at(1, 1, 1, 1, UPDATE), 1, E4),
        (PLAIN, "gaussdb", at(1, 1, 1, 1, DELETE), 1, E5),
        (TIMED, "og6", at(2360, 78111, 0xCFE7000, 0xCFE7200), 0, E6),
        (
            replace(TIMED, include_user=True),
            "gaussdb",
            replace(at(2360, 78111, 0xCFE7000, 0xCFE7200), user="cdc"),
            0,
            E7,
        ),
        (TIMED, "og6", at(2360, 78111, 0xCFE7000, 0xCFE7200), 1, E8),
        (
            replace(PLAIN, sending_batch=True),
            "gaussdb",
            at(2357, 78108, 0xCFE5C80, 0xCFE5E68, in_test1(0xCFE5D40, 1, 2)),
            0,
            E9,
        ),
        (
            replace(PLAIN, sending_batch=True, decode_style="t"),
            "gaussdb",
            at(2359, 78110, 0xCFE64D0, 0xCFE6620, in_test1(0xCFE6500, 3, 4)),
            0,
            E10.hex(),
        ),
        (
            replace(PLAIN, enable_heartbeat=True),
            "gaussdb",
            Heartbeat(0xCFE7300, 0xCFE7300, 0x193D257F57B),
            0,
            E14,
        ),
    ],
    ids=["E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9", "E10", "E14"],
)
def test_a_worked_example(
    mode: Mode, product: str, fed: Transaction | Heartbeat, number_: int, hexes: str
) -> None:
    assert sent(mode, [fed], product)[number_].payload.hex() == bytes.fromhex(hexes).hex()
