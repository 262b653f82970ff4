"""Every login of the family, by our own client; what is refused, and how."""

import ssl
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from gauss_cdc_lab.emulator.login import Account, Line, StoredPassword
from producer.errors import LoginRefused, SourceError
from producer.wire import protocol
from tests.e2e.gauss_facade import PASSWORD, Front, facade
from tests.services_fixtures import drop_database, execute

V3_0, V3_50, V3_51 = protocol.V3_51 - 51, protocol.V3_51 - 1, protocol.V3_51
OLD = 2048  # the count that clients assume where the server does not tell it
ACCOUNTS = [
    Account("sha256", PASSWORD),
    Account("sha256_old", PASSWORD, rounds=OLD),
    Account("combined", PASSWORD, stored=StoredPassword.COMBINED),
    Account("md5", PASSWORD, stored=StoredPassword.MD5),
    Account("md5_in_sha256", PASSWORD, stored=StoredPassword.MD5_OLD),
    Account("sm3", PASSWORD, stored=StoredPassword.SM3, line=Line.SM3),
    Account("md5_sha256", PASSWORD, line=Line.MD5, rounds=OLD),
    Account("plain", PASSWORD, line=Line.PASSWORD),
    Account("trusted", "", line=Line.TRUST),
    Account("rejected", PASSWORD, line=Line.REJECT),
    Account("other", "another"),
]
WITH_51 = [
    *("sha256", "combined", "md5", "md5_in_sha256", "sm3", "md5_sha256", "trusted"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key"), "-out", str(folder / "certificate")),
        ],
        check=True,
        capture_output=True,
    )
    return folder / "certificate"


@pytest.fixture(scope="module")
def front(addresses, certificate: Path) -> Iterator[Front]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key"))
    name = f"t_{uuid.uuid4().hex[:12]}"
    execute(addresses.postgres_url(), f"CREATE DATABASE {name}")
    try:
        with facade(addresses.postgres_url(name), accounts=ACCOUNTS, tls=tls) as found:
            yield found
    finally:
        drop_database(addresses.postgres_url(), name)


@pytest.mark.parametrize("user", WITH_51)
@pytest.mark.parametrize("replication", [False, True])
def test_each_method_lets_us_in(user: str, replication: bool, front: Front) -> None:
    with front.open(user=user, replication=replication) as session:
        assert session.query("SELECT 1 + 1") == [["2"]]
        assert session.parameters["server_version"] == "9.2.4"


@pytest.mark.parametrize("version", [V3_0, V3_50])
@pytest.mark.parametrize("user", ["sha256_old", "combined", "md5"])
def test_older_protocols_know_the_count_only_if_it_is_2048(
    user: str, version: int, front: Front
) -> None:
    if user == "combined" and version == V3_50:  # 10000 rounds, of which nobody tells
        with pytest.raises(LoginRefused):
            front.open(user=user, version=version)
        return
    with front.open(user=user, version=version) as session:
        assert session.query("SELECT 1") == [["1"]]


@pytest.mark.parametrize("user", ["other", "nobody"])
def test_a_wrong_password_and_no_such_user_look_alike(user: str, front: Front) -> None:
    with pytest.raises(LoginRefused, match=r"Invalid username/password,login denied\."):
        front.open(user=user)


def test_a_user_without_a_line_is_refused_by_name(front: Front) -> None:
    with pytest.raises(SourceError, match=r"no pg_hba\.conf entry"):
        front.open(user="rejected")


def test_tls_is_offered(front: Front, certificate: Path) -> None:
    with front.open(user="sha256", sslmode="verify-full", sslrootcert=str(certificate)) as session:
        assert session.is_encrypted
        assert session.query("SELECT 1") == [["1"]]


def test_a_plain_password_goes_over_tls(front: Front, certificate: Path) -> None:
    with front.open(user="plain", sslmode="verify-full", sslrootcert=str(certificate)) as session:
        assert session.query("SELECT 1") == [["1"]]


def test_stock_libpq_gets_in_with_md5_and_not_with_sha256(front: Front) -> None:
    where = {"host": "127.0.0.1", "port": front.emulator.port, "dbname": front.database}
    connection = psycopg2.connect(user="md5", password=PASSWORD, sslmode="disable", **where)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 6 * 7")
        assert cursor.fetchone() == (42,)
    connection.close()

    with pytest.raises(psycopg2.OperationalError, match="SASL"):
        psycopg2.connect(user="sha256", password=PASSWORD, sslmode="disable", **where)


def test_an_ordinary_session_copies_both_ways(front: Front) -> None:
    with front.open(user="sha256") as session:
        session.query("CREATE TEMP TABLE copied (a int, b text)")
        lines = [b"1\tone\n", b"2\t\\N\n"]
        assert session.copy_in("COPY copied FROM STDIN", lines) == 2
        assert list(session.copy_out("COPY copied TO STDOUT")) == lines


def test_an_error_leaves_an_ordinary_session_in_order(front: Front) -> None:
    with front.open(user="sha256") as session:
        with pytest.raises(SourceError, match='relation "nowhere" does not exist'):
            session.query("SELECT 1 FROM nowhere")
        assert session.query("SELECT 3") == [["3"]]


def test_the_product_is_recognised(front: Front) -> None:
    with front.open(user="sha256") as session:
        ((version,),) = session.query("SELECT version()")
        assert version is not None
        assert version.startswith("(openGauss 7.0.0-RC2 build ")
        assert session.server().version == "7.0.0-RC2"
        assert session.query("SHOW sql_compatibility") == [["PG"]]
        assert session.query("SELECT 'version()', \"version\" FROM (SELECT 1 AS version) v") == [
            ["version()", "1"]
        ]
