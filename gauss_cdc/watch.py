"""How a command is watched and stopped: signals, step names, lines for people."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console
from rich.logging import RichHandler

console: Final = Console(stderr=True)  # for people; programs read stdout


def say(line: str) -> None:
    """Print a line that holds names of others' making: `[ddl]` is no markup, nor a table's name."""
    console.print(line, markup=False)


STEP_FILE: Final = "GAUSS_CDC_STEP_FILE"


def set_up_logging(*, verbose: bool) -> None:
    """Log state changes to stderr."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(name)s: %(message)s",
        handlers=[RichHandler(console=console, show_path=False)],
    )
    for library in ("httpx", "httpx2", "py4j"):
        logging.getLogger(library).setLevel(logging.WARNING)


class StopSignal:
    """SIGTERM and SIGINT ask a command to leave; the second time it leaves at once.

    Also when it has not left after `limit` seconds: whatever hangs then, the next start
    goes on from what is durable, as after any crash.
    """

    def __init__(self, limit: float | None = 10.0) -> None:
        self._event = threading.Event()
        self._limit = limit
        self._then: list[Callable[[], None]] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._caught)

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        if self._event.is_set():
            os._exit(128 + number)
        self._event.set()
        if self._limit is not None:
            timer = threading.Timer(self._limit, os._exit, [128 + number])
            timer.daemon = True
            timer.start()
        for then in self._then:
            then()

    def then(self, do: Callable[[], None]) -> None:
        """Also do this when asked; it runs inside the signal handler, so keep it short."""
        self._then.append(do)

    @property
    def event(self) -> threading.Event:
        """Set when the command is to leave."""
        return self._event

    def asked(self, seconds: float = 0) -> bool:
        """Wait up to so many seconds; True = leave."""
        return self._event.wait(seconds) if seconds else self._event.is_set()


class StepName:
    """The protocol step this process is in, kept in a file that outlives a SIGKILL.

    Only where GAUSS_CDC_STEP_FILE names one: the demo and the chaos tests say
    with it in which step a kill fell.
    """

    _WIDTH: Final = 64

    def __init__(self) -> None:
        path = os.environ.get(STEP_FILE)
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644) if path else -1
        self._name = ""

    def set(self, name: str) -> None:
        """Remember the step."""
        if self._file >= 0 and name != self._name:
            self._name = name
            os.pwrite(self._file, name.encode()[: self._WIDTH].ljust(self._WIDTH), 0)

    @staticmethod
    def read(path: Path) -> str:
        """Read the step of a process that may be dead."""
        return path.read_bytes().decode("utf-8", "replace").strip() if path.exists() else ""
