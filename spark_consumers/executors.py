"""What an executor does of a large segment: record batches of Kafka -> the sink's staging places.

A task imports what its own work needs: decoding needs no client of Kafka and none of a target,
and the sink's part imports its client where it logs in.  No secret is in what travels here:
closures stand in Spark's task descriptions.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import zipimport
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_consumers.decode import FRAME_SIZE, RowDecoder, split
from spark_consumers.decode.batches import Spans, runs, values_in
from spark_consumers.model import Change

if TYPE_CHECKING:
    from spark_consumers.decode.rows import Rows
    from spark_consumers.sinks.base import StagingTask

RESULT: Final = "task bigint, records bigint, refused string"  # what a task did; one row
_VARIABLES: Final = {
    "password": "GAUSS_CDC_TARGET_PASSWORD",
    "sslpassword": "GAUSS_CDC_TARGET_SSL_PASSWORD",
}


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A JSON file of what a task logs in with, which only its user may read."""

    path: str
    is_sent: bool  # by Spark: `path` is the name under which SparkFiles has it


@dataclass(slots=True)
class Job:
    """What a task needs; it travels to the executors."""

    task: StagingTask
    stages: list[str]
    places: dict[tuple[str, int], int]  # topic and schema id -> number of the stage
    schemas: dict[int, dict[str, Any]]
    spans: dict[tuple[str, int], Spans] = field(default_factory=dict)  # topic and partition
    secrets: SecretFile | None = None  # None: the executor's own
    native: bool = True


def copy_batches(job: Job, batches: Iterable[Any]) -> Iterator[Any]:
    """Stage one task's records, all or nothing; give `RESULT` as a record batch."""
    import pyarrow as pa  # noqa: PLC0415  on executors
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    records = TaskRecords(job)
    refused = job.task.load(job.stages, attempt, records.staged(batches), secrets(job.secrets))
    spare_next_task()
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([attempt], pa.int64()),
            pa.array([records.count], pa.int64()),
            pa.array([refused], pa.string()),
        ],
        ["task", "records", "refused"],
    )


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


def secrets(file: SecretFile | None) -> Mapping[str, str]:
    """What this task logs in with: the executor's environment decides, then the file."""
    found: dict[str, str] = {}
    if file is not None:
        path = Path(file.path)
        if file.is_sent:
            from pyspark import SparkFiles  # noqa: PLC0415  on executors

            path = Path(SparkFiles.get(file.path))
            path.chmod(0o600)  # Spark gives its copies the rights of programs
        found = json.loads(path.read_text("utf-8"))
    own = {name: os.environ[v] for name, v in _VARIABLES.items() if os.environ.get(v)}
    return {**found, **own}


class TaskRecords:
    """A task's records: those of the segment's ranges, counted and decoded."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._decoders = {
            schema_id: RowDecoder(one, native=job.native) for schema_id, one in job.schemas.items()
        }
        self.count = 0

    def staged(self, batches: Iterable[Any]) -> Iterator[tuple[int, Sequence[Change]]]:
        """(Number of the staging place, some changes for it), until all rows are there."""
        job = self._job
        for batch in batches:
            held: dict[tuple[str, bytes], tuple[int, RowDecoder, Rows]] = {}  # by topic and frame
            for topic, partition, first, size in runs(batch):
                spans = job.spans[topic, partition]
                values = values_in(batch, first, size, spans, is_native=job.native)
                self.count += values.records
                self._decode(topic, values, held)
            for place, _, rows in held.values():
                yield place, rows

    def _decode(
        self,
        topic: str,
        values: Sequence[bytes],
        held: dict[tuple[str, bytes], tuple[int, RowDecoder, Rows]],
    ) -> None:
        at = 0
        while at < len(values):
            value = values[at]
            frame = (topic, value[:FRAME_SIZE])
            if (found := held.get(frame)) is None:
                schema_id, _ = split(value)
                place = self._job.places.get((topic, schema_id))
                if place is None:
                    raise ValueError(f"schema {schema_id} of {topic} is not named by the cut")
                decoder = self._decoders[schema_id]
                found = held[frame] = (place, decoder, decoder.rows(schema_id))
            _, decoder, rows = found
            taken = rows.take(values, at)
            if taken == at:  # what the native part leaves to Python
                rows.put(decoder.decode(split(value)[1]))
                taken += 1
            at = taken
