"""Reads what stands in Kafka of a source, for services: whole commits, or single tables.

with Reader("localhost:9092", registry="http://localhost:8081", prefix="bank") as reader:
    for commit in reader.commits(after=stored):
        for change in commit.changes:
            ...
        store(str(commit.position))
"""

from gauss_cdc_reader.aio import AsyncReader
from gauss_cdc_reader.bookmark import Bookmark
from gauss_cdc_reader.changes import Change
from gauss_cdc_reader.commits import Commit
from gauss_cdc_reader.reader import LATEST, LOADS, Reader
from schemas.control import SchemaChange
from schemas.errors import Verdict
from schemas.tables import TableId, TableSchema
from spark_consumers.errors import (
    ApplyError,
    CutsGap,
    Incomplete,
    KafkaDown,
    RangeExpired,
    RegistryDown,
    SettingRefused,
    StreamError,
    TopicReplaced,
)

__all__ = [
    "LATEST",
    "LOADS",
    "ApplyError",
    "AsyncReader",
    "Bookmark",
    "Change",
    "Commit",
    "CutsGap",
    "Incomplete",
    "KafkaDown",
    "RangeExpired",
    "Reader",
    "RegistryDown",
    "SchemaChange",
    "SettingRefused",
    "StreamError",
    "TableId",
    "TableSchema",
    "TopicReplaced",
    "Verdict",
]
