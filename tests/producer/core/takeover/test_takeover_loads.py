"""Takeovers by a first start, and of a first load that did not end."""

from dataclasses import replace

import pytest

from producer.core.takeover.takeover import (
    is_same_content,
    take_over,
)
from producer.errors import (
    CutsBroken,
    GroupUnusable,
    SourceSwitched,
)
from schemas.accept import CutReplay
from schemas.control import (
    Head,
    LoadPhase,
    Prev,
    TableLoad,
)
from schemas.tables import TableId
from tests.producer.core.takeover_world import (
    ACCOUNT,
    CUTS,
    DDL,
    SLOT,
    WANTED,
    World,
    drive,
    go,
    other_identity,
    start,
)


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
    # Their topics are made: START names the tables that targets lack.
    assert world.done.index("captured") < world.done.index("START")


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
