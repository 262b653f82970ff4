"""Observation and stop of a command: signals, step names, lines for people."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from gauss_cdc import logs
from gauss_cdc.logs import printable

_log = logging.getLogger(__name__)

# For people; programs read stdout. A name with `:x:` in it is no sign of another kind.
console: Final = Console(stderr=True, emoji=False)


def say(line: str, style: str | None = None) -> None:
    """Print a line that contains foreign names: `[ddl]` in a name is not markup."""
    console.print(printable(line), style=style, markup=False, soft_wrap=True)


class RowRate(ProgressColumn):
    """How many rows a second a task of a progress bar makes."""

    def render(self, task: Task) -> Text:
        """Show the rate of the last seconds; at the end, of all."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} rows/s")


class TableBars:
    """A progress bar of each table, from its first rows on; on a terminal only."""

    def __init__(self, doing: str, *, leave_when_done: bool = False) -> None:
        """`doing`: what is done with a table; `leave_when_done`: other lines follow then."""
        self._progress = Progress(
            TextColumn(f"{doing} {{task.description}}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            RowRate(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or logs.is_json(),
        )
        self._leave_when_done = leave_when_done
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, table: object, rows: int, expected: int) -> None:
        """Say how many rows of a table are done, of about how many."""
        if self._progress.disable:
            return
        name = str(table)
        if name not in self._tasks:
            self._progress.start()
            self._tasks[name] = self._progress.add_task(printable(name))
        self._progress.update(self._tasks[name], completed=rows, total=max(rows, expected))
        if self._leave_when_done and all(task.finished for task in self._progress.tasks):
            self._progress.stop()


STEP_FILE: Final = "GAUSS_CDC_STEP_FILE"
_TOGETHER: Final = 0.5  # seconds between signals that have one cause


class StopSignal:
    """SIGTERM and SIGINT ask a command to stop; the second time it stops at once.

    It also stops after `limit` seconds: whatever hangs then, the next start continues from
    what is durable, as after any crash.  The limit applies while the main thread is in a
    call that does not return, as a login to a silent server: Python runs its handlers
    between two steps of that thread, hence the pipe.
    """

    def __init__(self, limit: float | None = 10.0) -> None:
        self._event, self._has_come = threading.Event(), threading.Event()
        self._limit = limit
        self._number = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._caught)
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="signals", daemon=True).start()

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        if self._event.is_set():
            os._exit(128 + number)
        self._number = number
        self._event.set()

    def _watch(self) -> None:
        """Read signals as soon as they come."""
        number = os.read(self._read, 1)[0]
        self._has_come.set()
        if signal.getsignal(number) != self._caught:
            return  # another handler is installed by now
        # A second one, or the limit, whatever the main thread does.
        if not select.select([self._read], [], [], self._limit)[0]:
            _log.error("stopped after %g s without an end: the next start continues", self._limit)
        os._exit(128 + number)

    def ask(self) -> None:
        """Stop as by SIGTERM, unless the same cause sends a signal, too: a second one ends at once.

        A service manager signals all processes of a program.
        """
        if not self._has_come.wait(_TOGETHER):
            os.kill(os.getpid(), signal.SIGTERM)

    @property
    def event(self) -> threading.Event:
        """Set when the command must stop."""
        return self._event

    @property
    def exit_code(self) -> int:
        """Of a command that a signal ended before it was done; 0: none came."""
        return 128 + self._number if self._number else 0

    def asked(self, seconds: float = 0) -> bool:
        """Wait up to `seconds`; True = stop."""
        return self._event.wait(seconds) if seconds else self._event.is_set()


class StepName:
    """The protocol step this process is in, kept in a file that outlives a SIGKILL.

    Only if GAUSS_CDC_STEP_FILE names one: the demo and the chaos tests report with it in
    which step a kill happened.
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
