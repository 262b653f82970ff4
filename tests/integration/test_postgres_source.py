"""The source as the loop uses it, on a server whose commits can be held back."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg2
import pytest

from gauss_cdc_lab.services.process import poll
from producer.core.changes import Cells, Insert
from producer.core.takeover.takeover import MadeSlot
from producer.errors import NotPermitted, SourceBusy, TableChanging
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres import source as source_module
from producer.sources.postgres.source import PostgresSource
from schemas.errors import Verdict
from schemas.positions import NOWHERE
from schemas.tables import TableId
from tests.integration.private_postgres import PrivateServer, private_server
from tests.services_fixtures import execute

TABLE = TableId("public", "t")
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


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


def streaming(options: Options) -> PostgresSource:
    """A source that has made and taken its slot."""
    source = PostgresSource.open(options, lambda _: None)
    source.prepare(lambda _: None)
    source.make_slot()
    assert source.try_take()
    return source


def test_a_reading_waits_until_what_was_received_is_visible(server: PrivateServer) -> None:
    """A commit that waits for a synchronous standby is in the log, and sent, and not yet seen."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    options = Options(server.arguments(), "slot", "pub", "p", {}, "", include=("public.t",))
    source = streaming(options)
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


def hidden_looks(source: PostgresSource) -> bool:
    """Say whether the source takes no look at the catalog."""
    return source.look({}, unless="", before=None) is None


def test_no_look_is_taken_while_a_transaction_that_was_sent_is_not_visible(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was forgotten behind thousands that came later, and by the next `run`."""
    monkeypatch.setattr(source_module, "_BEGUN", 4)
    server.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    options = Options(server.arguments(), "slot", "pub", "p", {}, "", include=("public.*",))
    source = streaming(options)
    assert not hidden_looks(source)
    with ThreadPoolExecutor(1) as pool, held_back(server) as release:
        commit = pool.submit(server.execute, "ALTER TABLE t ADD c int; INSERT INTO t VALUES (1, 1)")
        assert poll(lambda: server.execute(WAITS) == [(1,)], 60)
        server.execute(
            "SET synchronous_commit = local", *(f"INSERT INTO u VALUES ({n})" for n in range(9))
        )
        rows = 0
        while rows < 10:
            received = source.wire.receive(0.1)
            rows += sum(isinstance(m, Insert) for _, m in source.messages(received.messages))
        assert hidden_looks(source)
        source.close()

        after = PostgresSource.open(options, lambda _: None)
        assert poll(after.try_take, 60)
        after.start_reading({}, resume=NOWHERE, csn=0)
        assert hidden_looks(after)
        release()
        commit.result(60)
        assert not hidden_looks(after)
    after.close()


@pytest.fixture
def loading(postgres_url: str, topic_prefix: str) -> Iterator[tuple[PostgresSource, MadeSlot]]:
    """A source whose slot was made: its load is about to begin."""
    execute(
        postgres_url,
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE p (id int) PARTITION BY LIST (id);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); INSERT INTO t VALUES (1)",
    )
    arguments = parse_dsn(postgres_url)
    options = Options(arguments, topic_prefix, "pub", "p", {}, "", include=("public.*",))
    source = PostgresSource.open(options, lambda _: None)
    source.prepare(lambda _: None)
    made = source.make_slot()
    assert made is not None
    source.captured(made)
    yield source, made
    source.close()


def test_a_shape_that_may_not_be_read_is_no_table_that_is_gone(
    loading: tuple[PostgresSource, MadeSlot], postgres_url: str
) -> None:
    source, _ = loading
    assert source.shape(TABLE) is not None
    assert source.shape(TableId("public", "gone")) is None

    execute(postgres_url, "REVOKE SELECT ON pg_catalog.pg_index FROM PUBLIC")
    with source.connection.cursor() as cursor:
        cursor.execute("SET ROLE pg_monitor")  # one that is no superuser
    with pytest.raises(NotPermitted, match="pg_index"):
        source.shape(TABLE)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t RENAME TO other",
        "ALTER TABLE t ALTER id TYPE bigint",  # rewritten: an older snapshot sees no row of it
        "ALTER TABLE t ADD COLUMN c int",
        "ALTER TABLE t RENAME id TO other",
        "TRUNCATE t",
        "TRUNCATE p1",
        "DROP TABLE t",
    ],
)
def test_a_load_starts_over_where_ddl_came_before_it(postgres_url, loading, statement) -> None:
    """The slot exists, and its snapshot; COPY would read what is there now."""
    source, made = loading
    execute(postgres_url, statement)

    with pytest.raises(TableChanging) as raised, source.reading(made):
        pass

    assert raised.value.verdict is Verdict.RETRY


def test_ddl_waits_while_tables_are_loaded(postgres_url, loading) -> None:
    source, made = loading
    rows: list[Cells] = []

    with source.reading(made) as reading:
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            execute(postgres_url, "SET lock_timeout = 1; TRUNCATE t")
        execute(postgres_url, "INSERT INTO t VALUES (2)")
        (shape,) = reading.shapes([TABLE])
        reading.copy_rows(TABLE, shape.columns, rows.extend)

    assert rows == [[b"1"]]


@pytest.mark.parametrize(("servers", "ours"), [("0", "6s"), ("60s", "6s"), ("3s", "3s")])
def test_a_server_does_not_wait_long_for_a_client_that_is_gone(
    postgres_url: str, servers: str, ours: str
) -> None:
    """Lock and slot are the session's: the next `run` waits for its end, for ever at 0."""
    name = postgres_url.rpartition("/")[2]
    execute(postgres_url, f"ALTER DATABASE {name} SET wal_sender_timeout = '{servers}'")
    source = PostgresSource.open(
        Options(parse_dsn(postgres_url), "slot", "pub", "p", {}, ""), lambda _: None
    )
    try:
        assert source.wire.query("SHOW wal_sender_timeout") == [[ours]]
    finally:
        source.close()


def test_a_place_is_waited_for_longer_where_transactions_overlap(
    postgres_url: str, loading: tuple[PostgresSource, MadeSlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a table would never be read again where one is open at each moment."""
    source, _ = loading
    source.identity()
    monkeypatch.setattr(source, "_patience", 0.05)
    monkeypatch.setattr("producer.sources.postgres.source.LONGEST", 0.15)
    waited = []
    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (2)")
        for _ in range(3):
            with pytest.raises(SourceBusy) as busy:
                source.point(TABLE)
            waited.append(busy.value.where["waited"])
        monkeypatch.setattr(source, "_patience", 5.0)  # a loaded server waits for it late
        with pytest.raises(SourceBusy, match="idle in transaction"):
            source.point(TABLE)

    assert waited == ["0.05 s", "0.1 s", "0.15 s"]
    point = source.point(TABLE)
    assert point is not None
    point.close()


def test_a_table_made_again_while_its_point_was_waited_for_is_not_read_unpublished(
    postgres_url: str, loading: tuple[PostgresSource, MadeSlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its later rows would not be sent, and a known table is not published by itself."""
    source, _ = loading
    source.identity()
    monkeypatch.setattr(source, "_patience", 60.0)
    waits = "SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
    with ThreadPoolExecutor(1) as pool, closing(psycopg2.connect(postgres_url)) as other:
        with other.cursor() as cursor:
            cursor.execute("INSERT INTO p VALUES (1)")
            point = pool.submit(source.point, TABLE)
            assert poll(lambda: cursor.execute(waits) or cursor.rowcount, 60)
        execute(postgres_url, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY)")
        other.commit()

        with pytest.raises(TableChanging, match="made again"):
            point.result(60)
