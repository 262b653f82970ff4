"""What is no value of its schema is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import envelope_schema
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.decode import RowDecoder, split
from spark_consumers.decode.rows import is_ours
from tests.producer.core.records.test_encode import changes

TX = TransactionConstants(700, 99, 1, 1, 0, 0, 1)


@settings(max_examples=300, deadline=None)
@given(changes(), st.data())
def test_values_that_end_early_are_refused(
    change: tuple[TableSchema, tuple[Any, ...]], data: st.DataObject
) -> None:
    table, arguments = change
    encoder = compile_encoder(table, prefix="bank", schema_id=42, database="bank")
    decoder = RowDecoder(envelope_schema("bank", table))
    payload = bytearray(split(encoder.encode(*arguments))[1])

    del payload[data.draw(st.integers(0, len(payload) - 1)) :]

    with pytest.raises((ValueError, LookupError, EOFError)):
        decoder.decode(bytes(payload))


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
