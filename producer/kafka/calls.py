"""Calls of a delivery that wait for Kafka: in a thread of their own, or step by step in the loop.

librdkafka's calls block, and give up the interpreter once.  A writer of our own never blocks: in
a second thread each of its system calls would wait for the interpreter, which the loop holds for
milliseconds while it walks.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from collections.abc import Callable, Generator
from typing import Protocol, TypeAlias, TypeVar

from producer.core.ports import Answer
from producer.errors import CdcError

T = TypeVar("T")
# Each yield: nothing more can be done now.  Raises CdcError.
Call: TypeAlias = Generator[None, None, T]


class Calls(Protocol):
    """At most one call at a time; the answer of one that failed is its CdcError."""

    @property
    def is_busy(self) -> bool:
        """Say whether a call is under way, or its answer was not taken."""

    @property
    def patience(self) -> float:
        """Seconds that a step of a call may wait."""

    def begin(self, call: Call[Answer]) -> None:
        """Begin a call."""

    def answers(self) -> list[Answer]:
        """Take the answer, if there is one."""

    def filenos(self) -> tuple[int, ...]:
        """Files of which one is readable when there is something to do."""

    def close(self, seconds: float) -> bool:
        """End; False: a call that blocks did not end within so many seconds."""


class InThread:
    """Calls that block, in one thread."""

    patience = 1.0

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call[Answer] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._is_busy = False
        self._thread = threading.Thread(target=self._work, name="kafka", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    def begin(self, call: Call[Answer]) -> None:
        assert not self._is_busy
        self._is_busy = True
        self._calls.put(call)

    def answers(self) -> list[Answer]:
        out: list[Answer] = []
        while True:
            try:
                out.append(self._answers.get_nowait())
            except queue.Empty:
                break
        if out:
            self._is_busy = False
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        return out

    def filenos(self) -> tuple[int, ...]:
        return (self._wake_read,)

    def close(self, seconds: float) -> bool:
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
            answer = None
            while answer is None:
                answer = step(call)
            self._answers.put(answer)
            os.write(self._wake_write, b"!")


class InSteps:
    """Calls that never block: a step with each look at the answers."""

    patience = 0.0

    def __init__(self, filenos: Callable[[], tuple[int, ...]]) -> None:
        """`filenos`: files by which something comes that a call may wait for."""
        self.filenos = filenos
        self._call: Call[Answer] | None = None
        self._answer: Answer | None = None

    @property
    def is_busy(self) -> bool:
        return self._call is not None

    def begin(self, call: Call[Answer]) -> None:
        assert self._call is None
        self._call = call
        self._answer = step(call)

    def answers(self) -> list[Answer]:
        if self._call is None:
            return []
        answer = self._answer if self._answer is not None else step(self._call)
        if answer is None:
            return []
        self._call = self._answer = None
        return [answer]

    def close(self, seconds: float) -> bool:  # noqa: ARG002  nothing blocks
        self._call = None
        return True


def step(call: Call[Answer]) -> Answer | None:
    """Go on with a call; None: it is not done."""
    try:
        next(call)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    except CdcError as error:
        return error
    return None


def result(call: Call[T]) -> T:
    """Go through a call, whose steps wait."""
    while True:
        try:
            next(call)
        except StopIteration as done:
            found: T = done.value
            return found


def wait(calls: Calls, seconds: float) -> None:
    """Wait until there is something to do."""
    poll = select.poll()
    for fileno in calls.filenos():
        poll.register(fileno, select.POLLIN)
    poll.poll(max(0.0, seconds) * 1000)
