"""The loop, against a target in memory that fails at chosen places."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from schemas.control import Cut, LoadPhase, Topic
from spark_consumers.errors import (
    ApplyError,
    Fenced,
    Incomplete,
    NotExpressible,
    RangeExpired,
    RowMissing,
    Superseded,
    TargetDown,
    TargetFailed,
    TargetRefused,
)
from spark_consumers.loop.job import AppliedStep, Applier, Observer, PassOptions
from spark_consumers.model import Ledger, Rows, Segment
from tests.spark_consumers.feed import Feed, insert, table
from tests.spark_consumers.loop.test_ahead import AtOnce

A = table("a", "id integer, v text")


class MemorySink:
    """Keeps what it was given, atomically; `trouble` runs before and after each step."""

    def __init__(self) -> None:
        self.held = Ledger("bank")
        self.seqs: list[int] = []
        self.trouble: Callable[[str], None] = lambda _: None
        self.starts = self.closes = self.asked = 0
        self.doing: Segment | None = None
        self.others = 0  # how often another applier is there
        self.is_overtaken = False

    def start(self) -> Ledger | None:
        self.starts += 1
        self.trouble("start")
        return self.held if self.starts > self.others else None

    def check(self) -> None:
        if self.is_overtaken:
            raise Fenced("another applier took over")

    def ledger(self) -> Ledger:
        self.asked += 1
        return self.held

    def stage(self, segment: Segment, rows: Rows) -> Rows:
        return rows

    def step(self, segment: Segment, staged: Rows) -> Ledger:
        self.doing = segment
        self.trouble("before")
        if self.held.seq != segment.after.seq or self.held.n != segment.after.n:
            raise Superseded("moved")
        self.held = segment.upto
        self.seqs += segment.commit_rows
        self.trouble("after")
        return self.held

    def close(self) -> None:
        self.closes += 1


def make(commits: int = 3, **options: object) -> tuple[Feed, MemorySink, Applier]:
    feed, sink = Feed(), MemorySink()
    feed.start()
    for i in range(commits):
        feed.commits([insert(A, str(i), "x")])
    return feed, sink, Applier(feed.read_cuts, feed.read_rows, sink, PassOptions(**options))  # type: ignore[arg-type]


def test_a_pass_applies_everything_and_the_next_one_only_what_is_new() -> None:
    feed, sink, applier = make(3, strict=True)
    applier.drain()
    feed.commits([insert(A, "4", "x")])

    applier.drain()

    assert sink.seqs == [1, 2, 3, 4]
    assert (applier.steps, applier.commits, applier.rows) == (5, 4, 4)
    assert applier.ledger == sink.held


def test_topics_of_a_state_that_ends_what_was_read_come_with_the_next_step() -> None:
    feed, sink, given = Feed(), MemorySink(), 0

    def read_on(_: Ledger) -> list[tuple[int, Cut]]:
        nonlocal given
        new, given = feed.records[given:], len(feed.records)
        return new

    applier = Applier(read_on, feed.read_rows, sink, PassOptions())
    feed.start()
    feed.commits([insert(A, "1", "x")])
    applier.drain()
    feed.topics["bank.public.b"] = Topic("id of b", 1)
    feed.state()
    applier.drain()
    feed.commits([insert(A, "2", "x")])

    applier.drain()

    assert sink.held.topics["bank.public.b"] == "id of b"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [TargetDown, Superseded, Incomplete])
def test_an_attempt_that_broke_off_is_given_up_and_the_ledger_decides(when: str, error) -> None:
    _feed, sink, applier = make(3, strict=True)
    broken: list[str] = []

    def trouble(where: str) -> None:
        if where == when and len(broken) < 3:
            broken.append(where)
            raise error("broke off")

    sink.trouble = trouble

    applier.drain()

    assert sink.seqs == [1, 2, 3]


def test_trouble_that_stays_is_raised_after_some_attempts() -> None:
    feed, sink, applier = make(attempts=4)
    pauses: list[int] = []
    applier = Applier(
        feed.read_cuts, feed.read_rows, sink, PassOptions(attempts=4), pause=pauses.append
    )

    def trouble(where: str) -> None:
        raise TargetDown("down")

    sink.trouble = trouble

    with pytest.raises(TargetDown):
        applier.drain()
    assert pauses == [1, 2, 3]


@pytest.mark.parametrize("error", [Fenced, TargetRefused, KeyError])
def test_what_needs_a_person_is_raised_at_once(error) -> None:
    _feed, sink, applier = make()

    def trouble(where: str) -> None:
        raise error("no")

    sink.trouble = trouble
    with pytest.raises(error):
        applier.drain()
    assert applier.ledger is None


@pytest.mark.parametrize(
    "error", [NotExpressible, RowMissing, RangeExpired, Incomplete, TargetFailed]
)
def test_what_cannot_be_applied_is_left_out_where_the_next_epoch_loads_again(error) -> None:
    feed, sink, applier = make(3, strict=True)
    left_out: list[ApplyError] = []

    class Listening(Observer):
        def on_left_out(self, error: ApplyError) -> None:
            left_out.append(error)

    applier = Applier(
        feed.read_cuts, feed.read_rows, sink, PassOptions(strict=True), observer=Listening()
    )

    def trouble(where: str) -> None:
        assert sink.doing is not None
        if where == "before" and (sink.doing.upto.epoch, sink.doing.first_seq) == (1, 2):
            raise error("no")

    sink.trouble = trouble
    with pytest.raises(error):
        applier.drain()
    assert (sink.held.epoch, sink.held.seq) == (1, 1)

    feed.start(epoch=2, continues=False)
    feed.start(epoch=3, continues=False)  # what a crash leaves of a load begins over
    for phase in (LoadPhase.BEGIN, LoadPhase.CHUNK, LoadPhase.END):
        feed.load(A, phase, *([["1", "x"]] if phase is LoadPhase.CHUNK else []))
    feed.commits([insert(A, "9", "x")])
    applier.drain()

    assert (sink.held.epoch, sink.held.seq, sink.held.state) == (3, 1, "EXACT")
    assert sink.seqs == [1, 1]
    assert [type(e) for e in left_out] == [error]


def test_trouble_at_every_step_is_not_trouble_that_stays() -> None:
    _feed, sink, applier = make(4, strict=True, attempts=2)
    failed: set[int] = set()

    def trouble(where: str) -> None:
        assert sink.doing is not None
        if where == "before" and sink.doing.upto.n not in failed:
            failed.add(sink.doing.upto.n)
            raise TargetDown("once for each")

    sink.trouble = trouble

    applier.drain()

    assert sink.seqs == [1, 2, 3, 4]
    assert len(failed) == 5


def test_an_epoch_that_continues_without_a_load_is_no_way_out() -> None:
    feed, sink, applier = make(3, strict=True)
    feed.start(epoch=2, continues=True)

    def trouble(where: str) -> None:
        assert sink.doing is not None
        if where == "before" and (sink.doing.upto.epoch, sink.doing.first_seq) == (1, 2):
            raise RowMissing("no")

    sink.trouble = trouble
    with pytest.raises(RowMissing):
        applier.drain()
    assert (sink.held.epoch, sink.held.seq) == (1, 1)


def test_a_table_that_lacks_a_row_is_marked_and_the_others_go_on() -> None:
    _feed, sink, applier = make(3, strict=True)
    why = "seen: the target lacked a row that changed"
    tried: list[dict[str, str]] = []

    def trouble(where: str) -> None:
        assert sink.doing is not None
        if where == "before" and sink.doing.first_seq == 2:
            tried.append(dict(sink.doing.after.inexact))
            assert sink.doing.marks == tried[-1], "under its name behind a rename, too"
            if str(A) not in sink.doing.after.inexact:
                raise RowMissing("no", table=A)

    sink.trouble = trouble
    applier.drain()

    assert sink.seqs == [1, 2, 3]
    assert tried == [{}, {str(A): why}]
    assert (sink.held.state, sink.held.inexact) == ("LOADING", {str(A): why})


def test_a_mark_is_tried_again_where_the_target_was_set_back_before_it_was_in_force() -> None:
    _feed, sink, applier = make(3, strict=True)
    before: list[Ledger] = []

    def trouble(where: str) -> None:
        assert sink.doing is not None
        if where == "before" and sink.doing.first_seq == 1:
            before.append(sink.held)
        if where == "before" and sink.doing.first_seq == 2 and not sink.doing.after.inexact:
            if len(before) == 1:  # a backup of it takes its place
                sink.held, sink.seqs[:] = before[0], []
            raise RowMissing("no", table=A)

    sink.trouble = trouble
    applier.drain()

    assert (len(before), sink.seqs) == (2, [1, 2, 3])
    assert list(sink.held.inexact) == [str(A)]


def test_a_mark_that_does_not_help_stops() -> None:
    _feed, sink, applier = make(2, strict=True)

    def trouble(where: str) -> None:
        raise RowMissing("no", table=A)

    sink.trouble = trouble
    with pytest.raises(RowMissing):
        applier.drain()
    assert sink.held.inexact == {}


def test_a_mark_is_of_one_place() -> None:
    """Another applier may have come further meanwhile, and brought the row."""
    _feed, sink, applier = make(3, strict=True)
    place = []

    def trouble(where: str) -> None:
        assert sink.doing is not None
        if where == "before" and sink.doing.first_seq == 2 and not place:
            place.append(sink.held)
            sink.held = sink.doing.upto  # somebody else's step
            raise RowMissing("no", table=A)

    sink.trouble = trouble
    applier.drain()
    assert sink.held.inexact == {}
    assert sink.held.seq == 3


def test_a_target_that_is_down_leaves_nothing_out() -> None:
    feed, sink, applier = make(1, attempts=1)
    feed.start(epoch=2, continues=False)

    def trouble(where: str) -> None:
        if sink.doing is not None and sink.doing.upto.epoch == 1:
            raise TargetDown("no")

    sink.trouble = trouble
    with pytest.raises(TargetDown):
        applier.drain()
    assert sink.held.epoch == 0


def test_a_stop_leaves_nothing_out() -> None:
    feed, sink, applier = make(1)
    feed.start(epoch=2, continues=False)
    stopped: list[bool] = []

    def trouble(where: str) -> None:
        assert sink.doing is not None
        if sink.doing.upto.epoch == 1:
            stopped.append(True)
            raise RowMissing("no")

    sink.trouble = trouble
    with pytest.raises(RowMissing):
        applier.drain(lambda: bool(stopped))
    assert sink.held.epoch == 0


def test_an_applier_that_was_overtaken_leaves_nothing_out() -> None:
    feed, sink, applier = make(1)
    feed.start(epoch=2, continues=False)

    def trouble(where: str) -> None:
        if sink.doing is not None and sink.doing.upto.epoch == 1:
            raise Fenced("another")

    sink.trouble = trouble
    with pytest.raises(Fenced):
        applier.drain()
    assert sink.held.epoch == 0


def test_a_target_that_moved_by_itself_is_taken_as_it_is() -> None:
    feed, sink, applier = make(3, strict=True)
    applier.drain()
    feed.commits([insert(A, "4", "x")])
    feed.commits([insert(A, "5", "x")])
    sink.held = feed.segments(sink.held, strict=True)[0].upto  # a commit of unknown outcome

    applier.drain()

    assert sink.seqs == [1, 2, 3, 5]


def test_a_loss_that_a_step_learns_of_is_carried_by_all_later_ledgers() -> None:
    _feed, sink, applier = make(3, strict=True)

    def trouble(where: str) -> None:
        if where == "after" and sink.held.seq == 1:
            sink.held = replace(sink.held, inexact={"public.a": "lossy"})

    sink.trouble = trouble

    assert applier.drain().inexact == {"public.a": "lossy"}
    assert sink.seqs == [1, 2, 3]


def test_what_was_read_ahead_goes_with_its_plan() -> None:
    feed, sink, _ = make(3, strict=True)
    read: list[int] = []
    troubles = ["down", "marked"]

    def read_rows(segment: Segment) -> Rows:
        read.append(segment.last_seq)
        return feed.read_rows(segment)

    def trouble(where: str) -> None:
        if where != "after" or sink.held.seq not in (1, 2):
            return
        match troubles.pop() if len(troubles) == 3 - sink.held.seq else "":
            case "marked":
                sink.held = replace(sink.held, inexact={"public.a": "lossy"})
            case "down":
                raise TargetDown("no answer")

    sink.trouble = trouble
    options = PassOptions(strict=True, together=1)
    applier = Applier(feed.read_cuts, read_rows, sink, options, begin=AtOnce)

    applier.drain()

    assert sink.seqs == [1, 2, 3]
    assert sink.held.inexact == {"public.a": "lossy"}
    assert read == [0, 1, 2, 2, 3, 3]
    assert sink.asked == 3  # which removes what was staged


def test_a_loss_far_ahead_keeps_nothing_before_it_back() -> None:
    feed, sink, _ = make(3, strict=True)

    def read_rows(segment: Segment) -> Rows:
        if 2 in segment.commit_rows:
            raise RangeExpired("no")
        return feed.read_rows(segment)

    applier = Applier(feed.read_cuts, read_rows, sink, PassOptions(strict=True), begin=AtOnce)

    with pytest.raises(RangeExpired):
        applier.drain()
    assert sink.seqs == [1]


def test_a_stop_is_noticed_between_steps() -> None:
    _feed, sink, applier = make(3, strict=True)

    applier.drain(lambda: len(sink.seqs) == 2)

    assert sink.seqs == [1, 2]


def test_steps_and_progress_are_reported() -> None:
    feed, sink, _ = make(1)
    steps: list[str] = []
    seen: list[AppliedStep] = []
    passes: list[int | None] = []

    class Listening(Observer):
        def on_step(self, name: str) -> None:
            steps.append(name)

        def on_progress(self, progress: AppliedStep) -> None:
            seen.append(progress)

        def on_pass(self, reached: Ledger | None) -> None:
            passes.append(reached and reached.seq)

    applier = Applier(feed.read_cuts, feed.read_rows, sink, observer=Listening())

    applier.drain()

    assert passes == [None, 1]
    assert steps == ["read ledger", "read cuts"] + ["read rows", "step"] * 2 + ["read rows"]
    assert [(p.steps, p.commits, p.rows, p.ledger.seq) for p in seen] == [
        (1, 0, 0, 0),
        (2, 1, 1, 1),
    ]


def test_loads_pass_as_steps() -> None:
    feed, _sink, applier = make(0, max_rows=1)
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.CHUNK, ["1", "x"])
    feed.load(A, LoadPhase.CHUNK, ["2", "x"], ["3", "x"])
    feed.load(A, LoadPhase.END)

    assert applier.drain().state == "EXACT"
    assert (applier.steps, applier.commits, applier.rows) == (4, 0, 3)
