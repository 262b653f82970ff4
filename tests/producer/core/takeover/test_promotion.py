"""Takeovers of a server that was promoted, or switched by force."""

from dataclasses import replace

import pytest

from producer.core.events import Records
from producer.core.key_ranges import Upto, voided
from producer.core.takeover.promotion import Tail, tail_behind
from producer.core.takeover.takeover import (
    Slot,
    TakeoverRequest,
    take_over,
)
from producer.errors import (
    SlotAhead,
    SlotMissing,
    SourceSwitched,
    Unsupported,
)
from schemas.accept import CutReplay, Record
from schemas.control import (
    Cut,
    Head,
    Heartbeat,
    Hole,
    LoadPhase,
    Prev,
    Range,
    Start,
    TableLoad,
)
from schemas.tables import TableId
from schemas.topics import Topics
from tests.producer.core.takeover_world import (
    DDL,
    IDENTITY,
    SLOT,
    WANTED,
    World,
    commits,
    drive,
    go,
    running,
    start,
)


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
    assert caught.value.where["switch_point"] == "0/258"
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


def test_a_table_that_was_loaded_is_noted_whose_topic_no_record_names_yet() -> None:
    first = replace(start(1), topics={}, loads={"public.account": "PENDING"})
    ended = TableLoad(Head(2, 1, 1, "w1", 0, 400, 0), TableId("public", "account"), LoadPhase.END)
    world = World(records=[(0, first), (2, ended)], the_slot=None)
    for step in take_over(world, world, replace(WANTED, accept_switch=True)):
        if step.name == "take slot":
            world.the_slot = replace(SLOT, confirmed=900)

    assert world.started[0].loads == {"public.account": "GAP"}


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


def behind(records: list[tuple[int, Cut]], *, end: int, start_at: int = 0) -> Tail:
    """The tail behind 500 of records that all count."""
    replay = CutReplay.behind(records[-1][1].head)

    def read(low: int, high: int) -> list[tuple[int, Record]]:
        assert high - low <= 256
        return [(at, record) for at, record in records if low <= at < high]

    return tail_behind(read, start_at, end, position=500, replay=replay, names=Topics("bank"))


def test_a_long_tail_is_looked_through_window_by_window() -> None:
    lost = [(300 * n, commits(n, n, resume=500 + n)) for n in range(1, 5)]

    tail = behind([(0, commits(0, 0, resume=500)), *lost], end=1300)

    assert tail == Tail(frozenset({"public.account"}))


def test_a_tail_that_retention_cut_or_that_goes_on_before_its_epoch_may_be_of_any_table() -> None:
    (at, lost), older = (600, commits(2, 2, resume=600)), commits(1, 1, resume=550)
    other = replace(older, head=replace(older.head, epoch=9))

    for records, first in (([(at, lost)], 600), ([(300, other), (at, lost)], 0)):
        assert behind(records, end=700, start_at=first) == Tail(
            frozenset({"public.account"}), is_known=False
        )


def test_a_load_at_the_place_itself_is_not_lost_and_holes_behind_it_are() -> None:
    lost = commits(2, 2, resume=600)
    holed = replace(lost.commits[0], holes=(Hole("public.b", "seen", "it had a gap"),))
    there = replace(lost.commits[0], end_lsn=500, holes=(Hole("public.c", "seen", "it is there"),))
    records: list[tuple[int, Cut]] = [(0, commits(0, 1, resume=500))]

    for at, tables in ((500, set()), (501, {"public.a"})):
        head = replace(lost.head, n=1, resume=550)
        load = TableLoad(head, TableId("public", "a"), LoadPhase.BEGIN, as_of=at)
        tail = behind([*records, (2, load), (4, replace(lost, commits=(there, holed)))], end=6)

        assert tail == Tail(frozenset({"public.account", "public.b", *tables}))


# ---------------------------------------------------------------- loads for one target
LAKE = Upto((b"7",), target="lake").text


def open_for_one(n: int) -> TableLoad:
    head = Head(n, 1, 1, "w1", 1, 500, 0)
    table = TableId("public", "account")
    return TableLoad(head, table, LoadPhase.CHUNK, as_of=500, upto=LAKE, target="lake")


def test_another_epoch_begins_an_open_load_for_one_target_again() -> None:
    world = promoted((60, open_for_one(3)))

    drive(take_over(world, world, ON_TIMELINE_2))

    (wrote,) = world.started
    assert wrote.targeted == {"public.account": voided(LAKE)}
    assert wrote.loads == {"public.account": "END"}, "for the others it has ended"


def test_a_restart_goes_on_with_it() -> None:
    world = running()
    world.records.append((60, open_for_one(3)))

    taken = go(world)

    assert taken.writer_state.targeted == {"public.account": LAKE}
