"""A commit waits for a synchronous standby: it is in the log and delivered, and nobody sees it."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path as File

import psycopg2
import pytest

from gauss_cdc_lab.services import Addresses
from schemas.positions import parse_lsn
from tests.e2e.commands import command, configured
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.test_beside import RANGES
from tests.e2e.test_ddl import install
from tests.integration.private_postgres import PrivateServer, private_server

CHANGE = "ALTER TABLE t ADD c int; UPDATE t SET c = id"


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server() as running:
        yield running


@pytest.fixture
def source(server: PrivateServer, topic_prefix: str) -> str:
    server.execute(f"CREATE DATABASE {topic_prefix}")
    url = f"postgresql://postgres@127.0.0.1:{server.port}/{topic_prefix}?sslmode=disable"
    ask(url, "CREATE TABLE t (id int PRIMARY KEY, v text, w text)")
    ask(url, "INSERT INTO t SELECT n, 'v' || n, n FROM generate_series(1, 20) n")
    return url


def wait_for(server: PrivateServer, standbys: str) -> None:
    """Let commits wait for standbys that are not there; "": for none."""
    server.execute(
        f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'", "SELECT pg_reload_conf()"
    )
    now = "SELECT current_setting('synchronous_standby_names')"
    until(lambda: server.execute(now) == [(standbys,)], "the setting", pause)


@pytest.mark.parametrize("is_prepared", [False, True], ids=["at once", "prepared"])
def test_a_start_finds_no_change_undone_whose_commit_waits_for_a_standby(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    server: PrivateServer,
    source: str,
    is_prepared: bool,
) -> None:
    """Its looks took the catalog without the change for a later one: the column's values went.

    Behind the wait the column came back empty, and the table was called exact.
    """
    target = new_database()
    with Path(addresses, topic_prefix, source, target, look_seconds=0.2) as path:
        path.start()
        path.waited()
        install(source, topic_prefix)
        path.waited()
        if is_prepared:
            psql(source, f"BEGIN; {CHANGE}; PREPARE TRANSACTION 'two'")
        wait_for(server, "nobody")
        statements = "COMMIT PREPARED 'two'" if is_prepared else CHANGE
        commit = threading.Thread(target=psql, args=(source, statements), daemon=True)
        commit.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until(lambda: server.execute(waits) == [(1,)], "the wait", pause)
        path.catch_up()
        path.stop()
        path.start()
        path.catch_up()
        pause(2)  # for several looks
        path.catch_up()
        wait_for(server, "")
        commit.join(60)

        assert path.waited() == {}
        assert content(target, "t") == content(source, "t")


def test_run_publishes_loads_and_answers_while_no_standby_does(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    server: PrivateServer,
    source: str,
    tmp_path: File,
) -> None:
    """Its own commits waited, too, and the stream with them."""
    target = new_database()
    file = configured(tmp_path, addresses, topic_prefix, source, target)
    with Path(addresses, topic_prefix, source, target, look_seconds=0.2) as path:
        path.start()
        path.waited()
        wait_for(server, "nobody")
        local = "SET synchronous_commit = local"
        psql(source, f"{local}; CREATE TABLE n (id int PRIMARY KEY); INSERT INTO n VALUES (1)")
        assert path.waited() == {}
        assert command(file, "snapshot", "--table", "public.t").exception is None
        psql(source, f"{local}; UPDATE t SET v = 'x' WHERE id = 2")
        asked = "SELECT FROM gauss_cdc.snapshot_requests"
        until(lambda: (path.applier.drain(), not ask(source, asked))[1], "an answer", pause)
        assert path.waited() == {}
        wait_for(server, "")

        for table in ("t", "n"):
            assert content(target, table) == content(source, table)


def test_a_load_in_ranges_waits_for_the_newest_transaction_too(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    server: PrivateServer,
    source: str,
) -> None:
    """No snapshot lists it as one that runs: snapshots end below the newest id.

    The load read the table without the change, which had been sent before, and called it exact.
    """
    target = new_database()
    ask(source, "CREATE TABLE u (id int PRIMARY KEY, v text)")
    ask(source, "INSERT INTO u SELECT n, 'v' || n FROM generate_series(1, 20) n")
    with Path(
        addresses, topic_prefix, source, target, include=("public.t",), tuning=RANGES
    ) as path:
        ask(source, f"CREATE PUBLICATION {path.options.publication} FOR TABLE t, u")
        path.start()
        path.waited()
        wait_for(server, "nobody")
        change = "UPDATE u SET v = 'changed' WHERE id < 9"
        commit = threading.Thread(target=psql, args=(source, change), daemon=True)
        commit.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until(lambda: server.execute(waits) == [(1,)], "the wait", pause)
        ((end,),) = ask(source, "SELECT pg_current_wal_lsn()::text")
        until(lambda: path.progress.resume >= parse_lsn(end), "its delivery", pause)
        path.stop()
        path.options = replace(path.options, include=("public.t", "public.u"))
        path.start()
        pause(3)  # for the load to read what it should not
        path.applier.drain()
        wait_for(server, "")
        commit.join(60)

        assert path.waited() == {}
        assert content(target, "u") == content(source, "u")


def psql(url: str, statements: str) -> None:
    """Run statements that may end with PREPARE or COMMIT PREPARED."""
    connection = psycopg2.connect(url)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(statements)
    finally:
        connection.close()
