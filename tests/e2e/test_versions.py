"""From one version of PostgreSQL to another: source and target are not the same server."""

import uuid

from gauss_cdc_lab.services.postgres import create_database
from tests.e2e.path import Path, ask, content

WORK = (
    "INSERT INTO person SELECT g, 'name ' || g, g * 1.5, now() FROM generate_series(100, 300) g",
    "UPDATE person SET balance = balance + 1 WHERE id % 3 = 0",
    "UPDATE person SET id = id + 10000 WHERE id BETWEEN 150 AND 170",
    "DELETE FROM person WHERE id % 7 = 0",
    "ALTER TABLE person ADD COLUMN note text",
    "UPDATE person SET note = 'noted' WHERE id % 2 = 0",
    "UPDATE big SET n = n + 1",
    "TRUNCATE leave",
    "INSERT INTO leave VALUES (2)",
)


def test_a_source_of_another_version_ends_in_an_equal_target(
    addresses, topic_prefix, new_database, other_postgres
) -> None:
    name, target = f"t_{uuid.uuid4().hex[:12]}", new_database()
    create_database(other_postgres, name)
    source = f"{other_postgres.rsplit('/', 1)[0]}/{name}"
    ask(
        source,
        "CREATE TABLE person (id int PRIMARY KEY, name text, balance numeric(12,2),"
        " since timestamptz);"
        "CREATE TABLE big (id int PRIMARY KEY, n int, body text);"
        "CREATE TABLE leave (id int PRIMARY KEY);"
        "ALTER TABLE big ALTER body SET STORAGE EXTERNAL;"
        "INSERT INTO person SELECT g, 'old ' || g, g, now() FROM generate_series(1, 50) g;"
        "INSERT INTO big SELECT g, 0, repeat(g::text, 3000) FROM generate_series(1, 5) g;"
        "INSERT INTO leave VALUES (1)",
    )
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        for statement in WORK:
            ask(source, statement)
        ledger = path.catch_up()

        assert ledger.state == "EXACT"
        for table in ("person", "big", "leave"):
            assert content(target, table) == content(source, table)
