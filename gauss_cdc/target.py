"""Connections to the target, whichever product it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg2

from gauss_cdc import gauss_dbapi, wiring
from gauss_cdc.config import Config
from producer.errors import CdcError, ConnectionLost
from producer.sources.dial import ConnectionArguments
from producer.sources.postgres.connection import ReplicationConnection
from spark_consumers.sinks.postgres.driver import Refused


def connector(config: Config) -> Callable[[], Any]:
    """Give what makes a connection: psycopg2's, or our own client's in the same shape.

    It raises one of `spark_consumers.sinks.driver.DRIVER_ERRORS`.
    """
    arguments = wiring.target_arguments(config)
    assert config.target is not None
    if config.target.kind == "opengauss":
        return partial(gauss_dbapi.connect, arguments)
    return partial(_connect, arguments)


def _connect(arguments: ConnectionArguments) -> Any:
    """Log in by psycopg2; raise Refused with the cause, and None as its code if it may pass."""
    try:
        return psycopg2.connect(**arguments.libpq())
    except psycopg2.OperationalError as error:
        # libpq gives no SQLSTATE for a failed login, only text: our own client asks again,
        # and says what it really was.
        try:
            ReplicationConnection.open(arguments, replication=False).close()
        except ConnectionLost as lost:
            raise Refused(None, hint=str(lost)) from error
        except CdcError as refused:  # no row is in reach yet: its own words may be told
            raise gauss_dbapi.login_refused(refused) from error
        raise Refused(None, hint="psycopg2 could not connect, and then it was possible") from error
    except CdcError as refused:  # files and settings of the dsn
        raise gauss_dbapi.login_refused(refused) from refused


def lanes(config: Config) -> dict[str, int]:
    """Say which way rows may go: executors have psycopg2 only, and openGauss refuses its login."""
    assert config.target is not None
    return {"driver_rows": sys.maxsize} if config.target.kind == "opengauss" else {}
