"""One history: a world, its faults, and what became of it.

faulty phase   producers and appliers crash, are cut off, doubled and stopped;
               strangers and operators interfere, within budgets
calm phase     no more faults: everything must arrive within a bounded number of steps
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from producer.core.events import Limits
from producer.core.ports import ShutdownRequested, Tuning
from producer.errors import (
    CdcError,
    CutsBroken,
    Fenced,
    HistoryDiffers,
    SlotAhead,
    SlotMismatch,
    SlotMissing,
    SourceSwitched,
    TopicHeld,
)
from schemas.control import PENDING, Commits, Heartbeat, Start
from schemas.errors import Verdict
from spark_consumers.cuts.ledger import LATE
from spark_consumers.errors import CutsGap, RangeExpired
from spark_consumers.errors import Fenced as ApplierFenced
from spark_consumers.loop.job import PassOptions
from tests.sim.broker import Broker, Client
from tests.sim.checkers import ALWAYS, Oracle
from tests.sim.consumer import ApplierProcess, make_applier
from tests.sim.gauss import PGOUTPUT, STYLES, Decoding
from tests.sim.lake import LakeTarget
from tests.sim.native import Use
from tests.sim.ports import CUTS, TOPICS
from tests.sim.producer import Around, Plan, Process, make_producer
from tests.sim.registry import GARBAGE, Decoded, encode_cut
from tests.sim.source import Source, table_id
from tests.sim.target import Target
from tests.sim.tasks import small_parts
from tests.sim.world import Move, Violation, World

CALM_STEPS = 9_000  # the longest of 400 with six requests, and a lease in a folder, took 6,100
OFTEN = [Use.ALL, Use.ALL, Use.SWITCHING, Use.SWITCHING, *Use]
LATE_STEPS = 40  # between what a process saw last and its end


@dataclass
class Faults:
    """How much may go wrong; drawn from the seed unless a test says otherwise."""

    mode: str = "exact"  # exact | plain | mixed: how rows are sent
    use: str = "any"  # what of a producer is native
    transactions: int = 10
    lossy: bool = False
    steps: int = 400  # of the faulty phase
    producer_crashes: int = 2
    applier_crashes: int = 2
    second_producers: int = 1  # started while another one lives
    second_appliers: int = 1
    drops: int = 1
    timeouts: int = 0
    strangers: int = 0
    intruders: int = 0  # records of somebody else's in cuts
    aliens: int = 0
    stops: int = 0
    lost_offsets: int = 0
    lost_commits: int = 0
    freezes: int = 0  # appliers that stand still for a while; then there are leases
    jumps: int = 0  # times that the target's clock is set, forward or back
    restores: int = 0
    expiries: int = 0
    slot_faults: int = 0
    slow_markers: bool = False  # a decided transaction stays invisible for long
    silences: int = 0  # times for which the broker does not answer
    strange: bool = False  # messages come that nobody can decode
    unfit: bool = False  # some rows are larger than a topic takes
    ranges: bool = False  # tables are read beside the stream, not at points
    mends: bool = False  # who asks for a table names keys of it, mostly
    style: str = PGOUTPUT  # how the source is decoded
    late: bool = False  # the target begins where retention took the epoch's START
    pair: bool = False  # there is another one, from the first commit on
    lake: bool = False  # the target has versions of tables, and no transactions
    talks: bool = False  # logical messages are written
    hides: bool = False  # in the order of CSNs: some marks of windows are not sent
    adds: int = 0  # times that [tables] gets another table
    asks: int = 0  # re-reads that somebody asks for
    promotions: int = 0  # of a standby that has everything
    losses: int = 0  # of one that lacks the newest commits
    setbacks: int = 0  # crashes of the source: its slot is as it was written some time before
    copies: int = 0  # of the source's files, which take its place when it has gone on
    idles: int = 0  # times that its log grows and has no commit
    standby: bool = False  # the server that is read is one: it sends on when it is promoted
    joins: int = 0  # tables that appear and are not published by themselves
    removals: int = 0  # of a table whose load is to come
    renewals: int = 0  # of such a table, which is made again at once
    remakes: int = 0  # times that one is dropped, and made again unpublished
    hushes: int = 0  # times that the publication leaves a table out, and takes that back
    rewrites: int = 0  # times that rows are computed anew, or put into another file
    giants: bool = False  # most source transactions are large, and slow to come
    rush: bool = False  # second producers come while the first ones still start
    crash_at: str = ""  # where producers like to crash: what they are about to do
    freeze_at: str = ""  # and where appliers like to stand still

    @classmethod
    def drawn(cls, rng: Any) -> Faults:
        """All kinds of schedules."""

        def some(most: int, probability: float = 0.5) -> int:
            return rng.randint(1, most) if rng.random() < probability else 0

        return cls(
            mode=rng.choice(["exact", "exact", "plain", "mixed"]),
            transactions=rng.randint(4, 14),
            lossy=rng.random() < 0.15,
            steps=rng.randint(100, 500),
            producer_crashes=some(4, 0.8),
            applier_crashes=some(3, 0.6),
            second_producers=some(2),
            second_appliers=some(2),
            drops=some(2),
            timeouts=some(2, 0.2),
            strangers=some(2, 0.2),
            intruders=some(6, 0.3),
            aliens=some(2, 0.15),
            stops=some(1, 0.2),
            lost_offsets=some(1, 0.15),
            lost_commits=some(2, 0.4),
            restores=some(2, 0.3),
            expiries=some(4, 0.3),
            slot_faults=some(1, 0.12),
            silences=some(2, 0.2),
            slow_markers=rng.random() < 0.25,
            rush=rng.random() < 0.15,
            giants=rng.random() < 0.1,
            strange=rng.random() < 0.1,
            talks=rng.random() < 0.2,
        )


@dataclass
class Outcome:
    """What a history came to."""

    seed: int
    steps: int
    violation: Violation | None
    trace: list[str]
    looks: Counter[str]
    events: Counter[str] = field(default_factory=Counter)

    def unknown(self) -> list[str]:
        """Checkers that never looked."""
        return [name for name in ALWAYS if not self.looks[name]]


class Simulation:
    """Everything of one seed."""

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        overrides: dict[str, Any] | None = None,
    ) -> None:
        self.world = world = World(seed)
        # These are not drawn, so that other histories stay as they were.
        strange = {"unfit": seed % 10 == 7, "lake": seed % 4 == 3}
        if seed % 5 < 2:
            strange["style"] = [*STYLES][seed // 5 % len(STYLES)]
        strange["freezes"] = 3 if seed % 6 == 5 else 0
        strange |= {"ranges": seed % 3 == 1, "mends": seed % 6 == 4}
        strange |= {"late": seed % 8 == 6, "pair": seed % 16 in {6, 9}}
        strange["jumps"] = 3 if seed % 12 == 5 else 0
        strange["hides"] = seed % 3 == 1
        strange |= {"adds": int(seed % 5 == 2), "asks": seed % 3, "joins": int(seed % 5 == 3)}
        strange["setbacks"] = 2 * int(seed % 6 == 4)
        strange |= {"removals": int(seed % 7 == 6), "remakes": int(seed % 15 == 13)}
        strange |= {"hushes": 3 * int(seed % 6 == 2), "rewrites": 2 * int(seed % 6 == 5)}
        drawn = faults or replace(Faults.drawn(world.rng), **strange)
        self.faults = replace(drawn, **(overrides or {}))
        self.decoded = Decoded()
        self.source = Source(world, planned=self.faults.transactions, lossy=self.faults.lossy)
        self.source.giants = self.faults.giants
        self.source.strange = self.faults.strange
        self.source.is_standby = self.faults.standby
        self.source.unfit = self.faults.unfit
        if self.faults.ranges:
            self.source.read_in_ranges()
        self.source.drops = self.faults.drops
        self.source.drop_weight = 0.2 if self.faults.rush else 0.03
        if self.faults.style != PGOUTPUT:
            self.source.decoding = decoding = Decoding(self.faults.style)
            self.source.lags = decoding.by_windows
            self.source.hides = self.faults.hides and decoding.by_windows and decoding.by_csn
        self.source.talks = self.faults.talks and self.source.decoding is None
        topics = {TOPICS.cuts: 1, TOPICS.ddl: 1, TOPICS.message: 1}
        topics |= {TOPICS.table(t): 2 if t.name == "a" else 1 for t in self._tables()}
        self.broker = Broker(world, topics)
        self.broker.marker_weight = 0.06 if self.faults.slow_markers else 2.0
        self.broker.timeouts = self.faults.timeouts
        self.broker.lost_offsets = self.faults.lost_offsets
        self.target: Target = LakeTarget(world) if self.faults.lake else Target(world)
        self.target.lost_commits = self.faults.lost_commits
        self.target.has_leases = self.faults.freezes > 0
        # Retention goes by a late target as it is, not by a backup of it.
        is_restored = not (self.faults.lake or self.faults.late)
        self.target.restores = self.faults.restores if is_restored else 0
        self.oracle = Oracle(world, self.source, self.broker, self.decoded)
        self.source.limit = self._limit
        self.broker.on_fenced = self._fenced
        self.target.on_commit = self.oracle.applied
        self.oracle.keeps_rows = not self.faults.lake
        self.targets = [self.target]
        if self.faults.pair:
            self.faults.asks = max(3, self.faults.asks)
            other = Target(world, "second")
            other.on_commit = partial(self.oracle.applied, target=other.name)
            self.targets.append(other)
        self.events: Counter[str] = Counter()
        self.producers: list[Process] = []
        self.appliers: list[ApplierProcess] = []
        self._may_switch = False  # the last stop may be accepted without loading all
        self._gap_in = 0  # an epoch that cannot be gone on with
        self._touched: dict[str, int] | None = None  # the slot before somebody touched it
        self._has_run = False  # a producer came to its stream
        self._made = 0
        rng = world.rng
        self.limits = Limits(
            group_rows=rng.choice([3, 6, 20]),
            group_seconds=0.5,
            group_commits=rng.choice([1, 2, 4]),
            transaction_timeout=rng.choice([1.5, 6.0, 30.0]) if not self.faults.giants else 1.5,
            heartbeat_seconds=rng.choice([1.0, 5.0]),
            state_seconds=rng.choice([20.0, 500.0]),
            state_records=rng.choice([3, 8, 50]),
        )
        self.tuning = Tuning(
            buffer_bytes=rng.choice([100, 1_000, 100_000]),
            slice_messages=rng.choice([1, 3, 50]),
            chunk_rows=2,
            load_steps=(1, 3, 50)[world.seed % 3],
            rest_seconds=1.0,
            mark_seconds=5.0 if self.source.hides else 600.0,
        )
        world.sources_of_moves.append(self._moves)

    def _tables(self) -> list[Any]:
        return [table_id(name) for name in self.source.tables if name in self.source.captured]

    # ------------------------------------------------------------ run
    def run(self) -> Outcome:
        """Go through both phases; never raises for what the history does."""
        with small_parts(self.world.seed):
            return self._run()

    def _run(self) -> Outcome:
        world, oracle = self.world, self.oracle
        try:
            while world.violation is None and self._is_faulty():
                world.step()
            world.note("---- calm: no more faults")
            world.calm = True
            is_begun = self.target.now.ledger.instance or self._appliers_of(self.target)
            # What retention removed cannot be compared with what a restored source sends again.
            is_compared = not self.source.copies
            if self.faults.late and self.oracle.records and not is_begun and is_compared:
                self._expire()
            until = world.steps + CALM_STEPS * len(self.targets)
            self._has_run = True
            if self.target.was_restored:
                # An idle applier asks its target only when there is something to apply:
                # who restores a target starts `apply` again.
                for process in list(self.appliers):
                    process.actor.crash()
            while world.violation is None and not self._is_through():
                if world.steps > until:
                    world.fail("progress", self._why_stuck())
                world.step()
            if world.violation is None:
                oracle.at_the_end(
                    self.target,
                    counted={f"{p.actor.name}.{world.seed}": p.progress for p in self.producers},
                    is_exact=self.faults.mode == "exact",
                    is_thorough=world.seed % 5 == 0,
                )
                for other in self.targets[1:]:
                    oracle.target_at_the_end(other)
        finally:
            world.end()
        return Outcome(
            world.seed, world.steps, world.violation, world.trace, oracle.looks, self.events
        )

    def _limit(self) -> int:
        """How many transactions the source may have committed by now: most meet a stream."""
        planned, source = self.source.planned, self.source
        if not self._has_run:
            return min(7 if source.slot else 3, planned - 1)
        if not self.faults.ranges or self.world.calm or source.readers:
            return planned
        return 7 + (planned - 7) * self.world.steps // (3 * self.faults.steps)

    def _is_faulty(self) -> bool:
        """The first load is not the point: schedules are long enough to leave it behind."""
        self._has_run = self._has_run or any(p.has_streamed for p in self.producers)
        steps, limit = self.world.steps, self.faults.steps
        open_ = len(self.source.wal) < self.source.planned
        return steps < (3 * limit if open_ else limit)

    def _is_through(self) -> bool:
        """Everything has arrived, and who was replaced has left."""
        is_left_behind = self.target.has_leases and any(
            p.sink is not None and p.sink.is_left_behind for p in self.appliers
        )
        return all(map(self.oracle.is_through, self.targets)) and not is_left_behind

    def _why_stuck(self) -> str:
        actors = [f"{a.name} {a.label}" for a in self.world.actors]
        ledger = self.target.now.ledger
        actors += [str(other.now.ledger) for other in self.targets[1:]]
        return (
            f"cuts at {self.oracle.epoch}/{self.oracle.seq} n={self.oracle.n}, "
            f"target at {ledger.epoch}/{ledger.seq} n={ledger.n}, "
            f"source at {len(self.source.wal)} of {self.source.planned}; {actors}"
        )

    # ------------------------------------------------------------ what can happen besides
    def _moves(self, out: list[Move]) -> None:
        out.append(Move(0.25, "time passes", self._time))
        faults, calm = self.faults, self.world.calm
        producers = [p for p in self.producers if not p.plan.is_alien]
        if not producers:
            out.append(Move(1.0, "a producer is started", self._start_producer))
        elif not calm and faults.second_producers and len(producers) < 3:
            weight = 0.5 if faults.rush else 0.05
            out.append(Move(weight, "a second producer is started", self._second_producer))
        mine = self._appliers_of(self.target)
        for other in self.targets[1:]:
            if not self._appliers_of(other):
                start = partial(self._start_applier, other)
                out.append(Move(1.0, f"an applier of the {other.name} is started", start))
        if not mine and (not faults.late or calm or self.broker.starts[CUTS]):
            out.append(Move(1.0, "an applier is started", self._start_applier))
        elif not calm and faults.second_appliers and len(mine) < 2:
            out.append(Move(0.05, "a second applier is started", self._second_applier))
        if faults.late and (wanted := self._not_loaded()):
            ask = partial(self._ask, wanted)
            out.append(Move(1.0 if calm else 0.2, "a table of a late target is asked for", ask))
        if self.source.hushed:
            often = 1.0 if calm else 0.2
            out.append(Move(often, "a table is published again", self._speak_again))
        if calm:
            return
        alters = self._has_run and self.source.decoding is None
        alters = alters and bool(self._altered())
        if faults.hushes and alters and not self.source.hushed:
            out.append(Move(0.15, "the publication leaves a table out", self._hush))
        if faults.rewrites and alters:
            out.append(Move(0.1, "a table is written anew", self._rewrite))
        for p in self.producers:
            if faults.producer_crashes:
                weight = 0.06 if p.has_streamed else 0.01  # what a load is for comes after it
                if p.actor.label == faults.crash_at:
                    weight = 0.5
                out.append(Move(weight, f"{p.actor.name} crashes", lambda p=p: self._crash(p)))
            if faults.stops and not p.stop_asked:
                often = 0.1 if p.has_streamed else 0.02
                out.append(
                    Move(often, f"{p.actor.name} is asked to stop", lambda p=p: self._stop(p))
                )
        if faults.applier_crashes:
            out.extend(
                Move(0.04, f"{a.actor.name} crashes", lambda a=a: self._crash(a))
                for a in self.appliers
            )
        if faults.freezes:
            out.extend(
                Move(
                    2.0 if a.actor.label == faults.freeze_at else 0.05,
                    f"{a.actor.name} is frozen",
                    lambda a=a: self._freeze(a),
                )
                for a in self.appliers
                if a.sink is not None and self.world.now >= a.actor.frozen_until
            )
        if faults.jumps and self._has_run and not faults.lake:
            out.append(Move(0.1, "the target's clock is set", self._jump))
        if faults.strangers:
            out.append(Move(0.03, "a stranger opens a transaction", self._stranger))
        if faults.intruders and self.oracle.records:
            out.append(Move(0.1, "a stranger writes into cuts", self._intrude))
        if faults.aliens and self.oracle.epoch:
            out.append(Move(0.05, "a run for another source is started", self._alien))
        if faults.silences:
            out.append(Move(0.05, "the broker falls silent", self._silence))
        is_to_come = faults.late and not self.target.now.ledger.instance
        if faults.expiries and not (is_to_come and (mine or not self.oracle.records)):
            out.append(Move(0.05, "retention removes what nobody needs", self._expire))
        if faults.adds and self._has_run:
            out.append(Move(0.05, "[tables] gets another table", self._add_table))
        if (
            faults.joins
            and "y" not in self.source.tables
            and self._has_run
            and self.source.decoding is None
        ):
            out.append(Move(0.1, "a table is made", self._join))
        if faults.removals and self._may_remove():
            out.append(Move(1.0, "a table is dropped", self._remove))
        if faults.renewals and self._may_remove():
            out.append(Move(1.0, "a table is dropped and made again", self._renew))
        if faults.remakes and self._may_remake():
            out.append(Move(1.0, "a table is made again", self._remake))
        if faults.asks and self._has_run:
            out.append(Move(0.1, "somebody asks for a re-read", self._ask_for_some))
        if faults.promotions and self._has_run:
            out.append(Move(0.05, "a standby is promoted", lambda: self._promote(loses=False)))
        if faults.losses and self._has_run:
            out.append(Move(0.05, "a late standby is promoted", lambda: self._promote(loses=True)))
        if faults.setbacks and self._has_run and self.source.slot:
            out.append(Move(0.1, "the source crashes", self._set_back))
        if faults.copies and self._has_run and self.source.slot and self.oracle.is_loaded():
            out.append(Move(0.1, "the source is restored from a copy", self._restore))
        if faults.idles and self.oracle.epoch and not self.oracle.waiting():
            out.append(Move(1.0, "the source writes what is no commit", self._write_on))
        if faults.slot_faults and self.source.slot and self.source.owner is None:
            out.append(Move(0.1, "somebody touches the slot", self._touch_slot))

    def _appliers_of(self, target: Target) -> list[ApplierProcess]:
        return [process for process in self.appliers if process.target is target]

    def _add_table(self) -> None:
        """The configuration changes, and `run` is started again."""
        self.faults.adds -= 1
        self.source.captured.add("x")
        for process in [p for p in self.producers if not p.plan.is_alien]:
            process.actor.crash()

    def _may_remove(self) -> bool:
        """Say whether c waits for its load in the first epoch, and nobody holds it."""
        oracle, source = self.oracle, self.source
        if source.decoding is not None or list(oracle.epochs) != [1]:
            return False
        is_unbegun = (
            oracle.epochs[1].loads.get("c") == PENDING and "c" not in oracle.epochs[1].begun
        )
        is_last = bool(source.wal) and "c" in {name for name, *_ in source.wal[-1].expected}
        running = [p for p in self.producers if not p.ended]
        return (
            is_last
            and is_unbegun
            and "c" not in source.held
            and all(p.has_streamed for p in running)
        )

    def _remove(self) -> None:
        self.faults.removals -= 1
        self.source.remove("c")

    def _renew(self) -> None:
        self.faults.renewals -= 1
        self.source.make_again("c", is_published=self.world.seed % 2 > 0)

    def _join(self) -> None:
        self.faults.joins -= 1
        self.source.make_unpublished()

    def _hush(self) -> None:
        self.faults.hushes -= 1
        self.source.hush(self.world.rng.choice(self._altered()), is_on=True)

    def _speak_again(self) -> None:
        self.source.hush(min(self.source.hushed), is_on=False)

    def _rewrite(self) -> None:
        self.faults.rewrites -= 1
        name = self.world.rng.choice(self._altered())
        if self.world.chance(0.3):
            self.source.vacuum(name)
        elif name not in self.source.held:
            self.source.rewrite(name)

    def _altered(self) -> list[str]:
        """Tables that were loaded; one that is left out before that is hidden, or gone."""
        oracle = self.oracle
        loaded = oracle.epochs[oracle.epoch].ends.keys() if oracle.epoch else set()
        there = {"a", "b", "c", "x", "y"} & self.source.tables.keys() & loaded
        came = there & {"x", "y"}  # most of what happens to them comes soon
        return sorted(came if came and self.world.seed % 4 else there)

    def _may_remake(self) -> bool:
        """Say whether y waits for its load, and nobody holds it, as a first load does."""
        oracle, source = self.oracle, self.source
        if not oracle.epoch or "y" not in source.published - source.held:
            return False
        if not all(p.has_streamed for p in self.producers if not p.ended):
            return False
        epoch = oracle.epochs[oracle.epoch]
        return epoch.loads.get("y") == PENDING and "y" not in epoch.begun

    def _remake(self) -> None:
        self.faults.remakes -= 1
        self.source.remove("y")
        self.source.published.discard("y")
        self.source.make_unpublished()

    def _ask_for_some(self) -> None:
        self.faults.asks -= 1
        source = self.source
        self._ask("bbba" if source.reads_ranges else sorted(source.tables))

    def _not_loaded(self) -> list[str]:
        """Tables that a late target has nothing of, and nobody has asked for."""
        source, ledger = self.source, self.target.now.ledger
        names = {table.partition(".")[2] for table, why in ledger.inexact.items() if why == LATE}
        there = source.tables.keys() & source.published - source.hushed
        return sorted((names & there) - {name for name, *_ in source.asked.values()})

    def _ask(self, names: Sequence[str]) -> None:
        source = self.source
        source.requests += 1
        name = self.world.rng.choice(names)
        whose = ("", *(one.name for one in self.targets), "nobody")
        target = self.world.rng.choice(whose) if self.faults.pair else ""
        source.asked[source.requests] = name, source.end, target
        source.asked_of[name, source.end] = source.entries[name]
        if self.faults.mends and source.requests % 4:
            source.named[source.requests] = tuple((b"%d" % n,) for n in range(9))

    def _time(self) -> None:
        self.world.now += self.world.rng.choice([0.3, 1.0, 3.0, 8.0])

    def _start_producer(self, *, is_alien: bool = False) -> None:
        rng, mode = self.world.rng, self.faults.mode
        exact = rng.random() < 0.5 if mode == "mixed" else mode == "exact"
        accept_gap = self._gap_in == self.oracle.epoch > 0 and not is_alien
        use = rng.choice(OFTEN) if self.faults.use == "any" else Use(self.faults.use)
        # Not drawn, so that other histories stay as they were.
        switches = accept_gap and self._may_switch and self._made % 2 > 0
        plan = Plan(
            exact,
            accept_gap and not switches,
            switches,
            is_alien,
            use,
            self.limits,
            self.tuning,
            load_rate=(0, 1, 4)[self.world.seed % 5 % 3],
        )
        self._made += 1
        process = make_producer(
            Around(self.world, self.source, self.broker, self.decoded, self.oracle.believed),
            name=f"{'alien' if is_alien else 'p'}{self._made}",
            plan=plan,
            on_end=self._producer_ended,
        )
        self.producers.append(process)
        self.world.actors.append(process.actor)

    def _second_producer(self) -> None:
        self.faults.second_producers -= 1
        self._start_producer()

    def _alien(self) -> None:
        self.faults.aliens -= 1
        self._start_producer(is_alien=True)

    def _start_applier(self, target: Target | None = None) -> None:
        self._made += 1
        target = target or self.target
        rng = self.world.rng
        process = make_applier(
            self.world,
            self.broker,
            target,
            name=f"a{self._made}",
            options=PassOptions(
                rng.choice([1, 3, 8, 50]),
                rng.choice([0, 20, 100]),
                strict=rng.random() < 0.3,
                ddl_apart=not self.faults.lake or rng.random() < 0.3,
                together=rng.choice([1, 2, 5, 50]),
                target=target.name,
            ),
            ahead=rng.random() < 0.7,
            tasks=rng.choice([0, 1, 3, 3]),
            on_end=self._applier_ended,
        )
        self.appliers.append(process)
        self.world.actors.append(process.actor)

    def _second_applier(self) -> None:
        self.faults.second_appliers -= 1
        self._start_applier()

    def _crash(self, process: Process | ApplierProcess) -> None:
        if isinstance(process, Process):
            self.faults.producer_crashes -= 1
        else:
            self.faults.applier_crashes -= 1
        process.actor.crash()

    def _freeze(self, process: ApplierProcess) -> None:
        """It may wake before anybody takes its place; another one waits for that."""
        self.faults.freezes -= 1
        process.freeze(self.world.now + self.world.rng.choice([3.0, 20.0, 60.0]))
        if len(self.appliers) < 2:
            self._start_applier()

    def _jump(self) -> None:
        """Forward, whoever holds the lease seems to be silent; back, it holds for long."""
        self.faults.jumps -= 1
        by = self.world.rng.choice([-3600.0, -30.0, -5.0, 5.0, 30.0, 3600.0])
        self.target.skew += by
        for keeper in (a.sink.keeper for a in self.appliers if a.sink is not None and by > 0):
            if keeper is not None:
                keeper.seems_silent()

    def _stop(self, process: Process) -> None:
        self.faults.stops -= 1
        process.stop_asked = True

    def _stranger(self) -> None:
        self.faults.strangers -= 1
        places = [p for p in self.broker.logs if p[0] != TOPICS.ddl]
        self.broker.open_strange(CUTS if self.world.chance(0.6) else self.world.rng.choice(places))

    def _intrude(self) -> None:
        """Bytes that are no record, one of ours again, or one that looks like the next."""
        self.faults.intruders -= 1
        rng = self.world.rng
        _, cut = rng.choice(self.oracle.records)
        newest = self.oracle.records[-1][1].head
        far = rng.choice([30, 90])  # records on their way may be the next ones
        heads = (
            replace(newest, n=newest.n + far, writer=newest.writer + 3),
            replace(newest, n=newest.n + far, resume=1 << 40),
            replace(newest, n=newest.n - 1),
        )
        forged = (
            replace(cut, head=replace(cut.head, instance="nobody")),
            *(Heartbeat(head) for head in heads),
            *(Commits(head, (), ()) for head in heads),
            *((replace(cut, head=heads[0]),) if isinstance(cut, Start) else ()),
        )
        value = rng.choice((GARBAGE, *map(encode_cut, forged)))
        self.broker.write_strange(CUTS, value)

    def _silence(self) -> None:
        self.faults.silences -= 1
        self.broker.silent_until = self.world.now + self.world.rng.choice([3.0, 12.0, 40.0])

    def _promote(self, *, loses: bool) -> None:
        source, rng = self.source, self.world.rng
        lost = rng.randint(0, min(3, source.may_lose())) if loses else 0
        if loses:
            self.faults.losses -= 1
        else:
            self.faults.promotions -= 1
        keeps_slot = rng.random() < 0.8
        source.promote(lost, keeps_slot=keeps_slot, lag=rng.randrange(4))
        slot = "keeps its slot" if source.slot else "has no slot"
        self.world.note(f"it lacks {lost} transactions behind {source.wal_end}, and {slot}")

    def _set_back(self) -> None:
        self.faults.setbacks -= 1
        self.source.come_back(self.world.rng.randrange(12))
        self.world.note(f"its slot is at {self.source.slot}")

    def _restore(self) -> None:
        """An older copy of the source, that is behind every load, writes past what it was."""
        self.faults.copies -= 1
        source, rng = self.source, self.world.rng
        for process in [p for p in self.producers if not p.plan.is_alien]:
            process.actor.crash()
        behind, since = self.oracle.behind_loads()
        lost = min(self.oracle.waiting() + rng.randrange(4), source.may_lose(), behind)
        source.come_back(rng.randrange(4), lost=lost, since=since)
        if source.decoding is None and rng.random() < 0.3:
            source.put_slot()  # the copy had none, and an administrator makes it
        self.world.note(f"it lacks {lost} transactions behind {source.wal_end}; {source.slot}")
        while source.end <= self.oracle.resume and self.world.chance(0.95):
            source.commit_one()

    def _write_on(self) -> None:
        """The log grows, and nothing is committed."""
        self.faults.idles -= 1
        self.source.wal_end += 40

    def _touch_slot(self) -> None:
        self.faults.slot_faults -= 1
        kind = self.world.rng.choice(["advanced", "made again", "dropped"])
        self.world.note(f"the slot is {kind}")
        self._touched, self.source.slot = self.source.slot, None
        if kind != "dropped":
            self.source.put_slot()

    def _expire(self) -> None:
        """Retention as configured: it never passes what the target, or a backup, still needs."""
        self.faults.expiries -= 1
        broker, oldest = self.broker, self.target.oldest().ledger
        states = [o for o, cut in self.oracle.records if cut.head.state_from < 0]
        is_to_come = self.faults.late and not oldest.instance
        newest = max((o for o in states if o < broker.lso(CUTS)), default=0)
        needed = newest if is_to_come else oldest.next_offset
        others = [other.oldest().ledger.next_offset for other in self.targets[1:]]
        if others:  # a late one begins with a record of ours
            needed = max((o for o in states if o <= min([needed, *others])), default=0)
        keep: dict[Any, int] = {}
        known: dict[Any, int] = {}
        for offset, cut in self.oracle.records:
            for r in getattr(cut, "ranges", ()):
                place = r.topic, r.partition
                known[place] = max(known.get(place, 0), r.end)
                if offset >= needed:
                    keep[place] = min(keep.get(place, r.start), r.start)
        for place, end in known.items():
            if place[0] != TOPICS.ddl:
                broker.starts[place] = max(broker.starts[place], min(end, keep.get(place, end)))
        broker.starts[CUTS] = max(broker.starts[CUTS], min(newest, needed))

    # ------------------------------------------------------------ how processes end
    def _fenced(self, client: Client, by: Client | None) -> None:
        """Nobody may fence a producer that has its slot."""
        if by is None:
            return
        for process in self.producers:
            if process.delivery is None or process.delivery.client is not client:
                continue
            runs = process.has_streamed and process.connection is not None
            if runs and self.source.owner is process.connection:
                self.oracle.fail("kill", f"{by.name} fenced {client.name}, which was healthy")

    def _producer_ended(self, process: Process) -> None:
        self.producers.remove(process)
        self.events[f"producer {process.ended}"] += 1
        name, error = process.actor.name, process.error
        self.world.note(f"{name} ended: {process.ended} {error or ''}")
        if error is None or isinstance(error, ShutdownRequested):
            return
        if isinstance(error, CdcError) and error.verdict is Verdict.RETRY:
            return
        can = bool(self.faults.promotions or self.faults.losses)
        self._may_switch = can and isinstance(error, SourceSwitched | SlotMissing | SlotAhead)
        match error:
            case Fenced():
                right = bool(process.delivery and process.delivery.client.fenced_by)
            case SlotAhead():
                # The slot that it looked at may have been touched again since.
                slots = [slot for slot in (self.source.slot, self._touched) if slot is not None]
                right = any(slot["confirmed"] > self.oracle.resume for slot in slots)
                self._gap_in = self.oracle.epoch if right else self._gap_in
            case SlotMissing():
                right = self.source.slot is None
                self._gap_in = self.oracle.epoch if right else self._gap_in
            case CutsBroken():  # a stranger's record at the end might as well be one that was lost
                right = self.broker.is_strange(CUTS) or self._was_strange(
                    is_alien=process.plan.is_alien
                )
                self._gap_in = self.oracle.epoch if right else self._gap_in
            case TopicHeld():  # its end may have come since
                right = (
                    self.broker.lso(CUTS) < self.broker.high(CUTS)
                    or self.world.steps - self.broker.marked < LATE_STEPS
                    or any(t.client is None and CUTS in t.places for t in self.broker.transactions)
                )
            case HistoryDiffers():
                right = self.oracle.differs() or self.source.is_foreign
                self._gap_in = self.oracle.epoch if right else self._gap_in
            case SourceSwitched():
                right = process.plan.is_alien or self.oracle.has_lost_tail()
                right = right or (self.source.decoding is not None and self.oracle.has_moved())
                right = right or self.oracle.is_behind()
                self._gap_in = self.oracle.epoch if right else self._gap_in
            case SlotMismatch():
                right = process.plan.is_alien
            case CdcError():
                right = False
            case _:
                lines = traceback.format_exception(error)
                self.oracle.fail("code", f"{name}: {''.join(lines[-6:])}")
                return
        if not right:
            self.oracle.fail("false stop", f"{name} stops without a reason: {error}")

    def _was_strange(self, *, is_alien: bool) -> bool:
        """Say whether what follows a stranger's newest record came since it was read."""
        is_late = self.world.steps - self.broker.marked < LATE_STEPS
        # A run for another source stops in any case, and may have read long ago.
        is_late = is_late or is_alien
        return is_late and any(e.sender == "stranger" for e in self.broker.logs[CUTS])

    def _applier_ended(self, process: ApplierProcess) -> None:
        self.appliers.remove(process)
        self.events[f"applier {process.ended}"] += 1
        name, error = process.actor.name, process.error
        self.world.note(f"{name} ended: {process.ended} {error or ''}")
        if isinstance(error, ApplierFenced) and self.target.has_leases:
            keeper = process.sink and process.sink.keeper
            if process.sink is None or not process.sink.is_replaced:
                self.oracle.fail("kill", f"{name} leaves, and nobody is in its place: {error}")
            elif keeper and not keeper.was_silent and not self.target.was_restored:
                self.oracle.fail("kill", f"{name} was replaced, and never silent: {error}")
            return
        if error is None or isinstance(error, ApplierFenced):
            return
        is_strange = self.broker.is_strange(CUTS) or self._was_strange(is_alien=False)
        if isinstance(error, CutsGap) and is_strange:
            return  # what was forged might as well follow a record that was lost
        sink = process.sink
        is_late = sink and (sink.seen != process.target.version or sink.is_overtaken)
        if isinstance(error, RangeExpired) and is_late:
            return  # a late attempt: another applier was faster, and retention followed it
        lines = traceback.format_exception(error)
        self.oracle.fail("applier stop", f"{name}: {''.join(lines[-4:])}")


def simulate(seed: int, **how: Any) -> Outcome:
    """Run one history."""
    return Simulation(seed, **how).run()
