"""A step of a lake beside the same MERGE by hand, in one session.

    python benchmarks/lakes.py [--kind iceberg] [--rows N] [--table-rows N] [--rounds N]

`accounts` is followed by the sink of `apply` as it is, from the changes of a segment on; `by_hand`
has the same rows, properties and changes, and takes each segment by one MERGE.  Both take turns,
and must be equal at the end.  Changes are Parquet files, 7 of 10 updates of any rows, 2 inserts, 1
delete: what Kafka and decoding cost is not in it.  A step counts the rows, puts them into the
table, and writes the watermark; with nothing to do in the table it is the watermark alone.
"""

# ruff: noqa: INP001  not a package
# ruff: noqa: S608  names are ours

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from report import Bars, Report, finish, number, parser, ratio

from gauss_cdc.runtime import jars, java
from schemas.control import Commits, Head, LoadPhase, Origin, SchemaChange, TableLoad
from schemas.positions import NOWHERE
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.model import CommitRows, Segment
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.kinds import SINKS
from spark_consumers.sinks.lakes import places, shapes
from spark_consumers.sinks.lakes.delta import DeltaTables
from spark_consumers.sinks.lakes.iceberg import IcebergTables
from spark_consumers.spark.lake_rows import FrameRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ACCOUNTS: Final = TableSchema(
    TableId("public", "accounts"),
    (
        Column("id", 20, -1, "bigint", nullable=False),
        Column("owner", 25, -1, "text"),
        Column("balance", 1700, (12 << 16 | 2) + 4, "numeric(12,2)"),
        Column("note", 25, -1, "text"),
    ),
    ("id",),
    identity_columns=("id",),
)
WIDER: Final = replace(ACCOUNTS, columns=(*ACCOUNTS.columns, Column("more", 25, -1, "text")))
BY_HAND: Final = TableId("public", "by_hand")
_ROW: Final = (
    "struct({id} AS id, concat('owner ', {id} % 1000) AS owner,"
    " CAST(({id} * 7919 + {n}) % 100000 / 100 AS DECIMAL(12,2)) AS balance,"
    " repeat(substr(md5(CAST({id} AS STRING)), 1, 8), 6) AS note)"
)
_NONE: Final = (
    "CAST(NULL AS ARRAY<STRING>) AS unsent, CAST(NULL AS MAP<STRING, STRING>) AS exact,"
    " CAST(NULL AS MAP<STRING, STRING>) AS before_exact, array('id') AS before_columns,"
    " current_timestamp() AS committed_at, 1 AS epoch"
)
_MERGE: Final = """
    MERGE INTO {table} t USING (
        SELECT op, coalesce(after.id, before.id) AS k, after.* FROM parquet.`{changes}`) s
    ON t.id = s.k
    WHEN MATCHED AND s.op = 'd' THEN DELETE
    WHEN MATCHED THEN UPDATE SET
        t.owner = s.owner, t.balance = s.balance, t.note = s.note, t._exact = NULL
    WHEN NOT MATCHED AND s.op != 'd' THEN INSERT (id, owner, balance, note, _exact)
        VALUES (s.id, s.owner, s.balance, s.note, NULL)"""


_PARTS: Final = ("looking", "writing", "watermark")


@dataclass
class Times:
    """Seconds of the parts of one step."""

    looking: float  # where the lake is
    writing: float  # rows are counted, and come into the table
    watermark: float

    @property
    def all(self) -> float:
        """The step."""
        return self.looking + self.writing + self.watermark


@dataclass
class LakeRig:
    """A lake in a folder, and what follows it."""

    spark: SparkSession
    kind: str
    folder: Path
    marks: list[tuple[str, float]] = field(default_factory=list)
    n: int = 0
    seq: int = 0

    def __post_init__(self) -> None:
        """Start the sink."""
        setup = Setup(
            "bench",
            dsn=str(self.folder),
            mode="scd1",
            spark=lambda: self.spark,
            on_step=lambda name: self.marks.append((name, time.monotonic())),
        )
        self.sink = SINKS[self.kind].sink(setup)
        place = partial(places.delta_place, str(self.folder))
        self.tables: DeltaTables | IcebergTables = (
            DeltaTables(setup.spark, place, "bench", "scd1")
            if self.kind == "delta"
            else IcebergTables(setup.spark, places.CATALOG, "scd1")
        )
        ledger = self.sink.start()
        assert ledger is not None  # the folder is new: nobody else is there
        self.ledger = ledger

    def load(self, rows: int) -> None:
        """Give both tables their rows."""
        row = _ROW.format(id="id", n=0)
        loaded = self.spark.sql(
            f"SELECT CAST(0 AS BIGINT) AS seq, CAST(id AS INT) AS ordinal, 'r' AS op,"
            f" CAST(NULL AS STRUCT<id: BIGINT>) AS before, {row} AS after, {_NONE}"
            f" FROM range({rows})"
        )
        begin = TableLoad(self._head(), ACCOUNTS.id, LoadPhase.BEGIN)
        chunk = TableLoad(begin.head, ACCOUNTS.id, LoadPhase.CHUNK, rows=rows)
        end = TableLoad(begin.head, ACCOUNTS.id, LoadPhase.END)
        upto = replace(self.ledger, epoch=1, n=self.n, state="EXACT")
        made = SchemaChange(1, 0, 0, 0, 0, NOWHERE, Origin.SNAPSHOT, "CREATE TABLE", None, ACCOUNTS)
        segment = Segment(end, self.ledger, upto, loads=(begin, chunk, end))
        self._step(segment, FrameRows([made], {ACCOUNTS.id: lambda: [loaded]}))
        self.tables.make(BY_HAND, shapes.columns(ACCOUNTS, "scd1"))
        copied = self.tables.read(ACCOUNTS.id)
        copied.writeTo(self.tables.name(BY_HAND)).append()

    def changes(self, rows: int, table_rows: int) -> Path:
        """Write changes of rows that are there, of new ones, and of some that go."""
        path = self.folder.with_name(f"{self.folder.name}-changes-{self.n}")
        step = max(1, table_rows // rows)
        new, any_id = f"{table_rows} + {self.n} * {rows} + id", f"id * {step} + {self.n} % {step}"
        ids = f"SELECT id AS i, if(id % 10 < 2, {new}, {any_id}) AS k FROM range({rows})"
        row = _ROW.format(id="k", n=self.n)
        self.spark.sql(
            f"SELECT CAST({self.seq + 1} AS BIGINT) AS seq, CAST(i AS INT) AS ordinal,"
            " CASE WHEN i % 10 < 2 THEN 'c' WHEN i % 10 < 9 THEN 'u' ELSE 'd' END AS op,"
            " if(i % 10 = 9, struct(k AS id), NULL) AS before,"
            f" if(i % 10 = 9, NULL, {row}) AS after, {_NONE} FROM ({ids})"
        ).write.parquet(str(path))
        return path

    def apply(self, rows: int, changes: Path | None, ddl: Sequence[SchemaChange] = ()) -> Times:
        """Take one segment, as `apply` does."""
        self.seq += 1
        commits = CommitRows(self.seq, [rows + len(ddl)])
        upto = replace(self.ledger, n=self.n + 1, seq=self.seq)
        segment = Segment(
            Commits(self._head(), (), ()), self.ledger, upto, self.seq, self.seq, rows,
            commit_rows=commits, is_barrier=bool(ddl),
        )  # fmt: skip
        makers: dict[TableId, Callable[[], list[DataFrame]]] = {}
        if changes is not None:
            makers[ACCOUNTS.id] = lambda: [self.spark.read.parquet(str(changes))]
        return self._step(segment, FrameRows(ddl, makers))

    def merge(self, changes: Path) -> float:
        """Do the same by hand."""
        begin = time.monotonic()
        self.spark.sql(_MERGE.format(table=self.tables.name(BY_HAND), changes=changes))
        return time.monotonic() - begin

    def widen(self) -> Times:
        """A commit that adds a column, and nothing else."""
        change = SchemaChange(
            1, self.seq + 1, 0, 0, 0, NOWHERE, Origin.TRIGGER, "ALTER TABLE", ACCOUNTS, WIDER
        )
        return self.apply(0, None, [change])

    def check(self) -> int:
        """Compare both tables; return their rows."""
        one, other = self.tables.read(ACCOUNTS.id), self.tables.read(BY_HAND)
        other = other.select(one.columns)
        cells = [f"CAST({c} AS STRING) AS {c}" for c in one.columns]  # no set of maps
        one, other = one.selectExpr(*cells), other.selectExpr(*cells)
        rows = one.count()
        if rows != other.count() or not one.exceptAll(other).isEmpty():
            raise SystemExit(f"{self.kind}: the tables are not equal")
        return rows

    def _head(self) -> Head:
        self.n += 1
        return Head(self.n, 1, 1, "bench", self.seq, NOWHERE, -1)

    def _step(self, segment: Segment, staged: FrameRows) -> Times:
        self.marks.clear()
        begin = time.monotonic()
        self.ledger = self.sink.step(segment, self.sink.stage(segment, staged))
        at = dict(self.marks)
        locked, applied = at["ledger locked"], at["rows applied"]
        return Times(locked - begin, applied - locked, at["ledger moved"] - applied)


def session(kind: str, folder: Path) -> SparkSession:
    """A session as `apply` makes it in local mode."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  takes a second

    os.environ["JAVA_HOME"] = str(java.find(shims=jars.cache()).home)
    wanted = places.delta_settings if kind == "delta" else places.iceberg_settings
    settings = wanted(str(folder))
    # Both kinds run in one JVM, whose class path is that of its start.
    files = [path for some in jars.fetch(["delta", "iceberg"]).values() for path in some]
    made: Any = SparkSession.builder.master("local[2]").appName("lakes")
    options = {
        **settings,
        "spark.jars": ",".join(map(str, files)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    spark: SparkSession = made.config(map=options).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measure(kind: str, sizes: Sequence[int], table_rows: int, rounds: int) -> list[list[str]]:
    """Return the lines of one kind."""
    root = Path(tempfile.mkdtemp(prefix="gauss-cdc-bench-"))
    spark = session(kind, root / "lake")
    try:
        rig = LakeRig(spark, kind, root / "lake")
        rig.load(table_rows)
        lines = []
        for rows in sizes:
            ours, hand = [], []
            for at in range(rounds + 1):
                changes = rig.changes(rows, table_rows)
                first, second = rig.apply(rows, changes), rig.merge(changes)
                if at:  # the first one is warm-up
                    ours.append(first)
                    hand.append(second)
            step, merged = _middle(t.all for t in ours), _middle(hand)
            lines.append(
                [
                    kind, f"{rows:,} changes", number(step), number(merged), ratio(step, merged),
                    *(number(_middle(getattr(t, name) for t in ours))
                      for name in _PARTS),
                ]
            )  # fmt: skip
        rig.check()
        for title, some in (
            ("a commit without rows", [rig.apply(0, None) for _ in range(rounds)]),
            ("ADD COLUMN", [rig.widen()]),
        ):
            parts = (_middle(getattr(t, n) for t in some) for n in _PARTS)
            lines.append(
                [kind, title, number(_middle(t.all for t in some)), "–", "–", *map(number, parts)]
            )
        return lines
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)


def _middle(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--kind", choices=["iceberg", "delta"], action="append")
    options.add_argument("--rows", type=int, action="append", help="changes of a segment; repeat")
    options.add_argument("--table-rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    if given.quick:
        given.table_rows, given.rows, given.rounds = 10_000, [1_000], 1
    report, lines = Report("lakes"), []
    for kind in given.kind or ["iceberg", "delta"]:
        lines += measure(kind, given.rows or [1_000, 100_000], given.table_rows, given.rounds)
    head = ["kind", "step of", "s", "MERGE by hand s", "step to MERGE"]
    title, parts = f"A step, one table of {given.table_rows:,} rows, medians", len(head)
    report.table(title, head, [line[:parts] for line in lines])
    where = ["kind", "step of", "looking s", "table s", "watermark s"]
    report.table("Of it", where, [line[:2] + line[parts:] for line in lines], is_written=False)
    report.plots.append(
        Bars("seconds of a step", {f"{line[0]}, {line[1]}": float(line[2]) for line in lines})
    )
    report.note("Both tables were compared, row by row.", is_written=False)
    finish(report, given)


if __name__ == "__main__":
    main()
