"""Delta: a write goes to the newest version, and a version says by its number what it follows.

Versions are numbered without gaps, and a commit is atomic: what was written as number h + 1 holds
what h held and the write, and nothing came between.  `txnVersion` is that number, too: of two
writers that looked at the same version the second one is refused, or skipped, by Delta itself.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, IllegalArgumentException

from schemas.tables import TableId
from spark_consumers.dialects.spark import literal, quote
from spark_consumers.errors import Superseded
from spark_consumers.sinks.lakes import core, shapes, writing
from spark_consumers.sinks.lakes.changes import MORE
from spark_consumers.sinks.lakes.core import (
    SOURCE,
    Add,
    Alter,
    Apply,
    Begin,
    Stamp,
    TableVersion,
    Work,
)
from spark_consumers.spark import jvm
from spark_consumers.spark.given import given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WRITE: Final = "spark.databricks.delta"
NTZ: Final = "delta.feature.timestampNtz"
WIDENING: Final = "delta.enableTypeWidening"
_SAID: Final = f"{_WRITE}.commitInfo.userMetadata"
_PROPERTIES: Final = {
    NTZ: "supported",  # a column may come that needs it
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",  # columns may be renamed and dropped
    WIDENING: "true",
    # A checkpoint costs as much as a step; the default is each tenth version.
    "delta.checkpointInterval": "50",
}
# Of a table that an earlier build made, which does not say whose it is.
_OURS: Final = {key: value for key, value in _PROPERTIES.items() if key != NTZ}
# A MERGE that writes deletion vectors has twice the jobs of one that writes small files anew.
_SMALL: Final = {f"{_WRITE}.merge.deletionVectors.persistent": "false"}
_RETENTION: Final = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
# A version may be older than the retention though it was the newest one until a moment ago.
_OF_ANY_AGE: Final = {
    f"{_WRITE}.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false"
}
_DAY: Final = 86_400
_LOOKS: Final = 100  # versions, at most, among which the last one of an applier is looked for
_NO_TABLE: Final = {
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_TABLE_ONLY_OPERATION",
    "DELTA_PATH_DOES_NOT_EXIST",
    "TABLE_OR_VIEW_NOT_FOUND",
}


class DeltaTables:
    """Implements `core.TableVersions`."""

    def __init__(
        self, spark: Callable[[], SparkSession], place: Callable[[TableId], TableId], source: str,
        mode: str,
        keep: float = 7 * 86_400,
    ) -> None:  # fmt: skip
        """`place` is how statements name a table: two parts, of a catalog or `delta` and a path.

        `keep`: seconds for which versions are promised.
        """
        self._spark, self._place, self._source, self._mode = spark, place, source, mode
        self.fitting = writing.Fitting(spark, _SMALL)
        # Delta shows no version that is older than this, though it may have been the newest one
        # until a moment ago: `compact` gives a table that rests a version each `_rest`.
        self._rest = min(int(keep), _DAY)
        retention = f"interval {int(keep) + 2 * self._rest} seconds"
        self._properties = _PROPERTIES | dict.fromkeys(_RETENTION, retention)

    def name(self, table: TableId) -> str:
        """The table as statements name it."""
        place = self._place(table)
        return f"{quote(place.schema)}.{quote(place.name)}"

    def head(self, table: TableId) -> TableVersion | None:
        found = self._newest(table)
        return None if found is None else found[0]

    def made(self, table: TableId, version: int) -> str:
        """The id at a version: CREATE OR REPLACE gives another one, and keeps the versions."""
        with writing.errors("to look at an older version", table):
            return jvm.delta_id(self._spark(), self.name(table), version)

    def folder(self, table: TableId) -> str | None:
        """Where a table is; None: there is no such table."""
        with writing.errors("to find a table", table):
            try:
                return jvm.delta_folder(self._spark(), self.name(table))
            except AnalysisException as error:
                if error.getCondition() in _NO_TABLE:
                    return None
                raise

    def put_back(self, table: TableId, head: TableVersion, content: int) -> TableVersion:
        self._refuse_columns(table)

        def restore() -> None:
            try:
                self._spark().sql(f"RESTORE TABLE {self.name(table)} TO VERSION AS OF {content}")
            except (AnalysisException, IllegalArgumentException) as error:
                raise writing.expired(table, content) from error

        with writing.settings(self._spark(), _OF_ANY_AGE):
            return self._commit(table, head, Stamp(same_as=content), restore)

    def write(
        self, table: TableId, head: TableVersion | None, work: Work, stamp: Stamp
    ) -> TableVersion:
        match work:
            case Begin(schema):
                columns = shapes.columns(schema, self._mode)
                if head is None:
                    return self._commit(
                        table, head, stamp, lambda: self.make(table, columns, work.source)
                    )
                self._refuse_columns(table)
                if head.source != work.source:
                    head = self._say(table, head, self._properties | {SOURCE: work.source})
                    if not head.follows:
                        return head
                for text in self._enabling(table, columns):
                    head = self._commit(table, head, Stamp(), partial(self._spark().sql, text))
                    if not head.follows:
                        return head
                return self._commit(table, head, stamp, lambda: self._empty(table, columns))
            case Alter(change):
                return self._alter(table, head, change, stamp)
            case Add() | Apply():
                return self._commit(table, head, stamp, lambda: self._rows(table, work))

    def append(
        self, table: TableId, head: TableVersion | None, frame: DataFrame, stamp: Stamp
    ) -> TableVersion:
        """Add rows as they are."""
        return self._commit(table, head, stamp, lambda: frame.writeTo(self.name(table)).append())

    def replace(
        self, table: TableId, head: TableVersion, frame: DataFrame, stamp: Stamp
    ) -> TableVersion:
        """Make these the table's rows."""
        from pyspark.sql.functions import lit  # noqa: PLC0415  only where Spark is

        name = self.name(table)
        return self._commit(
            table,
            head,
            stamp,
            lambda: frame.writeTo(name).overwrite(lit(True)),  # noqa: FBT003
        )

    def make(self, table: TableId, columns: str, source: str = "") -> None:
        """Make a source's table with these columns where there is none."""
        if self.head(table) is None:
            if self._place(table).schema != "delta":
                self._spark().sql(f"CREATE SCHEMA IF NOT EXISTS {quote(table.schema)}")
            self._spark().sql(
                f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({columns}) USING delta"
                f" TBLPROPERTIES ({_listed(self._properties | {SOURCE: source})})"
            )

    def read(self, table: TableId, version: int | None = None) -> DataFrame:
        """The table, at a version."""
        at = "" if version is None else f" VERSION AS OF {version}"
        with writing.settings(self._spark(), _OF_ANY_AGE):
            return self._spark().sql(f"SELECT * FROM {self.name(table)}{at}")  # noqa: S608  quoted

    def is_still(self, table: TableId, made: str) -> bool:
        """Say whether `head` has this `made`, for a session without a JVM (Spark Connect)."""
        if not made:
            return True
        try:
            row = self._spark().sql(f"DESCRIBE DETAIL {self.name(table)}").first()
        except AnalysisException as error:
            if error.getCondition() in _NO_TABLE:
                return False
            raise
        return row is not None and str(row["id"]) == made

    def compact(self, table: TableId, head: TableVersion, keep: float) -> TableVersion:
        del keep
        spark, name = self._spark(), self.name(table)
        head = self._retained(table, head)
        if not head.follows:
            return head
        with writing.errors("to compact a table", table):
            attempt = uuid.uuid4().hex
            said = {_SAID: core.stamp_text(Stamp(), behind=head.id, attempt=attempt)}
            with writing.settings(spark, said):
                spark.sql(f"OPTIMIZE {name}")
            row = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").first()
        assert row is not None
        if (version := row["version"]) != head.id:  # it may be another writer's
            is_ours = core.stamp_of(row["userMetadata"])[1].get("attempt") == attempt
            return TableVersion(version, follows=is_ours and version == head.id + 1)
        age = time.time() - row["timestamp"].timestamp()
        if age < self._rest and head.content == head.id:  # else an older version is meant
            return head
        return self._commit(table, head, Stamp(), lambda: self._nothing(table))

    def expire(self, table: TableId, oldest: int, keep: float) -> None:
        """Remove files that went before the table's own retention; the log removes itself."""
        del oldest, keep
        # Else VACUUM adds two versions, and the head would have to be put back.
        silent = {f"{_WRITE}.vacuum.logging.enabled": "false"}
        with writing.errors("to expire versions", table), writing.settings(self._spark(), silent):
            self._spark().sql(f"VACUUM {self.name(table)}")

    # ------------------------------------------------------------ writes
    def _commit(
        self, table: TableId, head: TableVersion | None, stamp: Stamp, write: Callable[[], object]
    ) -> TableVersion:
        """Write, and look at what became of it."""
        behind = -1 if head is None else head.id
        attempt = uuid.uuid4().hex
        said = {
            f"{_WRITE}.write.txnAppId": f"gauss-cdc {self._source} {table}",
            f"{_WRITE}.write.txnVersion": str(behind + 1),
            _SAID: core.stamp_text(stamp, behind=behind, attempt=attempt),
            # By a session's or a table's setting it would be one version more.
            f"{_WRITE}.autoCompact.enabled": "false",
        }
        with writing.errors("a write", table), writing.settings(self._spark(), said):
            write()
        found = self._newest(table)
        if found is None or found[1].get("attempt") != attempt:
            raise Superseded("another writer was faster", table=table)
        return found[0]

    def _newest(self, table: TableId) -> tuple[TableVersion, Mapping[str, Any]] | None:
        """The newest version, and all that was written beside it."""
        with writing.errors("to read a table's head", table):
            try:
                found = jvm.delta_head(self._spark(), self.name(table))
            except AnalysisException as error:
                if error.getCondition() in _NO_TABLE:
                    return None
                raise
        if found is None:
            return None
        text = json.loads(found.info).get("commitInfo", {}).get("userMetadata")
        stamp, said = core.stamp_of(text)
        before = found.version - 1
        follows = said.get("behind", before) == before
        version = TableVersion(
            found.version,
            stamp,
            follows,
            source=found.properties.get(SOURCE),
            made=found.table,
            is_ours=_OURS.items() <= found.properties.items(),
        )
        return version, said

    def _rows(self, table: TableId, work: Add | Apply) -> None:
        name, spark = self.name(table), self._spark()
        with self.fitting.table(jvm.delta_bytes(spark, name), work.count):
            writing.write(spark, work, table, name=name, target=name, mode=self._mode)

    def _alter(
        self, table: TableId, head: TableVersion | None, change: Any, stamp: Stamp
    ) -> TableVersion:
        """Each statement is a version of its own; only the last one completes the work."""
        spark, place = self._spark(), self._place(table)
        there = [c for c in spark.table(self.name(table)).columns if c not in MORE[self._mode]]
        altered, on_rows = shapes.altering(change, there, place=place, mode=self._mode)
        texts = [*self._enabling(table, " ".join(altered)), *altered, *on_rows]
        if not texts:
            assert head is not None
            return head
        for text in texts[:-1]:
            head = self._commit(table, head, Stamp(), partial(spark.sql, text))
            if not head.follows:
                return head
        return self._commit(table, head, stamp, partial(spark.sql, texts[-1]))

    def _enabling(self, table: TableId, columns: str) -> list[str]:
        """Return what allows these columns in a table that was made without their feature."""
        spark, name = self._spark(), self.name(table)
        if "TIMESTAMP_NTZ" not in columns or any(
            row["key"] == NTZ for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
        ):
            return []
        return [f"ALTER TABLE {name} SET TBLPROPERTIES ('{NTZ}' = 'supported')"]

    def _refuse_columns(self, table: TableId) -> None:
        """Refuse columns that came with versions behind the last one of an applier."""
        found = self._newest(table)
        if found is None or "attempt" in found[1]:
            return
        with writing.errors("to read what others wrote", table):
            history = self._spark().sql(f"DESCRIBE HISTORY {self.name(table)} LIMIT {_LOOKS}")
            rows = history.select("version", "userMetadata").collect()
            ours = [row[0] for row in rows if "attempt" in core.stamp_of(row[1])[1]]
            if ours:
                known = self.read(table, max(ours)).columns
                shapes.refuse_columns(table, self.read(table, found[0].id).columns, known)

    def _retained(self, table: TableId, head: TableVersion) -> TableVersion:
        """Have a table keep its versions for as long as [target] keep says now."""
        with writing.errors("to read a table's properties", table):
            found = jvm.delta_head(self._spark(), self.name(table))
        wanted = {key: self._properties[key] for key in _RETENTION}
        if found is None or wanted.items() <= found.properties.items():
            return head
        return self._say(table, head, wanted)

    def _say(self, table: TableId, head: TableVersion, values: Mapping[str, str]) -> TableVersion:
        """Set properties of a table."""
        text = f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ({_listed(values)})"
        return self._commit(table, head, Stamp(), lambda: self._spark().sql(text))

    def _nothing(self, table: TableId) -> None:
        """Make a version without a change."""
        frame = self._spark().table(self.name(table)).limit(0)
        frame.writeTo(self.name(table)).append()

    def _empty(self, table: TableId, columns: str) -> None:
        frame = given(self._spark(), (), columns)
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.saveAsTable(self.name(table))


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(key)} = {literal(properties[key])}" for key in properties)
