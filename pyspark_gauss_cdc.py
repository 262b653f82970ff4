"""Where Spark 4 looks for data sources in Python: `pyspark_*`, with a `DefaultSource`.

So `format("gauss_cdc")` and `USING gauss_cdc` need no `spark.dataSource.register`, in SQL and in
declarative pipelines too.
"""

from spark_consumers.source import GaussCdcSource as DefaultSource

__all__ = ["DefaultSource"]
