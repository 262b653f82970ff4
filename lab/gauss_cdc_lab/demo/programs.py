"""`gauss-cdc run` and `gauss-cdc apply` as processes that can be killed and started again.

Each lives in a session of its own, and a kill takes the whole session: a Python
that is gone must not leave its Java virtual machine behind.  The step a process
was in when it died is read afterwards from the file it wrote it to.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import gauss_cdc
from gauss_cdc.watch import STEP_FILE
from gauss_cdc_lab.services.process import Process, ProcessCommand, end_session

_GONE_SECONDS: Final = 30.0
_LEAVE_SECONDS: Final = 30.0
_TAIL_LINES: Final = 30


OURS: Final = Path(gauss_cdc.__file__).parents[1]


class Program:
    """One command of ours, started as often as it takes; `tree` is the release that it is of."""

    def __init__(
        self, name: str, config: Path, *options: str, folder: Path, tree: Path = OURS
    ) -> None:
        self.name, self.tree, self._options = name, tree, options
        self.log = folder / "logs" / f"{name}.log"
        self.starts = 0
        self._config, self._folder = config, folder
        self._step_file = folder / f"{name}.step"
        self._step_file.write_bytes(b"")
        self._step = os.open(self._step_file, os.O_RDONLY)
        self._process: Process | None = None
        # Held while it is started, killed or stopped: an end outside of it is unintended.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start it; its last words of an earlier life stay in the log."""
        with self._lock:
            self._step_file.write_bytes(b"")
            command = ProcessCommand(
                (
                    *(sys.executable, "-m", "gauss_cdc", self.name, "--config", str(self._config)),
                    *self._options,
                ),
                directory=self._folder,
                environment=self._environment(),
            )
            self._process = command.spawn(self.log)
            self.starts += 1

    def kill(self) -> str:
        """End it as a power cut would; return the step it was in."""
        with self._lock:
            if self._process is not None:
                # At once, while it is still in the step; then whatever else is in its session.
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._end()
            return self.step()

    def stop(self) -> bool:
        """Ask it to leave; True if it did so by itself, in time."""
        with self._lock:
            process, asked = self._process, True
            if process is not None and process.alive:
                process.send(signal.SIGTERM)
                asked = process.wait(_LEAVE_SECONDS)
            self._end()
            return asked

    def close(self) -> None:
        """Leave nothing of it running."""
        self._end()
        os.close(self._step)

    def step(self) -> str:
        """The protocol step it is in, or died in."""
        return os.pread(self._step, 64, 0).decode("utf-8", "replace").strip()

    def died(self) -> bool:
        """Whether it ended unintentionally."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._process is not None and not self._process.alive
        finally:
            self._lock.release()

    def last_words(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_session(process.pid)
            process.wait(_GONE_SECONDS)

    def _environment(self) -> dict[str, str]:
        """Temporary files below our folder: a killed process does not remove them."""
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        path = os.pathsep.join(p for p in (str(self.tree), os.environ.get("PYTHONPATH", "")) if p)
        return {
            STEP_FILE: str(self._step_file),
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
        }
