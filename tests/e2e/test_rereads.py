"""Tables that are read again beside the stream: an interrupted load, an added table, a request."""

import threading
from contextlib import closing
from dataclasses import replace

import psycopg2

from producer.core.loads.queue import EVERYTHING
from producer.core.ports import RunObserver, Tuning, Wish
from producer.pipeline import run
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection, connect
from schemas.tables import TableId
from spark_consumers.loop.job import Applier, PassOptions
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.path import PATIENCE, Path, UntilTold, ask, content, pause, until

TABLES = ("a", "b", "nokey")
# So that a part is written when half is read: a chunk has at least the rows of one read.
SMALL = Tuning(chunk_rows=50, load_steps=1)
WIDE = {"b": 1000}  # bytes of a row more: a table of many reads
ROWS = 4000


class Writer(UntilTold):
    """Changes every table in each transaction, until it is told to end."""

    def __init__(self, url: str, tables: tuple[str, ...], first: int) -> None:
        super().__init__()
        self._url, self._tables, self._first = url, tables, first
        self.commits = 0

    def run(self) -> None:
        connection = psycopg2.connect(self._url)
        with connection.cursor() as cursor:
            n = 0
            while not self.ended.wait(0.01):  # who never rests only makes more to apply
                for table in self._tables:
                    cursor.execute(f"INSERT INTO {table} VALUES ({self._first + n}, 'w{n}')")
                    cursor.execute(f"DELETE FROM {table} WHERE id = {n % ROWS}")
                    cursor.execute(f"UPDATE {table} SET v = 'u{n}' WHERE id = {(n * 7) % ROWS}")
                connection.commit()
                n += 1
                self.commits = n
        connection.close()


class Watcher(UntilTold):
    """Counts rows of tables that only grow, as a reader of the target does, until told to end."""

    def __init__(self, url: str, tables: tuple[str, ...]) -> None:
        super().__init__()
        self._url, self._tables = url, tables
        self.looks = 0
        self.shrunk: list[tuple[str, int, int]] = []  # table, rows before, rows then

    def run(self) -> None:
        connection = psycopg2.connect(self._url, application_name="watcher")
        connection.autocommit = True
        known = dict.fromkeys(self._tables, 0)
        with connection.cursor() as cursor:
            while not self.ended.wait(0.002):
                for table in self._tables:
                    cursor.execute(f"SELECT count(*) FROM {table}")
                    ((count,),) = cursor.fetchall()
                    if count < known[table]:
                        self.shrunk.append((table, known[table], count))
                    known[table] = count
                self.looks += 1
        connection.close()


class Killing:
    """Ends the applier's session at the target in every seventh step, wherever that is."""

    def __init__(self, path: Path) -> None:
        self._path, self._steps = path, 0
        self.kills = 0

    def __call__(self, _: str) -> None:
        self._steps += 1
        if self._steps % 7 == 0:
            self.kills += 1
            ask(
                self._path.target,
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname ="
                " current_database() AND pid <> pg_backend_pid() AND application_name <> 'watcher'",
            )


def in_many_steps(path: Path) -> Killing:
    """Take at most 300 rows a step, and die in the midst of them."""
    path.sink.close()
    killing = Killing(path)
    path.sink = PostgresSink(path.target, path.prefix, on_step=killing)
    path.applier = Applier(path.cuts, path.rows, path.sink, PassOptions(max_rows=300))
    return killing


def make(url: str, tables: tuple[str, ...]) -> None:
    for table in tables:
        key = "" if table == "nokey" else " PRIMARY KEY"
        ask(url, f"CREATE TABLE {table} (id int{key}, v text)")
        if not key:
            ask(url, f"ALTER TABLE {table} REPLICA IDENTITY FULL")
        ask(
            url,
            f"INSERT INTO {table} SELECT n, 'v' || n || repeat('.', {WIDE.get(table, 0)})"
            f" FROM generate_series(0, {ROWS - 1}) n",
        )


def load_in_part(path: Path) -> bool:
    """Run until the second table is half loaded, and leave; say whether the stream began."""
    stop = threading.Event()

    def on_load(table: TableId, done: int, _expected: int) -> None:
        if table.name == "b" and done >= ROWS / 2:
            stop.set()

    watch = RunObserver(
        on_step=lambda _: None,
        on_load=on_load,
        on_note=lambda _: None,
        stop_asked=lambda seconds: stop.wait(seconds) if seconds else stop.is_set(),
    )
    return run(path.options, watch)


def assert_equal(path: Path, tables: tuple[str, ...]) -> None:
    ledger = path.catch_up()
    for table in tables:
        assert content(path.target, table) == content(path.source, table), table
    assert ledger.inexact == {}
    assert ledger.epoch == 1


def is_read_again(path: Path) -> bool:
    """Nothing is asked for any more, and no load is open."""
    path.applier.drain()
    ledger = path.applier.ledger
    with connect(parse_dsn(path.source)) as connection:
        asked = requests.requests(QueryingConnection(connection), path.options.slot)
    return not asked and ledger is not None and not ledger.inexact


def test_loads_are_finished_and_tables_added_and_read_again_under_load(
    addresses, topic_prefix, new_database
) -> None:
    source, target = new_database(), new_database()
    make(source, TABLES)
    with Path(addresses, topic_prefix, source, target, tuning=SMALL) as path:
        path.options = replace(path.options, include=("public.a", "public.b", "public.nokey"))
        assert not load_in_part(path)
        path.applier.drain()
        half = content(target, "b")
        for table in TABLES:  # while nobody runs
            ask(source, f"DELETE FROM {table} WHERE id % 3 = 0")

        with Writer(source, TABLES, 10_000) as writer:
            path.start()
            until(lambda: writer.commits > 100 and is_read_again(path), "the load's end", pause)

        assert 0 < len(half) < ROWS
        assert_equal(path, TABLES)
        assert not any("public.a is read" in note for note in path.notes)

        make(source, ("more",))
        ask(source, f"ALTER PUBLICATION {topic_prefix} ADD TABLE more")
        path.stop()
        path.options = replace(path.options, include=("public.*",))
        everything = (*TABLES, "more")
        with Writer(source, everything, 50_000) as writer:
            path.start()
            until(lambda: writer.commits > 50 and _has(path, "more"), "the new table", pause)
        assert_equal(path, everything)

        ask(target, "DELETE FROM a WHERE id % 2 = 0; INSERT INTO a VALUES (-1, 'a stranger')")
        with closing(connect(parse_dsn(source))) as connection:
            tables = [TableId("public", "a"), TableId("public", "nokey")]
            session, slot = QueryingConnection(connection), path.options.slot
            requests.ask(session, slot, [Wish(EVERYTHING)])
            held = "re-reads are paused: tables wait, as `gauss-cdc snapshot` was told"
            until(lambda: held in path.notes, "the pause", pause)
            requests.ask(session, slot, [*map(Wish, tables)])
            path.catch_up()  # the stream goes on
            waiting = requests.requests(session, slot)
            requests.forget(session, slot, Wish(EVERYTHING))
        killing = in_many_steps(path)
        with Watcher(target, everything) as watcher:
            with Writer(source, everything, 90_000) as writer:
                until(lambda: writer.commits > 50 and is_read_again(path), "what was asked", pause)
            assert_equal(path, everything)
        assert [(one.wish.table, one.asked_by) for one in waiting] == [
            (table, "postgres") for table in (EVERYTHING, *tables)
        ]
        assert (watcher.shrunk, killing.kills > 3, watcher.looks > 9) == ([], True, True)

        path.stop()  # another history: readers have the older rows until the newer ones are there
        ask(source, "SELECT pg_drop_replication_slot(%s)", topic_prefix)
        ask(source, "INSERT INTO b SELECT n, 'lost' FROM generate_series(200000, 204000) n")
        path.options = replace(path.options, accept_gap=True)
        with Watcher(target, everything) as watcher:
            path.start()
            until(lambda: path.progress.seq or path.applier.drain().epoch == 2, "epoch 2", pause)
            ledger = path.catch_up()
        assert (ledger.epoch, ledger.inexact) == (2, {})
        assert [content(target, table) == content(source, table) for table in everything] == [
            True
        ] * 4
        assert (watcher.shrunk, watcher.looks > 9) == ([], True)


def test_a_load_that_is_under_way_is_paused_and_goes_on_where_it_was(
    addresses, topic_prefix, new_database
) -> None:
    source, target = new_database(), new_database()
    make(source, ("a", "b"))
    tuning = replace(SMALL, range_rows=ROWS // 8, beside_bytes=0)  # no table is too small
    with Path(addresses, topic_prefix, source, target, tuning=tuning) as path:
        path.options = replace(path.options, look_seconds=0.2, load_rate=ROWS // 10)
        path.start()
        path.catch_up()
        ask(target, "DELETE FROM a WHERE id % 2 = 0")
        with closing(connect(parse_dsn(source))) as connection:
            session, slot = QueryingConnection(connection), path.options.slot
            requests.ask(session, slot, [Wish(TableId("public", "a"))])
            until(lambda: "public.a" in path.applier.drain().inexact, "the load", pause)
            requests.ask(session, slot, [Wish(EVERYTHING)])
            held = "re-reads are paused: tables wait, as `gauss-cdc snapshot` was told"
            until(lambda: held in path.notes, "the pause", pause)
            for n in range(3):
                ask(source, f"INSERT INTO b VALUES ({ROWS + n}, 'the stream goes on')")
                assert "public.a" in path.catch_up().inexact
            requests.forget(session, slot, Wish(EVERYTHING))

        until(lambda: is_read_again(path), "the load's end", pause)
        assert "public.a: its load goes on where it was left" in path.notes
        assert_equal(path, ("a", "b"))


def test_a_column_is_dropped_in_the_middle_of_a_load(addresses, topic_prefix, new_database) -> None:
    source, target = new_database(), new_database()
    make(source, TABLES)
    ask(source, "ALTER TABLE b ADD COLUMN w text DEFAULT 'w'")
    dropping = threading.Thread(target=ask, args=(source, "ALTER TABLE b DROP COLUMN v"))
    waits = (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'ALTER%b DR%'"
    )
    left: list[int] = []  # rows of the table that were loaded behind the waiting statement

    def on_load(table: TableId, done: int, _: int) -> None:
        if table.name == "b" and done >= ROWS / 4:
            if not left:
                dropping.start()
                until(lambda: ask(source, waits) != [], "the statement waits", pause)
            left.append(done)

    with Path(addresses, topic_prefix, source, target, tuning=SMALL) as path:
        path.on_load = on_load
        path.start()
        with Writer(source, ("a",), 10_000) as writer:
            until(lambda: writer.commits > 20 and path.progress.seq > 0, "the stream", pause)
        dropping.join(PATIENCE)
        ask(source, "INSERT INTO b VALUES (-1, 'behind'); UPDATE b SET w = 'x' WHERE id % 5 = 0")
        assert_equal(path, TABLES)

        assert left[-1] > left[0]
        assert path.applier.drain().state == "EXACT"


SWAP = "ALTER SCHEMA one RENAME TO x; ALTER SCHEMA two RENAME TO one; ALTER SCHEMA x RENAME TO two"


def test_a_table_that_had_another_name_before_its_point_is_read_behind_its_rename(
    addresses, topic_prefix, new_database
) -> None:
    """The stream has it by the name of then, and a look finds the rename."""
    source, target = new_database(), new_database()
    for schema in ("one", "two"):
        ask(source, f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.c (id int PRIMARY KEY, v text)")
        ask(source, f"INSERT INTO {schema}.c SELECT n, '{schema}' FROM generate_series(1, 9) n")
    with Path(addresses, topic_prefix, source, target, look_seconds=0.2) as path:
        path.options = replace(path.options, include=("one.*", "two.*"))
        path.start()
        path.catch_up()
        path.stop()
        ask(source, SWAP)
        ask(source, "UPDATE one.c SET v = 'swapped' WHERE id = 1")
        ask(source, SWAP)
        with closing(connect(parse_dsn(source))) as connection:
            session = QueryingConnection(connection)
            requests.ask(session, topic_prefix, [Wish(TableId("two", "c"))])
        path.start()
        until(lambda: is_read_again(path), "the re-read", pause)
        path.catch_up()

        made = "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname IN {}"
        (names, copied) = (
            sorted(name for (name,) in ask(url, made.format("('one', 'two')")))
            for url in (source, target)
        )
        assert copied == names
        for name in names:
            assert content(target, name) == content(source, name)


def _has(path: Path, table: str) -> bool:
    path.applier.drain()
    there = ask(path.target, "SELECT to_regclass(%s) IS NOT NULL", table)[0][0]
    return bool(there) and is_read_again(path)


def test_a_table_that_is_named_and_is_gone_holds_neither_repairs_nor_a_start(
    addresses, topic_prefix, new_database
) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a VALUES (1, 1)")
    chosen = {"include": ("public.a", "public.b"), "repair": "auto", "look_seconds": 0.2}
    with Path(addresses, topic_prefix, source, target, **chosen) as path:
        path.start()
        until(lambda: path.failure is not None, "the first start", pause)
        assert "tables that cannot be captured are included (tables=public.b)" in str(path.failure)
        path.failure = None
        ask(source, "CREATE TABLE b (id int PRIMARY KEY)")
        path.start()
        path.catch_up()

        ask(source, "DROP TABLE b")
        ask(source, "ALTER TABLE a ALTER v TYPE int USING v + 1000")
        until(lambda: path.waited() == {}, "the repair", pause)
        assert_equal(path, ("a",))
        path.stop()
        path.start()
        said = "not captured, of [tables]: public.b: no table, or a view"
        until(lambda: any(said in note for note in path.notes), "the note", pause)
        ask(source, "INSERT INTO a VALUES (2, 2); CREATE TABLE b (id int PRIMARY KEY)")
        ask(source, "INSERT INTO b VALUES (1)")
        until(lambda: path.waited() == {}, "the table that is made again", pause)
        assert_equal(path, ("a", "b"))
