import io
import json
from dataclasses import replace
from typing import Any

import avro.schema
import fastavro
import pytest
from avro.io import BinaryDecoder, BinaryEncoder, DatumReader, DatumWriter
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import (
    EnvelopeOptions,
    column_name,
    envelope_schema,
    field_name,
    key_schema,
)
from schemas.tables import Column, TableId, TableSchema
from schemas.types import TypeOptions, UnknownType
from tests.schemas.types.values import SAMPLES, numeric_mod

TABLE = TableSchema(
    TableId("public", "account"),
    (
        Column("id", 20, nullable=False),
        Column("balance", 1700, numeric_mod(12, 2)),
        Column("at", 1184, nullable=False),
    ),
    key=("id",),
)


def fields(record: dict[str, Any]) -> list[str]:
    return [field["name"] for field in record["fields"]]


def test_the_envelope_is_debeziums() -> None:
    schema = envelope_schema("bank", TABLE)

    assert (schema["namespace"], schema["name"]) == ("bank.public.account", "Envelope")
    assert schema["connect.name"] == "bank.public.account.Envelope"
    assert fields(schema) == [
        "before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns",
    ]  # fmt: skip
    before, after, source = schema["fields"][:3]
    assert after["type"] == ["null", "Value"]
    assert before["type"][1]["fields"] == [
        {"name": "id", "type": "long"},
        {
            "name": "balance",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 12,
                    "connect.version": 1,
                    "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                    "logicalType": "decimal",
                },
            ],
            "default": None,
        },
        {
            "name": "at",
            "type": {
                "type": "string",
                "connect.version": 1,
                "connect.name": "io.debezium.time.ZonedTimestamp",
            },
        },
    ]
    assert fields(source["type"]) == [
        "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns",
        "schema", "table", "txId", "lsn", "xmin",
        "csn", "epoch", "seq", "ordinal", "exact", "unsent", "before_exact", "before_columns",
    ]  # fmt: skip


def test_what_we_append_is_optional() -> None:
    source = envelope_schema("bank", TABLE)["fields"][2]["type"]

    assert all(field["default"] is None for field in source["fields"][14:])


def test_keys_are_never_null() -> None:
    schema = key_schema("bank", TABLE)

    assert schema["fields"] == [{"name": "id", "type": "long"}]
    assert schema["connect.name"] == "bank.public.account.Key"
    with pytest.raises(ValueError, match="no primary key"):
        key_schema("bank", TableSchema(TABLE.id, TABLE.columns))


@pytest.mark.parametrize("nullable", [True, False])
def test_a_table_of_every_type_twice_is_avro_for_both_libraries(nullable: bool) -> None:
    columns = tuple(
        sample.column(f"列 {at}-{turn}", nullable=nullable)
        for at, sample in enumerate(SAMPLES)
        for turn in (1, 2)
    )
    table = TableSchema(TableId("s-1", "every.type"), columns, key=(columns[0].name,))

    for schema in (envelope_schema("p-1", table), key_schema("p-1", table)):
        fastavro.parse_schema(schema)
        avro.schema.parse(json.dumps(schema))


def test_other_alphabets_keep_their_real_name_as_well() -> None:
    table = TableSchema(
        TableId("public", "账户"), (Column("金额", 23), Column("2nd", 1082), Column("点", 600))
    )

    schema = envelope_schema("bank", table)

    assert schema["namespace"] == "bank.public._u8d26_u6237"
    amount, second, point = schema["fields"][0]["type"][1]["fields"]
    assert amount["name"] == "_u91d1_u989d"
    assert amount["type"][1]["connect.parameters"] == {"__debezium.source.column.name": "金额"}
    assert second["name"] == "_u0032nd"
    assert second["type"][1]["connect.name"] == "io.debezium.time.Date"
    assert second["type"][1]["connect.parameters"] == {"__debezium.source.column.name": "2nd"}
    # A record may stand a second time, by its name, and then has no place for it.
    assert "__debezium.source.column.name" not in point["type"][1].get("connect.parameters", {})


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20))
def test_a_column_survives_its_field_name(name: str) -> None:
    field = field_name(name)
    assert column_name(field) == name
    assert field.isascii()
    assert field.isidentifier()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (Column("c", 23, missing="7", nullable=False), 7),
        (Column("c", 16, missing="t", nullable=False), True),
        (Column("c", 25, missing="it's", nullable=False), "it's"),
        (Column("c", 1082, missing="1970-01-02", nullable=False), 1),
    ],
)
def test_rows_older_than_a_required_column_are_read_with_its_default(
    column: Column, value: object
) -> None:
    """The default stands where Debezium was recorded to have it (tests/golden/debezium)."""
    table = TableSchema(TableId("public", "t"), (Column("id", 23, nullable=False),), ("id",))
    wider = replace(table, columns=(*table.columns, column))
    old, new = (
        avro.schema.parse(
            json.dumps(_physical(envelope_schema("bank", one)["fields"][0]["type"][1]))
        )
        for one in (table, wider)
    )
    stream = io.BytesIO()
    DatumWriter(old).write({"id": 1}, BinaryEncoder(stream))
    stream.seek(0)

    assert DatumReader(old, new).read(BinaryDecoder(stream)) == {"id": 1, "c": value}
    field = envelope_schema("bank", wider)["fields"][0]["type"][1]["fields"][1]
    assert field["type"]["connect.default"] == field["default"]


@pytest.mark.parametrize(
    "column",
    [
        Column("c", 23, nullable=False),  # no default is known
        Column("c", 1700, missing="1.5", nullable=False),  # a record
        Column("c", 1007, missing="{1}", nullable=False),  # an array
        Column("c", 701, missing="NaN", nullable=False),  # not in JSON
        Column("c", 1082, missing="infinity", nullable=False),  # not in the type
    ],
)
def test_other_required_columns_have_no_default(column: Column) -> None:
    table = TableSchema(TableId("public", "t"), (column,))

    (field,) = envelope_schema("bank", table)["fields"][0]["type"][1]["fields"]

    assert "default" not in field
    assert "connect.default" not in field["type"]


def _physical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: _physical(v) for k, v in schema.items() if k != "logicalType"}
    return [_physical(item) for item in schema] if isinstance(schema, list) else schema


def test_an_unknown_type_has_no_schema() -> None:
    with pytest.raises(UnknownType):
        envelope_schema(
            "p",
            TableSchema(TableId("s", "t"), (Column("m", 16385),)),
            EnvelopeOptions(types=TypeOptions(unknown_types="fail")),
        )
