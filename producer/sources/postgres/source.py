"""PostgreSQL: a replication session with pgoutput, and an ordinary one by psycopg2."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final, Self

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer import native
from producer.core.catalog.look import Before, Look, Unchanged
from producer.core.changes import Message
from producer.core.key_ranges import Key
from producer.core.ports import Wish
from producer.core.takeover.takeover import MadeSlot, Slot
from producer.errors import (
    CdcError,
    ConnectionLost,
    NotPermitted,
    OptionRefused,
    SlotMismatch,
    SlotMissing,
    SlotTaken,
    SourceBusy,
    SourceError,
    SourceSwitched,
)
from producer.options import Options
from producer.sources import patterns
from producer.sources.base import PlainSource
from producer.sources.decoders import DECODERS
from producer.sources.lock import SlotLock, try_lock
from producer.sources.postgres import (
    catalog,
    catalog_look,
    publications,
    running,
    snapshot,
)
from producer.sources.postgres import options as pgoutput_options
from producer.sources.postgres.asked import AskedTables
from producer.sources.postgres.captured import (
    captured,
    captured_tables,
    ensure_publication,
    reading_problems,
)
from producer.sources.postgres.connection import ReplicationConnection, reach
from producer.sources.postgres.history import StandbyConnection
from producer.sources.postgres.key_ranges import open_ranges
from producer.sources.postgres.point import LONGEST, SHORTEST, PostgresPoint, make_point
from producer.sources.postgres.primary import Primary
from producer.sources.postgres.role import check_role
from producer.sources.postgres.snapshot import SnapshotReading, stream_shapes
from producer.sources.postgres.standbys import FAILOVER
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers import install as ddl_triggers
from producer.sources.postgres.triggers.records import Trust
from producer.sources.ranges import RangesThread
from producer.sources.session_settings import NO_LIMIT
from producer.wire.replication import WalMessage
from schemas.control import Identity, Looked
from schemas.errors import LOAD_AGAIN
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.quoting import identifier
from schemas.tables import TableId, TableSchema

_FAILED_LOOKS: Final = 20  # in a row
_BEGUN: Final = 20_000  # transactions that are noted until it is asked which of them still run
_VISIBLE_SECONDS: Final = 10.0
_OF_TRANSACTIONS: Final = 170_000  # from 17 on there is transaction_timeout
_OWN_TIMEOUT: Final = 120_000  # from 12 on a session may set the server's wal_sender_timeout
# The streaming session holds the slot.  When a `run` is frozen, or its network fails, the server
# detects it by this timeout only, and the next `run` waits so long: 60 s by default, for ever at 0.
# Each interval has a status message.
_SENDER_TIMEOUT: Final = (
    "SELECT set_config('wal_sender_timeout', '{0}ms', false) FROM pg_settings"
    " WHERE name = 'wal_sender_timeout' AND (setting = '0' OR setting::int > {0})"
)
_TIMEOUT_INTERVALS: Final = 3
_ENDS_SILENT: Final = 140_000  # from 14 on a server ends a session that asks nothing
_VISIBLE_PAUSE: Final = 0.005
_MAKE_SECONDS: Final = 0.5  # for a new slot before control returns to the caller
_NOTE_SECONDS: Final = 2.0  # between two queries for whom it waits


class PostgresSource(PlainSource):
    """A source of kind "postgres"; its sessions' client_encoding is that of cells."""

    keepalives_move = True
    ids_are_oids = True
    keeps_confirmed = True
    filters_as_then = True
    rereads = True

    def __init__(
        self,
        options: Options,
        wire: ReplicationConnection,
        connection: Connection,
        on_tables: Callable[[list[TableId]], None],
        primary: Primary,
    ) -> None:
        """`on_tables` creates the topics of a load, so that START can name them.

        `primary` is written to; `wire` and `connection` are of the server that is read.
        """
        self._options = options
        self.wire = wire
        self.connection = connection
        self._primary = primary
        self._asked = AskedTables(options.slot, connection, primary)
        self.tables: list[TableId] = []  # of the load, once the slot is created
        self.new_tables_are_complete = False
        self.reports_ddl = False
        self._on_tables = on_tables
        self._is_streaming = False
        self._last_status = time.monotonic()
        self._plugin_options = pgoutput_options.effective(
            options.plugin_options,
            publication=options.publication,
            version=connection.server_version,
        )
        self._note: Callable[[str], None] = lambda _: None
        self._has_made_publication = self._has_made_slot = False  # and no START is durable yet
        self._server = "", 0  # system id and timeline
        self._history: dict[int, Lsn] = {}  # former timelines, and where each ended
        self._is_failover = False  # standbys are to have the slot
        self._making = False  # a slot, which waits for open transactions
        self._since: Before | None = None  # the catalog before it was begun
        self._told: list[running.Blocker] = []
        self._delay = ""  # of slots, as was noted
        self._tell_at = 0.0
        self._failed_looks = 0
        self._patience = SHORTEST  # for the next point
        self._begun: list[int] = []  # xids that were sent, and may not be visible yet
        self._stream = self._stream_of({})
        self._lock = SlotLock(self._locking, options.slot, options.status_seconds)

    @classmethod
    def open(cls, options: Options, on_tables: Callable[[list[TableId]], None]) -> Self:
        """Connect twice: to stream, and for queries; both, and all later ones, to one server."""
        everywhere, options = options.source, replace(options, source=reach(options.source))
        with ExitStack() as stack:
            connection = catalog.connect(options.source)
            stack.callback(connection.close)
            primary = Primary(everywhere, connection)
            stack.callback(primary.close)
            check_role(options.source, connection)
            opening = ReplicationConnection if primary.is_read else StandbyConnection
            wire = opening.open(options.source)
            stack.callback(wire.close)
            if connection.server_version >= _OWN_TIMEOUT:
                timeout = round(_TIMEOUT_INTERVALS * options.status_seconds * 1000)
                wire.query(_SENDER_TIMEOUT.format(timeout))
            if connection.server_version >= _OF_TRANSACTIONS:
                wire.query(NO_LIMIT)
            source = cls(options, wire, connection, on_tables, primary)
            source._check_messages()
            source._find_failover(is_cluster=len(everywhere.hosts) > 1)
            stack.pop_all()
            return source

    def _check_messages(self) -> None:
        refused = pgoutput_options.no_messages(self.connection.server_version)
        if self._options.messages and refused is not None:
            raise refused

    def _find_failover(self, *, is_cluster: bool) -> None:
        """Decide whether standbys are to have the slot."""
        asked = self._options.failover_slot
        can = self.connection.server_version >= FAILOVER and self._primary.is_read
        if asked == "on" and not can:
            raise OptionRefused(
                "standbys synchronize slots of a primary, from PostgreSQL 17 on",
                hint='source.failover-slot = "auto" or "off"',
                option="failover-slot",
            )
        self._is_failover = can and (asked == "on" or (asked == "auto" and is_cluster))

    # ---- before the stream

    def prepare(self, note: Callable[[str], None]) -> list[TableId]:
        """Create the publication; list the tables of [tables] that it contains."""
        options, self._note = self._options, note
        if catalog.slot_state(self.connection, options.slot) is None:  # else it may have gone since
            patterns.refuse(captured(self.connection, options).absent)
        if sentence := pgoutput_options.why_not_full(options.plugin_options):
            note(sentence)
        made = ensure_publication(self.connection, options, note, self._primary)
        self._has_made_publication = made
        return captured_tables(self.connection, options, note)

    def listed(self) -> list[TableId]:
        """List the tables of [tables] that the publication contains."""
        return captured_tables(self.connection, self._options)

    def fingerprint_inputs(self) -> Mapping[str, object]:
        """Return the publication, and the options that omit changes."""
        options = self._options
        return {
            "publication": options.publication,
            "plugin": options.plugin,
            "options": pgoutput_options.removing(options.plugin_options),
        }

    def identity(self) -> Identity:
        """Identify the server."""
        said = self.wire.identify()
        options = self._options
        self._server = said.system_id, said.timeline
        # While the session streams it takes no questions.
        self._history = {
            switch.timeline: switch.at for switch in self.wire.timeline_history(said.timeline)
        }
        # A copy of the database may have its name by now, all its oids but this, and its slot.
        ((oid,),) = self.wire.query(
            "SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()"
        )
        return Identity(
            said.system_id,
            said.timeline,
            said.dbname or "",
            options.slot,
            options.plugin,
            database_oid=int(oid or 0),
        )

    def switch_point(self, timeline: int) -> Lsn | None:
        """Return where the server's history left an older timeline.  None: it was never on it."""
        return self._history.get(timeline)

    def try_lock(self) -> bool:
        """Take the advisory lock of the slot.

        Before 14 in the session that streams, which the server ends where it falls silent.
        """
        if self.connection.server_version < _ENDS_SILENT:
            return try_lock(self.wire, self._options.slot)
        return self._lock.try_take()

    def _locking(self, silence: float) -> ReplicationConnection:
        session = ReplicationConnection.open(self._options.source, replication=False)
        session.query(f"SET idle_session_timeout = '{round(silence * 1000)}ms'")
        return session

    def slot(self) -> Slot | None:
        """Read the slot's state.

        None: there is none.  Raises SlotMismatch at a standby that only has it synchronized.
        """
        state = catalog.slot_state(self.connection, self._options.slot)
        if state is None:
            return None
        invalid = ""
        if state.synced and not self._primary.is_read:
            raise SlotMismatch(
                "the standby synchronizes this slot from its primary: it cannot be read here",
                slot=self._options.slot,
                hint="choose another name in [source] slot, or read the primary",
            )
        if state.is_invalid:
            invalid = state.invalidation_reason or state.wal_status
        return Slot(
            state.plugin or "physical",
            state.database or "",
            state.confirmed_flush or NOWHERE,
            invalid,
        )

    def try_take(self) -> bool:
        """Begin to stream from the slot's confirmed position."""
        try:
            if self._is_failover:
                self._share_slot()
            self.wire.start(
                self._options.slot, self._plugin_options, split=native.split(self._options.native)
            )
        except SlotTaken:
            return False
        self._is_streaming = True
        self.keep_alive(force=True)
        return True

    def _share_slot(self) -> None:
        """Have standbys synchronize a slot that was made without it."""
        state = catalog.slot_state(self.connection, self._options.slot)
        if state is not None and not state.failover:
            if state.active_pid is not None:
                raise SlotTaken("the slot is in use", slot=self._options.slot)
            self.wire.make_failover(self._options.slot)

    def make_slot(self) -> MadeSlot | None:
        """Drop an old slot of ours, create a new one with its exported snapshot.

        None: the old one is in use, or the new one waits for open transactions.  Raises
        SlotMismatch for a slot of another client, and what keeps the role from reading a table.
        """
        options = self._options
        if self._making:
            return self._made()
        tables = captured(self.connection, options).tables
        # What may be refused comes before a slot keeps WAL.
        if options.load:
            for problem in reading_problems(self.connection, tables):
                raise problem
        self._on_tables([*tables])
        state = catalog.slot_state(self.connection, options.slot)
        if state is not None:
            if state.plugin != options.plugin or state.database != options.source.dbname:
                raise SlotMismatch(
                    "a slot of this name belongs to another client",
                    slot=options.slot,
                    plugin=state.plugin,
                    database=state.database,
                    hint="choose another name in [source] slot",
                )
            if state.active_pid is not None:
                self._note_blockers(
                    f"slot {options.slot} is in use by pid {state.active_pid}, which waits",
                    state.active_pid,
                )
                return None
            try:
                self.wire.drop_slot(options.slot)
            except SlotTaken:
                return None
            except SlotMissing:
                pass
        self._since = catalog_look.baseline(self.connection, options, tables)
        self.wire.begin_slot(options.slot, options.plugin, failover=self._is_failover)
        self._making, self._tell_at = True, time.monotonic() + _MAKE_SECONDS
        return self._made()

    def _made(self) -> MadeSlot | None:
        """Return the slot that is being created; None while it waits, and note for whom."""
        made = self._primary.begun(self.wire, _MAKE_SECONDS)
        if made is not None:
            self._making, self._has_made_slot = False, True
            return MadeSlot(made.consistent_point, made.snapshot or "")
        self._note_blockers("the new slot waits", self.wire.backend_pid)
        return None

    def _note_blockers(self, what: str, waiter: int) -> None:
        """Note once which transactions a backend waits for."""
        if time.monotonic() < self._tell_at:
            return
        self._tell_at = time.monotonic() + _NOTE_SECONDS
        found = self._primary.blockers(waiter)
        if (delay := self._primary.delay) and delay != self._delay:
            self._note(delay)
            self._delay = delay
        for blocker in found:
            if blocker not in self._told:
                self._note(f"{what} for {blocker}; {blocker.way_out}")
        self._told = found

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        """List the tables under the slot's snapshot."""
        with snapshot.imported(self._options.source, made.snapshot) as connection:
            tables = captured_tables(connection, self._options)
            self.tables = sorted(tables)
        self._on_tables(self.tables)
        return tuple(str(table) for table in self.tables)

    def looked(self, made: MadeSlot) -> Looked | None:
        """Take the first look under the slot's snapshot: the stream is compared from there on.

        None: the slot has no snapshot.
        """
        if not made.snapshot:
            return None
        with snapshot.imported(self._options.source, made.snapshot) as connection:
            tables = captured(connection, self._options).tables
            found = catalog_look.baseline(connection, self._options, tables, since=self._since)
            return found.looked()

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop slot and publication that are not used: an unused slot keeps log."""
        slot, publication = self._options.slot, self._options.publication
        if self._has_made_slot:
            try:
                self.wire.drop_slot(slot)
                note(f"slot {slot} dropped again: it was not used")
            except CdcError as error:
                note(
                    f"slot {slot} was created, remains, and keeps log ({error.what}); to drop it: "
                    "gauss-cdc slot drop --yes"
                )
        if self._has_made_publication:
            try:
                is_dropped = publications.drop_unused_publication(
                    self._primary.connection, publication
                )
            except CdcError:
                is_dropped = False
            if is_dropped:
                note(f"publication {publication} dropped again")
            else:
                note(
                    f"publication {publication} was created and remains; "
                    f"to drop it: DROP PUBLICATION {identifier(publication)}"
                )

    @contextmanager
    def reading(self, made: MadeSlot) -> Iterator[SnapshotReading]:
        """Open a session under the slot's exported snapshot."""
        with snapshot.imported(self._options.source, made.snapshot) as connection:
            snapshot.hold(connection, self.connection, self.tables)
            yield SnapshotReading(connection, self.connection, are_held=True)

    # ---- the stream

    def start_reading(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: Lsn,
        csn: int,  # noqa: ARG002
        hidden: set[TableId] | None = None,
        loads: bool = True,  # noqa: ARG002
    ) -> None:
        """Begin to decode: pgoutput describes relations, event triggers (if any) their changes.

        Raises SourceSwitched where the server's log ends before `resume`: its new transactions
        would have positions that we silently drop as delivered.
        """
        if (end := catalog.log_end(self.connection)) < resume:
            if not self._primary.is_read:  # it was restarted, or is behind another one
                raise ConnectionLost(
                    "the standby has not replayed yet what was delivered",
                    replayed=lsn_text(end),
                    resume=lsn_text(resume),
                )
            raise SourceSwitched(
                "the source's log ends before what was delivered: it was restored",
                log_end=lsn_text(end),
                resume=lsn_text(resume),
                slot=self._options.slot,
                hint=f"commits in between are lost; {LOAD_AGAIN}",
            )
        publication = publications.publication(self.connection, self._options.publication)
        self.new_tables_are_complete = bool(publication and publication.all_tables)
        found = ddl_triggers.state(self.connection, self._options.publication)
        self.reports_ddl = found.reports_ddl
        if found.version and not found.reports_ddl:
            self._note(f"schema changes are inferred: {found.problem}; `gauss-cdc ddl install`")
        # What an earlier run was sent counts, too: it is known, and the catalog does not show it.
        self._begun = running.awaiting_standbys(self.connection)
        self._stream = self._stream_of(
            known, resume=resume, has_triggers=found.reports_ddl, hidden=hidden
        )

    def _stream_of(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: Lsn = NOWHERE,
        has_triggers: bool = False,
        hidden: set[TableId] | None = None,
    ) -> PgoutputStream:
        chosen = patterns.chooser(self._options.include, self._options.exclude)
        return PgoutputStream(
            DECODERS[self._options.plugin],
            known,
            wanted=chosen,
            hidden=hidden,
            publication=self._options.publication,
            judge=self._judge,
            name_now=self.table_name,
            resume=resume,
            has_triggers=has_triggers,
            on_begin=self._note_begun,
        )

    def point(self, table: TableId, *, if_gone: bool = False) -> PostgresPoint | None:
        """Make a place between two commits; see `make_point`.

        Where transactions overlap at all times, none is had in a short while: after each that
        was not had, the next one is waited for longer.
        """
        patience, self._patience = self._patience, SHORTEST
        try:
            return make_point(
                self._options,
                self.connection,
                table,
                self._server,
                patience=patience,
                primary=self._primary,
                if_gone=if_gone,
            )
        except SourceBusy:
            self._patience = min(2 * patience, LONGEST)
            raise

    @property
    def reads_ranges(self) -> bool:
        """Say whether tables are read beside the stream: a standby does not tell its log's end."""
        return self._primary.is_read

    def ranges(
        self, table: TableId, *, of_any_size: bool = False
    ) -> tuple[TableSchema, RangesThread] | None:
        """Open what reads a table beside the stream; None: it is read at a point."""
        least = 0 if of_any_size else self._options.tuning.beside_bytes
        return open_ranges(self._options, self.connection, table, self._server, least)

    def publish(self, table: TableId) -> str:
        """Put a new table into the publication; return what somebody else must do, or ""."""
        (shape,) = catalog.table_schemas(self.connection, [table])
        if why := catalog_look.without_identity(shape, self.connection.server_version):
            return why
        try:
            publications.extend_publication(
                self._primary.connection, self._options.publication, [table]
            )
            self._primary.await_replay()  # a point must lie behind it
        except NotPermitted:
            return catalog_look.not_captured(self._options, table)
        return ""

    def requests(self) -> Mapping[Wish, int]:
        """Return what somebody asks to be read again."""
        return self._asked.newest(self._note)

    def named(self, wish: Wish) -> tuple[int, Sequence[Key]]:
        """Return number and keys of the oldest request; no keys: it is for all rows."""
        return self._asked.named(wish)

    def answer(self, wish: Wish, number: int, *, alone: bool = False) -> None:
        """Forget requests up to a number, or one alone."""
        self._asked.answer(wish, number, alone=alone)

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[Lsn, Message]]:
        """Decode; convert records of statements into schema changes."""
        return self._stream.messages(received, one_by_one=one_by_one)

    def shape(self, table: TableId) -> TableSchema | None:
        """Read one table's shape as it is now; None if it is gone."""
        self._await_visible()
        found = catalog.found_schemas(self.connection, [table])
        return next(iter(stream_shapes(list(found.values()))), None)

    def _note_begun(self, xid: int) -> None:
        self._begun.append(xid)
        if len(self._begun) >= _BEGUN:
            self._are_hidden()

    def _are_hidden(self) -> bool:
        """Say whether transactions that the stream has sent are not visible to a catalog query."""
        if self._begun:
            self._begun = running.still_running(self.connection, self._begun)
        return bool(self._begun)

    def _await_visible(self) -> None:
        """Wait until transactions that the stream has sent are visible to a catalog query.

        Without the wait, a column added by a transaction just received is missing in the
        catalog, and with it its value in older rows. The wait is limited, since a commit may
        wait for a synchronous standby without end.
        """
        end = time.monotonic() + _VISIBLE_SECONDS
        while self._are_hidden() and time.monotonic() < end:
            # A server may be run with a wal_sender_timeout of a few seconds.
            self.keep_alive(force=time.monotonic() - self._last_status >= 1)
            time.sleep(_VISIBLE_PAUSE)

    def look(
        self, known: Mapping[TableId, TableSchema], *, unless: str, before: Before | None
    ) -> Look | Unchanged | None:
        """Read the catalog, unless a transaction that the stream has sent is not visible yet."""
        if self._are_hidden():
            xids = ", ".join(map(str, self._begun))
            self._look_failed(f"commits wait for a synchronous standby, perhaps: xid {xids}")
            return None
        failed = self._failed_looks
        found = catalog_look.look(
            self.connection,
            self._options,
            known,
            unless=unless,
            before=before,
            on_failure=self._look_failed,
        )
        if self._failed_looks == failed:
            self._failed_looks = 0
        return found

    def _look_failed(self, error: SourceError | str) -> None:
        """Note a failure that persists: concurrent DDL cannot be its reason."""
        self._failed_looks += 1
        if self._failed_looks % _FAILED_LOOKS == 0:
            self._note(f"the catalog could not be compared {self._failed_looks} times: {error}")

    def type_name(self, type_oid: int, modifier: int) -> str:
        """Name a type as format_type() does."""
        return catalog.type_name(self.connection, type_oid, modifier)

    def table_name(self, oid: int) -> TableId | None:
        """Return the current name of a table by oid; None if it is gone."""
        self._await_visible()
        return catalog.table_name(self.connection, oid)

    def root_of(self, oid: int) -> int:
        """Return the root of a partition by oid; 0 if it is none."""
        self._await_visible()
        return catalog.root_of(self.connection, oid)

    def _judge(self, oid: int) -> Trust:
        """Read from the catalog who may write to a table with the name of our triggers' table."""
        self._await_visible()
        return ddl_triggers.judge(self.connection, oid)

    def keep_alive(self, *, force: bool = False) -> None:
        """Send a keepalive, confirming nothing, where one is due."""
        self._lock.check()
        if not self._is_streaming:
            return
        if force or time.monotonic() - self._last_status >= self._options.status_seconds:
            self.wire.send_status(Lsn(0))
            self._last_status = time.monotonic()

    def close(self) -> None:
        """Release slot and lock."""
        if self._making:
            running.end_waiter(self.connection, self.wire.backend_pid)
        self.wire.close()
        self._lock.close()
        self._primary.close()
        self.connection.close()
