"""A look at a real catalog while others alter it."""

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from producer.core.catalog_watch import differences
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.patterns import chooser
from producer.sources.postgres import catalog
from producer.sources.postgres.catalog_look import look
from schemas.tables import TableId
from tests.services_fixtures import execute

T = TableId("public", "t")


@pytest.fixture
def options(postgres_url: str) -> Options:
    execute(postgres_url, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    execute(postgres_url, "CREATE PUBLICATION p FOR ALL TABLES")
    return Options(
        source=parse_dsn(postgres_url), slot="s", publication="p", prefix="x", client={},
        registry_url="",
    )  # fmt: skip


@pytest.fixture
def session(options: Options) -> Iterator:
    with closing(catalog.connect(options.source)) as connection:
        yield connection


def test_a_look_finds_what_a_reading_found_before(options: Options, session) -> None:
    known = {T: catalog.table_schemas(session, [T])[0]}
    seen = look(session, options, known, unless="")

    assert seen is not None
    wanted = chooser(options.include, options.exclude)
    assert not [*differences(known, seen, wanted=wanted, publication="p")]
    assert look(session, options, known, unless=seen.signature) is None
    assert session.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_IDLE


def test_a_table_that_is_being_altered_is_looked_at_later(
    options: Options, session, postgres_url: str
) -> None:
    known = {T: catalog.table_schemas(session, [T])[0]}
    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute("CREATE TABLE root (id int) PARTITION BY LIST (id)")
        cursor.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        look(session, options, known, unless="")  # ends, whether it needs the lock or not
        cursor.execute("DROP TABLE t")
        other.commit()

    seen = look(session, options, known, unless="")
    assert seen is not None
    found = [
        *differences(known, seen, wanted=chooser(options.include, options.exclude), publication="p")
    ]
    assert [str(finding) for finding in found] == ["public.t was dropped"]


def test_tables_that_come_and_go_meanwhile_stop_nothing(
    options: Options, session, postgres_url: str
) -> None:
    done = threading.Event()

    def churn() -> None:
        with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
            other.autocommit = True
            while not done.is_set():
                cursor.execute("CREATE TABLE passing (id int PRIMARY KEY, v text)")
                cursor.execute("DROP TABLE passing")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        seen = [look(session, options, {}, unless="") for _ in range(200)]
    finally:
        done.set()
        thread.join()

    assert any(seen)


def test_a_table_that_leaves_a_publication_and_comes_back_has_another_entry(
    options: Options, session, postgres_url: str
) -> None:
    execute(postgres_url, "DROP PUBLICATION p")
    execute(postgres_url, "CREATE PUBLICATION p FOR TABLE t")
    known = {T: catalog.table_schemas(session, [T])[0]}

    def entry() -> tuple[int, str]:
        seen = look(session, options, known, unless="")
        assert seen is not None
        return seen.tables[known[T].oid].membership, seen.signature

    first = entry()
    execute(postgres_url, "ALTER PUBLICATION p SET TABLE t")
    assert entry() == first
    execute(postgres_url, "ALTER PUBLICATION p DROP TABLE t")
    execute(postgres_url, "ALTER PUBLICATION p ADD TABLE t")
    assert entry()[0] != first[0]
    assert entry()[1] != first[1]
