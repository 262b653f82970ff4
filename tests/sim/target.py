"""A transactional target: a database in memory, behind the rules of `sinks/step.py`.

Rows and ledger change in one atomic step.  A COMMIT whose answer is lost goes on
as a *ghost*: it holds the ledger's lock and succeeds or fails later.  In most histories
there is no lease: two appliers may run at once, fence and comparison must do.

What cannot be held at once comes in parts while the ledger is locked; each of them may be the one
that cannot be read, and then nothing of the step is visible.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.control import LoadPhase, SchemaChange, TableLoad, is_beside
from schemas.tables import UNCHANGED, TableId
from spark_consumers.cuts.compact import Collapsed, by_columns, collapse
from spark_consumers.errors import (
    ApplyError,
    KafkaDown,
    MissingTable,
    NotExpressible,
    RowMissing,
    TargetDown,
)
from spark_consumers.model import Ledger, Parts, Rows, Segment
from spark_consumers.sinks import step as rules
from tests.sim.lease import Row, RowLease, SimKeeper
from tests.sim.world import Actor, Crashed, Move, World

SOURCE = "bank"
FIRST = "first"  # name of the target, of two
KEYS = {"a": ("id",), "b": ("id",), "c": (), "d": ("id",), "x": ("id",), "y": ("id",)}


@dataclass
class TargetTable:
    """One table of the target."""

    columns: tuple[str, ...]
    rows: list[dict[str, str]] = field(default_factory=list)

    def __deepcopy__(self, _: object) -> TargetTable:
        return TargetTable(self.columns, [{**row} for row in self.rows])

    def content(self) -> list[tuple[tuple[str, str], ...]]:
        """The rows, comparable with the source's."""
        return sorted(tuple(sorted(row.items())) for row in self.rows)


@dataclass
class Database:
    """What one commit of the target makes visible."""

    ledger: Ledger
    tables: dict[TableId, TargetTable] = field(default_factory=dict)  # what readers see
    beside: dict[TableId, TargetTable] = field(default_factory=dict)  # what loads bring, until END

    def written(self) -> dict[TableId, TargetTable]:
        """Where changes go."""
        return {**self.tables, **self.beside}

    def copy(self) -> Database:
        """What a transaction works on."""
        return Database(self.ledger, copy.deepcopy(self.tables), copy.deepcopy(self.beside))


@dataclass(eq=False)
class Ghost:
    """A COMMIT under way whose client does not listen any more."""

    after: Database


class Target:
    """The target server."""

    def __init__(self, world: World, name: str = FIRST) -> None:
        self.world, self.name = world, name
        self.now = Database(Ledger(SOURCE))
        self.version = 0  # counts commits, restores and ends of ghosts
        self.holder: Actor | Ghost | None = None  # of the ledger's row lock
        self.backups: list[Database] = [self.now]
        self.lost_commits = 0
        self.restores = 0
        self.was_restored = False
        self.has_leases = False
        self.skew = 0.0  # seconds by which its clock is wrong
        self.are_tables_apart = world.seed % 5 > 1  # no foreign keys act
        self.lease, self.file = Row(), "\n"
        self.on_commit: Callable[[Database, Database], None] = lambda _a, _b: None
        world.sources_of_moves.append(self._moves)

    def sink(self, actor: Actor) -> Any:
        """A sink of a process."""
        return SimSink(self, actor)

    @property
    def clock(self) -> float:
        """What time the server thinks it is."""
        return self.world.now + self.skew

    def keeper(self, actor: Actor) -> SimKeeper | None:
        """What keeps the lease of a process."""
        return SimKeeper(RowLease(self, actor), self.world, actor) if self.has_leases else None

    def commit(self, database: Database) -> None:
        """Make a transaction visible."""
        before, self.now = self.now, database
        self.version += 1
        self.on_commit(before, database)

    def still_holds(self, actor: Actor) -> None:
        """Raise what a process meets whose session was ended."""
        if self.holder is not actor:
            raise TargetDown("the session was ended")

    def release(self, holder: Actor | Ghost) -> None:
        """Let the ledger's lock go, if it is held."""
        if self.holder is holder:
            self.holder = None

    def _end_ghost(self, *, succeeds: bool) -> None:
        ghost = self.holder
        assert isinstance(ghost, Ghost)
        self.holder = None
        self.version += 1
        if succeeds:
            self.commit(ghost.after)

    def _restore(self) -> None:
        self.restores -= 1
        self.was_restored = True
        self.now = self.world.rng.choice(self.backups)
        self.version += 1

    def oldest(self) -> Database:
        """The least that may still be needed: retention must not pass it."""
        behind = self.backups if self.restores and not self.world.calm else [self.now]
        return min([*behind, self.now], key=lambda d: d.ledger.next_offset)

    def _moves(self, out: list[Move]) -> None:
        calm = self.world.calm
        if isinstance(self.holder, Ghost):
            for succeeds in (True, False):
                label = f"target: the lost COMMIT {'succeeds' if succeeds else 'fails'}"
                out.append(Move(0.4, label, lambda s=succeeds: self._end_ghost(succeeds=s)))
        if calm:
            return
        if self.restores:
            if len(self.backups) < 6:
                out.append(
                    Move(0.1, "target: a backup is taken", lambda: self.backups.append(self.now))
                )
            if self.holder is None and self.now is not self.backups[-1]:
                out.append(Move(0.03, "target: restored from a backup", self._restore))


class SimSink:
    """The rules of `sinks/step.py` on the simulated server."""

    def __init__(self, target: Target, actor: Actor) -> None:
        self._target, self._actor = target, actor
        self._fence: int | None = None
        self.keeper = target.keeper(actor)
        self._known: Ledger | None = None  # what the target held after our last transaction
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
        return self.is_left_behind or self._target.lease.holder is not (
            self.keeper and self.keeper.lease
        )

    def check(self) -> None:
        if self.keeper is not None:
            self.keeper.check()

    def start(self) -> Ledger | None:
        """Take the lease; then the fence, in a transaction of its own."""
        if self.keeper is not None and not self.keeper.may_start():
            return None
        self.lock("takes the fence")
        if self.keeper is not None and self._target.lease.holder is not self.keeper.lease:
            self.keeper.let_go()
            self._target.release(self._actor)
            return None
        now = self._target.now
        ledger = replace(now.ledger, fence=now.ledger.fence + 1)
        self._target.release(self._actor)
        self._target.commit(Database(ledger, now.tables, now.beside))
        self._fence, self._known = ledger.fence, ledger
        return ledger

    def ledger(self) -> Ledger:
        self._known = None
        self.lock("reads the ledger")
        self._target.release(self._actor)
        self._known = rules.check_fence(self.look(), SOURCE, self._fence)
        return self._known

    def stage(self, segment: Segment, rows: Rows | Parts) -> Rows | Parts:
        del segment
        return rows

    def step(self, segment: Segment, staged: Rows | Parts) -> Ledger:
        target, actor, known = self._target, self._actor, self._known
        self._known = None
        is_small = isinstance(staged, Rows) and not (staged.ddl or segment.loads)
        if known is not None and is_small and target.world.chance(0.5):
            one_message = SimMessage(self, target, staged, f"..{segment.last_seq}", known)
            if self._send(one_message, segment):
                return one_message.database.ledger
        one = SimTransaction(self, target, staged, f"n={segment.cut.head.n} ..{segment.last_seq}")
        try:
            upto = rules.step(one, segment, fence=self._fence)
            try:
                actor.park("COMMIT")
            except Crashed:
                # It was sent, the server goes on; but for a session that was ended.
                if target.holder is actor and target.world.chance(0.5):
                    target.holder = Ghost(one.database)
                raise
            target.still_holds(actor)
        except BaseException:
            target.release(actor)
            raise
        if target.lost_commits and not target.world.calm and target.world.chance(0.1):
            target.lost_commits -= 1
            target.holder = Ghost(one.database)
            target.world.note(f"{actor.name} loses its connection during COMMIT")
            raise TargetDown("the connection is lost; the outcome of the commit is unknown")
        target.release(actor)
        target.commit(one.database)
        self.seen, self._known = target.version, upto
        return upto

    def _send(self, message: SimMessage, segment: Segment) -> bool:
        """One round trip, in which the server does all of the step; False: it refused."""
        target, actor = self._target, self._actor
        rules.step(message, segment, fence=self._fence)
        try:
            actor.park("sends a step", until=lambda: target.holder is None)
        except Crashed:
            if target.holder is None and target.world.chance(0.5) and message.is_taken():
                target.holder = Ghost(message.database)
            raise
        if not message.is_taken():
            return False
        if target.lost_commits and not target.world.calm and target.world.chance(0.1):
            target.lost_commits -= 1
            target.holder = Ghost(message.database)
            target.world.note(f"{actor.name} loses its connection after a step was sent")
            raise TargetDown("the connection is lost; the outcome of the step is unknown")
        target.commit(message.database)
        self.seen, self._known = target.version, message.database.ledger
        return True

    def close(self) -> None:
        if self.keeper is not None:
            self.keeper.close()

    def lock(self, label: str) -> None:
        """SELECT ... FOR UPDATE; a crash gives it back, except a COMMIT under way."""
        target = self._target
        self._actor.park(label, until=lambda: target.holder is None)
        target.holder = self._actor

    def look(self) -> Ledger:
        """What the server shows now."""
        self.seen = self._target.version
        return self._target.now.ledger


class SimTransaction:
    """`step.Transaction`: rows are dictionaries, changes are collapsed as the product does."""

    def __init__(self, sink: SimSink, target: Target, staged: Rows | Parts, what: str) -> None:
        self._sink, self._target, self.staged, self._what = sink, target, staged, what
        self.rows = staged if isinstance(staged, Rows) else Rows({})  # of the part under way
        self.database = target.now

    @property
    def ddl(self) -> Sequence[SchemaChange]:
        return self.rows.ddl

    def lock_ledger(self) -> Ledger:
        self._sink.lock(f"locks the ledger for {self._what}")
        ledger = self._sink.look()
        self.database = self._target.now.copy()
        return ledger

    def there(self, tables: Collection[TableId]) -> Collection[TableId]:
        return self.database.tables.keys() & set(tables)

    def move_ledger(self, before: Ledger, upto: Ledger) -> None:
        del before
        self.database = replace(self.database, ledger=upto)

    def check_staged(self, segment: Segment) -> None:
        """The reader has counted."""

    def parts(self) -> Iterator[None]:
        target, staged = self._target, self.staged
        if isinstance(staged, Rows):
            yield
            return
        for self.rows in staged.read(are_tables_apart=target.are_tables_apart):
            yield
            if not target.world.calm and target.world.chance(0.03):
                raise KafkaDown("the next part cannot be read")

    def alter(self, change: SchemaChange, *, is_exact: bool) -> bool:
        del is_exact
        beside = self.database.beside
        if change.before is None or change.before.id in beside:
            assert change.after is not None
            beside.pop(change.after.id, None) if change.before is None else _alter(beside, change)
        _alter(self.database.tables, change)
        return False

    def write(self, after: rules.Place, before: rules.Place, inexact: Mapping[str, str]) -> None:
        changes = {
            table: [c for c in rows if after < (c.seq, c.ordinal) < before]
            for table, rows in self.rows.changes.items()
        }
        _apply_changes(self.database.written(), rules.present(changes, inexact), inexact)

    def load(self, cut: TableLoad, *, keeps: bool) -> bool:
        tables, beside = self.database.tables, self.database.beside
        match cut.phase:
            case LoadPhase.BEGIN:
                keeps = keeps and cut.table in tables
                beside.pop(cut.table, None)
                for change in rules.shapes_of(self.ddl, cut.table):
                    assert change.after is not None
                    begun = beside if keeps else tables
                    begun[cut.table] = TargetTable(change.after.names())
                return keeps
            case LoadPhase.CHUNK:
                changes = self.rows.changes.get(cut.table, ())
                if is_beside(cut):
                    marks = {str(cut.table): ""}
                    _apply_changes(self.database.written(), {cut.table: changes}, marks)
                    return False
                there = self.database.written()[cut.table]
                there.rows.extend(_row(c.columns, c.after or []) for c in changes)
            case LoadPhase.END:
                if cut.table in beside:
                    tables[cut.table] = beside.pop(cut.table)
        return False


class SimMessage(SimTransaction):
    """A step that is sent at once: the server compares, and does all of it or nothing."""

    def __init__(
        self, sink: SimSink, target: Target, staged: Rows | Parts, what: str, known: Ledger
    ) -> None:
        super().__init__(sink, target, staged, what)
        self._known, self._upto = known, known
        self._writes: list[tuple[rules.Place, rules.Place, Mapping[str, str]]] = []
        self._is_whole = True

    def there(self, tables: Collection[TableId]) -> Collection[TableId]:
        self._is_whole = False  # it goes the usual way
        return super().there(tables)

    def lock_ledger(self) -> Ledger:
        return self._known

    def write(self, after: rules.Place, before: rules.Place, inexact: Mapping[str, str]) -> None:
        self._writes.append((after, before, inexact))

    def move_ledger(self, before: Ledger, upto: Ledger) -> None:
        self._known, self._upto = before, upto

    def is_taken(self) -> bool:
        """Do it on what the server holds now; say whether the server takes it."""
        now = self._target.now
        is_known = all(
            getattr(now.ledger, name) == getattr(self._known, name) for name in rules.COMPARED
        )
        if not (self._is_whole and is_known):
            return False
        self.database = now.copy()
        try:
            for one in self._writes:
                super().write(*one)
        except ApplyError:
            return False
        super().move_ledger(now.ledger, self._upto)
        return True


def _alter(tables: dict[TableId, TargetTable], change: SchemaChange) -> None:
    if change.after is None:
        assert change.before is not None
        tables.pop(change.before.id)
        return
    known = tables.get(change.after.id)
    if change.before is None:
        if known is None:
            tables[change.after.id] = TargetTable(change.after.names())
        return
    if change.before.id != change.after.id:
        known = tables[change.after.id] = tables.pop(change.before.id)
    if known is None:
        raise MissingTable("ALTER TABLE of a table that is not there", table=change.after.id)
    gone = {*change.before.names()} - {*change.after.names()}
    new = [c for c in change.after.columns if c.name not in {*known.columns} - gone]
    if new or gone:
        columns = (*(c for c in known.columns if c not in gone), *(c.name for c in new))
        values = {c.name: c.missing for c in new if c.missing is not None}
        rows = [{**{n: v for n, v in r.items() if n not in gone}, **values} for r in known.rows]
        tables[change.after.id] = TargetTable(columns, rows)


def _apply_changes(
    tables: dict[TableId, TargetTable], changes: Any, inexact: Mapping[str, str]
) -> None:
    for table_id, all_of in changes.items():
        if not all_of:
            continue
        if table_id not in tables:
            raise MissingTable("the target does not have a table of the stream", table=table_id)
        table = tables[table_id]
        for columns, run in by_columns(all_of):
            if missing := [c for c in columns if c not in table.columns]:
                raise NotExpressible("columns without their DDL", table=table_id, columns=missing)
            todo = collapse(columns, run, KEYS[table_id.name[0]])
            try:
                _write(table, todo, is_exact=str(table_id) not in inexact)
            except LookupError as error:
                what = "a change needs a row that is not there"
                raise RowMissing(what, table=table_id) from error


def _write(table: TargetTable, todo: Collapsed, *, is_exact: bool) -> None:
    """TRUNCATE, take unsent values from where rows stand now, DELETE, upsert; or row by row."""
    if todo.is_truncated:
        table.rows.clear()
    if todo.singles is not None:
        for single in todo.singles:
            if single.old is None:
                table.rows.append(_row(todo.columns, single.new or []))
                continue
            at = _find(table, todo.columns, single.old)
            if at is None:
                if is_exact:
                    raise LookupError
                continue
            gone = table.rows.pop(at)
            if single.new is not None:
                table.rows.append(_filled(todo.columns, single.new, gone))
        return
    by_key = {tuple(row[k] for k in todo.key): row for row in table.rows}
    written = {}
    for key, image in todo.upserts.items():
        old = by_key.get(image.origin) if image.origin is not None else None  # type: ignore[arg-type]
        if image.unsent() and old is None:
            if is_exact:
                raise LookupError
            continue
        written[key] = _filled(todo.columns, image.cells, old or {})
    for key in todo.deletes:
        by_key.pop(key, None)  # type: ignore[arg-type]
    table.rows = list((by_key | written).values())


def _find(table: TargetTable, columns: tuple[str, ...], old: list[Any]) -> int | None:
    known = {name: cell for name, cell in zip(columns, old, strict=True) if cell is not UNCHANGED}
    for at, row in enumerate(table.rows):
        if all(row.get(name) == cell for name, cell in known.items()):
            return at
    return None


def _row(columns: tuple[str, ...], cells: list[Any]) -> dict[str, str]:
    return {n: c for n, c in zip(columns, cells, strict=True) if c is not None}


def _filled(columns: tuple[str, ...], cells: list[Any], old: dict[str, str]) -> dict[str, str]:
    kept = {n: v for n, v in old.items() if n not in columns}
    for name, cell in zip(columns, cells, strict=True):
        if cell is UNCHANGED:
            if name in old:
                kept[name] = old[name]
        elif cell is not None:
            kept[name] = cell
    return kept
