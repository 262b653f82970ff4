"""`gauss-cdc check` for openGauss and GaussDB: the manual's conditions, one by one.

Source: GaussDB manual, "Logical Decoding: Overview", prerequisites and notices,
and "DDL". The rules are pure: they use readings (`sources/gauss/readings`) and the
configuration.  What cannot be read from the server is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from producer.errors import OptionRefused
from producer.options import Options
from producer.sources import requests
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import key_ranges, marks
from producer.sources.gauss.checks import limits, server, slot, tables
from producer.sources.gauss.checks.case import Case
from producer.sources.gauss.options import effective
from producer.sources.gauss.point import has_windows
from producer.sources.gauss.readings import Readings, ReadingSession, read
from producer.sources.gauss.resolver import MARKS
from producer.sources.gauss.snapshot import without_virtual
from producer.sources.ranges import waiting
from producer.sources.rights import foreign_problems, problems_of_reading
from schemas import ownership
from schemas.findings import Finding, Level, refused

__all__ = ["check_gauss_source", "findings"]

_MARKS: Final = "marks"

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


def check_gauss_source(
    options: Options, session: ReadingSession, *, fix: bool
) -> Iterator[Finding]:
    """Read the source and apply the rules; raises SourceError where it cannot be read."""
    readings = read(session, options.include, options.exclude)
    yield from findings(readings, options)
    tables = [table.id for table in readings.tables if table.shape is not None]
    rights = gauss_catalog.table_rights(session, tables)
    # A first load reads every table; a running stream needs the right for its next load only.
    level = Level.ERROR if readings.slot(options.slot) is None else Level.WARNING
    for problem in problems_of_reading(rights, gauss_catalog.user(session)):
        yield refused("rights", problem, level)
    yield from _marks(options, session, fix=fix)
    yield from _ways(options, session, readings)
    if options.role == "primary":
        yield from requests.check(session)


def _ways(options: Options, session: ReadingSession, found: Readings) -> Iterator[Finding]:
    """Which large tables hold all others when they are read again."""
    with suppress(OptionRefused):  # said already
        decided = effective(options.plugin_options, options.terms)
        if not key_ranges.reads_ranges(decided, found.server, found.node):
            return
        for shape in (table.shape for table in found.tables if table.shape is not None):
            least = options.tuning.beside_bytes
            sent = without_virtual(shape)
            yield from waiting(shape.id, key_ranges.why_not(session, sent, found.server, least))


def _marks(options: Options, session: ReadingSession, *, fix: bool) -> Iterator[Finding]:
    """By which tables are loaded in the order of CSNs."""
    with suppress(OptionRefused):  # said already
        decided = effective(options.plugin_options, options.terms)
        if decided.ordered_by != "csn" or not has_windows(decided) or options.role != "primary":
            return
        if foreign := list(foreign_problems(session, ownership.MARKS)):
            yield from map(partial(refused, _MARKS), foreign)
        elif statements := marks.missing(session, gauss_catalog.user(session)):
            what = "the role may not write the table of marks, by which tables are loaded"
            yield Finding(Level.ERROR, _MARKS, what, "; ".join(statements))
        elif fix and marks.make(session):
            yield Finding(Level.FIXED, _MARKS, f"{MARKS} was made")
        elif not fix and not marks.is_there(session):
            yield Finding(Level.OK, _MARKS, f"{MARKS} does not exist yet: the first load makes it")
        else:
            yield Finding(Level.OK, _MARKS, f"{MARKS} can be written")


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
