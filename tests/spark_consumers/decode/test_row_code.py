"""The generated decoder reads what fastavro reads."""

import io
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.core.records.encode import TransactionConstants, compile_encoder
from producer.core.records.transaction_topic import Counted
from schemas.envelope import envelope_schema
from schemas.tables import Column, TableId, TableSchema
from schemas.types import type_of
from spark_consumers.decode import RowDecoder, split
from spark_consumers.decode.row_code import FALLBACK_ERRORS, is_ours, number, parts_function, reader
from tests.producer.core.records.test_encode import changes
from tests.schemas.types.values import SAMPLES, Sample

TX = TransactionConstants(700, 99, 1, 1, 0, 0, 1)


@settings(max_examples=400, deadline=None)
@given(changes())
def test_the_generated_code_reads_what_fastavro_reads(
    change: tuple[TableSchema, tuple[Any, ...]],
) -> None:
    table, arguments = change
    encoder = compile_encoder(table, prefix="bank", schema_id=42, database="bank")
    decoder = RowDecoder(envelope_schema("bank", table))

    payload = bytes(split(encoder.encode(*arguments))[1])

    assert decoder.decode(payload) == decoder.decode_slowly(payload)
    assert decoder.decode(payload) == decoder.decode_slowly(payload)  # now with what it remembers


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.type_name)
@pytest.mark.parametrize("nullable", [True, False])
def test_samples_of_every_type(sample: Sample, nullable: bool) -> None:
    table = TableSchema(TableId("s", "t"), (sample.column(nullable=nullable), Column("n", 23)))
    encoder = compile_encoder(table, prefix="p", schema_id=1, database="d")
    decoder = RowDecoder(envelope_schema("p", table))
    for ordinal, text in enumerate(sample.texts):
        payload = encoder.encode("c", "", None, [text.encode(), b"1"], TX, 1, ordinal)[5:]
        assert decoder.decode(payload) == decoder.decode_slowly(payload)


def test_remembered_parts_belong_to_their_transaction() -> None:
    table = TableSchema(TableId("s", "t"), (Column("n", 23),))
    encoder = compile_encoder(table, prefix="p", schema_id=1, database="d")
    read = RowDecoder(envelope_schema("p", table)).decode
    found = []
    for seq in (1, 2, 1, 300, 70_000):
        tx = TransactionConstants(seq + 600, seq, 1, seq, seq * 10**9, seq * 10**9, seq)
        change = read(encoder.encode("c", "", None, [b"5"], tx, seq * 100, seq)[5:])
        found.append((change.seq, change.ordinal))

    assert found == [(1, 1), (2, 2), (1, 1), (300, 300), (70_000, 70_000)]


@settings(max_examples=300, deadline=None)
@given(changes(), st.data())
def test_broken_values_are_refused_or_read_as_fastavro_does(
    change: tuple[TableSchema, tuple[Any, ...]], data: st.DataObject
) -> None:
    table, arguments = change
    encoder = compile_encoder(table, prefix="bank", schema_id=42, database="bank")
    decoder = RowDecoder(envelope_schema("bank", table))
    payload = bytearray(split(encoder.encode(*arguments))[1])

    del payload[data.draw(st.integers(0, len(payload) - 1)) :]

    with pytest.raises((ValueError, LookupError, EOFError)):
        decoder.decode(bytes(payload))


def test_a_row_may_have_a_place_in_debeziums_transaction() -> None:
    table = TableSchema(TableId("s", "t"), (Column("n", 23),))
    encoder = compile_encoder(table, prefix="p", schema_id=1, database="d")
    fields = envelope_schema("p", table)["fields"][0]["type"][1]["fields"]
    quickly = parts_function(fields)
    counted = Counted("700:99", total=10**9)
    for tx in (TX, replace(TX, counted=counted), TX, replace(TX, counted=counted)):
        found = quickly(encoder.encode("c", "", None, [b"5"], tx, 1, 3)[5:])
        assert (found.after, found.op, found.seq, found.ordinal) == (["5"], "c", 1, 3)


def test_bytes_left_over_are_refused() -> None:
    table = TableSchema(TableId("s", "t"), (Column("n", 23),))
    encoder = compile_encoder(table, prefix="p", schema_id=1, database="d")
    payload = encoder.encode("c", "", None, [b"5"], TX, 1, 0)[5:]

    with pytest.raises(ValueError, match="does not fill"):
        RowDecoder(envelope_schema("p", table)).decode(payload + b"\x00")


def test_an_envelope_with_other_fields_is_left_to_fastavro() -> None:
    table = TableSchema(TableId("s", "t"), (Column("n", 23),))
    schema = envelope_schema("p", table)
    assert is_ours(schema)
    schema["fields"].append({"name": "later", "type": ["null", "long"], "default": None})
    assert not is_ours(schema)

    payload = compile_encoder(table, prefix="p", schema_id=1, database="d").encode(
        "c", "", None, [b"5"], TX, 1, 0
    )[5:] + b"\x00"  # fmt: skip

    assert RowDecoder(schema).decode(payload).after == ["5"]


@given(st.integers(-(2**63), 2**63 - 1))
def test_number_is_fastavros(value: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, value)
    assert number(out.getvalue(), 0) == (value, len(out.getvalue()))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.type_name)
def test_the_reader_of_any_type_is_fastavros(sample: Sample) -> None:
    column = sample.column()
    entry = type_of(column)
    avro, value = entry.avro(column), entry.zero_of(column)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, avro, value)

    assert reader(avro)(out.getvalue(), 0) == (value, len(out.getvalue()))


def test_nothing_is_no_value() -> None:
    with pytest.raises(FALLBACK_ERRORS):
        parts_function([])(b"")
