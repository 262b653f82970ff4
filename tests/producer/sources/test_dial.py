import socket
import threading
import time
from pathlib import Path

import pytest

from producer.errors import CdcError, ConnectionLost, LoginRefused, SourceError
from producer.sources.dial import NEAR_BUFFER_BYTES, ConnectionArguments, dial, parse_dsn
from producer.sources.hosts import targets


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
        host="localhost", port=5432, dbname="cdc", user="cdc"
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
        ("user=cdc sslmode=allow", "sslmode 'allow' is unknown"),
        ("user=cdc target_session_attrs=any", "name=target_session_attrs"),
        ("user=cdc port=x", "port must be a number"),
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

    given = arguments.libpq()

    assert (
        given
        | {
            "host": "db",
            "port": 6000,
            "dbname": "bank",
            "user": "cdc",
            "password": "pencil",
            "sslmode": "require",
            "connect_timeout": 10,
            "application_name": "gauss-cdc",
            "keepalives": 1,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
            "ssl_min_protocol_version": "TLSv1.2",
        }
        == given
    )


SETTINGS = {
    "sslmode": "require",
    "ssl_min_protocol_version": "TLSv1.3",
    "ssl_max_protocol_version": "TLSv1.3",
    "require_auth": "scram-sha-256",
    "channel_binding": "require",
    "connect_timeout": 7,
    "keepalives_idle": 41,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 9_000,
    "options": "-c lock_timeout=3s",
    "application_name": "mine",
    "hostaddr": "127.0.0.1",
}


def test_every_setting_of_the_dsn_reaches_psycopg2() -> None:
    dsn = " ".join(f"{name}='{value}'" for name, value in SETTINGS.items())

    given = parse_dsn(f"user=cdc host=db {dsn}").libpq()

    assert {name: given[name] for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize(
    ("dsn", "asked"),
    [
        ("host=db sslmode=disable", "!password"),
        ("host=db sslmode=prefer", "!password"),  # whoever stands between says: no TLS
        ("host=127.0.0.1 sslmode=disable", "!password"),
        ("host=127.0.0.1", None),
        ("host=/run/postgresql sslmode=disable", None),
        ("host=db sslmode=require", None),
        ("host=db sslmode=disable require_auth=md5", "md5"),
    ],
)
def test_no_password_in_clear_text_where_tls_is_not_certain(dsn: str, asked: str | None) -> None:
    assert parse_dsn(f"user=cdc {dsn}").libpq().get("require_auth") == asked


def test_psycopg2_takes_nothing_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGSSLMODE": "disable",
        "PGHOSTADDR": "192.0.2.1",
        "PGPASSWORD": "pencil",
        "PGSSLCERT": "/none",
        "PGOPTIONS": "-c statement_timeout=1",
        "PGTARGETSESSIONATTRS": "standby",
    }.items():
        monkeypatch.setenv(name, value)

    given = parse_dsn("postgresql://cdc@db/bank").libpq()

    assert given["sslmode"] == "verify-full"
    assert [given[n] for n in ("hostaddr", "password", "sslcert", "options")] == [""] * 4
    assert given["target_session_attrs"] == "any"


@pytest.mark.parametrize(
    ("host", "mode"),
    [
        ("db.example.com", "verify-full"),
        ("192.0.2.7", "verify-full"),
        ("10.0.0.1", "verify-full"),
        ("2001:db8::1", "verify-full"),
        ("127.0.0.1.example.com", "verify-full"),
        ("localhost.example.com", "verify-full"),
        ("localhost", "prefer"),
        ("127.1.2.3", "prefer"),
        ("::1", "prefer"),
        ("/run/postgresql", "prefer"),
    ],
)
def test_off_this_machine_the_certificate_is_verified(host: str, mode: str) -> None:
    for arguments in (
        parse_dsn(f"user=cdc host={host}"),
        # The name is what the certificate is checked by, the address is where packets go.
        parse_dsn(f"user=cdc host=localhost hostaddr={host}")
        if host[0].isdigit() and not host.endswith("com")
        else parse_dsn(f"user=cdc host={host}"),
    ):
        assert arguments.mode == mode
        assert arguments.libpq()["sslmode"] == mode


def test_less_than_verified_is_said_explicitly() -> None:
    assert parse_dsn("user=cdc host=db sslmode=disable").mode == "disable"
    assert parse_dsn("user=cdc host=localhost sslmode=verify-full").mode == "verify-full"


def test_each_host_of_a_cluster_has_its_own_default() -> None:
    local = parse_dsn("user=cdc host=localhost")

    assert [at.mode for at in targets(local, ["localhost:1", "db1:1", "10.0.0.1:1"])] == [
        "prefer",
        "verify-full",
        "verify-full",
    ]


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("user=cdc sslmod=require", "did you mean sslmode?"),
        ("postgresql://cdc@db/bank?require_aut=none", "did you mean require_auth?"),
        ("postgresql://cdc@db/bank?ssl%6Dod=x", "did you mean sslmode?"),
        ("user=cdc service=x", "service file"),
        ("user=cdc passfile=/x", "password-file"),
        ("user=cdc gssencmode=require", "gssencmode"),
        ("user=cdc sslnegotiation=direct", "sslnegotiation"),
        ("user=cdc client_encoding=LATIN1", "client_encoding"),
        ("user=cdc requirepeer=root", "requirepeer"),
        ("user=cdc require_auth=sms", "require_auth"),
        ("user=cdc require_auth=!md5,none", "negates"),
        ("user=cdc channel_binding=require require_auth=md5", "scram-sha-256"),
        ("user=cdc ssl_min_protocol_version=TLSv1", "insecure"),
        ("user=cdc ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2", "below"),
        ("user=cdc keepalives_idle=0", "keepalives_idle must be"),
        ("user=cdc host=db sslrootcert=system sslmode=verify-ca", "verify-full"),
        ("user=cdc sslkey=/k", "without sslcert"),
        ("user=cdc host=db hostaddr=10.0.0.1,10.0.0.2", "several hosts"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(dsn: str, said: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_dsn(dsn)

    assert said in str(caught.value)


@pytest.mark.parametrize("setting", ["sslrootcert", "sslcrl", "sslcrldir", "sslcert"])
def test_a_file_that_is_not_there_is_refused_by_both_clients(tmp_path: Path, setting: str) -> None:
    missing = str(tmp_path / "none")
    arguments = parse_dsn(f"user=cdc host=db sslmode=verify-full {setting}={missing}")

    with pytest.raises(LoginRefused, match=setting):
        arguments.check_files()
    with pytest.raises(LoginRefused, match=setting):
        arguments.libpq()


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_text("")
    (tmp_path / "both.pem").chmod(0o644)
    arguments = parse_dsn(f"user=cdc host=db sslcert={tmp_path / 'both.pem'}")

    with pytest.raises(LoginRefused, match="others may read"):
        arguments.libpq()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_near_server_s_buffer_is_small_from_the_beginning(host: str) -> None:
    """Another host of the same network is seen by its handshake, and connected to again.

    A handshake that a busy machine delayed is of a far one: it is made again here.
    """
    with socket.create_server((host, 0), backlog=128) as server, socket.socket() as fresh:
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NEAR_BUFFER_BYTES)
        near = fresh.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        port = server.getsockname()[1]
        arguments = ConnectionArguments(host=host, port=port, user="u", sslmode="disable")
        for _ in range(50):
            link = dial(arguments, time.monotonic() + 10)
            if link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == near:
                break
            link.close()
        mine = link.sock.getsockname()
        assert link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == near

        peer, address = server.accept()
        while address != mine:  # the first one was closed without a word
            assert peer.recv(1) == b""
            peer.close()
            peer, address = server.accept()
        peer.close()
        link.close()


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
