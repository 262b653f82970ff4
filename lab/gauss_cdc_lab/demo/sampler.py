"""Looks at the target all the time: does it ever show half a transaction?

One statement, so one snapshot, asks for the workload's sums and for the ledger
together.  Samples count from the first moment the ledger says EXACT.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg2
from psycopg2 import errors

from gauss_cdc_lab.demo.load import Workload, question

_PAUSE: Final = 0.04
_REST: Final = 3  # times as long as a look took: looking leaves the machine to what is looked at
_RETRY: Final = 0.2


@dataclass(frozen=True, slots=True)
class Broken:
    """A sample that should not be possible."""

    epoch: int
    seq: int
    found: tuple[Any, ...]
    expected: tuple[Any, ...]

    def __str__(self) -> str:
        return (
            f"at commit {self.epoch}/{self.seq} the target shows {self.found}, not {self.expected}"
        )


@dataclass(slots=True)
class SampleFindings:
    """What the samples so far have shown."""

    samples: int = 0
    commits: set[tuple[int, int]] = field(default_factory=set)  # (epoch, seq) that they showed
    not_exact: int = 0  # a table was being repaired: the ledger says so, nothing is promised
    epoch: int = 0
    seq: int = 0
    lags: list[float] = field(default_factory=list)  # seconds
    moved_at: float = 0.0
    standstill: float = 0.0  # longest time without a new commit, seconds
    broken: list[Broken] = field(default_factory=list)


class Sampler:
    """A thread with its own connection to the target."""

    def __init__(self, url: str, source: str, workload: Workload) -> None:
        self._url, self._source, self._workload = url, source, workload
        self._stop = threading.Event()
        self._exact = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.seen = SampleFindings()
        self.failure: BaseException | None = None
        self.is_lag_measured = True

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def is_exact(self) -> bool:
        """Whether the first load has ended."""
        return self._exact.is_set()

    @property
    def lag(self) -> float:
        """Age of the newest commit that the target shows, in seconds."""
        return self.seen.lags[-1] if self.seen.lags else 0.0

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._watch()
                except (errors.UndefinedTable, errors.InvalidSchemaName):
                    self._stop.wait(_RETRY)  # nothing was applied yet
                except psycopg2.OperationalError:
                    self._stop.wait(_RETRY)  # the target itself is away
        except Exception as error:  # noqa: BLE001  reported by the main thread
            self.failure = error

    def _watch(self) -> None:
        connection = psycopg2.connect(self._url, application_name="gauss-cdc sampler")
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                while not self._stop.is_set():
                    began = time.monotonic()
                    if not self._exact.is_set():
                        self._look_for_exact(cursor)
                    else:
                        self._sample(cursor)
                    self._stop.wait(max(_PAUSE, _REST * (time.monotonic() - began)))
        finally:
            connection.close()

    def _look_for_exact(self, cursor: Any) -> None:
        cursor.execute("SELECT state FROM gauss_cdc.ledger WHERE source = %s", (self._source,))
        row = cursor.fetchone()
        if row is not None and row[0] == "EXACT":
            self._exact.set()

    def _sample(self, cursor: Any) -> None:
        cursor.execute(
            f"SELECT state, epoch, seq, committed_at, sums.*"  # noqa: S608  our own question
            f" FROM gauss_cdc.ledger, ({question(self._workload)}) AS sums WHERE source = %s",
            (self._source,),
        )
        state, epoch, seq, committed_at, *found = cursor.fetchone()
        seen, expected = self.seen, self._workload.expected
        if state != "EXACT":
            seen.not_exact += 1
            return
        seen.samples += 1
        seen.commits.add((epoch, seq))
        if (epoch, seq) < (seen.epoch, seen.seq):
            seen.broken.append(
                Broken(epoch, seq, (epoch, seq), ("not before", seen.epoch, seen.seq))
            )
        now = time.monotonic()
        if self.is_lag_measured:
            seen.standstill = max(seen.standstill, now - (seen.moved_at or now))
        if (epoch, seq) != (seen.epoch, seen.seq):
            seen.moved_at = now
        seen.epoch, seen.seq = epoch, seq
        if tuple(found) != expected:
            seen.broken.append(Broken(epoch, seq, tuple(found), expected))
        if self.is_lag_measured and committed_at:
            seen.lags.append(max(0.0, time.time() - committed_at / 1e6))
