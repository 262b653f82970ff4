"""Iceberg: a write goes to a branch of its own, and `main` moves there if it is where it was.

Nobody sees a branch.  Moving `main` is one compare-and-set of the table's metadata, so that a
version always follows what its writer looked at.  Java is used for what Iceberg's SQL lacks: the
head with its summary, and that one commit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from schemas.tables import TableId
from spark_consumers.dialects.spark import literal, quote
from spark_consumers.errors import ApplyError, Superseded
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAIN: Final = "main"
_NOWHERE: Final = -1  # where `main` is when a table has versions and no `main`; Iceberg's number
_STAMP: Final = "gauss-cdc.stamp"
_BRANCH: Final = "gauss_cdc_"
# A property: columns that appliers gave the table, said before they do.
_COLUMNS: Final = "gauss-cdc.columns"
_FORMAT: Final = "format-version"
_PROPERTIES: Final = {
    _FORMAT: "2",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    # Each commit writes all of the metadata anew.
    "write.metadata.delete-after-commit.enabled": "true",
}


class IcebergTables:
    """Implements `core.TableVersions`."""

    def __init__(self, spark: Callable[[], SparkSession], catalog: str, mode: str) -> None:
        self._spark, self._catalog, self._mode = spark, catalog, mode
        self.fitting = writing.Fitting(spark)

    def name(self, table: TableId) -> str:
        """The table as statements name it."""
        return ".".join(map(quote, (self._catalog, table.schema, table.name)))

    def head(self, table: TableId) -> TableVersion | None:
        with writing.errors("to read a table's head", table):
            if not self._spark().catalog.tableExists(self.name(table)):
                return None
            loaded = self._load(table)
            snapshot = loaded.currentSnapshot()
            if snapshot is None:  # what CREATE OR REPLACE TABLE leaves keeps its versions
                if not loaded.snapshots().iterator().hasNext():
                    return None
                return TableVersion(_NOWHERE, source=loaded.properties().get(SOURCE))
            stamp, _ = core.stamp_of(snapshot.summary().get(_STAMP))
            said = loaded.properties()
            is_ours = said.containsKey(_COLUMNS)
            return TableVersion(
                snapshot.snapshotId(), stamp, source=said.get(SOURCE), is_ours=is_ours
            )

    def folder(self, table: TableId) -> str | None:
        """Where a table is; None: there is no such table."""
        with writing.errors("to find a table", table):
            is_there = self._spark().catalog.tableExists(self.name(table))
            return str(self._load(table).location()) if is_there else None

    def made(self, table: TableId, version: int) -> str:
        """No other table has versions of these names."""
        del table, version
        return ""

    def put_back(self, table: TableId, head: TableVersion, content: int) -> TableVersion:
        with writing.errors("to put a table back", table):
            loaded = self._load(table)
            if loaded.snapshot(content) is None:
                raise writing.expired(table, content)
            self._refuse_columns(table, content)
            self._publish(loaded, table, head.id, content, None)
        return TableVersion(content)

    def write(
        self, table: TableId, head: TableVersion | None, work: Work, stamp: Stamp
    ) -> TableVersion:
        if isinstance(work, Begin):
            columns = shapes.columns(work.schema, self._mode)
            with writing.errors("to make a table", table):
                if head is not None:
                    self._refuse_columns(table, stamp.base, work.schema.names())
                if head is None or head.id == _NOWHERE:
                    self.make(table, columns, work.source)
                    head = self.head(table)
                assert head is not None
                self._begin(table, head, columns, work.source)
        elif head is not None:
            self._reshape(table, head)
            if isinstance(work, Alter) and not any(self._altering(table, work)):
                return head

        def write(branch: str) -> None:
            match work:
                case Begin():
                    everything = jvm.iceberg(self._spark()).expressions.Expressions.alwaysTrue()
                    delete = self._load(table).newDelete().deleteFromRowFilter(everything)
                    delete.toBranch(branch).set(_STAMP, core.stamp_text(stamp)).commit()
                case Alter():
                    self._alter(table, work, branch)
                case Add() | Apply():
                    self._rows(table, work, branch)
                    assert head is not None
                    self._check_shape(table, head, branch)

        return self._commit(table, head, stamp, write)

    def append(
        self, table: TableId, head: TableVersion | None, frame: DataFrame, stamp: Stamp
    ) -> TableVersion:
        """Add rows as they are."""
        return self._commit(
            table, head, stamp, lambda branch: frame.writeTo(self._at(table, branch)).append()
        )

    def replace(
        self, table: TableId, head: TableVersion, frame: DataFrame, stamp: Stamp
    ) -> TableVersion:
        """Make these the table's rows."""
        from pyspark.sql.functions import lit  # noqa: PLC0415  only where Spark is

        def write(branch: str) -> None:
            frame.writeTo(self._at(table, branch)).overwrite(lit(True))  # noqa: FBT003

        return self._commit(table, head, stamp, write)

    def make(self, table: TableId, columns: str, source: str = "") -> None:
        """Make a source's table with these columns where there is none, and a version of it."""
        spark, name = self._spark(), self.name(table)
        if not spark.catalog.tableExists(name):
            spark.sql(
                f"CREATE NAMESPACE IF NOT EXISTS {quote(self._catalog)}.{quote(table.schema)}"
            )
            said = _properties(columns, source)
            properties = ", ".join(f"{literal(key)} = {literal(said[key])}" for key in said)
            spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
        loaded = self._load(table)
        if loaded.currentSnapshot() is None:
            loaded.newFastAppend().commit()

    def read(self, table: TableId, version: int | None = None) -> DataFrame:
        """The table, at a version."""
        at = "" if version is None else f" VERSION AS OF {version}"
        return self._spark().sql(f"SELECT * FROM {self.name(table)}{at}")  # noqa: S608  quoted

    def is_still(self, _table: TableId, _made: str) -> bool:
        """No other table has versions of these names."""
        return True

    def compact(self, table: TableId, head: TableVersion, keep: float) -> TableVersion:
        del keep
        plain = f"{quote(table.schema)}.{quote(table.name)}"
        with writing.errors("to compact a table", table):
            self._refuse_columns(table, head.id)
            self._spark().sql(
                f"CALL {quote(self._catalog)}.system.rewrite_data_files("
                f"table => {literal(plain)}, options => map('delete-file-threshold', '1'))"
            )
            snapshot = self._load(table).currentSnapshot()
            new = snapshot.snapshotId()
            # Others' rows may have come; what replaces files has the same rows, whoever wrote it.
            is_behind = snapshot.parentId() == head.id and snapshot.operation() == "replace"
            follows = new == head.id or is_behind
        return TableVersion(new, follows=follows)

    def expire(self, table: TableId, oldest: int, keep: float) -> None:
        del keep
        plain = f"{quote(table.schema)}.{quote(table.name)}"
        with writing.errors("to expire versions", table):
            loaded = self._load(table)
            snapshot = loaded.snapshot(oldest)
            if snapshot is None:
                return
            limit = snapshot.timestampMillis()
            for branch in [name for name in loaded.refs() if name.startswith(_BRANCH)]:
                if loaded.snapshot(loaded.refs()[branch].snapshotId()).timestampMillis() < limit:
                    loaded.manageSnapshots().removeBranch(branch).commit()
            self._spark().sql(
                f"CALL {quote(self._catalog)}.system.expire_snapshots(table => {literal(plain)},"
                f" older_than => timestamp_millis({limit}), retain_last => 1)"
            )

    # ------------------------------------------------------------ writes
    def _commit(
        self,
        table: TableId,
        head: TableVersion | None,
        stamp: Stamp,
        write: Callable[[str], object],
    ) -> TableVersion:
        """Write to a branch of our own, and move `main` there."""
        branch = f"{_BRANCH}{uuid.uuid4().hex}"
        assert head is not None
        said = {f"spark.sql.iceberg.snapshot-property.{_STAMP}": core.stamp_text(stamp)}
        try:
            with writing.errors("a write", table), writing.settings(self._spark(), said):
                loaded = self._load(table)
                loaded.manageSnapshots().createBranch(branch, head.id).commit()
                write(branch)
                new = _newest(loaded, branch)
                if new == head.id:  # there was nothing to write
                    self._empty(table, branch)
                    new = _newest(loaded, branch)
                self._publish(loaded, table, head.id, new, branch)
        except ApplyError:  # it is tried again: a branch of each attempt would stay
            with suppress(*jvm.SPARK_ERRORS):
                self._load(table).manageSnapshots().removeBranch(branch).commit()
            raise
        return TableVersion(new, stamp)

    def _rows(self, table: TableId, work: Add | Apply, branch: str) -> None:
        name, target = self.name(table), self._at(table, branch)
        size = self._load(table).currentSnapshot().summary().get("total-files-size")
        with self.fitting.table(int(size or 0), work.count):
            writing.write(self._spark(), work, table, name=name, target=target, mode=self._mode)

    def _begin(self, table: TableId, head: TableVersion, columns: str, source: str) -> None:
        """Give a table columns of a new beginning; `main` stays, and must be at `head`.

        CREATE OR REPLACE TABLE takes `main` away, whoever comes late with it.
        """
        iceberg, operations = jvm.iceberg(self._spark()), self._load(table).operations()
        base = operations.refresh()
        _require_main(base, head.id, table)
        # Nothing makes a format older again that somebody has raised.
        version = str(max(int(_PROPERTIES[_FORMAT]), base.formatVersion()))
        new = base.buildReplacement(
            jvm.iceberg_schema(self._spark(), columns),
            iceberg.PartitionSpec.unpartitioned(),
            iceberg.SortOrder.unsorted(),
            base.location(),
            _properties(columns, source) | {_FORMAT: version},
        )
        is_ours = base.properties().get(SOURCE) == source
        if not is_ours or not new.schema().sameSchema(base.schema()):
            main = iceberg.TableMetadata.buildFrom(new).setBranchSnapshot(head.id, _MAIN)
            operations.commit(base, main.build())

    def _reshape(self, table: TableId, head: TableVersion) -> None:
        """Give the table its head's columns: those of an attempt that ended in the middle stay.

        Columns are the table's, not a branch's, and putting a version back leaves them.
        """
        with writing.errors("to put columns back", table):
            operations = self._load(table).operations()
            base = operations.refresh()
            schema = base.snapshot(head.id).schemaId()
            if schema is not None and schema != base.currentSchemaId():
                self._refuse_columns(table, head.id)
                metadata = jvm.iceberg(self._spark()).TableMetadata.buildFrom(base)
                operations.commit(base, metadata.setCurrentSchema(schema).build())

    def _refuse_columns(
        self, table: TableId, version: int | None, comes: Iterable[str] = ()
    ) -> None:
        """Refuse columns that neither a version has nor an applier was about to make.

        Putting the version back would take them away, and so would a load, whose columns are
        `comes`.
        """
        metadata = self._load(table).operations().current()
        said = metadata.properties().get(_COLUMNS)
        snapshot = metadata.snapshot(version) if version is not None else None
        if said is None or snapshot is None:
            return
        was = metadata.schemasById().get(snapshot.schemaId())
        known = [*json.loads(said), *comes, *(column.name() for column in was.columns())]
        shapes.refuse_columns(table, [c.name() for c in metadata.schema().columns()], known)

    def _check_shape(self, table: TableId, head: TableVersion, branch: str) -> None:
        """Refuse rows that were written while another applier changed the table's columns."""
        metadata = self._load(table).operations().current()
        new = metadata.snapshot(metadata.ref(branch).snapshotId())
        if new.schemaId() != metadata.snapshot(head.id).schemaId():
            raise Superseded("another writer altered the table", table=table)

    def _altering(self, table: TableId, work: Alter) -> tuple[list[str], list[str]]:
        there = self._spark().table(self.name(table)).columns
        own = [c for c in there if c not in MORE[self._mode]]
        return shapes.altering(work.change, own, place=table, mode=self._mode)

    def _alter(self, table: TableId, work: Alter, branch: str) -> None:
        spark, name = self._spark(), self.name(table)
        altered, on_rows = self._altering(table, work)
        plain = f"{quote(table.schema)}.{quote(table.name)}"
        if altered:
            loaded = self._load(table)
            # A history keeps columns that went: those of earlier changes of the step are ours, too.
            there = loaded.schemas().get(loaded.snapshot(branch).schemaId()).columns()
            names = [*(work.change.after.names() if work.change.after else ())]
            names += [column.name() for column in there]
            loaded.updateProperties().set(_COLUMNS, json.dumps(names)).commit()
        for text in altered:
            spark.sql(text.replace(plain, name, 1))
        for text in on_rows:
            spark.sql(text.replace(plain, self._at(table, branch), 1))
        self._empty(table, branch)  # readers of the version see the new shape

    def _empty(self, table: TableId, branch: str) -> None:
        """Write a version without rows of its own."""
        stamp = self._spark().conf.get(f"spark.sql.iceberg.snapshot-property.{_STAMP}")
        self._load(table).newFastAppend().toBranch(branch).set(_STAMP, stamp).commit()

    def _at(self, table: TableId, branch: str) -> str:
        return f"{self.name(table)}.{quote(f'branch_{branch}')}"

    # ------------------------------------------------------------ metadata
    def _publish(self, loaded: Any, table: TableId, was: int, new: int, branch: str | None) -> None:
        """Move `main`, and only from where it was."""
        operations = loaded.operations()
        base = operations.refresh()
        _require_main(base, was, table)
        metadata = jvm.iceberg(self._spark()).TableMetadata.buildFrom(base)
        metadata = metadata.setBranchSnapshot(new, _MAIN)
        if branch is not None:
            metadata = metadata.removeRef(branch)
        operations.commit(base, metadata.build())

    def _load(self, table: TableId) -> Any:
        return jvm.iceberg_table(self._spark(), self.name(table))


def _newest(loaded: Any, branch: str) -> int:
    loaded.refresh()
    return int(loaded.refs().get(branch).snapshotId())


def _properties(columns: str, source: str) -> dict[str, str]:
    names: Any = StructType.fromDDL(columns)
    return {**_PROPERTIES, _COLUMNS: json.dumps(names.names), SOURCE: source}


def _require_main(metadata: Any, version: int, table: TableId) -> None:
    main = metadata.ref(_MAIN)
    if (_NOWHERE if main is None else main.snapshotId()) != version:
        raise Superseded("another writer was faster", table=table)
