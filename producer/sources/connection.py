"""What a connection to a server of either product is: its link, its session, and its stream.

A connection answers queries until it streams.  No policy: the engine decides what to
confirm and when to reconnect.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from producer.errors import CdcError, SourceError
from producer.sources.dial import ConnectionArguments, Link
from producer.sources.session import Session
from producer.sources.streaming import Streaming
from producer.wire import commands, protocol
from producer.wire.auth import Login
from producer.wire.commands import SystemIdentity
from producer.wire.replication import Received
from producer.wire.sqlstate import Asked
from schemas.positions import NOWHERE, Lsn

_log = logging.getLogger(__name__)

_GOODBYE_LIMIT: Final = 2.0  # seconds for the server to end the stream, or to read its end


class ServerConnection:
    """One session; a context manager that closes itself."""

    _login: Login  # since the login began

    def __init__(self, link: Link, session: Session, arguments: ConnectionArguments) -> None:
        self.arguments = arguments  # of the host and port that accepted the login
        self._link, self._session = link, session
        self._streaming: Streaming | None = None
        self._slot = ""

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
        """What the server reports; server_version of openGauss and GaussDB means nothing."""
        return self._session.parameters

    @property
    def backend_pid(self) -> int:
        """What the server calls the session; 0 where it does not say (openGauss' walsender)."""
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

    # ---- questions

    def query(self, sql: str, *, timeout: float | None = None) -> list[list[str | None]]:
        """Run SQL or a replication command; rows of the last statement, as text.

        Waits as long as the server does (an advisory lock, a slot that waits for
        open transactions); with a `timeout` in seconds ConnectionLost is raised
        at its end, and the connection cannot be used any more.
        """
        return self._ask(sql, Asked.QUERY, timeout)

    def identify(self) -> SystemIdentity:
        """Identify the server."""
        return commands.parse_identity(self.query(commands.IDENTIFY_SYSTEM))

    def drop_slot(self, name: str, *, wait: bool = False) -> None:
        """Drop a slot; `wait` until it is inactive.  Raises SlotMissing, SlotTaken."""
        self._ask(commands.drop_slot(name, wait=wait), Asked.DROP_SLOT, slot=name)
        _log.info("slot dropped slot=%s", name)

    # ---- the stream

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read what has arrived, or wait up to `timeout` seconds for something.

        Returns without messages when the time is over or when one of `wake_fds`
        is readable (which the caller then empties).  Raises ConnectionLost when
        the stream ends, always after the messages that came before.  With parallel
        decoding of openGauss a keepalive's position is the reader's and may be ahead
        of what was sent: it must not be confirmed.
        """
        return self._stream().receive(timeout, wake_fds)

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        """Confirm everything before `flush`; 0 is a keepalive.

        Must be sent within wal_sender_timeout (60 s; sender-timeout of openGauss: 30 s), also
        while the start is still being decided.  `reply` asks the server for a keepalive.
        openGauss checks nothing: a position ahead of what was sent loses the changes in
        between.
        """
        self._stream().send_status(flush, reply=reply)

    def tap(self, take: Callable[[bytes], None]) -> None:
        """Pass every byte of the stream to `take`, as received; call it right after `start`."""
        self._stream().tap = take

    def interrupt(self) -> None:
        """Let go of the server: who waits for it, in another thread, gets ConnectionLost."""
        self._link.interrupt()

    def close(self) -> None:
        """End the stream politely within two seconds, then the connection; never fails."""
        if self.fileno() < 0:
            return
        deadline = time.monotonic() + _GOODBYE_LIMIT
        try:
            if self._streaming is not None:
                self._streaming.end(deadline)  # openGauss closes the connection without an answer
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

    def _refuse_streaming(self) -> None:
        if self._streaming is not None:
            raise SourceError("a streaming connection takes no queries")

    def _ask(
        self, sql: str, asked: Asked, timeout: float | None = None, **where: object
    ) -> list[list[str | None]]:
        self._refuse_streaming()
        return self._session.ask(sql, asked, timeout, **where).rows
