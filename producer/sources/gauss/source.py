"""openGauss and GaussDB: an ordinary session for queries, a replication session that streams.

Both are our own client's.  The lock lives in a session of its own (../lock.py): a
walsender of this family does not survive a refused command, and
START_REPLICATION is refused until the slot's last walsender has ended.

The session that imported the slot's snapshot is opened at once and kept for the
whole load: a replication session that is idle longer than wal_sender_timeout
(6 s) is closed by the server, and an exported snapshot goes with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, Self

from producer import native
from producer.core.catalog.look import Before, Look
from producer.core.changes import Message
from producer.core.key_ranges import Key
from producer.core.ports import Point, Wire, Wish
from producer.core.takeover.takeover import MadeSlot, Slot
from producer.errors import (
    CdcError,
    SlotTaken,
    SourceError,
)
from producer.options import Options
from producer.sources import patterns, requests, session_settings
from producer.sources.base import PlainSource
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import catalog_writers, gaps, key_ranges
from producer.sources.gauss import evidence as gauss_evidence
from producer.sources.gauss import point as gauss_point
from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.catalog_writers import CatalogWriters
from producer.sources.gauss.connection import GaussConnection, Unexplained
from producer.sources.gauss.csn_order import OneBehind
from producer.sources.gauss.functions import FunctionStream
from producer.sources.gauss.new_slot import NewSlot
from producer.sources.gauss.options import (
    Effective,
    check_server_rules,
    effective,
    removing_text,
    why_not_full,
)
from producer.sources.gauss.recorded import evidence
from producer.sources.gauss.server import Server
from producer.sources.gauss.snapshot import GaussReading
from producer.sources.gauss.storage import StorageWatch, StreamTells
from producer.sources.gauss.stream_reader import StreamReader
from producer.sources.gauss.tries import Tries
from producer.sources.lock import SlotLock
from producer.sources.ranges import RangesThread
from producer.sources.rights import problems_of_reading
from producer.sources.session import Asks
from producer.wire.replication import WalMessage
from schemas.control import Cut, Identity, Looked
from schemas.encodings import of_cells
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.tables import TableId, TableSchema

_WINDOWS: Final = 3  # without a lock, until a table is locked for the moment of one
_RELEASE_SECONDS: Final = 3.0
_RECALL_SECONDS: Final = 60.0  # of cuts at most are read by a start


class GaussSource(PlainSource):
    """A source of kind "opengauss" or "gaussdb"; decoders number the tables in the stream."""

    tells_switches = False  # nor their own timelines

    def __init__(
        self,
        options: Options,
        asking: GaussConnection,
        server: Server,
        on_tables: Callable[[list[TableId]], None],
    ) -> None:
        """`on_tables` creates the topics of a load, so that START can name them."""
        self._options, self._on_tables = options, on_tables
        self.asking, self.server = asking, server
        self.decided: Effective = effective(
            options.plugin_options, options.terms, encoding=server.codec
        )
        self.encoding = of_cells(server.codec)  # the database's: a stream is never converted
        self.positions_are_csns = self.decided.ordered_by == "csn"
        # A table has a place in the stream by a slot, or by marks in the log.
        self.rereads = server.is_primary and gauss_point.rereads(options)
        self.tables = []  # of the load, once the slot is created
        # No publication filters rows; but a slot without a snapshot omits
        # what is older than the slot.
        self.new_tables_are_complete = self._has_snapshot
        self._windows: dict[TableId, int] = {}  # that were opened for each table
        self._mode = mode = gauss_readings.decoding_mode(asking, self.decided)
        self._selects = patterns.chooser(options.include, options.exclude)
        self._node = gauss_readings.node_of(asking, server)
        # A coordinator's transaction ids are not those of data nodes, in rows and in the stream.
        self._has_ids_of_its_own = self._node[0] == "CN"
        self._told = StreamTells.by(mode, self.decided)
        self._storage = StorageWatch(self._told, self._selects, clears=not self._has_ids_of_its_own)
        self._writers: CatalogWriters | None = None
        is_looked_at = server.is_primary and not self._has_ids_of_its_own
        if is_looked_at and mode.loses_rows_behind_ddl:
            self._writers = CatalogWriters(options.topics, self._tell)
        self._stack = ExitStack()
        self._stack.callback(asking.close)
        self._wire: GaussConnection | None = None
        self._behind: OneBehind | None = None  # what streams in the order of CSNs
        self._functions: FunctionStream | None = None  # instead of a stream, with interface "sql"
        self._note: Callable[[str], None] = lambda _: None
        self._reading: GaussReading | None = None  # under the slot's snapshot
        self._load = ExitStack()  # keeps its session open
        self._is_streaming = False
        self._last_status = self._recalls_from = time.monotonic()
        self._reader = StreamReader(options, self.decided, self.encoding, self)
        self.keepalives_move = self._reader.keepalives_move
        self._new_slot = NewSlot(
            options,
            self.decided,
            asking,
            replication=self._replication,
            session=lambda: self._stack.enter_context(self._session()),
            note=self._tell,
        )
        self._tries = Tries(self._tell)
        self._open_requests = requests.OpenRequests(options.slot)
        self._lock = SlotLock(
            lambda silence: gauss_point.of_one_server(
                asking,
                open_session(
                    options,
                    {**session_settings.GAUSS, "session_timeout": str(math.ceil(silence))},
                ),
            ),
            options.slot,
            options.status_seconds,
        )
        self._stack.callback(self._lock.close)

    @classmethod
    def open(cls, options: Options, on_tables: Callable[[list[TableId]], None]) -> Self:
        """Connect for queries; the session that streams is opened when there is a slot to take."""
        asking = open_session(options)
        try:
            # All later sessions are of the one server that was reached, or the run starts again.
            options = replace(options, source=asking.arguments, hosts=())
            return cls(options, asking, asking.server(), on_tables)
        except BaseException:
            asking.close()
            raise

    @property
    def wire(self) -> Wire:
        """The session that streams, or the functions in its place."""
        return self._functions or self._behind or self._replication()

    @property
    def told_end(self) -> Lsn:
        """The end of the log by the newest heartbeat; by a coordinator's, the newest CSN.

        A data node's says a position of its log also where its slot is in the order of CSNs
        (manual, decoding options, enable-heartbeat), which is not compared.
        """
        told = self._reader.told_end()
        if self.decided.ordered_by == "lsn":
            return told
        return Lsn(max(told - 1, 0)) if self._has_ids_of_its_own else NOWHERE

    @property
    def _has_snapshot(self) -> bool:
        """Only a slot made over the replication protocol, ordered by LSN, exports one."""
        return gauss_point.exports_snapshot(self._options)

    # ---- before the stream

    def _tell(self, line: str) -> None:
        self._note(line)

    def prepare(self, note: Callable[[str], None]) -> list[TableId]:
        """Check the options against the server; list the tables captured."""
        server, self._note = self.server, note
        note(
            f"source {server.product} {server.version}, database {server.database} in "
            f"{server.encoding}, decoding {self.decided.plugin} {self.decided.mode}"
        )
        note(f"this decoding mode is {evidence(server, self.decided)}")
        gauss_slots.check_decoders(gauss_slots.slots(self.asking), self._options.slot)
        facts = gauss_readings.read_server(self.asking, self._options.slot, server, self._node)
        for advice in (*self.decided.warnings, *check_server_rules(self.decided, facts)):
            note(str(advice))
        if sentence := why_not_full(self._options.plugin_options):
            note(sentence)
        if sentence := gaps.invisible_sentence(self._mode):
            note(sentence)
        tables = self._expanded()
        if gauss_slots.find(self.asking, self._options.slot) is None:  # else it may have gone since
            patterns.refuse(patterns.absent(tables, self._options.include, self._options.exclude))
        return tables

    def listed(self) -> list[TableId]:
        """List the tables captured."""
        return self._expanded()

    def fingerprint_inputs(self) -> Mapping[str, object]:
        """Give the plugin, what it removes, and which kind of position resumes it.

        Positions of COMMIT's start, of its end and CSNs must not be mixed in one epoch.
        """
        form = self.decided.format
        if self.decided.ordered_by == "csn":
            positions = "csn"
        elif form.style in {"j", "t"} and not form.batch:
            positions = "start"
        else:
            positions = "end"
        return {
            "plugin": self._options.plugin,
            "removing": removing_text(self._options.plugin_options),
            "positions": positions,
        }

    def identity(self) -> Identity:
        """Ask the server who it is."""
        options = self._options
        if options.interface == "sql":
            identifier, timeline = gauss_catalog.system(self.asking)
            return Identity(
                identifier, timeline, self.server.database, options.slot, options.plugin
            )
        said = self._replication().identify()
        return Identity(
            said.system_id, said.timeline, said.dbname or "", options.slot, options.plugin
        )

    def try_lock(self) -> bool:
        """Take the advisory lock of the slot."""
        return self._lock.try_take()

    def slot(self) -> Slot | None:
        """Read the slot's state; raise SlotOrphaned where its database is gone.

        None: there is none.
        """
        found = gauss_slots.find(self.asking, self._options.slot)
        if found is None:
            return None
        if found.is_orphaned:
            gauss_slots.check_usable(
                found,
                name=self._options.slot,
                plugin=self._options.plugin,
                database=self.server.database,
            )
        invalid = "restart_lsn is FFFFFFFF/FFFFFFFF" if found.is_invalid else ""
        return Slot(found.plugin or "physical", found.database, found.told or NOWHERE, invalid)

    def lacks(self, resume: Lsn, xid: int) -> str:
        """Say what shows that a primary lacks what was delivered: after a forced switch-over.

        Its new transactions would have positions that are silently dropped as delivered.
        A standby may lag; a coordinator's ids say nothing about those of its data nodes.
        """
        if self._writers is not None:
            self._writers.begin(xid)
        if not self.server.is_primary:
            return ""
        if self.decided.ordered_by == "lsn":
            end = gauss_readings.wal_end(self.asking)
            if end < resume:
                return f"its log ends at {lsn_text(end)}, before {lsn_text(resume)}"
        is_told = bool(xid) and not self._has_ids_of_its_own
        # First: who is delivered and not visible may have the id that the server says is the next.
        running = gauss_point.running(self.asking) if is_told else frozenset()
        next_xid = gauss_readings.next_xid(self.asking) if is_told else None
        if next_xid is not None and next_xid <= xid and xid not in running:
            return f"its next transaction is {next_xid}, and {xid} was delivered"
        return ""

    def try_take(self) -> bool:
        """Begin to stream from the slot's confirmed position; False while another client does."""
        self._end_load()
        if self._options.interface == "sql":
            return self._take_by_sql()
        if not self._tries.is_due():
            return False
        wire = self._replication()
        try:
            wire.start(
                self._options.slot,
                dict(self.decided.options),
                split=native.split(self._options.native),
            )
        except SlotTaken:
            self._hang_up()
            self._tries.taken()
            return False
        except Unexplained as error:
            self._hang_up()
            self._tries.refused(error)
            return False
        except SourceError:
            self._hang_up()
            raise
        self._is_streaming = True
        if self.decided.ordered_by == "csn":
            self._behind = OneBehind(wire, self._reader.newest_csn)
        if self.server.is_primary:
            self.keep_alive(force=True)
        else:
            # A standby marks the primary's slot as used with the first position that we confirm;
            # until then the primary may invalidate it.  To confirm it again is harmless.
            slot = self.slot()
            wire.send_status(slot.confirmed if slot else NOWHERE)
        return True

    def make_slot(self) -> MadeSlot | None:
        """Drop an old slot of ours, create a new one; None while it is in use.

        A slot ordered by CSN is created by SQL, which exports no snapshot.
        """
        made = self._new_slot.make(self.server.database, self._check_first)
        if made is not None and made.snapshot:
            self._import(made.snapshot)
        return made

    def _check_first(self) -> None:
        """Raise what may be refused before anything is dropped or created: rights, and topics."""
        self._on_tables(self._expanded())
        if self._options.load and self.rereads:
            rights = gauss_catalog.table_rights(self.asking, self._expanded())
            for problem in problems_of_reading(rights, gauss_catalog.user(self.asking)):
                raise problem

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop the slot that is not used: it would keep log."""
        self._new_slot.discard(note)

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        """List the tables under the slot's snapshot; or those of now, which windows load."""
        if self._reading is None and self.rereads:
            self.tables = self._expanded()
        elif self._reading is None:
            self._note(
                f"slot {self._options.slot} has no snapshot: rows older than "
                f"{lsn_text(made.consistent_point)} are not copied, only later changes"
            )
            self.tables = []
            return ()
        else:
            self.tables = self._expanded(self._reading.session)
        self._on_tables(self.tables)
        return tuple(str(table) for table in self.tables)

    def looked(self, made: MadeSlot) -> Looked | None:
        """Take the first look under the slot's snapshot, or now where it has none.

        What happens while tables are loaded is found by the next one.

        None at a standby.
        """
        if not self.server.is_primary:
            return None
        session = self.asking if self._reading is None else self._reading.session
        horizon, judged = catalog_writers.baseline(session)
        found = StorageWatch(self._told, self._selects).look(session, None, self._note)
        since = made.consistent_point if self._told.positions else NOWHERE
        return Before.of_files(
            horizon, judged, found.versions, parts=found.parts, since=since
        ).looked()

    def _take_by_sql(self) -> bool:
        """Poll the slot by functions; False while another client streams from it."""
        options = self._options
        found = gauss_slots.find(self.asking, options.slot)
        if found is not None and found.is_active:
            return False
        self._functions = FunctionStream(self._session(), options.slot, self.decided.options)
        return True

    @contextmanager
    def reading(self, made: MadeSlot) -> Iterator[GaussReading]:
        """Return the session that imported the slot's snapshot; it ends with the load.

        Tables are protected from DDL meanwhile.
        """
        assert self._reading is not None, made  # `captured` came first
        try:
            gauss_snapshot.hold(self._reading, self.asking, self.tables)
            yield self._reading
        finally:
            self._end_load()

    # ---- the stream

    def start_reading(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: Lsn,
        csn: int,
        hidden: set[TableId] | None = None,
        loads: bool = True,
    ) -> None:
        """Buffer transactions from here on; `known` are the tables in force at `resume`.

        Without a load, a slot without a snapshot omits what is older than the slot.
        """
        self.new_tables_are_complete = self._has_snapshot or loads
        self._reader.start(known, resume=resume, csn=csn, hidden=hidden)

    def point(self, table: TableId, *, if_gone: bool = False) -> Point | None:
        """Make a place between two commits; see `make_point` and `make_window`."""
        if self._has_snapshot:
            return gauss_point.make_point(
                self._options, self.asking, self._session, table, self._note, if_gone=if_gone
            )
        self._windows[table] = tries = self._windows.get(table, 0) + 1
        window = gauss_point.make_window(
            self._options,
            self.asking,
            self._session,
            table,
            locks=tries > _WINDOWS,
            if_gone=if_gone,
        )
        if window is not None and self._functions is not None:
            self._functions.flushed(window.at)
        return window

    @property
    def reads_ranges(self) -> bool:
        """Say whether tables are read beside the stream."""
        return key_ranges.reads_ranges(self.decided, self.server, self._node[0])

    def ranges(
        self, table: TableId, *, of_any_size: bool = False
    ) -> tuple[TableSchema, RangesThread] | None:
        """Open what reads a table beside the stream; None: it is read at a point."""
        least = 0 if of_any_size else self._options.tuning.beside_bytes
        return key_ranges.open_ranges(
            self._options,
            self.asking,
            table,
            server=self.server,
            open_session=partial(open_session, self._options),
            least=least,
        )

    def adopt(self, table: TableSchema) -> None:
        """Take the shape under which a table was read again."""
        self._windows.pop(table.id, None)
        self._reader.adopt(table)

    def forget(self, table: TableId) -> None:
        """Take it that a table is gone: another of its name may come."""
        self._windows.pop(table, None)
        self._reader.forget(table)

    def requests(self) -> Mapping[Wish, int]:
        """Return what somebody asks to be read again."""
        return self._open_requests.newest(self.asking, self._note)

    def named(self, wish: Wish) -> tuple[int, Sequence[Key]]:
        """Return number and keys of the oldest request; no keys: it is for all rows."""
        return requests.named(self.asking, self._options.slot, wish)

    def answer(self, wish: Wish, number: int, *, alone: bool = False) -> None:
        """Forget requests up to a number."""
        requests.forget(self.asking, self._options.slot, wish, number, alone=alone)

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[Lsn, Message]]:
        """Yield the ended transactions, each in one piece."""
        self._lock.check()
        return self._reader.messages(received, one_by_one=one_by_one)

    def shape(self, table: TableId) -> TableSchema | None:
        """Read one table's shape as it is now; None if it is gone."""
        found = gauss_catalog.table_schema_or_none(self.asking, table)
        return None if found is None else gauss_snapshot.without_virtual(found)

    def wrote(self, table: TableId, xid: int) -> bool | None:
        """Query whether a transaction wrote rows into a captured table that it created."""
        if not self._selects(table):
            return False  # not captured: no rows are missing
        if self._has_ids_of_its_own:
            return None
        return gauss_evidence.wrote(self.asking, table, xid)

    def judged(self, xid: int, tables: frozenset[TableId]) -> None:
        """Take it that the gaps of these tables, by a transaction's statements, are known."""
        if self._writers is not None:
            self._writers.judged(xid, tables)

    def recalls(self, looked: Looked | None) -> Lsn:
        """Recall what was delivered of transactions that the next look finds, and no look judged.

        In the order of CSNs nothing says where that begins.
        """
        if self._writers is None or looked is None:
            return NOWHERE
        before = Before.of(looked)
        if not catalog_writers.left(self.asking, before):
            return NOWHERE
        self._writers.go_on(before)
        return before.since

    def delivered(self, cuts: Sequence[Cut]) -> None:
        """Take note of what is durable in Kafka."""
        if self._writers is not None:
            self._writers.delivered(cuts)

    def look(
        self,
        known: Mapping[TableId, TableSchema],
        *,
        unless: str,  # noqa: ARG002  the protocol's
        before: Before | None,
    ) -> Look | None:
        """Look for tables that may lack rows, of which nothing is sent; see `storage`.

        And `catalog_writers`.  Everything else the stream reports, or its gaps (`gauss.gaps`).
        """
        if not self.server.is_primary:
            return None
        since = self._position()
        behind: tuple[TableId, ...] = ()
        if (writers := self._writers) is not None:
            if before is not None:
                writers.go_on(before)
            behind = writers.suspected(self.asking, self._expanded, self._position)
        # Behind that: a row that is older than its horizon was there before this look.
        found = self._storage.look(self.asking, before, self._note, known=known)
        horizon, judged = found.open_from, frozenset[int]()
        is_news = before is None or (found.versions, found.parts) != (before.versions, before.parts)
        is_news |= bool(found.dropped)
        if writers is not None:
            if writers.horizon:  # it could be looked for
                horizon, judged = writers.horizon, frozenset(writers.behind_horizon)
            elif before is not None:
                horizon, judged = before.horizon, before.judged
            if writers.has_open and before is not None:
                since = before.since  # what was delivered of them may be asked for
            is_news |= writers.has_moved or time.monotonic() > self._recalls_from + _RECALL_SECONDS
        if is_news or behind or (writers is not None and writers.is_waiting):
            position = self._position()
            gauss_point.commit_something(self.asking)  # an idle stream may tell no position
        if not (is_news or behind):
            return None
        self._recalls_from = time.monotonic()
        return Look(
            position,
            {},
            is_of_files=True,
            emptied=found.emptied,
            suspected=found.suspected,
            there=found.there,
            dropped=found.dropped,
            behind=behind,
            of_files=Before.of_files(
                horizon, judged, found.versions, parts=found.parts, since=since
            ),
        )

    def _position(self) -> Lsn:
        """Return where the log ends, which is behind all that is visible; 0: not comparable."""
        return gauss_point.log_end(self.asking) if self._told.positions else NOWHERE

    def type_name(self, type_oid: int, modifier: int) -> str:
        """Name a type as format_type() does."""
        return gauss_catalog.type_name(self.asking, type_oid, modifier)

    def keep_alive(self, *, force: bool = False) -> None:
        """Send a keepalive, confirming nothing."""
        self._lock.check()
        if not self._is_streaming:
            return
        if force or time.monotonic() - self._last_status >= self._options.status_seconds:
            self._replication().send_status(Lsn(0))
            self._last_status = time.monotonic()

    def close(self) -> None:
        """Release slot and lock; a slot that is still being created is dropped."""
        self._new_slot.give_up()
        was_streaming = self._is_streaming
        self._hang_up()
        if was_streaming:
            self._wait_for_walsender()
        self._load.close()
        self._reader.close()
        self._stack.close()

    def _wait_for_walsender(self) -> None:
        """Wait a moment for the walsender to release the slot, and note it if it does not.

        It continues to decode until it reads its socket: about a minute for 300,000 subtransactions
        of one transaction (manual, overview).
        """
        with suppress(CdcError):  # the session may be over, and the source is closed anyhow
            if not self.asking.wait_released(self._options.slot, _RELEASE_SECONDS):
                self._note(
                    f"the server still decodes for slot {self._options.slot}: it ends by itself, "
                    "or by pg_terminate_backend of its walsender; the next run waits for it"
                )

    # ---- sessions

    def _session(self) -> GaussConnection:
        """Open another ordinary session with the server that is asked."""
        return gauss_point.of_one_server(self.asking, open_session(self._options))

    def _replication(self) -> GaussConnection:
        if self._wire is None:
            options = self._options
            wire = GaussConnection.open(
                options.source, role=options.role, replication_port=options.ha_port or 0
            )
            self._wire = gauss_point.of_one_server(self.asking, wire)
        return self._wire

    def _hang_up(self) -> None:
        self._is_streaming = False
        if self._functions is not None:
            self._functions.close()
            self._functions = None
        if self._wire is not None:
            self._wire.close()
            self._wire = self._behind = None

    def _end_load(self) -> None:
        """Let go of the slot's snapshot: no table is read under it any more."""
        self._load.close()
        self._reading = None

    def _import(self, name: str) -> None:
        """Open the load's session while the snapshot lives."""
        self._load.close()  # of an earlier attempt
        imported = gauss_snapshot.imported(self._session, name)
        self._reading = self._load.enter_context(imported)

    def _expanded(self, session: Asks | None = None) -> list[TableId]:
        options = self._options
        tables = gauss_catalog.expand(session or self.asking, options.include, options.exclude)
        if not tables:
            raise SourceError(
                "no table matches [tables]",
                include=", ".join(options.include),
                hint="create tables, or correct include and exclude",
            )
        return tables


def open_session(options: Options, settings: Mapping[str, str] | None = None) -> GaussConnection:
    """Open an ordinary session with the source."""
    return GaussConnection.open(
        options.source,
        replication=False,
        hosts=options.hosts,
        role=options.role,
        settings=settings,
    )
