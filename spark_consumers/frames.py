"""Exact ranges of one table as a DataFrame of typed changes.

One read for all ranges.  Each record is decoded in the JVM by its own writer's schema; columns
get their types by the table in `dialects/spark_types.py`, and are found by their names in the
newest schema, so that all changes have one type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from schemas.control import Range
from spark_consumers.dialects.spark import literal, quote
from spark_consumers.dialects.spark_types import OfText
from spark_consumers.errors import ShapeChanged
from spark_consumers.given import given, struct
from spark_consumers.kafka.ranges import count
from spark_consumers.security import java_client
from spark_consumers.shapes import Shape, is_wider

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

# Offsets of a bucket: a record meets only the ranges of its own, however many there are.
_BUCKET: Final = 4_096
_MOST_BUCKETS: Final = 10_000


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
    newest: int | None = None,
) -> DataFrame:
    """Changes of one table, typed; the names and types of its columns are a contract.

        seq, ordinal, op        place among the epoch's changes; c u d r t
        before, after           structs of the table's columns in Spark's types; what was not sent,
                                and what Spark cannot hold, is NULL
        unsent                  columns of `after` that were not sent, because they did not change
        exact, before_exact     column -> the source's text of a value that Spark cannot hold
        before_columns          the columns of `before` that were sent; NULL: all of them
        csn, lsn                of the commit, and the row's own place in the source's log
        committed_at, xid, epoch, partition, offset

    `schemas` are the writers' by id; `newest` (default: the highest id) is the shape of the
    result: columns that others lack are NULL there.  Raises ShapeChanged for a column whose older
    type does not fit into its newest one.  Rows are in no order: sort by (seq, ordinal).
    """
    return typed_changes(
        records(spark, client, ranges, is_committed=is_committed), schemas, newest=newest
    )


def records(
    spark: SparkSession,
    client: Mapping[str, Any],
    ranges: Sequence[Range],
    *,
    is_committed: bool = True,
) -> DataFrame:
    """Records of exactly these ranges: partition, offset, value; no tombstones."""
    from pyspark.sql import functions as f  # noqa: PLC0415  only where Spark is

    if not ranges:
        return given(spark, (), struct(partition="integer", offset="long", value="binary"))
    tasks = max(1, count(ranges) // 100_000)
    options = range_options(client, ranges, is_committed=is_committed, tasks=tasks)
    frame = spark.read.format("kafka").options(**options).load()
    return _inside(spark, frame.where(f.col("value").isNotNull()), ranges)


def typed_changes(
    rows: DataFrame, schemas: Mapping[int, dict[str, Any]], *, newest: int | None = None
) -> DataFrame:
    """Return `changes_frame` of records: partition, offset, value; no tombstones."""
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415

    shapes = {schema_id: Shape.of(schema) for schema_id, schema in sorted(schemas.items())}
    if not shapes:
        raise ValueError("no schema is named for these ranges")
    shape = shapes[max(shapes) if newest is None else newest]
    payload = f.expr("substring(value, 6)")
    decoded = []
    for schema_id, one in shapes.items():
        mine = f.expr(f"substring(value, 2, 4) = X'{schema_id:08X}'")
        how = {"mode": "FAILFAST", "avroSchema": one.reader, "datetimeRebaseMode": "CORRECTED"}
        branch = from_avro(payload, one.writer, how)
        decoded.append(f.when(mine, branch).alias(f"v{schema_id}"))
    # Corrections are made once for a row, before its columns are.
    marked = rows.select("partition", "offset", "value", *decoded).select(
        "partition",
        "offset",
        "value",
        *(f"v{schema_id}" for schema_id in shapes),
        *(mark for schema_id, one in shapes.items() for mark in _marks(f"v{schema_id}", one)),
    )
    change: Column | None = None
    for schema_id, one in shapes.items():
        row = f.expr(_change(f"v{schema_id}", one, shape))
        is_mine = f.col(f"v{schema_id}").isNotNull()
        change = f.when(is_mine, row) if change is None else change.when(is_mine, row)
    assert change is not None
    unknown = f.raise_error(f.lit("a record names a schema that its cut does not name"))
    return marked.select(change.otherwise(unknown).alias("c"), "partition", "offset").select(
        "c.seq",
        "c.ordinal",
        "c.op",
        "c.before",
        "c.after",
        "c.unsent",
        "c.exact",
        "c.before_exact",
        "c.before_columns",
        "c.csn",
        "c.lsn",
        "c.committed_at",
        "c.xid",
        "c.epoch",
        "partition",
        "offset",
    )


def _inside(spark: SparkSession, frame: DataFrame, ranges: Sequence[Range]) -> DataFrame:
    """Keep the records of these ranges; commits may name thousands of them."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    bucket = max(_BUCKET, count(ranges) // _MOST_BUCKETS)
    held = [
        (r.partition, at, r.start, r.end)
        for r in ranges
        for at in range(r.start // bucket, (r.end - 1) // bucket + 1)
    ]
    shape = struct(part="integer", bucket="long", first="long", last="long")
    spans = f.broadcast(given(spark, held, shape))
    inside = (
        (f.col("partition") == f.col("part"))
        & (f.expr(f"offset div {bucket}") == f.col("bucket"))
        & (f.col("offset") >= f.col("first"))
        & (f.col("offset") < f.col("last"))
    )
    return frame.join(spans, inside).select("partition", "offset", "value")


def _names(names: Iterable[str]) -> str:
    return "array(" + ", ".join(literal(name) for name in names) + ")"


def _marks(value: str, shape: Shape) -> list[Column]:
    """Say for each row, old and new, which texts replace values and which columns are NULL.

    Nearly always all four are NULL.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    held: dict[OfText, list[str]] = {}
    for name, column in shape.columns.items():
        if column.of_text is not None:
            held.setdefault(column.of_text, []).append(name)
    out = []
    for row, exact in (("after", "exact"), ("before", "before_exact")):
        source = f"{value}.source"

        def without(texts: str, *, near: bool) -> str:
            """Leave out the texts of which Spark holds the value."""
            for way, names in held.items():
                if near == way.is_near:
                    is_held = (
                        f"array_contains({_names(names)}, k) AND {way.fits.replace('{}', 't')}"
                    )
                    texts = f"map_filter({texts}, (k, t) -> NOT ({is_held}))"
            return texts

        left = without(f"{source}.{exact}", near=False)
        out.append(f.expr(f"if(size({left}) > 0, {left}, NULL)").alias(f"{value}_{exact}"))
        unfit = f"map_keys({without(left, near=True)})"
        if row == "after":
            absent = f"coalesce({source}.unsent, array())"
        else:
            known = _names(shape.columns)
            absent = (
                f"if({source}.before_columns IS NULL, array(),"
                f" array_except({known}, {source}.before_columns))"
            )
        hidden = f"concat(coalesce({unfit}, array()), {absent})"
        needed = f"{source}.{exact} IS NOT NULL OR {source}."
        needed += "unsent IS NOT NULL" if row == "after" else "before_columns IS NOT NULL"
        out.append(f.expr(f"if({needed}, {hidden}, NULL)").alias(f"{value}_{row}_hidden"))
    return out


def _change(value: str, own: Shape, shape: Shape) -> str:
    """A row of the result, from a record of one schema."""
    source = f"{value}.source"
    fields = {
        "seq": f"{source}.seq",
        "ordinal": f"{source}.ordinal",
        "op": f"{value}.op",
        "before": _row(value, "before", "before_exact", own, shape),
        "after": _row(value, "after", "exact", own, shape),
        "unsent": f"{source}.unsent",
        "exact": f"{value}_exact",
        "before_exact": f"{value}_before_exact",
        "before_columns": f"{source}.before_columns",
        "csn": f"{source}.csn",
        "lsn": f"{source}.lsn",
        "committed_at": f"timestamp_micros({source}.ts_us)",
        "xid": f"{source}.txId",
        "epoch": f"{source}.epoch",
    }
    return "struct(" + ", ".join(f"{sql} AS {name}" for name, sql in fields.items()) + ")"


def _row(value: str, row: str, exact: str, own: Shape, shape: Shape) -> str:
    cells = []
    for name, wanted in shape.columns.items():
        found = own.columns.get(name)
        cell = "NULL"
        if found is not None:
            field = f"{value}.{row}.{own.field(name)}"
            text = f"{value}.source.{exact}[{literal(name)}]"
            cell = f"CASE WHEN array_contains({value}_{row}_hidden, {literal(name)}) THEN NULL"
            if found.of_text is not None:
                cell += f" WHEN {text} IS NOT NULL THEN {found.of_text.sql.replace('{}', text)}"
            cell += f" ELSE {found.sql.replace('{}', field)} END"
            if found.name != wanted.name and not is_wider(found.name, wanted.name):
                raise ShapeChanged(
                    "a column's type changed within these commits",
                    hint="read the commits before and after the change apart",
                    column=name,
                    was=found.name,
                    now=wanted.name,
                )
        cells.append(f"cast({cell} AS {wanted.name}) AS {quote(name)}")
    return f"if({value}.{row} IS NULL, NULL, struct({', '.join(cells)}))"


def net_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The last state of each key after `changes` of whole commits: what they come to.

        op          upsert; delete; truncate, with NULL keys: whatever was there before is gone
        key         struct of the keys
        after       the row; NULL of a delete
        unsent      columns whose value these commits do not say: keep what you have
        exact       as in `changes`

    An unsent value is the one that was last sent for this key in the same commits.  A key that
    changed is a delete of the old one and an upsert of the new one, whose unsent columns are those
    of the old key's row.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    columns = [field.name for field in _fields(changes, "after")]
    key = f"struct({', '.join(f'{{row}}.{quote(name)} AS {quote(name)}' for name in keys)})"
    new, old = key.format(row="after"), key.format(row="before")
    # A change as effects on keys; of those of one change the delete comes first.
    upsert = f"named_struct('step', 1, 'key', {new}, 'row', after, 'is_gone', false)"
    gone = f"named_struct('step', 0, 'key', {old}, 'row', before, 'is_gone', true)"
    effects = (
        f"CASE WHEN op = 'd' THEN array({gone})"
        f" WHEN op = 'u' AND before IS NOT NULL AND NOT {old} <=> {new}"
        f" THEN array({gone}, {upsert})"
        f" WHEN op IN ('c', 'r', 'u') THEN array({upsert}) END"
    )
    place = "struct(seq, ordinal, effect.step)"
    truncated = changes.where("op = 't'").agg(f.expr("max(struct(seq, ordinal))").alias("at"))
    lasting = (
        changes.crossJoin(f.broadcast(truncated))
        .where("at IS NULL OR struct(seq, ordinal) > at")
        .withColumn("effect", f.explode(f.expr(effects)))
        .select(
            f.col("effect.key").alias("key"),
            f.expr(place).alias("place"),
            f.col("effect.is_gone").alias("is_gone"),
            f.col("effect.row").alias("row"),
            f.coalesce("unsent", f.expr("array()")).alias("unsent"),
            "exact",
        )
    )
    last_gone = lasting.groupBy("key").agg(
        f.expr("max(place) FILTER (WHERE is_gone)").alias("gone_at"),
        f.expr("max_by(is_gone, place)").alias("is_gone_last"),
    )
    # Joined again and not over a window: a hot key has one row here, however often it changed.
    alive = lasting.where("NOT is_gone").withColumnRenamed("key", "k")
    joined = last_gone.join(
        alive,
        f.expr("k <=> key AND NOT is_gone_last AND (gone_at IS NULL OR place > gone_at)"),
        "left",
    )
    values = [
        f.expr(
            f"max_by(struct(row.{quote(name)} AS v, exact[{literal(name)}] AS t), place)"
            f" FILTER (WHERE place IS NOT NULL AND NOT array_contains(unsent, {literal(name)}))"
        ).alias(f"c{at}")
        for at, name in enumerate(columns)
    ]
    latest = joined.groupBy("key", "is_gone_last").agg(*values)
    row = ", ".join(f"c{at}.v AS {quote(name)}" for at, name in enumerate(columns))
    names = _names(columns)
    missing = ", ".join(f"c{at} IS NULL" for at in range(len(columns)))
    texts = ", ".join(f"c{at}.t" for at in range(len(columns)))
    exact = f"map_filter(map_from_arrays({names}, array({texts})), (k, t) -> t IS NOT NULL)"
    absent = f"filter({names}, (n, i) -> array({missing})[i])"
    found = latest.selectExpr(
        "if(is_gone_last, 'delete', 'upsert') AS op",
        "key",
        f"if(is_gone_last, NULL, struct({row})) AS after",
        f"if(is_gone_last OR size({absent}) = 0, NULL, {absent}) AS unsent",
        f"if(is_gone_last OR size({exact}) = 0, NULL, {exact}) AS exact",
    )
    emptied = truncated.where("at IS NOT NULL").select(
        f.lit("truncate").alias("op"),
        *(
            f.lit(None).cast(found.schema[name].dataType).alias(name)
            for name in ("key", "after", "unsent", "exact")
        ),
    )
    return found.unionByName(emptied)


def _fields(changes: DataFrame, row: str) -> Sequence[StructField]:
    from pyspark.sql.types import StructType  # noqa: PLC0415

    of = changes.schema[row].dataType
    assert isinstance(of, StructType)
    return of.fields
