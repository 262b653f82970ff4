import socket
import threading
import time

import pytest

from producer.drivers.postgres_dial import ConnectionArguments, dial, parse_dsn
from producer.errors import CdcError, ConnectionLost, LoginRefused, SourceError


def test_a_uri_and_a_key_value_string_say_the_same() -> None:
    uri = parse_dsn("postgresql://cdc@db:6000/bank?sslmode=verify-full&sslrootcert=/ca.crt")
    pairs = parse_dsn(
        "user=cdc host=db port=6000 dbname=bank sslmode=verify-full sslrootcert=/ca.crt"
    )

    assert uri == pairs
    assert uri == ConnectionArguments(
        host="db",
        port=6000,
        dbname="bank",
        user="cdc",
        sslmode="verify-full",
        sslrootcert="/ca.crt",
    )


def test_what_is_not_said_has_a_default() -> None:
    assert parse_dsn("postgresql://cdc@") == ConnectionArguments(
        host="localhost", port=5432, dbname="cdc", user="cdc", sslmode="prefer"
    )


def test_the_given_password_wins_and_is_never_printed() -> None:
    arguments = parse_dsn("postgresql://cdc:old@db/bank", "pencil")

    assert arguments.password == "pencil"
    assert "pencil" not in repr(arguments)
    assert parse_dsn("postgresql://cdc:old@db/bank").password == "old"


def test_a_unix_socket_is_named_by_its_path() -> None:
    assert parse_dsn("postgresql://cdc@/bank?host=/run/postgresql").host == "/run/postgresql"


def test_settings_of_libpq_that_change_nothing_are_let_pass() -> None:
    assert parse_dsn("user=cdc keepalives_idle=5 application_name=x").application_name == "x"


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("postgresql://db/bank", "names no user"),
        ("postgresql://cdc@a,b/bank", "several hosts"),
        ("user=cdc sslmode=allow", "unknown sslmode"),
        ("user=cdc target_session_attrs=any", "names=target_session_attrs"),
        ("user=cdc port=x", "must be numbers"),
    ],
)
def test_what_we_would_ignore_is_refused(dsn: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        parse_dsn(dsn)


def test_an_unreadable_dsn_is_not_repeated() -> None:
    with pytest.raises(SourceError) as caught:
        parse_dsn("postgresql://cdc:pencil@db/bank?nonsense")

    assert "pencil" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_psycopg2_is_given_the_same() -> None:
    arguments = parse_dsn("postgresql://cdc@db:6000/bank?sslmode=require", "pencil")

    assert arguments.libpq() == {
        "host": "db",
        "port": 6000,
        "dbname": "bank",
        "user": "cdc",
        "password": "pencil",
        "sslmode": "require",
        "connect_timeout": 10,
        "application_name": "gauss-cdc",
    }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", ConnectionLost),  # hung up
        (b"E", ConnectionLost),  # too many clients, before any login
        (b"N", LoginRefused),
        (b"S", ConnectionLost),  # hung up in the middle of TLS: a server that stops
        (b"Sno TLS at all, but a banner of something else", LoginRefused),
    ],
)
def test_a_server_that_does_not_turn_to_tls(answer: bytes, error: type[CdcError]) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            peer.recv(8)
            peer.sendall(answer)
            if answer == b"S":
                peer.recv(1)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        arguments = ConnectionArguments(
            host="127.0.0.1", port=listening.getsockname()[1], sslmode="require"
        )
        with pytest.raises(error) as caught:
            dial(arguments, time.monotonic() + 10)
    finally:
        thread.join()
        listening.close()

    assert type(caught.value) is error
