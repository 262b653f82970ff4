"""One stream: CopyBoth, keepalives, confirmations, timeouts.

Serial: a keepalive when the stream begins to wait and the client has not
confirmed all.  Parallel: two at the start, then what a batch holds and one
keepalive a second while nothing is sent.  Both: one that asks for a reply at
half of the sender timeout, and silence, then the end, at the whole.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from gauss_cdc_lab.emulator.frames import (
    EPOCH_2000,
    ErrorResponse,
    keepalive,
    read_status,
    xlog_data,
)
from gauss_cdc_lab.emulator.model import Sent
from gauss_cdc_lab.emulator.options import StreamOptions
from gauss_cdc_lab.emulator.product import EmulatedProduct, EmulatedSlot, SlotStream

IDLE_SECONDS: Final = 1.0
_FEEDBACK_BYTES: Final = 17
_LARGE: Final = 262_144  # written without waiting for the client


class ClientGone(Exception):
    """The connection broke without CopyDone."""


class Walsender:
    """Sends one stream until the client or a rule ends it."""

    def __init__(
        self,
        product: EmulatedProduct,
        stream: SlotStream,
        slot: EmulatedSlot,
        asked: StreamOptions,
        *,
        receive: Callable[[], asyncio.Future[tuple[bytes, bytes]]],
        writer: asyncio.StreamWriter,
    ) -> None:
        self._product, self._stream, self._slot, self._asked = product, stream, slot, asked
        self._receive, self._writer = receive, writer
        timeout = asked.sender_timeout_ms
        limit = product.sender_timeout_ms if timeout is None else timeout
        self._limit = limit / 1000  # seconds; 0: never
        self._is_parallel = asked.mode.parallel
        self._heard = self._sent = self._beat = time.monotonic()
        self._is_asked = self._is_catching_up = False
        self._told = -1  # walEnd of the last keepalive

    async def run(self) -> None:
        """Return when the client said CopyDone, or was silent for too long."""
        self._is_catching_up = not self._is_parallel
        if self._is_parallel:
            # Neither has a position yet: the first never does, the second may.
            self._keepalive(0)
            self._keepalive(0)
        else:
            self._keepalive(self._slot.confirmed)
        more: asyncio.Future[Iterable[Sent]] = asyncio.ensure_future(self._stream.more())
        received = self._receive()
        waited: set[asyncio.Future[Any]]
        try:
            while True:
                await self._writer.drain()
                waited = {more, received}
                await asyncio.wait(
                    waited, timeout=self._until_next(), return_when=asyncio.FIRST_COMPLETED
                )
                if received.done():
                    if not await self._take(*received.result()):
                        return
                    received = self._receive()
                if more.done():
                    await self._send(more.result())
                    more = asyncio.ensure_future(self._stream.more())
                    if not self._stream.is_behind():
                        self._wait_for_wal()
                if not await self._tick():
                    return
        finally:
            more.cancel()
            received.cancel()
            await asyncio.gather(more, received, return_exceptions=True)

    # ------------------------------------------------------------ sending
    async def _send(self, messages: Iterable[Sent]) -> None:
        size = 0
        for start, payload in messages:
            frame = xlog_data(start, _now_us(), payload)
            self._writer.write(frame)
            self._sent = time.monotonic()
            size += len(frame)
            if size > _LARGE:
                await self._writer.drain()
                size = 0

    def _keepalive(self, wal_end: int, *, reply: bool = False) -> None:
        self._told, self._beat = wal_end, time.monotonic()
        self._writer.write(
            keepalive(
                wal_end,
                _now_us(),
                role=self._product.role,
                reply=reply,
                catchup=self._is_catching_up,
            )
        )

    def _wait_for_wal(self) -> None:
        if self._is_parallel:
            return
        end = self._stream.read_to()
        if self._slot.confirmed < end and self._told != end:
            self._keepalive(end)
        if self._is_catching_up:  # from CATCHUP to STREAMING
            self._keepalive(end, reply=True)
            self._is_catching_up = False

    async def _tick(self) -> bool:
        now = time.monotonic()
        if self._limit:
            if now - self._heard >= self._limit:
                return False
            if now - self._heard >= self._limit / 2 and not self._is_asked:
                self._is_asked = True
                self._keepalive(self._stream.read_to(), reply=True)
        if self._is_parallel and now - max(self._sent, self._beat) >= IDLE_SECONDS:
            await self._send(self._stream.idle())
            self._keepalive(self._stream.read_to())
        return True

    def _until_next(self) -> float | None:
        times = []
        if self._limit:
            times.append(self._heard + self._limit * (1.0 if self._is_asked else 0.5))
        if self._is_parallel:
            times.append(max(self._sent, self._beat) + IDLE_SECONDS)
        return max(0.0, min(times) - time.monotonic()) if times else None

    # ------------------------------------------------------------ hearing
    async def _take(self, letter: bytes, body: bytes) -> bool:
        """Whether the stream goes on after a client's message."""
        self._heard, self._is_asked = time.monotonic(), False
        if letter in {b"c", b"f", b"X"}:
            return False
        if letter != b"d" or not body:
            raise ClientGone
        match body[:1]:
            case b"r":
                status = read_status(body)
                if status.flushed > self._slot.confirmed:
                    self._slot.confirmed = status.flushed
                    await self._stream.confirm(status.flushed)
                if status.reply_requested:
                    self._keepalive(self._stream.read_to())
            case b"h":
                if len(body) < _FEEDBACK_BYTES:
                    raise ErrorResponse("insufficient data left in message", "08P01", number=9499)
                struct.unpack_from("<Qq", body, 1)
            case _:
                raise ClientGone
        return True


def _now_us() -> int:
    return (time.time_ns() - EPOCH_2000 * 1_000_000_000) // 1000
