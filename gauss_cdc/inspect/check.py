"""`gauss-cdc check`: source and Kafka are `producer.preflight`'s, the target stands here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from gauss_cdc import wiring
from gauss_cdc.config import Config
from gauss_cdc.inspect.check_target import check_target
from gauss_cdc.inspect.protection import protections
from producer import native
from producer.errors import CdcError, ConnectionLost
from producer.options import Options
from producer.outlook import check_start
from producer.preflight import check_kafka, check_source
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss.checks import check_gauss_source
from producer.sources.gauss.point import open_replication
from producer.sources.postgres import catalog
from producer.sources.postgres.captured import captured_tables
from producer.sources.postgres.snapshot import stream_shapes
from schemas.findings import Finding, Level
from schemas.tables import TableId, TableSchema
from spark_consumers.errors import ApplyError, TargetDown

_BETWEEN: Final = ("Kafka", "registry")


def check_all(config: Config, *, fix: bool) -> Iterator[Finding]:
    """Yield all findings, errors included: a place that does not answer does not hide others."""
    options = wiring.producer_options(config)
    tables: list[TableId] = []
    shapes: list[TableSchema] = []
    silent: set[str] = set()  # places that do not answer: they are not asked again
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
                yield from check_gauss_source(options, session, fix=fix)
                tables = gauss_catalog.expand(session, options.include, options.exclude)
                shapes = gauss_catalog.table_schemas(session, tables)
            yield from _replication(options)
    except CdcError as error:
        yield Finding(Level.ERROR, "source", str(error))
        if isinstance(error, ConnectionLost):
            silent.add("source")
    yield Finding(Level.OK, "rows", f"made by {native.described(options.native)}")
    kafka = list(check_kafka(options, tables))
    yield from kafka
    reads_cuts = not any(f.level is Level.ERROR and f.subject in _BETWEEN for f in kafka)
    if reads_cuts and not silent:
        yield from check_start(options)
    if config.target is None:
        yield Finding(Level.WARNING, "target", "none is configured: only `run` can be used")
    else:
        try:
            yield from check_target(config, tables, shapes, reads_cuts=reads_cuts)
        except (ApplyError, CdcError) as error:
            yield Finding(Level.ERROR, "target", str(error))
            if isinstance(error, TargetDown | ConnectionLost):
                silent.add("target")
    yield from protections(config, silent)


def _replication(options: Options) -> Iterator[Finding]:
    """Log in once more, as `run` does: another port, another line of pg_hba.conf."""
    if options.interface == "sql":
        return
    with open_replication(options) as wire:
        found = wire.identify()
        at = f"{wire.arguments.host}:{wire.arguments.port}"
    yield Finding(
        Level.OK, "replication", f"at {at}, system {found.system_id}, timeline {found.timeline}"
    )
