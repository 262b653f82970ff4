"""The one delivery: records and cuts of a run, in Kafka transactions.

A writer's blocking calls (`flush`, `commit`, `init_transactions`) run in one worker thread, so
that the loop continues to read and to send keepalives to the source.  During such a call nothing
is sent.  Every wait ends: without progress for `silence` seconds it is BrokerDown.

A missing delivery report is never a success.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from producer.core.events import (
    Acknowledged,
    Acknowledgement,
    CutsDurable,
    PartDurable,
    Records,
)
from producer.core.ports import Answer
from producer.errors import BrokerDown, CdcError, GroupUnusable
from producer.kafka.client import LOGGED, QUIET, transactional_id
from producer.kafka.writer import ConfluentWriter, MakeWriter, Writer

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

    Cuts always go through the transactional writer, made of nothing but the
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
        make: MakeWriter = ConfluentWriter,
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
            # Each takes half a kilobyte beside its value; more wait here without any being faster.
            "queue.buffering.max.messages": 50_000,
            **client,
            "acks": "all",
            "enable.idempotence": True,
            "message.max.bytes": max_row_bytes + (1 << 20),
        }
        self._transactional = make(
            {
                **common,
                "transactional.id": transactional_id(prefix),
                "transaction.timeout.ms": int(transaction_timeout * 1000),
            }
        )
        self._exactly_once = exactly_once
        self._rows = self._transactional if exactly_once else make(common)
        self._in_transaction = False
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
        return self._rows.progress

    def init_transactions(self, timeout: float) -> None:
        """Fence older producers; their open transactions are decided when this returns."""
        if self._is_initialized:
            return
        with self._explained():
            self._transactional.init_transactions(timeout)
        self._is_initialized = True

    def send(self, records: Records, start: int = 0) -> int:
        """Hand records from `start` on to the writer; return how far it had room for them.

        Acknowledgements come by `poll` or with the answer of `flush`.
        """
        return self._send(self._rows, records, start)

    def _send(self, writer: Writer, records: Records, start: int) -> int:
        assert not self._busy
        with self._explained():
            if writer is self._transactional:
                self._begin()
            sent = writer.send(records, start)
            if sent < len(records):
                writer.poll(_ROOM_WAIT)
        return sent

    def poll(self) -> list[Acknowledgement]:
        """Take what was acknowledged since the last call; nothing during a call of the worker.

        Acknowledgements during a flush belong to its answer: otherwise the engine would
        request the next call before this one has ended.
        """
        with self._explained():
            if self._busy:
                self._raise_failure()
                return []
            self._rows.poll(0)
            self._raise_failure()
            return self._rows.take()

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
        self,
        records: Records,
        cut: Callable[[list[Acknowledgement]], tuple[bytes, bytes]],
        *,
        atomic: bool = False,
    ) -> tuple[list[Acknowledgement], int]:
        """Write records and one cut about them, in one transaction; blocks: for start and load.

        `atomic`: the records, too, where rows are written outside of transactions.
        """
        writer = self._transactional if atomic else self._rows
        sent, patience = 0, _Patience(self._silence)
        while (sent := self._send(writer, records, sent)) < len(records):
            patience.see(writer.progress)
        with self._explained():
            self._drain(writer)
            acknowledged = writer.take()
            answer = self._write_cuts([cut(acknowledged)])
        return acknowledged, answer.offsets[0]

    def abort(self, timeout: float) -> None:
        """Abort the open Kafka transaction, if any, on leaving."""
        if not self._in_transaction or self._busy:
            return
        with self._explained():
            self._transactional.abort(timeout)
        self._in_transaction = False

    def close(self) -> None:
        """End the worker; the next start handles what is not durable."""
        self._closing.set()
        for writer in self._writers():
            writer.purge()  # a call that is under way ends sooner
        self._jobs.put(None)
        self._worker.join(timeout=_COMMIT_TRY + 1)
        # A worker that still hangs keeps its pipe: the descriptor must not be reused.
        if not self._worker.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)
            for writer in self._writers():
                writer.close()

    # ------------------------------------------------------------ the worker's side
    def _ask(self, job: Job) -> None:
        assert not self._busy
        self._busy = True
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                with self._explained():
                    answer = job()
            except CdcError as error:
                answer = error
            self._answers.put(answer)
            os.write(self._wake_write, b"!")

    def _flush(self) -> Acknowledged:
        self._drain(self._rows)
        return Acknowledged(self._rows.take())

    def _commit_part(self) -> PartDurable:
        if self._in_transaction:
            self._commit()
        return PartDurable()

    def _write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> CutsDurable:
        self._begin()
        writer, sent, patience = self._transactional, 0, _Patience(self._silence)
        records: Records = [(self._cuts_topic, 0, key, value, []) for key, value in cuts]
        while (sent := writer.send(records, sent)) < len(records):
            writer.poll(_ROOM_WAIT)
            patience.see(writer.progress)
        self._drain(writer)
        offsets = [offset for _, _, *run in writer.take() for offset in range(*run)]
        if len(offsets) != len(cuts) or min(offsets) < 0:
            raise GroupUnusable("a cut was not acknowledged with an offset")
        self._commit()
        return CutsDurable(tuple(offsets))

    def _begin(self) -> None:
        if not self._in_transaction:
            self._transactional.begin()
            self._in_transaction = True

    def _commit(self) -> None:
        """Commit; repeat the call after a timeout, leave any other error to the next start."""
        patience = _Patience(self._silence)
        while not self._transactional.commit(_COMMIT_TRY):
            if self._closing.is_set():
                raise BrokerDown("left before Kafka answered to a commit")
            patience.see(0)
        self._in_transaction = False

    def _drain(self, writer: Writer) -> None:
        """Wait until everything sent is acknowledged, as long as there is progress."""
        patience = _Patience(self._silence)
        while left := writer.flush(_FLUSH_TRY):
            patience.see(left)

    # ------------------------------------------------------------ both sides
    def _writers(self) -> list[Writer]:
        return [self._rows] if self._exactly_once else [self._transactional, self._rows]

    def _raise_failure(self) -> None:
        for writer in self._writers():
            writer.raise_failure()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """A writer that was fenced fails in many ways: raise that it was."""
        try:
            yield
        except CdcError as error:
            if (fatal := self._transactional.fatal()) is None:
                raise
            raise fatal from error
