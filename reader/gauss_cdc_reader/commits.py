"""Whole commits in the source's order, and what loads bring, from the records of cuts.

A record of cuts has many short commits: those that are there are read at once, and given one by
one.  A commit that takes too much memory is read in parts, while its changes are iterated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gauss_cdc_reader.bookmark import Bookmark
from gauss_cdc_reader.changes import Change, of_note
from schemas.control import (
    ANY,
    CommitEntry,
    Commits,
    Cut,
    Range,
    SchemaChange,
    Start,
    State,
    TableLoad,
)
from schemas.tables import TableId
from schemas.topics import rewritten, tables_of
from spark_consumers.cuts.complete import promised
from spark_consumers.cuts.segments import joined_ranges
from spark_consumers.cuts.versions import Version, part
from spark_consumers.decode.rows import COMMIT_ORDER
from spark_consumers.kafka.history import (
    History,
    ShapeHistory,
    Standing,
    TableNote,
    missed,
    note_of_change,
    notes_of_load,
)
from spark_consumers.kafka.parts import PartsInOrder
from spark_consumers.model import CommitRows, Rows, columns_of

_TOGETHER: Final = 5_000  # rows of commits that are read at once
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ORDINAL: Final = attrgetter("ordinal")


class LoadPart(NamedTuple):
    """A step of a load: BEGIN empties the copy, CHUNK brings rows, END says that they are all.

    A CHUNK without BEGIN has some rows as they are, and deletes those that are not: `verify` found
    that a target differs.
    """

    table: TableId
    phase: str


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction of the source, or a step of a load, which is no transaction.

    `changes` are in order; those of a commit that is too large to be held are read while they are
    iterated, each time anew.  An error in their midst means: undo what you did of this commit.
    """

    position: Bookmark  # behind it: store its text together with your effects
    changes: Iterable[Change]
    schema_changes: Sequence[SchemaChange] = ()  # each before the changes of a greater ordinal
    xid: int = 0  # at the source; 0: it does not say, or a load
    csn: int = 0
    committed_at: datetime | None = None  # None: a load
    load: LoadPart | None = None


class _Piece(NamedTuple):
    """Commits of one record, from one index to another."""

    offset: int
    cut: Commits
    first: int
    last: int

    @property
    def seqs(self) -> tuple[int, int]:
        """Before the first, and the last."""
        start = columns_of(self.cut.commits).first
        return start + self.first - 1, start + self.last - 1


class WholeCommits:
    """Reads commits behind a place; one at a time."""

    def __init__(self, history: History, shapes: ShapeHistory) -> None:
        """`shapes` are those of tables at the place where reading begins, and are kept up."""
        self._history, self._shapes = history, shapes
        self._place: Standing
        self._topics: Mapping[str, str] = {}
        self._waiting: list[_Piece] = []
        self._rows = 0  # of what waits

    def behind(self, place: Standing) -> Iterator[Commit | None]:
        """Give what comes behind a place; None wherever there is none by now."""
        self._place, self._waiting, self._rows = place, [], 0
        known = place.version
        for record in self._history.following(place):
            if record is None:
                yield from self._read()
                yield None
                continue
            offset, cut = record
            if isinstance(cut, State):
                yield from self._read()
                self._stand(offset, cut)
            if offset < place.cut:
                continue
            if isinstance(cut, Commits):
                if cut.head.epoch != known.epoch:
                    known = Version(cut.head.epoch, 0)
                self._wait_for(offset, cut, known.seq)
                if self._rows >= _TOGETHER:
                    yield from self._read()
            else:
                yield from self._read()
                yield from self._other(offset, cut)
            known = Version(cut.head.epoch, cut.head.last_seq)

    def _stand(self, offset: int, cut: State) -> None:
        self._topics = {name: topic.id for name, topic in cut.topics.items()}
        if offset >= self._place.state:
            self._place = self._place._replace(state=offset, instance=cut.head.instance)

    def _bookmark(self, version: tuple[int, int], cut: int) -> Bookmark:
        self._place = self._place._replace(version=Version(*version), cut=cut)
        return Bookmark.of(self._place)

    # ---------------------------------------------------------------- commits
    def _wait_for(self, offset: int, cut: Commits, known: int) -> None:
        columns = columns_of(cut.commits)
        first, last = max(0, known + 1 - columns.first), len(columns)
        if first < last:
            self._waiting.append(_Piece(offset, cut, first, last))
            self._rows += columns.total(first, last)

    def _read(self) -> Iterator[Commit]:
        """Give all that waits."""
        pieces, self._waiting, self._rows = self._waiting, [], 0
        if not pieces:
            return
        rows = self._rows_of(pieces)
        if isinstance(rows, Rows):
            yield from self._divided(pieces, rows)
            return
        for piece in pieces:
            for at in range(piece.first, piece.last):
                one = piece._replace(first=at, last=at + 1)
                found = self._rows_of([one])
                if isinstance(found, Rows):
                    yield from self._divided([one], found)
                else:
                    yield self._commit(one, at, found, found.ddl)

    def _rows_of(self, pieces: Sequence[_Piece]) -> Rows | InParts:
        """Read all rows of commits that follow each other, or see that they are too large."""
        cut = pieces[-1].cut
        ranges = joined_ranges(chain.from_iterable(map(_ranges, pieces)))
        counts = (columns_of(p.cut.commits).rows(p.first, p.last) for p in pieces)
        commit_rows = CommitRows.of(pieces[0].seqs[0] + 1, counts)
        segment = self._history.segment(ranges, self._topics, cut, commit_rows)
        rows = self._history.rows.small(segment)
        return InParts(self._history, segment) if rows is None else rows

    def _divided(self, pieces: Sequence[_Piece], rows: Rows) -> Iterator[Commit]:
        """Give each commit its part of what was read together."""
        changes, ddl = _Taking(in_order(rows)), _Taking(rows.ddl)
        for piece in pieces:
            start = columns_of(piece.cut.commits).first
            for at in range(piece.first, piece.last):
                mine = changes.upto(start + at)
                yield self._commit(piece, at, mine, ddl.upto(start + at))

    def _commit(
        self, piece: _Piece, at: int, changes: Iterable[Change], ddl: Sequence[SchemaChange]
    ) -> Commit:
        cut = piece.cut
        columns = columns_of(cut.commits)
        seq, (csn, _, micros) = columns.first + at, columns.place(at)
        version = Version(cut.head.epoch, seq)
        notes = list(self._noted(version, _special(cut, at), ddl))
        if notes:
            changes = _merged(notes, changes)
        return Commit(
            self._bookmark(version, piece.offset + (at == len(columns) - 1)),
            changes,
            ddl,
            xid=columns.identity(at)[1],
            csn=csn,
            committed_at=_EPOCH + timedelta(microseconds=micros),
        )

    def _noted(
        self, version: Version, entry: CommitEntry | None, ddl: Sequence[SchemaChange]
    ) -> Iterator[Change]:
        """What a commit says of tables besides their rows; shapes follow."""
        for hole in entry.holes if entry is not None else ():
            one = TableId.of(rewritten(hole.table, self._topics))
            for table in sorted(tables_of(self._topics)) if hole.table == ANY else [one]:
                note = TableNote(table, version, "gap", f"{hole.kind}: {hole.why}")
                yield of_note(note, self._shapes)
        for change in ddl:
            for table in _tables_of(change):
                if (said := note_of_change(change, table)) is not None:
                    yield of_note(TableNote(table, version, *said, change.ordinal), self._shapes)
            self._shapes.note(change)

    # ---------------------------------------------------------------- others
    def _other(self, offset: int, cut: Cut) -> Iterator[Commit]:
        """Give what a record of another kind brings."""
        version = (cut.head.epoch, cut.head.last_seq)
        behind = self._bookmark(version, offset + 1)
        if isinstance(cut, TableLoad) and cut.target is None:
            segment = self._history.segment(cut.ranges, self._topics, cut)
            rows = self._history.rows(segment)
            for change in rows.ddl:
                self._shapes.note(change)
            notes = [of_note(note, self._shapes) for note in notes_of_load(cut)]
            step = LoadPart(cut.table, cut.phase.value)
            yield Commit(behind, [*notes, *in_order(rows)], rows.ddl, load=step)
        elif isinstance(cut, Start):
            tables = {*self._shapes.last(), *map(TableId.of, cut.loads)}
            lacking = [of_note(note, self._shapes) for note in missed(cut, sorted(tables))]
            if lacking:
                yield Commit(behind, lacking)


class InParts:
    """Changes of a commit that is too large to be held."""

    def __init__(self, history: History, segment: Any) -> None:
        self._history, self._segment = history, segment
        self._is_committed = history.rows.prepare(segment)
        self.ddl = history.rows.read_ddl(segment, is_committed=self._is_committed)

    def __iter__(self) -> Iterator[Change]:
        def read(ranges: Sequence[Range]) -> Any:
            return self._history.rows.content(ranges, is_committed=self._is_committed)

        names = {r.topic for r in self._segment.ranges} - {self._history.names.ddl}
        ranges = [r for r in self._segment.ranges if r.topic in names]
        for rows in PartsInOrder(promised(self._segment), ranges, self.ddl, read):
            yield from in_order(rows)


class _Taking:
    """Changes or schema changes in commit order, taken commit by commit."""

    def __init__(self, several: Sequence[Any]) -> None:
        self._several, self._at = several, 0

    def upto(self, seq: int) -> Sequence[Any]:
        """Take those of a commit, the next one that is asked for."""
        several, start, end = self._several, self._at, len(self._several)
        at = start
        while at < end and several[at].seq == seq:
            at += 1
        self._at = at
        return several[start:at]


def in_order(rows: Rows) -> list[Change]:
    """All changes in commit order; a TRUNCATE once, also where it stands in several partitions."""
    found: list[Any] = list(chain.from_iterable(rows.changes.values()))
    if len(rows.changes) > 1:
        found.sort(key=COMMIT_ORDER)
    if any(change.op == "t" for change in found):
        return [c for at, c in enumerate(found) if not (at and c.op == "t" and c == found[at - 1])]
    return found


def _merged(notes: Sequence[Change], changes: Iterable[Change]) -> Iterable[Change]:
    """Put what is said of tables in its place among the changes: those of a list stay one."""
    if isinstance(changes, InParts):
        return _Lazy(notes, changes)
    return sorted([*notes, *changes], key=_ORDINAL)


class _Lazy:
    """Notes among changes that are read while they are iterated."""

    def __init__(self, notes: Sequence[Change], changes: Iterable[Change]) -> None:
        self._notes, self._changes = notes, changes

    def __iter__(self) -> Iterator[Change]:
        left = list(self._notes)
        for change in self._changes:
            while left and left[0].ordinal < change.ordinal:
                yield left.pop(0)
            yield change
        yield from left


def _ranges(piece: _Piece) -> tuple[Range, ...]:
    after, upto = piece.seqs
    return part(piece.cut, {r.topic for r in piece.cut.ranges}, after, upto).ranges


def _special(cut: Commits, at: int) -> CommitEntry | None:
    """Return the entry of a commit with gaps or schema changes."""
    seq = columns_of(cut.commits).first + at
    return next(iter(part(cut, (), seq - 1, seq).special), None)


def _tables_of(change: SchemaChange) -> list[TableId]:
    shapes = (one.id for one in (change.before, change.after) if one is not None)
    moved = () if change.moved is None else (change.moved.table,)
    return list(dict.fromkeys((*shapes, *moved)))
