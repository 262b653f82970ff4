"""The source as the loop uses it, on a server whose commits can be held back."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from gauss_cdc.services.process import poll
from producer.decoders.messages import Insert
from producer.drivers import catalog
from producer.options import Options
from producer.sources.postgres import PostgresSource
from schemas.tables import TableId
from tests.integration.private_postgres import PrivateServer, private_server

TABLE = TableId("public", "t")


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    with private_server() as running:
        yield running


@contextmanager
def held_back(server: PrivateServer) -> Iterator[Callable[[], None]]:
    """Commits wait for a standby that never comes, until the end or until it is called."""

    def release() -> None:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

    server.execute(
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"
    )
    try:
        waits = "SELECT current_setting('synchronous_standby_names')"
        assert poll(lambda: server.execute(waits) == [("nobody",)], 60)
        yield release
    finally:
        release()


def test_a_reading_waits_until_what_was_received_is_visible(server: PrivateServer) -> None:
    """A commit that waits for a synchronous standby is in the log, and sent, and not yet seen."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    options = Options(server.arguments(), "slot", "pub", "p", {}, "", include=("public.t",))
    source = PostgresSource.open(options, lambda _: None)
    source.prepare(lambda _: None)
    source.make_slot()
    assert source.try_take()
    with ThreadPoolExecutor(2) as pool, held_back(server) as release:
        change = "ALTER TABLE t ADD c int NOT NULL DEFAULT 7; INSERT INTO t VALUES (2)"
        commit = pool.submit(server.execute, change)
        rows = 0
        while not rows:
            received = source.wire.receive(0.1)
            rows = sum(isinstance(m, Insert) for _, m in source.messages(received.messages))
        other = server.admin()
        (unseen,) = catalog.table_schemas(other, [TABLE])
        other.close()
        assert unseen.names() == ("id",)

        reading = pool.submit(source.shape, TABLE)
        asks = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_locks%' AND state = 'idle'"
        assert poll(lambda: bool(server.execute(asks)) or reading.done(), 60)
        assert not reading.done()
        release()
        shape = reading.result(60)
        commit.result(60)
    source.close()

    assert shape is not None
    assert shape.names() == ("id", "c")
    assert shape.columns[1].missing == "7"
