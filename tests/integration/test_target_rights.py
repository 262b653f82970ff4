"""What the target's role lacks is said by the statement that gives it, before it is needed."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from schemas.control import LoadPhase
from schemas.findings import Level
from schemas.tables import TableId
from spark_consumers.errors import TargetDown, TargetRefused
from spark_consumers.loop.job import Applier
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.postgres.checks import PostgresInspector, check_rights
from spark_consumers.sinks.postgres.products import POSTGRES
from spark_consumers.sinks.postgres.rights import (
    database_problems,
    load_problems,
    ownership_problems,
)
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.services_fixtures import execute
from tests.spark_consumers.feed import Feed, table

HERE, ELSEWHERE = TableId("public", "account"), TableId("elsewhere", "t")


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    name = f"r{uuid.uuid4().hex[:12]}"
    database = postgres_url.rsplit("/", 1)[1]
    execute(
        postgres_url,
        f"CREATE ROLE {name}; REVOKE ALL ON DATABASE {database} FROM PUBLIC;"
        "REVOKE ALL ON SCHEMA public FROM PUBLIC; CREATE TABLE account (id int PRIMARY KEY)",
    )
    yield name
    execute(postgres_url, f"REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}")
    execute(postgres_url, f"DROP ROLE {name}")


@pytest.fixture
def connect(postgres_url: str, role: str) -> Any:
    """Give sessions that act as the role."""

    def connect() -> Any:
        connection = psycopg2.connect(postgres_url)
        connection.cursor().execute(f"SET ROLE {role}")
        connection.commit()
        return connection

    return connect


def hints(problems: Iterator[TargetRefused]) -> list[str]:
    return [problem.hint for problem in problems]


def test_each_right_is_asked_for_by_the_statement_that_gives_it(
    connect: Any, role: str, postgres_url: str
) -> None:
    database = postgres_url.rsplit("/", 1)[1]
    with closing(connect()) as session, session.cursor() as cursor:
        session.autocommit = True
        assert hints(database_problems(cursor)) == [
            f'GRANT TEMPORARY ON DATABASE "{database}" TO "{role}"',
            f'CREATE SCHEMA gauss_cdc AUTHORIZATION "{role}"',
        ]
        found = hints(load_problems(cursor, [HERE, ELSEWHERE]))
        assert found == [
            f'GRANT CREATE ON DATABASE "{database}" TO "{role}"',
            f'GRANT USAGE, CREATE ON SCHEMA "public" TO "{role}"',
            f'ALTER TABLE "public"."account" OWNER TO "{role}"',
        ]
        assert hints(ownership_problems(cursor, [HERE])) == found[2:]

        for statement in (*hints(database_problems(cursor)), *found):
            execute(postgres_url, statement)

        assert hints(database_problems(cursor)) == []
        assert hints(load_problems(cursor, [HERE, ELSEWHERE])) == []
        assert hints(ownership_problems(cursor, [HERE])) == []


def test_a_ledger_of_another_role_is_said(connect: Any, role: str, postgres_url: str) -> None:
    PostgresSink(postgres_url, "bank").start()
    with closing(connect()) as session, session.cursor() as cursor:
        found = hints(database_problems(cursor))
        assert f'GRANT USAGE, CREATE ON SCHEMA gauss_cdc TO "{role}"' in found
        for statement in found:
            execute(postgres_url, statement)

        assert hints(database_problems(cursor)) == []


def test_a_source_with_event_triggers_is_no_target_of_another_role(
    connect: Any, role: str, postgres_url: str
) -> None:
    """The right to CREATE, which was asked for, made its records untrusted."""
    execute(postgres_url, "CREATE SCHEMA gauss_cdc; CREATE TABLE gauss_cdc.ddl_log (id int)")
    with closing(connect()) as session, session.cursor() as cursor:
        found = hints(database_problems(cursor))

    assert any("ddl uninstall" in hint for hint in found)
    assert not any("SCHEMA gauss_cdc" in hint for hint in found)


def test_row_security_at_the_target_is_said(connect: Any, role: str, postgres_url: str) -> None:
    execute(
        postgres_url,
        f"GRANT ALL ON account TO {role}; GRANT ALL ON SCHEMA public TO {role};"
        "ALTER TABLE account ENABLE ROW LEVEL SECURITY",
    )
    with closing(connect()) as session, session.cursor() as cursor:
        (problem,) = load_problems(cursor, [HERE])

    assert "row security hides rows" in problem.what


def test_check_says_what_stays_on_where_it_may_not_be_switched_off(
    connect: Any, role: str, postgres_url: str
) -> None:
    def found(session: Any) -> list[Any]:
        with session.cursor() as cursor:
            asked = {"follows": False, "has_policies": True, "has_ledger": False}
            rights = list(check_rights(cursor, [HERE], **asked))
        return [f for f in rights if "foreign keys" in f.what]

    with closing(connect()) as session:
        session.autocommit = True
        (plain,) = found(session)
        execute(postgres_url, "CREATE RULE own AS ON DELETE TO account DO INSTEAD NOTHING")
        (warned,) = found(session)
        assert warned.level is Level.WARNING
        execute(postgres_url, "DROP RULE own ON account")
        assert [one.level for one in found(session)] == [Level.NOTE]
        execute(postgres_url, "ALTER TABLE account ADD other int REFERENCES account")
        (warned,) = found(session)
        if session.server_version < 150_000:
            return
        execute(postgres_url, warned.hint)
        assert found(session) == []

    assert (plain.level, warned.level) == (Level.NOTE, Level.WARNING)
    execute(postgres_url, f"REVOKE ALL ON PARAMETER session_replication_role FROM {role}")


@pytest.mark.usefixtures("role")
def test_check_names_triggers_and_rules_that_act_on_rows_of_the_source(postgres_url: str) -> None:
    def said() -> list[str]:
        with closing(psycopg2.connect(postgres_url)) as session, session.cursor() as cursor:
            asked = {"follows": False, "has_policies": True, "has_ledger": False}
            found = check_rights(cursor, [HERE], **asked)
            return [f.what for f in found if f.subject == "target triggers"]

    execute(
        postgres_url,
        "CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER mine BEFORE INSERT ON account FOR EACH ROW EXECUTE FUNCTION never();"
        "CREATE RULE own AS ON DELETE TO account DO INSTEAD NOTHING",
    )
    assert said() == []
    execute(
        postgres_url,
        "ALTER TABLE account ENABLE ALWAYS TRIGGER mine;"
        "ALTER TABLE account ENABLE REPLICA RULE own",
    )
    (what,) = said()
    assert what.endswith("drop them unseen: public.account: mine, public.account: own")
    execute(
        postgres_url, "ALTER TABLE account ENABLE TRIGGER mine; ALTER TABLE account ENABLE RULE own"
    )
    assert said() == []


@pytest.mark.parametrize("question", ["reach", "rights", "tables"])
def test_a_target_that_goes_while_check_asks_is_our_error(postgres_url: str, question: str) -> None:
    made: list[Any] = []

    def connect() -> Any:
        made.append(psycopg2.connect(postgres_url))
        return made[-1]

    with closing(PostgresInspector(Setup("bank", connect=connect), POSTGRES)) as inspector:
        asked = {
            "reach": inspector.reach,
            "rights": lambda: inspector.rights([HERE], has_ledger=False),
            "tables": lambda: inspector.tables([], are_loaded=True),
        }[question]
        assert inspector.ledger() is None
        execute(postgres_url, f"SELECT pg_terminate_backend({made[0].info.backend_pid}, 10000)")

        with pytest.raises(TargetDown):
            list(asked())

        assert inspector.ledger() is None  # over another connection


def test_apply_stops_with_the_same_words_when_it_connects_and_when_a_load_begins(
    connect: Any, role: str, postgres_url: str
) -> None:
    sink = PostgresSink(connect, "bank")
    with pytest.raises(TargetRefused) as caught:
        sink.start()
    assert caught.value.hint.startswith("GRANT TEMPORARY ON DATABASE")
    database = postgres_url.rsplit("/", 1)[1]
    execute(postgres_url, f"GRANT TEMPORARY, CREATE ON DATABASE {database} TO {role}")
    feed = Feed("bank")
    feed.start()
    feed.load(table("account", "id integer"), LoadPhase.BEGIN)

    with pytest.raises(TargetRefused) as caught:
        Applier(feed.read_cuts, feed.read_rows, sink).drain()

    assert caught.value.hint == f'GRANT USAGE, CREATE ON SCHEMA "public" TO "{role}"'
    sink.close()


def test_a_role_that_may_do_all_is_refused_where_definitions_of_the_source_run(
    connect: Any, role: str, postgres_url: str
) -> None:
    """Whoever makes a view at the source would run it with these rights."""

    def found(session: Any, **more: bool) -> list[str]:
        with session.cursor() as cursor:
            asked = {"follows": False, "has_policies": True, "has_ledger": False, **more}
            rights = list(check_rights(cursor, [], **asked))
        return [f.hint for f in rights if f.level is Level.ERROR]

    with closing(connect()) as session:
        session.autocommit = True
        assert found(session, runs_definitions=True) == []
        for given in ("SUPERUSER", "CREATEROLE"):
            execute(postgres_url, f"ALTER ROLE {role} {given}")
            assert found(session) == []
            (hint,) = found(session, runs_definitions=True)
            execute(postgres_url, hint.partition(",")[0])
        execute(postgres_url, f"GRANT pg_execute_server_program, pg_write_server_files TO {role}")
        for hint in (revoked := found(session, runs_definitions=True)):
            execute(postgres_url, hint)
        assert (len(revoked), found(session, runs_definitions=True)) == (2, [])

    for ddl, words in (("tables", []), ("all", ["the role is a superuser"])):
        notes: list[str] = []
        sink = PostgresSink(postgres_url, "bank", ddl=ddl, on_note=notes.append)
        sink.start()
        sink.close()
        assert [word for word in words if not any(word in note for note in notes)] == []
        assert len(notes) == len(words)
