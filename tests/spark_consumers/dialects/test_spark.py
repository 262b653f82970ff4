"""Schema changes as Spark SQL; that Spark parses them is tested where Spark runs."""

from dataclasses import replace

import pytest

from schemas.control import Moved, SchemaChange
from schemas.tables import Column, TableId
from schemas.types import BY_OID
from spark_consumers.dialects.spark import quote, statements, type_name
from spark_consumers.errors import NotExpressible
from tests.spark_consumers.dialects.spark_changes import EXAMPLES, ID, A, N, T, change, with_columns


@pytest.mark.parametrize(("changed", "sql"), EXAMPLES.values(), ids=EXAMPLES)
def test_a_change_has_these_statements(changed: SchemaChange, sql: list[str]) -> None:
    assert statements(changed) == sql


def test_every_type_of_the_table_has_a_name_in_spark() -> None:
    for oid, entry in BY_OID.items():
        name = type_name(T, Column("c", oid))
        assert name.removeprefix("ARRAY<").rstrip(">").split("(")[0] in {
            *("SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN"),
            *("STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRUCT<x:DOUBLE,y:DOUBLE"),
        }, entry.name


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (change(T, with_columns(ID, replace(A, type_oid=23), N)), "values with it"),
        (change(T, with_columns(ID, A, replace(N, type_mod=(10 << 16 | 1) + 4))), "values with it"),
        (change(T, with_columns(ID, replace(A, type_mod=9), N)), "values with it"),
        (
            change(T, with_columns(ID, replace(A, type_oid=25, type_mod=-1), N),
                   values={"a": "explicit"}),
            "values with it",
        ),
        (
            change(T, with_columns(*T.columns, Column("c", 1007, missing="{1}"))),
            "no safe form",
        ),
        (
            change(T, with_columns(*T.columns, Column("c", 2950, missing="A0"))),
            "no safe form",
        ),
        (change(T, with_columns(*T.columns, Column("A", 25))), "differ by case"),
        (change(T, T, moved=Moved("delete", TableId("public", "t"), "(a < 5)")), "condition"),
    ],
)  # fmt: skip
def test_what_spark_cannot_express_is_refused_by_name(changed: SchemaChange, what: str) -> None:
    with pytest.raises(NotExpressible, match=what) as caught:
        statements(changed)

    assert caught.value.where["table"] == T.id


def test_a_name_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(NotExpressible, match="zero byte"):
        quote("a\0b")


def test_nothing_of_the_sources_text_is_repeated() -> None:
    changed = change(
        T,
        with_columns(*T.columns, Column("c", 23, default="evil()", has_default=True)),
        sql="ALTER TABLE evil",
        canonical="ALTER TABLE evil",
    )

    assert "evil" not in " ".join(statements(changed))
