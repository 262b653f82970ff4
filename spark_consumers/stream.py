"""All that the loop knows of Spark: a stream on cuts that wakes it.

The stream's content is not used and its checkpoint decides nothing; an action on
the batch's frame would cost a Spark job per batch for an unused number.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.topics import Topics
from spark_consumers import folders
from spark_consumers.errors import ApplyError, QueryEnded, SparkFailed
from spark_consumers.job import Observer
from spark_consumers.run import Stop
from spark_consumers.security import java_client

# What Spark, its gateway and a JVM that is gone raise.
SPARK_ERRORS: Final = (PySparkException, Py4JError, OSError)


def start_query(
    spark: SparkSession,
    drain: Callable[[], object],
    *,
    source: str,
    client: Mapping[str, str],
    checkpoint: str,
    stop: Callable[[], bool],
    linger: float = 0.0,
    wait: Callable[[float], object],
    trigger: str = "0 seconds",
) -> StreamingQuery:
    """Start the stream on cuts; a first pass was made before.

    `stop` must return True before the query is stopped; else the batch lasts for its linger.
    """
    cuts = Topics(source).cuts
    frame = (
        spark.readStream.format("kafka")
        .options(**java_client(client))
        .options(
            **{
                "assign": json.dumps({cuts: [0]}),
                # The ledger decides where to go on, so a checkpoint that points outside of
                # the log, or none, must neither stop the query nor miss its first batch.
                "startingOffsets": "earliest",
                "failOnDataLoss": "false",
                "kafka.isolation.level": "read_committed",
                "kafka.fetch.max.wait.ms": "10",
            }
        )
        .load()
        .select("offset")
    )
    return (
        frame.writeStream.foreachBatch(
            make_foreach_batch(drain, stop=stop, linger=linger, wait=wait)
        )
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=trigger)
        .queryName(f"gauss-cdc {source}")
        .start()
    )


def make_foreach_batch(
    drain: Callable[[], object],
    *,
    stop: Callable[[], bool] = lambda: False,
    linger: float = 0.0,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[Any, int], None]:
    """Bind the loop; the result is what `foreachBatch` wants.

    With `linger` seconds the batch stays and goes on draining, which spares Spark's
    trigger; `wait(seconds)` returns when cuts may have come, or when the time is over.
    """

    def apply_batch(_batch: Any, _batch_id: int) -> None:
        until = clock() + linger
        drain()
        while not stop() and (left := until - clock()) > 0:
            wait(min(left, 0.1))
            drain()

    return apply_batch


class SparkStream:
    """The waker of a run on Spark: passes run in micro-batches of a stream on cuts."""

    def __init__(
        self,
        spark: Starting,
        checkpoint: Checkpoint,
        *,
        source: str,
        client: Mapping[str, Any],
        wait: Callable[[float], object],
        linger: float = 0.0,
    ) -> None:
        """`wait(seconds)` returns when cuts may have come, or when the time is over."""
        self._spark, self._checkpoint = spark, checkpoint
        self._source, self._linger, self._wait = source, linger, wait
        self._client = {name: str(value) for name, value in client.items()}

    def begin(self) -> None:
        """Start Spark in the background."""
        self._spark.begin()

    def run(self, drain: Callable[[], object], stop: Stop, observer: Observer) -> None:
        """Drain in the process until Spark has started; then in the query's batches."""
        while not self._spark.is_ready and not stop():
            self._wait(0.1)
            drain()
        if stop():
            return
        observer.on_step("start: Spark")
        session = self._spark.session()
        failures: list[BaseException] = []  # Spark hands on only their text
        is_over = False

        def remembering() -> None:
            try:
                drain()
            except BaseException as error:
                failures.append(error)
                raise

        try:
            query = start_query(
                session,
                remembering,
                source=self._source,
                client=self._client,
                checkpoint=self._checkpoint.folder(),
                stop=lambda: is_over or stop(),
                linger=self._linger,
                wait=self._wait,
            )
            try:
                while not stop(0.3):
                    if not query.isActive:
                        raise failures[-1] if failures else self._ended(query)
            finally:
                is_over = True
                with suppress(*SPARK_ERRORS):
                    query.stop()
        except SPARK_ERRORS as error:
            if failures and error is failures[-1]:
                raise
            if stop():
                return  # a signal to the whole process group ends the JVM as well
            raise self._broken(session, error) from error

    def _ended(self, query: StreamingQuery) -> ApplyError:
        """What ended a query that we did not: most likely a full folder, or files in it."""
        error = query.exception()
        why = reason(error) if error is not None else "it does not say why"
        self._checkpoint.give_up(why)
        return QueryEnded("Spark ended the query", cause=why)

    def _broken(self, session: SparkSession, error: BaseException) -> ApplyError:
        """A query that cannot begin, or a JVM that is gone."""
        try:
            _ = session.sparkContext.version
        except SPARK_ERRORS:
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
            with suppress(*SPARK_ERRORS):
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


def reason(error: BaseException) -> str:
    """The first line of Java's or Python's message, without the stack trace."""
    if isinstance(error, Py4JJavaError):
        with suppress(Py4JError, OSError):
            return _one_line(str(error.java_exception.toString()))
    return _one_line(str(error) or type(error).__name__)


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else ""
    return line if len(line) <= 300 else line[:299] + "…"
