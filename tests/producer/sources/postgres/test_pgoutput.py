import json
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.core.changes import Insert, Update
from producer.errors import DecodeError
from producer.sources.decoders import DECODERS
from producer.sources.postgres.pgoutput import decode
from schemas.tables import UNCHANGED
from tests.golden.record_pgoutput import meaning

GOLDEN = Path(__file__).parents[3] / "golden" / "pgoutput"
VECTORS = sorted(GOLDEN.glob("*.json"))
PAYLOADS = sorted(
    {
        bytes.fromhex(message["hex"])
        for path in VECTORS
        for message in json.loads(path.read_text(encoding="utf-8"))["messages"]
    }
)
ROW = b"I" + struct.pack(">I", 7) + b"N"


def test_the_plugin_stands_in_the_table() -> None:
    assert DECODERS["pgoutput"] is decode


def test_vectors_were_recorded() -> None:
    assert len(VECTORS) >= 15
    assert {chr(payload[0]) for payload in PAYLOADS} == set("BCDIMORTUY")


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_server_bytes_mean_what_was_reviewed(path: Path) -> None:
    messages = json.loads(path.read_text(encoding="utf-8"))["messages"]

    meanings = [meaning(bytes.fromhex(message["hex"])) for message in messages]

    assert meanings == [message["means"] for message in messages]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.hex()[:20])
def test_no_prefix_of_a_message_is_a_message(payload: bytes) -> None:
    for size in range(len(payload)):
        with pytest.raises(DecodeError):
            decode(payload[:size])


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.hex()[:20])
def test_bytes_left_over_are_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(payload + b"\0")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_a_decode_error(payload: bytes) -> None:
    with suppress(DecodeError):
        decode(payload)


@given(st.sampled_from(PAYLOADS), st.data())
def test_a_damaged_message_is_a_message_or_a_decode_error(
    payload: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(payload)
    place = data.draw(st.integers(0, len(payload) - 1))
    damaged[place] = data.draw(st.integers(0, 255))

    with suppress(DecodeError):
        decode(bytes(damaged))


@given(st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=30)), max_size=20))
def test_cells_come_back_as_they_were_written(cells: list[object]) -> None:
    written = b"".join(
        b"n" if cell is None
        else b"t" + struct.pack(">I", len(cell)) + cell if isinstance(cell, bytes)
        else b"u"
        for cell in cells
    )  # fmt: skip
    row = struct.pack(">H", len(cells)) + written

    assert decode(ROW + row) == Insert(7, cells)
    assert decode(b"U" + struct.pack(">I", 7) + b"O" + row + b"N" + row) == Update(
        7, "O", cells, cells
    )


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"S\0\0\0\1\1",  # streaming of open transactions
        b"P" + bytes(30),  # two-phase commit
        b"?",
        ROW + b"\0\1b\0\0\0\0011",  # a binary value
        ROW + b"\0\1t\xff\xff\xff\xff",  # a length beyond the frame
        b"I\0\0\0\7O\0\0",
        b"U\0\0\0\7Q\0\0N\0\0",
        b"U\0\0\0\7K\0\0K\0\0",
        b"D\0\0\0\7N\0\0",
        b"C\1" + bytes(24),  # flags
        b"T\0\0\0\0\4",
        b"T\xff\xff\xff\xff\0",
        b"M\2" + bytes(13),
        b"R\0\0\0\7s\0t\0x\0\0",  # replica identity
        b"R\0\0\0\7s\0t\0d\0\1\2c\0" + bytes(8),  # column flags
        b"Y\0\0\0\7\xff\0\0",
    ],
)
def test_what_we_did_not_ask_for_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(payload)


def test_errors_do_not_show_values() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(ROW + b"\0\1t\0\0\0\6secret!")

    assert "secret" not in str(caught.value)


def test_an_empty_schema_is_pg_catalog() -> None:
    assert "schema='pg_catalog'" in repr(decode(b"R\0\0\0\7\0t\0d\0\0"))
