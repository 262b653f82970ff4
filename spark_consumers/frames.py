"""Exact ranges of one table as a DataFrame of typed changes.

One read for all ranges; each record is decoded by its own writer's schema, seen
through the newest one, so that all changes have one type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas.control import Range
from spark_consumers.security import java_client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def range_options(
    client: Mapping[str, Any], ranges: Iterable[Range], *, is_committed: bool = True, tasks: int = 1
) -> dict[str, str]:
    """Options of Spark's Kafka source that read the spans of `ranges`; filter by offset after."""
    spans: dict[str, dict[str, tuple[int, int]]] = {}
    for r in ranges:
        partitions = spans.setdefault(r.topic, {})
        low, high = partitions.get(str(r.partition), (r.start, r.end))
        partitions[str(r.partition)] = (min(low, r.start), max(high, r.end))
    options = {
        **java_client(client),
        "assign": json.dumps({t: [int(p) for p in ps] for t, ps in spans.items()}),
        "startingOffsets": json.dumps(
            {t: {p: low for p, (low, _) in ps.items()} for t, ps in spans.items()}
        ),
        "endingOffsets": json.dumps(
            {t: {p: high for p, (_, high) in ps.items()} for t, ps in spans.items()}
        ),
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed" if is_committed else "read_uncommitted",
        "kafka.fetch.max.wait.ms": "10",
        "kafkaConsumer.pollTimeoutMs": "20000",
        "minPartitions": str(tasks),
        # Else a partition with most of the rows would be one task.
        "maxRecordsPerPartition": str(max(1, -(-_records(spans) // tasks))),
    }
    # Pooled consumers of one group must agree in every option, or the read fails.
    fixed = {k: v for k, v in options.items() if k.startswith("kafka.")}
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()
    return {**options, "kafka.group.id": f"gauss-cdc-{digest[:16]}"}


def _records(spans: Mapping[str, Mapping[str, tuple[int, int]]]) -> int:
    return sum(high - low for ps in spans.values() for low, high in ps.values())


def changes_frame(
    spark: SparkSession,
    client: Mapping[str, Any],
    ranges: Sequence[Range],
    schemas: Mapping[int, dict[str, Any]],
    *,
    is_committed: bool = True,
) -> DataFrame:
    """Changes of one table: seq, ordinal, op, before, after, and their place in Kafka.

    `schemas` are the writers' by id; the highest id is the shape of the result.  Rows are
    in no order: sort by (seq, ordinal).
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  only where Spark is
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415

    newest = json.dumps(schemas[max(schemas)])
    tasks = max(1, sum(r.end - r.start for r in ranges) // 100_000)
    options = range_options(client, ranges, is_committed=is_committed, tasks=tasks)
    frame = spark.read.format("kafka").options(**options).load()
    # A join and not a condition: commits may name thousands of ranges.
    spans = f.broadcast(
        spark.createDataFrame(
            [(r.partition, r.start, r.end) for r in ranges], "part int, first long, last long"
        )
    )
    inside = (
        (f.col("partition") == f.col("part"))
        & (f.col("offset") >= f.col("first"))
        & (f.col("offset") < f.col("last"))
    )
    payload = f.expr("substring(value, 6)")
    decoded = None
    for schema_id, schema in sorted(schemas.items()):
        mine = f.expr(f"substring(value, 2, 4) = X'{schema_id:08X}'")
        reading = {"mode": "FAILFAST", "avroSchema": newest}
        branch = from_avro(payload, json.dumps(schema), reading)
        decoded = f.when(mine, branch) if decoded is None else decoded.when(mine, branch)
    if decoded is None:
        raise ValueError("no schema is named for these ranges")
    rows = frame.where(f.col("value").isNotNull()).join(spans, inside)
    return rows.select("partition", "offset", decoded.alias("value")).select(
        f.col("value.source.seq").alias("seq"),
        f.col("value.source.ordinal").alias("ordinal"),
        f.col("value.op").alias("op"),
        f.col("value.before").alias("before"),
        f.col("value.after").alias("after"),
        f.col("value.source.unsent").alias("unsent"),
        "partition",
        "offset",
    )
