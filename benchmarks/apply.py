"""How fast `apply` brings changes from Kafka into a target, by the way they take.

    python benchmarks/apply.py [--rows N] [--path NAME]… [--also NAME KEY=VALUE]… [--debezium]

    short          5 tables, about 5 changes a transaction: inserts, updates, deletes
    inserts        inserts, 100 to 1,000 rows a transaction
    strict         as `short`, one target transaction for each of the source's; 50,000 at most
    bulk inserts   one transaction that inserts
    bulk mixed     one transaction of inserts, updates and deletes

--also applies the same topics with other settings, too: --also "without native" kafka.native=off

The topics are filled first; `apply` is measured from the end of a warm-up of 25,000 rows, which
waits for a lock until Spark has started, to its last commit.  Beside it, in the same run:

    Spark reads    Kafka's floor on the JVM: the same topics by spark.read and from_avro, every
                   column of the new rows, into nothing; warm
    Spark counts   the same without from_avro: sum of sizes
    the source     the same tables by the data source `gauss_cdc`, every column, into nothing; warm
    psql copy      `copy t to stdout | copy t from stdin` of what the tables hold at the end
    --debezium     Debezium's JDBC sink on Kafka Connect, from its first row, and its second half;
                   the topics are keyed by primary key, as it needs them

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final

import psycopg2
from debezium import described_sink, jdbc_sink, prepare
from report import Bars, Report, finish, number, parser, ratio
from rig import (
    GAUSS_CDC,
    Different,
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
    content,
    make_tables,
    w4,
    w5,
)

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints

WARM: Final = Table("w0")
_WARM_ROWS: Final = 25_000  # more than the driver takes: Spark's executors work, too
_LOOK: Final = 0.02
_PATIENCE: Final = 1800.0
_QUIET: Final = 2.0  # seconds in which a program that waits uses hardly any CPU


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
    """What a path did: seconds, CPU-seconds, memory in MB.

    The step that ends the warm-up may hold transactions behind it, too: `share` of them were not
    in it, and are what was measured.
    """

    seconds: float
    cpu: float
    driver: float
    jvm: float
    share: float


@dataclass(frozen=True)
class Measured:
    """A path by its settings, and the references' rates; rows a second, CPU-s/Mrow."""

    changes: int
    applied: dict[str, Applied]
    floor: dict[str, dict[str, float]]  # reads, counts, source -> rate, own
    copied: float
    sink: tuple[float, float] | None  # Debezium's: from its first row, and its second half


def measure(
    at: Rig, name: str, rows: int, also: Mapping[str, Settings], *, debezium: bool
) -> Measured:
    """Fill topics, apply them, compare; `also`: further settings of `apply`, by name."""
    way = PATHS[name]
    source, other = at.database(), at.database()
    tables = (*TABLES, WARM)
    make_tables(source, tables)
    make_tables(other, tables, published=False)
    prefix = unique("apply")
    keys: Settings = {"kafka": {"key": "primary-key"}} if debezium else {}
    config = at.configuration(prefix, source, keys)
    at.first_load(config, url=source)
    warm_up(source)
    at.drain(config, wal_end(source), url=source)
    warm = newest(config)
    done = way.work(source, min(max(rows, way.least), way.most))
    at.drain(config, wal_end(source), url=source)
    last = newest(config)
    floor = on_the_jvm(at, prefix, source, other)
    rate = copied(source, other)
    sink = by_jdbc_sink(at, prefix, source, done.total()) if debezium else None
    out = {}
    for title, settings in {name: {}, **{f"{name}, {t}": s for t, s in also.items()}}.items():
        target, own = at.database(), unique("apply")
        make_tables(target, tables, published=False)
        one = at.configuration(
            own, source, keys, settings,
            {
                "source": {"slot": prefix}, "kafka": {"prefix": prefix},
                "target": {"dsn": target, "strict": way.strict},
                "spark": {"checkpoint": str(at.folder / own)},
            },
        )  # fmt: skip
        with locked(target, WARM) as release:
            out[title] = apply(one, warm, last, release)
        equal = compare_copy(source, target, tables)
        print(f"{title}: {equal:,} rows are equal after {done.total():,} changes")
    ask(source, "SELECT pg_drop_replication_slot(%s)", prefix)
    return Measured(done.total(), out, floor, rate, sink)


def by_jdbc_sink(at: Rig, prefix: str, source: str, changes: int) -> tuple[float, float]:
    """Rows a second of Debezium's JDBC sink: from its first row, and of its second half.

    How far it is, the newest keys of its tables say; at the end rows are compared.
    """
    target = at.database()
    make_tables(target, TABLES, published=False)
    ends = {table: newest_key(source, table) for table in TABLES}
    topics = [f"{prefix}.public.{table.name}" for table, end in ends.items() if end]
    began = half = 0.0
    end = time.monotonic() + _PATIENCE
    with jdbc_sink(at, topics, target) as check:
        while True:
            shares = [newest_key(target, table) / end for table, end in ends.items() if end]
            now, share = time.monotonic(), sum(shares) / len(shares)
            began = began or (now if share else 0.0)
            half = half or (now if share >= 0.5 else 0.0)
            if share == 1.0 and all(content(target, t) == content(source, t) for t in TABLES):
                break
            check()
            if now > end:
                raise Different(f"Debezium's sink stands at {share:.0%}")
            time.sleep(_LOOK)
    print(f"Debezium's JDBC sink: rows are equal after {changes:,} changes")
    return changes / (now - began), changes / 2 / max(now - half, _LOOK)


def newest_key(url: str, table: Table) -> int:
    """Return the largest key of a table."""
    return int(ask(url, f"SELECT coalesce(max(id), 0) FROM {table.name}")[0][0])


def warm_up(source: str, large: int = 1) -> None:
    """Short transactions, then so many that Spark's executors take."""
    row = "INSERT INTO w0 SELECT g, 1, 1, 'w', now(), true FROM generate_series"
    ask(source, f"DO $$ BEGIN FOR n IN 1 .. 200 LOOP {row}(-n, -n) g; COMMIT; END LOOP; END $$")
    for begin in range(0, large * _WARM_ROWS, _WARM_ROWS):
        ask(source, f"{row}({begin + 1}, {begin + _WARM_ROWS}) g")


def newest(config: Path) -> int:
    """Return the number of the newest source transaction in Kafka."""
    with Endpoints(load(config)) as places:
        cuts = places.cuts()
        assert cuts is not None
        return cuts.seq


@contextmanager
def locked(url: str, table: Table) -> Iterator[Callable[[], None]]:
    """Keep every writer of a table waiting until the function that is given is called."""
    with closing(psycopg2.connect(url)) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {table.name}")
        yield connection.commit


def wait_for_spark(leader: int) -> None:
    """Wait until a program's JVM has started: nothing of it computes any more."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        before = session_cpu(leader)
        time.sleep(_QUIET)
        has_jvm = len(list(members(leader))) > 1
        if has_jvm and session_cpu(leader) - before < _QUIET / 10:
            return
    raise SystemExit("Spark does not start")


def apply(config: Path, warm: int, last: int, release: Callable[[], None]) -> Applied:
    """Apply, and measure from the first step behind the transaction `warm` to `last`."""
    log = config.with_suffix(".apply.log")
    command = (*GAUSS_CDC, "apply", "--config", str(config))
    began = used = 0.0
    first = 0
    end = time.monotonic() + _PATIENCE
    with Endpoints(load(config)) as places, program(command, log) as child:
        wait_for_spark(child.pid)
        release()
        while True:
            ledger = places.target()
            seq = ledger.seq if ledger is not None else 0
            if seq >= warm and not began:
                began, used, first = time.monotonic(), session_cpu(child.pid), seq
            if seq >= last:
                break
            if child.poll() is not None or time.monotonic() > end:
                raise SystemExit(log.read_text("utf-8")[-3000:])
            time.sleep(_LOOK)
        seconds, spent = time.monotonic() - began, session_cpu(child.pid) - used
        jvm = max((resident(pid) for pid in members(child.pid) if pid != child.pid), default=0)
        if first >= last > warm:
            raise SystemExit("one step took all transactions: measure more rows")
        share = (last - first) / (last - warm)
        return Applied(seconds, spent, resident(child.pid), jvm, share)


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
def on_the_jvm(at: Rig, prefix: str, source: str, target: str) -> dict[str, dict[str, float]]:
    """Let Spark read and count what `apply` will read, in a process of its own."""
    config = at.configuration(unique("floor"), source, {"target": {"dsn": target}})
    log = config.with_suffix(".log")
    topics = [topic for topic in at.topics(prefix) if not topic.endswith(f".{WARM.name}")]
    command = [sys.executable, __file__, "--floor", str(config), *topics]
    with program(command, log, output=subprocess.PIPE) as child:
        said, _ = child.communicate()
    if child.returncode:
        raise SystemExit(log.read_text("utf-8")[-3000:])
    found: dict[str, dict[str, float]] = json.loads(said)
    return found


def print_floor(config: Path, topics: Sequence[str]) -> None:
    """Print what reading and counting take when the JVM is warm."""
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415
    from pyspark.sql.functions import expr  # noqa: PLC0415

    from gauss_cdc.session import spark_session  # noqa: PLC0415  pyspark takes a second
    from spark_consumers.kafka.registry import registry_at  # noqa: PLC0415
    from spark_consumers.source import GaussCdcSource  # noqa: PLC0415

    given = load(config)
    spark, registry = spark_session(given), registry_at(given.registry.url, given.registry.client())

    def records(*names: str) -> Any:
        return (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", str(given.kafka.client["bootstrap.servers"]))
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", ",".join(names))
            .option("startingOffsets", "earliest")
            .option("endingOffsets", "latest")
            .load()
        )

    def columns(topic: str) -> list[Any]:
        """All columns of the new rows: every record of a topic was written with one schema."""
        first = records(topic).select("value").limit(1).collect()
        avro = expr("substring(value, 6)")
        return [
            records(topic)
            .select(
                from_avro(avro, json.dumps(registry(int.from_bytes(row.value[1:5])))).alias("row")
            )
            .select("row.after.*")
            for row in first
        ]

    def changes(topic: str) -> Any:
        prefix, table = topic.split(".", 1)
        where = {
            "kafka.bootstrap.servers": str(given.kafka.client["bootstrap.servers"]),
            "registry": given.registry.url,
            "prefix": prefix,
            "table": table,
        }
        return spark.read.format("gauss_cdc").options(**where).load()

    def into_nothing(frames: Sequence[Any]) -> None:
        reduce(lambda one, other: one.union(other), frames).write.format("noop").mode(
            "overwrite"
        ).save()

    spark.dataSource.register(GaussCdcSource)
    filled = {topic: frames for topic in topics if (frames := columns(topic))}
    frames = [frame for several in filled.values() for frame in several]
    sourced = [*map(changes, filled)]  # a table without a row has no schema
    count = records(*topics).selectExpr("count(*) AS rows", "sum(length(value)) AS bytes")
    rows = int(count.collect()[0].rows)
    ways: dict[str, Callable[[], object]] = {
        "reads": lambda: into_nothing(frames),
        "counts": count.collect,
        "source": lambda: into_nothing(sourced),
    }
    out, leader = {}, os.getpid()
    for name, way in ways.items():
        for _ in range(3):
            begin, used = time.monotonic(), session_cpu(leader)
            way()
            seconds, spent = time.monotonic() - begin, session_cpu(leader) - used
        out[name] = {"rate": rows / seconds, "own": spent * 1e6 / rows}
    print(json.dumps(out))
    spark.stop()


def main() -> None:
    """Measure, compare, print."""
    if sys.argv[1:2] == ["--floor"]:
        print_floor(Path(sys.argv[2]), sys.argv[3:])
        return
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="changes of each path")
    options.add_argument("--path", choices=list(PATHS), action="append")
    options.add_argument(
        "--also", nargs=2, metavar=("NAME", "KEY=VALUE"), action="append", default=[],
        help="apply with a setting, too; a name may be repeated",
    )  # fmt: skip
    options.add_argument(
        "--debezium", action="store_true", help="its JDBC sink on the same topics, too"
    )
    given = options.parse_args()
    also: dict[str, Settings] = {}
    for name, text in given.also:
        also[name] = merged(also.get(name, {}), setting(text))
    if given.quick:
        given.rows, given.path = 1_000, given.path or ["bulk mixed"]
    report = Report("apply")
    lines, readers, rates = [], [], {}
    with rig(given.set) as at:
        prepare(at, ["apicurio"] if given.debezium else [])
        for name in given.path or PATHS:
            path = measure(at, name, given.rows, also, debezium=given.debezium)
            reads, counts, source = (path.floor[way] for way in ("reads", "counts", "source"))
            readers.append(
                [
                    name,
                    number(source["rate"] / 1000),
                    _beside(source["rate"], reads["rate"]),
                    number(1000 / source["own"]),
                    _beside(1e6 / source["own"], 1e6 / reads["own"]),
                ]
            )
            for title, one in path.applied.items():
                changes = path.changes * one.share
                rate = changes / one.seconds
                rates[title] = rate / 1000
                whole, warm = path.sink or (0.0, 0.0)
                lines.append(
                    [
                        title,
                        f"{path.changes:,}",
                        number(rate / 1000),
                        _beside(rate, reads["rate"]),
                        _beside(rate, counts["rate"]),
                        _beside(rate, path.copied),
                        *([_beside(rate, whole), _beside(rate, warm)] if given.debezium else []),
                        number(one.cpu * 1e6 / changes),
                        number(reads["own"]),
                        number(one.driver),
                        number(one.jvm),
                    ]
                )
    head = [
        *("path", "changes", "krow/s", "Spark reads (to it)", "Spark counts (to it)"),
        "psql copy (to it)",
        *(["JDBC sink (to it)", "its second half (to it)"] if given.debezium else []),
        *("CPU-s/Mrow", "of Spark reads", "driver MB", "JVM MB"),
    ]
    report.table("`apply`, from the end of its warm-up", head, lines)
    report.table(
        "The data source `gauss_cdc`, beside Spark's of Kafka with `from_avro`",
        ["path", "krow/s", "Spark reads (to it)", "krow/CPU-s", "Spark reads (to it)"],
        readers,
    )
    report.plots.append(Bars("apply: thousand changes a second", rates))
    report.note("Targets were compared with the source, row by row.", is_written=False)
    if given.debezium:
        report.note(described_sink(), is_written=False)
    for name in also:
        settings = ", ".join(text for title, text in given.also if title == name)
        report.note(f"`{name}`: with {settings}.")
    finish(report, given)


def _beside(rate: float, reference: float) -> str:
    """A reference's rate, and ours to it."""
    return f"{number(reference / 1000)} ({ratio(rate, reference)})"


if __name__ == "__main__":
    main()
