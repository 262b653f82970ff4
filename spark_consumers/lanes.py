"""Which way a segment's rows go: over the driver, or by Spark's executors.

    to `driver_rows`   the driver's consumer: some milliseconds, no Spark job; more of
                       many tables (`sizes.py`)
    above              a Spark job: each task reads its share of the exact offsets,
                       decodes it and stages it near the target by the sink's loader;
                       the driver holds none of it

Where executors bring no cores of their own (`brings_cores`), the driver takes what waits, and
tries a larger commit, too, until its rows weigh more than the driver may hold.

A job alone takes longer than the driver needs for some thousand rows (measured:
2,000 rows 4 ms against 132 ms), so there is nothing between the two lanes.

A task's rows count only if the task succeeded: it stages all or nothing, under its
attempt's number, and the numbers that came back say which rows are meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from schemas.control import Range, SchemaChange
from schemas.topics import Topics
from spark_consumers.decode import RowDecoder
from spark_consumers.decode.batches import Spans
from spark_consumers.errors import Incomplete, StreamError, TargetDown
from spark_consumers.executors import RESULT, Job, copy_batches
from spark_consumers.frames import range_options
from spark_consumers.jobs import Secrets, collected
from spark_consumers.jvm import SPARK_ERRORS, cores, map_in_arrow
from spark_consumers.kafka.read import RangeReader, SchemaOf
from spark_consumers.model import Rows, Segment
from spark_consumers.sinks.base import StagedShape, StagingLoader
from spark_consumers.sizes import DRIVER_BYTES, driven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_A_TASK: Final = 100_000
_TASKS_A_CORE: Final = 4  # at most, where partitions differ
_UNEVEN: Final = 1.5  # times its share, that a task may have
_FEW_CORES: Final = 8  # of one machine, on which the driver's lane is the faster one
_TRIED: Final = 500_000  # rows that may weigh less than the driver may hold


def _never() -> bool:
    return False


def shared_by(partitions: Sequence[int], tasks: int, *, most: int) -> int:
    """How many tasks take partitions of so many records: `tasks`, or up to `most` for even shares.

    Spark divides partitions that are larger than a share, and gives each task about as many of the
    parts, whatever they hold.  A task costs what some ten thousand rows cost.

    >>> shared_by([20_000] * 10, 2, most=8), shared_by([190_000] + [1_000] * 10, 2, most=8)
    (2, 8)
    """
    share = max(1, -(-sum(partitions) // tasks))
    parts = [-(-records // -(-records // share)) for records in partitions if records]
    count = sum(-(-records // share) for records in partitions)
    longest = -(-count // tasks) * max(parts, default=0)
    return tasks if longest <= _UNEVEN * share else max(tasks, most)


def brings_cores(tasks: int, *, local: bool) -> bool:
    """Say whether executors that run so many tasks at once can outrun the driver.

    A row costs them 2 to 15 times the driver's CPU, and is staged at the target; the driver's lane
    keeps two or three cores busy, the target's among them (docs/performance.md).

    >>> brings_cores(2, local=True), brings_cores(16, local=True), brings_cores(2, local=False)
    (False, True, True)
    """
    return not local or tasks >= _FEW_CORES


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
        is_driven: Callable[[], bool] = _never,
        native: bool = True,
        sends_secrets: bool = True,
        stop: Callable[[], bool] = _never,
        on_idle: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`loader` is the sink's half on executors; without it all rows take the driver.

        `is_driven` says whether the driver is the faster one, at this moment.
        `native`: executors may use the native part.  `sends_secrets`: executors of a cluster get
        what they log in with from here; else they have it.  `stop` cancels a job that runs.
        `on_idle` takes a line about one that gets no core.
        """
        self._native, self._stop, self._on_idle = native, stop, on_idle
        self._secrets = Secrets(loader.secrets if loader else {}, are_sent=sends_secrets)
        self._spark, self._driver, self._schema_of = spark, driver, schema_of
        self._source, self._client, self._loader = source, dict(client), loader
        self._driver_rows, self._is_driven = driver_rows, is_driven
        self._taken: dict[tuple[str, int], bool] = {}

    def __call__(self, segment: Segment) -> Rows | SparkBulk:
        loader, names = self._loader, Topics(self._source)
        ranges = [r for r in segment.ranges if r.topic != names.ddl]
        records = sum(r.end - r.start for r in segment.ranges)
        topics = {r.topic for r in ranges}
        if loader is None or not ranges or records <= driven(self._driver_rows, len(topics)):
            return self._driver(segment)
        if records <= _TRIED and self._is_driven():
            rows = self._driver.up_to(segment, 2 * DRIVER_BYTES)
            if rows is not None:
                return rows
        schemas: dict[int, dict[str, Any]] = {}
        shapes: list[StagedShape] = []
        places: dict[tuple[str, int], int] = {}
        for topic in sorted(topics):
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
        is_committed = self._driver.prepare(segment)
        ddl = self._driver.read_ddl(segment, is_committed=is_committed)
        return SparkBulk(
            self._spark, shapes, ddl, ranges, self._client, loader, self._secrets, places, schemas,
            is_committed=is_committed, native=self._native, stop=self._stop, on_idle=self._on_idle,
            description=_description(self._source, segment, ranges),
        )  # fmt: skip

    def spreads(self, schema_ids: Mapping[str, tuple[int, ...]]) -> bool:
        """Say whether executors are to take rows of these topics, by these schemas."""
        names = Topics(self._source)
        loader = self._loader
        return (
            loader is not None
            and not self._is_driven()
            and all(
                self._is_taken(loader, topic, schema_id)
                for topic, ids in schema_ids.items()
                if topic != names.ddl
                for schema_id in ids
            )
        )

    def _is_taken(self, loader: StagingLoader, topic: str, schema_id: int) -> bool:
        known = self._taken.get((topic, schema_id))
        if known is None:
            schema = self._schema_of(schema_id)
            table = Topics(self._source).table_by(topic, schema)
            known = table is not None and loader.takes(
                StagedShape(table, RowDecoder(schema).columns)
            )
            self._taken[topic, schema_id] = known
        return known

    def close(self) -> None:
        """Remove what was written for executors."""
        self._secrets.close()


def _description(source: str, segment: Segment, ranges: Sequence[Range]) -> str:
    """What a job does, for Spark's UI."""
    if segment.commit_rows:
        return f"{source}: commits {segment.first_seq}..{segment.last_seq}, {segment.rows:,} rows"
    topics = sorted({r.topic for r in ranges})
    rows = sum(r.end - r.start for r in ranges)
    more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
    return f"{source}: load of {topics[0]}{more}, {rows:,} rows"


@dataclass(slots=True)
class SparkBulk:
    """A large segment as a Spark job that stages it at the target."""

    spark: Callable[[], SparkSession]
    shapes: Sequence[StagedShape]
    ddl: Sequence[SchemaChange]
    ranges: Sequence[Range]
    client: Mapping[str, Any] = field(repr=False)
    loader: StagingLoader
    secrets: Secrets
    places: Mapping[tuple[str, int], int]
    schemas: Mapping[int, dict[str, Any]]
    is_committed: bool = field(kw_only=True)
    native: bool = field(kw_only=True)
    stop: Callable[[], bool] = field(kw_only=True)
    on_idle: Callable[[str], None] = field(kw_only=True)
    description: str = field(kw_only=True)
    driver_rows: int = field(default=0, kw_only=True)

    def copy(self, stages: Sequence[str]) -> Sequence[int]:
        """Run the job; return the attempts that succeeded."""
        spark = self.spark()
        need = sum(r.end - r.start for r in self.ranges)
        job = self._job(stages, spark)
        tasks = max(cores(spark), need // _ROWS_A_TASK)
        options = range_options(
            self.client, self.ranges, is_committed=self.is_committed, tasks=tasks
        )
        try:
            frame = spark.read.format("kafka").options(**options).load()
            shared = shared_by(self._partitions(), tasks, most=_TASKS_A_CORE * cores(spark))
            rows = frame.select("topic", "partition", "offset", "value").coalesce(shared)
            staged = map_in_arrow(rows, partial(copy_batches, job), RESULT)
            done = collected(
                spark, staged, description=self.description, stop=self.stop, on_idle=self.on_idle
            )
        except SPARK_ERRORS as error:
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

    def _partitions(self) -> list[int]:
        records: Counter[tuple[str, int]] = Counter()
        for r in self.ranges:
            records[r.topic, r.partition] += r.end - r.start
        return list(records.values())

    def _job(self, stages: Sequence[str], spark: SparkSession) -> Job:
        job = Job(
            self.loader.for_tasks(), list(stages), dict(self.places), dict(self.schemas),
            secrets=self.secrets.given(spark), native=self.native,
        )  # fmt: skip
        for r in sorted(self.ranges):
            job.spans.setdefault((r.topic, r.partition), Spans()).add(r.start, r.end)
        return job
