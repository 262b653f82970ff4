"""Which way a segment's rows go: over the driver, or by Spark's executors.

    to `driver_rows`   the driver's consumer: some milliseconds, no Spark job
    above              a Spark job: each task reads its share of the exact offsets,
                       decodes it and copies it into staging tables at the target;
                       the driver holds none of it

A job alone takes longer than the driver needs for some thousand rows (measured:
2,000 rows 4 ms against 132 ms), so there is nothing between the two lanes.

A task's rows count only if the task succeeded: it copies in one transaction, under
its attempt's number, and the numbers that came back say which rows are meant.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from schemas.control import Range, SchemaChange
from schemas.tables import UNCHANGED
from schemas.topics import Topics
from spark_consumers.decode import RowDecoder, split
from spark_consumers.errors import Incomplete, StreamError, TargetDown
from spark_consumers.frames import range_options
from spark_consumers.kafka.read import RangeReader, SchemaOf
from spark_consumers.model import Cell, Change, Rows, Segment
from spark_consumers.sinks.postgres.bulk import Shape, has_stage
from spark_consumers.sinks.postgres.driver import Refused
from spark_consumers.sinks.postgres.encoding import is_no_text, no_text, take_bytes
from spark_consumers.sinks.postgres.refusals import ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FLUSH: Final = 4 << 20  # characters of COPY text held by a task
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_FIRST: Final = itemgetter(0)
_ROWS_A_TASK: Final = 100_000


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
        target: Mapping[str, Any],
        driver_rows: int = 20_000,
    ) -> None:
        """`target` are arguments of psycopg2.connect, which executors need."""
        self._spark, self._driver, self._schema_of = spark, driver, schema_of
        self._source, self._client, self._target = source, dict(client), dict(target)
        self._driver_rows = driver_rows

    def __call__(self, segment: Segment) -> Rows | SparkBulk:
        if sum(r.end - r.start for r in segment.ranges) <= self._driver_rows:
            return self._driver(segment)
        is_committed = self._driver.prepare(segment)
        ddl = self._driver.read_ddl(segment, is_committed=is_committed)
        names = Topics(self._source)
        schemas: dict[int, dict[str, Any]] = {}
        shapes: list[Shape] = []
        places: dict[tuple[str, int], int] = {}
        for topic in sorted({r.topic for r in segment.ranges} - {names.ddl}):
            for schema_id in segment.cut.schema_ids.get(topic, ()):  # type: ignore[union-attr]
                schemas[schema_id] = self._schema_of(schema_id)
                table = names.table_by(topic, schemas[schema_id])
                if table is None:
                    raise StreamError("a range names a topic that is not a table's", topic=topic)
                shape = Shape(table, RowDecoder(schemas[schema_id]).columns)
                if shape not in shapes:  # another schema id may write the same columns
                    shapes.append(shape)
                places[topic, schema_id] = shapes.index(shape)
        if not all(map(has_stage, shapes)):
            return self._driver(segment)
        ranges = [r for r in segment.ranges if r.topic != names.ddl]
        return SparkBulk(
            self._spark, shapes, ddl, ranges, self._client, self._target, places, schemas,
            is_committed=is_committed,
        )  # fmt: skip


@dataclass(slots=True)
class SparkBulk:
    """A large segment as a Spark job that copies it to the target."""

    spark: Callable[[], SparkSession]
    shapes: Sequence[Shape]
    ddl: Sequence[SchemaChange]
    ranges: Sequence[Range]
    client: Mapping[str, Any] = field(repr=False)
    target: Mapping[str, Any] = field(repr=False)
    places: Mapping[tuple[str, int], int]
    schemas: Mapping[int, dict[str, Any]]
    is_committed: bool = field(kw_only=True)

    def copy(self, stages: Sequence[str]) -> Sequence[int]:
        """Run the job; return the attempts that succeeded."""
        from py4j.protocol import Py4JError  # noqa: PLC0415  comes with pyspark
        from pyspark.errors import PySparkException  # noqa: PLC0415

        spark = self.spark()
        need = sum(r.end - r.start for r in self.ranges)
        job = _Job(dict(self.target), list(stages), dict(self.places), dict(self.schemas), {})
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
                code, said = one.refused
                hint = "" if code else "do executors reach it, and with which password?"
                raise ours(Refused(code, message=said, hint=hint), where="an executor")
            if one.no_text is not None:
                place, lines = one.no_text
                raise no_text(self.shapes[place].table, 2 * self.shapes[place].columns, lines)
        copied = sum(one.records for one in done)
        if copied != need:
            raise Incomplete(f"{copied} of {need} records are there", ranges=len(self.ranges))
        return [one.task for one in done]


@dataclass(slots=True)
class _Job:
    """What a task needs; it travels to the executors."""

    target: dict[str, Any] = field(repr=False)  # the target's own secret, and no other
    stages: list[str]
    places: dict[tuple[str, int], int]
    schemas: dict[int, dict[str, Any]]
    ranges: dict[tuple[str, int], list[tuple[int, int]]]


class Copied(NamedTuple):
    """What one task did."""

    task: int  # its attempt
    records: int
    no_text: tuple[int, str] | None = None  # a staging table, and a line that it cannot take
    refused: tuple[str | None, str] | None = None  # by the target: SQLSTATE, primary message


def copy_rows(job: _Job, rows: Iterable[Any]) -> Iterator[Copied]:
    """Copy one task's records in one transaction."""
    import psycopg2  # noqa: PLC0415  on executors
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    task = context.taskAttemptId() if context is not None else 0
    decoders = {schema_id: RowDecoder(schema) for schema_id, schema in job.schemas.items()}
    lines: list[list[str]] = [[] for _ in job.stages]
    count = held = 0
    takes = False
    connection = None
    try:
        for topic, partition, offset, value in rows:
            mine = job.ranges[topic, partition]
            at = bisect_right(mine, offset, key=_FIRST) - 1
            if at < 0 or offset >= mine[at][1]:
                continue
            count += 1
            if value is None:  # a tombstone counts as a record, and says nothing
                continue
            schema_id, payload = split(bytes(value))
            place = job.places.get((topic, schema_id))
            if place is None:
                raise ValueError(f"schema {schema_id} of {topic} is not named by the cut")
            line = copy_line(task, decoders[schema_id].decode(payload))
            lines[place].append(line)
            held += len(line)
            if held > _FLUSH:
                if connection is None:
                    connection, takes = _connected(job)
                if (found := _flush(connection, job.stages, lines, takes=takes)) is not None:
                    yield Copied(task, count, found)
                    return
                held = 0
        if held:
            if connection is None:
                connection, takes = _connected(job)
            if (found := _flush(connection, job.stages, lines, takes=takes)) is not None:
                yield Copied(task, count, found)
                return
        if connection is not None:
            connection.commit()
    except psycopg2.Error as error:  # its own text may hold values, and would be in Spark's
        yield Copied(task, count, refused=(error.pgcode, error.diag.message_primary or ""))
        return
    finally:
        if connection is not None:
            connection.close()
    yield Copied(task, count)


def copy_line(task: int, change: Change) -> str:
    r"""One row of a staging table (spark_consumers/sinks/postgres/bulk.py) in COPY's text format.

    >>> copy_line(7, Change(1, 0, "u", ("id", "v"), None, ["1", UNCHANGED]))
    '7\t1\t0\tu\t1\t\\N\t\\N\t\\N\t1\t\\N\n'
    """
    width = len(change.columns)
    nothing: list[Cell] = [None] * width
    unsent = carried = "\\N"
    if change.after is not None and UNCHANGED in change.after:
        unsent = ",".join([str(n) for n, cell in enumerate(change.after) if cell is UNCHANGED])
    if change.before is not None:
        carried = ",".join(
            [str(n) for n, cell in enumerate(change.before) if cell is not UNCHANGED]
        )
    cells = [*(change.before or nothing), *(change.after or nothing)]
    texts = [cell.translate(_ESCAPES) if isinstance(cell, str) else "\\N" for cell in cells]
    head = f"{task}\t{change.seq}\t{change.ordinal}\t{change.op}\t{unsent}\t{carried}\t"
    return head + "\t".join(texts) + "\n"


def _connected(job: _Job) -> tuple[Any, bool]:
    """Return a connection, and whether it takes bytes that are no text."""
    import psycopg2  # noqa: PLC0415  on executors

    connection = psycopg2.connect(**job.target)
    return connection, take_bytes(connection)


def _flush(
    connection: Any, stages: Sequence[str], lines: list[list[str]], *, takes: bool
) -> tuple[int, str] | None:
    """Send what is held; return where a line has bytes that the target cannot take."""
    with connection.cursor() as cursor:
        for place, (name, mine) in enumerate(zip(stages, lines, strict=True)):
            if mine:
                text = "".join(mine)
                if not takes and is_no_text(text):
                    return place, next(line for line in mine if is_no_text(line))
                cursor.copy_expert(f'COPY gauss_cdc."{name}" FROM STDIN', io.StringIO(text))
                mine.clear()
    return None
