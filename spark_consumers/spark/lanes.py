"""Which way rows go: read by the driver, or by Spark's tasks.

    what keeps up              the driver's consumer: some milliseconds, no Spark job
    what waits                 a job reads several segments at once: each task reads, checks and
                               compacts one, and the driver applies them in their order
    a commit that is too       in parts, inside one step of the target: by tasks where only the
    large to be held           order of each table matters, by the driver in commit order else

A job alone takes longer than the driver needs for some thousand rows (measured: 2,000 rows 4 ms
against 132 ms).  Jobs belong to the micro-batches of the streaming query: while none is open, the
driver reads.  Tasks are a help, never a condition: what they cannot do now, the driver does, and
a line says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from schemas.control import Range, SchemaChange
from schemas.errors import shortened
from schemas.topics import Topics
from spark_consumers.cuts.complete import Promised, Sums, ordinals, promised, sums_of
from spark_consumers.errors import Incomplete
from spark_consumers.kafka.parts import PART_BYTES, PartsInOrder, in_turn
from spark_consumers.kafka.ranges import count, divided
from spark_consumers.kafka.read import RangeReader, SchemaOf
from spark_consumers.model import Asked, Rows, Segment, joined_ids
from spark_consumers.security import portable
from spark_consumers.spark.executors import Done, Job, Share, read_shares
from spark_consumers.spark.jobs import OpenBatch, Secrets, Untaken, run_job
from spark_consumers.spark.jvm import GONE_ERRORS, cores, reason

T = TypeVar("T")

_DRIVER_ROWS: Final = 20_000  # of a segment, which the driver has read before a job has begun
_PART_ROWS: Final = 50_000  # of a large commit, for one task
_MOST_TASKS: Final = 8  # of a job: more rows would wait at the driver for the target
_EACH: Final = 2  # shares of a task: broker and library send more than each of them has
_LARGE_ROWS: Final = 100_000  # of a segment, which is worth the wait for the next micro-batch
_BATCH_SECONDS: Final = 5.0  # for which it waits; about one second is usual
_NAMED: Final = 3  # tables, in a job's description
_PAUSE: Final = 60.0  # seconds without jobs, after one that failed


def _never() -> bool:
    return False


def _ignore(_: str) -> None:
    return None


class Batching(Protocol):
    """The micro-batches of a query, to which jobs belong (`micro_batches.MicroBatches`)."""

    def open(self, seconds: float = 0, /) -> OpenBatch | None:
        """Return the batch that is open; wait so long for one that is coming.

        None: none is by then.
        """

    def job(self, seconds: float = 0, /) -> AbstractContextManager[OpenBatch | None]:
        """Keep the batch from ending while a job of the block runs; None: there is none."""


class Tasks:
    """Jobs of Spark that read, and what is to be known of them."""

    def __init__(
        self,
        batches: Batching,
        schema_of: SchemaOf,
        *,
        source: str,
        client: Mapping[str, Any],
        asked: Asked,
        native: bool = True,
        sends_secrets: bool = True,
        stop: Callable[[], bool] = _never,
        on_note: Callable[[str], None] = _ignore,
        on_trouble: Callable[[str], None] = _ignore,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Jobs belong to `batches`; where none is open, the driver does without.

        `asked`: what the sink asked of rows before, so that tasks do it.  `native`: they may use
        the native part.  `sends_secrets`: executors of a cluster get what they log in with from
        here; else they have it.  `stop` cancels a job that runs.  `on_note` takes a line about what
        a job did, `on_trouble` one about a job that failed.
        """
        self._batches, self._schema_of, self._source = batches, schema_of, source
        self._client, secrets = portable(client)
        self._secrets = Secrets(secrets, are_sent=sends_secrets)
        self._asked, self._native, self._stop = asked, native, stop
        self._on_note, self._on_trouble, self._now = on_note, on_trouble, now
        self._paused_until = 0.0

    def at_once(self, seconds: float = 0) -> int:
        """How many shares a job reads; 0: there is none now, or in so many seconds."""
        if self._now() < self._paused_until or (batch := self._batches.open(seconds)) is None:
            return 0
        return _EACH * min(cores(batch.spark), _MOST_TASKS)

    def read(
        self, shares: Sequence[Share], ids: Mapping[str, Sequence[int]], description: str
    ) -> Sequence[Done] | None:
        """Read shares, whose rows were written by these schemas; None: the driver is to read."""
        if self._now() < self._paused_until:
            return None
        with self._batches.job(_BATCH_SECONDS) as batch:
            return None if batch is None else self._read(batch, shares, ids, description)

    def _read(
        self,
        batch: OpenBatch,
        shares: Sequence[Share],
        ids: Mapping[str, Sequence[int]],
        description: str,
    ) -> Sequence[Done] | None:
        try:
            job = Job(
                {i: self._schema_of(i) for several in ids.values() for i in several},
                self._source, self._client, dict(self._asked), self._secrets.given(batch.spark),
                native=self._native,
            )  # fmt: skip
            work = [*_evenly(shares, min(cores(batch.spark), _MOST_TASKS))]
            done = run_job(
                batch, work, partial(read_shares, job), description=description, stop=self._stop
            )
        except (Untaken, *GONE_ERRORS) as error:
            if not self._stop():
                self._pause(
                    description, str(error) if isinstance(error, Untaken) else reason(error)
                )
            return None
        found = [one for several in done for one in several]
        # What is wrong with rows is the driver's to say; all else may be the executors' alone.
        errors = (one.error for one in found if one.error is not None)
        if (unread := next((e for e in errors if not isinstance(e, Incomplete)), None)) is not None:
            self._pause(description, f"a task could not read: {unread}")
            return found
        rows = sum(count(share.ranges) for share in shares)
        self._on_note(f"{description}: {len(work)} tasks read {rows:,} records")
        return found

    def _pause(self, description: str, why: str) -> None:
        self._paused_until = self._now() + _PAUSE
        self._on_trouble(f"{description}: {why}; the driver reads for {_PAUSE:.0f} s")

    def close(self) -> None:
        """Remove what was written for executors."""
        self._secrets.close()


def _evenly(shares: Sequence[Share], tasks: int) -> Iterator[Sequence[Share]]:
    """Give each task shares that follow each other."""
    most = -(-len(shares) // tasks)
    return (shares[at : at + most] for at in range(0, len(shares), most))


class Lanes:
    """Reads segments: `Rows`, or `Parts` of what is too large to be held."""

    def __init__(self, driver: RangeReader, tasks: Tasks | None, *, source: str) -> None:
        """Without `tasks` the driver reads everything."""
        self._driver, self._tasks, self._source = driver, tasks, source

    def __call__(self, segment: Segment) -> Rows | CommitParts:
        if segment.loads:  # only commits come in parts
            return self._driver(segment)
        rows = self._driver.small(segment)
        if rows is not None:
            return rows
        row_bytes = self._driver.row_bytes
        return CommitParts(segment, self._driver, self._tasks, self._source, row_bytes)

    def together(self, segment: Segment) -> int:
        """How many segments like this one a job reads at once; 0: it is the driver's."""
        tasks, names = self._tasks, Topics(self._source)
        if tasks is None or segment.is_barrier or segment.rows <= _DRIVER_ROWS:
            return 0
        if any(r.topic == names.ddl for r in segment.ranges):
            return 0
        return tasks.at_once(_BATCH_SECONDS if segment.rows >= _LARGE_ROWS else 0)

    def several(self, segments: Sequence[Segment]) -> Sequence[Rows | None]:
        """Read segments by a job of Spark; None for those that the driver is to read in their turn.

        What a task could not read is the driver's to say.
        """
        done: Sequence[Done] | None = None
        if self._tasks is not None and all(map(self._driver.prepare, segments)):
            shares = [Share(one.ranges, promised(one)) for one in segments]
            ids = joined_ids(one.schema_ids for one in segments)
            done = self._tasks.read(shares, ids, _description(self._source, segments))
        return [one.rows for one in done] if done is not None else [None] * len(segments)

    def close(self) -> None:
        """Remove what was written for executors."""
        if self._tasks is not None:
            self._tasks.close()


def _description(source: str, segments: Sequence[Segment]) -> str:
    """What a job does, for Spark's UI."""
    first, last = segments[0], segments[-1]
    rows = sum(segment.rows for segment in segments)
    tables = _tables(source, segments)
    if first.commit_rows:
        return f"{source}: commits {first.first_seq}..{last.last_seq}, {rows:,} rows of {tables}"
    return f"{source}: load of {tables}, {rows:,} rows"


def _tables(source: str, segments: Sequence[Segment]) -> str:
    """Name the tables of segments, three at most, as their topics do: Spark's pages take HTML."""
    topics = {r.topic for segment in segments for r in segment.ranges} - {Topics(source).ddl}
    return shortened(sorted(topic.removeprefix(f"{source}.") for topic in topics), _NAMED)


@dataclass(slots=True)
class CommitParts:
    """A segment that is too large to be held: implements `model.Parts`."""

    segment: Segment
    driver: RangeReader = field(repr=False)
    tasks: Tasks | None = field(repr=False)
    source: str
    row_bytes: float  # as those that were read so far
    by_tasks: Counter[str] = field(default_factory=Counter)

    def read(self, *, are_tables_apart: bool) -> Iterator[Rows]:
        self.by_tasks = Counter()
        promise = promised(self.segment)
        is_committed = self.driver.prepare(self.segment)
        ddl = self.driver.read_ddl(self.segment, is_committed=is_committed)
        names = Topics(self.source)
        ranges = [r for r in self.segment.ranges if r.topic != names.ddl]
        if are_tables_apart and is_committed and self._are_for_tasks(ranges, ddl):
            yield from self._by_tasks(promise, ranges, ddl)
        else:
            read = partial(self.driver.content, is_committed=is_committed)
            yield from read_ahead(PartsInOrder(promise, ranges, ddl, read))

    def _are_for_tasks(self, ranges: Sequence[Range], ddl: Sequence[SchemaChange]) -> bool:
        """Say whether parts of each table's only partition do, behind all schema changes.

        A task counts rows by records: a commit with tombstones is the driver's.
        """
        partitions = {(r.topic, r.partition) for r in ranges}
        return (
            self.tasks is not None
            and len(self.segment.commit_rows) == 1
            and count(self.segment.ranges) == self.segment.rows
            and sorted(change.ordinal for change in ddl) == [*range(len(ddl))]
            and len(partitions) == len({topic for topic, _ in partitions})
            and self.tasks.at_once(_BATCH_SECONDS) > 0
        )

    def _by_tasks(
        self, promise: Promised, rows: Sequence[Range], ddl: Sequence[SchemaChange]
    ) -> Iterator[Rows]:
        """Read parts by jobs, one job ahead; a part that no task can read is the driver's.

        What a task met may be its executor's alone: a closed network, a secret of its own.
        """
        assert self.tasks is not None
        sums = Sums(promise)
        part = max(1, min(_PART_ROWS, int(PART_BYTES / max(1.0, self.row_bytes))))
        shares = list(_shares(promise, rows, part))
        sums.take((len(ddl), ordinals(range(len(ddl)))))
        if ddl:
            yield Rows({}, ddl)
        for several in read_ahead(self._jobs(self.tasks, shares)):
            for share, one in several:
                if one.rows is None or one.sums is None:  # no task could read or hold it
                    yield from self._by_driver(share, sums)
                    continue
                sums.take(one.sums)
                self.by_tasks[share.ranges[0].topic] += one.sums[0]  # a share is of one table
                yield one.rows
        sums.end()

    def _jobs(
        self, tasks: Tasks, shares: Sequence[Share]
    ) -> Iterator[Sequence[tuple[Share, Done]]]:
        """Run a job for some shares at a time; what one did of each."""
        one, step = self.segment, max(1, tasks.at_once(_BATCH_SECONDS))
        for at in range(0, len(shares), step):
            mine = shares[at : at + step]
            what = (
                f"{self.source}: commit {one.first_seq}, {one.rows:,} rows of"
                f" {_tables(self.source, [one])}: "
                f"parts {at + 1}..{at + len(mine)} of {len(shares)}"
            )
            done = tasks.read(mine, one.schema_ids, what)
            yield [*zip(mine, done or [Done()] * len(mine), strict=True)]

    def _by_driver(self, share: Share, sums: Sums) -> Iterator[Rows]:
        for rows in in_turn(share.ranges, partial(self.driver.content, is_committed=True)):
            found = sums_of(rows, share.promise.commit_rows.first)
            if found is None:
                raise Incomplete("a part of a commit holds something else", n=share.promise.n)
            sums.take(found)
            yield rows


def _shares(promise: Promised, ranges: Sequence[Range], most: int) -> Iterator[Share]:
    """Parts of a commit of so many records, table by table, each in its order."""
    for topic in sorted({r.topic for r in ranges}):
        for several in divided([r for r in ranges if r.topic == topic], most):
            yield Share(several, promise, is_part=True)


def read_ahead(parts: Iterable[T]) -> Iterator[T]:
    """Give parts, of which the next one is read meanwhile."""
    coming = iter(parts)
    with ThreadPoolExecutor(1, "reads parts") as pool:
        part = pool.submit(next, coming, None)
        while (found := part.result()) is not None:
            part = pool.submit(next, coming, None)
            yield found
