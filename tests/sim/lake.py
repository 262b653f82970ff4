"""A lake in memory, behind the rules of `sinks/lakes/core.py`.

The worst of what real lakes do.  Of one kind, a write goes to whatever version is the newest, and
only says afterwards whether that was the one its writer had looked at, and a schema change may be
half done; of the other, data is written first, and the head moves there if it is where it was, or
back to an older version.  Anything may happen between two calls; an answer may be lost.  Of the
watermarks' writes each one is conditional.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from schemas.control import SchemaChange
from schemas.tables import TableId
from spark_consumers.cuts.complete import check_complete
from spark_consumers.cuts.complete import promised as promised_rows
from spark_consumers.errors import ApplyError, MissingTable, Superseded, TargetDown
from spark_consumers.model import Cell, Change, Ledger, Rows, Segment
from spark_consumers.sinks import step as rules
from spark_consumers.sinks.lakes import core
from spark_consumers.sinks.lakes.core import Stamp, TableVersion, Watermark, Work
from spark_consumers.sinks.lakes.joined import Joined
from tests.sim.lease import SimKeeper, file_keeper
from tests.sim.target import SOURCE, Database, Target, TargetTable, _alter, _apply_changes, _row
from tests.sim.world import Actor, World

_KEPT = 2_000_000  # µs of the world for which watermarks are promised


@dataclass
class Stored:
    """A version and its rows."""

    version: TableVersion
    table: TargetTable


@dataclass
class LakeStaged:
    """`core.SegmentContent` of rows that the driver holds."""

    rows: Rows

    @property
    def ddl(self) -> Sequence[SchemaChange]:
        return self.rows.ddl

    @property
    def tables(self) -> Sequence[TableId]:
        return sorted(self.rows.changes, key=str)

    def check(self, segment: Segment, keys: Mapping[str, tuple[str, ...]]) -> None:
        del keys
        check_complete(promised_rows(segment), self.rows)

    def count(self, table: TableId) -> int:
        return len(self.rows.changes[table])

    def kinds(self, table: TableId, key: tuple[str, ...]) -> None:
        del table, key

    def between(
        self, table: TableId, after: rules.Place, before: rules.Place, shape: Joined | None = None
    ) -> list[Change] | None:
        rows = [c for c in self.rows.changes[table] if after < (c.seq, c.ordinal) < before]
        return [c if shape is None else _shaped(c, shape) for c in rows] or None


def _shaped(change: Change, shape: Joined) -> Change:
    """Give a change the columns of `shape`."""

    def cells(row: list[Cell] | None) -> list[Cell] | None:
        if row is None:
            return None
        known = dict(zip(change.columns, row, strict=True))
        return [known.get(c.name, c.missing if c.name in shape.come else None)
                for c in shape.columns]  # fmt: skip

    return replace(
        change, columns=tuple(c.name for c in shape.columns),
        before=cells(change.before), after=cells(change.after),
    )  # fmt: skip


@dataclass
class LakeServer:
    """Files that everybody may write."""

    tables: dict[TableId, list[Stored]] = field(default_factory=dict)
    marks: list[Watermark] = field(default_factory=list)

    def at(self, mark: Watermark) -> Database:
        """All tables as a watermark names them."""
        out: dict[TableId, TargetTable] = {}
        for name, named in mark.tables.items():
            versions = self.tables[named.place]
            table = next(v.table for v in versions if v.version.id == named.version)
            out[TableId(*name.split("."))] = table
        return Database(mark.ledger, out)


def promised(marks: Sequence[Watermark], world: World) -> Sequence[Watermark]:
    """Watermarks that were the newest one at some time since."""
    since = int(world.now * 1e6) - _KEPT
    first = next((at for at, mark in enumerate(marks) if mark.written_at >= since), len(marks))
    return marks[max(0, first - 1) :]


class LakeTarget(Target):
    """A target that is a lake; what it shows is the newest watermark's."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.server = LakeServer()
        self.moves_heads = world.chance(0.5)

    def sink(self, actor: Actor) -> LakeSimSink:
        """A sink of a process."""
        return LakeSimSink(self, actor)

    def keeper(self, actor: Actor) -> SimKeeper | None:
        return file_keeper(self, actor) if self.has_leases else None

    def newest_fence(self) -> int | None:
        marks = self.server.marks
        return marks[-1].ledger.fence if marks else None

    def publish(self, before: Watermark | None, mark: Watermark) -> None:
        """Append a watermark, and look at what it and an older one show."""
        marks = self.server.marks
        if before is not (marks[-1] if marks else None):
            raise Superseded("another applier wrote a watermark")
        marks.append(replace(mark, written_at=int(self.world.now * 1e6)))
        self.commit(self.server.at(marks[-1]))
        self.look()

    def keep(self, before: Watermark | None, first: int) -> None:
        """Write those from a number on that were there."""
        marks = self.server.marks
        if before is not marks[-1]:
            raise Superseded("another applier wrote a watermark")
        if any(mark.number < first for mark in promised(marks, self.world)):
            self.world.fail("read_at", "a watermark that is promised goes")
        last = before.number if before is not None else 0
        marks[:] = [mark for mark in marks if first <= mark.number <= last]

    def look(self) -> None:
        """A reader comes: whatever watermark it finds names versions that are there."""
        older = self.world.rng.choice(self.server.marks)
        try:
            database = self.server.at(older)
        except StopIteration:
            self.world.fail("read_at", f"watermark {older.number} names what is not there any more")
            return
        self.on_commit(Database(Ledger(SOURCE)), database)


class LakeSimSink:
    """Implements `Sink` by the rules of lakes."""

    def __init__(self, target: LakeTarget, actor: Actor) -> None:
        self._target, self._actor = target, actor
        self._fence: int | None = None
        self.keeper = target.keeper(actor)
        self._marks, self._tables = SimMarks(self, target, actor), SimTables(target, actor)
        self.seen = 0  # version of the target when it was last looked at

    @property
    def is_overtaken(self) -> bool:
        """Say whether another applier took the fence since."""
        return self._fence != self._target.now.ledger.fence

    @property
    def is_left_behind(self) -> bool:
        """Say whether it applied, and another one does now."""
        return self._fence is not None and self.is_overtaken

    @property
    def is_replaced(self) -> bool:
        """Say whether that one may leave for it."""
        return self.is_left_behind

    def check(self) -> None:
        if self.keeper is not None:
            self.keeper.check()

    def start(self) -> Ledger | None:
        if self.keeper is not None and not self.keeper.may_start():
            return None
        keeper = self.keeper
        known = keeper.lease.fence if keeper is not None else self._target.newest_fence()
        try:
            ledger = core.take_fence(self._marks, SOURCE, known)
        except Superseded:
            return None
        if ledger is None or (keeper is not None and not keeper.holds):
            if keeper is not None:
                keeper.let_go()
            return None
        self._fence = ledger.fence
        if keeper is not None:
            keeper.lease.fence = ledger.fence
        return ledger

    def ledger(self) -> Ledger:
        return core.ledger_of(self._marks, SOURCE, self._fence)

    def stage(self, segment: Segment, rows: Rows) -> LakeStaged:
        del segment
        return LakeStaged(rows)

    def step(self, segment: Segment, staged: LakeStaged) -> Ledger:
        one = core.LakeTransaction(self._tables, self._marks, staged, needs_key=False)
        upto = rules.step(one, segment, fence=self._fence)
        if self._target.world.chance(0.3):
            with suppress(Superseded):  # as the product's sink does
                now = int(self._target.world.now * 1e6)
                tables, marks = self._tables, self._marks
                core.maintain(tables, tables, marks, now=now, keep=_KEPT / 1e6)
        return upto

    def close(self) -> None:
        if self.keeper is not None:
            self.keeper.close()


@dataclass
class SimMarks:
    """`core.KeptMarks`: the conditional writes of a lake."""

    sink: LakeSimSink
    target: LakeTarget
    actor: Actor
    seen: Watermark | None = None

    def newest(self) -> Watermark | None:
        self.actor.park("reads the watermark")
        self.sink.seen = self.target.version
        marks = self.target.server.marks
        self.seen = marks[-1] if marks else None
        return self.seen

    def append(self, before: Watermark | None, mark: Watermark) -> None:
        self.actor.park(f"writes watermark {mark.number}")
        self.target.publish(before, mark)
        self.sink.seen = self.target.version
        self.seen = self.target.server.marks[-1]
        _lose_answer(self.target, self.actor)

    def around(self, since: int) -> tuple[int | None, int | None]:
        self.actor.park("looks at the times of watermarks")
        marks = self.target.server.marks
        older = [mark.number for mark in marks if mark.written_at < since]
        newer = [mark.number for mark in marks if mark.written_at >= since]
        return max(older, default=None), min(newer, default=None)

    def keep(self, first: int) -> Iterable[Watermark]:
        self.actor.park(f"removes watermarks before {first}")
        self.target.keep(self.seen, first)
        return list(self.target.server.marks)


@dataclass
class SimTables:
    """`core.TableVersions` and `core.Care`."""

    target: LakeTarget
    actor: Actor

    def head(self, table: TableId) -> TableVersion | None:
        self.actor.park(f"looks at {table}")
        versions = self.target.server.tables.get(table)
        return versions[-1].version if versions else None

    def made(self, table: TableId, version: int) -> str:
        """Nobody makes a table in the place of another one."""
        del table, version
        return ""

    def put_back(self, table: TableId, head: TableVersion, content: int) -> TableVersion:
        self.actor.park(f"puts {table} back to {content}")
        versions = self.target.server.tables[table]
        there = next((v for v in versions if v.version.id == content), None)
        if there is None:  # of a mark that another applier's maintenance gave up meanwhile
            raise MissingTable("the version was expired by others", table=table)
        if self.target.moves_heads:
            return self._move(table, head, there)
        if content == head.id:  # Delta makes no version then
            raise Superseded("nothing was put back")
        return self._add(table, head, copy.deepcopy(there.table), Stamp(same_as=content))

    def write(
        self, table: TableId, head: TableVersion | None, work: Work, stamp: Stamp
    ) -> TableVersion:
        self.actor.park(f"writes {table}")
        versions = self.target.server.tables.get(table)
        newest = versions[-1] if versions else None
        tables = {table: copy.deepcopy(newest.table)} if newest is not None else {}
        if head is not None and isinstance(work, core.Alter) and _is_there(work.change):
            return head
        try:
            match work:
                case core.Begin(schema):
                    tables[table] = TargetTable(schema.names())
                case core.Add(rows):
                    tables[table].rows.extend(_row(c.columns, c.after or []) for c in rows)
                case core.Apply(rows, _, is_exact):
                    _apply_changes(tables, {table: rows}, {} if is_exact else {str(table): ""})
                case core.Alter(change):
                    assert change.before is not None
                    assert change.after is not None
                    before, after = (
                        replace(change.before, id=table),
                        replace(change.after, id=table),
                    )
                    _alter(tables, replace(change, before=before, after=after))
                    if not self.target.moves_heads:  # a statement of several
                        head = self._add(table, head, TargetTable(("half",)), Stamp())
        except ApplyError:
            if (newest.version if newest else None) == head:
                raise  # else a lake would have written nonsense
        return self._add(table, head, tables[table], stamp)

    def compact(self, table: TableId, head: TableVersion, keep: float) -> TableVersion:
        del keep
        self.actor.park(f"compacts {table}")
        if self.target.world.chance(0.5):
            return head
        newest = self.target.server.tables[table][-1]
        return self._add(table, head, copy.deepcopy(newest.table), Stamp())

    def expire(self, table: TableId, oldest: int, keep: float) -> None:
        """Who does it may have been overtaken."""
        del keep
        self.actor.park(f"expires versions of {table}")
        versions = self.target.server.tables[table]
        versions[:] = [v for v in versions if v.version.id >= oldest or v is versions[-1]]
        self.target.look()

    def _add(
        self, table: TableId, head: TableVersion | None, rows: TargetTable, stamp: Stamp
    ) -> TableVersion:
        versions = self.target.server.tables.setdefault(table, [])
        number = max((v.version.id for v in versions), default=0) + 1
        follows = (versions[-1].version if versions else None) == head
        new = Stored(TableVersion(number, stamp, follows, source=SOURCE), rows)
        if self.target.moves_heads and head is not None:
            new.version = replace(new.version, follows=True)
            versions.insert(0, new)
            return self._move(table, head, new)
        versions.append(new)
        _lose_answer(self.target, self.actor)
        return new.version

    def _move(self, table: TableId, head: TableVersion, new: Stored) -> TableVersion:
        """Make a version that is there the head."""
        self.actor.park(f"moves the head of {table} to {new.version.id}")
        versions = self.target.server.tables[table]
        if versions[-1].version != head:
            raise Superseded("another writer was faster")
        versions[:] = [*(v for v in versions if v is not new), new]
        _lose_answer(self.target, self.actor)
        return new.version


def _is_there(change: SchemaChange) -> bool:
    """Say whether a lake has nothing to do for a change."""
    assert change.before is not None
    assert change.after is not None
    return change.before.names() == change.after.names()


def _lose_answer(target: LakeTarget, actor: Actor) -> None:
    if target.lost_commits and not target.world.calm and target.world.chance(0.1):
        target.lost_commits -= 1
        target.world.note(f"{actor.name} loses the answer")
        raise TargetDown("the connection is lost; the outcome is unknown")
