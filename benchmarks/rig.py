"""What the benchmarks share: services, readers as processes, samples of what they cost.

A reader is measured from outside: CPU by /proc, records by the topics' high watermarks.
Figures are of one machine and one run; ratios inside a run and CPU-seconds per million rows
carry over.
"""

# ruff: noqa: INP001, S603  not a package; its own programs

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg2
from confluent_kafka import Consumer, TopicPartition

from gauss_cdc.sandbox.services import LocalServices
from gauss_cdc.sandbox.services.postgres import create_database

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # tests.connect: Debezium's worker
DATABASE = "bench"
GAUSS_CDC = [sys.executable, "-m", "gauss_cdc"]
_TICK = os.sysconf("SC_CLK_TCK")
_CONFIG = """\
[source]
dsn = "{url}"
slot = "{name}"
publication = "bench"
[kafka]
prefix = "{name}"
exactly-once = {exactly_once}
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
"""
# Debezium as its documentation tunes it for throughput; transaction metadata as ours has it.
DEBEZIUM = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.name": "bench",
    "publication.autocreate.mode": "disabled",
    "snapshot.mode": "no_data",
    "max.batch.size": "10240",
    "max.queue.size": "40960",
    "provide.transaction.metadata": "true",
    "tombstones.on.delete": "false",
    "slot.drop.on.stop": "false",
    "producer.override.compression.type": "lz4",
    "producer.override.batch.size": "1000000",
    "producer.override.buffer.memory": "268435456",
    "producer.override.acks": "all",
    "producer.override.enable.idempotence": "true",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "1",
}


def cpu(pid: int) -> float:
    """CPU seconds of a process; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def peak(pid: int) -> float:
    """Greatest resident memory of a process in MB; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0.0


@dataclass(frozen=True)
class Sample:
    """One look: seconds since the start, records in Kafka, CPU seconds so far."""

    at: float
    rows: int
    own: float
    walsender: float
    broker: float


@dataclass
class Figure:
    """One reader's run, from its first record to its last."""

    name: str
    samples: list[Sample] = field(default_factory=list)
    megabytes: float = 0.0

    def between(self, begin: float = 0.0) -> tuple[float, float, float, float]:
        """Rows a second, and CPU-s per million rows (own, walsender, broker), from a share on."""
        last = self.samples[-1]
        first = next((s for s in self.samples if s.rows > 0), last)
        start = next((s for s in self.samples if s.rows >= begin * last.rows and s.rows), first)
        rows, seconds = last.rows - start.rows, last.at - start.at
        if not rows or not seconds:  # too fast to look at: over the whole run
            start, rows, seconds = self.samples[0], last.rows, last.at
        costs = (last.own - start.own, last.walsender - start.walsender, last.broker - start.broker)
        own, walsender, broker = (cost * 1e6 / rows for cost in costs)
        return rows / seconds, own, walsender, broker


class Rig:
    """Services of their own, and what is asked of them."""

    def __init__(self, services: LocalServices, folder: Path) -> None:
        self.services, self.folder = services, folder
        self.url = services.addresses.postgres_url(DATABASE)
        self._consumer = Consumer(
            {"bootstrap.servers": services.addresses.kafka_bootstrap, "group.id": "bench"}
        )

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement."""
        connection = psycopg2.connect(self.url)
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def close(self) -> None:
        """Let go of Kafka, before it goes."""
        self._consumer.close()

    def configuration(self, name: str, *, exactly_once: bool = True) -> Path:
        """Write a configuration of its own: prefix and slot are `name`."""
        addresses = self.services.addresses
        path = self.folder / f"{name}.toml"
        path.write_text(
            _CONFIG.format(
                url=self.url,
                name=name,
                exactly_once=str(exactly_once).lower(),
                kafka=addresses.kafka_bootstrap,
                registry=addresses.registry_url,
            )
        )
        return path

    def records(self, prefix: str) -> int:
        """Records of all data topics of a prefix; markers of transactions count."""
        topics = self._consumer.list_topics(timeout=10).topics
        return sum(
            self._consumer.get_watermark_offsets(TopicPartition(t, 0), timeout=10, cached=False)[1]
            for t in topics
            if t.startswith(f"{prefix}.public.")
        )

    def walsender(self, slot: str) -> int:
        """Pid of the process that streams from a slot; 0 = none."""
        found = self.ask(
            f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{slot}'"  # noqa: S608
        )
        return int(found[0][0] or 0) if found else 0  # type: ignore[call-overload]

    def drop_slot(self, slot: str) -> None:
        """Drop a slot as soon as nobody streams from it."""
        while pid := self.walsender(slot):
            self.ask(f"SELECT pg_terminate_backend({pid}, 10000)")
        self.ask(f"SELECT pg_drop_replication_slot('{slot}')")

    def watch(
        self,
        name: str,
        pid: int,
        *,
        slot: str,
        rows: Callable[[], int],
        is_over: Callable[[int], bool],
    ) -> Figure:
        """Sample a reader until it is over."""
        figure, began, sender, sent, own = Figure(name), time.monotonic(), 0, 0.0, 0.0
        broker = self.services.process("kafka")
        assert broker is not None
        while True:
            sender = sender or self.walsender(slot)
            sent = max(sent, cpu(sender) if sender else 0.0)
            own = max(own, cpu(pid))  # 0 once it has ended
            found = rows()
            figure.samples.append(
                Sample(time.monotonic() - began, found, own, sent, cpu(broker.pid))
            )
            figure.megabytes = max(figure.megabytes, peak(pid))
            if is_over(found):
                return figure
            time.sleep(0.05)


@contextmanager
def rig() -> Iterator[Rig]:
    """Start services and a database; all of it goes at the end."""
    folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-bench-"))
    folder.chmod(0o711)
    try:
        with LocalServices(folder / "services") as services:
            create_database(services.addresses.postgres_url(), DATABASE)
            made = Rig(services, folder)
            try:
                yield made
            finally:
                made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def program(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a reader for as long as a block; it is told to leave at its end."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output)
        try:
            yield child
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(60)


@contextmanager
def debezium(of: Rig, slot: str, own: Mapping[str, str]) -> Iterator[int]:
    """A worker of Kafka Connect with Debezium on a slot; gives its pid."""
    from tests.connect import Connect  # noqa: PLC0415  jars are fetched only where it is asked for

    addresses = of.services.addresses
    with Connect(addresses, of.folder / slot, java=("-Xmx2g",)) as connect:
        connect.start(
            slot,
            {
                **DEBEZIUM,
                "topic.prefix": slot,
                "slot.name": slot,
                "database.hostname": addresses.postgres_host,
                "database.port": str(addresses.postgres_port),
                "database.user": addresses.postgres_user,
                "database.password": "unused",
                "database.dbname": DATABASE,
                **own,
            },
        )
        yield connect.pid
