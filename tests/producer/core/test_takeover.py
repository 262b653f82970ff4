"""Takeovers, step by step, against a small world: one source, one log of cuts."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from producer.core.events import Records
from producer.core.promotion import Tail, tail_behind
from producer.core.takeover import (
    MadeSlot,
    Slot,
    Step,
    TakeoverRequest,
    TakeoverResult,
    foresee,
    is_same_content,
    take_over,
    take_slot,
)
from producer.errors import (
    CdcError,
    ConnectionLost,
    ContentChanged,
    CutsBroken,
    GroupUnusable,
    SlotAhead,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SlotOrphaned,
    SourceSwitched,
    TopicHeld,
    TopicReplaced,
    Unsupported,
)
from schemas.accept import CutReplay, Foreign, Record, replay_tail
from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    Head,
    Heartbeat,
    Identity,
    LoadPhase,
    Prev,
    Range,
    Start,
    TableLoad,
    Topic,
)
from schemas.tables import TableId
from schemas.topics import Topics

ACCOUNT, CUTS, DDL = "bank.public.account", "bank.cuts", "bank.ddl"
TOPICS = {name: Topic(f"id of {name}", 1) for name in (ACCOUNT, CUTS, DDL)}
IDENTITY = Identity("7000", 1, "bank", "gauss_cdc", "pgoutput")
WANTED = TakeoverRequest(IDENTITY, "content", "cluster", "me", DDL)
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

    def topics(self) -> Mapping[str, tuple[Topic, Mapping[int, int]]]:
        return {name: (topic, {0: self.highs[name]}) for name, topic in self.the_topics.items()}

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


# ---------------------------------------------------------------- the ordinary start
def test_an_ordinary_start_locks_takes_the_slot_compares_fences_compares_again_and_writes() -> None:
    world = running()

    taken = go(world)

    kept = [what for what in world.done if what != "slot"]
    assert kept == ["lock", "tail", "take", "tail", "fence", "tail", "START"]
    (wrote,) = world.started
    assert wrote.head == Head(3, 1, 2, "me", 1, 500, -1)
    assert wrote.prev is None
    assert wrote.loads == {"public.account": "END"}
    assert taken.writer_state.state_from == 4
    assert taken.known == {490: 701}
    assert taken.made is None


def test_confirmed_flush_is_read_when_the_slot_is_ours_and_before_the_tail_is_compared() -> None:
    world = running()

    go(world)

    taken_at = world.done.index("take")
    assert world.done[taken_at + 1 : taken_at + 3] == ["slot", "tail"]


def test_steps_say_what_they_wait_for() -> None:
    world = running()
    world.locks, world.takes = [False], [False, False]

    _, waited = drive(take_over(world, world, WANTED))

    assert [step.name for step in waited] == ["lock", "take slot", "take slot"]
    assert "another run holds the lock" in waited[0].waits_for
    assert "pg_stat_replication" in waited[1].waits_for
    assert "START" in world.done


@pytest.mark.parametrize("is_first", [True, False])
def test_the_fence_is_announced_since_it_may_take_long(is_first: bool) -> None:
    world = World(highs=dict.fromkeys(TOPICS, 0)) if is_first else running()

    (step,) = (step for step in take_over(world, world, WANTED) if step.says)

    assert step.name == "fence"
    assert "30 s" in step.says


# ---------------------------------------------------------------- what differs
def other_identity(**other: object) -> TakeoverRequest:
    return replace(WANTED, identity=replace(IDENTITY, **other))


DIFFERENCES: list[tuple[str, type[CdcError], Callable[[World], TakeoverRequest | None]]] = []


def difference(
    error: type[CdcError],
) -> Callable[[Callable[[World], TakeoverRequest | None]], None]:
    def note(change: Callable[[World], TakeoverRequest | None]) -> None:
        DIFFERENCES.append((change.__name__, error, change))

    return note


@difference(SlotMissing)
def the_slot_is_missing(world: World) -> None:
    world.the_slot = None


@difference(SlotMismatch)
def the_slot_is_of_another_plugin(world: World) -> None:
    world.the_slot = replace(SLOT, plugin="test_decoding")


@difference(SlotMismatch)
def the_slot_is_of_another_database(world: World) -> None:
    world.the_slot = replace(SLOT, database="shop")


@difference(SlotInvalid)
def the_server_gave_the_slot_up(world: World) -> None:
    world.the_slot = replace(SLOT, invalid="wal_removed")


@difference(SlotAhead)
def the_slot_is_ahead_of_our_last_cut(world: World) -> None:
    world.the_slot = replace(SLOT, confirmed=501)


@difference(SourceSwitched)
def the_server_is_another_one(world: World) -> TakeoverRequest:
    return other_identity(system_id="7001")


@difference(SourceSwitched)
def the_server_was_promoted(world: World) -> TakeoverRequest:
    return other_identity(timeline=2)


@difference(SourceSwitched)
def the_server_is_another_one_and_has_no_such_slot(world: World) -> TakeoverRequest:
    world.the_slot = None
    return other_identity(system_id="7001")


@difference(SlotMismatch)
def the_slot_has_another_name(world: World) -> TakeoverRequest:
    return other_identity(slot="other")


@difference(TopicReplaced)
def the_cluster_is_another_one(world: World) -> TakeoverRequest:
    return replace(WANTED, cluster_id="other")


@difference(TopicReplaced)
def a_topic_was_deleted(world: World) -> None:
    del world.the_topics[ACCOUNT]


@difference(TopicReplaced)
def a_topic_was_made_again(world: World) -> None:
    world.the_topics[ACCOUNT] = Topic("another id", 1)


@difference(TopicReplaced)
def partitions_were_added(world: World) -> None:
    world.the_topics[ACCOUNT] = replace(TOPICS[ACCOUNT], partitions=2)


@difference(SlotOrphaned)
def the_slots_database_was_dropped(world: World) -> None:
    world.the_slot = SlotOrphaned("the slot's database was dropped", hint="load again")


@difference(TopicReplaced)
def the_cluster_lost_its_tail(world: World) -> None:
    world.highs[ACCOUNT] = 9


@difference(ContentChanged)
def tables_or_filters_differ(world: World) -> TakeoverRequest:
    return replace(WANTED, fingerprint="other")


@difference(CutsBroken)
def a_record_of_cuts_was_lost(world: World) -> None:
    world.records.append((4, commits(4, 3, resume=700)))


@pytest.mark.parametrize(
    ("error", "change"),
    [pytest.param(error, change, id=name) for name, error, change in DIFFERENCES],
)
def test_a_difference_stops_before_anything_is_fenced(
    error: type[CdcError], change: Callable[[World], TakeoverRequest | None]
) -> None:
    world = running()
    wanted = change(world) or WANTED

    with pytest.raises(error) as caught:
        go(world, wanted)

    assert type(caught.value) is error
    assert caught.value.hint
    assert "fence" not in world.done
    assert "make" not in world.done
    assert not world.started


@pytest.mark.parametrize(
    "change",
    [pytest.param(change, id=name) for name, _, change in DIFFERENCES],
)
def test_accept_gap_opens_a_new_epoch_that_says_why(
    change: Callable[[World], TakeoverRequest | None],
) -> None:
    world = running()
    wanted = replace(change(world) or WANTED, accept_gap=True)

    taken = go(world, wanted)

    (wrote,) = world.started
    assert wrote.head == Head(3, 2, 2, "me", 0, 900, -1)
    assert (wrote.prev, wrote.continues) == (Prev(1, 1, 2), False)
    assert wrote.reason
    assert wrote.loads == {"public.account": "PENDING"}
    assert taken.made == MadeSlot(900, "snapshot-1")
    assert world.done.index("fence") < world.done.index("make") < world.done.index("START")


def test_accept_gap_takes_no_lost_connection_for_a_gap() -> None:
    world = running()
    world.the_slot = ConnectionLost("the connection broke")

    with pytest.raises(ConnectionLost):
        go(world, replace(WANTED, accept_gap=True))
    assert not world.started


def test_accept_gap_loads_again_also_where_nothing_differs_here() -> None:
    """The stop may come from a reader or from the stream."""
    world = running()

    go(world, replace(WANTED, accept_gap=True))

    (wrote,) = world.started
    assert (wrote.head.epoch, wrote.prev, wrote.continues) == (2, Prev(1, 1, 2), False)
    assert wrote.reason == "asked for by --accept-gap"
    assert "make" in world.done


def test_accept_gap_goes_on_where_the_cuts_are_gone() -> None:
    world = World(first=40)

    go(world, replace(WANTED, accept_gap=True, newest_epoch=77))

    (wrote,) = world.started
    assert (wrote.head.n, wrote.head.epoch, wrote.prev) == (1, 78, Prev(77, 0, 0))
    assert wrote.continues is False


@pytest.mark.parametrize(("newest", "epoch"), [(77, 6), (4, 5)])
def test_accept_gap_opens_no_epoch_that_readers_have_left(newest: int, epoch: int) -> None:
    """Retention left an old START, written again by somebody, as the first one [H42]."""
    world = World(first=40, records=[(40, start(1))])
    beat = Head(9, 5, 3, "w3", 4, 700, -1)
    world.records += [(42, Heartbeat(beat)), (44, Heartbeat(beat))]

    go(world, replace(WANTED, accept_gap=True, newest_epoch=newest))

    (wrote,) = world.started
    assert (wrote.head.epoch, wrote.continues) == (epoch, False)


@pytest.mark.parametrize(
    "forged",
    [
        Foreign("7 bytes are not a record"),
        Heartbeat(Head(2, 1, 1, "nobody", 1, 1 << 60, 0)),
        start(2, writer=1),
    ],
)
def test_what_is_not_ours_in_cuts_does_not_stop_a_start(forged: Record) -> None:
    world = running()
    right = go(world).writer_state.head
    world = running()
    world.records.append((world.end, forged))

    assert go(world).writer_state.head == right


# ---------------------------------------------------------------- promotions
def promoted(*records: tuple[int, Record], at: int = 600) -> World:
    """Timeline 2 left timeline 1 at a position; `records` came behind what `running` has."""
    world = running()
    world.records.extend(records)
    world.ends = {1: at}
    return world


ON_TIMELINE_2 = replace(WANTED, identity=replace(IDENTITY, timeline=2))


def test_a_promoted_server_that_has_everything_is_gone_on_with_in_an_epoch_of_its_own() -> None:
    world = promoted()
    told: list[Start] = []

    def restate(start: Start) -> Records:
        told.append(start)
        return [(DDL, 0, b"account", b"its shape", [])]

    taken, _ = drive(take_over(world, world, ON_TIMELINE_2, restate=restate))

    (wrote,) = world.started
    assert told == [wrote]
    assert wrote.head == Head(3, 2, 2, "me", 0, 500, -1)
    assert (wrote.prev, wrote.continues) == (Prev(1, 1, 2), True)
    assert wrote.reason == "the source was promoted: timeline 1 ends at 0/258"
    assert wrote.identity.timeline == 2
    assert wrote.loads == {"public.account": "END"}
    assert world.shapes == [(DDL, 0, b"account", b"its shape", [])]
    assert (taken.continues, taken.made) == (True, None)
    assert "make" not in world.done


def test_an_idle_position_behind_the_switch_point_is_taken_back() -> None:
    world = promoted((4, Heartbeat(Head(2, 1, 1, "w1", 1, 650, 0))))

    go(world, ON_TIMELINE_2)

    assert world.started[0].head.resume == 600


def loaded_at(position: int) -> TableLoad:
    head = Head(3, 1, 1, "w1", 1, position, 0)
    return TableLoad(head, TableId("public", "account"), LoadPhase.BEGIN, as_of=position)


@pytest.mark.parametrize(
    ("lost", "tables"),
    [
        (commits(3, 2, resume=700), "public.account"),
        (loaded_at(650), "public.account"),
        (replace(commits(3, 2, resume=700), ranges=(Range("other.a.b", 0, 3, 4),)), "any"),
    ],
    ids=["a commit", "a re-read", "a commit of nobody knows what"],
)
def test_a_lost_tail_stops_and_names_its_tables(lost: Cut, tables: str) -> None:
    world = promoted((4, lost))

    with pytest.raises(SourceSwitched, match="lacks commits that were delivered") as caught:
        go(world, ON_TIMELINE_2)

    assert caught.value.where["tables"] == tables
    assert caught.value.where["switch_point"] == 600
    assert "fence" not in world.done


def test_a_lost_tail_is_found_behind_records_that_lost_nothing() -> None:
    world = promoted((4, commits(3, 2, resume=700)), (6, Heartbeat(Head(3, 1, 1, "w1", 2, 760, 0))))

    with pytest.raises(SourceSwitched, match="lacks commits that were delivered"):
        go(world, ON_TIMELINE_2)


def test_a_record_that_a_stranger_wrote_again_hides_no_lost_tail() -> None:
    world = promoted((4, commits(3, 2, resume=700)), (6, commits(2, 1, resume=500)))

    with pytest.raises(SourceSwitched, match="lacks commits that were delivered"):
        go(world, ON_TIMELINE_2)


def test_a_record_that_a_stranger_wrote_again_of_another_epoch_stops_no_promotion() -> None:
    old = replace(start(1), head=replace(start(1).head, epoch=0, n=0))
    world = promoted((4, old))

    go(world, ON_TIMELINE_2)

    assert world.started[0].head.epoch == 2


def test_records_before_the_lost_tail_that_expired_stop_it_for_all_tables() -> None:
    world = World(records=[(40, start(1)), (42, commits(2, 1, resume=500))], first=40)
    world.ends = {1: 399}

    with pytest.raises(SourceSwitched) as caught:
        go(world, ON_TIMELINE_2)

    assert caught.value.where["tables"] == "any"


def test_a_promoted_server_without_the_slot_says_that_it_is_missing() -> None:
    world = promoted()
    world.the_slot = None

    with pytest.raises(SlotMissing):
        go(world, ON_TIMELINE_2)


def test_accept_switch_goes_on_without_a_lost_tail_and_notes_its_tables() -> None:
    world = promoted((4, commits(3, 2, resume=700)))

    taken = go(world, replace(ON_TIMELINE_2, accept_switch=True))

    (wrote,) = world.started
    assert (wrote.head.epoch, wrote.head.resume, wrote.continues) == (2, 600, True)
    assert wrote.loads == {"public.account": "GAP"}
    assert (taken.made, taken.continues) == (None, True)


@pytest.mark.parametrize(
    "slot", [None, replace(SLOT, invalid="wal_removed"), replace(SLOT, confirmed=501)]
)
def test_accept_switch_goes_on_by_a_new_slot_and_notes_every_table(slot: Slot | None) -> None:
    world = running()
    world.the_slot, wanted = slot, replace(WANTED, accept_switch=True)
    steps = take_over(world, world, wanted)
    for step in steps:
        if step.name == "take slot":
            world.the_slot = replace(SLOT, confirmed=900)

    (wrote,) = world.started
    assert (wrote.head.epoch, wrote.head.resume, wrote.continues) == (2, 900, True)
    assert wrote.loads == {"public.account": "GAP"}
    kept = [what for what in world.done if what in ("fence", "make", "START", "take")]
    assert kept == ["fence", "make", "START", "take"]


def untold(**more: object) -> World:
    """A server of openGauss or GaussDB, which tells no switch points; its slot is as it was."""
    world = running()
    world.tells_switches = False
    for name, value in more.items():
        setattr(world, name, value)
    return world


FORCED = replace(WANTED, resumes=True)


def test_a_server_that_lacks_what_was_delivered_stops_before_anything_is_fenced() -> None:
    world = untold(shown_by="its log ends at 0/1")

    with pytest.raises(SourceSwitched, match="its log ends at 0/1") as caught:
        go(world, FORCED)

    assert "--accept-switch" in caught.value.hint
    assert "fence" not in world.done
    assert "lacks 500 701" in world.done
    with pytest.raises(SourceSwitched) as other:
        go(untold(shown_by="its log ends at 0/1"), WANTED)
    assert "--accept-switch" not in other.value.hint  # no table can be read again there
    assert "--accept-gap" in other.value.hint


def test_another_timeline_whose_beginning_is_not_told_stops() -> None:
    with pytest.raises(SourceSwitched, match="another timeline") as caught:
        go(untold(), replace(ON_TIMELINE_2, resumes=True))

    assert "--accept-switch" in caught.value.hint


@pytest.mark.parametrize("wanted", [FORCED, replace(ON_TIMELINE_2, resumes=True)])
@pytest.mark.parametrize("slot", [SLOT, None])
def test_a_forced_switch_goes_on_by_a_new_slot_although_the_old_one_is_there(
    slot: Slot | None, wanted: TakeoverRequest
) -> None:
    """Nothing tells which positions, of slot and cuts, were the old primary's."""
    world = untold(the_slot=slot, shown_by="its log ends at 0/1")
    for step in take_over(world, world, replace(wanted, accept_switch=True)):
        if step.name == "take slot":
            world.the_slot = replace(SLOT, confirmed=900)

    (wrote,) = world.started
    assert (wrote.head.epoch, wrote.head.resume, wrote.continues) == (2, 900, True)
    assert wrote.loads == {"public.account": "GAP"}
    assert "forced" in (wrote.reason or "")
    kept = [what for what in world.done if what in ("fence", "make", "START", "take")]
    assert kept == ["fence", "make", "START", "take"]


def test_a_forced_switch_is_not_accepted_where_no_table_can_be_read_again() -> None:
    world = untold()

    with pytest.raises(Unsupported) as caught:
        go(world, replace(WANTED, accept_switch=True))

    assert "--accept-gap" in caught.value.hint
    assert not {"fence", "make"} & {*world.done}


def test_another_server_is_no_forced_switch() -> None:
    identity = replace(IDENTITY, system_id="another")

    with pytest.raises(SourceSwitched, match="different server"):
        go(untold(), replace(FORCED, identity=identity, accept_switch=True))


def test_a_slot_behind_the_switch_point_is_not_ours() -> None:
    world = promoted()
    world.the_slot = replace(SLOT, confirmed=601)

    with pytest.raises(SlotAhead):
        go(world, ON_TIMELINE_2)


def test_an_old_primary_is_not_gone_back_to() -> None:
    world = promoted()
    world.records[0] = (0, replace(start(1), identity=replace(IDENTITY, timeline=2)))

    with pytest.raises(SourceSwitched, match="its history is not the one that was delivered"):
        go(world, WANTED)


# ---------------------------------------------------------------- undecided records
def undecided(world: World) -> Callable[[Step], None]:
    def decide(_: Step) -> None:
        world.undecided = 0

    return decide


def test_a_cut_whose_marker_is_not_visible_yet_does_not_make_the_slot_look_ahead() -> None:
    world = running()
    world.records.append((4, commits(3, 2, resume=600)))
    world.the_slot, world.undecided = replace(SLOT, confirmed=600), 2

    _, waited = drive(take_over(world, world, WANTED), undecided(world))

    assert [step.name for step in waited] == ["compare"]
    assert world.started[0].head.resume == 600


def test_a_marker_that_appears_between_two_looks_is_looked_at_again() -> None:
    world = running()
    world.records.append((4, commits(3, 2, resume=600)))
    world.the_slot, world.undecided = replace(SLOT, confirmed=600), 2
    seen = world.tail

    def tail() -> CutReplay | None:
        replay = seen()
        if "take" in world.done:
            world.undecided = 0  # just after this look
        return replay

    world.tail = tail  # type: ignore[method-assign]
    go(world)

    assert world.started[0].head.resume == 600


def test_another_writer_that_holds_the_topic_open_stops_the_start_after_a_while() -> None:
    world = running()
    world.undecided = 1
    with pytest.raises(TopicHeld):
        go(world)
    assert not world.started

    empty = World(undecided=1, first=0, records=[(0, start(1))])
    empty.undecided = 2
    with pytest.raises(TopicHeld):
        go(empty)
    assert "fence" not in empty.done


def test_a_slot_that_stays_ahead_while_the_topic_is_held_may_have_its_cut_among_the_undecided():
    world = running()
    world.the_slot, world.undecided = replace(SLOT, confirmed=600), 1

    with pytest.raises(TopicHeld):
        go(world)
    assert "fence" not in world.done


def test_nothing_seen_before_the_fence_is_used_after_it() -> None:
    world = running()

    def fence() -> None:
        world.done.append("fence")
        world.records.append((4, commits(3, 2, resume=700)))

    world.init_transactions = fence  # type: ignore[method-assign]
    go(world)

    assert world.started[0].head == Head(4, 1, 2, "me", 2, 700, -1)


# ---------------------------------------------------------------- first starts
def test_the_first_start_fences_looks_again_makes_the_slot_and_writes() -> None:
    world = World(the_slot=None, highs={ACCOUNT: 0, CUTS: 0, DDL: 0})
    world.makes = [None]

    taken, waited = drive(take_over(world, world, WANTED))

    assert [step.name for step in waited] == ["make slot"]
    assert world.done == ["lock", "tail", "fence", "tail", "make", "make", "captured", "START"]
    (wrote,) = world.started
    assert wrote.head == Head(1, 1, 1, "me", 0, 900, -1)
    assert (wrote.prev, wrote.continues) == (None, None)
    assert wrote.loads == {"public.account": "PENDING"}
    assert taken.writer_state.head.resume == 900


def test_a_first_start_without_load_has_nothing_to_load() -> None:
    world = World(highs={ACCOUNT: 0, CUTS: 0, DDL: 0})

    assert go(world, replace(WANTED, load=False)).writer_state.loads == {}


def test_another_first_start_that_was_faster_makes_ours_an_ordinary_one() -> None:
    world = World(highs={ACCOUNT: 10, CUTS: 0, DDL: 0})

    def fence() -> None:
        world.done.append("fence")
        if not world.records:
            world.records.append((0, start(1, resume=500)))

    world.init_transactions = fence  # type: ignore[method-assign]
    go(world)

    assert "make" not in world.done
    assert world.started[0].head == Head(2, 1, 2, "me", 0, 500, -1)


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(World(first=7), id="retention removed them"),
        pytest.param(World(highs={ACCOUNT: 0, CUTS: 0, DDL: 3}), id="cuts was deleted"),
    ],
)
def test_a_log_that_once_held_records_is_not_a_first_start(world: World) -> None:
    with pytest.raises(CutsBroken):
        go(world)
    assert "fence" not in world.done
    assert "make" not in world.done


def test_another_first_start_between_tail_and_topics_is_not_a_broken_log() -> None:
    world = World(highs={ACCOUNT: 10, CUTS: 0, DDL: 0})
    tail = world.tail

    def tail_then_start() -> (
        CutReplay | None
    ):  # a zombie's START and DDL come right behind our look
        seen = tail()
        if not world.records:
            world.records.append((0, start(1, resume=500)))
            world.highs[DDL] = 1
        return seen

    world.tail = tail_then_start  # type: ignore[method-assign]
    go(world)

    assert "make" not in world.done
    assert world.started[0].head.writer == 2


# ---------------------------------------------------------------- an unfinished first load
def loading(*, phase: LoadPhase | None = LoadPhase.CHUNK) -> World:
    first = replace(start(1), loads={"public.account": "PENDING"})
    world = World(records=[(0, first)], the_slot=replace(SLOT, confirmed=400))
    if phase is not None:
        head = Head(2, 1, 1, "w1", 0, 400, 0)
        world.records.append((2, TableLoad(head, TableId("public", "account"), phase)))
    return world


@pytest.mark.parametrize("phase", [None, LoadPhase.BEGIN, LoadPhase.CHUNK])
def test_a_first_load_that_did_not_finish_begins_again_in_a_new_epoch(
    phase: LoadPhase | None,
) -> None:
    world = loading(phase=phase)

    taken = go(world)

    assert taken.made is not None
    assert (taken.writer_state.head.epoch, taken.writer_state.head.writer) == (2, 2)
    assert world.started[0].prev == Prev(1, 0, 1 if phase is None else 2)


@pytest.mark.parametrize("phase", [None, LoadPhase.BEGIN, LoadPhase.CHUNK])
def test_where_tables_can_be_read_again_a_load_that_did_not_finish_is_gone_on_from(
    phase: LoadPhase | None,
) -> None:
    world = loading(phase=phase)

    taken = go(world, replace(WANTED, resumes=True))

    assert taken.made is None
    assert taken.writer_state.head.epoch == 1
    assert world.started[0].loads == {"public.account": "PENDING" if phase is None else phase}


@pytest.mark.parametrize(
    ("was", "now", "resumes", "is_same"),
    [
        ("all-rest", "all-rest", False, True),
        ("all-rest", "other-rest", True, True),
        ("all-rest", "other-rest", False, False),
        ("all-rest", "other-different", True, False),
        ("all", "all-rest", True, True),  # a record of an older release
        ("all", "other-rest", True, False),
    ],
)
def test_tables_may_differ_where_they_can_be_read_again_and_nothing_else(
    was: str, now: str, resumes: bool, is_same: bool
) -> None:
    assert is_same_content(was, now, resumes=resumes) is is_same


def test_a_first_load_that_finished_is_gone_on_from() -> None:
    world = loading(phase=LoadPhase.END)

    assert go(world).made is None


def test_a_load_that_finished_while_we_looked_is_not_thrown_away() -> None:
    world = loading(phase=None)

    def fence() -> None:
        world.done.append("fence")
        if len(world.records) == 1:
            head = Head(2, 1, 1, "w1", 0, 400, 0)
            world.records.append((2, TableLoad(head, TableId("public", "account"), LoadPhase.END)))

    world.init_transactions = fence  # type: ignore[method-assign]
    taken = go(world)

    assert taken.made is None
    assert "make" not in world.done


def test_an_unfinished_load_of_another_source_is_not_gone_on_with_by_itself() -> None:
    world = loading()
    wanted = other_identity(system_id="7001")

    with pytest.raises(SourceSwitched):
        go(world, wanted)
    assert "fence" not in world.done

    assert go(world, replace(wanted, accept_gap=True)).made is not None


def test_a_load_that_began_while_we_took_the_slot_is_not_gone_on_from() -> None:
    world = World(records=[(0, start(1, resume=500))])

    def fence() -> None:
        world.done.append("fence")
        began = replace(start(2, resume=600), loads={"public.account": "PENDING"})
        head = replace(began.head, n=2, epoch=2, writer=2)
        world.records.append((2, replace(began, head=head, prev=Prev(1, 0, 1))))

    world.init_transactions = fence  # type: ignore[method-assign]
    with pytest.raises(GroupUnusable):
        go(world)

    assert world.started == []


# ---------------------------------------------------------------- after a load
def test_after_a_load_the_slot_is_taken_and_compared() -> None:
    world = World(takes=[False])

    _, waited = drive(take_slot(world, 500))

    assert [step.name for step in waited] == ["take slot"]
    for slot in (None, replace(SLOT, confirmed=501)):
        world.the_slot = slot
        with pytest.raises(SlotAhead):
            drive(take_slot(world, 500))


# ---------------------------------------------------------------- heartbeats move resume
def test_a_heartbeat_moves_what_the_slot_may_be_confirmed_to() -> None:
    world = running()
    world.records.append((4, Heartbeat(Head(2, 1, 1, "w1", 1, 650, 0))))
    world.the_slot = replace(SLOT, confirmed=650)

    go(world)

    assert world.started[0].head == Head(3, 1, 2, "me", 1, 650, -1)


# ---------------------------------------------------------------- looking without taking
def look(world: World, wanted: TakeoverRequest = WANTED, patience: int = 3) -> str | None:
    reason, _ = drive(foresee(world, world, wanted, patience=patience))
    return reason


def test_looking_ahead_takes_and_writes_nothing() -> None:
    world = running()

    assert look(world) is None
    assert set(world.done) == {"slot", "tail"}


def test_looking_ahead_says_why_an_epoch_begins() -> None:
    assert look(World(highs={ACCOUNT: 0, CUTS: 0, DDL: 0}, the_slot=None)) == "first start"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"the_slot": None}, SlotMissing),
        ({"the_slot": Slot("pgoutput", "bank", 500, "wal_removed")}, SlotInvalid),
        ({"the_slot": Slot("pgoutput", "bank", 501)}, SlotAhead),
        ({"the_topics": {n: t for n, t in TOPICS.items() if n != ACCOUNT}}, TopicReplaced),
        ({"highs": {ACCOUNT: 9, CUTS: 0, DDL: 5}}, TopicReplaced),
        ({"records": []}, CutsBroken),
    ],
)
def test_looking_ahead_finds_what_a_takeover_stops_with(
    change: dict[str, object], error: type[CdcError]
) -> None:
    with pytest.raises(error) as foreseen:
        look(replace(running(), **change))
    with pytest.raises(error) as met:
        go(replace(running(), **change))

    assert str(foreseen.value) == str(met.value)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (replace(WANTED, fingerprint="others"), ContentChanged),
        (replace(WANTED, identity=replace(IDENTITY, system_id="7001")), SourceSwitched),
        (replace(WANTED, identity=replace(IDENTITY, slot="another")), SlotMismatch),
        (replace(WANTED, cluster_id="another"), TopicReplaced),
    ],
)
def test_looking_ahead_finds_what_is_requested_again(
    wanted: TakeoverRequest, error: type[CdcError]
) -> None:
    with pytest.raises(error) as foreseen:
        look(running(), wanted)
    with pytest.raises(error) as met:
        go(running(), wanted)

    assert str(foreseen.value) == str(met.value)


def test_looking_ahead_waits_for_a_cut_that_is_confirmed_and_not_visible_yet() -> None:
    world = running()
    world.the_slot = Slot("pgoutput", "bank", 600)
    world.records.append((4, commits(3, 2, resume=600)))
    world.undecided = 2

    def decided(_: Step) -> None:
        world.undecided = 0

    reason, waited = drive(foresee(world, world, WANTED), decided)

    assert reason is None
    assert [step.name for step in waited] == ["compare"]
