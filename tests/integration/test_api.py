"""What other Spark programs see of a source."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from schemas.control import Hole, LoadPhase
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.api import CommitGroup, Options, changes, for_each_commit_group
from spark_consumers.cuts.ledger import LATE
from spark_consumers.errors import RangeExpired, StreamError, SubjectUnknown
from tests.integration.kafka_feed import KafkaFeed
from tests.spark_consumers.feed import Tx, alter, delete, insert, update


def typed(name: str, *more: Column) -> TableSchema:
    columns = (
        Column("id", 23, -1, "integer", nullable=False),
        Column("v", 25, -1, "text"),
        *more,
    )
    return TableSchema(TableId("public", name), columns, ("id",), identity_columns=("id",))


A, B = typed("a"), typed("b")


@pytest.fixture
def source(kafka: str, topic_prefix: str) -> KafkaFeed:
    return KafkaFeed(kafka, topic_prefix, A, B)


def options(source: KafkaFeed) -> Options:
    return Options(source.client, source.registry, source.feed.source)


def test_changes_between_two_commits_are_typed_and_of_one_shape(source: KafkaFeed, spark) -> None:
    wide = typed("a", Column("w", 23, -1, "integer"))
    source.know(wide)
    source.feed.commits([insert(A, "0", "before")])
    source.feed.commits([insert(A, "1", "x"), insert(B, "1", "y")], [update(A, "1", "z")])
    source.feed.commits([alter(A, wide), insert(wide, "2", "new", "7")])
    source.feed.commits([delete(wide, "2")])
    source.publish()

    frame = changes(spark, options(source), A.id, after=1, upto=4)

    rows = [(r.seq, r.op, r.after.asDict()) for r in frame.orderBy("seq", "ordinal").collect()]
    assert rows == [
        (2, "c", {"id": 1, "v": "x", "w": None}),
        (3, "u", {"id": 1, "v": "z", "w": None}),
        (4, "c", {"id": 2, "v": "new", "w": 7}),
    ]
    empty = changes(spark, options(source), B.id, after=2)
    assert (empty.count(), empty.schema) == (0, changes(spark, options(source), B.id).schema)
    with pytest.raises(SubjectUnknown):
        changes(spark, options(source), TableId("public", "other"))


def test_a_range_that_is_not_there_as_it_was_asked_for_is_refused(source: KafkaFeed, spark) -> None:
    """A program that goes on behind what it asked for would lose what is between."""

    def count(after: int | str, upto: int | str | None = None) -> int:
        return changes(spark, options(source), A.id, after=after, upto=upto).count()

    source.feed.commits(*([insert(A, str(at), "x")] for at in range(3)))
    source.publish()
    assert (count(0, 2), count("1/2"), count(3)) == (2, 1, 0)
    for after, upto in ((4, None), (0, 4), ("2/0", None), (2, 1)):
        with pytest.raises(StreamError):
            count(after, upto)

    source.feed.start(epoch=2, continues=True)
    source.feed.commits([insert(A, "9", "x")])
    source.publish()
    with pytest.raises(StreamError, match=r"newest=2/1.*after=2/2"):  # it meant 1/2
        count(2)
    assert (count("1/2"), count(0), count("1/0", "1/3")) == (2, 1, 3)


def test_what_the_rows_of_a_range_do_not_show_is_told(source: KafkaFeed, spark) -> None:
    source.feed.commits([insert(A, "1", "x")])
    source.feed.commits(Tx([insert(A, "2", "x")], (Hole("public.a", "seen", "why"),)))
    source.feed.commits([replace(alter(A, A), after=None, tag="DROP TABLE")])
    source.publish()
    told: list[str] = []

    with pytest.raises(StreamError, match=r"public.a.*commit=1/2.*why=seen: why"):
        changes(spark, options(source), A.id)
    frame = changes(spark, options(source), A.id, on_gap=told.append)

    assert frame.count() == 2
    assert told == [
        "public.a is not exact since commit 1/2: seen: why",
        "public.a is not exact since commit 1/3: DROP TABLE",
    ]
    assert changes(spark, options(source), A.id, upto=1).count() == 1


def test_a_reader_begins_at_the_state_before_its_commits(source: KafkaFeed, spark) -> None:
    """And so it needs nothing of what was before, which may have been deleted."""
    for at in range(3):
        source.feed.commits([insert(A, str(at), "x")], [insert(A, str(10 + at), "y")])
    source.feed.state()
    source.publish()
    first = source.state_at
    source.feed.heartbeat()
    for at in range(3, 6):
        source.feed.commits([insert(A, str(at), "x")], [insert(A, str(10 + at), "y")])
    source.publish()
    place = TopicPartition(source.names.cuts, 0, first)
    source.admin.delete_records([place])[place].result()

    found = changes(spark, options(source), A.id, after=7, upto=10).orderBy("seq").collect()

    assert [(row.seq, row.after.id) for row in found] == [(8, 13), (9, 4), (10, 14)]
    assert changes(spark, options(source), A.id, after=6).count() == 6
    with pytest.raises(RangeExpired):
        changes(spark, options(source), A.id, after=5)


def test_a_function_gets_each_group_of_commits_once(
    source: KafkaFeed, spark, tmp_path: Path
) -> None:
    seen: list[tuple] = []
    stop = threading.Event()

    def fn(group: CommitGroup) -> None:
        seen.extend((str(table), "emptied") for table in group.emptied)
        for table in group.tables:
            rows = group.changes(table).orderBy("seq", "ordinal").collect()
            seen.append((str(table), [(r.seq, r.op) for r in rows]))
        if group.upto.seq == source.feed.seq and group.tables:
            stop.set()

    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.CHUNK, ["1", "x"])
    source.feed.load(A, LoadPhase.END)
    source.feed.commits([insert(A, "2", "x"), insert(B, "1", "y")], [delete(A, "2")])
    source.publish()
    for_each_commit_group(spark, options(source), fn, checkpoint=str(tmp_path), stop=stop)
    assert seen == [
        ("public.a", "emptied"),
        ("public.a", [(0, "r")]),
        ("public.a", [(1, "c"), (2, "d")]),
        ("public.b", [(1, "c")]),
    ]

    seen.clear()
    stop.clear()
    source.feed.commits([insert(B, "2", "z")])
    source.publish()
    for_each_commit_group(spark, options(source), fn, checkpoint=str(tmp_path), stop=stop)
    assert seen == [("public.b", [(3, "c")])]

    seen.clear()
    stop.clear()
    source.feed.load(B, LoadPhase.BEGIN)  # it is read again
    source.feed.load(B, LoadPhase.CHUNK, ["1", "y"], ["3", "new"])
    source.feed.load(B, LoadPhase.END)
    source.publish()
    for_each_commit_group(spark, options(source), fn, checkpoint=str(tmp_path), stop=stop)
    assert seen == [("public.b", "emptied"), ("public.b", [(0, "r"), (0, "r")])]


def test_gaps_are_told_until_a_load_ends_them(
    source: KafkaFeed, spark, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the source's records, and of a program that begins behind a table's load."""
    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.END)
    source.feed.state()
    source.publish()
    first = source.state_at
    source.feed.commits([insert(A, "1", "x")])
    source.feed.state()
    source.publish()
    place = TopicPartition(source.names.cuts, 0, first)
    source.admin.delete_records([place])[place].result()
    source.feed.commits([insert(A, "2", "x")])
    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.CHUNK, ["1", "x"], ["2", "x"])
    source.feed.load(A, LoadPhase.END)
    source.feed.commits(Tx([insert(A, "3", "x")], (Hole("public.a", "seen", "why"),)))
    source.feed.commits([insert(A, "4", "x")])
    source.publish()
    seen: list[tuple[list[int], dict[str, str]]] = []
    told: list[str] = []
    stop = threading.Event()

    def fn(group: CommitGroup) -> None:
        ids = [row.after.id for table in group.tables for row in group.changes(table).collect()]
        if ids:
            seen.append((sorted(ids), dict(group.gaps)))
        if group.upto.seq == source.feed.seq:
            stop.set()

    for_each_commit_group(
        spark, options(source), fn,
        checkpoint=str(tmp_path), stop=stop, max_rows=1, on_gap=told.append,
    )  # fmt: skip

    late = {"public.b": LATE}
    gap = {**late, "public.a": "seen: why"}
    assert seen == [([2], {**late, "public.a": LATE}), ([1, 2], late), ([3], gap), ([4], gap)]
    assert told == [f"public.a: {LATE}", f"public.b: {LATE}", "public.a: seen: why"]

    stop.clear()
    source.feed.commits([insert(A, "5", "x")])
    source.publish()
    for_each_commit_group(spark, options(source), fn, checkpoint=str(tmp_path), stop=stop)
    assert caplog.messages == ["public.a: seen: why", f"public.b: {LATE}"]


def test_an_error_of_the_function_ends_the_call_and_its_group_comes_again(
    source: KafkaFeed, spark, tmp_path: Path
) -> None:
    """In the first pass, and in a later one."""
    seen: list[int] = []
    stop = threading.Event()

    class Full(OSError):
        """Of the function's own."""

    def fn(group: CommitGroup) -> None:
        seen.append(group.upto.seq)
        if seen.count(group.upto.seq) == 1 and group.upto.seq:
            raise Full("no space left")
        if group.upto.seq == 1:
            source.feed.commits([insert(A, "2", "x")])
            source.publish()
        if group.upto.seq == 2:
            stop.set()

    source.feed.commits([insert(A, "1", "x")])
    source.publish()
    for _ in range(2):
        with pytest.raises(Full):
            for_each_commit_group(spark, options(source), fn, checkpoint=str(tmp_path), stop=stop)
    for_each_commit_group(spark, options(source), fn, checkpoint=str(tmp_path), stop=stop)

    assert seen == [0, 1, 1, 2, 2]
