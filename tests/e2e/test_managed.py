"""A PostgreSQL whose roles are shaped like a provider's: what docs/managed.md says, and the path.

What the provider's own server does (a member of rds_replication may open a stream) is done here by
its superuser, whom nobody else is.
"""

import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest

from gauss_cdc_lab.services.process import poll
from producer.core.ports import Wish
from producer.sources import requests
from producer.sources.password_command import PasswordCommand
from producer.sources.postgres import catalog
from producer.sources.postgres.checks import check_source
from producer.sources.postgres.managed import SERVICES, Provider
from schemas.findings import Finding, Level
from schemas.tables import TableId
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.test_roles import printed
from tests.integration.private_postgres import PASSWORD, PrivateServer, private_server
from tests.tree import ROOT

STATEMENTS = printed(ROOT / "docs" / "managed.md")["managed-source"]
LOGINS = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
TABLES = ("account", "transfer")


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    """The administrator `master` owns both databases, and is no superuser."""
    with private_server() as running:
        (running.data / "pg_hba.conf").write_text(LOGINS)
        running.execute(
            "SELECT pg_reload_conf()",
            f"CREATE ROLE master LOGIN CREATEROLE CREATEDB PASSWORD '{PASSWORD}'",
            "ALTER DATABASE bank OWNER TO master",
            "CREATE DATABASE copy OWNER master",
        )
        assert poll(lambda: may_log_in(running), 60)  # pg_hba.conf is read a moment later
        yield running


def may_log_in(server: PrivateServer) -> bool:
    try:
        as_master(server)
    except psycopg2.OperationalError:
        return False
    return True


def as_master(server: PrivateServer, *statements: str, database: str = "bank") -> None:
    login = server.arguments("master", dbname=database).libpq()
    with closing(psycopg2.connect(**login)) as session, session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _is_copied(path: Path, table: str) -> bool:
    path.applier.drain()
    return bool(ask(path.target, "SELECT to_regclass(%s) IS NOT NULL", table)[0][0])


def found(path: Path) -> list[Finding]:
    with closing(catalog.connect(path.options.source)) as session:
        return list(check_source(path.options, session, fix=False))


def as_service(server: PrivateServer, service: Provider) -> None:
    """Leave the server with the roles of one service."""
    for other in SERVICES:
        server.execute(f"DROP ROLE IF EXISTS {other.role}")
    server.execute(f"CREATE ROLE {service.role}")


@pytest.fixture(scope="module")
def path(server: PrivateServer, addresses) -> Iterator[Path]:
    """The role logs in by what a command prints; `gauss_cdc` is what the administrator made."""
    prefix = f"m{uuid.uuid4().hex[:12]}"
    as_master(
        server,
        "CREATE TABLE account (id int PRIMARY KEY, owner text)",
        "CREATE TABLE transfer (id int PRIMARY KEY, account int, at timestamptz DEFAULT now())",
        "INSERT INTO account SELECT n, 'owner ' || n FROM generate_series(1, 500) n",
        *STATEMENTS,
    )
    server.execute("ALTER ROLE cdc_source REPLICATION")
    as_master(
        server,
        f"CREATE ROLE cdc_target LOGIN PASSWORD '{PASSWORD}'",
        "GRANT CREATE ON DATABASE copy TO cdc_target; GRANT cdc_target TO CURRENT_USER",
        "CREATE SCHEMA gauss_cdc AUTHORIZATION cdc_target;"
        " GRANT CREATE ON SCHEMA public TO cdc_target",
        database="copy",
    )
    (password,) = {line.split("'")[1] for line in STATEMENTS[0].splitlines() if "PASSWORD" in line}
    token = PasswordCommand((sys.executable, "-c", f"print({password!r})"))
    urls = [f"postgresql://postgres@127.0.0.1:{server.port}/{name}" for name in ("bank", "copy")]
    target = server.arguments("cdc_target", dbname="copy").libpq()
    sink = PostgresSink(lambda: psycopg2.connect(**target), prefix)
    with Path(addresses, prefix, *urls, sink) as path:
        login = server.arguments("cdc_source", password=None, password_command=token)
        path.options = replace(
            path.options, source=login, publication="gauss_cdc", include=("public.*",),
            repair="auto",
        )  # fmt: skip
        yield path


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.role)
def test_check_knows_the_service_and_says_nothing_that_cannot_be_done_there(
    server: PrivateServer, path: Path, service: Provider
) -> None:
    as_service(server, service)
    findings = found(path)

    assert [f.what for f in findings if f.level is Level.ERROR] == []
    assert [f.what for f in findings if f.subject == "service"] == [
        f"{service.name}: see docs/managed.md for its recipe"
    ]
    assert [f.what for f in findings if f.subject == "slot"] == [service.warning] * bool(
        service.warning
    )
    hints = " ".join(f.hint for f in findings)
    assert "superuser" not in hints
    assert "ALTER SYSTEM" not in hints


def test_the_whole_path_is_equal_without_a_superuser(server: PrivateServer, path: Path) -> None:
    path.start()
    path.catch_up()
    as_master(
        server,
        "INSERT INTO transfer SELECT n, n FROM generate_series(1, 100) n",
        "UPDATE account SET owner = 'another' WHERE id % 7 = 0",
        "ALTER TABLE account ADD COLUMN note text",
        "UPDATE account SET note = 'x' WHERE id = 7",
        "CREATE TABLE later (id int PRIMARY KEY)",
        "INSERT INTO later VALUES (1)",
        "ALTER PUBLICATION gauss_cdc ADD TABLE later",
    )
    until(lambda: _is_copied(path, "later"), "the table that joined", pause)
    with closing(catalog.connect(path.options.source)) as connection:
        session = catalog.QueryingConnection(connection)
        requests.ask(session, path.options.slot, [Wish(TableId("public", "account"))])
        until(lambda: not requests.requests(session, path.options.slot), "the re-read", pause)
    ledger = path.catch_up()

    assert (ledger.state, dict(ledger.inexact)) == ("EXACT", {})
    for table in (*TABLES, "later"):
        assert content(path.target, table) == content(path.source, table)
