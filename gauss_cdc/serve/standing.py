"""What a look at source, Kafka and target finds, as metrics.

A look opens connections and threads at every place, so there is one at a time, and its answer is
given to everybody who asks within some seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gauss_cdc.config import Config
from gauss_cdc.inspect.places import ENDPOINTS, Endpoints, ReplicationStatus
from gauss_cdc.logs import log
from gauss_cdc.serve.table import STATUS, family
from producer.sources.base import SourceStanding
from schemas.version import VERSION

_log = logging.getLogger("gauss_cdc.metrics")

_FRESH: Final = 5.0  # seconds for which an answer is given again
_RATE_SECONDS: Final = 300.0  # over which the rate of the source's log is taken


class Gauges:
    """Metrics of one program that have one value each, or one by label."""

    def __init__(self, source: str, program: str) -> None:
        self._source, self._program = source, program

    def one(self, name: str, value: float | None) -> Iterator[Metric]:
        """A metric, unless its value is unknown."""
        if value is not None:
            yield from self.each(name, {(): value})

    def each(self, name: str, values: Mapping[tuple[str, ...], float | None]) -> Iterator[Metric]:
        """A metric with its known values, by the values of its own labels."""
        known = {labels: value for labels, value in values.items() if value is not None}
        if known:
            found = family(name)
            for labels, value in known.items():
                found.add_metric([self._source, *labels], float(value))  # type: ignore[attr-defined]
            yield found

    def of_tables(self, name: str, values: Mapping[str, float | None]) -> Iterator[Metric]:
        """A metric by table."""
        yield from self.each(name, {(table,): value for table, value in values.items()})

    def build(self) -> Iterator[Metric]:
        """Which program this is."""
        yield from self.each("build_info", {(self._program, VERSION): 1})


class WalLeft:
    """How long the source's log may still grow, at the rate of the last minutes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()  # monotonic seconds, bytes that are left

    def seconds(self, safe_bytes: int | None, now: float) -> float | None:
        """Note `safe_bytes`, left at `now` (monotonic); return for how long they last at this rate.

        None: unknown, or they do not become less.
        """
        if safe_bytes is None:
            self._seen.clear()
            return None
        self._seen.append((now, safe_bytes))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        if safe_bytes >= before or now <= since:
            return None
        return max(0, safe_bytes) * (now - since) / (before - safe_bytes)


def of_source(source: SourceStanding | None, left: WalLeft, gauges: Gauges) -> Iterator[Metric]:
    """What the source keeps for us, and for how long."""
    if source is None:
        return
    yield from gauges.one("retained_wal_bytes", source.retained_bytes)
    yield from gauges.one("slot_active", float(source.active))
    yield from gauges.one("slot_lost", float(source.wal_status == "lost"))
    yield from gauges.one("safe_wal_bytes", source.safe_bytes)
    yield from gauges.one("wal_left_seconds", left.seconds(source.safe_bytes, time.monotonic()))


def of_standing(
    standing: ReplicationStatus, gauges: Gauges, wal: WalLeft, kept: float
) -> Iterator[Metric]:
    """Source, Kafka, target, and what lies between them; `kept`: seconds of [kafka] retention."""
    yield from of_source(standing.source, wal, gauges)
    yield from of_target(standing, gauges, kept)
    yield from gauges.one("lag_bytes", standing.bytes_behind)
    yield from gauges.one("lag_csns", standing.csns_behind)
    if (cuts := standing.cuts) is not None:
        yield from gauges.one("cuts_age_seconds", time.time() - cuts.written_at / 1e6)
        yield from gauges.one("epoch", cuts.epoch)
        yield from gauges.one("kafka_seq", cuts.seq)
        yield from gauges.one("foreign_cuts", cuts.alarms)
        newest = max(cuts.written_at, standing.target.committed_at if standing.target else 0)
        yield from gauges.one("clock_ahead_seconds", max(0.0, newest / 1e6 - time.time()))
    loads = standing.cuts.under_way if standing.cuts is not None else ()
    yield from gauges.of_tables("load_rows", {str(load.table): load.rows for load in loads})
    left = {str(load.table): load.left_s for load in loads}
    yield from gauges.of_tables("load_left_seconds", left)


def of_target(standing: ReplicationStatus, gauges: Gauges, kept: float) -> Iterator[Metric]:
    """One target, and how far it is behind.  `kept`: seconds for which topics keep rows."""
    if behind := standing.seconds_behind:
        yield from gauges.one("retention_left_seconds", max(0.0, kept - behind))
    yield from gauges.one("lag_commits", standing.commits_behind)
    yield from gauges.one("lag_seconds", standing.seconds_behind)
    if (target := standing.target) is not None:
        yield from gauges.one("target_seq", target.seq)
        yield from gauges.one("target_exact", float(target.state == "EXACT"))
        yield from gauges.one("inexact_tables", len(target.inexact))
    met = standing.conflicts
    yield from gauges.of_tables("overwritten_rows", {t: one.overwritten for t, one in met.items()})
    yield from gauges.of_tables("missing_rows", {t: one.missing for t, one in met.items()})


class StandingMetrics(Collector):
    """Reads all servers; if one does not answer, the others are still reported."""

    def __init__(self, config: Config) -> None:
        self._config, self._gauges = config, Gauges(config.kafka.prefix, STATUS)
        self._wal = WalLeft()
        self._looking = threading.Lock()
        self._found: list[Metric] = []
        self._until = 0.0  # by the monotonic clock: for so long the answer is fresh

    def collect(self) -> list[Metric]:
        """Return what a look at all servers found; scrapes within `_FRESH` seconds share one."""
        with self._looking:
            if time.monotonic() >= self._until:
                self._found = list(self._look())
                self._until = time.monotonic() + _FRESH
            return self._found

    def _look(self) -> Iterator[Metric]:
        gauges = self._gauges
        with Endpoints(self._config) as places:
            standing = places.standing()
        yield from gauges.build()
        yield from gauges.one("up", float(not standing.down))
        yield from gauges.each("place_up", self._answered(standing))
        kept = self._config.kafka.retention.total_seconds()
        yield from of_standing(standing, gauges, self._wal, kept)

    def _answered(self, standing: ReplicationStatus) -> dict[tuple[str, ...], float | None]:
        answered: dict[tuple[str, ...], float | None] = {}
        for place in ENDPOINTS:
            if place == "target" and self._config.target is None:
                continue
            # The registry is asked for what Kafka holds.
            if place == "registry" and place not in standing.down and standing.cuts is None:
                continue
            answered[place,] = float(place not in standing.down)
            if place in standing.down:
                log(_log, logging.WARNING, "no answer", place=place, why=standing.down[place])
        return answered
