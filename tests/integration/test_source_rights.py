"""What the source's role lacks is said before it is needed, and a slot's waits have names."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from gauss_cdc_lab.services.process import poll
from producer.core.takeover.takeover import MadeSlot
from producer.errors import NotPermitted
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import marks
from producer.sources.gauss.checks import check_gauss_source
from producer.sources.postgres import catalog, publications
from producer.sources.postgres.captured import (
    ensure_publication,
    problems_of_reading,
    publication_problems,
    reading_problems,
)
from producer.sources.postgres.checks import check_source
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.primary import Primary
from producer.sources.postgres.source import PostgresSource
from schemas.findings import Level
from schemas.tables import TableId
from tests.services_fixtures import execute

T, ODD = TableId("public", "t"), TableId("Odd one", "t")


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """A role with nothing; tables and schemas of somebody else are there."""
    name = f"r{uuid.uuid4().hex[:12]}"
    execute(
        postgres_url,
        f'CREATE ROLE {name}; CREATE TABLE t (id int PRIMARY KEY); CREATE SCHEMA "Odd one";'
        'CREATE TABLE "Odd one".t (id int PRIMARY KEY); INSERT INTO t VALUES (1)',
    )
    yield name
    execute(postgres_url, f"DROP OWNED BY {name}")
    execute(postgres_url, f"DROP ROLE {name}")


@pytest.fixture
def db(postgres_url: str, role: str) -> Iterator[Any]:
    """A session that acts as the role."""
    connection = catalog.connect(parse_dsn(postgres_url))
    run(connection, f"SET ROLE {role}")
    yield connection
    connection.close()


def run(db: Any, *statements: str) -> None:
    with db.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def options(url: str, *include: str) -> Options:
    return Options(parse_dsn(url), "slot", "pub", "p", {}, "", include=include or ("public.t",))


def test_each_right_to_read_is_asked_for_by_the_statement_that_gives_it(
    db: Any, role: str, postgres_url: str
) -> None:
    said = [problem.hint for problem in reading_problems(db, [T, ODD])]

    assert said == [
        f'GRANT USAGE ON SCHEMA "Odd one" TO "{role}"',
        f'GRANT SELECT ON "public"."t", "Odd one"."t" TO "{role}"',
    ]
    for statement in said:
        execute(postgres_url, statement)
    assert list(reading_problems(db, [T, ODD])) == []


def test_a_source_of_the_family_asks_for_them_alike(role: str, postgres_url: str) -> None:
    with ReplicationConnection.open(parse_dsn(postgres_url), replication=False) as session:
        session.query(f"SET ROLE {role}")
        tables = [ODD, T, TableId("public", "gone")]

        def said() -> list[str]:
            rights = gauss_catalog.table_rights(session, tables)
            return [p.hint for p in problems_of_reading(rights, gauss_catalog.user(session))]

        assert said() == [
            f'GRANT USAGE ON SCHEMA "Odd one" TO "{role}"',
            f'GRANT SELECT ON "Odd one"."t", "public"."t" TO "{role}"',
        ]
        for statement in said():
            execute(postgres_url, statement)
        assert said() == []


def test_the_table_of_marks_is_asked_for_by_statements_and_made_by_fix(
    role: str, postgres_url: str
) -> None:
    by_csn = replace(
        options(postgres_url, "public.t"),
        kind="gaussdb", plugin="mppdb_decoding", plugin_options={"output-order": "1"},
    )  # fmt: skip
    with ReplicationConnection.open(parse_dsn(postgres_url), replication=False) as session:

        def said(*, fix: bool = False) -> tuple[Level, str]:
            found = check_gauss_source(by_csn, session, fix=fix)
            ((level, hint),) = [(f.level, f.hint) for f in found if f.subject == "marks"]
            return level, hint

        session.query(f"SET ROLE {role}")
        for first in ("SELECT", "DROP SCHEMA gauss_cdc CASCADE; CREATE SCHEMA gauss_cdc"):
            execute(postgres_url, first)
            level, hint = said(fix=True)
            assert level is Level.ERROR
            execute(postgres_url, hint)
            assert said() == (Level.OK, "")
            assert marks.commit_mark(session, "slot", marks.prepare(session, "slot"))
        session.query("RESET ROLE")
        session.query("DROP TABLE gauss_cdc.snapshot_marks")
        assert [said(fix=fix)[0] for fix in (False, True, True)] == [
            *(Level.OK, Level.FIXED, Level.OK),
        ]


def test_single_columns_are_not_enough(db: Any, role: str, postgres_url: str) -> None:
    execute(postgres_url, f"GRANT SELECT (id) ON t TO {role}")

    assert [p.what for p in reading_problems(db, [T])] == ["the role may not read tables"]


def test_row_security_that_hides_rows_is_found(db: Any, role: str, postgres_url: str) -> None:
    execute(postgres_url, f"GRANT SELECT ON t TO {role}; ALTER TABLE t ENABLE ROW LEVEL SECURITY")

    (problem,) = reading_problems(db, [T])

    assert "row security hides rows" in problem.what
    execute(postgres_url, problem.hint)
    assert list(reading_problems(db, [T])) == []


def test_a_publication_that_the_role_may_not_make_is_given_as_a_statement(
    db: Any, role: str, postgres_url: str
) -> None:
    asked = options(postgres_url)

    (problem,) = publication_problems(db, asked)
    with pytest.raises(NotPermitted) as caught:
        ensure_publication(db, asked, lambda _: None, Primary(asked.source, db))

    assert str(caught.value) == str(problem)
    assert problem.where["lacks"] == "CREATE on the database and ownership of public.t"
    execute(postgres_url, problem.hint.removeprefix("as the tables' owner or a superuser: "))
    ensure_publication(db, asked, lambda _: None, Primary(asked.source, db))
    found = publications.publication(db, "pub")
    assert found is not None
    assert found.tables == (T,)


def test_two_first_starts_at_once_make_one_publication(postgres_url: str) -> None:
    """One waits in its CREATE PUBLICATION for the other's, and goes on with it."""
    execute(postgres_url, "CREATE TABLE t (id int PRIMARY KEY)")
    asked = options(postgres_url)
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
    with (
        closing(psycopg2.connect(postgres_url)) as other,
        closing(catalog.connect(asked.source)) as ours,
        ThreadPoolExecutor(1) as pool,
    ):
        run(other, "CREATE PUBLICATION pub FOR TABLE t")  # in a transaction
        primary = Primary(asked.source, ours)
        made = pool.submit(ensure_publication, ours, asked, lambda _: None, primary)
        with closing(catalog.connect(asked.source)) as third, third.cursor() as cursor:
            assert poll(
                lambda: cursor.execute(waits, [asked.source.dbname]) or cursor.fetchall(), 60
            )
        other.commit()
        assert made.result(60) is False


def test_an_owner_who_may_create_makes_the_publication(
    db: Any, role: str, postgres_url: str
) -> None:
    database = parse_dsn(postgres_url).dbname
    execute(postgres_url, f"ALTER TABLE t OWNER TO {role}")
    (problem,) = publication_problems(db, options(postgres_url))
    assert problem.where["lacks"] == "CREATE on the database"

    execute(postgres_url, f"GRANT CREATE ON DATABASE {database} TO {role}")

    assert list(publication_problems(db, options(postgres_url))) == []


@pytest.mark.parametrize("part", ["(id) WHERE (id > 1)", "(id)"])
def test_check_refuses_a_publication_that_leaves_something_out(
    postgres_url: str, role: str, part: str
) -> None:
    with closing(catalog.connect(parse_dsn(postgres_url))) as admin:
        if admin.server_version < 150_000:
            return  # before 15 there is no such publication
        run(admin, f"CREATE PUBLICATION pub FOR TABLE public.t {part}")
        found = list(check_source(options(postgres_url), admin, fix=False))

    (error,) = [f for f in found if f.subject == "publication"]
    assert error.level is Level.ERROR
    assert "omits rows or columns" in error.what
    assert "public.t" in error.what


def test_a_publication_without_any_of_the_tables_is_an_error(postgres_url: str, role: str) -> None:
    with closing(catalog.connect(parse_dsn(postgres_url))) as admin:
        run(admin, "CREATE PUBLICATION pub")
        none = list(check_source(options(postgres_url, "*.*"), admin, fix=False))
        run(admin, "ALTER PUBLICATION pub ADD TABLE public.t")
        some = list(check_source(options(postgres_url, "*.*"), admin, fix=False))

    levels = [[f.level for f in found if f.subject == "publication"] for found in (none, some)]
    assert levels == [[Level.ERROR], [Level.WARNING]]


def test_check_names_a_key_that_its_partitions_do_not_have(postgres_url: str, role: str) -> None:
    """As a dump of the root alone leaves it; the server takes equal rows then."""
    with closing(catalog.connect(parse_dsn(postgres_url))) as admin:
        run(admin, "CREATE TABLE public.p (id int NOT NULL) PARTITION BY RANGE (id)")
        run(admin, "CREATE TABLE public.p_0 PARTITION OF public.p FOR VALUES FROM (0) TO (9)")
        run(admin, "CREATE TABLE public.q (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        run(admin, "ALTER TABLE ONLY public.p ADD CONSTRAINT p_key PRIMARY KEY (id)")
        run(admin, "INSERT INTO public.p VALUES (1), (1)")
        run(
            admin,
            "CREATE PUBLICATION pub FOR TABLE public.p, public.q, public.t"
            " WITH (publish_via_partition_root = true)",
        )
        asked = options(postgres_url, "public.*")
        found = list(check_source(asked, admin, fix=False))
        run(admin, "TRUNCATE public.p")
        run(admin, "ALTER TABLE public.p_0 ADD PRIMARY KEY (id)")
        run(admin, "ALTER INDEX public.p_key ATTACH PARTITION public.p_0_pkey")
        mended = list(check_source(asked, admin, fix=False))

    (error,) = [f for f in found if "is not valid" in f.what]
    assert (error.subject, error.level) == ("table public.p", Level.ERROR)
    assert "pub has it with key public.p_key" in error.what
    assert "lacks" not in "".join(f.what for f in found)
    assert not [f for f in mended if "is not valid" in f.what]


def test_check_asks_for_the_rights_that_run_asks_for(db: Any, role: str, postgres_url: str) -> None:
    found = list(check_source(options(postgres_url), db, fix=False))

    errors = {finding.subject: finding for finding in found if finding.level is Level.ERROR}
    assert "GRANT SELECT" in errors["rights"].hint
    assert "CREATE PUBLICATION" in errors["publication"].hint


def test_a_load_that_may_not_read_makes_no_slot(postgres_url: str, role: str) -> None:
    source = PostgresSource.open(options(postgres_url), lambda _: None)
    source.prepare(lambda _: None)
    run(source.connection, f"SET ROLE {role}")

    with pytest.raises(NotPermitted, match="may not read tables"):
        source.make_slot()

    run(source.connection, "RESET ROLE")
    assert source.slot() is None
    source.close()


# ---------------------------------------------------------------- whom a new slot waits for
def test_check_and_run_name_the_transaction_that_a_new_slot_waits_for(
    postgres_url: str, role: str, topic_prefix: str
) -> None:
    asked = replace(options(postgres_url), slot=topic_prefix)
    source = PostgresSource.open(asked, lambda _: None)
    notes: list[str] = []
    source.prepare(notes.append)
    notes.clear()
    with closing(psycopg2.connect(postgres_url)) as other:
        other.cursor().execute("INSERT INTO t VALUES (2)")
        pid = other.info.backend_pid

        found = list(check_source(asked, source.connection, fix=False))
        assert poll(lambda: source.make_slot() is None and bool(notes), 60)
        other.rollback()

    (said,) = [f for f in found if f.subject == "transactions" and f"session {pid} of" in f.what]
    assert ", xid " in said.what
    assert ", since 2" in said.what
    assert f"pg_terminate_backend({pid})" in said.hint
    assert notes[0].startswith(f"the new slot waits for session {pid} of ")
    made: list[MadeSlot | None] = [None]

    def is_made() -> bool:
        made[0] = source.make_slot()
        return made[0] is not None

    assert poll(is_made, 60)
    assert made[0] is not None
    assert made[0].snapshot
    source.close()


def test_a_prepared_transaction_in_the_way_is_named_with_its_way_out(
    postgres_url: str, role: str, topic_prefix: str
) -> None:
    gid = f"it's {topic_prefix}"
    asked = options(postgres_url)
    source = PostgresSource.open(replace(asked, slot=topic_prefix), lambda _: None)
    notes: list[str] = []
    source.prepare(notes.append)
    notes.clear()
    with closing(psycopg2.connect(postgres_url)) as other:
        other.tpc_begin(gid)
        other.cursor().execute("INSERT INTO t VALUES (2)")
        other.tpc_prepare()

        found = list(check_source(asked, source.connection, fix=False))
        assert poll(lambda: source.make_slot() is None and bool(notes), 60)
        other.tpc_rollback()
    source.close()

    (said,) = [f for f in found if f.subject == "transactions" and topic_prefix in f.what]
    assert said.what.startswith("prepared transaction")
    assert f"ROLLBACK PREPARED 'it''s {topic_prefix}'" in said.hint
    assert "waits for prepared transaction" in notes[0]


def test_who_leaves_while_a_slot_waits_leaves_none_behind(
    postgres_url: str, role: str, topic_prefix: str
) -> None:
    asked = replace(options(postgres_url), slot=topic_prefix)
    source = PostgresSource.open(asked, lambda _: None)
    source.prepare(lambda _: None)
    with closing(psycopg2.connect(postgres_url)) as other:
        other.cursor().execute("INSERT INTO t VALUES (2)")
        assert source.make_slot() is None

        source.close()

        with closing(catalog.connect(parse_dsn(postgres_url))) as admin:
            assert poll(lambda: catalog.slot_state(admin, topic_prefix) is None, 60)
