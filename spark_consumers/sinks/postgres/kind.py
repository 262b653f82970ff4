"""PostgreSQL, and openGauss with GaussDB, as kinds of targets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from spark_consumers.sinks.base import Kind, Setup
from spark_consumers.sinks.postgres.checks import PostgresInspector
from spark_consumers.sinks.postgres.products import OPENGAUSS, POSTGRES, TargetProduct
from spark_consumers.sinks.postgres.sink import PostgresSink


def _sink(setup: Setup, product: TargetProduct) -> PostgresSink:
    return PostgresSink(
        setup.connect,
        setup.source,
        replace=setup.replace,
        product=product,
        on_wait=setup.on_wait,
        on_step=setup.on_step,
        ddl=setup.ddl,
        code=setup.code,
        on_note=setup.on_note,
        asked=setup.asked,
        label=setup.label,
    )


# Of Spark's JVM, which schedules tasks and hands their rows on: better code is not worth its CPU,
# nor is a second copy of rows in its block manager.
_SPARK: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.task.maxDirectResultSize": "64m",
}


def _spark_settings(_: str) -> Mapping[str, str]:
    return _SPARK


POSTGRES_KIND: Final = Kind(
    sink=partial(_sink, product=POSTGRES),
    inspector=partial(PostgresInspector, product=POSTGRES),
    settings=_spark_settings,
    client=POSTGRES.dialect,
)
OPENGAUSS_KIND: Final = Kind(
    sink=partial(_sink, product=OPENGAUSS),
    inspector=partial(PostgresInspector, product=OPENGAUSS),
    settings=_spark_settings,
    client=OPENGAUSS.dialect,
)
