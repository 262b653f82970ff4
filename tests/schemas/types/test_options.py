"""Whatever is chosen in [types]: ours read every value back, and strangers can read it."""

import io
import json
import re
from decimal import Decimal

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from producer.core.records.encode import TransactionConstants, compile_encoder, reference
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from schemas.types import TypeOptions, type_of
from spark_consumers.decode import RowDecoder, split
from tests.schemas.types.values import CHOSEN, SAMPLES, Sample, numeric_mod

TX = TransactionConstants(700, 99, 1, 1, 0, 0, 1)


NUMBER = re.compile(r"-?\$?[0-9][0-9,]*(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")


def is_same(sample: Sample, got: str, text: str) -> bool:
    """Equal texts, or another text that the column reads as the same numbers."""
    if got == text:
        return True
    if not re.match(r"money|numeric\(|real|double|point", sample.type_name):
        return False
    ours, theirs = (
        [Decimal(re.sub(r"[$,]", "", number)) for number in NUMBER.findall(side)]
        for side in (got, text)
    )
    return ours == theirs and bool(ours)


def table_of(*columns: Column) -> TableSchema:
    return TableSchema(TableId("s", "t"), columns)


@pytest.mark.parametrize(
    ("options", "sample"),
    [
        *(pytest.param(TypeOptions(), s, id=f"default: {s.type_name}") for s in SAMPLES),
        *(pytest.param(o, s, id=f"{choice}: {s.type_name}") for choice, o, s in CHOSEN),
    ],
)
def test_each_choice_loses_nothing(options: TypeOptions, sample: Sample) -> None:
    table = table_of(sample.column(nullable=False))
    envelope = EnvelopeOptions(types=options)
    schema = envelope_schema("p", table, envelope)
    arguments = {"prefix": "p", "schema_id": 1, "database": "d", "options": envelope}
    fast, slow = compile_encoder(table, **arguments), reference(table, **arguments)
    decoder = RowDecoder(schema)
    registry = SchemaRegistryClient.new_client({"url": "mock://options"})
    schema_id = registry.register_schema("s", Schema(json.dumps(schema), "AVRO"))
    strangers = AvroDeserializer(registry)
    parsed = fastavro.parse_schema(schema)

    for ordinal, text in enumerate(sample.texts):
        change = ("c", "", None, [text.encode()], TX, 1, ordinal)
        value = fast.encode(*change)
        payload = split(value)[1]

        assert value == slow.encode(*change)
        after = decoder.decode(payload).after
        assert after is not None
        assert is_same(sample, str(after[0]), text), (after, text)
        stream = io.BytesIO(payload)
        theirs = fastavro.schemaless_reader(stream, parsed, None)
        assert not stream.read()
        framed = b"\x00" + schema_id.to_bytes(4, "big") + bytes(payload)
        context = SerializationContext("s", MessageField.VALUE)
        assert repr(strangers(framed, context)["after"]) == repr(theirs["after"])


@pytest.mark.parametrize(
    ("option", "value", "column", "avro"),
    [
        ("decimal_handling", "string", Column("v", 1700, numeric_mod(9, 2)), "string"),
        ("decimal_handling", "double", Column("v", 1700), "double"),
        ("decimal_handling", "string", Column("v", 790), "string"),
        (
            "interval_handling", "string", Column("v", 1186),
            {"type": "string", "connect.version": 1, "connect.name": "io.debezium.time.Interval"},
        ),
        (
            "time_precision", "adaptive", Column("v", 1083, 3),
            {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Time"},
        ),
        (
            "time_precision", "adaptive-time-microseconds", Column("v", 1083, 3),
            {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTime"},
        ),
        (
            "time_precision", "connect", Column("v", 1082),
            {"type": "int", "connect.version": 1, "logicalType": "date",
             "connect.name": "org.apache.kafka.connect.data.Date"},
        ),
        (
            "time_precision", "connect", Column("v", 1083),
            {"type": "int", "connect.version": 1, "logicalType": "time-millis",
             "connect.name": "org.apache.kafka.connect.data.Time"},
        ),
        (
            "time_precision", "connect", Column("v", 1114),
            {"type": "long", "connect.version": 1, "logicalType": "timestamp-millis",
             "connect.name": "org.apache.kafka.connect.data.Timestamp"},
        ),
    ],
)  # fmt: skip
def test_the_schemas_are_those_of_debeziums_option(
    option: str, value: str, column: Column, avro: object
) -> None:
    assert type_of(column, TypeOptions(**{option: value})).avro(column) == avro  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("1 year 2 mons 3 days 04:05:06.78", "P1Y2M3DT4H5M6.78S"),  # of Debezium's documentation
        ("00:00:00", "P0Y0M0DT0H0M0S"),
        ("-1 days +02:03:04.5", "P0Y0M-1DT2H3M4.5S"),
        ("-00:00:00.5", "P0Y0M0DT0H0M-0.5S"),
    ],
)
def test_intervals_as_iso_text(text: str, iso: str) -> None:
    column = Column("v", 1186)
    assert type_of(column, TypeOptions(interval_handling="string")).load(text, column) == iso


@pytest.mark.parametrize("mode", ["base64", "base64-url-safe", "hex"])
def test_unsent_bytes_are_the_placeholder_in_the_same_spelling(mode: str) -> None:
    table = table_of(Column("id", 23), Column("v", 17, nullable=False))
    options = EnvelopeOptions(types=TypeOptions(binary_handling=mode))  # type: ignore[arg-type]
    encoder = compile_encoder(table, prefix="p", schema_id=1, database="d", options=options)
    decoder = RowDecoder(envelope_schema("p", table, options))

    value = encoder.encode("u", "", None, [b"1", UNCHANGED], TX, 1, 0)

    payload = bytes(split(value)[1])
    assert decoder.decode(payload).after == ["1", UNCHANGED]
    other_client = fastavro.schemaless_reader(
        io.BytesIO(payload), fastavro.parse_schema(envelope_schema("p", table, options)), None
    )
    decode = {"base64": "b64decode", "base64-url-safe": "urlsafe_b64decode"}
    import base64

    raw = other_client["after"]["v"]
    plain = bytes.fromhex(raw) if mode == "hex" else getattr(base64, decode[mode])(raw)
    assert plain == b"__debezium_unavailable_value"
