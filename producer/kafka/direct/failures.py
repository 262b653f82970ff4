"""What Kafka's error codes mean for a writer, and the first reason why it cannot go on.

Numbers: Kafka protocol guide, "Error Codes".
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from producer.errors import CdcError
from producer.kafka.client import FENCED, of_error

SLICE: Final = 0.1  # seconds, the longest wait that does not look at `purge`
BACKOFF: Final = 0.1  # seconds until the same is tried again
_MARKERS_BACKOFF: Final = 0.005  # while markers of the last transaction are written

DUPLICATE: Final = 46  # stored before; the broker does not remember where
OUT_OF_ORDER: Final = 45
UNKNOWN_TOPIC: Final = 3
UNKNOWN: Final = 13  # of what an answer leaves out: NETWORK_EXCEPTION, which passes
NOT_ATTEMPTED: Final = 55  # another one of the same request failed
MARKERS: Final = 51  # CONCURRENT_TRANSACTIONS
COORDINATOR_MOVED: Final = frozenset({15, 16})
# These pass; the same request may be sent again.
COORDINATOR_PASSES: Final = COORDINATOR_MOVED | {7, 14, MARKERS}
STORE_PASSES: Final = frozenset({2, 3, 5, 6, 7, 8, 13, 14, 15, 16, 19, 20, MARKERS, 56, 74, 75, 76})
_TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001  confluent-kafka's own constants
_PURGED: Final = KafkaError._PURGE_QUEUE  # noqa: SLF001
_STATE: Final = KafkaError._STATE  # noqa: SLF001


def backoff(code: int) -> float:
    """Seconds until what was answered by an error that passes is tried again."""
    return _MARKERS_BACKOFF if code == MARKERS else BACKOFF


def timed_out() -> CdcError:
    """No answer in time."""
    return of_error(KafkaError(_TIMED_OUT, retriable=True))


def without_producer() -> CdcError:
    """Kafka was not asked yet who we are."""
    return of_error(KafkaError(_STATE))


class Failures:
    """Why nothing can be sent any more; the first reason counts."""

    def __init__(self) -> None:
        self._passing: KafkaError | None = None  # until the transaction is aborted
        self._fatal: KafkaError | None = None
        self._refused: CdcError | None = None

    def __bool__(self) -> bool:
        """Say whether there is one."""
        return bool(self._refused or self._fatal or self._passing)

    @property
    def fatal(self) -> CdcError | None:
        """The error that ended this writer."""
        return of_error(self._fatal) if self._fatal is not None else None

    def raise_first(self) -> None:
        """Raise it, if there is one."""
        if self._refused is not None:
            raise self._refused
        if error := self._fatal or self._passing:
            raise of_error(error)

    def raise_fatal(self) -> None:
        """Raise what even an abort does not mend."""
        if error := self.fatal:
            raise error

    def note(self, code: int, why: str | None = None) -> None:
        """Note an error that does not pass."""
        if code in FENCED:
            self._fatal = self._fatal or KafkaError(code, why, fatal=True)
            return
        self._passing = self._passing or KafkaError(code, why, txn_requires_abort=True)

    def purge(self) -> None:
        """Note that what was not stored is given up."""
        self._passing = self._passing or KafkaError(_PURGED)

    def refuse(self, error: CdcError) -> None:
        """Note that a broker does not fit."""
        self._refused = error

    def forgive(self) -> None:
        """Forget what an abort undoes."""
        self._passing = None
