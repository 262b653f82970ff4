"""The rules of lakes among appliers that come, crash, and write when they were overtaken.

The whole pipeline runs with a lake in `test_simulation.py`; here is only what happens between
appliers, so that each rule can be taken away and is noticed within a second.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from schemas.control import LoadPhase
from schemas.tables import ReplicaIdentity, TableId
from spark_consumers.cuts.segments import segments
from spark_consumers.errors import ApplyError, Fenced
from spark_consumers.model import Ledger
from spark_consumers.sinks.lakes import core
from tests.sim import target
from tests.sim.lake import LakeTarget, SimMarks, SimTables
from tests.sim.mutations import edit, noticed, replaced
from tests.sim.target import Database, TargetTable
from tests.sim.world import Actor, Move, Violation, World
from tests.spark_consumers.feed import Feed, alter, insert, table, update

KEYS = {"a": "id", "b": "id", "c": "", "d": "id"}
A, B, C, D = (table(name, "id integer, v text", key=key) for name, key in KEYS.items())
OTHER = table("d", "id integer, w text")
WIDE = table("a", "id integer, v text, w text")
FILLED = replace(WIDE, columns=(*A.columns, replace(WIDE.columns[2], missing="older")))
RENAMED = table("b_old", "id integer, v text")
SEEDS = 200
LOADED = 10  # START, and BEGIN, CHUNK and END of three tables


def feed_of(world: World) -> tuple[Feed, dict[tuple[int, int], dict[TableId, TargetTable]]]:
    """A source's history, and what it held after each (epoch, seq)."""
    rng, feed = world.rng, Feed()
    feed.start()
    tables: dict[TableId, TargetTable] = {}
    for one in (A, B, C):
        feed.load(one, LoadPhase.BEGIN)
        tables[one.id] = TargetTable(one.names())
        feed.load(one, LoadPhase.CHUNK, ["1", "x"], ["2", "x"])
        tables[one.id].rows += [{"id": "1", "v": "x"}, {"id": "2", "v": "x"}]
        feed.load(one, LoadPhase.END)
    held = {(1, 0): _copy(tables)}
    a = A
    for number in range(rng.randint(4, 9)):
        rows: list[Any] = []
        for one in (a, *(b for b in (B, RENAMED) if b.id in tables), C):
            if rng.random() < 0.6:
                value = f"v{number}"
                more = ["w"] if len(one.columns) > 2 else []
                is_there = any(row["id"] == "1" for row in tables[one.id].rows)
                if one is not C and is_there and rng.random() < 0.5:
                    rows.append(update(one, "1", value, *more))
                else:
                    rows.append(insert(one, str(10 + number), value, *more))
        if number == 2 and rng.random() < 0.3:  # nothing for a lake to do
            rows.append(alter(A, replace(A, replica_identity=ReplicaIdentity.FULL)))
        if number == 3 and rng.random() < 0.7:
            a = rng.choice((WIDE, FILLED))
            rows += [alter(A, a), insert(a, "50", "wide", "w")]
            if rng.random() < 0.5:  # it goes, and another one comes under its name
                rows += [alter(a, A), insert(A, "51", "narrow"), alter(A, WIDE)]
                rows += [update(WIDE, "51", "narrow", "w")]
                a = WIDE
        if number == 2 and rng.random() < 0.6:  # another table takes its name
            rows = [alter(B, RENAMED)]
            rows += rng.choice(([], [insert(RENAMED, "60", "renamed")]))
            rows += rng.choice(([], [alter(None, B), insert(B, "61", "new")]))
        if number == 1 and rng.random() < 0.6:  # made twice in one step, with other columns
            rows += [alter(None, D), alter(D, None), alter(None, OTHER), insert(OTHER, "70", "w")]
        if not rows:
            continue
        feed.commits(rows)
        _hold(tables, feed)
        held[1, feed.seq] = _copy(tables)
    return feed, held


def _copy(tables: dict[TableId, TargetTable]) -> dict[TableId, TargetTable]:
    return {i: TargetTable(t.columns, [dict(row) for row in t.rows]) for i, t in tables.items()}


def _hold(tables: dict[TableId, TargetTable], feed: Feed) -> None:
    """The newest commit, applied by hand."""
    *_, segment = segments(Ledger("bank"), list(feed.records), strict=True)
    rows = feed.read_rows(segment)
    at = -1
    for change in [*rows.ddl, None]:
        upto = len(feed.content) if change is None else change.ordinal
        between = {
            table: [c for c in all_of if at < c.ordinal < upto]
            for table, all_of in rows.changes.items()
        }
        target._apply_changes(tables, between, {})
        if change is not None:
            target._alter(tables, change)
        at = upto


class History:
    """Appliers over one lake."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.feed, self.held = feed_of(self.world)
        self.lake = LakeTarget(self.world)
        self.lake.lost_commits = self.world.rng.randint(0, 3)
        self.lake.on_commit = self._look
        self.crashes, self.more = self.world.rng.randint(0, 5), self.world.rng.randint(0, 4)
        self.made = self.looked = 0
        self.world.sources_of_moves.append(self._moves)

    def run(self) -> Violation | None:
        last = (self.feed.epoch, self.feed.n, self.feed.seq)
        while self.world.violation is None and self.world.steps < 4_000:
            ledger = self.lake.now.ledger
            if (ledger.epoch, ledger.n, ledger.seq) == last:
                break
            self.world.calm = self.world.steps > 600
            self.world.step()
        else:
            self.world.fail("progress", "the lake does not reach the end")
        self.world.end()
        return self.world.violation

    def _look(self, before: Database, after: Database) -> None:
        was, ledger = before.ledger, after.ledger
        self.looked += 1
        if (ledger.fence, ledger.n, ledger.seq) < (was.fence, was.n, was.seq):
            self.world.fail("lake", f"the ledger went back from {was} to {ledger}")
        if ledger.inexact or ledger.n < LOADED:
            return
        wanted = self.held[ledger.epoch, ledger.seq]
        for name, there in wanted.items():
            here = after.tables[name].content() if name in after.tables else None
            if here != there.content():
                self.world.fail("lake", f"{name} at {ledger.seq}: {here}, not {there.content()}")

    def _moves(self, out: list[Move]) -> None:
        alive = [a for a in self.world.actors if not a.is_over]
        if not alive or (self.more and len(alive) < 3 and not self.world.calm):
            out.append(Move(1.0 if not alive else 0.2, "an applier starts", self._start))
        if self.crashes and not self.world.calm:
            out.extend(Move(0.1, f"{a.name} crashes", lambda a=a: self._crash(a)) for a in alive)

    def _start(self) -> None:
        self.made += 1
        self.more = max(0, self.more - 1)
        self.world.actors.append(Actor(f"a{self.made}", self._apply))

    def _crash(self, actor: Actor) -> None:
        self.crashes -= 1
        actor.crash()

    def _apply(self, actor: Actor) -> None:
        """What `Applier` does, without Kafka."""
        sink, rng = self.lake.sink(actor), self.world.rng
        actor.park("begins")
        while sink.start() is None:
            pass
        while True:
            try:
                ledger = sink.ledger()
                size, apart = rng.choice([1, 3, 8, 50]), rng.random() < 0.3
                cuts = self.feed.read_cuts(ledger)
                for segment in segments(ledger, cuts, max_rows=size, ddl_apart=apart):
                    sink.step(segment, sink.stage(segment, self.feed.read_rows(segment)))
                actor.park("is idle", weight=0.2)
            except Fenced:
                return
            except ApplyError as error:
                if error.verdict.name != "RETRY":
                    self.world.fail("stop", str(error))
                    return


def _names_newest(self: core.LakeTransaction, before: Ledger, upto: Ledger) -> None:
    """The watermark names whatever is the newest version of each table."""
    for name, mark in self._named.items():
        head = self._tables.head(TableId(*name.split(".")))
        assert head is not None
        self._named[name] = replace(mark, version=head.id)
    _MOVE(self, before, upto)


def _leaves_all(self: SimMarks, first: int) -> list[core.Watermark]:
    """Name versions that may go, and leave the watermarks that name them."""
    return [mark for mark in self.target.server.marks if mark.number >= first]


_MOVE = core.LakeTransaction.move_ledger
WITHOUT = {
    "a table goes on from the version that the watermark names": edit(
        core.LakeTransaction, "_write", ("if head.content != base:", "if False:")
    ),
    "a version counts if it directly follows what it was built on": edit(
        core, "_followed", ("if not version.follows:", "if False:")
    ),
    "and so does one that an earlier attempt left": edit(
        core, "_is_done", ("head.follows and ", "")
    ),
    "a table's rows are written before schema changes that they are not joined over": edit(
        core.LakeTransaction, "_alter", ("self._flush(before.id)", "pass")
    ),
    "rows before a column that comes have what the change says": edit(
        core, "joined", ("{column.name: change for column in come}", "{}")
    ),
    "a column that comes is another one than that of its name which went": edit(
        core, "joined", ("c.name.casefold() in gone or ", "")
    ),
    "and not again at the end of the step": edit(
        core.LakeTransaction, "_flush", ("self._written.get(table, FIRST)", "FIRST")
    ),
    "a watermark names what its step wrote, not what is the newest": replaced(
        core.LakeTransaction, move_ledger=_names_newest
    ),
    "a watermark stands directly behind the one its step was built on": edit(
        LakeTarget, "publish", ("if before is not (marks[-1] if marks else None):", "if False:")
    ),
    "a version that was put back is named as the one that it repeats": edit(
        core.LakeTransaction, "_write", ("TableMark(head.content,", "TableMark(head.id,")
    ),
    "a table that is made twice in one step is made twice": edit(
        core.LakeTransaction, "_stamp", ("base = -made", "base = None")
    ),
    "nothing goes that a promised watermark names": edit(
        core, "oldest", ("out.setdefault(table.place,", "out.__setitem__(table.place,")
    ),
    "the last watermark before the promise is promised": edit(
        core, "promised", ("(last, first, 1 << 62)", "(first or last, 1 << 62)")
    ),
    "watermarks go before the versions that only they name": replaced(SimMarks, keep=_leaves_all),
    "of two who remove watermarks one fails": edit(
        LakeTarget, "keep", ("if before is not marks[-1]:", "if False:")
    ),
    "and as the one that it repeats where nothing was compacted": edit(
        core, "maintain", ("version.content", "version.id")
    ),
    "a head that nobody names is put back before it is compacted": edit(
        core, "maintain", ("if head.content != one.version:", "if False:")
    ),
    "a head moves to what was written only from where its writer saw it": edit(
        SimTables, "_move", ("if versions[-1].version != head:", "if False:")
    ),
}
# The first histories that notice it, where none of the first fifty does.
LATE = {
    "a version counts if it directly follows what it was built on": 108,
    "and so does one that an earlier attempt left": 158,
    "a version that was put back is named as the one that it repeats": 67,
    "of two who remove watermarks one fails": 143,
    "and as the one that it repeats where nothing was compacted": 102,
    "a head that nobody names is put back before it is compacted": 74,
    "a head moves to what was written only from where its writer saw it": 185,
}


def test_every_watermark_shows_the_source_at_one_commit() -> None:
    looked = 0
    for seed in range(SEEDS):
        history = History(seed)
        assert history.run() is None, "\n".join(history.world.trace[-80:])
        looked += history.looked

    assert looked > 10 * SEEDS


@pytest.mark.parametrize("rule", WITHOUT)
def test_a_rule_taken_away_is_noticed(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = LATE.get(rule, 0)
    seeds = range(first, first + 5 * SEEDS)
    found = noticed(rule, WITHOUT[rule], seeds, lambda seed: History(seed).run())
    with capsys.disabled():
        sys.stdout.write(found)
