"""`verify --repair`: rows that differ are read again, and no others."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path as File

import psycopg2
import pytest

from gauss_cdc.commands.verify import mend
from gauss_cdc.config import load
from producer.core.ports import Tuning, Wish
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection, connect
from schemas.control import AGAIN, MEND, Cut, LoadPhase, TableLoad
from schemas.tables import TableId
from spark_consumers.model import Ledger
from tests.e2e.commands import command, configured
from tests.e2e.path import Path, UntilTold, ask, content, pause, until
from tests.e2e.test_verify import applying

ROWS = 2000
FEW = Tuning(range_rows=9)  # keys in one reading

KEYED = """
CREATE TABLE t (id int PRIMARY KEY, v text, long text);
INSERT INTO t SELECT n, 'v' || n, repeat('long ' || n, 300) FROM generate_series(1, 2000) n;
ALTER TABLE t ALTER COLUMN long SET STORAGE EXTERNAL;
CREATE TABLE texts (a text, b varchar(9), n numeric(9,2), v int, PRIMARY KEY (a, b, n));
INSERT INTO texts SELECT 'it''s \\ "' || chr(960 + n), n, n / 4.0, n FROM generate_series(1, 40) n;
CREATE TABLE others (
    at timestamptz, day date, u uuid, raw bytea, yes bool, k char(4), v int,
    PRIMARY KEY (at, day, u, raw, yes));
INSERT INTO others SELECT '2020-06-01 12:00+05'::timestamptz + n * interval '1.000001 day',
    date '2020-01-01' + n, md5(n::text)::uuid, decode(md5(n::text), 'hex'), n % 2 = 0, 'x', n
    FROM generate_series(1, 40) n;
CREATE TABLE padded (k char(5) PRIMARY KEY, v int);
INSERT INTO padded SELECT 'k' || n, n FROM generate_series(1, 40) n;
CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE parts_all PARTITION OF parts FOR VALUES FROM (0) TO (1000);
INSERT INTO parts SELECT n, n FROM generate_series(1, 40) n;
"""
ALONE = "DROP TABLE texts, others, padded, parts"  # t is
STRANGER = """
UPDATE t SET v = 'mallory' WHERE id IN (7, 8); DELETE FROM t WHERE id IN (70, 71);
INSERT INTO t VALUES (-1, 'mallory', ''), (5000, 'mallory', '');
UPDATE texts SET v = -1 WHERE v IN (3, 4, 5, 6); DELETE FROM texts WHERE v = 7;
INSERT INTO texts VALUES ('\\', '', 1, 1);
UPDATE others SET v = -1 WHERE v IN (3, 4, 5, 6); DELETE FROM others WHERE v = 7;
INSERT INTO others SELECT at + interval '1 s', day, u, raw, yes FROM others WHERE v = 1;
UPDATE padded SET v = -1 WHERE v = 3; DELETE FROM padded WHERE v = 4;
INSERT INTO padded VALUES ('z', 1);
UPDATE parts SET v = -1 WHERE v = 3;
"""


@pytest.fixture
def place(addresses, topic_prefix, new_database, tmp_path) -> Iterator[tuple[Path, File]]:
    source, target = new_database(), new_database()
    ask(source, KEYED)
    with Path(addresses, topic_prefix, source, target, tuning=FEW) as path:
        yield path, configured(tmp_path, addresses, topic_prefix, source, target)
        path.stop()


def answered(path: Path) -> None:
    with closing(connect(parse_dsn(path.source))) as connection:
        session = QueryingConnection(connection)
        until(lambda: not requests.requests(session, path.options.slot), "the rows", pause)


def loads(path: Path) -> list[tuple[str, str, int]]:
    """Records of loads behind the first ones: table, mode, rows."""
    found: list[Cut] = [cut for _, cut in path.cuts(Ledger(path.prefix))]
    return [
        (cut.table.name, cut.mode, cut.rows)
        for cut in found
        if isinstance(cut, TableLoad) and cut.mode != "EXACT" and cut.phase is LoadPhase.CHUNK
    ]


def test_rows_that_differ_are_read_and_no_others(place: tuple[Path, File]) -> None:
    path, file = place
    path.start()
    path.catch_up()
    with applying(path):
        ask(path.target, STRANGER)
        paused = command(file, "snapshot", "--pause")
        found = command(file, "verify", "--repair")
        listed = command(file, "snapshot", "--resume")
        answered(path)
        again = command(file, "verify")
        ledger = path.catch_up()

    assert (found.exit_code, again.exit_code) == (7, 0), again.output
    assert "public.t (differing rows: 6)" in found.stderr
    assert (paused.exit_code, listed.stdout.count('"only": "rows that differ"')) == (0, 5)
    assert command(file, "cuts", "--last", "500").stdout.count("mode=MEND") == 5
    read = loads(path)
    rows = {name: sum(n for t, m, n in read if (t, m) == (name, MEND)) for name, *_ in read}
    assert rows == {"t": 6, "texts": 6, "others": 6, "padded": 3, "parts": 1}
    assert ledger.inexact == {}


class Owner(UntilTold):
    """Inserts, deletes, changes and moves rows of a few keys."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__()
        self._url, self._rng = url, random.Random(seed)

    def run(self) -> None:
        rng, n = self._rng, 0
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            while not self.ended.wait(0.002):
                for _ in range(rng.randint(1, 3)):
                    n += 1
                    key, other = rng.choice(KEYS), rng.choice(KEYS)
                    match rng.randrange(5):
                        case 0 | 1:
                            cursor.execute(
                                "INSERT INTO t VALUES (%s, %s, repeat('i', 3000))"
                                " ON CONFLICT DO NOTHING",
                                (key, n),
                            )
                        case 2:
                            cursor.execute("DELETE FROM t WHERE id = %s", (key,))
                        case 3:  # the long value is not sent
                            cursor.execute("UPDATE t SET v = %s WHERE id = %s", (n, key))
                        case _:
                            cursor.execute(
                                "UPDATE t SET id = %s, long = repeat('m', 3000) WHERE id = %s"
                                " AND NOT EXISTS (SELECT FROM t WHERE id = %s)",
                                (other, key, other),
                            )
                connection.commit()


KEYS = [*range(1, 13), *range(3000, 3008)]


def test_rows_change_while_they_are_read(place: tuple[Path, File]) -> None:
    path, file = place
    ask(path.source, ALONE)
    path.start()
    path.catch_up()
    config = load(file)
    for seed in range(3):
        with applying(path), Owner(path.source, seed):
            for _ in range(5):
                # What a comparison finds of them would be gone by the time it is read.
                mend(config, {"public.t": [(str(key),) for key in KEYS]}, repair=True)
                answered(path)
        ledger = path.catch_up()
        assert content(path.target, "t") == content(path.source, "t")
        assert ledger.inexact == {}
    assert {mode for _, mode, _ in loads(path)} == {MEND}


def test_all_rows_are_read_where_keys_do_not_say_which(place: tuple[Path, File]) -> None:
    path, file = place
    ask(path.source, ALONE)
    path.start()
    path.catch_up()
    config = load(file)
    with applying(path):
        ask(path.target, "UPDATE t SET v = 'mallory'")
        sampled = command(file, "verify", "--repair", "--sample", "50%")
        answered(path)
        mend(config, {"public.t": [("no number",)]}, repair=True)
        answered(path)
        with closing(connect(parse_dsn(path.source))) as connection:  # somebody asks for all
            session, slot = QueryingConnection(connection), path.options.slot
            wish = Wish(TableId("public", "t"))
            requests.ask(session, slot, [wish, wish], {wish.table: [("1",)]})
            requests.ask(session, slot, [wish])
        answered(path)
        again = command(file, "verify")

    assert "read again: public.t\n" in sampled.stderr
    assert again.exit_code == 0
    assert {mode for _, mode, _ in loads(path)} == {AGAIN}
    assert sum(rows for *_, rows in loads(path)) == 3 * ROWS


def test_a_mark_stays_until_all_rows_were_read(place: tuple[Path, File]) -> None:
    """A row is changed before it is mended: the target lacks it, and its unsent value."""
    path, file = place
    ask(path.source, f"{ALONE}; UPDATE t SET long = repeat('long', 2000) WHERE id = 7")
    path.start()
    path.catch_up()
    ask(path.target, "DELETE FROM t WHERE id = 7")
    ask(path.source, "UPDATE t SET v = 'changed' WHERE id = 7")
    with applying(path):
        mend(load(file), {"public.t": [("7",)]}, repair=True)
        answered(path)
    marked = path.catch_up().inexact
    with applying(path):
        again = command(file, "verify", "--repair")
        answered(path)

    assert marked == {"public.t": "seen: the target lacked a row that changed"}
    assert (again.exit_code, "read again: public.t\n" in again.stderr) == (0, True), again.output
    assert path.catch_up().inexact == {}


def test_rows_for_one_target_are_no_others(place: tuple[Path, File]) -> None:
    path, _ = place
    ask(path.source, ALONE)
    path.start()
    path.catch_up()
    wish, stranger = Wish(TableId("public", "t"), "stranger"), "UPDATE t SET v = 'mallory'"
    ask(path.target, f"{stranger} WHERE id < 4")
    with applying(path), closing(connect(parse_dsn(path.source))) as connection:
        session, slot = QueryingConnection(connection), path.options.slot
        requests.ask(session, slot, [wish], {wish.table: [("1",), ("9999",)]})
        answered(path)
        path.catch_up()
        assert ask(path.target, "SELECT count(*) FROM t WHERE v = 'mallory'") == [(3,)]
        requests.ask(session, slot, [wish._replace(target="")], {wish.table: [("1",)]})
        requests.ask(session, slot, [wish._replace(target="")], {wish.table: [("2",), ("2",)]})
        answered(path)
        path.catch_up()
    assert ask(path.target, "SELECT id FROM t WHERE v = 'mallory'") == [(3,)]
    assert [rows for *_, rows in loads(path)] == [2, 1, 1]


@pytest.mark.parametrize(("count", "mode"), [(4, MEND), (20, AGAIN)])
def test_rows_that_changed_their_unique_values_cost_no_index(
    place: tuple[Path, File], count: int, mode: str
) -> None:
    """The target's index would refuse some of them while others are not read yet."""
    path, file = place
    ask(path.source, f"{ALONE}, t")
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v text UNIQUE)")
    ask(path.source, "INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 40) n")
    path.start()
    path.catch_up()
    indexes = "SELECT indexdef FROM pg_indexes WHERE tablename = 't' ORDER BY 1"
    before = ask(path.target, indexes)
    ask(path.target, f"UPDATE t SET v = 'x' || id WHERE id <= {count}")
    ask(path.target, f"UPDATE t SET v = 'v' || {count + 1} - id WHERE id <= {count}")
    with applying(path):
        mend(load(file), {"public.t": [(str(n),) for n in range(1, count + 1)]}, repair=True)
        answered(path)
    path.catch_up()

    assert content(path.target, "t") == content(path.source, "t")
    assert ask(path.target, indexes) == before
    assert len(before) == 2
    assert {of for _, of, _ in loads(path)} == {mode}
