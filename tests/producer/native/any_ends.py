"""Start writers to Kafka and readers of it, and end them in any way while records are in flight.

    python -m tests.producer.native.any_ends [rounds] [seed]

They are closed, dropped, left to the garbage collector alone or in a cycle, left to the end of the
interpreter; a thread is inside of a call, callbacks raise, the broker is killed, the process forks.
At the end no thread and no descriptor is left.  Under AddressSanitizer: `make fuzz`.
"""

# ruff: noqa: T201  a command

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer, cimpl

from producer.core.events import TransactionEnded
from producer.errors import CdcError
from producer.kafka.native_writer import NativeWriter
from producer.native import NativeParts, ProducerRefused, _native, parts
from spark_consumers.native import range_consumer

TOPICS: Final = ("rows", "others")
PATIENCE: Final = 120.0  # seconds for a child to end
LOGGER: Final = logging.getLogger("librdkafka of any ends")


class Raised(BaseException):
    """What a callback raises, and so a call."""


class Raising(logging.Handler):
    """A callback that fails, sometimes."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.created * 1e6 % 7 < 1:
            raise Raised(record.getMessage())


def broker(dice: random.Random) -> Producer:
    """A broker inside librdkafka; it is killed as its client is."""
    return Producer(
        {"test.mock.num.brokers": dice.choice((1, 1, 3)), "log_level": 0,
         "test.mock.broker.rtt": dice.choice((0, 0, 5, 50))}
    )  # fmt: skip


def address(cluster: Producer) -> str:
    brokers = cluster.list_topics(timeout=30).brokers.values()
    return ",".join(f"{each.host}:{each.port}" for each in brokers)


class Ends:
    """Clients of one broker after another, and what befalls them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.count = dict.fromkeys(("writers", "readers", "brokers", "forks", "exits"), 0)
        self._renew()

    def _renew(self) -> None:
        self.broker = broker(self.dice)
        self.address = address(self.broker)
        self.count["brokers"] += 1

    def once(self) -> None:
        """Start some clients, let something happen, end them."""
        clients = [
            self.dice.choice((self._writer, self._writer, self._reader))()
            for _ in range(self.dice.randrange(1, 4))
        ]
        threads = [self._inside(client) for client in clients if self.dice.random() < 0.4]
        match self.dice.randrange(12):
            case 0:
                self._renew()  # the old one is gone, with all that it had
            case 1:
                self._fork(clients)
            case 2:
                gc.collect()
        while clients:
            self._end(clients.pop())
        for thread in threads:
            thread.join()

    # ---------------------------------------------------------------- writers
    def _writer(self) -> NativeWriter:
        dice = self.dice
        native = parts("auto")
        assert native is not None
        settings: dict[str, Any] = {
            "bootstrap.servers": dice.choice((self.address, self.address, "127.0.0.1:9")),
            "queue.buffering.max.messages": dice.choice((10, 100_000)),
            "linger.ms": dice.choice((0, 5, 1000)),
            "socket.timeout.ms": 1000,
            "message.timeout.ms": dice.choice((20, 1000)),
            "log_level": dice.choice((0, 3, 7)),
            "logger": LOGGER,
        }
        if settings["log_level"] == 7:
            settings["debug"] = "all"
        match dice.randrange(4):
            case 0:
                settings["acks"] = 0
            case 1:
                settings["enable.idempotence"] = True
            case 2:
                settings["transactional.id"] = f"id{dice.randrange(3)}"
                settings["transaction.timeout.ms"] = 1000
        self.count["writers"] += 1
        try:
            writer = NativeWriter(settings, native)
        except ProducerRefused:  # settings that do not fit each other
            return self._writer()
        with contextlib.suppress(CdcError, KafkaException, Raised):
            if "transactional.id" in settings:
                writer.init_transactions(dice.choice((0, 0.01, 1)))
                writer.begin()
            self._work(writer, native)
        return writer

    def _work(self, writer: NativeWriter, native: NativeParts) -> None:
        dice = self.dice
        for _ in range(dice.randrange(4)):
            if dice.random() < 0.5:
                records: Any = rows(native, dice.randrange(1, 300))
            else:
                value = bytes(dice.choice((0, 10, 100_000)))
                headers: Any = dice.choice(([], [("xid", b"1"), ("empty", b"")]))
                records = [(dice.choice(TOPICS), dice.randrange(4), b"k", value, headers)] * 20
            writer.send(records, 0)
            if dice.random() < 0.3:
                writer.poll(dice.choice((0, 0.01)))
                writer.take()
        match dice.randrange(6):
            case 0:
                writer.flush(0.05)
            case 1:
                writer.commit(dice.choice((0, 0.05)))
            case 2:
                writer.abort(0.05)
            case 3:
                writer.purge()

    # ---------------------------------------------------------------- readers
    def _reader(self) -> Any:
        dice = self.dice
        with contextlib.suppress(KafkaException):
            for topic in TOPICS:
                for at in range(dice.randrange(200)):
                    self.broker.produce(topic, b"v" * at, partition=at % 4)
            self.broker.flush(1)
        self.count["readers"] += 1
        settings = {
            "bootstrap.servers": self.address,
            "log_level": "0",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
        }
        reader = range_consumer(list(settings.items()), library=cimpl.__file__)
        reader.know([*TOPICS], dice.choice((1, 1000)))
        for _ in range(dice.randrange(12)):
            topic, partition = dice.choice(TOPICS), dice.randrange(4)
            start = dice.randrange(100)
            spans = [(start + at * 40, start + at * 40 + 30) for at in range(dice.randrange(3))]
            self._read(reader, reader.want(topic, partition, spans))
            if dice.random() < 0.3:
                reader.stop(topic, dice.randrange(4))
        return reader

    def _read(self, reader: Any, number: int) -> None:
        for _ in range(self.dice.randrange(40)):
            why, _ = reader.read(number, {}, self.dice.choice((0, 5)))
            if why == 2:  # a record that nobody takes
                reader.record(number)
                reader.skip(number)
            elif why == 0:
                return

    # ---------------------------------------------------------------- what happens
    def _inside(self, client: Any) -> threading.Thread:
        """Have a thread inside of a call, which may be the last to know the client."""
        if isinstance(client, NativeWriter):
            call: Callable[[], object] = self.dice.choice(
                (lambda: client.flush(0.1), lambda: client.poll(0.1), lambda: client.commit(0.1))
            )
        else:
            call = lambda: client.read(client.want("rows", 0, [(0, 1 << 40)]), {}, 100)  # noqa: E731

        def work() -> None:
            # The client was closed, or another call is under way.
            with contextlib.suppress(CdcError, KafkaException, ValueError, RuntimeError, Raised):
                call()

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def _fork(self, clients: list[Any]) -> None:
        """Fork, and let the child drop what it has of the parent's clients."""
        self.count["forks"] += 1
        pid = os.fork()
        if not pid:
            clients.clear()
            gc.collect()
            os._exit(0)
        end = time.monotonic() + PATIENCE
        while not (done := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                raise SystemExit("a forked child does not end")
            time.sleep(0.01)
        if done[1]:
            raise SystemExit(f"a forked child ended with {done[1]}")

    def _end(self, client: Any) -> None:
        is_writer = isinstance(client, NativeWriter)
        match self.dice.randrange(6):
            case 0 | 1:
                with contextlib.suppress(RuntimeError):  # a thread is inside
                    client.close()
            case 2 if is_writer:
                client.purge()
                with contextlib.suppress(RuntimeError):
                    client.close()
            case 3:
                cycle = [client]
                cycle.append(cycle)
                del cycle
            case 4:
                del client
                gc.collect()

    def exits(self, seed: int) -> None:
        """Let an interpreter end with clients that were not ended."""
        self.count["exits"] += 1
        command = (sys.executable, "-m", __spec__.name, "leave", str(seed))
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
        if done.returncode:
            raise SystemExit(f"an exit with {done.returncode}: {done.stderr.decode()[-9000:]}")


def rows(native: NativeParts, count: int) -> Any:
    """A batch of two transactions."""
    ended = TransactionEnded(
        seq=9, xid=7, csn=8, commit_start=1, end_lsn=2, committed_at=3, rows=count
    )
    return _native.batch_of(
        native.places,
        1_700_000_000,
        [(9, 7, 8, ended), (10, 1, 0, None)],
        [
            (
                at * 2 // count, TOPICS[at % 2], at % 3,
                b"k%d" % at if at % 7 else None, b"v" * at if at % 9 else None, at, at << 20,
            )
            for at in range(count)
        ],
    )  # fmt: skip


def leave(seed: int) -> None:
    """Leave the interpreter with clients alive, a thread inside of some."""
    ends = Ends(seed)
    clients = [ends._writer(), ends._writer(), ends._reader()]
    for client in clients:
        if ends.dice.random() < 0.5:
            thread = threading.Thread(target=waits, args=(client,), daemon=True)
            thread.start()
    if ends.dice.random() < 0.5:
        globals()["kept"] = clients, ends
    if ends.dice.random() < 0.3:
        raise SystemExit(0)


def waits(client: Any) -> None:
    """Be inside of calls for ever."""
    while True:
        with contextlib.suppress(CdcError, KafkaException, Raised):
            if isinstance(client, NativeWriter):
                client.flush(0.05)
            else:
                client.read(client.want("rows", 0, [(0, 1 << 40)]), {}, 50)


def held() -> tuple[int, int, int]:
    """Threads, descriptors, resident MB of this process."""
    here = Path("/proc/self")
    status = (here / "status").read_text("ascii", "replace")
    threads, files = (len(list((here / what).iterdir())) for what in ("task", "fd"))
    return threads, files, int(status.split("VmRSS:")[1].split()[0]) >> 10


def main() -> None:
    """Do so many rounds."""
    logging.raiseExceptions = False
    LOGGER.addHandler(Raising())
    LOGGER.propagate = False
    if sys.argv[1:2] == ["leave"]:
        leave(int(sys.argv[2]))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    before = held()
    ends = Ends(seed)
    for at in range(rounds):
        ends.once()
        if at % 20 == 19:
            ends.exits(seed + at)
        if at % max(rounds // 10, 1) == 0:
            print(at, *held(), ends.count, flush=True)
    ends.broker = None  # type: ignore[assignment]
    gc.collect()
    after = held()
    print(f"threads, descriptors, MB: {before}, now {after}; {ends.count}")
    if after[:2] > before[:2]:
        raise SystemExit(f"threads and descriptors were {before[:2]}, are {after[:2]}")


if __name__ == "__main__":
    main()
