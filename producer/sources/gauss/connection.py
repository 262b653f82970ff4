"""A connection to openGauss or GaussDB: log in, query, copy, create a slot, stream.

The same methods as `postgres.connection`, and ordinary sessions, too: psycopg2
cannot log in to these servers.  The differences:

- Any error ends a replication session (the server sends FATAL, then that it is ready,
  then closes the connection): open a new one.
- With `enable_thread_pool = on` replication has a port of its own (the HA port),
  which in turn takes no ordinary session.
- The end of a stream is not acknowledged.  `close` returns within two seconds, but the
  walsender may continue to decode for minutes (about one per 300,000 subtransactions
  of a spilled transaction) and holds the slot until then: `wait_released`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Self, TypeVar

from producer.errors import (
    CdcError,
    ConnectionLost,
    DecodeError,
    RoleDiffers,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SlotOrphaned,
    SourceError,
    WrongPort,
)
from producer.sources import session_settings
from producer.sources.connection import ServerConnection
from producer.sources.dial import ConnectionArguments, Link, dial
from producer.sources.gauss import login as gauss_auth
from producer.sources.gauss import server as gauss_server
from producer.sources.gauss.options.model import Role
from producer.sources.gauss.server import Server
from producer.sources.gauss.sqlstate import is_ambiguous, refusal
from producer.sources.hosts import first_that_opens, targets
from producer.sources.session import Session
from producer.sources.streaming import Streaming
from producer.wire import commands, protocol
from producer.wire.auth import Login
from producer.wire.commands import SlotCreated, TimelineSwitch
from producer.wire.protocol import Answer, Copying, ServerError
from producer.wire.replication import OPENGAUSS, POSTGRES, Split, split
from producer.wire.sqlstate import Asked
from schemas.encodings import WITHOUT
from schemas.errors import LOAD_AGAIN
from schemas.positions import NOWHERE, Lsn, lsn_text

__all__ = ["ConnectionArguments", "GaussConnection", "Role", "Unexplained"]

_log = logging.getLogger(__name__)

# Seconds for the first message of a stream, which comes at once: a keepalive, or (in serial
# mode) an error about the options.  Without it we continue, and `receive` raises the error.
_FIRST_LIMIT: Final = 2.0
_RELEASE_POLL: Final = 0.5  # seconds; there is no notification of a slot's release
_RELEASE_NOTE: Final = 10.0
_INVALID: Final = "FFFFFFFF/FFFFFFFF"

_Opened = TypeVar("_Opened")


class Unexplained(ConnectionLost):
    """A refusal of the stream whose reason the catalog does not show; it may be temporary."""


class GaussConnection(ServerConnection):
    """One session; a context manager that closes itself."""

    def __init__(
        self, link: Link, arguments: ConnectionArguments, *, replication: bool, version: int
    ) -> None:
        super().__init__(link, Session(link, refusal, dies_of_errors=replication), arguments)
        self._replication, self._version = replication, version
        self._dialect = OPENGAUSS

    @classmethod
    def open(
        cls,
        arguments: ConnectionArguments,
        *,
        replication: bool = True,
        hosts: Sequence[str] = (),
        role: Role = "any",
        replication_port: int = 0,
        version: int = protocol.V3_51,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Connect and log in to the first of `hosts` that is up and plays the `role`.

        `hosts` are `name:port` with the ports of ordinary sessions; without them
        `arguments` name the only one.  A replication session goes to
        `replication_port` of the host; 0 is the ordinary port, and where the
        server sends replication away, the next one.  `settings` replace those of
        `session_settings.GAUSS`.

        Raises ConnectionLost (RoleDiffers), LoginRefused (WrongPort), NotPermitted.
        """
        candidates = targets(arguments, hosts)
        if replication and replication_port:
            candidates = [replace(target, port=replication_port) for target in candidates]
        open_at = partial(
            cls._open_at, replication=replication, role=role, version=version, settings=settings
        )
        if not replication or replication_port:
            return first_that_opens(candidates, open_at)
        return first_that_opens(candidates, partial(_or_at_the_next_port, open_at))

    @classmethod
    def _open_at(
        cls,
        arguments: ConnectionArguments,
        *,
        replication: bool,
        role: Role,
        version: int,
        settings: Mapping[str, str] | None,
    ) -> Self:
        deadline = time.monotonic() + arguments.connect_timeout
        link = dial(arguments, deadline)
        try:
            connection = cls(link, arguments, replication=replication, version=version)
            connection._log_in(deadline, settings)
            if connection.parameters.get("server_encoding") == WITHOUT:
                # A conversion to UTF-8 would fail for bytes that are not text.
                connection.query(f"SET client_encoding = '{WITHOUT}'")
            connection._check_role(role, deadline)
        except BaseException as error:
            link.close()
            if isinstance(error, ConnectionLost):
                error.where.setdefault("host", arguments.host)
                error.where.setdefault("port", arguments.port)
            raise
        _log.info(
            "connected host=%s port=%d dbname=%s user=%s tls=%s replication=%s",
            arguments.host,
            arguments.port,
            arguments.dbname,
            arguments.user,
            link.is_encrypted,
            replication,
        )
        return connection

    @property
    def in_transaction(self) -> bool:
        """Say whether a transaction is open, or has failed and waits for its ROLLBACK.

        By ReadyForQuery behind the last answer (PostgreSQL's manual, Message Formats).
        """
        return self._session.transaction != "I"

    # ---- questions

    def ask(self, sql: str) -> Answer:
        """Run SQL; the whole answer to its last statement: columns, rows, command tag."""
        self._refuse_streaming()
        return self._session.ask(sql, Asked.QUERY)

    def query_bytes(self, sql: str) -> list[list[bytes | None]]:
        """Run SQL; rows of the last statement as the server sent them.

        For databases in SQL_ASCII, whose bytes are sent unchanged, in any encoding.
        """
        self._refuse_streaming()
        return self._session.ask(sql, Asked.QUERY).cells

    def copy_out(self, sql: str) -> Iterator[bytes]:
        """Run a COPY … TO STDOUT; its bytes, usually a line each.

        Read it to its end: an abandoned iteration ends the session.
        """
        self._refuse_streaming()
        return self._session.copy_out(sql)

    def copy_in(self, sql: str, chunks: Iterable[bytes]) -> int:
        """Run a COPY … FROM STDIN with these bytes; return the number of rows."""
        self._refuse_streaming()
        return self._session.copy_in(sql, chunks)

    @contextlib.contextmanager
    def transaction(self, *, how: str = "") -> Iterator[Self]:
        """Begin; commit at the end, or roll back if an exception leaves the block.

        `how` is the rest of BEGIN, such as `ISOLATION LEVEL REPEATABLE READ`.
        """
        self.query(f"BEGIN {how}")
        try:
            yield self
        except BaseException:
            with contextlib.suppress(CdcError):  # the first error counts
                self.query("ROLLBACK")
            raise
        self.query("COMMIT")

    def server(self) -> Server:
        """Read product, version, role and database."""
        return gauss_server.parse_server(self.query(gauss_server.QUESTION))

    def timeline_history(self, timeline: int) -> tuple[TimelineSwitch, ...]:  # noqa: ARG002
        """No history: clients of these servers cannot read it."""
        return ()

    def create_slot(self, name: str, plugin: str) -> SlotCreated:
        """Create a logical slot, ordered by LSN; waits until all transactions open now have ended.

        Its exported snapshot lives until the next command of this session.
        """
        sql = commands.create_gauss_slot(name, plugin)
        rows = self._ask(sql, Asked.CREATE_SLOT, slot=name)
        created = commands.parse_slot_created(rows)
        _log.info(
            "slot created slot=%s consistent_point=%s", name, lsn_text(created.consistent_point)
        )
        return created

    def wait_released(self, slot: str, timeout: float) -> bool:
        """Wait until no client streams from `slot`; False if one still does after `timeout`.

        Call it on another connection, after `close` of the one that streamed.  The manual
        names pg_terminate_backend for a walsender that takes too long.
        """
        begun = noted = time.monotonic()
        sql = "SELECT slot_name FROM pg_replication_slots WHERE active"
        while [slot] in self.query(sql):
            now = time.monotonic()
            if now - begun >= timeout:
                return False
            if now - noted >= _RELEASE_NOTE:
                noted = now
                _log.info(
                    "waiting for the walsender to release its slot slot=%s seconds=%.0f",
                    slot,
                    now - begun,
                )
            time.sleep(min(_RELEASE_POLL, timeout))
        return True

    # ---- the stream

    def start(
        self,
        slot: str,
        options: Mapping[str, str | None],
        at: Lsn = NOWHERE,
        *,
        split: Split = split,
    ) -> None:
        """Begin to stream; 0 is the slot's confirmed position.  `split` cuts messages.

        Raises SlotMissing, SlotTaken, SlotInvalid, SlotMismatch, SlotOrphaned,
        OptionRefused, RoleDiffers, NotPermitted; ConnectionLost for temporary errors,
        Unexplained for errors that may be: the caller decides how long to retry.
        After any error, the session is over.
        """
        self._refuse_streaming()
        session = self._session
        answer = session.say(commands.start(slot, options, at))
        if answer.error is not None:
            raise self._explained(answer.error, slot)
        if answer.copying is not Copying.BOTH:
            raise DecodeError("the server did not turn to streaming", slot=slot)
        deadline, early = time.monotonic() + _FIRST_LIMIT, b""
        while time.monotonic() < deadline and (got := session.wait_frame(deadline)) is not None:
            if got.tag == "E":
                raise self._explained(ServerError.parse(got.body), slot)
            if got.tag not in "NS":
                early = protocol.frame(got.tag.encode("latin-1"), got.body)
                break
            session.note(got)
        self._slot = slot
        self._streaming = Streaming(
            self._link,
            self._dialect,
            refusal,
            session.note,
            slot=slot,
            split=split,
            early=early + session.frames.rest(),
        )
        _log.info("took slot=%s from=%s", slot, lsn_text(at) if at else "where it was confirmed")

    # ---- login

    def _log_in(self, deadline: float, settings: Mapping[str, str] | None) -> None:
        arguments, link = self.arguments, self._link
        parameters = {
            "user": arguments.user,
            "database": arguments.dbname or arguments.user,
            "application_name": arguments.application_name,
            **(session_settings.GAUSS if settings is None else settings),
        }
        if self._replication:
            parameters["replication"] = "database"
        if arguments.options:
            parameters["options"] = arguments.options
        credentials = link.credentials(arguments)
        self._login = Login(
            credentials,
            gauss_auth.methods(self._version),
            names=gauss_auth.NAMES,
            hint=gauss_auth.HINT,
        )

        def is_postgres(_: int) -> Login:
            # openGauss refuses an unsupported version; only PostgreSQL negotiates.
            self._dialect = POSTGRES
            self._login = Login(credentials)
            return self._login

        self._session.log_in(
            protocol.startup(parameters, version=self._version),
            self._login,
            deadline,
            asked=Asked.REPLICATION_LOGIN if self._replication else Asked.LOGIN,
            negotiated=is_postgres,
            host=arguments.host,
            port=arguments.port,
            user=arguments.user,
            dbname=arguments.dbname,
        )

    def _check_role(self, role: Role, deadline: float) -> None:
        if role == "any":
            return
        left = max(0.0, deadline - time.monotonic())
        in_recovery = self.query("SELECT pg_is_in_recovery()", timeout=left) == [["t"]]
        plays: Role = "standby" if in_recovery else "primary"
        if plays != role:
            raise RoleDiffers(f"the server is a {plays}", asked_for=role)

    def _explained(self, error: ServerError, slot: str) -> SourceError:
        """Find out, on another connection, the reason for a refusal of the stream."""
        said = refusal(error, Asked.START, slot=slot)
        if not is_ambiguous(error, Asked.START):
            return said
        try:
            with self._again() as other:
                rows = other.query(
                    "SELECT slot_name, slot_type, database, restart_lsn, current_database()"
                    " FROM pg_replication_slots"
                )
        except CdcError:  # then the server's message is all there is
            return said
        state = {row[0]: row[1:] for row in rows}.get(slot)
        if state is None:
            return SlotMissing(
                said.what,
                slot=slot,
                hint=f"`gauss-cdc slot list` shows those there are; {LOAD_AGAIN}",
            )
        kind, database, restart_lsn, here = state
        if kind == "logical" and database is None:
            return SlotOrphaned("the slot's database was dropped", slot=slot, hint=LOAD_AGAIN)
        if kind != "logical" or database != here:
            return SlotMismatch(
                "the slot is a physical one, or another database's",
                hint="choose another name in [source] slot",
                slot=slot,
                dbname=here,
            )
        if restart_lsn == _INVALID:
            return SlotInvalid(
                "the server invalidated the slot: changes since its position are gone",
                hint=f"raise max_size_for_xlog_retention; {LOAD_AGAIN}",
                slot=slot,
            )
        if error.sqlstate == "55000":
            return said
        return Unexplained(
            said.what,
            slot=slot,
            sqlstate=error.sqlstate,
            hint="the decoders of an earlier connection are still ending, or the server is at its"
            " limit of decoded slots; see its log",
        )

    def _again(self) -> GaussConnection:
        """Open another connection to the same server."""
        return GaussConnection._open_at(
            self.arguments, replication=True, role="any", version=self._version, settings=None
        )


def _or_at_the_next_port(
    open_at: Callable[[ConnectionArguments], _Opened], target: ConnectionArguments
) -> _Opened:
    try:
        return open_at(target)
    except WrongPort as error:
        try:
            return open_at(replace(target, port=target.port + 1))
        except ConnectionLost:  # the server's message is better than that of a failed guess
            raise error from None
