"""A value in Python is what the source's text says, by each type of the table."""

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from gauss_cdc_reader.changes import ValueDecoder
from gauss_cdc_reader.values import converter, of_exact
from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import envelope_schema
from schemas.tables import Column, TableId, TableSchema
from schemas.types import NotRepresentable, TypeOptions, type_of
from spark_consumers.decode.rows import REFUSALS

VALUES = [
    (23, -1, "7", 7),
    (20, -1, "-9223372036854775808", -(2**63)),
    (701, -1, "1.5", 1.5),
    (16, -1, "t", True),
    (25, -1, "金", "金"),
    (17, -1, r"\x00ff", b"\x00\xff"),
    (1700, ((12 << 16) | 2) + 4, "-1234.50", Decimal("-1234.50")),
    (1700, -1, "1.50", Decimal("1.50")),
    (1082, -1, "2024-02-29", date(2024, 2, 29)),
    (1083, -1, "03:04:05.6", time(3, 4, 5, 600_000)),
    (1083, 3, "03:04:05.6", time(3, 4, 5, 600_000)),
    (1083, -1, "24:00:00", "24:00:00"),
    (1114, -1, "2024-02-29 03:04:05.000006", datetime.fromisoformat("2024-02-29 03:04:05.000006")),
    (1114, 3, "1969-12-31 23:59:59.999", datetime.fromisoformat("1969-12-31 23:59:59.999")),
    (1184, -1, "2024-02-29 03:04:05.6+02", datetime(2024, 2, 29, 1, 4, 5, 600_000, UTC)),
    (1186, -1, "-00:00:01.5", timedelta(seconds=-1.5)),
    (2950, -1, "c0ffee00-0000-4000-8000-000000000000", "c0ffee00-0000-4000-8000-000000000000"),
    (3802, -1, '{"a": 1}', '{"a": 1}'),
    (600, -1, "(1,2.5)", (1.0, 2.5)),
    (1007, -1, "{1,NULL,3}", [1, None, 3]),
    (1182, -1, "{2024-02-29}", [date(2024, 2, 29)]),
    (1560, 3, "101", "101"),
]


@pytest.mark.parametrize(("oid", "modifier", "text", "value"), VALUES)
def test_a_text_of_the_source_is_a_value(oid: int, modifier: int, text: str, value: Any) -> None:
    column = Column("c", oid, modifier)
    kind = type_of(column)
    convert = converter(kind.avro(column))
    sent = kind.load(text, column)

    assert (sent if convert is None else convert(sent)) == value


@pytest.mark.parametrize(
    ("mode", "load"), [("base64", str), ("base64-url-safe", str), ("hex", str)]
)
def test_bytes_that_travel_as_text_are_bytes(mode: Any, load: Callable[[str], str]) -> None:
    column = Column("c", 17)
    kind = type_of(column, TypeOptions(binary_handling=mode))
    convert = converter(kind.avro(column))

    assert convert is not None
    assert convert(load(kind.load(r"\xfbff00", column))) == b"\xfb\xff\x00"


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (1700, "-Infinity", Decimal("-Infinity")),
        (1082, "infinity", "infinity"),
        (1114, "0044-03-15 00:00:00 BC", "0044-03-15 00:00:00 BC"),
        (25, r"\x61ff", "a\udcff"),
    ],
)
def test_what_the_avro_type_does_not_hold_is_a_value_too(oid: int, text: str, value: Any) -> None:
    column = Column("c", oid)
    kind = type_of(column)
    if oid != 25:
        with pytest.raises(NotRepresentable):
            kind.load(text, column)

    assert of_exact(text, converter(kind.avro(column))) == value


def test_a_number_that_is_none_is_told_from_it() -> None:
    column = Column("c", 1700)
    assert of_exact("NaN", converter(type_of(column).avro(column))).is_nan()


@pytest.mark.parametrize("scale", [1 << 30, -(1 << 30)])
def test_a_number_that_no_decimal_holds_is_refused_as_any_broken_value(scale: int) -> None:
    columns = Column("id", 23, nullable=False), Column("n", 1700)
    table = TableSchema(TableId("s", "t"), columns, ("id",), identity_columns=("id",))
    encoder = compile_encoder(table, prefix="bank", schema_id=7, database="bank")
    tx = TransactionConstants(700, 99, 1, 5, 0, 0, 1)
    frame, value = 5, bytes(encoder.encode("c", "", None, [b"1", b"1.5"], tx, 1, 0))
    schema = envelope_schema("bank", table)
    record: Any = fastavro.schemaless_reader(io.BytesIO(value[frame:]), schema, None)
    record["after"]["n"] = {"scale": scale, "value": b"\x7f" * 9}
    broken = io.BytesIO()
    fastavro.schemaless_writer(broken, schema, record)
    reader = ValueDecoder(schema)

    assert reader.rows(7).take([value], 0) in {0, 1}  # 1: natively
    assert reader.rows(7).take([value[:frame] + broken.getvalue()], 0) == 0
    with pytest.raises(REFUSALS):
        reader.decode(broken.getvalue())
