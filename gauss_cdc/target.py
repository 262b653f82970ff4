"""The parts of the configured target: its kind, and the client that the program provides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import psycopg2

from gauss_cdc import gauss_dbapi, wiring
from gauss_cdc.config import Config, ConfigError, TargetSection
from producer.errors import CdcError, ConnectionLost
from producer.sources.base import CatalogSession
from producer.sources.dial import ConnectionArguments
from producer.sources.gauss.connection import GaussConnection
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.managed import refuse_pooler_of
from spark_consumers.sinks.base import Kind, Setup
from spark_consumers.sinks.kinds import SINKS
from spark_consumers.sinks.postgres.driver import Refused


def setup(config: Config) -> Setup:
    """Return the arguments for a sink of the configured kind; raise ConfigError.

    `connect` raises one of `spark_consumers.sinks.postgres.driver.DRIVER_ERRORS`.
    """
    target = _section(config)
    made = Setup(
        source=config.kafka.prefix,
        dsn=target.dsn,
        ddl=config.ddl.apply,
        code=config.ddl.code,
        mode=target.mode,
        keep=target.keep.total_seconds(),
        label=config.label,
    )
    if (client := _CLIENTS.get(kind_of(config).client)) is None:
        return made  # it brings its own
    arguments = wiring.target_arguments(config)
    return replace(made, host=arguments.host, connect=partial(client.connect, arguments))


def kind_of(config: Config) -> Kind:
    """Look the configured kind up; raise ConfigError."""
    return SINKS[_section(config).kind]


def name_of(config: Config) -> str:
    """Return the target's name among those of the same topics; raise ConfigError."""
    _section(config)
    return config.name


def login(config: Config) -> Callable[[], CatalogSession] | None:
    """Return what logs in by our own client, which knows its protection; None: a kind's own does.

    psycopg2 connects by the same settings.
    """
    if (client := _CLIENTS.get(kind_of(config).client)) is None:
        return None
    return partial(client.login, wiring.target_arguments(config))


def spark_settings(config: Config) -> dict[str, str]:
    """Return the settings of Spark that the configured kind needs."""
    settings = None if config.target is None else kind_of(config).settings
    return {} if settings is None else dict(settings(_section(config).dsn))


def _section(config: Config) -> TargetSection:
    if config.target is None:
        raise ConfigError("[target] is missing: apply needs kind and dsn of the target database")
    return config.target


def _connect(arguments: ConnectionArguments) -> Any:
    """Log in by psycopg2; raise Refused with the cause, and None as its code if it is temporary."""
    try:
        connection = psycopg2.connect(**arguments.libpq())
        refuse_pooler_of(connection, arguments.host)
    except psycopg2.OperationalError as error:
        # libpq gives no SQLSTATE for a failed login, only text: our own client repeats the login,
        # and raises the exact error.
        try:
            ReplicationConnection.open(arguments, replication=False).close()
        except ConnectionLost as lost:
            raise Refused(None, hint=str(lost)) from error
        except CdcError as refused:  # no row was read yet: the error contains no values
            raise gauss_dbapi.login_refused(refused) from error
        raise Refused(None, hint="psycopg2 could not connect, and then it was possible") from error
    except CdcError as refused:  # files and settings of the dsn
        raise gauss_dbapi.login_refused(refused) from refused
    return connection


class _TargetClient(NamedTuple):
    """A client in the form of the DB-API, and its protocol's own, which explains failed logins."""

    connect: Callable[[ConnectionArguments], Any]
    login: Callable[[ConnectionArguments], CatalogSession]


# By `Kind.client`: what the program provides.
_CLIENTS: Final[Mapping[str, _TargetClient]] = {
    "postgres": _TargetClient(_connect, partial(ReplicationConnection.open, replication=False)),
    "opengauss": _TargetClient(
        gauss_dbapi.connect, partial(GaussConnection.open, replication=False, role="primary")
    ),
}
