"""Exact offsets of Kafka -> content of a segment, by confluent_kafka or natively.

A reading gives exactly the records of its ranges, in the order of each partition, or raises:
Incomplete; RangeExpired where retention removed some; KafkaDown where no broker answers, or is
silent for 30 s.  Only counts decide whether a range is complete: aborted, expired and not yet
visible records all look like fewer rows or none.  No offset is committed to a consumer group: the
ledger says what is read next, and a reading that failed is made again.

`MessageFetch` and `NativeFetch` are twins of one interface.  A consumer that jumps to a range waits
for its own poll under way (500 ms by default), and the broker sends what comes after the range,
too: short polls and small fetches for a small range, larger fetches above.  Where more stands
behind a range, `NativeFetch` does not jump: its partitions stay assigned, librdkafka reads ahead
while the target applies, and the next range is there.  An error lets all of them go.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition, cimpl

from schemas.control import Range
from schemas.errors import LOAD_AGAIN
from spark_consumers import native
from spark_consumers.decode import FRAME_SIZE
from spark_consumers.errors import Incomplete, KafkaDown, RangeExpired, StreamError
from spark_consumers.kafka.cluster import down

if TYPE_CHECKING:
    from spark_consumers.native._native import FramedRows, RangeConsumer

_log = logging.getLogger(__name__)

Place: TypeAlias = tuple[str, int]  # topic, partition
First: TypeAlias = Callable[[Iterable[Place]], Mapping[Place, int]]  # where logs begin

END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001  public, in spite of its name
RESET: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
COMMON: Final = {
    "log_level": 2,  # the cluster's own connection reports why it is down
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # A broker that comes back may not know its topics yet; the default is 5 minutes.
    "topic.metadata.refresh.interval.ms": 5_000,
}
_SMALL_FETCH: Final = {"fetch.wait.max.ms": 1, "max.partition.fetch.bytes": 65_536}
_LARGE_FETCH: Final = {"fetch.wait.max.ms": 10, "max.partition.fetch.bytes": 1_048_576}
_AHEAD_FETCH: Final = {
    **_LARGE_FETCH,
    # Of each partition that stays assigned.
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 4_096,
    "fetch.queue.backoff.ms": 5,  # how long a full queue pauses; the default is a second
}
_LARGE: Final = 5_000  # rows from which MessageFetch takes larger fetches
_AHEAD_FROM: Final = 500  # rows from which NativeFetch reads ahead
_MOST_AHEAD: Final = 16  # partitions that stay assigned: a bound of memory
SILENCE: Final = 30.0  # seconds without a record or an end of partition
_SLICE: Final = 100  # ms of a wait: a thread that waits is not asked to stop
_LEADERS: Final = 2_000  # ms in which a broker names the leaders of new topics

_START: Final = attrgetter("start")
_NOWHERE: Final = (0, 0)
# The library's own Python code gives these a meaning.
_OF_PYTHON: Final = {"plugin.library.paths", "default.topic.config"}


class TakesRecords(Protocol):
    """What records are put into: `Content`, or the rows of the data source."""

    def rows_for(self, topic: str, partition: int, offset: int, value: bytes) -> FramedRows | None:
        """Return what takes values that begin as this one does; None: Python reads them."""

    def put(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Take one record as Python reads it."""

    def take(self, topic: str, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Take (partition, offset, value) of a topic whose values begin alike."""


class Fetch(Protocol):
    """Reads exact offsets."""

    def __call__(
        self,
        ranges: Sequence[Range],
        into: TakesRecords,
        *,
        is_committed: bool,
        stable: Mapping[Place, int],
    ) -> None:
        """Put the records of exactly these offsets into it, in the order of each partition.

        `stable` are last stable offsets, where known: what ends there is not read further.
        Raises Incomplete where records are missing, RangeExpired, KafkaDown.
        """

    def close(self) -> None:
        """End what it reads with."""


class MessageFetch:
    """`Fetch` by confluent_kafka, a Python object per record."""

    def __init__(
        self,
        client: Mapping[str, Any],
        prefix: str,
        first: First,
        *,
        consumer: Callable[[dict[str, Any]], Any],
        now: Callable[[], float],
    ) -> None:
        """`client`: librdkafka's settings; `prefix`: for a group's name, which holds no offsets.

        `first` is asked after an error.  `consumer` makes a consumer; `now`: monotonic seconds.
        """
        self._client, self._prefix, self._first = dict(client), prefix, first
        self._make, self._now = consumer, now
        self._consumers: dict[tuple[bool, bool], Any] = {}

    def __call__(
        self,
        ranges: Sequence[Range],
        into: TakesRecords,
        *,
        is_committed: bool,
        stable: Mapping[Place, int],
    ) -> None:
        del stable
        records = (
            (message.topic(), message.partition(), message.offset(), value)
            for message in self.messages(ranges, is_committed=is_committed)
            if (value := message.value()) is not None  # a tombstone: a record without a change
        )
        for (topic, _), run in groupby(records, key=lambda one: (one[0], one[3][:FRAME_SIZE])):
            into.take(topic, [record[1:] for record in run])

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def messages(self, ranges: Sequence[Range], *, is_committed: bool) -> list[Any]:
        """All records of exactly these offsets; in no order across partitions.

        `is_committed`: aborted ones are left out.  Raises Incomplete, RangeExpired, KafkaDown;
        StreamError for a right that is missing.
        """
        spans = _by_place(ranges)
        need = count(ranges)
        consumer = self._consumer(is_committed=is_committed, is_large=need > _LARGE)
        out: list[Any] = []
        open_ = {tp: mine[-1].end for tp, mine in spans.items()}
        inside: dict[Place, tuple[int, int]] = {}  # the range in hand, without its last
        try:
            consumer.assign([TopicPartition(*tp, mine[0].start) for tp, mine in spans.items()])
            until = self._now() + SILENCE
            while open_ and len(out) < need:
                messages = consumer.consume(min(need - len(out) + len(open_), 10_000), 0.005)
                if messages:
                    until = self._now() + SILENCE
                elif self._now() > until:
                    raise KafkaDown("the broker is silent", partitions=len(open_))
                for message in messages:
                    if message.error() is None:  # nearly all are in the range in hand
                        tp = (message.topic(), message.partition())
                        low, high = inside.get(tp, _NOWHERE)
                        if low <= message.offset() < high:
                            out.append(message)
                            continue
                    if (found := self._take(message, spans, open_)) is not None:
                        out.append(message)
                        inside[found[:2]] = found.start, found.end - 1
        except KafkaException as error:
            raise down(error, "rows cannot be read") from error
        finally:
            consumer.assign([])  # ends the busy polling
        _check_count(len(out), ranges)
        return out

    def _take(
        self,
        message: Any,
        spans: Mapping[Place, Sequence[Range]],
        open_: dict[Place, int],
    ) -> Range | None:
        """Return the range that a record is in; None: it is another's, or the end of a partition.

        Closes partitions that end with it.
        """
        tp = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            if error.code() == END:
                if message.offset() >= open_.get(tp, 0):
                    open_.pop(tp, None)
                return None
            if error.code() == RESET and not _is_wanted(message.offset(), spans.get(tp)):
                return None
            raise _failed(error, spans, self._first)
        offset = message.offset()
        if offset + 1 >= open_.get(tp, 0):
            open_.pop(tp, None)
        mine = spans.get(tp, ())
        at = bisect_right(mine, offset, key=_START) - 1
        return mine[at] if at >= 0 and offset < mine[at].end else None

    def _consumer(self, *, is_committed: bool, is_large: bool) -> Any:
        consumer = self._consumers.get((is_committed, is_large))
        if consumer is None:
            level = _level(is_committed=is_committed)
            consumer = self._consumers[is_committed, is_large] = self._make(
                {
                    **self._client,
                    **COMMON,
                    **(_LARGE_FETCH if is_large else _SMALL_FETCH),
                    "group.id": f"gauss-cdc-rows-{self._prefix}-{level}",
                    "isolation.level": level,
                }
            )
        return consumer


class NativeFetch:
    """`Fetch` by librdkafka called from the native module, without an object per record."""

    def __init__(
        self,
        client: Mapping[str, Any],
        first: First,
        *,
        make: Callable[[list[tuple[str, str]]], RangeConsumer],
        now: Callable[[], float],
    ) -> None:
        """`make` makes a consumer of librdkafka's settings; `first` is asked after an error.

        Raises native.ConsumerRefused, for example for a setting that only Python knows.
        """
        self._client, self._first, self._make, self._now = dict(client), first, make, now
        self._consumers: dict[tuple[bool, bool], RangeConsumer] = {}
        self._ahead: dict[Place, None] = {}  # what stays assigned, in the order of its last use
        self._consumer(is_committed=True, is_ahead=True)  # refused now, or never

    def __call__(
        self,
        ranges: Sequence[Range],
        into: TakesRecords,
        *,
        is_committed: bool,
        stable: Mapping[Place, int],
    ) -> None:
        spans = _by_place(ranges)
        # Nothing behind a range, but for the marker of its transaction.
        ended = [p for p, mine in spans.items() if stable.get(p, 0) <= mine[-1].end + 1]
        is_ahead = is_committed and (
            len(ended) < len(spans)
            or count(ranges) > _AHEAD_FROM
            or not self._ahead.keys().isdisjoint(spans)
        )
        consumer = self._consumer(is_committed=is_committed, is_ahead=is_ahead)
        if not is_ahead:
            try:
                self._read(consumer, spans, into)
            finally:
                for place in spans:
                    consumer.stop(*place)
            return
        for place in spans:
            self._ahead.pop(place, None)
            self._ahead[place] = None
        try:
            self._read(consumer, spans, into)
        except BaseException:
            self._let_go(consumer, list(self._ahead))
            raise
        self._let_go(consumer, [*ended, *list(self._ahead)[:-_MOST_AHEAD]])

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
        self._ahead.clear()

    def _let_go(self, consumer: RangeConsumer, places: Sequence[Place]) -> None:
        for place in places:
            consumer.stop(*place)
            self._ahead.pop(place, None)

    def _read(
        self, consumer: RangeConsumer, spans: Mapping[Place, Sequence[Range]], into: TakesRecords
    ) -> None:
        consumer.know(sorted({topic for topic, _ in spans}), _LEADERS)
        numbers = [
            consumer.want(*place, [(r.start, r.end) for r in mine]) for place, mine in spans.items()
        ]  # all of them are fetched while the first one is read
        frames: dict[str, dict[bytes, FramedRows]] = {topic: {} for topic, _ in spans}
        count = 0
        for place, number in zip(spans, numbers, strict=True):
            try:
                count += self._read_place(consumer, place, number, frames[place[0]], into)
            except KafkaException as error:
                raise _failed(error.args[0], spans, self._first) from error
        _check_count(count, [r for mine in spans.values() for r in mine])

    def _read_place(
        self,
        consumer: RangeConsumer,
        place: Place,
        number: int,
        frames: dict[bytes, FramedRows],
        into: TakesRecords,
    ) -> int:
        """Read what is wanted of one partition; return how many of its records there were."""
        count, until = 0, self._now() + SILENCE
        while True:
            why, records = consumer.read(number, frames, _SLICE)
            count += records
            if records or why != native.SILENT:
                until = self._now() + SILENCE
            if why == native.DONE:
                return count
            if why == native.STRANGE:
                offset, value = consumer.record(number)
                if (rows := into.rows_for(*place, offset, value)) is not None:
                    frame = value[:FRAME_SIZE]
                    if frame not in frames:  # rows for it begin
                        frames[frame] = rows
                        continue
                into.put(*place, offset, value)
                consumer.skip(number)
                count += 1
            elif why == native.FAILED:
                raise KafkaException(KafkaError(consumer.error))
            elif self._now() > until:
                raise KafkaDown("the broker is silent", topic=place[0], partition=place[1])

    def _consumer(self, *, is_committed: bool, is_ahead: bool) -> RangeConsumer:
        consumer = self._consumers.get((is_committed, is_ahead))
        if consumer is None:
            consumer = self._consumers[is_committed, is_ahead] = self._make(
                _texts(
                    {
                        **self._client,
                        **COMMON,
                        **(_AHEAD_FETCH if is_ahead else _SMALL_FETCH),
                        "isolation.level": _level(is_committed=is_committed),
                    }
                )
            )
        return consumer


def choose(
    client: Mapping[str, Any],
    prefix: str,
    first: First,
    *,
    consumer: Callable[[dict[str, Any]], Any],
    now: Callable[[], float],
    native_parts: bool,
) -> Fetch:
    """Read natively where this process can, by librdkafka of the confluent-kafka wheel.

    `client`: settings of librdkafka; `prefix`: the source's; `first` tells where logs begin, asked
    after an error.  `consumer`: confluent_kafka's, or a test's, which is never read natively.
    """
    if native_parts and native.IS_BUILT and consumer is Consumer:
        try:
            return NativeFetch(
                client,
                first,
                make=partial(native.range_consumer, library=cimpl.__file__),
                now=now,
            )
        except native.ConsumerRefused as why:
            _log.info("records are read by confluent_kafka, one by one: %s", why)
    return MessageFetch(client, prefix, first, consumer=consumer, now=now)


def count(ranges: Iterable[Range]) -> int:
    """How many records stand in ranges.

    >>> count([Range("t", 0, 5, 8), Range("t", 1, 0, 2)])
    5
    """
    return sum(r.end - r.start for r in ranges)


def ends(ranges: Iterable[Range]) -> dict[Place, int]:
    """Where ranges end in each partition; exclusive.

    >>> ends([Range("t", 0, 5, 8), Range("t", 0, 9, 12)])
    {('t', 0): 12}
    """
    found: dict[Place, int] = {}
    for r in ranges:
        place = (r.topic, r.partition)
        found[place] = max(r.end, found.get(place, 0))
    return found


def taken(ranges: Sequence[Range], at: int, most: int) -> Sequence[Range]:
    """Return up to `most` records of ranges, from the record `at` of them on.

    >>> taken([Range("t", 0, 0, 25), Range("t", 1, 5, 8)], 20, 7)
    [Range(topic='t', partition=0, start=20, end=25), Range(topic='t', partition=1, start=5, end=7)]
    """
    part: list[Range] = []
    for r in ranges:
        start, end = r.start + max(at, 0), min(r.end, r.start + at + most)
        if start < end:
            part.append(Range(r.topic, r.partition, start, end))
        at -= r.end - r.start
        if at + most <= 0:
            break
    return part


def divided(ranges: Sequence[Range], most: int) -> Iterator[Sequence[Range]]:
    """Divide ranges into parts of up to so many records.

    >>> [count(part) for part in divided([Range("t", 0, 0, 5)], 2)]
    [2, 2, 1]
    """
    return (taken(ranges, at, most) for at in range(0, count(ranges), most))


def _by_place(ranges: Sequence[Range]) -> dict[Place, list[Range]]:
    spans: dict[Place, list[Range]] = {}
    for r in sorted(ranges):
        spans.setdefault((r.topic, r.partition), []).append(r)
    return spans


def _check_count(found: int, ranges: Sequence[Range]) -> None:
    if found != (need := count(ranges)):
        raise Incomplete(f"{found} of {need} records are there", ranges=len(ranges))


def _is_wanted(offset: int | None, mine: Sequence[Range] | None) -> bool:
    """Say whether a missing offset is one of ours: librdkafka keeps errors of earlier readings."""
    return mine is not None and (offset is None or mine[0].start <= offset < mine[-1].end)


def _failed(error: KafkaError, spans: Mapping[Place, Sequence[Range]], first: First) -> StreamError:
    if error.code() in (RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        return _expired(spans, first)
    return down(KafkaException(error), "rows cannot be read")


def _expired(spans: Mapping[Place, Sequence[Range]], first: First) -> StreamError:
    """A missing offset: look up which, the error does not contain it."""
    begins = first(spans)
    for (topic, partition), mine in spans.items():
        if begins[topic, partition] > mine[0].start:
            return RangeExpired(
                "rows were deleted before they were applied",
                hint=f"{LOAD_AGAIN}; a larger [kafka] retention keeps rows longer",
                topic=topic,
                partition=partition,
                first=begins[topic, partition],
                needed=mine[0].start,
            )
    return Incomplete("offsets that the cuts name are not there")


def _level(*, is_committed: bool) -> str:
    return "read_committed" if is_committed else "read_uncommitted"


def _texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as librdkafka takes them: everything is text."""
    out = []
    for name, value in settings.items():
        if name in _OF_PYTHON or not isinstance(value, str | int | float):
            raise native.ConsumerRefused(f"{name} is for the library in Python")
        out.append((name, str(value)))
    return out
