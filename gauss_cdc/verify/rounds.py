"""Compares source and target at one commit, table by table, while both are live.

A round: the source is read under a snapshot of a known place, the target under one that holds
every commit of it and a few more, whose changes are read from Kafka.  Tables that could not be
compared (DDL, a load, TRUNCATE came between) are compared in another round.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from gauss_cdc import target as targets
from gauss_cdc.config import Config, ConfigError
from gauss_cdc.inspect.places import Endpoints, ReplicationStatus
from gauss_cdc.verify.report import RowDifference, RowKind, TableReport
from gauss_cdc.verify.rows import (
    ALL,
    ComparisonStopped,
    Differing,
    HeldTable,
    Key,
    RowComparison,
    TablePlan,
)
from gauss_cdc.verify.settle import changed_columns, collapsed, net_rows, settle
from gauss_cdc.verify.sides import (
    ComparedServer,
    TableMoved,
    TargetSession,
    estimated_rows,
    settled,
)
from gauss_cdc.verify.text import ComparedColumn, Spelling
from gauss_cdc.verify.window import Window, changes_between
from producer.errors import SourceError
from producer.sources import session_settings
from schemas.errors import Verdict
from schemas.quoting import literal
from schemas.tables import ReplicaIdentity, TableSchema
from spark_consumers.cuts.compact import Collapsed
from spark_consumers.cuts.ledger import is_unloaded
from spark_consumers.errors import LedgerError, TargetDown, TargetError
from spark_consumers.model import Ledger
from spark_consumers.sinks.postgres.catalog import TargetTable, read_tables
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, Refused
from spark_consumers.sinks.postgres.ledger import read_ledger
from spark_consumers.sinks.postgres.products import OPENGAUSS, POSTGRES, TargetProduct
from spark_consumers.sinks.postgres.refusals import ours

_log = logging.getLogger(__name__)

_ROUNDS: Final = 4
_LOOK: Final = 0.01  # seconds
_UNFIT: Final = "a value of the source is none of the target's type"
_PRODUCTS: Final = {product.dialect: product for product in (POSTGRES, OPENGAUSS)}


_COLUMNS: Final = """
SELECT a.attname FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {name} AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


class _NotComparable(Exception):
    """No other round would decide it either."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How many rows are compared: a share, or about a number of each table."""

    share: float = 1.0
    rows: int | None = None

    def limit(self, expected: int) -> int:
        """Buckets of a key's hash below which rows are compared."""
        share = self.share
        if self.rows is not None:
            share = self.rows / expected if expected > self.rows else 1.0
        return max(1, min(ALL, round(share * ALL)))


@dataclass(frozen=True, slots=True)
class VerifyObserver:
    """What a comparison reports to."""

    note: Callable[[str], None]
    on_rows: Callable[[str, int, int], None]  # table, rows compared, rows expected
    pause: Callable[[float], bool]  # waits; True: stop


@dataclass(frozen=True, slots=True)
class Request:
    """What is compared, and how much of what differs is kept."""

    tables: Collection[str] = ()  # (): all
    sample: Sample = Sample()
    keys: int = 20  # of a table
    rounds: int = _ROUNDS


def verify(config: Config, request: Request, observer: VerifyObserver) -> list[TableReport] | None:
    """Compare; None: asked to stop before anything was known.

    Raises what `status` raises of a place that does not answer.
    """
    if config.target is None or targets.kind_of(config).client not in _PRODUCTS:
        raise ConfigError(
            "verify compares a target of kind postgres or opengauss; a lake is compared at a "
            "commit by spark_consumers.lakes.read_at (docs/lakes.md)"
        )
    done: dict[str, TableReport] = {}
    left: Collection[str] | None = request.tables or None
    try:
        for _ in range(request.rounds):
            with ExitStack() as stack:
                found = _round(config, request, observer, left, stack)
            if found is None:
                return list(done.values()) or None
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
    earlier = places.wait(0, observer.pause, lambda _: None, observer.note, compares=False)
    if earlier is None:
        return None
    is_over = partial(observer.pause, _LOOK)
    point = stack.enter_context(places.source().snapshot(is_over, observer.note))
    if point is None:
        return None
    settled(point.reading)
    settled(point.now)
    source = ComparedServer(point.reading, point.now, is_source=True)
    start = EarlierLedger(earlier.target, point.position)
    goal = places.source().goal()
    if places.wait(goal, observer.pause, start.look, observer.note, compares=False) is None:
        return None
    target, ledger, connection = _target(config, stack)
    at = start.ledger
    if at is None or at.epoch != ledger.epoch:
        raise LedgerError("a new epoch began while the snapshots were made", epoch=ledger.epoch)
    window = changes_between(config, at, point.position, ledger)
    _log.info(
        "comparing at commit %d/%d; %d commits between the snapshots",
        ledger.epoch, ledger.seq, window.commits,
    )  # fmt: skip
    known = {str(name): shape for name, shape in places.known_tables(ledger).items()}
    if unknown := set(wanted or ()) - known.keys():
        raise ConfigError(f"not a table of this source: {', '.join(sorted(unknown))}")
    shapes = [known[name] for name in sorted(wanted or known)]
    with _reading(connection) as cursor:
        there = read_tables(cursor, [shape.id for shape in shapes], _product(config))
    pair = SnapshotPair(request, observer, source, target, ledger, window)
    return [pair.compare(shape, there.get(shape.id)) for shape in shapes]


class EarlierLedger:
    """The newest ledger seen, none of whose commits is missing in the source's snapshot."""

    def __init__(self, first: Ledger | None, position: int) -> None:
        self.ledger, self._position = first, position

    def look(self, standing: ReplicationStatus) -> None:
        """Take what the target holds now, if it is still before the position."""
        now = standing.target
        if now is not None and now.commit_lsn < self._position:
            self.ledger = now


def _product(config: Config) -> TargetProduct:
    return _PRODUCTS[targets.kind_of(config).client]


def _target(config: Config, stack: ExitStack) -> tuple[ComparedServer, Ledger, Any]:
    """Read the target as of now, and which commit that is."""
    setup = targets.setup(config)
    connections = []
    for _ in range(2):
        try:
            connection = setup.connect()
        except DRIVER_ERRORS as error:
            raise TargetDown(
                "the target cannot be reached",
                host=setup.host,
                hint=error.hint if isinstance(error, Refused) else "",
            ) from error
        stack.callback(connection.close)
        connection.autocommit = True
        connections.append(connection)
    reading, now = map(TargetSession, connections)
    is_postgres = _product(config) is POSTGRES
    settings = session_settings.POSTGRES if is_postgres else None  # our own client has set them
    settled(reading, settings)
    settled(now, settings)
    reading.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    if is_postgres:
        reading.query("SET LOCAL idle_in_transaction_session_timeout = 0")
    with _reading(reading.connection):
        ledger = read_ledger(reading.connection, setup.source)
    if ledger is None:
        raise LedgerError("the target has no ledger of this source any more", source=setup.source)
    return ComparedServer(reading, now, is_source=False), ledger, reading.connection


@contextmanager
def _reading(connection: Any) -> Iterator[Any]:
    try:
        with connection.cursor() as cursor:
            yield cursor
    except DRIVER_ERRORS as error:
        raise ours(error) from error


@dataclass(frozen=True, slots=True)
class SnapshotPair:
    """Source and target, each under its snapshot, and what lies between."""

    request: Request
    observer: VerifyObserver
    source: ComparedServer
    target: ComparedServer
    ledger: Ledger
    window: Window

    def compare(self, shape: TableSchema, there: TargetTable | None) -> TableReport:
        """Compare one table; raise ComparisonStopped."""
        name = str(shape.id)
        report = TableReport(name, epoch=self.ledger.epoch, seq=self.ledger.seq)
        inexact = self.ledger.inexact.get(name, "")
        if inexact:
            report.notes.append(f"the ledger says that it is not exact: {inexact}")
        try:
            self._check_moved(shape, is_loading=is_unloaded(inexact))
            if there is None:
                self._count_missing(shape, report)
            else:
                self._compare(shape, there, report)
                report.notes += self._not_compared(shape)
        except TableMoved as moved:
            report.undecided, report.is_passing = str(moved), True
        except _NotComparable as why:
            report.undecided = str(why)
        except (SourceError, TargetError) as error:
            if error.verdict is Verdict.RETRY:
                raise
            state = str(error.where.get("sqlstate", ""))
            # The server's message of such an error holds the value.
            report.undecided = f"{_UNFIT} (sqlstate={state})" if state[:2] == "22" else str(error)
        return report

    def _not_compared(self, shape: TableSchema) -> list[str]:
        """Name columns of the source that no copy has."""
        schema, name = map(literal, shape.id)
        there = self.source.reading.query(_COLUMNS.format(schema=schema, name=name))
        names = [name for (name,) in there if name is not None and name not in shape.names()]
        return [f"columns that are not copied: {', '.join(names)}"] if names else []

    def _check_moved(self, shape: TableSchema, *, is_loading: bool) -> None:
        why = self.window.moved.get(shape.id) or ("it is being loaded" if is_loading else "")
        if why:
            raise TableMoved(why)

    def _count_missing(self, shape: TableSchema, report: TableReport) -> None:
        report.notes.append("the target has no such table")
        with self.source.holding(shape.id) as rows:
            ((count,),) = self.source.reading.query(f"SELECT count(*)::text FROM {rows}")  # noqa: S608  quoted
        report.source_rows = int(count or 0)
        if report.source_rows:
            report.counts[RowKind.MISSING] = report.source_rows
        else:
            raise _NotComparable("it has no rows, and the target has no such table")

    def _compare(self, shape: TableSchema, there: TargetTable, report: TableReport) -> None:
        lacking = [c.name for c in shape.columns if c.name not in there.columns]
        if lacking:
            raise _NotComparable(f"the target lacks columns: {', '.join(lacking)}")
        plan = self._plan(shape, there)
        report.key = tuple(column.name for column in plan.key)
        changes = self.window.changes.get(shape.id, [])
        last = collapsed(plan, changes) if changes else None
        report.settled = len(changes)
        with (
            self.source.holding(shape.id) as ours_from,
            self.target.holding(shape.id) as their_from,
        ):
            table = HeldTable(plan, self.source, self.target, ours_from, their_from)
            found = RowComparison(
                table,
                lambda rows: self.observer.on_rows(report.table, rows, plan.expected),
                partial(self.observer.pause, 0),
            ).run()
            report.source_rows, report.target_rows = found.source_rows, found.target_rows
            if plan.key:
                self._report_rows(table, found, last, report)
            else:
                singles, columns = (last.singles or (), last.columns) if last else ((), ())
                _count_rows(report, found, net_rows(plan, singles, columns, self.target))

    def _report_rows(
        self, table: HeldTable, found: Differing, last: Collapsed | None, report: TableReport
    ) -> None:
        limit = self.request.keys
        if last is not None:
            decided = settle(table, last)
            for difference in decided.differences:
                report.add(difference, limit)
            for key in decided.keys:
                found.rows.pop(key, None)
        by_key = sorted(found.rows.items(), key=lambda item: tuple(map(str, item[0])))
        rows = [_differing(key, hashes) for key, hashes in by_key]
        named = [row.key for row in rows if row.kind is RowKind.CHANGED][:limit]
        columns_of = changed_columns(table, named) if named else {}
        for row in rows:
            report.add(replace(row, columns=columns_of.get(row.key, ())), limit)

    def _plan(self, shape: TableSchema, there: TargetTable) -> TablePlan:
        key = shape.key
        if not key and shape.replica_identity is ReplicaIdentity.INDEX:
            key = shape.identity_columns
        columns = {
            c.name: ComparedColumn(c.name, c.type_name, there.columns[c.name].type_name)
            for c in shape.columns
        }
        expected, size = estimated_rows(self.source, shape.id)
        return TablePlan(
            shape.id,
            tuple(columns.values()),
            tuple(columns[name] for name in key),
            _spellings(self.source, self.target),
            has_index=bool(shape.key) and set(shape.key) == set(there.key),
            expected=expected,
            size=size,
            sample=self.request.sample.limit(expected),
        )


def _spellings(source: ComparedServer, target: ComparedServer) -> tuple[Spelling, Spelling]:
    facts = (source.facts, target.facts)
    floats_as_bits = not all(one.has_exact_floats for one in facts)
    fills_zero = not all(one.is_postgres for one in facts)
    first, second = (
        Spelling(
            converts=not one.is_utf8,
            has_num_nulls=one.is_postgres,
            floats_as_bits=floats_as_bits,
            fills_zero=fills_zero,
        )
        for one in facts
    )
    return first, second


def _differing(key: Key, hashes: tuple[Sequence[str], Sequence[str]]) -> RowDifference:
    here, there = map(len, hashes)
    if here > there:
        return RowDifference(RowKind.MISSING, key)
    if there > here:
        return RowDifference(RowKind.EXTRA, key)
    return RowDifference(RowKind.CHANGED, key)


def _count_rows(report: TableReport, found: Differing, net: Mapping[str, int]) -> None:
    """Rows without a key: how many of each kind are too few or too many at the target."""
    more: Counter[str] = Counter()
    for (row,), (here, there) in found.rows.items():
        more[row or ""] += len(there) - len(here)
    for row, number in net.items():
        more[row] -= number
    for number in more.values():
        kind = RowKind.EXTRA if number > 0 else RowKind.MISSING
        if number:
            report.counts[kind] = report.counts.get(kind, 0) + abs(number)
