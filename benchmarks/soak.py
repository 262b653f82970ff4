"""Whether `run` and `apply` stay as they are: memory, descriptors and threads under a steady load.

    python benchmarks/soak.py [--minutes N] [--rate N] [--each SECONDS] [--out FILE]

`--rate` rows a second are inserted, updated and deleted in transactions of six, in two tables;
rows older than a minute are deleted, so that what is measured does not grow with the tables.
Each process is looked at every `--each` seconds; `--out` gets the looks as they come.
The slope is of a line through the looks of the second half.  At the end the target is compared
with the source.
"""

# ruff: noqa: INP001, S608, T201  a command, not a package; statements of its own

from __future__ import annotations

import argparse
import time
from collections import Counter
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Final

import psycopg2
from report import Lines, Report, finish, number, parser
from rig import GAUSS_CDC, Rig, drop_slot, members, program, resident, rig, unique
from workloads import TABLES, compare_copy, make_tables

_WARM: Final = 10.0  # minutes
_SIZE: Final = 6  # changes of a transaction
_KEPT: Final = 60.0  # seconds after which a row is deleted
_VALUES: Final = "g, 7, g * 1.25, repeat('some text ', 1 + mod(g, 40)::int), now(), true"


@dataclass(frozen=True)
class Look:
    """One process, or a child of it: minutes since the start, MB, descriptors, threads."""

    who: str
    at: float
    megabytes: float
    files: int
    threads: int


def look(name: str, leader: int, at: float) -> list[Look]:
    """Look at a process and what it started; a name says which it is."""
    out = []
    for pid in members(leader):
        folder = Path(f"/proc/{pid}")
        try:
            command = (folder / "comm").read_text("ascii", "replace").strip()
            files, tasks = (len(list((folder / what).iterdir())) for what in ("fd", "task"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        who = name if pid == leader else f"{name}: {command}"
        out.append(Look(who, at, resident(pid, "VmRSS"), files, tasks))
    return out


class Load:
    """Rows that come, change and go at a fixed rate."""

    def __init__(self, url: str, rate: int) -> None:
        self._url, self._pause = url, _SIZE / rate
        self._kept = int(_KEPT * rate / 3)  # a third of the changes
        self._next = 1

    def go(self, until: float) -> None:
        """Commit until then."""
        begin, done = time.monotonic(), 0
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            while time.monotonic() < until:
                first, table = self._next, f"t{self._next // 2 % 2}"
                self._next += 2
                cursor.execute(
                    f"INSERT INTO {table} SELECT {_VALUES} FROM generate_series(%s, %s) g;"
                    f"UPDATE {table} SET a = a + 1 WHERE id IN (%s, %s);"
                    f"DELETE FROM {table} WHERE id <= %s",
                    (first, first + 1, first, first - 20, first - self._kept),
                )
                connection.commit()
                done += 1
                time.sleep(max(0.0, begin + done * self._pause - time.monotonic()))


def soak(at: Rig, given: argparse.Namespace) -> list[Look]:
    """Run both as long as asked for, and compare; what was seen."""
    source, target, name = at.database(), at.database(), unique("soak")
    make_tables(source, TABLES[:2])
    make_tables(target, TABLES[:2], published=False)
    own = {"target": {"dsn": target}, "spark": {"checkpoint": str(at.folder / name)}}
    path = at.configuration(name, source, own)
    at.first_load(path, url=source)
    commands = [(*GAUSS_CDC, command, "--config", str(path)) for command in ("run", "apply")]
    rows, seen = Load(source, given.rate), list[Look]()
    with (
        program(commands[0], path.with_suffix(".log")) as run,
        program(commands[1], path.with_suffix(".apply.log")) as apply,
    ):
        begin = time.monotonic()
        end = begin + given.minutes * 60
        while (now := time.monotonic()) < end:
            rows.go(min(now + given.each, end))
            minutes = (time.monotonic() - begin) / 60
            new = [*look("run", run.pid, minutes), *look("apply", apply.pid, minutes)]
            seen += new
            if given.out is not None:
                with given.out.open("a", encoding="utf-8") as out:
                    out.write("".join("\t".join(map(str, astuple(x))) + "\n" for x in new))
            for child in (run, apply):
                if child.poll() is not None:
                    raise SystemExit(f"{child.args!r} ended with {child.returncode}")
        at.call("wait", config=path)
    print(f"{compare_copy(source, target, TABLES[:2]):,} rows are equal")
    drop_slot(source, name)
    return seen


def slope(looks: list[Look], what: str) -> float:
    """How much it grows an hour, by the second half of the looks."""
    half = looks[len(looks) // 2 :]
    if len(half) < 2:
        return 0.0
    return linear_regression([x.at / 60 for x in half], [getattr(x, what) for x in half]).slope


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--rate", type=int, default=200, help="rows a second")
    options.add_argument("--each", type=float, default=30.0, help="seconds between two looks")
    options.add_argument("--out", type=Path, metavar="FILE", help="for the looks as they come")
    given = options.parse_args()
    if given.quick:
        given.minutes, given.each = 0.5, 2.0
    with rig(given.set) as at:
        seen = soak(at, given)
    report, lines, plot = Report("soak"), [], {}
    for who, looks in Counter(x.who for x in seen).items():
        if looks < max(Counter(x.who for x in seen).values()) / 2:
            continue  # a program that helps at the start
        mine = [x for x in seen if x.who == who]
        warm = next((x for x in mine if x.at >= _WARM), mine[-1])
        for what in ("megabytes", "files", "threads"):
            few = [number(float(getattr(x, what))) for x in (mine[0], warm, mine[-1])]
            lines.append([f"{who}, {what}", *few, f"{slope(mine, what):+.2f}"])
        plot[who] = [(x.at, x.megabytes) for x in mine]
    head = ["", "first", f"after {_WARM:.0f} min", "last", "slope, 1/h"]
    report.table(f"{given.minutes:g} minutes at {given.rate} rows/s", head, lines)
    report.plots.append(Lines("MB over time", "minutes", plot))
    finish(report, given)


if __name__ == "__main__":
    main()
