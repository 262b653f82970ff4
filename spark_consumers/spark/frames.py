"""Exact ranges of one table as a DataFrame of typed changes.

Tasks read them as the driver does, by the readers of `executors`, and make columns of what they
read (`pairs`).  Columns are found by their names in the newest schema, so that all changes have
one type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from schemas.control import Range
from spark_consumers.decode import FRAME_SIZE
from spark_consumers.dialects.spark import literal, quote
from spark_consumers.errors import ShapeChanged
from spark_consumers.kafka.ranges import divided
from spark_consumers.security import portable, with_secrets
from spark_consumers.spark.batches import Batches
from spark_consumers.spark.executors import KEPT, SecretFile, fetched, secrets, spare_next_task
from spark_consumers.spark.given import arrow_schema, given, struct
from spark_consumers.spark.jobs import Secrets
from spark_consumers.spark.pairs import change_schema, pair_batches
from spark_consumers.spark.shapes import is_wider, types_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_TASK_RECORDS: Final = 100_000


class TaskLogin:
    """How tasks come to Kafka: settings that may be seen, and where the secrets are."""

    def __init__(
        self,
        client: Mapping[str, Any],
        source: str,
        *,
        sends_secrets: bool = True,
        native: bool = True,
    ) -> None:
        """`client`: settings of librdkafka; `sends_secrets`: executors of a cluster get them.

        `native`: they may use the native part.
        """
        self.source, self.native = source, native
        self.client, hidden = portable(client)
        self._secrets = Secrets(hidden, are_sent=sends_secrets)

    def secrets(self, spark: SparkSession) -> SecretFile | None:
        """Say where tasks find them; None: they have what they need."""
        return self._secrets.given(spark)

    def close(self) -> None:
        """Remove what was written for tasks."""
        self._secrets.close()


def changes_frame(
    spark: SparkSession,
    login: TaskLogin,
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
    changes = _Changes(_shape(schemas, newest), schemas, login.native)
    return _read(spark, login, ranges, changes, is_committed=is_committed)


def records(
    spark: SparkSession, login: TaskLogin, ranges: Sequence[Range], *, is_committed: bool = True
) -> DataFrame:
    """Records of exactly these ranges: partition, offset, value; no tombstones."""
    return _read(spark, login, ranges, _Values(), is_committed=is_committed)


def typed_changes(
    rows: DataFrame,
    schemas: Mapping[int, dict[str, Any]],
    *,
    newest: int | None = None,
    topic: str = "",
    native: bool = True,
) -> DataFrame:
    """Return `changes_frame` of records of a topic: partition, offset, value; no tombstones."""
    changes = _Changes(_shape(schemas, newest), schemas, native, topic)
    return rows.select("partition", "offset", "value").mapInArrow(changes, changes.schema)


def _shape(schemas: Mapping[int, dict[str, Any]], newest: int | None) -> StructType:
    """Return the schema of the result; raise ShapeChanged."""
    if not schemas:
        raise ValueError("no schema is named for these ranges")
    wanted = types_of(schemas[max(schemas) if newest is None else newest])
    for schema in schemas.values():
        for name, was in types_of(schema).items():
            if not is_wider(was, now := wanted.get(name, was)):
                raise ShapeChanged(
                    "a column's type changed within these commits",
                    hint="read the commits before and after the change apart",
                    column=name,
                    was=was,
                    now=now,
                )
    return change_schema(wanted)


# ---------------------------------------------------------------- tasks


@dataclass(frozen=True, slots=True)
class _Changes:
    """Records that become typed changes."""

    schema: StructType
    schemas: Mapping[int, dict[str, Any]] = field(repr=False)
    native: bool
    topic: str = ""  # of records that a frame has

    def batches(self) -> Batches[Any]:
        return pair_batches(self.schema, self.schemas, native_parts=self.native)

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do so with records that a frame has."""
        made = self.batches()
        for some in given:
            records = zip(*(column.to_pylist() for column in some.columns), strict=True)
            for _, run in groupby(records, key=lambda one: one[2][:FRAME_SIZE]):
                made.take(self.topic, [*run])
            if made.are_full:
                yield from made.taken()
        yield from made.taken()


@dataclass(frozen=True, slots=True)
class _Values:
    """Records that stay as they are."""

    @property
    def schema(self) -> StructType:
        return struct(partition="integer", offset="long", value="binary")

    def batches(self) -> Batches[Any]:
        return Batches(_Raw(arrow_schema(self.schema)), None)


class _Raw:
    """Implements `batches.PythonRows`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[tuple[int, int, bytes]] = []

    def add(self, partition: int, offset: int, value: bytes) -> None:
        self._rows.append((partition, offset, value))

    def taken(self) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415  on executors

        columns, self._rows = zip(*self._rows, strict=True), []
        return pa.RecordBatch.from_arrays(
            [pa.array(c, one.type) for c, one in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads one task's share; it travels to the executors."""

    shares: Sequence[Sequence[Range]]
    into: _Changes | _Values
    source: str
    client: Mapping[str, Any] = field(repr=False)  # of librdkafka, without secrets
    secrets: SecretFile | None  # None: the executor's own
    native: bool
    is_committed: bool

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        client = with_secrets(self.client, secrets(self.secrets))
        for number in (n for some in numbers for n in some.column(0).to_pylist()):
            fetch = KEPT.reader(client, self.source, native=self.native)
            share, into = self.shares[number], self.into.batches()
            yield from fetched(fetch, share, into, is_committed=self.is_committed)
        spare_next_task()


def _read(
    spark: SparkSession,
    login: TaskLogin,
    ranges: Sequence[Range],
    into: _Changes | _Values,
    *,
    is_committed: bool,
) -> DataFrame:
    """Return what tasks read, each some of the ranges."""
    if not ranges:
        return given(spark, (), into.schema)
    shares = [[*share] for share in divided(sorted(ranges), _TASK_RECORDS)]
    reading = _Reading(
        shares, into, login.source, login.client, login.secrets(spark), login.native, is_committed
    )
    numbers = spark.range(0, len(shares), 1, len(shares))
    return numbers.mapInArrow(reading, into.schema)


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
    # Else a deleted row would stay at whoever keeps a copy.
    unnamed = " OR ".join(f"NOT array_contains(before_columns, {literal(name)})" for name in keys)
    refused = literal(
        f"an old row does not carry the key ({', '.join(keys)}): `net` takes the columns of the"
        " table's REPLICA IDENTITY, or set it to FULL"
    )
    effects = (
        f"CASE WHEN op = 'd' AND before IS NULL"
        f" OR before IS NOT NULL AND before_columns IS NOT NULL AND ({unnamed})"
        f" THEN raise_error({refused}) WHEN op = 'd' THEN array({gone})"
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
    values = [
        f.expr(
            f"max_by(struct(place AS at, row.{quote(name)} AS v, exact[{literal(name)}] AS t),"
            " place)"
            f" FILTER (WHERE NOT is_gone AND NOT array_contains(unsent, {literal(name)}))"
        ).alias(f"c{at}")
        for at, name in enumerate(columns)
    ]
    last = lasting.groupBy("key").agg(
        f.expr("max(place) FILTER (WHERE is_gone)").alias("gone_at"),
        f.expr("max_by(is_gone, place)").alias("is_gone_last"),
        *values,
    )
    # What was sent before the key was gone is another row's.
    latest = last.selectExpr(
        "key",
        "is_gone_last",
        *(f"if(c{at}.at <= gone_at, NULL, c{at}) AS c{at}" for at in range(len(columns))),
    )
    row = ", ".join(f"c{at}.v AS {quote(name)}" for at, name in enumerate(columns))
    names = "array(" + ", ".join(map(literal, columns)) + ")"
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
