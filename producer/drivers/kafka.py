"""Kafka as the producer needs it: topics, the cuts log, and one delivery.

librdkafka's blocking calls (`flush`, `commit_transaction`, `init_transactions`)
run in one worker thread, so that the loop goes on reading and telling the
source that it lives.  While such a call is under way nothing is produced.
Every wait ends: without progress for `silence` seconds it is BrokerDown.

A fenced producer raises SystemError from `flush()` with the KafkaException as
its cause; a missing delivery report is never a success.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from producer.core.events import Acknowledgement, Record
from producer.errors import (
    BrokerDown,
    CdcError,
    Fenced,
    GroupUnusable,
    RowTooLarge,
)
from producer.errors import KafkaError as OurKafkaError

_FENCED: Final = {
    KafkaError._FENCED,  # noqa: SLF001  confluent-kafka's own constants
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
_DOWN: Final = {
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_LEADER_FOR_PARTITION,  # a topic made just now, or a leader that moved
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_UNDONE: Final = {
    KafkaError._PURGE_QUEUE,  # noqa: SLF001
    KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
    KafkaError._STATE,  # noqa: SLF001
    # A topic that was deleted while we run: the next start says so.
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
# What librdkafka would print twenty times a second while a broker is down, our errors say once.
# A broker that comes back may not know its topics yet; librdkafka would ask again in 5 minutes.
QUIET: Final[Mapping[str, Any]] = {"log_level": 2, "topic.metadata.refresh.interval.ms": 5_000}
_ASK: Final = 10.0  # seconds for an answer about offsets
_ROOM_WAIT: Final = 0.2  # seconds for room in librdkafka's queue
_FLUSH_TRY: Final = 1.0
_COMMIT_TRY: Final = 5.0
_READ_TRY, _SILENT_READS = 0.2, 150  # 30 s


def ours(exc: BaseException) -> CdcError:
    """Turn librdkafka's exceptions into ours, by error code."""
    if isinstance(exc, CdcError):
        return exc
    cause = exc.__cause__ if isinstance(exc, SystemError) else exc
    if not isinstance(cause, KafkaException):
        return OurKafkaError("the Kafka client failed", error=type(exc).__name__)
    return of_error(cause.args[0])


def of_error(error: KafkaError) -> CdcError:
    """Turn one librdkafka error into ours."""
    code, where = error.code(), {"error": error.name()}
    if code in _FENCED:
        return Fenced(
            "another producer of this prefix took over",
            hint="one `gauss-cdc run` a prefix; this one leaves",
            **where,
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return OurKafkaError(
            "the broker refuses kafka.transaction-timeout",
            hint="lower it, or raise the broker's transaction.max.timeout.ms",
            **where,
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return RowTooLarge(
            "the broker refuses a record as too large",
            hint="raise max.message.bytes of the topic, or lower kafka.max-row-bytes",
            **where,
        )
    if code in _DOWN:
        return BrokerDown("no answer from Kafka", hint="is the broker up?", **where)
    if code in _UNDONE or error.retriable() or error.txn_requires_abort():
        return GroupUnusable("the open group failed and is sent again", **where)
    return OurKafkaError("Kafka refused", text=error.str(), **where)


@dataclass(frozen=True, slots=True)
class Flushed:
    """Every record sent so far is acknowledged."""

    acknowledged: list[Acknowledgement]


@dataclass(frozen=True, slots=True)
class PartCommitted:
    """A part of a giant transaction is committed."""


@dataclass(frozen=True, slots=True)
class CutsCommitted:
    """The records of cuts are committed, at these offsets."""

    offsets: tuple[int, ...]


Answer: TypeAlias = Flushed | PartCommitted | CutsCommitted | CdcError
Job: TypeAlias = Callable[[], Answer]


class _Patience:
    """How long to wait for a broker that does not answer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since = time.monotonic()
        self._seen: int | None = None

    def see(self, progress: int) -> None:
        """Raise BrokerDown when `progress` has been the same for too long."""
        now = time.monotonic()
        if progress != self._seen:
            self._seen, self._since = progress, now
        elif now - self._since > self._seconds:
            raise BrokerDown("Kafka does not answer", seconds=round(now - self._since))


class Delivery:
    """The one writer of a prefix.

    Cuts always go through the transactional producer, made of nothing but the
    prefix: that is the fence in both modes.  Rows go through the same one, or
    (`exactly_once = False`) through a plain idempotent one.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        prefix: str,
        cuts_topic: str,
        transaction_timeout: float,
        exactly_once: bool,
        max_row_bytes: int,
        silence: float = 30.0,
    ) -> None:
        self._cuts_topic = cuts_topic
        self._silence = silence
        self._is_initialized = False
        self._closing = threading.Event()
        common = {
            **QUIET,
            "linger.ms": 0,
            "compression.type": "lz4",
            # A row that is larger than the queue would wait for room in it forever.
            "queue.buffering.max.kbytes": max(64 << 20, 2 * max_row_bytes) >> 10,
            "queue.buffering.max.messages": 200_000,
            **client,
            "acks": "all",
            "enable.idempotence": True,
            "message.max.bytes": max_row_bytes + (1 << 20),
        }
        self._errors: list[CdcError] = []
        self._transactional = Producer(
            {
                **common,
                "transactional.id": f"gauss-cdc.{prefix}",
                "transaction.timeout.ms": int(transaction_timeout * 1000),
                "error_cb": self._on_error,
            }
        )
        self._exactly_once = exactly_once
        self._rows = (
            self._transactional
            if exactly_once
            else Producer({**common, "error_cb": self._on_error})
        )
        self._in_transaction = False
        self._acknowledged: list[Acknowledgement] = []
        self._failure: CdcError | None = None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._busy = False
        self._worker = threading.Thread(target=self._work, name="kafka", daemon=True)
        self._worker.start()

    # ------------------------------------------------------------ the loop's side
    @property
    def is_busy(self) -> bool:
        """Say whether a blocking call is under way: nothing may be sent."""
        return self._busy

    def fileno(self) -> int:
        """Readable when `answers` has something."""
        return self._wake_read

    @property
    def progress(self) -> int:
        """A number that changes while acknowledgements come in."""
        return len(self._acknowledged)

    def init_transactions(self, timeout: float) -> None:
        """Fence older selves; their open transactions are decided when this returns."""
        if self._is_initialized:
            return
        try:
            self._transactional.init_transactions(timeout)
        except (KafkaException, SystemError) as exc:
            raise ours(exc) from exc
        self._is_initialized = True

    def send(self, records: Sequence[Record], start: int = 0) -> int:
        """Hand records from `start` on to librdkafka; return how far it had room for them.

        Acknowledgements come by `poll` or with Flushed.
        """
        assert not self._busy
        producer, report = self._rows, self._report
        at = start
        try:
            if self._exactly_once and not self._in_transaction:
                self._transactional.begin_transaction()
                self._in_transaction = True
            for at in range(start, len(records)):
                topic, partition, key, value, headers = records[at]
                producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=report,
                    headers=headers,  # type: ignore[arg-type]
                )
        except BufferError:
            producer.poll(_ROOM_WAIT)
            self._raise_failure()
            return at
        except (KafkaException, SystemError) as exc:
            raise ours(exc) from exc
        return len(records)

    def poll(self) -> list[Acknowledgement]:
        """Take what was acknowledged since the last call; nothing while the worker is at it.

        What comes during a flush belongs to its answer: taken here, the engine would ask
        for the next call while this one is still under way.
        """
        if self._busy:
            self._raise_failure()
            return []
        try:
            self._rows.poll(0)
        except (KafkaException, SystemError) as exc:
            raise ours(exc) from exc
        self._raise_failure()
        taken, self._acknowledged = self._acknowledged, []
        return taken

    def answers(self) -> list[Answer]:
        """Take the worker's answers; errors are values here, to be raised by the loop."""
        out: list[Answer] = []
        while True:
            try:
                out.append(self._answers.get_nowait())
            except queue.Empty:
                break
        if out:
            self._busy = False
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        return out

    def flush(self) -> None:
        """Ask the worker to wait for all acknowledgements: Flushed."""
        self._ask(self._flush)

    def commit_part(self) -> None:
        """Ask the worker to commit without a cut: PartCommitted."""
        self._ask(self._commit_part)

    def write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> None:
        """Ask the worker to write (key, value)s into cuts and to commit: CutsCommitted."""
        self._ask(lambda: self._write_cuts(cuts))

    def write_now(
        self, records: Sequence[Record], cut: Callable[[list[Acknowledgement]], tuple[bytes, bytes]]
    ) -> tuple[list[Acknowledgement], int]:
        """Write records and one cut about them, in one transaction; blocks: for start and load."""
        try:
            sent, patience = 0, _Patience(self._silence)
            while (sent := self.send(records, sent)) < len(records):
                patience.see(self.progress)
            acknowledged = self._flush().acknowledged
            answer = self._write_cuts([cut(acknowledged)])
        except (KafkaException, SystemError) as exc:
            raise ours(exc) from exc
        return acknowledged, answer.offsets[0]

    def abort(self, timeout: float) -> None:
        """Abort the open Kafka transaction, if any, on leaving."""
        if not self._in_transaction or self._busy:
            return
        try:
            self._transactional.abort_transaction(timeout)
        except (KafkaException, SystemError) as exc:
            raise ours(exc) from exc
        self._in_transaction = False

    def close(self) -> None:
        """End the worker; what was not durable is left to the next start."""
        self._closing.set()
        for producer in {self._transactional, self._rows}:
            producer.purge()  # what waits for a broker that is gone keeps a flush waiting
        self._jobs.put(None)
        self._worker.join(timeout=_COMMIT_TRY + 1)
        # A worker that hangs all the same keeps its pipe: its number may not become another file.
        if not self._worker.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)
            # Callbacks tie them to this object: only the garbage collector would end their
            # threads, some time.
            del self._transactional, self._rows

    # ------------------------------------------------------------ the worker's side
    def _ask(self, job: Job) -> None:
        assert not self._busy
        self._busy = True
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                answer = job()
            except (KafkaException, SystemError, CdcError) as exc:
                answer = ours(exc)
            self._answers.put(answer)
            os.write(self._wake_write, b"!")

    def _flush(self) -> Flushed:
        self._drain(self._rows)
        taken, self._acknowledged = self._acknowledged, []
        return Flushed(taken)

    def _commit_part(self) -> PartCommitted:
        if self._in_transaction:
            self._commit()
        return PartCommitted()

    def _write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> CutsCommitted:
        if not self._in_transaction:
            self._transactional.begin_transaction()
            self._in_transaction = True
        offsets: list[int] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failure = self._failure or of_error(error)
            else:
                offsets.append(_offset(message))

        for key, value in cuts:
            self._transactional.produce(self._cuts_topic, value, key, 0, on_delivery=report)
        self._drain(self._transactional)
        if len(offsets) != len(cuts) or min(offsets) < 0:
            raise GroupUnusable("a cut was not acknowledged with an offset")
        self._commit()
        return CutsCommitted(tuple(offsets))

    def _commit(self) -> None:
        """Commit; after a time-out the same call again, anything else is for the next start."""
        patience = _Patience(self._silence)
        while True:
            try:
                self._transactional.commit_transaction(_COMMIT_TRY)
                break
            except KafkaException as exc:
                error = exc.args[0]
                if not error.retriable() or error.txn_requires_abort() or self._closing.is_set():
                    raise
            patience.see(0)
        self._in_transaction = False

    def _drain(self, producer: Producer) -> None:
        """Wait until everything sent is acknowledged, as long as something comes."""
        patience = _Patience(self._silence)
        while left := producer.flush(_FLUSH_TRY):
            self._raise_failure()
            patience.see(left)
        self._raise_failure()

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or of_error(error)
            return
        self._acknowledged.append((message.topic(), message.partition(), _offset(message)))  # type: ignore[arg-type]

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in _FENCED:
            self._failure = self._failure or of_error(error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None or offset == OFFSET_INVALID else offset


class CutsReader:
    """Reads the cuts topic in exact windows, and its bounds."""

    def __init__(self, client: Mapping[str, Any], topic: str) -> None:
        common = {
            **QUIET,
            **client,
            "group.id": "gauss-cdc-producer",  # never joined: offsets are assigned by hand
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        }
        self._topic = topic
        self._committed = Consumer({**common, "isolation.level": "read_committed"})
        self._uncommitted = Consumer({**common, "isolation.level": "read_uncommitted"})

    def bounds(self) -> tuple[int, int]:
        """First offset and high watermark, asked now."""
        return self._watermarks(self._uncommitted)

    def lso(self) -> int:
        """End of what read_committed readers see, asked now."""
        return self._watermarks(self._committed)[1]

    def _watermarks(self, consumer: Consumer) -> tuple[int, int]:
        try:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(self._topic, 0), timeout=_ASK, cached=False
            )
        except KafkaException as exc:
            raise ours(exc) from exc
        return low, high

    def read(self, low: int, high: int) -> list[tuple[int, bytes]]:
        """Committed records with low <= offset < high; `high` is at most the LSO."""
        if low >= high:
            return []
        consumer = self._committed
        partition = TopicPartition(self._topic, 0, low)
        out: list[tuple[int, bytes]] = []
        silent = 0
        try:
            consumer.assign([partition])
            while True:
                for message in consumer.consume(1000, _READ_TRY):
                    if (error := message.error()) is not None:
                        raise of_error(error)
                    if (offset := _offset(message)) >= high:
                        return out
                    silent = 0
                    out.append((offset, message.value() or b""))
                # The last offsets may be markers, which are never delivered: the position tells.
                position = consumer.position([partition])[0].offset
                if position >= high:
                    return out
                silent += 1
                if silent > _SILENT_READS:
                    raise BrokerDown("the cuts topic cannot be read", position=position, end=high)
        except KafkaException as exc:
            raise ours(exc) from exc
        finally:
            consumer.unassign()

    def close(self) -> None:
        """Close both consumers."""
        self._committed.close()
        self._uncommitted.close()
