"""The whole path inside one test: `run` in a thread, the consumer's loop in the test's own.

Real PostgreSQL, Kafka and registry; no Spark, which only says "there is more".
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import psycopg2

from gauss_cdc.config import Config
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc_lab.services import Addresses
from producer.core.events import Limits
from producer.core.loop import Progress
from producer.core.ports import RunObserver
from producer.options import Options
from producer.pipeline import run
from producer.sources.dial import parse_dsn
from schemas.tables import TableId
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.loop import job
from spark_consumers.model import Ledger
from spark_consumers.sinks.postgres.sink import PostgresSink

PATIENCE = 240  # seconds until a wait is given up, also on a machine that others use


def ask(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run statements in one transaction; rows of the last one."""
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def until(
    is_so: Callable[[], bool],
    what: str,
    pause: Callable[[float], object],
    limit: float = PATIENCE,
) -> None:
    """Wait for an event, with a generous limit (seconds)."""
    end = time.monotonic() + limit
    while not is_so():
        assert time.monotonic() < end, f"never came: {what}"
        pause(0.05)


class UntilTold(threading.Thread):
    """Works as long as its block lasts."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join(PATIENCE)


class Path:
    """A source and a target database with everything between them."""

    def __init__(
        self,
        addresses: Addresses,
        prefix: str,
        source: str,
        target: str,
        sink: PostgresSink | None = None,
        **changes: Any,
    ) -> None:
        self.source, self.target, self.prefix = source, target, prefix
        self.progress = Progress()
        self.notes: list[str] = []
        self.on_load: Callable[[TableId, int, int], None] = lambda *_: None
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        client = {"bootstrap.servers": addresses.kafka_bootstrap}
        self.options = replace(
            Options(
                source=parse_dsn(source),
                slot=prefix,
                publication=prefix,
                prefix=prefix,
                client=client,
                registry_url=addresses.registry_url,
                limits=Limits(heartbeat_seconds=0.2),
                repair="ask",  # most tests look at the marks that gaps leave
            ),
            **changes,
        )
        self.schema_of = registry_at(addresses.registry_url)
        self.cuts = CutReader(client, prefix, self.schema_of)
        self.rows = RangeReader(client, prefix, self.schema_of)
        self.sink = sink or PostgresSink(target, prefix)
        self.applier = job.Applier(self.cuts, self.rows, self.sink)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.cuts.close()
        self.rows.close()
        self.sink.close()

    def configured(self) -> Config:
        """What a command is given."""
        options = self.options
        source = {"dsn": self.source, "slot": options.slot, "publication": options.publication}
        kafka = {"prefix": self.prefix, "client": dict(options.client)}
        registry, target = {"url": options.registry_url}, {"dsn": self.target}
        tables = {"include": list(options.include), "exclude": list(options.exclude)}
        return Config.model_validate(
            {
                "source": source,
                "tables": tables,
                "kafka": kafka,
                "registry": registry,
                "target": target,
            }
        )

    def start(self) -> None:
        """Start `run`."""
        self._stop.clear()
        self.progress = Progress()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask `run` to leave, as SIGTERM does, and raise what ended it otherwise."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "run does not leave"
        self._thread = None
        if self.failure is not None:
            raise self.failure

    def catch_up(self) -> Ledger:
        """Apply until the target holds everything committed at the source before now."""
        return self.catch_up_to(self._goal())

    def waited(self) -> dict[str, str]:
        """Apply until `wait` ends, as of now; the marks with which it does."""
        said: list[str] = []
        ends = time.monotonic() + PATIENCE

        def applies(seconds: float) -> bool:
            if self.failure is not None:
                raise self.failure
            pause(seconds)
            self.applier.drain()
            return time.monotonic() > ends

        with Endpoints(self.configured()) as places:
            standing = places.wait(places.source().goal(), applies, lambda _: None, said.append)
        assert standing is not None, f"`wait` does not end: {said} {self.notes[-8:]}"
        assert standing.target is not None
        return dict(standing.target.inexact)

    def arrive(self) -> None:
        """Wait until everything committed at the source before now is durable in Kafka."""
        goal = self._goal()
        until(self._arrived(goal), f"cuts up to {goal}", self._stop.wait)

    def _goal(self) -> int:
        (row,) = ask(self.source, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return int(row[0])

    def catch_up_to(self, goal: int) -> Ledger:
        """Apply until the target holds everything before a position."""
        until(self._arrived(goal), f"cuts up to {goal}", self._stop.wait)
        seq = self.progress.seq
        # A commit's markers are written after the broker has answered: its cut may not be visible.
        until(lambda: self.applier.drain().seq >= seq, f"commit {seq}", self._stop.wait)
        return self.applier.drain()

    def _arrived(self, goal: int) -> Callable[[], bool]:
        def arrived() -> bool:
            if self.failure is not None:
                raise self.failure
            return self.progress.resume >= goal

        return arrived

    def _run(self) -> None:
        watch = RunObserver(
            on_step=lambda _: None,
            on_load=self.on_load,
            on_note=self.notes.append,
            stop_asked=lambda seconds: self._stop.wait(seconds) if seconds else self._stop.is_set(),
        )
        try:
            run(self.options, watch, self.progress)
        except BaseException as failure:  # noqa: BLE001  handed to the test's own thread
            self.failure = failure


def pause(seconds: float) -> None:
    """Wait between two looks."""
    threading.Event().wait(seconds)


def content(url: str, table: str, order: str = "t") -> list[str]:
    """A table as text, in one order for both servers."""
    rows = ask(url, f'SELECT t::text FROM {table} t ORDER BY {order}::text COLLATE "C"')
    return [row for (row,) in rows]
