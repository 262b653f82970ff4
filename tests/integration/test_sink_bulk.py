"""What executors staged at a PostgreSQL is counted and applied inside the step: without Spark."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from threading import Semaphore
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest

from schemas.control import LoadPhase, SchemaChange
from schemas.tables import TableSchema
from spark_consumers.ahead import ReadingThread
from spark_consumers.errors import Fenced, Incomplete, TargetDown
from spark_consumers.job import Applier, PassOptions
from spark_consumers.ledger import LACKS_ROW
from spark_consumers.model import Change, Segment
from spark_consumers.sinks.base import StagedShape
from spark_consumers.sinks.postgres.loader import CopyLoader
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.spark_consumers.feed import Feed, alter, delete, insert, table, truncate, update

A = table("a", "id integer, v text")
LOG = table("log", "id integer, v text", key="")


class Tasks:
    """A segment's content as executors bring it: each list is a task's, under its number."""

    def __init__(self, url: str, feed: Feed, segment: Segment) -> None:
        rows = feed.read_rows(segment)
        self.loader = CopyLoader(psycopg2.extensions.parse_dsn(url))
        self.ddl: Sequence[SchemaChange] = rows.ddl
        self.shapes: list[StagedShape] = []
        self.changes: list[tuple[int, Change]] = []
        for found, changes in rows.changes.items():
            for change in changes:
                shape = StagedShape(found, change.columns)
                if shape not in self.shapes:
                    self.shapes.append(shape)
                self.changes.append((self.shapes.index(shape), change))
        self.tasks = {1: list(self.changes)}
        self.counts = [1]
        self.refused: str | None = None
        self.driver_rows = 0
        self.copied: Callable[[], None] = lambda: None

    def copy(self, stages: Sequence[str]) -> Sequence[int]:
        for task, changes in self.tasks.items():
            staged = [(at, [one]) for at, one in changes]
            copy = self.loader.for_tasks().load
            self.refused = copy(stages, task, staged, self.loader.secrets)
            assert self.refused is None, self.refused
        self.copied()
        return self.counts


class Bulk:
    """A target that is fed by tasks; `change` alters what the newest segment's bring."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url, self.feed = url, Feed()
        self.sink = PostgresSink(url, "bank", on_step=self.report, **options)
        self.change: Callable[[Tasks], None] = lambda _: None
        self.on_step: Callable[[str], None] = lambda _: None  # a place inside a step
        self.applier = Applier(
            self.feed.read_cuts, self.read, self.sink, PassOptions(max_rows=1_000_000, attempts=1)
        )
        self.feed.start()

    def report(self, at: str) -> None:
        self.on_step(at)

    def read(self, segment: Segment) -> Any:
        if not segment.ranges:
            return self.feed.read_rows(segment)
        self.tasks = Tasks(self.url, self.feed, segment)
        self.change(self.tasks)
        return self.tasks

    def load(self, schema: TableSchema, *rows: list[str | None]) -> None:
        self.feed.load(schema, LoadPhase.BEGIN)
        if rows:
            self.feed.load(schema, LoadPhase.CHUNK, *rows)
        self.feed.load(schema, LoadPhase.END)
        self.applier.drain()

    def apply(self, *transactions: Any) -> None:
        self.feed.commits(*transactions)
        self.applier.drain()

    def apply_ahead(self, *transactions: Any) -> None:
        """Apply commits of one record one by one, each staged while the one before is applied."""
        self.feed.commits(*transactions)
        options = PassOptions(max_rows=1, attempts=1)
        with closing(ReadingThread()) as begin:
            Applier(self.feed.read_cuts, self.read, self.sink, options, begin=begin).drain()

    def rows(self, what: str) -> list[Any]:
        with psycopg2.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {what} ORDER BY 1, 2")
            found = cursor.fetchall()
        connection.close()
        return found


@pytest.fixture(params=[True, False], ids=["replica", "enforced"])
def bulk(new_database: Callable[[], str], request) -> Iterator[Bulk]:
    one = Bulk(new_database(), replica_role=request.param)
    yield one
    one.sink.close()


def test_what_tasks_staged_is_applied_in_commit_order_and_gone(bulk: Bulk) -> None:
    bulk.load(A, ["1", "one"], ["2", "two"])
    bulk.load(LOG, ["1", "x"], ["1", "x"])

    bulk.apply(
        [insert(A, "3", "three"), update(A, "1", ...), delete(A, "2")],
        [update(A, "9", ..., old="1"), insert(LOG, "2", "y")],
    )

    assert bulk.rows("a") == [(3, "three"), (9, "one")]
    assert bulk.rows("log") == [(1, "x"), (1, "x"), (2, "y")]
    assert bulk.rows("pg_tables WHERE tablename LIKE 'stage%'") == []


def forgets_one(tasks: Tasks) -> None:
    tasks.tasks = {1: tasks.changes[:-1]}


def counts_twice(tasks: Tasks) -> None:
    tasks.tasks = {1: tasks.changes, 2: tasks.changes[:1]}
    tasks.counts = [1, 2]


def one_instead_of_another(tasks: Tasks) -> None:
    tasks.tasks = {1: [tasks.changes[0], tasks.changes[0]]}


def one_of_another_commit(tasks: Tasks) -> None:
    at, change = tasks.changes[0]
    other = Change(99, 0, change.op, change.columns, change.before, change.after)
    tasks.tasks = {1: [*tasks.changes, (at, other)]}


def counts_nobody(tasks: Tasks) -> None:
    tasks.counts = []


WRONG = [forgets_one, counts_twice, one_instead_of_another, one_of_another_commit, counts_nobody]


@pytest.mark.parametrize("wrong", WRONG)
def test_rows_that_are_not_what_the_cut_promises_are_not_applied(bulk: Bulk, wrong) -> None:
    bulk.load(A)
    bulk.change = wrong

    with pytest.raises(Incomplete):
        bulk.apply([insert(A, "1", "x"), insert(A, "2", "y")])

    assert bulk.rows("a") == []
    bulk.change = lambda _: None
    bulk.applier.drain()
    assert bulk.rows("a") == [(1, "x"), (2, "y")]


@pytest.mark.parametrize("wrong", [forgets_one, counts_twice, counts_nobody])
def test_a_chunk_of_a_load_has_the_rows_that_its_cut_says(bulk: Bulk, wrong) -> None:
    bulk.feed.load(A, LoadPhase.BEGIN)
    bulk.applier.drain()
    bulk.feed.load(A, LoadPhase.CHUNK, ["1", "x"], ["2", "y"])
    bulk.change = wrong

    with pytest.raises(Incomplete):
        bulk.applier.drain()

    assert bulk.rows("a") == []


def test_rows_of_an_attempt_that_failed_are_not_read(bulk: Bulk) -> None:
    bulk.load(A)
    bulk.load(LOG)

    def twice(tasks: Tasks) -> None:
        tasks.tasks = {1: tasks.changes[:3], 2: tasks.changes}
        tasks.counts = [2]

    bulk.change = twice
    bulk.apply([insert(A, "1", "x"), insert(LOG, "1", "x"), insert(LOG, "2", "y")])

    assert bulk.rows("a") == [(1, "x")]
    assert bulk.rows("log") == [(1, "x"), (2, "y")]


def test_ddl_is_counted_with_the_rows(bulk: Bulk) -> None:
    bulk.load(A, ["1", "x"])
    wider = table("a", "id integer, v text, w text")

    bulk.apply([insert(A, "2", "y"), alter(A, wider), insert(wider, "3", "z", "w")])

    assert bulk.rows("a") == [(1, "x", None), (2, "y", None), (3, "z", "w")]


def test_an_unsent_value_of_a_row_that_is_not_there_marks_its_table(bulk: Bulk) -> None:
    bulk.load(A)

    bulk.apply([insert(A, "1", "x"), update(A, "2", ...)])

    assert bulk.rows("a") == [(1, "x")]
    assert bulk.applier.drain().inexact == {"public.a": LACKS_ROW}


def test_what_was_staged_before_another_applier_came_is_given_up(bulk: Bulk) -> None:
    bulk.load(A)

    def overtaken(_: Tasks) -> None:
        with psycopg2.connect(bulk.url) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE gauss_cdc.ledger SET fence = fence + 1")
        connection.close()

    bulk.change = overtaken
    with pytest.raises(Fenced):
        bulk.apply([insert(A, "1", "x")])

    assert bulk.rows("a") == []


STAGES = "pg_tables WHERE tablename LIKE 'stage%'"


def test_a_segment_is_staged_while_a_step_holds_the_ledger_and_its_tables(bulk: Bulk) -> None:
    """Two of one record of cuts; the first one empties the table."""
    bulk.load(A, ["1", "one"])
    copied, steps = Semaphore(0), iter([2, 0])
    bulk.change = lambda tasks: setattr(tasks, "copied", copied.release)

    def held(at: str) -> None:
        if at == "rows applied":
            assert all(copied.acquire(timeout=60) for _ in range(next(steps)))

    bulk.on_step = held
    bulk.apply_ahead([truncate(A), insert(A, "2", "two")], [update(A, "2", "new")])

    assert bulk.rows("a") == [(2, "new")]
    assert bulk.rows(STAGES) == []


def test_what_was_staged_ahead_goes_where_the_step_before_it_fails(bulk: Bulk) -> None:
    bulk.load(A)
    copied = Semaphore(0)
    bulk.change = lambda tasks: setattr(tasks, "copied", copied.release)

    def fails(at: str) -> None:
        if at == "rows applied":
            assert all(copied.acquire(timeout=60) for _ in range(2))
            raise TargetDown("gone")

    bulk.on_step = fails
    with pytest.raises(TargetDown):
        bulk.apply_ahead([insert(A, "1", "x")], [insert(A, "2", "y")])
    assert bulk.rows("a") == []
    assert len(bulk.rows(STAGES)) == 2

    bulk.sink.ledger()
    assert bulk.rows(STAGES) == []
