"""The real source and the real log for `core/takeover.py`, and the first load."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from producer.core.assemble import table_key
from producer.core.changes import Cells
from producer.core.engine import Runs, Standing
from producer.core.events import Acknowledgement, Record
from producer.core.records.encode import TransactionConstants
from producer.core.takeover import MadeSlot, Step
from producer.core.unfit import HINT, UNFIT, WHY, Unfit, of_row, put_aside
from producer.errors import CutsBroken, GroupUnusable, RegistryError, RowTooLarge, TakenOver
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.delivery import Delivery
from producer.kafka.quarantine import Quarantine
from producer.kafka.registry import Registry
from producer.kafka.topics import TopicAdmin
from producer.meanwhile import Meanwhile
from producer.options import Options
from producer.publish import Publisher
from producer.sources.base import Reading, Source
from schemas.accept import Records, Walk, judge, walk_tail
from schemas.control import (
    Cut,
    Origin,
    Phase,
    Range,
    SchemaChange,
    Start,
    TableLoad,
    Topic,
    cut_to_avro,
)
from schemas.errors import LOAD_AGAIN
from schemas.headers import row_headers, transaction_headers
from schemas.load import CUT
from schemas.positions import CommitKey
from schemas.tables import TableId, TableSchema

_log = logging.getLogger(__name__)
T = TypeVar("T")
_CHUNK_ROWS = 20_000
_CHUNK_BYTES = 16 << 20
PAUSE = 0.1
_WHO_WRITES = "let nobody else write below the prefix (`gauss-cdc check` prints the ACLs)"


class Leaving(Exception):
    """A stop was asked for while a start or a load was under way."""


@dataclass(frozen=True, slots=True)
class Watch:
    """How a run is watched: step names, load progress, and the wish to leave."""

    on_step: Callable[[str], None]
    on_load: Callable[[TableId, int, int], None]  # table, rows so far, rows expected
    on_note: Callable[[str], None]  # a state change, for people
    stop_asked: Callable[[float], bool]  # waits up to so many seconds; True = leave
    on_retry: Callable[[str], None] | None = None  # an error that passes; None: as a note

    def retrying(self, error: object, seconds: float) -> None:
        """Say which error it is, and when the next attempt begins."""
        (self.on_retry or self.on_note)(f"{error}; retrying in {seconds:.1f} s")


class CutsLog:
    """The cuts topic and its one writer, as `takeover.Log`."""

    def __init__(
        self,
        options: Options,
        *,
        reader: CutsReader | None,
        registry: Registry,
        delivery: Delivery | None,
        admin: TopicAdmin,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """Without a `reader` there is no topic yet; without a `delivery` nothing is written.

        `meanwhile` makes calls that may take long.
        """
        self._meanwhile: Callable[..., Any] = meanwhile or (lambda call, *args: call(*args))
        self._options = options
        self._reader = reader
        self._registry = registry
        self._delivery = delivery
        self._admin = admin
        self._walk, self._walked_to = Walk.from_nobody(), -1
        self.begins = ""  # why an epoch begins, once its START is being written
        self.has_started = False  # a START of ours is durable

    def bounds(self) -> tuple[int, int]:
        """First offset and high watermark."""
        return (0, 0) if self._reader is None else self._reader.bounds()

    def lso(self) -> int:
        """End of what is decided."""
        return 0 if self._reader is None else self._reader.lso()

    def tail(self) -> Walk | None:
        """Walk to the last accepted record that is visible."""
        if self._reader is None:
            return None
        start, _ = self._reader.bounds()
        walk: Walk | None = self._meanwhile(walk_tail, self._read, start, self._reader.lso())
        if walk is None and self._registry.unknown is not None and not self._options.accept_gap:
            raise RegistryError(
                "the schema registry does not know the schema of any record of cuts",
                schema_id=self._registry.unknown,
                hint="is it the registry that wrote them, and has it lost nothing? "
                f"If not: {LOAD_AGAIN}",
            )
        return walk

    def topics(self) -> Mapping[str, tuple[Topic, Mapping[int, int]]]:
        """Topics of the prefix as they are."""
        return self._admin.describe(self._admin.list_below(self._options.prefix))

    def init_transactions(self) -> None:
        """Fence older selves."""
        assert self._delivery is not None
        self._meanwhile(self._delivery.init_transactions, 30.0)

    def write_start(self, start: Start) -> int:
        """Write START, durable."""
        assert self._delivery is not None
        self.begins = start.reason or ""
        stamped = replace(start, head=replace(start.head, written_at=now_us()))
        _, offset = self._delivery.write_now([], lambda _: self.framed(stamped))
        self.has_started = True
        return offset

    def judge_own(self, cuts: Sequence[Cut], offsets: Sequence[int]) -> None:
        """See that readers accept what was just written; raise TakenOver or CutsBroken.

        To be called before it is confirmed: who may write into the topic can forge what comes
        before ours.  Our own records stand two offsets apart, a marker between; only where they
        do not, somebody else's may be there, and the topic is read.
        """
        assert self._reader is not None
        if self._walked_to < 0:
            self._walked_to = max(0, cuts[0].head.state_from)
        if offsets[0] != self._walked_to:
            if self._reader.lso() < offsets[0]:
                return  # somebody's transaction is open: the next time shows it
            for offset, record in self._meanwhile(self._read, self._walked_to, offsets[0]):
                self._walk.follow(offset, record)
        alarms, instance = self._walk.alarms, cuts[0].head.instance
        for offset, cut in zip(offsets, cuts, strict=True):
            if self._walk.follow(offset, cut) is not None:
                continue
            where = {"topic": self._options.topics.cuts, "offset": offset}
            if self._walk.instance != instance:
                raise TakenOver(
                    "somebody else's START stands before our record",
                    hint=_WHO_WRITES,
                    writer=self._walk.writer,
                    **where,
                )
            raise CutsBroken(
                "somebody else wrote into cuts in our name",
                hint=f"{_WHO_WRITES}; then {LOAD_AGAIN}",
                why=str(self._walk.suspect),
                **where,
            )
        self._walked_to = offsets[-1] + 2
        if self._walk.alarms > alarms:
            _log.warning("%s: %s; %s", self._options.topics.cuts, self._walk.alarm, _WHO_WRITES)

    def framed(self, cut: Cut) -> tuple[bytes, bytes]:
        """Key and value of a record of cuts."""
        value = self._registry.encode(CUT, cut_to_avro(cut))
        return self._options.prefix.encode(), value

    def _read(self, low: int, high: int) -> Records:
        assert self._reader is not None
        source, read = self._options.prefix, self._registry.read_cut
        return [
            (stored.offset, judge(stored.key, stored.value, source=source, read=read))
            for stored in self._reader.read(low, high)
        ]


def known_tables(
    reader: CutsReader, registry: Registry, *, epoch: int, seq: int
) -> dict[TableId, TableSchema]:
    """Rebuild the tables' shapes from `<prefix>.ddl`, never beyond the last accepted commit.

    A record of a later seq is of an attempt whose cut never came: it comes again.  What is no
    schema change is nobody's of ours.
    """
    low, _ = reader.bounds()
    tables: dict[TableId, TableSchema] = {}
    for stored in reader.read(low, reader.lso()):
        try:
            change = registry.read_change(stored.value or b"")
        except ValueError:
            _log.warning("%s offset %s: no schema change of ours", reader.topic, stored.offset)
            continue
        if change.epoch != epoch or change.seq > seq:
            continue
        if change.before is not None and change.before.id != (change.after and change.after.id):
            tables.pop(change.before.id, None)
        if change.after is not None:
            tables[change.after.id] = change.after
    return tables


def drive(
    steps: Generator[Step, None, T], watch: Watch, source: Source, *, pause: float = PAUSE
) -> T:
    """Run a takeover for real: name each step, keep the server waiting politely, leave if asked."""
    said = ""
    while True:
        try:
            step = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        watch.on_step(f"start: {step.name}")
        source.keep_alive()
        if step.waits_for and step.waits_for != said:
            watch.on_note(f"waiting: {step.waits_for}")
        said = step.waits_for
        # A slot was made just before: without its START it would keep log for nobody.
        if step.name != "write START" and watch.stop_asked(pause if step.waits_for else 0):
            raise Leaving


class Loader:
    """The first load: every table under the slot's exported snapshot, as `op = r`.

    Each chunk is one Kafka transaction with its TABLE record, so a reader of cuts
    sees whole chunks only.  A crash in between starts over in a new epoch: nothing
    was delivered from the stream before the load's end.
    """

    def __init__(
        self,
        options: Options,
        standing: Standing,
        *,
        source: Source,
        log: CutsLog,
        delivery: Delivery,
        publisher: Publisher,
        watch: Watch,
        made: MadeSlot,
        quarantine: Quarantine,
    ) -> None:
        self._options = options
        self._quarantine = quarantine
        self._source = source
        self._log = log
        self._delivery = delivery
        self._publisher = publisher
        self._watch = watch
        self._made = made
        self._head = replace(standing.head, state_from=standing.state_from)
        self._loads = dict(standing.loads)
        self._standing = standing
        self._ordinal = 0

    def run(self, tables: list[TableId]) -> tuple[Standing, dict[TableId, TableSchema]]:
        """Load all tables; return where the writer stands then, and the tables' shapes."""
        shapes: dict[TableId, TableSchema] = {}
        if not tables:
            return self._standing, shapes
        with self._source.reading(self._made) as reading:
            for schema in (found := list(reading.shapes(tables))):
                shapes[schema.id] = schema
                self._table(
                    reading, schema, is_first=schema is found[0], is_last=schema is found[-1]
                )
        return replace(self._standing, head=self._head, loads=self._loads), shapes

    def _table(
        self, reading: Reading, table: TableSchema, *, is_first: bool, is_last: bool
    ) -> None:
        watch = self._watch
        watch.on_step("load: BEGIN")
        binding = self._publisher.publish(table)
        change = SchemaChange(
            epoch=self._head.epoch,
            seq=0,
            ordinal=self._ordinal,
            xid=0,
            csn=self._made.consistent_point,
            lsn=self._made.consistent_point,
            origin=Origin.SNAPSHOT,
            tag="CREATE TABLE",
            before=None,
            after=table,
            topic=binding.topic,
        )
        ddl = self._options.topics.ddl
        value = self._publisher.encode_change(change)
        headers = self._headers()
        self._write([(ddl, 0, table_key(table.id), value, headers)], table.id, Phase.BEGIN)
        expected = reading.estimated_rows(table.id)
        tx = TransactionConstants(
            xid=0,
            csn=self._made.consistent_point,
            epoch=self._head.epoch,
            seq=0,
            committed_at_us=now_us(),
            now_us=now_us(),
            commit_lsn=self._made.consistent_point,
            snapshot="true",
        )
        first = replace(tx, snapshot="first" if is_first else "first_in_data_collection")
        last = replace(tx, snapshot="last" if is_last else "last_in_data_collection")
        chunk: list[Record] = []
        size = done = 0
        lsn = self._made.consistent_point
        place = first
        lossy: str | None = None  # what is missing in the end
        newest: Cells | None = None  # is held back until it is known whether it is the last one

        def put(cells: Cells, place: TransactionConstants) -> None:
            nonlocal size, lossy
            try:
                value = binding.encoder.encode("r", "", None, cells, place, lsn, self._ordinal)
                if len(value) > self._options.max_row_bytes:
                    raise RowTooLarge(
                        "a row is larger than kafka.max-row-bytes",
                        table=table.id,
                        bytes=len(value),
                        limit=self._options.max_row_bytes,
                        hint=HINT,
                    )
                key = binding.key if binding.key_of is None else binding.key_of(cells)
                at = binding.partition
                if binding.partition_of is not None:
                    at = binding.partition_of(cells)
            except UNFIT as error:
                self._put_aside(error, table, cells)
                lossy = WHY
                return
            chunk.append((binding.topic, at, key, value, self._headers()))
            size += len(value)

        def take(rows: list[Cells]) -> None:
            nonlocal place, newest
            for cells in rows:
                if newest is not None:
                    put(newest, place)
                    place = tx
                newest = cells
            if len(chunk) >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                flush()

        def flush() -> None:
            nonlocal chunk, size, done
            watch.on_step("load: CHUNK")
            ids = {binding.topic: (binding.schema_id,)}
            self._write(chunk, table.id, Phase.CHUNK, ids)
            done += len(chunk)
            chunk, size = [], 0
            watch.on_load(table.id, done, expected)
            if watch.stop_asked(0):
                raise Leaving

        reading.copy_rows(table.id, table.columns, take)
        if newest is not None:
            put(newest, first if place is first and is_first and not is_last else last)
            flush()
        watch.on_step("load: END")
        self._write([], table.id, Phase.END, lossy=lossy)
        watch.on_load(table.id, done, done)

    def _put_aside(self, error: Exception, table: TableSchema, cells: Cells) -> None:
        """Keep a row that cannot be delivered, or stop before it.

        A gap that was accepted is not refused again because of the row that stopped us.
        """
        position = str(CommitKey(self._head.epoch, 0, self._ordinal))
        if self._options.unfit_row != "quarantine" and not self._options.accept_gap:
            raise of_row(error, table, position) from error
        lsn = self._made.consistent_point
        unfit = put_aside(
            error, table, op="r", before=None, after=cells, lsn=lsn, position=position
        )
        keep(self._quarantine, unfit, self._watch)

    def _headers(self) -> list[tuple[str, bytes]]:
        point = self._made.consistent_point
        position = CommitKey(self._head.epoch, 0, self._ordinal)
        self._ordinal += 1
        return row_headers(transaction_headers(0, point), point, position)

    def _write(
        self,
        records: list[Record],
        table: TableId,
        phase: Phase,
        ids: Mapping[str, tuple[int, ...]] | None = None,
        *,
        lossy: str | None = None,
    ) -> None:
        self._loads[str(table)] = phase.value
        head = replace(self._head, n=self._head.n + 1, written_at=now_us())

        def cut(acknowledged: list[Acknowledgement]) -> tuple[bytes, bytes]:
            if len(acknowledged) != len(records):
                raise GroupUnusable("records of a chunk without an acknowledgement")
            if any(offset < 0 for _, _, offset in acknowledged):
                raise GroupUnusable("a record of a chunk was acknowledged without an offset")
            return self._log.framed(
                TableLoad(
                    head,
                    table,
                    phase,
                    ranges=runs_of(acknowledged),
                    rows=len(records),
                    as_of=self._made.consistent_point,
                    schema_ids=ids or {},
                    lossy=lossy,
                )
            )

        self._delivery.write_now(records, cut)
        self._head = head


def runs_of(acknowledged: list[Acknowledgement]) -> tuple[Range, ...]:
    """Maximal runs of consecutive offsets, per partition in order."""
    places: dict[tuple[str, int], Runs] = {}
    for topic, partition, offset in acknowledged:
        places.setdefault((topic, partition), Runs()).add(offset)
    return tuple(
        Range(*place, start, end)
        for place, runs in places.items()
        for start, end in runs.take(runs.count)
    )


def keep(quarantine: Quarantine, unfit: Unfit, watch: Watch) -> None:
    """Write an unfit row into the quarantine topic, durable."""
    quarantine.put(
        unfit.content,
        lsn=unfit.lsn,
        why=unfit.why,
        table=unfit.table,
        position=unfit.position,
        op=unfit.op,
        bytes=unfit.size,
    )
    watch.on_note(f"{unfit.table}: a row is in quarantine, {unfit.size} bytes: {unfit.why}")


def new_instance() -> str:
    """A random id for this process's turn."""
    return uuid.uuid4().hex[:16]


def now_us() -> int:
    """Wall clock, µs since 1970."""
    return time.time_ns() // 1000
