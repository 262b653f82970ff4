"""How the source takes its slot, against the emulator's facade over a real PostgreSQL."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gauss_cdc_lab.emulator.facade import Facade
from gauss_cdc_lab.emulator.login import Account, Gate
from gauss_cdc_lab.emulator.model import PROFILES
from gauss_cdc_lab.emulator.product import EmulatedProduct
from gauss_cdc_lab.emulator.server import Emulator
from gauss_cdc_lab.emulator.upstream import Address
from gauss_cdc_lab.services import Addresses
from producer.errors import ConnectionLost, SourceError
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.gauss import point as gauss_point
from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss import tries
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.source import GaussSource, open_session
from schemas.positions import lsn_text
from tests.gauss_cdc_lab.emulator.running import Running
from tests.services_fixtures import execute

USER, PASSWORD = "cdc", "Gauss@123"
Source = Callable[..., GaussSource]


@pytest.fixture
def emulator(addresses: Addresses, postgres_url: str) -> Iterator[Emulator]:
    execute(postgres_url, "CREATE TABLE t (id int PRIMARY KEY)")
    product = EmulatedProduct(PROFILES["og7"], decoders=1)

    async def make() -> Emulator:
        gate = Gate([Account(USER, PASSWORD, is_admin=True)])
        return Emulator(product, Facade(Address.parse(addresses.postgres_url()), product), gate)

    with Running(make) as running:
        yield running.emulator


@pytest.fixture
def options(emulator: Emulator, postgres_url: str, topic_prefix: str) -> Options:
    database = postgres_url.rpartition("/")[2]
    dsn = f"postgresql://{USER}@127.0.0.1:{emulator.port}/{database}?sslmode=disable"
    return Options(
        source=parse_dsn(dsn, PASSWORD),
        slot=topic_prefix,
        publication=topic_prefix,
        prefix=topic_prefix,
        client={},
        registry_url="",
        kind="opengauss",
        plugin="mppdb_decoding",
        plugin_options={"parallel-decode-num": "2"},
    )


def slot_made(options: Options, name: str) -> Options:
    with GaussConnection.open(options.source) as connection:
        connection.create_slot(name, options.plugin)
    return replace(options, slot=name)


def taken(source: GaussSource) -> bool:
    """Try, at the pace of a takeover, until the slot is ours."""
    pause = threading.Event()
    while not source.try_take():
        pause.wait(0.02)
    return True


def test_a_refusal_that_nothing_explains_is_borne_and_passes(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "_TRY_AGAIN", 0.05)
    ours = slot_made(options, f"{options.slot}_a")
    theirs = slot_made(options, f"{options.slot}_b")
    notes: list[str] = []
    other = GaussConnection.open(options.source)
    other.start(theirs.slot, {"parallel-decode-num": "2"})  # takes the only place
    source = GaussSource.open(ours, lambda _: None)
    source.prepare(notes.append)
    try:
        assert not source.try_take()
        assert "can't create logical decode dispatcher" in notes[-1]
        other.close()
        assert taken(source)
    finally:
        source.close()


def test_a_refusal_that_never_passes_stops_with_the_way_out(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "_TRY_AGAIN", 0.05)
    monkeypatch.setattr(tries, "_UNEXPLAINED_SECONDS", 0.3)
    ours = slot_made(options, f"{options.slot}_a")
    theirs = slot_made(options, f"{options.slot}_b")
    source = GaussSource.open(ours, lambda _: None)
    try:
        with GaussConnection.open(options.source) as other:
            other.start(theirs.slot, {"parallel-decode-num": "2"})
            with pytest.raises(SourceError, match="see its log") as caught:
                taken(source)
    finally:
        source.close()

    assert type(caught.value) is SourceError  # which stops; its kin would be tried again
    assert caught.value.where["slot"] == ours.slot


def test_a_new_epoch_needs_no_slot_dropped_by_hand(options: Options, postgres_url: str) -> None:
    ours = slot_made(options, f"{options.slot}_a")
    pause = threading.Event()
    source = GaussSource.open(ours, lambda _: None)
    try:
        before = gauss_slots.find(source.asking, ours.slot)
        assert before is not None
        execute(postgres_url, "INSERT INTO t VALUES (1)")
        assert source.try_lock()
        while (made := source.make_slot()) is None:
            pause.wait(0.02)

        assert made.consistent_point > int(before.confirmed or 0)
        assert source.captured(made) == ("public.t",)
    finally:
        source.close()


def test_a_primary_whose_log_ends_before_what_was_delivered_is_another_one(
    options: Options,
) -> None:
    source = GaussSource.open(options, lambda _: None)
    try:
        end = gauss_readings.wal_end(source.asking)
        newest = gauss_point.commit_something(source.asking)

        assert source.lacks(end, newest) == ""
        assert f"before {lsn_text(end + (1 << 40))}" in source.lacks(end + (1 << 40), newest)
        assert "transaction" in source.lacks(end, newest + (1 << 20))
    finally:
        source.close()


class Elsewhere:
    """A server that started at another time."""

    def query(self, _sql: str) -> list[list[str | None]]:
        return [["946684800"]]


def test_an_address_that_leads_to_another_server_by_now_is_tried_again(options: Options) -> None:
    with open_session(options) as asking:
        assert gauss_point.of_one_server(asking, open_session(options)).query("SELECT 1") == [["1"]]
        with pytest.raises(ConnectionLost, match="another server has this address"):
            gauss_point.of_one_server(Elsewhere(), open_session(options))


def test_a_commit_that_is_delivered_and_not_visible_is_not_lacking(options: Options) -> None:
    """It waits for a standby, and no newer one has ended: the server says its id as the next."""
    source = GaussSource.open(options, lambda _: None)
    try:
        with open_session(options) as other:
            other.query("BEGIN")
            newest = int(other.query("SELECT txid_current()::text")[0][0] or 0)
            end = gauss_readings.wal_end(source.asking)

            assert source.lacks(end, newest) == ""
    finally:
        source.close()
