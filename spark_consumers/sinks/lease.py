"""Who may apply: one applier holds a source's lease at the target, and renews it; others wait.

    the holder     renews by a thread and a connection of its own, whatever its step does
    who waits      takes a lease that is not renewed for `SILENCE`, or whose holder is known to
                   be gone
    the fence      guards: an applier that is wrong about its lease changes nothing

So the lease decides who waits, and never what is written.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from spark_consumers.errors import ApplyError, Fenced
from spark_consumers.sinks.step import OVERTAKEN

SILENCE: Final = 8.0  # seconds without a renewal until another applier takes over
RENEW: Final = 2.0  # seconds from one renewal to the next
_GOODBYE: Final = 2.0  # it may be connecting to a server that does not answer


class Lease(Protocol):
    """The half of the one that holds it."""

    name: str  # of this applier, as others see it

    def renew(self) -> str:
        """Say that this applier is there; return the name of the one that holds the lease."""

    def close(self) -> None:
        """Give the lease back, and let go of the target; does not fail."""


def own_name() -> str:
    """Name this applier: for people, and like no other one."""
    return f"process {os.getpid()} on {socket.gethostname()} ({secrets.token_hex(4)})"


class Watched:
    """For how long what a holder writes anew has stood, by the clock of the one that waits.

    No clock but this one is needed: the holder's, or the server's, may be set at any time.  A look
    may take long, or be stopped in: what it finds is known to stand from its end on, and of what
    was found before, it says that it stood at its beginning.

    >>> watched = Watched()
    >>> watched.seconds("1", 0.0, 9.0), watched.seconds("1", 10.0, 19.0)
    (0.0, 1.0)
    """

    def __init__(self) -> None:
        self._seen: tuple[object, float] = None, 0.0

    def seconds(self, written: object, began: float, ended: float) -> float:
        """Return how long it was seen unchanged, by a look that began and ended then."""
        if written != self._seen[0]:
            self._seen = written, ended
        return max(0.0, began - self._seen[1])


class Keeper:
    """Renews a lease that was taken, until it is lost or closed."""

    def __init__(self, lease: Lease, source: str, clock: Callable[[], float] = time.time) -> None:
        self._lease, self._source, self._clock = lease, source, clock
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_held = False
        self._lost: Fenced | None = None
        self._renewed = 0.0

    @property
    def holds(self) -> bool:
        """Say whether the lease was taken, and is not known to be lost."""
        return self._is_held and self._lost is None

    def begin(self) -> None:
        """Renew from now on; the lease was just taken."""
        self._closing.clear()
        self._is_held, self._lost, self._renewed = True, None, self._clock()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise Fenced where the lease is known to be lost."""
        if self._lost is not None:
            raise self._lost

    def heard(self, holder: str) -> None:
        """Note who holds the lease; raise Fenced where it is another applier."""
        if holder == self._lease.name:
            self._renewed = self._clock()
            return
        self._lost = Fenced(
            "another applier took over this target: this one was silent for "
            f"{self._clock() - self._renewed:.0f} s",
            source=self._source,
            by=holder or "nobody",
            hint=OVERTAKEN,
        )
        raise self._lost

    def let_go(self) -> None:
        """Renew no more: it is not known whose the lease is."""
        self._is_held = False
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_GOODBYE)
            self._thread = None

    def close(self) -> None:
        """End the thread, and give the lease back."""
        self.let_go()
        self._lease.close()

    def _run(self) -> None:
        wait = 0.0
        while not self._closing.wait(wait):
            wait = RENEW
            try:
                self.heard(self._lease.renew())
            except Fenced:
                return
            except ApplyError:  # a target that does not answer is the step's error
                continue
