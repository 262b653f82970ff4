"""An applier process: the real loop of `spark_consumers/job.py` on simulated reads.

`SimCuts` and `SimRows` mirror `CutReader` and `RangeReader` of `read.py`: the walk
through the acceptance function, the wait for the LSO, exact offsets, the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from schemas.accept import Walk
from schemas.control import Cut
from schemas.errors import Verdict
from spark_consumers.cuts import check_complete
from spark_consumers.errors import (
    ApplyError,
    CutsGap,
    Incomplete,
    RangeExpired,
    TopicReplaced,
)
from spark_consumers.job import Applier, Options
from spark_consumers.model import Ledger, Rows, Segment
from tests.sim.broker import Broker
from tests.sim.ports import CUTS, TOPICS, Framed
from tests.sim.target import SimSink, Target, changes_of
from tests.sim.world import Actor, World

PATIENCE = 40  # looks at an LSO that stays behind a stranger's transaction


class SimCuts:
    """Accepted records of cuts from the ledger's place to the LSO."""

    def __init__(self, actor: Actor, broker: Broker) -> None:
        self._actor, self._broker = actor, broker

    def __call__(self, ledger: Ledger) -> Iterator[tuple[int, Cut]]:
        self._actor.park("reads cuts")
        is_new = not ledger.instance
        if ledger.next_offset < self._broker.starts[CUTS] and not is_new:
            raise RangeExpired("cuts were deleted before they were applied")
        walk = (
            Walk.from_nobody()
            if is_new
            else Walk.resumed(
                n=ledger.n,
                epoch=ledger.epoch,
                seq=ledger.seq,
                writer=ledger.writer,
                instance=ledger.instance,
                resume=ledger.resume,
            )
        )
        seen = self._broker.read(CUTS, ledger.next_offset, self._broker.high(CUTS))
        for offset, entry in seen:
            if entry.value is None:
                continue
            if (cut := walk.follow(offset, entry.value)) is not None:
                yield offset, cut
        # One that does not follow may be a stranger's: the real reader doubts it for a while.
        if walk.suspect is not None and seen[-1][1].sender != "stranger":
            raise CutsGap(str(walk.suspect)) from walk.suspect


class SimRows:
    """Exactly the rows that a segment names."""

    waits = True
    counts = True

    def __init__(self, actor: Actor, broker: Broker) -> None:
        self._actor, self._broker = actor, broker

    def __call__(self, segment: Segment) -> Rows:
        broker = self._broker
        if not segment.ranges:
            return Rows({})
        if segment.upto.cluster_id != broker.cluster_id:
            raise TopicReplaced("another cluster")
        places = {(r.topic, r.partition) for r in segment.ranges}
        ends = {p: max(r.end for r in segment.ranges if r[:2] == p) for p in sorted(places)}
        is_committed = self._wait(ends)
        self._actor.park("reads rows")
        changes: dict[Any, list[Any]] = {}
        ddl: list[Any] = []
        found = 0
        for r in segment.ranges:
            if r.start < broker.starts[r.topic, r.partition]:
                raise RangeExpired("rows were deleted before they were applied", topic=r.topic)
            for _, entry in broker.read(
                (r.topic, r.partition), r.start, r.end, is_committed=is_committed
            ):
                found += 1
                if isinstance(entry.value, Framed):
                    ddl.append(entry.value.change)
                elif entry.value is not None:
                    changes.setdefault(entry.value.table, []).append(entry.value)
        if self.counts and found != sum(r.end - r.start for r in segment.ranges):
            raise Incomplete(f"{found} records are there")
        rows = Rows(
            {
                table: sorted(changes_of(values), key=lambda c: (c.seq, c.ordinal))
                for table, values in changes.items()
            },
            ddl,
        )
        if self.counts:
            check_complete(segment, rows)
        return rows

    def _wait(self, ends: dict[tuple[str, int], int]) -> bool:
        if not self.waits:
            return True
        tries = 0
        while any(self._broker.lso(place) < end for place, end in ends.items()):
            tries += 1
            if tries > PATIENCE:
                return False  # a visible cut proves that the decision was COMMIT
            self._actor.park("waits for the LSO of rows", weight=1.0)
        return True


@dataclass
class Consumers:
    """The rules in force; a mutation replaces one of them."""

    sink: type[SimSink] = SimSink
    rows: type[SimRows] = SimRows
    cuts: type[SimCuts] = SimCuts
    applier: type[Applier] = Applier


@dataclass
class ApplierProcess:
    """What the world may know of a running applier."""

    actor: Actor
    sink: SimSink | None = None
    ended: str = ""
    error: BaseException | None = None
    retries: list[str] = field(default_factory=list)


def make_applier(
    world: World,
    broker: Broker,
    target: Target,
    *,
    name: str,
    options: Options,
    parts: Consumers,
    on_end: Callable[[ApplierProcess], None],
) -> ApplierProcess:
    """A process that runs `gauss-cdc apply` until it crashes or must stop."""

    def body(actor: Actor) -> None:
        try:
            _run(actor, process)
        except Exception as error:  # noqa: BLE001  the world judges it
            process.ended, process.error = type(error).__name__, error
        finally:
            process.ended = process.ended or "crash"
            target.release(actor)
            on_end(process)

    def _run(actor: Actor, process: ApplierProcess) -> None:
        actor.park("begins")
        cuts: Callable[[Ledger], Iterable[tuple[int, Cut]]] = parts.cuts(actor, broker)
        process.sink = parts.sink(target, actor)
        applier = parts.applier(
            cuts,
            parts.rows(actor, broker),
            process.sink,
            options,
            pause=lambda _: actor.park("pauses", weight=0.5),
        )
        while True:
            seen = broker.lso(CUTS)
            try:
                applier.drain()
            except ApplyError as error:
                if error.verdict is not Verdict.RETRY:
                    raise
                process.retries.append(str(error))
                actor.park("comes back later", weight=0.3)
                continue
            version = target.version
            # A micro-batch: something came.  The target's own changes come by other appliers.
            actor.park(
                "waits for cuts",
                until=lambda s=seen, v=version: broker.lso(CUTS) > s or target.version != v,
            )

    process = ApplierProcess(Actor(name, body))
    return process


assert TOPICS.cuts == CUTS[0]
