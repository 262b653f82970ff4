"""`run` and `apply` as metrics: what their loops counted, read when it is scraped."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gauss_cdc.config import Config
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc.serve.counts import (
    BOUNDS,
    ApplyCounts,
    Latencies,
    RunCounts,
    Shown,
    Turns,
    by_table,
)
from gauss_cdc.serve.server import Application, is_well, serve
from gauss_cdc.serve.standing import Gauges, WalLeft, of_source
from gauss_cdc.serve.table import APPLY, RUN, family
from producer.core.loop import Progress as Streamed
from producer.errors import CdcError
from producer.sources.base import SourceStanding
from schemas.control import GAP
from spark_consumers.model import Ledger, Ways

_SELDOM: Final = 30.0  # seconds between two looks at the source: each is a login
_PATIENCE: Final = 2.0  # seconds for which a scrape waits for a look
_OLD: Final = 120.0  # seconds after which what a look found is not told any more


class SourceLook:
    """What the source keeps for us, asked while somebody scrapes, beside the scrape.

    One look at a time: a source that does not answer for half a minute hides no counter.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._thread: threading.Thread | None = None
        self._began = self._ended = float("-inf")  # monotonic seconds
        self.found: SourceStanding | None = None
        self.answers: bool | None = None  # None: not known

    def look(self) -> None:
        """Begin a look if one is due, and wait for it a moment; forget what is old."""
        now = time.monotonic()
        if self._thread is None and now - self._began >= _SELDOM:
            self._began = now
            self._thread = threading.Thread(target=self._ask, name="look", daemon=True)
            self._thread.start()
        if (thread := self._thread) is not None:
            thread.join(_PATIENCE)
        if time.monotonic() - self._ended > _OLD:
            self.found = None

    def _ask(self) -> None:
        try:
            with Endpoints(self._config) as places:
                self.found = places.source().standing()
            self.answers, self._ended = True, time.monotonic()
        except CdcError:
            self.answers = False
        finally:
            self._thread = None


def _histogram(name: str, source: str, counted: Latencies) -> Iterator[Metric]:
    made = family(name)
    assert isinstance(made, HistogramMetricFamily)
    sums = accumulate(counted.counts.copy())
    edges = [*map(str, BOUNDS), "+Inf"]
    made.add_metric([source], list(zip(edges, sums, strict=True)), counted.total)
    yield made


def _of_loop(counts: RunCounts | ApplyCounts, gauges: Gauges) -> Iterator[Metric]:
    ready = counts.ready()
    yield from gauges.build()
    yield from gauges.one("ready", float(is_well(ready)))
    yield from gauges.each("state", {(ready,): 1})
    yield from gauges.one("loop_age_seconds", counts.turns.age)


class RunMetrics(Collector):
    """What `run` counted."""

    def __init__(self, config: Config, counts: RunCounts) -> None:
        self._source, self._counts = config.kafka.prefix, counts
        self._gauges, self._shown = Gauges(self._source, RUN), Shown(config.serve.tables)
        self._look, self._wal = SourceLook(config), WalLeft()
        self._scraping = threading.Lock()

    def collect(self) -> list[Metric]:
        """Return the metrics of `run` for one scrape; two at once wait for each other."""
        with self._scraping:
            return list(self._found())

    def _found(self) -> Iterator[Metric]:
        counts, gauges, now = self._counts, self._gauges, self._counts.progress
        yield from _of_loop(counts, gauges)
        self._look.look()
        if self._look.answers is not None:
            yield from gauges.each("place_up", {("source",): float(self._look.answers)})
        yield from of_source(self._look.found, self._wal, gauges)
        yield from gauges.one("capture_lag_seconds", counts.lag)
        for name, behind in counts.behind().items():
            yield from gauges.one(name, behind)
        if counts.durable_at:
            yield from gauges.one("cuts_age_seconds", time.time() - counts.durable_at)
            yield from gauges.one("epoch", counts.epoch)
            yield from gauges.one("kafka_seq", now.seq)
        yield from gauges.one("read_rows_total", now.rows)
        yield from gauges.one("read_commits_total", now.commits)
        yield from gauges.one("retries_total", now.retries)
        yield from gauges.one("takeovers_total", now.takeovers)
        yield from _histogram("commit_to_kafka_seconds", self._source, counts.latencies)
        yield from self._of_tables()

    def _of_tables(self) -> Iterator[Metric]:
        gauges, shown, phases = self._gauges, self._shown, self._counts.progress.loads
        loads = {str(table): load for table, load in self._counts.loads.copy().items()}
        yield from gauges.each("tables", {(p,): n for p, n in Counter(phases.values()).items()})
        gaps = {table: 1.0 for table, phase in phases.items() if phase == GAP}
        yield from gauges.of_tables("table_gap", shown.summed(gaps))
        rows = {table: float(load.rows) for table, load in loads.items()}
        yield from gauges.of_tables("load_rows", shown.summed(rows))
        left = {table: seconds for table, load in loads.items() for seconds in load.left().values()}
        yield from gauges.of_tables("load_left_seconds", shown.greatest(left))
        records = by_table(self._counts.records.copy(), self._source)
        yield from gauges.of_tables("table_records_total", shown.summed(records))
        sizes = by_table(self._counts.bytes.copy(), self._source)
        yield from gauges.of_tables("table_bytes_total", shown.summed(sizes))
        yield from gauges.one("other_tables", shown.others)


class ApplyMetrics(Collector):
    """What `apply` counted."""

    def __init__(self, config: Config, counts: ApplyCounts) -> None:
        self._source, self._counts = config.kafka.prefix, counts
        self._kept = config.kafka.retention.total_seconds()
        self._gauges, self._shown = Gauges(self._source, APPLY), Shown(config.serve.tables)
        self._scraping = threading.Lock()

    def collect(self) -> list[Metric]:
        """Return the metrics of `apply` for one scrape; two at once wait for each other."""
        with self._scraping:
            return list(self._found())

    def _found(self) -> Iterator[Metric]:
        counts, gauges = self._counts, self._gauges
        yield from _of_loop(counts, gauges)
        yield from gauges.one("retries_total", counts.retries)
        yield from _histogram("commit_to_visible_seconds", self._source, counts.latencies)
        errors = self._shown.summed(counts.errors.copy())
        yield from gauges.of_tables("table_errors_total", errors)
        newest = counts.newest
        yield from gauges.one("applied_rows_total", newest.rows if newest else 0)
        yield from gauges.one("applied_commits_total", newest.commits if newest else 0)
        if newest is not None:
            yield from self._of_ways(newest.ways.copy())
        if counts.ledger is not None and counts.ledger.epoch:
            yield from self._of_target(counts.ledger)
        yield from gauges.one("other_tables", self._shown.others)

    def _of_target(self, ledger: Ledger) -> Iterator[Metric]:
        gauges, shown, lag = self._gauges, self._shown, self._counts.lag
        yield from gauges.one("lag_seconds", lag)
        if lag:
            yield from gauges.one("retention_left_seconds", max(0.0, self._kept - lag))
        yield from gauges.one("epoch", ledger.epoch)
        yield from gauges.one("target_seq", ledger.seq)
        yield from gauges.one("target_exact", float(ledger.state == "EXACT"))
        yield from gauges.one("inexact_tables", len(ledger.inexact))
        yield from gauges.one("fence", ledger.fence)
        yield from gauges.of_tables("table_inexact", shown.summed(dict.fromkeys(ledger.inexact, 1)))

    def _of_ways(self, ways: Ways) -> Iterator[Metric]:
        applied: dict[tuple[str, ...], float | None] = {
            (table, way): records
            for way, by_topic in (("driver", ways.by_driver), ("tasks", ways.by_tasks))
            for table, records in self._shown.summed(by_table(by_topic, self._source)).items()
        }
        yield from self._gauges.each("table_applied_total", applied)


def serve_run(
    config: Config,
    progress: Streamed,
    keep_step: Callable[[str], None],
    pages: Mapping[str, Application],
    *,
    by_csn: bool,
) -> RunCounts:
    """Serve probes, metrics and pages of `run`; return what counts for them."""
    turns, ready_lag = Turns(config.serve.stuck_after.total_seconds()), config.serve.ready_lag
    counts = RunCounts(
        progress, keep_step, turns, by_csn=by_csn, ready_lag=ready_lag.total_seconds()
    )
    _serve(config, "run", RunMetrics(config, counts), counts, pages)
    return counts


def serve_apply(
    config: Config, keep_step: Callable[[str], None], pages: Mapping[str, Application]
) -> ApplyCounts:
    """Serve probes, metrics and pages of `apply`; return what counts for them."""
    stuck_after = config.serve.stuck_after
    if config.target is not None:
        stuck_after += config.target.interval  # a lake's loop sleeps between two steps
    turns, ready_lag = Turns(stuck_after.total_seconds()), config.serve.ready_lag
    counts = ApplyCounts(keep_step, turns, ready_lag=ready_lag.total_seconds())
    _serve(config, "apply", ApplyMetrics(config, counts), counts, pages)
    return counts


def _serve(
    config: Config,
    program: str,
    metrics: Collector,
    of: RunCounts | ApplyCounts,
    pages: Mapping[str, Application],
) -> None:
    probes = {"/healthz": of.turns.health, "/readyz": of.ready}
    url = serve(config.serve, metrics, probes, pages)
    logging.getLogger(f"gauss_cdc.{program}").info("page, probes and metrics on %s", url)
