"""Processes that outlive the object, and sometimes the program, that started them.

A process is known by pid *and* start time, so that a pid which was given to
another process in the meantime is never taken for ours, nor killed.
"""

import os
import platform
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict

LOOPBACK: Final = "127.0.0.1"

# Below the range from which systems take ports for outgoing connections (Linux:
# from 32768).  While a killed broker is down, a client that tries again and again
# could otherwise be given the broker's own port, and would connect to itself.
_PORTS: Final = range(20_000, 32_000)
_POLL: Final = 0.05
_GONE_SECONDS: Final = 30.0

# Popen objects of this program, so that dead children are reaped, and none warns.
_CHILDREN: Final[dict[int, "subprocess.Popen[bytes]"]] = {}


@dataclass(frozen=True, slots=True)
class Process:
    """One process, for ever: no other has the same pid and start."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        child = _CHILDREN.get(self.pid)
        if child is None:
            return _started(self.pid) == self.started
        # No other process can have the pid of a child until it is reaped, which `poll` does.
        if child.poll() is None:
            return True
        del _CHILDREN[self.pid]
        return False

    def send(self, number: signal.Signals) -> None:
        """Signal the process; it may be gone already."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait(self, seconds: float) -> bool:
        """Whether it was gone within `seconds`."""
        return poll(lambda: not self.alive, seconds)


@dataclass(frozen=True, slots=True)
class ProcessCommand:
    """What to start, and as whom."""

    arguments: Sequence[str | Path]
    directory: Path
    user: pwd.struct_passwd | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def spawn(self, log: Path) -> Process:
        """Start it in a session of its own: Ctrl-C in our terminal is not for it."""
        with log.open("ab") as output:
            child = subprocess.Popen(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                start_new_session=True,
                **_as_user(self.user),
            )
        _CHILDREN[child.pid] = child
        return Process(child.pid, _started(child.pid) or "gone")

    def run(self) -> "subprocess.CompletedProcess[str]":
        """Run it to its end; the caller looks at the return code."""
        return subprocess.run(
            self.arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=self.directory,
            env={**os.environ, **self.environment},
            check=False,
            **_as_user(self.user),
        )


def poll(question: Callable[[], bool], seconds: float) -> bool:
    """Ask until the answer is yes, at most for `seconds`."""
    end = time.monotonic() + seconds
    while not question():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct free ports of 127.0.0.1."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if is_free(port):
            found.append(port)
            if len(found) == count:
                return tuple(found)
    raise OSError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def is_free(port: int) -> bool:
    """Whether a server could take the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is no obstacle
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Whether a process listens on the port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def end_session(leader: int) -> None:
    """SIGKILL every process of a session, and wait until none runs."""

    def is_over() -> bool:
        living = list(members(leader))
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not living

    poll(is_over, _GONE_SECONDS)
    if (child := _CHILDREN.get(leader)) is not None and child.poll() is not None:
        del _CHILDREN[leader]  # ended without a question of `Process`: it is buried here


def members(leader: int) -> Iterator[int]:
    """The living processes of a session; those that only wait to be buried do not count."""
    for pid, is_zombie in processes():
        try:
            if not is_zombie and os.getsid(pid) == leader:
                yield pid
        except (ProcessLookupError, PermissionError):
            continue


def processes() -> Iterator[tuple[int, bool]]:
    """Every process of this machine, and whether it only waits to be buried."""
    if (proc := Path("/proc")).is_dir():
        for entry in proc.iterdir():
            if entry.name.isdigit():
                try:
                    stat = (entry / "stat").read_bytes()
                except OSError:
                    continue
                yield int(entry.name), stat.rpartition(b")")[2].split()[0] in (b"Z", b"X")
        return
    output = subprocess.run(
        ["ps", "-A", "-o", "pid=,stat="],  # noqa: S607  where it lies differs
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in output.splitlines():
        pid, state = line.split()[:2]
        yield int(pid), state.startswith("Z")


def _started(pid: int) -> str | None:
    """When the process started, in the system's own words; None if it runs no more."""
    if platform.system() == "Linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # The second field, the name in parentheses, may contain anything.
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    output = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],  # noqa: S607 - where it lies differs
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split(maxsplit=1)
    return None if len(output) < 2 or output[0].startswith("Z") else output[1].strip()


class _AsUser(TypedDict, total=False):
    user: int
    group: int
    extra_groups: tuple[int, ...]


def _as_user(user: pwd.struct_passwd | None) -> _AsUser:
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
