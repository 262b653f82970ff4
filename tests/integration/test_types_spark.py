"""Spark's from_avro and our SQL give the text that the Python lane gives."""

import json
import re
import struct
from typing import TYPE_CHECKING, Any

import pytest

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import Column, TableId, TableSchema
from schemas.types import TypeOptions
from spark_consumers.decode import RowDecoder, spark_columns, split
from tests.schemas.types.values import CHOSEN, SAMPLES, Sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TX = TransactionConstants(700, 99, 1, 1, 0, 0, 1)
FLOATS = ("real", "double precision", "point")


def table_of(sample: Sample) -> TableSchema:
    return TableSchema(TableId("s", "t"), (sample.column("it's 值"), Column("n", 23)))


READABLE = [
    pytest.param(sample, EnvelopeOptions(types=options), id=f"{choice}: {sample.type_name}")
    for choice, options, sample in (*(("default", TypeOptions(), s) for s in SAMPLES), *CHOSEN)
    if spark_columns(envelope_schema("p", table_of(sample), EnvelopeOptions(types=options)))
    is not None
]


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.strip("()").split(",")]


def is_same(sample: Sample, got: str | None, want: Any) -> bool:
    """Equal texts, or texts of the same float (Java and C write them differently)."""
    if got == want or got is None:
        return bool(got == want)
    if sample.type_name not in FLOATS and not re.match(r"numeric|money", sample.type_name):
        return False
    size = "<f" if sample.type_name == "real" else "<d"
    pairs = zip(numbers(got), numbers(want), strict=True)
    return all(struct.pack(size, g) == struct.pack(size, w) for g, w in pairs)


@pytest.mark.parametrize(("sample", "options"), READABLE)
def test_spark_gives_the_texts_of_python(
    spark: "SparkSession", sample: Sample, options: EnvelopeOptions
) -> None:
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import col, expr

    table = table_of(sample)
    schema = envelope_schema("p", table, options)
    encoder, decoder = (
        compile_encoder(table, prefix="p", schema_id=1, database="d", options=options),
        RowDecoder(schema),
    )
    payloads = [
        bytes(split(encoder.encode("c", "", None, [cell, None], TX, 1, at))[1])
        for at, cell in enumerate([*(t.encode() for t in sample.texts), None])
    ]
    columns = spark_columns(schema)
    assert columns is not None

    frame = spark.createDataFrame([(bytearray(p),) for p in payloads], "payload binary")
    rows = (
        frame.select(from_avro(col("payload"), json.dumps(schema)).alias("value"))
        .select(
            "value.source.ordinal",
            *(expr(sql).alias(f"c{i}") for i, (_, sql) in enumerate(columns)),
        )
        .orderBy("ordinal")
        .collect()
    )

    want = [decoder.decode(payload).after for payload in payloads]
    for row, cells, text in zip(rows, want, [*sample.texts, None], strict=True):
        assert cells is not None
        assert is_same(sample, row["c0"], cells[0]), (text, row["c0"], cells[0])
        assert row["c1"] is None
