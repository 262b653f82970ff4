"""Debezium on Kafka Connect beside us, tuned for throughput or for latency, and its JDBC sink.

Its jars come by the lock `debezium` of gauss_cdc/runtime/locks, when they are first asked for.
Two converters: Apicurio's Avro converter, and one of our own that writes Avro with the least work
(java/CheapAvro.java, compiled here: it needs a JDK's javac).
"""

# ruff: noqa: INP001, S603  not a package; its own programs

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rig import PUBLICATION, Rig, unique

from gauss_cdc.runtime import jars, java

_HERE: Final = Path(__file__).parent
sys.path.insert(0, str(_HERE.parent))  # tests.connect: a worker of Kafka Connect

CONVERTERS: Final = ("apicurio", "cheap")
HEAP: Final = "-Xmx2g"
# As Debezium's documentation tunes it for throughput; transaction metadata as ours has it.
_CONNECTOR: Final = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.name": PUBLICATION,
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
    "producer.override.max.request.size": "10000000",
    "producer.override.acks": "all",
    "producer.override.enable.idempotence": "true",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "1",
}
# As Debezium's documentation tunes it for throughput: large polls, statements of many rows, and one
# change per key of a poll.
_SINK: Final = {
    "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "collection.name.format": "${source.table}",
    "insert.mode": "upsert",
    "primary.key.mode": "record_key",
    "delete.enabled": "true",
    "schema.evolution": "none",
    "batch.size": "10000",
    "use.reduction.buffer": "true",
    "consumer.override.max.poll.records": "10000",
    "consumer.override.max.partition.fetch.bytes": "10000000",
    "consumer.override.fetch.min.bytes": "1000000",
    "consumer.override.fetch.max.wait.ms": "50",
}
_DRIVER: Final = "reWriteBatchedInserts=true"  # a batch is one statement of many rows
THROUGHPUT: Final = {"poll.interval.ms": "50", "producer.override.linger.ms": "50"}
LATENCY: Final = {"poll.interval.ms": "5", "producer.override.linger.ms": "5"}


def described_sink() -> str:
    """The sink's configuration in a sentence."""
    version, connect = _version("debezium-connector-jdbc"), _version("connect-runtime")
    settings = ", ".join(f"{name}={value}" for name, value in _SINK.items())
    return (
        f"Debezium's JDBC sink {version} on Kafka Connect {connect}, java {HEAP}, a task for each "
        f"topic: {settings}, {_DRIVER} in connection.url."
    )


def _version(artifact: str) -> str:
    return next(a.version for a in jars.lock("debezium") if a.artifact == artifact)


def described(tuning: Mapping[str, str]) -> str:
    """The configuration in a sentence, so that nobody has to believe that it is fair."""
    version, connect = _version("debezium-connector-postgres"), _version("connect-runtime")
    left_out = {"connector.class", "publication.name", "publication.autocreate.mode"}
    settings = ", ".join(
        f"{name}={value}"
        for name, value in {**_CONNECTOR, **tuning}.items()
        if name not in left_out and not name.startswith("topic.")
    )
    return f"Debezium {version} on Kafka Connect {connect}, java {HEAP}: {settings}."


def prepare(at: Rig, converters: Sequence[str]) -> None:
    """Fetch and compile before anything is measured."""
    if converters:
        jars.fetch(["debezium"])
    if "cheap" in converters:
        _compiled(at.folder)


@contextmanager
def debezium(
    at: Rig, source: str, slot: str, *, tuning: Mapping[str, str], converter: str = "apicurio"
) -> Iterator[int]:
    """A worker with Debezium on a slot, into topics of the prefix `slot`; gives its pid."""
    from tests.connect import Connect, converters  # noqa: PLC0415  needs the path above

    own: dict[str, str] = {}
    extra: tuple[Path, ...] = ()
    if converter == "cheap":
        extra = (_compiled(at.folder),)
        own = dict.fromkeys(("key.converter", "value.converter"), "CheapAvro")
    else:
        own = converters(at.addresses.registry_url)
    url = urlsplit(source)
    with Connect(at.addresses, at.folder / slot, java=(HEAP,), classes=extra) as connect:
        connect.start(
            slot,
            {
                **_CONNECTOR,
                **tuning,
                **own,
                "topic.prefix": slot,
                "slot.name": slot,
                "database.hostname": url.hostname or "",
                "database.port": str(url.port),
                "database.user": url.username or "",
                "database.password": url.password or "unused",
                "database.dbname": url.path.lstrip("/"),
            },
        )
        yield connect.pid


@contextmanager
def jdbc_sink(at: Rig, topics: Sequence[str], target: str) -> Iterator[Callable[[], None]]:
    """A worker with the JDBC sink on topics, into a database that has the tables.

    Gives what raises if the connector failed.
    """
    from tests.connect import Connect  # noqa: PLC0415  needs the path above

    url, name = urlsplit(target), unique("sink")
    with Connect(at.addresses, at.folder / name, java=(HEAP,)) as connect:
        connect.start(
            name,
            {
                **_SINK,
                "topics": ",".join(topics),
                "tasks.max": str(len(topics)),
                "connection.url": f"jdbc:postgresql://{url.hostname}:{url.port}{url.path}?{_DRIVER}",
                "connection.username": url.username or "",
                "connection.password": url.password or "unused",
            },
        )
        yield lambda: connect.check(name)


def _compiled(folder: Path) -> Path:
    """Compile the cheap converter; the folder of its class."""
    out = folder / "classes"
    if not (out / "CheapAvro.class").exists():
        compiler = java.find(shims=jars.cache()).home / "bin" / "javac"
        if not compiler.exists():
            raise SystemExit(f"no {compiler}: --debezium cheap needs a JDK (--debezium does not)")
        files = jars.fetch(["debezium"])["debezium"]
        command: list[str | Path] = [compiler, "-d", out, "-cp", ":".join(map(str, files))]
        subprocess.run([*command, _HERE / "java" / "CheapAvro.java"], check=True)
    return out
