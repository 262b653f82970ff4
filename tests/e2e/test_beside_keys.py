"""Statements on the key of a table that is read beside the stream: its load begins again."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg2
import pytest

from gauss_cdc_lab.services import Addresses
from tests.e2e.path import Path, UntilTold, ask, content, pause, until
from tests.e2e.test_beside import RANGES, ROWS, is_answered, request
from tests.e2e.test_ddl import install

FIRST = 100_000  # of column g
TABLE = """
CREATE TABLE t (junk int, id int PRIMARY KEY, g int NOT NULL, v text);
INSERT INTO t SELECT 0, n, {first} + n, 'v' || n FROM generate_series(0, {last}) n
"""
STATEMENTS = {
    # Where the next range ended was told by g, and compared with id.
    "another key": ["ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (g)"],
    # '1000' to '2999' are before '499' in the order of texts.
    "another type of the key": ["ALTER TABLE t ALTER id TYPE text"],
    # Keys of the stream and of ranges were taken from column v.
    "a column before the key": ["ALTER TABLE t DROP COLUMN junk"],
    "the key's name": ["ALTER TABLE t RENAME COLUMN id TO ident"],
    "no key": ["ALTER TABLE t REPLICA IDENTITY FULL", "ALTER TABLE t DROP CONSTRAINT t_pkey"],
}


class Owner(UntilTold):
    """Changes and removes rows, by column g."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self._rng = url, random.Random(7)

    def run(self) -> None:
        n, rng = 0, self._rng
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            while not self.ended.wait(0.005):
                for _ in range(3):
                    n += 1
                    g = FIRST + rng.randrange(ROWS)
                    if n % 10:
                        cursor.execute("UPDATE t SET v = %s WHERE g = %s", (f"u{n}", g))
                    else:
                        cursor.execute("DELETE FROM t WHERE g = %s", (g,))
                connection.commit()


class Some:
    """Counts ranges that were written; five are enough."""

    def __init__(self) -> None:
        self.count, self.enough = 0, threading.Event()

    def __call__(self, _table: object, _done: int, _expected: int) -> None:
        self.count += 1
        if self.count == 5:
            self.enough.set()

    def wait(self, path: Path) -> None:
        """Have some ranges of the table read again."""
        self.count = 0
        self.enough.clear()
        request(path)
        until(self.enough.is_set, "five ranges", pause)


@pytest.fixture
def some() -> Some:
    return Some()


@pytest.fixture
def path(
    addresses: Addresses, topic_prefix: str, new_database: Callable[..., str], some: Some
) -> Iterator[Path]:
    source, target = new_database(), new_database()
    ask(source, TABLE.format(first=FIRST, last=ROWS - 1))
    slow = {"tuning": RANGES, "repair": "auto", "load_rate": 300, "look_seconds": 0.2}
    with Path(addresses, topic_prefix, source, target, **slow) as one:
        one.on_load = some
        one.start()
        one.catch_up()
        install(source, topic_prefix)
        ask(source, "CREATE TABLE calm (id int PRIMARY KEY)")
        assert one.catch_up().inexact == {}
        yield one


def ends_equal(path: Path) -> None:
    until(lambda: is_answered(path), "the end of the load", pause)
    until(lambda: not path.catch_up().inexact, "no mark", pause)
    assert content(path.target, "t") == content(path.source, "t")


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_on_its_key_while_a_table_is_read(path: Path, some: Some, name: str) -> None:
    some.wait(path)
    with Owner(path.source):
        for statement in STATEMENTS[name]:
            ask(path.source, statement)
        until(lambda: is_answered(path), "the end of the load", pause)
    ends_equal(path)


def test_another_key_while_run_is_down_in_the_midst_of_a_load(path: Path, some: Some) -> None:
    """How far it is was told by the older key."""
    ask(path.source, "UPDATE t SET g = n - 1000000 FROM (SELECT id AS n FROM t) x WHERE id = n")
    path.catch_up()
    some.wait(path)
    path.stop()
    ask(path.source, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (g)")
    path.start()
    ends_equal(path)


ORDERED = """
CREATE TABLE t (id text COLLATE "und-x-icu" PRIMARY KEY, v int);
INSERT INTO t SELECT 'a' || n, n FROM generate_series(1, {rows}) n;
INSERT INTO t SELECT 'B' || n, n FROM generate_series(1, {rows}) n
"""


@pytest.mark.parametrize("meanwhile", ["it runs", "it is down"])
def test_another_order_of_the_key_while_a_table_is_read(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[..., str],
    some: Some,
    meanwhile: str,
) -> None:
    """What begins with B is behind what begins with a, and before it from then on."""
    source, target = new_database(), new_database()
    ask(source, ORDERED.format(rows=ROWS))
    slow = {"tuning": RANGES, "repair": "auto", "load_rate": 300}
    with Path(addresses, topic_prefix, source, target, **slow) as path:
        path.on_load = some
        path.start()
        path.catch_up()
        install(source, topic_prefix)  # else the catalog's new index is a suspicion
        path.catch_up()
        some.wait(path)
        if meanwhile == "it is down":
            path.stop()
        ask(source, 'ALTER TABLE t ALTER id TYPE text COLLATE "C"')
        if meanwhile == "it is down":
            path.start()
        ends_equal(path)
