"""A stream of the data source `gauss_cdc` into Parquet files, in a process that may be killed.

python -m tests.e2e.sink_program OPTIONS FOLDER: it reads on until then.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_consumers.source import GaussCdcSource

MANIFESTS = "spark.sql.streaming.fileSink.log.compactInterval"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def into_files(spark: SparkSession, given: dict[str, str], folder: str) -> StreamingQuery:
    """Start the stream, or go on with it."""
    spark.dataSource.register(GaussCdcSource)
    spark.conf.set(MANIFESTS, "1000")  # one for each batch
    frame = spark.readStream.format("gauss_cdc").options(**given).load()
    return (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start(f"{folder}/rows")
    )


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    into_files(session, json.loads(sys.argv[1]), sys.argv[2]).awaitTermination()
