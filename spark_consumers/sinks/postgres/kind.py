"""PostgreSQL, and openGauss with GaussDB, as kinds of targets."""

from __future__ import annotations

from functools import partial
from typing import Final

from spark_consumers.sinks.base import Kind, Setup
from spark_consumers.sinks.postgres.checks import PostgresInspector
from spark_consumers.sinks.postgres.loader import CopyLoader
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
        shadow=setup.shadow,
    )


def _loader(setup: Setup) -> CopyLoader:
    return CopyLoader(setup.login)


POSTGRES_KIND: Final = Kind(
    sink=partial(_sink, product=POSTGRES),
    inspector=partial(PostgresInspector, product=POSTGRES),
    loader=_loader,
    client=POSTGRES.dialect,
)
# Executors have psycopg2 only, and openGauss refuses its login: all rows take the driver.
OPENGAUSS_KIND: Final = Kind(
    sink=partial(_sink, product=OPENGAUSS),
    inspector=partial(PostgresInspector, product=OPENGAUSS),
    client=OPENGAUSS.dialect,
)
