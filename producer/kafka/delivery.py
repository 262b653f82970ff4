"""The one delivery: records and cuts of a run, in Kafka transactions.

A writer's `flush` and `commit` run beside the loop (calls.py), which continues to read and to send
keepalives to the source.  During such a call nothing is sent.  Every wait ends: without progress
for `silence` seconds it is BrokerDown.

A missing delivery report is never a success.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from producer.core.events import (
    Acknowledged,
    Acknowledgement,
    CutsDurable,
    PartDurable,
    Records,
)
from producer.core.ports import Answer
from producer.errors import BrokerDown, CdcError, GroupUnusable
from producer.kafka.calls import CallThread
from producer.kafka.client import LOGGED, QUIET, transactional_id
from producer.kafka.writer import ConfluentWriter, MakeWriter, Writer

_ROOM_WAIT: Final = 0.2  # seconds for room in librdkafka's queue
_TRY: Final = 1.0  # seconds of one call of a writer
_COMMIT_TRY: Final = 5.0
_GOODBYE: Final = 2.0  # of the call under way, and of an abort, when it is left


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
            "queue.buffering.max.messages": 35_000,
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
        self._calls = CallThread()

    # ------------------------------------------------------------ the loop's side
    @property
    def is_busy(self) -> bool:
        """Say whether a call is under way: nothing may be sent."""
        return self._calls.is_busy

    def filenos(self) -> tuple[int, ...]:
        """Files of which one is readable when `answers` has something."""
        return self._calls.filenos()

    def wait(self, seconds: float) -> None:
        """Wait for an answer."""
        self._calls.wait(seconds)

    @property
    def progress(self) -> int:
        """A counter that changes while acknowledgements arrive."""
        return self._rows.progress

    def init_transactions(self, timeout: float) -> None:
        """Fence older producers; their open transactions are decided when this returns.

        `timeout`: seconds.
        """
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
        assert not self.is_busy
        with self._explained():
            if writer is self._transactional:
                self._begin()
            sent = writer.send(records, start)
            if sent < len(records):
                writer.poll(_ROOM_WAIT)
        return sent

    def poll(self) -> list[Acknowledgement]:
        """Take what was acknowledged since the last call; nothing during a call.

        Acknowledgements during a flush belong to its answer: otherwise the engine would
        request the next call before this one has ended.
        """
        with self._explained():
            if self.is_busy:
                self._raise_failure()
                return []
            self._rows.poll(0)
            self._raise_failure()
            return self._rows.take()

    def answers(self) -> list[Answer]:
        """Take the answers of calls; errors are values here, to be raised by the loop."""
        return self._calls.answers()

    def flush(self) -> None:
        """Ask for all acknowledgements: Acknowledged."""
        self._calls.begin(self._flush)

    def commit_part(self) -> None:
        """Ask for a commit without a cut: PartDurable."""
        self._calls.begin(self._commit_part)

    def write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> None:
        """Ask to write (key, value)s into cuts and to commit: CutsDurable."""
        self._calls.begin(lambda: self._write_cuts(cuts))

    def write_now(
        self,
        batches: Sequence[Records],
        cuts: Callable[[list[Acknowledgement]], Sequence[tuple[bytes, bytes]]],
        *,
        atomic: bool = False,
    ) -> tuple[list[Acknowledgement], tuple[int, ...]]:
        """Write records and cuts about them, in one transaction; blocks: for start and load.

        Returns the records' acknowledgements and the offsets of the cuts.

        `atomic`: the records, too, where rows are written outside of transactions.
        """
        writer = self._transactional if atomic else self._rows
        patience = _Patience(self._silence)
        for records in batches:
            sent = 0
            while (sent := self._send(writer, records, sent)) < len(records):
                patience.see(writer.progress)
        with self._explained():
            acknowledged = self._drained(writer)
            answer = self._write_cuts(cuts(acknowledged.runs))
        return acknowledged.runs, answer.offsets

    def abort(self, timeout: float) -> None:
        """Abort the open Kafka transaction, if any, on leaving.  `timeout`: seconds."""
        if not self._in_transaction or self.is_busy:
            return
        with self._explained():
            self._transactional.abort(timeout)
        self._in_transaction = False

    def close(self) -> None:
        """End the worker; the next start handles what is not durable."""
        self._end_transaction()
        self._closing.set()
        for writer in self._writers():
            writer.purge()  # a call that is under way ends sooner
        if self._calls.close(_COMMIT_TRY + 1):
            for writer in self._writers():
                writer.close()

    def _end_transaction(self) -> None:
        """Decide what is open, if Kafka answers at once.

        Else it would stay open until the next start fences it: a start that stops before, as after
        a promotion, could say why only when `transaction_timeout` is over.
        """
        if not self._in_transaction:
            return
        end = time.monotonic() + _GOODBYE
        with contextlib.suppress(CdcError):
            while self.is_busy and (left := end - time.monotonic()) > 0:
                if not self.answers():
                    self.wait(min(left, 0.1))
            self.abort(_GOODBYE)

    # ------------------------------------------------------------ calls
    def _flush(self) -> Acknowledged:
        with self._explained():
            return self._drained(self._rows)

    def _commit_part(self) -> PartDurable:
        with self._explained():
            if self._in_transaction:
                self._commit()
        return PartDurable()

    def _write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> CutsDurable:
        with self._explained():
            self._begin()
            writer, sent, patience = self._transactional, 0, _Patience(self._silence)
            records: Records = [(self._cuts_topic, 0, key, value, []) for key, value in cuts]
            while (sent := writer.send(records, sent)) < len(records):
                writer.poll(_ROOM_WAIT)
                patience.see(writer.progress)
            written = self._drained(writer)
            offsets = [offset for _, _, *run in written.runs for offset in range(*run)]
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

    def _drained(self, writer: Writer) -> Acknowledged:
        """Wait until everything sent is acknowledged, as long as there is progress."""
        patience = _Patience(self._silence)
        while left := writer.flush(_TRY):
            patience.see(left)
        return Acknowledged(writer.take())

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
