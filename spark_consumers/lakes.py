"""For readers of lakes: all tables of a source as they were at one of its commits.

    tables = read_at(spark, "bank", "2/5001", kind="delta", dsn="/lake")
    tables["public.account"].join(tables["public.transfer"], ...)

Writers go on meanwhile; the versions that were found stay readable for [target] keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from spark_consumers.cuts.versions import Version
from spark_consumers.model import Ledger
from spark_consumers.sinks.lakes import places
from spark_consumers.sinks.lakes.core import Watermark
from spark_consumers.sinks.lakes.delta import DeltaTables
from spark_consumers.sinks.lakes.iceberg import IcebergTables
from spark_consumers.sinks.lakes.marks import read_mark, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TablesAt(Mapping[str, "DataFrame"]):
    """The tables of a source at one commit, by `schema.table`."""

    def __init__(self, tables: DeltaTables | IcebergTables, mark: Watermark) -> None:
        self._tables, self._mark = tables, mark

    @property
    def ledger(self) -> Ledger:
        """Which commit it is (`epoch`, `seq`, `committed_at`), and what is not exact there."""
        return self._mark.ledger

    def __getitem__(self, name: str) -> DataFrame:
        mark = self._mark.tables[name]
        if not self._tables.is_still(mark.place, mark.made):
            raise LookupError(f"{mark.place} is not the table any more that this commit names")
        return self._tables.read(mark.place, mark.version)

    def key(self, name: str) -> tuple[str, ...]:
        """The columns that name a row of a table; none where it has no key."""
        return self._mark.tables[name].key

    def __iter__(self) -> Iterator[str]:
        return iter(self._mark.tables)

    def __len__(self) -> int:
        return len(self._mark.tables)


def steps(
    spark: SparkSession, source: str, *, kind: Literal["delta", "iceberg"], dsn: str
) -> list[Version]:
    """Return the commits that end a step and are kept, the oldest first: `read_at` shows each."""
    marks = _tables(spark, source, kind=kind, dsn=dsn).read(table_of(source))
    found = marks.where("epoch > 0").groupBy("epoch", "seq").agg({"number": "max"})
    return [Version(row[0], row[1]) for row in sorted(found.collect(), key=lambda row: row[2])]


def read_at(
    spark: SparkSession,
    source: str,
    commit: str | int | None = None,
    *,
    kind: Literal["delta", "iceberg"],
    dsn: str,
    is_exact: bool = False,
) -> TablesAt:
    """Return the tables at the newest step at or before a commit; its `ledger` says which one.

    `commit` is `epoch/seq`, or the seq in the newest epoch; None: the newest step.  `kind` and
    `dsn` are those of [target].  With `is_exact`, a step must have ended at this very commit.
    Raises LookupError where there is none, or where it has expired.
    """
    tables = _tables(spark, source, kind=kind, dsn=dsn)
    known = marks = tables.read(table_of(source))
    if isinstance(commit, str):
        at = Version(*map(int, commit.split("/")))
        marks = marks.where(f"epoch = {at.epoch} AND seq <= {at.seq}")
    elif commit is not None:
        last = marks.selectExpr("max(epoch)").first()
        newest = last[0] if last is not None else None
        marks = marks.where(f"epoch = {newest or 0} AND seq <= {commit}")
    row = marks.selectExpr("max_by(mark, number)").first()
    mark = read_mark(row[0] or "") if row is not None else None
    if mark is None:
        row = known.selectExpr("min_by(mark, number)").first()
        first = read_mark(row[0] or "") if row is not None else None
        if first is not None and first.number > 1:
            oldest = Version(first.ledger.epoch, first.ledger.seq)
            raise LookupError(
                f"commit {commit} of {source} has expired: the oldest that is kept is {oldest}"
            )
        raise LookupError(f"no step of {source} is known at or before commit {commit}")
    found = str(Version(mark.ledger.epoch, mark.ledger.seq))
    if is_exact and str(commit) not in (found, str(mark.ledger.seq)):
        raise LookupError(f"no step of {source} ends at commit {commit}; the one before: {found}")
    return TablesAt(tables, mark)


def _tables(
    spark: SparkSession, source: str, *, kind: str, dsn: str
) -> DeltaTables | IcebergTables:
    if kind == "iceberg":
        return IcebergTables(lambda: spark, places.defined(spark, dsn), "")
    return DeltaTables(lambda: spark, partial(places.delta_place, dsn), source, "")
