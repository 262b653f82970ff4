"""Records as the rows of the data source, against PostgreSQL's own texts; no Spark.

Each test reads them by Python and natively: both are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema
from schemas.types import TypeOptions
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import ShapeChanged
from spark_consumers.kafka.history import TableNote
from spark_consumers.source.batches import change_batches
from spark_consumers.source.rows import ChangeRows, check_shape, definition, made_of
from spark_consumers.spark.batches import Batches
from spark_consumers.spark.shapes import types_of
from tests.schemas.types.values import CHOSEN, SAMPLES, Sample, numeric_mod
from tests.spark_consumers.typed import UNFIT, WHOLE, expected, shown

TX = TransactionConstants(700, 99, 2, 5001, 1_714_561_200_123_456, 1_714_561_200_223_456, 0x20)
DEFAULT = TypeOptions()
ARROW = {
    "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(), "STRING": pa.string(), "BINARY": pa.binary(),
    "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "STRUCT<x:DOUBLE,y:DOUBLE>": pa.struct([("x", pa.float64()), ("y", pa.float64())]),
}  # fmt: skip
OURS = [
    ("_change_type", pa.string()),
    ("_commit_version", pa.int64()),
    ("_commit_timestamp", ARROW["TIMESTAMP"]),
    ("_ordinal", pa.int64()),
    ("_unsent", pa.list_(pa.string())),
    ("_exact", pa.map_(pa.string(), pa.string())),
]


def arrow(name: str) -> pa.DataType:
    if name.startswith("ARRAY<"):
        return pa.list_(arrow(name[len("ARRAY<") : -1]))
    if name.startswith("DECIMAL("):
        return pa.decimal128(*map(int, name[len("DECIMAL(") : -1].split(",")))
    return ARROW[name]


def columns_of(*schemas: dict[str, Any]) -> pa.Schema:
    """Arrow's columns of the newest of a table's schemas, and ours."""
    columns = {name: arrow(kind) for name, kind in types_of(schemas[-1]).items()}
    return pa.schema([*columns.items(), *OURS])


def shown_rows(batches: Batches[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches.taken() for row in batch.to_pylist()]


def rows_of(
    schema: dict[str, Any], *values: bytes, notes: Sequence[TableNote] = ()
) -> list[dict[str, Any]]:
    """The rows of both ways, which are the same."""
    wanted = columns_of(schema)
    out = []
    for native in (True, False):
        batches = change_batches(
            wanted.names[: -len(OURS)], wanted, {7: schema}, native_parts=native
        )
        for note in notes:
            batches.let_add(partial(ChangeRows.note, note=note))
        batches.take("t", [(0, at, value) for at, value in enumerate(values)])
        out.append(shown_rows(batches))
    assert repr(out[0]) == repr(out[1])
    return out[1]


def encoded(
    table: TableSchema,
    op: str,
    kind: str,
    before: Sequence[Any] | None,
    after: Sequence[Any] | None,
    options: TypeOptions = DEFAULT,
    schema_id: int = 7,
) -> bytes:
    encoder = compile_encoder(
        table,
        prefix="bank",
        schema_id=schema_id,
        database="bank",
        options=EnvelopeOptions(types=options),
    )
    cells = [
        None if row is None else [c.encode() if isinstance(c, str) else c for c in row]
        for row in (before, after)
    ]
    return bytes(encoder.encode(op, kind, *cells, TX, 0x40, 3))


def every() -> Iterator[tuple[TypeOptions, Sample]]:
    yield from ((DEFAULT, sample) for sample in SAMPLES)
    yield from ((options, sample) for _, options, sample in CHOSEN)


@pytest.mark.parametrize(("options", "sample"), list(every()))
def test_every_value_of_every_type_and_choice_is_the_sources(
    options: TypeOptions, sample: Sample
) -> None:
    for nullable in (True, False):
        table = TableSchema(TableId("s", "t"), (sample.column(nullable=nullable),))
        schema = envelope_schema("bank", table, EnvelopeOptions(types=options))
        (kind,) = types_of(schema).values()
        values = [encoded(table, "c", "", None, [text], options) for text in sample.texts]
        rows = rows_of(schema, *values)
        if nullable:
            (none,) = rows_of(schema, encoded(table, "c", "", None, [None], options))
            assert (none["v"], none["_exact"]) == (None, None)

        for text, row in zip(sample.texts, rows, strict=True):
            value, exact = row["v"], dict(row["_exact"] or ()).get("v")
            if isinstance(value, datetime) and value.tzinfo is not None:
                value = value.astimezone(UTC).replace(tzinfo=None)
            if isinstance(value, list) and value and isinstance(value[0], datetime):
                value = [v and v.replace(tzinfo=None) for v in value]
            wanted = expected(kind, text)
            if (value, exact) == (None, text) and (wanted is UNFIT or sample.type_name in WHOLE):
                continue
            assert shown(value) == wanted
            assert exact is None or (kind == "DOUBLE" and exact == text)


TABLE = TableSchema(
    TableId("s", "t"),
    (
        Column("id", 23, -1, "integer", nullable=False),
        Column("n", 1700, numeric_mod(9, 2), "numeric(9,2)", nullable=False),
        Column("v", 25, -1, "text", nullable=False),
    ),
    ("id",),
    identity_columns=("id",),
)


def test_a_change_becomes_the_rows_that_readers_of_changes_know() -> None:
    full = replace(TABLE, replica_identity=ReplicaIdentity.FULL)
    values = [
        encoded(TABLE, "r", "", None, ["1", "NaN", "x"]),
        encoded(TABLE, "u", "", None, ["1", "NaN", UNCHANGED]),
        encoded(TABLE, "u", "K", ["1", None, None], ["2", "1.00", "x"]),
        encoded(full, "u", "O", ["2", "NaN", "x"], ["2", "2.00", UNCHANGED]),
        encoded(TABLE, "d", "K", ["2", None, None], None),
        encoded(TABLE, "t", "", None, None),
    ]
    notes = [
        TableNote(TABLE.id, Version(2, 0), "truncate"),
        TableNote(TABLE.id, Version(2, 5), "gap", "rewritten"),
    ]

    rows = rows_of(envelope_schema("bank", TABLE), *values, notes=notes)

    nan = [("n", "NaN")]
    assert [
        (row["_change_type"], row["id"], row["n"] and str(row["n"]), row["v"], row["_unsent"],
         row["_exact"])
        for row in rows
    ] == [
        ("truncate", None, None, None, None, None),
        ("gap", None, None, None, None, [("why", "rewritten")]),
        ("insert", 1, None, "x", None, nan),
        ("update_postimage", 1, None, None, ["v"], nan),
        ("update_preimage", 1, None, None, ["n", "v"], None),
        ("update_postimage", 2, "1.00", "x", None, None),
        ("update_preimage", 2, None, "x", None, nan),
        ("update_postimage", 2, "2.00", "x", None, None),
        ("delete", 2, None, None, ["n", "v"], None),
        ("truncate", None, None, None, None, None),
    ]  # fmt: skip
    places = [(row["_commit_version"], row["_ordinal"]) for row in rows]
    assert places[:3] == [(int(Version(2, 0)), -1), (int(Version(2, 5)), -1),
                          (int(Version(2, 5001)), 3)]  # fmt: skip
    assert rows[2]["_commit_timestamp"].timestamp() == 1_714_561_200.123456


def test_tables_of_any_width_and_names_have_their_rows() -> None:
    wide = tuple(Column(f"c{n}", 23, -1, "integer") for n in range(1_600))
    cases = (Column("id", 23, -1, "integer"), Column("ID", 25, -1, "text"), Column("a.b`c", 25))
    matrix = (Column("m", 1007, -1, "integer[]"),)
    for columns, texts, wanted, exact in (
        ((), [], {}, None),
        (wide, [str(n) for n in range(1_600)], {f"c{n}": n for n in range(1_600)}, None),
        (cases, ["1", "x", "y"], {"id": 1, "ID": "x", "a.b`c": "y"}, None),
        (matrix, ["{1,NULL}"], {"m": [1, None]}, None),
        (matrix, ["{{1},{2}}"], {"m": None}, [("m", "{{1},{2}}")]),
        (matrix, ["[0:0]={7}"], {"m": None}, [("m", "[0:0]={7}")]),
    ):
        table = TableSchema(TableId("s", "t"), columns)
        (row,) = rows_of(envelope_schema("bank", table), encoded(table, "c", "", None, texts))
        assert {name: row[name] for name in wanted} == wanted
        assert row["_exact"] == exact


def test_a_frame_knows_of_which_schema_it_was_made() -> None:
    """Its query may begin long after: a column that was added meanwhile must not be left out."""
    text = definition(envelope_schema("bank", TABLE), 12)

    assert text.startswith("`id` INT, `n` DECIMAL(9,2), `v` STRING, _change_type STRING")
    assert "_commit_version BIGINT COMMENT 'columns as of schema 12', _commit" in text
    assert "COMMENT" not in definition(envelope_schema("bank", TABLE), None)
    for comment, made in (("columns as of schema 12", 12), ("my own", None)):
        version = StructField("_commit_version", LongType(), metadata={"comment": comment})
        assert made_of(StructType([version])) == made
    ours = replace(TABLE, columns=(Column("_Ordinal", 23, -1, "integer"),))
    with pytest.raises(ShapeChanged, match="has the name"):
        definition(envelope_schema("bank", ours), 12)


def test_a_schema_fits_a_query_by_the_names_of_columns() -> None:
    schema = envelope_schema("bank", TABLE)
    columns = {"id": "int", "n": "decimal(9,2)", "v": "string"}

    check_shape(schema, columns, is_newer=True)
    check_shape(schema, {"id": "bigint", "n": "decimal(11,2)", "later": "date"}, is_newer=False)
    with pytest.raises(ShapeChanged, match="added"):
        check_shape(schema, {"id": "int"}, is_newer=True)
    with pytest.raises(ShapeChanged, match="type changed") as changed:
        check_shape(schema, {**columns, "n": "decimal(9,4)"}, is_newer=False)
    assert "read the commits before it apart" in str(changed.value)
    with pytest.raises(ShapeChanged, match="type changed") as wider:
        check_shape(schema, {**columns, "id": "smallint"}, is_newer=True)
    assert "it continues" in str(wider.value)
