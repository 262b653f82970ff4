"""Values of every type in Spark against PostgreSQL's own texts.

`tests/integration/test_types_server.py` shows that the server writes the samples so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema, UserType
from schemas.types import TypeOptions, type_of
from spark_consumers.dialects.spark_types import spark_type
from spark_consumers.errors import ShapeChanged
from spark_consumers.spark.frames import net_changes, typed_changes
from tests.schemas.types.values import CHOSEN, SAMPLES, numeric_mod
from tests.spark_consumers.typed import UNFIT, WHOLE, expected, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT = TypeOptions()
TX = TransactionConstants(700, 99, 2, 5001, 1_714_561_200_123_456, 1_714_561_200_223_456, 0x20)
HSTORE = UserType("b", "hstore")
OF_USERS = (
    ("hstore", HSTORE, ('"a"=>"1", "b"=>NULL', "", '"bb"=>"\\\\", "金"=>"x, =>\\""')),
    ("mood", UserType("e", "mood", labels=("sad", "ok")), ("sad",)),
    ("price", UserType("d", "price", "numeric(10,2)", 1700, numeric_mod(10, 2)), ("1.50", "NaN")),
    ("span", UserType("r", "span"), ("[1,2)",)),
    ("vector", UserType("b", "vector"), ("[1,-2.5,3e-07]",)),
    ("ltree", UserType("b", "ltree"), ("Top.Science",)),
)


def tables() -> Iterator[tuple[TypeOptions, Sequence[tuple[Column, Sequence[str]]]]]:
    """Columns with their texts, by the choices under which they travel."""
    by_options: dict[TypeOptions, list[tuple[Column, Sequence[str]]]] = {TypeOptions(): []}
    for options, sample in [(TypeOptions(), s) for s in SAMPLES] + [(o, s) for _, o, s in CHOSEN]:
        by_options.setdefault(options, []).append((sample.column(), sample.texts))
    for options in (TypeOptions(), TypeOptions(hstore_handling="map")):
        by_options.setdefault(options, []).extend(
            (Column("v", 90_000 + at, -1, name, user_type=of), texts)
            for at, (name, of, texts) in enumerate(OF_USERS)
        )
    for options, columns in by_options.items():
        for some in (columns[at : at + 40] for at in range(0, len(columns), 40)):
            yield (
                options,
                [
                    (replace(column, name=f"{at} {column.type_name}", nullable=at % 2 == 0), texts)
                    for at, (column, texts) in enumerate(some)
                ],
            )


def test_every_value_of_every_type_and_choice_is_the_sources(spark: "SparkSession") -> None:
    """NOT NULL columns, too, where a value that does not fit has a zero in its place."""
    wrong = []
    for options, columns in tables():
        table = TableSchema(TableId("s", "t"), tuple(column for column, _ in columns))
        rows = [
            [texts[at % len(texts)] for _, texts in columns]
            for at in range(max(len(texts) for _, texts in columns))
        ]
        values = [encoded(table, "c", None, row, options, at) for at, row in enumerate(rows)]
        schema = envelope_schema("bank", table, EnvelopeOptions(types=options))
        frame = typed_changes(records(spark, *values), {7: schema})
        types = {f.name: f.dataType.simpleString().upper() for f in frame.schema["after"].dataType}
        # Python's datetime cannot be made of the first day of year 1 in a time zone.
        cells = [
            f"after.`{name}`" + "::timestamp_ntz" * (kind == "TIMESTAMP") + f" AS `{name}`"
            for name, kind in types.items()
        ]
        found = frame.selectExpr("offset", "exact", f"struct({', '.join(cells)}) AS after")
        for texts, row in zip(rows, sorted(found.collect()), strict=True):
            for column, text in zip(table.names(), texts, strict=True):
                value = shown(row.after[column])
                wanted = expected(types[column].replace("X:", "x:").replace("Y:", "y:"), text)
                exact = (row.exact or {}).get(column)
                kind = column.partition(" ")[2]
                if (value, exact) == (None, text) and (wanted is UNFIT or kind in WHOLE):
                    continue
                if types[column] == "DOUBLE" and exact == text:  # it has digits of its own
                    exact = None
                if value != wanted or exact is not None:
                    wrong.append((options, column, types[column], text[:60], value, exact))
    assert wrong == []


def test_a_null_of_every_type_is_null(spark: "SparkSession") -> None:
    """Each type of Spark is asked once, and each way to it."""
    ways: dict[tuple[str, str], tuple[TypeOptions, Column]] = {}
    for options, columns in tables():
        for column, _ in columns:
            kind = spark_type(type_of(column, options).avro(column))
            ways.setdefault((kind.name, kind.native), (options, replace(column, nullable=True)))
    for options in {options for options, _ in ways.values()}:
        columns = [column for of, column in ways.values() if of == options]
        named = (replace(column, name=f"{at} {column.name}") for at, column in enumerate(columns))
        table = TableSchema(TableId("s", "t"), tuple(named))
        value = encoded(table, "c", None, [None] * len(columns), options)
        schema = envelope_schema("bank", table, EnvelopeOptions(types=options))

        row = typed_changes(records(spark, value), {7: schema}).select("after.*").first()

        assert {name: cell for name, cell in row.asDict().items() if cell is not None} == {}


def test_what_was_not_sent_is_null_and_named(spark: "SparkSession") -> None:
    """Old keys, changed keys, replica identity FULL, TOAST; NOT NULL columns hold zeros in Avro."""
    table = TableSchema(
        TableId("s", "t"),
        (
            Column("id", 23, -1, "integer", nullable=False),
            Column("ID", 1700, numeric_mod(9, 2), "numeric(9,2)", nullable=False),
            Column("a.b `c'", 25, -1, "text", nullable=False),
            Column("at", 1184, -1, "timestamp with time zone", nullable=False),
        ),
        ("id",),
        identity_columns=("id",),
    )
    stamp = "2024-05-01 12:00:00.5+00"
    full = replace(table, replica_identity=ReplicaIdentity.FULL)
    unsent = ["1", "NaN", UNCHANGED, "infinity"]
    values = [
        encoded(table, "d", ["1", None, None, None], None),
        encoded(table, "u", ["1", None, None, None], ["2", "1.00", UNCHANGED, stamp]),
        encoded(table, "u", None, unsent),
        encoded(full, "u", ["1", "NaN", "x", stamp], unsent),
        encoded(full, "d", ["1", "NaN", "x", "infinity"], None),
        encoded(table, "t", None, None),
    ]
    frame = typed_changes(records(spark, *values), {7: envelope_schema("bank", table)})
    at = datetime.fromisoformat("2024-05-01 12:00:00.5")
    names = list(table.names())

    found = [
        (
            row.op, row.before and tuple(row.before), row.after and tuple(row.after),
            row.before_columns, row.unsent, row.exact, row.before_exact,
        )
        for row in frame.orderBy("offset").collect()
    ]  # fmt: skip

    strange = {"ID": "NaN", "at": "infinity"}
    assert found == [
        ("d", (1, None, None, None), None, ["id"], None, None, None),
        (
            "u",
            (1, None, None, None),
            (2, Decimal("1.00"), None, at),
            ["id"],
            [names[2]],
            None,
            None,
        ),
        ("u", None, (1, None, None, None), None, [names[2]], strange, None),
        ("u", (1, None, "x", at), (1, None, "x", None), None, None, strange, {"ID": "NaN"}),
        ("d", (1, None, "x", None), None, None, None, None, strange),
        ("t", None, None, None, None, None, None),
    ]
    row = frame.select("seq", "ordinal", "csn", "lsn", "committed_at", "xid", "epoch").first()
    assert tuple(row) == (
        5001,
        0,
        99,
        0x40,
        datetime.fromisoformat("2024-05-01 11:00:00.123456"),
        700,
        2,
    )


def test_bytes_that_are_not_text_are_null_and_their_digits_are_beside(
    spark: "SparkSession",
) -> None:
    table = TableSchema(TableId("s", "t"), (Column("v", 25, -1, "text", nullable=False),))
    encoder = compile_encoder(
        table, prefix="bank", schema_id=7, database="bank", encoding="SQL_ASCII"
    )
    value = bytes(encoder.encode("c", "", None, [b"a\xff"], TX, 0x40, 0))

    row = typed_changes(records(spark, value), {7: envelope_schema("bank", table)}).first()

    assert (row.after.v, row.exact) == (None, {"v": "\\x61ff"})


def test_columns_are_those_of_the_newest_schema(spark: "SparkSession") -> None:
    """Older rows lack new columns, and their types are widened or refused."""
    old = TableSchema(
        TableId("s", "t"),
        (Column("gone", 25, -1, "text"), Column("n", 21, -1, "smallint"), Column("v", 25)),
    )
    new = TableSchema(
        old.id,
        (Column("v", 25), Column("n", 20, -1, "bigint"),
         Column("more", 23, -1, "integer", nullable=False, missing="7")),
    )  # fmt: skip
    schemas = {7: envelope_schema("bank", old), 8: envelope_schema("bank", new)}
    values = [
        encoded(old, "c", None, ["x", "1", "a"]),
        encoded(new, "c", None, ["b", "5000000000", "2"], schema_id=8),
    ]

    frame = typed_changes(records(spark, *values), schemas).orderBy("offset")

    assert [row.after.asDict() for row in frame.collect()] == [
        {"v": "a", "n": 1, "more": None},
        {"v": "b", "n": 5_000_000_000, "more": 2},
    ]
    with pytest.raises(ShapeChanged, match="type changed"):
        typed_changes(records(spark, *values), schemas, newest=7)
    with pytest.raises(PySparkException, match="does not name"):
        typed_changes(records(spark, *values), {7: schemas[7]}).collect()


def test_a_group_comes_to_the_last_state_of_each_key(spark: "SparkSession") -> None:
    table = TableSchema(
        TableId("s", "t"),
        (Column("id", 23, -1, "integer", nullable=False), Column("v", 25, -1, "text"),
         Column("n", 1700, numeric_mod(9, 2), "numeric(9,2)")),
        ("id",),
        identity_columns=("id",),
    )  # fmt: skip
    key = lambda n: [n, None, None]  # noqa: E731
    history = [
        ("c", None, ["9", "x", "1"]),
        ("t", None, None),
        ("c", None, ["1", "x", "1.00"]),
        ("u", None, ["1", UNCHANGED, "NaN"]),
        ("u", None, ["2", UNCHANGED, "2.00"]),
        ("c", None, ["3", "x", None]),
        ("u", key("3"), ["4", UNCHANGED, "4.00"]),
        ("d", key("5"), None),
        ("c", None, ["5", "again", None]),
        ("c", None, ["6", "x", None]),
        ("d", key("6"), None),
    ]
    values = [encoded(table, *change, ordinal=at) for at, change in enumerate(history)]
    changes = typed_changes(records(spark, *values), {7: envelope_schema("bank", table)})

    found = [
        (row.op, row.key and row.key.id, row.after and tuple(row.after), row.unsent, row.exact)
        for row in net_changes(changes, ["id"]).orderBy("key").collect()
    ]

    assert found == [
        ("truncate", None, None, None, None),
        ("upsert", 1, (1, "x", None), None, {"n": "NaN"}),
        ("upsert", 2, (2, None, Decimal("2.00")), ["v"], None),
        ("delete", 3, None, None, None),
        ("upsert", 4, (4, None, Decimal("4.00")), ["v"], None),
        ("upsert", 5, (5, "again", None), None, None),
        ("delete", 6, None, None, None),
    ]


@pytest.mark.parametrize(
    "change", [("d", [None, "c"], None), ("u", [None, "c"], ["1", "new"])], ids=["deleted", "moved"]
)
def test_a_group_says_that_an_old_row_lacks_the_key(spark: "SparkSession", change) -> None:
    """The replica identity is another unique index: a copy by `id` would keep a deleted row."""
    table = TableSchema(
        TableId("s", "t"),
        (Column("id", 23, -1, "integer", nullable=False),
         Column("code", 25, -1, "text", nullable=False)),
        ("id",),
        identity_columns=("code",),
    )  # fmt: skip
    changes = typed_changes(
        records(spark, encoded(table, *change)), {7: envelope_schema("bank", table)}
    )

    assert net_changes(changes, ["code"]).where("op = 'delete'").first().key.code == "c"
    with pytest.raises(PySparkException, match="does not carry the key"):
        net_changes(changes, ["id"]).collect()


def records(spark: "SparkSession", *values: bytes) -> "DataFrame":
    rows = [(0, at, bytearray(value)) for at, value in enumerate(values)]
    return spark.createDataFrame(rows, "partition int, offset long, value binary")


def encoded(
    table: TableSchema,
    op: str,
    before: Sequence[Any] | None,
    after: Sequence[Any] | None,
    options: TypeOptions = DEFAULT,
    ordinal: int = 0,
    schema_id: int = 7,
) -> bytes:
    encoder = compile_encoder(
        table,
        prefix="bank",
        schema_id=schema_id,
        database="bank",
        options=EnvelopeOptions(types=options),
    )
    is_whole = before is None or None not in before
    kind = "" if before is None else "O" if is_whole else "K"
    cells = [
        None if row is None else [c.encode() if isinstance(c, str) else c for c in row]
        for row in (before, after)
    ]
    return bytes(encoder.encode(op, kind, *cells, TX, 0x40, ordinal))
