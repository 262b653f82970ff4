"""`gauss-cdc apply`: the consumer half with a real Kafka, Spark and target."""

from __future__ import annotations

import dataclasses
import logging
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from gauss_cdc import target
from gauss_cdc.config import Config
from gauss_cdc.session import spark_session
from gauss_cdc.shapes import shapes_at
from producer.errors import CdcError
from spark_consumers.errors import KafkaDown
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.loop.ahead import ALONE, ReadingThread, Several
from spark_consumers.loop.job import SILENT, Observer, PassOptions
from spark_consumers.loop.run import Stop, run
from spark_consumers.security import java_client
from spark_consumers.spark.frames import TaskLogin
from spark_consumers.spark.lake_rows import FrameReader
from spark_consumers.spark.lanes import Lanes, Tasks
from spark_consumers.spark.stream import GOODBYE, Checkpoint, SparkStream, Starting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("gauss_cdc.apply")

_GOODBYE: Final = 60.0  # seconds for the query to stop where its session goes on
_DOUBT: Final = 30.0  # seconds: several heartbeats of a running `run`


def tables_at(config: Config, epoch: int, seq: int) -> list[str]:
    """Return the tables that there are at a commit, as schema.table; raises KafkaDown."""
    try:
        return [str(table) for table in shapes_at(config, epoch, seq)]
    except CdcError as error:
        raise KafkaDown(error.what, hint=error.hint, **error.where) from error


def apply(
    config: Config,
    stop: Stop,
    observer: Observer = SILENT,
    *,
    replace: bool = False,
    session: SparkSession | None = None,
) -> None:
    """Kafka -> target until asked to stop; retry after temporary errors.

    `replace` empties target tables that hold rows before a load.  `session`: that of the calling
    program, with Kafka's connector among its jars; only our query and our jobs end with us.

    Raises the ApplyError that needs an operator.
    """
    setup, kind = target.setup(config), target.kind_of(config)
    assert config.target is not None
    client, spark_client = config.kafka.client_settings(), config.spark_client()
    java_client(spark_client)  # what has no counterpart is reported before anything begins
    prefix = config.kafka.prefix
    pace, interval = kind.pace, config.target.interval.total_seconds()

    def alarm(what: str) -> None:
        _log.warning("a record that is not ours: %s; who may write there? (gauss-cdc check)", what)

    observer.on_step("start: connect to the target")
    setup = dataclasses.replace(
        setup, replace=replace, on_step=observer.on_step, on_wait=_log.info, on_note=_log.info
    )
    schema_of = registry_at(config.registry.url, config.registry.client())
    spark = Starting(lambda: session or spark_session(config))
    native = config.kafka.native != "off"
    cuts = CutReader(client, prefix, schema_of, doubt=_DOUBT, on_alarm=alarm, native=native)
    with (
        closing(cuts),
        closing(RangeReader(client, prefix, schema_of, native=native)) as rows,
        closing(ReadingThread()) as begin,
    ):
        stream = SparkStream(
            spark,
            Checkpoint(config.checkpoint, _log.warning),
            source=prefix,
            client=spark_client,
            goodbye=GOODBYE if session is None else _GOODBYE,
            wait=(lambda _: stop(interval)) if pace.by_interval else cuts.wait,
        )
        lanes: Lanes | FrameReader
        several = ALONE
        if pace.takes_frames:
            setup = dataclasses.replace(setup, spark=stream.session)
            sends_secrets = config.spark.executor_secrets == "sent"
            login = TaskLogin(client, prefix, sends_secrets=sends_secrets, native=native)
            lanes = FrameReader(stream.session, rows, schema_of, login=login)
        else:
            tasks = Tasks(
                stream.batches,
                schema_of,
                source=prefix,
                client=client,
                asked=setup.asked,
                native=native,
                sends_secrets=config.spark.executor_secrets == "sent",
                stop=stop,
                on_note=_log.info,
                on_trouble=_log.warning,
            )
            lanes = Lanes(rows, None if config.spark.backlog == "driver" else tasks, source=prefix)
            several = Several(lanes.together, lanes.several)
        options = PassOptions(
            pace.few_rows,
            pace.many_rows,
            strict=config.target.strict and pace.by_commit,
            ddl_apart=pace.by_commit,
            target=target.name_of(config),
        )
        with closing(lanes):
            run(
                kind.sink(setup), cuts, lanes, stream,
                options=options, stop=stop, observer=observer, begin=begin, several=several,
                known=partial(tables_at, config),
            )  # fmt: skip
    if session is None:
        spark.stop()
