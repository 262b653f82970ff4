"""A turn of `run` up to its stream: what it waits for, and what it takes back first."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from producer.core.catalog.look import Before
from producer.core.changes import SentAgain
from producer.core.key_ranges import Upto
from producer.core.loop import Progress
from producer.core.ports import RunObserver, ShutdownRequested
from producer.core.router import table_key
from producer.core.takeover.takeover import Slot
from producer.core.turn import Turn, _noted
from producer.errors import HistoryDiffers, SchemaRefused
from schemas.control import Commits, SchemaChange
from schemas.tables import TableId
from tests.producer.core.log.test_ddl_log import A, Topic, change, shape
from tests.producer.core.streaming import (
    RESUME,
    B,
    Clock,
    Options,
    Run,
    described,
    insert,
    whole,
)
from tests.producer.core.takeover_world import WANTED, World, running

OLD = shape(A, "x")


class Codec(Topic):
    """Reads the ddl topic, and has put one subject right."""

    def repair(self, prefix: str) -> list[str]:
        return [f"{prefix}.x"]


@dataclass
class Play:
    """A turn over the small world of takeovers, and what came of it."""

    world: World = field(default_factory=running)
    ddl: list[SchemaChange | None] = field(default_factory=lambda: [change(None, OLD, epoch=1)])
    leaves: bool = False
    notes: list[str] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)
    written: list[Any] = field(default_factory=list)

    def run(self) -> None:
        world: Any = self.world
        world.keep_alive, world.positions_are_csns = (lambda: None), False
        codec: Any = Codec(self.ddl)
        parts: Any = self
        observer = RunObserver(
            on_step=lambda _: None,
            on_load=lambda _table, _done, _of: None,
            on_note=self.notes.append,
            stop_asked=lambda _: self.leaves,
        )
        Turn(
            options=Options(), source=world, log=world, ddl=codec, codec=codec, delivery=parts,
            publisher=parts, quarantine=parts, behind=parts, clock=Clock(), observer=observer,
            blocking=lambda call, *args, **more: call(*args, **more),
            wants=lambda _: True, advice=str, changed=[],
        ).run(WANTED, Progress(), stream=False)  # fmt: skip

    def encode_change(self, made: SchemaChange) -> bytes:
        self.changes.append(made)
        return b"%d" % made.ordinal

    def write_now(self, batches: Any, _closing: Any, *, atomic: bool) -> None:
        self.written.append((batches, atomic))


def test_what_is_waited_for_is_said_once_and_what_is_not_is_not() -> None:
    play = Play()
    play.world.locks, play.world.takes = [False, False, False], [False, False]

    play.run()

    lock, slot, fence, repaired = play.notes
    assert lock.startswith("waiting: another run holds the lock")
    assert slot.startswith("waiting: another connection streams from the slot")
    assert fence.startswith("fencing older runs")
    assert repaired.startswith("bank.x: its compatibility")
    assert play.written == []


def test_who_is_asked_to_leave_leaves_before_anything_is_taken() -> None:
    play = Play(leaves=True)

    with pytest.raises(ShutdownRequested):
        play.run()
    assert play.world.done == []


def test_a_change_whose_commit_never_came_is_taken_back_before_the_stream_begins() -> None:
    """Another transaction may get its number, and then it would count, too [H19]."""
    play = Play()
    play.ddl.append(change(OLD, shape(A, "x", "y"), epoch=1, seq=2))

    play.run()

    (back,) = play.changes
    assert (back.epoch, back.seq, back.after) == (1, 1, OLD)
    (([(record,)], atomic),) = play.written
    assert (record[0], record[2], atomic) == ("bank.ddl", table_key(A), True)
    assert record[3] == b"%d" % back.ordinal


def test_what_the_source_sends_again_is_compared_with_what_was_delivered() -> None:
    """The slot stands before the one commit of the run before, which the source does not send."""
    run = Run()
    run.source.the_slot = Slot("pgoutput", "bank", RESUME - 20)

    with pytest.raises(HistoryDiffers, match="does not send a transaction again"):
        run.reads(*whole(600)).go()


@pytest.mark.parametrize("ids_are_oids", [True, False])
def test_a_table_that_is_sent_again_is_also_the_one_with_its_oid(*, ids_are_oids: bool) -> None:
    """What was delivered calls it `a`; where ids are no oids, another name is another table."""
    run = Run()
    run.source.the_slot, run.source.ids_are_oids = Slot("pgoutput", "bank", 400), ids_are_oids
    again = SentAgain((TableId("public", "renamed"),), [1])

    said = r"not delivered, .*table=public.a" if ids_are_oids else "does not send"
    with pytest.raises(HistoryDiffers, match=said):
        run.reads(*whole(RESUME - 50, again), *whole(600)).go()


@pytest.mark.parametrize("incompatible", ["stop", "quarantine"])
def test_a_table_that_the_registry_refuses_stops_or_is_left_out(incompatible: str) -> None:
    run = Run(incompatible=incompatible)
    run.kafka.refuses = SchemaRefused("not compatible", subject="bank.public.b-value")
    run.reads(described(B, 2), *whole(600, insert(1, 2)))

    if incompatible == "stop":
        with pytest.raises(SchemaRefused):
            run.go()
        return
    run.go()

    (commits,) = (cut for cut in run.written if isinstance(cut, Commits))
    assert [hole.table for entry in commits.commits for hole in entry.holes] == ["public.b"]


def test_begin_says_what_the_catalog_was_but_for_a_load_for_one_target() -> None:
    looked = Before(7, "p", {}, {5: 6})

    assert _noted(looked, Upto(request=3)) == looked.looked()
    assert _noted(looked, Upto(target="lake")) is None
    assert _noted(None, Upto()) is None
