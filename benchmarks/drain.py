"""How fast changes get from PostgreSQL into Kafka, and what a row costs.

    python benchmarks/drain.py [--rows N] [--rounds N] [--debezium [apicurio|cheap]]

All readers drain the same WAL through slots of one position, one after the other, in an order
that is reversed each round:

    pg_recvlogical   PostgreSQL's own client, into /dev/null: no decoding, no Kafka
    run              gauss-cdc run, exactly-once on; --also adds it with other settings
    Debezium         on Kafka Connect, tuned; its jars are fetched. Its warm half is a line of its
                     own: the JVM compiles while it begins

W4: inserts into one table of 6 columns, 100 to 1,000 rows a transaction.
W5: 70/20/10 insert/update/delete over 5 tables, about 5 rows a transaction.

Rates are from the first record in Kafka to the last, costs are CPU-seconds per million rows:
`own` of the reader's whole process, walsender and broker apart.  At the end all topics of `run`
are read and compared with the source, operation by operation and row by row.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from debezium import CONVERTERS, THROUGHPUT, debezium, described, prepare
from report import Bars, Report, finish, number, parser, ratio
from rig import (
    PUBLICATION,
    Cost,
    Rig,
    Run,
    Settings,
    ask,
    drop_slot,
    merged,
    middle,
    program,
    rig,
    setting,
    unique,
    wal_end,
    who_makes_rows,
)
from workloads import WORKLOADS, Truth, compare_topics, make_tables, truth

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints
from schemas.positions import Lsn

_FIRST = "pg_recvlogical"
_WARM = "warm half"


@dataclass
class Reader:
    """One contestant: how it drains, and what it did so far."""

    name: str
    drain: Callable[[int], Run]  # of a round
    runs: list[Run]

    def lines(self) -> Iterator[tuple[str, list[Cost]]]:
        """Its line of the table, and that of a warm JVM."""
        yield self.name, [run.cost() for run in self.runs]
        if self.name.startswith("Debezium"):
            yield f"{self.name}, {_WARM}", [run.cost(0.5) for run in self.runs]


class Workload:
    """One range of WAL, a slot at its begin for each reader and round, and who drains it."""

    def __init__(
        self, at: Rig, name: str, given: argparse.Namespace, also: Mapping[str, Settings]
    ) -> None:
        """`also`: further variants of `run` by name."""
        self._at, self.name = at, name
        self.url = at.database()
        make_tables(self.url)
        variants = {"run": {}, **{f"run, {title}": settings for title, settings in also.items()}}
        self._files = {
            (title, number): at.configuration(unique(name), self.url, settings)
            for title, settings in variants.items()
            for number in range(given.rounds)
        }
        for path in self._files.values():
            at.call("slot", "create", config=path)
        self._slot = next(iter(self._files.values())).stem
        if given.profile:
            self._profiled = at.configuration(unique(name), self.url)
            at.call("slot", "create", config=self._profiled)
        self._copies = {
            (title, number): self._copy()
            for title in (_FIRST, *(f"Debezium, {c}" for c in given.debezium))
            for number in range(given.rounds)
        }
        done = WORKLOADS[name](self.url, given.rows)
        self.end = wal_end(self.url)
        self.truth: Truth = truth(self.url, done)
        self.makers: dict[str, str] = {}  # who made the rows of each variant of `run`
        self.readers: list[Reader] = []
        if shutil.which(_FIRST):
            self.readers.append(Reader(_FIRST, self._recvlogical, []))
        self.readers += [Reader(title, partial(self._ours, title), []) for title in variants]
        self.readers += [
            Reader(f"Debezium, {c}", partial(self._debezium, c), []) for c in given.debezium
        ]

    def round(self, number: int) -> None:
        """Let everybody drain once."""
        for reader in reversed(self.readers) if number % 2 else self.readers:
            reader.runs.append(reader.drain(number))

    def profile(self) -> tuple[dict[str, float], int]:
        """CPU-seconds of the main thread by module, and how many transactions they were for.

        From the first record in Kafka on.
        One more run, which counts for nothing else: to be asked costs, too.
        """
        config = self._profiled
        out = config.with_suffix(".samples")
        sampled = (sys.executable, str(Path(__file__).parent / "sampled.py"), str(out))
        run = self._at.drain(
            config, self.end, url=self.url, expected=self.truth.changes, program_of=sampled
        )
        first = run.began + next(s.at for s in run.samples if s.rows)
        last = run.began + run.samples[-1].at
        found: dict[str, float] = {}
        for at, where, used in json.loads(out.read_text("utf-8")):
            if first <= at <= last:
                found[where] = found.get(where, 0.0) + used
        drop_slot(self.url, config.stem)
        with Endpoints(load(config)) as places:
            cuts = places.cuts()
            assert cuts is not None
            return found, cuts.seq

    def _copy(self) -> str:
        name = unique(self.name)
        ask(self.url, "SELECT pg_copy_logical_replication_slot(%s, %s)", self._slot, name)
        return name

    def _ours(self, title: str, number: int) -> Run:
        path = self._files[title, number]
        run = self._at.drain(path, self.end, url=self.url, expected=self.truth.changes)
        records = compare_topics(self._at, path.stem, self.truth)
        print(f"{self.name}, round {number + 1}: {title}: {records:,} records are equal")
        drop_slot(self.url, path.stem)
        self.makers[title] = who_makes_rows(path)
        return run

    def _debezium(self, converter: str, number: int) -> Run:
        slot = self._copies[f"Debezium, {converter}", number]
        at, done = self._at, self.truth.changes
        with debezium(at, self.url, slot, tuning=THROUGHPUT, converter=converter) as pid:
            run = at.watch(
                None, pid, url=self.url, slot=slot,
                rows=lambda: at.records(slot), is_over=lambda found: found >= done,
            )  # fmt: skip
        if converter == "apicurio":
            compare_topics(at, slot, self.truth)
        drop_slot(self.url, slot)
        return run

    def _recvlogical(self, number: int) -> Run:
        slot = self._copies[_FIRST, number]
        run = recvlogical(self._at, self.url, slot, self.end, self.truth.changes)
        drop_slot(self.url, slot)
        return run


def recvlogical(at: Rig, url: str, slot: str, end: Lsn, done: int) -> Run:
    """Let PostgreSQL's own client read up to a position."""
    command = [_FIRST, "-d", url, "-S", slot, "--start", "-f", "/dev/null",
               "-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}",
               f"--endpos={end}"]  # fmt: skip
    with program(command, at.folder / "recvlogical.log") as child:
        return at.watch(
            None, child.pid, url=url, slot=slot,
            # It ends by itself, and says nothing meanwhile: its rate is over the whole run.
            rows=lambda: 0 if child.poll() is None else done,
            is_over=lambda found: found > 0,
        )  # fmt: skip


def rows_of(workload: Workload) -> Iterator[list[str]]:
    """Lines of the table; a ratio is the median of the rounds' ratios."""
    lines = [line for reader in workload.readers for line in reader.lines()]
    bases = [next((costs for name, costs in lines if name == _FIRST), None)]
    bases.append(next((costs for name, costs in lines if name.endswith(_WARM)), None))
    for name, costs in lines:
        cost = middle(costs)
        ratios = [
            median(c.rate / b.rate for c, b in zip(costs, base, strict=True)) if base else None
            for base in bases
        ]
        yield [
            name,
            number(cost.rate / 1000),
            *("–" if each is None else ratio(each, 1) for each in ratios),
            *(number(value) for value in (cost.own, cost.walsender, cost.broker)),
            number(cost.megabytes),
        ]


def by_module(profile: Mapping[str, float], rows: int, commits: int) -> list[list[str]]:
    """Where the main thread's time went: µs a row, and a transaction; what is small is one line."""
    least = sum(profile.values()) / 50
    lines = sorted(profile.items(), key=lambda item: -item[1])
    parts = [(name, used) for name, used in lines if used >= least]
    parts.append(("others", sum(used for _, used in lines if used < least)))
    parts.append(("all", sum(profile.values())))
    return [[name, number(s * 1e6 / rows), number(s * 1e6 / commits)] for name, s in parts]


def by_thread(reader: Reader, rows: int) -> list[list[str]]:
    """Where the reader's CPU went: µs a row of its threads, of the last round."""
    found = sorted(reader.runs[-1].threads.items(), key=lambda item: -item[1])
    return [
        [name, number(seconds * 1e6 / rows)] for name, seconds in found if seconds * 1e6 > rows / 20
    ]


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--workload", choices=list(WORKLOADS), action="append")
    options.add_argument(
        "--debezium", nargs="?", const="apicurio", choices=CONVERTERS, action="append", default=[],
        help="measure Debezium, too; `cheap`: with a converter that does the least",
    )  # fmt: skip
    options.add_argument(
        "--also", nargs=2, metavar=("NAME", "KEY=VALUE"), action="append", default=[],
        help="measure `run` with a setting, too; a name may be repeated",
    )  # fmt: skip
    options.add_argument(
        "--profile", action="store_true", help="show where the main thread's time goes, too"
    )
    given = options.parse_args()
    if given.quick:
        given.rows, given.rounds = min(given.rows, 20_000), 1
    also: dict[str, Settings] = {}
    for name, text in given.also:
        also[name] = merged(also.get(name, {}), setting(text))
    report = Report("drain")
    makers: dict[str, str] = {}
    with rig(given.set) as at:
        prepare(at, given.debezium)
        for name in given.workload or WORKLOADS:
            workload = Workload(at, name, given, also)
            for turn in range(given.rounds):
                workload.round(turn)
            makers = workload.makers
            done = workload.truth.changes
            head = ["reader", "krow/s", "to pg_recvlogical", "to warm Debezium",
                    "own CPU-s/Mrow", "walsender", "broker", "MB"]  # fmt: skip
            title = f"{name.upper()}, {done:,} changes, median of {given.rounds} rounds"
            lines = list(rows_of(workload))
            report.table(title, head, lines)
            report.plots.append(
                Bars(
                    f"{name.upper()}: thousand rows a second",
                    {line[0]: float(line[1].replace(",", "")) for line in lines},
                )
            )
            ours = next(reader for reader in workload.readers if reader.name == "run")
            report.table(
                f"{name.upper()}: CPU of `run` by thread", ["thread", "µs a row"],
                by_thread(ours, done), is_written=False,
            )  # fmt: skip
            if given.profile:
                profile, commits = workload.profile()
                report.table(
                    f"{name.upper()}: main thread of `run` by module",
                    ["module", "µs a row", "µs a transaction"],
                    by_module(profile, done, commits),
                    is_written=False,  # for who works on `run`; it changes with each module
                )
    for title, maker in makers.items():
        report.note(f"`{title}`: rows were made by {maker}.")
    report.note(
        "Every record of `run`'s topics (and of Debezium's with Apicurio's converter) was read and "
        "compared with the source.",
        is_written=False,
    )
    if given.debezium:
        report.note(described(THROUGHPUT), is_written=False)
    for name in also:
        settings = ", ".join(text for title, text in given.also if title == name)
        report.note(f"`run, {name}`: with {settings}.")
    finish(report, given)


if __name__ == "__main__":
    main()
