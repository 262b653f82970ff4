"""Record what Debezium's PostgreSQL connector writes, and what pgoutput said for it.

    python -m tests.golden.record_debezium

Starts PostgreSQL, Kafka and a registry (gauss_cdc_lab.services) and a Kafka Connect worker
with Debezium and Apicurio's Avro converter (jars: gauss_cdc/runtime/locks/debezium.lock),
runs `debezium_tables` under each configuration below, and writes tests/golden/debezium/:

- `source.json.gz`: the tables' shapes by the catalog, the rows that were there before, and
  pgoutput's messages of the same changes, by a slot of our own;
- `<configuration>.json.gz`: versions, the connector's configuration, the registry's answers
  and the topics' records as they are, bytes in hex.

Needs the contrib extensions hstore, citext and ltree at the server.
"""

import gzip
import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psycopg2
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from gauss_cdc.runtime import jars
from gauss_cdc_lab.services import LocalServices
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog, publications, snapshot
from producer.sources.postgres.connection import ReplicationConnection
from schemas.positions import Lsn, parse_lsn
from schemas.tables import TableId
from tests.connect import Connect
from tests.golden import debezium_tables as tables

FOLDER: Final = Path(__file__).parent / "debezium"
PATIENCE: Final = 120.0

COMMON: Final = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "filtered",
    "schema.include.list": tables.SCHEMA,
    "schema.name.adjustment.mode": "avro",
    "field.name.adjustment.mode": "avro",
    "skipped.operations": "none",  # else truncates are left out
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "1",
}
CONFIGURATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "transactions": {
        "provide.transaction.metadata": "true",
        "table.include.list": f"{tables.SCHEMA}.(pair|emptied|emptied_too|keyless)",
    },
    "text": {
        "decimal.handling.mode": "string",
        "interval.handling.mode": "string",
        "binary.handling.mode": "base64",
        "time.precision.mode": "connect",
        "hstore.handling.mode": "map",
        "include.unknown.datatypes": "true",
        "field.name.adjustment.mode": "avro_unicode",
        "schema.name.adjustment.mode": "avro_unicode",
    },
    "loose": {
        "decimal.handling.mode": "double",
        "binary.handling.mode": "hex",
        "time.precision.mode": "adaptive_time_microseconds",
        "money.fraction.digits": "4",
    },
}

_NAMED: Final = {
    "debezium-connector-postgres",
    "connect-runtime",
    "apicurio-registry-utils-converter",
}


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="gauss-cdc-record-"))
    directory.chmod(0o711)
    try:
        with LocalServices(directory) as services:
            record(services, directory)
            services.remove()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def record(services: LocalServices, directory: Path) -> None:
    addresses = services.addresses
    url = addresses.postgres_url()
    db = psycopg2.connect(url)
    db.autocommit = True
    with db.cursor() as cursor:
        cursor.execute(tables.SETUP)
        for statement in tables.BEFORE:
            cursor.execute(statement)
        cursor.execute("SELECT version()")
        (server,) = cursor.fetchone()
    source = _Source(url)
    with Connect(addresses, directory / "connect") as connect:
        for name, own in CONFIGURATIONS.items():
            settings = {
                **COMMON,
                **own,
                "topic.prefix": f"rec{name}",
                "slot.name": f"rec{name}",
                "publication.name": f"rec{name}",
                "database.hostname": addresses.postgres_host,
                "database.port": str(addresses.postgres_port),
                "database.user": addresses.postgres_user,
                "database.password": "unused",
                "database.dbname": "postgres",
            }
            connect.start(name, settings)
        log = _Topics(addresses.kafka_bootstrap)
        for name in CONFIGURATIONS:
            log.await_record(f"rec{name}.{tables.SCHEMA}.emptied", 1, connect, name)
        for change in tables.CHANGES:
            with db.cursor() as cursor:
                cursor.execute(change)
        with db.cursor() as cursor:
            cursor.execute(tables.LAST)
        # r, t, c, t, c
        for name in CONFIGURATIONS:
            log.await_record(f"rec{name}.{tables.SCHEMA}.emptied", 5, connect, name)
            connect.remove(name)
        versions = {
            archive.artifact: archive.version
            for archive in jars.lock("debezium")
            if archive.artifact
            in {
                "debezium-connector-postgres",
                "connect-runtime",
                "apicurio-registry-utils-converter",
            }
        }
        FOLDER.mkdir(exist_ok=True)
        _write("source", {"server": server, **source.read(db)})
        for name, own in CONFIGURATIONS.items():
            _write(
                name,
                {
                    "server": server,
                    "versions": versions,
                    "configuration": {**COMMON, **own, "topic.prefix": f"rec{name}"},
                    "registry": _subjects(addresses.registry_url, f"rec{name}."),
                    "records": log.read(f"rec{name}."),
                },
            )
    db.close()


class _Source:
    """A slot of our own beside Debezium's: what the server said for the same changes."""

    def __init__(self, url: str) -> None:
        self._arguments = parse_dsn(url)
        connection = catalog.connect(self._arguments)
        ids = [TableId(tables.SCHEMA, name) for name in tables.TABLES]
        publications.create_publication(connection, "rec_ours", ids)
        self._wire = ReplicationConnection.open(self._arguments)
        made = self._wire.create_slot("rec_ours", "pgoutput", temporary=True)
        shapes = catalog.table_schemas(connection, ids)
        self._tables = [asdict(shape) for shape in shapes]
        self._rows: dict[str, list[list[str | None]]] = {}
        with snapshot.imported(self._arguments, made.snapshot or "") as seen:
            reading = snapshot.SnapshotReading(seen, connection)
            for shape in reading.shapes(ids):
                rows: list[Any] = []
                reading.copy_rows(shape.id, shape.columns, rows.extend)
                self._rows[shape.id.name] = [
                    [None if cell is None else cell.decode() for cell in row] for row in rows
                ]
        connection.close()

    def read(self, db: Any) -> dict[str, Any]:
        """Everything that was committed until now."""
        with db.cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_insert_lsn()")
            end = parse_lsn(cursor.fetchone()[0])
        options = {"proto_version": "1", "publication_names": "rec_ours", "messages": "true"}
        self._wire.start("rec_ours", options)
        messages = []
        while self._wire.received_end < end:
            received = self._wire.receive(0.1)
            messages += [[int(lsn), payload.hex()] for lsn, _, payload in received.messages]
            if not received.messages:
                self._wire.send_status(Lsn(0), reply=True)
        self._wire.close()
        return {"tables": self._tables, "rows": self._rows, "messages": messages}


class _Topics:
    """Kafka, read as it is."""

    def __init__(self, bootstrap: str) -> None:
        self._client = {"bootstrap.servers": bootstrap, "group.id": "record"}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def await_record(self, topic: str, count: int, connect: Connect, connector: str) -> None:
        """Wait until a topic has so many records."""
        end = time.monotonic() + PATIENCE
        while self._count(topic) < count:
            connect.check(connector)
            assert time.monotonic() < end, f"{topic} stays short\n{connect.said()}"
            time.sleep(0.2)

    def _count(self, topic: str) -> int:
        if topic not in self._admin.list_topics(timeout=10).topics:
            return 0
        consumer = Consumer(self._client)
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
            return high
        finally:
            consumer.close()

    def read(self, prefix: str) -> list[dict[str, Any]]:
        """All records of the topics below a prefix."""
        out = []
        for topic in sorted(t for t in self._admin.list_topics(timeout=10).topics):
            if not topic.startswith(prefix):
                continue
            consumer = Consumer({**self._client, "enable.partition.eof": True})
            consumer.assign([TopicPartition(topic, 0, 0)])
            while True:
                message = consumer.poll(30)
                assert message is not None
                if message.error():
                    break  # the end of the partition
                out.append(
                    {
                        "topic": topic,
                        "offset": message.offset(),
                        "key": _hex(message.key()),
                        "value": _hex(message.value()),
                        "headers": [[k, _hex(v)] for k, v in message.headers() or []],
                    }
                )
            consumer.close()
        return out


def _subjects(registry: str, prefix: str) -> dict[str, list[str]]:
    """The registry's answers for every version of every subject, unedited."""
    out = {}
    for subject in json.loads(_get(f"{registry}/subjects")):
        if subject.startswith(prefix):
            versions = json.loads(_get(f"{registry}/subjects/{subject}/versions"))
            out[subject] = [_get(f"{registry}/subjects/{subject}/versions/{v}") for v in versions]
    return dict(sorted(out.items()))


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _write(name: str, recorded: Any) -> None:
    text = json.dumps(recorded, indent=1, ensure_ascii=False)
    # Without a time, so that the same recording is the same file.
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
