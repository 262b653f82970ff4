"""Real services and one Spark session, started once a run, when first asked for.

Workers of a run have a PostgreSQL each, and one broker and one registry together: a Java takes as
long to warm up as the tests of a worker to ask it.

Containers by testcontainers where a Docker engine answers, else processes from packages;
GAUSS_CDC_SERVICES decides where it is set.  The head of the run says which.
"""

import fcntl
import gc
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from psycopg2 import sql

from gauss_cdc.runtime import jars
from gauss_cdc_lab.services import (
    Addresses,
    LocalServices,
    docker,
    postgres,
    running,
    spark_confs,
    use_java,
)
from gauss_cdc_lab.services.kept import choice
from gauss_cdc_lab.services.process import poll
from spark_consumers.sinks.lakes import places
from spark_consumers.spark import daemon
from tests import debian
from tests.bucket import Bucket, served_bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_directory() -> Path:
    """A temporary folder that PostgreSQL's user may enter when root runs the tests."""
    directory = Path(tempfile.mkdtemp(prefix="gauss-cdc-test-"))
    directory.chmod(0o711)
    return directory


_VARIABLE = "GAUSS_CDC_SERVICES"
_WHY = "GAUSS_CDC_WHY_NO_CONTAINERS"  # of the run that started the workers
_SHARED = "GAUSS_CDC_TESTS_FOLDER"  # of broker and registry of a run's workers
_KINDS = {
    "embedded": "processes from packages",
    "docker": "containers by testcontainers",
    "external": "those of the environment",
}


def pytest_configure(config: pytest.Config) -> None:
    """Choose, for the workers of the run, too."""
    if _VARIABLE not in os.environ:
        os.environ[_WHY] = docker.why_not()
        os.environ[_VARIABLE] = "embedded" if os.environ[_WHY] else "docker"
    has_workers = getattr(config.option, "numprocesses", None)
    if has_workers and choice() == "embedded" and not hasattr(config, "workerinput"):
        os.environ[_SHARED] = str(open_directory())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what the workers started together; they have ended."""
    if not hasattr(config, "workerinput") and (folder := os.environ.pop(_SHARED, None)):
        LocalServices(Path(folder), keep=True).remove()


def _of_all_workers(folder: Path) -> Addresses:
    """Broker and registry, which the first worker that asks for them starts."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        services = LocalServices(folder, keep=True)
        services.start("kafka")
        return services.start("registry")


def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """After a test that was ended in the middle of a call of Java, that answer is read by nobody.

    A time limit raises within py4j, which only closes its connection after an Exception: each call
    of a later test would read the answer of the one before.
    """
    if call.excinfo is not None and not isinstance(call.excinfo.value, Exception):
        forget_answers()


def forget_answers() -> None:
    """Close this thread's connection with Java, if there is one; the next call makes another."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        client: Any = SparkContext._gateway._gateway_client
        if (connection := client.get_thread_connection()) is not None:
            client.deque.remove(connection)
            connection.close()


def pytest_report_header() -> str:
    why = os.environ.get(_WHY)
    return f"services: {_KINDS[choice()]}" + (f" ({why})" if why else "")


def _let_go() -> None:
    """End clients that errors of tests still hold: they would write that the broker is gone."""
    gc.collect()


@pytest.fixture(scope="session")
def _services() -> Iterator[tuple[LocalServices | None, Addresses]]:
    directory = open_directory()
    try:
        if choice() == "embedded":
            services = LocalServices(directory)
            try:
                if (folder := os.environ.get(_SHARED)) is None:
                    addresses = services.start()
                else:
                    there = _of_all_workers(Path(folder))
                    addresses = replace(
                        services.start("postgres"),
                        kafka_bootstrap=there.kafka_bootstrap,
                        registry_url=there.registry_url,
                    )
                yield services, addresses
                _let_go()
            finally:
                services.remove()
        else:
            with running(directory) as addresses:
                yield None, addresses
                _let_go()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def services(
    request: pytest.FixtureRequest,
) -> Iterator[LocalServices]:
    """Services as processes that a test may stop, kill and start again (do start them).

    Those of this worker, or beside containers: whoever asks takes the addresses from here.
    """
    if choice() == "embedded":
        local, _ = request.getfixturevalue("_services")
        local.start()
        yield local
        return
    directory = open_directory()
    try:
        with LocalServices(directory) as local:
            yield local
            local.remove()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def addresses(_services: tuple[LocalServices | None, Addresses]) -> Addresses:
    """Where the services answer, whoever runs them."""
    return _services[1]


@pytest.fixture(scope="session")
def other_postgres() -> Iterator[str]:
    """URL of a PostgreSQL that the services do not use: the fetched one, or the machine's."""
    is_fetched = postgres.kind() not in ("auto", "system") and postgres.system() is not None
    directory = open_directory()
    services = LocalServices(directory, postgres_kind="system" if is_fetched else "embedded")
    try:
        yield services.start("postgres").postgres_url()
    finally:
        services.remove()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _server(version: postgres.Version) -> Iterator[Addresses]:
    directory = open_directory()
    services = LocalServices(directory, postgres_kind=version)
    try:
        yield services.start("postgres")
    finally:
        services.remove()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def newest_server() -> Iterator[Addresses]:
    """A PostgreSQL 18 that the services do not use."""
    with _server("18") as addresses:
        yield addresses


@pytest.fixture(scope="session")
def oldest_server() -> Iterator[Addresses]:
    """A PostgreSQL 12 that the services do not use."""
    with _server("12") as addresses:
        yield addresses


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own program for rules."""
    found = debian.program("promtool", package="prometheus")
    if found is None:
        pytest.skip("neither promtool nor Debian's package prometheus can be had")
    return found


@pytest.fixture(scope="session")
def kafka(addresses: Addresses) -> str:
    """bootstrap.servers."""
    return addresses.kafka_bootstrap


@pytest.fixture(scope="session")
def registry_url(addresses: Addresses) -> str:
    """The registry's Confluent API."""
    return addresses.registry_url


@pytest.fixture
def topic_prefix() -> str:
    """A prefix of topics that nobody else uses; also good for slots and subjects."""
    return f"t{uuid.uuid4().hex[:12]}"


@contextmanager
def databases(addresses: Addresses) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(encoding: str | None = None) -> str:
        name = f"t_{uuid.uuid4().hex[:12]}"
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if encoding is not None:
            statement += sql.SQL(
                " ENCODING {} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
            ).format(sql.Literal(encoding))
        execute(addresses.postgres_url(), statement)
        made.append(name)
        return addresses.postgres_url(name)

    yield make
    for name in made:
        drop_database(addresses.postgres_url(), name)


@pytest.fixture
def new_database(addresses: Addresses) -> Iterator[Callable[..., str]]:
    """Call it for the URL of a new, empty database; slots and databases go at the end.

    It may be given an `encoding`; the locale is then C.
    """
    with databases(addresses) as make:
        yield make


@pytest.fixture
def new_killable_database(services: LocalServices) -> Iterator[Callable[..., str]]:
    """The same beside services that the test kills."""
    with databases(services.addresses) as make:
        yield make


@pytest.fixture
def postgres_url(new_database: Callable[[], str]) -> str:
    """One new, empty database."""
    return new_database()


def _lakes(warehouse: Path) -> dict[str, str]:
    """What `apply` sets for both lakes, but for what makes small tables cheaper."""
    folder = str(warehouse)
    delta, iceberg = places.delta_settings(folder), places.iceberg_settings(folder)
    extensions = ",".join(both["spark.sql.extensions"] for both in (delta, iceberg))
    return (
        delta
        | iceberg
        | {
            "spark.sql.extensions": extensions,
            "spark.sql.warehouse.dir": folder,
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        }
    )


@pytest.fixture(scope="session")
def spark(addresses: Addresses) -> Iterator["SparkSession"]:
    """The one Spark session of the run, with Delta, Iceberg and S3."""
    from pyspark.sql import SparkSession

    warehouse = Path(tempfile.mkdtemp(prefix="gauss-cdc-test-"))
    use_java(addresses)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    events = warehouse / "events"
    events.mkdir()
    confs = {
        **spark_confs(addresses),
        **_lakes(warehouse),
        "spark.python.daemon.module": daemon.MODULE,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    lakes = (path for files in jars.fetch(["delta", "iceberg", "s3"]).values() for path in files)
    confs["spark.jars"] = ",".join([confs["spark.jars"], *map(str, lakes)])
    session = (
        SparkSession.builder.master("local[2]").appName("tests").config(map=confs).getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    shutil.rmtree(warehouse, ignore_errors=True)


@pytest.fixture
def bucket(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket of an S3 server; Spark and the environment know the server."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    with served_bucket() as one:
        for name, value in one.variables.items():
            monkeypatch.setenv(name, value)
        keys = {"fs.s3a.access.key": "anybody", "fs.s3a.secret.key": "anything"}
        for name, value in {**one.hadoop, **keys}.items():
            hadoop.set(name, value)
        yield one


def execute(url: str, statement: "sql.Composable | str", *arguments: object) -> None:
    """Run one statement outside of a transaction."""
    connection = psycopg2.connect(url, connect_timeout=10)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement, arguments)
    finally:
        connection.close()


def _rows(url: str, query: str, *arguments: object) -> list[tuple[Any, ...]]:
    connection = psycopg2.connect(url, connect_timeout=10)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query, arguments)
            return cursor.fetchall()
    finally:
        connection.close()


def drop_database(url: str, name: str) -> None:
    """Drop a database with its slots and whoever is connected."""
    ending = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
    of_it = " WHERE database = %s AND active"
    execute(url, ending + of_it, name)
    poll(lambda: not _rows(url, "SELECT FROM pg_replication_slots" + of_it, name), 10)
    execute(
        url,
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
        name,
    )
    execute(url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
