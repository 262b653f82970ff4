"""Asks a `run` to read tables again, by rows of a table at the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from gauss_cdc import wiring
from gauss_cdc.config import Config
from producer.errors import Unsupported
from producer.sources.patterns import chooser
from producer.sources.postgres import catalog, requests
from producer.sources.postgres.requests import AskedAgain
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId


class NotCaptured(ValueError):
    """A table is not in [tables]."""


class NotAsked(ValueError):
    """Nobody asks for a table."""


def possible(config: Config) -> bool:
    """Say whether this kind of source can read one table again."""
    return config.source.kind == "postgres"


def check(config: Config) -> None:
    """Raise Unsupported where it cannot."""
    if not possible(config):
        raise Unsupported(
            "tables of this kind of source cannot be read again by themselves",
            hint=f"a load makes all of them equal: {LOAD_AGAIN}",
        )


def ask(config: Config, names: Sequence[str]) -> None:
    """Ask for tables, named as schema.table; raise NotCaptured."""
    check(config)
    options = wiring.producer_options(config)
    wanted = chooser(options.include, options.exclude)
    tables = [_table(name) for name in names]
    for table in tables:
        if not wanted(table):
            raise NotCaptured(f"{table} is not in [tables]")
    with _source(config) as (connection, slot):
        requests.ask(connection, slot, tables)


def cancel(config: Config, names: Sequence[str]) -> None:
    """Take requests back; raise NotAsked."""
    check(config)
    with _source(config) as (connection, slot):
        for name in names:
            if not requests.forget(connection, slot, _table(name)):
                raise NotAsked(f"nobody asks for {name}")


def asked(config: Config) -> list[AskedAgain]:
    """Return the requests that are open, oldest first."""
    check(config)
    with _source(config) as (connection, slot):
        return requests.requests(connection, slot)


def _table(name: str) -> TableId:
    schema, _, table = name.partition(".")
    return TableId(schema, table)


@contextmanager
def _source(config: Config) -> Iterator[tuple[Connection, str]]:
    options = wiring.producer_options(config)
    connection = catalog.connect(options.source)
    try:
        yield connection, options.slot
    finally:
        connection.close()
