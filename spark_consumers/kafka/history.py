"""The cuts as a history in which a reader begins anywhere, at the cost of a few records.

Commits are found by reading single records at an offset: each names the commit until which it
goes, and the offset of the START or STATE before it, where any reader may begin.  So what came
before costs nothing, however long it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from schemas.accept import Foreign, judge
from schemas.control import Commits, Cut, LoadPhase, Range, Start, State, TableLoad
from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.decode.control import decode_cut
from spark_consumers.errors import KafkaDown, RangeExpired, SchemaUnknown, StreamError
from spark_consumers.kafka.cluster import Cluster, down
from spark_consumers.kafka.ranges import COMMON, END, SILENCE
from spark_consumers.kafka.read import CLIENTS, Clients, CutReader, RangeReader
from spark_consumers.kafka.registry import SchemaOf
from spark_consumers.model import Ledger, Segment
from spark_consumers.versions import Version, fitting, part

_LAST_SEQ: Final = (1 << 40) - 1
_NEAR: Final = 32  # offsets within which looking for a commit ends


class Standing(NamedTuple):
    """How far a reader came."""

    version: Version  # the last whole commit
    cut: int = 0  # offset in cuts of the first record that is not wholly behind it
    state: int = 0  # offset of a START or STATE at or before it

    def has(self, other: Standing) -> bool:
        """Say whether another place is not ahead of this one."""
        return self.version >= other.version and self.cut >= other.cut


class TableNote(NamedTuple):
    """Something about the table that is not a row of it."""

    version: Version
    kind: str  # "truncate": empty your copy, a load follows; "gap": rows are missing
    why: str = ""


class Found(NamedTuple):
    """What some commits have of one table, and the place behind them."""

    place: Standing
    ranges: tuple[Range, ...] = ()
    schema_ids: tuple[int, ...] = ()  # in the order of the cuts; the last is the newest
    notes: tuple[TableNote, ...] = ()


class History:
    """Reads commits of a source from any of them on; KafkaDown without an answer."""

    def __init__(
        self,
        client: Mapping[str, Any],
        source: str,
        schema_of: SchemaOf,
        *,
        clients: Clients = CLIENTS,
    ) -> None:
        self._client, self._source, self._schema_of = dict(client), source, schema_of
        self._clients = clients
        self._names = Topics(source)
        self._cluster: Cluster = clients.cluster(client)
        self._cuts = CutReader(client, source, schema_of, clients=clients)
        self._rows = RangeReader(client, source, schema_of, clients=clients)
        self._consumer: Any = None

    def close(self) -> None:
        self._cuts.close()
        self._rows.close()
        if self._consumer is not None:
            self._consumer.close()

    def newest(self) -> Standing:
        """Return the place after the last durable commit; StreamError where there is none."""
        low, end = self._ends()
        window = _NEAR
        while True:
            since = max(low, end - window)
            found = list(self._from(since, end))
            if found:
                offset, cut = found[-1]
                head = cut.head
                state = offset if head.state_from < 0 else head.state_from
                return Standing(Version(head.epoch, head.last_seq), offset + 1, state)
            if since == low:
                raise StreamError(
                    "the cuts topic has no record of this source",
                    topic=self._names.cuts,
                    hint="is the prefix right, and has `run` been started?",
                )
            window *= 4

    def behind(self, version: Version) -> Standing:
        """Return the place after a commit; raise RangeExpired where its cuts were deleted."""
        low, end = self._ends()
        found = self._last(version, low, end)
        if found is None:
            raise RangeExpired(
                "the cuts of these commits were deleted",
                hint="begin at a later commit, or at `latest`",
                first=str(self._oldest(low, end)),
                needed=str(version),
            )
        offset, cut = found
        state = offset if cut.head.state_from < 0 else cut.head.state_from
        if state < low:
            raise RangeExpired(
                "the START or STATE before these commits was deleted",
                hint="begin at a later commit, or at `latest`",
                first=low,
                needed=state,
            )
        return Standing(version, offset + 1, state)

    def loads(self) -> Standing:
        """Return the place where the newest loads of the tables begin."""
        low, end = self._ends()
        epoch = self.newest().version.epoch
        while True:
            before = self._last(Version(epoch - 1, _LAST_SEQ), low, end)
            at, start = next(self._from(low if before is None else before[0] + 1, end))
            if not isinstance(start, Start):
                raise RangeExpired(
                    "the loads of the tables are not in the cuts any more",
                    hint="begin at a later commit, or at `latest`",
                    first=low,
                )
            if start.prev is None or not start.continues:
                return Standing(Version(start.head.epoch, 0), at, at)
            epoch = start.prev.epoch

    def walk(self, table: TableId, place: Standing) -> CommitWalk:
        """Return a walk over what comes behind a place; one at a time."""
        return CommitWalk(self._following(place), self._names.table(table), table, place)

    def readable(self, ranges: Sequence[Range]) -> bool:
        """Check that these ranges may be read; say whether read committed, see `RangeReader`."""
        if not ranges:
            return True
        places = {(r.topic, r.partition): r.start for r in sorted(ranges, reverse=True)}
        first = self._cluster.first(places)
        for (topic, partition), start in places.items():
            if first[topic, partition] > start:
                raise RangeExpired(
                    "rows of these commits were deleted",
                    hint="begin at a later commit; a larger [kafka] retention keeps rows longer",
                    topic=topic,
                    partition=partition,
                    first=first[topic, partition],
                    needed=start,
                )
        state = self._cuts.replay.state
        ledger = Ledger(self._source)
        if state is not None:
            ids = {name: topic.id for name, topic in state.topics.items()}
            ledger = Ledger(self._source, cluster_id=state.cluster_id, topics=ids)
        assert state is not None
        named = Segment(Commits(state.head, (), ()), ledger, ledger, ranges=tuple(ranges))
        return self._rows.prepare(named)

    def _following(self, place: Standing) -> Iterator[tuple[int, Cut] | None]:
        """Accepted records behind a place; None wherever there is none by now."""
        ledger = Ledger(self._source, next_offset=place.state)
        while True:
            yield from self._cuts(ledger)
            yield None
            replay = self._cuts.replay
            ledger = Ledger(self._source, replay.epoch, replay.n, replay.seq)

    def _last(self, version: Version, low: int, end: int) -> tuple[int, Cut] | None:
        """Return the last record that goes no further than a commit."""
        found: tuple[int, Cut] | None = None
        first, last = low, end
        while last - first > _NEAR:
            middle = (first + last) // 2
            probe = next(self._from(middle, last), None)
            if probe is not None and _reach(probe[1]) <= version:
                found, first = probe, probe[0] + 1
            else:
                last = middle
        for probe in self._from(first, last):
            if _reach(probe[1]) > version:
                break
            found = probe
        return found

    def _ends(self) -> tuple[int, int]:
        place = (self._names.cuts, 0)
        return self._cluster.first([place])[place], self._cluster.stable([place])[place]

    def _oldest(self, low: int, end: int) -> Version | None:
        probe = next((c for _, c in self._from(low, end) if isinstance(c, State)), None)
        return None if probe is None else _reach(probe)

    def _from(self, offset: int, end: int) -> Iterator[tuple[int, Cut]]:
        """Records of ours at or behind an offset, as they stand, below an end."""
        if self._consumer is None:
            self._consumer = self._clients.consumer(
                {
                    **self._client,
                    **COMMON,
                    "group.id": f"gauss-cdc-history-{self._source}",
                    "isolation.level": "read_committed",
                    "fetch.wait.max.ms": 10,
                }
            )
        consumer = self._consumer
        with _polling(consumer, TopicPartition(self._names.cuts, 0, offset)):
            until = time.monotonic() + SILENCE
            while True:
                message = consumer.poll(1.0)
                if message is None:
                    if time.monotonic() > until:
                        raise KafkaDown("the broker is silent", topic=self._names.cuts)
                    continue
                if (error := message.error()) is not None:
                    if error.code() == END:
                        return
                    raise down(KafkaException(error), "cuts cannot be read")
                if message.offset() >= end:
                    return
                record = judge(message.key(), message.value(), source=self._source, read=self._read)
                if not isinstance(record, Foreign):
                    yield message.offset(), record

    def _read(self, value: bytes) -> Cut:
        try:
            return decode_cut(value, self._schema_of)
        except SchemaUnknown as error:
            raise ValueError("of no schema") from error


class CommitWalk:
    """What commits have of one table, some at a time, in order."""

    def __init__(
        self,
        records: Iterator[tuple[int, Cut] | None],
        topic: str,
        table: TableId,
        place: Standing,
    ) -> None:
        self._records, self._topic, self._table = records, topic, table
        self._left: tuple[int, Cut] | None = None  # a record that was not taken, or in part
        self.place = place

    def take(self, rows: int | None = None, upto: Standing | None = None) -> Found:
        """Return whole commits behind the place, until now, a place, or about so many rows.

        At least one commit is taken, however large it is.
        """
        ranges: list[Range] = []
        ids: dict[int, None] = {}
        notes: list[TableNote] = []
        taken = 0
        while (upto is None or not self.place.has(upto)) and (rows is None or taken < rows):
            record = self._left or self._next()
            if record is None:
                break
            if upto is not None and record[1].head.epoch > upto.version.epoch:
                self._left = record
                break
            room = None if rows is None else rows - taken
            found = self._of(*record, room, upto, is_first=taken == 0)
            if found is None:  # its first commit has more rows than there is room for
                self._left = record
                break
            is_done = found.place.cut > record[0]
            self._left = None if is_done else record
            self.place = found.place
            taken += sum(r.end - r.start for r in found.ranges)
            ranges += found.ranges
            notes += found.notes
            if found.ranges:
                for schema_id in found.schema_ids:  # what came back is the newest again
                    ids.pop(schema_id, None)
                    ids[schema_id] = None
        return Found(self.place, tuple(ranges), tuple(ids), tuple(notes))

    def _next(self) -> tuple[int, Cut] | None:
        while (record := next(self._records)) is not None:
            if isinstance(record[1], State):
                self.place = self.place._replace(state=max(record[0], self.place.state))
            if record[0] >= self.place.cut:
                return record
        return None

    def _of(
        self, offset: int, cut: Cut, room: int | None, upto: Standing | None, *, is_first: bool
    ) -> Found | None:
        place, reached = self.place, _reach(cut)
        behind = Standing(reached, offset + 1, place.state)
        match cut:
            case Commits():
                known = place.version.seq if place.version.epoch == reached.epoch else 0
                if reached.seq <= known:
                    return Found(behind._replace(version=place.version))
                last = reached.seq
                if upto is not None and upto.version.epoch == reached.epoch:
                    last = min(last, upto.version.seq)
                if room is not None:
                    last = min(last, fitting(cut, self._topic, known, room))
                mine = part(cut, self._topic, known, last)
                if room is not None and not is_first and _rows(mine.ranges) > room:
                    return None
                notes = tuple(
                    TableNote(Version(reached.epoch, seq), "gap", f"{hole.kind}: {hole.why}")
                    for seq, hole in mine.holes
                    if hole.table == str(self._table)
                )
                if last < reached.seq:
                    behind = Standing(Version(reached.epoch, last), offset, place.state)
                return Found(behind, mine.ranges, cut.schema_ids.get(self._topic, ()), notes)
            case TableLoad():
                ranges = tuple(r for r in cut.ranges if r.topic == self._topic)
                ids = cut.schema_ids.get(self._topic, ())
                return Found(behind, ranges, ids, _of_load(cut) if cut.table == self._table else ())
            case _:
                return Found(behind)


def _rows(ranges: Sequence[Range]) -> int:
    return sum(r.end - r.start for r in ranges)


@contextmanager
def _polling(consumer: Any, place: TopicPartition) -> Iterator[None]:
    try:
        consumer.assign([place])
        yield
    except KafkaException as error:
        raise down(error, "cuts cannot be read") from error
    finally:
        consumer.assign([])


def _reach(cut: Cut) -> Version:
    return Version(cut.head.epoch, cut.head.last_seq)


def _of_load(cut: TableLoad) -> tuple[TableNote, ...]:
    """What a step of a table's load says, besides its rows."""
    version = _reach(cut)
    if cut.phase is LoadPhase.BEGIN and version.epoch > 1:
        return (TableNote(version, "truncate", "a load follows"),)
    if cut.phase is LoadPhase.END and cut.lossy is not None:
        return (TableNote(version, "gap", f"seen: {cut.lossy}"),)
    return ()
