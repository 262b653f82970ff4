r"""Print the changes of one table with plain Spark, through changes of its columns.

spark-submit --packages CONNECTORS \
    plain_spark.py localhost:9092 http://localhost:8081 bank.public.account state/account

CONNECTORS are spark-sql-kafka-0-10_2.13 and spark-avro_2.13 (org.apache.spark) of your Spark's
version; the last argument is the folder of the checkpoint.  After a crash a micro-batch may come
again: a sink that is not idempotent compares `position`.
"""

import json
import sys
from functools import cache
from urllib.request import urlopen

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

bootstrap, registry, topic, checkpoint = sys.argv[1:]


def schema_at(path: str) -> str:
    """Get a schema from the registry, as text."""
    with urlopen(registry + path) as answer:  # noqa: S310  the user's own address
        return json.load(answer)["schema"]


@cache
def writer_schema(schema_id: int) -> str:
    """Get the schema that records name by this id; it never changes."""
    return schema_at(f"/schemas/ids/{schema_id}")


def decode(batch: DataFrame) -> DataFrame:
    """Read each record by the schema it was written with, as the newest one sees it."""
    # A value is a zero byte, four bytes of schema id, and Avro.  Tombstones have none.
    framed = batch.where("value IS NOT NULL").selectExpr(
        "*",
        "cast(conv(hex(substring(value, 2, 4)), 16, 10) AS int) AS schema_id",
        "substring(value, 6) AS payload",
    )
    newest = schema_at(f"/subjects/{topic}-value/versions/latest")
    options = {"mode": "FAILFAST", "avroSchema": newest}
    value = f.lit(None)
    for (schema_id,) in framed.select("schema_id").distinct().collect():
        mine = from_avro(f.col("payload"), writer_schema(schema_id), options)
        value = f.when(f.col("schema_id") == schema_id, mine).otherwise(value)
    return framed.withColumn("value", value)


def show(batch: DataFrame, _: int) -> None:
    """Print a micro-batch; write it to where you need it instead."""
    batch.persist()
    if not batch.isEmpty():
        changes = decode(batch).orderBy("partition", "offset")
        position = f.concat_ws("/", *(f"value.source.{x}" for x in ("epoch", "seq", "ordinal")))
        line = f.struct(position.alias("position"), "value.op", "value.before", "value.after")
        for (text,) in changes.select(f.to_json(line, {"ignoreNullFields": "false"})).collect():
            print(text, flush=True)
    batch.unpersist()


spark = SparkSession.builder.appName(topic).getOrCreate()
(
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
    .writeStream.foreachBatch(show)
    .option("checkpointLocation", checkpoint)
    .start()
    .awaitTermination()
)
