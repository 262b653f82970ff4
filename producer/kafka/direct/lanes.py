"""Record batches on their way to the leaders of their partitions.

Each partition is a lane: its batches keep the order and the sequence numbers that they were first
sent with, whatever is sent again.  The broker knows the last five batches of a partition by their
sequence, so that at most five requests are unanswered on a connection.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from producer.core.events import Acknowledgement, Place
from producer.kafka.direct import requests
from producer.kafka.direct.brokers import Brokers
from producer.kafka.direct.failures import (
    DUPLICATE,
    MARKERS,
    OUT_OF_ORDER,
    SLICE,
    STORE_PASSES,
    UNKNOWN,
    UNKNOWN_TOPIC,
    Failures,
    backoff,
)
from producer.kafka.direct.records import Compression, Crc, Full, Packer, batch, codec
from producer.kafka.direct.requests import Appended, Leaders, Parts
from producer.kafka.direct.settings import Settings
from producer.kafka.direct.transaction import KafkaTransaction
from producer.kafka.direct.wire import Response

_REQUEST_BYTES: Final = 1_000_000  # of a request; a larger batch is one alone
_IN_FLIGHT: Final = 5  # the broker knows as many batches of a producer again
_TOPIC_SECONDS: Final = 30.0  # for a topic made just now to be known
_NEW: Final = -1
_SEQUENCES: Final = 0x7FFFFFFF  # behind this one comes 0


@dataclass(slots=True)
class _Batch:
    """Records of one partition on their way."""

    place: Place
    full: Full
    body: bytes  # as the codec leaves it
    codec: int
    number: int = _NEW  # of its first record in this epoch
    sent: Parts = field(default_factory=list)  # as it was first sent


@dataclass(slots=True)
class _Lane:
    """One partition."""

    place: Place
    waiting: deque[_Batch] = field(default_factory=deque)
    flying: int = 0  # batches without an answer
    node: int = -1  # the broker that they went to
    is_stalled: bool = False  # one failed: first all answers, then the same again in order
    not_before: float = 0.0
    unknown_since: float = 0.0  # its topic is not known; 0: it is


class PartitionLanes:
    """Batches that have no answer, by partition."""

    def __init__(
        self,
        settings: Settings,
        brokers: Brokers,
        transaction: KafkaTransaction,
        failures: Failures,
        crc32c: Crc,
    ) -> None:
        self._settings, self._brokers = settings, brokers
        self._transaction, self._failures = transaction, failures
        self._crc32c = crc32c
        self._codec: Compression = codec(settings.compression)
        self._lanes: dict[Place, _Lane] = {}
        self.held = 0  # bytes
        self.stored = 0  # records
        self._acknowledged: list[Acknowledgement] = []

    def fill(self, packer: Packer) -> bool:
        """Take finished records; say whether there were some."""
        found = packer.take()
        for each in found:
            full = Full(*each)
            place = full.topic, full.partition
            body, number = full.records, 0
            if self._codec.number:
                made = self._codec.compress(body)
                if len(made) < len(body):
                    body, number = made, self._codec.number
            self.held += len(body)
            lane = self._lanes.get(place)
            if lane is None:
                lane = self._lanes[place] = _Lane(place)
            lane.waiting.append(_Batch(place, full._replace(records=b""), body, number))
        return bool(found)

    def take(self) -> list[Acknowledgement]:
        """Return acknowledgements since the last call."""
        taken, self._acknowledged = self._acknowledged, []
        return taken

    def waiting(self) -> list[Place]:
        """Return partitions that have something to send."""
        return [place for place, lane in self._lanes.items() if lane.waiting]

    @property
    def are_flying(self) -> bool:
        """Say whether answers are missing."""
        return any(lane.flying for lane in self._lanes.values())

    def clear(self) -> None:
        """Give up what has to be sent."""
        for lane in self._lanes.values():
            lane.waiting.clear()

    def forget(self) -> None:
        """Give up what was stored, too."""
        self.clear()
        self.held, self._acknowledged = 0, []

    def until_next_try(self) -> float:
        """Seconds until something that waits may be tried again."""
        now = time.monotonic()
        return min(
            (
                lane.not_before - now
                for lane in self._lanes.values()
                if lane.waiting and lane.not_before > now
            ),
            default=SLICE,
        )

    # ------------------------------------------------------------ out
    def produce(self) -> None:
        """Send what may be sent."""
        if self._failures:
            return
        waiting = [lane for lane in self._lanes.values() if lane.waiting]
        if not waiting or not self._transaction.is_identified():
            return
        now, leaders = time.monotonic(), self._brokers.leaders
        by_node: dict[int, list[_Lane]] = {}
        for lane in waiting:
            if lane.not_before > now or (lane.is_stalled and lane.flying):
                continue
            node = leaders.get(lane.place)
            if lane.flying and lane.node != node:
                continue  # its leader moved: what comes later may not come first
            lane.is_stalled = False
            if node is None:
                topics = {place[0] for place in self.waiting()}
                self._brokers.ask_leaders(topics, self._on_leaders)
            elif self._transaction.may_send(lane.place):
                by_node.setdefault(node, []).append(lane)
        for node, lanes in by_node.items():
            self._produce_at(node, lanes)

    def _produce_at(self, node: int, lanes: list[_Lane]) -> None:
        """Send batches to their leader, one of a lane in a request."""
        while lanes:
            connection = self._brokers.to_leader(node)
            if connection is None or connection.unanswered >= _IN_FLIGHT:
                return
            together: list[_Batch] = []
            size = 0
            for lane in lanes:
                if together and size + len(lane.waiting[0].body) > _REQUEST_BYTES:
                    break
                one = lane.waiting.popleft()
                lane.flying, lane.node = lane.flying + 1, node
                size += len(one.body)
                together.append(self._numbered(one))
            self._transaction.note_sent()
            request = requests.produce(
                self._settings.transactional_id,
                [(one.place, one.sent) for one in together],
                timeout_ms=self._settings.request_timeout_ms,
                transaction_version=self._transaction.version,
            )
            if not self._brokers.ask(connection, request, partial(self._on_stored, together)):
                return
            lanes = [lane for lane in lanes if lane.waiting and not lane.is_stalled]

    def _numbered(self, one: _Batch) -> _Batch:
        """Give a batch its sequence number, and its bytes, once."""
        if one.number == _NEW:
            producing = self._transaction.producing
            assert producing is not None
            one.number = self._transaction.take_sequences(one.place, one.full.rows)
            one.sent = batch(
                one.full,
                one.body,
                one.codec,
                producing=producing,
                sequence=one.number & _SEQUENCES,
                is_transactional=self._settings.transactional_id is not None,
                crc32c=self._crc32c,
            )
        return one

    # ------------------------------------------------------------ in
    def _on_stored(self, together: list[_Batch], answer: Response | None) -> None:
        if answer is None:  # sent again, in the same order
            for one in together:
                self._again(one)
            return
        stored = {one.place: one for one in requests.read_produced(answer)}
        for one in together:
            self._judge(one, stored.get(one.place) or Appended(one.place, UNKNOWN, -1, None))

    def _judge(self, one: _Batch, answer: Appended) -> None:
        """Decide what becomes of a batch that was answered."""
        lane = self._lanes[one.place]
        if answer.error in (0, DUPLICATE, OUT_OF_ORDER) and lane.is_stalled:
            # An earlier one failed.  What is stored is answered again, with its offset: so those
            # without an answer follow each other, and the broker knows them all.
            self._again(one)
        elif answer.error in (0, DUPLICATE):
            lane.flying -= 1
            lane.unknown_since = 0.0
            offset = answer.offset if not answer.error else -1
            end = offset + one.full.rows if offset >= 0 else 0
            self._acknowledged.append((*one.place, offset, end))
            self.held -= len(one.body)
            self.stored += one.full.rows
        elif answer.error in STORE_PASSES:
            self._again(one)
            lane.not_before = time.monotonic() + backoff(answer.error)
            if answer.error != MARKERS:
                self._brokers.leaders.pop(one.place, None)
            if answer.error == UNKNOWN_TOPIC:
                self._unknown(lane)
        else:
            lane.flying -= 1
            self._failures.note(answer.error, answer.why)

    def _again(self, one: _Batch) -> None:
        """Put a batch back, before those with later numbers."""
        lane = self._lanes[one.place]
        lane.flying -= 1
        lane.is_stalled = True
        before = [other for other in lane.waiting if _NEW < other.number < one.number]
        lane.waiting = deque([*before, one, *list(lane.waiting)[len(before) :]])

    def _on_leaders(self, found: Leaders) -> None:
        for place in self.waiting():
            if place in self._brokers.leaders:
                continue
            error = found.errors.get(place[0], 0)
            if error and error not in STORE_PASSES:
                self._failures.note(error, place[0])
            elif error in (0, UNKNOWN_TOPIC):
                self._unknown(self._lanes[place])

    def _unknown(self, lane: _Lane) -> None:
        """Wait for a topic that was made just now, but not for ever."""
        now = time.monotonic()
        lane.unknown_since = lane.unknown_since or now
        if now - lane.unknown_since > _TOPIC_SECONDS:
            self._failures.note(UNKNOWN_TOPIC, lane.place[0])
