"""Rows that the driver holds, as a DataFrame: an Arrow table, which Spark takes as it is.

Of tuples Spark makes an RDD, whose rows come from a Python worker that must start for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def given(
    spark: SparkSession, rows: Sequence[Sequence[object]], shape: StructType | str
) -> DataFrame:
    """Return a frame of rows that the driver holds; `shape` may be DDL, but not over Connect."""
    import pyarrow as pa  # noqa: PLC0415  only where Spark is
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    of = StructType.fromDDL(shape) if isinstance(shape, str) else shape
    assert isinstance(of, StructType)
    schema = to_arrow_schema(of)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    cells = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return spark.createDataFrame(pa.table(cells, schema=schema), of)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return Spark's own Arrow schema; 4.2 and later ask for the zone of timestamps."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  on executors

    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)  # type: ignore[arg-type,unused-ignore]


def struct(**types: DataType | str) -> StructType:
    """Return a shape of columns with these types."""
    from pyspark.sql.types import StructType  # noqa: PLC0415  only where Spark is

    out = StructType()
    for name, type_ in types.items():
        out.add(name, type_)
    return out
