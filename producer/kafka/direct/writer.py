"""`Writer` with record batches of our own, sent over our own connections.

All of it happens inside the calls: no thread, no queue beside the records that have no answer.
Each partition is a lane: its batches keep the order and the sequence numbers that they were first
sent with, whatever is sent again.  The broker knows the last five batches of a partition by their
sequence, so that at most five requests are unanswered on a connection.

How a transaction goes (KIP-98, KIP-890): InitProducerId fences older producers; a partition is
added to the transaction before its first batch (transaction.version 1) or by it (2); EndTxn
commits.  With 2 the end of a transaction gives the next epoch, and sequences begin at 0.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError

from producer.core.events import Acknowledgement, Place, Records
from producer.errors import CdcError, DecodeError, Unsupported
from producer.kafka.client import FENCED, of_error
from producer.kafka.direct import requests
from producer.kafka.direct.connection import BrokerConnection, ready
from producer.kafka.direct.records import (
    Compression,
    Full,
    Packer,
    PlainPacker,
    batch,
    codec,
    plain_crc32c,
)
from producer.kafka.direct.requests import Appended, BrokerRequest, Parts, Producing
from producer.kafka.direct.settings import WAY_OUT, refusal, settings_of
from producer.kafka.direct.wire import Response
from producer.kafka.writer import MakeWriter, Writer
from producer.native import NativeParts

_log = logging.getLogger(__name__)

_HELD_BYTES: Final = 16 << 20  # of records without an answer; a larger row is taken alone
_REQUEST_BYTES: Final = 1_000_000  # of a request; a larger batch is one alone
_IN_FLIGHT: Final = 5  # the broker knows as many batches of a producer again
_BACKOFF: Final = 0.1  # seconds until the same is tried again
_MARKERS_BACKOFF: Final = 0.005  # while markers of the last transaction are written
_SLICE: Final = 0.1  # seconds, the longest wait that does not look at `purge`
_TOPIC_SECONDS: Final = 30.0  # for a topic made just now to be known

_NEW: Final = -1
_SEQUENCES: Final = 0x7FFFFFFF  # behind this one comes 0
_DUPLICATE: Final = 46  # stored before; the broker does not remember where
_OUT_OF_ORDER: Final = 45
_MARKERS: Final = 51  # CONCURRENT_TRANSACTIONS
# Passes; the same request may be sent again.
_COORDINATOR_PASSES: Final = frozenset({7, 14, 15, 16, _MARKERS})
_COORDINATOR_MOVED: Final = frozenset({15, 16})
_STORE_PASSES: Final = frozenset(
    {2, 3, 5, 6, 7, 8, 13, 14, 15, 16, 19, 20, _MARKERS, 56, 74, 75, 76}
)
_UNKNOWN_TOPIC: Final = 3
_TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001  confluent-kafka's own constants
_PURGED: Final = KafkaError._PURGE_QUEUE  # noqa: SLF001


def choose(parts: NativeParts | None) -> MakeWriter:
    """Make direct writers."""

    def make(settings: Mapping[str, Any]) -> Writer:
        return DirectWriter(settings, parts)

    return make


@dataclass(slots=True)
class _Batch:
    """Records of one partition on their way."""

    place: Place
    full: Full
    body: bytes  # as the codec leaves it
    codec: int
    number: int = _NEW  # of its first record in the lane
    sent: Parts = field(default_factory=list)  # as it was first sent


@dataclass(slots=True)
class _Lane:
    """One partition."""

    place: Place
    waiting: deque[_Batch] = field(default_factory=deque)
    flying: int = 0  # batches without an answer
    node: int = -1  # the broker that they went to
    number: int = 0  # of the next record
    is_added: bool = False  # to the open transaction
    is_stalled: bool = False  # one failed: first all answers, then the same again in order
    not_before: float = 0.0
    unknown_since: float = 0.0  # its topic is not known; 0: it is


class DirectWriter:
    """`Writer` by record batches of our own."""

    blocks = False

    def __init__(
        self,
        settings: Mapping[str, Any],
        parts: NativeParts | None,
        *,
        transaction_version: int | None = None,
    ) -> None:
        """`settings`: librdkafka's, as far as they are followed; `parts` make the batches.

        `transaction_version`: never newer than this.
        """
        if why := refusal(settings):
            raise Unsupported(f'[kafka] producer = "direct": {why}', hint=WAY_OUT)
        self._settings = settings_of(settings)
        self._newest_version = transaction_version or 2
        self._packer: Packer = (
            PlainPacker(self._settings.batch_bytes)
            if parts is None
            else parts.packer(self._settings.batch_bytes)
        )
        self._crc32c = plain_crc32c if parts is None else parts.crc32c
        self._codec: Compression = codec(self._settings.compression)
        self._lanes: dict[Place, _Lane] = {}
        self._held = 0  # bytes that were taken from the packer and have no answer
        self._records = 0  # that have no answer
        self._sealed_at = time.monotonic()
        self._acknowledged: list[Acknowledgement] = []
        self._failure: KafkaError | None = None
        self._fatal: KafkaError | None = None
        self._refused: CdcError | None = None
        self.progress = 0
        # ------ brokers
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[Place, int] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._flying: dict[int, deque[list[_Batch]]] = {}
        self._control: BrokerConnection | None = None  # any broker, for questions
        self._coordinator: BrokerConnection | None = None
        self._not_before: dict[object, float] = {}  # next try, by what is tried
        self._asks_leaders = False
        # ------ the transaction
        self._producing: Producing | None = None
        self._transaction_version = 1
        self._is_open = False
        self._has_partitions = False  # the open transaction has some, as far as we know
        self._adding: list[Place] = []  # asked for
        self._ending: bool | None = None  # commit or abort: what was asked for, until it is done
        self._end_asked = False

    def filenos(self) -> tuple[int, ...]:
        """Its connections."""
        return tuple(one.fileno() for one in self._all())

    # ------------------------------------------------------------ for any thread
    def raise_failure(self) -> None:
        """Raise why a record was not stored, or that another writer took over."""
        if self._refused is not None:
            raise self._refused
        if error := self._fatal or self._failure:
            raise of_error(error)

    def fatal(self) -> CdcError | None:
        """Return the error that ended this writer."""
        return of_error(self._fatal) if self._fatal is not None else None

    def purge(self) -> None:
        """Give up what was not stored."""
        if self._records or self._ending is not None:
            self._failure = self._failure or KafkaError(_PURGED)

    # ------------------------------------------------------------ `Writer`
    def init_transactions(self, seconds: float) -> None:
        """Fence older writers of the transactional id."""
        until = time.monotonic() + seconds
        while not self._init(until):
            self.raise_failure()
            if time.monotonic() >= until:
                raise of_error(KafkaError(_TIMED_OUT, retriable=True))
            time.sleep(_BACKOFF / 2)

    def begin(self) -> None:
        """Begin a Kafka transaction: the broker hears of it with the first partition."""
        self.raise_failure()
        if self._producing is None:
            raise of_error(KafkaError(KafkaError._STATE))  # noqa: SLF001
        self._is_open, self._has_partitions, self._end_asked = True, False, False
        for lane in self._lanes.values():
            lane.is_added = False

    def send(self, records: Records, start: int) -> int:
        """Take records from `start` on; return how far there was room for them."""
        self.raise_failure()
        if not self._packer.size:
            self._sealed_at = time.monotonic()
        room = max(_HELD_BYTES - self._held, 0 if self._held else 1)
        end = self._packer.add(records, start, room, time.time_ns() // 1_000_000)
        self._records += end - start
        self._fill()
        self._move(0)
        return end

    def poll(self, seconds: float) -> None:
        """Collect acknowledgements; wait so long for the first one."""
        until, before = time.monotonic() + seconds, self.progress
        while True:
            now = time.monotonic()
            if self._packer.size and now - self._sealed_at >= self._settings.linger:
                self._packer.seal()
                self._fill()
            self._move(min(_SLICE, until - now))
            self.raise_failure()
            if self.progress != before or time.monotonic() >= until:
                return

    def take(self) -> list[Acknowledgement]:
        """Return what was collected."""
        taken, self._acknowledged = self._acknowledged, []
        return taken

    def flush(self, seconds: float) -> int:
        """Collect acknowledgements until none is missing; return how many are."""
        until = time.monotonic() + seconds
        self._packer.seal()
        self._fill()
        while self._records:
            self._move(min(_SLICE, until - time.monotonic()))
            self.raise_failure()
            if time.monotonic() >= until:
                break
        return self._records

    def commit(self, seconds: float) -> bool:
        """Commit; False: there is no answer yet, call it again."""
        if self._records:
            self.flush(seconds)
        return not self._records and self._end(seconds, commit=True)

    def abort(self, seconds: float) -> None:
        """Abort the Kafka transaction."""
        until = time.monotonic() + seconds
        self._packer.seal()
        self._packer.take()
        for lane in self._lanes.values():
            lane.waiting.clear()
        while any(lane.flying for lane in self._lanes.values()):
            if time.monotonic() >= until:
                raise of_error(KafkaError(_TIMED_OUT, retriable=True))
            self._move(min(_SLICE, until - time.monotonic()))
            for lane in self._lanes.values():
                lane.waiting.clear()
        self._records = self._held = 0
        self._acknowledged = []
        if not self._end(until - time.monotonic(), commit=False):
            raise of_error(KafkaError(_TIMED_OUT, retriable=True))
        # What was given up had sequence numbers: the next epoch begins with 0.
        if self._transaction_version < 2:
            known, self._producing = self._producing, None
            while not self._init(until, known):
                if time.monotonic() >= until:
                    raise of_error(KafkaError(_TIMED_OUT, retriable=True))
                time.sleep(_BACKOFF / 2)

    def close(self) -> None:
        """Close its connections."""
        for one in self._all():
            one.close()
        self._connections, self._control, self._coordinator = {}, None, None

    # ------------------------------------------------------------ who we are
    def _init(self, until: float, known: Producing | None = None) -> bool:
        """Try once to become the producer of the transactional id."""
        identity = self._settings.transactional_id
        connection = self._ask_coordinator() if identity is not None else self._ask_any()
        if connection is None:
            return False
        if identity is not None:
            newest = connection.versions.transaction_version
            self._transaction_version = min(newest, self._newest_version)
        timeout = self._settings.transaction_timeout_ms
        request = requests.init_producer_id(identity, timeout, known)
        found = self._wait_for(connection, request, requests.read_producing, until)
        if found is None:
            return False
        error, producing = found
        if error in _COORDINATOR_PASSES:
            if error in _COORDINATOR_MOVED:
                self._lose(connection)
            return False
        if error:
            self._fail(error)
            self.raise_failure()
        self._begin_epoch(producing)
        return True

    def _begin_epoch(self, producing: Producing) -> None:
        self._producing = producing
        for lane in self._lanes.values():
            lane.number = 0

    def _ask_coordinator(self) -> BrokerConnection | None:
        """Have a connection to the coordinator of the transactional id; None: not now."""
        if self._coordinator is not None or self._is_early("coordinator"):
            return self._coordinator
        if (connection := self._ask_any()) is None:
            return None
        assert self._settings.transactional_id is not None
        request = requests.find_coordinator(self._settings.transactional_id)
        until = time.monotonic() + 2.0
        found = self._wait_for(connection, request, requests.read_coordinator, until)
        if found is None:
            return None
        error, host, port = found
        if error in _COORDINATOR_PASSES:
            return None
        if error:
            self._fail(error)
            return None
        self._coordinator = self._connect((host, port))
        return self._coordinator

    def _ask_any(self) -> BrokerConnection | None:
        """Have a connection to any broker; None: not now."""
        if self._control is not None or self._is_early("any"):
            return self._control
        for address in [*self._brokers.values(), *self._settings.servers]:
            if (made := self._connect(address)) is not None:
                self._control = made
                return made
        return None

    def _connect(self, address: tuple[str, int]) -> BrokerConnection | None:
        try:
            return BrokerConnection(address, self._settings.client)
        except Unsupported as error:
            self._refused = error
            return None
        except (OSError, DecodeError) as error:
            _log.info("no connection to Kafka at %s:%d: %s", *address, error)
            return None

    def _is_early(self, what: object, seconds: float = _BACKOFF) -> bool:
        """Say whether it was tried so short ago; else it is now."""
        now = time.monotonic()
        if now < self._not_before.get(what, 0.0):
            return True
        self._not_before[what] = now + seconds
        return False

    def _wait_for(
        self,
        connection: BrokerConnection,
        request: BrokerRequest,
        read: Callable[[Response], Any],
        until: float,
    ) -> Any:
        """Ask, and wait for the answer; None: there is none."""
        found: list[Any] = []
        if not self._ask(connection, request, lambda answer: found.append(read(answer))):
            return None
        while not found and time.monotonic() < until:
            ready([connection], min(_SLICE, until - time.monotonic()))
            if not self._step(connection):
                return None
        return found[0] if found else None

    # ------------------------------------------------------------ connections
    def _all(self) -> list[BrokerConnection]:
        others = [one for one in (self._control, self._coordinator) if one is not None]
        return [*self._connections.values(), *others]

    def _ask(
        self,
        connection: BrokerConnection,
        request: BrokerRequest,
        on_answer: Callable[[Response], None],
    ) -> bool:
        """Send a request; False: the connection is lost."""
        try:
            connection.ask(request, on_answer)
        except OSError:
            self._lose(connection)
            return False
        return True

    def _step(self, connection: BrokerConnection) -> bool:
        """Move a connection; False: it is lost."""
        try:
            connection.move()
            waits = connection.unanswered
            late = time.monotonic() - connection.oldest > self._settings.request_timeout_ms / 1000
            if waits and late:
                raise TimeoutError("no answer")
        except (OSError, DecodeError) as error:
            _log.info("a connection to Kafka is lost: %s", error)
            self._lose(connection)
            return False
        return True

    def _lose(self, connection: BrokerConnection) -> None:
        """Forget a connection; what has no answer is sent again, in the same order."""
        connection.close()
        if connection is self._control:
            self._control, self._asks_leaders = None, False
        if connection is self._coordinator:
            self._coordinator, self._adding, self._end_asked = None, [], False
        for node, one in list(self._connections.items()):
            if one is connection:
                del self._connections[node]
                for together in self._flying.pop(node):
                    for unanswered in together:
                        self._again(unanswered)

    def _move(self, seconds: float) -> None:
        """Do what can be done now; then wait for answers, and take them."""
        self._add_partitions()
        self._produce()
        connections = self._all()
        if not connections:
            if seconds > 0:
                time.sleep(min(seconds, _BACKOFF))
            return
        if seconds > 0:
            ready(connections, min(seconds, self._until_next_try()))
        for connection in connections:
            self._step(connection)
        self._add_partitions()
        self._produce()

    def _until_next_try(self) -> float:
        """Seconds until something that waits may be tried again."""
        now, next_try = time.monotonic(), _SLICE
        for lane in self._lanes.values():
            if lane.waiting and lane.not_before > now:
                next_try = min(next_try, lane.not_before - now)
        early = self._not_before.get("add", 0.0) - now
        return min(next_try, early) if early > 0 else next_try

    # ------------------------------------------------------------ batches
    def _fill(self) -> None:
        """Put finished records into their lanes."""
        for found in self._packer.take():
            full = Full(*found)
            place = full.topic, full.partition
            body, number = full.records, 0
            if self._codec.number:
                made = self._codec.compress(body)
                if len(made) < len(body):
                    body, number = made, self._codec.number
            self._held += len(body)
            lane = self._lanes.get(place)
            if lane is None:
                lane = self._lanes[place] = _Lane(place)
            lane.waiting.append(_Batch(place, full._replace(records=b""), body, number))
            self._sealed_at = time.monotonic()

    def _produce(self) -> None:
        """Send what may be sent."""
        if self._failure is not None or self._fatal is not None or self._refused is not None:
            return
        waiting = [lane for lane in self._lanes.values() if lane.waiting]
        if not waiting:
            return
        is_plain = self._settings.transactional_id is None
        if self._producing is None and not (is_plain and self._init(time.monotonic() + 1.0)):
            return
        now = time.monotonic()
        by_node: dict[int, list[_Lane]] = {}
        for lane in waiting:
            if lane.not_before > now or (lane.is_stalled and lane.flying):
                continue
            if lane.flying and lane.node != self._leaders.get(lane.place):
                continue  # its leader moved: what comes later may not come first
            lane.is_stalled = False
            if (node := self._leaders.get(lane.place)) is None:
                self._ask_leaders()
            elif lane.is_added or not self._adds_partitions:
                by_node.setdefault(node, []).append(lane)
        for node, lanes in by_node.items():
            self._produce_at(node, lanes)

    @property
    def _adds_partitions(self) -> bool:
        """Say whether a partition is added to the transaction by a request of its own."""
        return self._settings.transactional_id is not None and self._transaction_version < 2

    def _produce_at(self, node: int, lanes: list[_Lane]) -> None:
        """Send batches to their leader, one of a lane in a request."""
        while lanes:
            connection = self._connections.get(node)
            if connection is None:
                if self._is_early(node):
                    return
                address = self._brokers.get(node)
                connection = None if address is None else self._connect(address)
                if connection is None:
                    self._forget_leader(node)
                    return
                self._connections[node], self._flying[node] = connection, deque()
            if len(self._flying[node]) >= _IN_FLIGHT:
                return
            together: list[_Batch] = []
            size = 0
            for lane in lanes:
                if together and size + len(lane.waiting[0].body) > _REQUEST_BYTES:
                    break
                one = lane.waiting.popleft()
                lane.flying, lane.node = lane.flying + 1, node
                size += len(one.body)
                together.append(self._numbered(lane, one))
            self._has_partitions = True
            self._flying[node].append(together)
            request = requests.produce(
                self._settings.transactional_id,
                [(one.place, one.sent) for one in together],
                timeout_ms=self._settings.request_timeout_ms,
                transaction_version=self._transaction_version,
            )
            if not self._ask(connection, request, partial(self._on_stored, node)):
                return
            lanes = [lane for lane in lanes if lane.waiting and not lane.is_stalled]

    def _numbered(self, lane: _Lane, one: _Batch) -> _Batch:
        """Give a batch its sequence number, and its bytes, once."""
        assert self._producing is not None
        if one.number == _NEW:
            one.number = lane.number
            lane.number += one.full.rows
            one.sent = batch(
                one.full,
                one.body,
                one.codec,
                producing=self._producing,
                sequence=one.number & _SEQUENCES,
                is_transactional=self._settings.transactional_id is not None,
                crc32c=self._crc32c,
            )
        return one

    def _on_stored(self, node: int, answer: Response) -> None:
        together = self._flying[node].popleft()
        stored = {one.place: one for one in requests.read_produced(answer)}
        for one in together:
            self._judge(one, stored.get(one.place) or Appended(one.place, 13, -1, None))

    def _judge(self, one: _Batch, stored: Appended) -> None:
        """Decide what becomes of a batch that was answered."""
        lane = self._lanes[one.place]
        if stored.error in (0, _DUPLICATE, _OUT_OF_ORDER) and lane.is_stalled:
            # An earlier one failed.  What is stored is answered again, with its offset: so those
            # without an answer follow each other, and the broker knows them all.
            self._again(one)
        elif stored.error in (0, _DUPLICATE):
            lane.flying -= 1
            lane.unknown_since = 0.0
            offset = stored.offset if not stored.error else -1
            end = offset + one.full.rows if offset >= 0 else 0
            self._acknowledged.append((*one.place, offset, end))
            self._held -= len(one.body)
            self._records -= one.full.rows
            self.progress += one.full.rows
        elif stored.error in _STORE_PASSES:
            self._again(one)
            lane.not_before = time.monotonic() + (
                _MARKERS_BACKOFF if stored.error == _MARKERS else _BACKOFF
            )
            if stored.error != _MARKERS:
                self._leaders.pop(one.place, None)
            if stored.error == _UNKNOWN_TOPIC:
                self._unknown(lane, stored.error)
        else:
            lane.flying -= 1
            self._fail(stored.error, stored.why)

    def _again(self, one: _Batch) -> None:
        """Put a batch back, before those with later numbers."""
        lane = self._lanes[one.place]
        lane.flying -= 1
        lane.is_stalled = True
        before = [other for other in lane.waiting if _NEW < other.number < one.number]
        lane.waiting = deque([*before, one, *list(lane.waiting)[len(before) :]])

    def _fail(self, code: int, why: str | None = None) -> None:
        """Note the first reason why nothing can be sent any more."""
        if code in FENCED:
            self._fatal = self._fatal or KafkaError(code, why, fatal=True)
            return
        self._failure = self._failure or KafkaError(code, why, txn_requires_abort=True)

    # ------------------------------------------------------------ leaders
    def _ask_leaders(self) -> None:
        if self._asks_leaders or self._is_early("leaders", _BACKOFF / 5):
            return
        if (connection := self._ask_any()) is None:
            return
        topics = {lane.place[0] for lane in self._lanes.values() if lane.waiting}
        self._asks_leaders = True
        if not self._ask(connection, requests.metadata(sorted(topics)), self._on_leaders):
            self._asks_leaders = False

    def _on_leaders(self, answer: Response) -> None:
        self._asks_leaders = False
        found = requests.read_metadata(answer)
        self._brokers = found.brokers
        self._leaders.update(found.leaders)
        for lane in self._lanes.values():
            topic = lane.place[0]
            if not lane.waiting or lane.place in self._leaders:
                continue
            error = found.errors.get(topic, 0)
            if error and error not in _STORE_PASSES:
                self._fail(error, topic)
            elif error == _UNKNOWN_TOPIC or (topic, lane.place[1]) not in found.leaders:
                self._unknown(lane, error or _UNKNOWN_TOPIC)

    def _unknown(self, lane: _Lane, error: int) -> None:
        """Wait for a topic that was made just now, but not for ever."""
        now = time.monotonic()
        lane.unknown_since = lane.unknown_since or now
        if error == _UNKNOWN_TOPIC and now - lane.unknown_since > _TOPIC_SECONDS:
            self._fail(error, lane.place[0])

    def _forget_leader(self, node: int) -> None:
        self._leaders = {place: one for place, one in self._leaders.items() if one != node}

    # ------------------------------------------------------------ the coordinator
    def _add_partitions(self) -> None:
        """Add partitions that have something to send to the open transaction."""
        if not self._adds_partitions or self._adding or self._producing is None:
            return
        if self._failure is not None or self._fatal is not None:
            return
        missing = [
            lane.place for lane in self._lanes.values() if lane.waiting and not lane.is_added
        ]
        if not missing or time.monotonic() < self._not_before.get("add", 0.0):
            return
        if (connection := self._ask_coordinator()) is None:
            return
        assert self._settings.transactional_id is not None
        self._adding = missing
        self._has_partitions = True
        request = requests.add_partitions(self._settings.transactional_id, self._producing, missing)
        self._ask(connection, request, self._on_added)

    def _on_added(self, answer: Response) -> None:
        places, self._adding = self._adding, []
        errors = requests.read_added(answer)
        for place in places:
            error = errors.get(place, 13)
            if not error:
                self._lanes[place].is_added = True
            elif error in _COORDINATOR_PASSES or error in _STORE_PASSES:
                wait = _MARKERS_BACKOFF if error == _MARKERS else _BACKOFF
                self._not_before["add"] = time.monotonic() + wait
                if error in _COORDINATOR_MOVED and self._coordinator is not None:
                    self._lose(self._coordinator)
            elif error != 55:  # OPERATION_NOT_ATTEMPTED: another one failed
                self._fail(error)

    def _end(self, seconds: float, *, commit: bool) -> bool:
        """End the open transaction; False: there is no answer yet."""
        until = time.monotonic() + seconds
        if not self._is_open or not self._has_partitions:
            self._is_open = False
            return True
        self._ending = commit
        while True:
            if not self._end_asked:
                self._ask_end()
            for connection in self._all():
                self._step(connection)
            if self._fatal is not None or (commit and self._failure is not None):
                self.raise_failure()
            if not self._is_ending():
                break
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self._coordinator is None or not self._end_asked:
                time.sleep(min(left, _MARKERS_BACKOFF))
            else:
                ready(self._all(), min(_SLICE, left))
        self._is_open = False
        return True

    def _is_ending(self) -> bool:
        return self._ending is not None

    def _ask_end(self) -> None:
        if time.monotonic() < self._not_before.get("end", 0.0):
            return
        if self._producing is None or (connection := self._ask_coordinator()) is None:
            return
        assert self._settings.transactional_id is not None
        assert self._ending is not None
        request = requests.end_txn(
            self._settings.transactional_id,
            self._producing,
            commit=self._ending,
            transaction_version=self._transaction_version,
        )
        self._end_asked = self._ask(connection, request, self._on_ended)

    def _on_ended(self, answer: Response) -> None:
        error, producing = requests.read_ended(answer, self._transaction_version)
        self._end_asked = False
        if error in _COORDINATOR_PASSES:
            wait = _MARKERS_BACKOFF if error == _MARKERS else _BACKOFF
            self._not_before["end"] = time.monotonic() + wait
            if error in _COORDINATOR_MOVED and self._coordinator is not None:
                self._lose(self._coordinator)
            return
        if error:
            if not self._ending:
                self._failure = None  # what failed before is given up anyway
            self._fail(error)
            if not self._ending:
                self.raise_failure()
            return
        if producing is not None and producing.id >= 0:
            self._begin_epoch(producing)
        if not self._ending:
            self._failure = None
        self._ending = None
