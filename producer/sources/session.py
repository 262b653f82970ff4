"""Questions and answers on one connection: the login and the simple protocol.

Common to PostgreSQL and openGauss.  They differ in the login, in the meaning of
their errors, and in that a walsender of openGauss does not survive an error: it
reports that it is ready, and closes the connection.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from producer.errors import ConnectionLost, DecodeError, SourceError
from producer.sources.dial import Link
from producer.wire import protocol
from producer.wire.auth import Login
from producer.wire.protocol import Answer, Copying, Frame, Frames, ServerError
from producer.wire.sqlstate import Asked

_log = logging.getLogger(__name__)

READ_BYTES: Final = 8 << 20  # upper bound of one read; memory is allocated only as far as filled
SEND_LIMIT: Final = 10.0  # seconds; a server that does not read 39 bytes is gone
_LINES_BYTES: Final = 256 << 10  # read at once of a copy by lines
_COPY_BYTES: Final = 64 << 10  # of a copy to the server between two reads of its answers


class Asks(Protocol):
    """A session that answers SQL with rows of text."""

    def query(self, sql: str) -> list[list[str | None]]:
        """Run one statement; raises SourceError."""


class Refuse(Protocol):
    """Converts a server's error into ours."""

    def __call__(self, error: ServerError, asked: Asked, **where: object) -> SourceError:
        """See `wire.sqlstate.refusal`."""


_MOST_PARAMETERS: Final = 1000  # openGauss reports about twenty


class Session:
    """One connection for queries; knows nothing of slots and streams."""

    def __init__(self, link: Link, refuse: Refuse, *, dies_of_errors: bool = False) -> None:
        """`dies_of_errors`: the server closes the connection after any error."""
        self.link = link
        self.parameters: dict[str, str] = {}  # what the server reports, e.g. server_version
        self.backend_pid = 0
        self.transaction = "I"  # I none, T open, E failed: as of the last answer
        self.frames: Frames = Frames(max_bytes=protocol.MAX_LOGIN_BYTES)
        self._refuse = refuse
        self._dies_of_errors = dies_of_errors
        self._over = ""  # why the session cannot be used any more
        self._begun = Answer()

    def log_in(
        self,
        startup: bytes,
        login: Login,
        deadline: float,
        *,
        asked: Asked = Asked.LOGIN,
        negotiated: Callable[[int], Login] | None = None,
        **where: object,
    ) -> None:
        """Authenticate.

        Raises ConnectionLost, LoginRefused, NotPermitted.  `negotiated` gives the
        login to go on with where the server speaks an older minor version only.

        `deadline`: by time.monotonic.
        """
        self.link.write(startup, deadline)
        while True:
            if time.monotonic() > deadline:  # a peer may send messages without end, and no login
                raise ConnectionLost("the login takes too long")
            got = self._next(deadline)
            match got.tag:
                case "R":
                    if (reply := login.answer(got.body)) is not None:
                        self.link.write(protocol.password(reply), deadline)
                case "E":
                    raise self._refuse(ServerError.parse(got.body), asked, **where)
                case "v" if negotiated is not None:
                    login = negotiated(protocol.parse_negotiated(got.body))
                case "K":
                    self.backend_pid = protocol.parse_backend_key(got.body)
                case "N" | "S":
                    self.note(got)
                case "Z" if login.done:
                    self.frames.max_bytes = protocol.MAX_FRAME_BYTES
                    return
                case tag:
                    raise DecodeError("unexpected frame during login", tag=tag)

    def ask(self, sql: str, asked: Asked, timeout: float | None = None, **where: object) -> Answer:
        """Run statements; return their answer, or raise the server's error.

        `timeout`: seconds for the answer; None: as long as it takes.
        """
        answer = self.say(sql, timeout)
        if answer.error is not None:
            raise self._refuse(answer.error, asked, **where)
        if answer.copying is not None:
            self._end("a query began a copy that nothing reads")
            raise DecodeError("unexpected answer to a query", tag=answer.copying.value)
        return answer

    def say(self, sql: str, timeout: float | None = None) -> Answer:
        """Run statements; their answer, an error or a turn to copying included.

        `timeout`: seconds for the answer; None: as long as it takes.  Raises ConnectionLost; what
        the server refuses is in the answer.
        """
        if self._over:
            raise ConnectionLost("the session is over", reason=self._over)
        self.link.write(protocol.query(sql), time.monotonic() + SEND_LIMIT)
        answer = self._answer(None if timeout is None else time.monotonic() + timeout, Answer())
        if answer.error is not None and self._dies_of_errors:
            self._end("the server ends a replication session after an error")
        return answer

    def begin(self, sql: str) -> None:
        """Send statements; `poll` gives their answer.  Raises ConnectionLost."""
        if self._over:
            raise ConnectionLost("the session is over", reason=self._over)
        self._begun = Answer()
        self.link.write(protocol.query(sql), time.monotonic() + SEND_LIMIT)

    def poll(self, timeout: float) -> Answer | None:
        """Return the answer to `begin`, or None if it does not arrive within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while (got := self.wait_frame(deadline)) is not None:
            if self._take(self._begun, got):
                return self._begun
        return None

    def copy_out(self, sql: str, **where: object) -> Iterator[bytes]:
        """Run a COPY TO STDOUT; what it sends, usually a line each.

        An abandoned iteration ends the session: the rest would have to be read.
        """
        with self._copying_out(sql, where) as answer:
            while not answer.status:
                got = self._next(None, answer)
                if got.tag == "d":
                    yield got.body
                elif got.tag != "c":
                    self._take(answer, got)

    def copy_lines(self, sql: str, **where: object) -> Iterator[list[bytes]]:
        """Run a COPY TO STDOUT in text form; its lines without their ends, some at a time.

        An abandoned iteration ends the session.
        """
        with self._copying_out(sql, where) as answer:
            while not answer.status:
                if lines := self.frames.lines():
                    yield lines
                elif (got := self.frames.next()) is None:
                    self.link.wait_readable(None)
                    self.frames.feed(self.link.read(_LINES_BYTES))
                elif got.tag != "c":
                    self._take(answer, got)

    @contextlib.contextmanager
    def _copying_out(self, sql: str, where: Mapping[str, object]) -> Iterator[Answer]:
        """Begin a COPY TO STDOUT; the caller reads it until its answer is whole, or ends us."""
        self._turn(sql, Copying.OUT, **where)
        answer = Answer()
        try:
            yield answer
        finally:
            if not answer.status:
                self._end("a copy was abandoned")
        if answer.error is not None:
            raise self._refuse(answer.error, Asked.QUERY, **where)

    def copy_in(self, sql: str, chunks: Iterable[bytes], **where: object) -> int:
        """Run a COPY FROM STDIN with these bytes; return the number of rows.

        An error of `chunks` is raised here, after the copy was cancelled.
        """
        self._turn(sql, Copying.IN, **where)
        answer = Answer()
        try:
            for piece in _pieces(chunks):
                if not self._send_piece(piece, answer):
                    break
        except BaseException as error:
            if not isinstance(error, ConnectionLost):
                with contextlib.suppress(SourceError, DecodeError):
                    self.link.write(protocol.copy_fail(type(error).__name__), _soon())
                    self._answer(_soon(), answer)
            if not answer.status:
                self._end("a copy was abandoned")
            raise
        if not answer.status:
            self.link.write(protocol.copy_done(), _soon())
            answer = self._answer(None, answer)
        if answer.error is not None:
            raise self._refuse(answer.error, Asked.QUERY, **where)
        count = answer.command.rpartition(" ")[2]
        if not (count.isascii() and count.isdigit()):
            raise DecodeError("a copy did not report its number of rows", command=answer.command)
        return int(count)

    def wait_frame(self, deadline: float) -> Frame | None:
        """Return the next frame, or None at the deadline; for use while copying.

        `deadline`: by time.monotonic.
        """
        try:
            return self._next(deadline)
        except ConnectionLost:
            if time.monotonic() >= deadline:
                return None
            raise

    def note(self, got: Frame) -> None:
        """Take a notice or a setting; both may come at any time.

        Raises DecodeError where settings come without end.
        """
        if got.tag == "S":
            name, value = protocol.parse_parameter(got.body)
            if len(self.parameters) >= _MOST_PARAMETERS and name not in self.parameters:
                raise DecodeError("the server reports settings without end", names=_MOST_PARAMETERS)
            self.parameters[name] = value
        else:
            notice = ServerError.parse(got.body)
            _log.info("server says sqlstate=%s message=%s", notice.sqlstate, notice.message)

    def _turn(self, sql: str, to: Copying, **where: object) -> None:
        answer = self.say(sql)
        if answer.error is not None:
            raise self._refuse(answer.error, Asked.QUERY, **where)
        if answer.copying is not to:
            self._end("it did not copy as asked")
            raise DecodeError("the statement is not a COPY in this direction")

    def _send_piece(self, piece: bytes, answer: Answer) -> bool:
        """Send some bytes; False when the server has already ended the copy."""
        # No limit: the server may wait for a lock.  TCP detects a dead one.
        self.link.write(protocol.copy_data(piece), None)
        # A server that sends many notices must be read, or both sides block.
        self.frames.feed(self.link.read(READ_BYTES))
        while (got := self.frames.next()) is not None:
            if self._take(answer, got):
                return False
        return True

    def _answer(self, deadline: float | None, answer: Answer) -> Answer:
        while not self._take(answer, self._next(deadline, answer)):
            pass
        return answer

    def _take(self, answer: Answer, got: Frame) -> bool:
        if got.tag in "NS":
            self.note(got)
        is_whole = answer.take(got)
        if answer.status:
            self.transaction = answer.status
        return is_whole

    def _next(self, deadline: float | None, answer: Answer | None = None) -> Frame:
        """Return the next frame, or raise the error that the server sent before it closed."""
        while (got := self.frames.next()) is None:
            try:
                self.link.wait_readable(deadline)
                self.frames.feed(self.link.read(READ_BYTES))
            except ConnectionLost:
                if answer is not None and answer.error is not None:
                    raise self._refuse(answer.error, Asked.QUERY) from None
                raise
        return got

    def _end(self, reason: str) -> None:
        self._over = reason


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of one size: not one packet a line, nor everything at once."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= _COPY_BYTES:
            yield bytes(held[:_COPY_BYTES])
            del held[:_COPY_BYTES]
    if held:
        yield bytes(held)


def _soon() -> float:
    return time.monotonic() + SEND_LIMIT
