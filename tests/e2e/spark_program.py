"""A program of somebody else's with the data source `gauss_cdc`, in a process of its own.

python spark_program.py remote|master OPTIONS: over Spark Connect, or in a classic session; options
as JSON.  It prints what a batch and what a stream found, as JSON.
"""

import json
import sys

from pyspark.sql import SparkSession

from spark_consumers.source import GaussCdcSource

how, given = sys.argv[1:]
options = json.loads(given)
builder = SparkSession.builder.remote("local") if how == "remote" else SparkSession.builder
for name, value in {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
}.items():
    builder = builder.config(name, value)
spark = (builder if how == "remote" else builder.master("local[2]")).getOrCreate()
spark.dataSource.register(GaussCdcSource)

batch = spark.read.format("gauss_cdc").options(**options).load()
rows = batch.orderBy("_commit_version", "_ordinal").select("_change_type", "id").collect()
stream = spark.readStream.format("gauss_cdc").options(**options).load()
query = stream.writeStream.format("memory").queryName("found").trigger(availableNow=True).start()
query.awaitTermination()
sys.stdout.write(
    json.dumps(
        {
            "spark": spark.version,
            "batch": [list(row) for row in rows],
            "stream": spark.table("found").count(),
            "progress": len([one for one in query.recentProgress if one["numInputRows"]]),
        }
    )
)
spark.stop()
