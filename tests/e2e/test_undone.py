"""What an owner does and undoes between two looks: the table is called not exact, and is mended."""

import time
from contextlib import closing, suppress
from pathlib import Path as File

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from gauss_cdc.config import Config, load
from producer.core.ports import Tuning
from producer.sources.postgres import catalog
from schemas.tables import TableId
from tests.e2e.commands import configured
from tests.e2e.path import Path, ask, content, until
from tests.e2e.test_ddl import install
from tests.services_fixtures import execute

START = """
CREATE TABLE t (id int PRIMARY KEY, v int, w text);
INSERT INTO t SELECT n, n, 'w' FROM generate_series(1, 50) n;
CREATE TABLE g (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v + 1) STORED);
INSERT INTO g SELECT n, n FROM generate_series(1, 9) n;
CREATE TABLE r (id int PRIMARY KEY, v int DEFAULT 7) PARTITION BY RANGE (id);
CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10);
CREATE TABLE r2 PARTITION OF r FOR VALUES FROM (10) TO (99);
INSERT INTO r SELECT n, n FROM generate_series(1, 50) n;
CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (a int, b int);
CREATE TYPE moods AS RANGE (subtype = mood, multirange_type_name = many_moods);
CREATE TYPE pairs AS RANGE (subtype = pair, multirange_type_name = many_pairs);
CREATE TABLE x (id int PRIMARY KEY, m many_moods, ps pairs, ms many_pairs[]);
INSERT INTO x VALUES (1, '{[sad,ok]}', '["(1,2)","(3,4)"]',
    ARRAY['{["(1,2)","(3,4)"]}'::many_pairs]);
CREATE TABLE calm (id int PRIMARY KEY); INSERT INTO calm VALUES (1);
CREATE SCHEMA hidden
"""
DEEP = """
CREATE FUNCTION deep(n int, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN IF n > 0 THEN PERFORM deep(n - 1, what); ELSE EXECUTE what; END IF; END $$
"""
ALL = "insert, update, delete, truncate"
UPDATE = "UPDATE t SET v = v + 1 WHERE id < 9"
OFF, ON = (
    "ALTER PUBLICATION p SET (publish = 'insert')",
    f"ALTER PUBLICATION p SET (publish = '{ALL}')",
)
UNDONE = {
    "an action": [OFF, UPDATE, ON],
    "a filter": ["ALTER PUBLICATION p SET TABLE t WHERE (id > 20), g, r, x, calm", UPDATE,
                 "ALTER PUBLICATION p SET TABLE t, g, r, x, calm"],
    "a column list": ["ALTER PUBLICATION p SET TABLE t (id, w), g, r, x, calm", UPDATE,
                      "ALTER PUBLICATION p SET TABLE t, g, r, x, calm"],
    "a table": ["ALTER PUBLICATION p DROP TABLE t", UPDATE, "ALTER PUBLICATION p ADD TABLE t"],
    "the log": ["ALTER TABLE t SET UNLOGGED", UPDATE, "ALTER TABLE t SET LOGGED"],
    "the log of a partition": ["ALTER TABLE r1 SET UNLOGGED", "UPDATE r SET v = v + 1",
                               "ALTER TABLE r1 SET LOGGED"],
    "values of the same type": ["ALTER TABLE t ALTER v TYPE int USING v + 1000"],
    "values of another type": ["ALTER TABLE t ALTER v TYPE text USING 'x' || v",
                               "ALTER TABLE t ALTER v TYPE int USING length(v)"],
    "what came behind a TRUNCATE": [
        ("TRUNCATE t; INSERT INTO t SELECT n, n FROM generate_series(1, 5) n;"
        "ALTER TABLE t ALTER id TYPE int USING id + 100; DELETE FROM t")],
    "a row updated behind a TRUNCATE": [
        ("TRUNCATE t; INSERT INTO t SELECT n, n FROM generate_series(1, 5) n;"
        "ALTER TABLE t ALTER id TYPE int USING id + 200; UPDATE t SET v = v + 1")],
    "rows that were deleted out of the log behind a TRUNCATE": [
        ("TRUNCATE t; INSERT INTO t VALUES (1, 1, 'w'); ALTER TABLE t SET UNLOGGED; DELETE FROM t;"
        "ALTER TABLE t SET LOGGED")],
    "a label below a multirange": ["ALTER TYPE mood RENAME VALUE 'sad' TO 'bad'"],
    "an attribute below a range": ["ALTER TYPE pair ADD ATTRIBUTE c int"],
    "a generated column": ["ALTER TABLE g ALTER w DROP EXPRESSION"],
    "a column": ["ALTER TABLE t DROP w", "ALTER TABLE t ADD w text"],
}  # fmt: skip


class Undone(Path):
    """The path, its publication p, and `wait`."""

    def begin(self, folder: File, addresses, publication: str) -> None:
        ask(self.source, START)
        whole = "WITH (publish_via_partition_root)"
        execute(self.source, f"CREATE PUBLICATION p {publication} {whole}")
        self.open(folder, addresses)

    def open(self, folder: File, addresses) -> None:
        """Write the configuration of `wait`, start `run`, and copy what there is."""
        self.file = configured(
            folder, addresses, self.prefix, self.source, self.target, publication="p"
        )
        self.start()
        assert self.catch_up().inexact == {}

    def configured(self) -> Config:
        return load(self.file)

    def do(self, statements: list[str], *, together: bool) -> None:
        for statement in ["; ".join(statements)] if together else statements:
            execute(self.source, statement)

    def wait(self) -> dict[str, str]:
        """Return the marks with which `wait` ends; what it calls exact is equal."""
        marks = self.waited()
        assert [name for name in self.unequal() if f"public.{name}" not in marks] == []
        return marks

    def be_looked_at(self, table: str) -> None:
        """Wait for a look that began behind all this, by an empty table that only a look finds."""
        ask(self.source, f"CREATE TABLE {table} (id int PRIMARY KEY)")
        until(lambda: has(self, table), f"a look that finds {table}", time.sleep)

    def unequal(self) -> list[str]:
        there = ask(self.source, "SELECT attgenerated::text FROM pg_attribute WHERE attname = 'w'")
        cells = {"t": "id, v, w", "g": "id, v", "r": "id, v", "x": "id, m, ps, ms", "calm": "id"}
        cells["g"] += "" if ("s",) in there else ", w"
        return [
            name
            for name, names in cells.items()
            if content(self.source, f"(SELECT {names} FROM {name})")
            != content(self.target, f"(SELECT {names} FROM {name})")
        ]

    def is_mended(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.applier.drain().inexact == {} and self.unequal() == []

    @property
    def gaps(self) -> list[str]:
        return [note for note in self.notes if "is not exact any more" in note]


LISTED = {"a filter": "t", "a column list": "t", "a table": "t"}
PUBLISHED = {
    "all": ("FOR ALL TABLES", [what for what in UNDONE if what not in LISTED]),
    "a list": ("FOR TABLE t, g, r, x, calm", [*LISTED]),
}
LASTING = {
    "all": {"an action": "t", "the log of a partition": "r"},
    "a list": LISTED,
}


@pytest.fixture
def path(addresses, topic_prefix, new_database, tmp_path, request):
    case = getattr(request.node, "callspec", None)
    published, _ = PUBLISHED[case.params.get("published", "all") if case else "all"]
    tuning = Tuning(rest_seconds=0.1)
    made = Undone(
        addresses, topic_prefix, new_database(), new_database(),
        look_seconds=0.2, repair="auto", publication="p", tuning=tuning, exclude=("hidden.*",),
    )  # fmt: skip
    with made as path:
        path.begin(tmp_path, addresses, published)
        yield path


@pytest.mark.parametrize("how", ["apart", "together", "while run is down", "with triggers"])
@pytest.mark.parametrize("published", PUBLISHED)
def test_what_is_undone_is_noticed_and_mended(path: Undone, published: str, how: str) -> None:
    if how == "with triggers":
        install(path.source, "p")
        path.catch_up()
    for what in PUBLISHED[published][1]:
        path.notes.clear()
        if how == "while run is down":
            path.stop()
        path.do(UNDONE[what], together=how == "together")
        if how == "while run is down":
            path.start()
        path.wait()

        # A table that gets gap after gap rests, and longer where reading it takes long.
        until(path.is_mended, f"an equal target: {what}", time.sleep, limit=600)
        # Between the two a look may fall: a column dropped, and one added empty, each exact.
        is_described = how == "with triggers" or (what, how) == ("a column", "apart")
        assert path.gaps or is_described, what
        assert not any("calm" in note for note in path.gaps) or what == "an action", what


@pytest.mark.parametrize("published", PUBLISHED)
def test_as_long_as_it_lasts_the_table_is_called_not_exact(path: Undone, published: str) -> None:
    for what, table in LASTING[published].items():
        path.do(UNDONE[what][:2], together=False)
        assert f"public.{table}" in path.wait(), what
        path.do(UNDONE[what][1:2], together=False)
        assert f"public.{table}" in path.wait(), what
        path.do(UNDONE[what][2:], together=False)

        # What was undone last may be noticed when what it undid is mended.
        until(lambda: path.is_mended() and not path.wait(), f"an exact target: {what}", time.sleep)


OLD_G = [
    "DROP TABLE g",
    "CREATE TABLE g (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v + 1) STORED)",
    "INSERT INTO g SELECT n, n FROM generate_series(1, 9) n",
]
DROPPED = "ALTER TABLE g ALTER w DROP EXPRESSION"


@pytest.mark.parametrize("has_row", [True, False])
@pytest.mark.parametrize("how", ["apart", "together", "while run is down"])
def test_a_new_table_with_a_column_that_was_generated_is_mended(
    path: Undone, how: str, *, has_row: bool
) -> None:
    """No look has compared it, as `pg_dump | psql` of a table leaves it."""
    if how == "while run is down":
        path.stop()
    row = ["UPDATE g SET v = v + 5 WHERE id = 3"] if has_row else []
    path.do([*OLD_G, DROPPED, *row], together=how == "together")
    if how == "while run is down":
        path.start()
    path.wait()

    until(path.is_mended, "an equal target", time.sleep)
    assert any("public.g" in note for note in path.gaps)


@pytest.mark.parametrize("has_row", [True, False])
def test_a_column_that_was_generated_until_the_triggers_came_is_mended(
    path: Undone, *, has_row: bool
) -> None:
    path.do([*OLD_G, DROPPED], together=False)
    install(path.source, "p")
    path.do(["UPDATE g SET v = v + 5 WHERE id = 3"] if has_row else [], together=False)
    path.wait()

    until(path.is_mended, "an equal target", time.sleep)
    assert any("public.g" in note for note in path.gaps)


THIRD = "r3 FOR VALUES FROM (100) TO (200)"
IN_NEW = {
    "an attribute that came": ("n1", [
        "CREATE TYPE duo1 AS (a int, b int)", "CREATE TABLE n1 (id int PRIMARY KEY, p duo1)",
        "INSERT INTO n1 VALUES (1, '(1,2)')", "ALTER TYPE duo1 ADD ATTRIBUTE c int"]),
    "an attribute that went": ("n2", [
        "CREATE TYPE duo2 AS (a int, b int)", "CREATE TABLE n2 (id int PRIMARY KEY, p duo2)",
        "INSERT INTO n2 VALUES (1, '(1,2)')", "ALTER TYPE duo2 DROP ATTRIBUTE b"]),
    "an attribute below an array": ("n3", [
        "CREATE TYPE duo3 AS (a int, b int)", "CREATE TYPE trio AS (x duo3[], y int)",
        "CREATE TABLE n3 (id int PRIMARY KEY, p trio)",
        "INSERT INTO n3 VALUES (1, ROW(ARRAY['(1,2)'::duo3], 3))",
        "ALTER TYPE duo3 ADD ATTRIBUTE c int"]),
    "a label": ("n4", [
        "CREATE TYPE moody AS ENUM ('x', 'y')", "CREATE TABLE n4 (id int PRIMARY KEY, p moody)",
        "INSERT INTO n4 VALUES (1, 'x')", "ALTER TYPE moody RENAME VALUE 'x' TO 'z'"]),
    "a partition that was filled by itself": ("r", [
        f"CREATE TABLE {THIRD.replace('r3', 'r3 PARTITION OF r')}",
        "ALTER TABLE r DETACH PARTITION r3", "INSERT INTO r3 VALUES (150, 1)",
        f"ALTER TABLE r ATTACH PARTITION {THIRD}"]),
    "a table that was filled, and became a partition": ("r", [
        "DROP TABLE r3", "CREATE TABLE r3 (LIKE r INCLUDING ALL)",
        "INSERT INTO r3 VALUES (151, 1)", f"ALTER TABLE r ATTACH PARTITION {THIRD}"]),
    "an attribute of a known table that came and went": ("n2", [
        "ALTER TYPE duo2 ADD ATTRIBUTE d int", "UPDATE n2 SET p = '(1,4)'",
        "ALTER TYPE duo2 DROP ATTRIBUTE d"]),
    "a column that came and went, and another of its name": ("n5", [
        "CREATE TABLE n5 (id int PRIMARY KEY, c int DEFAULT 5)", "INSERT INTO n5 VALUES (1), (2)",
        "ALTER TABLE n5 DROP c", "ALTER TABLE n5 ADD c int DEFAULT 6"]),
    "the same of a known table": ("n5", [
        "ALTER TABLE n5 ADD d int DEFAULT 5", "UPDATE n5 SET c = 7 WHERE id = 1",
        "ALTER TABLE n5 DROP d", "ALTER TABLE n5 ADD d int DEFAULT 6"]),
    "a label of a new column": ("n5", [
        "CREATE TYPE grim AS ENUM ('x', 'y')", "ALTER TABLE n5 ADD g grim",
        "UPDATE n5 SET g = 'x' WHERE id = 1", "ALTER TYPE grim RENAME VALUE 'x' TO 'z'"]),
    "an attribute, and a column that a row brings": ("n1", [
        "ALTER TYPE duo1 ADD ATTRIBUTE e int", "ALTER TABLE n1 ADD v int",
        "INSERT INTO n1 VALUES (2, '(3,4,5,6)', 7)"]),
    "rows that were equal in what became the key": ("n6", [
        "CREATE TABLE n6 (id int, v int)", "ALTER TABLE n6 REPLICA IDENTITY FULL",
        "INSERT INTO n6 VALUES (1, 1), (1, 2)", "DELETE FROM n6 WHERE v = 1",
        "ALTER TABLE n6 ADD PRIMARY KEY (id)"]),
    "rows under a name that is not captured": ("n7", [
        "CREATE TABLE hidden.n7 (id int PRIMARY KEY)", "INSERT INTO hidden.n7 VALUES (1)",
        "ALTER TABLE hidden.n7 SET SCHEMA public", "INSERT INTO n7 VALUES (2)"]),
    "a column that came to a view": ("n8", [
        "CREATE VIEW seen AS SELECT 1 AS a", "CREATE TABLE n8 (id int PRIMARY KEY, p seen)",
        "INSERT INTO n8 VALUES (1, ROW(1)::seen)",
        "CREATE OR REPLACE VIEW seen AS SELECT 1 AS a, 2 AS b"]),
}  # fmt: skip


@pytest.mark.parametrize("how", ["together", "while run is down"])
def test_what_is_done_to_a_new_table_before_anybody_looks_is_mended(path: Undone, how: str) -> None:
    for what, (table, statements) in IN_NEW.items():
        path.notes.clear()
        if how == "while run is down":
            path.stop()
        path.do(statements, together=how == "together")
        if how == "while run is down":
            path.start()

        def is_equal(table: str = table) -> bool:
            return content(path.source, table) == content(path.target, table)

        assert f"public.{table}" in path.waited() or is_equal(), what
        until(
            lambda equal=is_equal: path.is_mended() and equal(),
            f"an equal target: {what}",
            time.sleep,
        )
        is_loaded = how == "while run is down"  # a table that came meanwhile
        assert is_loaded or any(f"public.{table}" in note for note in path.gaps), what


@pytest.mark.parametrize("published", ["a list"])
@pytest.mark.parametrize("how", ["apart", "together"])
def test_a_table_that_the_triggers_published_and_that_left_is_called_not_exact(
    path: Undone, published: str, how: str
) -> None:
    """No look has seen it published."""
    install(path.source, "p", include=[f"public.{t}" for t in ("t", "g", "r", "x", "calm", "n")])
    path.catch_up()
    path.wait()
    path.do(
        [
            "CREATE TABLE n (id int PRIMARY KEY, v int)",
            "INSERT INTO n VALUES (1, 1)",
            "ALTER PUBLICATION p DROP TABLE n",
            "UPDATE n SET v = 2",
        ],
        together=how == "together",
    )

    assert "public.n" in path.wait()


def test_an_altered_type_that_older_values_cannot_have_stops_no_target(path: Undone) -> None:
    """Rows are not described, so a target tries the values as texts; the table is read again."""
    path.do(["ALTER TABLE t ALTER w TYPE int USING length(w)", UPDATE], together=True)
    path.wait()

    until(path.is_mended, "an equal target", time.sleep)
    assert any("public.t" in note for note in path.gaps)


def test_values_that_were_computed_while_the_trigger_was_off_do_not_stop_the_target(
    path: Undone,
) -> None:
    install(path.source, "p")
    path.catch_up()
    path.wait()
    rewrite = "ALTER EVENT TRIGGER gauss_cdc_ddl_rewrite"
    there = "ALTER TABLE t ALTER v TYPE text USING 'x' || v"
    back = "ALTER TABLE t ALTER v TYPE int USING NULL"
    path.do([f"{rewrite} DISABLE", there, back, f"{rewrite} ENABLE ALWAYS"], together=True)
    path.wait()

    until(path.is_mended, "an equal target", time.sleep)
    assert any("public.t" in note for note in path.gaps)


def test_a_key_that_may_have_been_renamed_is_a_gap_of_its_table_alone(path: Undone) -> None:
    """A column of the rows is gone by the time it is read, so the numbers tell nothing."""
    path.do(
        [
            "ALTER TABLE t RENAME COLUMN id TO n",
            "ALTER TABLE t ADD id int, ADD y int DEFAULT 5",
            "DELETE FROM t WHERE n < 9",
            "INSERT INTO calm VALUES (2)",
            "ALTER TABLE t DROP y",
        ],
        together=True,
    )
    path.wait()

    until(path.is_mended, "an equal target", time.sleep)
    rows = "(SELECT n, id, v, w FROM t)"
    assert content(path.source, rows) == content(path.target, rows)
    assert not any("calm" in note for note in path.gaps)


@pytest.mark.parametrize("triggers", [False, True])
def test_a_key_that_partitions_lack_is_no_key_until_it_is_valid(
    path: Undone, triggers: bool
) -> None:
    """As `pg_dump -t` of a root leaves it; the server takes rows that are equal in it."""
    if triggers:
        install(path.source, "p")
        path.catch_up()
    execute(path.source, "ALTER TABLE r DROP CONSTRAINT r_pkey")
    execute(path.source, "ALTER TABLE ONLY r ADD CONSTRAINT r_pkey PRIMARY KEY (id)")
    execute(path.source, "INSERT INTO r VALUES (3, 5), (60, 1), (60, 2)")

    marks = path.wait()
    assert "r_pkey, which is not valid" in marks["public.r"]
    assert "public.r" in path.wait()

    execute(path.source, "TRUNCATE r")
    for part in ("r1", "r2"):
        execute(path.source, f"ALTER TABLE {part} ADD PRIMARY KEY (id)")
        execute(path.source, f"ALTER INDEX r_pkey ATTACH PARTITION {part}_pkey")
    execute(path.source, "INSERT INTO r SELECT n, n FROM generate_series(1, 9) n")

    until(path.is_mended, "an equal target", time.sleep)
    assert path.wait() == {}


def test_partitions_whose_root_has_a_key_that_is_not_valid_say_so(path: Undone) -> None:
    """Targets have their rows under their own names, for as long as the root is not captured."""
    execute(path.source, "ALTER TABLE r DROP CONSTRAINT r_pkey")
    execute(path.source, "ALTER TABLE ONLY r ADD CONSTRAINT r_pkey PRIMARY KEY (id)")
    until(lambda: "public.r" in path.waited(), "a mark", time.sleep)
    execute(path.source, "ALTER PUBLICATION p SET (publish_via_partition_root = false)")
    until(lambda: has(path, "r1") and has(path, "r2"), "its partitions", time.sleep)
    execute(path.source, "ALTER PUBLICATION p SET (publish_via_partition_root = true)")

    says = "sends its rows as those of public.r, and has it with key public.r_pkey"
    until(lambda: any(says in note for note in path.gaps), "what it is about", time.sleep)
    until(lambda: {"public.r1", "public.r2"} <= path.waited().keys(), "both marks", time.sleep)
    execute(path.source, "ALTER TABLE r DROP CONSTRAINT r_pkey")

    until(lambda: has(path, "r") and not has(path, "r1"), "the root", time.sleep)
    until(path.is_mended, "an equal target", time.sleep)
    assert path.wait() == {}


def has(path: Undone, table: str) -> bool:
    path.applier.drain()
    return ask(path.target, f"SELECT to_regclass('{table}') IS NOT NULL") == [(True,)]


KEYLESS = {
    "its values changed": "UPDATE t SET id = id + 1",
    "rows were equal in it": "INSERT INTO t SELECT id, v, '' FROM t; DELETE FROM t WHERE w = 'w'",
    "it was another one": "UPDATE t SET v = id; ALTER TABLE t ADD PRIMARY KEY (v);"
    "UPDATE t SET id = 1; UPDATE t SET id = v; ALTER TABLE t DROP CONSTRAINT t_pkey",
}


@pytest.mark.parametrize("triggers", [False, True])
@pytest.mark.parametrize("meanwhile", KEYLESS)
def test_a_key_that_was_dropped_and_made_again_tells_no_rows_apart_meanwhile(
    path: Undone, meanwhile: str, triggers: bool
) -> None:
    if triggers:
        install(path.source, "p")
        path.catch_up()
    execute(path.source, "ALTER TABLE t REPLICA IDENTITY FULL")
    drop, add = "ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id)"
    execute(path.source, f"{drop}; {KEYLESS[meanwhile]}; {add}")
    execute(path.source, "ALTER TABLE t REPLICA IDENTITY DEFAULT")

    path.wait()
    until(path.is_mended, "an equal target", time.sleep)
    assert bool(path.gaps) is not triggers
    path.notes.clear()
    execute(path.source, "REINDEX TABLE CONCURRENTLY t")
    execute(path.source, "UPDATE t SET v = v + 1")
    assert path.wait() == {}
    assert path.gaps == []


@pytest.mark.parametrize("triggers", [False, True])
def test_a_key_that_comes_back_on_the_root_alone_stops_no_target(
    path: Undone, triggers: bool
) -> None:
    """The server takes it though rows are equal in it; a target cannot."""
    if triggers:
        install(path.source, "p")
        path.catch_up()
    execute(path.source, "ALTER TABLE r DROP CONSTRAINT r_pkey")
    execute(path.source, "ALTER TABLE r REPLICA IDENTITY FULL")
    execute(path.source, "INSERT INTO r VALUES (3, 5), (60, 1), (60, 2)")
    path.be_looked_at("without_a_key")  # else a mark for that excuses the table below
    until(path.is_mended, "an equal target", time.sleep)

    execute(path.source, "ALTER TABLE ONLY r ADD CONSTRAINT r_pkey PRIMARY KEY (id)")
    execute(path.source, "INSERT INTO r VALUES (4, 6)")
    assert "r_pkey, which is not valid" in path.wait()["public.r"]
    execute(path.source, "ALTER TABLE r DROP CONSTRAINT r_pkey")

    until(path.is_mended, "an equal target", time.sleep)
    assert path.wait() == {}


def test_a_partition_that_comes_while_a_transaction_is_open_anywhere_is_looked_at_once(
    path: Undone, new_database
) -> None:
    """Ids of transactions are the server's: one of another database stays below the partition's."""
    install(path.source, "p")
    path.catch_up()
    with closing(psycopg2.connect(new_database())) as elsewhere, elsewhere.cursor() as cursor:
        cursor.execute("SELECT txid_current()")
        execute(path.source, "CREATE TABLE r3 (LIKE r INCLUDING ALL); INSERT INTO r3 VALUES (99)")
        execute(path.source, "ALTER TABLE r ATTACH PARTITION r3 FOR VALUES FROM (99) TO (200)")
        assert path.wait() == {}
        execute(path.source, "CREATE TABLE other (id int PRIMARY KEY)")
        assert path.wait() == {}
    assert path.wait() == {}
    assert path.gaps == []


def test_a_rename_while_the_triggers_are_off_is_followed(path: Undone) -> None:
    install(path.source, "p")
    execute(path.source, "CREATE TABLE former (id int PRIMARY KEY); INSERT INTO former VALUES (1)")
    assert path.wait() == {}
    execute(path.source, "ALTER EVENT TRIGGER gauss_cdc_ddl_end DISABLE")
    execute(path.source, "ALTER TABLE former RENAME TO renamed")
    assert path.wait() == {}
    execute(path.source, "ALTER EVENT TRIGGER gauss_cdc_ddl_end ENABLE ALWAYS")
    execute(path.source, "ALTER TABLE renamed ADD w int; INSERT INTO renamed VALUES (2, 3)")
    assert path.wait() == {}

    assert content(path.source, "renamed") == content(path.target, "renamed")
    assert ask(path.target, "SELECT to_regclass('former') IS NULL") == [(True,)]


def test_a_statement_below_a_trigger_that_fails_is_seen_in_the_catalog(path: Undone) -> None:
    install(path.source, "p")
    execute(path.source, DEEP)
    path.catch_up()
    alter = "ALTER TABLE t ALTER v TYPE int USING v + 1000"
    for depth in (300, 700, 718, 730):
        with suppress(psycopg2.errors.StatementTooComplex):  # itself it finds no stack left
            execute(path.source, f"SELECT deep({depth}, '{alter}')")
        path.wait()

        until(path.is_mended, f"an equal target: {depth}", time.sleep)


@pytest.mark.parametrize("has_triggers", [True, False])
def test_what_only_moves_rows_about_is_no_gap(
    path: Undone, tmp_path: File, has_triggers: bool
) -> None:
    if has_triggers:
        install(path.source, "p")
    for statement in (
        "VACUUM FULL t", "CLUSTER t USING t_pkey", "REINDEX TABLE t", "ANALYZE", "VACUUM FREEZE t",
        "VACUUM FULL pg_class", "ALTER TABLE t SET (fillfactor = 70)", "TRUNCATE calm",
        "CREATE INDEX ON t (v)",
    ):  # fmt: skip
        execute(path.source, statement)
        assert path.wait() == {}, statement
    path.stop()
    execute(path.source, "VACUUM FULL t")
    path.start()
    assert path.wait() == {}
    assert path.gaps == []


def test_what_is_done_to_an_emptied_table_is_no_gap(path: Undone) -> None:
    for at, statements in enumerate((
        ["TRUNCATE t; ALTER TABLE t ALTER v TYPE int USING v + 1000"],
        ["TRUNCATE t", "ALTER TABLE t ALTER v TYPE bigint"],
        ["ALTER TABLE t ALTER v TYPE bigint USING v + 1; TRUNCATE t"],
        ["TRUNCATE t; ALTER TABLE t SET UNLOGGED; ALTER TABLE t SET LOGGED"],
    )):  # fmt: skip
        execute(path.source, "INSERT INTO t VALUES (1, 1, 'w') ON CONFLICT DO NOTHING")
        assert path.wait() == {}
        path.do(statements, together=False)
        path.be_looked_at(f"seen_{at}")  # the next row comes behind it: one alarm could be false
        assert path.wait() == {}, statements
    assert path.gaps == []
    # A row came behind the TRUNCATE, and was computed anew, before it went.
    computed = "ALTER TABLE t ALTER id TYPE int USING id + 100; DELETE FROM t"
    execute(path.source, f"TRUNCATE t; INSERT INTO t VALUES (1, 1, 'w'); {computed}")
    path.wait()
    until(path.is_mended, "an equal target", time.sleep)
    assert path.gaps != []


@pytest.mark.parametrize("has_rows", [True, False])
def test_what_the_triggers_could_not_describe_does_not_stop_the_target(
    path: Undone, *, has_rows: bool
) -> None:
    install(path.source, "p")
    path.catch_up()
    emit = "gauss_cdc.ddl_emit(json, text)"
    broken = emit.replace("ddl_emit", "broken")
    for at, statement in enumerate(
        (
            "ALTER TABLE g ALTER id TYPE bigint",
            "ALTER TABLE t ALTER v TYPE float8",
            "ALTER TABLE t ADD y int DEFAULT 7",
            "ALTER TABLE t DROP w",
            "ALTER TABLE t RENAME v TO x",
        )
    ):
        execute(path.source, f"ALTER FUNCTION {emit} RENAME TO broken")
        execute(path.source, statement)
        execute(path.source, f"ALTER FUNCTION {broken} RENAME TO ddl_emit")
        if has_rows:
            for table in "gt":
                execute(path.source, f"INSERT INTO {table} (id) VALUES ({100 + at})")

        until(lambda: path.catch_up().inexact == {}, f"no marks: {statement}", time.sleep)
        for table in ("(SELECT to_jsonb(t) FROM t)", "(SELECT id, v FROM g)", "calm"):
            assert content(path.source, table) == content(path.target, table), statement


def test_a_table_that_is_renamed_while_it_is_read_has_its_default(
    path: Undone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is asked for by its oid, and then its columns by that name."""
    ask_name, renames = catalog.table_name, ["ALTER TABLE t RENAME TO t9"]

    def renamed(connection: Connection, oid: int) -> TableId | None:
        found = ask_name(connection, oid)
        if found == TableId("public", "t") and renames:
            execute(path.source, renames.pop())
        return found

    monkeypatch.setattr(catalog, "table_name", renamed)
    path.do(["ALTER TABLE t ADD x int DEFAULT 5", "INSERT INTO t (id) VALUES (99)"], together=True)

    assert path.waited() == {}
    assert not renames
    assert content(path.target, "t9") == content(path.source, "t9")


@pytest.mark.parametrize("has_triggers", [True, False])
def test_a_name_that_the_stream_sends_no_more_keeps_no_mark(
    path: Undone, *, has_triggers: bool
) -> None:
    """Targets have the rows of a partition as those of its root, or of a root as its partitions."""
    if has_triggers:
        install(path.source, "p")
        path.catch_up()
    there = "SELECT to_regclass('r') IS NOT NULL, to_regclass('r1') IS NOT NULL"

    def become(statement: str, *tables: str) -> None:
        path.do([statement, "INSERT INTO r SELECT max(id) + 1, 0 FROM r"], together=False)
        expected = [("r" in tables, "r1" in tables)]
        # A look may mark all tables once more, after they were equal.
        until(
            lambda: (
                path.waited() == {}
                and ask(path.target, there) == expected
                and all(content(path.source, t) == content(path.target, t) for t in tables)
            ),
            statement,
            time.sleep,
        )

    become("ALTER TABLE r DETACH PARTITION r1", "r", "r1")
    become("ALTER TABLE r ATTACH PARTITION r1 FOR VALUES FROM (0) TO (10)", "r")
    become("ALTER PUBLICATION p SET (publish_via_partition_root = false)", "r1", "r2")
    become("ALTER PUBLICATION p SET (publish_via_partition_root = true)", "r")


@pytest.mark.parametrize("is_constraint", [False, True])
def test_a_unique_index_that_goes_unseen_stops_no_target(
    path: Undone, *, is_constraint: bool
) -> None:
    """And `pg_dump --clean | psql` of a table that others depend on, which ends with rows twice."""
    make, drop = (
        ("ALTER TABLE calm ADD n int, ADD CONSTRAINT once UNIQUE (n)",
         "ALTER TABLE calm DROP CONSTRAINT once")
        if is_constraint
        else ("ALTER TABLE calm ADD n int; CREATE UNIQUE INDEX once ON calm (n)",
              "DROP INDEX once")
    )  # fmt: skip
    execute(path.source, f"{make}; INSERT INTO calm VALUES (2, 1)")
    path.catch_up()
    assert ask(path.target, "SELECT to_regclass('once') IS NOT NULL") == [(True,)]

    execute(path.source, f"{drop}; INSERT INTO calm VALUES (3, 1)")

    path.catch_up()
    assert content(path.source, "calm") == content(path.target, "calm")
