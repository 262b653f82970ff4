"""Tables of openGauss and GaussDB that are read in ranges of their key: no table waits."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace

import psycopg2
import pytest

from producer.core.ports import Wish
from producer.sources import requests
from producer.sources.gauss.source import open_session
from schemas.tables import TableId
from tests.e2e.path import PATIENCE, ask, content, pause, until
from tests.e2e.test_beside import RANGES, ROWS, TABLE, Owner, Ranges, make
from tests.e2e.test_gauss_looks import MODES, Play, gauss, in_modes, play
from tests.e2e.test_gauss_modes import PARALLEL

__all__ = ["gauss", "play"]

HOW = {
    "repair": "auto",
    "look_seconds": 0.2,
    "tuning": replace(RANGES, rest_seconds=0.1),
}
TEXT = ("opengauss", {**PARALLEL, "decode-style": "t"})


@contextmanager
def loaded(play, mode, **how) -> Iterator[tuple[Play, Ranges]]:
    """The table is loaded, and wrong at the target."""
    with play(mode, "SELECT", **HOW, **how) as p:
        make(p.source)
        p.path.on_load = ranges = Ranges(p.path)
        p.start()
        assert p.wait() == set()
        ranges.written.clear()
        ask(p.target, "DELETE FROM t WHERE id % 2 = 0; INSERT INTO t VALUES (-1, 'alien', '')")
        yield p, ranges


def request(p: Play, keys: Mapping[TableId, requests.Keys] = {}) -> None:
    with open_session(p.path.options) as session:
        requests.ask(session, p.path.options.slot, [Wish(TABLE)], keys)


def is_answered(p: Play) -> bool:
    p.path.applier.drain()
    assert p.path.failure is None
    with open_session(p.path.options) as session:
        return not requests.requests(session, p.path.options.slot)


def await_answer(p: Play) -> None:
    until(lambda: is_answered(p), "the table is read", pause)


def assert_equal(p: Play) -> None:
    until(lambda: p.wait() == set(), "the end of all gaps", pause)
    assert content(p.target, "t") == content(p.source, "t")


@pytest.mark.parametrize(
    ("gauss", "mode"),
    [
        MODES["og serial"],
        MODES["og parallel"],
        ("og5", TEXT),
        MODES["gaussdb ddl"],
        ("gaussdb", ("gaussdb", MODES["og parallel"][1][1])),
    ],
    ids=["og serial", "og batches", "og5 text", "gaussdb ddl", "gaussdb batches"],
    indirect=["gauss"],
)
def test_a_table_is_read_while_it_changes(gauss, mode, play) -> None:
    with loaded(play, mode) as (p, ranges):
        with Owner(p.source, 1):
            request(p)
            await_answer(p)
        assert_equal(p)

    assert len(ranges.written) > ROWS / 100 / 2
    assert len({seq for _, seq in ranges.written}) > 5, "no commit came between two ranges"


@in_modes("og parallel", "gaussdb")
def test_it_goes_on_behind_the_last_range_that_is_written(gauss, mode, play) -> None:
    with loaded(play, mode) as (p, ranges):
        with Owner(p.source, 5):
            request(p)
            ranges.reach(10)
            p.path.stop()
            p.start()
            await_answer(p)
        assert_equal(p)

        assert "public.t: its load goes on where it was left" in p.path.notes
    assert len(ranges.written) < 1.5 * ROWS / 100


@in_modes("og parallel", "gaussdb ddl")
@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE t",
        "ALTER TABLE t ADD COLUMN more int DEFAULT 7",
        "ALTER TABLE t RENAME TO other; ALTER TABLE other RENAME TO t",
        "ALTER TABLE t ALTER COLUMN v TYPE varchar(200)",
        "CLUSTER t USING t_pkey",
        "GRANT SELECT ON t TO public; UPDATE t SET v = 'unsent' WHERE id = 5",
        "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text, long text)",
        "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (id)",
    ],
)
def test_a_statement_in_its_midst(gauss, mode, statement, play) -> None:
    with loaded(play, mode) as (p, ranges):
        with Owner(p.source, 6):
            request(p)
            ranges.reach(7)
            with closing(psycopg2.connect(p.source)) as connection, connection.cursor() as cursor:
                for one in statement.split("; "):
                    cursor.execute(one)
                connection.commit()
        p.assert_honest(p.wait(), "t")
        await_answer(p)
        assert_equal(p)


@in_modes("og parallel", "gaussdb")
def test_a_first_load_in_chunks_holds_nobody_and_goes_on_after_a_restart(gauss, mode, play) -> None:
    with play(mode, "SELECT", **HOW, loads_beside=True) as p:
        make(p.source)
        p.path.on_load = ranges = Ranges(p.path)
        with Owner(p.source, 7):
            p.start()
            ranges.reach(12)
            p.path.stop()
            p.start()
            assert p.wait(2 * PATIENCE) == set()
        assert_equal(p)

        assert "public.t: its load goes on where it was left" in p.path.notes
    assert len({seq for _, seq in ranges.written}) > 5, "no commit came between two ranges"


@in_modes("og parallel", "gaussdb")
def test_rows_of_some_keys_are_read_alone(gauss, mode, play) -> None:
    with loaded(play, mode) as (p, ranges):
        ask(p.target, "UPDATE t SET v = 'other' WHERE id = 3")
        differ = [key for key in range(-1, ROWS) if key % 2 == 0 or key < 4]
        request(p, {TABLE: [(str(key),) for key in differ]})
        await_answer(p)
        assert_equal(p)

    assert max(rows for rows, _ in ranges.written) == 100, "a load, which counts its rows"


@in_modes("gaussdb")
def test_no_other_table_waits_for_who_has_its_lock(gauss, mode, play) -> None:
    """The server waited for the lock to tell the table's size, and the stream with it."""
    with loaded(play, mode) as (p, _):
        ask(p.source, "CREATE TABLE other (id int PRIMARY KEY)")
        ask(p.source, "INSERT INTO other VALUES (0)")
        assert p.wait() == set()
        with closing(psycopg2.connect(p.source)) as owner, owner.cursor() as cursor:
            cursor.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
            request(p)
            pause(3)
            ask(p.source, "INSERT INTO other VALUES (1)")

            def has_come() -> bool:
                p.path.applier.drain()
                return content(p.target, "other") == ["(0)", "(1)"]

            until(has_come, "the other table's row", pause, 60)
        await_answer(p)
        assert_equal(p)
