"""`gauss-cdc check`: the source's half is its kind's, Kafka's `producer.preflight`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from gauss_cdc import wiring
from gauss_cdc.config import Config
from gauss_cdc.inspect.check_target import check_target
from gauss_cdc.inspect.protection import named, protections
from producer import native
from producer.errors import CdcError, ConnectionLost
from producer.outlook import check_start
from producer.preflight import check_kafka
from producer.sources.kinds import SOURCES
from schemas.findings import Finding, Level, refused
from schemas.tables import TableSchema
from spark_consumers.errors import ApplyError, TargetDown

_BETWEEN: Final = ("Kafka", "registry")


def check_all(config: Config, *, fix: bool) -> Iterator[Finding]:
    """Yield all findings, errors included: a place that does not answer does not hide others."""
    options = wiring.producer_options(config)
    shapes: list[TableSchema] = []
    silent: set[str] = set()  # places that do not answer: they are not asked again
    try:
        with closing(SOURCES[options.kind].inspector(options)) as inspector:
            yield from inspector.check(fix=fix)
            shapes = inspector.captured()
            yield from inspector.replication()
    except CdcError as error:
        yield refused("source", error)
        if isinstance(error, ConnectionLost):
            silent.add("source")
    tables = [shape.id for shape in shapes]
    yield Finding(Level.OK, "rows", f"made by {native.described(options.native)}")
    kafka = list(check_kafka(options, tables))
    yield from kafka
    reads_cuts = not any(f.level is Level.ERROR and f.subject in _BETWEEN for f in kafka)
    if reads_cuts and not silent:
        yield from check_start(options, tables)
    if config.target is None:
        yield Finding(Level.WARNING, "target", "none is configured: only `run` can be used")
    for one in config.targets if config.target is not None else ():
        try:
            for finding in check_target(one, tables, shapes, reads_cuts=reads_cuts):
                yield named(finding, one, config)
        except (ApplyError, CdcError) as error:
            yield named(refused("target", error), one, config)
            if isinstance(error, TargetDown | ConnectionLost):
                silent.add(f"target {one.name}")
    yield from protections(config, silent)
