"""Services read while their own processes, the broker or the registry are killed; and over TLS."""

import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from operator import itemgetter
from pathlib import Path as File
from typing import Any, NamedTuple, Self

import psycopg2
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import Addresses, LocalServices
from gauss_cdc_lab.services.local import Name
from gauss_cdc_reader import Bookmark, KafkaDown, Reader, RegistryDown
from tests.e2e.commands import configured
from tests.e2e.path import PATIENCE, Path, UntilTold, ask, pause, until
from tests.e2e.reading import QUICK, Reading, each_way, equal
from tests.integration.private_kafka import PASSWORD, PrivateKafka, private_kafka
from tests.integration.private_registry import private_registry

TABLES = ("a", "b", "c", "d")
MADE = "".join(
    f"CREATE TABLE {name} (id bigserial PRIMARY KEY, v text); INSERT INTO {name} (v) VALUES ('x');"
    for name in TABLES
)
# Its effect is a line of a file, which a kill leaves whole or does not leave.
MEMBER = f"""\
import os, sys, time
from gauss_cdc_reader import Reader
kafka, registry, prefix, group, file, *tables = sys.argv[1:]
out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
client = {{"bootstrap.servers": kafka, **{QUICK!r}, "session.timeout.ms": 8_000}}
with Reader(client, registry=registry, prefix=prefix) as reader:
    for _, change in reader.changes(*tables, group=group):
        at = time.monotonic()
        line = f"{{change.table.name}} {{change.after['id']}} {{change.seq}} {{at}}\\n"
        os.write(out, line.encode())
"""


class Writing(UntilTold):
    """Commits of a row for each table, until its block ends."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self.commits = url, 0

    def run(self) -> None:
        statement = "".join(f"INSERT INTO {name} (v) VALUES ('x');" for name in TABLES)
        connection = psycopg2.connect(self._url)
        connection.autocommit = True
        with connection.cursor() as cursor:
            while not self.ended.wait(0.002):
                cursor.execute(f"BEGIN; {statement} COMMIT")
                self.commits += 1
        connection.close()


class Done(NamedTuple):
    """What a member did."""

    table: str
    id: int
    seq: int
    at: float  # seconds of this machine's clock


class Member:
    """A process of a group."""

    def __init__(self, file: File, *words: str) -> None:
        self._file = file
        first, *tables = words[:4], *(f"public.{name}" for name in TABLES)
        self.process = subprocess.Popen([sys.executable, "-c", MEMBER, *first, file, *tables])

    def done(self) -> list[Done]:
        if not self._file.exists():
            return []
        lines = map(str.split, self._file.read_text().splitlines())
        return [Done(table, int(number), int(seq), float(at)) for table, number, seq, at in lines]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Group:
    """Members that come and go, and what Kafka keeps of them."""

    def __init__(self, addresses: Addresses, prefix: str, folder: File) -> None:
        self._words = addresses.kafka_bootstrap, addresses.registry_url, prefix, f"{prefix}.group"
        self._folder, self._prefix = folder, prefix
        self._admin = AdminClient({"bootstrap.servers": addresses.kafka_bootstrap})
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.members:
            one.kill()

    def join(self) -> Member:
        one = Member(self._folder / f"member {len(self.members)}", *self._words)
        self.members.append(one)
        return one

    def done(self) -> list[Done]:
        return [done for member in self.members for done in member.done()]

    def stored(self) -> dict[str, int]:
        """Return up to which commit, by table, the members stored that it is done."""
        asked = ConsumerGroupTopicPartitions(self._words[3])
        found = self._admin.list_consumer_group_offsets([asked])[self._words[3]].result()
        return {
            one.topic.rsplit(".", 1)[1]: Bookmark.parse(one.metadata).seq
            for one in found.topic_partitions
            if one.metadata
        }


@pytest.mark.parametrize("seed", range(2))
def test_members_that_are_killed_leave_nothing_undone_and_repeat_what_was_not_stored(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    tmp_path: File,
    seed: int,
) -> None:
    chance, source = random.Random(seed), new_database()
    ask(source, MADE)
    killed: dict[Member, set[Done]] = {}  # and what was stored before of its work
    with (
        Path(addresses, topic_prefix, source, new_database()) as path,
        Group(addresses, topic_prefix, tmp_path) as group,
    ):
        path.start()
        path.arrive()
        with Writing(source) as writing:
            alive = [group.join() for _ in range(3)]
            for _ in range(5):
                had = len(group.done())
                until(lambda had=had: len(group.done()) > had + 200, "changes", pause)
                known = {one: {*one.done()} for one in alive}
                until(lambda known=known: are_stored(group, known), "places", pause)
                victims = chance.sample(alive, chance.choice((1, 1, 2, 3)))
                is_late = chance.random() < 0.5
                if not is_late:  # the group is asking for tables when they die
                    alive += [group.join() for _ in victims]
                for one in victims:
                    one.kill()
                    alive.remove(one)
                    killed[one] = known[one]
                if is_late:
                    alive += [group.join() for _ in victims]
        wanted = {(table, number) for table in TABLES for number in numbers(source, table)}
        assert len(wanted) >= 4 * writing.commits
        until(lambda: {done[:2] for done in group.done()} >= wanted, "all changes", pause)

    by = defaultdict[tuple[str, int], list[tuple[float, Member]]](list)
    for member in group.members:
        for table in TABLES:
            mine = [done.id for done in member.done() if done.table == table]
            assert mine == sorted({*mine}), "a member repeats, or goes back"
        for done in member.done():
            by[done[:2]].append((done.at, member))
    doers = {
        what: [member for _, member in sorted(found, key=itemgetter(0))]
        for what, found in by.items()
    }
    assert {*doers} == wanted
    for *before, _ in doers.values():
        assert all(member in killed for member in before), "what a living one did is done again"
    for member, known in killed.items():
        for done in known:
            assert doers[done[:2]][-1] is member, "what was stored is done again"


def are_stored(group: Group, known: dict[Member, set[Done]]) -> bool:
    """Say whether the group's places are behind all of this, a load's rows among it."""
    stored = group.stored()
    return all(
        stored.get(done.table, 0) >= max(done.seq, 1) for mine in known.values() for done in mine
    )


def numbers(url: str, table: str) -> list[int]:
    return [number for (number,) in ask(url, f"SELECT id FROM {table}")]


@pytest.fixture
def run(
    services: LocalServices,
    topic_prefix: str,
    new_killable_database: Callable[[], str],
    tmp_path: File,
) -> Iterator[str]:
    """A `run` that is a program, beside services that are killed; the URL of its source."""
    services.start()
    source = new_killable_database()
    ask(source, MADE)
    config = configured(tmp_path, services.addresses, topic_prefix, source, new_killable_database())
    (tmp_path / "logs").mkdir()
    program = Program("run", config, folder=tmp_path)
    program.start()
    until(lambda: program.step().startswith("run: "), "the stream", pause)
    yield source
    services.start()
    program.close()


def reading(
    addresses: Addresses, prefix: str, group: str
) -> AbstractContextManager[dict[str, Reading]]:
    client = {"bootstrap.servers": addresses.kafka_bootstrap}
    return each_way(client, addresses.registry_url, prefix, TABLES, group)


def have(readings: dict[str, Reading], rows: dict[str, int]) -> Callable[[], bool]:
    """Say whether each service has more rows of the last table than it had."""

    def more() -> bool:
        return all(one.rows_of("d") > rows[way] for way, one in readings.items())

    return more


NONE = {"commits": 0, "changes": 0, "group": 0}


@pytest.mark.parametrize("killed", [("kafka",), ("registry",), ("kafka", "registry")], ids="+".join)
def test_services_go_on_where_broker_or_registry_was_killed(
    run: str,
    services: LocalServices,
    topic_prefix: str,
    caplog: pytest.LogCaptureFixture,
    killed: tuple[Name, ...],
) -> None:
    """Some are there before, some begin while nothing answers; the tables change meanwhile."""
    with reading(services.addresses, topic_prefix, "first") as first:
        until(have(first, NONE), "the load", pause)
        with Writing(run):
            for name in killed:
                services.kill(name)
            with reading(services.addresses, topic_prefix, "second") as second:
                until(lambda: "another try" in caplog.text, "readers that wait", pause)
                for table in TABLES:
                    ask(run, f"ALTER TABLE {table} ADD COLUMN w int")
                services.start()
                had = {way: one.rows_of("d") for way, one in first.items()}
                until(have(first, had), "what comes behind the outage", pause)
                until(have(second, NONE), "what those have that began in it", pause)
        equal(first, run, TABLES)


def test_a_schema_that_no_registry_gives_is_waited_for(
    services: LocalServices,
    topic_prefix: str,
    new_killable_database: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    services.start()
    there, source = services.addresses, new_killable_database()
    ask(source, MADE)
    client = {"bootstrap.servers": there.kafka_bootstrap}
    with (
        Path(there, topic_prefix, source, new_killable_database()) as path,
        Reader(client, registry=there.registry_url, prefix=topic_prefix) as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        path.start()
        path.arrive()
        found = reader.changes("public.a")
        next(found)
        ask(source, "ALTER TABLE a ADD COLUMN w int; INSERT INTO a VALUES (100, 'y', 7)")
        path.arrive()
        path.stop()
        services.kill("registry")
        coming = pool.submit(next, found)
        until(lambda: "another try" in caplog.text, "a reader that waits", pause)
        services.start("registry")

        assert coming.result(PATIENCE)[1].after == {"id": 100, "v": "y", "w": 7}


@pytest.mark.parametrize(("name", "error"), [("kafka", KafkaDown), ("registry", RegistryDown)])
def test_an_outage_longer_than_the_patience_is_told(
    run: str, services: LocalServices, topic_prefix: str, name: Name, error: type[Exception]
) -> None:
    there = services.addresses
    with reading(there, topic_prefix, "first") as first:
        until(have(first, NONE), "the load", pause)
    services.kill(name)
    client = {"bootstrap.servers": there.kafka_bootstrap}
    ways: list[Callable[[Reader], Iterator[Any]]] = [
        lambda reader: reader.commits(),
        lambda reader: reader.changes("public.a"),
        lambda reader: reader.changes("public.a", group=f"{topic_prefix}.first"),
    ]
    for way in ways:
        reader = Reader(client, registry=there.registry_url, prefix=topic_prefix, patience=2)
        with pytest.raises(error):
            next(way(reader))


@pytest.fixture(scope="module")
def broker() -> Iterator[PrivateKafka]:
    with private_kafka() as running:
        yield running


def login(broker: PrivateKafka, how: str) -> dict[str, Any]:
    assert broker.client is not None
    if how == "mTLS":
        own = {"ssl.certificate.pem": broker.client.pem, "ssl.key.pem": broker.client.key_pem()}
        return broker.settings("mtls") | own
    return broker.settings("good", sasl_mechanism=how, sasl_username="cdc", sasl_password=PASSWORD)


@pytest.mark.parametrize(("how", "registry"), [("SCRAM-SHA-512", "good"), ("mTLS", "mutual")])
def test_services_read_over_tls_with_logins(
    addresses: Addresses,
    broker: PrivateKafka,
    topic_prefix: str,
    new_database: Callable[[], str],
    tmp_path: File,
    how: str,
    registry: str,
) -> None:
    plain, source = replace(addresses, kafka_bootstrap=broker.plain), new_database()
    ask(source, MADE)
    with (
        private_registry(addresses.registry_url, tmp_path) as front,
        Path(plain, topic_prefix, source, new_database()) as path,
    ):
        path.start()
        path.arrive()
        with each_way(
            login(broker, how), front.urls[registry], topic_prefix, TABLES,
            registry_options=front.options(mutual=registry == "mutual"),
        ) as readings:  # fmt: skip
            ask(source, "ALTER TABLE a ADD COLUMN w int; INSERT INTO a VALUES (100, 'y', 7)")
            path.arrive()
            equal(readings, source, TABLES)
