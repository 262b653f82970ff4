"""`gauss-cdc check`: source and Kafka are `producer.preflight`'s, the target stands here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Final

from gauss_cdc import wiring
from gauss_cdc.config import Config
from gauss_cdc.inspect.check_target import (
    check_next_step,
    check_rights,
    check_shapes,
    owned_tables,
    refused,
)
from gauss_cdc.inspect.places import Places
from gauss_cdc.inspect.protection import protections
from producer.core.ddl_log import known_tables
from producer.errors import CdcError
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.registry import Registry
from producer.options import Options
from producer.outlook import check_start
from producer.preflight import check_kafka, check_source
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss.checks import check_gauss_source
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.server import Product, parse_version
from producer.sources.postgres import catalog
from producer.sources.postgres.captured import captured_tables
from producer.sources.postgres.source import stream_shapes
from schemas.findings import Finding, Level
from schemas.tables import TableId, TableSchema
from spark_consumers.errors import ApplyError
from spark_consumers.model import Ledger
from spark_consumers.sinks.postgres import rights as pg_rights

_BETWEEN: Final = ("Kafka", "registry")
_PRODUCTS: Final = {
    Product.POSTGRES: "PostgreSQL",
    Product.OPENGAUSS: "openGauss",
    Product.GAUSSDB: "GaussDB",
}


def check_all(config: Config, *, fix: bool) -> Iterator[Finding]:
    """Yield everything, errors included: a place that does not answer hides no other."""
    options = wiring.producer_options(config)
    tables: list[TableId] = []
    shapes: list[TableSchema] = []
    try:
        if options.kind == "postgres":
            with closing(catalog.connect(options.source)) as connection:
                yield from check_source(options, connection, fix=fix)
                tables = captured_tables(connection, options)
                if not tables:  # no publication yet
                    tables = catalog.expand(connection, options.include, options.exclude)
                shapes = stream_shapes(catalog.table_schemas(connection, tables))
        else:
            with closing(wiring.source_session(config)) as session:
                yield from check_gauss_source(options, session)
                tables = gauss_catalog.expand(session, options.include, options.exclude)
                shapes = gauss_catalog.table_schemas(session, tables)
            yield from _replication(options)
    except CdcError as error:
        yield Finding(Level.ERROR, "source", str(error))
    kafka = list(check_kafka(options, tables))
    yield from kafka
    yield from check_start(options)
    yield from protections(config)
    if config.target is None:
        yield Finding(Level.WARNING, "target", "none is configured: only `run` can be used")
        return
    try:
        reads_cuts = not any(f.level is Level.ERROR and f.subject in _BETWEEN for f in kafka)
        yield from _target(config, tables, shapes, reads_cuts=reads_cuts)
    except (ApplyError, CdcError) as error:
        yield Finding(Level.ERROR, "target", str(error))


def _replication(options: Options) -> Iterator[Finding]:
    """Log in once more, as `run` does: another port, another line of pg_hba.conf."""
    if options.interface == "sql":
        return
    with GaussConnection.open(
        options.source,
        hosts=options.hosts,
        role=options.role,
        replication_port=options.ha_port or 0,
    ) as wire:
        found = wire.identify()
        at = f"{wire.arguments.host}:{wire.arguments.port}"
    yield Finding(
        Level.OK, "replication", f"at {at}, system {found.system_id}, timeline {found.timeline}"
    )


def _loaded_shapes(config: Config, ledger: Ledger) -> list[TableSchema]:
    """Shapes of tables where the ledger stands; none where Kafka does not say."""
    options = wiring.producer_options(config)
    try:
        with (
            closing(Registry(options.registry_url, options.registry_options)) as registry,
            closing(CutsReader(options.client, options.topics.ddl)) as reader,
        ):
            known = known_tables(reader, registry, epoch=ledger.epoch, seq=ledger.seq)
    except CdcError:
        return []  # Kafka's own lines say so
    return list(known.values())


def _target(
    config: Config, tables: list[TableId], shapes: list[TableSchema], *, reads_cuts: bool
) -> Iterator[Finding]:
    with Places(config) as places, places.target_connection().cursor() as cursor:
        cursor.execute("SELECT version(), '' IS NULL")
        said, loses_empty = cursor.fetchone()
        product, version = parse_version(said)
        yield Finding(Level.OK, "target", f"{_PRODUCTS[product]} {version}")
        assert config.target is not None
        if (config.target.kind == "postgres") != (product is Product.POSTGRES):
            yield Finding(
                Level.ERROR,
                "target",
                f"target.kind is {config.target.kind}, and the server is another product",
                'write `kind = "opengauss"` for openGauss and GaussDB, "postgres" for PostgreSQL',
            )
        if loses_empty:
            yield Finding(
                Level.ERROR,
                "target",
                "the database takes an empty string for NULL, and would not be a copy",
                "CREATE DATABASE … DBCOMPATIBILITY 'PG', and apply there",
            )
        problems = list(pg_rights.database_problems(cursor))
        yield from map(partial(refused, "target rights"), problems)
        ledger = None if problems else places.target()
        yield from check_rights(
            cursor,
            tables,
            follows=config.ddl.apply != "none",
            runs_definitions=config.ddl.apply == "all",
            is_postgres=product is Product.POSTGRES,
            has_ledger=ledger is not None and ledger.epoch > 0,
        )
        is_postgres = product is Product.POSTGRES
        if ledger is not None and ledger.epoch:
            what = f"{ledger.state} at {ledger.epoch}/{ledger.seq}"
            yield Finding(Level.OK, "ledger", what)
            for name, why in ledger.inexact.items():
                yield Finding(Level.WARNING, f"table {name}", f"is not exact: {why}")
            if not reads_cuts:
                return
            owned = owned_tables(cursor, config.kafka.prefix)
            known = [shape for shape in _loaded_shapes(config, ledger) if shape.id in owned]
            yield from check_shapes(cursor, known, is_postgres=is_postgres, are_loaded=True)
            yield from check_next_step(config, ledger)
            return
        yield from check_shapes(cursor, shapes, is_postgres=is_postgres, are_loaded=False)
        for table in tables:
            cursor.execute(
                "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = %s AND c.relname = %s",
                table,
            )
            if (row := cursor.fetchone()) is None:
                continue
            cursor.execute("SELECT pg_relation_size(%s) > 0", row)
            if cursor.fetchone()[0]:
                yield Finding(
                    Level.WARNING,
                    f"table {table}",
                    "is at the target and holds rows",
                    "empty it, or start with `gauss-cdc apply --replace`",
                )
