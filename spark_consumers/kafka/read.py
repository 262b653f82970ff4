"""Kafka as the driver reads it: cuts in order, and exactly the rows they name.

Both consumers live as long as the job.  Cuts are read committed from the
ledger's offset to the last stable offset, through the one acceptance function.
Rows are read by exact offsets (ranges.py) and decoded (content.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaException,
    TopicPartition,
)

from schemas.accept import CutGap, CutIdentity, CutReplay, judge
from schemas.control import Cut, Range, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.topics import Topics
from spark_consumers.cuts.complete import check_complete, promised
from spark_consumers.cuts.sizes import PART_RECORDS, WHOLE_BYTES
from spark_consumers.decode import RowDecoder
from spark_consumers.decode.control import decode_cut
from spark_consumers.errors import (
    ApplyError,
    CutsGap,
    KafkaDown,
    RangeExpired,
    SchemaUnknown,
    StreamError,
    TopicMissing,
    TopicReplaced,
)
from spark_consumers.kafka.cluster import Cluster, down
from spark_consumers.kafka.content import Content, DecoderOf, Decoders
from spark_consumers.kafka.ranges import (
    COMMON,
    END,
    RESET,
    SILENCE,
    choose,
    count,
    divided,
    ends,
)
from spark_consumers.kafka.registry import SchemaOf, registry_at
from spark_consumers.model import Ledger, Rows, Segment

_STUCK: Final = 10.0  # seconds until another client's open transaction is skipped
_TOPICS_KNOWN: Final = 60.0  # seconds for which topic ids are cached


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
                **COMMON,
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
        """Begin at the ledger's position; what was deleted from there on, `_goes_on` notices."""
        self._unfit, high = None, self._end()
        if ledger.next_offset > high:
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
        self._at = 0 if self._unfit else ledger.next_offset
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
            replay.suspect is not None or isinstance(self._unfit, TopicReplaced)
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
        until = self._now() + SILENCE
        while True:
            message = self._consumer.poll(1.0)
            if message is not None:
                error = message.error()
                if error is None:
                    return message
                if error.code() == END:
                    offset = message.offset()
                    if offset is None or offset < end:
                        continue  # reported before the newest records came
                    self._at = offset
                    return None
                if error.code() != RESET or not self._goes_on():
                    raise down(KafkaException(error), "cuts cannot be read")
            if self._now() > until:
                raise KafkaDown("the broker is silent", topic=self._topic)

    def _goes_on(self) -> bool:
        """Go on where the log begins by now; False: what is read next was not deleted.

        An empty target lacks nothing: it may begin with any START or STATE that comes.
        """
        place = (self._topic, 0)
        low = self._cluster.first([place])[place]
        if self._at is None or self._at >= low:
            return False
        if self._replay.instance is not None and self._unfit is None:
            self._unfit = _expired(low, self._at)
        self._at = low
        self._consumer.assign([TopicPartition(*place, low)])
        return True

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


def _expired(first: int, needed: int) -> RangeExpired:
    return RangeExpired(
        "cuts were deleted before they were applied",
        hint=LOAD_AGAIN,
        first=first,
        needed=needed,
    )


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
        decoder: DecoderOf = RowDecoder,
        clients: Clients = CLIENTS,
    ) -> None:
        """`native`: the native part is used where it was built.

        `stuck_after`: seconds until another client's open transaction is skipped, and until a topic
        that is missing counts as deleted.
        """
        self._clients, self._now = clients, clients.now
        self._decoders = Decoders(Topics(source), schema_of, native=native, make=decoder)
        self._stuck_after = stuck_after
        self._kafka = clients.cluster(client)
        self._fetch = choose(
            client, source, self._kafka.first,
            consumer=clients.consumer, now=clients.now, native_parts=native,
        )  # fmt: skip
        self.row_bytes = 1.0  # of the last segment that was not small
        self._stable: dict[tuple[str, int], int] = {}  # last stable offsets, as last asked
        self._cluster: str | None = None
        self._topics: dict[str, tuple[str, float]] = {}  # name -> (id, cached until)
        self._missing_since: float | None = None  # one of them

    def __call__(self, segment: Segment) -> Rows:
        """Return the segment's rows in commit order, checked to be complete."""
        if not segment.ranges:
            return _checked(segment, Rows({}))
        is_committed = self.prepare(segment)
        content = self.content(segment.ranges, is_committed=is_committed)
        return _checked(segment, content.all())

    def small(self, segment: Segment) -> Rows | None:
        """Do the same; None if the rows take more memory than may be held."""
        if not segment.ranges:
            return _checked(segment, Rows({}))
        is_committed = self.prepare(segment)
        content, records = Content(self._decoders), 0
        for ranges in divided(segment.ranges, PART_RECORDS):
            self._fetched(ranges, content, is_committed=is_committed)
            records += count(ranges)
            if (held := content.held()) > WHOLE_BYTES:
                self.row_bytes = held / records
                return None
        return _checked(segment, content.all())

    def prepare(self, segment: Segment) -> bool:
        """Check that the ranges may be read; say whether read committed, see `wait_visible`.

        A topic that stays missing was deleted; a broker that comes back learns of topics late.

        Raises TopicReplaced then, and TopicMissing until it is sure.
        """
        try:
            self.check_identity(segment)
            is_committed = self.wait_visible(segment.ranges)
        except TopicMissing as error:
            self._missing_since = self._missing_since or self._now()
            if self._now() - self._missing_since < self._stuck_after:
                raise
            raise TopicReplaced(
                "a topic of which the cuts name rows was deleted",
                hint=f"its rows are lost: {LOAD_AGAIN}",
                **error.where,
            ) from error
        except ApplyError:  # nobody says whether it is there
            self._missing_since = None
            raise
        self._missing_since = None
        return is_committed

    def read_ddl(self, segment: Segment, *, is_committed: bool) -> Sequence[SchemaChange]:
        """Read only the schema changes of a prepared segment."""
        ranges = [r for r in segment.ranges if r.topic == self._decoders.names.ddl]
        return self.content(ranges, is_committed=is_committed).all().ddl if ranges else ()

    def close(self) -> None:
        self._fetch.close()

    def content(self, ranges: Sequence[Range], *, is_committed: bool) -> Content:
        """Read ranges of a prepared segment."""
        content = Content(self._decoders)
        self._fetched(ranges, content, is_committed=is_committed)
        return content

    def _fetched(self, ranges: Sequence[Range], content: Content, *, is_committed: bool) -> None:
        try:
            self._fetch(ranges, content, is_committed=is_committed, stable=self._stable)
        except BaseException:
            self._stable.clear()
            raise

    def check_identity(self, segment: Segment) -> None:
        """The cluster and the topics are those that the cuts mean.

        Raises TopicReplaced where they are not.
        """
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
        wanted = ends(ranges)
        until = self._now() + self._stuck_after
        if all(self._stable.get(tp, -1) >= end for tp, end in wanted.items()):
            return True  # it never moves back in the life of a topic
        while True:
            self._stable |= (stable := self._kafka.stable(wanted))
            if all(stable[tp] >= end for tp, end in wanted.items()):
                return True
            if self._now() >= until:
                break
            self._clients.sleep(0.002)  # markers of several brokers race the cut's by milliseconds
        high = self._kafka.high(wanted)
        for (topic, partition), end in wanted.items():
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


def _checked(segment: Segment, rows: Rows) -> Rows:
    check_complete(promised(segment), rows)
    return rows


def _place(ledger: Ledger) -> tuple[int, ...]:
    return ledger.epoch, ledger.n, ledger.seq, ledger.fence
