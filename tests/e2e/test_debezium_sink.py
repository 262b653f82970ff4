"""Debezium's own JDBC sink connector reads our topics into a database that ends equal.

One of its tables it makes itself.  What it cannot do with Debezium's own records either is
left out: it cuts the fraction of an interval's seconds, and takes the placeholder of an unsent
value for a value, so that tables with long values need REPLICA IDENTITY FULL.
"""

import threading

import pytest

from tests.connect import Connect
from tests.e2e.path import Path, ask, content, until

TABLES = """
CREATE TABLE person (id int PRIMARY KEY, name text NOT NULL, nick varchar(20), code char(5),
    balance numeric(12,2), precise numeric(40,20), at timestamptz, born date, wakes time,
    woke timestamp, woke_ms timestamp(3), rank smallint, total bigint, score float8, small real,
    is_good boolean, token uuid, doc jsonb, plain json, raw bytea, span interval);
CREATE TABLE pair (a int, b text, v int, PRIMARY KEY (a, b));
CREATE TABLE leave (id int PRIMARY KEY, v text);
CREATE TABLE priced (price numeric PRIMARY KEY, v int);
CREATE TABLE big (id int PRIMARY KEY, n int, body text);
ALTER TABLE big ALTER body SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
"""
ROW = (
    "'n' || g, 'nick ' || g, 'c', g * 1.25, g / 7.0, '2024-02-29 12:34:56.789012+02'::timestamptz"
    " + g * interval '1 h', date '0001-01-01' + g, time '12:34:56.789012',"
    " timestamp '1969-12-31 23:59:59.123456', timestamp(3) '2024-02-29 12:34:56.789',"
    " g::smallint, g * 4200000000::bigint, g / 3.0, g / 3.0::real, g % 2 = 0,"
    " '0190163d-8694-739b-aea5-966c26f8ad91'::uuid, '{\"b\": 1}'::jsonb, '{\"b\":  1}'::json,"
    " '\\x00ff'::bytea, interval '04:05:06'"
)
WORK = (
    f"INSERT INTO person SELECT g, {ROW} FROM generate_series(100, 200) g",
    "UPDATE person SET balance = balance + 1, nick = NULL WHERE id % 3 = 0",
    "UPDATE person SET id = id + 1000 WHERE id BETWEEN 150 AND 160",
    "DELETE FROM person WHERE id % 7 = 0",
    "INSERT INTO person (id, name) VALUES (150, 'again')",
    "INSERT INTO pair SELECT g, 'x', g FROM generate_series(1, 9) g; UPDATE pair SET a = a + 100",
    "UPDATE pair SET b = 'y' WHERE a = 105; DELETE FROM pair WHERE a = 107",
    "ALTER TABLE pair ADD COLUMN more text; UPDATE pair SET more = 'm' WHERE a = 101",
    "INSERT INTO big SELECT g, 0, repeat(g::text, 3000) FROM generate_series(1, 5) g",
    "UPDATE big SET n = 1; UPDATE big SET id = id + 100 WHERE id > 3",
    "TRUNCATE leave; INSERT INTO leave VALUES (2, 'kept')",
    "UPDATE priced SET price = 1.5, v = 3 WHERE price = 1.5; DELETE FROM priced WHERE price = 2",
    "INSERT INTO leave VALUES (3, 'last')",
)


@pytest.fixture
def connect(addresses, tmp_path):
    with Connect(addresses, tmp_path / "connect") as worker:
        yield worker


def test_debeziums_jdbc_sink_ends_equal_to_the_source(
    addresses, topic_prefix, new_database, connect: Connect
) -> None:
    source, target = new_database(), new_database()
    ask(
        source,
        TABLES + f"INSERT INTO person SELECT g, {ROW} FROM generate_series(1, 50) g;"
        "INSERT INTO leave VALUES (1, 'goes'); INSERT INTO priced VALUES (1.50, 1), (2.00, 2)",
    )
    ask(target, TABLES.replace("CREATE TABLE pair", "CREATE TABLE not_made_by_the_sink"))
    names = ("person", "pair", "big", "leave", "priced")
    settings = {"key": "primary-key", "transaction_metadata": True}
    with Path(addresses, topic_prefix, source, new_database(), **settings) as path:
        path.start()
        path.catch_up()
        connect.start(
            "sink",
            {
                "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
                "connection.url": f"jdbc:{target.replace(addresses.postgres_user + '@', '')}",
                "connection.username": addresses.postgres_user,
                "connection.password": "unused",
                "topics": ",".join(f"{topic_prefix}.public.{name}" for name in names),
                "collection.name.format": "${source.table}",
                "insert.mode": "upsert",
                "primary.key.mode": "record_key",
                "delete.enabled": "true",
                "truncate.enabled": "true",
                "schema.evolution": "basic",
            },
        )
        for statement in WORK:
            ask(source, statement)
        path.catch_up()
        stop = threading.Event()

        def arrived() -> bool:
            connect.check("sink")
            return all(_content(target, name) == content(source, name) for name in names)

        until(arrived, "the sink's tables equal to the source's", stop.wait)


def _content(url: str, table: str) -> list[str]:
    there = ask(url, "SELECT to_regclass(%s) IS NOT NULL", table)[0][0]
    return content(url, table) if there else []
