"""What the next `run` would find: its first steps, without side effects.

The source is opened as `run` opens it (which shows that it may replicate), and compared
with the cuts by the rules of `core/takeover/takeover`: there is only one set of rules.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Final, TypeVar

from producer.core.catalog.look import Before
from producer.core.takeover.takeover import Step, foresee
from producer.core.turn import PAUSE
from producer.errors import BrokerDown, CdcError, RegistryDown
from producer.options import Options
from producer.sources.kinds import SOURCES
from producer.start import StartParts
from schemas.control import Looked
from schemas.findings import Finding, Level, refused
from schemas.tables import TableId

T = TypeVar("T")
_TRIES: Final = 50  # waits of PAUSE seconds for another producer's open transaction


def check_start(options: Options, tables: Sequence[TableId]) -> Iterator[Finding]:
    """Say what the next `run` would do, and what would stop it; `tables` will be captured."""
    try:
        with ExitStack() as stack:
            yield from _check_start(options, tables, stack)
    except (BrokerDown, RegistryDown):
        return  # Kafka's and the registry's own lines say so
    except CdcError as error:
        yield refused("run", error)


def _check_start(
    options: Options, tables: Sequence[TableId], stack: ExitStack
) -> Iterator[Finding]:
    kind = SOURCES[options.kind]
    source = kind.open(options, lambda _: None)
    stack.callback(source.close)
    identity = source.identity()
    if kind.opens_stream:  # for the others `check` has logged in as the stream does
        where = f"system {identity.system_id}, timeline {identity.timeline}"
        yield Finding(Level.OK, "replication", f"the role may replicate; {where}")
    parts = StartParts.open(options, stack)
    cuts, there = options.topics.cuts, parts.admin.list_below(options.prefix)
    reader = parts.reader(cuts) if cuts in there else None
    log = parts.log(reader, note=lambda _: None)
    ours = {options.topics.ddl, *(options.topics.of(table, there) for table in tables)}
    request = parts.request(source, instance="", is_ours=ours.__contains__)
    found = _driven(foresee(source, log, request, patience=_TRIES))
    if isinstance(found, str):
        what = f"begins an epoch: creates slot {options.slot} and loads every table ({found})"
        yield Finding(Level.OK, "run", what)
    else:
        yield Finding(Level.OK, "run", f"continues after the newest cut, by slot {options.slot}")
        if found.looked is not None:
            yield from _gaps(options, found.looked)


def _gaps(options: Options, looked: Looked) -> Iterator[Finding]:
    """Say what changed in the catalog behind the last look, and no stream explains."""
    with closing(SOURCES[options.kind].inspector(options)) as inspector:
        for what in inspector.changed(Before.of(looked)):
            yield Finding(
                Level.WARNING,
                "run",
                f"{what} since `run` looked last: rows may have been lost",
                "`run` marks the tables concerned as not exact, and reads them again by "
                '`[source] repair = "auto"`; `gauss-cdc snapshot` does so on request',
            )


def _driven(steps: Generator[Step, None, T]) -> T:
    while True:
        try:
            step = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        if step.waits_for:
            time.sleep(PAUSE)
