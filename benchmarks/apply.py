"""How fast `apply` brings changes from Kafka into a target, by the way they take.

    python benchmarks/apply.py [--rows N] [--path NAME]… [--also NAME KEY=VALUE]…

    short          5 tables, about 5 changes a transaction: inserts, updates, deletes
    inserts        inserts, 100 to 1,000 rows a transaction
    strict         as `short`, one target transaction for each of the source's; 50,000 at most
    bulk inserts   one transaction that inserts
    bulk mixed     one transaction of inserts, updates and deletes

--also applies the same topics with other settings, too: --also "without native" kafka.native=off

The topics are filled first; `apply` is measured from the end of a warm-up of 25,000 rows, which
starts Spark, to its last commit.  Beside it, in the same run:

    Spark counts   Kafka's floor on the JVM: spark.read of the same topics, sum of sizes, warm
    psql copy      `copy t to stdout | copy t from stdin` of what the tables hold at the end

At the end the target is compared with the source, row by row.
"""

# ruff: noqa: INP001, S608, T201  a command, not a package; statements of its own

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from report import Bars, Report, finish, number, parser, ratio
from rig import (
    GAUSS_CDC,
    Rig,
    Settings,
    ask,
    members,
    merged,
    program,
    resident,
    rig,
    session_cpu,
    setting,
    unique,
    wal_end,
)
from workloads import (
    TABLES,
    Table,
    bulk_inserts,
    bulk_mixed,
    compare_copy,
    make_tables,
    w4,
    w5,
)

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints

_WARM: Final = Table("w0")
_WARM_ROWS: Final = 25_000  # more than the driver takes: Spark's executors work, too
_LOOK: Final = 0.02
_PATIENCE: Final = 1800.0


@dataclass(frozen=True)
class Way:
    """A kind of changes, and settings for it."""

    work: Callable[[str, int], Counter[str]]
    strict: bool = False
    least: int = 0  # changes
    most: int = 1 << 40  # changes


PATHS: Final = {
    "short": Way(w5),
    "inserts": Way(w4),
    "strict": Way(w5, strict=True, most=50_000),
    "bulk inserts": Way(bulk_inserts, least=_WARM_ROWS),
    "bulk mixed": Way(bulk_mixed, least=2 * _WARM_ROWS),
}


@dataclass(frozen=True)
class Applied:
    """What a path did: seconds, CPU-seconds, memory in MB, and the references' rates."""

    changes: int
    seconds: float
    cpu: float
    driver: float
    jvm: float
    floor: dict[str, float]  # rows a second, CPU-s/Mrow
    copied: float  # rows a second


def measure(at: Rig, name: str, rows: int, also: Mapping[str, Settings]) -> dict[str, Applied]:
    """Fill topics, apply them, compare; `also`: further settings of `apply`, by name."""
    way = PATHS[name]
    source, other = at.database(), at.database()
    tables = (*TABLES, _WARM)
    make_tables(source, tables)
    make_tables(other, tables, published=False)
    prefix = unique("apply")
    config = at.configuration(prefix, source)
    at.call("slot", "create", config=config)
    warm_up(source)
    at.drain(config, wal_end(source), url=source)
    warm = newest(config)
    done = way.work(source, min(max(rows, way.least), way.most))
    at.drain(config, wal_end(source), url=source)
    last = newest(config)
    floor = counted(at, config)
    rate = copied(source, other)
    out = {}
    for title, settings in {name: {}, **{f"{name}, {t}": s for t, s in also.items()}}.items():
        target, own = at.database(), unique("apply")
        make_tables(target, tables, published=False)
        one = at.configuration(
            own, source, settings,
            {
                "source": {"slot": prefix}, "kafka": {"prefix": prefix},
                "target": {"dsn": target, "strict": way.strict},
                "spark": {"checkpoint": str(at.folder / own)},
            },
        )  # fmt: skip
        out[title] = Applied(done.total(), *apply(one, warm, last), floor, rate)
        equal = compare_copy(source, target, tables)
        print(f"{title}: {equal:,} rows are equal after {done.total():,} changes")
    ask(source, "SELECT pg_drop_replication_slot(%s)", prefix)
    return out


def warm_up(source: str) -> None:
    """Short transactions, then one that Spark's executors take."""
    row = "INSERT INTO w0 SELECT g, 1, 1, 'w', now(), true FROM generate_series"
    ask(source, f"DO $$ BEGIN FOR n IN 1 .. 200 LOOP {row}(-n, -n) g; COMMIT; END LOOP; END $$")
    ask(source, f"{row}(1, {_WARM_ROWS}) g")


def newest(config: Path) -> int:
    """Return the number of the newest source transaction in Kafka."""
    with Endpoints(load(config)) as places:
        cuts = places.cuts()
        assert cuts is not None
        return cuts.seq


def apply(config: Path, warm: int, last: int) -> tuple[float, float, float, float]:
    """Seconds and CPU from one transaction to another; peak memory of driver and JVM."""
    log = config.with_suffix(".apply.log")
    command = (*GAUSS_CDC, "apply", "--config", str(config))
    began = used = 0.0
    end = time.monotonic() + _PATIENCE
    with Endpoints(load(config)) as places, program(command, log) as child:
        while True:
            ledger = places.target()
            seq = ledger.seq if ledger is not None else 0
            if seq >= warm and not began:
                began, used = time.monotonic(), session_cpu(child.pid)
            if seq >= last:
                break
            if child.poll() is not None or time.monotonic() > end:
                raise SystemExit(log.read_text("utf-8")[-3000:])
            time.sleep(_LOOK)
        seconds, spent = time.monotonic() - began, session_cpu(child.pid) - used
        jvm = max(resident(pid) for pid in members(child.pid) if pid != child.pid)
        return seconds, spent, resident(child.pid), jvm


def copied(source: str, target: str) -> float:
    """Rows a second of psql from one database into another."""
    rows = sum(int(ask(source, f"SELECT count(*) FROM {t.name}")[0][0]) for t in TABLES)
    begin = time.monotonic()
    for table in TABLES:
        pipe(source, target, table.name)
    return rows / (time.monotonic() - begin)


def pipe(source: str, target: str, table: str) -> None:
    """Run `copy t to stdout | copy t from stdin`."""
    words = ["psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d"]
    out = subprocess.Popen(  # noqa: S603
        [*words, source, "-c", f"COPY {table} TO STDOUT"], stdout=subprocess.PIPE
    )
    into = [*words, target, "-c", f"COPY {table} FROM STDIN"]
    subprocess.run(into, stdin=out.stdout, check=True)  # noqa: S603
    if out.wait():
        raise SystemExit("psql failed")


# ---------------------------------------------------------------- Kafka's floor on the JVM
def counted(at: Rig, config: Path) -> dict[str, float]:
    """Let Spark count what `apply` will read, in a process of its own."""
    log = config.with_suffix(".floor.log")
    topics = at.topics(config.stem)
    command = [sys.executable, __file__, "--count", str(config), *topics]
    with program(command, log, output=subprocess.PIPE) as child:
        said, _ = child.communicate()
    if child.returncode:
        raise SystemExit(log.read_text("utf-8")[-3000:])
    found: dict[str, float] = json.loads(said)
    return found


def count(config: Path, topics: Sequence[str]) -> None:
    """Print what counting takes when the JVM is warm."""
    from gauss_cdc.session import spark_session  # noqa: PLC0415  pyspark takes a second

    given = load(config)
    spark = spark_session(given)
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", str(given.kafka.client["bootstrap.servers"]))
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(t for t in topics if not t.endswith(f".{_WARM.name}")))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
        .selectExpr("count(*) AS rows", "sum(length(value)) AS bytes")
    )
    leader = os.getpid()
    for _ in range(3):
        begin, used = time.monotonic(), session_cpu(leader)
        row: Any = frame.collect()[0]
        seconds, spent = time.monotonic() - begin, session_cpu(leader) - used
    print(json.dumps({"rate": row["rows"] / seconds, "own": spent * 1e6 / row["rows"]}))
    spark.stop()


def main() -> None:
    """Measure, compare, print."""
    if sys.argv[1:2] == ["--count"]:
        count(Path(sys.argv[2]), sys.argv[3:])
        return
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=500_000, help="changes of each path")
    options.add_argument("--path", choices=list(PATHS), action="append")
    options.add_argument(
        "--also", nargs=2, metavar=("NAME", "KEY=VALUE"), action="append", default=[],
        help="apply with a setting, too; a name may be repeated",
    )  # fmt: skip
    given = options.parse_args()
    also: dict[str, Settings] = {}
    for name, text in given.also:
        also[name] = merged(also.get(name, {}), setting(text))
    if given.quick:
        given.rows, given.path = 1_000, given.path or ["bulk mixed"]
    report = Report("apply")
    lines, rates = [], {}
    with rig(given.set) as at:
        measured = [measure(at, name, given.rows, also) for name in given.path or PATHS]
        for title, one in [pair for path in measured for pair in path.items()]:
            rate = one.changes / one.seconds
            rates[title] = rate / 1000
            lines.append(
                [
                    title,
                    f"{one.changes:,}",
                    number(rate / 1000),
                    f"{number(one.floor['rate'] / 1000)} ({ratio(rate, one.floor['rate'])})",
                    f"{number(one.copied / 1000)} ({ratio(rate, one.copied)})",
                    number(one.cpu * 1e6 / one.changes),
                    number(one.floor["own"]),
                    number(one.driver),
                    number(one.jvm),
                ]
            )
    head = ["path", "changes", "krow/s", "Spark counts (of it)", "psql copy (of it)",
            "CPU-s/Mrow", "of counting", "driver MB", "JVM MB"]  # fmt: skip
    report.table("`apply`, from the end of its warm-up", head, lines)
    report.plots.append(Bars("apply: thousand changes a second", rates))
    report.note("Targets were compared with the source, row by row.")
    for name in also:
        settings = ", ".join(text for title, text in given.also if title == name)
        report.note(f"`{name}`: with {settings}.")
    finish(report, given)


if __name__ == "__main__":
    main()
