"""The producer of Kafka by which a delivery writes: the interface, and librdkafka's in Python.

The interface is so narrow that another producer, with record batches of its own, has room behind
it.  It knows neither rows nor cuts, only records, and waits no longer than it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from producer.core.events import Acknowledgement, Records
from producer.errors import CdcError
from producer.kafka.client import FENCED, error_in, of_error, offset_of, ours


class Writer(Protocol):
    """One producer of Kafka.

    One thread at a time calls it; `progress`, `raise_failure` and `purge` are for any thread.
    Every method may raise CdcError: of its own call, or why a record was not stored.
    """

    @property
    def progress(self) -> int:
        """A counter that changes while acknowledgements arrive."""

    def init_transactions(self, seconds: float) -> None:
        """Fence older writers of the transactional id; their transactions are decided then."""

    def begin(self) -> None:
        """Begin a Kafka transaction."""

    def send(self, records: Records, start: int) -> int:
        """Take records from `start` on; return how far there was room for them."""

    def poll(self, seconds: float) -> None:
        """Collect acknowledgements; wait so long for the first one."""

    def take(self) -> list[Acknowledgement]:
        """Return what was collected; per partition in the order sent, start < 0: unknown."""

    def flush(self, seconds: float) -> int:
        """Collect acknowledgements until none is missing; return how many are."""

    def commit(self, seconds: float) -> bool:
        """Commit; False: there is no answer yet, call it again."""

    def abort(self, seconds: float) -> None:
        """Abort the Kafka transaction."""

    def raise_failure(self) -> None:
        """Raise why a record was not stored, or that another writer took over."""

    def fatal(self) -> CdcError | None:
        """Return the error that ended this writer, which other calls may hide.  None: none did."""

    def purge(self) -> None:
        """Give up what was not stored: records for an unreachable broker would block a flush."""

    def close(self) -> None:
        """End it."""


MakeWriter: TypeAlias = Callable[[Mapping[str, Any]], Writer]  # of librdkafka's settings


class ConfluentWriter:
    """`Writer` by `confluent_kafka.Producer`: a call per record, and one per acknowledgement.

    A fenced producer raises SystemError from `flush()` with the KafkaException as its cause.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._acknowledged: list[list[Any]] = []  # topic, partition, offsets start..end-1
        self._reports = 0
        self._failure: KafkaError | None = None
        self._producer = Producer({**settings, "error_cb": self._on_error})

    @property
    def progress(self) -> int:
        return self._reports

    def init_transactions(self, seconds: float) -> None:
        with as_ours():
            self._producer.init_transactions(seconds)

    def begin(self) -> None:
        with as_ours():
            self._producer.begin_transaction()

    def send(self, records: Records, start: int) -> int:
        producer, report, at = self._producer, self._report, start
        with as_ours():
            try:
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
                return at
        return len(records)

    def poll(self, seconds: float) -> None:
        with as_ours():
            self._producer.poll(seconds)
        self.raise_failure()

    def take(self) -> list[Acknowledgement]:
        taken, self._acknowledged = self._acknowledged, []
        return [(topic, partition, start, end) for topic, partition, start, end in taken]

    def flush(self, seconds: float) -> int:
        with as_ours():
            left = self._producer.flush(seconds)
        self.raise_failure()
        return left

    def commit(self, seconds: float) -> bool:
        return has_ended(lambda: self._producer.commit_transaction(seconds))

    def abort(self, seconds: float) -> None:
        with as_ours():
            self._producer.abort_transaction(seconds)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise of_error(self._failure)

    def fatal(self) -> CdcError | None:
        """Return the error that ended this writer.

        After one most calls only say that there was one, or fail inside a callback of ours
        (SystemError): a transaction that is begun is refused with the error itself.
        """
        try:
            self._producer.begin_transaction()
        except (KafkaException, SystemError) as refused:
            error = error_in(refused)
            if error is not None and error.fatal():
                return of_error(error)
        return None

    def purge(self) -> None:
        self._producer.purge()

    def close(self) -> None:
        # Its callbacks refer to this object: without this, only the garbage collector would end
        # librdkafka's threads.
        del self._producer

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or error
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
            self._failure = self._failure or error


def has_ended(commit: Callable[[], object]) -> bool:
    """Commit; False: there is no answer yet, and the same call may be made again.

    Raises the CdcError of any other failure.
    """
    try:
        commit()
    except (KafkaException, SystemError) as exc:
        error = error_in(exc)
        if error is not None and error.retriable() and not error.txn_requires_abort():
            return False
        raise ours(exc) from exc
    return True


@contextmanager
def as_ours() -> Iterator[None]:
    """Raise the library's exceptions as CdcError."""
    try:
        yield
    except (KafkaException, SystemError) as exc:
        raise ours(exc) from exc
