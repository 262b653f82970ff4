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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from schemas.control import Range, SchemaChange
from schemas.topics import Topics
from spark_consumers.decode import RowDecoder
from spark_consumers.errors import Incomplete, StreamError, TargetDown
from spark_consumers.executors import Job, copy_ranges
from spark_consumers.jobs import Secrets, run_job
from spark_consumers.jvm import SPARK_ERRORS, cores
from spark_consumers.kafka.ranges import count, divided
from spark_consumers.kafka.read import RangeReader, SchemaOf
from spark_consumers.model import Rows, Segment
from spark_consumers.security import portable
from spark_consumers.sinks.base import StagedShape, StagingLoader
from spark_consumers.sizes import DRIVER_BYTES, driven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST: Final = 10_000  # rows of a share; less is not worth a connection to the target
_MOST: Final = 1_000_000
_FEW_CORES: Final = 8  # of one machine, on which the driver's lane is the faster one
_TRIED: Final = 500_000  # rows that may weigh less than the driver may hold


def _never() -> bool:
    return False


def _ignore(_: str) -> None:
    return None


def shares(ranges: Sequence[Range], cores: int) -> list[Sequence[Range]]:
    """Divide ranges evenly among as many tasks as run at once; among fewer where these were small.

    Many tasks where there is much: what an executor loses is read again.

    >>> [len(shares([Range("t", 0, 0, rows)], 4)) for rows in (5_000, 25_000, 100_000, 9_000_000)]
    [1, 3, 4, 9]
    """
    rows = count(ranges)
    tasks = max(min(cores, -(-rows // _LEAST)), -(-rows // _MOST), 1)
    return list(divided(sorted(ranges), max(1, -(-rows // tasks))))


def brings_cores(tasks: int, *, local: bool) -> bool:
    """Say whether executors that run so many tasks at once can outrun the driver.

    What they bring is staged at the target, and written once more there; the driver's lane
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
        on_idle: Callable[[str], None] = _ignore,
        on_note: Callable[[str], None] = _ignore,
    ) -> None:
        """`loader` is the sink's half on executors; without it all rows take the driver.

        `is_driven` says whether the driver is the faster one, at this moment.
        `native`: executors may use the native part.  `sends_secrets`: executors of a cluster get
        what they log in with from here; else they have it.  `stop` cancels a job that runs.
        `on_idle` takes a line about one that gets no core, `on_note` one about what a job did.
        """
        self._native, self._stop = native, stop
        self._on_idle, self._on_note = on_idle, on_note
        self._client, of_kafka = portable(client)
        self._secrets = Secrets(
            {"target": loader.secrets if loader else {}, "kafka": of_kafka}, are_sent=sends_secrets
        )
        self._spark, self._driver, self._schema_of = spark, driver, schema_of
        self._source, self._loader = source, loader
        self._driver_rows, self._is_driven = driver_rows, is_driven
        self._taken: dict[tuple[str, int], bool] = {}

    def __call__(self, segment: Segment) -> Rows | SparkBulk:
        loader, names = self._loader, Topics(self._source)
        ranges = [r for r in segment.ranges if r.topic != names.ddl]
        records = count(segment.ranges)
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
            self._spark, shapes, ddl, ranges, self._source, self._client, loader, self._secrets,
            places, schemas, is_committed=is_committed, native=self._native,
            stop=self._stop, on_idle=self._on_idle, on_note=self._on_note,
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
    rows = count(ranges)
    more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
    return f"{source}: load of {topics[0]}{more}, {rows:,} rows"


@dataclass(slots=True)
class SparkBulk:
    """A large segment as a Spark job that stages it at the target."""

    spark: Callable[[], SparkSession]
    shapes: Sequence[StagedShape]
    ddl: Sequence[SchemaChange]
    ranges: Sequence[Range]
    source: str
    client: Mapping[str, Any] = field(repr=False)  # without secrets
    loader: StagingLoader
    secrets: Secrets
    places: Mapping[tuple[str, int], int]
    schemas: Mapping[int, dict[str, Any]]
    is_committed: bool = field(kw_only=True)
    native: bool = field(kw_only=True)
    stop: Callable[[], bool] = field(kw_only=True)
    on_idle: Callable[[str], None] = field(kw_only=True)
    on_note: Callable[[str], None] = field(kw_only=True)
    description: str = field(kw_only=True)
    driver_rows: int = field(default=0, kw_only=True)

    def copy(self, stages: Sequence[str]) -> Sequence[int]:
        """Run the job; return the attempts that succeeded."""
        need = count(self.ranges)
        try:
            spark = self.spark()
            work = shares(self.ranges, cores(spark))
            done = run_job(
                spark, work, partial(copy_ranges, self._job(stages, spark)),
                description=self.description, stop=self.stop, on_idle=self.on_idle,
            )  # fmt: skip
        except SPARK_ERRORS as error:
            raise TargetDown("the Spark job of a large segment failed", rows=need) from error
        for one in done:
            if one.error is not None:
                raise one.error
            if one.refused is not None:
                raise self.loader.explained(one.refused, self.shapes)
        copied = sum(one.records for one in done)
        if copied != need:
            raise Incomplete(f"{copied} of {need} records are there", ranges=len(self.ranges))
        self.on_note(f"{self.description}: executors staged {copied} in {len(done)} tasks")
        return [one.task for one in done]

    def _job(self, stages: Sequence[str], spark: SparkSession) -> Job:
        return Job(
            self.loader.for_tasks(), list(stages), self.places, self.schemas, self.source,
            self.client, is_committed=self.is_committed, secrets=self.secrets.given(spark),
            native=self.native,
        )  # fmt: skip
