"""TLS and logins against a real server: our own wire and psycopg2 decide alike."""

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg2
import pytest

from gauss_cdc.target import _connect
from gauss_cdc_lab.services.process import LOOPBACK, poll
from producer.errors import LoginRefused
from producer.sources.dsn import ConnectionArguments, parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.connection import ReplicationConnection
from producer.wire import protocol
from spark_consumers.sinks.postgres.driver import Refused
from tests.certificates import Certificate, authority, self_signed, written
from tests.integration.private_postgres import (
    DATABASE,
    LOGINS,
    PASSWORD,
    PrivateServer,
    private_server,
)

NAME = "db.test"  # connected to by hostaddr: what the certificate is checked by


@dataclass
class Tls:
    """A server whose certificate can be changed, and the files a client needs."""

    server: PrivateServer
    folder: Path
    root: Certificate
    served: bytes = b""

    def serve(self, certificate: Certificate) -> None:
        """Let new connections see this certificate."""
        if certificate.der == self.served:
            return
        data = self.server.data
        owner = data.stat()
        for name, text in (
            ("server.key", certificate.key_pem()),
            ("server.crt", certificate.pem),
        ):
            path = written(data / name, text)
            os.chown(path, owner.st_uid, owner.st_gid)
        self.server.execute("SELECT pg_reload_conf()")
        assert poll(lambda: self._seen() == certificate.der, 60)
        self.served = certificate.der

    def _seen(self) -> bytes:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection((LOOPBACK, self.server.port), 60) as plain:
            plain.sendall(protocol.ssl_request())
            assert plain.recv(1) == b"S"
            with context.wrap_socket(plain) as encrypted:
                return encrypted.getpeercert(binary_form=True) or b""

    def arguments(self, user: str = "scram", **settings: str) -> ConnectionArguments:
        """Settings as from a dsn."""
        said = {
            "host": NAME,
            "hostaddr": LOOPBACK,
            "port": str(self.server.port),
            "dbname": DATABASE,
            "user": user,
            "sslmode": "verify-full",
            "sslrootcert": str(self.folder / "root.crt"),
            **settings,
        }
        return parse_dsn(" ".join(f"{k}='{v}'" for k, v in said.items()), PASSWORD)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    root, folder = authority(), tmp_path_factory.mktemp("tls")
    with private_server() as server:
        made = Tls(server, folder, root)
        client = root.issue("cert")
        written(folder / "root.crt", root.pem)
        written(folder / "client.crt", client.pem)
        written(folder / "client.key", client.key_pem())
        written(folder / "locked.key", client.key_pem("key pencil"))
        stranger = authority("Other Authority").issue("cert")
        written(folder / "stranger.crt", stranger.pem)
        written(folder / "stranger.key", stranger.key_pem())
        written(server.data / "root.crt", root.pem, mode=0o644)
        (server.data / "pg_hba.conf").write_text(
            f"hostssl all cert 127.0.0.1/32 cert\n{LOGINS}",
        )
        server.execute(
            f"CREATE ROLE cert LOGIN REPLICATION PASSWORD '{PASSWORD}'",
            "ALTER SYSTEM SET ssl_ca_file = 'root.crt'",
            "SELECT pg_reload_conf()",
        )
        yield made


@pytest.fixture
def good(tls: Tls) -> Certificate:
    certificate = tls.root.issue(NAME, NAME)
    if not tls.served:
        tls.serve(certificate)
    return certificate


Login = Callable[[ConnectionArguments], object]


def by_our_wire(arguments: ConnectionArguments) -> None:
    ReplicationConnection.open(arguments).close()


def by_psycopg2(arguments: ConnectionArguments) -> None:
    """As a source's catalog is read; libpq must refuse what it refuses, and no one else."""
    catalog.connect(arguments).close()
    with closing(psycopg2.connect(**arguments.libpq())) as connection:
        assert connection.info.ssl_in_use


BOTH = pytest.mark.parametrize("log_in", [by_our_wire, by_psycopg2])


def refused(log_in: Login, arguments: ConnectionArguments) -> str:
    """Say why both refuse: libpq by itself, and each of ours by the right class."""
    if log_in is by_psycopg2:
        with pytest.raises(psycopg2.OperationalError):
            psycopg2.connect(**arguments.libpq())
        with pytest.raises(Refused) as stopped:
            _connect(arguments)
        assert stopped.value.sqlstate is not None  # no retry mends it
        assert PASSWORD not in stopped.value.hint
    with pytest.raises(LoginRefused) as caught:
        log_in(arguments)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


# ---- what the server shows


@BOTH
@pytest.mark.parametrize("kind", ["expired", "self-signed", "wrong name", "stranger", "revoked"])
def test_a_certificate_that_is_not_right_is_refused_with_the_way_out(
    tls: Tls, log_in: Login, kind: str
) -> None:
    more = {}
    match kind:
        case "expired":
            certificate = tls.root.issue(NAME, NAME, expired=True)
        case "self-signed":
            certificate = self_signed(NAME, NAME)
        case "wrong name":
            certificate = tls.root.issue("db.other", "db.other", LOOPBACK)
        case "stranger":
            certificate = authority("Other Authority").issue(NAME, NAME)
        case _:
            certificate = tls.root.issue(NAME, NAME)
            revoked = written(tls.folder / "revoked.crl", tls.root.revoked(certificate))
            more["sslcrl"] = str(revoked)
    tls.serve(certificate)

    said = refused(log_in, tls.arguments(**more))

    assert "not trusted" in said
    assert "sslrootcert=FILE" in said
    assert "or choose less: sslmode=" in said
    log_in(tls.arguments(sslmode="require", sslrootcert=""))  # explicitly less


@BOTH
def test_a_good_certificate_is_taken(tls: Tls, log_in: Login) -> None:
    certificate = tls.root.issue(NAME, NAME)
    tls.serve(certificate)
    none_of_it = written(tls.folder / "empty.crl", tls.root.revoked())

    log_in(tls.arguments())
    log_in(tls.arguments(sslcrl=str(none_of_it)))
    log_in(tls.arguments(ssl_min_protocol_version="TLSv1.3"))
    log_in(tls.arguments(channel_binding="require", require_auth="scram-sha-256"))


# ---- who logs in, and how


@BOTH
def test_a_wrong_password_stops(tls: Tls, good: Certificate, log_in: Login) -> None:
    tls.serve(good)
    arguments = replace(tls.arguments(), password="wrong-one")

    said = refused(log_in, arguments)

    assert "28P01" in said
    assert "wrong-one" not in said


@BOTH
@pytest.mark.parametrize(
    ("user", "asked"),
    [("md5", "scram-sha-256"), ("clear", "!password"), ("postgres", "scram-sha-256,md5")],
)
def test_a_method_that_is_not_wanted_is_refused(
    tls: Tls, good: Certificate, log_in: Login, user: str, asked: str
) -> None:
    tls.serve(good)

    assert "require_auth" in refused(log_in, tls.arguments(user, require_auth=asked))


@BOTH
def test_a_password_in_clear_text_is_sent_by_tls_only(
    tls: Tls, good: Certificate, log_in: Login
) -> None:
    tls.serve(good)

    assert "password" in refused(log_in, tls.arguments("clear", sslmode="disable"))
    log_in(tls.arguments("clear"))


@BOTH
@pytest.mark.parametrize("user", ["md5", "clear", "postgres"])
def test_a_login_that_cannot_be_bound_is_refused(
    tls: Tls, good: Certificate, log_in: Login, user: str
) -> None:
    tls.serve(good)

    assert "channel_binding" in refused(log_in, tls.arguments(user, channel_binding="require"))


@BOTH
def test_a_login_by_certificate(tls: Tls, good: Certificate, log_in: Login) -> None:
    tls.serve(good)
    mine = {"sslcert": str(tls.folder / "client.crt"), "sslkey": str(tls.folder / "client.key")}
    locked = mine | {"sslkey": str(tls.folder / "locked.key")}

    log_in(tls.arguments("cert", **mine, require_auth="none"))
    log_in(replace(tls.arguments("cert", **locked), sslpassword="key pencil"))
    refused(log_in, tls.arguments("cert"))
    refused(log_in, tls.arguments("cert", **locked))
    refused(log_in, replace(tls.arguments("cert", **locked), sslpassword="wrong"))


@BOTH
def test_a_certificate_that_the_server_does_not_know_is_no_passing_error(
    tls: Tls, good: Certificate, log_in: Login
) -> None:
    tls.serve(good)
    theirs = {
        name: str(tls.folder / f"stranger.{name[3:].replace('cert', 'crt')}")
        for name in ("sslcert", "sslkey")
    }

    refused(log_in, tls.arguments("cert", **theirs))


def test_settings_of_the_dsn_are_the_session_s_whichever_client_makes_it(
    tls: Tls, good: Certificate
) -> None:
    tls.serve(good)
    arguments = tls.arguments(options="-c lock_timeout=3s -c work_mem=5MB", application_name="mine")
    asked = "SELECT current_setting('work_mem'), current_setting('application_name')"

    with ReplicationConnection.open(arguments, replication=False) as wire:
        ours = wire.query(asked)
    with closing(catalog.connect(arguments)) as source, closing(_connect(arguments)) as target:
        theirs = []
        for connection in (source, target):
            with connection.cursor() as cursor:
                cursor.execute(asked)
                theirs.append([list(row) for row in cursor.fetchall()])

    assert ours == [["5MB", "mine"]]
    assert theirs == [ours, ours]


def test_silence_is_found_by_both_clients_in_the_same_time(tls: Tls, good: Certificate) -> None:
    tls.serve(good)
    arguments = tls.arguments(
        keepalives_idle="41", keepalives_interval="7", keepalives_count="5", tcp_user_timeout="9000"
    )
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")

    def times(descriptor: int) -> list[int]:
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            return [
                sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                *(sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names),
            ]

    with ReplicationConnection.open(arguments) as wire, closing(_connect(arguments)) as theirs:
        assert times(wire.fileno()) == times(theirs.fileno()) == [1, 41, 7, 5, 9000]


def test_a_connection_says_how_it_is_protected(tls: Tls, good: Certificate) -> None:
    tls.serve(good)

    def said(**settings: str) -> str:
        with ReplicationConnection.open(tls.arguments(**settings)) as session:
            return session.protection

    assert said() == "TLSv1.3, verified, scram-sha-256"
    assert said(sslmode="require", sslrootcert="", user="md5") == "TLSv1.3, not verified, md5"
    assert said(sslmode="disable") == "not encrypted, scram-sha-256"
    assert said(sslmode="verify-ca", user="postgres") == (
        "TLSv1.3, authority verified, name not, no password asked"
    )
