"""What a task of Spark does of what waits: exact offsets -> rows, counted, or their last states.

A task reads as the driver does (`kafka/ranges`, `Content`): whole commits, which it checks against
their cut, or a part of a large one.  The target's login stays with the driver, and Spark brings the
rows there: only those of tasks that succeeded.  The reader stays with the worker for the next task;
it ends when that logs in otherwise, or after an error.  No secret is in what travels here: closures
stand in Spark's task descriptions.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import zipimport
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer

from schemas.control import Range
from schemas.topics import Topics
from spark_consumers.cuts.complete import Promised, check_complete, sums_of
from spark_consumers.cuts.sizes import PART_RECORDS, WHOLE_BYTES
from spark_consumers.errors import ApplyError, Incomplete
from spark_consumers.kafka.cluster import Cluster
from spark_consumers.kafka.content import Content, Decoders
from spark_consumers.kafka.ranges import Fetch, Place, choose, count, divided, ends
from spark_consumers.model import Asked, Rows
from spark_consumers.native import is_packed
from spark_consumers.security import with_secrets

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_consumers.spark.batches import Batches

# What an executor may have of its own, and under which setting.
_VARIABLES: Final = {
    "sasl.password": "GAUSS_CDC_KAFKA_PASSWORD",
    "sasl.oauthbearer.client.secret": "GAUSS_CDC_KAFKA_CLIENT_SECRET",
    "ssl.key.password": "GAUSS_CDC_KAFKA_SSL_PASSWORD",
}


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A JSON file of what a task logs in with, which only its user may read."""

    path: str
    is_sent: bool  # by Spark: `path` is the name under which SparkFiles has it


@dataclass(frozen=True, slots=True)
class Share:
    """What a task reads at once."""

    ranges: Sequence[Range]
    promise: Promised
    is_part: bool = False  # of the one commit that the promise is of


@dataclass(frozen=True, slots=True)
class Job:
    """What each task needs besides its share; it travels to the executors."""

    schemas: Mapping[int, dict[str, Any]]
    source: str
    client: Mapping[str, Any] = field(repr=False)  # of librdkafka, without secrets
    asked: Asked = field(default_factory=dict)  # what becomes last states at once
    secrets: SecretFile | None = None  # None: the executor's own
    native: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """What a task did."""

    rows: Rows | None = None  # None: too large to be held
    sums: tuple[int, int] | None = None  # of a part, as `complete.Sums` takes it
    error: ApplyError | None = None  # why the share could not be read


def read_shares(job: Job, shares: Sequence[Share]) -> Sequence[Done]:
    """Read one task's shares, which follow each other in Kafka."""
    decoders = Decoders(Topics(job.source), job.schemas.__getitem__, native=job.native)
    stable = ends(r for share in shares for r in share.ranges)  # it is not read further
    client = with_secrets(job.client, secrets(job.secrets))
    done = [bring(job, client, share, decoders, stable) for share in shares]
    spare_next_task()
    return done


def bring(
    job: Job,
    client: Mapping[str, Any],
    share: Share,
    decoders: Decoders,
    stable: Mapping[Place, int],
) -> Done:
    """Read a share, check it, and keep of its rows what the driver will ask for."""
    fetch = KEPT.reader(client, job.source, native=job.native)
    content = Content(decoders)
    is_done = False
    try:
        for part in divided(sorted(share.ranges), PART_RECORDS):
            fetch(part, content, is_committed=True, stable=stable)
            if content.held() > WHOLE_BYTES:
                return Done()
        rows = content.all()
        done = _checked(rows, share)
        is_done = True
    except ApplyError as error:  # Spark would try again where the driver knows better
        return Done(error=error)
    finally:
        if not is_done:  # its partitions are being fetched
            KEPT.close()
    is_load = share.promise.loaded is not None
    for table, changes in rows.changes.items():
        if is_packed(changes) and (asked := job.asked.get((table, changes.columns, is_load))):
            changes.settle(*asked)
    return done


def _checked(rows: Rows, share: Share) -> Done:
    rows.are_of_tasks = True
    if not share.is_part:
        check_complete(share.promise, rows)
        return Done(rows)
    sums = sums_of(rows, share.promise.commit_rows.first)
    if sums is None or sums[0] != count(share.ranges):
        raise Incomplete("a part of a commit holds something else", n=share.promise.n)
    return Done(rows, sums)


def fetched(
    fetch: Fetch, ranges: Sequence[Range], batches: Batches[Any], *, is_committed: bool
) -> Iterator[pa.RecordBatch]:
    """Read exactly these ranges into batches, and yield what is full; the reader is `KEPT`'s."""
    stable = ends(ranges)  # it is not read further
    is_done = False
    try:
        for part in divided(ranges, PART_RECORDS):
            fetch(part, batches, is_committed=is_committed, stable=stable)
            if batches.are_full:
                yield from batches.taken()
        is_done = True
    finally:
        if not is_done:  # its partitions are being fetched
            KEPT.close()
    yield from batches.taken()


def spare_next_task() -> None:
    """Leave a worker of Spark so that its next task begins at once.

    Between two tasks a worker searches all of its objects for garbage, and lets each importer of
    an archive, one for each package of pyspark.zip, read the archive's directory again: 0.2 s of
    CPU for what is there to stay.
    """
    _keep_what_is_there()
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):  # made again when it is needed
            del sys.path_importer_cache[path]


@cache
def _keep_what_is_there() -> None:
    """Once in a process: Python counts what is kept one by one, 9 ms for a worker's modules."""
    if not gc.get_freeze_count():
        gc.freeze()  # modules, for the most part


def secrets(file: SecretFile | None) -> dict[str, str]:
    """What this task logs in with: the executor's environment decides, then the file."""
    found: Mapping[str, str] = {}
    if file is not None:
        path = Path(file.path)
        if file.is_sent:
            from pyspark import SparkFiles  # noqa: PLC0415  on executors

            path = Path(SparkFiles.get(file.path))
            path.chmod(0o600)  # Spark gives its copies the rights of programs
        found = json.loads(path.read_text("utf-8"))
    own = {name: os.environ[v] for name, v in _VARIABLES.items() if os.environ.get(v)}
    return {**found, **own}


class Kept:
    """The reader of this worker: one, as long as its tasks log in alike."""

    def __init__(self) -> None:
        self._fetch: Fetch | None = None
        self._made_for: tuple[object, ...] = ()

    def reader(
        self,
        client: Mapping[str, Any],
        source: str,
        *,
        native: bool = True,
        consumer: Callable[[dict[str, Any]], Any] = Consumer,
        cluster: Callable[..., Cluster] = Cluster,
        now: Callable[[], float] = time.monotonic,
    ) -> Fetch:
        """Return a reader for this login and prefix: that of the task before, if it was for both.

        A task must not close it: the next one may get it.
        """
        made_for = (dict(client), source, native, consumer, cluster, now)
        if self._fetch is None or self._made_for != made_for:
            self.close()
            self._fetch = choose(
                client, source, lambda places: cluster(client).first(places),
                consumer=consumer, now=now, native_parts=native,
            )  # fmt: skip
            self._made_for = made_for
        return self._fetch

    def close(self) -> None:
        """Close the reader, if there is one; `reader` makes another."""
        if self._fetch is not None:
            self._fetch.close()
        self._fetch, self._made_for = None, ()


KEPT: Final = Kept()
