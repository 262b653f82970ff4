"""Which parts of a commit tasks read, and what becomes of what they could not read.

The cluster is the simulation's; tasks read as they do there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any
from unittest.mock import Mock

import pytest

from schemas.control import CommitEntry, Commits, Head, LoadPhase, Range, TableLoad
from schemas.tables import TableSchema
from spark_consumers.cuts.segments import segments
from spark_consumers.cuts.sizes import Sizes
from spark_consumers.decode.rows import COMMIT_ORDER
from spark_consumers.errors import Incomplete, KafkaDown, RangeExpired, StreamError
from spark_consumers.kafka import parts, read
from spark_consumers.kafka.read import RangeReader
from spark_consumers.model import CommitRows, Ledger, Rows, Segment
from spark_consumers.spark import lanes
from spark_consumers.spark.executors import Done, Share
from spark_consumers.spark.lanes import CommitParts, Lanes
from tests.sim.broker import Broker
from tests.sim.ports import TOPICS
from tests.sim.reading import clients
from tests.sim.registry import Value, encode_change, encode_row, schema_of
from tests.sim.tasks import SimTasks
from tests.sim.world import World
from tests.spark_consumers.feed import Feed, alter, insert, table

A, B = table("a", "id text, v text"), table("b", "id text, v text")
WIDER = table("b", "id text, v text, w text")
DDL = (TOPICS.ddl, 0)


class Free:
    """An actor of a world without others: what it waits for comes with time."""

    def __init__(self, world: World) -> None:
        self.world = world

    def park(self, label: str, until: object = None, weight: float = 0) -> None:
        del label, until, weight
        self.world.now += 0.5


class Jobs(SimTasks):
    """Tasks of a world without faults; `change` alters what one says of a share."""

    change: Callable[[int, Done], Done] = staticmethod(lambda _, done: done)
    are_run = True

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.shares: list[Share] = []

    def read(
        self, shares: Sequence[Share], ids: Mapping[str, Sequence[int]], description: str
    ) -> Sequence[Done] | None:
        done, first = super().read(shares, ids, description), len(self.shares)
        self.shares += shares
        if done is None or not self.are_run:
            return None
        return [self.change(first + at, one) for at, one in enumerate(done)]


class Commit:
    """One commit in a cluster, its rows as they are written, and what reads it."""

    def __init__(self) -> None:
        self.world = World(0)
        self.world.calm = True
        topics = {TOPICS.cuts: 1, TOPICS.ddl: 1}
        topics |= {TOPICS.table(one.id): 2 for one in (A, B)}
        self.broker = Broker(self.world, topics)
        actor: Any = Free(self.world)
        mine = clients(actor, self.broker)
        self.reader = RangeReader({}, "bank", schema_of, clients=mine)
        self.jobs = Jobs(self.world, mine, 2, actor)
        self.client = self.broker.connect("p1", "gauss-cdc.bank")
        assert self.broker.init_transactions(self.client)
        assert self.broker.begin(self.client)
        self.rows = 0

    def put(self, schema: TableSchema, partition: int = 0, op: str = "c") -> None:
        after = None if op == "t" else [b"%d" % self.rows, *[b"x"] * (len(schema.columns) - 1)]
        row = Value(schema.id, schema.names(), op, after and tuple(after), 1, 1, self.rows, 7)
        place = (TOPICS.table(schema.id), partition)
        self.broker.append(self.client, place, b"", encode_row(schema, row))
        self.rows += 1

    def bury(self, schema: TableSchema) -> None:
        """A tombstone, as it follows a delete where the key is the row's."""
        self.broker.append(self.client, (TOPICS.table(schema.id), 0), b"", None)

    def alter(self) -> None:
        change = replace(alter(B, WIDER), epoch=1, seq=1, ordinal=self.rows)
        self.broker.append(self.client, DDL, b"", encode_change(change))
        self.rows += 1

    def segment(self) -> Segment:
        self.broker.commit(self.client)
        for transaction in self.broker.transactions:
            for place in list(transaction.pending):
                self.broker._marker(transaction, place)
        ranges = tuple(
            Range(*place, 0, len(found))
            for place, log in sorted(self.broker.logs.items())
            if (found := list(self.broker.read(place, 0, len(log), is_committed=True)))
        )
        entry = CommitEntry(1, 700, 1, 1, 2, 0, self.rows, {})
        cut = Commits(Head(1, 1, 1, "i1", 1, 10, -1), (entry,), ranges)
        ledger = Ledger("bank")
        return Segment(
            cut, ledger, replace(ledger, n=1, seq=1), 1, 1, self.rows, ranges,
            CommitRows(1, [self.rows]), is_barrier=any(r.topic == TOPICS.ddl for r in ranges),
        )  # fmt: skip

    def lanes(self) -> Lanes:
        return Lanes(self.reader, self.jobs, source="bank")

    def read(self, *, are_tables_apart: bool = True) -> list[Rows]:
        content = self.lanes()(self.segment())
        assert isinstance(content, CommitParts)
        return list(content.read(are_tables_apart=are_tables_apart))


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> Commit:
    """Whatever is read is too large to be held, and parts have a record or two."""
    monkeypatch.setattr(read, "WHOLE_BYTES", 0)
    monkeypatch.setattr(lanes, "_PART_ROWS", 2)
    monkeypatch.setattr(lanes, "_DRIVER_ROWS", 0)
    monkeypatch.setattr(parts, "_FIRST", 1)
    return Commit()


def places(some: Sequence[Rows]) -> list[list[int]]:
    """The ordinals of each part, schema changes among rows."""
    return [
        [c.ordinal for c in sorted(chain(*one.changes.values(), one.ddl), key=COMMIT_ORDER)]
        for one in some
    ]


def in_turn(some: Sequence[Rows]) -> list[int]:
    """The ordinals of all parts."""
    return [*chain(*places(some))]


def of_two_tables(commit: Commit) -> None:
    for _ in range(3):
        commit.put(A)
        commit.put(B)


def test_a_commit_with_tombstones_is_read_by_the_driver(commit: Commit) -> None:
    """A task would refuse its part for ever: it has fewer rows than records."""
    commit.put(A)
    commit.bury(A)
    commit.put(A)

    assert in_turn(commit.read()) == [0, 1]
    assert commit.jobs.shares == []


def test_tables_that_are_apart_are_read_by_tasks_one_behind_the_other(commit: Commit) -> None:
    of_two_tables(commit)

    assert places(commit.read()) == [[0, 2], [4], [1, 3], [5]]
    assert len(commit.jobs.shares) == 4


def test_without_leave_parts_come_in_commit_order(commit: Commit) -> None:
    of_two_tables(commit)

    assert in_turn(commit.read(are_tables_apart=False)) == [*range(6)]
    assert not commit.jobs.shares


def test_a_table_in_two_partitions_is_read_in_commit_order(commit: Commit) -> None:
    for at in range(6):
        commit.put(A, partition=at % 2)

    assert in_turn(commit.read()) == [*range(6)]
    assert not commit.jobs.shares


def test_schema_changes_before_all_rows_come_first(commit: Commit) -> None:
    commit.alter()
    of_two_tables(commit)

    assert places(commit.read()) == [[0], [1, 3], [5], [2, 4], [6]]


def test_rows_around_a_schema_change_are_read_in_commit_order(commit: Commit) -> None:
    commit.put(A)
    commit.alter()
    of_two_tables(commit)

    assert in_turn(commit.read()) == [*range(8)]
    assert not commit.jobs.shares


@pytest.mark.parametrize(
    "done", [None, Done(), Done(error=KafkaDown("no answer")), Done(error=StreamError("no login"))]
)
def test_what_tasks_did_not_read_the_driver_reads_in_its_place(
    commit: Commit, done: Done | None
) -> None:
    """The job failed; too large for a task; its executor's network or login is another one."""
    of_two_tables(commit)
    if done is None:
        commit.jobs.are_run = False
    else:
        commit.jobs.change = lambda at, read: read if at != 2 else done

    assert in_turn(commit.read()) == [0, 2, 4, 1, 3, 5]


def test_what_the_driver_meets_in_place_of_a_task_is_raised(
    commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_two_tables(commit)
    deleted = RangeExpired("rows were deleted")
    commit.jobs.change = lambda at, read: read if at != 2 else Done(error=deleted)
    monkeypatch.setattr(commit.reader, "content", Mock(side_effect=deleted))

    with pytest.raises(RangeExpired):
        commit.read()


def test_a_part_that_is_another_one_again_is_noticed(commit: Commit) -> None:
    of_two_tables(commit)
    seen: list[Done] = []

    def again(at: int, done: Done) -> Done:
        seen.append(done)
        return seen[0] if at == 2 else done

    commit.jobs.change = again

    with pytest.raises(Incomplete):
        commit.read()


def test_segments_that_a_job_reads_come_in_their_order(commit: Commit) -> None:
    of_two_tables(commit)
    segment = commit.segment()
    whole = RangeReader.__call__(commit.reader, segment)
    commit.jobs.change = lambda at, done: done if at != 1 else Done(error=Incomplete("no"))
    reads = commit.lanes()

    assert reads.together(segment) == 2
    first, second, third = reads.several([segment] * 3)
    assert [first.changes[A.id], third.changes[B.id]] == [whole.changes[A.id], whole.changes[B.id]]
    assert second is None
    assert reads.together(replace(segment, is_barrier=True)) == 0


def test_loads_do_not_come_in_parts(commit: Commit) -> None:
    commit.put(A)
    commit.put(A)
    segment = commit.segment()
    load = TableLoad(segment.cut.head, A.id, LoadPhase.CHUNK, ranges=segment.ranges, rows=2)

    content = commit.lanes()(replace(segment, cut=load, loads=(load,), commit_rows=CommitRows()))

    assert isinstance(content, Rows)
    assert len(content.changes[A.id]) == 2


def test_a_record_of_fewer_tables_bounds_the_segment_that_another_began() -> None:
    feed = Feed()
    feed.start()
    feed.commits(*[[insert(A, str(at), "x")] for at in range(30)])
    feed.commits(*[[insert(A, str(at), "x")] for at in range(60)])
    many = {f"bank.public.t{at}": (1,) for at in range(200)}
    *rest, (offset, first), second = feed.records
    assert isinstance(first, Commits)
    records = [*rest, (offset, replace(first, schema_ids=many)), second]

    _, *found = segments(Ledger("bank"), records, sizes=Sizes(10, 1_000))

    assert [one.rows for one in found][:2] == [30, 20]
