"""openGauss and GaussDB: an ordinary session for queries, a replication session that streams.

Both are our own client's.  The lock lives in the session that asks: a walsender
of this family does not survive a refused command, and START_REPLICATION is
refused until the slot's last walsender has ended.

The session that imported the slot's snapshot is opened at once and kept for the
whole load: a replication session that is idle longer than wal_sender_timeout
(6 s) is closed by the server, and an exported snapshot goes with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Final, Self

from producer import native
from producer.core.catalog_watch import Look
from producer.core.changes import Message
from producer.core.ports import Point, Wire
from producer.core.takeover import MadeSlot, Slot
from producer.core.window import NothingThere
from producer.errors import (
    CdcError,
    SlotMismatch,
    SlotMissing,
    SlotTaken,
    SourceError,
)
from producer.options import Options
from producer.sources import patterns, requests
from producer.sources.base import try_lock
from producer.sources.decoders import NAMING
from producer.sources.gauss import (
    catalog as gauss_catalog,
)
from producer.sources.gauss import (
    evidence as gauss_evidence,
)
from producer.sources.gauss import (
    gaps,
)
from producer.sources.gauss import (
    point as gauss_point,
)
from producer.sources.gauss import (
    readings as gauss_readings,
)
from producer.sources.gauss import (
    slots as gauss_slots,
)
from producer.sources.gauss import (
    snapshot as gauss_snapshot,
)
from producer.sources.gauss.connection import GaussConnection, Unexplained
from producer.sources.gauss.csn_order import OneBehind
from producer.sources.gauss.functions import FunctionStream, ReadingMode
from producer.sources.gauss.held import Held
from producer.sources.gauss.options import (
    Decoding,
    Effective,
    check_server_rules,
    effective,
    removing_text,
    why_not_full,
)
from producer.sources.gauss.recorded import evidence
from producer.sources.gauss.resolver import RelationResolver
from producer.sources.gauss.server import Server
from producer.sources.gauss.snapshot import GaussReading
from producer.sources.gauss.spill import SpillFile
from producer.sources.gauss.storage import StorageWatch
from producer.sources.gauss.stream import GaussStream
from producer.sources.gauss.system_schemas import is_system_schema
from producer.sources.rights import problems_of_reading
from producer.sources.session import Asks
from producer.wire.replication import WalMessage
from schemas.control import Identity
from schemas.encodings import of_cells
from schemas.positions import Lsn
from schemas.tables import TableId, TableSchema
from schemas.types.names import oid_of

_WINDOWS: Final = 3  # without a lock, until a table is locked for the moment of one
_MAKE_WAIT: Final = 0.5  # seconds for a new slot before control returns to the caller
_RELEASE_SECONDS: Final = 3.0
# An unexplained refusal usually ends with the decoders of the last stream.
_UNEXPLAINED_SECONDS: Final = 120.0
_TRY_AGAIN: Final = 2.0
_STANDBY_PAUSE: Final = 0.5  # seconds; each attempt costs a login and a walsender


class GaussSource:
    """A source of kind "opengauss" or "gaussdb"."""

    ids_are_oids = False  # decoders number the tables in the stream
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
        self.tables: list[TableId] = []  # of the load, once the slot is created
        # No publication filters rows; but a slot without a snapshot omits
        # what is older than the slot.
        self.new_tables_are_complete = self._has_snapshot
        self._windows: dict[TableId, int] = {}  # that were opened for each table
        mode = gaps.decoding_mode(self.decided)
        # A coordinator's transaction ids are not those of data nodes, in rows and in the stream.
        self._has_ids_of_its_own = gauss_readings.node_of(asking, server)[0] == "CN"
        self._storage = StorageWatch(
            of_partitions_only=gaps.sends_truncate(mode), clears=not self._has_ids_of_its_own
        )
        self._stack = ExitStack()
        self._stack.callback(asking.close)
        self._wire: GaussConnection | None = None
        self._behind: OneBehind | None = None  # what streams in the order of CSNs
        self._functions: FunctionStream | None = None  # instead of a stream, with interface "sql"
        self._note: Callable[[str], None] = lambda _: None
        self._reading: GaussReading | None = None  # under the slot's snapshot
        self._load = ExitStack()  # keeps its session open
        self._is_streaming = False
        self._last_status = time.monotonic()
        self._stream: GaussStream | None = None
        self._making: gauss_slots.Making[MadeSlot] | None = None  # waits for open transactions
        self._has_made_slot = False  # and no START is durable yet
        self._refused_since: float | None = None  # without a reason in the catalog
        self._try_at = 0.0

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

    def newest_csn(self) -> int:
        """Return the CSN of the newest transaction that was taken, in the order of CSNs."""
        return 0 if self._stream is None else self._stream.last_csn

    @property
    def encoding(self) -> str:
        """The database's: a stream is never converted."""
        return of_cells(self.server.codec)

    @property
    def reports_ddl(self) -> bool:
        """Say whether our event triggers report schema changes: PostgreSQL only."""
        return False

    @property
    def keepalives_move(self) -> bool:
        """Only serial decoding has sent everything before a keepalive's position.

        A parallel keepalive has the reader's position, which is ahead of what was sent.  Calls of
        functions tell a position only where a window has flushed the log.
        """
        return self.decided.mode is not Decoding.PARALLEL and self.decided.ordered_by == "lsn"

    @property
    def rereads(self) -> bool:
        """Say whether a table has a place in the stream: by a slot, or by marks in the log."""
        return self.server.is_primary and gauss_point.rereads(self._options)

    @property
    def _has_snapshot(self) -> bool:
        """Only a slot made over the replication protocol, ordered by LSN, exports one."""
        return gauss_point.exports_snapshot(self._options)

    # ---- before the stream

    def prepare(self, note: Callable[[str], None]) -> list[TableId]:
        """Check the options against the server; list the tables captured."""
        server, self._note = self.server, note
        note(
            f"source {server.product} {server.version}, database {server.database} in "
            f"{server.encoding}, decoding {self.decided.plugin} {self.decided.mode}"
        )
        note(f"this decoding mode is {evidence(server, self.decided)}")
        gauss_slots.check_decoders(gauss_slots.slots(self.asking), self._options.slot)
        facts = gauss_readings.read_server(self.asking, self._options.slot)
        for advice in (*self.decided.warnings, *check_server_rules(self.decided, facts)):
            note(str(advice))
        if sentence := why_not_full(self._options.plugin_options):
            note(sentence)
        mode = gaps.decoding_mode(self.decided)
        if not mode.is_gaussdb:
            mode = replace(mode, decodes_ddl=gauss_readings.publishes_ddl(self.asking))
        if sentence := gaps.invisible_sentence(mode):
            note(sentence)
        return self._expanded()

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
        """Take the advisory lock of the slot, for the life of the query session."""
        return try_lock(self.asking, self._options.slot)

    def slot(self) -> Slot | None:
        """Read the slot's state; raise SlotOrphaned where its database is gone."""
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
        confirmed = found.confirmed_csn if found.ordered_by == "csn" else found.confirmed
        return Slot(found.plugin or "physical", found.database, int(confirmed or 0), invalid)

    def switch_point(self, timeline: int) -> int | None:  # noqa: ARG002  the protocol's
        """Return None: the server tells no history of its timelines."""
        return None

    def lacks(self, resume: int, xid: int) -> str:
        """Say what shows that a primary lacks what was delivered: after a forced switch-over.

        Its new transactions would have positions that are silently dropped as delivered.
        A standby may lag; a coordinator's ids say nothing about those of its data nodes.
        """
        if not self.server.is_primary:
            return ""
        if self.decided.ordered_by == "lsn":
            end = gauss_readings.wal_end(self.asking)
            if end < resume:
                return f"its log ends at {end}, before {Lsn(resume)}"
        is_told = bool(xid) and not self._has_ids_of_its_own
        next_xid = gauss_readings.next_xid(self.asking) if is_told else None
        if next_xid is not None and next_xid <= xid:
            return f"its next transaction is {next_xid}, and {xid} was delivered"
        return ""

    def try_take(self) -> bool:
        """Begin to stream from the slot's confirmed position; False while another client does."""
        self._end_load()
        if self._options.interface == "sql":
            return self._take_by_sql()
        if time.monotonic() < self._try_at:
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
            self._try_at = time.monotonic() + _STANDBY_PAUSE
            return False
        except Unexplained as error:
            self._hang_up()
            self._note_refusal(error)
            return False
        except SourceError:
            self._hang_up()
            raise
        self._is_streaming = True
        if self.decided.ordered_by == "csn":
            self._behind = OneBehind(wire, self.newest_csn)
        if self.server.is_primary:
            self.keep_alive(force=True)
        else:
            # A standby marks the primary's slot as used with the first position that we confirm;
            # until then the primary may invalidate it.  To confirm it again is harmless.
            slot = self.slot()
            wire.send_status(Lsn(slot.confirmed if slot else 0))
        return True

    def _note_refusal(self, error: Unexplained) -> None:
        """Tolerate an unexplained refusal for a limited time."""
        now = time.monotonic()
        if self._refused_since is None:
            self._refused_since = now
            self._note(f"tried again for {_UNEXPLAINED_SECONDS:g} s: {error}")
        if now - self._refused_since >= _UNEXPLAINED_SECONDS:
            raise SourceError(
                error.what,
                hint="the slot exists and is free, but the server refuses to stream from it: "
                "see its log; other readers may use all its decoders",
                **error.where,
                seconds=round(now - self._refused_since),
            )
        self._try_at = now + _TRY_AGAIN

    def make_slot(self) -> MadeSlot | None:
        """Drop an old slot of ours, create a new one; None while it is in use.

        A slot ordered by CSN is created by SQL, which exports no snapshot.
        """
        options = self._options
        if self._making is not None:
            return self._made()
        found = gauss_slots.find(self.asking, options.slot)
        if found is not None:
            is_ours = (found.plugin, found.database) == (options.plugin, self.server.database)
            if not is_ours and not found.is_orphaned:  # an orphaned slot is useless
                raise SlotMismatch(
                    "a slot of this name belongs to another client",
                    slot=options.slot,
                    plugin=found.plugin,
                    database=found.database,
                    hint="choose another name in [source] slot",
                )
            if found.is_active:
                return None
        if options.load and self.rereads:  # before anything is dropped or created
            rights = gauss_catalog.table_rights(self.asking, self._expanded())
            for problem in problems_of_reading(rights, gauss_catalog.user(self.asking)):
                raise problem
        if found is not None:
            try:
                gauss_slots.drop(self.asking, options.slot)
            except SlotTaken:
                return None
            except SlotMissing:
                pass
        self._making = self._begin_to_make()
        return self._made()

    def _begin_to_make(self) -> gauss_slots.Making[MadeSlot]:
        """Create the slot in a session of its own, which waits for open transactions."""
        options, name, order = self._options, self._options.slot, self.decided.ordered_by
        if self._has_snapshot:
            maker = self._replication()
        else:
            maker = self._stack.enter_context(self._session())

        def make() -> MadeSlot:
            if not self._has_snapshot:
                point = gauss_slots.create_by_sql(maker, name, options.plugin, ordered_by=order)
                return MadeSlot(int(Lsn.parse(point)), "")
            made = maker.create_slot(name, options.plugin)
            return MadeSlot(int(made.consistent_point), made.snapshot or "")

        def note_blockers(found: list[gauss_slots.OpenTransaction]) -> None:
            for blocker in found:
                self._note(f"the new slot waits for {blocker}")

        return gauss_slots.Making(
            make,
            slot=name,
            maker=maker.query("SELECT pg_backend_pid()")[0][0] or "",
            asker=self.asking,
            on_blocked=note_blockers,
        )

    def _made(self) -> MadeSlot | None:
        """Return the slot that is being created; None while it waits."""
        assert self._making is not None
        made = self._making.result(_MAKE_WAIT)
        if made is not None:
            self._making, self._has_made_slot = None, True
            if made.snapshot:
                self._import(made.snapshot)
        return made

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop the slot that is not used: it would keep log."""
        if not self._has_made_slot:
            return
        slot = self._options.slot
        try:
            gauss_slots.drop(self.asking, slot)
            note(f"slot {slot} dropped again: it was not used")
        except CdcError as error:
            note(
                f"slot {slot} was created, remains, and keeps log ({error.what}); to drop it: "
                "gauss-cdc slot drop --yes"
            )

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        """List the tables under the slot's snapshot; or those of now, which windows load."""
        if self._reading is None and self.rereads:
            self.tables = self._expanded()
        elif self._reading is None:
            self._note(
                f"slot {self._options.slot} has no snapshot: rows older than "
                f"{Lsn(made.consistent_point)} are not copied, only later changes"
            )
            self.tables = []
            return ()
        else:
            self.tables = self._expanded(self._reading.session)
        self._on_tables(self.tables)
        return tuple(str(table) for table in self.tables)

    def _take_by_sql(self) -> bool:
        """Poll the slot by functions; False while another client streams from it."""
        options = self._options
        found = gauss_slots.find(self.asking, options.slot)
        if found is not None and found.is_active:
            return False
        is_lossy = options.sql_mode == "at-most-once"
        self._functions = FunctionStream(
            self._session(),
            options.slot,
            self.decided.options,
            mode=ReadingMode.GET if is_lossy else ReadingMode.PEEK,
            may_lose=is_lossy,
        )
        return True

    @contextmanager
    def reading(self, made: MadeSlot) -> Iterator[GaussReading]:
        """Return the session that imported the slot's snapshot; it ends with the load."""
        assert self._reading is not None, made  # `captured` came first
        try:
            yield self._reading
        finally:
            self._end_load()

    # ---- the stream

    def start_reading(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: int,
        csn: int,
        hidden: set[TableId] | None = None,
        loads: bool = True,
    ) -> None:
        """Buffer transactions from here on; `known` are the tables in force at `resume`.

        Without a load, a slot without a snapshot omits what is older than the slot.
        """
        self.new_tables_are_complete = self._has_snapshot or loads
        options, form = self._options, self.decided.format
        chosen = patterns.chooser(options.include, options.exclude)
        relations = RelationResolver(
            known,
            wanted=lambda table: chosen(table) and not is_system_schema(table.schema),
            read_catalog=self.shape,
            oid_of=oid_of,
            skip_unidentified=options.without_identity == "skip-and-record",
            names_run_together=form.style == "t",
            hidden=hidden,
        )
        mode = gaps.decoding_mode(self.decided)
        self._stream = GaussStream(
            NAMING[form.plugin, form.style](form),
            relations,
            spill=lambda: SpillFile(options.spill_folder),
            hold_bytes=options.hold_bytes,
            by_csn=self.decided.ordered_by == "csn",
            resume=resume,
            newest_csn=csn,
            loses_rows_behind_ddl=mode.is_gaussdb and mode.decodes_ddl,
            wrote=self._wrote,
            holds=self._holds,
            held=self._held(csn),
            style=form.style,
        )

    def _held(self, csn: int) -> Held | None:
        """Make what holds the stream for the native walker, which reads UTF-8 only."""
        form = self.decided.format
        if not form.style or self.encoding != "utf-8":
            return None
        return native.held(
            self._options.native,
            style=form.style,
            is_batch=form.batch,
            by_csn=self.decided.ordered_by == "csn",
            newest_csn=csn,
            hold_bytes=self._options.hold_bytes,
        )

    def point(self, table: TableId, *, if_gone: bool = False) -> Point | None:
        """Make a place between two commits; see `make_point` and `make_window`."""
        point = self._place(table, if_gone=if_gone)
        if point is not None and not isinstance(point.reading, NothingThere):  # it is locked
            self._storage.read(self.asking, table)
        return point

    def _place(self, table: TableId, *, if_gone: bool) -> Point | None:
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
            self._functions.flushed(Lsn(window.at))
        return window

    def adopt(self, table: TableSchema) -> None:
        """Take the shape under which a table was read again."""
        assert self._stream is not None
        self._windows.pop(table.id, None)
        self._stream.adopt(table)

    def publish(self, table: TableId) -> str:  # noqa: ARG002  the protocol's
        """Return "": there is no publication."""
        return ""

    def requests(self) -> Mapping[TableId, int]:
        """Return the tables that somebody asks to be read again."""
        return requests.newest(self.asking, self._options.slot)

    def answer(self, table: TableId, number: int) -> None:
        """Forget requests for a table, up to a number."""
        requests.forget(self.asking, self._options.slot, table, number)

    def messages(
        self,
        received: Sequence[WalMessage],
        *,
        one_by_one: bool = False,
    ) -> Iterator[tuple[int, Message]]:
        """Yield the ended transactions, each in one piece."""
        assert self._stream is not None
        return self._stream.messages(received, one_by_one=one_by_one)

    def shape(self, table: TableId) -> TableSchema | None:
        """Read one table's shape as it is now; None if it is gone."""
        found = gauss_catalog.table_schema_or_none(self.asking, table)
        return None if found is None else gauss_snapshot.without_virtual(found)

    def _wrote(self, table: TableId, xid: int) -> bool | None:
        """Query whether a transaction wrote rows into a captured table that it created."""
        if not patterns.selects(self._options.include, self._options.exclude, table):
            return False  # not captured: no rows are missing
        if self._has_ids_of_its_own:
            return None
        return gauss_evidence.wrote(self.asking, table, xid)

    def _holds(self, table: TableId, xid: int, rows: int) -> bool:
        """Query whether a captured table has exactly `rows` rows of a transaction."""
        if not patterns.selects(self._options.include, self._options.exclude, table):
            return True  # not captured: no rows are missing
        if self._has_ids_of_its_own:
            return False
        return gauss_evidence.holds(self.asking, table, xid, rows)

    def look(
        self,
        known: Mapping[TableId, TableSchema],
        *,
        unless: str,  # noqa: ARG002  the protocol's
    ) -> Look | None:
        """Look for tables that may have been emptied, which is not sent; see `storage`.

        Everything else the stream reports, or its gaps (`gauss.gaps`).
        """
        if not self.server.is_primary:
            return None
        emptied = self._storage.emptied(self.asking, known, self._note)
        if not emptied:
            return None
        # An idle stream may tell no position: a commit does.  CSNs, and calls of functions, which
        # skip that commit, are not compared.
        tells = self.decided.ordered_by == "lsn" and self.decided.interface == "stream"
        position = gauss_point.log_end(self.asking) if tells else 0
        gauss_point.commit_something(self.asking)
        return Look(position, {}, is_of_files=True, emptied=emptied)

    def type_name(self, type_oid: int, modifier: int) -> str:
        """Name a type as format_type() does."""
        return gauss_catalog.type_name(self.asking, type_oid, modifier)

    def table_name(self, oid: int) -> TableId | None:  # noqa: ARG002  the protocol's
        """Never called: relation ids are the decoders' own numbers."""
        return None

    def keep_alive(self, *, force: bool = False) -> None:
        """Send a keepalive, confirming nothing."""
        if not self._is_streaming:
            return
        if force or time.monotonic() - self._last_status >= self._options.status_seconds:
            self._replication().send_status(Lsn(0))
            self._last_status = time.monotonic()

    def close(self) -> None:
        """Release slot and lock; a slot that is still being created is dropped."""
        if self._making is not None:
            with suppress(CdcError):  # the first error counts
                self._making.give_up()
        was_streaming = self._is_streaming
        self._hang_up()
        if was_streaming:
            self._wait_for_walsender()
        self._load.close()
        if self._stream is not None:
            self._stream.close()
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


def open_session(options: Options) -> GaussConnection:
    """Open an ordinary session with the source."""
    return GaussConnection.open(
        options.source, replication=False, hosts=options.hosts, role=options.role
    )
