"""Names that tables lend each other between two looks: each row stays with its own table."""

from collections.abc import Iterator

import pytest

from tests.e2e.path import Path, ask, content
from tests.e2e.test_ddl import install

ROWS_OF_OLD = "UPDATE z SET v = 'of the old one' WHERE id % 7 = 2"
ROWS_OF_NEW = "INSERT INTO b SELECT n, 'of the new one' FROM generate_series(98, 101) n"


@pytest.fixture(params=["no triggers", "a trigger is off"])
def path(request, addresses, topic_prefix, new_database) -> Iterator[Path]:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE b (id int PRIMARY KEY, v text)")
    ask(source, "INSERT INTO b SELECT n, 'b' || n FROM generate_series(1, 60) n")
    ask(source, f"CREATE PUBLICATION {topic_prefix} FOR ALL TABLES")
    with_triggers = request.param != "no triggers"
    if with_triggers:
        install(source, topic_prefix)
    with Path(addresses, topic_prefix, source, target, repair="auto", look_seconds=1.0) as path:
        path.start()
        path.wait()
        if with_triggers:
            ask(source, "ALTER EVENT TRIGGER gauss_cdc_ddl_end DISABLE")
        yield path


@pytest.mark.parametrize("looks_between", [False, True])
@pytest.mark.parametrize("rows", [(ROWS_OF_OLD, ROWS_OF_NEW), (ROWS_OF_NEW,)], ids=["both", "new"])
@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "kept"])
def test_a_table_has_the_name_of_another_one_for_a_while(
    path: Path, rows: tuple[str, ...], is_dropped: bool, looks_between: bool
) -> None:
    """Until then the rows of the new one went to the copy of the old one, which was called exact.

    The triggers were taken at their word while one was off.
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


def assert_equal(path: Path) -> None:
    """Of every table that is not marked."""
    marks = path.wait().inexact
    for (table,) in ask(path.source, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        if f"public.{table}" not in marks:
            assert content(path.target, table) == content(path.source, table), marks
