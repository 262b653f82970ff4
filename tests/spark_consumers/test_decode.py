import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.core.records.encode import TransactionConstants, compile_encoder, compile_key_encoder
from schemas.control import (
    Head,
    Heartbeat,
    Origin,
    SchemaChange,
    change_to_avro,
    cut_to_avro,
)
from schemas.envelope import envelope_schema, key_schema
from schemas.load import avsc
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from spark_consumers.decode import RowDecoder, split
from spark_consumers.decode.control import decode_control
from spark_consumers.decode.rows import is_ours
from tests.producer.core.records.test_encode import changes
from tests.schemas.types.values import numeric_mod

TX = TransactionConstants(700, 99, 2, 5001, 1_714_561_200_123_456, 1_714_561_200_223_456, 0x20)
TABLE = TableSchema(
    TableId("public", "账户"),
    (
        Column("id", 20, nullable=False),
        Column("金额", 1700, numeric_mod(12, 2)),
        Column("note", 25, nullable=False),
        Column("at", 1184),
    ),
    key=("id",),
    identity_columns=("id",),
)
ROW = [b"7", b"90.00", b"text", b"2024-05-01 12:00:00.5+00"]
NAMES = ("id", "金额", "note", "at")


def sent(op: str, kind: str, before: Any, after: Any) -> Any:
    encoder = compile_encoder(TABLE, prefix="bank", schema_id=42, database="bank")
    schema_id, payload = split(encoder.encode(op, kind, before, after, TX, 0x40, 3))
    assert schema_id == 42
    return RowDecoder(envelope_schema("bank", TABLE)).decode(payload)


def framed(name: str, record: dict[str, Any], schema: dict[str, Any] | None = None) -> bytes:
    out = io.BytesIO(b"\x00\x00\x00\x00\x09")
    out.seek(5)
    fastavro.schemaless_writer(out, schema or avsc(name), record)
    return out.getvalue()


# ---------------------------------------------------------------- rows
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


def test_an_insert_arrives_as_the_sources_texts() -> None:
    change = sent("c", "", None, ROW)

    assert (change.seq, change.ordinal, change.op, change.columns) == (5001, 3, "c", NAMES)
    assert change.before is None
    assert change.after == ["7", "90.00", "text", "2024-05-01 12:00:00.5+00"]


def test_unsent_is_unchanged_and_the_placeholder_itself_is_a_value() -> None:
    placeholder = "__debezium_unavailable_value"

    assert sent("u", "", None, [*ROW[:2], UNCHANGED, None]).after[2] is UNCHANGED
    assert sent("u", "", None, [*ROW[:2], placeholder.encode(), None]).after[2] == placeholder


def test_an_old_key_leaves_the_rest_unsent() -> None:
    change = sent("d", "K", [b"7", None, None, None], None)

    assert change.before == ["7", UNCHANGED, UNCHANGED, UNCHANGED]
    assert change.after is None


def test_exact_text_stands_before_the_avro_value() -> None:
    old = [b"7", b"NaN", b"", b"infinity"]
    new = [b"7", None, b"", b"0044-03-15 01:02:03+00 BC"]

    change = sent("u", "O", old, new)

    assert change.before == ["7", "NaN", "", "infinity"]
    assert change.after == ["7", None, "", "0044-03-15 01:02:03+00 BC"]


def test_a_truncate_has_no_rows() -> None:
    change = sent("t", "", None, None)
    assert (change.op, change.before, change.after) == ("t", None, None)


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01x", b"{}12345"])
def test_what_is_not_framed_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="frame"):
        split(value)


def test_no_prefix_of_a_row_is_a_row() -> None:
    encoder = compile_encoder(TABLE, prefix="bank", schema_id=42, database="bank")
    payload = encoder.encode("u", "O", ROW, [*ROW[:2], b"b", None], TX, 1, 0)[5:]
    decoder = RowDecoder(envelope_schema("bank", TABLE))

    assert decoder.decode(payload).op == "u"
    for size in range(len(payload)):
        with pytest.raises((EOFError, ValueError, IndexError)):
            decoder.decode(payload[:size])


def test_confluents_deserializer_reads_rows_and_keys() -> None:
    registry = SchemaRegistryClient.new_client({"url": "mock://rows"})
    envelope, key = envelope_schema("bank", TABLE), key_schema("bank", TABLE)
    value_id = registry.register_schema("t-value", Schema(json.dumps(envelope), "AVRO"))
    key_id = registry.register_schema("t-key", Schema(json.dumps(key), "AVRO"))
    encoder = compile_encoder(TABLE, prefix="bank", schema_id=value_id, database="bank")
    read = AvroDeserializer(registry)

    record = read(
        encoder.encode("c", "", None, ROW, TX, 0x40, 3),
        SerializationContext("t", MessageField.VALUE),
    )
    key_record = read(
        compile_key_encoder(TABLE, prefix="bank", schema_id=key_id)(ROW),
        SerializationContext("t", MessageField.KEY),
    )

    assert record["after"] == {
        "id": 7,
        "_u91d1_u989d": Decimal("90.00"),
        "note": "text",
        "at": "2024-05-01T12:00:00.500000Z",
    }
    assert record["source"]["seq"] == 5001
    assert key_record == {"id": 7}


# ---------------------------------------------------------------- control records
HEAD = Head(7, 2, 3, "abc", 5001, 0x1C0, 12, 1_714_561_200_123_456)


def test_a_cut_is_read_by_its_writers_schema() -> None:
    cut = Heartbeat(HEAD)
    asked = []

    def schema_of(schema_id: int) -> dict[str, Any]:
        asked.append(schema_id)
        return avsc("cut")

    assert decode_control(framed("cut", cut_to_avro(cut)), schema_of) == cut
    assert asked == [9]


def test_fields_of_a_later_writer_are_passed_over() -> None:
    schema = json.loads(json.dumps(avsc("cut")))
    schema["fields"].insert(0, {"name": "later", "type": "string"})
    cut = Heartbeat(HEAD)
    value = framed("cut", {**cut_to_avro(cut), "later": "x"}, schema)

    assert decode_control(value, lambda _: schema) == cut


def test_a_schema_change_is_identified_by_its_name() -> None:
    change = SchemaChange(
        2, 5001, 0, 700, 99, 1, Origin.INFERRED, "ALTER TABLE", None, replace(TABLE, key=())
    )
    value = framed("schema_change", change_to_avro(change))

    assert decode_control(value, lambda _: avsc("schema_change")) == change


def test_a_row_is_no_control_record() -> None:
    with pytest.raises(ValueError, match="Envelope"):
        decode_control(b"\x00\x00\x00\x00\x09", lambda _: envelope_schema("bank", TABLE))
