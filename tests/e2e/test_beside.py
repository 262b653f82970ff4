"""Tables that are read in ranges of their key while the stream goes on: no table waits."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg2
import pytest

from producer.core.ports import Tuning, Wish
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection, connect
from schemas.tables import TableId
from tests.e2e.path import Path, UntilTold, ask, content, pause, until
from tests.e2e.test_ddl import install

ROWS = 3000
RANGES = Tuning(range_rows=100, beside_bytes=0)
TABLE = TableId("public", "t")


class Owner(UntilTold):
    """Changes a table in every way that a row has, until it is told to end."""

    def __init__(self, url: str, seed: int, *, moves: bool = False) -> None:
        super().__init__()
        self._url, self._rng, self._moves = url, random.Random(seed), moves

    def run(self) -> None:
        rng = self._rng
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            n = 0
            while not self.ended.wait(0.005):
                for _ in range(rng.randint(1, 4)):
                    n += 1
                    key, other = rng.randrange(ROWS), rng.randrange(ROWS)
                    match rng.randrange(6):
                        case 0:
                            cursor.execute(
                                "INSERT INTO t VALUES (%s, %s, repeat(%s, 300))"
                                " ON CONFLICT DO NOTHING",
                                (key, f"i{n}", f"long {n} "),
                            )
                        case 1:
                            cursor.execute("DELETE FROM t WHERE id = %s", (key,))
                        case 2:  # with its long value, which is not sent unless it is another
                            long = "" if self._moves else ", long = repeat('moved', 300)"
                            cursor.execute(
                                f"UPDATE t SET id = %s{long} WHERE id = %s"
                                " AND NOT EXISTS (SELECT FROM t WHERE id = %s)",
                                (other, key, other),
                            )
                        case 3:
                            cursor.execute(
                                "UPDATE t SET long = repeat(%s, 300) WHERE id = %s",
                                (f"other {n} ", key),
                            )
                        case _:
                            cursor.execute("UPDATE t SET v = %s WHERE id = %s", (f"u{n}", key))
                connection.commit()


def make(url: str) -> None:
    ask(url, "CREATE TABLE t (id int PRIMARY KEY, v text, long text)")
    ask(url, "ALTER TABLE t ALTER COLUMN long SET STORAGE EXTERNAL")
    ask(
        url,
        "INSERT INTO t SELECT n, 'v' || n, repeat('long ' || n, 300)"
        f" FROM generate_series(0, {ROWS - 1}) n",
    )


def request(path: Path, table: TableId = TABLE) -> None:
    with closing(connect(parse_dsn(path.source))) as connection:
        requests.ask(QueryingConnection(connection), path.options.slot, [Wish(table)])


def is_answered(path: Path) -> bool:
    path.applier.drain()
    with closing(connect(parse_dsn(path.source))) as connection:
        return not requests.requests(QueryingConnection(connection), path.options.slot)


def assert_equal(path: Path) -> None:
    ledger = path.catch_up()
    assert content(path.target, "t") == content(path.source, "t")
    assert ledger.inexact == {}


class Ranges:
    """What was written of the table: rows so far, and the newest commit before them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.written: list[tuple[int, int]] = []

    def __call__(self, _table: TableId, done: int, _expected: int) -> None:
        self.written.append((done, self._path.progress.seq))

    def reach(self, count: int) -> None:
        """Wait until so many are written."""
        until(lambda: len(self.written) >= count, f"{count} ranges", pause)


def begin_load(path: Path, count: int) -> Ranges:
    """Start `run` with its first load; return when so many ranges of it are written."""
    path.on_load = ranges = Ranges(path)
    path.start()
    ranges.reach(count)
    return ranges


@pytest.fixture
def path(addresses, topic_prefix, new_database) -> Iterator[Path]:
    """The table is loaded, and wrong at the target."""
    source, target = new_database(), new_database()
    make(source)
    with Path(addresses, topic_prefix, source, target, tuning=RANGES, repair="auto") as path:
        path.on_load = path.ranges = Ranges(path)
        path.start()
        path.catch_up()
        path.ranges.written.clear()
        ask(target, "DELETE FROM t WHERE id % 2 = 0; INSERT INTO t VALUES (-1, 'a stranger', '')")
        yield path


def read_again(path: Path) -> None:
    request(path)
    until(lambda: is_answered(path), "the table is read", pause)


@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_read_while_it_changes(path, seed) -> None:
    ranges = path.ranges
    with Owner(path.source, seed):
        read_again(path)
    assert_equal(path)

    assert len(ranges.written) > ROWS / 100 / 2
    assert len({seq for _, seq in ranges.written}) > 5, "no commit came between two ranges"


def test_rows_that_move_without_all_of_their_values_begin_it_again(path) -> None:
    with Owner(path.source, 4, moves=True):
        read_again(path)
    assert_equal(path)

    again = [note for note in path.notes if "its load begins again" in note]
    assert again[-1] == (
        "public.t: its load begins again, while the stream waits: the stream lacks rows of it"
    )
    assert len(again) == 3


def test_it_goes_on_behind_the_last_range_that_is_written(path) -> None:
    ranges = path.ranges
    with Owner(path.source, 5):
        request(path)
        ranges.reach(10)
        path.stop()
        path.start()
        until(lambda: is_answered(path), "the table is read", pause)
    assert_equal(path)

    assert "public.t: its load goes on where it was left" in path.notes
    assert len(ranges.written) < 1.5 * ROWS / 100


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE t",
        "ALTER TABLE t ADD COLUMN more int DEFAULT 7",
        "BEGIN; ALTER TABLE t RENAME TO other; ALTER TABLE other RENAME TO t",
        "ALTER TABLE t ALTER COLUMN v TYPE varchar(200)",
        "VACUUM FULL t",
        "BEGIN; LOCK t; DELETE FROM t; INSERT INTO t SELECT n, 'new' FROM generate_series(1, 9) n",
    ],
)
def test_a_statement_in_its_midst(path, statement) -> None:
    with Owner(path.source, 6):
        request(path)
        path.ranges.reach(7)
        with closing(psycopg2.connect(path.source)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            for one in statement.split(";"):
                cursor.execute(one)
            cursor.execute("COMMIT")
        until(lambda: is_answered(path), "the table is read", pause)
    assert_equal(path)


def test_a_table_is_added(path) -> None:
    ask(path.source, "CREATE TABLE u (LIKE t INCLUDING ALL); INSERT INTO u SELECT * FROM t")
    until(lambda: _is_loaded(path, "u"), "the new table", pause)
    path.catch_up()
    assert content(path.target, "u") == content(path.source, "u")


def test_a_first_load_in_chunks_holds_nobody_and_goes_on_after_a_restart(
    addresses, topic_prefix, new_database
) -> None:
    source, target = new_database(), new_database()
    make(source)
    ask(source, "CREATE TABLE small (id int PRIMARY KEY); INSERT INTO small VALUES (1)")
    more = {"tuning": RANGES, "repair": "auto", "loads_beside": True}
    with Path(addresses, topic_prefix, source, target, **more) as path:
        with Owner(source, 7):
            ranges = begin_load(path, 12)
            path.stop()
            path.start()
            until(lambda: not path.applier.drain().inexact, "the load's end", pause)
        assert_equal(path)
        assert content(target, "small") == ["(1)"]

    assert "public.t: its load goes on where it was left" in path.notes
    assert len({seq for _, seq in ranges.written}) > 5, "no commit came between two ranges"


@pytest.mark.parametrize(
    "statements",
    [
        "DROP TABLE u; ALTER TABLE t RENAME TO u",
        "ALTER TABLE t RENAME TO v; ALTER TABLE u RENAME TO t; ALTER TABLE v RENAME TO u",
    ],
)
def test_a_table_gets_the_name_of_one_that_waits_in_the_midst_of_its_load(
    addresses, topic_prefix, new_database, statements
) -> None:
    """Event triggers show the waiting name, and its load goes on with the table that has it now."""
    source, target = new_database(), new_database()
    make(source)
    ask(source, "CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1)")
    ask(source, f"CREATE PUBLICATION {topic_prefix} FOR ALL TABLES")
    install(source, topic_prefix)
    more = {"tuning": RANGES, "repair": "auto", "loads_beside": True, "load_rate": 1000}
    with Path(addresses, topic_prefix, source, target, look_seconds=0.2, **more) as path:
        begin_load(path, 5)
        ask(source, statements)
        until(lambda: not path.catch_up().inexact, "the end of all loads", pause)
        for (table,) in ask(source, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
            assert content(target, table) == content(source, table)


def test_its_publication_sends_nothing_of_it_any_more(
    addresses, topic_prefix, new_database
) -> None:
    """The load is a gap then, as long as the owner leaves it so: `wait` waits for no END."""
    source, target = new_database(), new_database()
    make(source)
    more = {"tuning": RANGES, "repair": "auto", "loads_beside": True, "load_rate": 1000}
    with Path(addresses, topic_prefix, source, target, look_seconds=0.2, **more) as path:
        begin_load(path, 5)
        ask(source, f"ALTER PUBLICATION {topic_prefix} SET (publish = '')")
        assert "publishes only nothing" in path.waited()["public.t"]

        ask(source, "DELETE FROM t WHERE id % 3 = 0")
        every = "insert, update, delete, truncate"
        ask(source, f"ALTER PUBLICATION {topic_prefix} SET (publish = '{every}')")
        until(lambda: not path.catch_up().inexact, "the end of the load", pause)
        assert_equal(path)


def _is_loaded(path: Path, table: str) -> bool:
    ledger = path.applier.drain()
    is_there = ask(path.target, "SELECT to_regclass(%s) IS NOT NULL", table)[0][0]
    return bool(is_there) and not ledger.inexact


@contextmanager
def waiting_load(
    addresses: Any, prefix: str, source: str, target: str
) -> Iterator[tuple[Path, Any, Any]]:
    """Give a load in ranges of t, the session that it waits for, and another one."""
    how = {"tuning": RANGES, "repair": "auto", "look_seconds": 5.0}
    with (
        Path(addresses, prefix, source, target, **how) as path,
        closing(psycopg2.connect(source)) as early,
        closing(psycopg2.connect(source)) as late,
    ):
        path.start()
        path.catch_up()
        early.cursor().execute("SELECT txid_current()")
        request(path)
        until(lambda: path.progress.waits_for, "the load, which waits", pause)
        yield path, early, late


def may_go_on(path: Path, said: str = "no note") -> None:
    """Give a load time to end, or to say something, if a session that is open does not hold it."""
    for _ in range(40):
        if is_answered(path) or any(said in note for note in path.notes):
            break
        pause(0.25)


@pytest.mark.parametrize(
    ("before", "statement", "value"),
    [
        ("ALTER TYPE pair ADD ATTRIBUTE x int", "ALTER TYPE pair DROP ATTRIBUTE x", "(ok,1)"),
        ("SELECT", "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'", "(fine,1)"),
    ],
    ids=["an attribute", "a label"],
)
def test_a_value_of_a_type_that_was_altered_comes_late(
    addresses, topic_prefix, new_database, before: str, statement: str, value: str
) -> None:
    """No lock holds who alters a type: a transaction goes on, and its row has the former text."""
    source, target = new_database(), new_database()
    ask(source, "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (m mood, n int)")
    ask(source, f"{before}; CREATE TABLE t (id int PRIMARY KEY, p pair)")
    ask(source, "INSERT INTO t (id) SELECT generate_series(1, 500)")
    with waiting_load(addresses, topic_prefix, source, target) as (path, early, late):
        ask(target, "DELETE FROM t WHERE id = 2")
        text = value.replace("fine", "ok").replace(")", ",5)" if "x int" in before else ")")
        late.cursor().execute("UPDATE t SET p = %s::pair WHERE id = 1", (text,))
        ask(source, statement)
        early.commit()
        may_go_on(path)  # it ends now, or not before the other one has ended
        late.commit()
        until(lambda: path.waited() == {}, "the repair", pause)

        assert content(source, "t")[0] == f'(1,"{value}")'
        assert content(target, "t") == content(source, "t")


def holds(url: str, session: Any) -> bool:
    """Say whether a slot waits for a session."""
    waits = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    return bool(ask(url, waits, session.get_backend_pid()))


def hand_over(url: str, before: Any, then: Any) -> None:
    """Have a slot wait for a session, and then for another one, which ran when that ended."""
    until(lambda: holds(url, before), "the slot", pause)
    then.cursor().execute("SELECT txid_current()")
    before.commit()
    until(lambda: holds(url, then), "the slot", pause)


@pytest.mark.parametrize("is_first", [False, True], ids=["a re-read", "the first load"])
@pytest.mark.parametrize(
    ("statement", "there", "back"),
    [
        ("SELECT 1", "one.t", "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'"),
        ("SELECT 1", "one.t", "ALTER TYPE pair DROP ATTRIBUTE x"),
        ("ALTER PUBLICATION {} DROP TABLE one.t", "one.t", "ALTER PUBLICATION {} ADD TABLE one.t"),
        ("ALTER SCHEMA one RENAME TO two", "two.t", "ALTER SCHEMA two RENAME TO one"),
    ],
    ids=["a type", "an attribute", "the publication", "a schema"],
)
def test_a_point_is_not_taken_behind_a_statement_that_waits_for_no_row(
    addresses, topic_prefix, new_database, statement: str, there: str, back: str, is_first: bool
) -> None:
    """A slot waits for who ran before it, and for who ran then, and not for who began since."""
    source, target = new_database(), new_database()
    ask(source, "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (n int, x int)")
    ask(source, "CREATE SCHEMA one; CREATE TABLE one.t (id int PRIMARY KEY, m mood, p pair)")
    ask(source, "INSERT INTO one.t VALUES (1, 'sad')")
    ask(source, f"CREATE PUBLICATION {topic_prefix} FOR TABLE one.t")

    how = {"repair": "auto", "look_seconds": 5.0, "include": ("one.*",)}
    with Path(addresses, topic_prefix, source, target, **how) as path, ExitStack() as stack:
        if not is_first:
            path.start()
            path.catch_up()
        before, then, late = (stack.enter_context(closing(psycopg2.connect(source))) for _ in "123")
        before.cursor().execute("SELECT txid_current()")
        if is_first:
            path.start()
        else:
            request(path, TableId("one", "t"))
        hand_over(source, before, then)
        ask(source, statement.format(topic_prefix))
        late.cursor().execute(f"UPDATE {there} SET m = 'ok', p = (1, 2) WHERE id = 1")
        ask(source, back.format(topic_prefix))
        then.commit()
        said = "while open transactions were waited for"
        if there == "one.t":  # else the stream tells of another name
            until(lambda: any(said in note for note in path.notes), "the load waits", pause)
        else:
            path.waited()
        late.commit()
        until(lambda: path.waited() == {}, "the repair", pause)

        assert content(target, "one.t") == content(source, "one.t")
        assert content(target, "one.t") != ["(1,sad,)"]


def test_a_row_is_sent_and_its_end_is_not(addresses, topic_prefix, new_database) -> None:
    """BEGIN waits for a transaction that wrote before and behind DROP and ADD, seen by nobody."""
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY)")
    ask(source, "INSERT INTO t SELECT generate_series(1, 500)")
    ask(source, f"CREATE PUBLICATION {topic_prefix} FOR TABLE t")
    with waiting_load(addresses, topic_prefix, source, target) as (path, early, late):
        late.cursor().execute("INSERT INTO t VALUES (1000)")
        ask(source, f"ALTER PUBLICATION {topic_prefix} DROP TABLE t")
        late.cursor().execute("DELETE FROM t WHERE id = 1000")
        ask(source, f"ALTER PUBLICATION {topic_prefix} ADD TABLE t")
        early.commit()
        may_go_on(path, said="public.t is read again later")
        late.commit()
        until(lambda: path.waited() == {}, "the repair", pause)

        assert content(target, "t") == content(source, "t")


@pytest.mark.parametrize("added", ["TABLE one.t", "TABLES IN SCHEMA one"])
def test_a_table_is_published_while_the_slot_is_waited_for(
    addresses, topic_prefix, new_database, added: str
) -> None:
    """A transaction wrote to it before, and commits behind the slot's snapshot."""
    source, target = new_database(), new_database()
    ask(source, "CREATE SCHEMA one; CREATE TABLE o (id int PRIMARY KEY)")
    ask(source, "CREATE TABLE one.t (id int PRIMARY KEY, v int); INSERT INTO one.t VALUES (1, 1)")
    ask(source, f"CREATE PUBLICATION {topic_prefix} FOR TABLE o")

    how = {"repair": "auto", "look_seconds": 5.0, "include": ("one.*", "public.*")}
    with Path(addresses, topic_prefix, source, target, **how) as path, ExitStack() as stack:
        before, then, late = (stack.enter_context(closing(psycopg2.connect(source))) for _ in "123")
        before.cursor().execute("SELECT txid_current()")
        path.start()
        hand_over(source, before, then)
        late.cursor().execute("UPDATE one.t SET v = 2")
        ask(source, f"ALTER PUBLICATION {topic_prefix} ADD {added}")
        then.commit()
        until(
            lambda: path.progress.has_streamed or holds(source, late),
            "the stream, or another slot",
            pause,
        )
        late.commit()
        until(lambda: path.waited() == {}, "the load", pause)

        assert content(target, "one.t") == content(source, "one.t") == ["(1,2)"]
