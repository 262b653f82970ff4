"""Segments as lakes get them: read by Spark's tasks from a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from schemas.tables import Column, TableId, TableSchema
from spark_consumers.cuts.segments import segments
from spark_consumers.errors import RangeExpired
from spark_consumers.kafka.read import CutReader, RangeReader
from spark_consumers.model import Ledger, Segment
from spark_consumers.sinks.step import FIRST, LAST
from spark_consumers.spark.frames import TaskLogin
from spark_consumers.spark.lake_rows import FrameReader, FrameRows
from tests.integration.kafka_feed import KafkaFeed
from tests.spark_consumers.feed import alter, insert, update

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = TableSchema(
    TableId("public", "a"),
    (Column("id", 23, -1, "integer", nullable=False), Column("v", 25, -1, "text")),
    ("id",),
    identity_columns=("id",),
)
B = replace(A, id=TableId("public", "b"))
WIDE = replace(A, columns=(*A.columns, Column("w", 23, -1, "integer")))


@pytest.fixture
def source(kafka: str, topic_prefix: str) -> KafkaFeed:
    return KafkaFeed(kafka, topic_prefix, A, B)


Read = Callable[[], list[tuple[Segment, FrameRows]]]


@pytest.fixture
def read(source: KafkaFeed, spark: SparkSession) -> Iterator[Read]:
    """What reads all that waits; tasks log in with a secret, for which this broker does not ask."""
    client, prefix = {**source.client, "sasl.password": "nobody's"}, source.feed.source
    cuts = CutReader(client, prefix, source.registry)
    driver = RangeReader(client, prefix, source.registry)
    reader = FrameReader(lambda: spark, driver, source.registry, login=TaskLogin(client, prefix))
    ledger = Ledger(prefix)

    def all_that_waits() -> list[tuple[Segment, FrameRows]]:
        nonlocal ledger
        found = [(one, reader(one)) for one in segments(ledger, cuts(ledger), ddl_apart=False)]
        ledger = found[-1][0].upto
        return found

    yield all_that_waits
    reader.close()
    driver.close()
    cuts.close()


def test_tasks_read_each_table_in_the_shapes_that_wrote_it(source: KafkaFeed, read: Read) -> None:
    read()
    source.know(WIDE)
    source.feed.commits([insert(A, "1", "x"), insert(B, "1", "y")], [update(A, "1", "z")])
    source.feed.commits([alter(A, WIDE), insert(WIDE, "2", "new", "7")])
    source.publish()

    rows = []
    for segment, staged in read():
        staged.check(segment, {str(B.id): ("id",)})
        for table in staged.tables:
            for frame in staged._of(table):
                found = frame.orderBy("seq", "ordinal").select("seq", "op", "after").collect()
                rows += [(table.name, seq, op, after.asDict()) for seq, op, after in found]
        assert staged.count(B.id) == 1
        assert staged.between(B.id, FIRST, LAST) is not None
        staged.close()

    assert sorted(rows, key=lambda row: row[:2]) == [
        ("a", 1, "c", {"id": 1, "v": "x"}),
        ("a", 2, "u", {"id": 1, "v": "z"}),
        ("a", 3, "c", {"id": 2, "v": "new", "w": 7}),
        ("b", 1, "c", {"id": 1, "v": "y"}),
    ]


def test_what_tasks_could_not_read_is_the_driver_s_to_say(source: KafkaFeed, read: Read) -> None:
    read()
    source.feed.commits([insert(A, "1", "x")], [insert(A, "2", "y")])
    source.publish()
    ((segment, staged),) = read()
    place = TopicPartition(source.names.table(A.id), 0, max(r.end for r in segment.ranges))
    source.admin.delete_records([place])[place].result()

    with pytest.raises(RangeExpired):
        staged.check(segment, {})
