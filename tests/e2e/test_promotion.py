"""A standby of PostgreSQL is promoted under load: with all that was delivered, and without.

And GaussDB's forced switch-over, through the emulator.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Literal

import psycopg2
import pytest

from gauss_cdc.inspect import history
from gauss_cdc_lab.emulator.login import Account
from gauss_cdc_lab.services import Addresses
from producer.errors import SourceSwitched
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.connection import reach
from producer.sources.postgres.inspector import PostgresSourceInspector
from producer.sources.postgres.standbys import check_standbys
from schemas.control import Identity
from schemas.findings import Level
from tests.e2e.gauss_facade import PASSWORD, USER, Front, facade
from tests.e2e.path import PATIENCE, Path, content, until
from tests.integration.private_pair import SLOT, Pair, Server, private_pair

TABLES = (
    "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)",
    "CREATE TABLE entry (account int NOT NULL, delta int NOT NULL)",
    "ALTER TABLE entry REPLICA IDENTITY FULL",
    "CREATE TABLE quiet (id int PRIMARY KEY, note text)",
    "INSERT INTO account SELECT i, 0 FROM generate_series(1, 50) i",
    "INSERT INTO quiet VALUES (1, 'as it was')",
)


@contextmanager
def paired(
    addresses: Addresses, prefix: str, target: str, **settings: str
) -> Iterator[tuple[Pair, Path]]:
    with private_pair(*TABLES, **settings) as pair:
        hosts = pair.primary.host, pair.standby.host
        url = f"postgresql://postgres@{','.join(hosts)}/bank"
        with Path(addresses, prefix, pair.primary.url, target) as path:
            arguments = parse_dsn(url, is_cluster=True)
            path.options = replace(path.options, source=arguments, include=("public.*",))
            yield pair, path


@contextmanager
def waited_for(
    addresses: Addresses, prefix: str, new_database: Callable[[], str]
) -> Iterator[tuple[Pair, Path]]:
    """A pair whose primary sends nothing that the standby lacks, and a path that has caught up."""
    waits = {"synchronized_standby_slots": SLOT}
    with paired(addresses, prefix, new_database(), **waits) as (pair, path):
        path.start()
        path.catch_up()
        pair.wait_for_slot(path.options.slot)
        yield pair, path


class Load:
    """Transactions until the server is gone; both tables say the same of each account."""

    def __init__(self, server: Server) -> None:
        self._server, self.committed = server, 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            connection = psycopg2.connect(self._server.url)
            while True:
                with connection, connection.cursor() as cursor:
                    account, delta = self.committed % 50 + 1, self.committed % 7 + 1
                    cursor.execute("INSERT INTO entry VALUES (%s, %s)", [account, delta])
                    cursor.execute(
                        "UPDATE account SET balance = balance + %s WHERE id = %s", [delta, account]
                    )
                self.committed += 1
        except psycopg2.Error:
            return  # it is over

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def killed_and_promoted(pair: Pair) -> None:
    """Kill the primary under a load, and promote the standby, which gets one more commit."""
    load = Load(pair.primary)
    until(lambda: load.committed > 300, "a load", threading.Event().wait)
    pair.primary.stop(signal.SIGKILL)
    load.join()
    pair.promote()
    pair.standby.ask("UPDATE quiet SET note = 'after the promotion'")


def checked(path: Path) -> list[tuple[Level, str]]:
    """What `check` says of the standbys."""
    with closing(catalog.connect(path.options.source)) as connection:
        found = check_standbys(connection, path.options.slot, asked="auto", is_cluster=True)
        return [(one.level, one.what) for one in found]


def same(pair: Pair, path: Path, tables: tuple[str, ...] = ("account", "entry", "quiet")) -> None:
    """After a promotion: the target has what the new primary has."""
    path.source = pair.standby.url
    path.catch_up()
    for table in tables:
        assert content(path.target, table) == content(pair.standby.url, table)


def test_the_stream_goes_on_at_the_promoted_standby(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    """The primary is killed; a slot that waits for the standby delivers nothing it lacks."""
    with waited_for(addresses, topic_prefix, new_database) as (pair, path):
        well = [(Level.OK, f"slot {SLOT} is followed, with feedback")]
        until(lambda: checked(path) == well, "feedback", threading.Event().wait)
        killed_and_promoted(pair)
        same(pair, path)
        path.stop()
        ledger = path.catch_up_to(0)

        assert (ledger.epoch, ledger.state) == (2, "EXACT")
        assert "was promoted" in doubt_of_timeline(pair.standby, path, 1)
        assert doubt_of_timeline(pair.standby, path, 2) == ""
        ((sums,),) = pair.standby.ask("SELECT count(*) FROM entry")
        assert isinstance(sums, int)
        assert sums > 0
        passes_the_old_primary(pair, path)


def test_a_standby_that_is_away_is_waited_for(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    """The server warns, and sends nothing until the standby has what is sent."""
    with waited_for(addresses, topic_prefix, new_database) as (pair, path):
        pair.standby.stop()
        pair.primary.ask("INSERT INTO account VALUES (100, 7)")
        waiting = (
            "SELECT 1 FROM pg_stat_activity"
            " WHERE wait_event = 'WaitForStandbyConfirmation' AND backend_type = 'walsender'"
        )
        until(lambda: pair.primary.ask(waiting) == [(1,)], "it waits", threading.Event().wait)
        pair.standby.start()
        path.source = pair.primary.url
        path.catch_up()

        assert content(path.target, "account") == content(pair.primary.url, "account")


def doubt_of_timeline(server: Server, path: Path, timeline: int) -> str:
    """What `wait` says of a server, where cuts are of a timeline."""
    options = replace(path.options, source=parse_dsn(server.url))
    with closing(PostgresSourceInspector(options)) as inspector:
        now = inspector.server()
        was = Identity(now.system_id, timeline, "bank", path.options.slot, "pgoutput")
        return history.doubt(options, was, now, path.progress.resume, inspector.has_left)


def passes_the_old_primary(pair: Pair, path: Path) -> None:
    """It is up again, is named first, writes, and has the slot still."""
    pair.primary.start()
    pair.primary.ask("INSERT INTO entry VALUES (1, 1000)")
    kept = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{path.options.slot}'"
    assert pair.primary.ask(kept) == [(1,)]
    roles: tuple[Literal["primary", "any"], ...] = ("primary", "any")
    for role in roles:
        source = replace(path.options.source, role=role, slot=path.options.slot)
        assert reach(source).port == pair.standby.port
    path.options = replace(path.options, source=source)
    path.start()
    pair.standby.ask("INSERT INTO entry VALUES (2, 1)")
    same(pair, path)
    path.stop()


def test_a_lost_tail_stops_by_name_and_is_mended_on_demand(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    """Only the table that the lost commits wrote to is read again."""
    with paired(addresses, topic_prefix, new_database()) as (pair, path):
        path.start()
        path.catch_up()
        pair.wait_for_slot(path.options.slot)
        ((level, what),) = checked(path)
        assert (level, "synchronized_standby_slots is empty" in what) == (Level.WARNING, True)
        pair.cut_off()
        pair.primary.set("synchronized_standby_slots", SLOT)
        ((level, what),) = checked(path)
        assert (level, "is not active" in what) == (Level.WARNING, True)
        pair.primary.set("synchronized_standby_slots", "")
        pair.primary.ask("UPDATE account SET balance = 1 WHERE id = 7")
        path.catch_up()
        pair.primary.stop(signal.SIGKILL)
        pair.promote()
        until(lambda: path.failure is not None, "the stop", threading.Event().wait)

        with pytest.raises(SourceSwitched, match="lacks commits that were delivered") as caught:
            path.stop()
        assert caught.value.where["tables"] == "public.account"

        path.failure = None
        path.options = replace(path.options, accept_switch=True, repair="auto")
        path.start()
        until(lambda: path.progress.has_streamed, "the stream", threading.Event().wait)
        pair.standby.ask("INSERT INTO entry VALUES (3, 4)")
        until(lambda: is_mended(path), "mended", threading.Event().wait)
        same(pair, path)
        path.stop()

    read = [note for note in path.notes if "public.entry" in note or "public.quiet" in note]
    assert not read


def is_mended(path: Path) -> bool:
    ledger = path.applier.drain()
    return (ledger.epoch, ledger.state, ledger.inexact) == (2, "EXACT", {})


def test_a_forced_switch_of_gaussdb_stops_by_name_and_is_mended_on_demand(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    """The new primary lacks a commit that was delivered, and has no slot.  All is read again."""
    accounts = [Account(USER, PASSWORD, is_admin=True)]
    tables = ("account", "entry", "quiet")
    with (
        private_pair(*TABLES) as pair,
        Path(
            addresses, topic_prefix, pair.primary.url, new_database(),
            kind="opengauss", plugin="mppdb_decoding", include=("public.*",), repair="auto",
        ) as path,
    ):  # fmt: skip

        def streams_from(front: Front) -> None:
            url = f"postgresql://{USER}@127.0.0.1:{front.emulator.port}/bank?sslmode=disable"
            path.options = replace(path.options, source=parse_dsn(url, PASSWORD))

        with facade(pair.primary.url, accounts=accounts) as old:
            streams_from(old)
            path.start()
            path.catch_up()
            pair.cut_off()
            pair.primary.ask("UPDATE account SET balance = 1 WHERE id = 7")
            pair.primary.ask("INSERT INTO entry VALUES (7, 1)")
            path.catch_up()
            path.stop()
            pair.primary.stop(signal.SIGKILL)
        lost = content(path.target, "entry")
        pair.promote()
        with facade(pair.standby.url, accounts=accounts) as new:
            streams_from(new)
            path.start()
            until(lambda: path.failure is not None, "the stop", threading.Event().wait)
            with pytest.raises(SourceSwitched, match="switch-over was forced") as caught:
                path.stop()
            assert "--accept-switch" in caught.value.hint
            made = "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'logical'"
            assert pair.standby.ask(made) == []

            path.failure = None
            path.options = replace(path.options, accept_switch=True)
            path.start()
            until(lambda: path.progress.has_streamed, "the stream", threading.Event().wait)
            pair.standby.ask("INSERT INTO entry VALUES (3, 4)")
            until(lambda: is_mended(path), "the re-reads", threading.Event().wait)
            same(pair, path)
            path.stop()

        assert lost == ["(7,1)"]
        assert all(any(f"public.{name}" in note for note in path.notes) for name in tables)
