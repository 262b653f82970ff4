"""What source, Kafka and the operator see of a stream, read by read."""

from dataclasses import replace
from typing import Any

import pytest

from producer.core.catalog.look import Before, CatalogVersion, Cause, Doubt, Look, Seen, Unchanged
from producer.core.changes import Insert, Lost, Stretch, Truncate, Undecoded
from producer.core.delivery.tally import PlainTally
from producer.core.events import Limits, Walked
from producer.core.loop import Progress
from producer.core.ports import ShutdownRequested, Tuning
from producer.core.shape_change import ShapeChange, StatementChanges
from producer.core.stream.unfit import WHY
from producer.core.stream.walk import Lent, Walk
from producer.errors import BrokerDown, ConnectionLost, DecodeError, SourceBusy, TakenOver
from schemas.control import GAP, Commits, Head, Heartbeat, Hole, Origin, Start, State, TableLoad
from schemas.errors import LOAD_AGAIN
from schemas.positions import Lsn
from tests.producer.core.streaming import (
    IDENTITY,
    RESUME,
    A,
    B,
    C,
    Place,
    Run,
    begin,
    commit,
    described,
    insert,
    shape,
    whole,
)

ROW = whole(600, insert(1))
QUIET = Limits(heartbeat_seconds=1000)


def seen(run: Run, *kinds: str) -> list[Any]:
    """What was done of some kinds."""
    return [what for what in run.did if what[0] in kinds]


def holes(run: Run) -> list[list[Hole]]:
    """Gaps of each commit."""
    return [
        list(entry.holes)
        for cut in run.written
        if isinstance(cut, Commits)
        for entry in cut.commits
    ]


# ---------------------------------------------------------------- reading
def test_a_position_is_told_when_its_cut_is_durable_and_the_wait_is_short_until_then() -> None:
    run = Run().passes(1).reads(described(), *ROW).passes(1).passes(1).passes(1).go()

    assert seen(run, "cut", "status", "sent") == [
        ("cut", "Heartbeat", 500),
        ("status", 0),
        ("status", 500),
        ("sent", 1),
        ("cut", "Commits", 608),
        ("status", 608),
        ("status", 608),
    ]
    # The first heartbeat is in flight; nothing is; rows are; nothing is.
    assert run.source.timeouts == [0.02, 0.5, 0.02, 0.5, 0.5]
    progress = run.progress
    assert (progress.rows, progress.commits, progress.seq, progress.resume) == (1, 1, 2, 608)
    assert (progress.has_streamed, progress.is_idle, progress.takeovers) == (True, True, 1)
    assert progress.committed_at == 946_684_801_000_600
    assert run.steps == [
        "run: cut written, not committed",
        "run: read",
        "run: cut durable, not confirmed",
        "run: confirmed",
        "run: read",
        "run: rows sent",
        "run: waiting for acknowledgements",
        "run: cut written, not committed",
        "run: read",
        "run: cut durable, not confirmed",
        "run: confirmed",
        "run: read",
        "run: read",
    ]
    assert run.notes == ["streaming from 0/1F4", "leaving"]
    assert run.warnings == []
    assert run.waits == {0}, "a stream waits for its source, not for the wish to leave"


def test_who_counts_is_told_when_each_durable_commit_was_made() -> None:
    run = Run()
    run.durable = []

    run.passes(1).reads(described(), *ROW).passes(1).reads(*whole(700, insert(2))).passes(1).go()

    assert [made for made in run.durable if made] == [[946_684_801_000_600], [946_684_801_000_700]]


def test_progress_is_idle_when_nothing_that_was_received_waits() -> None:
    run, idle = Run(), [Progress().is_idle]
    look = lambda: idle.append(run.progress.is_idle)  # noqa: E731
    run.passes(1).then(look).reads(described(), begin(600)).then(look).reads(insert(1)).then(look)
    run.reads(commit(600)).then(look).passes(1).then(look)
    run.go()

    assert idle == [True, True, False, False, False, True]


def test_rows_that_are_acknowledged_already_are_not_waited_for() -> None:
    run = Run().passes(1)
    run.kafka.acknowledges = True
    run.reads(described(), begin(600), insert(1)).reads(commit(600)).passes(1).go()

    assert "run: waiting for acknowledgements" not in run.steps
    assert seen(run, "cut")[-1] == ("cut", "Commits", 608)


def test_a_call_that_takes_long_keeps_the_session_of_the_source() -> None:
    run = Run(status_seconds=1000.0).passes(1)
    run.calls.are_long = True
    run.calls.beat = int
    run.then(run.did.clear).reads(described(), *ROW).passes(1).go()

    assert seen(run, "status", "sent")[:2] == [("status", 500), ("sent", 1)]


def test_a_giant_is_committed_in_parts() -> None:
    limits = Limits(heartbeat_seconds=1000, transaction_timeout=30)
    run = Run(limits=limits).passes(1).reads(described(), begin(600), insert(1)).passes(10)
    run.reads(insert(2)).reads(commit(600)).passes(1).go()

    assert seen(run, "sent", "part", "cut")[1:] == [
        ("sent", 1), ("part",), ("sent", 1), ("cut", "Commits", 608),
    ]  # fmt: skip
    assert "run: part of a giant committed" in run.steps


def test_commits_share_a_group_while_more_can_be_read() -> None:
    run = Run().passes(1).reads(described(), *ROW).reads(*whole(700, insert(2))).passes(1).go()
    assert [len(cut.commits) for cut in run.written if isinstance(cut, Commits)] == [2]

    # What can be read may be a part of a message: it is not waited for.
    part = Run().passes(1).reads(described(), *ROW).reads().reads(*whole(700, insert(2))).go()
    assert [len(cut.commits) for cut in part.written if isinstance(cut, Commits)] == [1, 1]


class Walks:
    """A native part that takes all of a stretch, and finds nothing in it."""

    tally = PlainTally

    def __init__(self) -> None:
        self.seen: list[tuple[Any, int]] = []  # what was walked, in which slice
        self.slices: list[str] = []

    def walker(self, **_: Any) -> "Walks":
        return self

    def bind(self, *_: Any, **__: Any) -> None:
        """It has no use for tables."""

    forget = bind

    def walk(self, messages: Any, at: int, open_: Lent, **_: Any) -> Walk:
        self.seen.append((messages[0] if messages else "", self.slices.count("run: read")))
        return Walk(len(messages), [Walked(Batch(), 0, 0, 0, 0)], open_, 0, [])


class Batch(list[Any]):
    """Nothing."""

    size, topics = 0, ()

    def transactions(self) -> list[Any]:
        return []


def test_a_slice_has_a_few_stretches_that_were_walked() -> None:
    """A stretch is some megabytes."""
    walks = Walks()
    run = Run(native=walks).passes(1)
    walks.slices = run.steps
    taken = Stretch(["taken"], 1)  # type: ignore[list-item]
    some = [Stretch([name]) for name in "abcdefg"]  # type: ignore[list-item]
    run.reads(described(), *ROW, some[0], Stretch([]), taken, *some[1:])
    run.passes(1).reads(Undecoded(b"?", "why"), Stretch(["x"])).go()  # type: ignore[list-item]

    assert walks.seen == [
        ("a", 2), ("", 2), ("taken", 2), ("b", 2), ("c", 2), ("d", 3), ("e", 3), ("f", 3), ("g", 4),
    ]  # fmt: skip
    assert run.progress.committed_at == 946_684_801_000_600, "walked, and no commit in it"


def test_a_position_of_the_source_counts_when_nothing_is_open_before_it() -> None:
    run = Run(limits=Limits(heartbeat_seconds=5)).passes(6)
    run.reads(described(), begin(600), keepalive=700).passes(6).passes(6)
    run.reads(insert(1), keepalive=710).passes(6)
    run.reads(commit(600), keepalive=720).passes(6).passes(6).go()

    assert [what[2] for what in seen(run, "cut")] == [500, 500, 500, 500, 608, 720, 720]
    assert run.progress.received == 720


def test_a_position_that_may_be_ahead_of_what_is_sent_never_counts() -> None:
    run = Run(limits=Limits(heartbeat_seconds=5))
    run.source.keepalives_move = False
    run.reads(keepalive=700).passes(6).passes(6).go()

    assert {what[2] for what in seen(run, "cut")} == {500}
    assert run.progress.received == 0


def test_positions_do_not_go_back() -> None:
    run = Run().reads(keepalive=700).reads(keepalive=650)
    run.source.looks.append(one_look(680, tables={}))
    run.passes(1).go()
    assert run.progress.received == 700
    assert len(holes(run)) == 1, "the look was passed"

    told = Run().reads(keepalive=700)
    told.source.received_end = Lsn(800)
    assert told.go().progress.received == 800


def test_a_source_that_waits_for_an_answer_is_told_at_once_and_again_behind_what_it_sent() -> None:
    run = Run(limits=QUIET, status_seconds=1000.0).passes(1).passes(1)
    run.reads(described(), *ROW, keepalive=700, urgent=True).go()

    told = run.did[run.did.index(("looked", "")) :]
    assert [what for what in told if what[0] in {"status", "sent"}][:4] == [
        ("status", 500),
        ("status", 500),
        ("sent", 1),
        ("status", 500),
    ]


def test_status_messages_keep_the_session() -> None:
    run = Run(status_seconds=2.0).passes(1).passes(1)
    for _ in range(9):
        run.passes(0.5)
    run.then(run.did.clear)
    for _ in range(9):
        run.passes(0.5)
    run.go()

    assert seen(run, "status") == [("status", 500)] * 4, "in 5 seconds, and on leaving"


def test_what_is_durable_is_told_at_most_every_tenth_of_a_second() -> None:
    run = Run(status_seconds=1000.0, limits=Limits(group_commits=1, heartbeat_seconds=1000))
    run.clock.time = 0.0
    run.then(lambda: None)
    for start, seconds in ((600, 0.05), (700, 0.05), (800, 0.0)):
        run.reads(described(), *whole(start, insert(1))).then(lambda: None).passes(seconds)
    run.go()

    # 0/1F4 waits for the first tenth, 0/260 is never told.
    assert run.source.statuses == [708, 808]


@pytest.mark.parametrize(("status_seconds", "waits"), [(1000.0, 2), (0.25, 1)])
def test_status_messages_come_more_often_while_nothing_is_read(
    status_seconds: float, waits: int
) -> None:
    """The request of the server is not seen then."""
    limits = Limits(group_commits=1, heartbeat_seconds=1000)
    run = Run(status_seconds=status_seconds, tuning=Tuning(buffer_bytes=0), limits=limits)
    run.passes(1).passes(1)
    run.then(lambda: setattr(run.kafka, "is_held", True))
    run.reads(described(), *ROW, *whole(700, insert(2)), *whole(800, insert(3)))
    run.kafka.on_wait = lambda: _later(run, 0.25, 7)
    run.passes(1).go()

    did = [what[0] for what in seen(run, "waited", "status")]
    first = did.index("waited")
    assert did[first : first + 2 * (waits + 1)] == [*["waited"] * waits, "status"] * 2


def _later(run: Run, seconds: float, waits: int) -> None:
    """Time passes while Kafka is waited for; then it answers."""
    run.clock.time += seconds
    if len(seen(run, "waited")) >= waits:
        run.kafka.is_held = False


@pytest.mark.parametrize("tuning", [Tuning(slice_messages=2), Tuning(slice_seconds=0.0)])
def test_much_that_one_read_brought_is_taken_in_slices_with_kafka_between(tuning: Tuning) -> None:
    run = Run(tuning=tuning, limits=Limits(group_commits=1, heartbeat_seconds=1000)).passes(1)
    run.reads(described(), *ROW, *whole(700, insert(2)), keepalive=900).passes(1).passes(1).go()

    did = seen(run, "sent", "cut")
    assert did[1:] == [
        ("sent", 1), ("cut", "Commits", 608), ("sent", 1), ("cut", "Commits", 708),
        ("cut", "Heartbeat", 900),
    ]  # fmt: skip
    assert len(run.source.timeouts) == 5, "the socket is not read in between"
    slices = 4 if tuning.slice_messages == 2 else 8
    assert run.steps.count("run: read") == 4 + slices
    assert run.progress.received == 900, "the position is behind all of them"


# ---------------------------------------------------------------- what cannot be decoded
LOST = "an undecodable message, kept in bank.quarantine"


def test_what_cannot_be_decoded_is_kept_and_is_a_gap_of_the_commit_that_it_is_in() -> None:
    run = Run().reads(described(), begin(600), insert(1), Undecoded(b"?", "why"), commit(600))
    run.passes(1).go()

    assert holes(run) == [[Hole("*", "seen", LOST)]]
    assert seen(run, "put aside") == [("put aside", 9003, "why")]
    assert run.warnings[0] == "an undecodable message went to bank.quarantine: why"


def test_what_is_between_two_commits_is_a_gap_of_the_next_one() -> None:
    run = Run(limits=Limits(heartbeat_seconds=1), repair="off").passes(1)
    run.reads(described(), *ROW, Undecoded(b"?", "why"), keepalive=650).passes(2).passes(2)
    rows = *whole(700, insert(2)), *whole(800, insert(3))
    run.reads(Stretch([]), described(), *rows, keepalive=900)
    run.passes(2).passes(2).go()

    assert holes(run) == [[], [Hole("*", "seen", LOST)], []]
    # The loss may have been a whole transaction: no position behind it counts before its gap.
    assert {what[2] for what in seen(run, "cut")} == {500, 608, 708, 808, 900}


def test_where_nothing_may_be_missing_the_run_stops_before_it() -> None:
    run = Run(unknown_message="stop").reads(described(), *ROW, Undecoded(b"?", "why"))

    with pytest.raises(DecodeError) as caught:
        run.go()

    assert "unknown-message" in str(caught.value.hint)
    assert seen(run, "put aside") == [("put aside", 9004, "why")]


# ---------------------------------------------------------------- gaps and what mends them
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "it is read again"),
        ({"repair": "ask"}, "`gauss-cdc snapshot --table public.a` reads it again"),
        ({"loads": {}}, "`gauss-cdc snapshot --table public.a` reads it again"),
    ],
)
def test_a_gap_says_what_mends_it(how: dict[str, Any], said: str) -> None:
    run = Run(**how).reads(described(), begin(600), Undecoded(b"?", "why"), commit(600)).go()

    line = f"public.a is not exact any more: {LOST}; {said}"
    assert (("noted", line) in run.did) is ("repair" not in how and "loads" not in how)
    assert (("warned", line) in run.did) is ("repair" in how or "loads" in how)


def test_where_no_table_is_read_again_a_load_mends_it() -> None:
    run = Run().reads(described(), begin(600), Undecoded(b"?", "why"), commit(600))
    run.source.rereads = False
    run.passes(1).passes(1).go()

    assert not seen(run, "point")
    line = f"public.a is not exact any more: {LOST}; a load makes it equal: {LOAD_AGAIN}"
    assert ("warned", line) in run.did

    open_ = Run(loads={"public.a": "CHUNK"}).passes(1)
    open_.source.rereads = False
    assert not seen(open_.go(), "point")


def test_the_same_gap_is_said_once_and_a_gap_that_an_earlier_run_left_is_said() -> None:
    lost = [message for start in (600, 700) for message in whole(start, Undecoded(b"?", "why"))]
    run = Run(loads={"public.a": GAP}, repair="off").reads(described(), *lost).go()

    way = "`gauss-cdc snapshot --table public.a` reads it again"
    assert [line for line in run.warnings if "not exact" in line] == [
        f"public.a is not exact any more: it had a gap before; {way}",
        f"public.a is not exact any more: {LOST}; {way}",
    ]


def test_a_gap_of_one_table_says_nothing_of_others() -> None:
    run = Run(known=(shape(A, 1), shape(B, 2)), captured=[A, B], repair="off")
    for start, table in ((600, "a"), (700, "b")):
        run.reads(*whole(start, Lost("public", table, "seen", "why"))).passes(1)
    run.go()

    way = "`gauss-cdc snapshot --table public.{}` reads it again"
    assert run.warnings == [
        f"public.{name} is not exact any more: why; {way.format(name)}" for name in "ab"
    ]


def test_a_gap_of_everything_is_one_of_each_table_that_is_there_still() -> None:
    run = Run(known=(shape(A, 1), shape(B, 2)), captured=[A, B], repair="off")
    dropped = StatementChanges((ShapeChange(shape(B, 2), None, "DROP TABLE"),), Origin.DEPARSED)
    run.then(lambda: run.source.started["known"].pop(B))
    run.reads(*whole(600, dropped, Lost("", "", "seen", "why"))).passes(1).go()

    assert [line[:8] for line in run.warnings] == ["public.a"]


def test_a_row_in_quarantine_leaves_a_gap_that_no_reading_mends() -> None:
    run = Run(max_row_bytes=300)
    run.reads(described(), *whole(600, Insert(1, [b"1", b"x" * 300]))).passes(1).go()

    why = "a row is larger than kafka.max-row-bytes"
    assert run.warnings == [
        f"public.a: a row is in quarantine, 301 bytes: {why}",
        f"public.a is not exact any more: {WHY}",
    ]
    assert not seen(run, "point")


def test_a_gap_that_was_mended_is_said_again_when_it_comes_again() -> None:
    run = Run()
    run.source.places.extend([Place(700, shape(A, 1)), Place(1000, shape(A, 1))])
    run.reads(described(), *whole(600, Undecoded(b"?", "why"))).passes(1)
    run.reads(*whole(700)).passes(1).passes(1).passes(30)
    run.reads(*whole(900, Undecoded(b"?", "why"))).passes(1)
    run.reads(*whole(1000)).passes(1).passes(1).go()

    said = [line for line in run.notes if "not exact" in line]
    assert len(said) == 2
    assert [cut.loads for cut in run.written if isinstance(cut, State)] == [
        {"public.a": GAP},
        {"public.a": GAP},
    ]


def test_tables_that_left_the_configuration_have_a_gap_before_anything_else() -> None:
    run = Run(wanted=[B], captured=[]).reads(described(), *ROW).passes(1).go()

    why = "is not captured any more: it left [tables]"
    assert holes(run) == [[Hole("public.a", "seen", why)]]
    assert ("noted", "public.a is not in [tables] any more; targets keep what it was") in run.did
    state = next(cut for cut in run.written if isinstance(cut, State))
    assert state.loads == {"public.a": "LEFT"}
    assert seen(run, "cut")[0] == ("cut", "State", 500)


# ---------------------------------------------------------------- Kafka
def test_rows_that_find_no_room_are_sent_later_and_the_session_is_kept() -> None:
    run = Run(status_seconds=1.0).passes(1).passes(0)
    run.kafka.room = 1
    run.kafka.on_full = lambda: setattr(run.clock, "time", run.clock.time + 0.6)
    run.reads(described(), *whole(600, insert(1), insert(2), insert(3), insert(4))).passes(1).go()

    did = seen(run, "sent", "status")
    first = did.index(("sent", 1))
    assert did[first : first + 6] == [
        ("sent", 1), ("status", 500), ("sent", 1), ("status", 500), ("sent", 1), ("status", 500),
    ]  # fmt: skip
    assert seen(run, "cut")[-1] == ("cut", "Commits", 608)


def test_a_queue_that_stays_full_is_a_kafka_that_does_not_answer() -> None:
    run = Run(kafka_silence_seconds=20.0).passes(1).passes(1).passes(100)
    run.kafka.room, run.kafka.on_full = 0, lambda: run.clock.__setattr__("time", run.clock.time + 9)
    run.reads(described(), *ROW)

    with pytest.raises(BrokerDown) as caught:
        run.go()

    assert caught.value.where["seconds"] == 27
    assert run.clock.time == 1000 + 102 + 3 * 9


def test_kafka_is_given_up_when_it_was_silent_for_too_long() -> None:
    run = Run(kafka_silence_seconds=20.0)
    run.kafka.is_held = True
    run.passes(5).passes(15).passes(1)

    with pytest.raises(BrokerDown):
        run.go()

    assert not run.source.script


def test_it_has_its_time_for_each_call_and_while_it_makes_progress() -> None:
    limits = Limits(heartbeat_seconds=1000, transaction_timeout=30)
    run = Run(kafka_silence_seconds=20.0, limits=limits).passes(1).passes(1)

    def hold() -> None:
        run.kafka.is_held = True

    def release() -> None:
        run.kafka.is_held = False

    run.passes(100).then(hold).reads(described(), *ROW).passes(19)  # the flush, after a long rest
    run.then(release).then(hold).passes(19).then(release)  # the cut
    run.reads(begin(700), insert(1)).then(hold).passes(19).then(release)  # the flush of a part
    run.then(hold).passes(19)  # the part
    run.then(lambda: setattr(run.kafka, "progress", 1)).passes(19)
    run.then(release).reads(commit(700)).passes(1).passes(1).go()

    assert seen(run, "part", "cut")[-3:] == [
        ("cut", "Commits", 608), ("part",), ("cut", "Commits", 708),
    ]  # fmt: skip


def test_a_record_of_cuts_that_readers_refuse_is_not_confirmed() -> None:
    run = Run().passes(1)
    other = Head(4, 1, 3, "other", 1, RESUME, -1)
    taken_over = Start(other, IDENTITY, "content", "cluster", dict(run.kafka.topics), {})
    run.then(lambda: run.kafka.cuts.append(taken_over)).reads(described(), *ROW).passes(1)

    with pytest.raises(TakenOver):
        run.go()

    assert 608 not in run.source.statuses


def test_an_error_of_kafka_ends_the_turn() -> None:
    run = Run().passes(1).then(lambda: run.kafka.answer(ConnectionLost("gone"))).passes(1)

    with pytest.raises(ConnectionLost):
        run.go()


# ---------------------------------------------------------------- leaving
def test_leaving_waits_for_the_end_of_an_open_transaction() -> None:
    run = Run().passes(1).reads(described(), begin(600), insert(1))
    run.has_left = lambda: len(run.source.script) < 2
    run.passes(3).reads(commit(600)).go()

    assert seen(run, "cut")[-1] == ("cut", "Commits", 608)
    assert run.source.statuses[-1] == 608
    assert run.notes.count("leaving") == 1
    assert not seen(run, "aborted")


def test_leaving_waits_no_longer_than_that() -> None:
    run = Run().passes(1).reads(described(), begin(600), insert(1)).go()

    assert run.clock.time == 1007
    assert run.did[-2:] == [("aborted",), ("status", 500)]


def test_leaving_in_the_last_moment_is_no_failure() -> None:
    run, asked = Run().passes(1).reads(described(), *ROW), list[bool]()
    run.has_left = lambda: bool(asked)
    run.then(lambda: setattr(run.kafka, "is_held", True)).then(lambda: asked.append(True))
    run.passes(8).then(lambda: (run.passed(1), setattr(run.kafka, "is_held", False)))

    assert run.go().source.statuses[-1] == 608


def test_nothing_is_begun_by_who_leaves() -> None:
    run = Run(look_seconds=1.0).passes(1).reads(described(), begin(600), insert(1))
    run.has_left = lambda: len(run.source.script) < 3
    run.then(lambda: (run.did.clear(), run.source.asked.update({A: 1}))).passes(2)
    run.reads(commit(600)).go()

    assert not seen(run, "point", "looked")


def test_leaving_does_not_wait_for_a_kafka_that_is_slow() -> None:
    run = Run(look_seconds=1.0).passes(1).reads(described(), *ROW)
    run.then(lambda: setattr(run.kafka, "is_held", True))

    with pytest.raises(ShutdownRequested):
        run.go()

    assert run.clock.time == 1010
    assert run.notes[-1] == "Kafka is slow: left without the last group, which comes again"
    assert run.did[run.did.index(("noted", "leaving")) :].count(("looked", "")) == 0


# ---------------------------------------------------------------- the catalog
def one_look(lsn: int, **how: Any) -> Look:
    tables = how.pop("tables", {1: Seen(A, 1, False, True, True, shape=shape(A, 1))})
    return Look(lsn, tables, **how)


def test_the_catalog_is_looked_at_every_few_seconds_and_less_often_where_that_is_slow() -> None:
    run = Run(look_seconds=3.0)
    for _ in range(7):
        run.passes(1)
    run.go()
    assert len(seen(run, "looked")) == 3

    slow = Run(look_seconds=3.0)
    looks = slow.source.look

    def look(known: Any, **how: Any) -> Look | Unchanged | None:
        slow.clock.time += 1
        return looks(known, **how)

    slow.source.look = look  # type: ignore[method-assign]
    for _ in range(12):
        slow.passes(10)
    slow.go()
    assert len(seen(slow, "looked")) == 4, "a look of a second, and 50 seconds without one"


def test_the_first_look_comes_before_the_first_row() -> None:
    """A table that was there by then, and comes by a rename later, has rows that are not sent."""
    run = Run().reads(described(), *ROW).passes(1).passes(1).go()

    assert [kind for kind, *_ in seen(run, "looked", "sent")] == ["looked", "sent"]


def test_one_slow_look_alone_does_not_keep_the_next_one_waiting() -> None:
    """Whoever waits for what the catalog shows waits as long: other programs had the processor."""
    run = Run(look_seconds=3.0)
    looks, took = run.source.look, [0.1, 8.0, 0.1, 0.1]

    def look(known: Any, **how: Any) -> Look | Unchanged | None:
        run.clock.time += took.pop(0) if took else 0.1
        return looks(known, **how)

    run.source.look = look  # type: ignore[method-assign]
    for _ in range(5):
        run.passes(7)
    run.go()
    assert took == []


def test_a_look_is_judged_behind_its_place_with_what_was_emptied_before_it() -> None:
    """The TRUNCATE is told before the look's place: it explains the look, and one more."""
    run = Run(look_seconds=1.0, repair="off")
    for lsn in (700, 800, 900):
        run.source.looks.append(one_look(lsn, is_of_files=True, emptied=(A,)))
    empty = Truncate((1,), cascade=False, restart_identity=False)
    run.reads(described(), *whole(600, empty)).passes(1).reads(*whole(699, insert(1)))
    for start in (700, 800, 900):
        run.reads(*whole(start)).passes(2).passes(2)
    run.go()

    suspected = [line for line in run.notes if "the catalog shows" in line]
    assert len(suspected) == 1
    assert [len(each) for each in holes(run)] == [0, 0, 1]
    assert [entry.commit_start for cut in run.written if isinstance(cut, Commits)
            for entry in cut.commits] == [600, 699, 908]  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "suspects"), [("END", 1), ("GAP", 0), ("PENDING", 0), ("BEGIN", 0), ("CHUNK", 0)]
)
def test_a_table_that_is_to_be_read_again_is_not_suspected(phase: str, suspects: int) -> None:
    run = Run(loads={"public.a": phase}, repair="off")
    run.source.looks.append(one_look(500, is_of_files=True, emptied=(A,)))
    run.passes(1).go()

    assert len(holes(run)) == suspects


def test_what_a_look_suspects_is_not_missing_in_a_table_that_was_read_since() -> None:
    run = Run(repair="off")
    run.source.looks.append(one_look(800, is_of_files=True, emptied=(A,)))
    run.source.places.append(Place(700, shape(A, 1)))
    run.source.asked[A] = 1
    run.passes(1).reads(*whole(700)).passes(1).passes(1).reads(*whole(800)).passes(1).go()

    assert seen(run, "adopted")
    assert holes(run) == []


def test_what_the_catalog_shows_is_a_transaction_at_the_place_of_the_stream() -> None:
    run = Run(known=(shape(A, 1), shape(B, 2)), captured=[A, B]).passes(1)
    tables = {2: Seen(B, 2, False, True, True, shape=shape(B, 2))}
    run.source.looks.append(one_look(600, tables=tables))
    run.reads(described(B, 2), *whole(600, insert(1, 2))).passes(1).passes(1).go()

    entries = [entry for cut in run.written if isinstance(cut, Commits) for entry in cut.commits]
    assert [(entry.xid, entry.commit_start, entry.end_lsn) for entry in entries] == [
        (601, 600, 608),
        (0, 608, 608),
    ]
    assert "the catalog shows what the stream did not: public.a was dropped" in run.notes


def test_a_look_waits_where_something_was_lost_before_it() -> None:
    """The loss is of the next commit; it may be what the look shows."""
    run = Run(repair="off", known=(shape(A, 1), shape(B, 2)), captured=[A, B])
    run.source.looks.append(one_look(600, tables={}))
    run.reads(*whole(600), Undecoded(b"?", "why")).passes(1).reads(*whole(700)).passes(1).go()

    entries = [entry for cut in run.written if isinstance(cut, Commits) for entry in cut.commits]
    assert [(entry.xid, len(entry.holes)) for entry in entries] == [(701, 1), (0, 0)]


def test_no_look_is_taken_inside_a_transaction_or_a_read_or_while_a_point_is_neared() -> None:
    run = Run(look_seconds=1.0, tuning=Tuning(slice_messages=1)).passes(1).passes(1)
    run.then(run.did.clear).reads(described(), begin(600)).passes(5).passes(5)
    run.then(lambda: run.did.append("ends")).reads(commit(600)).passes(5).go()
    assert [what[0] for what in run.did].index("looked") > run.did.index("ends")

    slices = Run(look_seconds=1.0, tuning=Tuning(slice_messages=1)).passes(1).passes(1)
    slices.has_left = lambda: bool(slices.passed(5)) or not slices.source.script
    slices.then(slices.did.clear).reads(*(described() for _ in range(4)), *whole(600)).go()
    assert len(seen(slices, "looked")) <= 2, "before the read, and behind it"

    near = Run(look_seconds=1.0, loads={"public.a": "CHUNK"})
    near.source.places.append(Place(9000, shape(A, 1)))
    near.passes(5).then(near.did.clear).passes(5).passes(5).go()
    assert not seen(near, "looked")


def test_a_new_table_is_hidden_published_and_noted_or_said_where_nothing_loads() -> None:
    look = one_look(500, arrived=(B,), missing=(C,), is_ours=True)
    run = Run(wanted=[A, B, C])
    run.source.looks.append(look)
    run.passes(1).passes(1).go()

    assert [line for line in run.notes if line.startswith("new:")] == [
        "new: table public.b is captured, and loaded beside the stream",
        "new: table public.c is captured, and loaded beside the stream",
    ]
    assert run.source.started["hidden"] == {B, C}
    assert run.source.published == [C]
    state = next(cut for cut in run.written if isinstance(cut, State))
    assert state.loads == {"public.a": "END", "public.b": "PENDING", "public.c": "PENDING"}

    silent = Run()
    for other in (Run(loads={}), silent):
        other.source.rereads = other is not silent
        other.source.looks.append(look)
        other.passes(1).go()
        assert [line for line in other.notes if "new" in line] == ["new: public.c is not captured"]


def test_a_session_that_is_outlived_ends_behind_its_marks_and_a_turn_follows() -> None:
    """pgoutput keeps the former name of a root's rows; the script has more, which nobody reads."""
    version = CatalogVersion("9:1", name="5")
    root = Seen(
        A, 1, is_partitioned=True, is_logged=True, is_published=True, shape=shape(A, 1),
        version=version, doubts=(Doubt(Cause.NAME),),
    )  # fmt: skip
    way = {"horizon": 20, "first_unseen": 20, "below": {1: frozenset()}, "publication": "p"}
    run = Run(look_seconds=1.0, known=(shape(A, 1),))
    run.source.looks += [
        one_look(500, tables={1: replace(root, doubts=())}, **way),
        one_look(700, tables={1: replace(root, version=CatalogVersion("9:1", name="8"))}, **way),
    ]
    run.passes(2).reads(described(), *whole(700, insert(1))).passes(2).passes(2)
    run.reads(*whole(900)).go()

    assert run.is_to_follow
    assert run.source.script, "the next session reads it"
    assert [len(each) for each in holes(run)][-1] == 2
    states = [cut for cut in run.written if isinstance(cut, State)]
    assert states[-1].loads == {"public.a": "GAP"}
    assert states[-1].looked is not None
    assert states[-1].looked.tables == {"1": "9:1;8"}
    assert not Run().passes(1).go().is_to_follow


NOTED = {"public.a": "END", "public.b": "PENDING"}


def test_a_table_that_is_noted_already_is_published_where_it_was_made_again() -> None:
    known = Run(loads=NOTED, captured=[A, B])
    known.source.looks.append(one_look(500, arrived=(B,)))
    known.passes(1).go()
    assert (known.source.published, [n for n in known.notes if "new" in n]) == ([], [])

    again = Run(loads=NOTED, captured=[A, B])
    again.source.looks.append(one_look(500, missing=(B,), is_ours=True))
    again.passes(1).go()
    assert again.source.published == [B]
    assert [line for line in again.notes if "new" in line] == [
        "new: table public.b is captured, and loaded beside the stream"
    ]

    refused = Run(loads=NOTED, captured=[A, B])
    refused.source.refused = {B: "table public.b needs its owner"}
    refused.source.looks.append(one_look(500, missing=(B,), is_ours=True))
    refused.passes(1).go()
    assert refused.source.started["hidden"] == {B}


def test_a_table_that_cannot_be_published_is_said_once_and_tried_again() -> None:
    run = Run(wanted=[A, B, C], look_seconds=1.0)
    look = one_look(500, missing=(B, C), is_ours=True)
    run.source.looks.extend([look, look, look])
    run.source.refused = {B: "table public.b needs its owner", C: SourceBusy("it is locked")}
    run.passes(1).passes(1).passes(1).passes(1).go()

    assert [line for line in run.notes if line.startswith("new:")] == [
        "new: table public.b needs its owner",
        "new: public.c is captured later: it is locked",
    ]
    assert run.source.started["hidden"] == set()
    assert [what[1] for what in seen(run, "looked")][:2] == ["", ""]


def test_tables_that_are_new_and_not_ours_to_publish_are_told() -> None:
    run = Run(look_seconds=1.0)
    run.source.looks.extend([one_look(500), one_look(500, missing=(C,))])
    run.passes(2).passes(2).go()

    assert [line for line in run.notes if "new" in line] == ["new: public.c is not captured"]


# ---------------------------------------------------------------- re-reads
def test_a_table_is_read_again_between_two_commits_and_the_stream_goes_on_behind() -> None:
    run = Run().passes(1)
    place = Place(700, shape(A, 1), [b"1", b"Alice"], [b"2", b"Bob"])
    run.source.places.append(place)
    run.then(lambda: run.source.asked.update({A: 4})).passes(11)
    run.reads(described(), *ROW, *whole(700, insert(2)))
    for _ in range(5):
        run.passes(1)
    run.go()

    did = seen(run, "point", "cut", "load", "adopted", "answered")
    assert did[1:] == [
        ("point", "public.a"),
        ("cut", "Commits", 608),
        ("load", "public.a", 2, 7),
        ("load", "public.a", 2, 2),
        ("cut", "TableLoad", 700),
        ("cut", "TableLoad", 700),
        ("cut", "TableLoad", 700),
        ("answered", "public.a", 4),
        ("adopted", "public.a"),
        ("cut", "Commits", 708),
    ]
    assert not place.is_open
    assert "run: a table is read again" in run.steps


def test_the_next_state_says_what_the_catalog_was_at_the_point() -> None:
    """It replaces what BEGIN said; an older one would suspect what the reading has."""
    run = Run().passes(1)
    run.source.looks.append(one_look(500))
    place = Place(500, shape(A, 1), [b"1", b"Alice"])
    place.looked = Before(77, "", {1: CatalogVersion("16:7")}, {})
    run.source.places.append(place)
    run.then(lambda: run.source.asked.update({A: 4})).passes(11).passes(1)
    run.reads(described(), *whole(700, insert(2))).passes(1).go()

    states = [cut for cut in run.kafka.cuts if isinstance(cut, State)]
    assert states[-1].looked is not None
    assert states[-1].looked.tables == {"1": "16:7"}


def test_a_table_that_was_renamed_meanwhile_is_not_read_as_a_new_one() -> None:
    run = Run(captured=[B])
    run.source.known = [shape(B, 1)]

    run.passes(1).passes(1).go()

    assert not seen(run, "point")


def test_the_stream_stands_still_until_all_before_the_point_is_durable() -> None:
    run = Run().passes(1)
    run.source.places.append(Place(608, shape(A, 1)))
    run.then(lambda: run.source.asked.update({A: 4})).passes(11)
    run.then(lambda: setattr(run.kafka, "is_held", True))
    reads: list[int] = []
    run.kafka.on_wait = lambda: (_later(run, 1, 3), reads.append(len(run.source.timeouts)))
    run.reads(described(), *ROW).reads(*whole(700, insert(2))).passes(1).passes(1).go()

    did = seen(run, "sent", "waited", "adopted")
    assert did == [("sent", 1), ("waited",), ("waited",), ("waited",), ("waited",), ("sent", 2),
                   ("adopted", "public.a"), ("sent", 1)]  # fmt: skip
    assert reads == [reads[0]] * 4, "the socket is not read meanwhile"


def test_a_point_is_made_between_two_reads() -> None:
    """It lies behind all that the source has sent."""
    run = Run(tuning=Tuning(slice_messages=1)).passes(1).passes(1)
    run.source.places.append(Place(800, shape(A, 1)))
    run.has_left = lambda: bool(run.passed(1)) or not run.source.script
    run.then(lambda: run.source.asked.update({A: 4}))
    run.reads(described(), *ROW, *whole(700, insert(2))).passes(5).passes(5).go()

    did = seen(run, "sent", "point")
    assert did[-1] == ("point", "public.a")


def test_the_topic_of_a_new_table_is_known_before_a_record_names_it() -> None:
    run = Run(loads=NOTED, captured=[A, B])
    run.source.places.append(Place(500, shape(B, 2), [b"1", b"Alice"]))
    run.passes(1).passes(1).passes(1).passes(1).go()

    kinds = [type(cut).__name__ for cut in run.written]
    assert kinds == ["Heartbeat", "State", "Heartbeat", "TableLoad", "TableLoad", "TableLoad"]
    state = next(cut for cut in run.written if isinstance(cut, State))
    assert "bank.public.b" in state.topics


def test_the_topic_of_a_new_table_is_known_also_where_nothing_can_be_read() -> None:
    run = Run(loads=NOTED, captured=[A, B], tuning=Tuning(buffer_bytes=-1))
    run.source.places.append(Place(500, shape(B, 2), [b"1", b"Alice"]))
    run.kafka.on_wait = lambda: run.passed(1)
    run.has_left = lambda: any(isinstance(cut, TableLoad) for cut in run.written)
    run.go()

    kinds = [type(cut).__name__ for cut in run.written if not isinstance(cut, Heartbeat)]
    assert kinds[:4] == ["State", "TableLoad", "TableLoad", "TableLoad"]
    state = next(cut for cut in run.written if isinstance(cut, State))
    assert "bank.public.b" in state.topics


def test_a_table_that_is_gone_at_its_point_is_not_waited_for_any_more() -> None:
    run = Run(loads=NOTED).passes(1)
    run.source.places.append(Place(700, None))
    run.passes(1).reads(described(), *whole(800, insert(1))).passes(1).passes(1).go()

    assert ("cut", "State", 700) in run.did
    state = [cut.loads for cut in run.written if isinstance(cut, State)]
    assert state == [{"public.a": "END"}]
    assert len(seen(run, "point")) == 1


def test_a_table_that_is_gone_at_its_point_is_taken_in_where_it_is_there_again() -> None:
    """It had another name for a moment: the catalog is the same as at the look before."""
    run = Run(wanted=[A, B], look_seconds=3.0)
    look = one_look(500, arrived=(B,), signature="as it is")
    run.source.looks.extend([look, look])
    run.source.places.append(Place(700, None))
    run.passes(1).passes(1).reads(*whole(800)).passes(1).passes(1).passes(3).passes(1).go()

    assert [cut.loads for cut in run.written if isinstance(cut, State)] == [
        {"public.a": "END", "public.b": "PENDING"},
        {"public.a": "END"},
        {"public.a": "END", "public.b": "PENDING"},
    ]
    assert [unless for _, unless in seen(run, "looked")][:2] == ["", ""]


def test_whoever_leaves_lets_go_of_the_point() -> None:
    run = Run(loads={"public.a": "CHUNK"})
    place = Place(9000, shape(A, 1))
    run.source.places.append(place)
    run.passes(1).passes(1)
    run.then(lambda: run.did.append(("waits", run.progress.waits_for))).passes(60).passes(0).go()

    assert not place.is_open
    where = "public.a: the position 0/2328, for 62 s"
    assert f"the stream is waited for, to read {where}" in run.notes
    assert ("waits", "public.a: the position 0/2328, for 2 s") in run.did


def test_what_an_error_ends_lets_go_of_the_point_too() -> None:
    run = Run(loads={"public.a": "CHUNK"})
    place = Place(9000, shape(A, 1))
    run.source.places.append(place)
    run.passes(1).passes(1).then(lambda: run.kafka.answer(ConnectionLost("gone"))).passes(1)

    with pytest.raises(ConnectionLost):
        run.go()

    assert not place.is_open


def test_a_table_that_the_stream_brings_itself_is_not_read() -> None:
    run = Run(wanted=[A, B])
    run.source.looks.append(one_look(500, arrived=(B,)))
    run.source.places.append(Place(9000, shape(B, 2)))
    run.passes(1).passes(1)
    run.then(lambda: run.source.started["hidden"].discard(B)).passes(1).passes(1).go()

    assert [cut.loads for cut in run.written if isinstance(cut, State)] == [
        {"public.a": "END", "public.b": "PENDING"},
        {"public.a": "END"},
    ]


def test_the_source_is_told_what_is_durable() -> None:
    run = Run().passes(1).reads(described(), *ROW).passes(1).passes(1).go()

    assert run.source.durable == run.written
    assert any(isinstance(cut, Commits) for cut in run.written)
