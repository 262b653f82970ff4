"""Record what this release writes, for all later ones to read: before a release is made.

    python -m tests.golden.record_release

Starts PostgreSQL, Kafka and a registry (gauss_cdc_lab.services), copies a database by `run` and
`apply`, with a takeover, statements and a new epoch between, and writes
tests/golden/releases/<version>.json.gz: topics and schemas as they are, bytes in hex; what stands
in the target's schema `gauss_cdc` in the midst and at the end; and the source's rows as texts.
tests/contract/test_releases.py reads every file of that folder.
"""

import gzip
import json
import shutil
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psycopg2
from confluent_kafka import Consumer, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient

from gauss_cdc_lab.services import LocalServices
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.triggers import install
from schemas.version import VERSION
from tests.e2e import path

FOLDER: Final = Path(__file__).parent / "releases"
PREFIX: Final = "bank"
OURS: Final = ("ledger", "tables", "loads", "shadows", "shapes")  # in the target

SETUP: Final = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE account (
    id int PRIMARY KEY, balance numeric(12,2), owner text, at timestamptz, day date,
    raw bytea, is_open bool, m mood, tags text[], doc jsonb, gone int);
CREATE TABLE "log.of €" ("k" text, n bigint, v text, PRIMARY KEY (k, n));
ALTER TABLE "log.of €" REPLICA IDENTITY FULL;
INSERT INTO account SELECT g, g * 1.25, 'owner ' || g, '2024-02-29 12:00:00.5+00', '1999-12-31',
    '\\x00ff', g % 2 = 0, 'ok', ARRAY['a', NULL, 'ü'], '{"a": [1, null]}', g
    FROM generate_series(1, 5) g;
"""
# Each is a transaction.
FIRST: Final = (
    "INSERT INTO account (id, balance, day) VALUES (10, 'NaN', 'infinity'), (11, -0.01, NULL)",
    """INSERT INTO "log.of €" SELECT 'k', g, repeat('ü', g) FROM generate_series(1, 20) g""",
    """
    UPDATE account SET id = 50, owner = 'moved' WHERE id = 5;
    DELETE FROM account WHERE id = 4;
    UPDATE "log.of €" SET v = NULL WHERE n < 3
    """,
)
SECOND: Final = (
    """
    ALTER TABLE account ADD COLUMN note text, DROP COLUMN gone;
    UPDATE account SET note = 'said' WHERE id = 1
    """,
    'TRUNCATE "log.of €"',
    """INSERT INTO "log.of €" VALUES ('again', 1, 'x')""",
    "CREATE TABLE late (id int PRIMARY KEY, v text); INSERT INTO late VALUES (1, 'born')",
)
THIRD: Final = ("UPDATE account SET balance = 7 WHERE id < 3", "DELETE FROM account WHERE id = 11")


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="gauss-cdc-record-"))
    directory.chmod(0o711)
    try:
        with LocalServices(directory) as services:
            said = record(services)
            services.remove()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(said, indent=1, ensure_ascii=False)
    (FOLDER / f"{VERSION}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def record(services: LocalServices) -> dict[str, Any]:
    addresses = services.addresses
    for name in ("source", "target"):
        with closing(psycopg2.connect(addresses.postgres_url())) as db:
            db.autocommit = True
            db.cursor().execute(f"CREATE DATABASE {name}")
    source, target = (addresses.postgres_url(name) for name in ("source", "target"))
    path.ask(source, SETUP)
    kept = {}
    with path.Path(addresses, PREFIX, source, target) as pipeline:
        for name, statements in (("loaded", FIRST), ("taken over", SECOND), ("new epoch", THIRD)):
            accept_gap = name == "new epoch"
            pipeline.options = replace(pipeline.options, accept_gap=accept_gap)
            pipeline.start()
            pipeline.arrive()
            if name == "loaded":  # `run` has made the publication
                with closing(catalog.connect(parse_dsn(source))) as connection:
                    install.install(connection, PREFIX, ["*.*"], ())
            for statement in statements:
                path.ask(source, statement)
            pipeline.catch_up()
            kept[name] = {table: _rows_as_json(target, f"gauss_cdc.{table}") for table in OURS}
            pipeline.stop()
    (server,) = path.ask(source, "SELECT version()")
    return {
        "release": VERSION,
        "server": server[0],
        "prefix": PREFIX,
        "rows": {
            f"public.{name}": _texts(source, name) for name in ("account", '"log.of €"', "late")
        },
        "target": kept,
        **_topics(addresses.kafka_bootstrap, addresses.registry_url),
    }


def _rows_as_json(url: str, table: str) -> list[Any]:
    return [row for (row,) in path.ask(url, f"SELECT to_json(t) FROM {table} t")]


def _texts(url: str, table: str) -> list[dict[str, str | None]]:
    """Rows as texts, by the name of each column."""
    with closing(psycopg2.connect(url)) as db, db.cursor() as cursor:
        cursor.execute("SET TimeZone = 'UTC'")
        cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        names = [column.name for column in cursor.description or ()]
        # As the server prints it, which a cast of a boolean does not.
        cells = ", ".join(
            f"""CASE WHEN "{name}" IS NOT NULL THEN format('%s', "{name}") END""" for name in names
        )
        cursor.execute(f"SELECT {cells} FROM {table} ORDER BY 1, 2")
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _topics(bootstrap: str, registry: str) -> dict[str, Any]:
    """All below the prefix: its topics, and the schemas of their values and keys."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = sorted(name for name in admin.list_topics().topics if name.startswith(f"{PREFIX}."))
    described = admin.describe_topics(TopicCollection(names))
    topics, ids = {}, set()
    for name, future in described.items():
        said = future.result()
        partitions = [_partition(bootstrap, name, at) for at in range(len(said.partitions))]
        topics[name] = {"id": str(said.topic_id), "partitions": partitions}
        for part in partitions:
            for _, *framed, _ in part["records"]:
                ids |= {int(text[2:10], 16) for text in framed if text and text[:2] == "00"}
    client = SchemaRegistryClient({"url": registry})
    return {
        "cluster": admin.describe_cluster().result().cluster_id,
        "topics": topics,
        "schemas": {str(one): client.get_schema(one).schema_str for one in sorted(ids)},
    }


def _partition(bootstrap: str, topic: str, at: int) -> dict[str, Any]:
    """Committed records as [offset, key, value, headers], and where the partition ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "record",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, at, 0)])
    records: list[Any] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return {"end": message.offset(), "records": records}
            headers = [[name, _hex(value)] for name, value in message.headers() or ()]
            place = message.offset(), _hex(message.key()), _hex(message.value())
            records.append([*place, headers])
    finally:
        consumer.close()


def _hex(value: Any) -> str | None:
    return None if value is None else value.hex()


if __name__ == "__main__":
    main()
