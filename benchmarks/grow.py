"""How the cost of a row in `apply` grows with the tables, and with the size of a transaction.

    python benchmarks/grow.py [--rows N] [--tables N,…] [--max-size ROWS] [--by tables] [--by size]

    tables    transactions of 5 rows, each in one table; 1 table, 10, 100 … --tables in turn, or
              the numbers that --tables names
    size      transactions of 1 row, 10, 100 … --max-size, in one table

Each line has `--rows` rows or more.  The topics are filled first; `apply` is measured from the end
of a warm-up, in which Spark starts and every table gets a row, to its last commit.  The reference
is the first line of each table, in the same run: a cost that does not grow stands around 1.  At
the end the target is compared with the source, row by row.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from apply import WARM, Applied, apply, locked, newest, warm_up
from report import Lines, Report, finish, number, parser, ratio
from rig import Rig, drop_slot, rig, unique, wal_end
from workloads import Table, compare_copy, make_tables, one_of_each, turns

_SMALL: Final = 5  # rows a transaction, where tables are counted


@dataclass(frozen=True)
class Point:
    """What `apply` took for so many rows."""

    x: int
    rows: int
    took: Applied

    @property
    def measured(self) -> float:
        """Rows that were measured."""
        return self.rows * self.took.share

    @property
    def micros(self) -> float:
        """µs a row, by the clock."""
        return self.took.seconds * 1e6 / self.measured

    @property
    def cpu(self) -> float:
        """CPU-s/Mrow of driver and JVM."""
        return self.took.cpu * 1e6 / self.measured


def applied(at: Rig, x: int, *, tables: int, size: int, rows: int) -> Point:
    """Fill topics by transactions of a size in so many tables, apply them, compare."""
    source, target = at.database(), at.database()
    mine = [Table(f"t{n}") for n in range(tables)]
    for url in (source, target):
        make_tables(url, [*mine, WARM], published=url == source)
    name = unique("grow")
    config = at.configuration(
        name, source, {"target": {"dsn": target}, "spark": {"checkpoint": str(at.folder / name)}}
    )
    at.first_load(config, url=source)
    one_of_each(source, mine)
    warm_up(source)
    at.drain(config, wal_end(source), url=source)
    warm = newest(config)
    done = turns(source, mine, size=size, rows=rows)
    at.drain(config, wal_end(source), url=source)
    drop_slot(source, name)
    with locked(target, WARM) as release:
        took = apply(config, warm, newest(config), release)
    equal = compare_copy(source, target, [*mine, WARM])
    print(f"{tables:,} tables, {size:,} rows a transaction: {equal:,} rows are equal")
    return Point(x, done.total(), took)


def tell(report: Report, what: str, points: Sequence[Point]) -> None:
    """Add a table and a plot."""
    first = points[0]
    report.table(
        f"`apply` by {what}",
        [what, "rows", "krow/s", "time of a row, to the first", "CPU-s/Mrow", "to the first",
         "driver MB", "JVM MB"],
        [
            [f"{p.x:,}", f"{p.rows:,}", number(1000 / p.micros), ratio(p.micros, first.micros),
             number(p.cpu), ratio(p.cpu, first.cpu), number(p.took.driver), number(p.took.jvm)]
            for p in points
        ],
        is_written=False,  # the plot says it
    )  # fmt: skip
    costs = {
        "time": [(float(p.x), p.micros) for p in points],
        "CPU": [(float(p.x), p.cpu) for p in points],
    }
    report.plots.append(Lines(f"apply by {what}: µs a row", what, costs))


def upto(most: int, step: int = 10) -> list[int]:
    """Powers up to a number, and the number."""
    found = [1]
    while found[-1] * step < most:
        found.append(found[-1] * step)
    return [*found, most]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=300_000, help="of each line, at least")
    options.add_argument("--tables", type=_numbers, default=[500], help="up to N, or N,N,…")
    options.add_argument("--max-size", type=int, default=3_000_000, help="of a transaction")
    options.add_argument("--by", choices=["tables", "size"], action="append")
    given = options.parse_args()
    if given.quick:
        given.rows, given.tables, given.max_size = 2_000, [1, 20], 10_000
    report = Report("grow")
    with rig(given.set) as at:
        ways: dict[str, tuple[str, list[int], Callable[[int], Point]]] = {
            "tables": (
                "tables",
                given.tables if len(given.tables) > 1 else upto(*given.tables),
                lambda n: applied(at, n, tables=n, size=_SMALL, rows=given.rows),
            ),
            "size": (
                "rows a transaction",
                [1, given.max_size] if given.quick else upto(given.max_size),
                lambda n: applied(at, n, tables=1, size=n, rows=given.rows),
            ),
        }
        for name in given.by or ways:
            what, numbers, point = ways[name]
            tell(report, what, [point(n) for n in numbers])
    report.note("Targets were compared with the source, row by row.", is_written=False)
    finish(report, given)


if __name__ == "__main__":
    main()
