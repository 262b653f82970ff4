"""How long a target is silent when a program ends or freezes and another one waits.

    python benchmarks/takeover.py [--rounds N] [--tables N] [--freezes N]

Two `run` and two `apply` of one prefix; of each, one waits its turn.  A row is committed every 10
milliseconds, and the target is asked every two.  In each round the one that works is ended by
SIGKILL, or stopped by SIGSTOP: the silence is the time from the newest row that was visible then
until the next one.  The one that was ended is started again, and waits.

The reference is the longest silence of as many seconds in which nobody is ended.  At the end all
rows are compared.
"""

# ruff: noqa: INP001, T201, S603  a command, not a package; its own programs

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Final, Self
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg2
from report import Report, finish, number, parser
from rig import GAUSS_CDC, Rig, ask, drop_slot, rig, unique

_EACH: Final = 0.01  # seconds between two commits
_ASK: Final = 0.002
_PATIENCE: Final = 600.0  # a first load of thousands of tables
_CALM: Final = 10.0  # seconds of the reference


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as made:
        return int(made.getsockname()[1])


@dataclass
class Member:
    """One program of a pair, which says by its probe whether it works or waits."""

    command: str
    config: Path
    folder: Path
    port: int = field(default_factory=_free_port)
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, in a session of its own."""
        words = [*GAUSS_CDC, self.command, "--config", str(self.config)]
        words += ["--listen", f"127.0.0.1:{self.port}"]
        with (self.folder / f"{self.command}-{self.port}.log").open("ab") as log:
            self.child = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
            )

    def says(self) -> str:
        """Return its word; "": none."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return str(answer.read().decode().strip())
        except HTTPError as error:
            with error:
                return error.read().decode().strip()
        except OSError:
            return ""

    def send(self, number: int) -> None:
        """Send a signal to the whole session: a JVM belongs to `apply`."""
        assert self.child is not None
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)

    def end(self) -> None:
        """Leave nothing of it."""
        if self.child is not None:
            self.send(signal.SIGKILL)
            self.child.wait()


class Stream:
    """Rows that are committed, and when each of them was visible."""

    def __init__(self, source: str, target: str) -> None:
        self._source, self._target = source, target
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._commit, self._look)
        ]
        self.committed = self.visible = 0
        self.seen: list[tuple[float, int]] = []  # monotonic seconds, rows there

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _commit(self) -> None:
        with closing(psycopg2.connect(self._source)) as line, line.cursor() as cursor:
            line.autocommit = True
            while not self._over.wait(_EACH):
                cursor.execute("INSERT INTO stream VALUES (%s)", (self.committed + 1,))
                self.committed += 1

    def _look(self) -> None:
        with closing(psycopg2.connect(self._target)) as line, line.cursor() as cursor:
            line.autocommit = True
            while not self._over.wait(_ASK):
                cursor.execute("SELECT max(id) FROM stream")
                ((newest,),) = cursor.fetchall()
                if (newest or 0) > self.visible:
                    self.visible = newest
                    self.seen.append((time.monotonic(), newest))

    def silence(self, since: float) -> float:
        """Wait for a row that was committed behind `since`; return the longest gap from there."""
        wanted = self.committed + 1
        _until(lambda: self.visible >= wanted, "a row behind it")
        times = [at for at, _ in self.seen]
        before = max((at for at in times if at <= since), default=since)
        later = [before, *(at for at in times if at > since)]
        return max(b - a for a, b in pairwise(later))


def _until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"never came: {what}")
        time.sleep(_ASK)


class Pairs:
    """Two of each program, of which one works."""

    def __init__(self, at: Rig, tables: int) -> None:
        self.source, self.target, self.name = at.database(), at.database(), unique("takeover")
        ask(self.source, "CREATE TABLE stream (id int PRIMARY KEY)")
        for number_ in range(1, tables):
            ask(self.source, f"CREATE TABLE idle{number_} (id int PRIMARY KEY)")
        self.members: list[Member] = []
        for one in range(2):
            config = at.configuration(
                self.name, self.source,
                {"target": {"dsn": self.target},
                 "spark": {"checkpoint": str(at.folder / f"state{one}")}},
            )  # fmt: skip
            own = config.rename(config.with_name(f"{self.name}-{one}.toml"))
            self.members += [Member(word, own, at.folder) for word in ("run", "apply")]

    def __enter__(self) -> Self:
        for member in self.members:
            member.start()
        _until(lambda: all(self._are_both(word) for word in ("run", "apply")), "one that waits")
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.end()

    def _are_both(self, command: str) -> bool:
        return sorted(m.says() for m in self._of(command)) == ["ready", "standby"]

    def _of(self, command: str) -> list[Member]:
        return [member for member in self.members if member.command == command]

    def take_over(self, command: str, number: int, stream: Stream) -> float:
        """End or freeze the one that works; return the silence, with a new one that waits."""
        _until(lambda: self._are_both(command), f"a {command} that waits")
        (working,) = (m for m in self._of(command) if m.says() == "ready")
        time.sleep(0.3)
        since = time.monotonic()
        working.send(number)
        found = stream.silence(since)
        working.end()
        working.start()
        return found


def _row(what: str, found: Sequence[float]) -> list[str]:
    p95 = quantiles(found, n=20, method="inclusive")[-1] if len(found) > 1 else found[0]
    return [what, str(len(found)), *map(number, (median(found), p95, max(found)))]


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=20, help="ended by SIGKILL, of each program")
    options.add_argument("--freezes", type=int, default=5, help="stopped by SIGSTOP, of each")
    options.add_argument("--tables", type=int, default=5)
    given = options.parse_args()
    if given.quick:
        given.rounds, given.freezes = 1, 0
    report = Report("takeover")
    rows: list[list[str]] = []
    with rig(given.set) as at:
        with Pairs(at, given.tables) as pairs:
            _until(lambda: _is_there(pairs.target), "the table")
            with Stream(pairs.source, pairs.target) as stream:
                _until(lambda: stream.visible > 100, "rows")  # a second of them
                since = time.monotonic()
                time.sleep(_CALM)
                rows.append(_row("nobody is ended", [stream.silence(since)]))
                for what, sent, rounds in (
                    ("SIGKILL", signal.SIGKILL, given.rounds),
                    ("SIGSTOP", signal.SIGSTOP, given.freezes),
                ):
                    for command in ("run", "apply"):
                        found = [pairs.take_over(command, sent, stream) for _ in range(rounds)]
                        if found:
                            rows.append(_row(f"{command}, {what}", found))
                            print(rows[-1], flush=True)
            _until(lambda: _rows(pairs.source) == _rows(pairs.target), "equal rows")
        drop_slot(pairs.source, pairs.name)
    report.table(
        f"Silence at the target, seconds, {given.tables:,} tables",
        ["", "times", "p50", "p95", "longest"],
        rows,
    )
    report.note("The target was compared with the source.", is_written=False)
    finish(report, given)


def _is_there(target: str) -> bool:
    return ask(target, "SELECT to_regclass('stream') IS NOT NULL") == [(True,)]


def _rows(url: str) -> object:
    return ask(url, "SELECT count(*), sum(hashtext(id::text)) FROM stream")


if __name__ == "__main__":
    main()
