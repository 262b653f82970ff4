"""What tables cost that nobody changes: start, CPU at rest, and CPU while another table streams.

    python benchmarks/idle.py [--tables N] [--seconds N]

The same is done with one table and with `--tables`, all but one of them idle:

    first start   from the start of the process until every (empty) table is loaded
    start         of the next process, until a row that was committed before is readable
    topics        made by an AdminClient alone, until the brokers show them
    at rest       CPU of `run`, walsender and broker, as a share of a core, once the start is over
    watched       CPU of `run` more than at rest, while `/metrics` is scraped every five seconds,
                  and while its page is open
    streaming     CPU-seconds of `run` per million rows of the one table, and rows per second from
                  the commit's begin until they are readable; the same while the page is read

One table is the reference, in the same run.  At the end all topics are compared with the source.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.request import urlopen

from report import Report, finish, number, parser, ratio
from rig import (
    GAUSS_CDC,
    Rig,
    cpu,
    drop_slot,
    newest_cut,
    program,
    resident,
    rig,
    unique,
    wal_end,
    walsender,
)
from workloads import TABLES, Table, compare_topics, make_tables, truth, w4

from gauss_cdc.config import load
from gauss_cdc.inspect.places import CutsStanding, Endpoints
from producer.kafka.topics import TopicAdmin, TopicSettings
from schemas.positions import Lsn

_PATIENCE: Final = 1800.0
_LOOK: Final = 0.02
_SCRAPE: Final = 5.0  # seconds between two
_PAGE: Final = 2.0
_SETTLED: Final = 10.0  # seconds until what belongs to the start is over


@dataclass(frozen=True)
class Idle:
    """What so many tables cost."""

    first: float  # seconds
    first_cpu: float
    start: float
    start_cpu: float
    topics: float  # seconds
    at_rest: float  # shares of a core
    walsender: float
    broker: float
    scraped: float
    page: float
    streaming: tuple[float, float]  # CPU-s/Mrow, krow/s
    beside_page: tuple[float, float]  # the same
    megabytes: float


class Subject:
    """A `run` of so many tables."""

    def __init__(self, at: Rig, count: int) -> None:
        self._at, self._url, self._name = at, at.database(), unique("idle")
        self._tables = [TABLES[0], *(Table(f"i{n}") for n in range(1, count))]
        make_tables(self._url, self._tables)
        self._config = at.configuration(self._name, self._url)
        self._log = self._config.with_suffix(".log")
        self._rows = 0
        with closing(socket.create_server(("127.0.0.1", 0))) as made:
            self._listen = f"127.0.0.1:{made.getsockname()[1]}"

    def measure(self, rows: int, seconds: float) -> Idle:
        """Start twice, rest, stream, compare."""
        command = (*GAUSS_CDC, "run", "--config", str(self._config), "--listen", self._listen)
        with Endpoints(load(self._config)) as places:
            begin = time.monotonic()
            with program(command, self._log) as child:
                self._until(child, places, lambda cuts: bool(cuts.loads) and not cuts.is_loading)
                first, first_cpu = time.monotonic() - begin, cpu(child.pid)
            self._commit(1)
            end = wal_end(self._url)
            begin = time.monotonic()
            with program(command, self._log) as child:
                self._reach(child, places, end)
                start, start_cpu = time.monotonic() - begin, cpu(child.pid)
                time.sleep(_SETTLED)
                before = self._used(child.pid)
                time.sleep(seconds)
                rest = [b - a for a, b in zip(before, self._used(child.pid), strict=True)]
                scraped, page = (
                    self._watched(child.pid, path, every, seconds) - rest[0] / seconds
                    for path, every in (("metrics", _SCRAPE), ("facts", _PAGE))
                )
                streaming = self._stream(child, places, rows)
                with self._reading():
                    beside_page = self._stream(child, places, rows)
                megabytes = resident(child.pid)
        done = Counter(c=self._rows)
        records = compare_topics(self._at, self._name, truth(self._url, done, self._tables))
        print(f"tables {len(self._tables):,}: {records:,} records are equal")
        drop_slot(self._url, self._name)
        own, sender, broker = (used / seconds for used in rest)
        return Idle(
            first, first_cpu, start, start_cpu, self._topics(), own, sender, broker, scraped, page,
            streaming, beside_page, megabytes,
        )  # fmt: skip

    def _stream(
        self, child: subprocess.Popen[bytes], places: Endpoints, rows: int
    ) -> tuple[float, float]:
        used, begin = cpu(child.pid), time.monotonic()
        self._commit(rows)
        self._reach(child, places, wal_end(self._url))
        seconds = time.monotonic() - begin
        return (cpu(child.pid) - used) * 1e6 / rows, rows / seconds / 1e3

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read the page's facts again and again."""
        ends = threading.Event()

        def read() -> None:
            while not ends.wait(_PAGE):
                self._get("facts")

        with ThreadPoolExecutor(1) as pool:
            reads = pool.submit(read)
            try:
                yield
            finally:
                ends.set()
            reads.result()

    def _get(self, path: str) -> None:
        with urlopen(f"http://{self._listen}/{path}", timeout=60) as answer:
            answer.read()

    def _topics(self) -> float:
        """Make as many topics as a first start does, beside nothing else."""
        admin = TopicAdmin(load(self._config).kafka.client_settings(), TopicSettings())
        prefix = unique("topics")
        begin = time.monotonic()
        admin.ensure(f"{prefix}.{table.name}" for table in self._tables)
        return time.monotonic() - begin

    def _watched(self, pid: int, path: str, every: float, seconds: float) -> float:
        """Return the share of a core while an address is asked again and again."""
        begin, used = 0.0, 0.0
        end = time.monotonic() + 2 * seconds
        while (now := time.monotonic()) < end:
            self._get(path)
            if not begin and now > end - seconds:  # what the first questions cost is over
                begin, used = now, cpu(pid)
            time.sleep(every)
        return (cpu(pid) - used) / (time.monotonic() - begin)

    def _commit(self, rows: int) -> None:
        w4(self._url, rows, first=self._rows + 1)
        self._rows += rows

    def _used(self, pid: int) -> tuple[float, float, float]:
        sender = walsender(self._url, self._name)
        return cpu(pid), cpu(sender), cpu(self._at.broker) if self._at.broker else 0.0

    def _reach(self, child: subprocess.Popen[bytes], places: Endpoints, end: Lsn) -> None:
        self._until(child, places, lambda cuts: cuts.resume >= end)

    def _until(
        self,
        child: subprocess.Popen[bytes],
        places: Endpoints,
        is_so: Callable[[CutsStanding], bool],
    ) -> None:
        end = time.monotonic() + _PATIENCE
        while (cuts := newest_cut(places)) is None or not is_so(cuts):
            if child.poll() is not None or time.monotonic() > end:
                raise SystemExit(self._log.read_text("utf-8")[-3000:])
            time.sleep(_LOOK)


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--tables", type=int, default=2_000)
    options.add_argument("--rows", type=int, default=500_000, help="that stream")
    options.add_argument("--seconds", type=float, default=30.0, help="at rest")
    given = options.parse_args()
    if given.quick:
        given.tables, given.rows, given.seconds = 50, 5_000, 2.0
    report = Report("idle")
    with rig(given.set) as at:
        one, many = (Subject(at, n).measure(given.rows, given.seconds) for n in (1, given.tables))
    lines: list[tuple[str, float, float]] = [
        ("first start, s", one.first, many.first),
        ("… CPU-s of run", one.first_cpu, many.first_cpu),
        ("topics alone, s", one.topics, many.topics),
        ("start, s", one.start, many.start),
        ("… CPU-s of run", one.start_cpu, many.start_cpu),
        ("at rest: run, % of a core", one.at_rest * 100, many.at_rest * 100),
        ("streaming: run, CPU-s/Mrow", one.streaming[0], many.streaming[0]),
        ("… krow/s", one.streaming[1], many.streaming[1]),
        ("… the page is read: CPU-s/Mrow", one.beside_page[0], many.beside_page[0]),
        ("… krow/s", one.beside_page[1], many.beside_page[1]),
        ("memory of run, MB", one.megabytes, many.megabytes),
    ]
    beside: list[tuple[str, float, float]] = [
        ("walsender, %", one.walsender * 100, many.walsender * 100),
        ("broker, %", one.broker * 100, many.broker * 100),
        ("watched: /metrics, % more", one.scraped * 100, many.scraped * 100),
        ("watched: the page, % more", one.page * 100, many.page * 100),
    ]
    head = ["", "1 table", f"{given.tables:,} tables", "ratio"]
    for title, some in (("What idle tables cost", lines), ("Others at rest", beside)):
        report.table(
            title,
            head,
            [[name, number(a), number(b), ratio(b, a)] for name, a, b in some],
            is_written=some is lines,
        )
    report.note("All topics were compared with the source.", is_written=False)
    finish(report, given)


if __name__ == "__main__":
    main()
