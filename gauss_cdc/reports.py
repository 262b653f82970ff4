"""The lines of `run` and `apply`: once a minute, and for each table of a load.

A separate thread reads the loops' counters: a loop that hangs shows as lines with 0 rows.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from gauss_cdc.logs import log
from producer.core.key_ranges import rows_so_far
from producer.core.loop import Progress as Streamed
from schemas.control import LoadPhase, TableLoad, mends
from schemas.positions import lsn_text
from schemas.tables import TableId
from schemas.topics import below, table_text
from spark_consumers.errors import ApplyError, KafkaDown, RegistryDown, TargetDown
from spark_consumers.loop.job import AppliedStep as Applied
from spark_consumers.loop.job import Observer
from spark_consumers.model import Ledger, Ways

RETRYING: Final = "; retrying in "
_STAYS: Final = 60.0  # seconds after which a persistent error is logged again
_VARIES: Final = re.compile(r"\d+")  # seconds that were waited, ports of a client
_WAITS: Final = "at the head, waits"
_NAMED: Final = 3  # tables, in a line
_BUSY_SECONDS: Final = 5.0  # a pass over new cuts that takes longer is catching up

_run_log = logging.getLogger("gauss_cdc.run")
_apply_log = logging.getLogger("gauss_cdc.apply")


class Reporter:
    """Calls `write(seconds since the last call)` again and again; a context manager."""

    def __init__(self, every: float, write: Callable[[float], None]) -> None:
        """`every`: seconds; 0 = never."""
        self._every, self._write = every, write
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._go, name="reports", daemon=True)

    def __enter__(self) -> Self:
        if self._every:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def _go(self) -> None:
        before = time.monotonic()
        while not self._end.wait(self._every):
            now = time.monotonic()
            self._write(now - before)
            before = now


@dataclass(slots=True)
class _Load:
    """A table that is being loaded."""

    since: float
    first: int  # rows that were there then: an earlier run may have begun it
    rows: int = 0
    expected: int = 0

    @property
    def rate(self) -> float:
        """Rows a second of this run."""
        return (self.rows - self.first) / max(time.monotonic() - self.since, 0.001)

    def left(self) -> dict[str, int]:
        """Seconds until its end as `left_s`, by the estimate; nothing where there is none."""
        if not (rate := self.rate) or self.expected <= self.rows:
            return {}
        return {"left_s": round((self.expected - self.rows) / rate)}


class RunReport:
    """Lines of `run`."""

    def __init__(self, progress: Streamed, *, by_csn: bool = False) -> None:
        """`by_csn`: the source's order is that of CSNs, which are not positions in its log."""
        self._now, self._by_csn = progress, by_csn
        self._before = (0, 0)
        self.loads: dict[TableId, _Load] = {}
        self._passing = Passing(_run_log)

    def on_retry(self, line: str) -> None:
        """Log a temporary error, and when it is retried."""
        self._passing.say(line)

    def on_load(self, table: TableId, rows: int, expected: int) -> None:
        """Log a durable chunk; `expected` is the table's estimate, at its end exact."""
        load = self.loads.setdefault(table, _Load(time.monotonic(), rows))
        is_end = rows == expected == load.rows  # nothing new, and no estimate any more
        load.rows, load.expected = rows, expected
        if is_end:
            del self.loads[table]
            seconds = time.monotonic() - load.since
            log(_run_log, logging.INFO, "loaded", table=table, rows=rows, seconds=round(seconds, 1))

    @property
    def lag(self) -> float:
        """Age of the newest commit that was read, in seconds, while it is not durable; else 0."""
        return run_lag(self._now, time.time())

    def behind(self) -> dict[str, int]:
        """What of the source's log is not durable: `lag_bytes`, or `lag_csns` where it is told."""
        now = self._now
        unit, end = "lag_bytes", max(now.received, now.told_end)
        if self._by_csn:
            unit, end = "lag_csns", now.told_end
        return {unit: max(0, end - now.resume)} if now.told_end or not self._by_csn else {}

    def write(self, seconds: float) -> None:
        """Log the progress of the last `seconds` seconds."""
        now = self._now
        rows, commits = now.rows - self._before[0], now.commits - self._before[1]
        self._before = now.rows, now.commits
        for table, load in list(self.loads.items()):
            log(
                _run_log,
                logging.INFO,
                "loading",
                table=table,
                rows=load.rows,
                of_about=max(load.rows, load.expected),
                rows_per_s=round(load.rate),
                **load.left(),
            )
        if not now.takeovers or self.loads:
            return  # nothing streams yet
        log(
            *(_run_log, logging.INFO, "streamed"),
            rows=rows,
            commits=commits,
            rows_per_s=round(rows / seconds, 1),
            lag_s=self.lag,
            **self.behind(),
            position=lsn_text(now.resume),
            retries=now.retries,
            **({"waits_for": now.waits_for} if now.waits_for else {}),
        )


def run_lag(now: Streamed, wall: float) -> float:
    """Age of the newest commit that was read, in seconds, while it is not durable; else 0."""
    if now.is_idle or not now.committed_at:
        return 0.0
    return round(max(0.0, wall - now.committed_at / 1e6), 1)


class Passing:
    """Temporary errors: each is logged at once, and once a minute while it persists."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._clock = logger, clock
        self._text, self._since, self._times = "", 0.0, 0

    def say(self, line: str) -> None:
        """Write a line, unless the same error was written less than a minute ago."""
        text = _VARIES.sub("", line.partition(RETRYING)[0].removesuffix("; trying again"))
        now = self._clock()
        self._times += 1
        if text == self._text and now - self._since < _STAYS:
            self._logger.debug("%s", line)
            return
        more = f" ({self._times} times in {now - self._since:.0f} s)"
        self._logger.warning("%s%s", line, more if text == self._text and self._times > 1 else "")
        self._text, self._since, self._times = text, now, 0


class ApplyReport(Observer):
    """Lines of `apply`."""

    def __init__(self, keep_step: Callable[[str], None] = lambda _: None) -> None:
        """`keep_step` also receives the current step."""
        self._keep_step = keep_step
        self.newest: Applied | None = None
        self.ledger: Ledger | None = None  # where the target stands, once it is known
        self._before, self._ways = (0, 0), Ways()
        self._loads: dict[TableId, _Load] = {}
        self._began, self._caught_up = time.monotonic(), -math.inf
        self._doing = ""
        self._passing = Passing(_apply_log)

    def on_step(self, name: str) -> None:
        """Record the current step."""
        self._doing = name
        self._keep_step(name)

    def on_left_out(self, error: ApplyError) -> None:
        """Log what ended an epoch, and that its rest is not needed."""
        _apply_log.warning(
            "%s; the rest of this epoch is left out: the next one loads every table again", error
        )

    def on_retry(self, error: ApplyError, seconds: float) -> None:
        """Log a temporary error, and when it is retried."""
        self._passing.say(f"{error}{RETRYING}{seconds:.1f} s")

    def on_attempt(self, error: ApplyError) -> None:
        """Log what does not answer: five attempts may take a minute."""
        if isinstance(error, KafkaDown | RegistryDown | TargetDown):
            self._passing.say(f"{error}; trying again")

    def on_leave(self, error: ApplyError) -> None:
        """Log what was waited for at the stop."""
        _apply_log.info("stopped while it waited: %s", error)

    def on_pass(self, reached: Ledger | None) -> None:
        """Record that a pass over new cuts begins, or has brought the target to their end."""
        if reached is None:
            self._began = time.monotonic()
        else:
            self.ledger, self._caught_up = reached, time.monotonic()

    def on_progress(self, progress: Applied) -> None:
        """Record a durable step of the target."""
        self.newest, self.ledger = progress, progress.ledger
        for load in progress.segment.loads:
            self._loaded(load)

    def _loaded(self, cut: TableLoad) -> None:
        if mends(cut):
            log(_apply_log, logging.INFO, "mended", table=cut.table, rows=cut.rows)
            return
        if cut.phase is LoadPhase.BEGIN:
            self._loads.pop(cut.table, None)
        load = self._loads.get(cut.table)
        if load is None:  # its BEGIN; or an earlier `apply` took that
            before = max(0, rows_so_far(cut.upto) - cut.rows)
            load = self._loads[cut.table] = _Load(time.monotonic(), before, before)
        if cut.phase is LoadPhase.CHUNK:  # BEGIN counts its schema change
            load.rows += cut.rows
        if cut.phase is LoadPhase.END:
            del self._loads[cut.table]
            seconds = round(time.monotonic() - load.since, 1)
            log(
                *(_apply_log, logging.INFO, "loaded"),
                table=cut.table,
                rows=load.rows,
                seconds=seconds,
            )

    def write(self, seconds: float) -> None:
        """Log the progress of the last `seconds` seconds."""
        if self.newest is None:
            if self.is_at_head:
                log(_apply_log, logging.INFO, _WAITS)
            else:
                log(_apply_log, logging.INFO, "nothing applied yet", step=self._doing)
            return
        now, ledger = self.newest, self.newest.ledger
        rows, commits = now.rows - self._before[0], now.commits - self._before[1]
        read = now.ways.copy()
        ways = read.since(self._ways)
        self._before, self._ways = (now.rows, now.commits), read
        for table, load in list(self._loads.items()):
            log(
                *(_apply_log, logging.INFO, "loading"),
                table=table,
                rows=load.rows,
                rows_per_s=round(load.rate),
            )
        log(
            _apply_log,
            logging.INFO,
            "applied" if commits or rows or not self.is_at_head else _WAITS,
            **({} if self.is_at_head else {"step": self._doing}),
            rows=rows,
            commits=commits,
            rows_per_s=round(rows / seconds, 1),
            driver_rows=ways.by_driver.total(),
            **_by_table(ways, ledger.source),
            lag_s=self.lag,
            position=f"{ledger.epoch}/{ledger.seq}",
            state=ledger.state,
            inexact_tables=len(ledger.inexact),
        )

    @property
    def lag(self) -> float:
        """Age of the newest applied commit in seconds, while more waits in Kafka; else 0."""
        if self.ledger is None:
            return 0.0
        return apply_lag(self.ledger, time.time(), is_behind=self._is_behind())

    @property
    def is_at_head(self) -> bool:
        """Say whether the last pass has come to the end of the cuts, and none is under way."""
        return self._caught_up >= self._began

    def _is_behind(self) -> bool:
        return not self.is_at_head and time.monotonic() - self._began > _BUSY_SECONDS


def _by_table(ways: Ways, source: str) -> dict[str, str]:
    """Name the tables of the most records that went one way, and the other."""
    out = {}
    for way, records in (("by_driver", ways.by_driver), ("by_tasks", ways.by_tasks)):
        most = records.most_common()
        named = [(table_text(topic.removeprefix(below(source))), n) for topic, n in most[:_NAMED]]
        if left := most[_NAMED:]:
            named.append((f"{len(left)} more", sum(n for _, n in left)))
        if named:
            out[way] = ", ".join(f"{name} {n:,}" for name, n in named)
    return out


def apply_lag(ledger: Ledger, wall: float, *, is_behind: bool) -> float:
    """Age of the newest applied commit, in seconds, while more waits in Kafka; else 0."""
    if not is_behind or not ledger.committed_at:
        return 0.0
    return round(max(0.0, wall - ledger.committed_at / 1e6), 1)
