"""A transactional target and its sink: `PostgresSink` with the database replaced.

Rows and ledger change in one atomic step.  A COMMIT whose answer is lost goes on
as a *ghost*: it holds the ledger's lock and succeeds or fails later.  There is no
advisory lock: two appliers may run at once, fence and comparison must do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.control import Phase, SchemaChange, TableLoad
from schemas.tables import UNCHANGED, TableId
from spark_consumers.compact import Collapsed, by_columns, collapse
from spark_consumers.cuts import check_complete
from spark_consumers.errors import (
    Fenced,
    MissingTable,
    NotExpressible,
    RowMissing,
    Superseded,
    TargetDown,
)
from spark_consumers.model import Change, Ledger, Rows, Segment
from tests.sim.world import Actor, Crashed, Move, World

KEYS = {"a": ("id",), "b": ("id",), "c": (), "d": ("id",)}


@dataclass
class TargetTable:
    """One table of the target."""

    columns: tuple[str, ...]
    rows: list[dict[str, str]] = field(default_factory=list)

    def content(self) -> list[tuple[tuple[str, str], ...]]:
        """The rows, comparable with the source's."""
        return sorted(tuple(sorted(row.items())) for row in self.rows)


@dataclass
class Database:
    """What one commit of the target makes visible."""

    ledger: Ledger
    tables: dict[TableId, TargetTable] = field(default_factory=dict)


@dataclass(eq=False)
class Ghost:
    """A COMMIT under way whose client does not listen any more."""

    after: Database


class Target:
    """The target server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = Database(Ledger("bank"))
        self.version = 0  # counts commits, restores and ends of ghosts
        self.holder: Actor | Ghost | None = None  # of the ledger's row lock
        self.backups: list[Database] = [self.now]
        self.lost_commits = 0
        self.restores = 0
        self.was_restored = False
        self.on_commit: Callable[[Database, Database], None] = lambda _a, _b: None
        world.sources_of_moves.append(self._moves)

    def commit(self, database: Database) -> None:
        """Make a transaction visible."""
        before, self.now = self.now, database
        self.version += 1
        self.on_commit(before, database)

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
    """The promise of `model.Sink`, kept as `sinks/postgres.py` keeps it."""

    compares = True  # the ledger, under its lock
    fences = True
    counts = True  # staged rows are counted again inside the transaction

    def __init__(self, target: Target, actor: Actor) -> None:
        self._target, self._actor = target, actor
        self._fence: int | None = None
        self.seen = 0  # version of the target when it was last looked at

    def start(self) -> Ledger:
        """Take the fence, in a transaction of its own."""
        self._lock("takes the fence")
        now = self._target.now
        ledger = replace(now.ledger, fence=now.ledger.fence + 1)
        self._target.release(self._actor)
        self._target.commit(Database(ledger, now.tables))
        self._fence = ledger.fence
        return ledger

    def ledger(self) -> Ledger:
        if self._fence is None:
            return self.start()
        self._lock("reads the ledger")
        self._target.release(self._actor)
        return self._checked()

    def stage(self, segment: Segment, rows: Rows) -> Rows:
        del segment
        return rows

    def step(self, segment: Segment, staged: Rows) -> Ledger:
        target, actor = self._target, self._actor
        self._lock(f"locks the ledger for n={segment.cut.head.n} seq..{segment.upto.seq}")
        try:
            ledger = self._checked()
            self._compare(ledger, segment)
            if self.counts:
                check_complete(segment, staged)
            upto = replace(segment.upto, fence=ledger.fence)
            tables = copy.deepcopy(target.now.tables)
            if isinstance(segment.cut, TableLoad):
                _load(tables, segment.cut, staged)
            else:
                upto = _apply(tables, upto, segment, staged)
            database = Database(upto, tables)
            try:
                actor.park("COMMIT")
            except Crashed:
                if target.world.chance(0.5):  # it was sent, the server goes on
                    target.holder = Ghost(database)
                raise
        except BaseException:
            target.release(actor)
            raise
        if target.lost_commits and not target.world.calm and target.world.chance(0.1):
            target.lost_commits -= 1
            target.holder = Ghost(database)
            target.world.note(f"{actor.name} loses its connection during COMMIT")
            raise TargetDown("the connection is lost; nobody knows what became of the commit")
        target.release(actor)
        target.commit(database)
        self.seen = target.version
        return upto

    def _compare(self, ledger: Ledger, segment: Segment) -> None:
        if self.compares and _place(ledger) != _place(segment.after):
            raise Superseded("the ledger moved", at=_place(ledger))

    def _lock(self, label: str) -> None:
        """SELECT ... FOR UPDATE; a crash gives it back, except a COMMIT under way."""
        target = self._target
        self._actor.park(label, until=lambda: target.holder is None)
        target.holder = self._actor

    def _checked(self) -> Ledger:
        ledger = self._target.now.ledger
        self.seen = self._target.version
        if self.fences and ledger.fence != self._fence:
            self._target.release(self._actor)
            raise Fenced("another applier took over", fence=ledger.fence, ours=self._fence)
        return ledger


def _place(ledger: Ledger) -> tuple[int, int, int]:
    return ledger.epoch, ledger.n, ledger.seq


def _load(tables: dict[TableId, TargetTable], cut: TableLoad, rows: Rows) -> None:
    match cut.phase:
        case Phase.BEGIN:
            for change in rows.ddl:
                assert change.after is not None
                tables[change.after.id] = TargetTable(change.after.names())
            tables[cut.table].rows.clear()
        case Phase.CHUNK:
            for table, changes in rows.changes.items():
                tables[table].rows.extend(_row(c.columns, c.after or []) for c in changes)


def _apply(
    tables: dict[TableId, TargetTable], upto: Ledger, segment: Segment, rows: Rows
) -> Ledger:
    """Rows and DDL in ordinal order, collapsed between DDL."""
    left = rows.changes
    inexact = {**segment.after.inexact, **upto.inexact}
    for change in sorted(rows.ddl, key=lambda d: (d.seq, d.ordinal)):
        place = change.seq, change.ordinal
        now = {t: [c for c in cs if (c.seq, c.ordinal) < place] for t, cs in left.items()}
        left = {t: [c for c in cs if (c.seq, c.ordinal) > place] for t, cs in left.items()}
        _apply_changes(tables, now, inexact)
        _alter(tables, change)
        if change.lossy and change.after is not None:
            inexact = {**inexact, str(change.after.id): change.lossy}
            upto = replace(upto, state="LOADING", inexact={**upto.inexact, **inexact})
    _apply_changes(tables, left, inexact)
    return upto


def _alter(tables: dict[TableId, TargetTable], change: SchemaChange) -> None:
    assert change.after is not None
    known = tables.get(change.after.id)
    if change.before is None:
        if known is None:
            tables[change.after.id] = TargetTable(change.after.names())
        return
    if known is None:
        raise MissingTable("ALTER TABLE of a table that is not there", table=change.after.id)
    if new := [c for c in change.after.names() if c not in known.columns]:
        tables[change.after.id] = TargetTable((*known.columns, *new), known.rows)


def _apply_changes(
    tables: dict[TableId, TargetTable], changes: Any, inexact: dict[str, str]
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
            todo = collapse(columns, run, KEYS[table_id.name])
            _write(table, todo, is_exact=str(table_id) not in inexact)


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
                    raise RowMissing("a change needs a row that is not there")
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
                raise RowMissing("a change needs a row that is not there", key=key)
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


def changes_of(values: list[Any]) -> list[Change]:
    """Values as they lie in Kafka, as the consumer decodes them."""

    def text(cells: Any) -> list[Any] | None:
        if cells is None:
            return None
        return [c.decode() if isinstance(c, bytes) else c for c in cells]

    return [
        Change(v.seq, v.ordinal, v.op, v.columns, text(v.before), text(v.after)) for v in values
    ]
