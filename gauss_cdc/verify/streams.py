"""Compares rows that both sides hand over, one after another: any source with any target.

What the target must hold is the source's rows with what the commits in between changed, each cell
as the table of types carries it to this kind of target.  Neither side is held: each row is hashed
and summed in the bucket of its key's hash, the target's with a minus.  Of the buckets whose sum is
not 0 both sides are read once more, and keys and hashes of columns are held until they meet.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cache, partial
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from gauss_cdc import target as targets
from gauss_cdc import wiring
from gauss_cdc.config import Config
from gauss_cdc.verify.report import RowDifference, RowKind, TableReport
from gauss_cdc.verify.request import ALL, Request, VerifyObserver
from gauss_cdc.verify.settle import CHANGING, collapsed
from gauss_cdc.verify.sides import (
    ComparedServer,
    ComparisonStopped,
    NotComparable,
    TableMoved,
    count_missing,
    key_of,
)
from producer.core.changes import Cell, Cells
from producer.core.records.reference import plans_of
from producer.core.records.row_plan import FieldPlan, avro_value
from producer.sources.base import SnapshotPoint
from schemas.encodings import BYTES_OR_UTF8, of_cells
from schemas.envelope import EnvelopeOptions, without_null
from schemas.tables import UNCHANGED, TableSchema
from schemas.types import TypeOptions
from spark_consumers.cuts.compact import Collapsed, netted
from spark_consumers.errors import LedgerError
from spark_consumers.model import Cell as Text
from spark_consumers.model import Change, Ledger
from spark_consumers.sinks.base import TargetReading, ValueOf

Row: TypeAlias = tuple[Any, ...]  # a target's values, in the order of the table's columns
Take: TypeAlias = Callable[[Row, int], None]  # a row, and 1; or -1: it goes
_BUCKET_BITS: Final = 16
_HELD: Final = 500_000  # rows whose hashes are held at once, about
_LOOK: Final = 1_000  # rows of the target between two looks at the wish to stop
# Types that are printed here as by PostgreSQL: int2, int4, int8, date, uuid, texts.
_PRINTED_ALIKE: Final = frozenset({20, 21, 23, 25, 1043, 1082, 2950})
_EXACT: Final = Context(prec=200_000)  # whatever the thread's precision
_PLAIN: Final = frozenset({str, int, bool, float, bytes, type(None)})


def opened(
    config: Config, point: SnapshotPoint, request: Request, observer: VerifyObserver,
    stack: ExitStack,
) -> StreamPair:  # fmt: skip
    """Read the target as of now, and which commit that is.

    Raises LedgerError where the target has no ledger of the source.
    """
    make = targets.kind_of(config).reading
    assert make is not None
    setup = replace(targets.setup(config), spark=cache(partial(_session, config)))
    target = make(setup)
    stack.callback(target.close)
    if (ledger := target.ledger()) is None:
        raise LedgerError("the target has no ledger of this source any more", source=setup.source)
    server = None
    if point.reading is not None and point.now is not None:
        server = ComparedServer(point.reading, point.now, is_source=True)
    types = wiring.producer_options(config).types
    return StreamPair(point, server, target, ledger, types, request, observer)


def _session(config: Config) -> Any:
    from gauss_cdc.session import spark_session  # noqa: PLC0415  of the extra `apply`

    return spark_session(config)


@dataclass(frozen=True, slots=True)
class StreamPair:
    """A source under its snapshot and a target at a commit, by their rows."""

    point: SnapshotPoint
    server: ComparedServer | None  # the source, where it answers SQL
    target: TargetReading
    ledger: Ledger
    types: TypeOptions
    request: Request
    observer: VerifyObserver

    def compare(self, shape: TableSchema, changes: Sequence[Change], report: TableReport) -> None:
        """Compare one table; see `ComparedPair`."""
        plans = plans_of(shape, EnvelopeOptions(types=self.types))
        avro = {plan.column.name: without_null(plan.avro) for plan in plans}
        values = self.target.values(shape, avro)
        with nullcontext() if self.server is None else self.server.holding(shape.id):
            if values is None:
                count_missing(report, self._source_rows(shape))
                return
            if lacking := [name for name in shape.names() if name not in values]:
                raise NotComparable(f"the target lacks columns: {', '.join(lacking)}")
            report.key, report.settled = key_of(shape), len(changes)
            last = collapsed(shape.names(), report.key, changes) if changes else None
            expected = self.point.rows.estimated_rows(shape.id)
            limit = self.request.sample.limit(expected)
            key = [column for column in shape.columns if column.name in shape.key]
            report.is_by_key = limit == ALL and all(one.type_oid in _PRINTED_ALIKE for one in key)
            table = StreamedTable(
                self.point,
                self.target,
                shape,
                [(plan, values[plan.column.name]) for plan in plans],
                last,
                sample=limit,
                on_rows=lambda rows: self.observer.on_rows(report.table, rows, expected),
                stop=partial(self.observer.pause, 0),
            )
            table.compare(report, self.request.keys)
        if self.server is not None:
            report.notes += self.server.not_copied(shape)

    def _source_rows(self, shape: TableSchema) -> int:
        rows = 0

        def count(some: Sequence[Cells]) -> None:
            nonlocal rows
            rows += len(some)

        self.point.rows.copy_rows(shape.id, shape.columns, count)
        return rows


class StreamedTable:
    """One table, as both sides hand it over."""

    def __init__(
        self,
        point: SnapshotPoint,
        target: TargetReading,
        shape: TableSchema,
        ways: Sequence[tuple[FieldPlan, ValueOf]],
        last: Collapsed | None,
        *,
        sample: int = ALL,
        on_rows: Callable[[int], None],
        stop: Callable[[], bool],
    ) -> None:
        """`ways` are of the columns; `last`: what the commits in between changed."""
        self._point, self._target, self._shape, self._last = point, target, shape, last
        self._sample, self._on_rows, self._stop = sample, on_rows, stop
        self._beside: set[str] = set()  # columns with values that the target's type cannot hold
        self._sent = [self._way(plan, of, of_cells(point.encoding)) for plan, of in ways]
        # In Kafka all texts are UTF-8, and bytes that are no text are kept as such.
        self._texts = [self._way(plan, of, "utf-8") for plan, of in ways]
        self._key = [shape.names().index(name) for name in key_of(shape)]
        self._order = [] if last is None else [last.columns.index(name) for name in shape.names()]
        changed = [] if last is None else [*last.upserts, *last.deletes]
        self._changed = {self._key_of_texts(key) for key in changed}

    def compare(self, report: TableReport, limit: int) -> None:
        """Fill the report; raise ComparisonStopped, TableMoved."""
        sums = [0] * (1 << _BUCKET_BITS)
        counts = [0, 0]

        def balance(row: Row, number: int, *, side: int) -> None:
            digest, name = _digest(row), self._digest_of_key(row)
            if name >> 96 < self._sample:
                sums[name >> 128 - _BUCKET_BITS] += digest * (number if side == 0 else -number)
                counts[side] += number

        self._read_source(partial(balance, side=0), lambda: self._on_rows(counts[0]))
        self._read_target(partial(balance, side=1))
        report.source_rows, report.target_rows = counts
        differing = [at for at, left in enumerate(sums) if left]
        most = max(1, (_HELD << _BUCKET_BITS) // max(*counts, 1))  # buckets
        for at in range(0, len(differing), most):
            self._name(frozenset(differing[at : at + most]), report, limit)
        if self._beside:
            names = ", ".join(sorted(self._beside))
            report.notes.append(
                f"values of {names} are compared by their texts, which the target keeps beside"
            )

    # ---- both sides
    def _read_source(self, take: Take, on_block: Callable[[], None] = lambda: None) -> None:
        """Hand on what the target must hold."""
        before: dict[Row, Row] = {}

        def hand_on(rows: Sequence[Cells]) -> None:
            if self._stop():
                raise ComparisonStopped
            for cells in rows:
                row = tuple([way(cell) for way, cell in zip(self._sent, cells, strict=True)])
                if self._changed and (key := self._key_values(row)) in self._changed:
                    before[key] = row
                else:
                    take(row, 1)
            on_block()

        self._point.rows.copy_rows(self._shape.id, self._shape.columns, hand_on)
        if self._last is None:
            return
        for image in self._last.upserts.values():
            old = None if image.origin is None else before.get(self._key_of_texts(image.origin))
            take(self._row_of_texts(image.cells, old), 1)
        for single in netted(self._last.singles or ()):
            for cells, number in ((single.old, -1), (single.new, 1)):
                if cells is not None:
                    take(self._row_of_texts(cells, None), number)

    def _read_target(self, take: Take) -> None:
        for number, values in enumerate(self._target.rows(self._shape)):
            if number % _LOOK == 0 and self._stop():
                raise ComparisonStopped
            take(tuple([v if type(v) in _PLAIN else _canonical(v) for v in values]), 1)

    # ---- rows that differ
    def _name(self, buckets: Collection[int], report: TableReport, limit: int) -> None:
        """Name the rows of some buckets that differ."""
        held: defaultdict[Row, Counter[Row]] = defaultdict(Counter)  # key -> digests of columns

        def meet(row: Row, number: int) -> None:
            name = self._digest_of_key(row)
            if name >> 128 - _BUCKET_BITS not in buckets or name >> 96 >= self._sample:
                return
            key = self._key_values(row) if self._key else (name,)
            found, digests = held[key], tuple(map(_digest, row)) if self._key else ()
            found[digests] += number
            if not found[digests]:
                del found[digests]
                if not found:
                    del held[key]

        self._read_source(meet)
        self._read_target(lambda row, number: meet(row, -number))
        for key in sorted(held, key=str):
            number = held[key].total()
            kind = RowKind.MISSING if number > 0 else RowKind.EXTRA if number else RowKind.CHANGED
            if not self._key:
                report.counts[kind] = report.counts.get(kind, 0) + abs(number)
                continue
            columns: tuple[str, ...] = ()
            if kind is RowKind.CHANGED:
                pairs = zip(self._shape.names(), *list(held[key])[:2], strict=True)
                columns = tuple(name for name, ours, theirs in pairs if ours != theirs)
            report.add(RowDifference(kind, self._shown(key), columns), limit)

    def _shown(self, key: Row) -> tuple[str | None, ...]:
        names = key_of(self._shape)
        return tuple(
            None if value is None else self._target.shown(self._shape, name, value)
            for name, value in zip(names, key, strict=True)
        )

    # ---- values
    def _way(self, plan: FieldPlan, value_of: ValueOf, encoding: str) -> Callable[[Cell], Any]:
        """Return what makes the target's value of a cell, as a record in Kafka carries it."""
        avro, name = without_null(plan.avro), plan.column.name
        items = without_null(avro["items"]) if isinstance(avro, dict) and "items" in avro else avro
        has_floats = items == "float" or (isinstance(items, dict) and items["type"] == "float")

        def of(cell: Cell) -> Any:
            if cell is None:
                return None
            assert isinstance(cell, bytes)
            found, exact = avro_value(plan, cell, encoding)
            value = value_of(_in_32_bits(found) if has_floats else found, exact)
            if exact is not None and isinstance(value, tuple):
                self._beside.add(name)
            return value if type(value) in _PLAIN else _canonical(value)

        return of

    def _key_values(self, row: Row) -> Row:
        return tuple([row[at] for at in self._key])

    def _key_of_texts(self, key: Sequence[Text]) -> Row:
        ways = (self._texts[at] for at in self._key)
        return tuple(way(_cell(text)) for way, text in zip(ways, key, strict=True))

    def _row_of_texts(self, texts: Sequence[Text], before: Row | None) -> Row:
        """Make a row of what was sent; the rest is as it was before."""
        row = []
        for at, place in enumerate(self._order):
            if texts[place] is not UNCHANGED:
                row.append(self._texts[at](_cell(texts[place])))
            elif before is None:
                raise TableMoved(CHANGING)
            else:
                row.append(before[at])
        return tuple(row)

    def _digest_of_key(self, row: Row) -> int:
        return _digest(self._key_values(row) if self._key else row)


def _cell(text: Text) -> Cell:
    return text.encode(BYTES_OR_UTF8) if isinstance(text, str) else text


def _digest(value: Any) -> int:
    """Hash a value: 128 bits, by a text that no other value of its column's type has."""
    text = repr(value).encode("utf-8", "backslashreplace")
    return int.from_bytes(blake2b(text, digest_size=16).digest())


def _canonical(value: Any) -> Any:
    """Give values that are equal one form, which can be the key of a dict."""
    match value:
        case Decimal():
            return value.normalize(_EXACT) if value.is_finite() else value
        case bytearray():
            return bytes(value)
        case dict():
            return tuple(map(_canonical, value.values()))
        case list() | tuple():
            return tuple(map(_canonical, value))
        case _:
            return value


def _in_32_bits(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_in_32_bits, value)]
    return value if value is None else struct.unpack("f", struct.pack("f", value))[0]
