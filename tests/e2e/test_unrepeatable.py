"""What a copy cannot repeat, though it looks so: the table is called not exact, and is mended.

All of a mode is played on one path: first each table is made, and a look compares it.
"""

import time
from typing import NamedTuple

import pytest

from producer.core.ports import Tuning
from tests.e2e.path import ask, content, until
from tests.e2e.test_ddl import install
from tests.e2e.test_undone import Undone
from tests.services_fixtures import execute


class Case(NamedTuple):
    """`rows` is compared; `mark`: a part of what is said for as long as it lasts."""

    before: list[str]
    then: list[str]
    rows: str
    mark: str = ""


def plain(name: str, columns: str = "v int", values: str = "n") -> list[str]:
    return [
        f"CREATE TABLE {name} (id int PRIMARY KEY, {columns})",
        f"INSERT INTO {name} SELECT n, {values} FROM generate_series(1, 20) n",
    ]


def root(name: str, columns: str = "id int PRIMARY KEY, v int", values: str = "n, n") -> list[str]:
    part = f"CREATE TABLE {name}_%s PARTITION OF {name} FOR VALUES FROM (%s) TO (%s)"
    return [
        f"CREATE TABLE {name} ({columns}) PARTITION BY RANGE (id)",
        part % (1, 0, 10),
        part % (2, 10, 100),
        f"INSERT INTO {name} SELECT {values} FROM generate_series(1, 20) n",
    ]


CODED = ("id int PRIMARY KEY, code text NOT NULL, v int", "n, 'c' || n, n")
UNLIKE = "whose replica identity is not that of its root"
CASES = {
    # Of a root the catalog keeps in its partitions what older rows have.
    "a default that was dropped at once": Case(
        root("d1"),
        ["ALTER TABLE d1 ADD c int DEFAULT 5; ALTER TABLE d1 ALTER c DROP DEFAULT"],
        "SELECT id, v, c FROM d1",
    ),
    "a default of a domain": Case(
        ["CREATE DOMAIN seven AS int DEFAULT 7", *root("d2")],
        ["ALTER TABLE d2 ADD c seven"],
        "SELECT id, v, c FROM d2",
    ),
    "a function that only claims to be stable": Case(
        ["CREATE FUNCTION anything() RETURNS float8 STABLE LANGUAGE sql AS 'SELECT random()'",
         *root("d3")],
        ["ALTER TABLE d3 ADD c float8 DEFAULT anything()"],
        "SELECT id, v, c FROM d3",
    ),
    # VACUUM FULL writes it into the rows, and the catalog forgets it.
    "a default that was dropped, and rows written anew": Case(
        plain("d4"),
        ["ALTER TABLE d4 ADD c int DEFAULT 5; ALTER TABLE d4 ALTER c DROP DEFAULT",
         "VACUUM FULL d4"],
        "SELECT id, v, c FROM d4",
    ),
    "the same of partitions": Case(
        root("d5"),
        ["ALTER TABLE d5 ADD c int DEFAULT 5; ALTER TABLE d5 ALTER c DROP DEFAULT",
         "VACUUM FULL d5_1", "VACUUM FULL d5_2"],
        "SELECT id, v, c FROM d5",
    ),
    "the same in one transaction, with a row behind": Case(
        plain("d6"),
        [("ALTER TABLE d6 ADD c int DEFAULT 5; ALTER TABLE d6 ALTER c DROP DEFAULT;"
         "CLUSTER d6 USING d6_pkey; UPDATE d6 SET v = 0 WHERE id = 3")],
        "SELECT id, v, c FROM d6",
    ),
    "another default in the statement that writes rows anew": Case(
        plain("d7"),
        ["ALTER TABLE d7 ADD c int DEFAULT 5, ALTER c SET DEFAULT 7, ALTER v TYPE bigint"],
        "SELECT id, v, c FROM d7",
    ),
    "no default any more in such a statement": Case(
        plain("d8"),
        [("ALTER TABLE d8 ADD c int DEFAULT 5, ALTER c SET /* */ DEFAULT NULL,"
         " ALTER v TYPE bigint")],
        "SELECT id, v, c FROM d8",
    ),
    "a cast of a column whose name differs in its letters' case": Case(
        plain("u1", '"V" bigint, v bigint', "n, n + 1000"),
        ['ALTER TABLE u1 ALTER "V" TYPE int USING "v"::int'],
        'SELECT id, "V", v FROM u1',
    ),
    "a cast of users' below a domain": Case(
        ["CREATE TYPE digit AS ENUM ('10', '20')", "CREATE DOMAIN digits AS digit",
         ("CREATE FUNCTION as_int(digit) RETURNS int IMMUTABLE LANGUAGE sql"
         " AS 'SELECT length($1::text) + 40'"),
         "CREATE CAST (digit AS int) WITH FUNCTION as_int(digit) AS ASSIGNMENT",
         *plain("u2", "v digits", "'10'")],
        ["ALTER TABLE u2 ALTER v TYPE int"],
        "SELECT id, v::text FROM u2",
    ),
    "such a cast of an array": Case(
        plain("u3", "v digit[]", "'{10}'"),
        ["ALTER TABLE u3 ALTER v TYPE int[]"],
        "SELECT id, v::text FROM u3",
    ),
    "a partition whose bounds are in an order of the source's": Case(
        ["CREATE TYPE size AS ENUM ('z', 'm', 'a')",
         "CREATE TABLE p1 (id size PRIMARY KEY, v int) PARTITION BY RANGE (id)",
         "CREATE TABLE p1_1 PARTITION OF p1 FOR VALUES FROM ('z') TO ('a')",
         "CREATE TABLE p1_2 PARTITION OF p1 DEFAULT",
         "INSERT INTO p1 VALUES ('z', 1), ('m', 2), ('a', 3)"],
        ["DROP TABLE p1_1"],
        "SELECT id::text, v FROM p1",
    ),
    # Partitions decide what is sent of old rows, and their root says what it is.
    "a value that a partition did not send": Case(
        [*root("i1", "id int PRIMARY KEY, v int, w text", "n, n, repeat('x', 9000)"),
         "ALTER TABLE i1 ALTER w SET STORAGE EXTERNAL"],
        ["UPDATE i1 SET w = repeat('y', 9000)",
         ("ALTER TABLE i1 REPLICA IDENTITY FULL; UPDATE i1 SET id = 44 WHERE id = 15;"
         "ALTER TABLE i1 REPLICA IDENTITY DEFAULT")],
        "SELECT id, v, md5(w) FROM i1",
    ),
    "a partition that is known by another index": Case(
        [*root("i2", *CODED), "CREATE UNIQUE INDEX i2_code ON i2_2 (code)"],
        ["ALTER TABLE i2_2 REPLICA IDENTITY USING INDEX i2_code",
         "UPDATE i2 SET id = 50 WHERE id = 12"],
        "SELECT * FROM i2",
        UNLIKE,
    ),
    "a partition with a key that its root lacks": Case(
        [*root("i3", "id int, v int"), "ALTER TABLE i3 REPLICA IDENTITY FULL"],
        ["ALTER TABLE i3_2 ADD PRIMARY KEY (id)", "UPDATE i3 SET v = 7 WHERE id = 14",
         "DELETE FROM i3 WHERE id = 15"],
        "SELECT * FROM i3",
        UNLIKE,
    ),
    "a partition of another server": Case(
        ["CREATE FOREIGN DATA WRAPPER nothing", "CREATE SERVER far FOREIGN DATA WRAPPER nothing",
         *root("f1", "id int, v int")],
        ["CREATE FOREIGN TABLE f1_3 PARTITION OF f1 FOR VALUES FROM (100) TO (200) SERVER far"],
        "SELECT * FROM f1 WHERE id < 100",
        "with the foreign partition public.f1_3",
    ),
}  # fmt: skip


@pytest.fixture
def path(addresses, topic_prefix, new_database, tmp_path):
    made = Undone(
        addresses, topic_prefix, new_database(), new_database(),
        look_seconds=2.0, repair="auto", publication="p", tuning=Tuning(rest_seconds=0.1),
    )  # fmt: skip
    with made as path:
        execute(path.source, "CREATE TABLE calm (id int PRIMARY KEY)")
        whole = "CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root)"
        execute(path.source, whole)
        path.open(tmp_path, addresses)
        yield path


@pytest.mark.parametrize("triggers", [False, True])
def test_what_no_copy_can_repeat_is_noticed(path: Undone, triggers: bool) -> None:
    if triggers:
        install(path.source, "p")
        path.catch_up()
    for case in CASES.values():
        for statement in case.before:
            execute(path.source, statement)
    for look in ("look_1", "look_2"):  # the second one compares with the first
        path.be_looked_at(look)
    until(lambda: path.waited() == {}, "an exact target", time.sleep)

    lasting: set[str] = set()
    for what, case in CASES.items():
        for statement in case.then:
            execute(path.source, statement)
        table = f"public.{table_of(case.rows)}"
        marks = path.waited()
        assert table in marks or is_equal(path, case.rows), what
        if case.mark:
            assert table in marks, what
            until(lambda t=table, mark=case.mark: is_said(path, t, mark), what, time.sleep)
            lasting.add(table)
            continue
        until(lambda rows=case.rows: is_equal(path, rows), what, time.sleep)
    until(lambda: path.waited().keys() == lasting, "all the others mended", time.sleep)

    partition = "ALTER TABLE i2_2 REPLICA IDENTITY DEFAULT; DROP FOREIGN TABLE f1_3"
    execute(path.source, f"{partition}; ALTER TABLE i3_2 REPLICA IDENTITY FULL")
    until(lambda: path.waited() == {}, "marks that were taken back", time.sleep)
    assert [what for what, case in CASES.items() if not is_equal(path, case.rows)] == []


def is_equal(path: Undone, rows: str) -> bool:
    path.applier.drain()
    columns = "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass"
    if ", c " in rows and ("c",) not in ask(path.target, columns, table_of(rows)):
        return False
    return content(path.source, f"({rows})") == content(path.target, f"({rows})")


def is_said(path: Undone, table: str, mark: str) -> bool:
    return any(table in note and mark in note for note in path.notes)


def table_of(rows: str) -> str:
    return rows.partition(" FROM ")[2].partition(" ")[0]
