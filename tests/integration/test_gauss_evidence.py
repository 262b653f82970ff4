"""What a server says of rows that a transaction wrote into the table that it made."""

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from producer.errors import SourceError
from producer.sources.gauss import evidence as gauss_evidence
from producer.sources.postgres.connection import ReplicationConnection, parse_dsn
from schemas.tables import TableId

T = TableId("public", "it's new")


@pytest.fixture
def session(postgres_url: str) -> Iterator[ReplicationConnection]:
    with ReplicationConnection.open(parse_dsn(postgres_url), replication=False) as connection:
        yield connection


def do(url: str, *statements: str) -> int:
    """Run statements in one transaction; return its number."""
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        cursor.execute("SELECT txid_current()")
        [(xid,)] = cursor.fetchall()
        return int(xid)


MADE = 'CREATE TABLE "it\'s new" (id int PRIMARY KEY, v text)'
FILLED = "CREATE TABLE \"it's new\" AS SELECT g AS id, 'v' AS v FROM generate_series(1, 3) g"


@pytest.mark.parametrize(
    ("at_once", "later", "wrote"),
    [
        ([MADE], [], False),
        ([FILLED], [], True),
        ([f"{FILLED} WITH NO DATA"], [], False),
        ([MADE, 'INSERT INTO "it\'s new" VALUES (1)'], [], True),
        ([FILLED], ["UPDATE \"it's new\" SET v = 'w' WHERE id = 1"], True),
        # Rows of others are there, or were: what the first transaction wrote nobody knows.
        ([MADE], ['INSERT INTO "it\'s new" VALUES (1)'], None),
        ([FILLED], ['DELETE FROM "it\'s new"'], None),
        ([FILLED], ["UPDATE \"it's new\" SET v = 'w'"], None),
        ([FILLED], ['TRUNCATE "it\'s new"'], None),
        ([FILLED], ['DROP TABLE "it\'s new"'], None),
        ([FILLED], ['DROP TABLE "it\'s new"', MADE], None),
        ([FILLED], ['ALTER TABLE "it\'s new" RENAME TO old', MADE], None),
        (["SAVEPOINT s", FILLED, "RELEASE s"], [], None),
    ],
)
def test_rows_show_their_transaction(
    at_once: list[str],
    later: list[str],
    wrote: bool | None,
    postgres_url: str,
    session: ReplicationConnection,
) -> None:
    xid = do(postgres_url, *at_once)
    if later:
        do(postgres_url, *later)

    assert gauss_evidence.wrote(session, T, xid) is wrote


def test_without_a_number_nothing_is_known(
    postgres_url: str, session: ReplicationConnection
) -> None:
    do(postgres_url, MADE)

    assert gauss_evidence.wrote(session, T, 0) is None


def test_a_table_that_may_not_be_read_is_not_known(
    postgres_url: str, session: ReplicationConnection
) -> None:
    xid = do(postgres_url, FILLED)
    session.query("CREATE ROLE nobody_at_all")
    try:
        session.query("SET ROLE nobody_at_all")
        assert gauss_evidence.wrote(session, T, xid) is None
    finally:
        session.query("RESET ROLE")
        session.query("DROP ROLE nobody_at_all")


def test_a_lock_in_the_way_is_not_waited_for_without_end(
    postgres_url: str, session: ReplicationConnection
) -> None:
    xid = do(postgres_url, FILLED)
    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute('LOCK TABLE "it\'s new" IN ACCESS EXCLUSIVE MODE')

        assert gauss_evidence.wrote(session, T, xid) is None

    assert gauss_evidence.wrote(session, T, xid) is True
    assert session.query("SHOW statement_timeout") == [["0"]]


def test_a_lost_session_is_no_answer(postgres_url: str, session: ReplicationConnection) -> None:
    xid = do(postgres_url, FILLED)
    [[pid]] = session.query("SELECT pg_backend_pid()")
    do(postgres_url, f"SELECT pg_terminate_backend({pid})")

    with pytest.raises(SourceError):
        gauss_evidence.wrote(session, T, xid)
