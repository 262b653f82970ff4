"""One `apply` for each of several targets, each a process of its own, which holds up no other.

A process is asked to leave by the end of its stdin, and so leaves with us, however we end.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from gauss_cdc.logs import log

_log = logging.getLogger("gauss_cdc.apply")

WITH_PARENT: Final = "--with-parent"
_LOOK: Final = 0.2  # seconds
_FIRST, _LONGEST = 5.0, 300.0  # seconds until one that ended begins again, twice as long each time
_WELL: Final = 600.0  # seconds after which one that runs has got over its last end


class _Applying:
    """The `apply` of one target, which begins again where it ended."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name, self._command = name, command
        self._process: subprocess.Popen[bytes] | None = None
        self._pause, self._at = _FIRST, 0.0  # when it began, or is to begin: monotonic seconds
        self.code = 0  # of its last end, until it is well again

    @property
    def runs(self) -> bool:
        """Say whether there is a process."""
        return self._process is not None

    def look(self) -> None:
        """Begin it if it is time, and note whether it goes on."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._at:
                self._begin(now)
        elif (code := self._process.poll()) is not None:
            self._end(now, code)
        elif now - self._at > _WELL:
            self._pause, self.code = _FIRST, 0

    def _begin(self, now: float) -> None:
        # Ctrl-C is for us alone: two signals would end it without a goodbye.
        started = subprocess.Popen(self._command, stdin=subprocess.PIPE, process_group=0)  # noqa: S603
        self._process, self._at = started, now
        log(_log, logging.INFO, "apply begins", target=self._name, pid=started.pid)

    def _end(self, now: float, code: int) -> None:
        self.ask_to_leave()
        self._process = None
        self.code, self._at = _exit_code(code), now + self._pause
        log(
            *(_log, logging.ERROR, "apply ended: the other targets go on, and it begins again"),
            target=self._name,
            exit_code=self.code,
            in_seconds=self._pause,
        )
        self._pause = min(_LONGEST, 2 * self._pause)

    def ask_to_leave(self) -> None:
        """Have it leave, if it runs."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def leave(self) -> None:
        """Wait until it has left, which it does within 10 s, or we are ended as it is."""
        if self._process is not None:
            code = _exit_code(self._process.wait())
            self.code = self.code or code


def _exit_code(code: int) -> int:
    """Return what a shell would show: 128 and the number of a signal.

    >>> _exit_code(-9), _exit_code(61)
    (137, 61)
    """
    return code if code >= 0 else 128 - code


def apply_each(
    names: Sequence[str], arguments: Sequence[str], stop: Callable[[float], bool]
) -> int:
    """Run an `apply` for each target until stopped, or until none runs any more.

    `arguments`: those of our own command line.  Returns the exit code of the first target whose
    `apply` ended, and is not well again; 0: there is none.
    """
    ours = (sys.executable, "-m", "gauss_cdc", *arguments, WITH_PARENT, "--target")
    each = [_Applying(name, (*ours, name)) for name in names]
    try:
        while not stop(_LOOK):
            for one in each:
                one.look()
            if not any(one.runs for one in each):
                break
    finally:
        for one in each:
            one.ask_to_leave()
        for one in each:
            one.leave()
    return next((one.code for one in each if one.code), 0)


def leave_with_parent(leave: Callable[[], None]) -> None:
    """Leave when the parent closes the pipe that is our stdin, or is gone."""

    def wait() -> None:
        # Not by `sys.stdin`: Python's end would wait for its lock, and abort.
        os.read(0, 1)
        leave()

    threading.Thread(target=wait, name="parent", daemon=True).start()
