"""A replication connection to PostgreSQL: log in, query, create a slot, stream.

No policy: the engine decides what to confirm and when to reconnect.  After any
error the connection is closed, except after a refused command (`query`,
`create_slot`, `drop_slot`, `start`): then the session continues.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from producer.errors import (
    CdcError,
    ConnectionLost,
    DecodeError,
    SlotInvalid,
    SlotMismatch,
    SourceError,
)
from producer.sources import session_settings
from producer.sources.dial import ConnectionArguments, Link, dial, parse_dsn
from producer.sources.session import Session
from producer.sources.streaming import Streaming
from producer.wire import commands, protocol
from producer.wire.auth import Login
from producer.wire.commands import SlotCreated, Snapshot, SystemIdentity, TimelineSwitch
from producer.wire.protocol import Copying
from producer.wire.replication import NOWHERE, POSTGRES, Received, Split, split
from producer.wire.sqlstate import Asked, refusal
from schemas.encodings import WITHOUT
from schemas.errors import LOAD_AGAIN
from schemas.positions import Lsn

__all__ = ["ConnectionArguments", "ReplicationConnection", "parse_dsn"]

_log = logging.getLogger(__name__)

_GOODBYE_LIMIT: Final = 2.0  # seconds for the server to end the stream


class ReplicationConnection:
    """One session with a walsender; a context manager that closes itself."""

    def __init__(self, link: Link, arguments: ConnectionArguments) -> None:
        self.arguments = arguments
        self._link = link
        self._session = Session(link, refusal)
        self._streaming: Streaming | None = None
        self._slot = ""

    @classmethod
    def open(cls, arguments: ConnectionArguments, *, replication: bool = True) -> Self:
        """Connect and log in.

        Raises ConnectionLost, LoginRefused, NotPermitted.  Without `replication`
        the session is an ordinary one, which has no slot commands.
        """
        deadline = time.monotonic() + arguments.connect_timeout
        link = dial(arguments, deadline)
        try:
            connection = cls(link, arguments)
            connection._log_in(deadline, replication=replication)
            if connection.parameters.get("server_encoding") == WITHOUT:
                # A conversion to UTF-8 would fail for bytes that are not text.
                connection.query(f"SET client_encoding = '{WITHOUT}'")
        except BaseException as error:
            link.close()
            if isinstance(error, ConnectionLost):
                error.where.setdefault("host", arguments.host)
            raise
        _log.info(
            "connected host=%s port=%d dbname=%s user=%s tls=%s server=%s",
            arguments.host,
            arguments.port,
            arguments.dbname,
            arguments.user,
            link.is_encrypted,
            connection.parameters.get("server_version", ""),
        )
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_encrypted(self) -> bool:
        return self._link.is_encrypted

    @property
    def protection(self) -> str:
        """How the connection is protected, for display: TLS, verified or not, the login."""
        return self._link.protection(self.arguments, self._login.method)

    @property
    def parameters(self) -> Mapping[str, str]:
        """What the server reports, e.g. server_version."""
        return self._session.parameters

    @property
    def backend_pid(self) -> int:
        return self._session.backend_pid

    @property
    def received_end(self) -> Lsn:
        """The greatest position the stream has mentioned; 0 before."""
        return self._streaming.stream.received_end if self._streaming else NOWHERE

    def fileno(self) -> int:
        """The socket's descriptor, for a poll of your own; call `receive` when it is readable."""
        return self._link.sock.fileno()

    def has_input(self) -> bool:
        """Say whether more can be read at this moment."""
        return bool(select.select([self._link.sock], [], [], 0)[0])

    # ---- queries

    def query(self, sql: str, *, timeout: float | None = None) -> list[list[str | None]]:
        """Run SQL or a replication command; rows of the last statement, as text.

        Waits as long as the server does (an advisory lock, a slot that waits for
        open transactions); with a `timeout` in seconds ConnectionLost is raised
        at its end, and the connection cannot be used any more.
        """
        return self._ask(sql, Asked.QUERY, timeout)

    def identify(self) -> SystemIdentity:
        """Ask the server who it is."""
        return commands.parse_identity(self.query(commands.IDENTIFY_SYSTEM))

    def timeline_history(self, timeline: int) -> tuple[TimelineSwitch, ...]:
        """Read the history of `timeline`: former timelines and where each ended."""
        if timeline <= 1:
            return ()
        return commands.parse_timeline_history(self.query(commands.timeline_history(timeline)))

    def create_slot(
        self,
        name: str,
        plugin: str,
        *,
        temporary: bool = False,
        snapshot: Snapshot = Snapshot.EXPORT,
    ) -> SlotCreated:
        """Create a logical slot; waits until all transactions open now have ended.

        An exported snapshot lives until the next command of this session.
        """
        sql = commands.create_slot(name, plugin, temporary=temporary, snapshot=snapshot)
        rows = self._ask(sql, Asked.CREATE_SLOT, slot=name)
        created = commands.parse_slot_created(rows)
        _log.info("slot created slot=%s consistent_point=%s", name, created.consistent_point)
        return created

    def begin_slot(self, name: str, plugin: str) -> None:
        """Begin to create a logical slot that exports its snapshot; `begun_slot` returns it."""
        self._slot = name
        self._session.begin(commands.create_slot(name, plugin, snapshot=Snapshot.EXPORT))

    def begun_slot(self, timeout: float) -> SlotCreated | None:
        """Return the slot that was begun, or None if it is not created within `timeout` seconds.

        The server creates it once all transactions open now have ended.
        """
        answer = self._session.poll(timeout)
        if answer is None:
            return None
        if answer.error is not None:
            raise refusal(answer.error, Asked.CREATE_SLOT, slot=self._slot)
        created = commands.parse_slot_created(answer.rows)
        _log.info("slot created slot=%s consistent_point=%s", self._slot, created.consistent_point)
        return created

    def drop_slot(self, name: str, *, wait: bool = False) -> None:
        """Drop a slot; `wait` until it is inactive.  Raises SlotMissing, SlotTaken."""
        self._ask(commands.drop_slot(name, wait=wait), Asked.DROP_SLOT, slot=name)
        _log.info("slot dropped slot=%s", name)

    def start(
        self, slot: str, options: Mapping[str, str], at: Lsn = NOWHERE, *, split: Split = split
    ) -> None:
        """Begin to stream; 0 is the slot's confirmed position.  `split` cuts messages.

        Raises SlotMissing, SlotTaken, SlotInvalid, SlotMismatch, NotPermitted.
        """
        answer = self._session.say(commands.start(slot, options, at))
        if answer.error is not None:
            if answer.error.sqlstate == "55000":
                self._explain_unusable(slot)
            raise refusal(answer.error, Asked.START, slot=slot)
        if answer.copying is not Copying.BOTH:
            raise DecodeError("the server did not turn to streaming", slot=slot)
        session, self._slot = self._session, slot
        self._streaming = Streaming(
            self._link,
            POSTGRES,
            refusal,
            session.note,
            slot=slot,
            split=split,
            early=session.frames.rest(),
        )
        _log.info("streaming slot=%s at=%s", slot, at)

    def _explain_unusable(self, slot: str) -> None:
        """Raise the meaning of 55000, which has several: the catalog says which applies."""
        # All slots are read: a walsender takes no parameters, and they are few.
        # wal_status is a column from 13 on only, hence the detour by JSON.
        rows = self.query(
            "SELECT slot_name, slot_type = 'logical' AND database = current_database(),"
            " to_jsonb(s)->>'wal_status' = 'lost' FROM pg_replication_slots s"
        )
        found = {row[0]: row[1:] for row in rows}.get(slot)
        if found is None:
            return
        is_ours, is_lost = found
        if is_ours != "t":
            raise SlotMismatch(
                "the slot is a physical one, or another database's",
                hint="choose another name in [source] slot",
                slot=slot,
                dbname=self.arguments.dbname,
            )
        if is_lost == "t":
            raise SlotInvalid(
                "the server invalidated the slot: changes since its position are gone",
                hint=f"raise max_slot_wal_keep_size; {LOAD_AGAIN}",
                slot=slot,
            )

    # ---- the stream

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read what has arrived, or wait up to `timeout` seconds for something.

        Returns without messages when the time is over or when one of `wake_fds`
        is readable (which the caller then empties).  Raises ConnectionLost when
        the stream ends, always after the messages that came before.
        """
        return self._stream().receive(timeout, wake_fds)

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        """Confirm everything before `flush`; 0 is a keepalive.

        Must be sent within wal_sender_timeout (60 s), also while the start is
        still being decided.  `reply` asks the server for a keepalive.
        """
        self._stream().send_status(flush, reply=reply)

    def tap(self, take: Callable[[bytes], None]) -> None:
        """Pass every byte of the stream to `take`, as received; call it right after `start`."""
        self._stream().tap = take

    def close(self) -> None:
        """End the stream politely within two seconds, then the connection; never fails."""
        if self.fileno() < 0:
            return
        deadline = time.monotonic() + _GOODBYE_LIMIT
        try:
            if self._streaming is not None:
                self._streaming.end(deadline)
            self._link.write(protocol.terminate(), deadline)
        except CdcError as error:
            _log.debug("connection closed without ending the stream reason=%s", error.what)
        finally:
            self._link.close()
        _log.info("connection closed host=%s slot=%s", self.arguments.host, self._slot)

    def _stream(self) -> Streaming:
        if self._streaming is None:
            raise SourceError("not streaming; call start() first")
        return self._streaming

    def _log_in(self, deadline: float, *, replication: bool) -> None:
        arguments, link = self.arguments, self._link
        parameters = {
            "user": arguments.user,
            "database": arguments.dbname or arguments.user,
            "application_name": arguments.application_name,
            **session_settings.POSTGRES,
        }
        if replication:
            parameters["replication"] = "database"
        if arguments.options:
            parameters["options"] = arguments.options
        self._login = Login(link.credentials(arguments))
        self._session.log_in(
            protocol.startup(parameters),
            self._login,
            deadline,
            host=arguments.host,
            user=arguments.user,
            dbname=arguments.dbname,
        )

    def _ask(
        self, sql: str, asked: Asked, timeout: float | None = None, **where: object
    ) -> list[list[str | None]]:
        if self._streaming is not None:
            raise SourceError("a streaming connection takes no queries")
        return self._session.ask(sql, asked, timeout, **where).rows
