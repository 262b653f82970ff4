"""One connection to a broker: requests go out in order, and so do their answers come in.

Plaintext only.  Nothing here waits but `connect`; `ready` waits for several connections.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from producer.errors import DecodeError
from producer.kafka.direct.requests import (
    BrokerRequest,
    Versions,
    api_versions,
    body_of,
    framed,
    read_api_versions,
)
from producer.kafka.direct.wire import Response

Handler: TypeAlias = Callable[[Response | None], None]  # None: no answer comes

_CONNECT_SECONDS: Final = 3.0
_READ: Final = 256 << 10
_BUFFERS: Final = 64  # of one call of sendmsg
_SEND_BUFFER: Final = 4 << 20


class _Asked(NamedTuple):
    request: BrokerRequest
    correlation: int
    on_answer: Handler
    at: float  # of the monotonic clock


class BrokerConnection:
    """A connection; every method may raise OSError: it is lost, and so are its answers."""

    def __init__(self, address: tuple[str, int], client: str) -> None:
        """Connect, and learn what the broker can do."""
        self._client, self._next = client, 0
        self._asked: deque[_Asked] = deque()
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._socket = socket.create_connection(address, _CONNECT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        try:
            self.versions = self._greet()
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(0)

    def _greet(self) -> Versions:
        found: list[Versions] = []

        def take(answer: Response | None) -> None:
            assert answer is not None
            found.append(read_api_versions(answer))

        self.ask(api_versions(), take)
        until = time.monotonic() + _CONNECT_SECONDS
        self._socket.settimeout(0)
        while not found:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer to ApiVersions")
            ready([self], left)
            self.move()
        return found[0]

    def close(self) -> list[Handler]:
        """Close it; return who waits for an answer, in the order of asking."""
        self._socket.close()
        unanswered, self._asked = self._asked, deque()
        return [asked.on_answer for asked in unanswered]

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def waits_to_write(self) -> bool:
        """Say whether not all was sent."""
        return bool(self._out)

    @property
    def unanswered(self) -> int:
        """How many requests have no answer."""
        return len(self._asked)

    @property
    def oldest(self) -> float:
        """When the oldest of them was asked."""
        return self._asked[0].at if self._asked else time.monotonic()

    def ask(self, request: BrokerRequest, on_answer: Handler) -> None:
        """Send a request, as far as there is room; `move` does the rest.

        `on_answer` reads its answer before it does anything else: a DecodeError in it counts as
        no answer.
        """
        self._next = self._next + 1 & 0x7FFFFFFF
        parts = framed(request, self._next, self._client)
        self._out.extend(memoryview(part) for part in parts if part)
        # What was sent is not needed any more.
        asked = BrokerRequest(request.key, request.version, [])
        self._asked.append(_Asked(asked, self._next, on_answer, time.monotonic()))
        self._write()

    def move(self) -> None:
        """Send and read what can be, and hand answers on."""
        self._write()
        while True:
            try:
                data = self._socket.recv(_READ)
            except BlockingIOError:
                break
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._in += data
            if len(data) < _READ:
                break
        for frame in self._frames():
            if not self._asked:  # an answer before this one closed the connection
                return
            asked = self._asked.popleft()
            try:
                asked.on_answer(body_of(asked.request, asked.correlation, frame))
            except DecodeError:
                self._asked.appendleft(asked)
                raise

    def _write(self) -> None:
        out = self._out
        while out:
            try:
                sent = self._socket.sendmsg([out[at] for at in range(min(len(out), _BUFFERS))])
            except BlockingIOError:
                return
            while sent:
                if sent < len(out[0]):
                    out[0] = out[0][sent:]
                    break
                sent -= len(out.popleft())

    def _frames(self) -> list[bytes]:
        found, at, data = [], 0, self._in
        while len(data) >= at + 4:
            (size,) = struct.unpack_from(">i", data, at)
            if size < 4:
                raise DecodeError("an answer of Kafka has no header")
            if len(data) < at + 4 + size:
                break
            found.append(bytes(data[at + 4 : at + 4 + size]))
            at += 4 + size
        del data[:at]
        if len(found) > len(self._asked):
            raise DecodeError("Kafka answered what nobody asked")
        return found


def ready(connections: Sequence[BrokerConnection], seconds: float) -> None:
    """Wait until one of them can be moved."""
    waiting = [one for one in connections if one.waits_to_write]
    with contextlib.suppress(ValueError):  # one of them was closed
        select.select(connections, waiting, [], max(0.0, seconds))
