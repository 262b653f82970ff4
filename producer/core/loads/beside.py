"""The load of one table in ranges of its key, while the stream goes on (docs/protocol.md 4).

    shape    the table's shape is read; at its place, between two commits, BEGIN is written
    range    a place is noted (*low*); a snapshot is taken behind it, and a range is read
    written  at a place between two commits, behind all that the snapshot shows (*high*)

Rows of *named* keys are read in the same way, where no load is open: somebody compared them with a
target's, and they differ.  What they are is put over what targets have, and a named key without a
row is deleted there.  So an INSERT is noted, too: its row may be younger than the snapshot that
lacks it [H53].

From low on each key whose row the stream deletes, moves or updates is noted with each range that
is not written.  A noted row is left out, since the stream brought it whole or deleted it; if all
that came were UPDATEs without some values, the range's row is completed by theirs.  So a range's
rows are the newest states at its place, and a target puts them over what it has.  An INSERT is not
noted: where a snapshot shows its row, that is its state until one of the others touches it.

A snapshot counts only if it shows all that was delivered before low: a commit may be in the log,
and delivered, before it is visible.  Which ones were delivered before this load began is not known,
so the first snapshot waits for whatever was running then.

No lock holds who alters a type, or takes a table out of the publication for a while.  A transaction
that was open may have rows with a former label, or such as are not sent: an INSERT behind BEGIN,
without its DELETE.  The catalog that is read with the shape shows no trace of it, and nobody would
suspect them behind the load.  So who reads compares it with what was there when the shape was asked
for first, and all that ran then have ended [H52].

A row that an UPDATE moves to another key without all of its values may be none of a range, and not
whole at a target: `Rereads` makes a gap of it, also while no range is read.

High is the end of the log behind the snapshot that showed a range.  No range is asked for before
BEGIN; one is read under a lock of its table, and written when everything taken is durable, in the
shape in force.  The last range is open upwards.  A TRUNCATE, a statement, a new description or a
gap of the table throws away what is not written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from producer.core.catalog.look import Before
from producer.core.changes import (
    Begin,
    Cells,
    Delete,
    Insert,
    Lost,
    Message,
    Relation,
    Stretch,
    Truncate,
    Undecoded,
    Update,
)
from producer.core.key_ranges import Key, NamedKeys, RangeRead, Upto, Visible, key_of, key_places
from producer.core.loads.copy_lines import CopyLines
from producer.core.ports import KeyRanges
from producer.core.shape_change import StatementChanges
from producer.errors import CdcError, TableChanging
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, TableSchema

_AHEAD: Final = 3  # ranges that are read and not written, at most
_MOST_NOTED: Final = 200_000  # keys; a range with more is read again
_BURST: Final = 0.5  # seconds of the rate that may be made up for
_PAUSE: Final = 0.05  # seconds until a snapshot that did not show enough is taken again


@dataclass(slots=True)
class _Flying:
    """A range, from its low on."""

    after: Key | NamedKeys | None  # None: the shape alone
    delivered: frozenset[int]  # what its snapshot must show
    # key -> the row as far as the stream has sent it; None: it came whole, or is gone
    noted: dict[Key, Cells | None] = field(default_factory=dict)
    read: RangeRead | None = None
    is_void: bool = False  # what comes is thrown away


_NOTHING: Final = Upto()


@dataclass(frozen=True, slots=True)
class Piece:
    """What is to be written next: BEGIN, where there is a `shape`; else a range."""

    high: Lsn
    shape: TableSchema | None = None
    looked: Before | None = None
    rows: Sequence[Cells] = ()
    completed: Sequence[Cells] = ()  # rows with values of the stream
    upto: Upto = _NOTHING
    gone: Sequence[Key] = ()  # named, without a row
    is_last: bool = False


class Beside:
    """One table's load, from its BEGIN, or from where an earlier run left it, to its END.

    Or the reading of named keys.
    """

    def __init__(
        self,
        table: TableSchema,
        ranges: KeyRanges,
        *,
        upto: Upto,
        is_begun: bool,
        look_up: Callable[[int], Relation],
        now: Callable[[], float],
        rate: int = 0,
        named: Sequence[Key] = (),
    ) -> None:
        """`table`: as the catalog has it now; `is_begun`: BEGIN stands in the records of cuts.

        `rate`: rows a second, at most; 0 = as fast as they are read.
        """
        self.table, self.upto = table.id, upto
        self.is_begun = is_begun
        self.expected = ranges.estimated_rows
        self._ranges, self._look_up, self._now = ranges, look_up, now
        self._oid, self._key = table.oid, key_places(table)
        self._flying: deque[_Flying] = deque()
        self._asked: _Flying | None = None  # who reads has it
        self._not_before = 0.0  # of a reading
        self._rate, self._due = rate, 0.0  # of what is written
        self._left, self.mends = tuple(named), bool(named)
        self._running: frozenset[int] | None = None  # when this began
        self._unseen: set[int] = set()  # delivered; no snapshot is known to show them
        self._after: Key | None = upto.key  # the next range begins behind it; None: all is read

    @property
    def fileno(self) -> int:
        """A file that is readable when a range was read."""
        return self._ranges.fileno

    @property
    def waits_for_others(self) -> bool:
        """Say whether transactions that ran when this began are waited for."""
        return bool(self._running)

    def close(self) -> None:
        """Let go of the source."""
        self._ranges.close()

    # ------------------------------------------------------------ the stream
    def pass_by(self, begin: Begin) -> None:
        """Take the beginning of the next transaction, behind all that was delivered."""
        self.rest()
        if begin.xid:
            self._unseen.add(begin.xid)

    def watch(self, message: Message) -> None:
        """Note what the stream says of the table."""
        match message:
            case Insert(relation, new):
                if self.mends and self._is_mine(relation):
                    self._note(self._key_of(new), None)
            case Update(relation, _, old, new):
                if self._is_mine(relation):
                    self._follow(old, new)
            case Delete(relation, _, old):
                if self._is_mine(relation):
                    self._note(self._key_of(old), None)
            case Truncate(relations):
                if any(map(self._is_mine, relations)):
                    self.drop()
            case Relation():
                self._describe(message)
            case StatementChanges(changes):
                shapes = [shape for one in changes for shape in (one.before, one.after)]
                tables = {shape.id for shape in shapes if shape is not None}
                # A partition that is a table of its own now took rows along.
                tables |= {one.moved.table for one in changes if one.moved is not None}
                if self.table in tables:
                    self.drop()
            case Lost(schema, name):
                if not schema or (schema, name) == self.table:
                    self.drop()
            case Undecoded() | Stretch():
                self.drop()

    def drop(self) -> None:
        """Throw away what is read and not written."""
        for one in self._flying:
            one.is_void = True
        self._flying.clear()
        self._after = self.upto.key

    def _is_mine(self, relation: int) -> bool:
        found = self._look_up(relation)
        return (found.schema, found.table) == self.table

    def _describe(self, relation: Relation) -> None:
        """A description says that something may be another, or that the session is new."""
        if (relation.schema, relation.table) != self.table:
            return
        try:
            is_same = self._look_up(relation.relation) == relation
        except CdcError:
            is_same = False
        if not is_same:
            self.drop()

    def _key_of(self, cells: Cells) -> Key:
        return key_of(cells, self._key)

    def _follow(self, old: Cells | None, new: Cells) -> None:
        key = self._key_of(new)
        was = key if old is None else self._key_of(old)
        if was != key:
            self._note(was, None)
            if self.mends:
                self._note(key, None)
        else:
            self._note(key, None if UNCHANGED not in new else new)

    def _note(self, key: Key, row: Cells | None) -> None:
        for one in self._flying:
            noted = one.noted
            if row is None:
                noted[key] = None
            elif key not in noted:
                noted[key] = row
            elif (before := noted[key]) is not None:
                noted[key] = _over(before, row)
            if len(noted) > _MOST_NOTED:
                self.drop()
                return

    # ------------------------------------------------------------ reading
    def rest(self) -> None:
        """Between two commits: begin to read the next range, if it is time."""
        if self._asked is not None or self._now() < self._not_before:
            return
        if self.is_begun and (self._after is None or len(self._flying) >= _AHEAD):
            return
        if not self.is_begun and self._flying:
            return  # nothing is read before BEGIN stands: what it hides is in no range
        if self.mends and self._flying:
            return  # which keys are left is known when these are written
        after = NamedKeys(self._left) if self.mends else self._after
        self._asked = _Flying(after if self.is_begun else None, frozenset(self._unseen))
        self._flying.append(self._asked)
        self._ranges.ask(self._asked.after)

    def take(self) -> TableSchema | None:
        """Take what was read; return the shape of BEGIN.  Raises CdcError: it could not be."""
        if self._asked is None or (found := self._ranges.take()) is None:
            return None
        one, self._asked = self._asked, None
        if isinstance(found, CdcError):
            raise found
        if not self._counts(found.shown, one.delivered):
            self._not_before = self._now() + _PAUSE
            if not one.is_void:
                self._flying.remove(one)
            return None
        if one.is_void:
            return None
        one.read = found
        if self.mends:
            return None
        if self.is_begun:
            self._after = found.last
            return None
        return found.shape

    def _counts(self, shown: Visible, delivered: frozenset[int]) -> bool:
        """Say whether a snapshot shows all that was delivered before it was asked for."""
        was = self._running
        self._running = shown.running if was is None else shown.lacks(was)
        seen = {xid for xid in delivered if shown.has(xid)}
        self._unseen -= seen
        return not self._running and seen == delivered

    # ------------------------------------------------------------ writing
    def stands_at(self, position: Lsn) -> bool:
        """Say whether the first range may be written between two commits at a position."""
        first = self._flying[0] if self._flying else None
        if first is None or first.read is None or self._now() < self._due:
            return False
        return first.read.high <= position

    def next(self, known: TableSchema | None) -> Piece:
        """Return what is to be written, where `stands_at` says so; `known` is in force there.

        Raises TableChanging where the table is not the one whose load began.
        """
        one = self._flying[0]
        read = one.read
        assert read is not None
        if not self.is_begun:
            self._flying.popleft()
            if read.shape is None or read.shape.oid != self._oid:
                raise TableChanging("the table is another one by now", table=self.table)
            self._key = key_places(read.shape)
            return Piece(read.high, read.shape, read.looked, upto=Upto(order=read.order))
        if read.shape is None or read.shape != known or read.shape.oid != self._oid:
            raise TableChanging("the table was altered while it was loaded", table=self.table)
        if known.oid not in {0, self._oid}:  # the stream does not know of another name yet
            raise TableChanging("another table has its name", table=self.table)
        if self.upto.order not in {"", read.order}:
            raise TableChanging("its key's collation was altered meanwhile", table=self.table)
        if self.mends and read.left and known.unique:
            # Targets would drop the index for good: a row of these has a value of one that is left.
            raise TableChanging("they are too many at once for its unique index", table=self.table)
        self._flying.popleft()
        rows, completed = self._settled(read.rows, one.noted)
        if self.mends:
            gone = [key for key in read.gone if key not in one.noted]
            self._left = read.left
            return Piece(
                read.high, None, None, rows, completed, self.upto, gone, is_last=not read.left
            )
        is_last = read.last is None
        upto = replace(self.upto, key=read.last or (), order=read.order)
        return Piece(read.high, None, None, rows, completed, upto, is_last=is_last)

    def written(self, piece: Piece, upto: Upto) -> None:
        """Take note that a piece is durable."""
        if piece.shape is not None:
            self.is_begun, self._after = True, ()
            return
        self.upto, rows = upto, len(piece.rows) + len(piece.completed)
        if self._rate:
            self._due = max(self._due, self._now() - _BURST) + rows / self._rate

    def _settled(
        self, rows: Sequence[Cells], noted: dict[Key, Cells | None]
    ) -> tuple[Sequence[Cells], list[Cells]]:
        """Divide rows: those that are as they were read, and those with values of the stream."""
        if not noted:
            return rows, []
        kept, completed = [], []
        for at, row in enumerate(rows):
            key = self._key_of(row)
            if key not in noted:
                kept.append(at)
            elif (sent := noted[key]) is not None:
                completed.append(_over(row, sent))
        some = rows.some(kept) if isinstance(rows, CopyLines) else [rows[at] for at in kept]
        return some, completed


def _over(before: Cells, sent: Cells) -> Cells:
    """A row with the values that an UPDATE sent."""
    return [was if now is UNCHANGED else now for was, now in zip(before, sent, strict=True)]
