"""`gauss-cdc apply`: the consumer half with a real Kafka, Spark and target."""

from __future__ import annotations

import dataclasses
import logging
from contextlib import closing
from typing import Final

from gauss_cdc import target
from gauss_cdc.backlog import Driven
from gauss_cdc.config import Config
from gauss_cdc.session import spark_session, starts_here
from spark_consumers.ahead import ReadingThread
from spark_consumers.job import Observer, PassOptions
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.lake_rows import FrameReader
from spark_consumers.lanes import Lanes
from spark_consumers.run import Stop, run
from spark_consumers.security import java_client
from spark_consumers.stream import Checkpoint, SparkStream, Starting

_log = logging.getLogger("gauss_cdc.apply")

# Rows of a segment: where the target keeps up, and where much waits (spark_consumers/sizes.py).
_FEW_ROWS: Final = 5_000
_MANY_ROWS: Final = 200_000  # by executors
_DRIVER_ROWS: Final = 50_000  # by the driver, where it is to take what waits
_LAKE_ROWS: Final = 1_000_000  # a lake's step costs by table
_BEHIND: Final = 10.0  # seconds in which most backlogs of a restart are worked off
_DOUBT: Final = 30.0  # seconds: several heartbeats of a running `run`


def apply(config: Config, stop: Stop, observer: Observer, *, replace: bool) -> None:
    """Kafka -> target until asked to stop; retry after temporary errors.

    Raises the ApplyError that needs an operator.
    """
    setup, kind = target.setup(config), target.kind_of(config)
    assert config.target is not None
    client, spark_client = config.kafka.client_settings(), config.spark_client()
    java_client(spark_client)  # what has no counterpart is reported before anything begins
    prefix = config.kafka.prefix
    is_lake, interval = kind.settings is not None, config.target.interval.total_seconds()

    def alarm(what: str) -> None:
        _log.warning("a record that is not ours: %s; who may write there? (gauss-cdc check)", what)

    observer.on_step("start: connect to the target")
    setup = dataclasses.replace(
        setup, replace=replace, on_step=observer.on_step, on_wait=_log.info, on_note=_log.info
    )
    schema_of = registry_at(config.registry.url, config.registry.client())
    spark = Starting(lambda: spark_session(config))
    is_driven = Driven(config, spark)
    native = config.kafka.native != "off"
    cuts = CutReader(client, prefix, schema_of, doubt=_DOUBT, on_alarm=alarm, native=native)
    with (
        closing(cuts),
        closing(RangeReader(client, prefix, schema_of, native=native)) as rows,
        closing(ReadingThread()) as begin,
    ):
        stream = SparkStream(
            spark,
            Checkpoint(config.spark.checkpoint, _log.warning),
            source=prefix,
            client=spark_client,
            wait=(lambda _: stop(interval)) if is_lake else cuts.wait,
            behind=_BEHIND if is_driven() and starts_here(config) and not is_lake else 0.0,
        )
        lanes: Lanes | FrameReader
        if is_lake:
            setup = dataclasses.replace(setup, spark=stream.session)
            lanes = FrameReader(stream.session, rows, schema_of, source=prefix, client=spark_client)
        else:
            lanes = Lanes(
                stream.session,
                rows,
                schema_of,
                source=prefix,
                client=client,
                loader=kind.loader(setup) if kind.loader is not None else None,
                is_driven=is_driven,
                native=native,
                sends_secrets=config.spark.executor_secrets == "sent",
                stop=stop,
                on_idle=_log.warning,
                on_note=_log.info,
            )
        sizes = (_LAKE_ROWS, _LAKE_ROWS) if is_lake else (_FEW_ROWS, _MANY_ROWS)
        strict = config.target.strict and not is_lake
        driver_rows = _DRIVER_ROWS if is_driven() and rows.is_native and not is_lake else 0
        options = PassOptions(*sizes, driver_rows, strict=strict, ddl_apart=not is_lake)
        with closing(lanes):
            run(
                kind.sink(setup), cuts, lanes, stream,
                options=options, stop=stop, observer=observer, begin=begin,
                spreads=lambda ids: spark.is_ready and lanes.spreads(ids),
            )  # fmt: skip
    spark.stop()
