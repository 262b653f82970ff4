"""A commit that comes in parts is one step of a PostgreSQL: half of it is never seen."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

from schemas.control import Commits, LoadPhase
from schemas.tables import TableSchema
from spark_consumers.cuts.complete import Following, promised
from spark_consumers.cuts.ledger import LACKS_ROW
from spark_consumers.decode.rows import COMMIT_ORDER
from spark_consumers.errors import Fenced, Incomplete, TargetDown
from spark_consumers.loop.job import Applier, PassOptions
from spark_consumers.model import Rows, Segment
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.integration.postgres_target import Applied, packed
from tests.spark_consumers.feed import Feed, alter, delete, insert, table, truncate, update

A = table("a", "id integer, v text")
WIDER = table("a", "id integer, v text, w text")
LOG = table("log", "id integer, v text", key="")


class SomeAtOnce:
    """A commit's rows in parts of some rows each, as `model.Parts` gives them."""

    def __init__(self, feed: Feed, segment: Segment, rows: int) -> None:
        self.feed, self.segment, self.most = feed, segment, rows
        self.by_tasks = Counter[str]()
        self.readings = 0
        self.are_tables_apart: bool | None = None
        self.skip: int | None = None  # a row that is not there
        self.on_part: Callable[[int], None] = lambda _: None

    def read(self, *, are_tables_apart: bool) -> Iterator[Rows]:
        self.readings += 1
        self.are_tables_apart = are_tables_apart
        following = Following(promised(self.segment))
        whole = self.feed.read_rows(self.segment)
        places = {table: list(changes) for table, changes in whole.changes.items()}
        everything = sorted(
            [*(c for changes in places.values() for c in changes), *whole.ddl], key=COMMIT_ORDER
        )
        if self.skip is not None:
            del everything[self.skip]
        for start in range(0, len(everything), self.most):
            some = everything[start : start + self.most]
            taken = {*map(id, some)}
            mine = {
                table: packed(found)
                for table, changes in places.items()
                if (found := [c for c in changes if id(c) in taken])
            }
            part = Rows(mine, [c for c in whole.ddl if id(c) in taken])
            following.take(part, COMMIT_ORDER(some[-1]))
            yield part
            self.on_part(start // self.most)
        following.end()


class Fed(Applied):
    """A target that is fed in parts; `change` alters what the newest commit's reading does."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url, self.feed, self.most = url, Feed(), 2
        self.sink = PostgresSink(url, "bank", on_step=self.report, **options)
        self.change: Callable[[SomeAtOnce], None] = lambda _: None
        self.on_step: Callable[[str], None] = lambda _: None  # a place inside a step
        self.parts: list[SomeAtOnce] = []
        self.applier = Applier(
            self.feed.read_cuts, self.read, self.sink, PassOptions(max_rows=1_000_000, attempts=1)
        )
        self.feed.start()

    def report(self, at: str) -> None:
        self.on_step(at)

    def read(self, segment: Segment) -> Any:
        if not isinstance(segment.cut, Commits):
            return self.feed.read_rows(segment)
        self.parts.append(SomeAtOnce(self.feed, segment, self.most))
        self.change(self.parts[-1])
        return self.parts[-1]

    def load(self, schema: TableSchema, *rows: list[str | None]) -> None:
        self.feed.load(schema, LoadPhase.BEGIN)
        if rows:
            self.feed.load(schema, LoadPhase.CHUNK, *rows)
        self.feed.load(schema, LoadPhase.END)
        self.applier.drain()


@pytest.fixture(params=[True, False], ids=["replica", "enforced"])
def fed(new_database: Callable[[], str], request) -> Iterator[Fed]:
    one = Fed(new_database(), replica_role=request.param)
    one.is_replica = request.param
    yield one
    one.sink.close()


LARGE = [
    *(insert(A, str(at), "x") for at in range(3, 9)),
    *(update(A, str(at), ...) for at in range(1, 5)),
    update(A, "9", ..., old="1"),
    delete(A, "2"),
    delete(A, "8"),
    insert(A, "1", "again"),
    *(insert(LOG, str(at), "y") for at in range(3)),
]
AFTER = [(1, "again"), *((at, "x") for at in range(3, 8)), (9, "one")]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_parts_are_applied_in_commit_order_as_one_step(fed: Fed, most: int) -> None:
    fed.most = most
    fed.load(A, ["1", "one"], ["2", "two"])
    fed.load(LOG, ["1", "x"], ["1", "x"])
    steps = fed.applier.steps

    fed.apply(LARGE, [insert(LOG, "9", "z")])

    assert fed.rows("a") == AFTER
    assert fed.rows("log") == [(0, "y"), (1, "x"), (1, "x"), (1, "y"), (2, "y"), (9, "z")]
    assert fed.applier.steps == steps + 1
    # Without foreign keys that act, the parts of each table may come in its order only.
    assert [one.are_tables_apart for one in fed.parts] == [fed.is_replica]


def test_half_of_a_commit_is_never_seen(fed: Fed) -> None:
    fed.load(A, ["1", "one"], ["2", "two"])
    fed.load(LOG)
    seen: list[Any] = []

    def look(_: object) -> None:
        seen.append((fed.rows("a"), fed.rows("log"), fed.rows("gauss_cdc.ledger")))

    fed.change = lambda parts: setattr(parts, "on_part", look)
    fed.on_step = lambda at: look(at) if at != "committed" else None
    before = ([(1, "one"), (2, "two")], [], fed.rows("gauss_cdc.ledger"))
    fed.apply(LARGE)

    assert len(seen) > 8
    assert all(one == before for one in seen)
    assert fed.rows("a") == AFTER


def test_a_step_that_fails_in_a_later_part_leaves_nothing_and_is_read_again(fed: Fed) -> None:
    fed.load(A, ["1", "one"], ["2", "two"])
    fed.load(LOG)
    before = fed.rows("gauss_cdc.ledger")

    def fails(at: int) -> None:
        if at == 2:
            raise TargetDown("gone")

    fed.change = lambda parts: setattr(parts, "on_part", fails)
    with pytest.raises(TargetDown):
        fed.apply(LARGE)
    assert (fed.rows("a"), fed.rows("log")) == ([(1, "one"), (2, "two")], [])
    assert fed.rows("gauss_cdc.ledger") == before

    fed.change = lambda _: None
    fed.applier.drain()
    assert fed.rows("a") == AFTER


@pytest.mark.parametrize("lost", [0, 5, -1])
def test_parts_that_are_not_everything_leave_nothing(fed: Fed, lost: int) -> None:
    fed.load(A, ["1", "one"], ["2", "two"])
    fed.load(LOG)
    fed.change = lambda parts: setattr(parts, "skip", lost)

    with pytest.raises(Incomplete):
        fed.apply(LARGE)

    assert (fed.rows("a"), fed.rows("log")) == ([(1, "one"), (2, "two")], [])
    fed.change = lambda _: None
    fed.applier.drain()
    assert fed.rows("a") == AFTER


def test_a_step_that_is_tried_again_reads_all_parts_again(fed: Fed) -> None:
    """Someone put a row under a key that comes in the third part."""
    fed.load(A, ["1", "one"], ["2", "two"])
    fed.load(LOG)
    fed.run("INSERT INTO a VALUES (7, 'mine')")

    fed.apply(LARGE)

    assert fed.rows("a") == AFTER
    assert fed.rows("log") == [(0, "y"), (1, "y"), (2, "y")]
    assert [one.readings for one in fed.parts] == [2]


@pytest.mark.parametrize("most", [1, 2, 4])
def test_ddl_inside_parts_is_run_between_their_rows(fed: Fed, most: int) -> None:
    fed.most = most
    fed.load(A, ["1", "x"])

    fed.apply(
        [insert(A, "2", "y"), insert(A, "3", "y"), alter(A, WIDER), insert(WIDER, "4", "z", "w"),
         update(WIDER, "2", ..., "W"), delete(WIDER, "3")]
    )  # fmt: skip

    assert fed.rows("a") == [(1, "x", None), (2, "y", "W"), (4, "z", "w")]


def test_a_truncation_between_parts_takes_what_came_before_it(fed: Fed) -> None:
    fed.load(A, ["1", "one"])

    fed.apply([insert(A, "2", "x"), insert(A, "3", "x"), truncate(A), insert(A, "4", "x")])

    assert fed.rows("a") == [(4, "x")]


def test_a_row_that_is_lacking_marks_its_table_and_the_step_is_read_again(fed: Fed) -> None:
    fed.load(A)

    fed.apply([insert(A, "1", "x"), insert(A, "3", "x"), update(A, "2", ...)])

    assert fed.rows("a") == [(1, "x"), (3, "x")]
    assert fed.applier.drain().inexact == {"public.a": LACKS_ROW}


def test_parts_of_an_applier_that_was_overtaken_change_nothing(fed: Fed) -> None:
    fed.load(A)
    fed.change = lambda _: fed.run("UPDATE gauss_cdc.ledger SET fence = fence + 1")

    with pytest.raises(Fenced):
        fed.apply([insert(A, "1", "x")])

    assert fed.rows("a") == []


@pytest.mark.parametrize("columns", ["all", "some"])
def test_what_earlier_parts_staged_is_read_no_more(fed: Fed, columns: str) -> None:
    """Deleted rows would stay until the commit's end, and each part would read those before it."""
    fed.most = 1_500
    many = range(3 * fed.most)
    fed.load(A, *([str(at), "x"] for at in many))
    sizes = []

    def look(at: str) -> None:
        if at == "rows applied":
            with fed.sink._conn.cursor() as cursor:
                cursor.execute("SELECT pg_relation_size('pg_temp.cdc_stage_1')")
                sizes.extend(cursor.fetchone())

    fed.on_step = look
    new = "y" if columns == "all" else ...
    fed.apply([update(A, str(at), new) for at in many[: fed.most]])
    fed.apply([update(A, str(at), new) for at in many])

    assert sizes[0] > 0
    assert sizes == [sizes[0]] * 2
    assert fed.rows("a") == [(at, "y" if columns == "all" else "x") for at in many]


@pytest.mark.parametrize("key", ["integer", "text"])
def test_rows_that_change_are_written_by_their_key(fed: Fed, key: str) -> None:
    """In the order of the commit a large table's pages would be read for each row anew."""
    shape, fed.most = table("a", f"id {key}, v text"), 1_000
    keys = [f"{at:03}" if key == "text" else str(at) for at in range(100, 400)]
    fed.load(shape, *([one, "x"] for one in keys))

    random.Random(7).shuffle(changed := keys[50:])
    fed.apply([update(shape, one, "y") for one in changed])

    with psycopg2.connect(fed.url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id::text FROM a WHERE v = 'y' ORDER BY ctid")
        assert [one for (one,) in cursor.fetchall()] == keys[50:]
    connection.close()
