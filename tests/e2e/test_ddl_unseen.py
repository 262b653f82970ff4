"""What the event triggers cannot see: it is marked, and stops no target."""

import uuid
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
from psycopg2 import sql

from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.test_ddl import install
from tests.services_fixtures import drop_database, execute

START = """
CREATE TABLE t (id int PRIMARY KEY, v int, w text);
INSERT INTO t SELECT n, n, 'w' || n FROM generate_series(1, 30) n
"""
MADE = "ALTER TABLE t ADD x int GENERATED ALWAYS AS (v + 1) STORED"
ADDED = ["ALTER TABLE t ADD x int", "UPDATE t SET x = id"]
OLD_SNAPSHOTS = {
    "a column": (ADDED, "ALTER TABLE t ALTER v SET DEFAULT 4"),
    "another column goes": (ADDED, "ALTER TABLE t DROP v"),
    "another key": (
        ["ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)", "UPDATE t SET id = 5"],
        "ALTER TABLE t ADD y int",
    ),
    "a generated column": ([MADE], "ALTER TABLE t ALTER x DROP EXPRESSION"),
}  # fmt: skip


@pytest.fixture
def path(addresses, topic_prefix, new_database) -> Iterator[Path]:
    with opened(addresses, topic_prefix, new_database(), new_database()) as path:
        begin(path)
        yield path


def opened(addresses, prefix: str, source: str, target: str) -> Path:
    ask(source, START)
    return Path(addresses, prefix, source, target, repair="auto", look_seconds=0.5)


def begin(path: Path) -> None:
    path.start()
    assert path.waited() == {}
    install(path.source, path.prefix)
    assert path.waited() == {}


def is_equal_or_marked(path: Path) -> bool:
    is_marked = "public.t" in path.waited()
    return is_marked or content(path.source, "t") == content(path.target, "t")


@pytest.mark.parametrize("what", OLD_SNAPSHOTS)
def test_a_transaction_that_sees_the_catalog_as_it_was(path: Path, what: str) -> None:
    """It was described so: a column of another transaction was dropped at the target, EXACT."""
    others, own = OLD_SNAPSHOTS[what]
    with closing(psycopg2.connect(path.source)) as session, session.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT FROM pg_class")
        for statement in others:
            ask(path.source, statement)
        cursor.execute(own)
        session.commit()

    assert is_equal_or_marked(path)
    ask(path.source, "UPDATE t SET w = 'later' WHERE id > 20")
    assert is_equal_or_marked(path)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_behind_which_nothing_was_committed_is_described(path: Path, level: str) -> None:
    with closing(psycopg2.connect(path.source)) as session, session.cursor() as cursor:
        cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        cursor.execute("SELECT FROM pg_class")
        cursor.execute("SAVEPOINT s; ALTER TABLE t ADD x int DEFAULT 7; RELEASE s")
        cursor.execute("CREATE TABLE made (id int PRIMARY KEY); INSERT INTO made VALUES (1)")
        ask(path.source, "CREATE TABLE other (id int PRIMARY KEY)")
        cursor.execute("ALTER TABLE made ADD y int DEFAULT 8")
        session.commit()

    assert path.waited() == {}
    for table in ("t", "made"):
        assert content(path.source, table) == content(path.target, table)


def test_a_column_that_was_generated_while_a_trigger_was_off(path: Path) -> None:
    """Neither that nor an error in a trigger leaves it among the columns that are known so."""
    ask(path.source, "ALTER EVENT TRIGGER gauss_cdc_ddl_end DISABLE")
    ask(path.source, MADE)
    ask(path.source, "ALTER EVENT TRIGGER gauss_cdc_ddl_end ENABLE ALWAYS")
    until(lambda: path.waited() == {}, "a table that was read again", pause)
    ask(path.source, "ALTER TABLE t ALTER x DROP EXPRESSION")

    assert is_equal_or_marked(path)


@pytest.mark.since(15, "a database's own ICU locale")
def test_letters_are_those_of_no_language(addresses, topic_prefix) -> None:
    """In Turkish the small letter of I has no dot: USING was not found in the text."""
    urls = []
    for _ in range(2):
        name = f"t_{uuid.uuid4().hex[:12]}"
        locale = "LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LC_COLLATE 'C' LC_CTYPE 'C'"
        statement = f"CREATE DATABASE {{}} TEMPLATE template0 ENCODING 'UTF8' {locale}"
        execute(addresses.postgres_url(), sql.SQL(statement).format(sql.Identifier(name)))
        urls.append(addresses.postgres_url(name))
    try:
        with opened(addresses, topic_prefix, *urls) as path:
            begin(path)
            ask(path.source, "ALTER TABLE t ALTER v TYPE int USING v + 1000")
            assert is_equal_or_marked(path)
    finally:
        for url in urls:
            drop_database(addresses.postgres_url(), url.rpartition("/")[2])
