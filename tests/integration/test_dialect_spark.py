"""Spark's own parser reads what the dialect says."""

from typing import TYPE_CHECKING

import pytest

from tests.spark_consumers.dialects.spark_changes import EXAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("sql", [s for _, statements in EXAMPLES.values() for s in statements])
def test_spark_parses_every_statement(spark: "SparkSession", sql: str) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()

    plan = parser.parsePlan(sql).toString()

    assert "Unresolved" in plan or "Create" in plan


def test_spark_reads_a_constant_as_it_was_meant(spark: "SparkSession") -> None:
    from spark_consumers.dialects.spark import literal

    text = 'it\'s \\ "a" \\n %_'

    assert spark.sql(f"SELECT {literal(text)}").first()[0] == text  # type: ignore[index]
