"""Connections to the target, whichever product it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg2

from gauss_cdc import gauss_dbapi, wiring
from gauss_cdc.config import Config


def connector(config: Config) -> Callable[[], Any]:
    """Give what makes a connection: psycopg2's, or our own client's in the same shape.

    It raises one of `spark_consumers.sinks.driver.DRIVER_ERRORS`.
    """
    arguments = wiring.target_arguments(config)
    assert config.target is not None
    if config.target.kind == "opengauss":
        return partial(gauss_dbapi.connect, arguments)
    return partial(psycopg2.connect, **arguments.libpq())


def lanes(config: Config) -> dict[str, int]:
    """Say which way rows may go: executors have psycopg2 only, and openGauss refuses its login."""
    assert config.target is not None
    return {"driver_rows": sys.maxsize} if config.target.kind == "opengauss" else {}
