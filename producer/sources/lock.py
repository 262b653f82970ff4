"""The lock of a slot, in a session that the server ends when it falls silent.

It is an ordinary session's: a walsender of openGauss answers no SQL, and PostgreSQL's answers
nothing while its snapshot is read.  Where `run` is frozen its machine still answers for it, and the
server would keep it for ever: a setting of the session ends it, unless the thread here asks
something again and again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from producer.core.takeover.takeover import lock_of
from producer.errors import CdcError, ConnectionLost
from producer.sources.connection import ServerConnection
from producer.sources.session import Asks

_INTERVALS: Final = 3  # of silence, until the server ends the session
_GOODBYE: Final = 2.0  # seconds; it may wait for an answer


def try_lock(session: Asks, slot: str) -> bool:
    """Take the advisory lock named after a slot, for the life of the session."""
    space, number = lock_of(slot)
    rows = session.query(f"SELECT pg_try_advisory_lock({space}, {number})")
    return rows[0][0] == "t"


class SlotLock:
    """Taken by one `run` at a time."""

    def __init__(
        self, begin: Callable[[float], ServerConnection], slot: str, seconds: float
    ) -> None:
        """`begin` opens a session that ends after so many seconds of silence.

        `seconds` from one question to the next.
        """
        self._begin, self._slot, self._every = begin, slot, seconds
        self._session: ServerConnection | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended: CdcError | None = None

    def try_take(self) -> bool:
        """Take it; False while another `run` has it."""
        if self._session is None:
            self._session = self._begin(_INTERVALS * self._every)
        if not try_lock(self._session, self._slot):
            return False
        self._thread = threading.Thread(target=self._keep, name="lock", daemon=True)
        self._thread.start()
        return True

    def check(self) -> None:
        """Raise ConnectionLost where the lock is lost: another `run` may have it."""
        if self._ended is not None:
            raise ConnectionLost(
                "the session that holds the slot's lock ended", slot=self._slot
            ) from self._ended

    def close(self) -> None:
        """Let go of it."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_GOODBYE)
        if self._session is not None:
            self._session.close()

    def _keep(self) -> None:
        assert self._session is not None
        while not self._closing.wait(self._every):
            try:
                self._session.query("SELECT 1")
            except CdcError as error:
                self._ended = error
                return
