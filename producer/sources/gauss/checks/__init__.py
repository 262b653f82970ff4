"""`gauss-cdc check` for openGauss and GaussDB: the manual's conditions, one by one.

Source: GaussDB manual, "Logical Decoding: Overview", prerequisites and notices,
and "DDL". The rules are pure: they use readings (`sources/gauss/readings`) and the
configuration.  What cannot be read from the server is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from producer.errors import OptionRefused
from producer.options import Options
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss.checks import limits, server, slot, tables
from producer.sources.gauss.checks.case import Case
from producer.sources.gauss.options import effective
from producer.sources.gauss.readings import Readings, ReadingSession, read
from producer.sources.rights import problems_of_reading
from schemas.findings import Finding, Level, refused

__all__ = ["check_gauss_source", "findings"]

RULES: Final[tuple[Callable[[Case], Iterator[Finding]], ...]] = (
    server.product,
    server.tls,
    server.wal_level,
    server.slot_count,
    server.senders,
    server.decoders,
    server.rights,
    server.encoding,
    server.zero_bytes,
    slot.slot,
    slot.transactions,
    slot.pruning,
    slot.idle_slots,
    limits.options,
    limits.ddl,
    limits.page_copies,
    limits.subtransactions,
    limits.rows,
    limits.plugin,
    limits.first_load,
    limits.switches,
    tables.tables,
)


def check_gauss_source(options: Options, session: ReadingSession) -> Iterator[Finding]:
    """Read the source and apply the rules; raises SourceError where it cannot be read."""
    readings = read(session, options.include, options.exclude)
    yield from findings(readings, options)
    tables = [table.id for table in readings.tables if table.shape is not None]
    rights = gauss_catalog.table_rights(session, tables)
    # A first load reads every table; a running stream needs the right for its next load only.
    level = Level.ERROR if readings.slot(options.slot) is None else Level.WARNING
    for problem in problems_of_reading(rights, gauss_catalog.user(session)):
        yield refused("rights", problem, level)


def findings(readings: Readings, options: Options) -> Iterator[Finding]:
    """Judge readings."""
    try:
        decided = effective(options.plugin_options, options.terms)
    except OptionRefused as refused:
        yield Finding(Level.ERROR, "options", str(refused), refused.hint)
        return
    case = Case(readings, options, decided)
    for rule in RULES:
        yield from rule(case)
