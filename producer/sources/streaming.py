"""The streaming half of a replication connection: read messages, send status updates.

Reading, the way that costs the server least.  The walsender sends each change by
its own send.  While the window of the connection is open, each send is a packet of
its own, which costs the server as much as the change; once it is closed, sends
only append to a buffer.  So under backlog there is one read each 5 ms, in which
changes of any size fill the receive buffer of a server that is near (measured: 2.3
CPU-s per million rows at the server with 256 KB, 4.9 with 1 MB).

While nobody reads for long (a table is read again, Kafka does not answer), small packets fill
the buffer beyond its window; Linux drops what comes then, and with it the acknowledgements of
what we send, until tcp_user_timeout ends the connection.  So a status update that nobody has read
before takes a sip, which the next read returns first.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Sequence
from typing import Final

from producer.errors import CdcError, ConnectionLost, DecodeError
from producer.sources.dial import Link
from producer.sources.session import READ_BYTES, SEND_LIMIT, Refuse
from producer.wire import protocol, replication
from producer.wire.protocol import Frame, ServerError
from producer.wire.replication import EPOCH_2000_US, Dialect, Received, Split, Stream
from producer.wire.sqlstate import Asked
from schemas.positions import Lsn

_NAP: Final = 0.005  # seconds between reads under backlog
_BACKLOG_BYTES: Final = 32 << 10  # this many within one nap (6 MB/s) are a backlog
_SIP_BYTES: Final = 64 << 10  # every 10 seconds: 23 MB in an hour
_SIPPED_BYTES: Final = 32 << 20  # at most


class Streaming:
    """A connection that has turned to streaming."""

    def __init__(
        self,
        link: Link,
        dialect: Dialect,
        refuse: Refuse,
        note: Callable[[Frame], None],
        *,
        slot: str,
        split: Split,
        early: bytes = b"",
    ) -> None:
        """`early` came after the answer to START_REPLICATION; `note` takes notices."""
        self.stream = Stream(dialect=dialect, split=split)
        self.lost: CdcError | None = None  # how the stream ended; raised by the next receive
        self.tap: Callable[[bytes], None] | None = None  # takes all bytes; for recordings
        self._link, self._dialect, self._refuse, self._note = link, dialect, refuse, note
        self._slot, self._early = slot, early
        self._poll = select.poll()
        self._poll.register(link.sock, select.POLLIN)
        self._wakes = select.poll()  # without the connection
        self._wake_fds: tuple[int, ...] = ()
        self._counted_since, self._counted_bytes = 0.0, 0
        self._rest_until = 0.0  # when to read next under backlog; 0 = now
        self._has_read = True  # since the last status update

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read what has arrived, or wait up to `timeout` seconds for something.

        Returns without messages when the time is over or when one of `wake_fds`
        is readable (which the caller then empties).  Raises ConnectionLost when
        the stream ends, always after the messages that came before.
        """
        if self.lost is not None:
            raise self.lost
        self._has_read = True
        if self._early:
            early, self._early = self._early, b""
            return self._feed(early)
        if tuple(wake_fds) != self._wake_fds:
            self._watch(tuple(wake_fds))
        if not self._has_rested() or not self._readable(timeout):
            return Received()
        try:
            data = self._link.read(READ_BYTES)
        except ConnectionLost as error:
            error.where["slot"] = self._slot
            raise
        self._count(len(data))
        return self._feed(data)

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        """Confirm everything before `flush`; 0 is a keepalive.

        If the server has closed the connection, its own error is raised, if it sent one.
        """
        if self.lost is not None:
            return  # the stream has ended; the next `receive` raises why
        if not self._has_read and len(self._early) < _SIPPED_BYTES:
            with contextlib.suppress(ConnectionLost):  # said by the next read, or by the write
                self._early += self._link.read(_SIP_BYTES)
        self._has_read = False
        update = replication.status_update(
            write=max(self.stream.received_end, flush),
            flush=flush,
            sent_at_us=time.time_ns() // 1000 - EPOCH_2000_US,
            reply=reply,
            dialect=self._dialect,
        )
        try:
            self._link.write(protocol.copy_data(update), time.monotonic() + SEND_LIMIT)
        except ConnectionLost:
            self._raise_reason()
            raise

    def _raise_reason(self) -> None:
        """Raise the error that the server sent before it closed; earlier messages come again."""
        data, self._early = self._early, b""
        with contextlib.suppress(ConnectionLost):
            data = data or self._link.read(READ_BYTES)
            while data:
                self._feed(data)
                if self.lost is not None:
                    break
                data = self._link.read(READ_BYTES)
        if self.lost is not None:
            raise self.lost

    def end(self, deadline: float) -> None:
        """End the stream, and read until the server ends it, too, or closes the connection.

        `deadline`: by time.monotonic; raises ConnectionLost behind it.
        """
        if self.lost is not None:
            return
        self._link.write(protocol.copy_done(), deadline)
        early, self._early = self._early, b""
        self.stream.feed(early)
        while not any(got.tag in "CEZ" for got in self.stream.others):
            self._link.wait_readable(deadline)
            if time.monotonic() > deadline:  # it may send much before it reads our end
                raise ConnectionLost("the server still sends", slot=self._slot)
            self.stream.feed(self._link.read(READ_BYTES))

    def _watch(self, wake_fds: tuple[int, ...]) -> None:
        for fd in set(self._wake_fds) - set(wake_fds):
            self._poll.unregister(fd)
            self._wakes.unregister(fd)
        for fd in set(wake_fds) - set(self._wake_fds):
            self._poll.register(fd, select.POLLIN)
            self._wakes.register(fd, select.POLLIN)
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

    def _has_rested(self) -> bool:
        """Wait until it is time to read; False: one of `wake_fds` became readable first."""
        left = self._rest_until - time.monotonic()
        if left > 0 and self._wakes.poll(left * 1000):
            return False
        self._rest_until = 0.0
        return True

    def _readable(self, timeout: float) -> bool:
        if self._link.has_pending:
            return True
        mine = self._link.sock.fileno()
        return any(fd == mine for fd, _ in self._poll.poll(max(0.0, timeout) * 1000))

    def _feed(self, data: bytes) -> Received:
        if self.tap is not None:
            self.tap(data)
        received = self.stream.feed(data)
        if self.stream.others:
            self._take_others(received)
        return received

    def _take_others(self, received: Received) -> None:
        """Handle frames that are not data: nearly always the end of the stream."""
        for got in self.stream.others:
            match got.tag:
                case "E":
                    error = ServerError.parse(got.body)
                    self.lost = self._refuse(error, Asked.STREAM, slot=self._slot)
                    break
                case "c" | "C" | "Z":  # unrequested: the server is being stopped
                    self.lost = ConnectionLost("the server ended the stream", slot=self._slot)
                    break
                case "N" | "S":
                    self._note(got)
                case tag:
                    raise DecodeError("unexpected frame in the stream", tag=tag, slot=self._slot)
        self.stream.others.clear()
        if self.lost is not None and not received.messages:
            raise self.lost
