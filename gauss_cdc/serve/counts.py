"""What the loops of `run` and `apply` count for probes and metrics: plain numbers.

The loop writes, in its own thread; who scrapes reads copies.  Nothing is locked, and nothing is
done for a row: a cut, a step or an error is the unit.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from gauss_cdc.reports import ApplyReport, RunReport
from producer.core.loop import Progress as Streamed
from schemas.control import Commits, Cut
from schemas.topics import table_text
from spark_consumers.errors import ApplyError
from spark_consumers.loop.job import AppliedStep as Applied
from spark_consumers.model import Ledger

# Upper bounds in seconds: a local commit takes 10 ms, and a lake's step a minute.
BOUNDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)
_table: Final = lru_cache(10_000)(table_text)  # each scrape asks for the same
OTHER: Final = "other"  # no table's name, which has a dot
_READS: Final = "run: read"  # the step of a loop that takes what the source has
_WAITS_ITS_TURN: Final = "start: lock"
_LOADS: Final = "load: "  # begins the steps of a load
_RETRIES: Final = "retry"


class Latencies:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0  # seconds

    def add(self, seconds: float) -> None:
        """Count one; a clock that is behind the source's gives 0."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += max(0.0, seconds)


class Shown:
    """The tables that have metrics of their own: the first so many, for as long as we run."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._own: set[str] = set()
        self._others: set[str] = set()

    @property
    def others(self) -> int:
        """How many are summed."""
        return len(self._others)

    def summed(self, values: Mapping[str, float]) -> dict[str, float]:
        """Values by table, with those of the others as one sum.  They are under OTHER."""
        found: dict[str, float] = {}
        for table, value in values.items():
            name = self._name(table)
            found[name] = found.get(name, 0) + value
        return found

    def greatest(self, values: Mapping[str, float]) -> dict[str, float]:
        """Values by table, with the greatest one of the others.  It is under OTHER."""
        found: dict[str, float] = {}
        for table, value in values.items():
            name = self._name(table)
            found[name] = max(found.get(name, value), value)
        return found

    def _name(self, table: str) -> str:
        if table not in self._own and len(self._own) < self._most:
            self._own.add(table)
        if table in self._own:
            return table
        self._others.add(table)
        return OTHER


def by_table(records: Mapping[str, int], source: str) -> dict[str, float]:
    """Records by table, of records by topic; topics of our own have no dot."""
    names = {topic.removeprefix(f"{source}."): n for topic, n in records.items()}
    return {_table(name): n for name, n in names.items() if "." in name}


class Turns:
    """When a loop turned last."""

    def __init__(self, stuck_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`stuck_after`: seconds without a turn after which a loop counts as stuck."""
        self._stuck_after, self._clock = stuck_after, clock
        self._at = clock()

    def turn(self) -> None:
        """The loop is there."""
        self._at = self._clock()

    @property
    def age(self) -> float:
        """Seconds since then."""
        return self._clock() - self._at

    def health(self) -> str:
        """Answer `/healthz`: nothing that Kafka, source or target do makes it false."""
        return "alive" if self.age < self._stuck_after else "stuck"


class RunCounts(RunReport):
    """The lines of `run`, and what it counts besides."""

    def __init__(
        self,
        progress: Streamed,
        keep_step: Callable[[str], None],
        turns: Turns,
        *,
        by_csn: bool,
        ready_lag: float,
    ) -> None:
        super().__init__(progress, by_csn=by_csn)
        self._keep_step = keep_step
        self.progress, self.turns, self._ready_lag = progress, turns, ready_lag
        self.records: Counter[str] = Counter()  # by topic
        self.bytes: Counter[str] = Counter()  # of values that were read, by topic
        self.latencies = Latencies()
        self.epoch = 0
        self.durable_at = 0.0  # seconds since 1970, of the newest record of cuts
        self._step = ""
        self._is_standby = self._streams = False
        self._read_at = 0.0  # monotonic seconds: a re-read or a slow Kafka makes the stream wait

    def on_step(self, name: str) -> None:
        """Note what the loop is at; of a lock only the second try is a wait."""
        self._keep_step(name)
        self._is_standby = name == self._step == _WAITS_ITS_TURN
        self._step = name
        if name == _READS:
            self._streams, self._read_at = True, time.monotonic()
        self.turns.turn()

    def on_retry(self, line: str) -> None:
        super().on_retry(line)
        self._step = _RETRIES
        self._streams = self._is_standby = False

    def on_durable(self, cuts: Sequence[Cut], made: Iterable[int]) -> None:
        """Count records of cuts that became durable; `made`: times of commits in them, in µs."""
        now = time.time()
        for cut in cuts:
            if isinstance(cut, Commits):
                for one in cut.ranges:
                    self.records[one.topic] += one.end - one.start
            self.epoch = cut.head.epoch
        for committed_at in made:
            self.latencies.add(now - committed_at / 1e6)
        self.durable_at = now

    def ready(self) -> str:
        """Answer `/readyz`."""
        if self._is_standby:
            return "standby"
        if self._step == _RETRIES:
            return "retrying"
        if not self._streams:
            return "loading" if self._step.startswith(_LOADS) else "starting"
        lag = max(self.lag, time.monotonic() - self._read_at)
        return "ready" if lag <= self._ready_lag else "behind"


class ApplyCounts(ApplyReport):
    """The lines of `apply`, and what it counts besides."""

    def __init__(self, keep_step: Callable[[str], None], turns: Turns, *, ready_lag: float) -> None:
        super().__init__(keep_step)
        self.turns, self._ready_lag = turns, ready_lag
        self.latencies = Latencies()
        self.errors: Counter[str] = Counter()  # by table
        self.retries = 0
        self._state = "starting"

    def on_step(self, name: str) -> None:
        super().on_step(name)
        self.turns.turn()

    def on_standby(self) -> None:
        """Record that the target is another one's."""
        self._state = "standby"
        self.turns.turn()

    def on_pass(self, reached: Ledger | None) -> None:
        super().on_pass(reached)
        self.turns.turn()
        if reached is not None:
            self._state = "follows" if reached.epoch else "starting"  # nothing was applied yet
        elif self._state == "standby":
            self._state = "starting"

    def on_progress(self, progress: Applied) -> None:
        super().on_progress(progress)
        self._state = "follows"
        self.turns.turn()
        if progress.segment.commit_rows:
            self.latencies.add(time.time() - progress.ledger.committed_at / 1e6)

    def on_attempt(self, error: ApplyError) -> None:
        super().on_attempt(error)
        self._count(error)

    def on_retry(self, error: ApplyError, seconds: float) -> None:
        super().on_retry(error, seconds)
        self._count(error)
        self._state = "retrying"

    def _count(self, error: ApplyError) -> None:
        self.turns.turn()
        self.retries += 1
        if table := error.where.get("table"):
            self.errors[str(table)] += 1

    def ready(self) -> str:
        """Answer `/readyz`."""
        if self._state != "follows":
            return self._state
        lag = 0.0 if self.is_at_head else max(self.lag, self.turns.age)
        return "ready" if lag <= self._ready_lag else "behind"
