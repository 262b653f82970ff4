"""Schema changes as Spark SQL; that Spark parses them is tested where Spark runs."""

from dataclasses import replace

import pytest

from schemas.control import Moved, Origin, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import Column, TableId
from schemas.types import BY_OID
from spark_consumers.dialects.spark import Older, older_value, quote, statements, type_name
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
            change(T, with_columns(*T.columns, Column("c", 1009, missing="{ a}"))),
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


def _older(oid: int, text: str, mod: int = -1, origin: Origin = Origin.TRIGGER) -> Older:
    column = Column("c", oid, mod, missing=text)
    wide = with_columns(*T.columns, column)
    return older_value(wide, column, replace(change(T, wide), origin=origin))


@pytest.mark.parametrize(
    ("oid", "mod", "text"),
    [
        *((oid, -1, text) for oid in (1082, 1114, 1184) for text in ("infinity", "-infinity")),
        (1082, -1, "0044-03-15 BC"),
        (1082, -1, "12000-01-01"),
        (1184, -1, "0044-03-15 12:00:00+00 BC"),
        (1700, 655366, "NaN"),
    ],
)
@pytest.mark.parametrize("origin", [Origin.TRIGGER, Origin.DEPARSED])
def test_what_spark_cannot_hold_of_older_rows_is_a_text_beside(
    oid: int, mod: int, text: str, origin: Origin
) -> None:
    assert _older(oid, text, mod, origin) == ("NULL", text)


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (790, "$1,000.50", "CAST('1000.50' AS DECIMAL(19,2))"),
        (1009, "{}", "CAST(array() AS ARRAY<STRING>)"),
        (1009, '{a,"b,c",NULL}', "CAST(array('a', 'b,c', NULL) AS ARRAY<STRING>)"),
        (1182, "{2024-01-02}", "CAST(array(CAST('2024-01-02' AS DATE)) AS ARRAY<DATE>)"),
        (16, "t", "CAST('t' AS BOOLEAN)"),
        (701, "Infinity", "CAST('Infinity' AS DOUBLE)"),
        (1114, "2024-01-02 03:04:05", "CAST('2024-01-02 03:04:05' AS TIMESTAMP_NTZ)"),
        (1184, "2024-01-02 03:04:05+02", "CAST('2024-01-02 01:04:05+00' AS TIMESTAMP)"),
        (86, "CAFE", "X'cafe'"),
        (3802, '{"a": 1}', "'{\"a\": 1}'"),
    ],
)
def test_older_rows_have_what_later_ones_would(oid: int, text: str, value: str) -> None:
    assert _older(oid, text) == (value, "")


def test_what_a_column_does_not_hold_of_older_rows_goes_beside_its_value() -> None:
    """Two dimensions are no value of an array; a timestamp of Spark has more digits than Avro's."""
    assert _older(1007, "{{1},{2}}") == ("NULL", "{{1},{2}}")
    assert _older(790, "1.000,50 €") == ("NULL", "1.000,50 €")
    assert _older(1114, "2024-01-02 03:04:05.1234", 3) == (
        *("CAST('2024-01-02 03:04:05.1234' AS TIMESTAMP_NTZ)", ""),
    )


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (1082, "2024-1-2", "CAST('2024-1-2' AS DATE)"),
        (1114, "2024-01-02", "CAST('2024-01-02' AS TIMESTAMP_NTZ)"),
        (1009, "{}", "CAST(array() AS ARRAY<STRING>)"),
        (701, "1e2", "CAST('100' AS DOUBLE)"),
    ],
)
def test_a_statement_s_constant_is_read_as_the_source_does(oid: int, text: str, value: str) -> None:
    assert _older(oid, text, origin=Origin.DEPARSED) == (value, "")


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (1184, "2024-01-02 03:04:05"),  # in the time zone of a session
        (1114, "Infinity"),
        (1700, "nan"),
        (2950, "A0"),
        (2951, "{A0}"),
        (1009, "{a,null}"),
        (600, "(1,2)"),
    ],
)
def test_a_statement_s_constant_that_nobody_knows_is_refused(oid: int, text: str) -> None:
    with pytest.raises(NotExpressible, match="no safe form") as raised:
        _older(oid, text, (10 << 16 | 2) + 4 if oid == 1700 else -1, Origin.DEPARSED)
    assert raised.value.hint == LOAD_AGAIN


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
