"""Appliers that crash, wait, come second or find their ledger moved; targets that go away."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import pytest

from gauss_cdc.gauss_dbapi import connect
from producer.sources.dial import parse_dsn
from schemas.control import Topic
from spark_consumers.cuts.ledger import NOT_CAPTURED
from spark_consumers.errors import (
    Fenced,
    Superseded,
    TargetDown,
)
from spark_consumers.loop.job import Applier
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.integration.postgres_target import (
    ACCOUNT,
    Target,
    load,
    only_postgresql,
    rows,
)
from tests.spark_consumers.feed import (
    insert,
    table,
    update,
)

GONE = table("gone", "id integer, note text")


def backend(target: Target) -> None:
    """Kill the applier's server process."""
    target.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize(
    "where", ["ledger locked", "rows applied", "ledger moved", "message made", "committed"]
)
def test_a_crash_inside_a_step_is_as_if_it_had_not_begun(
    new_database: Callable[[], str], kind: str, where: str
) -> None:
    killed: list[str] = []

    def kill(step: str) -> None:
        if step == where and not killed and target.feed.seq:
            killed.append(step)
            backend(target)

    rows_of_a_message = 9 if where == "message made" else -1
    kind = "postgres" if where == "message made" else kind
    target = Target(new_database(), kind, on_step=kill, message_rows=rows_of_a_message)
    load(target, ACCOUNT, ["1", "a", "x"])

    ledger = target.apply(insert(ACCOUNT, "2", "b", "y"))
    target.apply(insert(ACCOUNT, "3", "c", "z"))

    assert killed == [where]
    assert ledger.seq == 1
    assert len(rows(target, "account")) == 3
    target.sink.close()


def test_another_session_takes_the_place_of_one_that_was_ended_between_two_steps(
    target: Target,
) -> None:
    """Nothing was open: nothing was rolled back, and each attempt asked the dead session again."""
    load(target, ACCOUNT, ["1", "a", "x"])
    backend(target)
    target.feed.commits([insert(ACCOUNT, "2", "b", "y")])

    for _ in range(2):  # as `apply` does
        with contextlib.suppress(TargetDown):
            target.drain()

    assert target.drain().seq == 1
    assert len(rows(target, "account")) == 2


@pytest.mark.parametrize(
    "lock",
    ["LOCK TABLE account IN ACCESS EXCLUSIVE MODE", "UPDATE account SET note = 'se-cret'"],
)
def test_a_step_that_waits_says_for_whom(
    new_database: Callable[[], str], kind: str, lock: str
) -> None:
    waits: list[str] = []
    reported = threading.Event()
    target = Target(new_database(), kind, on_wait=lambda text: (waits.append(text), reported.set()))
    target.sink._waits._patience = 0.0
    load(target, ACCOUNT, ["1", "a", "x"])
    with contextlib.closing(psycopg2.connect(target.url, application_name="an analyst")) as other:
        with other.cursor() as cursor:
            cursor.execute(lock)
        thread = threading.Thread(target=target.apply, args=(update(ACCOUNT, "1", "A", ...),))
        thread.start()
        assert reported.wait(60)
        other.rollback()
        thread.join()
        pid = other.info.backend_pid

    assert rows(target, "account") == [(1, "A", "x")]
    assert re.search(rf"for a lock on (public\.)?account, held by pid {pid} \(user pos", waits[0])
    assert "application an analyst" in waits[0]
    assert "idle in transaction, since 20" in waits[0]
    assert "se-cret" not in waits[0]
    target.sink.close()


@only_postgresql
def test_a_lock_that_is_not_given_is_let_go_and_tried_again(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"])
    with target.sink._transaction() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("30s",)
        cursor.execute("SET lock_timeout = '50ms'")
    with contextlib.closing(psycopg2.connect(target.url)) as other:
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE account IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(TargetDown, match="a lock at the target was not given in time"):
            target.apply(update(ACCOUNT, "1", "A", ...))

        other.rollback()
    target.drain()
    assert rows(target, "account") == [(1, "A", "x")]


@only_postgresql
def test_limits_of_the_dsn_stay_and_a_lost_applier_is_noticed(new_database, target: Target) -> None:
    url = f"{target.url}?options=-c%20lock_timeout%3D7s"
    sink = target.new_sink(url=url)
    target.sink.close()
    sink.ledger()
    with sink._transaction() as cursor:
        cursor.execute(
            "SELECT name, setting FROM pg_settings"
            " WHERE name = 'lock_timeout' OR name LIKE 'tcp_%' ORDER BY name"
        )
        found = dict(cursor.fetchall())
    sink.close()

    assert found == {
        "lock_timeout": "7000",
        "tcp_keepalives_count": "3",
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_user_timeout": "60000",
    }


def test_who_lost_the_fence_gives_up(target: Target) -> None:
    load(target, ACCOUNT)
    target.run("UPDATE gauss_cdc.ledger SET fence = fence + 1")  # as a second applier's start
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])

    with pytest.raises(Fenced):
        target.drain()

    assert rows(target, "account") == []


def test_the_ledger_is_locked_while_a_step_is_under_way(
    new_database: Callable[[], str], kind: str
) -> None:
    """Two appliers that both think that they hold the fence: one lock orders their steps."""
    found: list[str] = []

    def look(step: str) -> None:
        if step != "rows applied" or not target.feed.seq or found:
            return
        other = psycopg2.connect(target.url)
        with other, other.cursor() as cursor:
            try:
                cursor.execute("SELECT 1 FROM gauss_cdc.ledger FOR UPDATE NOWAIT")
                found.append("free")
            except psycopg2.errors.LockNotAvailable:
                found.append("locked")
        other.close()

    target = Target(new_database(), kind, on_step=look, message_rows=-1)
    load(target, ACCOUNT)
    target.apply(insert(ACCOUNT, "1", "a", "x"))

    assert found == ["locked"]
    target.sink.close()


def test_a_ledger_that_moved_is_read_again(target: Target) -> None:
    load(target, ACCOUNT)
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])
    (segment,) = target.feed.segments(target.sink.ledger())
    rows_of = target.feed.read_rows(segment)
    target.sink.step(segment, target.sink.stage(segment, rows_of))

    with pytest.raises(Superseded):
        target.sink.step(segment, target.sink.stage(segment, rows_of))

    assert target.drain().seq == 1
    assert len(rows(target, "account")) == 1


@pytest.mark.parametrize("message_rows", [-1, 9])
def test_a_commit_whose_outcome_is_unknown_is_not_applied_twice(
    new_database: Callable[[], str], kind: str, message_rows: int
) -> None:
    url = new_database()
    with Proxy(url) as proxy:
        target = Target(url, kind)
        log = table("log", "a integer", key="")
        target.sink = target.new_sink(proxy.url, on_step=proxy.on_step, message_rows=message_rows)
        target.applier = Applier(target.feed.read_cuts, target.read_rows, target.sink)
        load(target, log)

        for at, lost in enumerate(["answer", "request"]):
            proxy.lose = lost
            target.apply(insert(log, str(at)))

        assert proxy.lost == 2
        assert rows_one(target, "log") == [(0,), (1,)]
        target.sink.close()


def rows_one(target: Target, name: str) -> list[tuple]:
    return target.query(f"SELECT * FROM {name} ORDER BY 1")


def test_a_target_restored_from_a_backup_goes_on_from_its_own_ledger(
    new_database: Callable[[], str], kind: str
) -> None:
    target = Target(new_database(), kind)
    log = table("log", "a integer", key="")
    load(target, log)
    target.apply(insert(log, "1"))
    target.run(
        "CREATE TABLE backup_log AS TABLE log; CREATE TABLE backup AS TABLE gauss_cdc.ledger"
    )
    target.apply(insert(log, "2"))
    target.sink.close()
    target.run(
        "TRUNCATE log, gauss_cdc.ledger; INSERT INTO log TABLE backup_log;"
        "INSERT INTO gauss_cdc.ledger TABLE backup"
    )

    again = target.new_sink()
    ledger = Applier(target.feed.read_cuts, target.feed.read_rows, again).drain()

    assert ledger.seq == 2
    assert rows_one(target, "log") == [(1,), (2,)]
    again.close()


@pytest.mark.parametrize(
    "how",
    [
        "postgresql://127.0.0.1:1/none",
        partial(connect, parse_dsn("postgresql://nobody@127.0.0.1:1/none")),
    ],
    ids=["postgres", "opengauss"],
)
def test_an_unreachable_target_may_be_tried_again(how) -> None:
    sink = PostgresSink(how, "bank")

    with pytest.raises(TargetDown):
        sink.ledger()


class Proxy:
    """A TCP proxy that cuts the connection around one COMMIT."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{port}"))
        self.lose = ""
        self.lost = 0
        self._armed = False

    def on_step(self, step: str) -> None:
        self._armed = bool(self.lose) and step in {"ledger moved", "message made"}

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(65_536):
                if self._armed and is_request and self.lose == "request":
                    break
                if self._armed and not is_request and self.lose == "answer":
                    break
                sink.sendall(block)
            else:
                self._close(source, sink)
                return
            self.lost += 1
            self.lose, self._armed = "", False
            self._close(source, sink)

    @staticmethod
    def _close(*sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_a_table_whose_drop_nobody_told_is_marked_until_its_owner_drops_it(
    new_database: Callable[[], str], kind: str
) -> None:
    """A new epoch does not capture it: the source dropped it while no slot kept its log."""
    target = Target(new_database(), kind)
    target.feed.topics = {f"bank.public.{name}": Topic(name, 1) for name in ("account", "gone")}
    target.feed.load_again(ACCOUNT, GONE)
    load(target, ACCOUNT, ["1", "a", "x"])
    load(target, GONE, ["1", "x"])
    assert target.drain().inexact == {}

    del target.feed.topics["bank.public.gone"]
    target.feed.load_again(ACCOUNT)
    load(target, ACCOUNT, ["2", "b", "y"])

    marked = {"public.gone": f"{NOT_CAPTURED}; readers see commit 2/0"}
    assert target.drain().inexact == marked
    target.feed.start()
    assert target.drain().inexact == marked

    target.run("DROP TABLE gone")
    target.feed.start()
    assert (target.drain().inexact, target.sink.ledger().state) == ({}, "EXACT")
    target.sink.close()
