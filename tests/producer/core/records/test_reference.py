from typing import Any

import pytest

from producer.core.records.reference import (
    TransactionConstants,
    filled,
    identity,
    plans_of,
    reference,
)
from producer.errors import Unsupported
from schemas.envelope import EnvelopeOptions
from schemas.tables import UNCHANGED, Column, TableId, TableSchema, UserType
from schemas.types import TypeOptions

TX = TransactionConstants(700, 99, 1, 1, 0, 0, 1)
TABLE = TableSchema(TableId("s", "t"), (Column("a", 25), Column("b", 23)), key=("b",))


def test_an_unsent_value_is_filled_from_the_old_row() -> None:
    assert filled([b"old", None], [UNCHANGED, b"2"]) == [b"old", b"2"]


def test_an_old_key_is_what_the_stream_says_before_the_primary_key() -> None:
    assert identity(TABLE) == {"b"}
    assert identity(TableSchema(TABLE.id, TABLE.columns, ("b",), identity_columns=("a",))) == {"a"}


def test_a_type_that_is_not_in_the_table_is_refused() -> None:
    table = TableSchema(TABLE.id, (Column("m", 16385, type_name="mood"),))
    with pytest.raises(Unsupported, match="mood"):
        plans_of(table, EnvelopeOptions(types=TypeOptions(unknown_types="fail")))


@pytest.mark.parametrize("handling", ["json", "map"])
def test_an_unsent_hstore_has_the_mark_in_its_own_form(handling: Any) -> None:
    column = Column("h", 99_002, type_name="hstore", user_type=UserType("b", "hstore"))
    table = TableSchema(TABLE.id, (column,))
    options = EnvelopeOptions(types=TypeOptions(hstore_handling=handling))

    (plan,) = plans_of(table, options)

    mark = "__debezium_unavailable_value"
    expected: Any = {mark: mark} if handling == "map" else f'{{"{mark}":"{mark}"}}'
    assert plan.placeholder == expected


def test_bytes_that_are_no_text_are_in_exact() -> None:
    import io

    import fastavro

    from schemas.envelope import envelope_schema

    encoder = reference(TABLE, prefix="p", schema_id=1, database="d")
    value = encoder.encode("u", "O", [b"\xfe", b"1"], [b"a\xff", b"1"], TX, 1, 0)

    schema = fastavro.parse_schema(envelope_schema("p", TABLE))
    record = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
    assert record["after"]["a"] == "a\ufffd"
    assert record["source"]["exact"] == {"a": "\\x61ff"}
    assert record["source"]["before_exact"] == {"a": "\\xfe"}


def test_an_old_row_with_missing_cells_names_the_columns_it_has() -> None:
    from schemas.envelope import envelope_schema
    from spark_consumers.decode import RowDecoder, split

    encoder = reference(TABLE, prefix="p", schema_id=1, database="d")
    value = encoder.encode("d", "O", [UNCHANGED, b"1"], None, TX, 1, 0)

    assert RowDecoder(envelope_schema("p", TABLE)).decode(split(value)[1]).before == [
        UNCHANGED,
        "1",
    ]
