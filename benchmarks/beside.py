"""What a load costs everybody else: a table is read again while rows stream into it and another.

    python benchmarks/beside.py [--rows N] [--rate N] [--seconds N]

`run` and `apply` are processes.  Rows are committed into a small table at a fixed rate; how long
they take to be visible is measured, first without a load, then while the large table is read.
Two ways, each with a table of its own:

    point    the stream waits while a table is read: the way of keys that have no one text
    beside   ranges of the key stand between commits

Which one a table takes its replica identity decides here: an index, or the primary key.  At the end
the targets are compared with the source.
"""

# ruff: noqa: INP001  a command, not a package

from __future__ import annotations

import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import psycopg2
from latency import InTable, Source
from report import Report, finish, number, parser, ratio
from rig import GAUSS_CDC, Different, Rig, ask, drop_slot, program, rig, unique
from workloads import TABLES, compare_copy

_SUM = "SELECT count(*), sum(hashtext(large::text)::bigint) FROM large"
WAYS = ("point", "beside")
_LOOK = 0.2  # seconds between two looks at the slot


@dataclass
class Slot:
    """How much of its log the source keeps, at most, and when no load is open."""

    url: str
    most: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look until told to end."""
        with closing(psycopg2.connect(self.url)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            while not self._ended.wait(_LOOK):
                cursor.execute(
                    "SELECT (pg_current_wal_lsn() - min(confirmed_flush_lsn))::bigint"
                    " FROM pg_replication_slots WHERE database = current_database()"
                    " AND NOT temporary"
                )
                ((kept,),) = cursor.fetchall()
                self.most = max(self.most, kept or 0)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch as long as the block lasts."""
        thread = threading.Thread(target=self.watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()


class Both(Source):
    """A source with a large table besides."""

    def __init__(self, at: Rig, rows: int, *, size: int, by_index: bool) -> None:
        super().__init__(at, size)
        ask(self.url, "CREATE TABLE large (id bigint PRIMARY KEY, n int, c text, d timestamptz)")
        if by_index:
            ask(self.url, "ALTER TABLE large REPLICA IDENTITY USING INDEX large_pkey")
        ask(
            self.url,
            "INSERT INTO large SELECT g, g %% 1000, md5(g::text), now()"
            " FROM generate_series(1, %s) g",
            rows,
        )
        ask(self.url, "ANALYZE large")


@dataclass(frozen=True)
class Found:
    """One way: the load's rate, and the small table's rows in ms, without it and during it."""

    rate: float
    calm: list[float]
    loading: list[float]
    kept: int  # bytes of log, at most


def quantile(values: list[float], part: float) -> float:
    """A quantile of sorted values."""
    return values[min(int(len(values) * part), len(values) - 1)]


def measure(at: Rig, given: Namespace, *, by_index: bool) -> Found:
    """Measure one way; compare."""
    source, target, name = (
        Both(at, given.rows, size=5, by_index=by_index),
        at.database(),
        unique("b"),
    )
    own = {"target": {"dsn": target}, "spark": {"checkpoint": str(at.folder / name)}}
    path = at.configuration(name, source.url, own)
    source.commit(100, 0.1)
    commands = [(*GAUSS_CDC, command, "--config", str(path)) for command in ("run", "apply")]
    slot = Slot(source.url)
    with (
        program(commands[0], path.with_suffix(".log")),
        program(commands[1], path.with_suffix(".apply.log")),
    ):
        at.call("wait", "--timeout", "600s", config=path)
        with InTable(target) as observer:
            observer.wait(source.rows)
            calm = source.commit(given.rate, given.seconds)
            observer.wait(source.rows)
            at.call("snapshot", "--table", "public.large", config=path)
            began = time.monotonic()
            phases = []
            with slot.watched():
                while ask(source.url, "SELECT 1 FROM gauss_cdc.snapshot_requests"):
                    phases.append(source.commit(given.rate, 2.0))
                seconds = time.monotonic() - began
            observer.wait(source.rows)
            loading = sorted(t for phase in phases for t in observer.latencies(phase))
            found = Found(given.rows / seconds, observer.latencies(calm), loading, slot.most)
        at.call("wait", "--timeout", "600s", config=path)
    compare_copy(source.url, target, TABLES[:1])
    same = [ask(url, _SUM) for url in (source.url, target)]
    if same[0] != same[1]:
        raise Different(f"large: {same}")
    drop_slot(source.url, name)
    return found


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=2_000_000, help="of the large table")
    options.add_argument("--rate", type=int, default=1000, help="rows a second")
    options.add_argument("--seconds", type=float, default=20.0, help="without a load")
    options.add_argument("--way", choices=WAYS, action="append", help="only this; repeat it")
    given = options.parse_args()
    if given.quick:
        given.rows, given.seconds = 200_000, 3.0
    report, lines = Report("beside"), []
    with rig(given.set) as at:
        for way in given.way or WAYS:
            found = measure(at, given, by_index=way == "point")
            calm, loading = (quantile(v, 0.99) for v in (found.calm, found.loading))
            lines.append(
                [
                    way,
                    number(found.rate / 1000),
                    *(number(quantile(v, p)) for v in (found.calm, found.loading)
                      for p in (0.5, 0.99)),
                    ratio(loading, calm),
                    number(found.loading[-1]),
                    number(found.kept / 1e6),
                ]
            )  # fmt: skip
    head = ["way", "krow/s", "p50 ms", "p99", "p50 while loading", "p99", "p99 to p99", "most",
            "log kept, MB"]  # fmt: skip
    report.table(f"{given.rows:,} rows read again, {given.rate:,} rows/s beside them", head, lines)
    report.note("Targets were compared with the source.", is_written=False)
    finish(report, given)


if __name__ == "__main__":
    main()
