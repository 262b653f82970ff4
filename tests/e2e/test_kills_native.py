"""`run` is killed in a backlog of everything that the native parts leave to Python.

Each life of `run` makes rows natively or in Python: what one began the other goes on with.
"""

import random
import signal

import psycopg2

from tests.e2e.path import ask
from tests.e2e.tables import differences
from tests.e2e.test_ddl import install
from tests.e2e.test_ddl_random import Killed

LIVES = ("auto", "off", "auto", "off", "auto")  # who makes the rows
WIDE = 120  # columns
KINDS = ("int", "text", "boolean", "numeric(20,4)", "jsonb", "timestamp(3)")
COLUMNS = ", ".join(f"c{at} {kind}" for at, kind in enumerate(KINDS * (WIDE // len(KINDS))))
START = f"""
CREATE TABLE marker (id int PRIMARY KEY);
CREATE TABLE account (
    id bigint PRIMARY KEY, owner text NOT NULL, balance numeric(12,2), rate double precision,
    free numeric, seen timestamptz, day date, paper text);
ALTER TABLE account ALTER paper SET STORAGE EXTERNAL;
CREATE TABLE log (at timestamp, what text, raw bytea);
ALTER TABLE log REPLICA IDENTITY FULL;
CREATE TABLE passing (id int PRIMARY KEY, v text);
CREATE TABLE wide (id int PRIMARY KEY, {COLUMNS});
INSERT INTO account SELECT g, 'owner ' || g, g, g, g, now(), now(), repeat('p', 3000)
  FROM generate_series(1, 50) g;
"""
FAR = ("infinity", "-infinity", "0044-03-15 00:00+00 BC", "2024-05-01 12:00:00.5+00")


def work(cursor, rng: random.Random) -> None:
    """One transaction."""
    for _ in range(rng.choice([0, 1, 1, 2, 5, 30])):
        some = rng.randrange(1, 60)
        match rng.randrange(12):
            case 0 | 1 | 2:  # a value that is long and not sent
                cursor.execute("UPDATE account SET balance = balance + 1 WHERE id = %s", [some])
            case 3:
                cursor.execute(
                    "UPDATE account SET rate = %s, free = 'NaN', seen = %s WHERE id = %s",
                    [rng.choice(["NaN", "infinity", "-0"]), rng.choice(FAR), some],
                )
            case 4:
                cursor.execute(
                    "INSERT INTO account SELECT coalesce(max(id), 0) + 1, 'new', 1.5, 0.1, 1e-9,"
                    " '2024-05-01 12:00+00', '0044-03-15 BC', repeat('q', 2500) FROM account"
                )
            case 5:
                cursor.execute("UPDATE account SET id = -id WHERE id = %s", [some])
            case 6:
                cursor.execute("DELETE FROM account WHERE id = %s", [-some])
            case 7 | 8:
                cursor.execute("INSERT INTO log VALUES (now(), 'a', '\\x00ff'), (NULL, '', NULL)")
            case 9:
                cursor.execute("INSERT INTO passing SELECT coalesce(max(id), 0) + 1 FROM passing")
                if rng.random() < 0.1:
                    cursor.execute("TRUNCATE passing")
            case 10:
                cursor.execute(
                    f"INSERT INTO wide (id, c0, c1, c{WIDE - 1}) VALUES (%s, 1, 'w', now())"
                    " ON CONFLICT (id) DO UPDATE SET c0 = wide.c0 + 1, c3 = 0.5", [some]
                )  # fmt: skip
            case _:
                cursor.execute("SELECT pg_logical_emit_message(%s, 'p', 'm')", [some % 2 == 0])


def load(url: str, rng: random.Random, transactions: int, column: str) -> None:
    """Commit transactions; in the middle of them a column is added and used at once."""
    connection = psycopg2.connect(url)
    for at in range(transactions):
        with connection, connection.cursor() as cursor:
            if at == transactions // 2:
                cursor.execute(f"ALTER TABLE account ADD COLUMN {column} text DEFAULT 'd'")
                cursor.execute(f"UPDATE account SET {column} = owner WHERE id % 2 = 0")
            work(cursor, rng)
    connection.close()


def test_whoever_makes_the_rows_when_run_is_killed_the_target_is_equal(
    addresses, topic_prefix, new_database, tmp_path
) -> None:
    source, target = new_database(), new_database()
    ask(source, START)
    rng = random.Random(7)
    kafka = "messages = true\ngroup-rows = 40\n"
    with Killed(addresses, topic_prefix, source, target) as path:
        path.begin(tmp_path, kafka)
        path.barrier()
        install(source, topic_prefix)
        for life, native in enumerate(LIVES):
            before = path.applier.drain().seq
            path.configure(f'{kafka}native = "{native}"')
            path.kill()
            load(source, rng, 150, f"c{life}")
            path.go()
            path.grow(before + rng.choice([1, 10, 40]))
        path.barrier()

        assert dict(path.ledger.inexact) == {}
        assert differences(source, target) == []
        path.kill(signal.SIGTERM)
