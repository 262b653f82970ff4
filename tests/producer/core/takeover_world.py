"""A small world in which takeovers are tried: one source, one log of cuts."""

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from producer.core.events import Records
from producer.core.takeover.promotion import Tail, tail_behind
from producer.core.takeover.takeover import (
    MadeSlot,
    Slot,
    Step,
    TakeoverRequest,
    TakeoverResult,
    take_over,
)
from producer.errors import (
    CdcError,
)
from schemas.accept import CutReplay, Record, replay_tail
from schemas.control import (
    CommitEntry,
    Commits,
    Head,
    Identity,
    Looked,
    Range,
    Start,
    Topic,
)
from schemas.topics import Topics

ACCOUNT, CUTS, DDL = "bank.public.account", "bank.cuts", "bank.ddl"
TOPICS = {name: Topic(f"id of {name}", 1) for name in (ACCOUNT, CUTS, DDL)}
IDENTITY = Identity("7000", 1, "bank", "gauss_cdc", "pgoutput", database_oid=16384)
WANTED = TakeoverRequest(IDENTITY, "content", "cluster", "me", DDL, is_ours=TOPICS.__contains__)
SLOT = Slot("pgoutput", "bank", 500)

T = TypeVar("T")


@dataclass
class World:
    """A source and a log that remember what was done to them, in order."""

    done: list[str] = field(default_factory=list)
    locks: list[bool] = field(default_factory=list)  # answers before the last, which is True
    takes: list[bool] = field(default_factory=list)
    makes: list[MadeSlot | None] = field(default_factory=list)
    the_slot: Slot | CdcError | None = SLOT
    made: MadeSlot = field(default_factory=lambda: MadeSlot(900, "snapshot-1"))
    records: list[tuple[int, Record]] = field(default_factory=list)
    first: int = 0
    undecided: int = 0  # offsets at the end that read_committed readers do not see yet
    highs: dict[str, int] = field(default_factory=lambda: {ACCOUNT: 10, CUTS: 0, DDL: 5})
    the_topics: dict[str, Topic] = field(default_factory=lambda: dict(TOPICS))
    started: list[Start] = field(default_factory=list)
    shapes: Records = ()  # written with START
    ends: dict[int, int] = field(default_factory=dict)  # of the server's former timelines
    tells_switches: bool = True
    shown_by: str = ""  # that the server lacks what was delivered

    @property
    def end(self) -> int:
        """High watermark of cuts: a marker follows the last record."""
        return max((offset + 2 for offset, _ in self.records), default=self.first)

    # -------------------------------------------------------- source
    def try_lock(self) -> bool:
        self.done.append("lock")
        return self.locks.pop(0) if self.locks else True

    def slot(self) -> Slot | None:
        self.done.append("slot")
        if isinstance(self.the_slot, CdcError):
            raise self.the_slot
        return self.the_slot

    def switch_point(self, timeline: int) -> int | None:
        return self.ends.get(timeline)

    def lacks(self, resume: int, xid: int) -> str:
        self.done.append(f"lacks {resume} {xid}")
        return self.shown_by

    def try_take(self) -> bool:
        self.done.append("take")
        return self.takes.pop(0) if self.takes else True

    def make_slot(self) -> MadeSlot | None:
        self.done.append("make")
        return self.makes.pop(0) if self.makes else self.made

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        self.done.append("captured")
        return ("public.account",)

    def looked(self, made: MadeSlot) -> Looked:
        return Looked(made.consistent_point, "1:2", {"16": "a"})

    # -------------------------------------------------------- log
    def bounds(self) -> tuple[int, int]:
        return self.first, self.end

    def lso(self) -> int:
        return self.end - self.undecided

    def _read(self, low: int, high: int) -> list[tuple[int, Record]]:
        return [(offset, cut) for offset, cut in self.records if low <= offset < high]

    def tail(self) -> CutReplay | None:
        self.done.append("tail")
        return replay_tail(self._read, self.first, self.lso())

    def tail_behind(self, position: int, replay: CutReplay) -> Tail:
        return tail_behind(
            self._read,
            self.first,
            self.lso(),
            position=position,
            replay=replay,
            names=Topics("bank"),
        )

    def topics(self, names: Collection[str] = ()) -> Mapping[str, Topic]:
        return {name: at for name, at in self.the_topics.items() if name in names or not names}

    def high_watermarks(self, topics: Mapping[str, Topic]) -> Mapping[str, Mapping[int, int]]:
        return {name: {0: self.highs[name]} for name in topics}

    def init_transactions(self) -> None:
        self.done.append("fence")

    def write_start(self, start: Start, shapes: Records = ()) -> int:
        self.done.append("START")
        self.started.append(start)
        self.shapes = shapes
        offset = self.end
        self.records.append((offset, start))
        return offset


def drive(
    steps: Generator[Step, None, T], on_wait: Callable[[Step], None] | None = None
) -> tuple[T, list[Step]]:
    """Run to the end; give the result and the steps that had to wait."""
    waited = []
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return end.value, waited
        if step.waits_for:
            waited.append(step)
            if on_wait is not None:
                on_wait(step)


def go(world: World, wanted: TakeoverRequest = WANTED, patience: int = 3) -> TakeoverResult:
    taken, _ = drive(take_over(world, world, wanted, patience=patience))
    return taken


def start(n: int, *, writer: int = 1, seq: int = 0, resume: int = 400) -> Start:
    head = Head(n, 1, writer, f"w{writer}", seq, resume, -1)
    return Start(head, IDENTITY, "content", "cluster", TOPICS, {"public.account": "END"})


def commits(n: int, seq: int, *, resume: int, end: int = 10, writer: int = 1) -> Commits:
    entry = CommitEntry(seq, 700 + seq, 5, resume - 10, resume, 0, 1, {0: 1})
    head = Head(n, 1, writer, f"w{writer}", seq, resume, 0)
    return Commits(head, (entry,), (Range(ACCOUNT, 0, end - 1, end),))


def running() -> World:
    """A prefix that was running, loaded, and has delivered one commit up to 500."""
    return World(records=[(0, start(1)), (2, commits(2, 1, resume=500))])


def other_identity(**other: object) -> TakeoverRequest:
    return replace(WANTED, identity=replace(IDENTITY, **other))
