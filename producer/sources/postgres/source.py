"""PostgreSQL: a replication session with pgoutput, and an ordinary one by psycopg2."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog_rows import as_sent
from producer.core.catalog_watch import Look
from producer.core.changes import Cells, Message
from producer.core.takeover import MadeSlot, Slot
from producer.errors import (
    CdcError,
    SlotMismatch,
    SlotMissing,
    SlotTaken,
    SourceError,
)
from producer.options import Options
from producer.sources import catalog_look
from producer.sources.base import try_lock
from producer.sources.decoders import DECODERS
from producer.sources.postgres import catalog, snapshot
from producer.sources.postgres import options as pgoutput_options
from producer.sources.postgres.captured import (
    captured,
    captured_tables,
    ensure_publication,
    reading_problems,
)
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers import install as ddl_triggers
from producer.sources.postgres.triggers.records import Trust
from producer.wire.replication import WalMessage
from schemas.control import Identity
from schemas.errors import Verdict
from schemas.positions import Lsn
from schemas.quoting import identifier
from schemas.tables import Column, TableId, TableSchema

_FAILED_LOOKS: Final = 20  # in a row
_BEGUN: Final = 4096  # transactions between two looks at the catalog that are waited for
_VISIBLE_SECONDS: Final = 10.0
_OWN_TIMEOUT: Final = 120_000  # from 12 on a session may set the server's wal_sender_timeout
# The lock and the slot are the streaming session's.  When the machine of a `run` is gone, or its
# network, the server finds out by this timeout alone, and the next one waits so long: 60 s by
# default, for ever at 0.  We answer at least every 10 s.
_SENDER_TIMEOUT: Final = (
    "SELECT set_config('wal_sender_timeout', '20s', false) FROM pg_settings"
    " WHERE name = 'wal_sender_timeout' AND (setting = '0' OR setting::int > 20000)"
)
_VISIBLE_PAUSE: Final = 0.005
_MAKE_SECONDS: Final = 0.5  # for a new slot before the caller looks around
_TELL_SECONDS: Final = 2.0  # between two looks at whom it waits for


@dataclass(frozen=True, slots=True)
class _Reading:
    """An ordinary session under an imported snapshot."""

    connection: Connection

    def shapes(self, tables: list[TableId]) -> list[TableSchema]:
        return stream_shapes(catalog.table_schemas(self.connection, tables))

    def estimated_rows(self, table: TableId) -> int:
        return snapshot.estimated_rows(self.connection, table)

    def copy_rows(
        self,
        table: TableId,
        columns: Sequence[Column],
        hand_on: Callable[[list[Cells]], None],
    ) -> None:
        snapshot.copy_rows(self.connection, table, columns, hand_on)


class PostgresSource:
    """A source of kind "postgres"."""

    encoding = "utf-8"  # the sessions' client_encoding
    keepalives_move = True
    ids_are_oids = True

    def __init__(
        self,
        options: Options,
        wire: ReplicationConnection,
        connection: Connection,
        on_tables: Callable[[list[TableId]], None],
    ) -> None:
        """`on_tables` makes the topics of a load, so that START can name them."""
        self._options = options
        self.wire = wire
        self.connection = connection
        self.tables: list[TableId] = []  # of the load, once the slot was made
        self.new_tables_are_complete = False
        self.tells_changes = False
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
        self._making = False  # a slot, which waits for open transactions
        self._told: list[catalog.Blocker] = []
        self._tell_at = 0.0
        self._failed_looks = 0
        self._begun = deque[int](maxlen=_BEGUN)  # xids received that may not be visible yet
        self._stream = self._stream_of({})

    @classmethod
    def open(cls, options: Options, on_tables: Callable[[list[TableId]], None]) -> Self:
        """Connect twice: to stream, and to ask."""
        with ExitStack() as stack:
            connection = catalog.connect(options.source)
            stack.callback(connection.close)
            wire = ReplicationConnection.open(options.source)
            stack.callback(wire.close)
            if connection.server_version >= _OWN_TIMEOUT:
                wire.query(_SENDER_TIMEOUT)
            source = cls(options, wire, connection, on_tables)
            stack.pop_all()
            return source

    # ---- before the stream

    def prepare(self, note: Callable[[str], None]) -> list[TableId]:
        """Make the publication; list what it lets through of [tables]."""
        self._note = note
        if sentence := pgoutput_options.why_not_full(self._options.plugin_options):
            note(sentence)
        made = ensure_publication(self.connection, self._options, note)
        self._has_made_publication = made
        return captured_tables(self.connection, self._options, note)

    def fingerprint_inputs(self) -> Mapping[str, object]:
        """Give the publication, and options by which changes never arrive."""
        options = self._options
        return {
            "publication": options.publication,
            "plugin": options.plugin,
            "options": pgoutput_options.removing(options.plugin_options),
        }

    def identity(self) -> Identity:
        """Ask the server who it is."""
        said = self.wire.identify()
        options = self._options
        return Identity(
            said.system_id, said.timeline, said.dbname or "", options.slot, options.plugin
        )

    def try_lock(self) -> bool:
        """The lock lives in the session that makes the slot and streams: it dies with it."""
        return try_lock(self.wire, self._options.slot)

    def slot(self) -> Slot | None:
        """Look at the slot."""
        state = catalog.slot_state(self.connection, self._options.slot)
        if state is None:
            return None
        invalid = ""
        if state.is_invalid:
            invalid = state.invalidation_reason or state.wal_status
        return Slot(
            state.plugin or "physical", state.database or "", state.confirmed_flush or 0, invalid
        )

    def try_take(self) -> bool:
        """Begin to stream from where the slot was confirmed to."""
        try:
            self.wire.start(self._options.slot, self._plugin_options)
        except SlotTaken:
            return False
        self._is_streaming = True
        self.keep_alive(force=True)
        return True

    def make_slot(self) -> MadeSlot | None:
        """Drop an old slot of ours, make it anew with its exported snapshot."""
        options = self._options
        if self._making:
            return self._made()
        if options.load:  # before anything is made that would keep WAL for nobody
            tables = captured(self.connection, options).tables
            for problem in reading_problems(self.connection, tables):
                raise problem
        state = catalog.slot_state(self.connection, options.slot)
        if state is not None:
            if state.plugin != options.plugin or state.database != options.source.dbname:
                raise SlotMismatch(
                    "a slot of this name belongs to somebody else",
                    slot=options.slot,
                    plugin=state.plugin,
                    database=state.database,
                    hint="choose another name in [source] slot",
                )
            if state.active_pid is not None:
                self._tell(
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
        self.wire.begin_slot(options.slot, options.plugin)
        self._making, self._tell_at = True, time.monotonic() + _MAKE_SECONDS
        return self._made()

    def _made(self) -> MadeSlot | None:
        """Give the slot that is being made; None while it waits, and say for whom."""
        made = self.wire.begun_slot(_MAKE_SECONDS)
        if made is not None:
            self._making, self._has_made_slot = False, True
            return MadeSlot(int(made.consistent_point), made.snapshot or "")
        self._tell("the new slot waits", self.wire.backend_pid)
        return None

    def _tell(self, what: str, waiter: int) -> None:
        """Say once whose transactions a backend waits for."""
        if time.monotonic() < self._tell_at:
            return
        self._tell_at = time.monotonic() + _TELL_SECONDS
        found = catalog.blockers(self.connection, waiter=waiter)
        for blocker in found:
            if blocker not in self._told:
                self._note(f"{what} for {blocker}; {blocker.way_out}")
        self._told = found

    def _give_up(self) -> None:
        """End the session that makes the slot: it does not notice that nobody listens.

        Left alone it would make the slot in the end, which would keep WAL for nobody.
        """
        with suppress(CdcError), catalog.asking(self.connection) as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [self.wire.backend_pid])

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        """List the tables under the slot's own snapshot."""
        with snapshot.imported(self._options.source, made.snapshot) as connection:
            self.tables = captured_tables(connection, self._options)
        self._on_tables(self.tables)
        return tuple(str(table) for table in self.tables)

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop slot and publication that were made in vain: a slot keeps log for nobody."""
        slot, publication = self._options.slot, self._options.publication
        if self._has_made_slot:
            try:
                self.wire.drop_slot(slot)
                note(f"slot {slot} dropped again: nothing was written behind it")
            except CdcError as error:
                note(
                    f"slot {slot} was made and stays, and keeps log ({error.what}); to drop it: "
                    "gauss-cdc slot drop --yes"
                )
        if self._has_made_publication:
            try:
                is_dropped = catalog.drop_unused_publication(self.connection, publication)
            except CdcError:
                is_dropped = False
            if is_dropped:
                note(f"publication {publication} dropped again")
            else:
                note(
                    f"publication {publication} was made and stays; "
                    f"to drop it: DROP PUBLICATION {identifier(publication)}"
                )

    @contextmanager
    def reading(self, made: MadeSlot) -> Iterator[_Reading]:
        """Open a session under the slot's exported snapshot."""
        with snapshot.imported(self._options.source, made.snapshot) as connection:
            snapshot.hold(connection, self.connection, self.tables)
            yield _Reading(connection)

    # ---- the stream

    def start_reading(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: int,
        csn: int,  # noqa: ARG002
    ) -> None:
        """Pgoutput describes every relation by itself; event triggers, where there are, changes."""
        publication = catalog.publication(self.connection, self._options.publication)
        self.new_tables_are_complete = bool(publication and publication.all_tables)
        found = ddl_triggers.state(self.connection, self._options.publication)
        self.tells_changes = found.tells
        if found.version and not found.tells:
            self._note(f"schema changes are inferred: {found.problem}; `gauss-cdc ddl install`")
        self._stream = self._stream_of(known, resume=resume, is_told=found.tells)

    def _stream_of(
        self, known: dict[TableId, TableSchema], *, resume: int = 0, is_told: bool = False
    ) -> PgoutputStream:
        return PgoutputStream(
            DECODERS[self._options.plugin],
            known,
            wanted=catalog_look.chooser(self._options),
            publication=self._options.publication,
            judge=self._judge,
            name_now=self.table_name,
            resume=resume,
            is_told=is_told,
            on_begin=self._begun.append,
        )

    def messages(self, received: Sequence[WalMessage]) -> Iterator[tuple[int, Message]]:
        """Decode, statements into what they changed."""
        return self._stream.messages(received)

    def shape(self, table: TableId) -> TableSchema | None:
        """Read one table's shape as it is now; None if it is gone."""
        self._await_visible()
        try:
            return stream_shapes(catalog.table_schemas(self.connection, [table]))[0]
        except SourceError as error:
            if error.verdict is Verdict.RETRY:
                raise
            return None

    def _await_visible(self) -> None:
        """Let a reading of the catalog see what the stream has told: it may be quicker.

        Without the wait a column added in a transaction just received is missing in the
        reading, and with it what older rows have there. It ends, since a commit may wait
        for a synchronous standby without end.
        """
        end = time.monotonic() + _VISIBLE_SECONDS
        while self._begun and time.monotonic() < end:
            if not catalog.any_running(self.connection, self._begun):
                self._begun.clear()
                return
            # A server may be run with a wal_sender_timeout of a few seconds.
            self.keep_alive(force=time.monotonic() - self._last_status >= 1)
            time.sleep(_VISIBLE_PAUSE)

    def look(self, known: Mapping[TableId, TableSchema], *, unless: str) -> Look | None:
        """Take a look, unless a transaction that the stream has told is not visible yet."""
        if self._begun and catalog.any_running(self.connection, self._begun):
            return None
        failed = self._failed_looks
        found = catalog_look.look(
            self.connection, self._options, known, unless=unless, on_failure=self._look_failed
        )
        if self._failed_looks == failed:
            self._failed_looks = 0
        return found

    def _look_failed(self, error: SourceError) -> None:
        """Say it where somebody's DDL cannot be why, since it does not end."""
        self._failed_looks += 1
        if self._failed_looks % _FAILED_LOOKS == 0:
            self._note(f"the catalog could not be compared {self._failed_looks} times: {error}")

    def type_name(self, type_oid: int, modifier: int) -> str:
        """Name a type as format_type() does."""
        return catalog.type_name(self.connection, type_oid, modifier)

    def table_name(self, oid: int) -> TableId | None:
        """Say what the table of an oid is called now; None if it is gone."""
        self._await_visible()
        return catalog.table_name(self.connection, oid)

    def _judge(self, oid: int) -> Trust:
        """Ask the catalog who may write a table that is named as our triggers' own."""
        self._await_visible()
        return ddl_triggers.judge(self.connection, oid)

    def keep_alive(self, *, force: bool = False) -> None:
        """Tell the walsender that we live, confirming nothing: wal_sender_timeout is 60 s."""
        if not self._is_streaming:
            return
        if force or time.monotonic() - self._last_status >= self._options.status_seconds:
            self.wire.send_status(Lsn(0))
            self._last_status = time.monotonic()

    def close(self) -> None:
        """Let go of slot and lock."""
        if self._making:
            self._give_up()
        self.wire.close()
        self.connection.close()


def stream_shapes(tables: list[TableSchema]) -> list[TableSchema]:
    """Shapes as pgoutput will describe them: without generated columns."""
    return [as_sent(table) for table in tables]
