"""Our own records of cuts are confirmed only if readers accept them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from producer.core.log.cuts_log import CutsLog
from producer.core.ports import Stored
from producer.core.takeover.promotion import Tail
from producer.errors import CutsBroken, TakenOver
from schemas.accept import Foreign, Record
from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    Head,
    Heartbeat,
    Identity,
    LoadPhase,
    Start,
    TableLoad,
)
from schemas.tables import TableId
from schemas.topics import Topics

SOURCE = Identity("7000", 1, "bank", "slot", "pgoutput")


def head(n: int, *, writer: int = 1, instance: str = "me", state_from: int = 0) -> Head:
    return Head(n, 1, writer, instance, 0, 400, state_from)


def start(n: int, **more: Any) -> Start:
    return Start(head(n, state_from=-1, **more), SOURCE, "content", "cluster", {}, {})


def commits(n: int) -> Commits:
    entry = CommitEntry(
        seq=1, xid=700, csn=0, commit_start=500, end_lsn=510, committed_at=0, rows=0, counts={}
    )
    return Commits(replace(head(n), last_seq=1, resume=510), (entry,), ())


def load(n: int) -> TableLoad:
    return TableLoad(head(n), TableId("public", "a"), LoadPhase.CHUNK, "AGAIN", (), 0, 400, {})


@dataclass
class Topic:
    """The topic of cuts; `None` is a marker."""

    records: list[Record | None]
    topic: str = "bank.cuts"
    unknown: int | None = None
    first: int = 0  # what is before was removed by retention

    def bounds(self) -> tuple[int, int]:
        return self.first, len(self.records)

    def lso(self) -> int:
        return len(self.records)

    def read(self, low: int, high: int) -> list[Stored]:
        assert low >= self.first, "Kafka refuses an offset that retention removed"
        shown = enumerate(self.records[low:high], low)
        return [
            Stored(at, b"hers" if isinstance(record, Foreign) else b"bank", b"%d" % at)
            for at, record in shown
            if record is not None
        ]

    def encode_cut(self, cut: Cut) -> bytes:
        raise NotImplementedError

    def read_cut(self, value: bytes) -> Cut:
        record = self.records[int(value)]
        assert record is not None
        assert not isinstance(record, Foreign)
        return record


def log_of(topic: Any, said: list[str], delivery: Any = None) -> CutsLog:
    return CutsLog(
        names=Topics("bank"),
        accept_gap=False,
        reader=topic,
        codec=topic,
        delivery=delivery,
        topics=topic,
        clock=topic,
        note=said.append,
    )


def judged(*records: Record | None, ours: int, first: int = 0) -> list[str]:
    """Judge the record at an offset as our own; what was said to the operator."""
    said: list[str] = []
    topic = Topic(list(records), first=first)
    log = log_of(topic, said)
    log.tail()  # as a takeover does: it sees where the log begins
    record = topic.records[ours]
    assert record is not None
    assert not isinstance(record, Foreign)
    log.judge_own([record], [ours])
    return said


def test_what_follows_our_start_is_accepted() -> None:
    assert judged(start(1), None, commits(2), None, ours=2) == []


def test_a_record_written_under_our_name_stops_us_before_we_confirm() -> None:
    forged = commits(2)

    with pytest.raises(CutsBroken, match="under our name"):
        judged(start(1), None, forged, commits(2), None, ours=3)


def test_another_writers_start_before_our_record_stops_us() -> None:
    other = start(2, writer=2, instance="other")

    with pytest.raises(TakenOver):
        judged(start(1), None, other, commits(2), None, ours=3)


def test_a_record_of_an_unknown_writer_is_reported_and_does_not_count() -> None:
    foreign = Heartbeat(head(9, instance="nobody"))

    (said,) = judged(start(1), None, foreign, commits(2), None, ours=3)

    assert "bank.cuts" in said


@pytest.mark.parametrize("first", range(1, 9))
def test_what_retention_removed_before_our_record_is_not_missing(first: int) -> None:
    """A table was read again: its records are not judged one by one, and the next one is late."""
    log = start(1), None, load(2), None, load(3), None, load(4), None, commits(5), None

    assert judged(*log, ours=8, first=first) == []


def test_a_record_of_somebody_else_that_retention_left_is_passed_by() -> None:
    hers = Foreign("hers")
    log = start(1), None, load(2), None, hers, None, load(3), None, commits(4), None

    assert judged(*log, ours=8, first=4) == []


@pytest.mark.parametrize("first", range(7))
def test_a_forged_record_that_retention_left_stops_us_all_the_same(first: int) -> None:
    log = start(1), None, load(2), None, load(3), None, load(4), commits(4), None

    with pytest.raises(CutsBroken, match="under our name"):
        judged(*log, ours=7, first=first)


def test_the_log_is_read_from_the_newest_state_on() -> None:
    foreign = Heartbeat(head(9, instance="nobody"))
    ours = replace(commits(2), head=replace(commits(2).head, state_from=2))

    assert judged(foreign, None, start(1), None, ours, None, ours=4) == []


def test_a_writer_from_whom_nothing_was_removed_took_over() -> None:
    ours = replace(commits(2), head=replace(commits(2).head, state_from=2))

    with pytest.raises(TakenOver):
        judged(None, None, start(2, writer=2, instance="other"), ours, None, ours=3, first=2)


def test_what_was_delivered_behind_a_position_is_looked_for_where_there_is_a_log() -> None:
    topic = Topic([start(1), None, commits(2), None])
    replay = log_of(topic, []).tail()
    assert replay is not None

    assert log_of(topic, []).tail_behind(505, replay) == Tail(frozenset())
    assert not log_of(topic, []).tail_behind(300, replay).is_known, "further back than the log"
    assert log_of(None, []).tail_behind(300, replay) == Tail()


@dataclass
class Writer(Topic):
    """Writes into the topic, at a time."""

    atomic: list[bool] = field(default_factory=list)

    def wall_us(self) -> int:
        return 77

    def encode_cut(self, cut: Cut) -> bytes:
        self.records.append(cut)
        return b"%d" % (len(self.records) - 1)

    def write_now(
        self, batches: list[Any], closing: Callable[[Any], list[Any]], *, atomic: bool
    ) -> Any:
        self.atomic.append(atomic)
        first = len(self.records)
        closing(batches)
        return batches, tuple(range(first, len(self.records)))


def test_a_start_is_stamped_with_the_time_in_a_transaction_with_its_shapes() -> None:
    writer = Writer([None, None])
    log = log_of(writer, [], delivery=writer)
    assert not log.has_started

    assert log.write_start(start(1), [("bank.ddl", 0, b"a", b"a shape", [])]) == 2

    assert log.has_started
    assert log.begins == ""
    log.write_start(replace(start(1), reason="a gap is accepted"))
    assert log.begins == "a gap is accepted"
    assert writer.records[2] == replace(start(1), head=replace(start(1).head, written_at=77))
    assert writer.atomic == [True, True]


def test_what_was_judged_is_not_read_again() -> None:
    topic, reads = Topic([start(1), None, Heartbeat(head(1)), None, Heartbeat(head(1))]), []
    read = topic.read
    topic.read = lambda low, high: reads.append((low, high)) or read(low, high)  # type: ignore[func-returns-value,method-assign]
    log = log_of(topic, [])

    for at in (0, 2, 4):
        record = topic.records[at]
        assert record is not None
        log.judge_own([record], [at])

    assert reads == []
