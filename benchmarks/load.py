"""How fast the first load is, into Kafka and into the target.

    python benchmarks/load.py [--rows N] [--rounds N]

One table of 6 columns that holds `--rows` rows.  In turns, in an order that is reversed each
round:

    copy out       psql -c 'copy t to stdout' to /dev/null
    copy, copy     psql -c 'copy t to stdout' | psql -c 'copy t from stdin', into an empty table
    run            the first `gauss-cdc run`: from its first record in Kafka to the load's end
    apply          the first `gauss-cdc apply` of that load: from its first row to its last

At the end topics and target are compared with the source, row by row.
"""

# ruff: noqa: INP001, S603, T201  a command, not a package; psql of the path

from __future__ import annotations

import subprocess
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import psycopg2
from apply import pipe
from report import Bars, Report, finish, number, parser, ratio
from rig import GAUSS_CDC, Rig, ask, drop_slot, newest_cut, program, rig, session_cpu, unique
from workloads import TABLES, bulk_inserts, compare_copy, compare_topics, make_tables, truth

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints

_PATIENCE: Final = 1800.0
_LOOK: Final = 0.02


@dataclass(frozen=True)
class Took:
    """Seconds of a load, those from the start of its process, its CPU-seconds."""

    seconds: float
    whole: float
    cpu: float


@dataclass
class Loads:
    """A source with its rows, and every way out of it."""

    at: Rig
    rows: int
    took: dict[str, list[Took]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source, self._copy = self.at.database(), self.at.database()
        make_tables(self.source, TABLES[:1])
        make_tables(self._copy, TABLES[:1], published=False)
        done = bulk_inserts(self.source, self.rows)
        ask(self.source, "VACUUM ANALYZE t0")
        self.truth = truth(self.source, Counter(r=done["c"]), TABLES[:1])

    def round(self, turn: int) -> None:
        """Go every way once."""
        ways = {
            "copy out": self.copy_out,
            "copy, copy": self.copy_copy,
            "run": self.run_and_apply,
        }
        for name in reversed(list(ways)) if turn % 2 else ways:
            ways[name]()

    def copy_out(self) -> None:
        begin = time.monotonic()
        command = ["psql", "-qX", "-d", self.source, "-c", "COPY t0 TO STDOUT"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        self._took("copy out", time.monotonic() - begin)

    def copy_copy(self) -> None:
        ask(self._copy, "TRUNCATE t0")
        begin = time.monotonic()
        pipe(self.source, self._copy, "t0")
        self._took("copy, copy", time.monotonic() - begin)

    def run_and_apply(self) -> None:
        """Load into Kafka, then from there into an empty target."""
        name, target = unique("load"), self.at.database()
        own = {
            "target": {"dsn": target},
            "spark": {"checkpoint": str(self.at.folder / name)},
        }
        config = self.at.configuration(name, self.source, own)
        self.run(config)
        compare_topics(self.at, name, self.truth)
        self.apply(config, target)
        compare_copy(self.source, target, TABLES[:1])
        print(f"{self.rows:,} rows are equal in Kafka and at the target")
        drop_slot(self.source, name)

    def run(self, config: Path) -> None:
        log, born = config.with_suffix(".log"), time.monotonic()
        command = (*GAUSS_CDC, "run", "--config", str(config))
        with Endpoints(load(config)) as places, program(command, log) as child:

            def is_loaded(_: int) -> bool:
                cuts = newest_cut(places)
                return cuts is not None and bool(cuts.loads) and not cuts.is_loading

            found = self.at.watch(
                child, child.pid, url=self.source, slot=config.stem, log=log,
                rows=lambda: self.at.records(config.stem), is_over=is_loaded,
            )  # fmt: skip
        cost = found.cost()
        self._took(
            "run", self.rows / cost.rate, time.monotonic() - born, cost.own * self.rows / 1e6
        )

    def apply(self, config: Path, target: str) -> None:
        log, born = config.with_suffix(".apply.log"), time.monotonic()
        command = (*GAUSS_CDC, "apply", "--config", str(config))
        began = used = 0.0
        with (
            closing(psycopg2.connect(target)) as connection,
            connection.cursor() as cursor,
            Endpoints(load(config)) as places,
            program(command, log) as child,
        ):
            connection.autocommit = True
            while True:
                if not began:
                    cursor.execute("SELECT to_regclass('t0') IS NOT NULL")
                    if cursor.fetchone() == (True,):
                        began, used = time.monotonic(), session_cpu(child.pid)
                ledger = places.target()
                if ledger is not None and ledger.state == "EXACT":
                    break
                if child.poll() is not None or time.monotonic() - born > _PATIENCE:
                    raise SystemExit(log.read_text("utf-8")[-3000:])
                time.sleep(_LOOK)
            now, spent = time.monotonic(), session_cpu(child.pid) - used
        self._took("apply", now - (began or born), now - born, spent)

    def _took(self, name: str, seconds: float, whole: float = 0.0, cpu: float = 0.0) -> None:
        self.took.setdefault(name, []).append(Took(seconds, whole or seconds, cpu))


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--rounds", type=int, default=2)
    given = options.parse_args()
    if given.quick:
        given.rows, given.rounds = min(given.rows, 20_000), 1
    report = Report("load")
    with rig(given.set) as at:
        loads = Loads(at, given.rows)
        for turn in range(given.rounds):
            loads.round(turn)
    lines, rates = [], {}
    for name in ("copy out", "copy, copy", "run", "apply"):
        took = loads.took[name]
        seconds = median(one.seconds for one in took)
        rates[name] = given.rows / seconds / 1000
        base = loads.took["copy out" if name in {"copy out", "run"} else "copy, copy"]
        share = median(b.seconds / one.seconds for b, one in zip(base, took, strict=True))
        cpu = median(one.cpu for one in took) * 1e6 / given.rows
        lines.append(
            [
                name,
                number(rates[name]),
                ratio(share, 1) if name in {"run", "apply"} else "1",
                number(cpu) if cpu else "–",
                number(median(one.whole for one in took)),
            ]
        )
    head = ["way", "krow/s", "of psql", "CPU-s/Mrow", "seconds with its start"]
    report.table(f"First load of {given.rows:,} rows, median of {given.rounds} rounds", head, lines)
    report.plots.append(Bars("First load: thousand rows a second", rates))
    report.note("`run` beside `copy out`, `apply` beside `copy, copy`.")
    report.note("Topics and target were compared with the source, row by row.", is_written=False)
    finish(report, given)


if __name__ == "__main__":
    main()
