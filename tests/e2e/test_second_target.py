"""A table that is loaded for a second target, while the first one stays exact."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from gauss_cdc_lab.services import Addresses
from producer.core.ports import Wish
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection, connect
from spark_consumers.cuts.ledger import LATE
from spark_consumers.model import Ledger
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.second import Late, PlainReader, restart_without_history
from tests.e2e.test_beside import RANGES, ROWS, TABLE, Owner, Ranges, is_answered, make

EXACT = ("EXACT", {})


@pytest.fixture
def path(
    addresses: Addresses, topic_prefix: str, new_database: Callable[..., str]
) -> Iterator[Path]:
    """The first target has the table."""
    source, target = new_database(), new_database()
    make(source)
    with Path(addresses, topic_prefix, source, target, tuning=RANGES, repair="auto") as one:
        one.on_load = Ranges(one)
        one.start()
        one.catch_up()
        yield one


@pytest.fixture
def plain(path: Path) -> Iterator[PlainReader]:
    with closing(PlainReader(path, "t")) as reader:
        reader.read()
        yield reader


@pytest.fixture
def late(path: Path, plain: PlainReader, new_database: Callable[..., str]) -> Iterator[Late]:
    """The second one, which has nothing."""
    assert len(plain.rows) == ROWS
    restart_without_history(path, ["t"])
    with closing(Late(path, new_database(), "second")) as second:
        assert second.catch_up().inexact == {"public.t": LATE}
        yield second


def request(path: Path) -> None:
    with closing(connect(parse_dsn(path.source))) as connection:
        wish = Wish(TABLE, "second")
        requests.ask(QueryingConnection(connection), path.options.slot, [wish])


def load_for_second(path: Path, late: Late) -> set[str]:
    """Wait for the load; the first target is exact whenever it is looked at."""
    marks = set[str]()

    def is_through() -> bool:
        first = path.applier.drain()
        assert (first.state, first.inexact) == EXACT
        marks.update(late.drain().inexact.values())
        return is_answered(path)

    until(is_through, "the load", pause)
    return marks


def assert_all_equal(path: Path, late: Late, plain: PlainReader) -> None:
    ends: list[Ledger] = [path.catch_up(), late.catch_up()]
    there = content(path.source, "t")
    assert [(at.state, at.inexact) for at in ends] == [EXACT, EXACT]
    assert content(path.target, "t") == there
    assert content(late.target, "t") == there
    plain.read()
    rows = ask(path.source, "SELECT id, v, long FROM t")
    assert plain.rows == {row[0]: dict(zip(("id", "v", "long"), row, strict=True)) for row in rows}


def test_the_first_is_exact_all_the_time_and_a_restart_goes_on(
    path: Path, late: Late, plain: PlainReader
) -> None:
    ranges = path.on_load
    assert isinstance(ranges, Ranges)
    ranges.written.clear()
    with Owner(path.source, 7):
        request(path)
        ranges.reach(10)
        path.stop()
        path.start()
        marks = load_for_second(path, late)
    assert_all_equal(path, late, plain)

    assert "loading for second" in marks
    assert "public.t: its load goes on where it was left" in path.notes
    assert len(ranges.written) < 1.5 * ROWS / 100
    assert plain.emptied == 0, "its rows are the newest of their keys"


def test_rows_that_move_without_all_of_their_values_begin_it_again_and_are_no_gap(
    path: Path, late: Late, plain: PlainReader
) -> None:
    with Owner(path.source, 4, moves=True):
        request(path)
        load_for_second(path, late)
    path.catch_up()
    assert late.catch_up().inexact == {}
    assert content(late.target, "t") == content(path.target, "t") == content(path.source, "t")
    assert len(plain.rows) == ROWS

    assert [note for note in path.notes if "its load begins again" in note]


def test_a_table_that_is_altered_in_its_midst(path: Path, late: Late, plain: PlainReader) -> None:
    ranges = path.on_load
    assert isinstance(ranges, Ranges)
    ranges.written.clear()
    with Owner(path.source, 6):
        request(path)
        ranges.reach(7)
        ask(path.source, "ALTER TABLE t ALTER COLUMN v SET NOT NULL")
        ask(path.source, "TRUNCATE t")
        load_for_second(path, late)
    assert_all_equal(path, late, plain)
