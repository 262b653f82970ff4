"""A rehearsal of the first step, by an applier that waits for another one.

A JVM reads its classes, and a Python worker starts, when a step needs them first: eight to fifteen
seconds, in which nobody follows the source.  So whoever waits makes one step of one row into a lake
of its own, in a folder that goes again, beside what it waits for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Final

from schemas.tables import Column, TableId, TableSchema
from spark_consumers.errors import ApplyError
from spark_consumers.sinks.lakes import core
from spark_consumers.sinks.lakes.core import Apply, Begin, Stamp
from spark_consumers.sinks.lakes.marks import TableMarks
from spark_consumers.spark import jvm
from spark_consumers.spark.given import given

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from spark_consumers.sinks.lakes.delta import DeltaTables
    from spark_consumers.sinks.lakes.iceberg import IcebergTables

_log = logging.getLogger(__name__)

_SOURCE: Final = "rehearsal"
_TABLE: Final = TableSchema(
    TableId("public", "rehearsal"),
    (Column("id", 23, -1, "integer", nullable=False), Column("v", 25, -1, "text")),
    ("id",),
    identity_columns=("id",),
)

# The columns of `frames.changes_frame` that a step looks at; `pairs.change_schema` is above sinks.
_ROW: Final = "struct<id int, v string>"
_CHANGES: Final = (
    f"seq bigint, ordinal bigint, op string, before {_ROW}, after {_ROW}, unsent array<string>,"
    " exact map<string,string>, before_exact map<string,string>, before_columns array<string>,"
    " committed_at timestamp, epoch int"
)


class WarmUp:
    """Makes a rehearsal once, beside the program."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        tables: Callable[[SparkSession, str], DeltaTables | IcebergTables],
    ) -> None:
        """`tables`: those of a lake in a folder."""
        self._spark, self._tables = spark, tables
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Begin, where that was not done; executors elsewhere do not see the folder."""
        if self._thread is not None or not jvm.is_local(self._spark()):
            return
        self._thread = Thread(target=self._run, name="rehearsal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            # Settings of a session hold for its whole step: this one's are its own.
            session = self._spark().newSession()
            with TemporaryDirectory(prefix="gauss-cdc-rehearsal-") as folder:
                rehearse(session, self._tables(session, folder))
            _log.debug("rehearsed the first step, %.1f s", time.monotonic() - began)
        except (ApplyError, *jvm.GONE_ERRORS) as error:  # then the first step is slow
            _log.debug("no rehearsal: %s", error)


def rehearse(spark: SparkSession, tables: DeltaTables | IcebergTables) -> None:
    """Take a fence twice, make a table, insert a row, and update it."""
    marks = TableMarks(lambda: spark, tables, _SOURCE)
    with tables.fitting.step(1):
        for _ in range(2):
            core.take_fence(marks, _SOURCE, marks.fence())
        head = tables.write(_TABLE.id, tables.head(_TABLE.id), Begin(_TABLE), Stamp((1, 1, 1)))
        for n, op in enumerate("cu", start=2):
            rows = _frame(spark, n, op).persist()  # as a step does
            work = Apply(rows, _TABLE.key, is_exact=True, count=1)
            stamp = Stamp((1, n, n), base=head.id, note=op)
            head = tables.write(_TABLE.id, head, work, stamp)
            rows.unpersist()


def _frame(spark: SparkSession, n: int, op: str) -> DataFrame:
    row, before = {"id": 1, "v": str(n)}, None if op == "c" else {"id": 1, "v": "2"}
    change = (n, 0, op, before, row, None, None, None, None, None, 1)
    return given(spark, [change], _CHANGES).mapInArrow(_same, _CHANGES)


def _same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches  # by a worker of Python, as rows of Kafka are
