"""Kafka as the driver reads it: cuts in order, and exactly the rows they name.

Both consumers live as long as the job.  Cuts are read committed from the
ledger's offset to the last stable offset, through the one acceptance function.
Rows are read by exact offsets: aborted, expired and not yet visible records all
look like fewer rows or none, so only counts decide, never an error's class.

Two long-poll settings matter more than anything else here: a consumer that
jumps to a range waits for its own poll under way (500 ms by default).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from schemas.accept import CutGap, CutIdentity, CutReplay, judge
from schemas.control import Cut, Range, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.cuts import check_complete
from spark_consumers.decode import FRAME_SIZE, RowDecoder, split
from spark_consumers.decode.control import decode_control, decode_cut
from spark_consumers.decode.rows import COMMIT_ORDER
from spark_consumers.errors import (
    CutsGap,
    Incomplete,
    KafkaDown,
    RangeExpired,
    SchemaUnknown,
    StreamError,
    TopicReplaced,
)
from spark_consumers.kafka.cluster import Cluster, down
from spark_consumers.kafka.registry import SchemaOf, registry_at
from spark_consumers.model import Change, Ledger, Rows, Segment

_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001  public, in spite of its name
_RESET: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
_COMMON: Final = {
    "log_level": 2,  # the cluster's own connection reports why it is down
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # A broker that comes back may not know its topics yet; the default is 5 minutes.
    "topic.metadata.refresh.interval.ms": 5_000,
}
# Assigned again for each range: short polls, small fetches (a busy partition sends what
# comes after the range, too).  Above _LARGE rows a second consumer with usual fetches.
_SMALL_FETCH: Final = {"fetch.wait.max.ms": 1, "max.partition.fetch.bytes": 65_536}
_LARGE_FETCH: Final = {"fetch.wait.max.ms": 10, "max.partition.fetch.bytes": 1_048_576}
_LARGE: Final = 5_000
_SILENCE: Final = 30.0  # seconds without a record or an end of partition
_STUCK: Final = 10.0  # seconds until another client's open transaction is skipped
_TOPICS_KNOWN: Final = 60.0  # seconds for which topic ids are cached

_START: Final = attrgetter("start")
_NOWHERE: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Clients:
    """What readers read and ask with, and their time: librdkafka's, or the simulation's."""

    consumer: Callable[[dict[str, Any]], Any] = Consumer
    cluster: Callable[..., Cluster] = Cluster  # (client, timeout=seconds)
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


CLIENTS: Final = Clients()

__all__ = ["CutReader", "RangeReader", "SchemaOf", "registry_at"]


class CutReader:
    """The cuts topic, from a ledger's place to the last stable offset."""

    def __init__(
        self,
        client: Mapping[str, Any],
        source: str,
        schema_of: SchemaOf,
        *,
        timeout: float = 10.0,
        doubt: float = 0.0,
        on_alarm: Callable[[str], None] = lambda _: None,
        native: bool = True,
        clients: Clients = CLIENTS,
    ) -> None:
        """`timeout`: seconds in which the broker must return the log's ends.

        `doubt`: seconds for which a record that does not follow is not an error: the next
        heartbeat may show that it was forged.  `on_alarm` takes a line about one that is not ours.
        `native`: the native part is used where it was built.
        """
        self._native = native
        self._now = clients.now
        self._cluster = clients.cluster(client, timeout=timeout)
        self._topic = Topics(source).cuts
        self._schema_of = schema_of
        self._consumer = clients.consumer(
            {
                **client,
                **_COMMON,
                "group.id": f"gauss-cdc-cuts-{source}",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        self._source, self._on_alarm = source, on_alarm
        self._replay = CutReplay()
        self._unfit: StreamError | None = None  # why the ledger's place is none of this log's
        self._unknown: SchemaUnknown | None = None  # of the newest record, if none counts since
        self._doubt = doubt
        self._doubted_at: float | None = None  # when a record came that does not follow
        self._at: int | None = None  # offset to be read next; None: assign by the ledger
        self._served: tuple[int, ...] | None = None  # the ledger's place after what was given out
        self._ahead: list[Any] = []  # messages that `wait` saw first

    def __call__(self, ledger: Ledger) -> Iterator[tuple[int, Cut]]:
        """Yield accepted records up to the last stable offset as of now."""
        if self._served != _place(ledger):
            self._begin(ledger)
        end = self._end()
        self._served = None  # until the caller has taken all of them
        # The last stable offset stands behind a marker: every cut is in a transaction.  What
        # `wait` saw is taken in any case: a foreign record need not be in one.
        while self._at is not None and (self._at < end - 1 or self._is_ahead(end)):
            message = self._next(end)
            if message is None:
                break
            self._at = message.offset() + 1
            cut = self._accept(message)
            if cut is not None:
                yield message.offset(), cut
        self._raise_unfit()
        self._served = self._reached(ledger)

    def wait(self, seconds: float) -> bool:
        """Wait until something new stands in the topic; say whether it does."""
        if self._at is None:
            return True
        until = self._now() + seconds
        while not self._ahead and (left := until - self._now()) > 0:
            message = self._consumer.poll(left)
            if message is not None and message.error() is None:
                self._ahead.append(message)
        return bool(self._ahead)

    @property
    def replay(self) -> CutReplay:
        """What the reader knows; `alarms` counts records of overtaken writers."""
        return self._replay

    def close(self) -> None:
        self._consumer.close()

    def _reached(self, ledger: Ledger) -> tuple[int, ...]:
        """Where a ledger stands that has applied everything given out."""
        replay = self._replay
        return replay.epoch, replay.n, replay.seq, ledger.fence

    def _is_ahead(self, end: int) -> bool:
        return bool(self._ahead) and self._ahead[-1].offset() < end

    def _begin(self, ledger: Ledger) -> None:
        """Begin at the ledger's position; if that is gone, at an epoch that loads all tables."""
        place = (self._topic, 0)
        low, high = self._cluster.first([place])[place], self._end()
        self._unfit = None
        if ledger.next_offset < low:
            self._unfit = RangeExpired(
                "cuts were deleted before they were applied"
                + ("" if ledger.instance else ", and nothing begins in what is left"),
                hint=LOAD_AGAIN,
                first=low,
                needed=ledger.next_offset,
            )
        elif ledger.next_offset > high:
            self._unfit = TopicReplaced(
                "the cuts topic ends before the target's place in it",
                hint=f"the topic was made again, or the cluster lost its tail: {LOAD_AGAIN}",
                end=high,
                needed=ledger.next_offset,
            )
        self._replay = (
            CutReplay.from_nobody()
            if not ledger.instance
            else CutReplay.resumed(
                n=ledger.n,
                epoch=ledger.epoch,
                seq=ledger.seq,
                writer=ledger.writer,
                instance=ledger.instance,
                resume=ledger.resume,
            )
        )
        self._at = low if self._unfit else ledger.next_offset
        self._ahead.clear()
        self._consumer.assign([TopicPartition(self._topic, 0, self._at)])

    def _raise_unfit(self) -> None:
        """Raise what stays at the log's end: a place that is gone, a record that does not follow.

        Where only heartbeats were deleted the next record follows, and nothing was lost.
        """
        replay = self._replay
        if self._unknown is not None and replay.instance is None:
            raise self._unknown  # nothing can be read: another registry, or one that lost its data
        if self._unfit is not None and (
            replay.suspect is not None
            or replay.instance is None
            or isinstance(self._unfit, TopicReplaced)
        ):
            raise self._unfit
        if self._doubted_at is not None and self._now() - self._doubted_at < self._doubt:
            return
        match replay.suspect:
            case CutIdentity() as error:
                raise CutsGap(
                    str(error), hint=f"two sources write under one prefix; then {LOAD_AGAIN}"
                ) from error
            case CutGap() as error:
                raise CutsGap(str(error), hint=LOAD_AGAIN) from error

    def _end(self) -> int:
        place = (self._topic, 0)
        return self._cluster.stable([place])[place]

    def _next(self, end: int) -> Any:
        """The next record below the end, or None: only markers are left."""
        if self._ahead:
            return self._ahead.pop()
        until = self._now() + _SILENCE
        while True:
            message = self._consumer.poll(1.0)
            if message is not None:
                error = message.error()
                if error is None:
                    return message
                if error.code() == _END:
                    offset = message.offset()
                    if offset is None or offset < end:
                        continue  # reported before the newest records came
                    self._at = offset
                    return None
                raise down(KafkaException(error), "cuts cannot be read")
            if self._now() > until:
                raise KafkaDown("the broker is silent", topic=self._topic)

    def _accept(self, message: Any) -> Cut | None:
        replay = self._replay
        offset, alarms = message.offset(), replay.alarms
        record = judge(message.key(), message.value(), source=self._source, read=self._read)
        cut = replay.follow(offset, record)
        if cut is not None:
            self._unfit = self._unknown = None
        if replay.alarms != alarms and not replay.alarms & (
            replay.alarms - 1
        ):  # the 1st, 2nd, 4th, ...
            self._on_alarm(f"{self._topic}, {replay.alarms} by now: {replay.alarm}")
        if replay.suspect is None:
            self._doubted_at = None
        elif self._doubted_at is None:
            self._doubted_at = self._now()
            self._on_alarm(f"{self._topic}: {replay.suspect}")
        return cut

    def _read(self, value: bytes) -> Cut:
        try:
            return decode_cut(value, self._schema_of, native=self._native)
        except SchemaUnknown as error:
            self._unknown = error
            raise ValueError("of no schema") from error


class RangeReader:
    """The driver's lane: reads the exact ranges of a segment and decodes them."""

    def __init__(
        self,
        client: Mapping[str, Any],
        source: str,
        schema_of: SchemaOf,
        *,
        stuck_after: float = _STUCK,
        native: bool = True,
        clients: Clients = CLIENTS,
    ) -> None:
        """`stuck_after`: seconds until another client's open transaction is skipped.

        `native`: the native part is used where it was built.
        """
        self._native = native
        self._clients, self._now = clients, clients.now
        self._client, self._names, self._schema_of = dict(client), Topics(source), schema_of
        self._stuck_after = stuck_after
        self._kafka = clients.cluster(client)
        self._consumers: dict[tuple[bool, bool], Any] = {}
        self._decoders: dict[int, RowDecoder] = {}
        self._tables: dict[str, TableId] = {}
        self._cluster: str | None = None
        self._topics: dict[str, tuple[str, float]] = {}  # name -> (id, cached until)

    def __call__(self, segment: Segment) -> Rows:
        """Return the segment's rows in commit order, checked to be complete."""
        if not segment.ranges:
            return Rows({})
        is_committed = self.prepare(segment)
        rows = self._decode(self._fetch(segment.ranges, is_committed=is_committed))
        check_complete(segment, rows)
        return rows

    def prepare(self, segment: Segment) -> bool:
        """Check that the ranges may be read; say whether read committed, see `wait_visible`."""
        self.check_identity(segment)
        return self.wait_visible(segment.ranges)

    def read_ddl(self, segment: Segment, *, is_committed: bool) -> Sequence[SchemaChange]:
        """Read only the schema changes of a prepared segment."""
        ranges = [r for r in segment.ranges if r.topic == self._names.ddl]
        return self._decode(self._fetch(ranges, is_committed=is_committed)).ddl if ranges else ()

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def check_identity(self, segment: Segment) -> None:
        """The cluster and the topics are those that the cuts mean."""
        if self._cluster is None:
            self._cluster = self._kafka.id()
        ledger = segment.upto
        if ledger.cluster_id and ledger.cluster_id != self._cluster:
            raise TopicReplaced(
                "this is another Kafka cluster than the one in which the cuts were written",
                ours=self._cluster,
                theirs=ledger.cluster_id,
                hint=f"correct [kafka.client] bootstrap.servers; if it was replaced: {LOAD_AGAIN}",
            )
        now = self._now()
        known = {r.topic for r in segment.ranges if ledger.topics.get(r.topic)}
        if old := [t for t in known if self._topics.get(t, ("", 0.0))[1] < now]:
            for name, topic_id in self._kafka.topic_ids(old).items():
                self._topics[name] = (topic_id, now + _TOPICS_KNOWN)
        for name in known:
            if self._topics[name][0] != ledger.topics[name]:
                self._topics.pop(name)
                raise TopicReplaced(
                    "a topic was deleted and made again",
                    hint=f"its rows are lost: {LOAD_AGAIN}",
                    topic=name,
                )

    def wait_visible(self, ranges: Sequence[Range]) -> bool:
        """Wait until every range ends below the last stable offset.

        Returns False where another client's open transaction blocks: a visible cut
        proves that ours was committed, so its exact offsets may be read uncommitted.
        """
        ends = _ends(ranges)
        until = self._now() + self._stuck_after
        while True:
            stable = self._kafka.stable(ends)
            if all(stable[tp] >= end for tp, end in ends.items()):
                return True
            if self._now() >= until:
                break
            self._clients.sleep(0.002)  # markers of several brokers race the cut's by milliseconds
        high = self._kafka.high(ends)
        for (topic, partition), end in ends.items():
            if high[topic, partition] < end:
                raise TopicReplaced(
                    "a topic ends before rows that the cuts name",
                    hint=f"the topic was made again, or the cluster lost its tail: {LOAD_AGAIN}",
                    topic=topic,
                    partition=partition,
                    end=high[topic, partition],
                    needed=end,
                )
        return False

    def _fetch(self, ranges: Sequence[Range], *, is_committed: bool) -> list[Any]:
        """All records of exactly these offsets; in no order across partitions."""
        spans: dict[tuple[str, int], list[Range]] = {}
        for r in sorted(ranges):
            spans.setdefault((r.topic, r.partition), []).append(r)
        need = sum(r.end - r.start for r in ranges)
        consumer = self._consumer(is_committed=is_committed, is_large=need > _LARGE)
        out: list[Any] = []
        open_ = {tp: mine[-1].end for tp, mine in spans.items()}
        inside: dict[tuple[str, int], tuple[int, int]] = {}  # the range in hand, without its last
        try:
            consumer.assign([TopicPartition(*tp, mine[0].start) for tp, mine in spans.items()])
            until = self._now() + _SILENCE
            while open_ and len(out) < need:
                messages = consumer.consume(min(need - len(out) + len(open_), 10_000), 0.005)
                if messages:
                    until = self._now() + _SILENCE
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
        if len(out) != need:
            raise Incomplete(f"{len(out)} of {need} records are there", ranges=len(ranges))
        return out

    def _take(
        self,
        message: Any,
        spans: Mapping[tuple[str, int], Sequence[Range]],
        open_: dict[tuple[str, int], int],
    ) -> Range | None:
        """Return the range that a record is in; None: it is another's, or the end of a partition.

        Closes partitions that end with it.
        """
        tp = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            if error.code() == _END:
                if message.offset() >= open_.get(tp, 0):
                    open_.pop(tp, None)
                return None
            if error.code() in (_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise self._expired(spans)
            raise down(KafkaException(error), "rows cannot be read")
        offset = message.offset()
        if offset + 1 >= open_.get(tp, 0):
            open_.pop(tp, None)
        mine = spans.get(tp, ())
        at = bisect_right(mine, offset, key=_START) - 1
        return mine[at] if at >= 0 and offset < mine[at].end else None

    def _expired(self, spans: Mapping[tuple[str, int], Sequence[Range]]) -> StreamError:
        """A missing offset: look up which, the error does not contain it."""
        first = self._kafka.first(spans)
        for (topic, partition), mine in spans.items():
            if first[topic, partition] > mine[0].start:
                return RangeExpired(
                    "rows were deleted before they were applied",
                    hint=f"{LOAD_AGAIN}; a larger [kafka] retention keeps rows longer",
                    topic=topic,
                    partition=partition,
                    first=first[topic, partition],
                    needed=mine[0].start,
                )
        return Incomplete("offsets that the cuts name are not there")

    def _consumer(self, *, is_committed: bool, is_large: bool) -> Any:
        consumer = self._consumers.get((is_committed, is_large))
        if consumer is None:
            level = "read_committed" if is_committed else "read_uncommitted"
            consumer = self._consumers[is_committed, is_large] = self._clients.consumer(
                {
                    **self._client,
                    **_COMMON,
                    **(_LARGE_FETCH if is_large else _SMALL_FETCH),
                    "group.id": f"gauss-cdc-rows-{self._names.prefix}-{level}",
                    "isolation.level": level,
                }
            )
        return consumer

    def _decode(self, messages: Sequence[Any]) -> Rows:
        written_by: dict[tuple[str, bytes], list[tuple[Any, bytes]]] = {}  # by topic and frame
        for message in messages:
            value = message.value()
            if value is not None:  # a tombstone counts as a record without a change
                key = (message.topic(), value[:FRAME_SIZE])
                written_by.setdefault(key, []).append((message, value))
        changes: dict[TableId, Sequence[Change]] = {}
        ddl: list[SchemaChange] = []
        for (topic, _), records in written_by.items():
            if topic == self._names.ddl:
                ddl += [self._schema_change(*record) for record in records]
                continue
            table, rows = self._rows(topic, records)
            known = changes.get(table)
            changes[table] = (
                rows if known is None else sorted([*known, *rows], key=COMMIT_ORDER)
            )  # a table written with two schemas
        ddl.sort(key=COMMIT_ORDER)
        return Rows(changes, ddl)

    def _schema_change(self, message: Any, value: bytes) -> SchemaChange:
        with _undecodable(message):
            change = decode_control(value, self._schema_of)
        if not isinstance(change, SchemaChange):
            raise Incomplete("a cut stands in the ddl topic", offset=message.offset())
        return change

    def _rows(
        self, topic: str, records: Sequence[tuple[Any, bytes]]
    ) -> tuple[TableId, Sequence[Change]]:
        """Rows that were written with one schema, in commit order."""
        with _undecodable(records[0][0]):
            schema_id, _ = split(records[0][1])
            decoder = self._decoders.get(schema_id)
            if decoder is None:
                schema = self._schema_of(schema_id)
                decoder = self._decoders[schema_id] = RowDecoder(schema, native=self._native)
        table = self._tables.get(topic) or self._table(topic, schema_id)
        rows, values, at = decoder.rows(schema_id), [value for _, value in records], 0
        while (at := rows.take(values, at)) < len(values):
            with _undecodable(records[at][0]):
                rows.put(decoder.decode(split(values[at])[1]))
            at += 1
        rows.order()
        return table, rows

    def _table(self, topic: str, schema_id: int) -> TableId:
        table = self._names.table_by(topic, self._schema_of(schema_id))
        if table is None:
            raise StreamError("a range names a topic that is not a table's", topic=topic)
        self._tables[topic] = table
        return table


@contextmanager
def _undecodable(message: Any) -> Iterator[None]:
    """Say which record it is that cannot be decoded."""
    try:
        yield
    except (ValueError, LookupError, EOFError) as error:
        raise StreamError(
            "a row cannot be decoded",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            hint=f"written by a newer release: update this one; by another client: {LOAD_AGAIN}",
        ) from error


def _ends(ranges: Sequence[Range]) -> dict[tuple[str, int], int]:
    ends: dict[tuple[str, int], int] = {}
    for r in ranges:
        tp = (r.topic, r.partition)
        ends[tp] = max(r.end, ends.get(tp, 0))
    return ends


def _place(ledger: Ledger) -> tuple[int, ...]:
    return ledger.epoch, ledger.n, ledger.seq, ledger.fence
