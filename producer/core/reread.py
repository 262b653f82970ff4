"""Tables that are read again while the stream goes on, one after the other.

    waiting   the next table; its *point* is made at the present end of the log
    nearing   the stream comes to the point, message by message
    standing  all commits before the point are being made durable, none behind it is taken
    read      BEGIN, CHUNKs, END; then the stream goes on

A point is a place between two commits with a snapshot of exactly the commits before it; where no
slot exports one, a window that turns out to be quiet for its table (`core/window.py`).  So the
rows stand in the stream where the source was as they show it, and what follows applies to them.
The price: all tables wait while one is read.  Each has a point of its own, at the end of the log,
so that the stream catches up between two of them.

Which tables wait is what `loads` say: loads that are open, tables with gaps, and what somebody
asks for.  A table that was never begun in this epoch is hidden: what the stream says of it before
its point is in the snapshot.  If the stream reports its creation, it is complete without a point.
If it was dropped, it stays hidden up to a point that shows it gone: targets would have what the
stream says of it, and nothing of the snapshot.  One that was begun keeps what it has, and is marked
as not exact at targets, until BEGIN empties it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from producer.core.changes import Begin, Logical, Message, Relation
from producer.core.engine import WriterState
from producer.core.look import Before
from producer.core.ports import Blocking, Clock, Point, Source
from producer.core.window import UNSEEN, QuietWindow
from producer.errors import CdcError, SourceBusy
from schemas.control import GAP, LEFT, PENDING, LoadPhase
from schemas.positions import Lsn
from schemas.tables import TableId, TableSchema

_RETRY_SECONDS: Final = 30.0  # until a table that could not be read is tried again
OPEN: Final = frozenset({PENDING, LoadPhase.BEGIN, LoadPhase.CHUNK})
# A table that gets gaps again and again: it rests after it was read, each time twice as long.
_LONGEST_REST: Final = 600.0
_SHARE: Final = 20  # at least so many times what reading it took: all others waited
_CALM: Final = 4  # without a gap for so many times its last rest, it begins anew

# The stream may be hours behind a window: each one that was given up makes the next wait longer.
_LONGEST_PATIENCE: Final = 14_400.0  # a window holds a snapshot at the source
_TOLD_SHARE: Final = 10  # it is said after a tenth of the time that is waited

EVERYTHING: Final = TableId("", "")  # asked for: no table is to be read until it is taken back

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
    *,
    renamed: Collection[TableId] = (),
    repairs: bool = False,
) -> Due:
    """Compare the tables that are captured now with the loads until now.

    To be read are those whose load did not end, and those that were not captured before, or not
    all the time; with `repairs`, those with a gap; and those that are gone, and were not begun,
    which the stream has to pass.  An epoch that began without a load never loads
    by itself.  `renamed` are known tables with another name by now: the stream says so later, and
    their load goes with them.
    """
    there, known = {str(table): table for table in captured}, set(known)
    open_ = [name for name, phase in loads.items() if phase not in {LoadPhase.END, GAP}]
    names = {str(table) for table in known}
    unbegun = [name for name in open_ if loads[name] == PENDING and name not in names]
    # It is gone, but rows that were before may come: it is noted until the stream has passed them.
    there = {n: t for n in unbegun if wants(t := TableId(*n.split(".", 1)))} | there
    gaps = [name for name, phase in loads.items() if phase == GAP and repairs]
    added = [name for name, table in there.items() if name not in loads and table not in known]
    added = added if loads else []
    kept = {str(table) for table in renamed}
    noted: dict[str, str | None] = {
        name: None
        for name in open_
        if name not in there and name not in kept and loads[name] != LEFT
    }
    left = [table for table in known if not wants(table) and loads.get(str(table)) != LEFT]
    back = [name for name in open_ if name in there and loads[name] == LEFT]
    noted |= {str(table): LEFT for table in left} | dict.fromkeys([*back, *added], PENDING)
    tables = [there[name] for name in [*open_, *gaps, *added] if name in there]
    return Due(tables, sorted(left), noted)


@dataclass(slots=True)
class _Rest:
    """When a table was read to mend a gap, and how long it is left alone after that."""

    at: float
    seconds: float


class Rereads:
    """What is to be read again in one turn."""

    def __init__(
        self,
        tables: Iterable[TableId],
        hidden: set[TableId],
        *,
        source: Source,
        captured: Callable[[TableId], bool],
        repairs: bool,
        look_seconds: float,
        rest_seconds: float,
        mark_seconds: float,
        read: Read,
        publish: Callable[[TableSchema], object],
        look_up: Callable[[int], Relation],
        blocking: Blocking,
        clock: Clock,
        note: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """`tables` have names that `loads` may hold; `hidden` ones are not delivered.

        `hidden` is shared with who delivers.  `publish` makes the topic, before a record of cuts
        names it.  `look_up` finds a relation that the stream has described.  `repairs`: tables
        with gaps are read again by themselves.  `mark_seconds`: how long a window waits for its
        marks, at first.
        """
        self._names = {str(table): table for table in tables}
        self._waiting: list[TableId] = []
        self._open: dict[TableId, str] = {}  # phases; of these, some are nobody's request
        self._asked: dict[TableId, int] = {}  # requests, as of the last look
        self._number: int | None = None  # of the newest request that the point comes after
        self._captured, self._look_seconds, self._look_due = captured, look_seconds, 0.0
        self._repairs, self._rest_seconds = repairs, rest_seconds
        self._hidden, self._was_hidden = hidden, set(hidden)
        self._source, self._read, self._publish = source, read, publish
        self._look_up = look_up
        self._blocking, self._clock, self._note, self._warn = blocking, clock, note, warn
        self._table: TableId | None = None  # of the point
        self._point: Point | None = None
        self._shape: TableSchema | None = None
        self._due = 0.0  # for any table
        self._is_paused = False
        self._not_before: dict[TableId, float] = {}
        self._rests: dict[TableId, _Rest] = {}
        self._is_standing = False
        self._mark_seconds = self._patience = mark_seconds
        self._since: float  # of the point
        self._is_told: bool

    @property
    def waits_for(self) -> str:
        """What the stream is to come to, and for how long it has not; "": nothing is read."""
        point = self._point
        if point is None or self._is_standing:
            return ""
        mark = point.awaited if isinstance(point, QuietWindow) else ""
        place = mark or f"the position {Lsn(point.at)}"
        return f"{self._table}: {place}, for {self._clock.now() - self._since:.0f} s"

    @property
    def has_point(self) -> bool:
        """Say whether the stream nears a point, or stands there."""
        return self._point is not None

    @property
    def looked(self) -> Before | None:
        """The table in the catalog at the point; None: no point, or it is not compared."""
        return None if self._point is None else self._point.looked

    @property
    def is_standing(self) -> bool:
        """Say whether the stream has come to the point."""
        return self._is_standing

    # ------------------------------------------------------------ what waits
    def hide(self, table: TableId) -> None:
        """Deliver nothing of a table before its point: it is noted as PENDING."""
        self._names[str(table)] = table
        self._hidden.add(table)
        self._was_hidden.add(table)

    def show(self, table: TableId) -> None:
        """Take back `hide`."""
        self._hidden.discard(table)
        self._was_hidden.discard(table)

    def follow(self, loads: Mapping[str, str], known: Iterable[TableId]) -> None:
        """Take the loads as they are noted by now."""
        self._names |= {str(table): table for table in known}
        wanted = {GAP, *OPEN} if self._repairs else OPEN
        now = {self._named(name): phase for name, phase in loads.items() if phase in wanted}
        for table, phase in now.items():
            if phase == GAP and table not in self._open:
                self._begin_gap(table)
        self._open = now
        self._line_up()

    def _named(self, name: str) -> TableId:
        return self._names.get(name) or TableId(*name.split(".", 1))

    def _begin_gap(self, table: TableId) -> None:
        """A table that was just read to mend a gap, and has one again, must wait."""
        rest, now = self._rests.get(table), self._clock.now()
        if rest is None:
            return
        if now >= rest.at + _CALM * rest.seconds:
            del self._rests[table]
        elif (left := rest.at + rest.seconds - now) > 0:
            self._not_before[table] = now + left
            self._note(
                f"{table} has a gap again, {now - rest.at:.0f} s after it was read: it is read"
                f" again in {left:.0f} s, and less often while this goes on"
            )

    def _line_up(self) -> None:
        wanted = {**self._open, **self._asked}
        waited = [table for table in self._waiting if table in wanted]
        self._waiting = list(dict.fromkeys([*waited, *wanted]))

    def needless(self) -> TableId | None:
        """Return a table whose creation the stream reported, before or behind its point's making.

        Nothing of it is missing, and it is not read, unless somebody asks.
        """
        for table in self._was_hidden:
            if table in self._hidden or table in self._asked:
                continue
            if self._table == table or self._table is None:
                self._done(table)
                return table
        return None

    # ------------------------------------------------------------ the point
    def make_point(self, known: Mapping[TableId, TableSchema]) -> TableId | None:
        """Make the next table's point, if it is time; return a table without a load instead.

        Called between any two reads: all that the stream has sent was taken, and the point lies
        behind it.
        """
        now = self._clock.now()
        if now >= self._look_due:
            self._look()
        if self._is_paused or now < self._due:
            return None
        table = next((t for t in self._waiting if self._not_before.get(t, 0.0) <= now), None)
        if table is None:
            return None
        self._table, self._number = table, self._asked.get(table)
        self._since, self._is_told = now, False
        try:
            is_hidden = table in self._hidden
            self._point = self._blocking(self._source.point, table, if_gone=is_hidden)
            if self._point is not None:
                self._shape = self._blocking(self._shape_of, table, known)
        except CdcError as error:
            self.let_go()
            self._not_before[table] = self._clock.now() + _RETRY_SECONDS
            if isinstance(error, SourceBusy):  # for any table, and each try stops the stream
                self._due = self._not_before[table]
            self._note(f"{table} is read again later: {error}")
            return None
        if self._shape is not None or table in self._hidden:
            return None
        phase = self._open.get(table)
        if table not in known and phase != GAP:
            self._done(table, self._number)
            return table
        self.let_go()  # it is not captured now: renamed, or to be captured again
        self._not_before[table] = now + 10 * self._look_seconds
        return None

    def _look(self) -> None:
        """Take requests, and notice those that were taken back."""
        self._look_due = self._clock.now() + self._look_seconds
        asked = dict(self._blocking(self._source.requests))
        is_paused = asked.pop(EVERYTHING, None) is not None
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            what = "are paused: tables wait" if is_paused else "go on"
            self._note(f"re-reads {what}, as `gauss-cdc snapshot` was told")
        for table in [table for table in asked if not self._captured(table)]:
            self._note(f"{table} is not captured, and is not read again")
            self._blocking(self._source.answer, table, asked.pop(table))
        for table in asked.keys() - self._asked.keys():
            self._not_before.pop(table, None)
        self._asked = asked
        self._line_up()

    def _done(self, table: TableId, answered: int | None = None) -> None:
        """Let go of a table; `answered` is the request for which it was read."""
        self.let_go()
        self.show(table)
        self._open.pop(table, None)
        self._not_before.pop(table, None)
        if answered is not None:
            self._blocking(self._source.answer, table, answered)
            self._look_due = 0.0  # it is not asked for any more, or again
        self._line_up()

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
        point = self._point
        if point is None:
            return False
        window = point if isinstance(point, QuietWindow) else None
        match message:
            case Begin(commit_lsn):
                if window is not None:
                    window.pass_by(message)
                is_behind = commit_lsn >= point.at
            case Logical(transactional=False, lsn=lsn):
                is_behind = lsn > point.at
            case _:
                if window is not None:
                    window.watch(message, self._look_up)
                return False
        if is_behind:
            self._stand()
        return self._is_standing

    def reach(self, position: int) -> None:
        """All that was committed before `position` was taken, and nothing is open."""
        if self._point is not None and position >= self._point.at:
            self._stand()

    def be_patient(self) -> None:
        """Say once what does not come; give up a window whose marks do not.

        Nothing is lost by that: the table waits for another window as it did for this one.
        """
        window, seconds = self._point, self._clock.now() - self._since
        if seconds * _TOLD_SHARE >= self._mark_seconds and not self._is_told:
            self._is_told = True
            self._note(f"the stream is waited for, to read {self.waits_for}")
        if isinstance(window, QuietWindow) and window.awaited and seconds >= self._patience:
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
            self._give_up(f"did not come in {seconds:.0f} s", window.awaited, window.passed)

    def _give_up(self, how: str, mark: str, passed: int) -> None:
        """Let go of a window that no mark ends, and rest: the next ones may be like it."""
        table = self._table
        assert table is not None
        self.let_go()
        self._due = self._not_before[table] = self._clock.now() + _RETRY_SECONDS
        self._warn(
            f"{table} is not read yet: {mark}, {how} (the stream showed {passed} others); tried"
            f" again in {_RETRY_SECONDS:.0f} s, for up to {self._patience:.0f} s: {UNSEEN}"
        )

    def _stand(self) -> None:
        """The stream is at the point, unless that was a window in which the table was changed."""
        window = self._point
        if isinstance(window, QuietWindow) and window.left_out:
            self._give_up("was left out by the stream", window.left_out, window.passed)
        elif isinstance(window, QuietWindow) and not window.is_quiet:
            self.let_go()  # the table is the next one still
        else:
            self._is_standing, self._patience = True, self._mark_seconds

    def pass_gone(self, writer_state: WriterState) -> tuple[WriterState, TableId] | None:
        """Let go of a table that is not there at its point; the writer's state behind it.

        The source goes on there: after a crash its rows, which nobody took, must not come [H37].
        """
        assert self._point is not None
        if (table := self._table) is None or self._shape is not None:
            return None
        head, at = writer_state.head, self._point.at
        self._done(table, self._number)
        return replace(writer_state, head=replace(head, resume=max(head.resume, at))), table

    def read(self, writer_state: WriterState) -> tuple[WriterState, TableSchema]:
        """Read the table; return the writer's state after it, and the shape in force."""
        assert self._point is not None
        assert self._shape is not None
        shape, began = self._shape, self._clock.now()
        is_repair = self._open.get(shape.id) == GAP
        writer_state = self._blocking(self._read, writer_state, self._point, shape)
        if is_repair:
            self._rest(shape.id, self._clock.now() - began)
        self._done(shape.id, self._number)
        return writer_state, shape

    def _rest(self, table: TableId, took: float) -> None:
        before = self._rests.get(table)
        twice = 0.0 if before is None else 2 * before.seconds
        seconds = min(_LONGEST_REST, max(self._rest_seconds, _SHARE * took, twice))
        self._rests[table] = _Rest(self._clock.now(), seconds)

    def let_go(self) -> None:
        """Give the point up, if there is one: the stream goes on."""
        point, self._point, self._shape, self._is_standing = self._point, None, None, False
        self._table = None
        if point is not None:
            point.close()
