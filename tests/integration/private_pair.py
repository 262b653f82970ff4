"""A primary and a standby of one test's own, to be promoted.

Of the fetched binaries, of 17 where no version is chosen: standbys synchronize slots from there
on.  They have no pg_basebackup: the standby is a cold copy of the primary's folder.
"""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg2

from gauss_cdc_lab.services import postgres
from gauss_cdc_lab.services.postgres import Postgres
from gauss_cdc_lab.services.process import LOOPBACK, Process, free_ports, poll
from tests.services_fixtures import open_directory

DATABASE = "bank"
SLOT = "standby"  # physical, of the standby


@dataclass
class Server:
    directory: Path
    port: int
    service: Postgres
    process: Process | None = None

    @property
    def data(self) -> Path:
        return self.directory.resolve() / "data"

    @property
    def host(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.host}/{DATABASE}"

    def start(self) -> None:
        command = self.service.command()
        process = replace(
            command,
            arguments=[*command.arguments, "-c", f"unix_socket_directories={self.data}"],
        ).spawn(self.data.parent / "log")
        self.process = process
        assert poll(lambda: self.service.answers() or not process.alive, 120)
        assert process.alive, (self.data.parent / "log").read_text()

    def stop(self, how: int = signal.SIGINT) -> None:
        if self.process is not None:
            self.process.send(signal.Signals(how))
            assert self.process.wait(120)
            self.process = None

    def ask(self, statement: str, *, dbname: str = DATABASE) -> list[tuple[object, ...]]:
        """Run one statement; its rows."""
        connection = psycopg2.connect(
            host=LOOPBACK, port=self.port, user="postgres", dbname=dbname, sslmode="disable"
        )
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def set(self, name: str, value: str) -> None:
        self.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self.ask("SELECT pg_reload_conf()")


@dataclass
class Pair:
    primary: Server
    standby: Server

    def cut_off(self) -> None:
        """Have the standby receive nothing from now on."""
        self.standby.set("primary_conninfo", "")
        alone = "SELECT count(*) FROM pg_stat_wal_receiver"
        assert poll(lambda: self.standby.ask(alone) == [(0,)], 60)

    def wait_for_slot(self, name: str) -> None:
        """Wait until the standby could be promoted with this slot."""
        there = f"""SELECT count(*) FROM pg_replication_slots
            WHERE slot_name = '{name}' AND synced AND NOT temporary"""
        assert poll(lambda: self.standby.ask(there) == [(1,)], 60)

    def promote(self) -> None:
        assert self.standby.ask("SELECT pg_promote()") == [(True,)]


@contextmanager
def private_pair(*tables: str, **settings: str) -> Iterator[Pair]:
    """Start both; `tables` are statements, `settings` the primary's."""
    directory = open_directory()
    chosen = postgres.kind()
    binaries = postgres.binaries("embedded" if chosen in ("auto", "system") else chosen)
    servers = [
        Server(folder, port, Postgres(folder, binaries=binaries, port=port))
        for folder, port in zip(
            (directory / "one", directory / "other"), free_ports(2), strict=True
        )
    ]
    one, other = servers
    try:
        one.service.prepare()
        one.start()
        one.ask(f"CREATE DATABASE {DATABASE}", dbname="postgres")
        for statement in tables:
            one.ask(statement)
        ((version,),) = one.ask("SELECT current_setting('server_version_num')::int")
        one.stop()
        _copy(one, other, ["sync_replication_slots = on"] if version >= 170_000 else [])
        with (one.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        one.start()
        one.ask(f"SELECT pg_create_physical_replication_slot('{SLOT}', true)")
        other.start()
        yield Pair(one, other)
    finally:
        for server in servers:
            server.stop(signal.SIGQUIT)
            postgres.remove_data(server.directory)
        shutil.rmtree(directory, ignore_errors=True)


def _copy(one: Server, other: Server, settings: list[str]) -> None:
    """Make a standby of a stopped server's folder."""
    other.service._make_folder()
    shutil.copytree(one.data, other.data)
    (other.data / "standby.signal").touch()
    conninfo = f"host={LOOPBACK} port={one.port} user=postgres dbname={DATABASE}"
    with (other.data / "postgresql.conf").open("a") as conf:
        conf.write(
            f"primary_conninfo = '{conninfo}'\nprimary_slot_name = '{SLOT}'\n"
            "hot_standby_feedback = on\n"
        )
        conf.writelines(f"{setting}\n" for setting in settings)
    owner = one.data.stat()
    for path in (other.data, *other.data.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    other.data.chmod(0o700)
