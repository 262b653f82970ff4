"""`gauss-cdc apply`: the consumer half with a real Kafka, Spark and target."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

import tenacity
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from gauss_cdc import target, wiring
from gauss_cdc.config import Config, revealed
from gauss_cdc.services import jars, java
from gauss_cdc.watch import StopSignal, console
from spark_consumers.errors import ApplyError, Verdict
from spark_consumers.job import Applier, Options, Progress
from spark_consumers.lanes import Lanes
from spark_consumers.model import Ledger
from spark_consumers.read import CutReader, RangeReader, registry_at
from spark_consumers.sinks import SINKS
from spark_consumers.stream import spark_confs, start_query

_log = logging.getLogger("gauss_cdc.apply")

_SMALL_ROWS = 5_000
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the program that it starts


def spark_session(config: Config) -> SparkSession:
    """Make the session; a local one finds Java and the connector's jars by itself.

    Under `spark-submit` master, jars and packages are what it was told.
    """
    options = revealed(config.spark.options)
    builder = SparkSession.builder.appName(f"gauss-cdc {config.kafka.prefix}")
    if _SUBMITTED not in os.environ:
        builder = builder.master(config.spark.master)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if config.spark.master.startswith("local"):
            if not {"spark.jars", "spark.jars.packages"} & set(options):
                found = jars.fetch(["spark"], console=console)["spark"]
                options["spark.jars"] = ",".join(map(str, found))
            os.environ["JAVA_HOME"] = str(java.find(shims=jars.cache()).home)
            options.setdefault("spark.driver.host", "127.0.0.1")
            options.setdefault("spark.driver.bindAddress", "127.0.0.1")
    for name, value in {**spark_confs(), **options}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class _Starting:
    """A Spark session in the making: a JVM takes seconds, in which the target moves on."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._session: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        return not self._thread.is_alive()

    def session(self) -> SparkSession:
        """Wait for it; raise what went wrong."""
        self._thread.join()
        if self._session is None:
            raise self._error or RuntimeError("no Spark session")
        return self._session

    def _run(self) -> None:
        try:
            self._session = spark_session(self._config)
        except BaseException as error:  # noqa: BLE001  raised where it is asked for
            self._error = error


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
    prefix = config.kafka.prefix

    def pause(seconds: float) -> None:
        stop.asked(seconds)

    def passes(error: BaseException) -> bool:
        return isinstance(error, ApplyError) and error.verdict is Verdict.RETRY and not stop.asked()

    def note(state: tenacity.RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        _log.warning("%s; retrying in %.1f s", error, state.upcoming_sleep)

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
        cuts = CutReader(client, prefix, schema_of)
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
            pause=lambda attempt: pause(min(0.2 * 2**attempt, 5)),
        )
        applier.on_pass = on_pass
        started = False
        spark: _Starting | None = None

        def turn() -> None:
            """What a crash may have left over, until Spark has started; then the query."""
            nonlocal started, spark
            if not started:
                sink.start()
                started = True
            on_step("start: first pass")
            applier.failure = None
            if spark is None:
                spark = _Starting(config)
            applier.drain(stop.asked)
            while not spark.is_ready and not stop.asked():
                cuts.wait(0.1)
                applier.drain(stop.asked)
            if stop.asked():
                return
            on_step("start: Spark")
            query = start_query(
                spark.session(),
                applier,
                source=prefix,
                client={name: str(value) for name, value in client.items()},
                checkpoint=config.spark.checkpoint,
                stop=stop.asked,
                linger=config.spark.linger.total_seconds(),
                wait=cuts.wait,
            )
            while not stop.asked(0.3):
                if not query.isActive:
                    raise applier.failure or query.exception() or RuntimeError("the query ended")
            # A signal to the whole process group ends the JVM as well, perhaps before us:
            # what is left of the query then cannot be stopped, and need not be.
            with suppress(Py4JError, OSError):
                query.stop()

        tenacity.Retrying(
            retry=tenacity.retry_if_exception(passes),
            wait=tenacity.wait_exponential_jitter(initial=0.5, max=15),
            sleep=pause,
            before_sleep=note,
            reraise=True,
        )(turn)
        if spark is not None and spark.is_ready:
            with suppress(Py4JError, OSError):
                spark.session().stop()
