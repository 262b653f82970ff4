"""Faults of source, broker and registry: what `run` does about them, and says.

The exit code is the error's class; `gauss_cdc.cli` turns one into the other.
"""

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from gauss_cdc_lab.services import Addresses
from producer.core.events import Limits
from producer.core.ports import RunObserver
from producer.core.takeover.takeover import lock_of
from producer.errors import (
    BrokerDown,
    CdcError,
    ConnectionLost,
    ContentChanged,
    CutsBroken,
    LoginRefused,
    NotPermitted,
    RegistryError,
    RowTooLarge,
    SchemaRefused,
    SlotAhead,
    SlotMismatch,
    SlotMissing,
    SourceError,
    SourceSwitched,
    TopicReplaced,
    TopicUnfit,
)
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.registry import Registry
from producer.kafka.topics import TopicSettings
from producer.pipeline import run
from schemas.accept import CutReplay
from schemas.control import Commits, Cut, Start, cut_to_avro
from schemas.errors import Verdict
from schemas.load import CUT
from schemas.topics import value_subject
from tests.integration.faults import PATIENCE, Place, Run, make_place
from tests.integration.private_postgres import PrivateServer, private_server


@pytest.fixture
def place(addresses: Addresses, new_database: Callable[[], str], topic_prefix: str) -> Place:
    return make_place(addresses, new_database, topic_prefix)


@pytest.fixture(scope="module")
def other_server() -> Iterator[PrivateServer]:
    with private_server() as server:
        server.execute("CREATE TABLE public.account (id int PRIMARY KEY)")
        yield server


@pytest.fixture
def closed_port() -> str:
    """An address of this machine where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def stops(running: Run, error: type[CdcError], exit_code: int) -> str:
    """Run to the error that needs a person; return what it says."""
    with running:
        caught = running.fails()
    assert type(caught) is error, repr(caught)
    assert (caught.exit_code, caught.verdict) == (exit_code, Verdict.STOP)
    return str(caught)


# ---------------------------------------------------------------- it works
def test_rows_are_loaded_streamed_and_gone_on_from(place: Place) -> None:
    place.deliver_once()
    with place.run() as running:
        running.note("streaming from")
        place.execute("INSERT INTO account VALUES (2, 'Bob')")
        running.step("run: cut durable, not confirmed")
        running.step("run: confirmed")

    assert running.error is None
    assert running.progress.rows == 1


def test_a_key_change_moves_a_row_for_readers_that_upsert_by_key(place: Place) -> None:
    settings = TopicSettings(partitions=3)
    keyed = {"key": "primary-key", "partition_by": "primary-key", "topic_settings": settings}
    with place.run(**keyed) as running:
        running.note("streaming from")
        place.execute("UPDATE account SET id = 2", "DELETE FROM account")
        running.step("run: cut durable, not confirmed")
        while running.progress.seq < 2:
            running.step("run: cut durable, not confirmed")
    assert running.error is None

    left: dict[bytes, list[bool]] = {}
    for key, value in place.records(f"{place.options.prefix}.public.account", partitions=3):
        left.setdefault(key, []).append(value is None)
    assert sorted(left.values()) == [[False, False, True], [False, False, True]]


# ---------------------------------------------------------------- a first run that fails
def test_a_run_that_is_left_in_its_first_load_says_that_it_never_streamed(place: Place) -> None:
    """`gauss-cdc run` exits 130 or 143 then: the load is not done."""
    stop, notes = threading.Event(), list[str]()
    watch = RunObserver(
        on_step=lambda _: None,
        on_load=lambda *_: stop.set(),
        on_note=notes.append,
        stop_asked=lambda seconds: stop.wait(seconds) if seconds else stop.is_set(),
    )

    assert run(place.options, watch) is False
    assert notes[-1] == "stopped before the stream began: the next run loads what is missing"


def test_a_first_run_that_fails_before_its_slot_drops_its_publication(place: Place) -> None:
    place.make_topic(f"{place.options.prefix}.public.account", **{"cleanup.policy": "compact"})

    with place.run() as running:
        assert isinstance(running.fails(), TopicUnfit)

    assert place.execute("SELECT pubname FROM pg_publication") == []


def test_a_first_run_that_fails_behind_its_slot_drops_it_and_nothing_of_others(
    place: Place,
) -> None:
    """The new slot waits for a transaction; meanwhile comes a table whose topic is unfit."""
    name = place.options.publication
    place.execute(f"CREATE PUBLICATION {name} FOR ALL TABLES")
    with closing(psycopg2.connect(place.url)) as other:
        other.cursor().execute("SELECT txid_current()")
        with place.run() as running:
            running.note("the new slot waits")
            place.make_topic(f"{place.options.prefix}.public.late", **{"cleanup.policy": "compact"})
            place.execute("CREATE TABLE late (id int PRIMARY KEY)")
            other.commit()
            running.note("dropped again: it was not used")
            assert isinstance(running.fails(), TopicUnfit)

    slots = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = '%s'"
    assert place.execute(slots % place.options.slot) == []
    assert place.execute("SELECT pubname FROM pg_publication") == [(name,)]


# ---------------------------------------------------------------- the login
def test_a_wrong_password_and_a_role_without_rights(
    place: Place, other_server: PrivateServer
) -> None:
    wrong = replace(other_server.arguments("scram"), password="wrong")
    said = stops(place.run(source=wrong), LoginRefused, 11)
    assert "wrong" not in said

    stops(place.run(source=other_server.arguments("plain")), NotPermitted, 12)


def test_a_source_that_does_not_listen_is_tried_again(place: Place, closed_port: str) -> None:
    port = int(closed_port.rpartition(":")[2])
    source = replace(place.options.source, port=port)

    with place.run(source=source) as running:
        assert "retrying in" in running.note("127.0.0.1")
    assert running.error is None
    assert ConnectionLost.verdict is Verdict.RETRY


def test_a_database_that_takes_no_connections_for_a_while_is_waited_for(place: Place) -> None:
    place.deliver_once()
    server, _, database = place.url.rpartition("/")
    rest = threading.Event()
    with closing(psycopg2.connect(f"{server}/postgres")) as other, place.run() as running:
        other.autocommit = True
        running.note("streaming from")
        with other.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                (database,),
            )
            while running.progress.retries < 3 and running.error is None:  # it was refused twice
                rest.wait(0.1)
            cursor.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
        assert running.error is None
        place.execute("INSERT INTO account VALUES (2, 'Bob')")
        while not running.progress.rows and running.error is None:
            rest.wait(0.1)
    assert running.error is None


def test_no_table_at_all(place: Place) -> None:
    said = stops(place.run(include=("nowhere.*",)), SourceError, 10)
    assert "no table matches" in said


# ---------------------------------------------------------------- the slot
def test_a_slot_that_was_dropped(place: Place) -> None:
    place.deliver_once()
    place.execute(f"SELECT pg_drop_replication_slot('{place.options.slot}')")

    said = stops(place.run(), SlotMissing, 13)
    assert "--accept-gap" in said

    with place.run(accept_gap=True) as running:
        running.note("streaming from")
    assert running.error is None


def test_a_slot_that_another_client_advanced(place: Place) -> None:
    place.deliver_once()
    place.execute(
        "INSERT INTO account VALUES (2, 'Bob')",
        f"SELECT pg_replication_slot_advance('{place.options.slot}', pg_current_wal_lsn())",
    )

    said = stops(place.run(), SlotAhead, 15)
    assert "pg_replication_slot_advance" in said


def test_a_slot_of_another_plugin(place: Place) -> None:
    make = "SELECT pg_create_logical_replication_slot('{}', 'test_decoding')"
    place.execute(make.format(place.options.slot))

    stops(place.run(), SlotMismatch, 17)


def test_a_slot_of_another_database(
    place: Place, new_database: Callable[[], str], addresses: Addresses
) -> None:
    other = make_place(addresses, new_database, place.options.prefix)
    make = "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')"
    other.execute(make.format(place.options.slot))

    stops(place.run(), SlotMismatch, 17)


def test_a_prefix_of_another_database(
    place: Place, new_database: Callable[[], str], addresses: Addresses
) -> None:
    place.deliver_once()
    other = make_place(addresses, new_database, place.options.prefix)

    stops(other.run(slot=f"{place.options.slot}_2"), SlotMismatch, 17)


def test_a_prefix_of_another_server(place: Place, other_server: PrivateServer) -> None:
    place.deliver_once()

    stops(place.run(source=other_server.arguments("postgres")), SourceSwitched, 18)


def test_a_second_run_waits_and_takes_over(
    place: Place, new_database: Callable[[], str], addresses: Addresses
) -> None:
    """And says who holds the lock, whatever locks others hold."""
    space, number = lock_of(place.options.slot)
    elsewhere = make_place(addresses, new_database, place.options.prefix)
    with (
        place.run() as first,
        closing(psycopg2.connect(place.url)) as beside,
        closing(psycopg2.connect(elsewhere.url)) as another,
    ):
        first.note("streaming from")
        for session, key in ((beside, number + 1), (another, number)):
            with session.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_lock(%s, %s)", (space, key))
        with place.run() as second:
            said = second.note("another run holds the lock")
            ((pid, user),) = place.execute(said.split("`")[1])
            assert user == urlsplit(place.url).username
            assert pid not in {beside.info.backend_pid, another.info.backend_pid}
            first.stop()
            second.note("streaming from")
    assert first.error is None
    assert second.error is None


# ---------------------------------------------------------------- content
def test_other_keys_than_last_time(place: Place) -> None:
    place.deliver_once()

    stops(place.run(key="primary-key"), ContentChanged, 50)


def test_a_row_above_the_limit(place: Place) -> None:
    place.execute("INSERT INTO account VALUES (2, repeat('secret', 1000))")

    said = stops(place.run(max_row_bytes=2000), RowTooLarge, 21)
    assert "max-row-bytes" in said
    assert "secret" not in said


def test_a_row_that_the_broker_finds_too_large(place: Place) -> None:
    place.deliver_once()
    topic = f"{place.options.prefix}.public.account"
    with place.run() as running:
        running.note("streaming from")
        alter(place, topic, "max.message.bytes", "1000")
        place.execute(
            "INSERT INTO account SELECT 2, string_agg(md5(n::text), '')"
            " FROM generate_series(1, 999) n"
        )
        caught = running.fails()
    assert type(caught) in {RowTooLarge, TopicUnfit}
    assert caught.exit_code in {21, 32}


# ---------------------------------------------------------------- topics
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cleanup.policy": "compact"}, "compacted"),
        ({"max.message.bytes": "1000"}, "only records smaller"),
    ],
)
def test_a_data_topic_that_would_lose_rows(place: Place, config: dict[str, str], said: str) -> None:
    place.make_topic(f"{place.options.prefix}.public.account", **config)

    running = place.run()
    reported = stops(running, TopicUnfit, 32)
    assert said in reported
    assert "kafka-configs.sh" in reported
    notes = iter(running.notes.get, "")
    assert not [note for note in notes if "slot" in note], "none is made before the check"


def test_a_topic_that_was_altered_before_a_restart_is_refused_before_any_row(place: Place) -> None:
    """Its settings are asked for beside the takeover."""
    place.deliver_once()
    topic = f"{place.options.prefix}.public.account"
    compacted = ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET
    )
    altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[compacted])
    for future in place.admin.incremental_alter_configs([altered]).values():
        future.result(timeout=PATIENCE)

    with place.run() as running:
        said = running.fails()
    assert isinstance(said, TopicUnfit)
    assert "compacted" in said.what


def test_a_cuts_topic_that_forgets_early(place: Place) -> None:
    place.make_topic(place.options.topics.cuts, **{"retention.ms": "60000"})

    assert "retention is shorter" in stops(place.run(), TopicUnfit, 32)


@pytest.mark.parametrize("hours", [-240, 24])
def test_records_have_the_brokers_time_whatever_our_clock_says(place: Place, hours: int) -> None:
    """By ours, days behind, they would expire at once; hours ahead, they would be refused."""
    place.deliver_once()
    now, said = time.time(), list[tuple[object, int, bool]]()

    def reported(error: object, message: Message) -> None:
        kind, at = message.timestamp()
        said.append((error, kind, abs(at / 1000 - now) < 3600))

    producer = Producer(place.options.client)
    for topic in (place.options.topics.cuts, f"{place.options.prefix}.public.account"):
        ours = round((now + hours * 3600) * 1000)
        producer.produce(topic, b"", timestamp=ours, on_delivery=reported)
    producer.flush(PATIENCE)

    assert said == [(None, TIMESTAMP_LOG_APPEND_TIME, True)] * 2


def test_a_topic_of_a_readers_dead_letters_may_be_deleted(place: Place) -> None:
    dead = f"{place.options.prefix}.public.account-dlt"
    place.make_topic(dead)
    place.deliver_once()
    place.delete_topic(dead)

    with place.run() as running:
        running.note("streaming from")
    assert running.error is None


def test_a_topic_that_was_deleted(place: Place) -> None:
    place.deliver_once()
    place.delete_topic(f"{place.options.prefix}.public.account")

    said = stops(place.run(), TopicReplaced, 33)
    assert f"{place.options.prefix}.public.account" in said


def test_a_cuts_topic_that_was_deleted(place: Place) -> None:
    place.deliver_once()
    place.delete_topic(place.options.topics.cuts)

    stops(place.run(), CutsBroken, 35)

    with place.run(accept_gap=True) as running:
        running.note("streaming from")
    assert running.error is None


# ---------------------------------------------------------------- strangers
STRANGE = (
    None,
    b"",
    b"strange",
    b"\0\0\0\0\0",
    b"\0\x7f\xff\xff\xffx",
    b"\0\0\0\0\1" + b"\xff" * 99,
)


def test_foreign_records_in_the_control_topics_stop_nothing(place: Place) -> None:
    place.deliver_once()
    topics, prefix = place.options.topics, place.options.prefix.encode()
    other_client = Producer({**place.options.client, "log_level": 0})

    def intrude() -> None:
        for topic in (topics.cuts, topics.ddl):
            for value in STRANGE:
                for key in (prefix, b"another", None):
                    other_client.produce(topic, value, key)
        assert not other_client.flush(30)

    intrude()
    with place.run() as running:
        running.note("streaming from")
        place.execute("INSERT INTO account VALUES (2, 'Bob')")
        running.step("run: confirmed")
        intrude()
        seq = running.progress.seq
        place.execute("INSERT INTO account VALUES (3, 'Eve')")
        while running.progress.seq == seq:
            running.step("run: cut durable, not confirmed")
    assert running.error is None
    place.deliver_once()


def test_a_forged_takeover_costs_a_restart_and_no_commit(place: Place) -> None:
    place.deliver_once()
    options = place.options
    registry = Registry(options.registry_url)
    registry.own(CUT, value_subject(options.topics.cuts))
    reader = CutsReader(options.client, options.topics.cuts)

    def cuts() -> list[tuple[int, Cut]]:
        found = reader.read(0, reader.lso())
        return [(s.offset, registry.read_cut(s.value or b"")) for s in found]

    with place.run(limits=Limits(heartbeat_seconds=3600)) as running:
        running.note("streaming from")
        before = len(cuts())
        place.execute("INSERT INTO account VALUES (2, 'Bob')")
        # The run may have others to write, before and behind it.
        while not any(isinstance(cut, Commits) for _, cut in cuts()[before:]):
            running.step("run: cut durable, not confirmed")
        was = next(cut for _, cut in reversed(cuts()) if isinstance(cut, Start))
        newest = cuts()[-1][1].head
        head = replace(
            newest, n=newest.n + 1, writer=newest.writer + 1, instance="x", state_from=-1
        )
        other_client = Producer({**options.client, "log_level": 0})
        forged = registry.encode(CUT, cut_to_avro(replace(was, head=head)))
        other_client.produce(options.topics.cuts, forged, options.prefix.encode())
        assert not other_client.flush(30)
        place.execute("INSERT INTO account VALUES (3, 'Eve')")
        running.note("another writer's START")
        running.note("streaming from")
        while running.progress.seq < newest.last_seq + 1:
            running.step("run: confirmed")  # behind the progress; no heartbeat comes
    assert running.error is None

    replay = CutReplay.from_nobody()
    taken = [cut for offset, cut in cuts() if replay.accept(offset, cut)]
    seqs = [e.seq for cut in taken if isinstance(cut, Commits) for e in cut.commits]
    assert seqs == list(range(1, newest.last_seq + 2))
    assert replay.suspect is None
    reader.close()
    registry.close()


def test_records_of_cuts_that_were_deleted(place: Place) -> None:
    place.deliver_once()
    cuts = place.options.topics.cuts
    for future in place.admin.delete_records([TopicPartition(cuts, 0, -1)]).values():
        future.result(timeout=60)

    stops(place.run(), CutsBroken, 35)


# ---------------------------------------------------------------- broker and registry
def test_a_broker_that_is_down_at_the_start_is_tried_again(place: Place, closed_port: str) -> None:
    with place.run(client={"bootstrap.servers": closed_port}) as running:
        assert "no answer from Kafka" in running.note("retrying in")
    assert running.error is None
    assert BrokerDown.verdict is Verdict.RETRY


def test_a_transaction_timeout_that_the_broker_refuses(place: Place) -> None:
    with place.run(limits=Limits(transaction_timeout=3600)) as running:
        assert "transaction.max.timeout.ms" in str(running.fails())


def test_a_registry_that_is_down_is_tried_again(place: Place, closed_port: str) -> None:
    with place.run(registry_url=f"http://{closed_port}") as running:
        assert "registry does not answer" in running.note("retrying in")
    assert running.error is None


def test_what_is_no_registry(place: Place, addresses: Addresses) -> None:
    url = addresses.registry_url + "/nowhere"

    assert "registry" in stops(place.run(registry_url=url), RegistryError, 40)


def test_a_schema_that_the_registry_finds_incompatible(place: Place) -> None:
    subject = value_subject(f"{place.options.prefix}.public.account")
    other = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "int"}]}
    put(place, "PUT", f"/config/{subject}", {"compatibility": "FULL"})
    put(place, "POST", f"/subjects/{subject}/versions", {"schema": json.dumps(other)})

    said = stops(place.run(), SchemaRefused, 41)
    assert subject in said


# ---------------------------------------------------------------- the command
def test_the_command_exits_with_the_errors_code(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "gauss-cdc.toml"
    file.write_text(
        f"""
        [source]
        dsn = "{place.url}"
        [tables]
        include = ["nowhere.*"]
        [kafka]
        prefix = "{place.options.prefix}"
        [kafka.client]
        "bootstrap.servers" = "{place.options.client["bootstrap.servers"]}"
        [registry]
        url = "{place.options.registry_url}"
        """
    )

    done = subprocess.run(
        [sys.executable, "-m", "gauss_cdc", "run", "--config", str(file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 10, done.stderr
    assert "no table matches" in done.stderr
    assert "rows are made by" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


def alter(place: Place, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in place.admin.incremental_alter_configs([resource]).values():
        future.result(timeout=60)


def put(place: Place, method: str, path: str, body: dict[str, str]) -> None:
    request = urllib.request.Request(
        place.options.registry_url + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
