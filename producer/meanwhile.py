"""Blocking calls during which keepalives are still sent to the source.

A registry, a broker or a catalog may take seconds to answer; a walsender closes the
connection after wal_sender_timeout without a status update, and would send everything again.
The socket stays with this thread: the call runs in another one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from producer.core.loop import BEAT

P = ParamSpec("P")
T = TypeVar("T")


class Meanwhile:
    """Makes one call at a time, and calls `beat` until it returns."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self.beat = beat
        self._pool = ThreadPoolExecutor(1, "meanwhile")

    def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `call` returns, or raise what it, or `beat`, raises."""
        future = self._pool.submit(call, *args, **kwargs)
        while True:
            try:
                return future.result(BEAT)
            except TimeoutError:
                if future.done():  # the call's own
                    raise
            self.beat()

    def close(self) -> None:
        """Wait for a call that is under way: what it uses is closed next."""
        self._pool.shutdown()


class InOrder:
    """`Behind` by one thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "in order")
        self._under_way: Future[object] | None = None

    def __call__(self, call: Callable[[], object]) -> None:
        """Begin a call when the one before has ended; raise what that one raised."""
        self.wait()
        self._under_way = self._pool.submit(call)

    def wait(self) -> None:
        """Wait for the call under way; raise what it raises."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    @property
    def is_busy(self) -> bool:
        """Is a call under way?"""
        return self._under_way is not None and not self._under_way.done()

    def close(self) -> None:
        """Wait for a call that is under way: what it uses is closed next."""
        self._pool.shutdown()
