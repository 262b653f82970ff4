"""How long a row takes: commit to readable in Kafka, and commit to visible in the target.

    python benchmarks/latency.py [--rate N]… [--seconds N] [--size N] [--debezium] [--strict]
                                 [--system NAME]…

Rows are committed at a fixed rate, `--size` of them in each transaction, by a process of its own;
each carries the time at which its statement was sent.  One system at a time:

    pg_recvlogical    PostgreSQL's own client, to a pipe: the walsender's own delay
    run               gauss-cdc run, exactly-once on; readable by a read_committed consumer
    Debezium          on Kafka Connect, tuned for latency, without exactly-once; --debezium
    subscription      PostgreSQL's own logical replication, to visible in another database
    run and apply     gauss-cdc run and apply, to visible in another database
    strict            the same with target.strict = true; --strict

A target is asked every two milliseconds.  Each system is warmed up at the highest rate first.
At the end topics and targets are compared with the source.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import psycopg2
from confluent_kafka import Consumer, TopicPartition
from debezium import LATENCY, debezium, described, prepare
from report import Lines, Report, finish, number, parser, ratio
from rig import (
    GAUSS_CDC,
    PUBLICATION,
    Different,
    Rig,
    ask,
    drop_slot,
    program,
    rig,
    session_cpu,
    unique,
)
from workloads import TABLES, compare_copy, compare_topics, make_tables, truth

_SENT: Final = re.compile(rb"sent=(\d+);")
_PATIENCE: Final = 120.0  # seconds until what was committed must have arrived
_ASK: Final = 0.002  # seconds between two questions to a target


# ---------------------------------------------------------------- the source
@dataclass(frozen=True)
class Phase:
    """Rows committed at one rate; `begin` and `end` in µs since 1970."""

    rate: int
    rows: int
    begin: int
    end: int


def commit_rows(url: str, out: Queue, *, first: int, rate: int, size: int, seconds: float) -> None:
    """Commit rows of increasing id at a fixed rate; in a process of its own."""
    commits = max(int(rate * seconds / size), 1)
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(
            "PREPARE put (bigint, int, text) AS INSERT INTO t0 "
            "SELECT g, 7, 1.25, $3, now(), true FROM generate_series($1, $1 + $2 - 1) g"
        )
        begin, start = time.time_ns() // 1000, time.monotonic()
        for done in range(commits):
            wait = start + done * size / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            sent = f"sent={time.time_ns() // 1000};"
            cursor.execute("EXECUTE put (%s, %s, %s)", (first + done * size, size, sent))
        out.put(Phase(rate, commits * size, begin, time.time_ns() // 1000))


class Queue(Protocol):
    """What a process answers by."""

    def put(self, item: Phase) -> None: ...


class Source:
    """A database, and rows that are committed to it."""

    def __init__(self, at: Rig, size: int) -> None:
        self.url, self._size, self.rows = at.database(), size, 0
        make_tables(self.url, TABLES[:1])

    def commit(self, rate: int, seconds: float) -> Phase:
        """Commit rows for some seconds."""
        context = multiprocessing.get_context("spawn")
        out = context.SimpleQueue()
        given = {"first": self.rows + 1, "rate": rate, "size": self._size, "seconds": seconds}
        process = context.Process(target=commit_rows, args=(self.url, out), kwargs=given)
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit("rows could not be committed")
        phase: Phase = out.get()
        self.rows += phase.rows
        return phase


# ---------------------------------------------------------------- observers
class Observer:
    """Notes in a thread of its own when each row arrived: (µs now, text with its time)."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failed: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait(self, rows: int) -> None:
        """Wait until so many rows arrived."""
        end = time.monotonic() + _PATIENCE
        while len(self.seen) < rows:
            if self._failed is not None:
                raise self._failed
            if time.monotonic() > end:
                raise Different(f"{len(self.seen)} of {rows} rows arrived")
            time.sleep(0.05)

    def latencies(self, phase: Phase) -> list[float]:
        """Milliseconds of each row of a phase, sorted."""
        out = []
        for now, text in self.seen:
            match = _SENT.search(text)
            assert match is not None, "a row without its time"
            if phase.begin <= (sent := int(match[1])) <= phase.end:
                out.append((now - sent) / 1000)
        if len(out) != phase.rows:
            raise Different(f"{len(out)} of {phase.rows} rows arrived in time")
        return sorted(out)

    def _run(self) -> None:
        try:
            for text in self.arriving():
                self.seen.append((time.time_ns() // 1000, text))
        except BaseException as failed:  # noqa: BLE001  handed to the waiting thread
            self._failed = failed

    def arriving(self) -> Iterator[bytes]:
        """Rows as they come, until asked to stop."""
        raise NotImplementedError


class InKafka(Observer):
    """Values of a topic, as a read_committed consumer sees them."""

    def __init__(self, at: Rig, topic: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": at.addresses.kafka_bootstrap,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "topic.metadata.refresh.interval.ms": 200,
                "allow.auto.create.topics": False,
            }
        )
        self._topic = topic

    def arriving(self) -> Iterator[bytes]:
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            # The topic may have to be made yet, which is an error here.
            if message is not None and message.error() is None and (value := message.value()):
                yield value
        self._consumer.close()


class InPipe(Observer):
    """What pg_recvlogical writes."""

    def __init__(self, output: int) -> None:
        super().__init__()
        self._output = output

    def arriving(self) -> Iterator[bytes]:
        rest = b""
        while data := os.read(self._output, 1 << 20):
            rest += data
            end = 0
            for match in _SENT.finditer(rest):
                yield match[0]
                end = match.end()
            rest = rest[end:][-100:]


class InTable(Observer):
    """Rows of a target's table."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def arriving(self) -> Iterator[bytes]:
        last = 0
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            cursor.execute("PREPARE new (bigint) AS SELECT id, c FROM t0 WHERE id > $1 ORDER BY id")
            while not self._stop.wait(_ASK):
                cursor.execute("EXECUTE new (%s)", (last,))
                for key, text in cursor.fetchall():
                    last = key
                    yield text.encode()


# ---------------------------------------------------------------- systems
@dataclass(frozen=True)
class System:
    """What brings rows somewhere, while it runs."""

    observer: Observer
    leaders: Sequence[int]  # processes whose sessions are its CPU

    def cpu(self) -> float:
        return sum(session_cpu(leader) for leader in self.leaders)


@contextmanager
def recvlogical(at: Rig, source: Source) -> Iterator[System]:
    """PostgreSQL's own client, whose output is a pipe."""
    slot = unique("raw")
    ask(source.url, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    command = ["pg_recvlogical", "-d", source.url, "-S", slot, "--start", "-f", "-",
               "-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}"]  # fmt: skip
    with program(command, at.folder / "raw.log", output=subprocess.PIPE) as child:
        assert child.stdout is not None
        with InPipe(child.stdout.fileno()) as observer:
            yield System(observer, [child.pid])
            child.terminate()  # the pipe ends
    drop_slot(source.url, slot)


@contextmanager
def ours(at: Rig, source: Source) -> Iterator[System]:
    """`run`, and a consumer of its topic."""
    path = at.configuration(unique("run"), source.url)
    at.call("slot", "create", config=path)
    command = [*GAUSS_CDC, "run", "--config", str(path)]
    with (
        program(command, path.with_suffix(".log")) as child,
        InKafka(at, f"{path.stem}.public.t0") as observer,
    ):
        yield System(observer, [child.pid])
    compare_topics(at, path.stem, truth(source.url, Counter(c=source.rows), TABLES[:1]))
    drop_slot(source.url, path.stem)


@contextmanager
def ours_applied(at: Rig, source: Source, *, strict: bool = False) -> Iterator[System]:
    """`run` and `apply`, and a second database."""
    target = at.database()
    make_tables(target, TABLES[:1], published=False)
    name = unique("apply")
    own = {
        "target": {"dsn": target, "strict": strict},
        "spark": {"checkpoint": str(at.folder / name)},
    }
    path = at.configuration(name, source.url, own)
    at.first_load(path, url=source.url)
    commands = [(*GAUSS_CDC, command, "--config", str(path)) for command in ("run", "apply")]
    with (
        program(commands[0], path.with_suffix(".log")) as run,
        program(commands[1], path.with_suffix(".apply.log")) as apply,
        InTable(target) as observer,
    ):
        yield System(observer, [run.pid, apply.pid])
    compare_copy(source.url, target, TABLES[:1])
    drop_slot(source.url, name)


@contextmanager
def subscribed(at: Rig, source: Source) -> Iterator[System]:
    """PostgreSQL's own subscription in a second database of the same server."""
    target = at.database()
    make_tables(target, TABLES[:1], published=False)
    slot, url = unique("sub"), urlsplit(source.url)
    ask(source.url, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    words = f"host={url.hostname} port={url.port} user={url.username} dbname={url.path.lstrip('/')}"
    if url.password:
        words += f" password={url.password}"
    ask(
        target,
        f"CREATE SUBSCRIPTION {slot} CONNECTION %s PUBLICATION {PUBLICATION} "
        f"WITH (create_slot = false, slot_name = '{slot}', copy_data = false)",
        words,
    )
    try:
        with InTable(target) as observer:
            yield System(observer, [])
        compare_copy(source.url, target, TABLES[:1])
    finally:
        ask(target, f"ALTER SUBSCRIPTION {slot} DISABLE")
        ask(target, f"ALTER SUBSCRIPTION {slot} SET (slot_name = NONE)")
        ask(target, f"DROP SUBSCRIPTION {slot}")
    drop_slot(source.url, slot)


@contextmanager
def others(at: Rig, source: Source) -> Iterator[System]:
    """Debezium, and a consumer of its topic."""
    slot = unique("dbz")
    ask(source.url, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    with (
        debezium(at, source.url, slot, tuning=LATENCY) as pid,
        InKafka(at, f"{slot}.public.t0") as observer,
    ):
        yield System(observer, [pid])
    compare_topics(at, slot, truth(source.url, Counter(c=source.rows), TABLES[:1]))
    drop_slot(source.url, slot)


# ---------------------------------------------------------------- figures
@dataclass(frozen=True)
class Found:
    """Milliseconds of one system at one rate, and its share of a core."""

    rate: int
    reached: float
    latencies: Sequence[float]
    share: float

    def quantile(self, part: float) -> float:
        return self.latencies[min(int(len(self.latencies) * part), len(self.latencies) - 1)]


def measure(
    at: Rig, name: str, rates: Sequence[int], *, size: int, seconds: float, warm: float
) -> list[Found]:
    """Measure one system at each rate."""
    source = Source(at, size)
    with SYSTEMS[name](at, source) as system:
        source.commit(100, 0.1)
        system.observer.wait(source.rows)  # it is there
        source.commit(max(rates), warm)
        system.observer.wait(source.rows)
        measured = []
        for rate in rates:
            before = system.cpu()
            phase = source.commit(rate, seconds)
            system.observer.wait(source.rows)
            share = (system.cpu() - before) / ((phase.end - phase.begin) / 1e6)
            measured.append((phase, share))
    print(f"{name}: {source.rows:,} rows arrived" + ", and are equal" * (name != "pg_recvlogical"))
    return [
        Found(
            phase.rate,
            phase.rows / ((phase.end - phase.begin) / 1e6),
            system.observer.latencies(phase),
            share,
        )
        for phase, share in measured
    ]


SYSTEMS: Final[Mapping[str, Callable[[Rig, Source], AbstractContextManager[System]]]] = {
    "pg_recvlogical": recvlogical,
    "run": ours,
    "Debezium": others,
    "subscription": subscribed,
    "run and apply": ours_applied,
    "strict": partial(ours_applied, strict=True),
}
_GROUPS: Final = {
    "Commit to readable in Kafka": ("pg_recvlogical", "run", "Debezium"),
    "Commit to visible in the target": ("subscription", "run and apply", "strict"),
}


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--rate", type=int, action="append", help="rows a second; repeat it")
    options.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    options.add_argument("--warm", type=float, default=20.0, help="seconds to warm up")
    options.add_argument("--size", type=int, default=5, help="rows of a transaction")
    options.add_argument("--debezium", action="store_true")
    options.add_argument("--strict", action="store_true", help="also one commit each")
    options.add_argument("--without-apply", action="store_true", help="Kafka only")
    options.add_argument("--system", action="append", choices=SYSTEMS, help="only these; repeat it")
    given = options.parse_args()
    rates = given.rate or [100, 1000, 5000]
    if given.quick:
        rates, given.seconds, given.warm = rates[:2], 2.0, 1.0
    report = Report("latency")
    with rig(given.set) as at:
        prepare(at, ["apicurio"] * given.debezium)
        for title, names in _GROUPS.items():
            if given.without_apply and "target" in title:
                continue
            asked = {"Debezium": given.debezium, "strict": given.strict}
            chosen = [n for n in names if n in (given.system or ()) or
                      (not given.system and asked.get(n, True))]  # fmt: skip
            if not chosen:
                continue
            found = {
                name: measure(
                    at, name, rates, size=given.size, seconds=given.seconds, warm=given.warm
                )
                for name in chosen
            }
            lines = []
            for place, rate in enumerate(rates):
                for name in chosen:
                    one = found[name][place]
                    p50, p90, p99 = (one.quantile(part) for part in (0.5, 0.9, 0.99))
                    bases = [
                        found[b][place] if b in found else None for b in (names[0], "Debezium")
                    ]
                    lines.append(
                        [
                            name,
                            f"{rate:,}"
                            + (
                                ""
                                if one.reached > rate * 0.95
                                else f" ({number(one.reached)} reached)"
                            ),
                            *(number(value) for value in (p50, p90, p99, one.latencies[-1])),
                            *(ratio(p50, base.quantile(0.5) if base else None) for base in bases),
                            *(ratio(p99, base.quantile(0.99) if base else None) for base in bases),
                            f"{one.share:.0%}" if one.share else "–",
                        ]
                    )
            head = ["system", "rows/s", "p50 ms", "p90", "p99", "most",
                    f"p50 to {names[0]}", "p50 to Debezium",
                    f"p99 to {names[0]}", "p99 to Debezium", "of a core"]  # fmt: skip
            if "Debezium" not in names:
                head = head[:7] + head[8:9] + head[10:]
                lines = [line[:7] + line[8:9] + line[10:] for line in lines]
            report.table(f"{title}, {given.size} rows a transaction", head, lines)
            report.plots.append(
                Lines(
                    f"{title}, p50 and p99 in ms",
                    "rows a second",
                    {
                        f"{name} {label}": [(f.rate, f.quantile(part)) for f in found[name]]
                        for name in chosen
                        for label, part in (("p50", 0.5), ("p99", 0.99))
                    },
                )
            )
    report.note("Topics and targets were compared with the source, row by row.", is_written=False)
    if given.debezium:
        report.note(described(LATENCY), is_written=False)
    finish(report, given)


if __name__ == "__main__":
    main()
