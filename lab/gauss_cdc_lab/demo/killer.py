"""Kills `run`, `apply` and the broker while everything works, and starts them again.

Moments come from a seed.  A kill may wait a little for a step of the protocol
that has not been hit yet, so that short steps have their turn too; what counts
is the step found after the death, which is the one it really fell in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import LocalServices

# Steps worth dying in; the others come by themselves.
RUN_STEPS: Final = (
    "run: cut written, not committed",
    "run: rows sent",
    "run: cut durable, not confirmed",
    "run: waiting for acknowledgements",
    "run: confirmed",
    "run: read",
)
APPLY_STEPS: Final = (
    "ledger moved",
    "rows applied",
    "read rows",
    "ledger locked",
    "committed",
    "read cuts",
)
# In the first one tables are written.
LAKE_STEPS: Final = ("ledger locked", "rows applied", "ledger moved")
_LAKE_WRITES: Final = 6  # a write of Iceberg is three: a branch, rows, and the move of `main`
_LAKE_PAUSE: Final = 0.005
_WRITES_PAUSE: Final = 0.05
_HUNT_SECONDS: Final = 3.0
_HUNT_PAUSE: Final = 0.0003
_READY_SECONDS: Final = 60.0
_DOWN_SECONDS: Final = 1.0  # longest time a victim stays dead


@dataclass(frozen=True, slots=True)
class Kill:
    """One death."""

    number: int
    victim: str
    step: str
    after: float  # seconds since the first kill could come
    samples: int  # of the target, taken before it

    def __str__(self) -> str:
        if self.victim == "broker":
            return f"killed the broker: {self.step}"
        return f"killed {self.victim} in step '{self.step}'"


@dataclass(slots=True)
class Deaths:
    """What was killed so far."""

    kills: list[Kill] = field(default_factory=list)
    failure: BaseException | None = None


def victims(kills: int, random: Random) -> list[str]:
    """Who dies, in which order: two times run, two times apply, one time the broker, and so on."""
    order: list[str] = []
    while len(order) < kills:
        turn = ["run", "apply", "broker"] if kills - len(order) < 5 else []
        turn = turn or ["run", "apply", "broker", "run", "apply"]
        random.shuffle(turn)
        order += turn
    return order[:kills]


class Killer:
    """A thread that does one kill after the other."""

    def __init__(
        self,
        services: LocalServices,
        programs: Sequence[Program],
        *,
        kills: int,
        seconds: float,
        seed: int,
        samples: Callable[[], int],
        on_kill: Callable[[Kill], None],
        on_return: Callable[[Kill, float], None],
        writes: Callable[[], int] | None = None,
    ) -> None:
        """`writes` counts what a lake's tables were given: its steps are hunted by events."""
        self._services = services
        self._programs = {program.name: program for program in programs}
        self._samples, self._on_kill, self._on_return = samples, on_kill, on_return
        random = Random(f"{seed}/kills")  # noqa: S311  a seed
        self._random = random
        self._victims = victims(kills, random)
        each = seconds / max(1, kills)
        self._moments = [(at + random.uniform(0.2, 0.8)) * each for at in range(kills)]
        self._writes = writes
        self._hunted: dict[str, list[str]] = {"run": [], "apply": []}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)
        self.deaths = Deaths()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop killing; dead processes may stay so."""
        self._stop.set()
        if self._thread.ident is None:
            return
        while self._thread.is_alive():
            if self._services.process("kafka") is not None and self._is_starting:
                self._services.kill("kafka")
            self._thread.join(0.2)

    _is_starting = False

    @property
    def is_done(self) -> bool:
        """Whether all kills are done and their victims live again."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            for number, (moment, victim) in enumerate(
                zip(self._moments, self._victims, strict=True), 1
            ):
                if self._stop.wait(max(0.0, began + moment - time.monotonic())):
                    return
                self._kill(number, victim, began)
        except Exception as error:  # noqa: BLE001  reported by the main thread
            if not self._stop.is_set():
                self.deaths.failure = error

    def _kill(self, number: int, victim: str, began: float) -> None:
        if victim == "broker":
            run, apply = (self._programs[name].step() or "starting" for name in ("run", "apply"))
            self._services.kill("kafka")
            step = f"run was in '{run}', apply in '{apply}'"
        else:
            program = self._programs[victim]
            self._hunt(program)
            step = program.kill() or "before its first step"
        kill = Kill(number, victim, step, time.monotonic() - began, self._samples())
        self.deaths.kills.append(kill)
        self._on_kill(kill)
        if self._stop.wait(self._random.uniform(0, _DOWN_SECONDS)):
            return
        if victim == "broker":
            self._is_starting = True
            self._services.start("kafka")
            self._is_starting = False
        else:
            self._programs[victim].start()
        self._on_return(kill, time.monotonic() - began - kill.after)

    def _hunt(self, program: Program) -> None:
        """Wait until it works again, and a little for a step that has not been hit yet."""
        if program.name == "apply" and self._writes is not None:
            self._hunt_lake(program, self._writes)
            return
        is_ready = False
        ready_by = time.monotonic() + _READY_SECONDS
        while not is_ready and time.monotonic() < ready_by and not self._stop.wait(0.02):
            step = program.step()
            is_ready = bool(step) and not step.startswith("start: ")
        wanted = self._next(program, RUN_STEPS if program.name == "run" else APPLY_STEPS)
        until = time.monotonic() + _HUNT_SECONDS
        while time.monotonic() < until and not self._stop.is_set():
            if program.step() == wanted:
                return
            time.sleep(_HUNT_PAUSE)

    def _hunt_lake(self, program: Program, writes: Callable[[], int]) -> None:
        """Wait until some tables are written, or all, or the watermark, however long it takes.

        A step takes longer than kills lie apart: who dies each time in its middle never ends one.
        Each third time it dies behind its end.
        """
        wanted = self._next(program, LAKE_STEPS)
        while program.step() != wanted:
            if self._stop.wait(_LAKE_PAUSE):
                return
        enough = writes() + self._random.randint(1, _LAKE_WRITES)
        while wanted == LAKE_STEPS[0] == program.step() and writes() < enough:
            if self._stop.wait(_WRITES_PAUSE):
                return

    def _next(self, program: Program, steps: Sequence[str]) -> str:
        """Return a step that this program has not died in since all had their turn."""
        hunted = self._hunted[program.name]
        if len(hunted) == len(steps):
            hunted.clear()
        wanted = next(step for step in steps if step not in hunted)
        hunted.append(wanted)
        return wanted


def by_step(kills: Sequence[Kill]) -> dict[str, int]:
    """How many kills fell into which step."""
    found: dict[str, Any] = {}
    for kill in kills:
        name = "broker" if kill.victim == "broker" else f"{kill.victim}: {kill.step}"
        name = name.replace("run: run: ", "run: ")
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))
