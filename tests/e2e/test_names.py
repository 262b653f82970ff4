"""Names that tables lend each other between two looks: each row stays with its own table."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from producer.core.ports import Tuning
from producer.sources.postgres import catalog_look
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.test_ddl import install

ROWS_OF_OLD = "UPDATE z SET v = 'of the old one' WHERE id % 7 = 2"
ROWS_OF_NEW = "INSERT INTO b SELECT n, 'of the new one' FROM generate_series(98, 101) n"


REPLACED = """
DO $$ BEGIN ALTER TABLE b RENAME TO z; CREATE TABLE b (LIKE z INCLUDING ALL);
INSERT INTO b SELECT * FROM z WHERE id % 2 = 0; DROP TABLE z CASCADE; END $$
"""


@pytest.fixture(params=["no triggers", "triggers are off", "and the publication is its own"])
def path(request, addresses, topic_prefix, new_database) -> Iterator[Path]:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE b (id int PRIMARY KEY, v text)")
    ask(source, "INSERT INTO b SELECT n, 'b' || n FROM generate_series(1, 60) n")
    if request.param != "and the publication is its own":
        ask(source, f"CREATE PUBLICATION {topic_prefix} FOR ALL TABLES")
    with_triggers = request.param != "no triggers"
    with Path(addresses, topic_prefix, source, target, repair="auto", look_seconds=1.0) as path:
        path.start()
        path.waited()
        if with_triggers:
            install(source, topic_prefix)
            path.waited()
            for which in ("end", "drop", "rewrite"):
                ask(source, f"ALTER EVENT TRIGGER gauss_cdc_ddl_{which} DISABLE")
        yield path


@pytest.mark.parametrize("looks_between", [False, True])
@pytest.mark.parametrize("rows", [(ROWS_OF_OLD, ROWS_OF_NEW), (ROWS_OF_NEW,)], ids=["both", "new"])
@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "kept"])
def test_a_table_has_the_name_of_another_one_for_a_while(
    path: Path, rows: tuple[str, ...], is_dropped: bool, looks_between: bool
) -> None:
    """Until then the rows of the new one went to the copy of the old one, which was called exact.

    The triggers were taken at their word while they were off.
    """
    ask(path.source, "CREATE TABLE y (LIKE b INCLUDING ALL)")
    ask(path.source, "ALTER TABLE b RENAME TO z; ALTER TABLE y RENAME TO b")
    for statement in rows:
        ask(path.source, statement)
    if looks_between:
        assert_equal(path)
    ask(path.source, "DROP TABLE b" if is_dropped else "ALTER TABLE b RENAME TO y")
    ask(path.source, "ALTER TABLE z RENAME TO b")
    assert_equal(path)
    ask(path.source, "UPDATE b SET v = 'and on' WHERE id % 5 = 0")
    assert_equal(path)


@pytest.mark.parametrize("are_on_again", [False, True])
def test_a_table_is_replaced_by_another_one_of_its_name(path: Path, are_on_again: bool) -> None:
    ask(path.source, REPLACED)
    if are_on_again and ask(path.source, "SELECT FROM pg_event_trigger"):
        for which in ("end", "drop", "rewrite"):
            ask(path.source, f"ALTER EVENT TRIGGER gauss_cdc_ddl_{which} ENABLE ALWAYS")
    assert_equal(path)
    ask(path.source, "INSERT INTO b VALUES (1000, 'and on')")
    assert_equal(path)


def assert_equal(path: Path) -> None:
    """Of every table that the target has, and that is not marked."""
    marks = path.waited()
    tables = ask(path.target, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert ("b",) in tables
    for (table,) in tables:
        if f"public.{table}" not in marks:
            assert content(path.target, table) == content(path.source, table), marks


def test_wait_ends_where_a_table_left_its_name_and_has_another_one(
    addresses, topic_prefix, new_database
) -> None:
    """What the target has under the former name is marked, and its rows came under the new one."""
    source, target = new_database(), new_database()
    ask(source, "CREATE SCHEMA one; CREATE SCHEMA two; CREATE TABLE one.c (id int PRIMARY KEY)")
    how = {"repair": "auto", "look_seconds": 0.5, "include": ("one.*", "two.*")}
    with Path(addresses, topic_prefix, source, target, **how) as path:
        path.start()
        path.waited()
        install(source, topic_prefix, include=("one.*", "two.*"))
        ask(source, "INSERT INTO one.c VALUES (1)")
        path.waited()
        ask(
            source,
            "ALTER SCHEMA one RENAME TO away; ALTER SCHEMA two RENAME TO one;"
            "ALTER SCHEMA away RENAME TO two; INSERT INTO two.c VALUES (2)",
        )

        until(lambda: [*path.waited()] == ["one.c"], "the former name alone", pause)

        assert ask(target, "SELECT id FROM two.c ORDER BY 1") == [(1,), (2,)]

        path.stop()
        ask(source, "INSERT INTO two.c VALUES (3)")
        path.start()
        until(lambda: [*path.waited()] == ["one.c"], "the former name alone", pause)
        ask(source, "INSERT INTO two.c VALUES (4)")
        until(lambda: [*path.waited()] == ["one.c"], "the former name alone", pause)
        there = ask(target, "SELECT relname FROM pg_class WHERE relnamespace = 'two'::regnamespace")
        assert ("c",) in there
        assert "gauss_cdc_" not in str(there)
        assert ask(target, "SELECT id FROM two.c ORDER BY 1") == [(1,), (2,), (3,), (4,)]


@pytest.mark.parametrize("comes", ["", "ALTER TABLE z RENAME TO a"])
def test_a_name_that_goes_round_leaves_no_mark(
    addresses, topic_prefix, new_database, comes: str
) -> None:
    """The mark of a name went along with it, to a table that nobody read again."""
    source, target = new_database(), new_database()
    for table in "abc":
        ask(source, f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        ask(source, f"INSERT INTO {table} SELECT n, '{table}' FROM generate_series(1, 20) n")
    how = {"repair": "auto", "look_seconds": 0.5, "tuning": Tuning(rest_seconds=0.1)}
    chosen = {"include": ("public.*",), "exclude": ("public.c", "public.z")}
    with Path(addresses, topic_prefix, source, target, **how, **chosen) as path:
        path.start()
        path.waited()
        install(source, topic_prefix, **chosen)
        path.waited()

        turned = "ALTER TABLE c RENAME TO z; ALTER TABLE b RENAME TO c; ALTER TABLE a RENAME TO b"
        ask(source, f"{turned}; {comes}")

        until(lambda: path.waited() == {}, "no mark", pause)
        for table in "ab" if comes else "b":
            assert content(target, table) == content(source, table)


def test_a_table_that_left_its_name_is_copied_once_tables_name_the_other(
    addresses, topic_prefix, new_database
) -> None:
    """No row of it need come: nobody read it again, and its mark had the name that it had left."""
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    ask(source, "CREATE TABLE other (id int PRIMARY KEY)")
    ask(source, f"CREATE PUBLICATION {topic_prefix} FOR ALL TABLES")
    how = {"repair": "auto", "look_seconds": 0.3, "include": ("public.t", "public.other")}
    with Path(addresses, topic_prefix, source, target, **how) as path:
        path.start()
        path.waited()
        ask(source, "ALTER TABLE t RENAME TO u")
        assert [*path.waited()] == ["public.t"]
        ask(source, "INSERT INTO u VALUES (2)")
        path.arrive()
        path.stop()
        path.options = replace(path.options, include=("public.u", "public.other"))
        path.start()
        until(lambda: path.waited() == {}, "the copy", pause, 60)

        assert content(target, "u") == content(source, "u") == ["(1)", "(2)"]


@pytest.mark.parametrize(
    "altered", ["ADD ATTRIBUTE c int", "DROP ATTRIBUTE b"], ids=["one comes", "one goes"]
)
def test_a_type_is_altered_between_a_look_at_its_new_column_and_the_columns_first_row(
    addresses, topic_prefix, new_database, monkeypatch, altered: str
) -> None:
    """The row has a text of before; the shape that it comes with has what is there by now."""
    source, target = new_database(), new_database()
    ask(source, "CREATE TYPE pair AS (a int, b int); CREATE TABLE t (id int PRIMARY KEY)")
    ask(source, "INSERT INTO t VALUES (1)")
    how = {"repair": "auto", "look_seconds": 1.0}
    with Path(addresses, topic_prefix, source, target, **how) as path:
        path.start()
        path.waited()
        with held(source), monkeypatch.context() as seen:
            ask(source, "ALTER TABLE t ADD p pair; UPDATE t SET p = (1, 2)::pair")
            is_looked, look = Event(), catalog_look.look

            def looks(*args: Any, **more: Any) -> Any:
                found = look(*args, **more)
                is_looked.set()
                return found

            seen.setattr(catalog_look, "look", looks)
            assert is_looked.wait(60)
            ask(source, f"ALTER TYPE pair {altered}")
        path.arrive()
        until(lambda: path.waited() == {}, "the repair", pause)

        assert content(target, "t") == content(source, "t")


@contextmanager
def held(url: str) -> Iterator[None]:
    """The server sends nothing: a look is made, and the stream comes to it later."""
    ((walsender,),) = ask(
        url, "SELECT pid FROM pg_stat_replication JOIN pg_database ON datname = current_database()"
        " JOIN pg_replication_slots ON active_pid = pid AND database = datname"
    )  # fmt: skip
    os.kill(walsender, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(walsender, signal.SIGCONT)
