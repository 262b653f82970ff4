"""`gauss-cdc apply`: the consumer half with a real Kafka, Spark and target."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import ExitStack, suppress

import tenacity
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from gauss_cdc import target, wiring
from gauss_cdc.config import Config
from gauss_cdc.session import (
    SPARK_ERRORS,
    Checkpoint,
    Starting,
    reason,
    spark_session,
)
from gauss_cdc.watch import StopSignal
from spark_consumers.errors import ApplyError, QueryEnded, SparkFailed, Verdict
from spark_consumers.job import Applier, Options, Progress
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.lanes import Lanes
from spark_consumers.model import Ledger
from spark_consumers.security import java_client
from spark_consumers.sinks import SINKS
from spark_consumers.stream import start_query

_log = logging.getLogger("gauss_cdc.apply")

_SMALL_ROWS = 5_000
_LONGEST_PAUSE = 15.0  # seconds between two attempts
_DOUBT = 30.0  # seconds: several heartbeats of a `run` that goes on


class _Remembering(Applier):
    """Keeps the error that ended a pass: Spark hands on only its text."""

    failure: BaseException | None = None
    on_pass: Callable[..., None]

    def drain(self, stop: Callable[[], bool] = lambda: False) -> Ledger:
        self.on_pass(ended=False)
        try:
            ledger = super().drain(stop)
        except BaseException as error:
            self.failure = error
            raise
        self.on_pass(ended=True)
        return ledger


def apply(
    config: Config,
    stop: StopSignal,
    on_step: Callable[[str], None],
    *,
    replace: bool,
    on_progress: Callable[[Progress], None],
    on_pass: Callable[..., None],
) -> None:
    """Kafka -> target until asked to stop; come back by itself after errors that pass.

    Raises the ApplyError that needs a person.
    """
    arguments = wiring.target_arguments(config)
    assert config.target is not None
    client = config.kafka.client_settings()
    java_client(client)  # what Spark cannot honour is said before anything begins
    prefix = config.kafka.prefix

    def pause(seconds: float) -> None:
        stop.asked(seconds)

    def passes(error: BaseException) -> bool:
        return isinstance(error, ApplyError) and error.verdict is Verdict.RETRY and not stop.asked()

    def note(state: tenacity.RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        _log.warning("%s; retrying in %.1f s", error, state.upcoming_sleep)

    def alarm(what: str) -> None:
        _log.warning("a record that is not ours: %s; who may write there? (gauss-cdc check)", what)

    with ExitStack() as stack:
        on_step("start: connect to the target")
        sink = SINKS[config.target.kind](
            target.connector(config),
            prefix,
            replace=replace,
            on_wait=_log.info,
            on_step=on_step,
            ddl=config.ddl.apply,
            code=config.ddl.code,
            on_note=_log.info,
        )
        stack.callback(sink.close)
        schema_of = registry_at(config.registry.url, config.registry.client())
        cuts = CutReader(client, prefix, schema_of, doubt=_DOUBT, on_alarm=alarm)
        stack.callback(cuts.close)
        rows = RangeReader(client, prefix, schema_of)
        stack.callback(rows.close)
        lanes = Lanes(
            lambda: spark_session(config),
            rows,
            schema_of,
            source=prefix,
            client=client,
            target=arguments.libpq(),
            **target.lanes(config),
        )
        applier = _Remembering(
            cuts,
            lanes,
            sink,
            Options(max_rows=_SMALL_ROWS, strict=config.target.strict),
            on_step=on_step,
            on_progress=on_progress,
            on_left_out=lambda error: _log.warning(
                "%s; the rest of this epoch is left out: the next one loads every table again",
                error,
            ),
            pause=lambda attempt: pause(min(0.2 * 2**attempt, 5)),
        )
        applier.on_pass = on_pass
        checkpoint = Checkpoint(config.spark.checkpoint)
        started = False
        spark: Starting | None = None

        def turn() -> None:
            """What a crash may have left over, until Spark has started; then the query."""
            nonlocal started, spark
            if not started:
                sink.start()
                started = True
            on_step("start: first pass")
            applier.failure = None
            if spark is None:
                spark = Starting(config)
            applier.drain(stop.asked)
            while not spark.is_ready and not stop.asked():
                cuts.wait(0.1)
                applier.drain(stop.asked)
            if stop.asked():
                return
            on_step("start: Spark")
            session = spark.session()
            try:
                query = start_query(
                    session,
                    applier,
                    source=prefix,
                    client={name: str(value) for name, value in client.items()},
                    checkpoint=checkpoint.folder(),
                    stop=stop.asked,
                    linger=config.spark.linger.total_seconds(),
                    wait=cuts.wait,
                )
                while not stop.asked(0.3):
                    if not query.isActive:
                        raise applier.failure or _ended(query, checkpoint)
            except SPARK_ERRORS as error:
                if stop.asked():
                    return  # a signal to the whole process group ends the JVM as well
                raise _broken(session, error, checkpoint) from error
            with suppress(*SPARK_ERRORS):
                query.stop()

        reached, tries = applier.steps, 0

        def wait(_: tenacity.RetryCallState) -> float:
            """Grow with failures in a row; a turn that moved on begins anew."""
            nonlocal reached, tries
            tries = tries + 1 if applier.steps == reached else 0
            reached = applier.steps
            return min(_LONGEST_PAUSE, 0.5 * 2.0**tries) * random.uniform(0.5, 1)  # noqa: S311

        try:
            tenacity.Retrying(
                retry=tenacity.retry_if_exception(passes),
                wait=wait,
                sleep=pause,
                before_sleep=note,
                reraise=True,
            )(turn)
        except ApplyError as error:
            if error.verdict is not Verdict.RETRY or not stop.asked():
                raise
            _log.info("left while it waited: %s", error)
        if spark is not None:
            spark.stop()


def _ended(query: StreamingQuery, checkpoint: Checkpoint) -> ApplyError:
    """What ended a query that we did not: a folder that is full, or files in it, most likely."""
    error = query.exception()
    why = reason(error) if error is not None else "it does not say why"
    checkpoint.give_up(why)
    return QueryEnded("Spark ended the query", cause=why)


def _broken(session: SparkSession, error: BaseException, checkpoint: Checkpoint) -> ApplyError:
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
    checkpoint.give_up(reason(error))
    return QueryEnded("Spark cannot begin the query", cause=reason(error))
