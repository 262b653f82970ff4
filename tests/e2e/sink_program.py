"""A stream of the data source `gauss_cdc` into Parquet files, in a process that may be killed.

python -m tests.e2e.sink_program OPTIONS FOLDER on|end: it reads on, or ends when it has read all.
"""

import json
import sys

from pyspark.sql import SparkSession

from spark_consumers.source import GaussCdcSource

given, folder, how = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.streaming.fileSink.log.compactInterval": "1000",  # a manifest for each batch
}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
spark.dataSource.register(GaussCdcSource)
frame = spark.readStream.format("gauss_cdc").options(**json.loads(given)).load()
query = (
    frame.writeStream.format("parquet")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .start(f"{folder}/rows")
)
if how == "end":
    query.processAllAvailable()
    query.stop()
else:
    query.awaitTermination()
