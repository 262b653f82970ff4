"""Who we are at Kafka, and the open transaction (KIP-98, KIP-890).

InitProducerId fences older producers; a partition is added to the transaction before its first
batch (transaction.version 1) or by it (2); EndTxn commits.  With 2 the end of a transaction gives
the next epoch.  In each epoch the sequence of a partition begins at 0.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

from producer.core.events import Place
from producer.kafka.direct import requests
from producer.kafka.direct.brokers import Brokers
from producer.kafka.direct.connection import BrokerConnection, ready
from producer.kafka.direct.failures import (
    BACKOFF,
    COORDINATOR_MOVED,
    COORDINATOR_PASSES,
    MARKERS,
    NOT_ATTEMPTED,
    SLICE,
    STORE_PASSES,
    UNKNOWN,
    Failures,
    backoff,
    timed_out,
    without_producer,
)
from producer.kafka.direct.requests import Producing
from producer.kafka.direct.settings import Settings
from producer.kafka.direct.wire import Response

_INIT_SECONDS: Final = 1.0  # for who needs no transactional id


class KafkaTransaction:
    """The producer's id and epoch, sequences, and what the open transaction has."""

    def __init__(
        self, settings: Settings, brokers: Brokers, failures: Failures, newest_version: int
    ) -> None:
        self._settings, self._brokers, self._failures = settings, brokers, failures
        self._id, self._newest_version = settings.transactional_id, newest_version
        self.producing: Producing | None = None
        self.version = 1
        self._sequences: Counter[Place] = Counter()  # of the next record
        self._is_open = False
        self._has_partitions = False  # as far as we know
        self._added: set[Place] = set()
        self._is_adding = False
        self._add_not_before = 0.0
        self._ending: bool | None = None  # commit or abort: what was asked for, until it is done
        self._end_asked = False
        self._end_not_before = 0.0

    # ------------------------------------------------------------ who we are
    def identify(self, seconds: float, known: Producing | None = None) -> None:
        """Become the producer of the transactional id; `known`: by its next epoch."""
        until = time.monotonic() + seconds
        while not self._init(until, known):
            self._failures.raise_first()
            if time.monotonic() >= until:
                raise timed_out()
            time.sleep(BACKOFF / 2)

    def renew(self, seconds: float) -> None:
        """Begin a new epoch after an abort: what was given up had sequence numbers."""
        if self.version < 2:  # else the end of the transaction gave it
            known, self.producing = self.producing, None
            self.identify(seconds, known)

    def is_identified(self) -> bool:
        """Say whether records may be sent; who has no transactional id asks now."""
        if self.producing is None and self._id is None:
            self._init(time.monotonic() + _INIT_SECONDS, None)
        return self.producing is not None

    def _init(self, until: float, known: Producing | None) -> bool:
        """Try once."""
        brokers = self._brokers
        connection = brokers.to_any() if self._id is None else brokers.to_coordinator()
        if connection is None:
            return False
        if self._id is not None:
            self.version = min(connection.versions.transaction_version, self._newest_version)
        request = requests.init_producer_id(self._id, self._settings.transaction_timeout_ms, known)
        found = brokers.wait_for(connection, request, requests.read_producing, until)
        if found is None:
            return False
        error, producing = found
        if error in COORDINATOR_PASSES:
            self._leave_moved(error, connection)
            return False
        if error:
            self._failures.note(error)
            self._failures.raise_first()
        self._begin_epoch(producing)
        return True

    def _leave_moved(self, error: int, connection: BrokerConnection) -> None:
        if error in COORDINATOR_MOVED:
            self._brokers.lose(connection)

    def _begin_epoch(self, producing: Producing) -> None:
        self.producing = producing
        self._sequences.clear()

    def take_sequences(self, place: Place, count: int) -> int:
        """Return the first of so many sequence numbers of a partition."""
        first = self._sequences[place]
        self._sequences[place] += count
        return first

    # ------------------------------------------------------------ partitions
    def begin(self) -> None:
        """Begin a transaction: the broker hears of it with the first partition."""
        if self.producing is None:
            raise without_producer()
        self._is_open, self._has_partitions, self._end_asked = True, False, False
        self._added.clear()

    def note_sent(self) -> None:
        """Batches are sent: the transaction has partitions."""
        self._has_partitions = True

    def may_send(self, place: Place) -> bool:
        """Say whether a batch of this partition may be sent."""
        return not self._adds_partitions or place in self._added

    @property
    def _adds_partitions(self) -> bool:
        """Say whether a partition is added to the transaction by a request of its own."""
        return self._id is not None and self.version < 2

    def until_next_try(self) -> float:
        """Seconds until partitions may be added again."""
        left = self._add_not_before - time.monotonic()
        return left if left > 0 else SLICE

    def add(self, places: Iterable[Place]) -> None:
        """Add partitions that have something to send."""
        if not self._adds_partitions or self._is_adding or self.producing is None:
            return
        missing = [place for place in places if place not in self._added]
        if not missing or self._failures or time.monotonic() < self._add_not_before:
            return
        if (connection := self._brokers.to_coordinator()) is None:
            return
        assert self._id is not None
        self._is_adding = self._has_partitions = True
        request = requests.add_partitions(self._id, self.producing, missing)
        self._brokers.ask(connection, request, partial(self._on_added, connection, missing))

    def _on_added(
        self, connection: BrokerConnection, places: list[Place], answer: Response | None
    ) -> None:
        if answer is None:
            self._is_adding = False
            return
        errors = requests.read_added(answer)
        self._is_adding = False
        for place in places:
            error = errors.get(place, UNKNOWN)
            if not error:
                self._added.add(place)
            elif error in COORDINATOR_PASSES or error in STORE_PASSES:
                self._add_not_before = time.monotonic() + backoff(error)
                self._leave_moved(error, connection)
            elif error != NOT_ATTEMPTED:
                self._failures.note(error)

    # ------------------------------------------------------------ the end
    @property
    def is_ending(self) -> bool:
        """Say whether an end was asked for and is not known to be done."""
        return self._ending is not None

    def end(self, seconds: float, *, commit: bool) -> bool:
        """End the open transaction; False: there is no answer yet."""
        until = time.monotonic() + seconds
        if not self._is_open or not self._has_partitions:
            self._is_open = False
            return True
        self._ending = commit
        while True:
            if not self._end_asked:
                self._ask_end()
            for connection in self._brokers.all():
                self._brokers.step(connection)
            if commit:
                self._failures.raise_first()
            self._failures.raise_fatal()
            if not self.is_ending:
                break
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self._end_asked:
                ready(self._brokers.all(), min(SLICE, left))
            else:
                time.sleep(min(left, backoff(MARKERS)))
        self._is_open = False
        return True

    def _ask_end(self) -> None:
        if time.monotonic() < self._end_not_before or self.producing is None:
            return
        if (connection := self._brokers.to_coordinator()) is None:
            return
        assert self._id is not None
        assert self._ending is not None
        request = requests.end_txn(
            self._id, self.producing, commit=self._ending, transaction_version=self.version
        )
        self._end_asked = True
        self._brokers.ask(connection, request, partial(self._on_ended, connection))

    def _on_ended(self, connection: BrokerConnection, answer: Response | None) -> None:
        if answer is None:
            self._end_asked = False
            return
        error, producing = requests.read_ended(answer, self.version)
        self._end_asked = False
        if error in COORDINATOR_PASSES:
            self._end_not_before = time.monotonic() + backoff(error)
            self._leave_moved(error, connection)
            return
        if not self._ending:
            self._failures.forgive()  # what failed before is given up
        if error:
            self._failures.note(error)
            if not self._ending:
                self._failures.raise_first()
            return
        if producing is not None and producing.id >= 0:
            self._begin_epoch(producing)
        self._ending = None
