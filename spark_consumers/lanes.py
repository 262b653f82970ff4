"""Which way a segment's rows go: over the driver, or by Spark's executors.

    to `driver_rows`   the driver's consumer: some milliseconds, no Spark job
    above              a Spark job: each task reads its share of the exact offsets,
                       decodes it and stages it near the target by the sink's loader;
                       the driver holds none of it

A job alone takes longer than the driver needs for some thousand rows (measured:
2,000 rows 4 ms against 132 ms), so there is nothing between the two lanes.

A task's rows count only if the task succeeded: it stages all or nothing, under its
attempt's number, and the numbers that came back say which rows are meant.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from schemas.control import Range, SchemaChange
from schemas.topics import Topics
from spark_consumers.decode import FRAME_SIZE, RowDecoder, split
from spark_consumers.errors import Incomplete, StreamError, TargetDown
from spark_consumers.frames import range_options
from spark_consumers.kafka.read import RangeReader, SchemaOf
from spark_consumers.model import Change, Rows, Segment
from spark_consumers.sinks.base import StagedShape, StagingLoader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST: Final = itemgetter(0)
_ROWS_A_TASK: Final = 100_000
_ROWS_AT_ONCE: Final = 2_000  # that a task holds as they came


class Lanes:
    """Reads a segment's rows: `Rows` of the driver, or a `SparkBulk`."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        driver: RangeReader,
        schema_of: SchemaOf,
        *,
        source: str,
        client: Mapping[str, Any],
        loader: StagingLoader | None,
        driver_rows: int = 20_000,
        native: bool = True,
    ) -> None:
        """`loader` is the sink's half on executors; without it all rows take the driver.

        `native`: executors may use the native part.
        """
        self._native = native
        self._spark, self._driver, self._schema_of = spark, driver, schema_of
        self._source, self._client, self._loader = source, dict(client), loader
        self._driver_rows = driver_rows

    def __call__(self, segment: Segment) -> Rows | SparkBulk:
        loader = self._loader
        if loader is None or sum(r.end - r.start for r in segment.ranges) <= self._driver_rows:
            return self._driver(segment)
        is_committed = self._driver.prepare(segment)
        ddl = self._driver.read_ddl(segment, is_committed=is_committed)
        names = Topics(self._source)
        schemas: dict[int, dict[str, Any]] = {}
        shapes: list[StagedShape] = []
        places: dict[tuple[str, int], int] = {}
        for topic in sorted({r.topic for r in segment.ranges} - {names.ddl}):
            for schema_id in segment.schema_ids.get(topic, ()):
                schemas[schema_id] = self._schema_of(schema_id)
                table = names.table_by(topic, schemas[schema_id])
                if table is None:
                    raise StreamError("a range names a topic that is not a table's", topic=topic)
                shape = StagedShape(table, RowDecoder(schemas[schema_id]).columns)
                if shape not in shapes:  # another schema id may write the same columns
                    shapes.append(shape)
                places[topic, schema_id] = shapes.index(shape)
        if not all(map(loader.takes, shapes)):
            return self._driver(segment)
        ranges = [r for r in segment.ranges if r.topic != names.ddl]
        return SparkBulk(
            self._spark, shapes, ddl, ranges, self._client, loader, places, schemas,
            is_committed=is_committed, native=self._native,
        )  # fmt: skip


@dataclass(slots=True)
class SparkBulk:
    """A large segment as a Spark job that stages it at the target."""

    spark: Callable[[], SparkSession]
    shapes: Sequence[StagedShape]
    ddl: Sequence[SchemaChange]
    ranges: Sequence[Range]
    client: Mapping[str, Any] = field(repr=False)
    loader: StagingLoader
    places: Mapping[tuple[str, int], int]
    schemas: Mapping[int, dict[str, Any]]
    is_committed: bool = field(kw_only=True)
    native: bool = field(kw_only=True)

    def copy(self, stages: Sequence[str]) -> Sequence[int]:
        """Run the job; return the attempts that succeeded."""
        from py4j.protocol import Py4JError  # noqa: PLC0415  comes with pyspark
        from pyspark.errors import PySparkException  # noqa: PLC0415

        spark = self.spark()
        need = sum(r.end - r.start for r in self.ranges)
        job = _Job(
            self.loader, list(stages), dict(self.places), dict(self.schemas), {}, self.native
        )
        for r in sorted(self.ranges):
            job.ranges.setdefault((r.topic, r.partition), []).append((r.start, r.end))
        tasks = max(spark.sparkContext.defaultParallelism, need // _ROWS_A_TASK)
        options = range_options(
            self.client, self.ranges, is_committed=self.is_committed, tasks=tasks
        )
        try:
            frame = spark.read.format("kafka").options(**options).load()
            rows = frame.select("topic", "partition", "offset", "value").rdd
            done = rows.mapPartitions(partial(copy_rows, job)).collect()
        except (PySparkException, Py4JError) as error:
            # Open, expired and lost ranges raise the same class: the next attempt's checks
            # ask the offsets themselves.
            raise TargetDown("the Spark job of a large segment failed", rows=need) from error
        for one in done:
            if one.refused is not None:
                raise self.loader.explained(one.refused, self.shapes)
        copied = sum(one.records for one in done)
        if copied != need:
            raise Incomplete(f"{copied} of {need} records are there", ranges=len(self.ranges))
        return [one.task for one in done]


@dataclass(slots=True)
class _Job:
    """What a task needs; it travels to the executors."""

    loader: StagingLoader  # holds the target's own secret, and no other
    stages: list[str]
    places: dict[tuple[str, int], int]
    schemas: dict[int, dict[str, Any]]
    ranges: dict[tuple[str, int], list[tuple[int, int]]]
    native: bool = True


class Copied(NamedTuple):
    """What one task did."""

    task: int  # its attempt
    records: int
    refused: Any = None  # what the target did not take, in the loader's words


def copy_rows(job: _Job, rows: Iterable[Any]) -> Iterator[Copied]:
    """Stage one task's records, all or nothing."""
    from pyspark import TaskContext  # noqa: PLC0415  on executors

    context = TaskContext.get()
    task = context.taskAttemptId() if context is not None else 0
    records = _Records(job)
    refused = job.loader.load(job.stages, task, records.staged(rows))
    yield Copied(task, records.count, refused)


class _Records:
    """A task's records: those of the segment's ranges, counted and decoded."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._decoders = {
            schema_id: RowDecoder(one, native=job.native) for schema_id, one in job.schemas.items()
        }
        self.count = 0

    def staged(self, rows: Iterable[Any]) -> Iterator[tuple[int, Sequence[Change]]]:
        """(Number of the staging place, some changes for it), until all rows are there."""
        job = self._job
        held: dict[tuple[str, bytes], list[bytes]] = {}  # by topic and frame
        count = 0
        for topic, partition, offset, value in rows:
            mine = job.ranges[topic, partition]
            at = bisect_right(mine, offset, key=_FIRST) - 1
            if at < 0 or offset >= mine[at][1]:
                continue
            self.count += 1
            if value is None:  # a tombstone counts as a record without a change
                continue
            held.setdefault((topic, bytes(value[:FRAME_SIZE])), []).append(bytes(value))
            count += 1
            if count == _ROWS_AT_ONCE:
                yield from self._decoded(held)
                held, count = {}, 0
        yield from self._decoded(held)

    def _decoded(
        self, held: Mapping[tuple[str, bytes], list[bytes]]
    ) -> Iterator[tuple[int, Sequence[Change]]]:
        for (topic, _), values in held.items():
            schema_id, _ = split(values[0])
            place = self._job.places.get((topic, schema_id))
            if place is None:
                raise ValueError(f"schema {schema_id} of {topic} is not named by the cut")
            decoder, at = self._decoders[schema_id], 0
            rows = decoder.rows(schema_id)
            while (at := rows.take(values, at)) < len(values):
                rows.put(decoder.decode(split(values[at])[1]))
                at += 1
            yield place, rows
