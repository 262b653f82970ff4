"""A pooler between `run` and the server is named, whatever it lets through."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gauss_cdc.target import _connect
from gauss_cdc_lab.services.process import LOOPBACK, accepts, free_ports, poll
from producer.errors import Unsupported
from producer.sources.dsn import ConnectionArguments
from producer.sources.postgres import catalog
from producer.sources.postgres.connection import ReplicationConnection
from spark_consumers.sinks.postgres.driver import Refused
from tests import debian
from tests.integration.private_postgres import DATABASE, PrivateServer, private_server

WAYS = {
    "catalog": catalog.connect,
    "queries": partial(ReplicationConnection.open, replication=False),
    "stream": ReplicationConnection.open,
}
EVERYTHING = "options, replication, DateStyle, IntervalStyle, search_path, bytea_output"


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server() as server:
        yield server


@contextmanager
def pooler(server: PrivateServer, folder: Path, ignored: str) -> Iterator[ConnectionArguments]:
    """A PgBouncer before the server; the arguments to reach it by."""
    program = debian.file("usr/sbin/pgbouncer", "pgbouncer")
    library = debian.file("usr/lib/*/libcares.so.2", "libc-ares2")
    if program is None or library is None:
        pytest.skip("Debian's pgbouncer cannot be had")
    (port,) = free_ports(1)
    folder.chmod(0o755)
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{DATABASE} = host={LOOPBACK} port={server.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = {LOOPBACK}\nlisten_port = {port}\nauth_type = any\n"
        f"pool_mode = transaction\nunix_socket_dir =\nignore_startup_parameters = {ignored}\n"
    )
    words = [str(program), *(["-u", "nobody"] if os.geteuid() == 0 else []), str(settings)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        try:
            assert poll(lambda: accepts(port), 60), (folder / "log").read_text()
            yield ConnectionArguments(host=LOOPBACK, port=port, dbname=DATABASE, user="postgres")
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ignored", ["extra_float_digits", EVERYTHING])
def test_a_pooler_is_named(server: PrivateServer, tmp_path: Path, ignored: str, way: str) -> None:
    with pooler(server, tmp_path, ignored) as arguments, pytest.raises(Unsupported) as raised:
        WAYS[way](arguments).close()

    assert raised.value.hint.startswith("PgBouncer and its like keep no session")


@pytest.mark.parametrize("ignored", ["extra_float_digits", EVERYTHING])
def test_a_target_behind_one_is_refused(
    server: PrivateServer, tmp_path: Path, ignored: str
) -> None:
    """What `apply` sets for its session would hold for another one, or for none."""
    with pooler(server, tmp_path, ignored) as arguments, pytest.raises(Refused) as raised:
        _connect(arguments)

    assert raised.value.hint.startswith("PgBouncer and its like keep no session")
    assert isinstance(raised.value.sqlstate, str), "it is not tried again"


@pytest.mark.parametrize("way", WAYS)
def test_the_server_itself_is_none(server: PrivateServer, way: str) -> None:
    WAYS[way](server.arguments()).close()
    _connect(server.arguments()).close()
