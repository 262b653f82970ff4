"""Leases in the simulated world: the product's rules over a row, or a file, in memory.

The thread that renews is an actor of its own; it is frozen, and ends, with its process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from spark_consumers.errors import ApplyError, Fenced
from spark_consumers.sinks.lakes import lease as of_files
from spark_consumers.sinks.lakes.lease import FileLease
from spark_consumers.sinks.lease import RENEW, SILENCE, Keeper, Watched
from tests.sim.world import Actor, Whoever, World

if TYPE_CHECKING:
    from tests.sim.lake import LakeTarget
    from tests.sim.target import Target


class Taken(Protocol):
    """A lease that is asked for, and renewed."""

    name: str
    fence: int | None

    def take(self) -> bool: ...
    def renew(self) -> str: ...
    def close(self) -> None: ...


class SimKeeper(Keeper):
    """Renews by an actor."""

    def __init__(self, lease: Taken, world: World, actor: Actor, silence: float = SILENCE) -> None:
        super().__init__(lease, "bank", clock=lambda: world.now)
        self._silence = silence
        self.lease, self._world, self._process = lease, world, actor
        self._due = self.longest = 0.0
        self.actor = Actor(f"{actor.name}'s keeper", self._body)

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def may_start(self) -> bool:
        """Say whether the process holds the lease; ask for it where it does not."""
        if self.holds:
            return True
        if not self.lease.take():
            return False
        self.begin()
        return True

    def seems_silent(self) -> None:
        """The clock by which others look went forward."""
        self.longest = self._silence

    @property
    def was_silent(self) -> bool:
        """Say whether anybody may have taken its place."""
        return max(self.longest, self._world.now - self._renewed) >= self._silence

    def let_go(self) -> None:
        if not self.actor.is_over and self._is_held:
            self.actor.crash()
        self._is_held = False

    def begin(self) -> None:
        self._is_held, self._lost, self._renewed = True, None, self._world.now
        self.actor = Actor(f"{self._process.name}'s keeper", self._body)
        self._world.actors.append(self.actor)

    def close(self) -> None:
        """A process that ends says no good-bye where it was killed."""
        self.let_go()
        if not self._process.is_doomed:
            self.lease.close()

    def _body(self, actor: Actor) -> None:
        while True:
            actor.park("renews its lease", lambda: self._world.now >= self._due, weight=20)
            self._due = self._world.now + RENEW
            try:
                holder = self._lease.renew()
                self.longest = max(self.longest, self._world.now - self._renewed)
                self.heard(holder)
            except Fenced:
                return
            except ApplyError:
                continue


@dataclass
class Row:
    """The lease as the server has it."""

    holder: RowLease | None = None
    expires: float = 0.0  # by the server's clock
    renewals: int = 0


class RowLease:
    """What the SQL of a PostgreSQL target does, by the server's clock, which may be set."""

    def __init__(self, target: Target, actor: Actor) -> None:
        self.name, self.actor, self._target = actor.name, actor, target
        self.fence: int | None = None
        self._watched = Watched()
        self._refused = 0, 0.0  # at which renewal of another one, and since when

    def take(self) -> bool:
        asked = self._target.world.now
        self.actor.park("asks for the lease")
        target, row = self._target, self._target.lease
        older = row.holder
        if older is not None and older is not self:
            is_free = older.actor.is_over or target.clock >= row.expires
            stands = self._watched.seconds((older.name, row.expires), asked, target.world.now)
            if not is_free and stands <= SILENCE:
                self._wait(row, asked)
                return False
            if target.world.chance(0.7):  # else the role may not end its session
                target.release(older.actor)
        self._renew(row)
        return True

    def renew(self) -> str:
        row = self._target.lease
        if row.holder is self:
            self._renew(row)
        return row.holder.name if row.holder is not None else ""

    def close(self) -> None:
        if self._target.lease.holder is self:
            self._target.lease.holder = None

    def _wait(self, row: Row, asked: float) -> None:
        """The checker: nobody waits for long for one that is silent."""
        if row.renewals != self._refused[0]:
            self._refused = row.renewals, self._target.world.now
        elif (waits := asked - self._refused[1]) > SILENCE:
            self._target.world.fail("lease", f"{self.name} waits {waits:.1f} s for a silent one")

    def _renew(self, row: Row) -> None:
        row.holder, row.expires = self, self._target.clock + SILENCE
        row.renewals += 1


class SimFile:
    """The file of a lake's lease: others act between any two calls.

    A folder shows a file that is being written as an empty one; a store of objects does not.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._is_in_folder = target.world.seed % 3 == 0

    def read(self) -> str:
        Whoever().park("looks at the lease")
        text = self._target.file
        Whoever().park("has looked at the lease")
        return text

    def write(self, text: str) -> None:
        Whoever().park("writes the lease")
        if self._is_in_folder:
            self._target.file = ""
            Whoever().park("has emptied the lease")
        self._target.file = text


def file_keeper(target: LakeTarget, actor: Actor) -> SimKeeper:
    """The lease of a lake."""
    world = target.world
    lease = FileLease(SimFile(target), "bank", target.newest_fence, clock=lambda: world.now)
    lease.name = actor.name
    return SimKeeper(lease, world, actor, silence=of_files.SILENCE)
