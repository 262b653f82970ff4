"""Record what a real server's pgoutput sends, as golden vectors.

    python -m tests.golden.record_pgoutput postgresql://postgres@127.0.0.1:5432/scratch

Makes schema `golden`, a publication and a slot of that name in the database (they
are dropped again), runs each scenario and writes tests/golden/pgoutput/*.json:
the SQL, and for every message its bytes and what they mean.  Read the diff: the
meanings come from the decoder under test, so it is a person who says they are right.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from producer.errors import SlotMissing
from producer.sources.postgres import catalog, publications
from producer.sources.postgres.connection import (
    ConnectionArguments,
    ReplicationConnection,
    parse_dsn,
)
from producer.sources.postgres.pgoutput import decode
from schemas.positions import Lsn, lsn_text, parse_lsn

FOLDER = Path(__file__).parent / "pgoutput"
NAME = "golden"
_LSN = re.compile(r"\b((?:\w+_)?lsn)=(\d+)")


class Scenario(NamedTuple):
    before: str  # not recorded
    changes: str  # recorded; each line its own transaction unless it says BEGIN
    options: dict[str, str] = {"messages": "true"}  # noqa: RUF012
    with_root: bool = False


SCENARIOS = {
    "insert": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY, name text, amount numeric(10,2), at timestamptz)",
        "INSERT INTO t VALUES (1, 'Ann', 12.50, '2024-02-29 12:00:00+00'), (2, '', NULL, NULL)",
    ),
    "update_plain": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')",
        "UPDATE t SET v = 'b'",
    ),
    "update_of_the_key": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')",
        "UPDATE t SET id = 2",
    ),
    "update_identity_full": Scenario(
        "CREATE TABLE t (id int, v text); ALTER TABLE t REPLICA IDENTITY FULL;"
        " INSERT INTO t VALUES (1, NULL)",
        "UPDATE t SET v = 'b'",
    ),
    "update_identity_index": Scenario(
        "CREATE TABLE t (a int, b int NOT NULL); CREATE UNIQUE INDEX i ON t (b);"
        " ALTER TABLE t REPLICA IDENTITY USING INDEX i; INSERT INTO t VALUES (1, 1)",
        "UPDATE t SET b = 2",
    ),
    "unchanged_toast": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY, big text, n int);"
        " ALTER TABLE t ALTER big SET STORAGE EXTERNAL;"
        " INSERT INTO t VALUES (1, repeat('x', 3000), 1)",
        "UPDATE t SET n = 2",
    ),
    "delete": Scenario(
        "CREATE TABLE t (v text, id int PRIMARY KEY); INSERT INTO t VALUES ('a', 1)",
        "DELETE FROM t",
    ),
    "delete_identity_full": Scenario(
        "CREATE TABLE t (v text, id int); ALTER TABLE t REPLICA IDENTITY FULL;"
        " INSERT INTO t VALUES ('a', 1)",
        "DELETE FROM t",
    ),
    "truncate": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int REFERENCES t)",
        "TRUNCATE t, u RESTART IDENTITY; TRUNCATE t CASCADE; TRUNCATE u",
    ),
    "column_added_and_dropped": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY, gone int)",
        "INSERT INTO t VALUES (1, 1);"
        " BEGIN; ALTER TABLE t DROP gone, ADD fresh text DEFAULT 'f';"
        " INSERT INTO t VALUES (2); COMMIT",
    ),
    "user_type": Scenario(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE t (id int PRIMARY KEY, m mood)",
        "INSERT INTO t VALUES (1, 'ok')",
    ),
    "odd_names": Scenario(
        'CREATE TABLE "账户.A" (id int PRIMARY KEY, "金额 €" numeric, """q""" bool)',
        """INSERT INTO "账户.A" VALUES (1, 1.10, true)""",
    ),
    "logical_messages": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "BEGIN; SELECT pg_logical_emit_message(true, 'gauss-cdc.ddl', '{}');"
        " INSERT INTO t VALUES (1); COMMIT; SELECT pg_logical_emit_message(false, 'p', '')",
    ),
    "origin": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY);"
        " SELECT pg_replication_origin_create('golden'),"
        " pg_replication_origin_session_setup('golden')",
        "BEGIN; SELECT pg_replication_origin_xact_setup('0/AB', '2020-01-01');"
        " INSERT INTO t VALUES (1); COMMIT; SELECT pg_replication_origin_session_reset();"
        " SELECT pg_replication_origin_drop('golden')",
    ),
    "partition_by_its_root": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        " CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "INSERT INTO t VALUES (1)",
        with_root=True,
    ),
    "generated_column": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, z int)",
        "INSERT INTO t VALUES (1, DEFAULT, 3)",
    ),
    "session_text_forms": Scenario(
        "CREATE TABLE t (id int PRIMARY KEY, f float8, d date, i interval, b bytea, c regclass)",
        "INSERT INTO t VALUES (1, 0.1, '0044-03-15 BC', '1 year -2 days 03:04:05.6', '\\x00ff',"
        " 't')",
    ),
}


def meaning(payload: bytes) -> str:
    """What a message says, its positions as the server writes them."""
    return _LSN.sub(lambda lsn: f"{lsn[1]}={lsn_text(Lsn(int(lsn[2])))}", repr(decode(payload)))


def record(arguments: ConnectionArguments, scenario: Scenario) -> list[bytes]:
    """Run one scenario; the payloads it made."""
    db = catalog.connect(arguments)
    cursor = db.cursor()
    cursor.execute(f"DROP SCHEMA IF EXISTS {NAME} CASCADE; CREATE SCHEMA {NAME}")
    cursor.execute(f"SET search_path = {NAME}")
    cursor.execute(f"DROP PUBLICATION IF EXISTS {NAME}; {scenario.before}")
    via_root = "true" if scenario.with_root else "false"
    tables = catalog.expand(db, [f"{NAME}.*"])
    publications.create_publication(db, NAME, tables, {"publish_via_partition_root": via_root})
    with ReplicationConnection.open(arguments) as stream:
        with suppress(SlotMissing):
            stream.drop_slot(NAME)
        stream.create_slot(NAME, "pgoutput", temporary=True)
        for statement in scenario.changes.split("; "):
            cursor.execute(statement)
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        end = parse_lsn(cursor.fetchone()[0])
        stream.start(NAME, {"proto_version": "1", "publication_names": NAME, **scenario.options})
        payloads = []
        while stream.received_end < end:
            received = stream.receive(0.1)
            payloads += [payload for _, _, payload in received.messages]
            if not received.messages:
                stream.send_status(Lsn(0), reply=True)
    cursor.execute(f"DROP SCHEMA {NAME} CASCADE; DROP PUBLICATION {NAME}")
    db.close()
    return payloads


def main(dsn: str) -> None:
    arguments = parse_dsn(dsn)
    with ReplicationConnection.open(arguments) as connection:
        server = connection.parameters["server_version"].split()[0]
    FOLDER.mkdir(exist_ok=True)
    for name, scenario in SCENARIOS.items():
        vector = {
            "server": f"PostgreSQL {server}",
            "before": scenario.before,
            "changes": scenario.changes,
            "messages": [
                {"hex": payload.hex(), "means": meaning(payload)}
                for payload in record(arguments, scenario)
            ],
        }
        text = json.dumps(vector, indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
