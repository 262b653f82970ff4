"""PostgreSQL 16 and newer: a standby is read, loads and re-reads included; it is promoted."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Literal

import pytest

from gauss_cdc_lab.services import Addresses
from producer.core.ports import Wish
from producer.errors import RoleDiffers, SourceSwitched
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.decoding_standby import check_standby
from producer.sources.postgres.primary import Primary, at_primary
from producer.sources.postgres.source import PostgresSource
from schemas.findings import Level
from schemas.tables import TableId
from tests.e2e.path import Path, until
from tests.e2e.test_promotion import TABLES, Load, same
from tests.integration.private_pair import SLOT, Pair, Server, private_pair

MOVED = 'has the slot, and is a primary now: role = "any" continues there'


@contextmanager
def read_at_standby(addresses: Addresses, prefix: str, target: str) -> Iterator[tuple[Pair, Path]]:
    with private_pair(*TABLES) as pair:
        url = f"postgresql://postgres@{pair.primary.host},{pair.standby.host}/bank"
        arguments = replace(parse_dsn(url, is_cluster=True), role="standby", slot=prefix)
        with Path(
            addresses, prefix, pair.primary.url, target, include=("public.*",), repair="auto",
            role="standby", look_seconds=0.5,
        ) as path:  # fmt: skip
            path.options = replace(path.options, source=arguments)
            yield pair, path


def ask_for(path: Path, table: str, slot: str) -> None:
    with closing(catalog.connect(at_primary(path.options.source))) as connection:
        asks = catalog.QueryingConnection(connection)
        requests.ask(asks, slot, [Wish(TableId("public", table))])


def checked(path: Path) -> list[tuple[Level, str]]:
    """What `check` says of the standby."""
    source = path.options.source
    with (
        closing(catalog.connect(source)) as connection,
        closing(Primary(source, connection)) as primary,
    ):
        return [(one.level, one.what) for one in check_standby(connection, primary)]


def number(server: Server, query: str) -> int:
    ((found,),) = server.ask(query)
    assert isinstance(found, int)
    return found


def opened(path: Path, at: Server, role: Literal["primary", "standby"]) -> PostgresSource:
    """As `run` opens a source that is named alone."""
    source = replace(parse_dsn(at.url), role=role, slot="alone")
    options = replace(path.options, source=source, slot="alone")
    return PostgresSource.open(options, lambda _: None)


def is_refused(path: Path, pair: Pair) -> None:
    with pytest.raises(RoleDiffers, match="the server is a standby") as caught:
        opened(path, pair.standby, "primary")
    assert 'role = "standby"' in caught.value.hint
    with pytest.raises(RoleDiffers, match="role asks for a standby"):
        opened(path, pair.primary, "standby")


def writes_to_no_stranger(addresses: Addresses, pair: Pair) -> None:
    """Another cluster's primary in hosts; it has a database of that name, too."""
    stranger = parse_dsn(addresses.postgres_url())
    where = f"{stranger.host}:{stranger.port}"
    url = f"postgresql://postgres@{where},{pair.standby.host}/postgres"
    source = replace(
        parse_dsn(url, stranger.password, is_cluster=True), role="standby", slot="alone"
    )
    with (
        closing(catalog.connect(source)) as connection,
        closing(Primary(source, connection)) as primary,
    ):
        with pytest.raises(SourceSwitched, match="of another cluster"):
            assert primary.answers
        *_, last = check_standby(connection, primary)
    assert (last.level, where in last.what) == (Level.ERROR, True)


def loads_alone(path: Path, pair: Pair) -> None:
    """Without a primary to write to; the test does what its bgwriter does every 15 s."""
    notes: list[str] = []
    ask_for(path, "quiet", "alone")
    path.arrive()
    with closing(opened(path, pair.standby, "standby")) as source:
        assert TableId("public", "later") in source.prepare(notes.append)
        while (made := source.make_slot()) is None:
            pair.primary.ask("SELECT pg_log_standby_snapshot()")
        assert "public.quiet" in source.captured(made)
        with source.reading(made) as reading:
            assert reading.shapes([TableId("public", "quiet")])
        assert source.requests() == {}
        assert "requests for re-reads wait" in notes[-1]
        for write in (
            lambda: source.publish(TableId("public", "quiet")),
            lambda: source.answer(TableId("public", "quiet"), 1),
        ):
            with pytest.raises(RoleDiffers, match="cannot be written to") as caught:
                write()
            assert "[source] hosts" in caught.value.hint
        source.discard(notes.append)
    assert notes[-1] == "slot alone dropped again: it was not used"


def test_a_standby_is_loaded_and_streamed_and_promoted(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    """The primary only writes.  With role "any" the stream continues at the promoted server."""
    pause = threading.Event().wait
    with read_at_standby(addresses, topic_prefix, new_database()) as (pair, path):
        primary, standby = pair.primary, pair.standby
        load = Load(primary)
        until(lambda: load.committed > 50, "a load", pause)
        path.start()
        path.catch_up()
        ours = "SELECT slot_name::text FROM pg_replication_slots WHERE slot_type = 'logical'"
        assert (standby.ask(ours), primary.ask(ours)) == ([(path.options.slot,)], [])
        assert checked(path) == [(Level.OK, f"is read; it sends feedback by slot {SLOT}")]

        primary.ask("ALTER TABLE quiet ADD COLUMN more int")
        primary.ask("INSERT INTO quiet VALUES (2, 'new', 3)")
        ask_for(path, "account", path.options.slot)
        open_requests = "SELECT count(*)::int FROM gauss_cdc.snapshot_requests"
        until(lambda: number(primary, open_requests) == 0, "the re-read", pause)
        standby.ask("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                    " WHERE active")  # fmt: skip
        primary.ask("CREATE TABLE later (id int PRIMARY KEY, note text)")
        primary.ask("INSERT INTO later VALUES (1, 'one')")
        published = "SELECT count(*)::int FROM pg_publication_tables WHERE tablename = 'later'"
        until(lambda: number(primary, published) == 1, "the new table", pause)
        primary.ask("INSERT INTO later VALUES (2, 'two')")
        until(lambda: path.catch_up().state == "EXACT", "loaded", pause)

        is_refused(path, pair)
        writes_to_no_stranger(addresses, pair)
        loads_alone(path, pair)
        primary.stop(signal.SIGKILL)
        load.join()
        standby.set("hot_standby_feedback", "off")  # now: else VACUUM would do what `check` says
        first, second = checked(path)
        assert (first[0], "VACUUM invalidates" in first[1]) == (Level.ERROR, True)
        assert (second[0], "no primary to write to" in second[1]) == (Level.WARNING, True)
        pair.promote()
        standby.ask("UPDATE quiet SET note = 'after the promotion'")  # it goes on sending
        until(lambda: any(MOVED in note for note in path.notes), "the promotion", pause)
        path.stop()
        path.options = replace(
            path.options, role="any", source=replace(path.options.source, role="any")
        )
        path.start()
        same(pair, path, ("account", "entry", "quiet", "later"))
        path.stop()
        ledger = path.catch_up_to(0)

    assert (ledger.epoch, ledger.state) == (2, "EXACT")
    assert any("the standby was promoted" in note for note in path.notes)
