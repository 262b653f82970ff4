"""The cuts as a history in which a reader begins anywhere, at the cost of a few records.

Commits are found by reading single records at an offset: each names the commit until which it
goes, and the offset of the START or STATE before it, where any reader may begin.  So what came
before costs nothing, however long it is.

Of a writer that was overtaken nothing counts, wherever its records stand: of several records the
newest is that of the greatest epoch and writer.  A place is searched by halves, since records that
are before it stand before all others; what follows it is read as every reader does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaException, TopicPartition

from schemas.accept import Foreign, judge, reloads
from schemas.control import (
    AGAIN,
    ANY,
    BESIDE,
    GAP,
    CommitEntry,
    Commits,
    Cut,
    Head,
    LoadPhase,
    Range,
    SchemaChange,
    Start,
    State,
    TableLoad,
    Topic,
    is_for_one,
)
from schemas.positions import CommitKey, of_reread
from schemas.tables import TableId, TableSchema, argument
from schemas.topics import Topics, rewritten
from spark_consumers.cuts.ledger import NOT_LOADED, SWITCHED
from spark_consumers.cuts.versions import Version, fitting, part
from spark_consumers.decode import RowDecoder
from spark_consumers.decode.control import decode_control, decode_cut
from spark_consumers.dialects.spark import keeps_values
from spark_consumers.errors import (
    KafkaDown,
    NothingYet,
    RangeExpired,
    SchemaUnknown,
    StreamError,
    TopicReplaced,
)
from spark_consumers.kafka.cluster import Cluster, down
from spark_consumers.kafka.content import DecoderOf
from spark_consumers.kafka.ranges import COMMON, END, SILENCE, count
from spark_consumers.kafka.read import CLIENTS, Clients, CutReader, RangeReader
from spark_consumers.kafka.registry import SchemaOf
from spark_consumers.model import CommitRows, Ledger, Segment, columns_of

C = TypeVar("C", bound=Cut)

LOAD_FOLLOWS: Final = "a load follows"  # why a copy is to be emptied: until LOADED it is a part
LOADED: Final = "loaded"

_FIRST: Final = CommitKey(0, 0, 0)
_REREADS: Final = frozenset({AGAIN, BESIDE})
_NEAR: Final = 32  # offsets within which looking for a commit ends
_NO_OFFSET: Final = 1 << 62  # behind all of them
_NO_ROWS: Final = CommitRows()
_AGAIN: Final = "begin with a new checkpoint, at `snapshot`, `latest` or a later commit"


class Standing(NamedTuple):
    """How far a reader came."""

    version: Version  # the last whole commit
    cut: int = 0  # offset in cuts of the first record that is not wholly behind it
    state: int = 0  # offset of a START or STATE at or before it
    instance: str = ""  # of its writer: another topic has another one there

    def has(self, other: Standing) -> bool:
        """Say whether another place is not ahead of this one."""
        return self.version >= other.version and self.cut >= other.cut


class TableNote(NamedTuple):
    """Something about a table that is not a row of it."""

    table: TableId
    version: Version
    kind: str  # "truncate": empty your copy; "gap": rows are missing; LOADED: a load is over
    why: str = ""
    ordinal: int = -1  # its place in the commit; -1: before all rows
    at: int | None = None  # µs since 1970-01-01 UTC, of the commit


class Found(NamedTuple):
    """What some commits have of some tables, and the place behind them."""

    place: Standing
    ranges: tuple[Range, ...] = ()
    notes: tuple[TableNote, ...] = ()
    topics: Mapping[str, TopicFound] = MappingProxyType({})  # of the ranges
    changes: tuple[SchemaChange, ...] = ()  # of any tables


class TopicFound(NamedTuple):
    """What the cuts say of a topic of rows."""

    table: TableId
    schema_ids: tuple[int, ...]  # in the order of the cuts; the last is the newest
    ids: tuple[str, ...] = ()  # of the topic itself, which may have been made again


class History:
    """Reads commits of a source from any of them on; KafkaDown without an answer."""

    def __init__(
        self,
        client: Mapping[str, Any],
        source: str,
        schema_of: SchemaOf,
        *,
        native: bool = True,
        decoder: DecoderOf = RowDecoder,
        clients: Clients = CLIENTS,
    ) -> None:
        """`native`: the native part is used where it was built; `decoder` reads rows."""
        self._client, self._source, self._schema_of = dict(client), source, schema_of
        self._clients = clients
        self.names = Topics(source)
        self._cluster: Cluster = clients.cluster(client)
        self._cuts = CutReader(client, source, schema_of, native=native, clients=clients)
        self.rows = RangeReader(
            client, source, schema_of, native=native, decoder=decoder, clients=clients
        )
        self._consumer: Any = None

    def wait(self, seconds: float) -> bool:
        """Wait until something new stands behind what was followed; say whether it does."""
        return self._cuts.wait(seconds)

    def close(self) -> None:
        """Close its consumers: of cuts, of rows, and the one that looks for a commit."""
        self._cuts.close()
        self.rows.close()
        if self._consumer is not None:
            self._consumer.close()

    def newest(self) -> Standing:
        """Return the place after the last durable commit; NothingYet where there is none."""
        low, end = self._ends()
        window = _NEAR
        while True:
            since = max(low, end - window)
            found = list(self._from(since, end))
            if found:
                # Of a writer that was overtaken nothing counts, wherever it stands.
                offset, head = max(
                    ((at, cut.head) for at, cut in found),
                    key=lambda one: (one[1].epoch, one[1].writer, one[0]),
                )
                return _behind(offset, head)
            if since == low:
                raise NothingYet(
                    "the cuts topic has no record of this source",
                    topic=self.names.cuts,
                    hint="is the prefix right, and has `run` been started?",
                )
            window *= 4

    def topics(self, tables: Sequence[TableId]) -> dict[TableId, tuple[str, int]]:
        """Return tables' topics and partitions, as the newest START or STATE has them."""
        at = self.newest().state
        _, state = next(self._from(at, at + 1))
        known = state.topics if isinstance(state, State) else {}
        names = {table: self.names.of(table, known) for table in tables}
        return {t: (n, known[n].partitions if n in known else 1) for t, n in names.items()}

    def behind(self, version: Version) -> Standing:
        """Return the place after a commit, and after what was loaded there.

        Raises RangeExpired where its cuts were deleted, StreamError where it is yet to come.
        """
        newest = self.newest().version
        if version > newest and version != Version(newest.epoch + 1, 0).before():
            raise StreamError(
                "the place to begin behind is yet to come",
                hint="is it of these topics, and of this epoch? `latest` begins with the next"
                " commit",
                newest=str(newest),
                after=str(version),
            )
        low, end = self._ends()
        found = self._last(version, low, end)
        if found is None:
            at, first = next(self._from(low, end), (low, None))
            if first is not None and _begins(first, version):
                return Standing(version, at, at, first.head.instance)
            raise RangeExpired(
                "the cuts of these commits were deleted",
                hint=_AGAIN,
                first=str(self._oldest(low, end)),
                needed=str(version),
            )
        offset, cut = found
        return _behind(offset, cut.head)._replace(version=version)

    def since(self, time: int) -> Version | None:
        """Return the first commit at or after a time of the source's clock; None: none is so late.

        `time`: µs since 1970-01-01 UTC.  Raises RangeExpired where commits were deleted that may
        be as late.
        """
        low, end = self._ends()
        first, found = _narrowed(
            self._commits, low, end, lambda cut: cut.commits[-1].committed_at < time
        )
        is_behind = low == 0 or found is not None
        for _, cut in self._commits(first, end):
            for entry in cut.commits:
                version = Version(cut.head.epoch, entry.seq)
                if entry.committed_at < time:
                    is_behind = True
                elif is_behind:
                    return version
                else:
                    raise RangeExpired(
                        "the cuts of commits that may be as late were deleted",
                        hint=f"begin at startingVersion {version}, the oldest that is there",
                        first=str(version),
                    )
        return None

    def _commits(self, offset: int, end: int) -> Iterator[tuple[int, Commits]]:
        return ((at, cut) for at, cut in self._from(offset, end) if isinstance(cut, Commits))

    def loads(self) -> Standing:
        """Return the place where the newest loads of the tables begin.

        Raises RangeExpired where their epoch's START is not in the cuts any more.
        """
        low, end = self._ends()
        epoch = self.newest().version.epoch
        while True:
            before = self._last(Version(epoch, 0).before(), low, end)
            at, start = next(self._from(low if before is None else before[0] + 1, end))
            if not isinstance(start, Start) or not _begins(start, Version(epoch, 0).before()):
                raise RangeExpired(
                    "the loads of the tables are not in the cuts any more",
                    hint="begin at a later commit, or at `latest`",
                    first=low,
                )
            if start.prev is None or not start.continues:
                return Standing(Version(start.head.epoch, 0), at, at, start.head.instance)
            epoch = start.prev.epoch

    def snapshot(self, tables: Sequence[TableId]) -> Standing:
        """Return a place behind which a load of each table begins whose rows are still in Kafka.

        That is where the newest epoch's own loads begin; where retention has removed rows of one
        of them, the first of the tables' newest re-reads.
        """
        try:
            place = self.loads()
            if all(self._has_load(table, place) for table in tables):
                return place
        except RangeExpired:
            pass
        return min((self._again(table) for table in tables), key=lambda place: place.cut)

    def _again(self, table: TableId) -> Standing:
        begin = self._newest_reread(table)
        if begin is None or not self._has_load(table, begin):
            raise RangeExpired(
                "the rows of the table's load are not in Kafka any more",
                hint=f"gauss-cdc snapshot --table {argument(table)} reads it again: then"
                " `snapshot` begins there; or begin at `latest`",
                topic=self.names.table(table),
            )
        return begin

    def _has_load(self, table: TableId, place: Standing) -> bool:
        """Say whether the first rows behind a place, those of a load, can be read."""
        topics, (_, end) = self.names.names(table), self._ends()
        starts: dict[tuple[str, int], int] = {}
        for _, cut in self._from(place.cut, end):
            if is_for_one(cut):
                continue
            for r in cut.ranges if isinstance(cut, Commits | TableLoad) else ():
                if r.topic in topics:
                    starts.setdefault((r.topic, r.partition), r.start)
            if starts and not (isinstance(cut, TableLoad) and cut.table == table):
                break
        first = self._cluster.first(starts) if starts else {}
        return all(first[at] <= start for at, start in starts.items())

    def _newest_reread(self, table: TableId) -> Standing | None:
        """Find where the newest load of a table beside the stream begins, from the end on."""
        low, last = self._ends()
        window = _NEAR
        while last > low:
            since, found = max(low, last - window), None
            for offset, cut in self._from(since, last):
                if (
                    isinstance(cut, TableLoad)
                    and cut.table == table
                    and cut.phase is LoadPhase.BEGIN
                    and cut.mode in _REREADS
                    and not is_for_one(cut)
                ):
                    found = Standing(_reach(cut), offset, cut.head.state_from, cut.head.instance)
            if found is not None:
                return found
            last, window = since, window * 4
        return None

    def walk(self, tables: Sequence[TableId], place: Standing, *, loads: bool = True) -> CommitWalk:
        """Return a walk over what comes of tables behind a place; one at a time.

        `loads`: with what was loaded, which is no commit of the source.
        """
        records = self.following(place)
        return CommitWalk(records, self.names, tables, place, self._changes, loads=loads)

    def readable(self, found: Found) -> bool:
        """Check that these rows may be read; say whether read committed, see `RangeReader`.

        Raises RangeExpired, TopicReplaced.
        """
        if not found.ranges:
            return True
        places = {(r.topic, r.partition): r.start for r in sorted(found.ranges, reverse=True)}
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
        ids: dict[str, str] = {}
        for topic, one in found.topics.items():
            if len(one.ids) > 1:  # offsets of its earlier life name other rows now
                raise TopicReplaced(
                    "a table's topic was made again within these commits", hint=_AGAIN, topic=topic
                )
            if one.ids:  # else it is newer than a STATE
                ids[topic] = one.ids[0]
        self.rows.check_identity(self.segment(found.ranges, ids))
        return self.rows.wait_visible(found.ranges)

    def _changes(self, cut: Commits, seq: int) -> Sequence[SchemaChange]:
        """Read the schema changes of a record's commit."""
        ranges = part(cut, {self.names.ddl}, seq - 1, seq).ranges
        segment = self.segment(ranges, {})
        is_committed = self.rows.prepare(segment)
        return self.rows.read_ddl(segment, is_committed=is_committed)

    def segment(
        self,
        ranges: Sequence[Range],
        topic_ids: Mapping[str, str],
        cut: Commits | TableLoad | None = None,
        commit_rows: CommitRows = _NO_ROWS,
    ) -> Segment:
        """What is read at once: ranges, and what `cut` and its commits' rows say of them."""
        state = self._cuts.replay.state
        assert state is not None
        ledger = Ledger(self._source, cluster_id=state.cluster_id, topics=topic_ids)
        loads = (cut,) if isinstance(cut, TableLoad) else ()
        return Segment(
            cut or Commits(state.head, (), ()),
            ledger,
            ledger,
            rows=sum(load.rows for load in loads),
            ranges=tuple(ranges),
            commit_rows=commit_rows,
            loads=loads,
        )

    def following(self, place: Standing) -> Iterator[tuple[int, Cut] | None]:
        """Accepted records behind a place; None wherever there is none by now.

        They begin with the place's own START or STATE: a reading that began at a later one
        would leave out what was deleted before it.

        Raises RangeExpired where that is deleted, TopicReplaced where another topic stands there.
        """
        low, _ = self._ends()
        if place.state < low:
            raise _expired(place, low)
        ledger = Ledger(self._source, next_offset=place.state)
        is_begun = False
        while True:
            for offset, cut in self._read_on(place, ledger):
                if not is_begun and offset != place.state:
                    raise _expired(place, offset)
                if not is_begun and cut.head.instance != place.instance:
                    raise TopicReplaced(
                        "the cuts topic is another one than these commits stood in",
                        hint=_AGAIN,
                        topic=self.names.cuts,
                        offset=offset,
                    )
                is_begun = True
                yield offset, cut
            yield None
            replay = self._cuts.replay
            ledger = Ledger(self._source, replay.epoch, replay.n, replay.seq)

    def _read_on(self, place: Standing, ledger: Ledger) -> Iterator[tuple[int, Cut]]:
        try:
            yield from self._cuts(ledger)
        except RangeExpired as error:  # while it was read
            raise _expired(place, error.where["first"]) from error

    def _last(self, version: Version, low: int, end: int) -> tuple[int, Cut] | None:
        """Return the last record that goes no further than a commit."""
        first, found = _narrowed(self._from, low, end, lambda cut: _reach(cut) <= version)
        for probe in self._from(first, end):
            if _reach(probe[1]) > version:
                break
            found = probe
        return found

    def _ends(self) -> tuple[int, int]:
        place = (self.names.cuts, 0)
        return self._cluster.first([place])[place], self._cluster.stable([place])[place]

    def _oldest(self, low: int, end: int) -> Version | None:
        probe = next((c for _, c in self._from(low, end) if isinstance(c, State)), None)
        return None if probe is None else _reach(probe)

    def shapes(self, place: Standing) -> ShapeHistory:
        """Return the shapes of tables up to a place, as `<prefix>.ddl` has them."""
        found = ShapeHistory()
        topic = (self.names.ddl, 0)
        first, end = self._cluster.first([topic])[topic], self._cluster.stable([topic])[topic]
        for message in self._messages(self.names.ddl, first, end):
            try:
                change = decode_control(message.value(), self._schema_of)
            except (ValueError, SchemaUnknown):
                continue  # not ours
            if isinstance(change, SchemaChange) and (change.epoch, change.seq) <= place.version:
                found.note(change)
        return found

    def _from(self, offset: int, end: int) -> Iterator[tuple[int, Cut]]:
        """Records of ours at or behind an offset, as they stand, below an end."""
        for message in self._messages(self.names.cuts, offset, end):
            record = judge(message.key(), message.value(), source=self._source, read=self._read)
            if not isinstance(record, Foreign):
                yield message.offset(), record

    def _messages(self, topic: str, offset: int, end: int) -> Iterator[Any]:
        """Committed messages of a control topic at or behind an offset, below an end."""
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
        with _polling(consumer, TopicPartition(topic, 0, offset)):
            until = self._clients.now() + SILENCE
            while True:
                message = consumer.poll(1.0)
                if message is None:
                    if self._clients.now() > until:
                        raise KafkaDown("the broker is silent", topic=topic)
                    continue
                until = self._clients.now() + SILENCE
                if (error := message.error()) is not None:
                    if error.code() == END:
                        return
                    raise down(KafkaException(error), f"{topic} cannot be read")
                if message.offset() >= end:
                    return
                yield message

    def _read(self, value: bytes) -> Cut:
        try:
            return decode_cut(value, self._schema_of)
        except SchemaUnknown as error:
            raise ValueError("of no schema") from error


class CommitWalk:
    """What commits have of some tables, some at a time, in order."""

    def __init__(
        self,
        records: Iterator[tuple[int, Cut] | None],
        names: Topics,
        tables: Sequence[TableId],
        place: Standing,
        changes: Callable[[Commits, int], Sequence[SchemaChange]],
        *,
        loads: bool,
    ) -> None:
        """`changes` reads the schema changes of a record's commit, by its seq."""
        self._records, self._names, self._tables = records, names, tables
        self._of_topic = {names.table(table): table for table in tables}
        self._changes, self._loads = changes, loads
        self._left: tuple[int, Cut] | None = None  # a record that was not taken, or in part
        self._topics: Mapping[str, Topic] = {}  # as the newest START or STATE has them
        self.place = place

    def take(self, rows: int | None = None, upto: Standing | None = None) -> Found:
        """Return whole commits behind the place, until now, a place, or about so many rows.

        At least one commit is taken, however large it is.
        """
        ranges: list[Range] = []
        topics: dict[str, TopicFound] = {}
        notes: list[TableNote] = []
        changes: list[SchemaChange] = []
        taken = 0
        while (upto is None or not self.place.has(upto)) and (rows is None or taken < rows):
            record = self._left or self._next()
            if record is None:
                break
            if upto is not None and self._is_beyond(record[1], upto.version):
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
            taken += count(found.ranges)
            ranges += found.ranges
            notes += found.notes
            changes += found.changes
            for topic, one in found.topics.items():
                before = topics.get(topic, one)
                # What came back is the newest again.
                again = [i for i in before.schema_ids if i not in one.schema_ids]
                ids = tuple(dict.fromkeys([*before.ids, *one.ids]))
                topics[topic] = TopicFound(one.table, (*again, *one.schema_ids), ids)
        return Found(self.place, tuple(ranges), tuple(notes), topics, tuple(changes))

    def take_all(self, last: Version | None) -> Found:
        """Return all commits behind the place up to one, with what was loaded there.

        Raises StreamError where that has not come, or where it is before the place.
        """
        if last is None:
            return self.take()
        if (first := self.place.version) > last:
            raise StreamError(
                "the last commit that is asked for is before the first", after=first, last=last
            )
        found = self.take(upto=Standing(last, _NO_OFFSET))
        if found.place.version < last:
            raise StreamError(
                "the cuts do not go as far as the last commit that is asked for",
                newest=found.place.version,
                last=last,
            )
        return found

    def _next(self) -> tuple[int, Cut] | None:
        while (record := next(self._records)) is not None:
            offset, cut = record
            if isinstance(cut, State):
                self._topics = cut.topics
                self._of_topic = {self._names.of(one, cut.topics): one for one in self._tables}
                if offset >= self.place.state:
                    self.place = self.place._replace(state=offset, instance=cut.head.instance)
            if offset >= self.place.cut:
                return record
        return None

    def _is_beyond(self, cut: Cut, last: Version) -> bool:
        """Say whether nothing of a record belongs to the commits up to one."""
        if isinstance(cut, Commits):
            first = Version(cut.head.epoch, columns_of(cut.commits).first)
            known = self.place.version
            return max(first, known._replace(seq=known.seq + 1)) > last
        return _reach(cut) > last

    def _of(
        self, offset: int, cut: Cut, room: int | None, upto: Standing | None, *, is_first: bool
    ) -> Found | None:
        place, reached = self.place, _reach(cut)
        behind = place._replace(version=max(place.version, reached), cut=offset + 1)
        match cut:
            case Commits():
                known = place.version.seq if place.version.epoch == reached.epoch else 0
                if reached.seq <= known:
                    return Found(behind)
                last = reached.seq
                if upto is not None and upto.version.epoch == reached.epoch:
                    last = min(last, upto.version.seq)
                if room is not None:
                    last = min(last, fitting(cut, self._of_topic, known, room))
                mine = part(cut, self._of_topic, known, last)
                if room is not None and not is_first and count(mine.ranges) > room:
                    return None
                special = [(e, self._changes(cut, e.seq) if e.ddl else ()) for e in mine.special]
                notes = tuple(n for one in special for n in self._noted(cut, *one))
                changes = tuple(change for _, several in special for change in several)
                if last < reached.seq:
                    behind = place._replace(version=Version(reached.epoch, last), cut=offset)
                return Found(behind, mine.ranges, notes, self._named(cut, mine.ranges), changes)
            case TableLoad(target=None) if self._loads:
                ranges = tuple(r for r in cut.ranges if r.topic in self._of_topic)
                is_ours = cut.table in self._tables
                notes = (*notes_of_load(cut), *_end_of_load(cut)) if is_ours else ()
                return Found(behind, ranges, notes, self._named(cut, ranges))
            case Start():
                lacking = missed(cut, self._tables, loads=self._loads)
                return Found(behind, notes=tuple(lacking))
            case _:
                return Found(behind)

    def _named(self, cut: Commits | TableLoad, ranges: Sequence[Range]) -> Mapping[str, TopicFound]:
        """Return what a record says of the topics of these ranges."""
        found = {}
        for topic in {r.topic: None for r in ranges}:
            known = self._topics.get(topic)
            ids = () if known is None else (known.id,)
            found[topic] = TopicFound(self._of_topic[topic], cut.schema_ids.get(topic, ()), ids)
        return found

    def _noted(
        self, cut: Commits, entry: CommitEntry, changes: Sequence[SchemaChange]
    ) -> Iterator[TableNote]:
        """What a commit says of the tables besides their rows."""
        version, at = Version(cut.head.epoch, entry.seq), entry.committed_at
        for table in self._tables:
            for hole in entry.holes:
                if hole.table == ANY or rewritten(hole.table, self._topics) == str(table):
                    yield TableNote(table, version, "gap", f"{hole.kind}: {hole.why}", at=at)
            for change in changes:
                if (said := note_of_change(change, table)) is not None:
                    yield TableNote(table, version, *said, change.ordinal, at)


class ShapeHistory:
    """The shapes of tables, each from its place in the order of changes on."""

    def __init__(self) -> None:
        self._of: dict[TableId, list[tuple[CommitKey, TableSchema | None]]] = {}  # in order

    def note(self, change: SchemaChange) -> None:
        """Note a table's shape before and behind a schema change; it may come again."""
        place = CommitKey(change.epoch, change.seq, change.ordinal)
        before, after = change.before, change.after
        if before is not None:
            if before.id not in self._of:
                self._put(before.id, _FIRST, before)
            if after is None or after.id != before.id:
                self._put(before.id, place, None)
        if after is not None:
            self._put(after.id, place, after)

    def _put(self, table: TableId, place: CommitKey, shape: TableSchema | None) -> None:
        known = self._of.setdefault(table, [])
        at = bisect_right(known, place, key=itemgetter(0))
        if at and known[at - 1][0] == place:
            known[at - 1] = place, shape
        elif not at or known[at - 1][1] != shape:  # each load tells it again
            known.insert(at, (place, shape))

    def update(self, others: ShapeHistory) -> None:
        """Note all that others know."""
        for table, known in others._of.items():
            for place, shape in known:
                self._put(table, place, shape)

    def at(self, table: TableId, place: CommitKey) -> TableSchema | None:
        """Return the shape of a table's rows at a place; None: it is not known, or gone.

        >>> (shapes := ShapeHistory()).at(TableId("s", "t"), CommitKey(1, 1, 0))
        """
        known = self._of.get(table)
        if not known:
            return None
        at = bisect_right(known, place, key=itemgetter(0))
        return known[max(at - 1, 0)][1]

    def last(self) -> set[TableId]:
        """Return the tables that are there behind all that was noted."""
        return {table for table, known in self._of.items() if known[-1][1] is not None}


def missed(cut: Start, tables: Sequence[TableId], *, loads: bool = True) -> Iterator[TableNote]:
    """What a new epoch leaves out of tables; `loads`: what it loads is read."""
    for table in tables:
        load = cut.loads.get(str(table))
        if cut.continues and load == GAP:
            yield TableNote(table, _reach(cut), "gap", SWITCHED)
        elif reloads(cut) and (load is None or not loads):
            yield TableNote(table, _reach(cut), "gap", NOT_LOADED)


@contextmanager
def _polling(consumer: Any, place: TopicPartition) -> Iterator[None]:
    try:
        consumer.assign([place])
        yield
    except KafkaException as error:
        raise down(error, "cuts cannot be read") from error
    finally:
        consumer.assign([])


def _narrowed(
    read: Callable[[int, int], Iterator[tuple[int, C]]],
    low: int,
    end: int,
    is_before: Callable[[C], bool],
) -> tuple[int, tuple[int, C] | None]:
    """Return an offset near the first record that is not before, and the last one below that was.

    `read(low, high)` gives records of [low, high); those that are before stand before all others.
    """
    found: tuple[int, C] | None = None
    first, last = low, end
    while last - first > _NEAR:
        middle = (first + last) // 2
        probe = next(read(middle, last), None)
        if probe is not None and is_before(probe[1]):
            found, first = probe, probe[0] + 1
        else:
            last = middle
    return first, found


def _reach(cut: Cut) -> Version:
    return Version(cut.head.epoch, cut.head.last_seq)


def _behind(offset: int, head: Head) -> Standing:
    """Return the place after a record."""
    state = offset if head.state_from < 0 else head.state_from
    return Standing(Version(head.epoch, head.last_seq), offset + 1, state, head.instance)


def _begins(cut: Cut, version: Version) -> bool:
    """Say whether a record begins an epoch that is the next one behind a commit."""
    is_new = isinstance(cut, Start) and (cut.prev is not None or cut.head.n == 1)
    return is_new and Version(cut.head.epoch, 0).before() <= version


def _expired(place: Standing, first: object) -> RangeExpired:
    return RangeExpired(
        "the cuts behind these commits were deleted",
        hint=_AGAIN,
        commit=str(place.version),
        needed=place.state,
        first=first,
    )


def note_of_change(change: SchemaChange, table: TableId) -> tuple[str, str] | None:
    """What a schema change says of a table's rows, which it moves or drops without sending them.

    A kind (truncate, gap) and why; None: it leaves them as they are.
    """
    before, after = (one and one.id for one in (change.before, change.after))
    if before == table != after:
        return "truncate", change.tag if after is None else f"{change.tag}: now {after}"
    if after == table and before not in (None, table):
        return "gap", f"{change.tag}: its rows stand under {before}"
    if change.moved is not None and table in (change.moved.table, after):
        return "gap", f"{change.tag}: partitions moved without their rows"
    if after == table and (names := _computed(change)):
        return "gap", f"{change.tag}: values of {', '.join(names)} in rows that were not sent"
    return None


def _computed(change: SchemaChange) -> list[str]:
    """Return columns that have other values now, or another name, in rows that nobody wrote."""
    if change.before is None or change.after is None:
        return []
    old = {column.name: column for column in change.before.columns}
    names = {*change.renamed.values(), *change.values}
    for column in change.after.columns:
        was = old.get(column.name)
        if was is None:
            is_other = not column.is_null_before
        else:
            types = ((one.type_oid, one.type_mod, one.user_type) for one in (was, column))
            is_other = len({*types}) > 1 and not keeps_values(was, column)
        if is_other:
            names.add(column.name)
    return sorted(names)


def notes_of_load(cut: TableLoad) -> tuple[TableNote, ...]:
    """What a step of a table's load says, besides its rows."""
    version = _reach(cut)
    if cut.phase is LoadPhase.BEGIN and _is_told(cut):
        # A re-read: behind the commit before it.
        at = of_reread(cut.head.n - 1) if cut.mode in _REREADS else -1
        return (TableNote(cut.table, version, "truncate", LOAD_FOLLOWS, at),)
    if cut.phase is LoadPhase.END and cut.lossy is not None:
        behind = of_reread(cut.head.n)  # all of its rows
        return (TableNote(cut.table, version, "gap", f"seen: {cut.lossy}", behind),)
    return ()


def _end_of_load(cut: TableLoad) -> tuple[TableNote, ...]:
    """Say that all rows of a load came, where its beginning was told."""
    if cut.phase is not LoadPhase.END or not _is_told(cut):
        return ()
    return (TableNote(cut.table, _reach(cut), LOADED, ordinal=of_reread(cut.head.n)),)


def _is_told(cut: TableLoad) -> bool:
    """Say whether a load's table may have had rows before: not in the first load of all."""
    return cut.mode in _REREADS or _reach(cut) > (1, 0)
