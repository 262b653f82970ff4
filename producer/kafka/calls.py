"""Calls of a delivery that wait for Kafka, in a thread of their own.

librdkafka's calls block; meanwhile the loop reads from the source.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import TypeAlias

from producer.core.ports import Answer
from producer.errors import CdcError

Call: TypeAlias = Callable[[], Answer]


class CallThread:
    """At most one call at a time; the answer of one that failed is its CdcError."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._is_busy = False
        self._thread = threading.Thread(target=self._work, name="kafka", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Say whether a call is under way, or its answer was not taken."""
        return self._is_busy

    def begin(self, call: Call) -> None:
        """Begin a call."""
        assert not self._is_busy
        self._is_busy = True
        self._calls.put(call)

    def answers(self) -> list[Answer]:
        """Take the answer, if there is one; raise what is no error of ours."""
        try:
            answer = self._answers.get_nowait()
        except queue.Empty:
            return []
        self._is_busy = False
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        if isinstance(answer, Exception) and not isinstance(answer, CdcError):
            raise answer
        return [answer]

    def filenos(self) -> tuple[int, ...]:
        """Files of which one is readable when there is an answer."""
        return (self._wake_read,)

    def wait(self, seconds: float) -> None:
        """Wait for an answer."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)

    def close(self, seconds: float) -> bool:
        """End; False: a call did not end within so many seconds."""
        self._calls.put(None)
        self._thread.join(timeout=seconds)
        # A thread that still hangs keeps its pipe: the descriptor must not be reused.
        if self._thread.is_alive():
            return False
        os.close(self._wake_read)
        os.close(self._wake_write)
        return True

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._answers.put(call())
            except Exception as error:  # noqa: BLE001  the loop raises it
                self._answers.put(error)
            os.write(self._wake_write, b"!")
