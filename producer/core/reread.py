"""Tables that are read again while the stream goes on, one after the other.

    waiting   the next table; its *point* is made at the present end of the log
    nearing   the stream comes to the point, message by message
    standing  all commits before the point are being made durable, none behind it is taken
    read      BEGIN, CHUNKs, END; then the stream goes on

A point is a place between two commits with a snapshot of exactly the commits before it.  So the
rows stand in the stream where the source was as they show it, and what follows applies to them.
The price: all tables wait while one is read.  Each has a point of its own, at the end of the log,
so that the stream catches up between two of them.

A table that was never begun in this epoch is hidden: what the stream says of it before its
point is in the snapshot.  If the stream reports its creation, it is complete without a point.
One that was begun keeps what it has, and is marked as not exact at targets, until BEGIN
empties it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from producer.core.changes import Begin, Logical, Message
from producer.core.engine import WriterState
from producer.core.ports import Blocking, Clock, Point, Source
from producer.errors import CdcError
from schemas.control import LEFT, PENDING, LoadPhase
from schemas.tables import TableId, TableSchema

_RETRY_SECONDS: Final = 30.0  # until a table that could not be read is tried again

Read = Callable[[WriterState, Point, TableSchema], WriterState]


@dataclass(frozen=True, slots=True)
class Due:
    """What a start finds out about loads."""

    tables: list[TableId]  # to be read again
    left: list[TableId]  # that were captured before, and are not wanted any more
    noted: dict[str, str | None]  # phases to be noted; None: there is no load any more


def asked(
    captured: Iterable[TableId],
    loads: Mapping[str, str],
    known: Iterable[TableId],
    wants: Callable[[TableId], bool],
) -> Due:
    """Compare the tables that are captured now with the loads until now.

    To be read are those whose load did not end, and those that were not captured before, or not
    all the time.  An epoch that began without a load never loads by itself.
    """
    there, known = {str(table): table for table in captured}, set(known)
    open_ = [name for name, phase in loads.items() if phase != LoadPhase.END]
    added = [name for name, table in there.items() if name not in loads and table not in known]
    added = added if loads else []
    noted: dict[str, str | None] = {
        name: None for name in open_ if name not in there and loads[name] != LEFT
    }
    left = [table for table in known if not wants(table) and loads.get(str(table)) != LEFT]
    noted |= {str(table): LEFT for table in left} | dict.fromkeys(added, PENDING)
    tables = [there[name] for name in [*open_, *added] if name in there]
    return Due(tables, sorted(left), noted)


class Rereads:
    """What is to be read again in one turn."""

    def __init__(
        self,
        tables: Iterable[TableId],
        hidden: set[TableId],
        *,
        source: Source,
        captured: Callable[[TableId], bool],
        look_seconds: float,
        read: Read,
        publish: Callable[[TableSchema], object],
        blocking: Blocking,
        clock: Clock,
        note: Callable[[str], None],
    ) -> None:
        """`hidden` tables are not delivered; it is shared with who delivers.

        `publish` makes the topic, before a record of cuts names it.
        """
        self._waiting = deque(tables)
        self._unfinished = set(self._waiting)  # of these, those that no request is the reason of
        self._asked: dict[TableId, int] = {}  # requests, as of the last look
        self._number = 0  # of the newest request that the point comes after
        self._captured, self._look_seconds, self._look_due = captured, look_seconds, 0.0
        self._hidden, self._was_hidden = hidden, frozenset(hidden)
        self._source, self._read, self._publish = source, read, publish
        self._blocking, self._clock, self._note = blocking, clock, note
        self._point: Point | None = None
        self._shape: TableSchema | None = None
        self._due = 0.0
        self._is_standing = False

    @property
    def has_point(self) -> bool:
        """Say whether the stream nears a point, or stands there."""
        return self._point is not None

    @property
    def is_standing(self) -> bool:
        """Say whether the stream has come to the point."""
        return self._is_standing

    def make_point(self, known: Mapping[TableId, TableSchema]) -> TableId | None:
        """Make the next table's point, if it is time; return a table without a load instead.

        All that the stream has sent must have been taken: the point lies behind it.
        """
        if self._clock.now() >= self._look_due:
            self._look()
        if not self._waiting or self._clock.now() < self._due:
            return None
        table = self._waiting[0]
        self._number = self._asked.get(table, 0)
        try:
            self._point = self._blocking(self._source.point, table)
            if self._point is not None:
                self._shape = self._blocking(self._shape_of, table, known)
        except CdcError as error:
            self.let_go()
            self._waiting.rotate(-1)
            self._due = self._clock.now() + _RETRY_SECONDS
            self._note(f"{table} is read again later: {error}")
            return None
        if self._shape is not None:
            return None
        self._done(table)
        return table

    def needless(self) -> TableId | None:
        """Return a table whose creation the stream reported, before or behind its point's making.

        Nothing of it is missing, and it is not read, unless somebody asks.
        """
        if not self._waiting or (table := self._waiting[0]) in self._asked:
            return None
        if table not in self._was_hidden or table in self._hidden:
            return None
        self._number = 0
        self._done(table)
        return table

    def _look(self) -> None:
        """Take requests, and notice those that were taken back."""
        self._look_due = self._clock.now() + self._look_seconds
        asked = dict(self._blocking(self._source.requests))
        for table in [table for table in asked if not self._captured(table)]:
            self._note(f"{table} is not captured, and is not read again")
            self._blocking(self._source.answer, table, asked.pop(table))
        for table in self._asked.keys() - asked.keys() - self._unfinished:
            self._waiting.remove(table)
        self._waiting.extend(table for table in asked if table not in self._waiting)
        self._asked = asked

    def _done(self, table: TableId) -> None:
        self.let_go()
        self._hidden.discard(table)
        self._unfinished.discard(table)
        self._waiting.popleft()
        if self._number:
            self._blocking(self._source.answer, table, self._number)
            self._asked.pop(table, None)
            self._look_due = 0.0  # somebody may have asked again meanwhile

    def _shape_of(self, table: TableId, known: Mapping[TableId, TableSchema]) -> TableSchema | None:
        assert self._point is not None
        for shape in self._point.reading.shapes([table]):
            for other in known.values():
                if shape.oid and shape.oid == other.oid and shape.id != other.id:
                    raise CdcError("it is being renamed", was=other.id)
            self._publish(shape)
            return shape
        return None

    def stops(self, message: Message) -> bool:
        """Say whether the stream must stop before a message, and stand at the point."""
        if self._point is None:
            return False
        match message:
            case Begin(commit_lsn):
                is_behind = commit_lsn >= self._point.at
            case Logical(transactional=False, lsn=lsn):
                is_behind = lsn > self._point.at
            case _:
                return False
        self._is_standing = self._is_standing or is_behind
        return is_behind

    def reach(self, position: int) -> None:
        """All that was committed before `position` was taken, and nothing is open."""
        if self._point is not None and position >= self._point.at:
            self._is_standing = True

    def read(self, writer_state: WriterState) -> tuple[WriterState, TableSchema]:
        """Read the table; return the writer's state after it, and the shape in force."""
        assert self._point is not None
        assert self._shape is not None
        shape = self._shape
        writer_state = self._blocking(self._read, writer_state, self._point, shape)
        self._done(shape.id)
        return writer_state, shape

    def let_go(self) -> None:
        """Give the point up, if there is one: the stream goes on."""
        point, self._point, self._shape, self._is_standing = self._point, None, None, False
        if point is not None:
            point.close()
