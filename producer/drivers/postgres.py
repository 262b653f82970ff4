"""A replication connection to PostgreSQL: log in, ask, make a slot, stream.

No policy: what to confirm and when to come back is the engine's.  After any
error the connection is closed, and a new one is the only way on; the exception
is a refused command (`query`, `create_slot`, `drop_slot`, `start`), after which
the session goes on.

Reading, the way that costs the server least (measured; the walsender sends each
change by its own send): a large socket buffer, and under backlog one read each
few milliseconds, so that one wake-up brings hundreds of rows.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Mapping, Sequence
from typing import Final, Self

from producer.drivers.postgres_dial import ConnectionArguments, Link, dial, parse_dsn
from producer.errors import (
    CdcError,
    ConnectionLost,
    DecodeError,
    SlotInvalid,
    SlotMismatch,
    SourceError,
)
from producer.wire import commands, protocol, replication
from producer.wire.auth import Credentials, Login
from producer.wire.commands import Identity, SlotCreated, Snapshot, TimelineSwitch
from producer.wire.protocol import Answer, Copying, Frame, Frames, ServerError
from producer.wire.replication import EPOCH_2000_US, NOWHERE, Received, Stream
from producer.wire.sqlstate import Asked, refusal
from schemas.positions import Lsn

__all__ = ["ConnectionArguments", "ReplicationConnection", "parse_dsn"]

_log = logging.getLogger(__name__)

_READ_BYTES: Final = 8 << 20  # upper bound of one read; memory is only touched as far as filled
_NAP: Final = 0.005  # seconds between reads under backlog
_BACKLOG_BYTES: Final = 32 << 10  # as many within a nap's time (6 MB/s) are a backlog
_SEND_LIMIT: Final = 10.0  # seconds; a server that does not read 39 bytes is gone
_GOODBYE_LIMIT: Final = 2.0  # seconds for the server to end the stream


class ReplicationConnection:
    """One session with a walsender; a context manager that closes itself."""

    def __init__(self, link: Link, arguments: ConnectionArguments) -> None:
        self.arguments = arguments
        self.parameters: dict[str, str] = {}  # what the server reports, e.g. server_version
        self.backend_pid = 0
        self._link = link
        self._frames: Frames = Frames(max_bytes=protocol.MAX_LOGIN_BYTES)
        self._early = b""  # what came behind the answer to START_REPLICATION
        self._stream: Stream | None = None
        self._slot = ""
        self._lost: CdcError | None = None  # how the stream ended; raised by the next receive
        self._poll = select.poll()
        self._poll.register(link.sock, select.POLLIN)
        self._wake_fds: tuple[int, ...] = ()
        self._counted_since, self._counted_bytes = 0.0, 0
        self._rest_until = 0.0  # when to read next under backlog; 0 = now

    @classmethod
    def open(cls, arguments: ConnectionArguments, *, replication: bool = True) -> Self:
        """Connect and log in.

        Raises ConnectionLost, LoginRefused, NotPermitted.  Without `replication`
        the session is an ordinary one, which no slot command knows.
        """
        deadline = time.monotonic() + arguments.connect_timeout
        link = dial(arguments, deadline)
        try:
            connection = cls(link, arguments)
            connection._log_in(deadline, replication=replication)
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
    def received_end(self) -> Lsn:
        """The greatest position the stream has mentioned; 0 before."""
        return self._stream.received_end if self._stream else NOWHERE

    def fileno(self) -> int:
        """The socket's descriptor, for a poll of your own; call `receive` when it is readable."""
        return self._link.sock.fileno()

    # ---- questions

    def query(self, sql: str, *, timeout: float | None = None) -> list[list[str | None]]:
        """Run SQL or a replication command; rows of the last statement, as text.

        Waits as long as the server does (an advisory lock, a slot that waits for
        open transactions); with a `timeout` in seconds ConnectionLost is raised
        at its end, and the connection is of no more use.
        """
        return self._ask(sql, Asked.QUERY, timeout)

    def identify(self) -> Identity:
        """Ask the server who it is."""
        return commands.parse_identity(self.query(commands.IDENTIFY_SYSTEM))

    def timeline_history(self, timeline: int) -> tuple[TimelineSwitch, ...]:
        """Ask how `timeline` came to be: former timelines and where each ended."""
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
        """Make a logical slot; waits until all transactions open now have ended.

        An exported snapshot lives until the next command of this session.
        """
        sql = commands.create_slot(name, plugin, temporary=temporary, snapshot=snapshot)
        rows = self._ask(sql, Asked.CREATE_SLOT, slot=name)
        created = commands.parse_slot_created(rows)
        _log.info("slot created slot=%s consistent_point=%s", name, created.consistent_point)
        return created

    def drop_slot(self, name: str, *, wait: bool = False) -> None:
        """Drop a slot; `wait` until nobody uses it.  Raises SlotMissing, SlotTaken."""
        self._ask(commands.drop_slot(name, wait=wait), Asked.DROP_SLOT, slot=name)
        _log.info("slot dropped slot=%s", name)

    def start(self, slot: str, options: Mapping[str, str], at: Lsn = NOWHERE) -> None:
        """Turn to streaming; 0 is where the slot was confirmed to.

        Raises SlotMissing, SlotTaken, SlotInvalid, SlotMismatch, NotPermitted.
        """
        sql = commands.start(slot, options, at)
        self._link.write(protocol.query(sql), time.monotonic() + _SEND_LIMIT)
        answer = self._answer(None)
        if answer.error is not None:
            if answer.error.sqlstate == "55000":
                self._explain_unusable(slot)
            raise refusal(answer.error, Asked.START, slot=slot)
        if answer.copying is not Copying.BOTH:
            raise DecodeError("the server did not turn to streaming", slot=slot)
        self._slot, self._stream, self._early = slot, Stream(), self._frames.rest()
        _log.info("streaming slot=%s at=%s", slot, at)

    def _explain_unusable(self, slot: str) -> None:
        """Raise what 55000 stands for, which is several things: ask the catalog which."""
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
                hint="use a slot name of its own for each database",
                slot=slot,
                dbname=self.arguments.dbname,
            )
        if is_lost == "t":
            raise SlotInvalid(
                "the server invalidated the slot: changes since its position are gone",
                hint="raise max_slot_wal_keep_size; run gauss-cdc run --accept-gap to load again",
                slot=slot,
            )

    # ---- the stream

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read what has arrived, or wait up to `timeout` seconds for something.

        Returns without messages when the time is over or when one of `wake_fds`
        is readable (which the caller then empties).  Raises ConnectionLost when
        the stream ends, always after the messages that came before.
        """
        stream = self._streaming()
        if self._lost is not None:
            raise self._lost
        if self._early:
            early, self._early = self._early, b""
            return self._feed(stream, early)
        if tuple(wake_fds) != self._wake_fds:
            self._watch(tuple(wake_fds))
        if self._rest_until:
            self._nap()
        if not self._readable(timeout):
            return Received()
        try:
            data = self._link.read(_READ_BYTES)
        except ConnectionLost as error:
            error.where["slot"] = self._slot
            raise
        self._count(len(data))
        return self._feed(stream, data)

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        """Confirm everything before `flush`; 0 only says that we are alive.

        Must be sent within wal_sender_timeout (60 s), also while the start is
        still being decided.  `reply` asks the server for a keepalive.
        """
        stream = self._streaming()
        update = replication.status_update(
            write=max(stream.received_end, flush),
            flush=flush,
            sent_at_us=time.time_ns() // 1000 - EPOCH_2000_US,
            reply=reply,
        )
        self._link.write(protocol.copy_data(update), time.monotonic() + _SEND_LIMIT)

    def close(self) -> None:
        """End the stream politely within two seconds, then the connection; never fails."""
        if self.fileno() < 0:
            return
        deadline = time.monotonic() + _GOODBYE_LIMIT
        try:
            if self._stream is not None and self._lost is None:
                self._link.write(protocol.copy_done(), deadline)
                self._drain(self._stream, deadline)
            self._link.write(protocol.terminate(), deadline)
        except CdcError as error:
            _log.debug("connection closed without a goodbye reason=%s", error.what)
        finally:
            self._link.close()
        _log.info("connection closed host=%s slot=%s", self.arguments.host, self._slot)

    def _streaming(self) -> Stream:
        if self._stream is None:
            raise SourceError("not streaming; call start() first")
        return self._stream

    def _watch(self, wake_fds: tuple[int, ...]) -> None:
        for fd in set(self._wake_fds) - set(wake_fds):
            self._poll.unregister(fd)
        for fd in set(wake_fds) - set(self._wake_fds):
            self._poll.register(fd, select.POLLIN)
        self._wake_fds = wake_fds

    def _count(self, size: int) -> None:
        """Decide whether the next read should wait for more to arrive.

        By rate, not by the size of one read: a reader that keeps up sees small
        reads only, and it is the one that costs a packet and two wake-ups a row.
        A Unix socket is never made to wait: its sender blocks instead.
        """
        now = time.monotonic()
        if now - self._counted_since > _NAP:
            self._counted_since, self._counted_bytes = now, 0
        self._counted_bytes += size
        if self._counted_bytes > _BACKLOG_BYTES and not self._link.is_local:
            self._rest_until = now + _NAP

    def _nap(self) -> None:
        left = self._rest_until - time.monotonic()
        self._rest_until = 0.0
        if left > 0:  # a caller that was busy for longer needs none
            time.sleep(left)

    def _readable(self, timeout: float) -> bool:
        if self._link.has_pending:
            return True
        mine = self.fileno()
        return any(fd == mine for fd, _ in self._poll.poll(max(0.0, timeout) * 1000))

    def _feed(self, stream: Stream, data: bytes) -> Received:
        received = stream.feed(data)
        if stream.others:
            self._take_others(stream, received)
        return received

    def _take_others(self, stream: Stream, received: Received) -> None:
        """Look at frames that are not data: nearly always the end of the stream."""
        for got in stream.others:
            match got.tag:
                case "E":
                    self._lost = refusal(ServerError.parse(got.body), Asked.STREAM, slot=self._slot)
                    break
                case "c" | "C" | "Z":  # we did not ask for it: the server is being stopped
                    self._lost = ConnectionLost("the server ended the stream", slot=self._slot)
                    break
                case "N" | "S":
                    self._note(got)
                case tag:
                    raise DecodeError("unexpected frame in the stream", tag=tag, slot=self._slot)
        stream.others.clear()
        if self._lost is not None and not received.messages:
            raise self._lost

    def _drain(self, stream: Stream, deadline: float) -> None:
        while not any(got.tag in "CEZ" for got in stream.others):
            self._link.wait_readable(deadline)
            stream.feed(self._link.read(_READ_BYTES))

    # ---- frames

    def _log_in(self, deadline: float, *, replication: bool) -> None:
        arguments, link = self.arguments, self._link
        parameters = {
            "user": arguments.user,
            "database": arguments.dbname or arguments.user,
            "application_name": arguments.application_name,
            **commands.SESSION_SETTINGS,
        }
        if replication:
            parameters["replication"] = "database"
        link.write(protocol.startup(parameters), deadline)
        login = Login(
            Credentials(
                user=arguments.user,
                password=arguments.password,
                encrypted=link.is_encrypted or link.is_local,
                certificate=link.certificate,
            )
        )
        where = {"host": arguments.host, "user": arguments.user, "dbname": arguments.dbname}
        while True:
            got = self._next(deadline)
            match got.tag:
                case "R":
                    if (reply := login.answer(got.body)) is not None:
                        link.write(protocol.password(reply), deadline)
                case "E":
                    raise refusal(ServerError.parse(got.body), Asked.LOGIN, **where)
                case "K":
                    self.backend_pid = protocol.parse_backend_key(got.body)
                case "N" | "S":
                    self._note(got)
                case "Z" if login.done:
                    self._frames.max_bytes = protocol.MAX_FRAME_BYTES
                    return
                case tag:
                    raise DecodeError("unexpected frame during login", tag=tag)

    def _ask(
        self, sql: str, asked: Asked, timeout: float | None = None, **where: object
    ) -> list[list[str | None]]:
        if self._stream is not None:
            raise SourceError("a streaming connection answers no questions")
        self._link.write(protocol.query(sql), time.monotonic() + _SEND_LIMIT)
        answer = self._answer(None if timeout is None else time.monotonic() + timeout)
        if answer.error is not None:
            raise refusal(answer.error, asked, **where)
        return answer.rows

    def _answer(self, deadline: float | None) -> Answer:
        answer = Answer()
        while True:
            got = self._next(deadline, answer)
            if got.tag in "NS":
                self._note(got)
            if answer.take(got):
                return answer

    def _next(self, deadline: float | None, answer: Answer | None = None) -> Frame:
        """Give the next frame; an error the server sent before it hung up is told instead."""
        while (got := self._frames.next()) is None:
            try:
                self._link.wait_readable(deadline)
                self._frames.feed(self._link.read(_READ_BYTES))
            except ConnectionLost:
                if answer is not None and answer.error is not None:
                    raise refusal(answer.error, Asked.QUERY) from None
                raise
        return got

    def _note(self, got: Frame) -> None:
        if got.tag == "S":
            name, value = protocol.parse_parameter(got.body)
            self.parameters[name] = value
        else:
            notice = ServerError.parse(got.body)
            _log.info("server says sqlstate=%s message=%s", notice.sqlstate, notice.message)
