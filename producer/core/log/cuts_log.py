"""The cuts topic and its one writer; checks that readers accept our own records.

`kafka/cuts_reader.py`, `kafka/registry.py` and `kafka/delivery.py` are behind the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from producer.core.delivery.engine import WriterState
from producer.core.events import Records as Produced
from producer.core.log.delivered import delivered, recent
from producer.core.ports import Clock, Codec, Delivery, Reader, TopicCatalog
from producer.core.stream.redelivery import DeliveredPart
from producer.core.takeover.promotion import Tail, tail_behind
from producer.errors import CutsBroken, RegistryError, TakenOver
from schemas.accept import CutReplay, Foreign, Record, Records, judge, replay_tail
from schemas.control import Cut, Head, Start, Topic
from schemas.errors import LOAD_AGAIN
from schemas.positions import Lsn
from schemas.tables import TableId
from schemas.topics import Topics

_WHO_WRITES: Final = "allow no other writer below the prefix (`gauss-cdc check` prints the ACLs)"


class CutsLog:
    """The cuts topic and its one writer, as `takeover.Log`."""

    def __init__(
        self,
        *,
        names: Topics,
        accept_gap: bool,
        reader: Reader | None,
        codec: Codec,
        delivery: Delivery | None,
        topics: TopicCatalog,
        clock: Clock,
        note: Callable[[str], None],
        blocking: Callable[..., Any] = lambda call, *args: call(*args),
    ) -> None:
        """Without a `reader` there is no topic yet; without a `delivery` nothing is written.

        `blocking` makes calls that may take long; `note` reports what an operator should know.
        """
        self._names, self._accept_gap = names, accept_gap
        self._reader = reader
        self._codec = codec
        self._delivery = delivery
        self._topics = topics
        self._clock, self._note, self._blocking = clock, note, blocking
        self._replay = CutReplay.from_nobody()
        self._replayed_to: int | None = None
        self._start = 0  # of the log, when its tail was read last
        self.begins = ""  # why an epoch begins, once its START is being written
        self.has_started = False  # a START of ours is durable

    def bounds(self) -> tuple[int, int]:
        """First offset and high watermark."""
        return (0, 0) if self._reader is None else self._reader.bounds()

    def lso(self) -> int:
        """End of what is decided."""
        return 0 if self._reader is None else self._reader.lso()

    def tail(self) -> CutReplay | None:
        """Replay to the last accepted record that is visible.

        None: there is none.  Raises RegistryError where the registry knows no record's schema,
        unless `accept_gap`.
        """
        if self._reader is None:
            return None
        start, _ = self._reader.bounds()
        self._start = start
        replay: CutReplay | None = self._blocking(
            replay_tail, self._read, start, self._reader.lso()
        )
        if replay is None and self._codec.unknown is not None and not self._accept_gap:
            raise RegistryError(
                "the schema registry does not know the schema of any record of cuts",
                schema_id=self._codec.unknown,
                hint="is it the registry they were written with, and has it lost nothing? "
                f"If not: {LOAD_AGAIN}",
            )
        return replay

    def topics(self, names: Collection[str] = ()) -> Mapping[str, Topic]:
        """Topics of the prefix as they are, or those of these names that exist."""
        return self._topics.existing(names or self._topics.list_below(self._names.prefix))

    def high_watermarks(self, topics: Mapping[str, Topic]) -> Mapping[str, Mapping[int, int]]:
        """High watermarks by partition, asked now."""
        return self._topics.high_watermarks(topics)

    def init_transactions(self) -> None:
        """Fence older selves."""
        assert self._delivery is not None
        self._blocking(self._delivery.init_transactions, 30.0)

    def tail_behind(self, position: Lsn, replay: CutReplay) -> Tail:
        """Look through what was delivered behind a position; `replay` is of all of it."""
        if self._reader is None:
            return Tail()
        start, _ = self._reader.bounds()
        found: Tail = self._blocking(
            lambda: tail_behind(
                self._read, start, self.lso(), position=position, replay=replay, names=self._names
            )
        )
        return found

    def delivered(
        self,
        start: WriterState,
        confirmed: Lsn,
        topics: Mapping[TableId, str],
        *,
        has_triggers: bool,
        keeps_confirmed: bool,
        filters_as_then: bool,
    ) -> Iterator[DeliveredPart]:
        """Read what was delivered of the commits from `confirmed` on, up to our START."""
        return delivered(
            lambda low, high: self._blocking(self._read, low, high),
            lambda: self.bounds()[0],
            start.state_from,
            head=start.head,
            loads=start.loads,
            confirmed=confirmed,
            topics=topics,
            note=self._note,
            has_triggers=has_triggers,
            keeps_confirmed=keeps_confirmed,
            is_sent=self._names.is_data if filters_as_then else None,
        )

    def recent(self, start: WriterState, since: Lsn) -> Iterator[Cut]:
        """Read the cuts behind a position, the newest first, before our START."""
        return recent(
            lambda low, high: self._blocking(self._read, low, high),
            self.bounds()[0],
            start.state_from,
            head=start.head,
            since=since,
        )

    def write_start(self, start: Start, shapes: Produced = ()) -> int:
        """Write START, and the shapes that it begins with in one Kafka transaction, durable."""
        assert self._delivery is not None
        self.begins = start.reason or ""
        stamped = replace(start, head=replace(start.head, written_at=self._clock.wall_us()))
        _, (offset,) = self._delivery.write_now(
            [list(shapes)], lambda _: [self.framed(stamped)], atomic=True
        )
        self.has_started = True
        return offset

    def judge_own(self, cuts: Sequence[Cut], offsets: Sequence[int]) -> None:
        """See that readers accept what was just written; raise TakenOver or CutsBroken.

        Call it before confirming: another writer with access to the topic can forge records
        before ours.  Our own records are two offsets apart, with a marker between; only where
        they are not, there may be others, and the topic is read.
        """
        assert self._reader is not None
        if self._replayed_to is None:
            self._replayed_to = max(0, cuts[0].head.state_from)
        alarms, between = self._replay.alarms, []
        if offsets[0] != self._replayed_to:
            if self._reader.lso() < offsets[0]:
                return  # another transaction is open: the next call sees its end
            low = max(self._replayed_to, self._start)  # retention removed the rest
            between = self._blocking(self._read, low, offsets[0])
        records = [*between, *zip(offsets, cuts, strict=True)]
        refused = self._refused(records, offsets[0])
        if refused is not None and self._reader.bounds()[0] > self._replayed_to:
            # What is missing was removed by retention: who begins to read now begins here, too.
            at = next(at for at, (_, cut) in enumerate(records) if _is_of(cut, cuts[0].head))
            self._replay = CutReplay.behind(records[at][1].head)
            refused = self._refused(records[at + 1 :], offsets[0])
        if refused is not None:
            where = {"topic": self._names.cuts, "offset": refused}
            if self._replay.instance != cuts[0].head.instance:
                raise TakenOver(
                    "another writer's START precedes our record",
                    hint=_WHO_WRITES,
                    writer=self._replay.writer,
                    **where,
                )
            raise CutsBroken(
                "another writer wrote to cuts under our name",
                hint=f"{_WHO_WRITES}; then {LOAD_AGAIN}",
                why=str(self._replay.suspect),
                **where,
            )
        self._replayed_to = offsets[-1] + 2
        if self._replay.alarms > alarms:
            self._note(f"{self._names.cuts}: {self._replay.alarm}; {_WHO_WRITES}")

    def _refused(self, records: Records, since: int) -> int | None:
        """Follow records; return the first one at or behind an offset that does not count."""
        for offset, record in records:
            if self._replay.follow(offset, record) is None and offset >= since:
                return offset
        return None

    def framed(self, cut: Cut) -> tuple[bytes, bytes]:
        """Key and value of a record of cuts."""
        return self._names.prefix.encode(), self._codec.encode_cut(cut)

    def _read(self, low: int, high: int) -> Records:
        assert self._reader is not None
        source, read = self._names.prefix, self._codec.read_cut
        return [
            (stored.offset, judge(stored.key, stored.value, source=source, read=read))
            for stored in self._reader.read(low, high)
        ]


def _is_of(record: Record, head: Head) -> bool:
    """Say whether a record is of the same writer."""
    if isinstance(record, Foreign):
        return False
    return (record.head.writer, record.head.instance) == (head.writer, head.instance)
