"""Marks of tables that move: into a root, out of [tables] and back, to a target that comes late."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from gauss_cdc_lab.services import Addresses
from producer.core.events import Limits
from producer.core.loads.queue import EVERYTHING
from producer.core.ports import Wish
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection, connect
from schemas.tables import TableId
from spark_consumers.cuts.ledger import LATE
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.second import Late, restart_without_history
from tests.e2e.test_beside import RANGES, is_answered, make
from tests.e2e.test_beside import request as request_t
from tests.e2e.test_ddl import install

SOON = 60  # seconds for what comes at once, or never


@pytest.fixture
def databases(new_database: Callable[..., str]) -> tuple[str, str]:
    return new_database(), new_database()


def wish(path: Path, table: TableId, *, is_taken_back: bool = False) -> None:
    with closing(connect(parse_dsn(path.source))) as connection:
        session, slot = QueryingConnection(connection), path.options.slot
        if is_taken_back:
            requests.forget(session, slot, Wish(table))
        else:
            requests.ask(session, slot, [Wish(table)])


def test_a_table_that_comes_back_into_tables_does_not_stop_a_late_target(
    addresses: Addresses, topic_prefix: str, databases: tuple[str, str],
    new_database: Callable[..., str],
) -> None:  # fmt: skip
    source, target = databases
    for name in ("a", "b"):
        ask(source, f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        ask(source, f"INSERT INTO {name} SELECT n, 'old' FROM generate_series(1, 9) n")
    with Path(addresses, topic_prefix, source, target, look_seconds=0.2) as path:
        whole = path.options
        path.start()
        path.catch_up()
        path.stop()
        path.options = replace(whole, exclude=("public.b",))
        path.start()
        path.catch_up()
        restart_without_history(path, ["a", "b"])
        with closing(Late(path, new_database())) as late:
            assert late.catch_up().inexact == {"public.a": LATE, "public.b": LATE}
            path.stop()
            ask(source, "INSERT INTO b VALUES (20, 'before its load')")
            path.options = whole
            path.start()
            until(lambda: "public.b" not in path.catch_up().inexact, "b for the first", pause, SOON)
            assert late.catch_up().inexact == {"public.a": LATE}
            assert content(late.target, "b") == content(source, "b")


def test_a_table_that_the_stream_made_before_a_late_target_began_is_loaded_for_it(
    addresses: Addresses, topic_prefix: str, databases: tuple[str, str],
    new_database: Callable[..., str],
) -> None:  # fmt: skip
    """Made while `run` was down, n is PENDING from the start on; the stream then brings it whole.
    Its note goes only when no other table is being read.  A STATE between has the note still.
    """
    source, target = databases
    make(source)
    slow = {
        "tuning": RANGES,
        "repair": "auto",
        "load_rate": 100,
        "look_seconds": 0.2,
        "limits": Limits(heartbeat_seconds=0.2, state_seconds=0.5),
    }
    with Path(addresses, topic_prefix, source, target, **slow) as path:
        ranges: list[int] = []
        path.on_load = lambda *_: ranges.append(1)
        path.start()
        path.catch_up()
        install(source, path.prefix)
        path.catch_up()
        restart_without_history(path, ["t"])
        ranges.clear()
        request_t(path)
        until(lambda: len(ranges) > 2, "three ranges", pause, SOON)
        path.stop()
        ask(source, "CREATE TABLE n (id int PRIMARY KEY); INSERT INTO n VALUES (1)")
        path.start()
        path.catch_up()
        assert content(path.target, "n") == ["(1)"], "brought by the stream"
        pause(2)  # for a STATE
        assert not is_answered(path), "t is read still"
        with closing(Late(path, new_database())) as late:
            began = late.drain().inexact
            assert began.keys() == {"public.t", "public.n"}
            until(lambda: is_answered(path), "the load of t", pause, 2 * SOON)
            path.catch_up()
            late.catch_up()
            with closing(connect(parse_dsn(source))) as connection:
                for table in ("t", "n"):
                    if late.drain().inexact.get(f"public.{table}") == LATE:
                        one = Wish(TableId("public", table), "postgres")
                        requests.ask(QueryingConnection(connection), path.options.slot, [one])
            until(lambda: not late.drain().inexact, "that all is exact", pause, 2 * SOON)
            assert content(late.target, "t") == content(source, "t")
            assert ask(late.target, "SELECT to_regclass('n') IS NULL") == [(False,)]
            assert content(late.target, "n") == content(source, "n")


RANGES_READ: list[int] = []
PARTS = """
CREATE TABLE root (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE root_1 PARTITION OF root FOR VALUES FROM (0) TO (10000);
INSERT INTO root SELECT n, n FROM generate_series(1, 20) n;
CREATE TABLE part (id int PRIMARY KEY, v int);
INSERT INTO part SELECT n, n FROM generate_series(10000, 12999) n
"""
ATTACH = "ALTER TABLE root ATTACH PARTITION part FOR VALUES FROM (10000) TO (20000)"


@pytest.fixture
def parts(addresses: Addresses, topic_prefix: str, databases: tuple[str, str]) -> Iterator[Path]:
    source, target = databases
    ask(source, PARTS)
    fast = {
        "look_seconds": 0.2,
        "repair": "auto",
        "load_rate": 300,
        "tuning": replace(RANGES, rest_seconds=0.1),
    }
    with Path(addresses, topic_prefix, source, target, **fast) as path:
        path.on_load = lambda *_: RANGES_READ.append(1)
        path.start()
        path.catch_up()
        install(source, path.prefix)
        ask(source, "CREATE TABLE calm (id int PRIMARY KEY)")
        assert path.catch_up().inexact == {}
        yield path


def assert_mended(path: Path) -> None:
    until(lambda: not path.catch_up().inexact, "a table whose mark goes", pause, SOON)
    assert content(path.target, "root") == content(path.source, "root")


def test_a_gap_of_a_table_that_becomes_a_partition_is_mended_in_its_root(parts: Path) -> None:
    wish(parts, EVERYTHING)  # a gap that rests would do, too
    held = "re-reads are paused: tables wait, as `gauss-cdc snapshot` was told"
    until(lambda: held in parts.notes, "the pause", pause, SOON)
    ask(parts.source, "ALTER TABLE part ALTER v TYPE int USING v + 1000")
    until(lambda: "public.part" in parts.catch_up().inexact, "the gap", pause, SOON)
    pause(2)  # for looks: what they saw of its file is judged
    ask(parts.source, ATTACH)
    assert "public.root" in parts.catch_up().inexact
    wish(parts, EVERYTHING, is_taken_back=True)

    assert_mended(parts)


def test_a_gap_of_a_root_is_mended_in_the_partition_that_leaves_it(parts: Path) -> None:
    wish(parts, EVERYTHING)
    held = "re-reads are paused: tables wait, as `gauss-cdc snapshot` was told"
    until(lambda: held in parts.notes, "the pause", pause, SOON)
    ask(parts.source, "ALTER TABLE root ALTER v TYPE int USING v + 1000")
    until(lambda: "public.root" in parts.catch_up().inexact, "the gap", pause, SOON)
    pause(2)
    ask(parts.source, "ALTER TABLE root DETACH PARTITION root_1")
    parts.catch_up()
    wish(parts, EVERYTHING, is_taken_back=True)

    assert_mended(parts)
    assert content(parts.target, "root_1") == content(parts.source, "root_1")


def test_a_table_that_becomes_a_partition_during_its_load_is_mended_in_its_root(
    parts: Path,
) -> None:
    RANGES_READ.clear()
    wish(parts, TableId("public", "part"))
    until(lambda: len(RANGES_READ) > 4, "some ranges", pause, SOON)
    until(lambda: "public.part" in parts.applier.drain().inexact, "its BEGIN", pause, SOON)
    ask(parts.source, ATTACH)
    assert "public.root" in parts.catch_up().inexact

    assert_mended(parts)
