"""A PostgreSQL server of one test module's own: its logins, TLS and settings may be bent."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from gauss_cdc_lab.services import postgres
from gauss_cdc_lab.services.postgres import Postgres
from gauss_cdc_lab.services.process import LOOPBACK, Process, free_ports, poll
from producer.sources.postgres.connection import ConnectionArguments
from tests.services_fixtures import open_directory

PASSWORD = "pencil"
_SESSIONS_REMAIN = "pre-existing shared memory block"  # of a server that was killed; they end soon
DATABASE = "bank"

# user, what the server asks of it
LOGINS = """
host    all postgres 127.0.0.1/32 trust
host    all scram    127.0.0.1/32 scram-sha-256
host    all md5      127.0.0.1/32 md5
host    all clear    127.0.0.1/32 password
host    all plain    127.0.0.1/32 scram-sha-256
host    all full     127.0.0.1/32 scram-sha-256
host    all rejected 127.0.0.1/32 reject
local   all all                   trust
"""


@dataclass
class PrivateServer:
    directory: Path
    port: int
    service: Postgres
    process: Process | None = None
    authorities: Path = field(default=Path())

    @property
    def data(self) -> Path:
        return (self.directory / "postgres").resolve() / "data"

    def start(self) -> None:
        command = self.service.command()
        sockets = f"unix_socket_directories={self.data}"
        command = replace(command, arguments=[*command.arguments, "-c", sockets])
        log = self.directory / "log"
        self.process = process = command.spawn(log)

        def is_decided() -> bool:
            nonlocal process
            last = "".join(log.read_text().splitlines()[-3:])
            if not process.alive and _SESSIONS_REMAIN in last:
                self.process = process = command.spawn(log)
                return False
            return not process.alive or self.service.answers()

        assert poll(is_decided, 120)
        assert process.alive, log.read_text()

    def stop(self) -> None:
        if self.process is not None:
            self.process.send(self.service.stop_signal)
            assert self.process.wait(120)

    def arguments(self, user: str = "postgres", **more: object) -> ConnectionArguments:
        return replace(
            ConnectionArguments(
                host=LOOPBACK, port=self.port, dbname=DATABASE, user=user, password=PASSWORD
            ),
            **more,
        )

    def admin(self, dbname: str = DATABASE) -> Connection:
        connection = psycopg2.connect(
            host=LOOPBACK, port=self.port, user="postgres", dbname=dbname, sslmode="disable"
        )
        connection.autocommit = True
        return connection

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements, each its own transaction; the rows of the last."""
        connection = self.admin()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()


@contextmanager
def private_server() -> Iterator[PrivateServer]:
    directory = open_directory()
    (port,) = free_ports(1)
    service = Postgres(directory / "postgres", binaries=postgres.binaries(), port=port)
    server = PrivateServer(directory, port, service)
    try:
        service.prepare()
        server.authorities = _certify(server)
        server.start()
        _prepare_logins(server)
        yield server
    finally:
        server.stop()
        postgres.remove_data(directory / "postgres")
        shutil.rmtree(directory, ignore_errors=True)


def _certify(server: PrivateServer) -> Path:
    """Make the server's certificate, for `localhost` only; the file to trust it by."""
    certificate, key = server.directory / "server.crt", server.data / "server.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    shutil.copy(certificate, server.data / "server.crt")
    owner = server.data.stat()
    for name in ("server.crt", "server.key"):
        os.chown(server.data / name, owner.st_uid, owner.st_gid)
        (server.data / name).chmod(0o600)
    with (server.data / "postgresql.conf").open("a") as conf:
        conf.write("ssl = on\n")
    return certificate


def _prepare_logins(server: PrivateServer) -> None:
    admin = server.admin("postgres")
    with admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        for user in ("scram", "clear", "plain", "rejected", "full", "nobody"):
            rights = "" if user == "plain" else "REPLICATION"
            cursor.execute(f"CREATE ROLE {user} LOGIN {rights} PASSWORD '{PASSWORD}'")
        cursor.execute("ALTER ROLE full CONNECTION LIMIT 0")
        cursor.execute("SET password_encryption = md5")
        cursor.execute(f"CREATE ROLE md5 LOGIN REPLICATION PASSWORD '{PASSWORD}'")
        (server.data / "pg_hba.conf").write_text(LOGINS)
        cursor.execute("SELECT pg_reload_conf()")
    admin.close()
    # What the file holds is not yet in force: ask by a login that it refuses.
    assert poll(lambda: _is_rejected(server), 60)


def _is_rejected(server: PrivateServer) -> bool:
    try:
        psycopg2.connect(host=LOOPBACK, port=server.port, user="rejected", dbname=DATABASE).close()
    except psycopg2.OperationalError:
        return True
    return False
