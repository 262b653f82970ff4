"""A world that moves one step at a time, chosen by a seed.

Producers and appliers are the product's own code, which calls and blocks.  Each
runs in a thread of its own, but only ever one of them runs: it *parks* where it
touches the world, and goes on when the world picks it.  So any interleaving of
such steps can happen, a crash is an exception out of `park`, and one number
tells the whole schedule.

    loop:  gather what can happen (actors that may go on, moves of the broker, the
           source, the target, faults)  ->  the seed picks one  ->  the checkers look

Nothing sleeps and nobody looks at a clock: `now` is one more thing that moves.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import NamedTuple


class Crashed(BaseException):
    """The process of an actor ends here; only `finally` still runs, as with a kill."""


class Violation(Exception):
    """A checker said false, or unknown."""

    def __init__(self, checker: str, what: str) -> None:
        super().__init__(f"{checker}: {what}")
        self.checker, self.what = checker, what


class Move(NamedTuple):
    """Something that can happen next."""

    weight: float
    label: str
    do: Callable[[], object]


def _always() -> bool:
    return True


_here = threading.local()


class Whoever:
    """The actor that runs: what threads of one process share parks as the one that uses it."""

    def park(self, label: str, until: Callable[[], bool] = _always, weight: float = 4.0) -> None:
        actor: Actor = _here.actor
        actor.park(label, until, weight)


class Actor:
    """A process: code in a thread that runs only while the world waits for it."""

    def __init__(self, name: str, body: Callable[[Actor], None]) -> None:
        self.name = name
        self.label = "begins"
        self.until: Callable[[], bool] = _always
        self.weight = 4.0
        self.frozen_until = 0.0
        self.is_over = False
        self.is_doomed = False
        self.error: BaseException | None = None
        self._body = body
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread: threading.Thread | None = None

    def park(self, label: str, until: Callable[[], bool] = _always, weight: float = 4.0) -> None:
        """Let others go first; come back when picked and `until` holds.  Called by the actor."""
        self.label, self.until, self.weight = label, until, weight
        if self.is_doomed:
            raise Crashed
        self._back.release()
        self._go.acquire()
        if self.is_doomed:
            raise Crashed

    def resume(self) -> None:
        """Let the actor run until it parks again or ends.  Called by the world."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    def crash(self) -> None:
        """End the process where it stands."""
        if self._thread is None:
            self.resume()  # to its first park, so that its end is noticed like any other
        self.is_doomed = True
        if not self.is_over:
            self.resume()
        assert self.is_over, f"{self.name} survived its crash"

    def _run(self) -> None:
        _here.actor = self
        try:
            self._body(self)
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001  looked at by the world, in its thread
            self.error = error
        self.is_over = True
        self._back.release()


class World:
    """The scheduler: one seed, one history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.now = 1000.0
        self.steps = 0
        self.calm = False  # faults have stopped
        self.trace: list[str] = []
        self.actors: list[Actor] = []
        self.sources_of_moves: list[Callable[[list[Move]], None]] = []
        self.violation: Violation | None = None

    def note(self, text: str) -> None:
        """A line of the trace that is not a step."""
        self.trace.append(f"           {text}")

    def fail(self, checker: str, what: str) -> None:
        """A checker found something; the first one counts."""
        if self.violation is None:
            self.violation = Violation(checker, what)
            self.note(f"!! {checker}: {what}")

    def chance(self, probability: float) -> bool:
        """Throw a coin."""
        return self.rng.random() < probability

    def moves(self) -> list[Move]:
        """Everything that can happen next."""
        out = [
            Move(actor.weight, f"{actor.name} {actor.label}", actor.resume)
            for actor in self.actors
            if not actor.is_over and (self.calm or self.now >= actor.frozen_until) and actor.until()
        ]
        for source in self.sources_of_moves:
            source(out)
        return out

    def step(self) -> bool:
        """Do one of the possible moves; False if there is none."""
        moves = self.moves()
        if not moves:
            return False
        rng = self.rng
        at = rng.random() * sum(move.weight for move in moves)
        chosen = moves[-1]
        for move in moves:
            at -= move.weight
            if at < 0:
                chosen = move
                break
        self.steps += 1
        self.now += rng.random() * 0.2
        self.trace.append(f"{self.steps:5d} {self.now - 1000:6.1f}  {chosen.label}")
        chosen.do()
        self.actors = [actor for actor in self.actors if not actor.is_over]
        return True

    def end(self) -> None:
        """Let no thread stay behind."""
        for actor in self.actors:
            if not actor.is_over:
                actor.crash()
        self.actors.clear()
