"""What an executor does of a large segment: its share of the offsets -> the sink's staging places.

A task reads as the driver does (`kafka/ranges`, `Content`), part by part: a part is as large as
its predecessor's weight allows, and the next one is fetched while the target takes it.  The reader
stays with the worker for the next task; it ends when that logs in otherwise, or after an error.
No secret is in what travels here: closures stand in Spark's task descriptions.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import zipimport
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer

from schemas.control import Range
from schemas.topics import Topics
from spark_consumers.errors import ApplyError, StreamError
from spark_consumers.kafka.cluster import Cluster
from spark_consumers.kafka.content import Content, Decoders
from spark_consumers.kafka.ranges import Fetch, choose, count, ends, taken
from spark_consumers.model import Change
from spark_consumers.security import with_secrets

if TYPE_CHECKING:
    from spark_consumers.sinks.base import StagingTask

# What an executor may have of its own, by what it logs in at, and under which setting.
_VARIABLES: Final = {
    "target": {
        "password": "GAUSS_CDC_TARGET_PASSWORD",
        "sslpassword": "GAUSS_CDC_TARGET_SSL_PASSWORD",
    },
    "kafka": {
        "sasl.password": "GAUSS_CDC_KAFKA_PASSWORD",
        "sasl.oauthbearer.client.secret": "GAUSS_CDC_KAFKA_CLIENT_SECRET",
        "ssl.key.password": "GAUSS_CDC_KAFKA_SSL_PASSWORD",
    },
}
_FIRST: Final = 100  # records of a task's first part: nobody knows yet what they weigh
_GROWTH: Final = 4
_PART_BYTES: Final = 16 << 20  # of a part; librdkafka holds as much of what comes next


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A JSON file of what a task logs in with, which only its user may read."""

    path: str
    is_sent: bool  # by Spark: `path` is the name under which SparkFiles has it


@dataclass(frozen=True, slots=True)
class Job:
    """What each task needs besides its share; it travels to the executors."""

    task: StagingTask
    stages: Sequence[str]
    places: Mapping[tuple[str, int], int]  # topic and schema id -> number of the stage
    schemas: Mapping[int, dict[str, Any]]
    source: str
    client: Mapping[str, Any] = field(repr=False)  # of librdkafka, without secrets
    is_committed: bool = True  # how the ranges may be read
    secrets: SecretFile | None = None  # None: the executor's own
    native: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """What a task did."""

    task: int  # the number of the attempt, under which its rows are
    records: int = 0
    refused: str | None = None  # by the target, as `StagingTask.load` says it
    error: ApplyError | None = None  # why the share could not be read


def copy_ranges(job: Job, share: Sequence[Range]) -> Done:
    """Read and stage one task's share, all or nothing."""
    from pyspark import TaskContext  # noqa: PLC0415  on executors

    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    done = stage(job, share, attempt)
    spare_next_task()
    return done


def stage(job: Job, share: Sequence[Range], attempt: int) -> Done:
    """Do the same under the number of an attempt."""
    given = secrets(job.secrets)
    client = with_secrets(job.client, given["kafka"])
    records = TaskRecords(job, _KEPT.reader(client, job.source, native=job.native))
    is_done = False
    try:
        refused = job.task.load(job.stages, attempt, records.staged(share), given["target"])
        is_done = refused is None
        return Done(attempt, records.count, refused)
    except ApplyError as error:  # Spark would try again where the driver knows better
        return Done(attempt, error=error)
    finally:
        if not is_done:  # its partitions are being fetched
            _KEPT.close()


def spare_next_task() -> None:
    """Leave a worker of Spark so that its next task begins at once.

    Between two tasks a worker searches all of its objects for garbage, and lets each importer of
    an archive, one for each package of pyspark.zip, read the archive's directory again: 0.2 s of
    CPU for what is there to stay.
    """
    if not gc.get_freeze_count():
        gc.freeze()  # modules, for the most part
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):  # made again when it is needed
            del sys.path_importer_cache[path]


def secrets(file: SecretFile | None) -> dict[str, dict[str, str]]:
    """What this task logs in with, by kind: the executor's environment decides, then the file."""
    found: Mapping[str, Mapping[str, str]] = {}
    if file is not None:
        path = Path(file.path)
        if file.is_sent:
            from pyspark import SparkFiles  # noqa: PLC0415  on executors

            path = Path(SparkFiles.get(file.path))
            path.chmod(0o600)  # Spark gives its copies the rights of programs
        found = json.loads(path.read_text("utf-8"))
    return {
        kind: {
            **found.get(kind, {}),
            **{name: os.environ[v] for name, v in variables.items() if os.environ.get(v)},
        }
        for kind, variables in _VARIABLES.items()
    }


class _Kept:
    """The reader of this worker: one, as long as its tasks log in alike."""

    def __init__(self) -> None:
        self._fetch: Fetch | None = None
        self._made_for: tuple[object, ...] = ()

    def reader(self, client: Mapping[str, Any], source: str, *, native: bool) -> Fetch:
        made_for = (dict(client), source, native)
        if self._fetch is None or self._made_for != made_for:
            self.close()
            self._fetch = choose(
                client, source, lambda places: Cluster(client).first(places),
                consumer=Consumer, now=time.monotonic, native_parts=native,
            )  # fmt: skip
            self._made_for = made_for
        return self._fetch

    def close(self) -> None:
        if self._fetch is not None:
            self._fetch.close()
        self._fetch, self._made_for = None, ()


_KEPT: Final = _Kept()


class TaskRecords:
    """A task's records, counted and decoded."""

    def __init__(self, job: Job, fetch: Fetch) -> None:
        self._job, self._fetch = job, fetch
        self._decoders = Decoders(Topics(job.source), job.schemas.__getitem__, native=job.native)
        self.count = 0

    def staged(self, share: Sequence[Range]) -> Iterator[tuple[int, Sequence[Change]]]:
        """(Number of the staging place, some changes for it), until all rows are there."""
        job, share, most = self._job, sorted(share), _FIRST
        stable = ends(share)  # up to there it is worth reading ahead
        while part := taken(share, self.count, most):
            content = Content(self._decoders)
            self._fetch(part, content, is_committed=job.is_committed, stable=stable)
            for topic, schema_id, rows in content.by_schema():
                if (place := job.places.get((topic, schema_id))) is None:
                    raise StreamError(
                        "a row's schema is not named by its cut", topic=topic, schema=schema_id
                    )
                yield place, rows
            read = count(part)
            self.count += read
            most = min(_GROWTH * read, max(1, _PART_BYTES * read // (content.held() or 1)))
