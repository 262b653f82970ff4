"""The streaming query's micro-batches, and the loop that applies what they name.

    the query's thread     holds a batch open until the target holds all that the batch names, and
                           then as long as it may: the next one costs 0.1 s of a core
    the loop's threads     apply at all times; Spark's jobs begin within an open batch only

So what Spark's tasks read belongs to a batch of the query, and a batch never ends before its rows
are at the target.  The loop is the one owner of the target.  It waits for a batch only where one is
about to come and the rows are many; the ledger alone says what is applied, whatever a batch names.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST_CUTS: Final = 10_000  # records of cuts that one batch names
_NEVER: Final = 1 << 62


class MicroBatches(Generic[T]):
    """At most one batch is open; `T` is what jobs need to belong to it."""

    def __init__(self, every: float, now: Callable[[], float] = time.monotonic) -> None:
        """`every`: seconds for which a batch stays open where nothing more is to be named."""
        self._every, self._now = every, now
        self._changed = threading.Condition()
        self._begun = self._ended = 0  # passes
        self._awaited = 0  # the pass that a batch waits for; 0: none does
        self._offset = -1  # of cuts, up to which the target has come; -1: not known
        self._wake_at = _NEVER  # an offset
        self._rows = 0  # that were applied since a batch ended
        self._open: T | None = None
        self._jobs = 0
        self._is_coming = self._is_closed = False

    # ---------------------------------------------------------------- the loop
    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """Count the block as a pass over all cuts; one that raises was none."""
        with self._changed:
            self._begun += 1
        yield
        with self._changed:
            self._ended = self._begun
            if self._awaited:
                self._changed.notify_all()

    def applied(self, offset: int, rows: int) -> None:
        """The target has come to an offset of cuts by so many rows more."""
        with self._changed:
            is_first = self._offset < 0
            self._offset, self._rows = offset, self._rows + rows
            if is_first or offset >= self._wake_at:
                self._changed.notify_all()

    def open(self, seconds: float = 0) -> T | None:
        """Return the batch that is open; wait so long for one where a query runs.

        None: none is by then.
        """
        with self._changed:
            if seconds and self._open is None and self._is_coming:
                self._changed.wait_for(
                    lambda: self._open is not None or not self._is_coming or self._is_closed,
                    seconds,
                )
            return self._open

    @contextmanager
    def job(self, seconds: float = 0) -> Iterator[T | None]:
        """Keep the batch from ending while a job of the block runs; None: there is none."""
        with self._changed:
            batch = self.open(seconds)
            self._jobs += batch is not None
        try:
            yield batch
        finally:
            if batch is not None:
                with self._changed:
                    self._jobs -= 1
                    self._changed.notify_all()

    # ---------------------------------------------------------------- the query
    def wait_for_place(self) -> int:
        """Wait until the loop has applied something, or has found that there is nothing.

        Returns the offset that the target has come to.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._offset >= 0 or self._is_closed)
            return max(0, self._offset)

    @contextmanager
    def coming(self) -> Iterator[None]:
        """A query begins or runs in the block: batches come."""
        with self._changed:
            self._is_coming = True
        try:
            yield
        finally:
            with self._changed:
                self._is_coming = False
                self._changed.notify_all()

    def hold(self, batch: T, end: int) -> int:
        """Hold a batch open that names cuts up to an offset.

        Returns the rows that were applied since the batch before.
        """
        with self._changed:
            since = self._now()
            self._open, self._wake_at = batch, end
            self._changed.notify_all()
            try:
                self._await(end)
                self._wake_at = end + MOST_CUTS  # Spark names less than what is applied
                while not self._is_over(since):
                    self._changed.wait(since + self._every - self._now())
            finally:
                self._open, self._wake_at = None, _NEVER
            self._changed.wait_for(lambda: not self._jobs or self._is_closed)
            rows, self._rows = self._rows, 0
            return rows

    def close(self) -> None:
        """No pass will come: nothing waits from now on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_over(self, since: float) -> bool:
        is_late = self._offset >= self._wake_at or self._now() >= since + self._every
        return is_late or self._is_closed

    def _await(self, end: int = _NEVER) -> None:
        """Wait until the target has come to `end`, or to the end of a pass that began later."""
        number = self._awaited = self._begun + 1
        try:
            self._changed.wait_for(
                lambda: self._ended >= number or self._offset >= end or self._is_closed
            )
        finally:
            self._awaited = 0
