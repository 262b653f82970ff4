"""Which tables lack rows behind a statement that only the catalog shows."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest

from producer.core.catalog.look import Before
from producer.sources.gauss import catalog_writers
from producer.sources.gauss.catalog_writers import CatalogWriters, NotJudged
from producer.sources.gauss.evidence import rows_of
from producer.sources.gauss.point import log_end
from producer.sources.postgres.connection import ReplicationConnection, parse_dsn
from schemas.control import CommitEntry, Commits, Head, Heartbeat, Range
from schemas.positions import NOWHERE, Lsn
from schemas.tables import TableId
from schemas.topics import Topics
from tests.integration.test_gauss_evidence import do

A, B, LONG, PARTED = (TableId("public", name) for name in ("a", "it's b", "x" * 63, "parted"))
TOPICS = Topics("bank")
HEAD = Head(1, 1, 1, "me", 0, 0, 0)
START = """
CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT g FROM generate_series(1, 9) g;
CREATE TABLE "it's b" (id int PRIMARY KEY, v text);
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE FOREIGN DATA WRAPPER there; CREATE SERVER far FOREIGN DATA WRAPPER there;
CREATE FOREIGN TABLE distant (id int) SERVER far; CREATE STATISTICS of_both ON id, v FROM a;
CREATE USER MAPPING FOR public SERVER far OPTIONS (name 'x');
CREATE TABLE temporal (id int) -- not captured
"""
ROW_A, ROW_B = "INSERT INTO a VALUES (100)", 'INSERT INTO "it\'s b" VALUES (100)'
OF_DATABASE = "DO $do$ BEGIN EXECUTE format('{}', current_database()); END $do$"
GRANT, TYPE = "GRANT SELECT ON a TO public", "CREATE TYPE pair AS (n int)"


@pytest.fixture
def session(postgres_url: str) -> Iterator[ReplicationConnection]:
    do(postgres_url, START)
    with ReplicationConnection.open(parse_dsn(postgres_url), replication=False) as connection:
        # As openGauss calls it.
        connection.query(
            "CREATE FUNCTION pg_current_xlog_insert_location() RETURNS pg_lsn LANGUAGE sql"
            " AS 'SELECT pg_current_wal_insert_lsn()'"
        )
        yield connection


class Watched:
    """The watch of a stream that is at the end of the log."""

    def __init__(self, session: ReplicationConnection, xid: int = 0) -> None:
        self.notes: list[str] = []
        self.session, self.writers = session, CatalogWriters(TOPICS, self.notes.append)
        self.writers.begin(xid)

    def look(self) -> set[TableId]:
        def end() -> Lsn:
            return log_end(self.session)

        return set(self.writers.suspected(self.session, lambda: (A, B, PARTED), end))

    def passes(self, xid: int = 0, *tables: TableId) -> None:
        """The stream is at the end of the log; it had rows of these in a transaction."""
        head = replace(HEAD, resume=log_end(self.session))
        if not xid:
            self.writers.delivered([Heartbeat(head)])
            return
        ranges = tuple(Range(TOPICS.table(table), 0, 0, 1) for table in tables)
        counts = dict.fromkeys(range(len(tables)), 1)
        entry = CommitEntry(1, xid, 0, 0, None, 0, len(tables), counts)
        self.writers.delivered([Commits(head, [entry], ranges)])

    def suspects(self) -> set[TableId]:
        """Look, let the stream pass, and look again."""
        found = self.look()
        self.passes()
        return found | self.look()


@pytest.mark.parametrize(
    ("statements", "suspected"),
    [
        ([ROW_A, ROW_B], set()),  # no statement
        ([GRANT], set()),
        ([TYPE], set()),
        ([GRANT, ROW_A], {A}),
        ([GRANT, ROW_B], {B}),
        ([ROW_A, TYPE, ROW_B], {A, B}),
        (["GRANT SELECT (v) ON a TO public", ROW_B], {B}),
        (["COMMENT ON TABLE a IS 'x'", ROW_B], {B}),
        (["CREATE TEMPORARY TABLE mine (n int)", ROW_B], {B}),
        (["CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", ROW_B], {B}),
        (["ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public", ROW_B], {B}),
        (["GRANT USAGE ON SCHEMA public TO public", "UPDATE a SET v = 'w' WHERE id = 5"], {A}),
        ([OF_DATABASE.format("GRANT CONNECT ON DATABASE %I TO public"), ROW_B], {B}),
        ([OF_DATABASE.format("ALTER DATABASE %I SET work_mem = 1024"), ROW_B], {B}),
        ([OF_DATABASE.format("COMMENT ON DATABASE %I IS $x$x$x$"), ROW_B], {B}),
        (["ALTER ROLE postgres CONNECTION LIMIT -1", ROW_B], {B}),
        ([OF_DATABASE.format("ALTER ROLE postgres IN DATABASE %I SET jit = 1"), ROW_B], {B}),
        (["GRANT CREATE ON TABLESPACE pg_default TO postgres", ROW_B], {B}),
        (["ALTER TABLE a CLUSTER ON a_pkey", ROW_B], {B}),
        (["CREATE FOREIGN DATA WRAPPER made", ROW_B], {B}),
        (["ALTER FOREIGN TABLE distant OPTIONS (name 'x')", ROW_B], {B}),
        (["ALTER USER MAPPING FOR public SERVER far OPTIONS (SET name 'y')", ROW_B], {B}),
        (["ALTER STATISTICS of_both SET STATISTICS 50", ROW_B], {B}),
        (["TRUNCATE a", "INSERT INTO a VALUES (1)"], {A}),
        (["CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM (0) TO (9)"], set()),
        (["ANALYZE", ROW_B], set()),
        (["CREATE INDEX ON a (v)"], set()),
    ],
)
def test_rows_of_a_transaction_that_changed_the_catalog_are_suspected(
    statements: list[str],
    suspected: set[TableId],
    session: ReplicationConnection,
    postgres_url: str,
) -> None:
    watched = Watched(session)
    assert watched.suspects() == set()  # what was there before the first look

    do(postgres_url, *statements)

    assert watched.suspects() == suspected
    assert watched.suspects() == set()  # once


def test_what_writes_a_table_anew_is_no_statement_with_rows(
    session: ReplicationConnection, postgres_url: str
) -> None:
    watched = Watched(session)
    watched.look()
    for statement in ("VACUUM FULL public.a", "CLUSTER public.a USING a_pkey", "VACUUM ANALYZE"):
        session.query(statement)

    assert watched.suspects() == set()


def test_tables_that_had_rows_of_it_in_the_stream_are_suspected_wherever_these_are(
    session: ReplicationConnection, postgres_url: str
) -> None:
    do(postgres_url, "INSERT INTO a SELECT g FROM generate_series(1000, 60000) g")
    watched = Watched(session)
    watched.look()
    updated = do(postgres_url, "UPDATE a SET v = 'w' WHERE id = 30000", GRANT)
    do(postgres_url, "INSERT INTO a SELECT g, 'x' FROM generate_series(70000, 99000) g")
    assert list(rows_of(session, {A: {updated}})) == []

    assert watched.look() == set()  # the stream has to pass them first
    watched.passes(updated, A)
    assert watched.look() == {A}
    assert watched.look() == set()


def test_rows_that_were_sent_are_known_though_looks_came_in_between(
    session: ReplicationConnection, postgres_url: str
) -> None:
    """A transaction that runs, and what was delivered meanwhile, is found by a later look."""
    watched = Watched(session)
    watched.look()
    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute("SELECT txid_current()")
        [(xid,)] = cursor.fetchall()
        watched.passes(xid, A)
        assert watched.look() == set()
        watched.passes(do(postgres_url, ROW_B), B)
        assert watched.look() == set()
        cursor.execute(TYPE)
        other.commit()

    assert watched.suspects() == {A}


def test_of_a_transaction_that_was_forgotten_each_table_is_suspected(
    session: ReplicationConnection, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_writers, "_MOST_DELIVERED", 3)
    watched = Watched(session)
    watched.look()
    with closing(psycopg2.connect(postgres_url)) as older, older.cursor() as cursor:
        cursor.execute("SELECT txid_current()")  # so that nothing is left behind
        for _ in range(5):
            watched.passes(do(postgres_url, "SELECT 1"), A)
        changed = do(postgres_url, TYPE)
        watched.passes(changed, B)
        for _ in range(5):
            watched.passes(do(postgres_url, "SELECT 1"), A)
        assert watched.suspects() == {A, B, PARTED}


def test_a_table_that_may_not_be_searched_is_suspected(
    session: ReplicationConnection, postgres_url: str
) -> None:
    do(postgres_url, 'CREATE ROLE reader; GRANT SELECT ON "it\'s b" TO reader')
    session.query("SET ROLE reader")
    watched = Watched(session)
    watched.look()
    do(postgres_url, TYPE)

    assert watched.suspects() == {A, PARTED}
    do(postgres_url, "DROP TABLE a, parted", "DROP TYPE pair")
    assert watched.suspects() == set(), "they are gone"


def test_what_a_decoded_statement_names_was_judged_where_it_came(
    session: ReplicationConnection, postgres_url: str
) -> None:
    watched = Watched(session)
    watched.look()
    xid = do(postgres_url, "ALTER TABLE a ALTER v TYPE varchar(9) USING v || 'x'", ROW_B)
    watched.writers.judged(xid, frozenset({A}))

    assert watched.suspects() == {B}


def test_a_start_looks_for_what_was_written_since_the_last_delivered_transaction(
    session: ReplicationConnection, postgres_url: str
) -> None:
    do(postgres_url, GRANT, ROW_A)
    last = do(postgres_url, ROW_B)
    do(postgres_url, TYPE, "UPDATE \"it's b\" SET v = 'w'")

    assert Watched(session).suspects() == set()
    assert Watched(session, last).suspects() == {B}


def test_a_start_goes_on_where_an_earlier_run_had_judged_all(
    session: ReplicationConnection, postgres_url: str
) -> None:
    earlier = Watched(session)
    earlier.look()
    horizon = earlier.writers.horizon
    do(postgres_url, GRANT, ROW_A)
    last = do(postgres_url, ROW_B)  # it was delivered, and no look came behind it
    earlier.look()
    assert horizon <= earlier.writers.horizon < last, "one waits for the stream"

    later = Watched(session, last)
    later.writers.go_on(Before.of_files(horizon))
    assert later.suspects() == {A}
    later.writers.go_on(Before.of_files(horizon))  # of no use any more
    assert later.suspects() == set()


def test_what_was_judged_behind_an_open_transaction_is_not_judged_again(
    session: ReplicationConnection, postgres_url: str
) -> None:
    earlier = Watched(session)
    with closing(psycopg2.connect(postgres_url)) as older, older.cursor() as cursor:
        cursor.execute("SELECT txid_current()")
        assert earlier.suspects() == set()
        do(postgres_url, GRANT, ROW_A)
        assert earlier.suspects() == {A}
        assert earlier.writers.has_moved

        later = Watched(session)
        writers = earlier.writers
        later.writers.go_on(Before.of_files(writers.horizon, writers.behind_horizon))
        do(postgres_url, TYPE, ROW_B)
        assert later.suspects() == {B}


class Waited:
    """What `wait` asks, after looks of a `run`."""

    def __init__(self, session: ReplicationConnection) -> None:
        self.watched, self._not_judged = Watched(session), NotJudged()
        self._before: Before | None = None

    def look(self, *, passes: bool = True) -> None:
        if passes:
            self.watched.passes()
        self.watched.look()
        writers = self.watched.writers
        if self._before is None or writers.has_moved:
            self._before = Before.of_files(writers.horizon, writers.behind_horizon)

    def left(self, *, again: bool = False) -> str:
        if not again:
            self._not_judged.begin()
        looked = self._before and Before.of(self._before.looked())
        return self._not_judged(self.watched.session, looked)


@pytest.fixture
def waited(session: ReplicationConnection) -> Waited:
    found = Waited(session)
    assert "has not been looked at" in found.left()
    found.look()
    assert found.left() == ""
    return found


def test_a_wait_is_one_for_the_look_behind_each_statement(
    waited: Waited, postgres_url: str
) -> None:
    do(postgres_url, ROW_B)
    assert waited.left() == "", "no statement"

    xid = do(postgres_url, GRANT, ROW_A)
    assert f"transaction {xid} " in waited.left()
    waited.look(passes=False)
    assert f"transaction {xid} " in waited.left(), "the stream has not passed it"
    waited.look()
    assert waited.left() == ""


def test_a_wait_goes_by_what_was_judged_while_an_older_transaction_is_open(
    waited: Waited, postgres_url: str
) -> None:
    with closing(psycopg2.connect(postgres_url)) as older, older.cursor() as cursor:
        cursor.execute("SELECT txid_current()")
        xid = do(postgres_url, GRANT, ROW_A)
        waited.look(passes=False)
        assert f"transaction {xid} " in waited.left()
        waited.look()
        assert waited.left() == ""
        cursor.execute("GRANT SELECT ON a TO postgres")
        older.commit()
    assert "transaction " in waited.left(), "the older one, below those that were judged"


def test_a_wait_is_one_for_a_table_that_could_not_be_searched(
    waited: Waited, session: ReplicationConnection, postgres_url: str
) -> None:
    do(postgres_url, GRANT, ROW_A)
    waited.look(passes=False)
    session.query("SET lock_timeout = '50ms'")
    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE a")
        waited.look()
        assert "transaction " in waited.left()
    waited.look()
    assert waited.left() == ""


def test_a_wait_is_none_for_statements_that_come_meanwhile(
    waited: Waited, postgres_url: str
) -> None:
    first = do(postgres_url, GRANT, ROW_A)
    assert f"transaction {first} " in waited.left()
    waited.look(passes=False)
    waited.watched.passes()
    second = do(postgres_url, TYPE, ROW_B)
    assert f"transaction {first} " in waited.left(again=True)
    waited.look(passes=False)
    assert waited.left(again=True) == ""
    assert f"transaction {second} " in waited.left()


def test_a_wait_is_one_for_a_look_at_the_server_that_is_there_now(waited: Waited) -> None:
    waited._before = Before.of_files(1 << 40)
    assert "has not been looked at" in waited.left()


def test_ids_of_another_server_are_none_of_this_one(
    session: ReplicationConnection, postgres_url: str
) -> None:
    watched = Watched(session, 1 << 40)
    watched.look()
    do(postgres_url, GRANT, ROW_A)

    assert watched.suspects() == {A}


def test_a_stream_without_positions_is_waited_for_by_looks(
    session: ReplicationConnection, postgres_url: str
) -> None:
    writers = CatalogWriters(TOPICS, pytest.fail)
    looks = [writers.suspected(session, lambda: (A,), lambda: NOWHERE)]
    do(postgres_url, GRANT, ROW_A)
    looks += [writers.suspected(session, lambda: (A,), lambda: NOWHERE) for _ in range(5)]

    assert looks == [(), (), (), (), (A,), ()]


def test_a_look_that_fails_is_said_once_and_the_next_one_sees_it_all(
    session: ReplicationConnection, postgres_url: str
) -> None:
    watched = Watched(session)
    watched.look()
    session.query("SET lock_timeout = '50ms'")
    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE pg_catalog.pg_default_acl")
        do(postgres_url, GRANT, ROW_A)
        assert [watched.look(), watched.look()] == [set(), set()]
    assert len(watched.notes) == 1

    assert watched.suspects() == {A}


def test_a_table_that_is_locked_is_searched_once_it_is_not(
    session: ReplicationConnection, postgres_url: str
) -> None:
    watched = Watched(session)
    watched.look()
    do(postgres_url, GRANT, ROW_A, ROW_B)
    watched.look()
    watched.passes()
    session.query("SET lock_timeout = '50ms'")
    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE a")
        assert [watched.look(), watched.look()] == [{B}, set()]

    assert [watched.look(), watched.look()] == [{A}, set()]


def test_what_is_done_in_another_database_is_none_of_ours(
    session: ReplicationConnection, new_database
) -> None:
    watched = Watched(session)
    watched.look()
    do(new_database(), "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")

    assert watched.suspects() == set()


def test_a_catalog_that_may_not_be_read_is_left_out(
    session: ReplicationConnection, postgres_url: str
) -> None:
    session.query("REVOKE SELECT ON pg_catalog.pg_class FROM public")
    session.query("CREATE ROLE nobody_at_all")
    try:
        session.query("SET ROLE nobody_at_all")
        watched = Watched(session)
        assert watched.suspects() == set()
        do(postgres_url, GRANT, ROW_A)
        assert watched.suspects() == set()  # nor may the table be
    finally:
        session.query("RESET ROLE")
        session.query("DROP ROLE nobody_at_all; GRANT SELECT ON pg_catalog.pg_class TO public")
