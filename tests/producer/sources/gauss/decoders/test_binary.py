import struct

import pytest

from producer.errors import DecodeError
from producer.sources.decoders import Format
from producer.sources.gauss.decoders.binary import Binary
from producer.sources.gauss.decoders.messages import (
    NamedChange,
    NamedRow,
    RowShape,
    ServerHeartbeat,
    TxBegin,
    TxCommit,
)
from schemas.positions import Lsn

# Complete payloads as the manuals and the server describe them.
BEGIN = "00000019000000000CFE5C80420000000000000935000000000CFE5C8046"
INSERT = (
    "00000033000000000CFE5D404900067075626C6963000574657374314E0002000161000000170000000131000162"
    "00000017000000013246"
)
COMMIT = "00000012000000000CFE5E684358000000000001311C46"
UPDATE = (
    "00000050000000000CFE6A105500067075626C6963000274324E000300026964000000170000000137000622"
    "4E616D652200000019FFFFFFFF0001630000041300000000"
    "4F00010002696400000017000000013746"
)
DELETE = "00000017000000000CFE6B004400067075626C696300046E6F706B46"
BEGIN_XT = (
    "00000044000000000CFE7000420000000000000938000000000CFE700058000000000001311F54"
    "0000001D323032342D31322D31372031303A30303A30302E3132333435362B303846"
)
BEGIN_TN = (
    "00000043000000000CFE7000420000000000000938000000000CFE700054"
    "0000001D323032342D31322D31372031303A30303A30302E3132333435362B30384E0000000363646346"
)
COMMIT_XT = (
    "00000034000000000CFE72004358000000000001311F54"
    "0000001D323032342D31322D31372031303A30303A30302E3132333435362B303846"
)
HEARTBEAT = "00000021000000000CFE730068000000000CFE7300000000000CFE730000000193D257F57B46"
RAW_HEARTBEAT = "68000000000CFE7300000000000CFE730000000193D257F57B46"
AT = "2024-12-17 10:00:00.123456+08"
BATCH = bytes.fromhex(BEGIN[:-2] + "50" + INSERT[:-2] + "50" + COMMIT[:-2] + "5000000000")
PAYLOADS = [
    *map(
        bytes.fromhex,
        (BEGIN, INSERT, COMMIT, UPDATE, DELETE, BEGIN_XT, BEGIN_TN, COMMIT_XT, HEARTBEAT),
    ),
    BATCH,
]


def decoded(payload: bytes, encoding: str = "utf-8") -> list[object]:
    decoder = Binary(Format("mppdb_decoding", "b", batch=True, encoding=encoding))
    return [decoder.decode(*record) for record in decoder.split(Lsn(7), payload)]


def framed(body: bytes, ending: bytes = b"F") -> bytes:
    return struct.pack(">I", len(body)) + body + ending


def test_a_batch_of_a_whole_transaction() -> None:
    shape = RowShape(("a", "b"), (23, 23), ("", ""))

    assert decoded(BATCH) == [
        TxBegin(csn=2357, first_lsn=Lsn(0xCFE5C80)),
        NamedChange("c", "public", "test1", NamedRow(shape, [b"1", b"2"]), None),
        TxCommit(xid=78108, end_lsn=Lsn(0xCFE5E68)),
    ]


def test_an_update_has_the_new_row_before_the_old_and_null_is_not_empty() -> None:
    new = NamedRow(RowShape(("id", "Name", "c"), (23, 25, 1043), ("",) * 3), [b"7", None, b""])
    old = NamedRow(RowShape(("id",), (23,), ("",)), [b"7"])

    assert decoded(bytes.fromhex(UPDATE)) == [NamedChange("u", "public", "t2", new, old)]


def test_a_delete_without_identity_has_no_row() -> None:
    assert decoded(bytes.fromhex(DELETE)) == [NamedChange("d", "public", "nopk", None, None)]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (BEGIN_XT, TxBegin(78111, 2360, Lsn(0xCFE7000), AT)),
        (BEGIN_TN, TxBegin(None, 2360, Lsn(0xCFE7000), AT, user="cdc")),
        (COMMIT_XT, TxCommit(78111, None, AT, end_lsn=Lsn(0xCFE7200))),
        (HEARTBEAT, ServerHeartbeat(0xCFE7300, 0xCFE7300, 0x193D257F57B)),
        (RAW_HEARTBEAT, ServerHeartbeat(0xCFE7300, 0xCFE7300, 0x193D257F57B)),
    ],
)
def test_parts_that_products_send_or_do_not(payload: str, message: object) -> None:
    assert decoded(bytes.fromhex(payload)) == [message]


@pytest.mark.parametrize("order", ["XTNO", "ONTX", "NX", "O", ""])
def test_parts_of_begin_are_known_by_their_letter(order: str) -> None:
    parts = {
        "X": b"X" + bytes(7) + b"\5",
        "T": b"T\0\0\0\2at",
        "N": b"N\0\0\0\2me",
        "O": b"O\0\0\0\3",
    }
    body = bytes(8) + b"B" + struct.pack(">QQ", 9, 8) + b"".join(parts[x] for x in order)

    (begun,) = decoded(framed(body))

    assert begun == TxBegin(
        xid=5 if "X" in order else None,
        csn=9,
        first_lsn=Lsn(8),
        committed_at="at" if "T" in order else None,
        user="me" if "N" in order else None,
        origin_id=3 if "O" in order else None,
    )


def test_both_endings_of_a_batch() -> None:
    record = bytes.fromhex(BEGIN[:-2])

    for ending in (b"F", b"P\0\0\0\0", b"F\0\0\0\0"):
        assert len(decoded(record + ending)) == 1


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.hex()[24:30])
def test_no_prefix_of_a_message_is_a_message(payload: bytes) -> None:
    for size in range(len(payload)):
        with pytest.raises(DecodeError):
            decoded(payload[:size])


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.hex()[24:30])
def test_bytes_left_over_are_refused(payload: bytes) -> None:
    for more in (b"\0", b"F", b"P", b"\0\0\0\0\0"):
        with pytest.raises(DecodeError):
            decoded(payload + more)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.hex()[24:30])
def test_a_record_shorter_or_longer_than_it_says_is_refused(payload: bytes) -> None:
    for change in (-1, 1):
        wrong = struct.pack(">I", int.from_bytes(payload[:4], "big") + change) + payload[4:]
        with pytest.raises(DecodeError):
            decoded(wrong)


def test_an_unknown_letter_is_reported_with_its_position() -> None:
    payload = framed(struct.pack(">Q", 0xCFE6B00) + b"Z secret")

    with pytest.raises(DecodeError) as caught:
        decoded(payload)

    assert caught.value.where["letter"] == "Z"
    assert caught.value.where["position"] == "0/CFE6B00"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("letter", [b"B", b"C"])
def test_an_unknown_or_a_second_part_is_refused(letter: bytes) -> None:
    fixed = bytes(16) if letter == b"B" else b""
    xid = b"X" + bytes(8)

    for parts in (b"Q" + bytes(8), xid + xid, xid[:-1]):
        with pytest.raises(DecodeError):
            decoded(framed(bytes(8) + letter + fixed + parts))


def test_an_insert_has_no_old_row_and_a_delete_no_new_one() -> None:
    names = b"\0\1s\0\1t"

    for body in (b"I" + names + b"O\0\0", b"D" + names + b"N\0\0", b"U" + names + b"O\0\0N\0\0"):
        with pytest.raises(DecodeError):
            decoded(framed(bytes(8) + body))


def test_a_row_without_columns_is_one_that_was_not_sent() -> None:
    names = b"\0\1s\0\1t"

    for body in (b"I" + names + b"N\0\0", b"D" + names + b"O\0\0", b"U" + names + b"N\0\0O\0\0"):
        (change,) = decoded(framed(bytes(8) + body))
        assert isinstance(change, NamedChange)
        assert (change.new, change.old) == (None, None)


def test_a_column_named_twice_is_refused() -> None:
    column = b"\0\1a" + struct.pack(">II", 23, 0)
    body = bytes(8) + b"I\0\1s\0\1tN\0\2" + column * 2

    with pytest.raises(DecodeError, match="twice"):
        decoded(framed(body))


def test_rows_of_one_shape_share_it() -> None:
    first, second = (decoded(BATCH)[1] for _ in range(2))
    decoder = Binary(Format("mppdb_decoding", "b"))
    ((_, record),) = decoder.split(0, bytes.fromhex(INSERT))

    one, other = decoder.decode(0, record), decoder.decode(0, record)

    assert first == second
    assert one.new.shape is other.new.shape
