"""One prefix, one database, and runs of the producer in threads: for tests of faults."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg2
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gauss_cdc_lab.services import Addresses
from producer.core.events import Limits
from producer.core.loop import Progress
from producer.core.ports import RunObserver
from producer.errors import CdcError
from producer.options import Options
from producer.pipeline import run
from producer.sources.dial import parse_dsn

PATIENCE = 120.0  # seconds that a test waits for what must happen


@dataclass
class Run:
    """A producer in a thread; a context manager that stops it."""

    options: Options
    progress: Progress = field(default_factory=Progress)
    notes: "queue.SimpleQueue[str]" = field(default_factory=queue.SimpleQueue)
    error: BaseException | None = None

    def __enter__(self) -> Self:
        self._stop, self._steps = threading.Event(), queue.SimpleQueue[str]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        watch = RunObserver(
            on_step=self._steps.put,
            on_load=lambda *_: None,
            on_note=self.notes.put,
            stop_asked=lambda seconds: self._stop.wait(seconds) if seconds else self._stop.is_set(),
        )
        try:
            run(self.options, watch, self.progress)
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.error = error
        self.notes.put("")  # the end

    def stop(self) -> None:
        """Ask it to leave and wait until it has."""
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "a run does not leave"

    def note(self, part: str) -> str:
        """Wait for a line that contains `part`."""
        while text := self.notes.get(timeout=PATIENCE):
            if part in text:
                return text
        raise AssertionError(f"ended without {part!r}") from self.error

    def step(self, name: str) -> None:
        """Wait until it is in this step."""
        while self._steps.get(timeout=PATIENCE) != name:
            assert self._thread.is_alive(), self.error

    def fails(self) -> CdcError:
        """Wait for the error that it ends with."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "still running"
        assert isinstance(self.error, CdcError), self.error
        return self.error


@dataclass
class Place:
    """A database with one table, and how a run would capture it."""

    url: str
    options: Options
    admin: AdminClient

    def execute(self, *statements: str) -> list[Any]:
        connection = psycopg2.connect(self.url, connect_timeout=10)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def run(self, **other: Any) -> Run:
        return Run(replace(self.options, **other))

    def deliver_once(self) -> None:
        """Load, deliver what is there, leave."""
        with self.run() as running:
            running.note("streaming from")
            running.step("run: confirmed")
        assert running.error is None

    def make_topic(self, name: str, **config: str) -> None:
        new = NewTopic(name, 1, 1, config=config)
        for future in self.admin.create_topics([new]).values():
            future.result(timeout=PATIENCE)

    def delete_topic(self, name: str) -> None:
        for future in self.admin.delete_topics([name], operation_timeout=PATIENCE).values():
            future.result(timeout=PATIENCE)

    def records(self, topic: str, *, partitions: int) -> list[tuple[bytes, bytes | None]]:
        """Read all that is committed, partition by partition."""
        consumer = Consumer(
            {
                **self.options.client,
                "group.id": "test",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        out: list[tuple[bytes, bytes | None]] = []
        try:
            for partition in range(partitions):
                consumer.assign([TopicPartition(topic, partition, 0)])
                while (message := consumer.poll(PATIENCE)) is not None and not message.error():
                    key = message.key()
                    assert isinstance(key, bytes)
                    out.append((key, message.value()))
        finally:
            consumer.close()
        return out


def make_place(addresses: Addresses, new_database: Callable[[], str], prefix: str) -> Place:
    url = new_database()
    client = {"bootstrap.servers": addresses.kafka_bootstrap}
    options = Options(
        source=parse_dsn(url),
        slot=prefix,
        publication=prefix,
        prefix=prefix,
        client=client,
        registry_url=addresses.registry_url,
        include=("public.*",),
        limits=Limits(heartbeat_seconds=0.2, transaction_timeout=60),
        status_seconds=0.5,
        kafka_silence_seconds=5,
    )
    place = Place(url, options, AdminClient(client))
    place.execute(
        "CREATE TABLE account (id int PRIMARY KEY, owner text)",
        "INSERT INTO account VALUES (1, 'Alice')",
    )
    return place


def database_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")
