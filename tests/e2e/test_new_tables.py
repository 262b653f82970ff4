"""Tables that come and go, and gaps that are mended, while `run` runs and its sources change."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest

from gauss_cdc.inspect.places import Endpoints
from producer.core.catalog.look import Before
from producer.core.ports import Tuning
from producer.sources.dial import parse_dsn
from spark_consumers.model import Ledger
from tests.e2e.path import Path, UntilTold, ask, content, pause, until
from tests.e2e.test_ddl_random import Killed
from tests.e2e.test_rereads import Writer, load_in_part, make
from tests.services_fixtures import execute

ALL = "publish = 'insert, update, delete, truncate'"
QUICK = Tuning(chunk_rows=50, rest_seconds=0.1)


@pytest.fixture
def path(addresses, topic_prefix, new_database) -> Path:
    source, target = new_database(), new_database()
    how = {"look_seconds": 0.2, "repair": "auto", "tuning": QUICK}
    with Path(addresses, topic_prefix, source, target, **how) as made:
        yield made


def is_there(path: Path, *tables: str) -> bool:
    """The target has these tables, and each of its tables is exact."""
    if path.failure is not None:
        raise path.failure
    ledger = path.applier.drain()
    names = ask(path.target, "SELECT relname FROM pg_class WHERE relkind = 'r'")
    return {(table,) for table in tables} <= set(names) and not ledger.inexact


def assert_equal(path: Path, *tables: str) -> Ledger:
    ledger = path.catch_up()
    for table in tables:
        assert content(path.target, table) == content(path.source, table), table
    assert (ledger.inexact, ledger.epoch) == ({}, 1)
    return ledger


def test_tables_come_go_and_are_renamed_while_everything_is_written(path: Path) -> None:
    make(path.source, ("a", "b", "gone"))
    path.start()
    path.catch_up()
    with Writer(path.source, ("b",), 10_000) as writer:
        make(path.source, ("c", "nokey"))
        with Writer(path.source, ("c", "nokey"), 20_000):
            ask(path.source, "DROP TABLE gone")
            ask(path.source, "DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY, v text, w text)")
            ask(path.source, "INSERT INTO a SELECT n, 'again', 'w' FROM generate_series(1, 99) n")
            until(lambda: is_there(path, "b", "c", "nokey"), "the new tables", pause)
            until(lambda: _columns(path, "a") == 3, "the table made again", pause)
            path.stop()
            make(path.source, ("d",))
            path.start()
            ask(path.source, "ALTER TABLE a RENAME TO a2; INSERT INTO a2 VALUES (1000)")
            ask(path.source, "CREATE TABLE empty (id int PRIMARY KEY)")
            until(lambda: is_there(path, "a2", "d", "empty"), "tables made meanwhile", pause)
        assert writer.commits > 20

    assert_equal(path, "a2", "b", "c", "d", "empty", "nokey")
    assert ask(path.target, "SELECT to_regclass('gone'), to_regclass('a')") == [(None, None)]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_table_that_comes_where_no_other_is_left_is_loaded(path: Path, is_stopped: bool) -> None:
    make(path.source, ("a",))
    path.start()
    path.catch_up()
    ask(path.source, "DROP TABLE a")
    path.catch_up()
    if is_stopped:
        path.stop()
    make(path.source, ("b",))
    if is_stopped:
        path.start()
    until(lambda: is_there(path, "b"), "the new table", pause)
    assert_equal(path, "b")

    with_b = f"ALTER PUBLICATION {path.prefix} {{}} TABLE b"
    ask(path.source, f"{with_b.format('DROP')}; UPDATE b SET v = 'lost'; {with_b.format('ADD')}")
    until(lambda: content(path.target, "b") == content(path.source, "b"), "its rows", mended(path))
    assert_equal(path, "b")
    assert ask(path.target, "SELECT to_regclass('a')") == [(None,)]


def mended(path: Path) -> Callable[[float], None]:
    """Wait, and apply what came meanwhile."""

    def wait(seconds: float) -> None:
        is_there(path)
        pause(seconds)

    return wait


def test_a_table_that_comes_while_the_publication_leaves_out_changes_is_named(path: Path) -> None:
    make(path.source, ("a",))
    ask(path.source, f"CREATE PUBLICATION {path.prefix} FOR ALL TABLES")
    path.start()
    path.catch_up()
    ask(path.source, f"ALTER PUBLICATION {path.prefix} SET (publish = 'insert')")
    ask(path.source, "CREATE TABLE b (id int PRIMARY KEY)")  # no row of it brings a mark
    why = f"publication {path.prefix} publishes only insert; it is captured once that is taken back"
    said = f"table public.b matches [tables] and is not captured: {why}"

    assert path.waited().keys() == {"public.a"}
    until(lambda: f"new: {said}" in path.notes, "the note", pause)
    with Endpoints(path.configured()) as places:
        looked = places.cuts().looked
        assert said in places.source().notes(Before.of(looked))
    ask(path.source, f"ALTER PUBLICATION {path.prefix} SET ({ALL})")
    until(lambda: is_there(path, "a", "b"), "the table", mended(path))
    assert_equal(path, "a", "b")


@pytest.mark.parametrize(
    "made", ["id int", "id int, g int GENERATED ALWAYS AS (id) STORED PRIMARY KEY"]
)
def test_a_table_whose_updates_would_fail_is_not_published_by_itself(path: Path, made: str) -> None:
    """They fail there, or where they are applied: what identifies a row is not sent."""
    make(path.source, ("a",))
    path.start()
    path.catch_up()
    ask(path.source, f"CREATE TABLE bare ({made}); INSERT INTO bare VALUES (1)")
    until(lambda: any("bare" in note for note in path.notes), "the note", pause)

    ask(path.source, "UPDATE bare SET id = 2")  # it is not published
    ask(path.source, "ALTER TABLE bare REPLICA IDENTITY FULL; UPDATE bare SET id = 3")
    until(lambda: is_there(path, "bare"), "the table", pause)

    assert_equal(path, "a", "(SELECT id FROM bare)")


@pytest.mark.parametrize(
    ("published", "comes"),
    [
        ("", "CREATE TABLE b (id int PRIMARY KEY, v text)"),
        ("", "CREATE TABLE b (id int, v text); ALTER TABLE b REPLICA IDENTITY FULL"),
        ("", "ALTER TABLE hidden.b SET SCHEMA public"),
        ("ALL TABLES", "ALTER TABLE hidden.b SET SCHEMA public"),
        ("ALL TABLES", "CREATE TABLE b (id int PRIMARY KEY, v text)"),
    ],
)
def test_wait_waits_for_a_table_that_was_made_a_moment_ago(
    addresses, topic_prefix, new_database, published: str, comes: str
) -> None:
    """The owner who made it asks at once whether the target has it; looks are seconds apart."""
    source, target = new_database(), new_database()
    make(source, ("a",))
    ask(source, "CREATE SCHEMA hidden")
    if "hidden" in comes:
        ask(source, "CREATE TABLE hidden.b (id int PRIMARY KEY, v text)")
        ask(source, "INSERT INTO hidden.b SELECT n, 'before' FROM generate_series(1, 40) n")
    if published:
        ask(source, f"CREATE PUBLICATION {topic_prefix} FOR {published}")
    how = {"look_seconds": 3.0, "repair": "auto", "include": ("public.*",), "tuning": QUICK}
    with Path(addresses, topic_prefix, source, target, **how) as path:
        path.start()
        path.catch_up()
        for table in ("b", "c"):
            ask(source, comes)
            ask(source, "INSERT INTO b SELECT n, 'new' FROM generate_series(101, 140) n")
            if table == "c":
                ask(source, "ALTER TABLE b RENAME TO c")
            until(lambda: path.waited() == {}, "no mark", pause)
            assert content(target, table) == content(source, table)
            ask(source, f"ALTER TABLE {table} RENAME TO gone; ALTER TABLE gone SET SCHEMA hidden")
            if "hidden" in comes:
                ask(source, "ALTER TABLE hidden.gone RENAME TO b")
                ask(source, "DELETE FROM hidden.b WHERE v = 'new'")
            else:
                ask(source, "DROP TABLE hidden.gone")


def test_wait_calls_a_marked_table_by_the_name_that_it_has_now(
    addresses, topic_prefix, new_database
) -> None:
    """The mark was of the former name: nobody reads it as one of the table that has no row yet."""
    source, target = new_database(), new_database()
    make(source, ("a",))
    ask(source, f"CREATE SCHEMA hidden; CREATE PUBLICATION {topic_prefix} FOR ALL TABLES")
    how = {"look_seconds": 3.0, "repair": "off", "include": ("public.*",), "tuning": QUICK}
    with Path(addresses, topic_prefix, source, target, **how) as path:
        path.start()
        path.catch_up()
        for publishes in ("insert", "insert, update, delete, truncate"):
            ask(source, f"ALTER PUBLICATION {topic_prefix} SET (publish = '{publishes}')")
        assert [*path.waited()] == ["public.a"]

        ask(source, "ALTER TABLE a RENAME TO b")

        assert [*path.waited()] == ["public.b"]
        assert ask(target, "SELECT to_regclass('a'), count(*) > 0 FROM b") == [(None, True)]

        ask(source, "ALTER TABLE b SET SCHEMA hidden")  # no name of a copy
        assert [*path.waited()] == ["public.b"]


class Maker(UntilTold):
    """Makes tables, and drops older ones, as a job does that loads in stages."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self.made = url, 0

    def run(self) -> None:
        with closing(psycopg2.connect(self._url)) as session, session.cursor() as cursor:
            session.autocommit = True
            while not self.ended.wait(0.15):
                self.made = n = self.made + 1
                cursor.execute(
                    f"CREATE TABLE s{n} (id int PRIMARY KEY); INSERT INTO s{n} VALUES ({n})"
                )
                cursor.execute(f"DROP TABLE IF EXISTS s{max(0, n - 4)}")


def test_wait_ends_while_tables_are_made_all_the_time(
    addresses, topic_prefix, new_database
) -> None:
    """Each look finds one that is new: those of the first are waited for."""
    source, target = new_database(), new_database()
    make(source, ("a",))
    ask(source, f"CREATE PUBLICATION {topic_prefix} FOR ALL TABLES")
    how = {"look_seconds": 3.0, "repair": "auto", "tuning": QUICK}
    with Path(addresses, topic_prefix, source, target, **how) as path:
        path.start()
        path.catch_up()
        with Maker(source) as maker:
            until(lambda: maker.made > 20, "some tables", pause)
            ask(source, "INSERT INTO a VALUES (-1, 'asked for')")
            assert "public.a" not in path.waited()
            assert content(target, "a") == content(source, "a")


@pytest.mark.parametrize("published", ["TABLE a", "ALL TABLES"])
def test_a_publication_that_is_not_ours_is_left_to_its_owner(path: Path, published: str) -> None:
    make(path.source, ("a",))
    ask(path.source, f"CREATE PUBLICATION {path.prefix} FOR {published}")
    path.start()
    path.catch_up()
    ask(path.source, "CREATE TABLE b (id int PRIMARY KEY); INSERT INTO b VALUES (1)")
    ask(path.source, "CREATE TABLE empty (id int PRIMARY KEY)")
    if published == "TABLE a":
        until(lambda: len(_statements(path)) == 2, "the statements", pause)
        for statement in _statements(path):
            ask(path.source, statement)
        ask(path.source, "INSERT INTO b VALUES (2)")
    until(lambda: is_there(path, "b", "empty"), "the tables", pause)

    assert_equal(path, "a", "b", "empty")


@pytest.mark.parametrize(
    "closed",
    ["ALTER PUBLICATION {prefix} OWNER TO postgres", "REVOKE USAGE ON SCHEMA s FROM {role}"],
)
def test_wait_waits_for_no_table_that_run_may_not_publish(path: Path, closed: str) -> None:
    """Until then it waited for ever; `run` has said what its owner must do."""
    admin, role = path.source, f"role_{path.prefix}"
    execute(admin, f"CREATE ROLE {role} LOGIN REPLICATION")
    try:
        ask(admin, f"CREATE SCHEMA s; GRANT USAGE, CREATE ON SCHEMA public, s TO {role}")
        ask(admin, f"GRANT CREATE ON DATABASE {admin.rpartition('/')[2]} TO {role}")
        ask(admin, f"SET ROLE {role}; CREATE TABLE a (id int PRIMARY KEY)")
        path.source = admin.replace("postgres@", f"{role}@")
        path.options = replace(path.options, source=parse_dsn(path.source))
        path.start()
        path.waited()
        ask(admin, closed.format(prefix=path.prefix, role=role))
        ask(admin, f"CREATE TABLE s.b (id int PRIMARY KEY); ALTER TABLE s.b OWNER TO {role}")

        path.waited()

        until(lambda: any("ADD TABLE" in note for note in path.notes), "what to do", pause)
        path.stop()
    finally:
        ask(admin, f"REASSIGN OWNED BY {role} TO postgres; DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_table_renamed_into_the_list_brings_its_older_rows(path: Path) -> None:
    path.options = replace(path.options, exclude=("public.old",))
    make(path.source, ("a", "old"))
    ask(path.source, f"CREATE PUBLICATION {path.prefix} FOR ALL TABLES")
    path.start()
    path.catch_up()
    ask(path.source, "INSERT INTO old VALUES (-1, 'seen by the stream, not captured')")
    ask(path.source, "ALTER TABLE old RENAME TO young; INSERT INTO young VALUES (-2, 'captured')")
    until(lambda: is_there(path, "young"), "the table", pause)

    assert_equal(path, "a", "young")


def test_tables_that_are_renamed_or_dropped_during_an_interrupted_load_are_followed(
    path: Path,
) -> None:
    make(path.source, ("a", "b", "c"))
    assert not load_in_part(path)
    path.applier.drain()
    ask(path.source, "ALTER TABLE b RENAME TO b2; DELETE FROM b2 WHERE id % 2 = 0")
    ask(path.source, "UPDATE c SET v = 'before it goes' WHERE id = 1")
    ask(path.source, "DROP TABLE c")
    path.start()
    until(lambda: is_there(path, "a", "b2"), "the load", pause)
    until(lambda: not path.applier.drain().inexact, "that nothing waits for c", pause)

    assert_equal(path, "a", "b2")
    assert ask(path.target, "SELECT to_regclass('c')") == [(None,)]
    assert ask(path.target, "SELECT to_regclass('b')") == [(None,)]


def test_a_table_taken_in_by_a_run_that_is_killed_is_loaded_by_the_one_that_waited(
    addresses, topic_prefix, new_database, tmp_path
) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE marker (id int PRIMARY KEY)")
    with Killed(addresses, topic_prefix, source, target) as path:
        path.begin(tmp_path)
        path.barrier()
        first = path.process
        path.go()
        until(lambda: "another run holds the lock" in path.log.read_text(), "the wait", pause)
        with closing(psycopg2.connect(source)) as opened, opened.cursor() as cursor:
            cursor.execute("SELECT txid_current()")  # no snapshot, and so no load, before its end
            make(source, ("late",))
            there = "SELECT 1 FROM pg_publication_tables WHERE tablename = 'late'"
            until(lambda: ask(source, there) != [], "the table taken in", pause)
            first.kill()
            first.wait()
        path.barrier()
        until(lambda: is_there(path, "late"), "the load", pause)
        path.kill()

        assert content(target, "late") == content(source, "late")


GAPS = {
    "labels": "ALTER TYPE mood RENAME VALUE 'sad' TO 'glad'",
    "pairs": "ALTER TYPE pair ADD ATTRIBUTE c int",
    "lost": "ALTER PUBLICATION {p} DROP TABLE lost; DELETE FROM lost WHERE id = 1;"
    "ALTER PUBLICATION {p} ADD TABLE lost",
    "away": "ALTER PUBLICATION {p} DROP TABLE away; INSERT INTO away VALUES (2)",
    "root": "CREATE TABLE root_2 (id int PRIMARY KEY); INSERT INTO root_2 VALUES (2);"
    "ALTER TABLE root ATTACH PARTITION root_2 FOR VALUES IN (2)",
    "emptied": "TRUNCATE emptied_1",
    "computed": "ALTER TABLE computed ALTER v TYPE text USING md5(v), ADD w int DEFAULT 7 * 6;"
    "INSERT INTO computed VALUES (2, 'plain')",
}


def test_every_gap_is_mended_and_the_ledger_says_exact_again(path: Path) -> None:
    ask(
        path.source,
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (a int, b int);"
        "CREATE TABLE labels (id int PRIMARY KEY, m mood); INSERT INTO labels VALUES (1, 'sad');"
        "CREATE TABLE pairs (id int PRIMARY KEY, p pair); INSERT INTO pairs VALUES (1, '(1,2)');"
        "CREATE TABLE lost (id int PRIMARY KEY); INSERT INTO lost VALUES (1), (2);"
        "CREATE TABLE away (id int PRIMARY KEY); INSERT INTO away VALUES (1);"
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY LIST (id);"
        "CREATE TABLE root_1 PARTITION OF root FOR VALUES IN (1); INSERT INTO root VALUES (1);"
        "CREATE TABLE emptied (id int PRIMARY KEY) PARTITION BY LIST (id);"
        "CREATE TABLE emptied_1 PARTITION OF emptied FOR VALUES IN (1);"
        "INSERT INTO emptied VALUES (1);"
        "CREATE TABLE computed (id int PRIMARY KEY, v text); INSERT INTO computed VALUES (1, 'v')",
    )
    path.start()
    path.catch_up()
    marked: set[str] = set()
    for statement in GAPS.values():
        for single in statement.format(p=path.prefix).split(";"):
            ask(path.source, single)

    def are_mended() -> bool:
        marked.update(path.applier.drain().inexact)
        return is_there(path) and is_equal(path)

    def is_equal(path: Path) -> bool:
        rest = [table for table in GAPS if table != "away"]
        return all(content(path.target, table) == content(path.source, table) for table in rest)

    until(lambda: "public.away" in path.applier.drain().inexact, "the one that is away", pause)
    ask(path.source, f"ALTER PUBLICATION {path.prefix} ADD TABLE away")
    until(are_mended, "no gap any more", pause)
    assert_equal(path, *GAPS)
    why = "labels or attributes of a type changed, in columns m; it is read again"
    assert f"public.labels is not exact any more: {why}" in path.notes


def _statements(path: Path) -> set[str]:
    """What the notes say to the publication's owner."""
    start = "is not captured: ALTER PUBLICATION"
    said = [note for note in path.notes if note.startswith("new: ") and start in note]
    return {note.partition("captured: ")[2].partition(" (")[0] for note in said}


def _columns(path: Path, table: str) -> int:
    path.applier.drain()
    asked = "SELECT count(*) FROM information_schema.columns WHERE table_name = %s"
    return int(ask(path.target, asked, table)[0][0])
