"""Record batches: natively as in Python, and read back."""

import zlib
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.core.events import Record, Records
from producer.kafka.direct.records import CODECS, PlainPacker, codec, plain_crc32c
from producer.native import _native, parts

NATIVE = parts("auto")
Taken = list[tuple[str, int, int, bytes, int, int]]

octets = st.one_of(st.none(), st.binary(max_size=300))
headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=70)), max_size=4)
records_ = st.lists(
    st.tuples(st.sampled_from(["a", "ü"]), st.integers(0, 2), octets, octets, headers), max_size=30
)


def packed(packer: object, rows: Records, batch_bytes: int) -> Taken:
    """Pack at two times, with little room."""
    assert isinstance(packer, PlainPacker | _native.Packer)
    found: Taken = []
    at, now = 0, 1_700_000_000_000
    while at < len(rows):
        at = packer.add(rows, at, batch_bytes, now)
        now += 77
        if packer.size >= batch_bytes:
            packer.seal()
        found += packer.take()
    packer.seal()
    found += packer.take()
    assert packer.size == 0
    return found


@given(rows=records_, batch_bytes=st.integers(1, 2000))
def test_records_are_packed_natively_as_in_python(rows: list[Record], batch_bytes: int) -> None:
    native = parts("auto")  # places in order of first use
    assert native is not None
    plain = packed(PlainPacker(batch_bytes), rows, batch_bytes)

    assert packed(native.packer(batch_bytes), rows, batch_bytes) == plain
    assert sum(one[2] for one in plain) == len(rows)


@pytest.mark.parametrize("batch_bytes", [300, 5000, 1_000_000])
def test_rows_of_a_native_batch_are_packed_as_their_records(batch_bytes: int) -> None:
    assert NATIVE is not None
    batch = _native.batch_of(
        NATIVE.places,
        1_700_000_000,
        [(1, 7, 1 << 33, None), ((1 << 63) - 1, (1 << 32) - 1, (1 << 64) - 1, None)],
        [
            (at // 100, f"t{at % 3}", at % 2, b"key" * (at % 3) or None,
             None if at % 7 == 0 else bytes(at), at << (at % 40), at << 29)
            for at in range(200)
        ],
    )  # fmt: skip

    natively = packed(NATIVE.packer(batch_bytes), batch, batch_bytes)

    assert natively == packed(PlainPacker(batch_bytes), list(batch), batch_bytes)


def test_a_record_stands_as_kafka_documents_it() -> None:
    packer = PlainPacker(1000)
    packer.add([("t", 0, None, b"v", [("h", b"x")]), ("t", 0, b"k", None, [])], 0, 1000, 5)
    packer.seal()

    ((_, _, count, records, first, last),) = packer.take()

    assert (count, first, last) == (2, 5, 5)
    assert records.hex(" ") == "16 00 00 00 01 02 76 02 02 68 02 78 0e 00 00 02 02 6b 01 00"


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_checksums_are_the_same(first: bytes, second: bytes) -> None:
    assert _native.crc32c(second, _native.crc32c(first)) == plain_crc32c(first + second)


def unlz4(data: bytes) -> bytes:
    """Read a frame block by block."""
    assert data.startswith(bytes.fromhex("04224d186050fb"))
    out, at = b"", 7
    raw = pa.Codec("lz4_raw")
    while size := int.from_bytes(data[at : at + 4], "little"):
        block = data[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
        at += 4 + len(block)
        if size >> 31:
            out += block
        else:
            left = min(256 << 10, 600_000 - len(out))
            out += raw.decompress(block, decompressed_size=left, asbytes=True)
    assert data[at:] == bytes(4)
    return out


def test_what_is_compressed_is_read_back() -> None:
    data = b"".join(b"%d," % at for at in range(200_000))[:600_000]
    readers = {
        "none": bytes,
        "gzip": lambda made: zlib.decompress(made, wbits=31),
        "zstd": lambda made: pa.Codec("zstd").decompress(made, len(data), asbytes=True),
        "lz4": unlz4,
    }
    found: Sequence[str] = sorted(readers)
    assert set(found) == CODECS
    for name in found:
        assert readers[name](codec(name).compress(data)) == data
