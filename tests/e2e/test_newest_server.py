"""What PostgreSQL 16, 17 and 18 brought, at a source of 18: copied, or refused by name."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from gauss_cdc_lab.services import Addresses
from producer.errors import SourceError, Unsupported
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog, publications
from producer.sources.postgres.checks import check_source, check_table
from producer.sources.postgres.triggers import install
from schemas.findings import Level
from schemas.tables import TableId
from tests.e2e.path import Path, ask, content, pause, until
from tests.services_fixtures import databases, execute

# tables with rows, what is done to them, what is the same at the end
BROUGHT = {
    "NOT NULL that older rows do not meet": (
        (
            "CREATE TABLE a (id int PRIMARY KEY, v int)",
            "INSERT INTO a VALUES (1, NULL), (2, 5)",
            "ALTER TABLE a ADD CONSTRAINT nn NOT NULL v NOT VALID",
        ),
        (
            "INSERT INTO a VALUES (3, 7)",
            "DELETE FROM a WHERE id = 1",
            "ALTER TABLE a VALIDATE CONSTRAINT nn",
            "INSERT INTO a VALUES (4, 8)",
        ),
        "a",
    ),
    "the same, later, with whole old rows": (
        (
            "CREATE TABLE a (id int, v int)",
            "ALTER TABLE a REPLICA IDENTITY FULL",
            "INSERT INTO a VALUES (1, NULL), (2, 5)",
        ),
        (
            "ALTER TABLE a ADD CONSTRAINT nn NOT NULL v NOT VALID",
            "INSERT INTO a VALUES (3, 7)",
            "DELETE FROM a WHERE id = 1",
        ),
        "a",
    ),
    "virtual columns": (
        (
            "CREATE TABLE a (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v * 2))",
            "INSERT INTO a VALUES (1, NULL), (2, 5)",
        ),
        (
            "ALTER TABLE a ADD COLUMN x int GENERATED ALWAYS AS (v + 1)",
            "UPDATE a SET v = v + 1",
            "ALTER TABLE a ADD COLUMN y int DEFAULT 7, DROP COLUMN w",
            "INSERT INTO a VALUES (3, 9)",
        ),
        "(SELECT id, v, y FROM a)",
    ),
    "another expression of a stored column": (
        (
            "CREATE TABLE a (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v * 2) STORED)",
            "INSERT INTO a VALUES (1, NULL), (2, 5)",
        ),
        ("ALTER TABLE a ALTER COLUMN w SET EXPRESSION AS (v * 3)", "UPDATE a SET v = v + 1"),
        "(SELECT id, v FROM a)",
    ),
    "a key without overlaps": (
        (
            (
                "CREATE TABLE a (id int4range, at tsrange, v int,"
                " PRIMARY KEY (id, at WITHOUT OVERLAPS))"
            ),
            (
                "INSERT INTO a VALUES ('[1,2)', '[2020-01-01,2020-02-01)', 1),"
                " ('[1,2)', '[2020-02-01,)', 2), ('[2,3)', '(,)', 3)"
            ),
        ),
        (
            "UPDATE a SET v = v + 1",
            "UPDATE a SET at = '[2019-01-01,2019-02-01)' WHERE v = 2",
            "DELETE FROM a WHERE id = '[2,3)'",
        ),
        "a",
    ),
    "infinite intervals": (
        (
            "CREATE TABLE a (id int PRIMARY KEY, v interval, w interval[])",
            "INSERT INTO a VALUES (1, 'infinity', '{-infinity,1 day}'), (2, '1 day', NULL)",
        ),
        ("INSERT INTO a VALUES (3, '-infinity')", "UPDATE a SET v = 'infinity' WHERE id = 2"),
        "a",
    ),
    "NULL that is equal to NULL": (
        (
            "CREATE TABLE a (id int PRIMARY KEY, v int, UNIQUE NULLS NOT DISTINCT (v))",
            "INSERT INTO a VALUES (1, NULL), (2, 5)",
        ),
        (
            "UPDATE a SET v = 9 WHERE id = 1",
            (
                "MERGE INTO a USING (VALUES (2, NULL), (7, 70)) s (id, v) ON s.id = a.id"
                " WHEN MATCHED THEN UPDATE SET v = s.v::int"
                " WHEN NOT MATCHED THEN INSERT VALUES (s.id, 70)"
            ),
        ),
        "a",
    ),
}


@pytest.fixture
def new_source(newest_server: Addresses) -> Iterator[Callable[[], str]]:
    with databases(newest_server) as make:
        yield make


@pytest.mark.parametrize("triggers", [False, True])
@pytest.mark.parametrize("what", BROUGHT)
def test_what_newer_servers_have_ends_in_an_equal_target(
    addresses, topic_prefix, new_source, newest_server, what: str, triggers: bool
) -> None:
    made, done, compared = BROUGHT[what]
    source = new_source()
    with databases(newest_server) as make:
        target = make()
        for statement in made:
            ask(source, statement)
        with Path(addresses, topic_prefix, source, target, include=("public.*",)) as path:
            if triggers:
                with closing(catalog.connect(path.options.source)) as admin:
                    tables = catalog.expand(admin, ("public.*",))
                    publications.create_publication(admin, topic_prefix, tables)
                    install.install(admin, topic_prefix, ["public.*"], [])
            path.start()
            path.catch_up()
            for statement in done:
                ask(source, statement)
            ledger = path.catch_up()

            assert (ledger.state, ledger.inexact) == ("EXACT", {})
            assert content(target, compared) == content(source, compared)


def test_a_publication_that_sends_generated_columns_is_refused_with_what_to_write(
    addresses, topic_prefix, new_source, new_database
) -> None:
    source, target = new_source(), new_database()
    ask(
        source,
        "CREATE TABLE a (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v * 2) STORED)",
    )
    ask(source, f"CREATE PUBLICATION {topic_prefix} FOR ALL TABLES")
    ask(source, f"ALTER PUBLICATION {topic_prefix} SET (publish_generated_columns = stored)")
    with Path(addresses, topic_prefix, source, target, include=("public.*",)) as path:
        path.start()
        with pytest.raises(Unsupported, match="sends generated columns") as refused:
            path.catch_up()
        with pytest.raises(Unsupported):
            path.stop()
        path.failure = None
        assert refused.value.where["tables"] == "public.a"

        ask(source, refused.value.hint)
        path.start()
        path.catch_up()
        ask(source, "INSERT INTO a VALUES (1, 2)")
        assert path.catch_up().state == "EXACT"
        assert content(target, "a") == ["(1,2)"]


def test_no_transaction_of_ours_is_ended_by_the_database_s_limit(
    addresses, topic_prefix, new_source
) -> None:
    """A load, a large step, and what the stream decodes are one transaction each."""
    source, target = new_source(), new_source()
    ask(source, "CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a SELECT generate_series(1, 9)")
    ask(
        target,
        "CREATE TABLE a (id int PRIMARY KEY);"
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_catalog.pg_sleep(0.5); RETURN NEW; END';"
        "CREATE TRIGGER slow BEFORE INSERT ON a FOR EACH STATEMENT EXECUTE FUNCTION slow();"
        "ALTER TABLE a ENABLE ALWAYS TRIGGER slow",
    )
    for url in (source, target):
        execute(url, f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET transaction_timeout = '250ms'")
    with Path(addresses, topic_prefix, source, target, include=("public.*",)) as path:
        with closing(catalog.connect(path.options.source)) as asks, asks.cursor() as cursor:
            cursor.execute("SHOW transaction_timeout")
            assert cursor.fetchone() == ("0",)
        path.start()

        assert path.catch_up().state == "EXACT"
        assert content(target, "a") == content(source, "a")


def test_check_says_when_the_server_gives_up_an_unused_slot(new_source) -> None:
    source = new_source()
    options = Options(parse_dsn(source), "slot", "p", "prefix", {}, "", include=("public.*",))

    def said() -> list[str]:
        with closing(catalog.connect(options.source)) as connection:
            found = check_source(options, connection, fix=False)
            return [one.what for one in found if one.subject == "idle_replication_slot_timeout"]

    assert said() == []
    execute(source, "ALTER SYSTEM SET idle_replication_slot_timeout = '2d'")
    try:
        execute(source, "SELECT pg_reload_conf()")
        until(lambda: said() != [], "the setting", pause)
        assert said() == ["is 2d: a slot that `run` does not use for so long is lost"]
    finally:
        execute(source, "ALTER SYSTEM RESET idle_replication_slot_timeout")
        execute(source, "SELECT pg_reload_conf()")


@pytest.mark.parametrize("setting", ["notice", "error"])
def test_changes_that_are_skipped_for_want_of_their_publication_end_the_run(
    addresses, topic_prefix, new_source, new_database, setting: str
) -> None:
    """Before 18 the server ended the stream; now it warns, and goes on without them."""
    source, target = new_source(), new_database()
    ask(source, "CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    name = source.rpartition("/")[2]
    ask(source, f"ALTER DATABASE {name} SET client_min_messages = {setting}")
    with Path(addresses, topic_prefix, source, target, include=("public.*",)) as path:
        path.start()
        path.catch_up()

        ask(source, f"DROP PUBLICATION {topic_prefix}")
        ask(source, "INSERT INTO a VALUES (2)")
        ask(source, f"CREATE PUBLICATION {topic_prefix} FOR TABLE a")
        ask(source, "INSERT INTO a VALUES (3)")

        with pytest.raises(SourceError, match=r"skipped loading publication .*accept-gap"):
            path.catch_up()
        with pytest.raises(SourceError):
            path.stop()
        path.failure = None
        path.applier.drain()
        assert content(target, "a") == ["(1)"]


@pytest.mark.parametrize(
    ("table", "identity"),
    [
        ("(id serial PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v * 2) STORED)", "FULL"),
        ("(id serial PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v * 2))", "FULL"),
        ("(v int, w int GENERATED ALWAYS AS (v * 2) STORED PRIMARY KEY)", "DEFAULT"),
    ],
)
def test_a_table_in_which_changes_would_fail_is_not_published_by_itself(
    addresses, topic_prefix, new_source, new_database, table: str, identity: str
) -> None:
    source, target = new_source(), new_database()
    ask(source, "CREATE TABLE a (id int PRIMARY KEY)")
    with Path(
        addresses, topic_prefix, source, target, include=("public.*",), look_seconds=0.2
    ) as path:
        path.start()
        path.catch_up()
        ask(source, f"CREATE TABLE made {table}; ALTER TABLE made REPLICA IDENTITY {identity}")
        until(lambda: "public.made" in " ".join(path.notes), "a note", path._stop.wait)

        (note,) = (note for note in path.notes if "public.made" in note)
        assert "the source refuses UPDATE and DELETE in it; give it a primary key" in note
        ask(source, "INSERT INTO made (v) VALUES (1); UPDATE made SET v = 2; DELETE FROM made")

        with closing(catalog.connect(path.options.source)) as connection:
            (shape,) = catalog.table_schemas(connection, [TableId("public", "made")])
            version = connection.server_version
        (found,) = (one for one in check_table(shape, version=version) if one.level is Level.ERROR)
        assert "the source refuses UPDATE and DELETE" in found.what
        assert "FULL" not in found.hint
