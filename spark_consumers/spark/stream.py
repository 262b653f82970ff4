"""All that the loop knows of Spark: its session, and the streaming query whose batches it applies.

    the process's own thread   waits for cuts and drains, from its start to its end
    the query                  a micro-batch names cuts, and lasts until the target holds them; what
                               waits is read by Spark's tasks, in jobs of the batch

So Spark's progress, its listeners and the query's checkpoint say what was applied, in rows, and
never more.  No commit waits for a batch, and the checkpoint decides nothing: the ledger does.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.topics import Topics
from spark_consumers.errors import ApplyError, QueryEnded, SparkFailed
from spark_consumers.loop.job import AppliedStep, Observer
from spark_consumers.loop.run import POLL, Stop
from spark_consumers.model import Ledger
from spark_consumers.security import java_client
from spark_consumers.spark import folders, jvm
from spark_consumers.spark.jobs import OpenBatch
from spark_consumers.spark.jvm import GONE_ERRORS, reason
from spark_consumers.spark.micro_batches import MOST_CUTS, MicroBatches

_JOBS: Final = "gauss-cdc apply"  # tag of the loop's jobs
_LOOK: Final = 0.3  # seconds between two looks at the query
_EVERY: Final = 5.0  # seconds: a batch costs the JVM about 0.1 s of a core, whatever it holds
_TRIGGER: Final = "1 second"  # after which a batch begins for a cut that came: 3 ms of a core
GOODBYE: Final = 5.0  # seconds for the query to stop, before its JVM does


def start_query(
    spark: SparkSession,
    batches: MicroBatches[OpenBatch],
    *,
    source: str,
    client: Mapping[str, str],
    checkpoint: str,
    first: int,
) -> StreamingQuery:
    """Start the stream on cuts, whose batches end when the target holds what they name.

    `first`: the offset from which it names them, where its checkpoint knows none.
    `batches` must be closed before the query is stopped; else a batch waits for the next pass.
    """
    cuts = Topics(source).cuts
    frame = (
        spark.readStream.format("kafka")
        .options(**java_client(client))
        .options(
            **{
                "assign": json.dumps({cuts: [0]}),
                # The ledger decides where to go on, so a checkpoint that points outside of
                # the log, or none, must not stop the query.
                "startingOffsets": json.dumps({cuts: {"0": first}}),
                "failOnDataLoss": "false",
                "kafka.isolation.level": "read_committed",
                "kafka.fetch.max.wait.ms": "10",
                "maxOffsetsPerTrigger": str(MOST_CUTS),
            }
        )
        .load()
        .select("offset")
    )

    def apply(_: DataFrame, _batch_id: int) -> None:
        """The loop applies, and its jobs are this batch's: nothing is read by the frame."""
        micro = jvm.MicroBatch(spark)
        micro.count(batches.hold(OpenBatch(spark, micro.properties), micro.end()))

    return (
        frame.writeStream.foreachBatch(apply)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=_TRIGGER)
        .queryName(f"gauss-cdc {source}")
        .start()
    )


class SparkStream:
    """The waker of a run on Spark: the calling thread drains, at all times and nobody else.

    Spark starts beside it, and then the query: whether it begins, runs, or begins again after it
    ended, the loop applies.  `batches` are the query's, for the loop's jobs.
    """

    def __init__(
        self,
        spark: Starting,
        checkpoint: Checkpoint,
        *,
        source: str,
        client: Mapping[str, Any],
        wait: Callable[[float], object],
        every: float = _EVERY,
        goodbye: float = GOODBYE,
    ) -> None:
        """`wait(seconds)` returns when cuts may have come, or when the time is over.

        `every`: seconds that a batch lasts, and until a query that ended begins again.  `goodbye`:
        how long `close` waits for the query's end.
        """
        self._spark, self._checkpoint = spark, checkpoint
        self._source, self._wait, self._every = source, wait, every
        self._goodbye = goodbye
        self._client = {name: str(value) for name, value in client.items()}
        self.batches: MicroBatches[OpenBatch] = MicroBatches(every)
        self._stop: Stop | None = None
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._ended: SimpleQueue[ApplyError] = SimpleQueue()  # queries that began again

    def begin(self) -> None:
        """Start Spark and the query in the background, once."""
        self._spark.begin()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="query", daemon=True)
            self._thread.start()

    def run(self, drain: Callable[[], Ledger], stop: Stop, observer: Observer) -> None:
        """Wait and drain, in turn; raise what ends Spark."""
        self._stop = stop
        while not stop():
            self._wait(POLL)
            with self.batches.one_pass():
                self.batches.applied(drain().next_offset, 0)
            if self._failed is not None and not stop():
                raise self._failed
            while not self._ended.empty():
                observer.on_retry(self._ended.get(), self._every)

    def applied(self, progress: AppliedStep) -> None:
        """A step of the target is durable."""
        self.batches.applied(progress.ledger.next_offset, progress.segment.rows)

    def close(self) -> None:
        """Stop the query; a Spark that still starts ends with the process."""
        self._is_over.set()
        self.batches.close()
        if self._thread is not None and self._spark.is_ready:
            self._thread.join(self._goodbye)

    def session(self) -> SparkSession:
        """Wait for the session; the calling thread's jobs end when the loop is to stop."""
        session = self._spark.session()
        jvm.tag_jobs(session, _JOBS)
        return session

    # ---------------------------------------------------------------- the query's thread
    def _keep(self) -> None:
        """Keep a query running until `close`, from the first step on: then there is a topic."""
        try:
            session = self._spark.session()
            first = self.batches.wait_for_place()
            while not self._is_over.is_set():
                try:
                    self._query(session, first)
                except QueryEnded as error:
                    self._ended.put(error)
                    self._is_over.wait(self._every)
        except BaseException as error:  # noqa: BLE001  raised by `run`
            self._failed = error

    def _query(self, session: SparkSession, first: int) -> None:
        """Run one query until `close`; raise QueryEnded, or SparkFailed if Spark is gone."""
        try:
            with self.batches.coming():
                query = start_query(
                    session,
                    self.batches,
                    source=self._source,
                    client=self._client,
                    checkpoint=self._checkpoint.folder(),
                    first=first,
                )
                try:
                    self._watch(session, query)
                finally:
                    with suppress(*GONE_ERRORS):
                        query.stop()
        except GONE_ERRORS as error:
            if not self._is_over.is_set():
                raise self._broken(session, error) from error

    def _watch(self, session: SparkSession, query: StreamingQuery) -> None:
        is_cancelled = False
        while not self._is_over.wait(_LOOK):
            if not query.isActive:
                raise self._without_us(query)
            if self._stop is not None and self._stop() and not is_cancelled:
                is_cancelled = True
                jvm.cancel_jobs(session, _JOBS)  # the loop waits for its job

    def _without_us(self, query: StreamingQuery) -> ApplyError:
        """What ended a query that we did not: most likely a full folder, or files in it."""
        error = query.exception()
        why = reason(error) if error is not None else "it does not say why"
        self._checkpoint.give_up(why)
        return QueryEnded("Spark ended the query", cause=why)

    def _broken(self, session: SparkSession, error: BaseException) -> ApplyError:
        """A query that cannot begin, or a JVM that is gone."""
        if not jvm.is_alive(session):
            return SparkFailed(
                "Spark's JVM ended",
                hint="was it killed, or short of memory ([spark.options] spark.driver.memory)? "
                "start again: nothing is lost",
                cause=reason(error),
            )
        self._checkpoint.give_up(reason(error))
        return QueryEnded("Spark cannot begin the query", cause=reason(error))


class Starting:
    """A Spark session in the making: a JVM takes seconds, in which the target moves on."""

    def __init__(self, make: Callable[[], SparkSession]) -> None:
        self._make = make
        self._session: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start it in the background, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark", daemon=True)
            self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Say whether `session` answers at once."""
        return self._thread is not None and not self._thread.is_alive()

    def session(self) -> SparkSession:
        """Wait for it; raise what went wrong."""
        self.begin()
        assert self._thread is not None
        self._thread.join()
        if self._session is None:
            raise self._error or SparkFailed("Spark does not start")
        return self._session

    def stop(self) -> None:
        """End the session, if there is one yet; a JVM that is starting ends with us."""
        if self.is_ready and self._session is not None:
            with suppress(*GONE_ERRORS):
                self._session.stop()

    def _run(self) -> None:
        try:
            self._session = self._make()
        except BaseException as error:  # noqa: BLE001  raised where it is asked for
            self._error = error


class Checkpoint:
    """Where the query keeps its checkpoint: any folder does, since it decides nothing."""

    def __init__(self, configured: str, warn: Callable[[str], None] = lambda _: None) -> None:
        self._configured, self._warn = configured, warn
        self._is_given_up = False

    def folder(self) -> str:
        """The configured folder, or a temporary one where it cannot be written."""
        if self._is_given_up:
            return tempfile.mkdtemp(prefix="gauss-cdc-checkpoint-")
        path = folders.local(self._configured)
        if path is None:  # HDFS, S3, ...: Spark's own affair
            return self._configured
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path) as file:
                file.write(bytes(1 << 16))
        except OSError as error:
            self.give_up(f"{error.strerror}")
            return self.folder()
        return self._configured

    def give_up(self, why: str) -> None:
        """Use a temporary folder from now on."""
        if not self._is_given_up:
            self._is_given_up = True
            self._warn(
                f"the checkpoint {self._configured} cannot be used ({why}); a temporary one takes "
                "its place: it decides nothing"
            )
