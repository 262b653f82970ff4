"""Compares two SQL servers: both hash their rows, and rows of groups that differ are fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from gauss_cdc import target as targets
from gauss_cdc.config import Config
from gauss_cdc.verify.report import RowDifference, RowKind, TableReport
from gauss_cdc.verify.request import Request, VerifyObserver
from gauss_cdc.verify.rows import Differing, HeldTable, Key, RowComparison, TablePlan
from gauss_cdc.verify.settle import changed_columns, collapsed, net_rows, settle
from gauss_cdc.verify.sides import (
    ComparedServer,
    NotComparable,
    TargetSession,
    count_missing,
    estimated_rows,
    key_of,
    settled,
)
from gauss_cdc.verify.text import ComparedColumn, Spelling
from producer.sources import session_settings
from producer.sources.base import SnapshotPoint
from schemas.tables import TableId, TableSchema
from spark_consumers.cuts.compact import Collapsed
from spark_consumers.errors import LedgerError, TargetDown
from spark_consumers.model import Change, Ledger
from spark_consumers.sinks.postgres.catalog import TargetTable, read_tables
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, Refused
from spark_consumers.sinks.postgres.ledger import read_ledger
from spark_consumers.sinks.postgres.products import OPENGAUSS, POSTGRES
from spark_consumers.sinks.postgres.refusals import ours
from spark_consumers.sinks.postgres.tables import narrow_columns

PRODUCTS: Final = {product.dialect: product for product in (POSTGRES, OPENGAUSS)}


@dataclass(frozen=True, slots=True)
class ServerPair:
    """Source and target, each a server under its snapshot."""

    request: Request
    observer: VerifyObserver
    source: ComparedServer
    target: ComparedServer
    ledger: Ledger
    look: Callable[[TableId], TargetTable | None]  # for a table of the target
    narrow: Callable[[TargetTable, TableSchema], Sequence[str]]  # columns that may round or cut

    def compare(self, shape: TableSchema, changes: Sequence[Change], report: TableReport) -> None:
        """Compare one table; see `ComparedPair`."""
        if (there := self.look(shape.id)) is None:
            with self.source.holding(shape.id) as rows:
                ((count,),) = self.source.reading.query(f"SELECT count(*)::text FROM {rows}")  # noqa: S608  quoted
            count_missing(report, int(count or 0))
            return
        lacking = [c.name for c in shape.columns if c.name not in there.columns]
        if lacking:
            raise NotComparable(f"the target lacks columns: {', '.join(lacking)}")
        if narrow := self.narrow(there, shape):  # the source's values are read by these types, too
            named = ", ".join(f"{name} ({there.columns[name].type_name})" for name in narrow)
            report.undecided = f"types of the target do not hold the source's values: {named}"
        plan = self._plan(shape, there)
        report.key = tuple(column.name for column in plan.key)
        report.is_by_key = plan.names_rows
        last = collapsed(shape.names(), report.key, changes) if changes else None
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
        report.notes += self.source.not_copied(shape)

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
        named = [row.key for row in rows[: self.request.named] if row.kind is RowKind.CHANGED]
        columns_of = changed_columns(table, named) if named else {}
        for row in rows:
            report.add(replace(row, columns=columns_of.get(row.key, ())), limit)

    def _plan(self, shape: TableSchema, there: TargetTable) -> TablePlan:
        columns = {
            c.name: ComparedColumn(c.name, c.type_name, there.columns[c.name].type_name)
            for c in shape.columns
        }
        expected, size = estimated_rows(self.source, shape.id)
        return TablePlan(
            shape.id,
            tuple(columns.values()),
            tuple(columns[name] for name in key_of(shape)),
            _spellings(self.source, self.target),
            has_index=bool(shape.key) and set(shape.key) == set(there.key),
            expected=expected,
            size=size,
            sample=self.request.sample.limit(expected),
        )


def opened(
    config: Config, point: SnapshotPoint, request: Request, observer: VerifyObserver,
    stack: ExitStack,
) -> ServerPair:  # fmt: skip
    """Read the target as of now, and which commit that is.

    Raises TargetDown, and LedgerError where the target has no ledger of the source.
    """
    assert point.reading is not None
    assert point.now is not None
    source = ComparedServer(point.reading, point.now, is_source=True)
    setup, product = targets.setup(config), PRODUCTS[targets.kind_of(config).client]
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
    is_postgres = product is POSTGRES
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

    def look(table: TableId) -> TargetTable | None:
        with _reading(reading.connection) as cursor:
            return read_tables(cursor, [table], product).get(table)

    def narrow(there: TargetTable, shape: TableSchema) -> Sequence[str]:
        with _reading(reading.connection) as cursor:
            return narrow_columns(cursor, product, there, shape)

    target = ComparedServer(reading, now, is_source=False)
    return ServerPair(request, observer, source, target, ledger, look, narrow)


def _spellings(source: ComparedServer, target: ComparedServer) -> tuple[Spelling, Spelling]:
    facts = (source.facts, target.facts)
    floats_as_bits = not all(one.has_exact_floats for one in facts)
    has_gauss = not all(one.is_postgres for one in facts)
    first, second = (
        Spelling(
            converts=not one.is_utf8,
            has_num_nulls=one.is_postgres,
            floats_as_bits=floats_as_bits,
            has_gauss=has_gauss,
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


@contextmanager
def _reading(connection: Any) -> Iterator[Any]:
    try:
        with connection.cursor() as cursor:
            yield cursor
    except DRIVER_ERRORS as error:
        raise ours(error) from error
