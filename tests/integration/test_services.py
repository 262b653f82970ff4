"""The local services keep what they are given, whatever happens to their processes."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import psycopg2
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from rich.console import Console

from gauss_cdc import wiring
from gauss_cdc.cli import cli
from gauss_cdc.config import load
from gauss_cdc.runtime import jars
from gauss_cdc.runtime.errors import Unavailable
from gauss_cdc_lab.services import Addresses, LocalServices, ServiceError, down, env, up
from gauss_cdc_lab.services.process import ProcessCommand, accepts, poll
from producer.core.ports import Wish
from producer.sources import requests
from producer.sources.postgres import catalog
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.triggers import install as ddl_triggers
from schemas.tables import TableId
from spark_consumers.errors import KafkaDown
from spark_consumers.kafka.cluster import Cluster
from spark_consumers.kafka.ranges import Place
from tests.e2e.path import until
from tests.services_fixtures import execute, forget_answers, open_directory


@pytest.fixture(scope="module")
def kept() -> Iterator[Path]:
    """A folder of services of this file, so that a failure here breaks nobody else's."""
    directory = open_directory()
    up(directory)
    yield directory
    LocalServices(directory).remove()


@pytest.fixture
def own(kept: Path) -> LocalServices:
    """Those services, all of them running."""
    password = (kept / "secrets" / "admin").read_text().strip()
    services = LocalServices(kept, keep=True, password=password)
    services.start()
    return services


PATIENCE = 120  # seconds; a client that keeps an old leader epoch is refused for ever


def answers(cluster: Cluster, place: Place) -> bool:
    try:
        return cluster.high([place]) == {place: 0}
    except KafkaDown:
        return False


def test_a_killed_broker_comes_back_with_its_records_and_is_believed_again(
    own: LocalServices, topic_prefix: str
) -> None:
    settings = {"bootstrap.servers": own.addresses.kafka_bootstrap}
    admin = AdminClient(settings)
    empty = f"{topic_prefix}.empty"
    for made in admin.create_topics([NewTopic(t, 1, 1) for t in (topic_prefix, empty)]).values():
        made.result(30)
    cluster = Cluster({**settings, "log_level": 0})
    assert poll(lambda: answers(cluster, (empty, 0)), PATIENCE)
    producer = Producer({**settings, "transactional.id": topic_prefix, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(100):
        producer.produce(topic_prefix, str(number))
    producer.commit_transaction(30)

    own.kill("kafka")
    assert own.process("kafka") is None
    own.start("kafka")

    assert poll(lambda: answers(cluster, (empty, 0)), PATIENCE)

    # The broker may not know the topic yet when it answers again: ask soon, not in 5 minutes.
    asking = {"topic.metadata.refresh.interval.ms": 1_000, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, **asking, "group.id": topic_prefix})
    consumer.assign([TopicPartition(topic_prefix, 0, 0)])
    records = consumer.consume(100, timeout=60)
    consumer.close()
    assert [int(record.value()) for record in records] == list(range(100))


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_registry_that_comes_back_gives_the_same_ids(
    own: LocalServices, topic_prefix: str, how: str
) -> None:
    client = SchemaRegistryClient({"url": own.addresses.registry_url})
    schemas = [
        Schema(f'{{"type": "record", "name": "r{n}", "fields": []}}', "AVRO") for n in range(5)
    ]
    ids = [client.register_schema(f"{topic_prefix}-{n}", s) for n, s in enumerate(schemas)]

    getattr(own, how)("registry")
    own.start("registry")

    fresh = SchemaRegistryClient({"url": own.addresses.registry_url})
    assert [fresh.register_schema(f"{topic_prefix}-{n}", s) for n, s in enumerate(schemas)] == ids
    assert [fresh.get_schema(i).schema_str for i in ids] == [s.schema_str for s in schemas]
    one_more = Schema('{"type": "record", "name": "later", "fields": []}', "AVRO")
    assert fresh.register_schema(f"{topic_prefix}-{how}-later", one_more) >= max(ids)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_postgresql_that_comes_back_has_its_rows_and_slots(
    own: LocalServices, topic_prefix: str, how: str
) -> None:
    url = own.addresses.postgres_url()
    execute(url, f"CREATE TABLE {topic_prefix} AS SELECT generate_series(1, 1000) AS id")
    execute(url, f"SELECT pg_create_logical_replication_slot('{topic_prefix}', 'pgoutput')")

    getattr(own, how)("postgres")
    own.start("postgres")

    connection = psycopg2.connect(url)
    cursor = connection.cursor()
    cursor.execute(f"SELECT count(*) FROM {topic_prefix}")
    assert cursor.fetchone() == (1000,)
    cursor.execute("SELECT plugin FROM pg_replication_slots WHERE slot_name = %s", (topic_prefix,))
    assert cursor.fetchone() == ("pgoutput",)
    connection.close()
    execute(url, f"SELECT pg_drop_replication_slot('{topic_prefix}')")


def test_both_kinds_of_postgresql_decode_changes(topic_prefix: str) -> None:
    """What the machine has is used elsewhere; here it is the fetched one, by itself."""
    services = LocalServices(open_directory(), postgres_kind="embedded")
    try:
        url = services.start("postgres").postgres_url()
        execute(url, "CREATE TABLE t (id int PRIMARY KEY)")
        execute(url, "SELECT pg_create_logical_replication_slot('s', 'test_decoding')")
        execute(url, "INSERT INTO t VALUES (7)")
        connection = psycopg2.connect(url)
        cursor = connection.cursor()
        cursor.execute("SELECT data FROM pg_logical_slot_get_changes('s', NULL, NULL)")
        said = [line for (line,) in cursor.fetchall()]
        connection.close()
    finally:
        services.remove()

    assert said[1] == "table public.t: INSERT: id[integer]:7"


def _check_that_strangers_stay_outside(directory: Path, addresses: Addresses) -> None:
    """What `services up` made: files for their owner, passwords, roles with the least rights."""
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for file in (directory / "gauss-cdc.toml", *(directory / "secrets").iterdir()):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    passwords = {
        who: (directory / "secrets" / who).read_text().strip() for who in ("source", "target")
    }
    text = (directory / "gauss-cdc.toml").read_text()
    assert not [word for word in (*passwords.values(), addresses.postgres_password) if word in text]
    assert addresses.postgres_password not in repr(addresses)
    for user in ("postgres", "cdc_source", "cdc_target"):
        for guess in ("", "postgres", user):
            with pytest.raises(psycopg2.OperationalError):
                psycopg2.connect(addresses.public_url("source", user), password=guess)
    config = load(directory / "gauss-cdc.toml")
    with ReplicationConnection.open(config.source.connection()) as source:
        assert source.protection == "not encrypted, scram-sha-256"
    for arguments, rights in (
        (config.source.connection(), [(False, True, False, False)]),
        (wiring.target_arguments(config), [(False, False, False, False)]),
    ):
        with closing(psycopg2.connect(**arguments.libpq())) as connection:
            cursor = connection.cursor()
            cursor.execute(
                "SELECT rolsuper, rolreplication, rolcreaterole, rolcreatedb"
                " FROM pg_roles WHERE rolname = current_user"
            )
            assert cursor.fetchall() == rights


def _check_that_triggers_can_be_installed(directory: Path, addresses: Addresses) -> None:
    """As the first lines of the configuration say, and again; requests stay possible."""
    file, admin = directory / "gauss-cdc.toml", addresses.public_url("source", "postgres")
    environment = {"GAUSS_CDC_SOURCE_PASSWORD": addresses.postgres_password}
    assert f"`gauss-cdc ddl install --dsn {admin}`" in file.read_text()
    for _ in range(2):
        arguments = ["ddl", "install", "--config", str(file), "--dsn", admin]
        assert CliRunner().invoke(cli, arguments, env=environment).exit_code == 0
        with closing(catalog.connect(load(file).source.connection())) as connection:
            assert ddl_triggers.state(connection, "gauss_cdc").reports_ddl
            session = catalog.QueryingConnection(connection)
            requests.ask(session, "gauss_cdc", [Wish(TableId("public", "t"))])
            assert requests.requests(session, "gauss_cdc")


def test_up_leaves_services_running_and_down_leaves_nothing(own: LocalServices) -> None:
    directory, addresses = own.directory, own.addresses
    processes = [LocalServices(directory).process(name) for name in ("postgres", "kafka")]
    assert all(process is not None and process.alive for process in processes)
    assert up(directory) == addresses, "safe to repeat"
    assert env(directory)["GAUSS_CDC_KAFKA_BOOTSTRAP"] == addresses.kafka_bootstrap
    written = tomllib.loads((directory / "gauss-cdc.toml").read_text(encoding="utf-8"))
    assert written["source"]["dsn"] == addresses.public_url("source", "cdc_source")
    for name in ("source", "target"):
        psycopg2.connect(addresses.postgres_url(name)).close()
    _check_that_strangers_stay_outside(directory, addresses)
    _check_that_triggers_can_be_installed(directory, addresses)

    stopped = down(directory)

    assert set(stopped) == {"postgres", "kafka", "registry"}
    assert not any(process is not None and process.alive for process in processes)
    assert not accepts(addresses.postgres_port)
    assert processes_below(directory) == []
    assert down(directory) == ()
    with pytest.raises(ServiceError, match="not running in"):
        env(directory)
    LocalServices(directory).remove()
    assert not directory.exists()


def test_a_program_that_is_stopped_stops_its_services() -> None:
    directory = open_directory()
    program = (
        "import pathlib, sys, threading; from gauss_cdc_lab.services import LocalServices;"
        "LocalServices(pathlib.Path(sys.argv[1])).start('postgres');"
        "print('ready', flush=True); threading.Event().wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, directory], stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        process = LocalServices(directory).process("postgres")
        assert process is not None

        run.send_signal(signal.SIGTERM)

        assert run.wait(60) == -signal.SIGTERM
    assert not process.alive
    LocalServices(directory).remove()


def test_services_of_a_program_that_crashed_are_found_and_adopted() -> None:
    directory = open_directory()
    program = (
        "import os, pathlib, signal, sys; from gauss_cdc_lab.services import LocalServices;"
        "LocalServices(pathlib.Path(sys.argv[1])).start('postgres');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, directory], check=False, timeout=120)
    heir = LocalServices(directory)
    left = heir.process("postgres")
    assert left is not None

    heir.start("postgres")
    assert heir.process("postgres") == left
    heir.remove()
    assert not left.alive


def test_a_pid_of_another_process_is_never_taken_for_ours() -> None:
    directory = open_directory()
    me = f'{{"pid": {os.getpid()}, "started": "long ago"}}'
    (directory / "services.json").write_text(f'{{"ports": {{}}, "processes": {{"kafka": {me}}}}}')

    assert LocalServices(directory).running() == ()
    assert down(directory) == ()
    LocalServices(directory).remove()


def test_a_complete_cache_needs_no_ivy(monkeypatch: pytest.MonkeyPatch) -> None:
    jars.fetch(["kafka", "spark", "registry"])
    monkeypatch.setattr(jars, "_ivy", lambda *_: pytest.fail("went to the network"))

    files = jars.fetch(["kafka", "spark", "registry"])

    assert [len(files[name]) for name in ("kafka", "spark", "registry")] == [46, 6, 1]


def test_a_corrupted_jar_is_noticed_and_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = jars.fetch(["spark"])["spark"]
    monkeypatch.setenv("GAUSS_CDC_CACHE", str(tmp_path))
    shutil.copytree(good[0].parent, tmp_path / "jars" / "spark")
    broken = tmp_path / "jars" / "spark" / "commons-pool2-2.12.1.jar"
    content = broken.read_bytes()
    broken.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    fetched = jars.fetch(["spark"], console=Console(quiet=True))

    assert broken in fetched["spark"]
    assert broken.read_bytes() == content


def test_without_a_repository_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = tmp_path / "ivysettings.xml"
    nowhere.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    monkeypatch.setenv("GAUSS_CDC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GAUSS_CDC_IVY_SETTINGS", str(nowhere))

    with pytest.raises(Unavailable, match="could not fetch org") as caught:
        jars.fetch(["spark"], console=Console(quiet=True))

    assert "GAUSS_CDC_JARS" in str(caught.value)


def test_files_that_were_brought_are_used_where_they_lie(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = jars.fetch(["spark"])["spark"]
    monkeypatch.setenv("GAUSS_CDC_CACHE", str(tmp_path))
    monkeypatch.setenv("GAUSS_CDC_JARS", str(here[0].parent))

    assert jars.fetch(["spark"]) == {"spark": here}
    assert list(tmp_path.iterdir()) == []


def test_spark_reads_kafka(spark: object, kafka: str, topic_prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic_prefix, 1, 1)])[topic_prefix].result(30)
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    producer.produce(topic_prefix, b"hello")
    assert producer.flush(30) == 0

    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", topic_prefix)
        .load()
        .collect()
    )

    assert [bytes(row.value) for row in rows] == [b"hello"]


def test_a_call_of_java_that_a_time_limit_ends_spoils_no_other_one(spark: Any) -> None:
    class Ended(BaseException):
        pass

    def end(*_: object) -> None:
        raise Ended

    def waits_for_java() -> bool:
        frame = sys._current_frames()[threading.main_thread().ident]
        return frame.f_code.co_name == "readinto"

    def watch() -> None:
        until(waits_for_java, "the call", Event().wait)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, end)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(Ended):
            spark._jvm.java.lang.Thread.sleep(60_000)
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, before)
    forget_answers()

    assert spark.range(3).count() == 3
    assert spark._jsparkSession.sessionState().sqlParser() is not None


def processes_below(directory: Path) -> list[str]:
    """Command lines of all processes that name the folder, asked of the system."""
    reported = ProcessCommand(("ps", "-ww", "-eo", "args="), directory=Path("/")).run().stdout
    return [line for line in reported.splitlines() if str(directory) in line]
