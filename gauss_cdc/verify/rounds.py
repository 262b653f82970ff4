"""Compares source and target at one commit, table by table, while both are live.

A round: the source is read under a snapshot of a known place, the target under one that holds
every commit of it and a few more, whose changes are read from Kafka.  Tables that could not be
compared (DDL, a load, TRUNCATE came between) are compared in another round.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from gauss_cdc import target as targets
from gauss_cdc.config import Config, ConfigError
from gauss_cdc.inspect.advice import captured
from gauss_cdc.inspect.places import Endpoints, ReplicationStatus
from gauss_cdc.verify import servers, streams
from gauss_cdc.verify.report import TableReport
from gauss_cdc.verify.request import Request, VerifyObserver
from gauss_cdc.verify.sides import (
    ComparedPair,
    ComparisonStopped,
    NotComparable,
    TableMoved,
    settled,
)
from gauss_cdc.verify.window import Window, changes_between
from producer.errors import SourceError, TableChanging
from producer.sources.base import SnapshotPoint, SourceInspector
from schemas.errors import Verdict
from schemas.positions import NOWHERE, Lsn
from schemas.quoting import qualified
from schemas.tables import TableId, TableSchema, argument
from spark_consumers.cuts.ledger import is_unloaded
from spark_consumers.errors import LedgerError, TargetError
from spark_consumers.model import Ledger

_log = logging.getLogger(__name__)

_LOOK: Final = 0.01  # seconds
_UNFIT: Final = "a value of the source is none of the target's type"
_REFUSED: Final = "a server refused a question, whose log says why"
_NO_RIGHT: Final = "42501"  # names the table alone


def verify(config: Config, request: Request, observer: VerifyObserver) -> list[TableReport] | None:
    """Compare; None: asked to stop before anything was known.

    Raises what `status` raises of a place that does not answer.
    """
    kind = targets.kind_of(config)
    if kind.client not in servers.PRODUCTS and kind.reading is None:
        raise ConfigError("this kind of target does not give its rows, which verify compares")
    done: dict[str, TableReport] = {}
    left: Collection[str] | None = request.tables or None
    try:
        for _ in range(request.rounds):
            with ExitStack() as stack:
                found = _round(config, request, observer, left, stack)
            if found is None:
                return list(done.values()) or None
            for name in set(left or ()) - {report.table for report in found}:
                observer.note(f"{name} is gone: it is not compared")
                del done[name]
            done |= {report.table: report for report in found}
            left = [name for name, report in done.items() if report.is_passing]
            if not left:
                break
            for name in left:
                observer.note(f"{name} is not decided: {done[name].undecided}")
    except ComparisonStopped:
        return None
    return list(done.values())


def _round(
    config: Config,
    request: Request,
    observer: VerifyObserver,
    wanted: Collection[str] | None,
    stack: ExitStack,
) -> list[TableReport] | None:
    places = stack.enter_context(Endpoints(config))
    earlier = places.wait(NOWHERE, observer.pause, lambda _: None, observer.note, compares=False)
    if earlier is None:
        return None
    is_over = partial(observer.pause, _LOOK)
    point = stack.enter_context(places.source().snapshot(is_over, observer.note))
    if point is None:
        return None
    for session in filter(None, (point.reading, point.now)):
        settled(session)
    start = EarlierLedger(earlier.target, point.position)
    goal = places.source().goal()
    if places.wait(goal, observer.pause, start.look, observer.note, compares=False) is None:
        return None
    sides = _opened(config, point, request, observer, stack)
    at, ledger = start.ledger, sides.ledger
    if at is None or at.epoch != ledger.epoch:
        raise LedgerError("a new epoch began while the snapshots were made", epoch=ledger.epoch)
    window = changes_between(config, at, point.position, ledger)
    _log.info(
        "comparing at commit %d/%d; %d commits between the snapshots",
        ledger.epoch, ledger.seq, window.commits,
    )  # fmt: skip
    known = {str(name): shape for name, shape in places.known_tables(ledger).items()}
    if wanted is None:
        wanted = captured(config, known)
        for name in sorted(known.keys() - set(wanted)):
            observer.note(f"{name} is not in [tables] any more: it is not compared")
        unknown = []
        for one in _not_brought(places.source(), known, ledger):
            if one.is_passing and _is_empty(places.source(), TableId.of(one.table)):
                observer.note(f"{one.table} has no rows, and the stream brings it with its first")
            else:
                unknown.append(one)
    elif unheard := set(wanted) - known.keys():
        unknown = [
            one for one in _not_brought(places.source(), known, ledger) if one.table in unheard
        ]
        strange = unheard - {report.table for report in unknown}
        if strange and wanted is request.tables:  # in a later round it went meanwhile
            raise ConfigError(f"not a table of this source: {', '.join(sorted(strange))}")
    else:
        unknown = []
    pair = SnapshotPair(sides, window)
    return [*unknown, *(pair.compare(known[name]) for name in sorted(wanted) if name in known)]


def _not_brought(
    source: SourceInspector, known: Container[str], ledger: Ledger
) -> Iterator[TableReport]:
    """Tables of [tables] of which no row can be at the target."""
    selected = {str(table): why for table, why in source.selected().items()}
    for name, why in sorted(selected.items()):
        if name not in known:
            said = (
                f"not captured: {why}; have it captured, or leave it out of [tables]"
                if why
                else "the stream has not brought it yet: its first row will, or"
                f" `gauss-cdc snapshot --table {argument(name)}`"
            )
            yield TableReport(
                name, epoch=ledger.epoch, seq=ledger.seq, undecided=said, is_passing=not why
            )


def _is_empty(source: SourceInspector, table: TableId) -> bool:
    try:
        found = source.session().query(f"SELECT 1 FROM {qualified(table)} LIMIT 1")  # noqa: S608
    except SourceError:
        return False
    return not found


def _opened(
    config: Config, point: SnapshotPoint, request: Request, observer: VerifyObserver,
    stack: ExitStack,
) -> ComparedPair:  # fmt: skip
    kind = targets.kind_of(config)
    if kind.client in servers.PRODUCTS and point.reading is not None:
        return servers.opened(config, point, request, observer, stack)
    if kind.reading is None:
        raise ConfigError("this kind of target is compared with a source that answers SQL only")
    return streams.opened(config, point, request, observer, stack)


class EarlierLedger:
    """The newest ledger seen, none of whose commits is missing in the source's snapshot."""

    def __init__(self, first: Ledger | None, position: Lsn) -> None:
        self.ledger, self._position = first, position

    def look(self, standing: ReplicationStatus) -> None:
        """Take what the target holds now, if it is still before the position."""
        now = standing.target
        if now is not None and now.commit_lsn < self._position:
            self.ledger = now


@dataclass(frozen=True, slots=True)
class SnapshotPair:
    """Source and target, each under its snapshot, and what lies between."""

    sides: ComparedPair
    window: Window

    def compare(self, shape: TableSchema) -> TableReport:
        """Compare one table; raise ComparisonStopped."""
        name, ledger = str(shape.id), self.sides.ledger
        report = TableReport(name, epoch=ledger.epoch, seq=ledger.seq)
        inexact = ledger.inexact.get(name, "")
        report.is_marked = bool(inexact)
        if inexact:
            report.notes.append(f"the ledger says that it is not exact: {inexact}")
        try:
            self._check_moved(shape, is_loading=is_unloaded(inexact))
            self.sides.compare(shape, self.window.changes.get(shape.id, []), report)
        except (TableMoved, TableChanging) as moved:
            report.undecided, report.is_passing = str(moved), True
        except NotComparable as why:
            report.undecided = str(why)
        except (SourceError, TargetError) as error:
            if error.verdict is Verdict.RETRY:
                raise
            report.undecided = _said(error)
        return report

    def _check_moved(self, shape: TableSchema, *, is_loading: bool) -> None:
        why = self.window.why_not(shape.id) or ("it is being loaded" if is_loading else "")
        if why:
            raise TableMoved(why)


def _said(error: SourceError | TargetError) -> str:
    """Say why a table was not compared; the server's message may hold a value of a cell."""
    state = str(error.where.get("sqlstate", ""))
    if state[:2] == "22":
        return f"{_UNFIT} (sqlstate={state})"
    if state[:2] == "42" and state != _NO_RIGHT:  # a value that names an object which is not there
        return f"{_REFUSED} (sqlstate={state})"
    return str(error)
