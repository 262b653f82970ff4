"""The one place of the loop that knows Spark: a stream on cuts that wakes it.

The stream's content is not used and its checkpoint decides nothing; an action on
the batch's frame would cost a Spark job per batch for a number nobody needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from schemas.topics import Topics
from spark_consumers.job import Applier, make_foreach_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# librdkafka's names of settings that Kafka's Java client spells otherwise, or lacks.
_JAVA: Final = {
    "bootstrap.servers": "bootstrap.servers",
    "security.protocol": "security.protocol",
    "ssl.ca.location": "ssl.truststore.location",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "client.id": "client.id",
}


def spark_confs(partitions: int = 64, cores: int = 2) -> dict[str, str]:
    """Settings of a session that applies; each one was measured (docs: the consumer)."""
    return {
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.kafka.consumer.cache.capacity": str(max(64, 2 * partitions)),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def java_client(client: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka as options of Spark's Kafka source.

    >>> java_client({"bootstrap.servers": "b:9092", "linger.ms": "5"})
    {'kafka.bootstrap.servers': 'b:9092'}
    """
    out = {f"kafka.{_JAVA[name]}": value for name, value in client.items() if name in _JAVA}
    if "ssl.ca.location" in client:
        out["kafka.ssl.truststore.type"] = "PEM"
    mechanism = out.get("kafka.sasl.mechanism")
    if mechanism is not None and "sasl.username" in client:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        user, secret = (json.dumps(client[f"sasl.{f}"]) for f in ("username", "password"))
        out["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required username={user} password={secret};"
        )
    return out


def start_query(
    spark: SparkSession,
    applier: Applier,
    *,
    source: str,
    client: Mapping[str, str],
    checkpoint: str,
    stop: Callable[[], bool],
    linger: float = 0.0,
    wait: Callable[[float], object],
    trigger: str = "0 seconds",
) -> StreamingQuery:
    """Start the stream on cuts; `applier` has made its first pass before.

    Before the query is stopped `stop` must answer True, else it stays out its linger.
    """
    cuts = Topics(source).cuts
    frame = (
        spark.readStream.format("kafka")
        .options(**java_client(client))
        .options(
            **{
                "assign": json.dumps({cuts: [0]}),
                # The ledger decides where to go on, so a checkpoint that points outside of
                # the log, or none, must neither stop the query nor miss its first batch.
                "startingOffsets": "earliest",
                "failOnDataLoss": "false",
                "kafka.isolation.level": "read_committed",
                "kafka.fetch.max.wait.ms": "10",
            }
        )
        .load()
        .select("offset")
    )
    return (
        frame.writeStream.foreachBatch(
            make_foreach_batch(applier, stop=stop, linger=linger, wait=wait)
        )
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=trigger)
        .queryName(f"gauss-cdc {source}")
        .start()
    )
