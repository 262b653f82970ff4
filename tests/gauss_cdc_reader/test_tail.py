"""What stands behind the rows is read by a pattern as fastavro reads it, or left to it."""

import io
import random
from typing import Any

import fastavro
import pytest

from gauss_cdc_reader.tail import RowTail, TailReader
from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import envelope_schema
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.decode.rows import REFUSALS
from tests import expressions

TABLE = TableSchema(TableId("s", "t"), (Column("id", 23, nullable=False),), ("id",))
SCHEMA = envelope_schema("bank", TABLE)
FIELDS = SCHEMA["fields"][2:]
WORDS = ("false", "true", "first", "last_in_data_collection", "incremental")


def value(at: int, *, word: str = "false", op: str = "c") -> bytes:
    """Return what stands behind the row of a value."""
    encoder = compile_encoder(TABLE, prefix="bank", schema_id=7, database="bank")
    tx = TransactionConstants(700 + at, 10**at, 1, 5 + at, 10**15 + at, 10**15, 1, snapshot=word)
    framed = encoder.encode(op, "", None, [b"1"], tx, 10**at, (1 << 3 * at) - 1)
    stream = io.BytesIO(framed[5:])
    rows: Any = {"type": "record", "name": "rows", "fields": SCHEMA["fields"][:2]}
    fastavro.schemaless_reader(stream, rows, None)
    return stream.read()


VALUES = [value(at, word=word, op=op) for at in range(18) for word in WORDS for op in "cur"]


def by_fastavro(data: bytes) -> RowTail:
    return TailReader(FIELDS)(io.BytesIO(data))


@pytest.fixture
def reader() -> TailReader:
    """One that knows the texts."""
    one = TailReader(FIELDS)
    one(io.BytesIO(VALUES[0]))
    return one


def test_every_value_is_read_by_the_pattern_as_by_fastavro(
    reader: TailReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [by_fastavro(data) for data in VALUES]
    monkeypatch.setattr(reader, "_schema", None)  # fastavro cannot be asked

    assert [reader(io.BytesIO(data)) for data in VALUES] == wanted
    assert wanted[-1] == RowTail("r", 1, 22, (1 << 51) - 1)


def test_the_pattern_reads_no_text_in_two_ways_again_and_again(reader: TailReader) -> None:
    assert reader._pattern is not None
    assert expressions.explodes(reader._pattern) is None
    for text in expressions.worst(reader._pattern, 600):
        reader._pattern.fullmatch(text)


def test_texts_of_another_server_are_learned(reader: TailReader) -> None:
    other = VALUES[1].replace(b"\x0apostgresql", b"\x0aPostgreSQL")
    for data in (other, other, VALUES[1]):
        assert reader(io.BytesIO(data)) == by_fastavro(data)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_bytes_are_read_as_by_fastavro_or_refused(reader: TailReader, seed: int) -> None:
    chance, read = random.Random(seed), 0
    for _ in range(3_000):
        data = bytearray(chance.choice(VALUES))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[at] = chance.choice(b'\x00\x01\x02\x04\x20\x40\x7e\x7f\x80\x82\xff"[]')
                case 1:
                    del data[at : at + chance.randint(1, 3)]
                case _:
                    data[at:at] = chance.randbytes(chance.choice((1, 2, 64)))
            data = data or bytearray(b"\x00")
        try:
            wanted = by_fastavro(bytes(data))
        except REFUSALS:
            with pytest.raises(REFUSALS):
                reader(io.BytesIO(data))
        else:
            read += 1
            assert reader(io.BytesIO(data)) == wanted
    assert read > 300


def test_a_long_text_is_not_taken_for_a_short_one(reader: TailReader) -> None:
    """A length of two bytes, of which the second is a letter."""
    place = VALUES[0].index(b"\x02", VALUES[0].index(b"bank", 30))
    size = VALUES[0][place + 1] // 2
    head, rest = VALUES[0][: place + 1], VALUES[0][place + 2 + size :]
    data = head + b"\x80 " + b"x" * 63 + rest

    with pytest.raises(REFUSALS):
        by_fastavro(data)
    with pytest.raises(REFUSALS):
        reader(io.BytesIO(data))
