"""Slots on a real PostgreSQL: what both families know, the waiting and the giving up above all."""

from collections.abc import Callable, Iterator

import pytest

from producer.errors import SlotMissing, SlotTaken, SourceError
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.slots import Making, OpenTransaction
from producer.sources.postgres.connection import ReplicationConnection
from producer.wire.commands import SlotCreated
from schemas.positions import Lsn, parse_lsn
from tests.integration.private_postgres import DATABASE, PrivateServer, private_server


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server() as server:
        server.execute("ALTER SYSTEM SET max_prepared_transactions = 2")
        server.stop()
        server.start()
        yield server


@pytest.fixture
def asker(server: PrivateServer) -> Iterator[ReplicationConnection]:
    with ReplicationConnection.open(server.arguments(), replication=False) as connection:
        yield connection


@pytest.fixture
def opened(server: PrivateServer) -> Iterator[Callable[[], ReplicationConnection]]:
    made: list[ReplicationConnection] = []

    def open_one() -> ReplicationConnection:
        made.append(ReplicationConnection.open(server.arguments()))
        return made[-1]

    yield open_one
    for connection in made:
        connection.close()


@pytest.fixture
def slot(asker: ReplicationConnection) -> Iterator[str]:
    yield "bank_1"
    if gauss_slots.find(asker, "bank_1") is not None:
        gauss_slots.drop(asker, "bank_1")


@pytest.fixture
def writer(server: PrivateServer) -> Iterator[ReplicationConnection]:
    """A session with a transaction that has an id."""
    with ReplicationConnection.open(server.arguments(), replication=False) as connection:
        connection.query("BEGIN")
        connection.query("SELECT txid_current()")
        yield connection


def pid_of(session: ReplicationConnection) -> str:
    return session.query("SELECT pg_backend_pid()")[0][0] or ""


# ---------------------------------------------------------------- looking, moving, dropping
def test_a_slot_made_by_sql_is_seen_moved_and_dropped(
    asker: ReplicationConnection, slot: str
) -> None:
    begins = gauss_slots.create_by_sql(asker, slot, "test_decoding", ordered_by="lsn")

    found = gauss_slots.find(asker, slot)
    assert found is not None
    assert (found.plugin, found.database, found.is_active) == ("test_decoding", DATABASE, False)
    assert (found.is_invalid, found.is_orphaned, found.ordered_by) == (False, False, "lsn")
    assert found.confirmed == parse_lsn(begins)
    gauss_slots.check_usable(found, name=slot, plugin="test_decoding", database=DATABASE)

    end = asker.query("SELECT pg_current_wal_lsn()")[0][0] or ""
    assert gauss_slots.advance(asker, slot, parse_lsn(end)) >= parse_lsn(begins)
    gauss_slots.drop(asker, slot)
    assert gauss_slots.find(asker, slot) is None


def test_a_slot_that_is_not_there_says_so(asker: ReplicationConnection) -> None:
    with pytest.raises(SlotMissing):
        gauss_slots.drop(asker, "nobodys")
    with pytest.raises(SlotMissing):
        gauss_slots.advance(asker, "nobodys", Lsn(1))


def test_a_slot_in_use_is_not_dropped(
    asker: ReplicationConnection, opened: Callable[[], ReplicationConnection], slot: str
) -> None:
    gauss_slots.create_by_sql(asker, slot, "test_decoding", ordered_by="lsn")
    reader = opened()
    reader.start(slot, {})

    assert [one.name for one in gauss_slots.slots(asker) if one.is_active] == [slot]
    with pytest.raises(SlotTaken):
        gauss_slots.drop(asker, slot)
    reader.close()
    asker.query(
        f"SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
        f" WHERE slot_name = '{slot}' AND active_pid IS NOT NULL"
    )


# ---------------------------------------------------------------- making, with somebody in the way
@pytest.fixture
def making(
    asker: ReplicationConnection, opened: Callable[[], ReplicationConnection], slot: str
) -> Callable[..., Making[SlotCreated]]:
    """Begin to make the slot, in a session of its own."""

    def begin(
        on_blocked: Callable[[list[OpenTransaction]], None] = lambda _: None,
        plugin: str = "test_decoding",
    ) -> Making[SlotCreated]:
        maker = opened()
        return Making(
            lambda: maker.create_slot(slot, plugin),
            slot=slot,
            maker=pid_of(maker),
            asker=asker,
            on_blocked=on_blocked,
            patience=0.2,
        )

    return begin


def made_in_time(making: Making[SlotCreated]) -> SlotCreated:
    while (made := making.result(0.1)) is None:
        pass
    return made


def test_no_blocking_session(making: Callable[..., Making[SlotCreated]], slot: str) -> None:
    made = made_in_time(making())
    assert (made.name, made.snapshot != "") == (slot, True)


def test_a_blocking_session_is_named_and_waited_for(
    making: Callable[..., Making[SlotCreated]], writer: ReplicationConnection, slot: str
) -> None:
    noted: list[list[OpenTransaction]] = []

    def on_blocked(found: list[OpenTransaction]) -> None:
        noted.append(found)
        writer.query("COMMIT")

    assert made_in_time(making(on_blocked)).name == slot
    assert [(one.pid, one.state) for one in noted[0]] == [(pid_of(writer), "idle in transaction")]


def test_giving_up_leaves_no_half_slot(
    making: Callable[..., Making[SlotCreated]],
    asker: ReplicationConnection,
    writer: ReplicationConnection,
    slot: str,
) -> None:
    noted: list[list[OpenTransaction]] = []
    begun = making(noted.append)
    while not noted:  # it waits by now
        assert begun.result(0.1) is None

    begun.give_up()

    assert gauss_slots.find(asker, slot) is None
    assert asker.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'") == []


def test_giving_up_what_was_made_drops_it(
    making: Callable[..., Making[SlotCreated]], asker: ReplicationConnection, slot: str
) -> None:
    begun = making()
    made_in_time(begun)

    begun.give_up()

    assert gauss_slots.find(asker, slot) is None


def test_a_slot_of_that_name_is_left_alone(
    making: Callable[..., Making[SlotCreated]], asker: ReplicationConnection, slot: str
) -> None:
    gauss_slots.create_by_sql(asker, slot, "test_decoding", ordered_by="lsn")

    with pytest.raises(SourceError, match="exists already"):
        making()
    assert gauss_slots.find(asker, slot) is not None


def test_a_refusal_of_the_server_comes_through(
    making: Callable[..., Making[SlotCreated]],
) -> None:
    with pytest.raises(SourceError, match="no_such_plugin"):
        made_in_time(making(plugin="no_such_plugin"))


def test_a_prepared_transaction_is_in_the_way_too(
    server: PrivateServer, asker: ReplicationConnection
) -> None:
    assert gauss_slots.blockers(asker) == []
    server.execute("BEGIN; SELECT txid_current(); PREPARE TRANSACTION 'two phases'")

    (blocker,) = gauss_slots.blockers(asker)

    server.execute("ROLLBACK PREPARED 'two phases'")
    assert (blocker.what, blocker.pid, blocker.user) == (
        "prepared transaction",
        "two phases",
        "postgres",
    )
