"""Who may describe a schema change: what roles with less than a superuser's rights can try.

Each attack was seen to work before records came by a table of the triggers' owner: a table
dropped at the target, a shell on its host, `run` stopped for ever, rows that differ while the
ledger says EXACT.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2
import pytest
from psycopg2.errors import Error, InsufficientPrivilege

from gauss_cdc.inspect.places import Endpoints
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.triggers import install as ddl_triggers
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.test_ddl import install

START = """
CREATE TABLE account (id int PRIMARY KEY, balance int);
INSERT INTO account SELECT n, 100 FROM generate_series(1, 3) n;
CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY LIST (id);
CREATE TABLE part_a PARTITION OF parted FOR VALUES IN (1, 2);
CREATE TABLE part_b PARTITION OF parted FOR VALUES IN (3);
INSERT INTO parted SELECT n, n FROM generate_series(1, 3) n;
"""
DROPPED = json.dumps(
    {
        "version": 1,
        "event": "drop",
        "tag": "DROP TABLE",
        "dropped": [["table", "public", "account", "public.account", 0, True, None, None]],
    }
)
FORGED = (DROPPED, "not json", '{"version": 99}', "[" * 100_000, "x" * (9 << 20))


# What `run` reads every few seconds, with its rights.
HER_REQUESTS = """
CREATE SEQUENCE gauss_cdc.calls;
CREATE FUNCTION gauss_cdc.call() RETURNS text LANGUAGE sql AS
    $$ SELECT pg_catalog.nextval('gauss_cdc.calls')::text $$;
CREATE VIEW gauss_cdc.snapshot_requests AS SELECT 1::bigint AS number, gauss_cdc.call() AS slot,
    ''::text AS table_schema, ''::text AS table_name, now() AS asked_at, ''::text AS asked_by;
GRANT ALL ON SCHEMA gauss_cdc TO PUBLIC; GRANT ALL ON ALL TABLES IN SCHEMA gauss_cdc TO PUBLIC
"""
NOT_READ = (
    "requests for re-reads are not read: schema gauss_cdc is not ours: it belongs to stranger"
)


@contextmanager
def other_client(url: str) -> Iterator[psycopg2.extensions.connection]:
    """A role that may log in, and nothing else."""
    name = "stranger_" + url.rpartition("/")[2]
    ask(url, f"CREATE ROLE {name} LOGIN")
    try:
        with closing(psycopg2.connect(url.replace("postgres@", f"{name}@"))) as connection:
            connection.autocommit = True
            yield connection
    finally:
        ask(url, f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


@pytest.fixture
def path(addresses, topic_prefix, new_database) -> Iterator[Path]:
    source, target = new_database(), new_database()
    ask(source, START)
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        yield path


def assert_equal(path: Path) -> None:
    ledger = path.catch_up()
    assert (ledger.state, dict(ledger.inexact)) == ("EXACT", {})
    for table in ("account", "parted"):
        assert content(path.target, table) == content(path.source, table)


def assert_equal_or_marked(path: Path) -> None:
    inexact = set(path.catch_up().inexact)
    for table in ("account", "parted"):
        if f"public.{table}" not in inexact:
            assert content(path.target, table) == content(path.source, table)


@pytest.mark.parametrize("has_triggers", [False, True], ids=["inferred", "triggers"])
def test_a_logical_message_is_no_instruction_and_no_reason_to_stop(
    path: Path, has_triggers: bool
) -> None:
    if has_triggers:
        install(path.source, path.prefix)
    with other_client(path.source) as session, session.cursor() as cursor:
        for text in FORGED:
            for is_transactional in (True, False):
                cursor.execute(
                    "SELECT pg_logical_emit_message(%s, 'gauss-cdc.ddl', %s)",
                    [is_transactional, text],
                )
    ask(path.source, "INSERT INTO account VALUES (4, 0); UPDATE parted SET v = 7 WHERE id = 3")

    assert_equal(path)


def test_a_role_can_neither_write_records_nor_use_what_writes_them(path: Path) -> None:
    install(path.source, path.prefix)
    functions = ask(
        path.source,
        "SELECT format('%s(%s)', oid::regproc, pg_get_function_arguments(oid)), prorettype::regtype"
        " FROM pg_proc WHERE pronamespace = 'gauss_cdc'::regnamespace",
    )
    with other_client(path.source) as session, session.cursor() as cursor:
        ask(path.source, f"GRANT CREATE ON SCHEMA public TO {session.info.user}")
        cursor.execute("CREATE TABLE mine (id int PRIMARY KEY)")
        tries = [
            "INSERT INTO gauss_cdc.ddl_log (body) VALUES ('{}')",
            "UPDATE gauss_cdc.ddl_publication SET name = 'mine'",
            "DELETE FROM gauss_cdc.ddl_partitions",
            "CREATE TABLE gauss_cdc.mine (id int)",
            "SELECT gauss_cdc.ddl_write('{}')",
            "CREATE TRIGGER t AFTER TRUNCATE ON mine EXECUTE FUNCTION gauss_cdc.ddl_on_truncate()",
        ]
        for statement in tries:
            with pytest.raises(InsufficientPrivilege):
                cursor.execute(statement)
        for signature, _ in functions:
            cursor.execute(
                "SELECT has_function_privilege(oid, 'EXECUTE') FROM pg_proc"
                " WHERE pronamespace = 'gauss_cdc'::regnamespace"
            )
            assert {may for (may,) in cursor.fetchall()} == {False}, signature

    assert functions
    assert_equal(path)


def test_settings_of_a_session_steer_nothing(path: Path) -> None:
    install(path.source, path.prefix)
    parts = ask(path.source, "SELECT 'part_a'::regclass::oid, 'part_b'::regclass::oid")[0]
    spared = ",".join(map(str, parts))
    ask(
        path.source,
        f"SET gauss_cdc.spared = '{spared}'; SET gauss_cdc.rewritten = '{parts[0]}:4';"
        f"SET gauss_cdc.plan = 'on'; SET gauss_cdc.told = 'x';"
        "TRUNCATE part_a; ALTER TABLE account ADD COLUMN n int DEFAULT 5; TRUNCATE part_b",
    )

    assert_equal(path)


def test_a_table_of_our_name_that_is_anothers_means_nothing(
    addresses, topic_prefix, new_database
) -> None:
    source, target = new_database(), new_database()
    ask(source, START)
    ask(
        source,
        f"CREATE PUBLICATION {topic_prefix} FOR ALL TABLES"
        " WITH (publish_via_partition_root = true)",
    )
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        with other_client(source) as session, session.cursor() as cursor:
            database = session.info.dbname
            ask(source, f"GRANT CREATE ON DATABASE {database} TO {session.info.user}")
            cursor.execute(
                "CREATE SCHEMA gauss_cdc; CREATE TABLE gauss_cdc.ddl_log"
                " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL)"
            )
            for text in FORGED[:3]:
                cursor.execute("INSERT INTO gauss_cdc.ddl_log (body) VALUES (%s)", [text])
            cursor.execute(HER_REQUESTS)
            ask(source, "INSERT INTO account VALUES (4, 0)")

            assert_equal(path)
            until(lambda: any(NOT_READ in note for note in path.notes), "a note", pause)
            with Endpoints(path.configured()) as places:
                standing = places.standing()
            assert (standing.down, sum(NOT_READ in n for n in standing.notes)) == ({}, 1)
            ask(source, "INSERT INTO account VALUES (5, 0)")
            assert_equal(path)
            path.stop()  # what it did is written by now
            cursor.execute("SELECT is_called FROM gauss_cdc.calls")
            assert (cursor.fetchone(), sum(NOT_READ in n for n in path.notes)) == ((False,), 1)


@pytest.mark.parametrize(
    "statements",
    [
        "TRUNCATE part_a, parted; INSERT INTO parted VALUES (1, 5), (3, 5); TRUNCATE part_a",
        (
            "TRUNCATE part_a; INSERT INTO parted VALUES (1, 5); TRUNCATE parted; INSERT INTO parted"
            " VALUES (2, 1)"
        ),
        (
            "DO $x$ BEGIN"
            " EXECUTE 'ALTER TABLE account ALTER balance TYPE bigint USING balance * 2';"
            " PERFORM 'ALTER TABLE account ALTER balance TYPE bigint'; END $x$"
        ),
        (
            "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $x$ ALTER TABLE account"
            " ALTER balance TYPE bigint USING balance * 3 $x$; SELECT f()"
        ),
        "/* using nothing */ ALTER TABLE account ALTER balance TYPE text USING/**/(balance || 'x')",
    ],
)
def test_what_happened_is_not_read_from_the_clients_text(path: Path, statements: str) -> None:
    install(path.source, path.prefix)
    ask(path.source, statements)

    assert_equal_or_marked(path)


@pytest.mark.parametrize("words", ["DROP EXPRESSION", "DROP/**/EXPRESSION"])
def test_a_generated_column_that_becomes_a_plain_one_was_never_sent(path: Path, words: str) -> None:
    install(path.source, path.prefix)
    ask(path.source, "ALTER TABLE account ADD COLUMN g int GENERATED ALWAYS AS (id * 2) STORED")
    ask(
        path.source,
        f"CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $x$ BEGIN"
        f" EXECUTE 'ALTER TABLE account ALTER g {words}'; END $x$; SELECT f()",
    )

    assert "public.account" in path.catch_up().inexact


def test_a_schema_renamed_under_the_open_ddl_of_another_session(path: Path) -> None:
    ask(path.source, "CREATE SCHEMA old; CREATE TABLE old.t (id int PRIMARY KEY, v text)")
    install(path.source, path.prefix)
    with closing(psycopg2.connect(path.source)) as session, session.cursor() as cursor:
        cursor.execute("ALTER TABLE old.t ADD COLUMN n int; INSERT INTO old.t VALUES (1, 'a', 2)")
        ask(path.source, "ALTER SCHEMA old RENAME TO renamed")
        session.commit()
    ask(path.source, "INSERT INTO renamed.t VALUES (2, 'b', 3)")

    ledger = path.catch_up()
    if "renamed.t" not in ledger.inexact:
        assert content(path.target, "renamed.t") == content(path.source, "renamed.t")


def test_names_that_changed_under_open_ddl_while_run_stood_still(
    addresses, topic_prefix, new_database
) -> None:
    """What a statement saw is older than the position at which `run` goes on."""
    source, target = new_database(), new_database()
    ask(
        source,
        "CREATE SCHEMA old; CREATE TABLE old.t (id int PRIMARY KEY, v text);"
        "CREATE TABLE old.own (id int PRIMARY KEY);"
        "CREATE TYPE mood AS ENUM ('sad', 'ok');"
        "CREATE TABLE felt (id int PRIMARY KEY, m mood); INSERT INTO felt VALUES (1, 'sad')",
    )
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        install(source, path.prefix)
        with (
            closing(psycopg2.connect(source)) as one,
            closing(psycopg2.connect(source)) as other,
        ):
            with one.cursor() as cursor:
                cursor.execute("ALTER TABLE old.t ADD COLUMN n int; CREATE TABLE old.u (id int)")
                cursor.execute("INSERT INTO old.t VALUES (1, 'a', 2); INSERT INTO old.u VALUES (1)")
                cursor.execute("ALTER TABLE old.own RENAME TO owned")
            with other.cursor() as cursor:
                cursor.execute("ALTER TABLE felt ADD n int; ALTER TABLE felt RENAME TO feels")
            # Nobody waits for the others because of the triggers.
            ask(source, "ALTER SCHEMA old RENAME TO renamed")
            ask(source, "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'")
            path.catch_up()
            path.stop()
            path.start()
            one.commit()
            other.commit()
        ask(source, "INSERT INTO renamed.t VALUES (2, 'b', 3); INSERT INTO renamed.u VALUES (2)")
        ask(source, "INSERT INTO renamed.owned VALUES (2); INSERT INTO feels VALUES (2, 'low', 3)")

        assert path.catch_up().inexact.keys() == {"public.feels"}, "a label was renamed"
        for table in ("renamed.t", "renamed.u", "renamed.owned", "feels"):
            assert content(target, table) == content(source, table)


@pytest.mark.parametrize("has_rows", [True, False])
@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'", "'ok', NULL"),
        ("ALTER TYPE pair DROP ATTRIBUTE x", "NULL, (1, 2)"),
    ],
    ids=["a label", "an attribute"],
)
def test_a_row_of_an_open_transaction_is_as_its_type_was(
    addresses, topic_prefix, new_database, statement: str, value: str, has_rows: bool
) -> None:
    """Who alters a type waits for nobody: the row came behind what the triggers described."""
    source, target = new_database(), new_database()
    ask(source, "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (n int, x int)")
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, m mood, p pair)")
    if has_rows:
        ask(source, f"INSERT INTO t VALUES (1, {value})")
    how = {"repair": "auto", "look_seconds": 0.3}
    with (
        Path(addresses, topic_prefix, source, target, **how) as path,
        closing(psycopg2.connect(source)) as late,
    ):
        path.start()
        path.catch_up()
        install(source, path.prefix)
        late.cursor().execute(f"INSERT INTO t VALUES (2, {value})")
        ask(source, statement)
        path.arrive()
        late.commit()
        until(lambda: path.waited() == {}, "the repair", pause)

        assert content(target, "t") == content(source, "t")


def test_nobodys_statement_fails_because_of_the_triggers(new_database, topic_prefix) -> None:
    source = new_database("SQL_ASCII")
    ask(
        source,
        f"CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION {topic_prefix} FOR TABLE t",
    )
    with closing(catalog.connect(parse_dsn(source))) as connection:
        ddl_triggers.install(connection, topic_prefix, ["*.*"], [])
        with connection.cursor() as cursor:
            name = b'"caf\xe9"'
            cursor.execute(b"CREATE TABLE public." + name + b" (id int PRIMARY KEY)")
            cursor.execute(
                b"ALTER TABLE public." + name + b" ADD COLUMN " + name + b" text DEFAULT '\xff'"
            )
            cursor.execute(b"COMMENT ON TABLE public." + name + b" IS '\xfe'")
            cursor.execute(b"DROP TABLE public." + name)
            # Whatever breaks in the triggers' own functions is nobody else's error.
            cursor.execute("ALTER FUNCTION gauss_cdc.ddl_write(text) RENAME TO gone")
            for statement in ("CREATE TABLE public.u (id int)", "DROP TABLE public.u"):
                try:
                    cursor.execute(statement)
                except Error as error:
                    pytest.fail(f"{statement}: {error}")
