"""What the benchmarks share: services, `run` and its readers as processes, what they cost.

A process is measured from outside: CPU and memory by /proc, records by the topics' high
watermarks.  Figures are of one machine and one run; ratios inside a run and CPU-seconds per
million rows carry over.
"""

# ruff: noqa: INP001, S603  not a package; its own programs

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg2
from confluent_kafka import Consumer, KafkaException, TopicPartition

from gauss_cdc.config import load
from gauss_cdc.inspect.places import CutsStanding, Endpoints
from gauss_cdc_lab.services import Addresses, LocalServices, running
from gauss_cdc_lab.services.kept import choice
from gauss_cdc_lab.services.postgres import create_database
from producer.errors import CdcError
from schemas.errors import Verdict
from schemas.positions import Lsn, parse_lsn

GAUSS_CDC: Final = (sys.executable, "-m", "gauss_cdc")
PUBLICATION: Final = "bench"
_TICK: Final = os.sysconf("SC_CLK_TCK")
_LOOK: Final = 0.1  # seconds between two samples: to look costs, too
_FRESH: Final = 1.0  # seconds for which a list of topics is believed

Settings = dict[str, Any]  # a configuration as TOML has it: sections, keys, values


class Different(SystemExit):
    """What arrived is not what the source holds: the figures mean nothing."""

    def __init__(self, what: str) -> None:
        super().__init__(f"not equal: {what}")


# ---------------------------------------------------------------- settings
def setting(text: str) -> Settings:
    """Read `section.key=value`; a value that is not TOML is text.

    >>> setting("kafka.group-rows=500"), setting('kafka.client."linger.ms"=5')
    ({'kafka': {'group-rows': 500}}, {'kafka': {'client': {'linger.ms': 5}}})
    >>> setting("producer.native=off")
    {'producer': {'native': 'off'}}
    """
    key, _, value = text.partition("=")
    try:
        return tomllib.loads(f"{key} = {value}")
    except tomllib.TOMLDecodeError:
        return tomllib.loads(f"{key} = {json.dumps(value)}")


def merged(*parts: Mapping[str, Any]) -> Settings:
    """Lay settings over each other, the last one on top."""
    out: Settings = {}
    for part in parts:
        for key, value in part.items():
            below = out.get(key)
            if isinstance(value, Mapping) and isinstance(below, Mapping):
                value = merged(below, value)  # noqa: PLW2901
            out[key] = value
    return out


def as_toml(settings: Mapping[str, Any], path: str = "") -> str:
    """Write settings as TOML; strings of JSON are strings of TOML."""
    lines = [
        f"{json.dumps(key)} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in settings.items()
        if not isinstance(value, Mapping)
    ]
    out = "\n".join([f"[{path}]", *lines, ""]) if lines and path else "\n".join([*lines, ""])
    for key, value in settings.items():
        if isinstance(value, Mapping):
            out += as_toml(value, f"{path}.{json.dumps(key)}" if path else json.dumps(key))
    return out


# ---------------------------------------------------------------- processes
def cpu(pid: int) -> float:
    """CPU seconds of a process; 0 if it is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICK if fields else 0.0


def members(leader: int) -> Iterator[int]:
    """A process and all that it started, which live in its session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) and int(fields[3]) == leader:
            yield int(entry.name)


def session_cpu(leader: int) -> float:
    """CPU seconds of a process and of all that it started, also of those that ended."""
    return sum(map(_spent, members(leader)))


def family_cpu(parent: int) -> float:
    """CPU seconds of a process and its children, whatever their session: a server of PostgreSQL."""
    there = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    children = (pid for pid in there if (fields := _stat(pid)) and int(fields[1]) == parent)
    return _spent(parent) + sum(map(_spent, children))


def _spent(pid: int) -> float:
    """CPU seconds of a process and of those children that ended; 0 if it is gone."""
    return sum(map(int, _stat(pid)[11:15])) / _TICK


def threads(pid: int) -> dict[str, float]:
    """CPU seconds of a process by the name of its threads."""
    out: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            head, _, rest = task.read_text("ascii", "replace").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, fields = head.partition("(")[2], rest.split()
        out[name] = out.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / _TICK
    return out


def resident(pid: int, what: str = "VmHWM") -> float:
    """Resident memory of a process in MB, its peak (VmHWM) or now (VmRSS); 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        return int(status.split(f"{what}:")[1].split()[0]) / 1024
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0.0


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name, from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


@contextmanager
def program(
    command: Sequence[str | Path], log: Path, *, output: int | None = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a session of its own for as long as a block; its end is asked for."""
    with log.open("ab") as errors:
        child = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True)
        try:
            yield child
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
            if child.stdout is not None:
                child.stdout.close()
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


# ---------------------------------------------------------------- figures
@dataclass(frozen=True)
class Sample:
    """One look: seconds since the start, records in Kafka, CPU seconds so far."""

    at: float
    rows: int
    own: float
    walsender: float
    broker: float


@dataclass(frozen=True)
class Cost:
    """Rows a second, CPU-seconds per million rows, peak memory in MB."""

    rate: float
    own: float
    walsender: float
    broker: float
    megabytes: float


def middle(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure over the rounds."""
    names = ("rate", "own", "walsender", "broker", "megabytes")
    return Cost(*(median(getattr(cost, name) for cost in costs) for name in names))


@dataclass
class Run:
    """One reader's run, from its first record to its last."""

    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    megabytes: float = 0.0
    threads: dict[str, float] = field(default_factory=dict)  # CPU seconds since the first record

    def cost(self, begin: float = 0.0) -> Cost:
        """What a row costs, from a share of the rows on: 0.5 is the second half."""
        last = self.samples[-1]
        first = next((s for s in self.samples if s.rows > 0), last)
        start = next((s for s in self.samples if s.rows >= begin * last.rows and s.rows), first)
        rows, seconds = last.rows - start.rows, last.at - start.at
        if rows < last.rows / 4 or not seconds:  # too fast to look at: over the whole run
            start, rows, seconds = self.samples[0], last.rows, last.at
        own, walsender, broker = (
            (getattr(last, name) - getattr(start, name)) * 1e6 / rows
            for name in ("own", "walsender", "broker")
        )
        return Cost(rows / seconds, own, walsender, broker, self.megabytes)


# ---------------------------------------------------------------- the rig
class Rig:
    """Services of their own, and what is asked of them."""

    def __init__(
        self, addresses: Addresses, folder: Path, settings: Settings, broker: int | None
    ) -> None:
        """`settings` lie over every configuration; `broker` is its pid, where it is ours."""
        self.addresses, self.folder, self.settings = addresses, folder, settings
        self.broker = broker
        self._databases: list[str] = []
        self._listed: dict[str, tuple[float, list[str]]] = {}
        self._consumer = Consumer(
            {"bootstrap.servers": addresses.kafka_bootstrap, "group.id": "bench"}
        )

    def close(self) -> None:
        """Let go of Kafka, and drop the databases with their slots."""
        self._consumer.close()
        for name in self._databases:
            url = self.addresses.postgres_url()
            for slot, _ in ask(
                url,
                "SELECT slot_name, pg_terminate_backend(active_pid, 10000)"
                " FROM pg_replication_slots WHERE database = %s",
                name,
            ):
                ask(url, "SELECT pg_drop_replication_slot(%s)", slot)
            ask(url, f'DROP DATABASE "{name}" WITH (FORCE)')

    def database(self) -> str:
        """URL of a new, empty database."""
        name = unique("bench")
        create_database(self.addresses.postgres_url(), name)
        self._databases.append(name)
        return self.addresses.postgres_url(name)

    def configuration(self, name: str, source: str, *own: Mapping[str, Any]) -> Path:
        """Write a configuration; prefix and slot are `name`."""
        path = self.folder / f"{name}.toml"
        settings: Settings = {
            "source": {"dsn": source, "slot": name, "publication": PUBLICATION},
            "kafka": {
                "prefix": name,
                "client": {"bootstrap.servers": self.addresses.kafka_bootstrap},
            },
            "registry": {"url": self.addresses.registry_url},
        }
        path.write_text(as_toml(merged(settings, self.settings, *own)), "utf-8")
        return path

    def call(self, *words: str, config: Path) -> str:
        """Run a command of ours to its end; its output."""
        command = [*GAUSS_CDC, *words, "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def records(self, prefix: str) -> int:
        """Records of all data topics of a prefix; markers of transactions count."""
        return sum(map(self._end, self.topics(prefix)))

    def _end(self, topic: str) -> int:
        try:
            place = TopicPartition(topic, 0)
            return int(self._consumer.get_watermark_offsets(place, timeout=10, cached=False)[1])
        except KafkaException:  # it is being made
            return 0

    def topics(self, prefix: str) -> list[str]:
        """Data topics of a prefix, at most a second old."""
        at, topics = self._listed.get(prefix, (0.0, []))
        if time.monotonic() - at > _FRESH:
            there = self._consumer.list_topics(timeout=10).topics
            topics = sorted(t for t in there if t.startswith(f"{prefix}.public."))
            self._listed[prefix] = time.monotonic(), topics
        return topics

    def watch(
        self,
        child: subprocess.Popen[bytes] | None,
        pid: int,
        *,
        url: str,
        slot: str,
        rows: Callable[[], int],
        is_over: Callable[[int], bool],
        log: Path | None = None,
    ) -> Run:
        """Sample a reader until it is over; a reader of ours must not end before."""
        found, sender, sent, own = Run(), 0, 0.0, 0.0
        before: dict[str, float] = {}
        while True:
            sender = sender or walsender(url, slot)
            sent = max(sent, cpu(sender) if sender else 0.0)
            own = max(own, cpu(pid))  # 0 once it has ended
            so_far = rows()
            broker = cpu(self.broker) if self.broker else 0.0
            found.samples.append(Sample(time.monotonic() - found.began, so_far, own, sent, broker))
            found.megabytes = max(found.megabytes, resident(pid))
            now = threads(pid)
            if not so_far:
                before = now
            elif now:
                found.threads = {name: used - before.get(name, 0.0) for name, used in now.items()}
            if is_over(so_far):
                return found
            if child is not None and child.poll() is not None:
                said = log.read_text("utf-8")[-3000:] if log else ""
                raise SystemExit(f"{said}\nthe reader ended with {child.returncode}")
            time.sleep(_LOOK)

    def first_load(self, config: Path, *, url: str) -> None:
        """Let `run` make the slot and load the tables, as a user does.

        Behind `slot create` tables would be marked not exact: `apply` stages each row of theirs.
        """
        self.drain(config, wal_end(url), url=url)

    def drain(
        self,
        config: Path,
        end: Lsn,
        *,
        url: str,
        expected: int | None = None,
        program_of: Sequence[str] = GAUSS_CDC,
    ) -> Run:
        """Let `run` bring everything before a position of the source into Kafka.

        `expected` records are waited for before cuts are asked, which costs the broker something;
        without it records are not counted.
        """
        log = config.with_suffix(".log")
        name = config.stem
        with (
            Endpoints(load(config)) as places,
            program([*program_of, "run", "--config", config], log) as child,
        ):
            return self.watch(
                child, child.pid, url=url, slot=name, log=log,
                rows=lambda: 0 if expected is None else self.records(name),
                is_over=lambda found: found >= (expected or 0)
                and (cuts := newest_cut(places)) is not None
                and cuts.resume >= end
                and not cuts.is_loading,
            )  # fmt: skip


def newest_cut(places: Endpoints) -> CutsStanding | None:
    """Return the newest record of cuts; None where the topic is being made."""
    try:
        return places.cuts()
    except CdcError as error:
        if error.verdict is not Verdict.RETRY:
            raise
        return None


def who_makes_rows(config: Path) -> str:
    """What the first line of a `run`'s log says of it; empty if it says nothing."""
    said = config.with_suffix(".log").read_text("utf-8").partition("rows are made by ")[2]
    return said.partition("\n")[0]


def unique(name: str) -> str:
    """A name that nobody else uses: of a slot, a prefix, a database."""
    return f"{name}_{uuid.uuid4().hex[:8]}"


def ask(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run one statement outside of a transaction; its rows."""
    with closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []


def wal_end(url: str) -> Lsn:
    """Where the source's log ends now."""
    return parse_lsn(str(ask(url, "SELECT pg_current_wal_insert_lsn()::text")[0][0]))


def walsender(url: str, slot: str) -> int:
    """Pid of the process that streams from a slot; 0 = none."""
    found = ask(url, "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", slot)
    return int(found[0][0] or 0) if found else 0


def drop_slot(url: str, slot: str) -> None:
    """Drop a slot as soon as nobody streams from it."""
    while pid := walsender(url, slot):
        ask(url, "SELECT pg_terminate_backend(%s, 10000)", pid)
    ask(url, "SELECT pg_drop_replication_slot(%s)", slot)


@contextmanager
def rig(settings: Sequence[str] = ()) -> Iterator[Rig]:
    """Start services, or take those of GAUSS_CDC_SERVICES; what is made goes at the end.

    Also at SIGTERM: programs live in sessions of their own, which a signal to us does not reach.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-bench-"))
    folder.chmod(0o711)
    try:
        with ExitStack() as stack:
            broker = None
            if choice() == "embedded":
                services = stack.enter_context(LocalServices(folder / "services"))
                process, addresses = services.process("kafka"), services.addresses
                broker = process.pid if process is not None else None
            else:
                addresses = stack.enter_context(running(folder / "services"))
            made = Rig(addresses, folder, merged(*map(setting, settings)), broker)
            stack.callback(made.close)
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
