"""`Writer` with record batches of our own, sent over our own connections.

All of it happens inside the calls: no thread, no queue beside the records that have no answer.
`lanes` has the batches of each partition, `transaction` who we are and what is open, `brokers` the
connections.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from producer.core.events import Acknowledgement, Records
from producer.errors import CdcError, Unsupported
from producer.kafka.direct.brokers import Brokers
from producer.kafka.direct.connection import ready
from producer.kafka.direct.failures import BACKOFF, SLICE, Failures, timed_out
from producer.kafka.direct.lanes import PartitionLanes
from producer.kafka.direct.records import Packer, PlainPacker, plain_crc32c
from producer.kafka.direct.settings import WAY_OUT, refusal, settings_of
from producer.kafka.direct.transaction import KafkaTransaction
from producer.kafka.writer import MakeWriter, Writer
from producer.native import NativeParts

_HELD_BYTES: Final = 16 << 20  # of records without an answer; a larger row is taken alone


def choose(parts: NativeParts | None) -> MakeWriter:
    """Make direct writers."""

    def make(settings: Mapping[str, Any]) -> Writer:
        return DirectWriter(settings, parts)

    return make


class DirectWriter:
    """`Writer` by record batches of our own."""

    blocks = False

    def __init__(
        self,
        settings: Mapping[str, Any],
        parts: NativeParts | None,
        *,
        transaction_version: int = 2,
    ) -> None:
        """`settings`: librdkafka's, as far as they are followed; `parts` make the batches.

        `transaction_version`: never newer than this.
        """
        if why := refusal(settings):
            raise Unsupported(f'[kafka] producer = "direct": {why}', hint=WAY_OUT)
        followed = settings_of(settings)
        self._linger = followed.linger
        self._packer: Packer = (
            PlainPacker(followed.batch_bytes)
            if parts is None
            else parts.packer(followed.batch_bytes)
        )
        crc32c = plain_crc32c if parts is None else parts.crc32c
        self._failures = Failures()
        self._brokers = Brokers(followed, self._failures)
        self._transaction = KafkaTransaction(
            followed, self._brokers, self._failures, transaction_version
        )
        self._lanes = PartitionLanes(
            followed, self._brokers, self._transaction, self._failures, crc32c
        )
        self._sent = 0  # records that were taken, or given up
        self._sealed_at = time.monotonic()

    def filenos(self) -> tuple[int, ...]:
        """Its connections."""
        return tuple(one.fileno() for one in self._brokers.all())

    # ------------------------------------------------------------ for any thread
    @property
    def progress(self) -> int:
        """Count records that were stored."""
        return self._lanes.stored

    @property
    def _unanswered(self) -> int:
        """Count records that have no answer."""
        return self._sent - self._lanes.stored

    def raise_failure(self) -> None:
        """Raise why a record was not stored, or that another writer took over."""
        self._failures.raise_first()

    def fatal(self) -> CdcError | None:
        """Return the error that ended this writer."""
        return self._failures.fatal

    def purge(self) -> None:
        """Give up what was not stored."""
        if self._unanswered or self._transaction.is_ending:
            self._failures.purge()

    # ------------------------------------------------------------ records
    def send(self, records: Records, start: int) -> int:
        """Take records from `start` on; return how far there was room for them."""
        self.raise_failure()
        if not self._packer.size:
            self._sealed_at = time.monotonic()
        held = self._lanes.held
        room = max(_HELD_BYTES - held, 0 if held else 1)
        end = self._packer.add(records, start, room, time.time_ns() // 1_000_000)
        self._sent += end - start
        self._fill()
        self._move(0)
        return end

    def poll(self, seconds: float) -> None:
        """Collect acknowledgements; wait so long for the first one."""
        until, before = time.monotonic() + seconds, self.progress
        while True:
            now = time.monotonic()
            if self._packer.size and now - self._sealed_at >= self._linger:
                self._seal()
            self._move(min(SLICE, until - now))
            self.raise_failure()
            if self.progress != before or time.monotonic() >= until:
                return

    def take(self) -> list[Acknowledgement]:
        """Return what was collected."""
        return self._lanes.take()

    def flush(self, seconds: float) -> int:
        """Collect acknowledgements until none is missing; return how many are."""
        until = time.monotonic() + seconds
        self._seal()
        while self._unanswered:
            self._move(min(SLICE, until - time.monotonic()))
            self.raise_failure()
            if time.monotonic() >= until:
                break
        return self._unanswered

    def _seal(self) -> None:
        self._packer.seal()
        self._fill()

    def _fill(self) -> None:
        if self._lanes.fill(self._packer):
            self._sealed_at = time.monotonic()

    def _push(self) -> None:
        self._transaction.add(self._lanes.waiting())
        self._lanes.produce()

    def _move(self, seconds: float) -> None:
        """Do what can be done now; then wait for answers, and take them."""
        self._push()
        connections = self._brokers.all()
        if not connections:
            if seconds > 0:
                time.sleep(min(seconds, BACKOFF))
            return
        if seconds > 0:
            next_try = min(self._lanes.until_next_try(), self._transaction.until_next_try())
            ready(connections, min(seconds, next_try))
        for connection in connections:
            self._brokers.step(connection)
        self._push()

    # ------------------------------------------------------------ transactions
    def init_transactions(self, seconds: float) -> None:
        """Fence older writers of the transactional id."""
        self._transaction.identify(seconds)

    def begin(self) -> None:
        """Begin a Kafka transaction."""
        self.raise_failure()
        self._transaction.begin()

    def commit(self, seconds: float) -> bool:
        """Commit; False: there is no answer yet, call it again."""
        if self._unanswered:
            self.flush(seconds)
        return not self._unanswered and self._transaction.end(seconds, commit=True)

    def abort(self, seconds: float) -> None:
        """Abort the Kafka transaction."""
        until = time.monotonic() + seconds
        self._packer.seal()
        self._packer.take()
        self._lanes.clear()
        while self._lanes.are_flying:
            if time.monotonic() >= until:
                raise timed_out()
            self._move(min(SLICE, until - time.monotonic()))
            self._lanes.clear()  # what failed is not sent again
        self._lanes.forget()
        self._sent = self._lanes.stored
        if not self._transaction.end(until - time.monotonic(), commit=False):
            raise timed_out()
        self._transaction.renew(until - time.monotonic())

    def close(self) -> None:
        """Close its connections."""
        self._brokers.close()
