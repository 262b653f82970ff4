"""Takeovers, step by step, against a small world: one source, one log of cuts."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from producer.core.takeover.takeover import (
    MadeSlot,
    Slot,
    Step,
    TakeoverRequest,
    foresee,
    take_over,
    take_slot,
)
from producer.errors import (
    CdcError,
    ConnectionLost,
    ContentChanged,
    CutsBroken,
    SlotAhead,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SlotOrphaned,
    SourceSwitched,
    TopicHeld,
    TopicReplaced,
)
from schemas.accept import CutReplay, Foreign, Record
from schemas.control import (
    Head,
    Heartbeat,
    Looked,
    Prev,
    State,
    Topic,
)
from tests.producer.core.takeover_world import (
    ACCOUNT,
    CUTS,
    DDL,
    IDENTITY,
    SLOT,
    TOPICS,
    WANTED,
    World,
    commits,
    drive,
    go,
    other_identity,
    running,
    start,
)


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
    assert taken.confirmed == 500
    assert taken.made is None


def test_confirmed_flush_is_read_when_the_slot_is_ours_and_before_the_tail_is_compared() -> None:
    world = running()

    go(world)

    taken_at = world.done.index("take")
    assert world.done[taken_at + 1 : taken_at + 3] == ["slot", "tail"]


def test_start_says_what_the_catalog_was_when_it_was_compared_last() -> None:
    """A restart compares with it: what changed meanwhile is a gap [H49]."""
    older, newest = Looked(400, "1:2", {"16": "a"}), Looked(500, "1:3", {"16": "b"})
    noted = replace(start(1), looked=older)
    head = Head(2, 1, 1, "w1", 1, 500, -1)
    stated = State(head, IDENTITY, "content", "cluster", TOPICS, noted.loads, looked=newest)
    before = [(0, noted), (2, commits(2, 1, resume=500))]
    worlds = [
        (World(highs=dict.fromkeys(TOPICS, 0)), WANTED, Looked(900, "1:2", {"16": "a"})),
        (World(records=[*before]), WANTED, older),
        (World(records=[*before, (4, stated)]), WANTED, newest),
        (World(records=[*before, (4, stated)], ends={1: 500}), other_identity(timeline=2), newest),
    ]
    for world, wanted, looked in worlds:
        taken = go(world, wanted)

        assert world.started[0].looked == taken.writer_state.looked == looked


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


@pytest.mark.parametrize("resumes", [False, True])
def test_where_tables_can_be_read_again_a_new_slot_is_the_way_out(resumes: bool) -> None:
    world = running()
    world.the_slot = None

    with pytest.raises(SlotMissing) as caught:
        go(world, replace(WANTED, resumes=resumes))

    assert ("--accept-switch" in caught.value.hint) == resumes


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


@difference(SlotMismatch)
def a_copy_of_the_database_has_its_name_and_its_slot(world: World) -> TakeoverRequest:
    return other_identity(database_oid=IDENTITY.database_oid + 1)


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


@pytest.mark.parametrize(("newest", "before"), [(77, 77), (0, 1)])
def test_accept_gap_goes_on_where_the_cuts_are_gone(newest: int, before: int) -> None:
    world = World(first=40)

    go(world, replace(WANTED, accept_gap=True, newest_epoch=newest))

    (wrote,) = world.started
    assert (wrote.head.n, wrote.head.epoch, wrote.prev) == (1, before + 1, Prev(before, 0, 0))
    assert wrote.continues is False


def test_cuts_that_go_while_the_slot_is_waited_for_stop_before_anything_is_fenced() -> None:
    world = running()
    world.takes = [False]

    with pytest.raises(CutsBroken, match="are gone"):
        drive(take_over(world, world, WANTED), lambda _: world.records.clear())
    assert "fence" not in world.done


def test_a_slot_that_is_given_up_while_it_is_waited_for_is_not_taken() -> None:
    world = running()
    world.takes = [False]

    with pytest.raises(SlotInvalid):
        drive(
            take_over(world, world, WANTED),
            lambda _: setattr(world, "the_slot", replace(SLOT, invalid="wal_removed")),
        )


def test_records_of_an_older_release_do_not_tell_the_oid_of_the_database() -> None:
    world = running()
    older = replace(start(1), identity=replace(IDENTITY, database_oid=0))
    world.records[0] = (0, older)

    go(world)

    assert world.started[0].identity == IDENTITY


def test_accept_switch_keeps_a_slot_that_has_what_comes_next() -> None:
    world = running()

    go(world, replace(WANTED, accept_switch=True))

    assert "make" not in world.done


def test_no_slot_is_made_in_the_place_of_one_that_is_not_ours() -> None:
    world = running()
    world.the_slot = replace(SLOT, plugin="test_decoding")

    with pytest.raises(SlotMismatch):
        go(world, replace(WANTED, accept_switch=True))
    assert "make" not in world.done


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
    looks: list[Step] = []
    with pytest.raises(TopicHeld):
        drive(take_over(empty, empty, WANTED, patience=3), looks.append)
    assert len(looks) == 3
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
def look(world: World, wanted: TakeoverRequest = WANTED, patience: int = 3) -> str | CutReplay:
    found, _ = drive(foresee(world, world, wanted, patience=patience))
    return found


def test_looking_ahead_takes_and_writes_nothing() -> None:
    world = running()

    assert look(world) == world.tail()
    assert set(world.done) == {"slot", "tail"}


@pytest.mark.parametrize("name", ["bank.public.account-dlt", "bank.quarantine", "bank.public.left"])
@pytest.mark.parametrize("how", ["deleted", "made again", "more partitions"])
def test_a_topic_that_no_cut_of_this_run_names_may_go(name: str, how: str) -> None:
    """A reader's dead letters, or that of a table which left [tables]."""
    there = {**TOPICS, name: Topic("id of another", 1)}
    now = {
        "deleted": dict(TOPICS),
        "made again": {**TOPICS, name: Topic("another id", 1)},
        "more partitions": {**TOPICS, name: Topic("id of another", 3)},
    }[how]
    world = World(
        records=[(0, replace(start(1), topics=there)), (2, commits(2, 1, resume=500))],
        the_topics=now,
        highs=dict.fromkeys(there, 10),
    )

    go(world)

    assert world.started[0].topics == TOPICS


def test_start_names_no_topic_of_a_reader_and_goes_on_with_one_of_a_table_that_left() -> None:
    left = {"bank.public.left": Topic("id of left", 1)}
    world = World(
        records=[(0, replace(start(1), topics={**TOPICS, **left})), (2, commits(2, 1, resume=500))],
        the_topics={**TOPICS, **left, "bank.public.account-dlt": Topic("a reader's", 1)},
        highs=dict.fromkeys([*TOPICS, *left, "bank.public.account-dlt"], 10),
    )

    go(world)

    assert world.started[0].topics == {**TOPICS, **left}


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

    found, waited = drive(foresee(world, world, WANTED), decided)

    assert found == world.tail()
    assert [step.name for step in waited] == ["compare"]


def held_after_the_fence(*, until: int) -> tuple[World, list[Step]]:
    """Markers of a writer that was fenced come after some looks."""
    world = running()
    looks: list[Step] = []

    def fenced() -> None:
        world.done.append("fence")
        world.undecided = 1

    def wait(step: Step) -> None:
        looks.append(step)
        if len(looks) == until:
            world.undecided = 0

    world.init_transactions = fenced  # type: ignore[method-assign]
    drive(take_over(world, world, WANTED, patience=3), wait)
    return world, looks


@pytest.mark.parametrize(("until", "stops"), [(3, SlotAhead), (4, TopicHeld)])
def test_a_difference_that_undecided_records_may_explain_is_looked_at_within_bounds(
    until: int, stops: type[CdcError]
) -> None:
    world, looks = running(), list[Step]()
    world.the_slot, world.undecided = replace(SLOT, confirmed=501), 1

    def wait(step: Step) -> None:
        looks.append(step)
        if len(looks) == until:
            world.undecided = 0

    with pytest.raises(stops):
        drive(take_over(world, world, WANTED, patience=3), wait)

    assert len(looks) == 3


def test_markers_behind_the_fence_are_waited_for_within_bounds() -> None:
    world, looks = held_after_the_fence(until=3)
    assert len(looks) == 3
    assert world.done[-1] != "fence"

    with pytest.raises(TopicHeld):
        held_after_the_fence(until=4)
