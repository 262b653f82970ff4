"""Many sessions that change the source at once, at a steady pace, from a seed.

What they do is a `Workload`; this file opens the connections, keeps the pace,
tries again after a deadlock, and counts.  A workload keeps some sums constant in
each of its transactions: a reader of another value has seen half of one.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, TypeAlias

import psycopg2
from psycopg2 import errors

Cursor: TypeAlias = Any  # psycopg2 has no typed one
Act: TypeAlias = Callable[[Cursor], int]  # one transaction; returns the rows it changed

# What concurrent sessions may do to each other, and a session to itself while a column goes.
_AGAIN: Final = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.UndefinedColumn,
    errors.UniqueViolation,
    # "new multixact has more than one updating member": PostgreSQL 15's own, of subtransactions.
    errors.InternalError_,
)


_LOOK: Final = 0.1  # seconds between two looks at whether it is enough
_SLOW: Final = 2.0  # seconds between two transactions of a worker while it is enough


class ChangedMind(Exception):
    """A transaction that is rolled back on purpose."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens once in a round: a change of columns, a big transaction."""

    at: float  # 0..1, part of a round
    name: str
    act: Act


class LoadSession(Protocol):
    """One worker's memory of what is its own."""

    def act(self) -> Act:
        """Choose the next transaction."""

    def remember(self) -> object:
        """What must be put back when a transaction does not commit."""

    def restore(self, memory: object) -> None:
        """Put it back."""


class Workload(Protocol):
    """What happens at the source."""

    name: str
    sums: Mapping[str, str]  # of each table, with names
    told: str  # what is made of these; a sum over no rows is NULL
    expected: tuple[Any, ...]  # what that must be, always

    def create(self, cursor: Cursor) -> None:
        """Make the tables, and the rows that exist before the start."""

    def session(self, number: int, random: Random) -> LoadSession:
        """A worker."""

    def events(self, turn: int) -> Sequence[Event]:
        """What happens in round number `turn`, in order."""


def question(workload: Workload) -> str:
    """Return the statement that asks a target for the sums at one moment."""
    parts = (f"(SELECT {sums} FROM {of}) AS of_{of}" for of, sums in workload.sums.items())  # noqa: S608
    return f"SELECT {workload.told} FROM {', '.join(parts)}"  # noqa: S608  names of ours


@dataclass(slots=True)
class Counts:
    """What one session did."""

    commits: int = 0
    rows: int = 0
    rollbacks: int = 0
    again: int = 0


class Load:
    """The sessions of a workload, and the clerk who does its events."""

    def __init__(
        self,
        url: str,
        workload: Workload,
        *,
        seed: int,
        workers: int = 6,
        rate: float = 300.0,
        round_seconds: float = 40.0,
        on_event: Callable[[str], None] = lambda _: None,
        is_enough: Callable[[], bool] = lambda: False,
        is_early: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_enough`: the target has enough to do; workers slow down, the clerk waits.

        `is_early`: the clerk does not begin yet.
        """
        self._url, self._workload, self._is_enough = url, workload, is_enough
        self._is_early = is_early
        self._pause = workers / rate
        self._round_seconds, self._on_event = round_seconds, on_event
        self._stop = threading.Event()
        self._counts: list[Counts] = []
        self._threads: list[threading.Thread] = []
        self.failure: BaseException | None = None
        for number in range(workers):
            session = workload.session(number, Random(f"{seed}/{number}"))  # noqa: S311  a seed
            self._add(f"worker-{number}", self._work, session)
        self._add("clerk", self._events)

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after each session's transaction."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    @property
    def counts(self) -> Counts:
        """The sum over all sessions."""
        total = Counts()
        for one in self._counts:
            total.commits += one.commits
            total.rows += one.rows
            total.rollbacks += one.rollbacks
            total.again += one.again
        return total

    def _add(self, name: str, target: Callable[..., None], *arguments: object) -> None:
        counts = Counts()
        self._counts.append(counts)
        self._threads.append(
            threading.Thread(
                target=self._guarded, args=(target, counts, *arguments), name=name, daemon=True
            )
        )

    def _guarded(self, target: Callable[..., None], counts: Counts, *arguments: object) -> None:
        try:
            connection = psycopg2.connect(self._url, application_name="gauss-cdc demo")
            try:
                target(connection, counts, *arguments)
            finally:
                connection.close()
        except Exception as error:  # noqa: BLE001  reported by the main thread
            self.failure = self.failure or error

    def _work(self, connection: Any, counts: Counts, session: LoadSession) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            memory = session.remember()
            if not self._transaction(connection, counts, session.act()):
                session.restore(memory)
            self._wait(_SLOW)
            due = max(due + self._pause, time.monotonic() - 1)
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _events(self, connection: Any, counts: Counts) -> None:
        while self._is_early():
            if self._stop.wait(_LOOK):
                return
        began, turn = time.monotonic(), 0
        while not self._stop.is_set():
            for event in self._workload.events(turn):
                due = began + (turn + event.at) * self._round_seconds
                if self._stop.wait(max(0.0, due - time.monotonic())):
                    return
                began += self._wait()
                while not self._transaction(connection, counts, event.act):
                    if self._stop.wait(0.05):
                        return
                self._on_event(event.name)
            turn += 1
            due = began + turn * self._round_seconds
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _wait(self, longest: float = math.inf) -> float:
        """Wait while it is enough; return for how many seconds."""
        began = time.monotonic()
        waited = 0.0
        while waited < longest and self._is_enough() and not self._stop.wait(_LOOK):
            waited = time.monotonic() - began
        return waited

    def _transaction(self, connection: Any, counts: Counts, act: Act) -> bool:
        """Try one transaction; False if it did not commit."""
        try:
            with connection.cursor() as cursor:
                rows = act(cursor)
            connection.commit()
        except ChangedMind:
            connection.rollback()
            counts.rollbacks += 1
            return False
        except _AGAIN:
            connection.rollback()
            counts.again += 1
            return False
        counts.commits += 1
        counts.rows += rows
        return True
