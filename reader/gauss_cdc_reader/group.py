"""A group of processes that share tables: each table has one reader, and its place is in Kafka.

Kafka's group assigns the partitions of the tables' topics.  Who has one certain partition of a
topic reads the table, by the cuts as every reader does; the group's own client fetches no row.  A
place stands beside that partition's offset, as its metadata, and the next owner goes on there.

A change counts as done when the next one is asked for.  Places are stored once a second, and
before a table goes to another member: a killed process has its last second done twice, and a
closed one nothing.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from gauss_cdc_reader.bookmark import Bookmark
from gauss_cdc_reader.changes import Change
from gauss_cdc_reader.tables import TableChanges
from schemas.tables import TableId
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import SettingRefused
from spark_consumers.kafka.cluster import down
from spark_consumers.kafka.history import History, ShapeHistory, Standing

Marked: TypeAlias = tuple[Bookmark, Change]

_SETTINGS: Final = {
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
    "allow.auto.create.topics": False,
    # The default gives the first partition of every topic to the same member.
    "partition.assignment.strategy": "roundrobin",
}
_STORE: Final = 1.0  # seconds between two stores of places
_LOOK: Final = 0.2  # seconds after which the group is asked
_FORBIDDEN: Final = frozenset(
    {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
)

_log = logging.getLogger("gauss_cdc_reader")


class GroupMember:
    """This process in its group: which tables it reads, and how far it came."""

    def __init__(
        self, client: Mapping[str, Any], group: str, topics: Mapping[TableId, tuple[str, int]]
    ) -> None:
        """`topics`: those of all tables of the group, with their numbers of partitions."""
        self.assigned = 0  # times
        self.tables: tuple[TableId, ...] = ()
        self._of_topic = {topic: table for table, (topic, _) in topics.items()}
        # One for each table, not the same one of all: members share them evenly.
        self._partitions = {
            table: (topic, crc32(topic.encode()) % count)
            for table, (topic, count) in topics.items()
        }
        self._done: dict[TableId, Bookmark] = {}
        self._unstored: set[TableId] = set()
        self._looked_at = self._stored_at = 0.0
        self._consumer = Consumer({**client, **_SETTINGS, "group.id": group})
        self._consumer.subscribe(
            list(self._of_topic),
            on_assign=self._assign,
            on_revoke=self._give_back,
            on_lost=self._forget,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Before it leaves: where the group already asks for its tables, librdkafka leaves it first
        # and has them given back behind that, and the broker takes no place of who is no member.
        self._store()
        self._consumer.close()

    def look(self, seconds: float = 0.0) -> None:
        """Hear what the group says, waiting so long for it; store what is due.

        Raises KafkaDown, StreamError without a right, SettingRefused for a table without a topic.
        """
        now = time.monotonic()
        if not seconds and now < self._looked_at + _LOOK:
            return
        self._looked_at = now
        message = self._consumer.poll(seconds)
        if now > self._stored_at + _STORE:
            self._store()
        if message is None or (error := message.error()) is None:
            return
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise SettingRefused(
                "a table of the group has no topic",
                hint="are its name and the prefix right, and does `run` capture it?",
                table=str(self._of_topic.get(message.topic() or "", message.topic())),
            )
        if error.fatal() or error.code() in _FORBIDDEN:
            raise down(KafkaException(error), "the group cannot be joined")

    def done(self, table: TableId, place: Bookmark) -> None:
        """Take it that all changes of a table up to a place are done."""
        self._done[table] = place
        self._unstored.add(table)

    def places(self) -> dict[TableId, Bookmark | None]:
        """Return how far the group came in this member's tables; None: it did not begin.

        Raises StreamError: KafkaDown after 30 s without an answer, or a right that is missing.
        """
        asked = [TopicPartition(*self._partitions[t]) for t in self.tables if t not in self._done]
        try:
            found = self._consumer.committed(asked, timeout=30) if asked else []
        except KafkaException as error:
            raise down(error, "the group's places cannot be read") from error
        for one in found:
            if one.offset >= 0 and one.metadata:
                self._done[self._of_topic[one.topic]] = Bookmark.parse(one.metadata)
        return {table: self._done.get(table) for table in self.tables}

    # ---------------------------------------------------------------- what the group says
    def _assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)  # rows are read by the cuts
        self.assigned += 1
        mine = {(one.topic, one.partition) for one in partitions}
        self.tables = tuple(t for t, place in self._partitions.items() if place in mine)

    def _give_back(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._store()
        self._forget(consumer, partitions)

    def _forget(self, _: Any, __: list[TopicPartition]) -> None:
        self.tables = ()
        self._done.clear()
        self._unstored.clear()

    def _store(self) -> None:
        self._stored_at = time.monotonic()
        if not self._unstored:
            return
        places = [
            # As offset stands how far the cuts were read: it only grows.
            TopicPartition(*self._partitions[table], place.cut, str(place))
            for table, place in self._done.items()
            if table in self._unstored
        ]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            name = error.args[0].name()
            _log.warning("places are not stored, what is done may be done again: %s", name)
        else:
            self._unstored.clear()


class SharedChanges:
    """Reads a member's tables: each to where the furthest of them is, then all together."""

    def __init__(
        self,
        history: History,
        member: GroupMember,
        begin: Callable[[TableId], Bookmark],
        is_closed: Callable[[], bool],
        shapes: ShapeHistory,
    ) -> None:
        """`begin` finds where a table begins that the group has not read yet."""
        self._history, self._member, self._begin = history, member, begin
        self._is_closed, self._shapes = is_closed, shapes
        self._assigned = 0  # when these tables were

    def __iter__(self) -> Iterator[Marked | None]:
        """Give each change with the place behind it; None wherever there is none by now."""
        member = self._member
        while not (member.assigned or self._is_closed()):
            member.look(_LOOK)
        while True:
            member.look(0.0 if member.tables else _LOOK)
            if not member.tables:
                yield None
                continue
            self._assigned = member.assigned
            places = {
                table: place or self._begin(table) for table, place in member.places().items()
            }
            ends = [place.end if place.taken else place.standing for place in places.values()]
            far = max(ends, key=_in_order)
            for table, place in places.items():  # now: it may be another member's behind a change
                member.done(table, place)
            for table, place in places.items():
                yield from self._read([table], place, far)
            if self._is_mine():
                known = [place for place in member.places().values() if place is not None]
                yield from self._read(member.tables, min(known, key=_in_order), None)

    def _is_mine(self) -> bool:
        member = self._member
        return bool(member.tables) and member.assigned == self._assigned

    def _read(
        self, tables: Sequence[TableId], start: Bookmark, upto: Standing | None
    ) -> Iterator[Marked | None]:
        """Read tables that stand at one place, until the group assigns anew."""
        if not self._is_mine():
            return
        if upto is not None and start.standing.has(upto):
            return
        member = self._member
        self._shapes.update(self._history.shapes(start.standing))
        for batch in TableChanges(self._history, tables, self._shapes).batches(start, upto):
            if batch is None:
                yield None
                member.look()
            else:
                taken = Counter(dict.fromkeys(tables, batch.start.taken))
                for change in batch.changes:
                    taken[change.table] += 1
                    place = batch.start.within(taken[change.table], batch.end)
                    yield place, change
                    member.done(change.table, place)
                    member.look()
                    if not self._is_mine():
                        return
                for table in tables:
                    member.done(table, Bookmark.of(batch.end))
            if not self._is_mine():
                return


def _in_order(place: Bookmark | Standing) -> tuple[Version, int]:
    standing = place.standing if isinstance(place, Bookmark) else place
    return standing.version, standing.cut
