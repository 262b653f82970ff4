"""A session of pgoutput keeps the name under which it sends a partition's rows: `run` ends it.

Of a publication FOR TABLES IN SCHEMA, a root that is moved to another schema leaves what pgoutput
knows of its partitions as it was.
"""

import time

import pytest

from producer.core.ports import Tuning
from tests.e2e.path import ask, content, until
from tests.e2e.test_ddl import install
from tests.e2e.test_undone import Undone, has
from tests.services_fixtures import execute

START = """
CREATE SCHEMA hidden; CREATE SCHEMA other; CREATE TABLE calm (id int PRIMARY KEY);
CREATE TABLE r (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (100);
CREATE TABLE r2 PARTITION OF r FOR VALUES FROM (100) TO (200);
INSERT INTO r SELECT n, n FROM generate_series(1, 150) n;
CREATE PUBLICATION p FOR TABLES IN SCHEMA public, other WITH (publish_via_partition_root)
"""
OUT, BACK = "ALTER TABLE %s.r SET SCHEMA hidden", "ALTER TABLE hidden.r SET SCHEMA public"


@pytest.fixture
def path(addresses, topic_prefix, new_database, tmp_path):
    made = Undone(
        addresses, topic_prefix, new_database(), new_database(),
        look_seconds=0.5, repair="auto", publication="p", tuning=Tuning(rest_seconds=0.1),
        include=("public.*", "other.*", "hidden.*"),
    )  # fmt: skip
    with made as path:
        ask(path.source, START)
        path.open(tmp_path, addresses)
        yield path


@pytest.mark.parametrize("triggers", [False, True], ids=["without triggers", "with triggers"])
def test_rows_of_a_partition_whose_root_is_moved_come_under_the_name_in_force(
    path: Undone, triggers: bool
) -> None:
    if triggers:
        install(path.source, "p")
        path.catch_up()
    at = 10
    # The triggers add to the publication what leaves its schemas.
    parts = ["hidden.r"] if triggers else ["r1", "r2"]
    for statement, tables in [
        (OUT % "public", parts),
        (BACK, ["r"]),
        (f"{OUT % 'public'}; {BACK}", ["r"]),
        ("ALTER TABLE r SET SCHEMA other", ["other.r"]),
        (OUT % "other", parts),
        ("ALTER TABLE hidden.r SET SCHEMA other", ["other.r"]),
        ("ALTER TABLE other.r SET SCHEMA public", ["r"]),
    ]:
        write(path, at)
        execute(path.source, statement)
        for _ in range(3):  # what is called exact is equal, whenever it is asked
            write(path, at := at + 1)
            marks = path.waited()
            exact = [t for t in tables if has(path, t) and id_of(t) not in marks]
            assert [t for t in exact if not is_equal(path, t)] == [], statement
        until(lambda there=tables: is_mended(path, there), f"a copy: {statement}", time.sleep)
        write(path, at := at + 1)
        assert path.waited() == {}, statement
        assert [t for t in tables if not is_equal(path, t)] == [], statement


@pytest.mark.parametrize(
    ("part", "root", "bounds"), [("alone", "r", "(200) TO (300)"), ("r", "above", "(0) TO (200)")]
)
def test_a_table_that_is_a_partition_for_one_transaction_is_read_again(
    path: Undone, part: str, root: str, bounds: str
) -> None:
    """Its rows come as those of the root, and no look shows that it had one."""
    for table, kind in (("alone", ""), ("above", "PARTITION BY RANGE (id)")):
        execute(path.source, f"CREATE TABLE {table} (id int PRIMARY KEY, v int) {kind}")
    execute(path.source, "INSERT INTO alone VALUES (250, 1)")
    until(lambda: is_mended(path, ["r", "alone"]), "a copy", time.sleep)

    statements = (
        f"ALTER TABLE {root} ATTACH PARTITION {part} FOR VALUES FROM {bounds}",
        f"UPDATE {root} SET v = 7 WHERE id IN (10, 250)",
        f"ALTER TABLE {root} DETACH PARTITION {part}",
    )
    ask(path.source, "; ".join(statements))
    marks = path.waited()
    assert [t for t in ("r", "alone") if id_of(t) not in marks and not is_equal(path, t)] == []
    until(lambda: is_mended(path, ["r", "alone"]), "a copy", time.sleep)
    assert [t for t in ("r", "alone") if not is_equal(path, t)] == []


def is_mended(path: Undone, tables: list[str]) -> bool:
    return path.waited() == {} and all(has(path, table) for table in tables)


def write(path: Undone, at: int) -> None:
    """Write to both partitions, which the session knows then."""
    for part, n in (("r1", at % 100), ("r2", 100 + at % 100)):
        execute(path.source, f"UPDATE {part} SET v = v + 1000 WHERE id = {n}")


def id_of(table: str) -> str:
    return table if "." in table else f"public.{table}"


def is_equal(path: Undone, table: str) -> bool:
    rows = f"(SELECT id, v FROM {table})"
    return content(path.source, rows) == content(path.target, rows)
