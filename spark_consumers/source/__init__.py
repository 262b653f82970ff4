"""Changes of a table as a data source of Spark: streams and batches of whole commits.

    spark.dataSource.register(GaussCdcSource)
    spark.readStream.format("gauss_cdc").options(**{
        "kafka.bootstrap.servers": "...", "registry": "http://...", "prefix": "bank",
        "table": "public.account", "startingVersion": "snapshot"}).load()

Python data sources need Spark 4.0 or later, and work over Spark Connect: nothing here asks for the
JVM.  An offset is a commit, so a micro-batch never has half of one.  With "tables" it has all that
its commits wrote into several tables.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_consumers.errors import SettingRefused
from spark_consumers.source.options import SourceOptions
from spark_consumers.source.reader import ChangesReader, ChangesStream
from spark_consumers.source.rows import definition, nested_definition


class GaussCdcSource(DataSource):
    """The data source `gauss_cdc`."""

    @classmethod
    def name(cls) -> str:
        """What `format("gauss_cdc")` names."""
        return "gauss_cdc"

    def schema(self) -> str:
        """Return the table's columns, or one for each of several tables, and ours."""
        options = SourceOptions.of(self.options)
        shapes, newest = options.shapes()
        if options.is_nested:
            return nested_definition(shapes, newest)
        (shape,) = shapes.values()
        return definition(shape, newest)

    def reader(self, schema: StructType) -> Any:
        """Return what reads a batch; raises SettingRefused for options that do not fit."""
        return ChangesReader(SourceOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802  Spark's name
        """Return what reads a stream; raises SettingRefused, also for an end: it has none."""
        options = SourceOptions.of(self.options)
        if options.end is not None:
            raise SettingRefused(
                "a stream has no endingVersion or endingTimestamp", hint="read() has"
            )
        return ChangesStream(options, schema)
