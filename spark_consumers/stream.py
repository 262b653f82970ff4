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
from spark_consumers.security import java_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# Spark prints the options of its sources; these hold secrets, in addition to its own pattern.
_REDACTED: Final = "(?i)secret|password|token|access[.]?key|jaas[.]config|keystore[.]key"


def spark_confs(partitions: int = 64, cores: int = 2) -> dict[str, str]:
    """Settings of a session that applies; each one was measured (docs: the consumer)."""
    return {
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.kafka.consumer.cache.capacity": str(max(64, 2 * partitions)),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.redaction.regex": _REDACTED,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


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
