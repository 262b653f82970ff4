"""The PostgreSQL driver against real servers: logins, TLS, slots, streams."""

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gauss_cdc_lab.services.postgres import create_database
from producer.core.changes import Begin, Commit, Delete, Insert, Message, Relation, Update
from producer.errors import (
    CdcError,
    ConnectionLost,
    LoginRefused,
    NotPermitted,
    OptionRefused,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SlotTaken,
    SourceError,
)
from producer.options import Options
from producer.sources.dial import NEAR_BUFFER_BYTES, parse_dsn
from producer.sources.gauss.connection import GaussConnection
from producer.sources.postgres import catalog
from producer.sources.postgres import options as pgoutput_options
from producer.sources.postgres.connection import ConnectionArguments, ReplicationConnection
from producer.sources.postgres.pgoutput import decode
from producer.sources.postgres.source import PostgresSource
from producer.wire.commands import Snapshot
from schemas.positions import Lsn, parse_lsn
from tests.integration.private_postgres import PASSWORD, PrivateServer, private_server
from tests.services_fixtures import execute

NOTHING = Lsn(0)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server() as running:
        yield running


@pytest.fixture
def connect(server: PrivateServer) -> Iterator[Callable[..., ReplicationConnection]]:
    """Open connections that are closed at the end."""
    opened: list[ReplicationConnection] = []

    def connect(user: str = "postgres", **more: object) -> ReplicationConnection:
        opened.append(ReplicationConnection.open(server.arguments(user, **more)))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def name(server: PrivateServer) -> Iterator[str]:
    """Name of a table, a publication and a slot; the first two exist."""
    name = f"t{uuid.uuid4().hex[:12]}"
    server.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, v text)",
        f"CREATE PUBLICATION {name} FOR TABLE {name}",
    )
    yield name
    server.execute(
        f"SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots"
        f" WHERE slot_name = '{name}' AND active",
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        f" WHERE slot_name = '{name}'",
        f"DROP PUBLICATION {name}",
        f"DROP TABLE {name}",
    )


def options(name: str, **more: str) -> dict[str, str]:
    return {"proto_version": "1", "publication_names": name, **more}


def read_until(
    connection: ReplicationConnection, done: Callable[[list[Message]], bool]
) -> list[Message]:
    """Read messages until there are enough; a stuck server ends it by pytest's timeout."""
    messages: list[Message] = []
    while not done(messages):
        received = connection.receive(1)
        messages += [decode(payload) for _, _, payload in received.messages]
    return messages


def commits(count: int) -> Callable[[list[Message]], bool]:
    return lambda messages: sum(isinstance(message, Commit) for message in messages) >= count


# ---- logins


@pytest.mark.parametrize("user", ["scram", "md5", "postgres"])
@pytest.mark.parametrize("sslmode", ["disable", "prefer", "require"])
def test_a_login_succeeds(
    connect: Callable[..., ReplicationConnection], user: str, sslmode: str
) -> None:
    connection = connect(user, sslmode=sslmode)

    assert connection.is_encrypted == (sslmode != "disable")
    assert connection.query("SELECT current_user") == [[user]]
    assert connection.backend_pid == int(connection.query("SELECT pg_backend_pid()")[0][0])


@pytest.mark.parametrize("user", ["scram", "md5", "clear"])
def test_a_wrong_password_is_refused_and_not_shown(server: PrivateServer, user: str) -> None:
    with pytest.raises(LoginRefused) as caught:
        ReplicationConnection.open(server.arguments(user, password="wrong-one", sslmode="require"))

    assert caught.value.where["sqlstate"] == "28P01"
    assert "wrong-one" not in str(caught.value)


def test_a_clear_text_password_needs_tls(
    server: PrivateServer, connect: Callable[..., ReplicationConnection]
) -> None:
    with pytest.raises(LoginRefused, match="clear text"):
        ReplicationConnection.open(server.arguments("clear", sslmode="disable"))

    assert connect("clear", sslmode="require").query("SELECT 1") == [["1"]]


def test_a_unix_socket_is_as_good_as_tls(
    server: PrivateServer, connect: Callable[..., ReplicationConnection]
) -> None:
    connection = connect("scram", host=str(server.data), sslmode="require")

    assert not connection.is_encrypted
    assert connection.query("SELECT inet_client_addr()") == [[None]]


@pytest.mark.parametrize(
    ("user", "more", "error"),
    [
        ("rejected", {}, LoginRefused),
        ("unknown", {}, LoginRefused),
        ("scram", {"dbname": "nowhere"}, LoginRefused),
        ("scram", {"password": None}, LoginRefused),
        ("plain", {}, NotPermitted),
        ("scram", {"port": 1}, ConnectionLost),
        ("scram", {"host": "no-such-host.invalid"}, ConnectionLost),
        ("scram", {"host": "/no/such/folder"}, ConnectionLost),
    ],
)
def test_other_failures_say_what_they_are(
    server: PrivateServer, user: str, more: dict[str, object], error: type[CdcError]
) -> None:
    with pytest.raises(error) as caught:
        ReplicationConnection.open(server.arguments(user, **more))

    assert caught.value.hint
    assert PASSWORD not in str(caught.value)


def test_a_server_without_room_is_tried_again(server: PrivateServer) -> None:
    with pytest.raises(ConnectionLost) as caught:  # role limits do not count walsenders
        ReplicationConnection.open(server.arguments("full"), replication=False)

    assert caught.value.where["sqlstate"] == "53300"


def test_psycopg2s_failures_are_distinguished_the_same_way(server: PrivateServer) -> None:
    with pytest.raises(LoginRefused):
        catalog.connect(server.arguments("scram", password="wrong-one"))
    with pytest.raises(ConnectionLost):
        catalog.connect(server.arguments("scram", port=1))


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        arguments = ConnectionArguments(
            host="127.0.0.1", port=mute.getsockname()[1], user="u", connect_timeout=0.2
        )
        for sslmode in ("disable", "prefer"):
            with pytest.raises(ConnectionLost, match="does not answer"):
                ReplicationConnection.open(replace(arguments, sslmode=sslmode))


# ---- TLS


def test_a_certificate_is_verified_in_full(
    server: PrivateServer, connect: Callable[..., ReplicationConnection]
) -> None:
    more = {"sslmode": "verify-full", "sslrootcert": str(server.authorities)}
    connection = connect("scram", host="localhost", hostaddr="127.0.0.1", **more)

    assert connection.query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [["t"]]

    with pytest.raises(LoginRefused, match="not trusted"):
        ReplicationConnection.open(server.arguments("scram", host="127.0.0.1", **more))


def test_the_login_is_bound_to_the_certificate(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.wire.auth.server_end_point", lambda _: bytes(32))

    with pytest.raises(LoginRefused, match="channel binding"):
        ReplicationConnection.open(server.arguments("scram", sslmode="require"))


def test_the_name_is_looked_at_in_full_mode_only(
    server: PrivateServer, connect: Callable[..., ReplicationConnection]
) -> None:
    authorities = str(server.authorities)

    assert connect("scram", sslmode="verify-ca", sslrootcert=authorities).is_encrypted
    assert connect("scram", sslmode="require", sslrootcert=authorities).is_encrypted


@pytest.mark.parametrize("sslmode", ["verify-ca", "verify-full", "require"])
def test_an_unknown_authority_is_refused(server: PrivateServer, sslmode: str) -> None:
    with pytest.raises(LoginRefused, match="not trusted"):
        ReplicationConnection.open(
            server.arguments("scram", host="localhost", sslmode=sslmode, sslrootcert="system")
        )


def test_a_missing_authority_file_is_reported(server: PrivateServer, tmp_path: Path) -> None:
    with pytest.raises(LoginRefused, match="cannot be read"):
        ReplicationConnection.open(
            server.arguments("scram", sslmode="verify-full", sslrootcert=str(tmp_path / "none"))
        )


def test_a_server_without_tls_is_refused_where_tls_is_wanted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(8)
                peer.sendall(b"N")
                peer.recv(1)

        refuser = threading.Thread(target=refuse)
        refuser.start()
        arguments = ConnectionArguments(
            host="127.0.0.1", port=listener.getsockname()[1], user="u", sslmode="require"
        )
        with pytest.raises(LoginRefused, match="does not support TLS"):
            ReplicationConnection.open(arguments)
        refuser.join()


# ---- questions and slots


@pytest.mark.parametrize("user", ["scram", "md5"])
def test_a_client_for_opengauss_logs_in_with_the_version_that_postgresql_offers(
    server: PrivateServer, user: str
) -> None:
    arguments = server.arguments(user)
    with GaussConnection.open(arguments, replication=False, settings={}) as connection:
        assert connection.query("SELECT session_user") == [[user]]


def test_the_server_says_who_it_is(connect: Callable[..., ReplicationConnection]) -> None:
    identity = connect("scram").identify()

    assert identity.system_id.isdigit()
    assert (identity.timeline, identity.dbname) == (1, "bank")
    assert identity.xlogpos > 0


def test_a_refused_question_leaves_the_session_usable(
    connect: Callable[..., ReplicationConnection],
) -> None:
    connection = connect()

    with pytest.raises(SourceError, match="query refused"):
        connection.query("SELECT nonsense")
    assert connection.query("SELECT 1, NULL, '账户'; SELECT pg_advisory_lock(7)") == [[""]]


def test_a_question_may_be_given_a_limit(connect: Callable[..., ReplicationConnection]) -> None:
    holder, waiter = connect(), connect()
    holder.query("SELECT pg_advisory_lock(8)")

    with pytest.raises(ConnectionLost, match="does not answer"):
        waiter.query("SELECT pg_advisory_lock(8)", timeout=0.1)


def test_values_travel_in_one_form_whatever_the_server_prefers(
    server: PrivateServer, connect: Callable[..., ReplicationConnection]
) -> None:
    server.execute(
        "ALTER ROLE scram SET datestyle = 'German'",
        "ALTER ROLE scram SET timezone = 'Asia/Tokyo'",
        "ALTER ROLE scram SET lc_monetary = 'POSIX'",  # any other one that each server has
        "ALTER ROLE scram SET quote_all_identifiers = on",
    )

    rows = connect("scram").query(
        "SELECT '2024-02-29 12:00+00'::timestamptz, 0.1::float4, '1 day'::interval, '\\xff'::bytea,"
        " 1234.5::numeric::money, current_setting('lc_monetary'),"
        " 'pg_class'::regclass"
    )

    texts = ["2024-02-29 12:00:00+00", "0.1", "1 day", "\\xff", "$1,234.50", "C", "pg_class"]
    assert rows == [texts]


def test_a_new_slot_exports_what_it_will_not_send(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    server.execute(f"INSERT INTO {name} VALUES (1, 'before')")
    connection = connect()

    created = connection.create_slot(name, "pgoutput")
    server.execute(f"INSERT INTO {name} VALUES (2, 'after')")
    reader = server.admin()
    reader.autocommit = False
    with reader, reader.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(f"SET TRANSACTION SNAPSHOT '{created.snapshot}'")
        cursor.execute(f"SELECT id FROM {name}")
        seen = cursor.fetchall()
    reader.close()
    connection.start(name, options(name))
    streamed = read_until(connection, commits(1))

    assert created.name == name
    assert seen == [(1,)]
    assert [m.new for m in streamed if isinstance(m, Insert)] == [[b"2", b"after"]]
    begin = streamed[0]
    assert isinstance(begin, Begin)
    assert begin.commit_lsn >= created.consistent_point


def test_a_temporary_slot_goes_with_its_session(
    connect: Callable[..., ReplicationConnection], server: PrivateServer, name: str
) -> None:
    connection = connect()

    created = connection.create_slot(name, "pgoutput", temporary=True, snapshot=Snapshot.NONE)

    assert created.snapshot == ""
    admin = server.admin()
    state = catalog.slot_state(admin, name)
    assert state is not None
    assert state.temporary
    connection.close()
    # Its server process may live a moment longer than the connection.
    admin.cursor().execute(f"SELECT pg_terminate_backend({connection.backend_pid}, 10000)")
    assert catalog.slot_state(admin, name) is None
    admin.close()


def test_a_slot_that_exists_is_not_made_again(
    connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    connection.create_slot(name, "pgoutput")

    with pytest.raises(SourceError, match="already exists"):
        connection.create_slot(name, "pgoutput")
    with pytest.raises(SourceError, match="slot not created"):
        connection.create_slot(f"{name}_2", "no_such_plugin")
    connection.drop_slot(name)
    with pytest.raises(SlotMissing):
        connection.drop_slot(name)


def test_a_slot_that_is_not_there_is_missing(
    connect: Callable[..., ReplicationConnection], name: str
) -> None:
    with pytest.raises(SlotMissing) as caught:
        connect().start(name, options(name))

    assert caught.value.where["slot"] == name


def test_a_slot_in_use_is_taken_until_it_is_released(
    connect: Callable[..., ReplicationConnection], name: str
) -> None:
    first, second = connect(), connect()
    first.create_slot(name, "pgoutput")
    first.start(name, options(name))

    with pytest.raises(SlotTaken):
        second.start(name, options(name))
    with pytest.raises(SlotTaken):
        second.drop_slot(name)
    first.close()
    second.drop_slot(name, wait=True)


def test_a_physical_slot_is_a_mismatch(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    server.execute(f"SELECT pg_create_physical_replication_slot('{name}')")

    with pytest.raises(SlotMismatch):
        connect().start(name, options(name))


def test_an_invalidated_slot_is_distinguished_from_others(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    connection.create_slot(name, "pgoutput")
    admin = server.admin()
    state = catalog.slot_state(admin, name)
    assert state is not None
    assert state.safe_bytes is None  # nothing limits what it keeps
    server.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    while state is not None and state.safe_bytes is None:
        state = catalog.slot_state(admin, name)
    assert state is not None
    assert 0 < state.safe_bytes < 1 << 30
    while state is not None and not state.is_invalid:
        server.execute(
            "SELECT pg_logical_emit_message(false, 'x', 'x')",
            "SELECT pg_switch_wal()",
            "CHECKPOINT",
        )
        state = catalog.slot_state(admin, name)
    server.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    admin.close()

    with pytest.raises(SlotInvalid):
        connection.start(name, options(name))


# ---- streams


@pytest.mark.parametrize("sslmode", ["disable", "require"])
def test_real_changes_arrive_in_order(
    server: PrivateServer,
    connect: Callable[..., ReplicationConnection],
    name: str,
    sslmode: str,
) -> None:
    connection = connect(sslmode=sslmode)
    connection.create_slot(name, "pgoutput")
    connection.start(name, options(name))
    large = "€" * 1_000_000
    server.execute(
        f"INSERT INTO {name} SELECT i, 'v' || i FROM generate_series(1, 20000) i",
        f"BEGIN; INSERT INTO {name} VALUES (0, repeat('€', 1000000)); COMMIT",
        f"UPDATE {name} SET id = -1 WHERE id = 1",
        f"DELETE FROM {name} WHERE id = 2",
    )

    messages = read_until(connection, commits(4))

    rows = [message for message in messages if isinstance(message, Insert)]
    assert isinstance(messages[1], Relation)
    assert [row.new for row in rows[:-1]] == [
        [str(i).encode(), f"v{i}".encode()] for i in range(1, 20001)
    ]
    assert rows[-1].new == [b"0", large.encode()]
    assert [m.old for m in messages if isinstance(m, Update)] == [[b"1", None]]
    assert [m.old for m in messages if isinstance(m, Delete)] == [[b"2", None]]


def test_only_what_was_confirmed_is_forgotten(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    first = connect()
    first.create_slot(name, "pgoutput")
    first.start(name, options(name))
    server.execute(f"INSERT INTO {name} VALUES (1, 'a')", f"INSERT INTO {name} VALUES (2, 'b')")
    ends = [m.end_lsn for m in read_until(first, commits(2)) if isinstance(m, Commit)]

    first.send_status(NOTHING)
    first.send_status(ends[0])
    first.close()
    admin = server.admin()
    state = catalog.slot_state(admin, name)
    admin.close()
    second = connect()
    second.start(name, options(name))
    again = read_until(second, commits(1))

    assert state is not None
    assert (state.confirmed_flush, state.active_pid) == (ends[0], None)
    assert [m.new for m in again if isinstance(m, Insert)] == [[b"2", b"b"]]


def test_what_nobody_reads_is_sipped_with_each_status(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    connection.create_slot(name, "pgoutput")
    connection.start(name, options(name))
    server.execute(f"INSERT INTO {name} SELECT i, 'v' || i FROM generate_series(1, 150000) i")
    all_sent = (
        "SELECT sent_lsn >= pg_current_wal_flush_lsn() FROM pg_stat_replication"
        f" JOIN pg_replication_slots ON pid = active_pid WHERE slot_name = '{name}'"
    )

    # 8 MB: more than both sockets hold.  Nobody reads, so the server could not send the rest.
    while server.execute(all_sent) != [(True,)]:
        connection.send_status(NOTHING)
    sipped = [payload for _, _, payload in connection.receive(0).messages]
    messages = [decode(payload) for payload in sipped] + read_until(connection, commits(1))

    assert sum(map(len, sipped)) > 2 * NEAR_BUFFER_BYTES
    rows = [message.new for message in messages if isinstance(message, Insert)]
    assert rows == [[str(i).encode(), f"v{i}".encode()] for i in range(1, 150001)]


def test_a_status_may_ask_for_a_keepalive(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    connection.create_slot(name, "pgoutput")
    connection.start(name, options(name))
    (row,) = server.execute("SELECT pg_logical_emit_message(false, 'x', 'x')")
    end = parse_lsn(str(row[0]))

    seen = NOTHING
    while seen < end:
        connection.send_status(NOTHING, reply=True)
        seen = max(seen, connection.receive(1).keepalive_end)

    assert connection.received_end >= end


def test_another_descriptor_wakes_the_reader(
    connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    connection.create_slot(name, "pgoutput")
    connection.start(name, options(name))
    reading, writing = os.pipe()

    os.write(writing, b"!")
    for _ in range(10):  # the server may say something first
        assert connection.receive(300, [reading]).messages == []
    os.read(reading, 1)
    assert connection.receive(0, [reading]).messages == []
    os.close(reading)
    assert connection.receive(0).messages == []

    os.close(writing)


def test_an_administrator_may_end_the_stream(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    connection.create_slot(name, "pgoutput")
    connection.start(name, options(name))
    server.execute(f"SELECT pg_terminate_backend({connection.backend_pid})")

    with pytest.raises(ConnectionLost) as caught:
        read_until(connection, lambda _: False)

    assert caught.value.where == {"sqlstate": "57P01", "slot": name}
    connection.close()
    connection.close()


def test_a_missing_publication_ends_the_stream_but_is_no_missing_slot(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    connection.create_slot(name, "pgoutput")
    connection.start(name, options("nobody_made_it"))
    server.execute(f"INSERT INTO {name} VALUES (1, 'a')")

    with pytest.raises(SourceError, match="publication") as caught:
        read_until(connection, lambda _: False)

    assert type(caught.value) is SourceError


def test_a_server_that_stops_says_goodbye_after_the_last_change(
    server: PrivateServer, connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    connection.create_slot(name, "pgoutput")
    connection.start(name, options(name))
    server.execute(f"INSERT INTO {name} VALUES (1, 'a')")
    read_until(connection, commits(1))
    stopping = threading.Thread(target=server.stop)
    stopping.start()

    def confirm_all(_: object) -> bool:
        connection.send_status(connection.received_end)  # the server waits for this
        return False

    with pytest.raises(ConnectionLost):
        read_until(connection, confirm_all)
    stopping.join()
    server.start()
    assert connect().query("SELECT 1") == [["1"]]


def test_a_connection_that_streams_answers_nothing_else(
    connect: Callable[..., ReplicationConnection], name: str
) -> None:
    connection = connect()
    with pytest.raises(SourceError, match="not streaming"):
        connection.receive(0)
    connection.create_slot(name, "pgoutput")
    connection.start(name, options(name))

    with pytest.raises(SourceError, match="takes no queries"):
        connection.query("SELECT 1")


# ---- options of pgoutput


def test_the_server_has_the_options_that_the_table_says(server: PrivateServer, name: str) -> None:
    admin = server.admin()
    major = admin.server_version // 10_000
    admin.close()
    for number, option in enumerate(pgoutput_options.OPTIONS):
        slot = f"{name}_{number}"  # the server may still be ending the session before
        with ReplicationConnection.open(server.arguments()) as wire:
            wire.create_slot(slot, "pgoutput", temporary=True, snapshot=Snapshot.NONE)
            given = {**options(name), **({option.name: option.default} if option.default else {})}
            if major >= option.since:
                wire.start(slot, given)
                continue
            with pytest.raises(SourceError):  # it turns to streaming first
                _start_and_read(wire, slot, given)


def _start_and_read(wire: ReplicationConnection, slot: str, given: dict[str, str]) -> None:
    wire.start(slot, given)
    wire.receive(60)


def test_changes_of_an_origin_are_left_out_and_that_is_said(other_postgres: str) -> None:
    name = f"t{uuid.uuid4().hex[:12]}"
    create_database(other_postgres, name)
    url = f"{other_postgres.rsplit('/', 1)[0]}/{name}"
    execute(url, "CREATE TABLE t (id int PRIMARY KEY)")
    given = {"origin": "none"}
    asked = Options(
        parse_dsn(url), name, name, "p", {}, "", include=("public.t",), plugin_options=given
    )
    connection = catalog.connect(asked.source)
    version = connection.server_version
    connection.close()
    if version // 10_000 < pgoutput_options.BY_NAME["origin"].since:
        with pytest.raises(OptionRefused, match="this server's pgoutput does not have"):
            PostgresSource.open(asked, lambda _: None)
        return
    source = PostgresSource.open(asked, lambda _: None)
    notes: list[str] = []
    source.prepare(notes.append)
    source.make_slot()
    assert source.try_take()
    execute(
        url,
        f"SELECT pg_replication_origin_create('{name}');"
        f"SELECT pg_replication_origin_session_setup('{name}');"
        "INSERT INTO t VALUES (1)",
    )
    execute(url, "INSERT INTO t VALUES (2)")
    rows: list[Insert] = []
    while not rows:
        received = source.wire.receive(0.1)
        rows = [m for _, m in source.messages(received.messages) if isinstance(m, Insert)]
    source.close()

    assert [row.new for row in rows] == [[b"2"]]
    assert any("not a full copy" in note for note in notes)
    assert source.fingerprint_inputs()["options"] == {"origin": "none"}
