"""How much memory `run` takes: by the size of a transaction, by tables, by columns.

    python benchmarks/memory.py [--max-size ROWS]

    size      transactions of 1 row, 10, 100 … up to --max-size (10 million take half an hour)
    tables    a few rows in each of 1 to 1,000 tables
    columns   tables of 2 to 1,600 columns, as many cells in all

Memory is the process's peak of resident memory (VmHWM) when everything is durable in Kafka.  The
reference is the first line of each table, in the same run.  At the end all topics are compared
with the source.
"""

# ruff: noqa: INP001, S608, T201  a command, not a package; statements of its own

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import psycopg2
from report import Lines, Report, finish, number, parser, ratio
from rig import Rig, ask, drop_slot, rig, unique, wal_end
from workloads import TABLES, Table, compare_topics, make_tables, truth

_COUNTED: Final = 10  # tables


@dataclass(frozen=True)
class Point:
    """What one run took: MB at its peak, rows a second, CPU-s/Mrow."""

    x: int
    rows: int
    megabytes: float
    rate: float
    cpu: float


def drained(at: Rig, source: str, x: int, tables: Sequence[Table], work: list[str]) -> Point:
    """Let `run` bring what statements do into Kafka, and compare."""
    make_tables(source, tables)
    config = at.configuration(unique("memory"), source)
    at.call("slot", "create", config=config)
    with closing(psycopg2.connect(source)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        for statement in work:
            cursor.execute(statement)
    rows = sum(int(ask(source, f"SELECT count(*) FROM {t.name}")[0][0]) for t in tables)
    # To count the records of a thousand topics takes as long as to write them.
    expected = rows if len(tables) <= _COUNTED else None
    found = at.drain(config, wal_end(source), url=source, expected=expected)
    compare_topics(at, config.stem, truth(source, Counter(c=rows), tables))
    drop_slot(source, config.stem)
    print(f"{x:,}: {rows:,} rows are equal, {found.megabytes:.0f} MB")
    cost = found.cost() if expected else None
    rate, cpu = (cost.rate, cost.own) if cost else (0.0, found.samples[-1].own * 1e6 / rows)
    return Point(x, rows, found.megabytes, rate, cpu)


def by_size(at: Rig, size: int, least: int) -> Point:
    """Transactions of a size, at least so many rows in all."""
    values = "g, 1, g * 1.25, ''some text '' || g, now(), true"
    times = max(least // size, 1)
    loop = (
        f"DO $$ BEGIN FOR n IN 0 .. {times - 1} LOOP "
        f"EXECUTE format('INSERT INTO t0 SELECT {values} FROM generate_series(%s, %s) g', "
        f"n::bigint * {size} + 1, (n::bigint + 1) * {size}); COMMIT; END LOOP; END $$"
    )
    return drained(at, at.database(), size, TABLES[:1], [loop])


def by_tables(at: Rig, count: int, rows: int) -> Point:
    """Rows in turns over so many tables, all of one transaction in one table."""
    tables = [Table(f"t{n}") for n in range(count)]
    each = max(rows // count, 5)
    values = "g, 1, g * 1.25, 'some text ' || g, now(), true"
    work = [
        f"INSERT INTO t{n} SELECT {values} FROM generate_series(1, {each}) g" for n in range(count)
    ]
    return drained(at, at.database(), count, tables, work)


def by_columns(at: Rig, count: int, cells: int) -> Point:
    """A table of so many columns."""
    columns = (("id", "bigint"), *((f"c{n}", "int") for n in range(1, count)))
    values = ", ".join(["g", *(f"mod(g * {n}, 1000)::int" for n in range(1, count))])
    rows = max(cells // count, 100)
    work = [
        f"INSERT INTO t0 SELECT {values} FROM generate_series({n}, {min(n + 99, rows)}) g"
        for n in range(1, rows + 1, 100)
    ]
    return drained(at, at.database(), count, [Table("t0", columns)], work)


def tell(report: Report, title: str, what: str, points: Sequence[Point]) -> None:
    """Add a table and a plot."""
    first = points[0].megabytes
    report.table(
        title,
        [what, "rows in all", "MB", "to the first", "krow/s", "CPU-s/Mrow"],
        [
            [f"{p.x:,}", f"{p.rows:,}", number(p.megabytes), ratio(p.megabytes, first),
             number(p.rate / 1000) if p.rate else "–", number(p.cpu)]
            for p in points
        ],
        is_written=what == "columns",  # the plots say it; sizing takes the figure of wide tables
    )  # fmt: skip
    report.plots.append(Lines(f"{title}: MB", what, {"run": [(p.x, p.megabytes) for p in points]}))


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--max-size", type=int, default=3_000_000, help="of a transaction")
    options.add_argument("--by", choices=["size", "tables", "columns"], action="append")
    given = options.parse_args()
    report = Report("memory")
    with rig(given.set) as at:
        measure(at, report, given)
    report.note("All topics were compared with the source.", is_written=False)
    report.note(
        f"CPU is from the first record in Kafka on, of more than {_COUNTED} tables with the start."
    )
    finish(report, given)


def measure(at: Rig, report: Report, given: argparse.Namespace) -> None:
    """Take the points that were asked for."""
    wanted = given.by or ["size", "tables", "columns"]
    if "size" in wanted:
        most, least = (10_000, 2_000) if given.quick else (given.max_size, 200_000)
        sizes = [10**n for n in range(8) if 10**n < most and not (given.quick and n % 4)]
        points = [by_size(at, size, least) for size in [*sizes, most]]
        tell(report, "Memory of `run` by the size of a transaction", "rows a transaction", points)
    if "tables" in wanted:
        counts = (1, 20) if given.quick else (1, 10, 100, 1000)
        points = [by_tables(at, n, 2_000 if given.quick else 50_000) for n in counts]
        tell(report, "Memory of `run` by tables", "tables", points)
    if "columns" in wanted:
        counts = (2, 200) if given.quick else (2, 20, 200, 1600)
        points = [by_columns(at, n, 20_000 if given.quick else 1_000_000) for n in counts]
        tell(report, "Memory of `run` by columns", "columns", points)


if __name__ == "__main__":
    main()
