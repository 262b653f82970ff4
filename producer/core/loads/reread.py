"""Tables that are read again while the stream goes on, one after the other.

Small ones, and all of a source that reads no ranges, are read at a *point*:

    waiting   the next table; its point is made at the present end of the log
    nearing   the stream comes to the point, message by message
    standing  all commits before the point are being made durable, none behind it is taken
    read      BEGIN, CHUNKs, END; then the stream goes on

A point is a place between two commits with a snapshot of exactly the commits before it; where no
slot exports one, a window that turns out to be quiet for its table (`window.py`).  So the
rows stand in the stream where the source was as they show it, and what follows applies to them.
The price: all tables wait while one is read.  Each has a point of its own, at the end of the log,
so that the stream catches up between two of them.

Large tables, and rows of some keys, are read *beside* the stream (`beside.py`).  It stands only
while what came before becomes durable and BEGIN, a range or END is written, between two commits.
What the ranges cannot follow begins such a load again; the fourth time it is read at a point.

What is open may be given up at any moment (`let_go`): what was written stands in cuts, and the next
try, or run, goes on behind it or begins again.  Nothing is written unless all before its place is
durable.  Which tables wait, and for whom they are read, is told by `queue.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from producer.core.catalog.look import Before
from producer.core.changes import Begin, Logical, Lost, Message, Relation, Update
from producer.core.delivery.engine import WriterState
from producer.core.events import Fate
from producer.core.key_ranges import Key, Upto, key_columns
from producer.core.loads.beside import Beside, Piece
from producer.core.loads.queue import FOR_ALL, LoadQueue
from producer.core.loads.window import UNSEEN, QuietWindow
from producer.core.ports import Blocking, Clock, KeyRanges, Point, Source, Wish
from producer.core.shape_change import StatementChanges
from producer.errors import CdcError, SourceBusy, TableChanging
from schemas.control import ANY, GAP
from schemas.errors import Verdict
from schemas.positions import Lsn, lsn_text
from schemas.tables import UNCHANGED, TableId, TableSchema

_RETRY_SECONDS: Final = 30.0  # until a table that could not be read is tried again
_SOON: Final = 5.0  # and one that a statement met
# The stream may be hours behind a window: each one that was given up makes the next wait longer.
_LONGEST_PATIENCE: Final = 14_400.0  # a window holds a snapshot at the source
_TOLD_SHARE: Final = 10  # it is said after a tenth of the time that is waited

_MOVED: Final = (
    "a row came to another key without all of its values, while the table was being loaded"
)
_OTHER_KEY: Final = "its key was altered while it was loaded"
ROWS_MOVED: Final = "rows of a partition came or went while it was loaded"
_LOOKS_UNTIL_CAPTURED: Final = 10  # until a table that is not captured is tried again
_MOST_BEGUN: Final = 3  # times that a load beside the stream begins; then a point is taken


class Writing(Protocol):
    """Writes what is read."""

    def again(
        self, state: WriterState, point: Point, table: TableSchema, load: Upto
    ) -> WriterState:
        """Read a table at a point, and write it; `load` says for whom."""

    def beside(
        self, state: WriterState, at: Lsn, table: TableSchema, load: Beside, piece: Piece
    ) -> tuple[WriterState, Upto]:
        """Write the next piece of a load, at a place between two commits."""


class Placed(NamedTuple):
    """What came of a piece, or of a whole table."""

    writer_state: WriterState
    shape: TableSchema | None  # in force from here on: it is the BEGIN of a load for all
    looked: Before | None


class Rereads:
    """What is to be read again in one turn."""

    def __init__(
        self,
        queue: LoadQueue,
        *,
        source: Source,
        mark_seconds: float,
        rate: int,
        writing: Writing,
        publish: Callable[[TableSchema], object],
        look_up: Callable[[int], Relation],
        begin_anew: Callable[[str], None],
        blocking: Blocking,
        clock: Clock,
        note: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """`queue`: what is to be read; shared with who hides and shows tables.

        `publish` makes the topic, before a record of cuts names it.  `look_up` finds a relation
        that the stream has described.  `mark_seconds`: how long a window waits for its marks, at
        first.  `rate`: rows a second of a table that is read beside the stream.  `begin_anew`: a
        load for one target does not go on where it was.
        """
        self.queue = queue
        self._source, self._writing, self._publish, self._rate = source, writing, publish, rate
        self._look_up, self._begin_anew = look_up, begin_anew
        self._blocking, self._clock, self._note, self._warn = blocking, clock, note, warn
        self._load = Upto()  # for whom the load under way is, and for which request
        self._table: TableId | None = None  # of the point
        self._point: Point | None = None
        self._shape: TableSchema | None = None
        self._is_standing = False
        self._beside: Beside | None = None  # instead of a point
        self._mending: tuple[Wish, int] | None = None  # the request for which keys are read
        self._whole: set[TableId] = set()  # tables of which keys could not be read alone
        self._begun: Counter[TableId] = Counter()  # how often, since the last END
        self._anew: set[TableId] = set()  # begin again, whatever was written
        self._uncaptured: set[TableId] = set()  # whose load was to go on when it was tried last
        self._known: Mapping[TableId, TableSchema] = {}
        self._is_repair = False
        self._mark_seconds = self._patience = mark_seconds
        self._since: float  # of the point
        self._is_told: bool

    @property
    def waits_for(self) -> str:
        """What the stream is to come to, and for how long it has not; "": nothing is read."""
        if (beside := self._beside) is not None and beside.waits_for_others:
            return f"{self._table}: transactions that ran before, for {self._waited():.0f} s"
        point = self._point
        if point is None or self._is_standing:
            return ""
        mark = point.awaited if isinstance(point, QuietWindow) else ""
        place = mark or f"the position {lsn_text(point.at)}"
        return f"{self._table}: {place}, for {self._waited():.0f} s"

    def _waited(self) -> float:
        return self._clock.now() - self._since

    @property
    def has_point(self) -> bool:
        """Say whether the stream nears a point, or stands there."""
        return self._point is not None

    @property
    def is_under_way(self) -> bool:
        """Say whether a table is being read."""
        return self._point is not None or self._beside is not None

    @property
    def looks_at_all(self) -> bool:
        """Say whether each message of the stream is looked at."""
        return self.is_under_way or self.queue.has_any_beside

    @property
    def table_beside(self) -> TableId | None:
        """The table that is read while the stream goes on, once it has begun.

        None: no such load is under way.
        """
        beside = self._beside
        is_load = beside is not None and beside.is_begun and not beside.mends
        return beside.table if beside is not None and is_load else None

    def is_read_beside(self, table: TableId) -> bool:
        """Say whether a load of it is open that has commits between, also if nobody reads now."""
        return self.queue.is_beside(table) or table == self.table_beside

    def filenos(self) -> tuple[int, ...]:
        """Files of which one is readable when a part of a table was read."""
        return () if self._beside is None else (self._beside.fileno,)

    @property
    def is_standing(self) -> bool:
        """Say whether the stream has come to the point."""
        return self._is_standing

    def follow(
        self,
        loads: Mapping[str, str],
        upto: Mapping[str, str],
        targeted: Mapping[str, str],
        known: Mapping[TableId, TableSchema],
    ) -> None:
        """Take the loads as they are noted by now, and how far they have come.

        `loads`: schema.table -> phase; `upto`: how far those are that have commits between;
        `targeted`: the same of loads for one target.  `known`: the tables in force.
        """
        self._known = known
        self.queue.follow(loads, upto, targeted)
        if self._beside is not None and self._beside.table not in self.queue:
            self.let_go()  # it has another name, or is gone

    def needless(self) -> TableId | None:
        """Return a table that is complete without being read, and not asked for.

        None: there is none.
        """
        for table in self.queue.complete():
            if self._table == table or self._table is None:
                self._done(table)
                return table
        return None

    # ------------------------------------------------------------ the point
    def make_point(self, known: Mapping[TableId, TableSchema]) -> Mapping[str, str | None]:
        """Make the next table's point, if it is time; return phases to be noted instead.

        Called between any two reads: all that the stream has sent was taken, and the point lies
        behind it.  `known`: the tables in force.  A phase None: there is no load of the table any
        more.
        """
        now, queue = self._clock.now(), self.queue
        if (table := queue.next()) is None:
            return {}
        is_known = table in known
        goes_on = is_known and table not in self._anew
        self._table, self._load = table, queue.load_of(table, is_known=is_known, goes_on=goes_on)
        self._since, self._is_told = now, False
        self._is_repair = queue.has_gap(table)
        try:
            if self._opens_keys(table, known) or self._opens_beside(table):
                return {}
            is_hidden = queue.is_hidden(table)
            self._point = self._blocking(self._source.point, table, if_gone=is_hidden)
            if self._point is not None:
                self._shape = self._blocking(self._shape_of, table, known)
        except CdcError as error:
            # It is busy for any table, and each try stops the stream.
            self._put_off(table, error, all_others=isinstance(error, SourceBusy))
            return {}
        if self._shape is not None or queue.is_hidden(table):
            return {}
        if not is_known and not self._is_repair:
            self._done(table)
            return {str(table): None}
        return self._wait_for(table)

    def _wait_for(self, table: TableId) -> Mapping[str, str | None]:
        """Let a table wait that is not captured now: renamed, or to be captured again.

        The stream tells of another name before long.  A load that was to begin and cannot is a gap
        from then on: who waits for its END could wait as long as the owner likes.
        """
        self.let_go()
        self.queue.put_off_looks(table, _LOOKS_UNTIL_CAPTURED)
        if not self.queue.begins(table):
            return {}
        if table not in self._uncaptured:
            self._uncaptured.add(table)
            return {}
        self._note(f"{table}: its load cannot begin, since the table is not captured whole")
        return {str(table): GAP}

    def _check_for_one(
        self, writer_state: WriterState, shape: TableSchema, known: Mapping[TableId, TableSchema]
    ) -> None:
        """Have the others take the load that begins, too, where it mends what they have."""
        table, target = shape.id, self._load.target
        if not target:
            return
        self.queue.loads, was, why = writer_state.loads, known.get(table), ""
        if not self.queue.is_exact(table):
            why = "it is not exact for any"
        elif was is None or shape != was or (was.oid and shape.oid != was.oid):
            why = "it is not as the stream has it: another one, or altered"
        if why:
            self._note(FOR_ALL.format(table, target, why))
            self._load = self.queue.new_for_all(table)

    def _opens_beside(self, table: TableId) -> bool:
        """Begin to read a table while the stream goes on, or go on, if that is its way."""
        if self._begun[table] >= _MOST_BEGUN or not self._source.reads_ranges:
            return False
        if (found := self._blocking(self._source.ranges, table)) is None:
            return False
        self._uncaptured.discard(table)
        is_begun = not self._load.is_void
        self._read_beside(found, self._load if is_begun else self._at_first(), is_begun=is_begun)
        if is_begun:
            self._note(f"{table}: its load goes on where it was left")
        return True

    def _opens_keys(self, table: TableId, known: Mapping[TableId, TableSchema]) -> bool:
        """Begin to read rows of some keys, if that is all that is asked for."""
        wish = self.queue.by_keys(table)
        if wish is None or table not in known or table in self._whole:
            return False
        source = self._source
        if not source.reads_ranges or (source.ids_are_oids and not known[table].oid):
            return False  # by its oid another table of this name is told
        number, keys = self._blocking(self._source.named, wish)
        if not keys:
            return False
        if (found := self._blocking(self._source.ranges, table, of_any_size=True)) is None:
            return False
        self._mending, self._load = (wish, number), Upto(target=wish.target)
        self._read_beside(found, self._load, is_begun=True, named=keys)
        return True

    def _read_beside(
        self,
        opened: tuple[TableSchema, KeyRanges],
        upto: Upto,
        *,
        is_begun: bool,
        named: Sequence[Key] = (),
    ) -> None:
        self._beside = Beside(
            *opened,
            upto=upto,
            is_begun=is_begun,
            look_up=self._look_up,
            now=self._clock.now,
            rate=self._rate,
            named=named,
        )

    def _at_first(self) -> Upto:
        """Nothing is read of the load under way."""
        return Upto(request=self._load.request, target=self._load.target)

    def meet(self, fates: Collection[Fate], lacking: Collection[str]) -> None:
        """Take what a transaction did: what is read of a table that lacks rows is void.

        `lacking`: tables, as schema.table; ANY stands for each.
        """
        if not fates and not lacking:
            return
        # How far a load is goes with the table that brings its name.
        renamed = {fate.now for fate in fates if fate.now is not None and fate.now != fate.table}
        self.queue.lack({*lacking, *renamed})
        if self._beside is not None and {str(self._beside.table), ANY} & {*lacking}:
            self._begin_again("the stream lacks rows of it")

    def _begin_again(self, why: str) -> None:
        assert self._beside is not None
        beside, table = self._beside, self._beside.table
        self.let_go()
        if beside.mends:
            self._whole.add(table)
            self._note(f"{table}: all of its rows are read, not some keys alone: {why}")
            return
        if not beside.is_begun:
            return
        self._anew.add(table)
        self._begun[table] += 1
        how = "again" if self._begun[table] < _MOST_BEGUN else "again, while the stream waits"
        self._note(f"{table}: its load begins {how}: {why}")

    def _done(self, table: TableId) -> None:
        """Let go of a table, and answer the request for which it was read."""
        load, self._load = self._load, Upto()
        mending = self._mending
        self.let_go()
        if mending is not None:
            self.queue.mended(*mending)
            return
        self._whole.discard(table)
        self._begun.pop(table, None)
        self._uncaptured.discard(table)
        self.queue.done(table, load)

    def _shape_of(self, table: TableId, known: Mapping[TableId, TableSchema]) -> TableSchema | None:
        assert self._point is not None
        for shape in self._point.reading.shapes([table]):
            self._take_shape(shape, known)
            return shape
        return None

    def _take_shape(self, shape: TableSchema, known: Mapping[TableId, TableSchema]) -> None:
        _refuse_renamed(shape, known)
        self._publish(shape)

    def stops(self, message: Message) -> bool:
        """Say whether the stream must stop before a message, and stand at the point."""
        if self._beside is not None:
            return isinstance(message, Begin) and self._stops_beside(self._beside, message)
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

    def _stops_beside(self, beside: Beside, begin: Begin) -> bool:
        if self._is_standing or beside.stands_at(begin.commit_lsn):
            self._is_standing = True
        else:
            beside.pass_by(begin)
        return self._is_standing

    def watch(self, message: Message) -> Lost | None:
        """Take a message that does not stop the stream; return the gap that it makes.

        A target may lack the row that an UPDATE moves, and gets no other values than it brings.
        How far a load has come is told by the key of its BEGIN: with another one it means nothing.

        None: it makes none.
        """
        if self._beside is not None:
            self._beside.watch(message)
        match message:
            case Update(relation, _, old, new) if old is not None and UNCHANGED in new:
                found = self._look_up(relation)
                table = found.id
                shape = self._known.get(table) if self.is_read_beside(table) else None
                key = () if shape is None else shape.key
                cells = zip(found.columns, old, new, strict=True)
                if any(was != now for column, was, now in cells if column.name in key):
                    return self._lose_load(table, _MOVED)
            case StatementChanges(changes):
                for one in changes:
                    was, now = one.before, one.after
                    if one.moved is not None:
                        tables = [*(t.id for t in (now, was) if t is not None), one.moved.table]
                        if (read := next(filter(self.is_read_beside, tables), None)) is not None:
                            return self._lose_load(read, ROWS_MOVED)
                    if was is None or now is None or not self.is_read_beside(was.id):
                        continue
                    if key_columns(was) != key_columns(now):
                        return self._lose_load(was.id, _OTHER_KEY)
        return None

    def _lose_load(self, table: TableId, why: str) -> Lost | None:
        """Begin a load again that cannot be gone on with; return its gap, if any.

        Nobody but the target of a load for one lacks rows by it: to the others it is no gap.
        """
        beside = self._beside
        is_under_way = beside is not None and beside.table == table
        if not (self._load.target if is_under_way else self.queue.is_for_one(table)):
            return Lost(*table, "seen", why)
        self._begin_anew(str(table))
        if is_under_way:
            self._begin_again(why)
        return None

    def reach(
        self, position: Lsn, known: Mapping[TableId, TableSchema], *, is_between: bool
    ) -> None:
        """All that was committed before `position` was taken; `is_between`: nothing is open."""
        if self._point is not None and position >= self._point.at:
            self._stand()
        if self._beside is not None and self.queue.is_pause_asked():
            self.let_go()  # it goes on behind what is written
        if (beside := self._beside) is None:
            return
        try:
            if (shape := beside.take()) is not None:
                self._blocking(self._take_shape, shape, known)
        except CdcError as error:
            if beside.mends and error.verdict is not Verdict.RETRY:
                self._begin_again(str(error))
            else:
                self._put_off(beside.table, error)
            return
        if not is_between or self._is_standing:
            return
        if beside.stands_at(position):
            self._is_standing = True
        else:
            beside.rest()

    def _put_off(self, table: TableId, error: CdcError, *, all_others: bool = False) -> None:
        self.let_go()
        seconds = _SOON if isinstance(error, TableChanging) else _RETRY_SECONDS
        self.queue.put_off(table, seconds, all_others=all_others)
        self._note(f"{table} is read again later: {error}")

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
        self.queue.put_off(table, _RETRY_SECONDS, all_others=True)
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

        None: it is there.
        """
        assert self._point is not None
        if (table := self._table) is None or self._shape is not None:
            return None
        head, at = writer_state.head, self._point.at
        self._done(table)
        return replace(writer_state, head=replace(head, resume=max(head.resume, at))), table

    def read(
        self, writer_state: WriterState, known: Mapping[TableId, TableSchema]
    ) -> Placed | None:
        """Read the table, and write it; `known` is in force at the point.  None: not now."""
        point, shape, began = self._point, self._shape, self._clock.now()
        assert point is not None
        assert shape is not None
        try:
            _refuse_renamed(shape, known)  # before the point it may have got another name
        except CdcError as error:
            self._put_off(shape.id, error)
            return None
        self._check_for_one(writer_state, shape, known)
        load = self._at_first()
        writer_state = self._blocking(self._writing.again, writer_state, point, shape, load)
        if self._is_repair:
            self.queue.rest(shape.id, self._clock.now() - began)
        self._done(shape.id)
        return Placed(writer_state, None if load.target else shape, point.looked)

    def place(
        self, writer_state: WriterState, position: Lsn, known: Mapping[TableId, TableSchema]
    ) -> Placed | None:
        """Write the next piece of a load at a place between two commits; None: it begins again.

        `position`: where the stream stands, with all before it durable; `known`: the tables in
        force there.
        """
        beside, self._is_standing = self._beside, False
        assert beside is not None
        table = beside.table
        try:
            piece = beside.next(known.get(table))
            if piece.shape is not None:
                _refuse_renamed(piece.shape, known)
        except CdcError as error:
            if beside.is_begun:
                self._begin_again(error.what)
            else:
                self._put_off(table, error)
            return None
        if piece.shape is not None:
            self._check_for_one(writer_state, piece.shape, known)
            beside.upto = replace(self._at_first(), order=piece.upto.order)
        shape = piece.shape or known[table]
        at = max(position, piece.high)
        state, upto = self._blocking(self._writing.beside, writer_state, at, shape, beside, piece)
        beside.written(piece, upto)
        if beside.mends and upto.lossy:
            self._begin_again("a row cannot be delivered")
        elif piece.shape is not None:
            self._anew.discard(table)
            self.queue.show(table)
        elif piece.is_last:
            if self._is_repair:
                self.queue.rest(table, 0.0)
            self._done(table)
        return Placed(state, None if upto.target else piece.shape, piece.looked)

    def let_go(self) -> None:
        """Give the point up, if there is one: the stream goes on."""
        point, self._point, self._shape, self._is_standing = self._point, None, None, False
        beside, self._beside, self._table = self._beside, None, None
        self._load, self._mending = Upto(), None
        if point is not None:
            point.close()
        if beside is not None:
            beside.close()


def _refuse_renamed(shape: TableSchema, known: Mapping[TableId, TableSchema]) -> None:
    """Raise CdcError where the stream has the table under another name still."""
    for other in known.values():
        if shape.oid and shape.oid == other.oid and shape.id != other.id:
            raise CdcError("it is being renamed", was=other.id)
