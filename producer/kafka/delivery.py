"""The one delivery: records and cuts of a run, in Kafka transactions.

librdkafka's blocking calls (`flush`, `commit_transaction`, `init_transactions`)
run in one worker thread, so that the loop continues to read and to send
keepalives to the source.  During such a call nothing is produced.
Every wait ends: without progress for `silence` seconds it is BrokerDown.

A fenced producer raises SystemError from `flush()` with the KafkaException as
its cause; a missing delivery report is never a success.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from producer.core.events import (
    Acknowledged,
    Acknowledgement,
    CutsDurable,
    PartDurable,
    Records,
)
from producer.core.ports import Answer
from producer.errors import BrokerDown, CdcError, GroupUnusable
from producer.kafka.client import (
    FENCED,
    LOGGED,
    QUIET,
    error_in,
    of_error,
    offset_of,
    ours,
    transactional_id,
)

_ROOM_WAIT: Final = 0.2  # seconds for room in librdkafka's queue
_FLUSH_TRY: Final = 1.0
_COMMIT_TRY: Final = 5.0


Job: TypeAlias = Callable[[], Answer]


class _Patience:
    """Limits the wait for a broker that does not answer."""

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
            **LOGGED,
            "linger.ms": 5,  # batches of rows; a flush, which ends each group, does not wait for it
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
                "transactional.id": transactional_id(prefix),
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
        self._acknowledged: list[list[Any]] = []  # topic, partition, offsets start..end-1
        self._reports = 0
        self._failure: CdcError | KafkaException | None = None
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

    def wait(self, seconds: float) -> None:
        """Wait for an answer."""
        select.select([self._wake_read], [], [], seconds)

    @property
    def progress(self) -> int:
        """A counter that changes while acknowledgements arrive."""
        return self._reports

    def init_transactions(self, timeout: float) -> None:
        """Fence older producers; their open transactions are decided when this returns."""
        if self._is_initialized:
            return
        try:
            self._transactional.init_transactions(timeout)
        except (KafkaException, SystemError) as exc:
            raise self._ours(exc) from exc
        self._is_initialized = True

    def send(self, records: Records, start: int = 0) -> int:
        """Hand records from `start` on to librdkafka; return how far it had room for them.

        Acknowledgements come by `poll` or with the answer of `flush`.
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
            raise self._ours(exc) from exc
        return len(records)

    def poll(self) -> list[Acknowledgement]:
        """Take what was acknowledged since the last call; nothing during a call of the worker.

        Acknowledgements during a flush belong to its answer: otherwise the engine would
        request the next call before this one has ended.
        """
        if self._busy:
            self._raise_failure()
            return []
        try:
            self._rows.poll(0)
        except (KafkaException, SystemError) as exc:
            raise self._ours(exc) from exc
        self._raise_failure()
        return self._taken()

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
        """Ask the worker to wait for all acknowledgements: Acknowledged."""
        self._ask(self._flush)

    def commit_part(self) -> None:
        """Ask the worker to commit without a cut: PartDurable."""
        self._ask(self._commit_part)

    def write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> None:
        """Ask the worker to write (key, value)s into cuts and to commit: CutsDurable."""
        self._ask(lambda: self._write_cuts(cuts))

    def write_now(
        self, records: Records, cut: Callable[[list[Acknowledgement]], tuple[bytes, bytes]]
    ) -> tuple[list[Acknowledgement], int]:
        """Write records and one cut about them, in one transaction; blocks: for start and load."""
        try:
            sent, patience = 0, _Patience(self._silence)
            while (sent := self.send(records, sent)) < len(records):
                patience.see(self.progress)
            acknowledged = self._flush().runs
            answer = self._write_cuts([cut(acknowledged)])
        except (KafkaException, SystemError) as exc:
            raise self._ours(exc) from exc
        return acknowledged, answer.offsets[0]

    def abort(self, timeout: float) -> None:
        """Abort the open Kafka transaction, if any, on leaving."""
        if not self._in_transaction or self._busy:
            return
        try:
            self._transactional.abort_transaction(timeout)
        except (KafkaException, SystemError) as exc:
            raise self._ours(exc) from exc
        self._in_transaction = False

    def close(self) -> None:
        """End the worker; the next start handles what is not durable."""
        self._closing.set()
        for producer in {self._transactional, self._rows}:
            producer.purge()  # records for an unreachable broker would block a flush
        self._jobs.put(None)
        self._worker.join(timeout=_COMMIT_TRY + 1)
        # A worker that still hangs keeps its pipe: the descriptor must not be reused.
        if not self._worker.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)
            # Callbacks refer to this object: without this, only the garbage collector would
            # end their threads.
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
                answer = self._ours(exc)
            self._answers.put(answer)
            os.write(self._wake_write, b"!")

    def _flush(self) -> Acknowledged:
        self._drain(self._rows)
        return Acknowledged(self._taken())

    def _taken(self) -> list[Acknowledgement]:
        taken, self._acknowledged = self._acknowledged, []
        return [(topic, partition, start, end) for topic, partition, start, end in taken]

    def _commit_part(self) -> PartDurable:
        if self._in_transaction:
            self._commit()
        return PartDurable()

    def _write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> CutsDurable:
        if not self._in_transaction:
            self._transactional.begin_transaction()
            self._in_transaction = True
        offsets: list[int] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failure = self._failure or KafkaException(error)
            else:
                offsets.append(offset_of(message))

        for key, value in cuts:
            self._transactional.produce(self._cuts_topic, value, key, 0, on_delivery=report)
        self._drain(self._transactional)
        if len(offsets) != len(cuts) or min(offsets) < 0:
            raise GroupUnusable("a cut was not acknowledged with an offset")
        self._commit()
        return CutsDurable(tuple(offsets))

    def _commit(self) -> None:
        """Commit; repeat the call after a timeout, leave any other error to the next start."""
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
        """Wait until everything sent is acknowledged, as long as there is progress."""
        patience = _Patience(self._silence)
        while left := producer.flush(_FLUSH_TRY):
            self._raise_failure()
            patience.see(left)
        self._raise_failure()

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or KafkaException(error)
            return
        self._reports += 1
        topic, partition, offset = message.topic(), message.partition(), offset_of(message)
        if runs := self._acknowledged:
            newest = runs[-1]
            if newest[3] == offset and newest[0] == topic and newest[1] == partition:
                newest[3] = offset + 1
                return
        self._acknowledged.append([topic, partition, offset, offset + 1])

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in FENCED:
            self._failure = self._failure or KafkaException(error)

    def _ours(self, exc: BaseException) -> CdcError:
        """Convert an exception.

        After a fatal error most calls only say that there was one, or fail inside a callback of
        ours (SystemError): a transaction that is begun is refused with the error itself.
        """
        found = error_in(exc)
        if not isinstance(exc, CdcError) and (found is None or not found.fatal()):
            try:
                self._transactional.begin_transaction()
            except (KafkaException, SystemError) as refused:
                said = error_in(refused)
                if said is not None and said.fatal():
                    return of_error(said)
        return ours(exc)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._ours(self._failure)
