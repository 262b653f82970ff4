"""The ports of the producer's turn, on the simulated world: source, topics, codec, clocks.

The source speaks pgoutput, or a style of GaussDB (`gauss.py`), decoded by the product; values in
Kafka are Avro (`registry.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from producer.core.catalog.catalog_facts import Facts, Leaf
from producer.core.catalog.look import Before, Cause, Look, Seen, Unchanged
from producer.core.changes import Message
from producer.core.events import TopicsChanged
from producer.core.key_ranges import Key, NamedKeys, RangeRead, Visible
from producer.core.loads.copy_lines import CopyLines
from producer.core.loads.window import MarkTokens, QuietWindow
from producer.core.ports import Point, Stored, Wish
from producer.core.records.encode import key_columns
from producer.core.records.messages import MessageWriter
from producer.core.records.row_plan import KeyPlan
from producer.core.router import Binding, partition_of, table_key
from producer.core.takeover.history import OneHistory
from producer.core.takeover.takeover import MadeSlot, Slot
from producer.errors import (
    CdcError,
    ConnectionLost,
    SlotMissing,
    SourceBusy,
    SourceSwitched,
    TableChanging,
)
from producer.native import Choice
from producer.sources.gauss.csn_order import OneBehind
from producer.sources.postgres import pgoutput
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers.records import Trust
from producer.wire.replication import Received, WalMessage
from schemas.control import Cut, Looked, SchemaChange, Topic
from schemas.envelope import EnvelopeOptions
from schemas.positions import NOWHERE, Lsn
from schemas.tables import TableId, TableSchema
from schemas.topics import Topics
from tests.sim import registry
from tests.sim.broker import Broker
from tests.sim.gauss import Reading
from tests.sim.registry import Decoded
from tests.sim.source import KEYED, NAMES, Connection, Table, table_id
from tests.sim.world import Actor, World

if TYPE_CHECKING:
    from tests.sim.delivery import SimDelivery

TOPICS = Topics("bank")
CUTS = (TOPICS.cuts, 0)
PARTITIONS = {"a": 2}  # of data topics; the others have one
SLOT, PLUGIN = "slot", "pgoutput"


# ---------------------------------------------------------------- the source
class SimWire:
    """The streaming session's socket."""

    def __init__(
        self,
        actor: Actor,
        connection: Connection,
        delivery: SimDelivery,
        believed: Callable[[str, int], None],
    ) -> None:
        self._actor, self._line, self._delivery = actor, connection, delivery
        self._believed = believed
        self.phase = "sending"  # what the loop does with Kafka, for traces and crashes
        self._said = 0
        source = connection.source
        self.history = OneHistory(lambda: (source.system_id, source.timeline))

    @property
    def received_end(self) -> Lsn:
        return Lsn(0)

    def receive(self, timeout: float, _wake_fds: Sequence[int] = ()) -> Received:
        """Some of what has arrived; a standby is asked for its history, too."""
        if not self._line.source.is_standby:
            return self._receive(timeout)
        return self.history.read(lambda: self._receive(timeout))

    def _receive(self, timeout: float) -> Received:
        """Some of what has arrived; a keepalive ends a read."""
        world, line = self._line.source.world, self._line
        if timeout >= 0.5:
            wake = world.now + world.rng.choice([0.5, 2.0, 6.0])
            self._actor.park("idles", until=lambda: self._has_news(wake))
        else:
            self._actor.park(f"runs ({self.phase})")
        if not line.socket and not line.is_linked:
            raise ConnectionLost("the server closed the connection")
        received = Received()
        for _ in range(world.rng.choice([1, 2, 5, 20, 60])):
            if not line.socket or (line.socket[0][0] == "message" and received.keepalive_end):
                break
            kind, lsn, what = line.socket.popleft()
            if kind == "message":
                received.messages.append((lsn, lsn, what))
            else:
                received.keepalive_end = Lsn(lsn)
                received.reply_requested = received.reply_requested or bool(what)
        return received

    def has_input(self) -> bool:
        return bool(self._line.socket)

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        """What a status message says must be durable, whether it arrives or not."""
        if flush:
            self._believed(self._actor.name, int(flush))
        if self._line.is_linked and int(flush) > self._said:
            self._line.statuses.append(int(flush))
            self._said = int(flush)

    def _has_news(self, wake: float) -> bool:
        line = self._line
        return bool(
            line.socket
            or not line.is_linked
            or self._delivery.has_news()
            or line.source.world.now >= wake
        )


class SimSource:
    """A source on a simulated session."""

    keepalives_move = True
    new_tables_are_complete = True
    ids_are_oids = False
    keeps_confirmed = True
    filters_as_then = True
    positions_are_csns = True
    told_end = 0
    reports_ddl = False
    rereads = True

    def __init__(
        self,
        actor: Actor,
        connection: Connection,
        wire: SimWire,
        on_tables: Any,
        wants: Callable[[TableId], bool],
    ) -> None:
        self._wants = wants
        self._actor, self._wire, self._on_tables = actor, connection, on_tables
        self._source = connection.source
        self.wire = wire
        self.tables: list[TableId] = []
        self._first: Looked | None = None  # of a slot that was made
        self._holds: set[str] = set()  # tables that were protected from DDL

    def start_reading(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: int,
        csn: int,
        hidden: set[TableId] | None = None,
        loads: bool = True,
    ) -> None:
        del csn, loads
        if not self._wire.is_linked:
            raise ConnectionLost("the server closed the connection")
        if self._source.wal_end < resume:
            raise SourceSwitched("the log ends before what was delivered")
        self._stream = PgoutputStream(
            pgoutput.decode,
            known,
            wanted=self._wants,
            hidden=hidden,
            publication="p",
            judge=lambda _oid: Trust.FOREIGN,
            resume=resume,
        )

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[int, Message]]:
        return self._stream.messages(received, one_by_one=one_by_one)

    def point(self, table: TableId, *, if_gone: bool = False) -> SimPoint | None:
        """A place at the end of WAL; the slot that makes it may wait for somebody."""
        self._visit("makes a point")
        source = self._source
        if source.world.chance(0.2):
            raise SourceBusy("a place waits for open transactions")
        whole = source.published - source.hushed
        there = {n: t for n, t in source.tables.items() if n in whole}
        if table.name not in there and not if_gone:
            return None
        source.held.add(table.name)
        self._holds.add(table.name)
        reading = SimReading(copy.deepcopy(there))
        is_compared = table.name in there and source.decoding is None
        looked = self._looked([table.name]) if is_compared else None
        return SimPoint(source.wal_end, reading, lambda: source.held.discard(table.name), looked)

    @property
    def reads_ranges(self) -> bool:
        return self._source.reads_ranges

    @property
    def ranges_of(self) -> type[SimRanges]:
        return SimRanges

    def ranges(
        self, table: TableId, *, of_any_size: bool = False
    ) -> tuple[TableSchema, SimRanges] | None:
        """Open what reads a table beside the stream."""
        del of_any_size  # all of them are large
        source, name = self._source, table.name
        if name not in KEYED:
            return None
        self._visit("opens ranges")
        if name not in source.tables.keys() & source.published - source.hushed:
            return None
        return source.tables[name].schema(name), self.ranges_of(self, self._wire, name)

    def requests(self) -> dict[Wish, int]:
        """What somebody asks for, and the newest number of a request for it."""
        self._visit("looks for requests")
        asked = sorted(self._source.asked.items())
        return {Wish(table_id(name), target): number for number, (name, _, target) in asked}

    def adopt(self, table: TableSchema) -> None:
        """The stream describes its tables itself."""

    def forget(self, table: TableId) -> None:
        """It does not take another table for one that is gone."""

    def named(self, wish: Wish) -> tuple[int, tuple[Key, ...]]:
        """Number and keys of the oldest request; no keys: it is for all rows."""
        self._visit("reads a request")
        source, (table, target) = self._source, wish
        mine = [n for n, (name, _, w) in source.asked.items() if (name, w) == (table.name, target)]
        if not mine or not source.named.keys() >= {*mine}:
            return 0, ()
        return min(mine), source.named[min(mine)]

    def answer(self, wish: Wish, number: int, *, alone: bool = False) -> None:
        """Forget requests for a table up to one, or one alone."""
        self._visit("answers a request")
        asked, (table, target) = self._source.asked, wish
        for known, (name, _, whose) in list(asked.items()):
            is_meant = known == number if alone else known <= number
            if name == table.name and is_meant and target in {"", whose}:
                request = asked.pop(known)
                if self._source.named.pop(known, None) is None:
                    self._source.on_answered(*request)

    def shape(self, table: TableId) -> TableSchema | None:
        """As it is now, which may be younger than the row."""
        found = self._source.tables.get(table.name)
        return None if found is None else found.schema(table.name)

    def leave(self) -> None:
        """The process is gone."""
        self._source.held -= self._holds

    def look(self, known: Any, *, unless: str, before: Before | None) -> Look | Unchanged | None:
        """Tables that were made, or changed without a record of it."""
        source = self._source
        signature = (
            f"{sorted(source.tables)} {sorted(source.published)} {source.made}"
            f" {sorted(source.entries.items())} {sorted(source.files.items())}"
        )
        horizon = 700 * source.timeline + len(source.wal)
        if signature == unless:
            return Unchanged(horizon)
        self._visit("looks at the catalog")
        there = [name for name in source.tables if self._wants(table_id(name))]
        return Look(
            source.wal_end,
            {
                number: self._seen(number, name, before, is_asked=table_id(name) in known)
                for number, name in NAMES.items()
                if name in source.tables
            },
            tuple(table_id(name) for name in there if name not in source.published),
            signature,
            tuple(
                table_id(name)
                for name in there
                if name in source.published and table_id(name) not in known
            ),
            is_ours=True,
            horizon=horizon,
        )

    def looked(self, made: MadeSlot) -> Looked | None:
        """The catalog as the slot's snapshot shows it."""
        del made
        return self._first

    def looked_at(self, names: list[str], shown: int) -> Before:
        """The catalog under a snapshot that shows so many commits."""
        return replace(self._looked(names), horizon=700 * self._source.timeline + shown)

    def _looked(self, names: list[str]) -> Before:
        numbers = {name: number for number, name in NAMES.items()}
        seen = [self._seen(numbers[name], name, None, is_asked=True) for name in names]
        return Before.at(700 * self._source.timeline + len(self._source.wal), "", seen)

    def _seen(self, number: int, name: str, before: Before | None, *, is_asked: bool) -> Seen:
        """What the catalog says of a table, and of the look before."""
        is_asked = is_asked or (before is not None and number in before.versions)
        source = self._source
        entries, file = source.entries[name], source.files[name]
        facts = Facts(
            number,
            is_root=False,
            entries=f"{number}:{entries}",
            leaves={number: Leaf(1000 * file + number)},
        )
        xid, is_emptied = source.written.get(name, (0, False))
        is_void = not source.tables[name].rows
        is_old = before is not None and xid < before.horizon  # a row of it shows that
        was = None if before is None else before.versions.get(number)
        doubts = () if before is None else facts.doubts(was, before.files, before.horizon)
        return Seen(
            table_id(name),
            number,
            is_partitioned=False,
            is_logged=True,
            is_published=name not in source.hushed,
            partly="has a WHERE for it" if name in source.hushed else "",
            version=facts.version(0, was) if is_asked else None,
            files=facts.files,
            doubts=tuple(
                replace(
                    doubt,
                    rewritten=tuple(
                        replace(each, xid=xid, is_emptied=is_emptied, is_void=is_void)
                        for each in doubt.rewritten
                    ),
                )
                for doubt in doubts
                if is_asked
                if not (doubt.cause is Cause.FILES and is_old)
            ),
        )

    def publish(self, table: TableId) -> str:
        """Changes of a table are sent from the next commit on."""
        self._visit("publishes a table")
        if self._source.world.chance(0.2):
            raise SourceBusy("the table is locked")
        self._source.published.add(table.name)
        return ""

    def recalls(self, looked: Looked | None) -> Lsn:
        del looked
        return NOWHERE

    def delivered(self, cuts: Sequence[Cut]) -> None:
        """Nothing is asked of it."""

    def type_name(self, _oid: int, _modifier: int) -> str:
        return ""

    def table_name(self, _oid: int) -> None:
        """Ids are no oids."""

    def root_of(self, _oid: int) -> int:
        """There are no partitions."""
        return 0

    def _visit(self, label: str) -> None:
        """In a session of its own, which a promotion ends, too, but for the standby's own."""
        self._actor.park(label)
        is_moved = self._wire.timeline != self._source.timeline
        if is_moved and (not self._source.is_standby or label == "makes a point"):
            raise ConnectionLost("the server closed the connection")

    def _park(self, label: str) -> None:
        self._actor.park(label)
        if not self._wire.is_linked:
            raise ConnectionLost("the server closed the connection")

    def try_lock(self) -> bool:
        self._park("asks for the lock")
        if self._source.lock is None:
            self._source.lock = self._wire
        return self._source.lock is self._wire

    tells_switches = True

    def switch_point(self, timeline: int) -> int | None:
        return self._source.ends.get(timeline)

    def lacks(self, resume: int, xid: int) -> str:
        """Each promotion of the simulation begins a timeline, which is seen."""
        is_behind = not self.tells_switches and self._source.end < resume
        return f"its log ends before {resume}" * is_behind

    def slot(self) -> Slot | None:
        self._visit("looks at the slot")
        slot = self._source.slot
        return None if slot is None else Slot(PLUGIN, "bank", slot["confirmed"])

    def try_take(self) -> bool:
        self._park("START_REPLICATION")
        if self._source.slot is None:
            raise SlotMissing("the slot does not exist")
        return self._wire.start()

    def make_slot(self) -> MadeSlot | None:
        self._visit("looks for an old slot")
        if self._source.hushed:
            return None  # no epoch begins while a table is published partly
        if self._source.slot is not None:
            self._park("drops the old slot")
            if self._source.owner is not None:
                return None
            self._source.slot = None
        self._park("makes the slot")
        if self._source.slot is not None:
            return None
        if self._source.is_standby:
            snapshot = self.wire.history.made(self._source.make_slot)
        else:
            snapshot = self._source.make_slot()
        if self._source.decoding is None:
            names = [n for n in self._source.tables if self._wants(table_id(n))]
            self._first = self._looked([n for n in names if n in self._source.published]).looked()
        return MadeSlot(self._source.snapshots[snapshot][0], snapshot)

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        self._park("lists the tables under the slot's snapshot")
        self.tables = [
            table_id(n)
            for n in self._source.snapshots[made.snapshot][1]
            if self._wants(table_id(n)) and n in self._source.published
        ]
        self._on_tables(self.tables)
        return tuple(str(table) for table in self.tables)

    def keep_alive(self, *, force: bool = False) -> None:
        """Status messages before `run` carry no position."""

    @contextmanager
    def reading(self, made: MadeSlot) -> Iterator[SimReading]:
        yield SimReading(self._source.snapshots[made.snapshot][1])


class SimRanges:
    """Ranges of a table's key, under snapshots that do not show the newest commits."""

    estimated_rows, fileno = 0, -1

    def __init__(self, opened: SimSource, connection: Connection, name: str) -> None:
        self._opened, self._connection, self.name = opened, connection, name
        self._timeline, self._made = connection.source.timeline, connection.source.removed[name]
        self._asked: tuple[Key | NamedKeys | None] | None = None
        self._found: RangeRead | CdcError | None = None  # it is on its way
        self._is_there = self._has_listed = False

    def ask(self, after: Key | NamedKeys | None) -> None:
        source = self._connection.source
        assert self._asked is None
        self._asked = (after,)
        source.held.discard(self.name)
        source.readers.append(self)

    def take(self) -> RangeRead | CdcError | None:
        """What was read, once it has come."""
        if not self._is_there:
            return None
        found, self._asked, self._found, self._is_there = self._found, None, None, False
        return found

    def go_on(self) -> None:
        """Read, at some moment after it was asked for; some time later that is there."""
        assert self._asked is not None
        if self._found is None:
            self._found = self._read(*self._asked)
        else:
            self._is_there = True
            self._connection.source.readers.remove(self)

    def _read(self, after: Key | NamedKeys | None) -> RangeRead | CdcError:
        source = self._connection.source
        name, table = self.name, source.tables.get(self.name)
        breaks = source.world.chance(0.1) and source.reader_drops > 0
        source.reader_drops -= breaks
        if source.timeline != self._timeline or breaks:
            return ConnectionLost("the reader's session broke")
        if table is None or source.removed[name] != self._made:
            return TableChanging("the table is gone, or another one")
        hidden = source.unshown(name)
        first = min(hidden, default=len(source.wal))
        ended = (t.xid for t in source.wal if t.index not in hidden)
        end = max(ended, default=0) + 1
        running = frozenset(source.wal[at].xid for at in hidden)
        shown = Visible(end, frozenset(xid for xid in running if xid < end))
        if not self._has_listed:
            shown, self._has_listed = shown.beside(running), True
        shape = table.schema(name)
        if after is None:
            is_whole = name in source.published - source.hushed
            looked = self._opened.looked_at([name], first)
            source.held.add(name)  # here nothing tells a table from one that is made again
            return RangeRead(shape if is_whole else None, shown, source.wal_end, looked)
        rows = source.rows_under(name, hidden)
        count = 50 if source.world.calm else source.world.rng.randint(1, 5)
        if isinstance(after, NamedKeys):
            keys, left = after.keys[:count], after.keys[count:]
            rows = [row for row in rows if (row["id"].encode(),) in keys]
            there = {(row["id"].encode(),) for row in rows}
            read = RangeRead(shape, shown, source.wal_end, rows=self._lines(table, rows))
            return replace(read, gone=[key for key in keys if key not in there], left=left)
        rows = [row for row in rows if not after or row["id"].encode() > after[0]]
        last = (rows[count - 1]["id"].encode(),) if len(rows) >= count else None
        some = self._lines(table, rows[:count])
        return RangeRead(shape, shown, source.wal_end, rows=some, last=last)

    def _lines(self, table: Table, rows: list[dict[str, str]]) -> CopyLines:
        lines = ["\t".join(row.get(c.name, r"\N") for c in table.columns) for row in rows]
        some = [line.encode() for line in lines]
        return CopyLines(some, len(table.columns), table_id(self.name))

    def close(self) -> None:
        source = self._connection.source
        source.held.discard(self.name)
        if self in source.readers:
            source.readers.remove(self)


class SimGaussRanges(SimRanges):
    """The same, where no snapshot says what it shows: who is not visible yet is listed before."""

    _running: frozenset[int] | None = None

    def go_on(self) -> None:
        source = self._connection.source
        if self._found is None and self._running is None and self.name in source.tables:
            hidden = source.unshown(self.name)
            self._running = frozenset(source.wal[at].xid for at in hidden)
            return
        super().go_on()

    def _read(self, after: Key | NamedKeys | None) -> RangeRead | CdcError:
        found, running = super()._read(after), self._running
        self._running = None
        if isinstance(found, CdcError) or running is None:
            return found
        source = self._connection.source
        source.void.add(len(source.wal))
        source.commit_nothing()
        return replace(found, shown=Visible.but(running, found.shown.end), looked=None)


class SimReading(NamedTuple):
    """The source under the slot's snapshot."""

    tables: Mapping[str, Any]

    def shapes(self, tables: list[TableId]) -> list[TableSchema]:
        return [self.tables[t.name].schema(t.name) for t in tables if t.name in self.tables]

    def estimated_rows(self, _table: TableId) -> int:
        return 0

    def copy_rows(
        self, table: TableId, columns: Sequence[Any], hand_on: Callable[[CopyLines], None]
    ) -> None:
        rows = self.tables[table.name].rows
        lines = ["\t".join(row.get(c.name, r"\N") for c in columns).encode() for row in rows]
        for at in range(0, len(lines), 3):
            hand_on(CopyLines(lines[at : at + 3], len(columns), table))


class SimPoint(NamedTuple):
    """A place between two commits."""

    at: int
    reading: SimReading
    let_go: Callable[[], object]  # of the table's lock
    looked: Before | None

    def close(self) -> None:
        """Nobody waits for it any more."""
        self.let_go()


class SimGaussSource(SimSource):
    """A source of GaussDB; some have slots without a snapshot."""

    tells_switches = False
    keeps_confirmed = False
    filters_as_then = False

    def switch_point(self, timeline: int) -> int | None:
        return None

    rereads = True

    @property
    def reads_ranges(self) -> bool:
        return self._source.reads_ranges and self._exports

    @property
    def ranges_of(self) -> type[SimRanges]:
        return SimGaussRanges

    def __init__(self, *around: Any, native: Choice) -> None:
        super().__init__(*around)
        assert self._source.decoding is not None
        self._decoding = self._source.decoding
        self.positions_are_csns = self._decoding.by_csn
        self._reading = Reading(self._decoding, self._source, native)
        if self._decoding.by_csn:
            self.wire = OneBehind(self.wire, self._reading.newest_csn)
        self._tries, self._has_looked = 0, False

    @property
    def keepalives_move(self) -> bool:
        return self._reading.keepalives_move

    def make_slot(self) -> MadeSlot | None:
        made = super().make_slot()
        return made and MadeSlot(made.consistent_point, made.snapshot * self._exports)

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        if made.snapshot:
            return super().captured(made)
        self._park("lists the tables")
        self.tables = [table_id(n) for n in self._source.tables if self._wants(table_id(n))]
        self._on_tables(self.tables)
        return tuple(str(table) for table in self.tables)

    @property
    def _exports(self) -> bool:
        return not self._decoding.by_windows

    def point(self, table: TableId, *, if_gone: bool = False) -> Point | None:
        """As of the slot's making; a commit behind it shows that the stream came there."""
        if not self._has_looked:
            raise AssertionError("what happens up to this point is compared with no look")
        if self._decoding.by_windows:
            return self._window(table, if_gone=if_gone)
        found = super().point(table, if_gone=if_gone)
        if found is not None:
            self._visit("commits something")
            self._source.commit_nothing()
        return found

    def _window(self, table: TableId, *, if_gone: bool) -> QuietWindow | None:
        """Low, snapshot, high; a table that is never quiet is locked for that moment."""
        source, pause = self._source, self._visit
        pause("opens a window")
        if source.world.chance(0.1):
            raise SourceBusy("a window waits for open transactions")
        self._tries += 1
        if is_locked := self._tries > 2:
            source.visible = len(source.wal)  # who wrote to it has ended
            pause = _at_once
        low = self._mark()
        if not is_locked:
            self.await_visible(len(source.wal))
            pause("begins to read")
        now = source.states[source.visible].items()
        tables = copy.deepcopy({n: t for n, t in now if n in source.published})
        pause("reads under a window")
        high = self._mark()
        if not self._decoding.by_csn:
            self._visit("commits something")
            source.commit_nothing()
        if table.name not in tables and not if_gone:
            return None
        marks = MarkTokens(low, high) if self._decoding.by_csn else None
        window = QuietWindow(table, SimReading(tables), let_go=int, marks=marks)
        if marks is None:
            window.low, window.at = low, high
        return window

    def await_visible(self, count: int) -> None:
        """Wait for transactions that ran at a mark."""
        self._actor.park("waits for transactions", until=lambda: self._source.visible >= count)

    def _mark(self) -> int:
        source = self._source
        if not self._decoding.by_csn:
            return source.wal_end
        return 10**9 + source.commit_nothing(token=10**9 + len(source.wal) + 700 * source.timeline)

    def adopt(self, table: TableSchema) -> None:
        self._tries = 0
        self._reading.adopt(table)

    def look(self, known: Any, *, unless: str, before: Before | None) -> Look | None:
        """The stream or its gaps report changes, but for what looks are compared for."""
        self._has_looked = True

    def start_reading(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: int,
        csn: int,
        hidden: set[TableId] | None = None,
        loads: bool = True,
    ) -> None:
        del loads
        self._reading.start(known, resume=resume, csn=csn, hidden=hidden)

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[int, Message]]:
        return self._reading.messages(received, one_by_one=one_by_one)

    def leave(self) -> None:
        super().leave()
        self._reading.close()


def _at_once(_label: str) -> None:
    """Nobody commits in between."""


class AlienSource(SimSource):
    """Another server, where everything is in order."""

    def try_lock(self) -> bool:
        return True

    def slot(self) -> Slot | None:
        return Slot(PLUGIN, "bank", 50)

    def try_take(self) -> bool:
        return True

    def make_slot(self) -> MadeSlot | None:
        return MadeSlot(50, "snap-0")

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        return ()


# ---------------------------------------------------------------- topics
class SimReader:
    """`CutsReader`: a topic of one partition, read committed."""

    def __init__(self, actor: Actor, broker: Broker, topic: str) -> None:
        self._actor, self._broker, self._place = actor, broker, (topic, 0)
        self.topic = topic

    def bounds(self) -> tuple[int, int]:
        self._actor.park("asks for the bounds of cuts")
        return self._broker.starts[self._place], self._broker.high(self._place)

    def lso(self) -> int:
        self._actor.park("asks for the LSO of cuts")
        return self._broker.lso(self._place)

    def read(self, low: int, high: int) -> list[Any]:
        self._actor.park(f"reads {self._place[0]}")
        return [
            Stored(offset, entry.key, entry.value)
            for offset, entry in self._broker.read(self._place, low, high)
            if entry.value is not None
        ]


class SimAdmin:
    """Topics as they are."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def list_below(self, prefix: str) -> list[str]:
        return [name for name in self._broker.partitions if name.startswith(f"{prefix}.")]

    def existing(self, names: list[str]) -> dict[str, Topic]:
        broker = self._broker
        return {name: Topic(broker.topic_ids[name], broker.partitions[name]) for name in names}

    def high_watermarks(self, topics: Mapping[str, Topic]) -> dict[str, dict[int, int]]:
        return {
            name: {at: self._broker.high((name, at)) for at in range(topic.partitions)}
            for name, topic in topics.items()
        }


class SimCodec(NamedTuple):
    """Control records as Avro."""

    decoded: Decoded
    unknown: int | None = None

    def encode_cut(self, cut: Cut) -> bytes:
        return registry.encode_cut(cut)

    def read_cut(self, value: bytes) -> Cut:
        return self.decoded.cut(value)

    def read_change(self, value: bytes) -> SchemaChange:
        return registry.change(value)

    def repair(self, _prefix: str) -> list[str]:
        return []


class SimBlocking:
    """Calls that may take long: the source is told in between that we live."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self.beat: Callable[[], None] = lambda: None

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        self._actor.park("waits for a call")
        self.beat()
        return result


class SimBehind(NamedTuple):
    """A call ends before the caller goes on: what a crash leaves is the same."""

    is_busy: bool  # chunks join those that wait, up to a limit

    def __call__(self, call: Callable[[], object]) -> None:
        call()

    def wait(self) -> None:
        """Nothing is under way."""


class SimClock(NamedTuple):
    """The world's time."""

    world: World

    def now(self) -> float:
        return self.world.now

    def wall_us(self) -> int:
        return int(self.world.now * 1e6)


class SimQuarantine(NamedTuple):
    """What was put aside, by its position."""

    actor: Actor
    broker: Broker

    def put(self, payload: bytes, *, lsn: int, why: str, table: str = "", **_: object) -> None:
        self.actor.park("writes into quarantine")
        self.broker.quarantined.add(lsn)


class SimPublisher:
    """Topics, made before their first row."""

    def __init__(self, broker: Broker, on_topics: Callable[[TopicsChanged], None]) -> None:
        self._broker, self._on_topics = broker, on_topics
        self._admin = SimAdmin(broker)
        self._known = set(broker.partitions)

    def prepare_tables(self, tables: list[TableId]) -> None:
        for table in tables:
            self._broker.add_topic(TOPICS.table(table), PARTITIONS.get(table.name, 1))
        self._known = set(self._broker.partitions)

    def register_ahead(self, tables: Sequence[TableSchema]) -> None:
        """Each one is registered when it is published."""

    def checked(self) -> None:
        """Nobody changes their settings."""

    def topic(self, table: TableId) -> str:
        topic = TOPICS.table(table)
        if topic not in self._known:
            self._broker.add_topic(topic, PARTITIONS.get(table.name, 1))
            found = self._admin.existing(self._admin.list_below("bank"))
            self._known = set(found)
            self._on_topics(TopicsChanged(found))
        return topic

    def publish(self, table: TableSchema) -> Binding:
        topic = self.topic(table.id)
        partitions = self._broker.partitions[topic]
        at = table.names().index("id") if table.key else -1
        encoder = registry.encoder_of(table)

        def by_key(cells: list[Any]) -> int:
            return partition_of(cells[at], partitions)

        return Binding(
            table=table,
            topic=topic,
            schema_id=encoder.schema_id,
            partitions=partitions,
            encoder=encoder,
            key=table_key(table.id),
            key_of=None,
            partition_of=by_key if partitions > 1 else None,
            partition=0,
            key_at=(at,) if partitions > 1 else (),
            key_plan=KeyPlan(key_columns(table), None, partitions) if partitions > 1 else None,
        )

    def encode_change(self, change: SchemaChange) -> bytes:
        return registry.encode_change(change)

    def messages(self) -> MessageWriter:
        return MessageWriter(
            TOPICS.message, key_id=1, value_id=2, prefix="bank", database="bank",
            options=EnvelopeOptions(),
        )  # fmt: skip

    def transactions(self) -> None:
        """No BEGIN and END."""
