"""How `apply` grows with the executors of a cluster, and what stays where it is.

    python benchmarks/scale.py [--rows N] [--workers 1,2,4] [--mixed]

A standalone Spark cluster of so many workers of one core applies one commit of `--rows` inserts
(--mixed: inserts, updates and deletes) that waits in Kafka, from the end of a warm-up.  Then it
does so again, and an executor is killed (SIGKILL) in the middle.  Between the jobs the driver and
the target's server work alone: that part no executor makes shorter.  Beside it, in the same
database: PostgreSQL's own `INSERT … SELECT` of as many rows.

Workers share this machine's cores with driver, server and broker.  What more cores would do is
computed from the CPU time of each part, see `modelled`.  At the end the
target is compared with the source, row by row.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import json
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from apply import WARM, locked, newest, wait_for_spark, warm_up
from report import Report, finish, number, parser, ratio
from rig import (
    GAUSS_CDC,
    Rig,
    Settings,
    ask,
    cpu,
    drop_slot,
    family_cpu,
    program,
    rig,
    session_cpu,
    unique,
    wal_end,
)
from workloads import TABLES, bulk_inserts, bulk_mixed, compare_copy, make_tables

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc_lab.services.cluster import EventLog, SparkCluster

_LOOK: Final = 0.05  # seconds
_PATIENCE: Final = 900.0
_MODELLED: Final = (1, 2, 4, 16, 64)  # cores


@dataclass(frozen=True)
class Spent:
    """CPU seconds until a moment (seconds of the wall clock)."""

    at: float
    driver: float
    executors: float
    server: float
    broker: float

    @property
    def each(self) -> tuple[float, ...]:
        """The seconds, without the moment."""
        return self.driver, self.executors, self.server, self.broker


@dataclass(frozen=True)
class Scaled:
    """What a commit took: seconds by the clock, CPU-s/Mrow within Spark's jobs and outside."""

    workers: int
    rows: int
    seconds: float
    in_jobs: float  # seconds
    inside: tuple[float, ...]  # driver, executors, server, broker
    outside: tuple[float, ...]
    insert: float  # seconds of INSERT … SELECT
    killed: float = 0.0  # seconds of the second time

    @property
    def alone(self) -> float:
        """Seconds a million rows in which no task runs."""
        return (self.seconds - self.in_jobs) * 1e6 / self.rows


class _Meter:
    """Who spent how much CPU so far."""

    def __init__(self, at: Rig, cluster: SparkCluster, url: str) -> None:
        self._at, self.cluster = at, cluster
        data = Path(ask(url, "SHOW data_directory")[0][0])
        self._server = int((data / "postmaster.pid").read_text().split()[0])
        self.samples: list[Spent] = []

    def sample(self, driver: int) -> None:
        """Look once."""
        self.samples.append(
            Spent(
                time.time(),
                session_cpu(driver),
                sum(map(session_cpu, self.cluster.leaders)),
                family_cpu(self._server),
                cpu(self._at.broker) if self._at.broker else 0.0,
            )
        )

    def between(self, begin: float, end: float) -> tuple[float, ...]:
        """Return the CPU seconds between two moments."""
        first, last = self._near(begin), self._near(end)
        return tuple(b - a for a, b in zip(first.each, last.each, strict=True))

    def _near(self, at: float) -> Spent:
        place = bisect_left([one.at for one in self.samples], at)
        return self.samples[min(place, len(self.samples) - 1)]


def spans(log: EventLog, begin: float, end: float) -> list[tuple[float, float]]:
    """Return when jobs ran between two moments: begin and end of each stretch, in order."""
    began: dict[int, float] = {}
    found = []
    for file in sorted(log.folder.iterdir()):
        for line in file.read_text("utf-8").splitlines():
            if line.startswith('{"Event":"SparkListenerJobStart"'):
                event = json.loads(line)
                began[event["Job ID"]] = event["Submission Time"] / 1000
            elif line.startswith('{"Event":"SparkListenerJobEnd"'):
                event = json.loads(line)
                found.append((began.pop(event["Job ID"]), event["Completion Time"] / 1000))
    out: list[tuple[float, float]] = []
    for first, last in sorted(found):
        if last < begin or first > end:
            continue
        if out and first <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], last)
        else:
            out.append((max(first, begin), min(last, end)))
    return out


@dataclass(frozen=True)
class _Waiting:
    """A commit that waits in Kafka."""

    source: str
    prefix: str
    rows: int
    warm: int  # transactions
    last: int


@contextmanager
def waiting(at: Rig, rows: int, *, mixed: bool, executors: int) -> Iterator[_Waiting]:
    """Fill topics; each executor gets a part of the warm-up, whose first one costs a second."""
    source, prefix = at.database(), unique("scale")
    make_tables(source, (*TABLES, WARM))
    config = at.configuration(prefix, source)
    at.first_load(config, url=source)
    warm_up(source, 2 * executors)
    at.drain(config, wal_end(source), url=source)
    warm = newest(config)
    done = (bulk_mixed if mixed else bulk_inserts)(source, rows)
    at.drain(config, wal_end(source), url=source)
    yield _Waiting(source, prefix, done.total(), warm, newest(config))
    drop_slot(source, prefix)


def apply_on(at: Rig, cluster: SparkCluster, work: _Waiting, *, kills: bool) -> Scaled:
    """Apply the commit on a cluster, and compare."""
    target, own = at.database(), unique("scale")
    make_tables(target, (*TABLES, WARM), published=False)
    log = cluster.log(own)
    options: Settings = dict(cluster.settings(log))
    config = at.configuration(
        own, work.source,
        {
            "source": {"slot": work.prefix}, "kafka": {"prefix": work.prefix},
            "target": {"dsn": target},
            "spark": {
                "checkpoint": str(at.folder / own),
                "master": options.pop("spark.master"), "options": options,
            },
        },
    )  # fmt: skip
    meter = _Meter(at, cluster, target)
    with locked(target, WARM) as release:
        began, ended = _apply(config, meter, log, work, release, kills=kills)
    compare_copy(work.source, target, (*TABLES, WARM))
    insert = _inserted(target)
    jobs = spans(log, began, ended)
    if not jobs:
        raise SystemExit("the driver took the commit by itself: measure more rows")
    share = 1e6 / work.rows
    whole = [used * share for used in meter.between(began, ended)]
    parts = zip(*(meter.between(*span) for span in jobs), strict=True)
    inside = tuple(sum(part) * share for part in parts)
    outside = tuple(a - b for a, b in zip(whole, inside, strict=True))
    in_jobs = sum(last - first for first, last in jobs)
    return Scaled(cluster.workers, work.rows, ended - began, in_jobs, inside, outside, insert)


def _apply(
    config: Path,
    meter: _Meter,
    log: EventLog,
    work: _Waiting,
    release: Callable[[], None],
    *,
    kills: bool,
) -> tuple[float, float]:
    """Return when the commit began to be applied, and when it was; in seconds of the wall clock."""
    said = config.with_suffix(".apply.log")
    cluster = meter.cluster
    os.environ.update(cluster.environment())
    command = (*GAUSS_CDC, "apply", "--config", str(config))
    began = 0.0
    end = time.monotonic() + _PATIENCE
    with Endpoints(load(config)) as places, program(command, said) as child:
        wait_for_spark(child.pid)
        while log.executors < cluster.workers:
            time.sleep(_LOOK)
        release()
        while True:
            meter.sample(child.pid)
            ledger = places.target()
            seq = ledger.seq if ledger is not None else 0
            if seq >= work.warm and not began:
                began, jobs = time.time(), len(log.jobs())
            if seq >= work.last:
                return began, time.time()
            if began and kills and len(log.jobs()) > jobs:
                cluster.kill_executor()
                kills = False
            if child.poll() is not None or time.monotonic() > end:
                raise SystemExit(said.read_text("utf-8")[-3000:])
            time.sleep(_LOOK)


def _inserted(url: str) -> float:
    """Seconds of PostgreSQL's own insert of the rows that a commit left, into a table like it."""
    ask(url, "CREATE TABLE floor (LIKE t0 INCLUDING ALL)")
    begin = time.monotonic()
    ask(url, "INSERT INTO floor SELECT * FROM t0")
    return time.monotonic() - begin


def modelled(one: Scaled, cores: int) -> float:
    """Return krow/s with so many cores for executors, and one each for driver, server and broker.

    A million rows take what no task runs in, and behind that the longest of four: the executors'
    CPU time over all cores, and the driver's, the server's and the broker's.  The driver writes
    by one connection, which is one process of the server.
    """
    driver, executors, server, broker = one.inside
    return 1000 / (one.alone + max(executors / cores, driver, server, broker))


def tell(report: Report, found: Sequence[Scaled]) -> None:
    """Add the tables."""
    first = found[0]
    report.table(
        "One commit on a cluster of workers of one core",
        ["workers", "rows", "krow/s", "to the first", "INSERT … SELECT (to it)", "in jobs s",
         "no task runs s", "an executor killed s"],
        [
            [str(one.workers), f"{one.rows:,}", number(one.rows / one.seconds / 1000),
             ratio(first.seconds, one.seconds),
             f"{number(one.insert)} s ({ratio(one.seconds, one.insert)})",
             number(one.in_jobs), number(one.seconds - one.in_jobs), number(one.killed)]
            for one in found
        ],
    )  # fmt: skip
    report.table(
        "CPU-s/Mrow, within jobs and outside",
        ["workers", "driver", "executors", "the target's server", "broker"],
        [
            [str(one.workers)]
            + [
                f"{number(inside)} + {number(outside)}"
                for inside, outside in zip(one.inside, one.outside, strict=True)
            ]
            for one in found
        ],
    )
    report.table(
        "Computed, not measured: krow/s by cores for executors, and a core for each other part",
        ["from the figures of", *map(str, _MODELLED)],
        [
            [f"{one.workers} workers", *(number(modelled(one, cores)) for cores in _MODELLED)]
            for one in found
        ],
    )


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="of the commit")
    options.add_argument("--workers", default="1,2,4", help="clusters to measure")
    options.add_argument("--mixed", action="store_true", help="updates and deletes, too")
    given = options.parse_args()
    if given.quick:
        given.rows, given.workers = 600_000, "2"  # fewer are the driver's
    report, found, sizes = Report("scale"), [], [*map(int, given.workers.split(","))]
    with (
        rig(given.set) as at,
        waiting(at, given.rows, mixed=given.mixed, executors=max(sizes)) as work,
    ):
        for workers in sizes:
            folder = at.folder / f"cluster-{workers}"
            folder.mkdir()
            with SparkCluster(folder, at.addresses, workers=workers) as cluster:
                plain = apply_on(at, cluster, work, kills=False)
                killed = apply_on(at, cluster, work, kills=True)
            found.append(replace(plain, killed=killed.seconds))
            print(f"{workers} workers: {number(work.rows / plain.seconds / 1000)} krow/s")
    tell(report, found)
    report.note("Targets were compared with the source, row by row.", is_written=False)
    finish(report, given)


if __name__ == "__main__":
    main()
