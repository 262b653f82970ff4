"""Lakes as Spark writes them: a source's history, attempts that end in the middle, and readers.

The rules of a step are shown by `tests/sim/test_lake.py`; here are the engines.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow.fs import FileSelector

from schemas.control import Hole, LoadPhase
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.positions import of_reread
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from spark_consumers.cuts.segments import segments
from spark_consumers.errors import Fenced, Incomplete, Superseded, TargetRefused
from spark_consumers.lakes import read_at
from spark_consumers.model import Change, Ledger, Rows, Segment
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.kinds import SINKS
from spark_consumers.sinks.lakes import places, warm
from spark_consumers.sinks.lakes.changes import kinds, net
from spark_consumers.sinks.lakes.core import Apply, Begin, Stamp, TableVersion, Watermark
from spark_consumers.sinks.lakes.delta import DeltaTables
from spark_consumers.sinks.lakes.iceberg import IcebergTables
from spark_consumers.sinks.lakes.lease import OBJECTION, SILENCE, FileLease, SparkFile
from spark_consumers.sinks.lakes.looking import _Folder
from spark_consumers.sinks.lakes.marks import TableMarks, read_mark, table_of
from spark_consumers.sinks.lakes.sink import LakeSink
from spark_consumers.sinks.lakes.warm import rehearse
from spark_consumers.sinks.lakes.writing import Fitting
from spark_consumers.sinks.step import FIRST, LAST
from spark_consumers.spark import jvm
from spark_consumers.spark.frames import typed_changes
from spark_consumers.spark.lake_rows import FrameRows, TableFrames
from tests.bucket import Bucket
from tests.e2e.path import until
from tests.integration.test_typed_changes import encoded, records
from tests.spark_consumers.feed import Feed, Tx, alter, delete, insert, truncate, update

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

DOCUMENT = Path(__file__).parents[2] / "docs" / "lakes.md"


def typed(name: str, *more: str) -> TableSchema:
    columns = (
        Column("id", 23, -1, "integer", nullable=False),
        *(Column(column, 25, -1, "text") for column in ("v", "t", *more)),
    )
    return TableSchema(TableId("public", name), columns, ("id",), identity_columns=("id",))


A, B = typed("a"), typed("b")
# A column goes, and one comes that older rows have a value of.
WIDE = replace(A, columns=(*A.columns[:2], Column("w", 25, -1, "text", missing="was")))
RENAMED = typed("b_old")
_COLUMNS = "id int, v string, t string, _exact map<string, string>"
NARROW = replace(A, columns=A.columns[:2])


def frame(spark: SparkSession, changes: Sequence[Change]) -> DataFrame:
    """What `frames.changes_frame` makes; bytes that are no text are none that Spark holds."""
    names = max((c.columns for c in changes), key=len)
    row = ", ".join(f"{name} {'int' if name == 'id' else 'string'}" for name in names)

    def cells(of: Change, row: list[Any] | None) -> tuple | None:
        if row is None:
            return None
        got = {
            n: None if c is UNCHANGED or _is_unheld(c) else c
            for n, c in zip(of.columns, row, strict=True)
        }
        return tuple(int(got[n]) if n == "id" and n in got else got.get(n) for n in names)

    def exact(of: Change, row: list[Any] | None) -> dict[str, str] | None:
        pairs = zip(of.columns, row or [], strict=False)
        return {n: str(c) for n, c in pairs if _is_unheld(c)} or None

    def sent(of: Change, row: list[Any] | None, *, is_sent: bool) -> list[str]:
        pairs = zip(of.columns, row or [], strict=False)
        return [n for n, c in pairs if (c is not UNCHANGED) is is_sent]

    return spark.createDataFrame(
        [
            (c.seq, c.ordinal, c.op, cells(c, c.before), cells(c, c.after),
             sent(c, c.after, is_sent=False) or None, exact(c, c.after), exact(c, c.before),
             sent(c, c.before, is_sent=True) if c.before else None,
             datetime.fromtimestamp(c.seq, UTC), 1)
            for c in changes
        ],
        f"seq bigint, ordinal bigint, op string, before struct<{row}>, after struct<{row}>,"
        " unsent array<string>, exact map<string,string>, before_exact map<string,string>,"
        " before_columns array<string>, committed_at timestamp, epoch int",
    )  # fmt: skip


def _is_unheld(cell: Any) -> bool:
    return isinstance(cell, str) and cell.startswith("\\x")


@dataclass
class Lake:
    """A lake of a test, and the appliers that come to it."""

    spark: SparkSession
    tables: DeltaTables | IcebergTables
    feed: Feed
    mode: str
    kind: str
    dsn: str
    dies: list[str] = field(default_factory=list)  # steps in which the next attempts end
    clock: float = 1_000_000.0  # what watermarks say; an applier comes each 100 seconds

    def marks(self) -> TableMarks:
        return TableMarks(lambda: self.spark, self.tables, self.feed.source, now=lambda: self.clock)

    def sink(self, keep: float = 1_000.0) -> LakeSink:
        def on_step(name: str) -> None:
            if name in self.dies:
                self.dies.remove(name)
                raise KilledError

        # Appliers that a test ends are not waited for.
        file = SparkFile(lambda: self.spark, lambda: None)
        lease = FileLease(file, self.feed.source, self.marks().fence)
        return LakeSink(
            self.tables, self.marks(), self.feed.source, lease, mode=self.mode, keep=keep,
            on_step=on_step, now=lambda: self.clock,
        )  # fmt: skip

    def apply(self, max_rows: int = 1_000) -> None:
        """An applier comes, and applies what the feed has."""
        self.clock += 100
        sink = self.sink()
        sink.start()
        ledger = sink.ledger()
        for segment in self.segments(ledger, max_rows):
            sink.step(segment, self.staged(segment))

    def segments(self, ledger: Ledger, max_rows: int = 1_000) -> list[Segment]:
        """What waits, in steps as a lake's applier cuts them."""
        cuts = self.feed.read_cuts(ledger)
        return [*segments(ledger, cuts, max_rows=max_rows, ddl_apart=False)]

    def staged(self, segment: Segment) -> FrameRows:
        rows: Rows = self.feed.read_rows(segment)
        makers: dict[TableId, Callable[[], list[DataFrame]]] = {
            table: lambda changes=changes: [
                frame(self.spark, list(some)) for _, some in groupby(changes, lambda c: c.columns)
            ]
            for table, changes in rows.changes.items()
        }
        return FrameRows(rows.ddl, makers)

    def watermarks(self) -> list[Watermark]:
        """All that are there."""
        rows = self.tables.read(table_of(self.feed.source)).collect()
        return [mark for row in rows if (mark := read_mark(row.mark)) is not None]

    def at(self, mark: Watermark, table: TableSchema, *columns: str) -> list[tuple]:
        named = mark.tables[str(table.id)]
        rows = self.tables.read(named.place, named.version).select(*columns or ("id", "v", "t"))
        return sorted(tuple(row) for row in rows.collect())

    def files(self, table: TableSchema, kind: str = ".parquet") -> set[str]:
        """Files with rows of a table."""
        folder = _Folder(f"{self.dsn}/public/{table.id.name}")
        chosen = FileSelector(folder._path, recursive=True)
        return {f.path for f in folder._system.get_file_info(chosen) if kind in f.base_name}

    def forgets(self, keep: float, table: TableSchema, commit: str) -> None:
        """Only what the last `keep` seconds promise stays: files go, and commits say so."""
        there, sink = self.files(table), self.sink(keep)
        sink.start()
        sink.maintain()
        assert self.files(table) < there
        with pytest.raises(LookupError, match=rf"commit {commit} of .* has expired: the oldest"):
            read_at(self.spark, self.feed.source, commit, kind=self.kind, dsn=self.dsn)

    def rows(self, table: TableSchema, *columns: str) -> list[tuple]:
        """What `read_at` shows of the newest commit."""
        tables = read_at(self.spark, self.feed.source, kind=self.kind, dsn=self.dsn)
        rows = tables[str(table.id)].select(*columns or ("id", "v", "t")).collect()
        return sorted(tuple(row) for row in rows)


def test_rows_have_the_columns_of_the_shape_that_wrote_them(spark: SparkSession) -> None:
    """A cut that a schema change divides names both shapes, each segment of it has one."""
    schemas = {7: envelope_schema("bank", A, EnvelopeOptions()),
               8: envelope_schema("bank", NARROW, EnvelopeOptions())}  # fmt: skip
    before = encoded(A, "c", None, ["1", "x", "long"], schema_id=7)
    behind = encoded(NARROW, "c", None, ["2", "y"], schema_id=8)

    def shown(*values: bytes, is_apart: bool) -> list[list[str]]:
        rows = records(spark, *values)
        make = partial(typed_changes, rows)
        frames = TableFrames(lambda: rows, make, typed_changes, schemas, is_apart=is_apart)()
        return [[*frame.schema["after"].dataType.names] for frame in frames]  # type: ignore[attr-defined]

    assert shown(before, is_apart=False) == [["id", "v", "t"]]
    assert shown(behind, is_apart=False) == [["id", "v"]]
    assert sorted(shown(behind, before, is_apart=True)) == [["id", "v"], ["id", "v", "t"]]


def test_plans_of_few_rows_are_not_compiled_in_a_step_of_many_either(spark: SparkSession) -> None:
    small, name = {"spark.gauss-cdc.test": "small"}, "spark.sql.codegen.wholeStage"
    fitting = Fitting(lambda: spark, small)

    def said(step: int, size: int, rows: int) -> tuple[bool, bool]:
        with fitting.step(step), fitting.table(size, rows):
            is_small = spark.conf.get("spark.gauss-cdc.test", "") == "small"
            return spark.conf.get(name) == "true", is_small

    large = 64 << 20
    assert [said(10, 0, 10), said(10, large, 10)] == [(False, True), (True, False)]
    assert [said(100_000, 0, 10), said(100_000, 0, 90_000)] == [(False, True), (True, True)]
    assert spark.conf.get(name) == "true"


def test_a_column_may_have_any_name_beside_the_key_s(spark: SparkSession) -> None:
    row = "STRUCT<id: INT, `key id`: STRING, `new id`: STRING>"
    texts = "CAST(NULL AS MAP<STRING, STRING>)"
    frame = spark.sql(
        f"SELECT 1L AS seq, 0L AS ordinal, 'u' AS op, CAST(NULL AS {row}) AS before,"
        f" CAST(struct(1, 'x', NULL) AS {row}) AS after, array('new id') AS unsent,"
        f" {texts} AS exact, {texts} AS before_exact, CAST(NULL AS ARRAY<STRING>) AS before_columns"
    )

    found = net(frame, frame, A.id, ["id", "key id", "new id"], ["id"], is_exact=True)

    assert [tuple(state) for state in found.frame.collect()] == [
        (1, "x", None, None, False, ["new id"])
    ]


class KilledError(Exception):
    """The process ends here."""


# Tables of three rows: to compile a query costs more than to run it.  Not so with Delta, whose
# log is read by queries of its own.
FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(params=["iceberg"])
def make_lake(
    request: pytest.FixtureRequest, spark: SparkSession, topic_prefix: str, tmp_path: Path
) -> Callable[[str], Lake]:
    """Lakes in a folder, or in a bucket; the session is theirs."""
    kind, _, place = request.param.partition(" ")
    dsn = f"{request.getfixturevalue('bucket').url}/lake" if place else str(tmp_path)
    session = spark.newSession()
    for name, value in FEW_ROWS.items() if kind == "iceberg" else ():
        session.conf.set(name, value)

    def make(mode: str) -> Lake:
        tables: DeltaTables | IcebergTables
        if kind == "iceberg":
            tables = IcebergTables(lambda: session, places.defined(session, dsn), mode)
        else:
            where = partial(places.delta_place, dsn)
            tables = DeltaTables(lambda: session, where, topic_prefix, mode)
        return Lake(session, tables, Feed(topic_prefix), mode, kind, dsn)

    return make


@pytest.mark.parametrize("make_lake", ["iceberg in a bucket", "delta"], indirect=True)
def test_a_second_applier_waits_and_replaces_one_that_is_silent(
    make_lake: Callable[[str], Lake],
) -> None:
    lake = make_lake("scd1")
    table, source = table_of(lake.feed.source), lake.feed.source
    looks = 100.0

    def leased() -> tuple[LakeSink, SparkFile]:
        file = SparkFile(lambda: lake.spark, partial(lake.tables.folder, table))
        fence = lake.marks().fence
        lease = FileLease(file, source, fence, clock=lambda: looks)
        return LakeSink(lake.tables, lake.marks(), source, lease, mode="scd1"), file

    (first, file), (second, _), (third, _) = leased(), leased(), leased()
    assert file.read() is None
    assert first.start() is not None
    until(lambda: file.read() not in {"", "\n"}, "the first renewal", Event().wait)
    assert [second.start(), second.start()] == [None, None]
    first._keeper._closing.set()  # it is frozen
    assert first._keeper._thread is not None
    first._keeper._thread.join(60)
    assert second.start() is None
    looks += SILENCE
    assert second.start() is None  # a claim, which nobody objects to
    looks += OBJECTION

    ledger = second.start()
    assert ledger is not None
    assert ledger.fence == 2
    with pytest.raises(Fenced, match="took over"):
        first.ledger()
    with pytest.raises(Fenced, match="this one was silent"):
        first._keeper.heard(first._lease.renew())
    first.close()
    assert third.start() is None
    second.close()
    assert third.start() is None
    looks += OBJECTION
    assert third.start() is not None
    third.close()


@pytest.mark.parametrize(
    ("make_lake", "mode"),
    [("iceberg", "scd1"), ("delta", "scd2"), ("delta", "log")],
    indirect=["make_lake"],
)
def test_one_that_waits_rehearses_a_step_in_a_lake_of_its_own(
    make_lake: Callable[[str], Lake],
    mode: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake, temporary = make_lake(mode), tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    told, steps = list[str](), list[int]()
    setup = Setup(
        lake.feed.source, lake.dsn, mode=mode, spark=lambda: lake.spark, on_wait=told.append
    )
    first, second = (SINKS[lake.kind].sink(setup) for _ in range(2))
    assert isinstance(first, LakeSink)
    assert isinstance(second, LakeSink)
    monkeypatch.setattr(warm, "rehearse", partial(_counted, steps))
    assert first.start() is not None
    assert first._warm_up is not None
    assert first._warm_up._thread is None, "it did not wait"
    before = lake.marks().newest()

    assert [second.start(), second.start()] == [None, None]

    assert second._warm_up is not None
    assert second._warm_up._thread is not None
    second._warm_up._thread.join()
    assert steps == [{"scd1": 1, "scd2": 2, "log": 3}[mode]], "rows of the table, once"
    assert lake.marks().newest() == before
    assert lake.tables.head(TableId("public", "rehearsal")) is None
    assert [*temporary.iterdir()] == []
    first.close()
    second.close()


def _counted(steps: list[int], spark: SparkSession, tables: DeltaTables | IcebergTables) -> None:
    rehearse(spark, tables)
    steps.append(tables.read(TableId("public", "rehearsal")).count())


def test_a_version_in_a_bucket_is_written_over_one_that_came_since(
    spark: SparkSession, bucket: Bucket
) -> None:
    """So one applier writes there, as docs/lakes.md says; Delta's log store writes like this."""
    place = f"{bucket.url}/_delta_log/1.json"
    path, files = jvm._file(spark, place)
    ours = files.create(path, False)
    ours.write(bytearray(b"ours"))
    bucket.put("_delta_log/1.json", b"theirs")
    ours.close()
    assert jvm.read_text(spark, place) == "ours"


# What differs from a folder; each request of S3 is a hundred times as long there.
@pytest.mark.parametrize("make_lake", ["iceberg in a bucket", "delta in a bucket"], indirect=True)
def test_what_a_dead_attempt_wrote_in_a_bucket_is_put_back(
    make_lake: Callable[[str], Lake],
) -> None:
    lake = make_lake("scd1")
    feed = lake.feed
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.CHUNK, ["1", "x", "long"], ["2", "x", "long"])
    feed.load(A, LoadPhase.END)
    lake.apply()
    _puts_a_dead_attempt_back(lake)

    inspector = SINKS[lake.kind].inspector(Setup(feed.source, dsn=lake.dsn))
    assert inspector.ledger() == lake.marks().newest().ledger
    if lake.kind == "iceberg":
        sink = lake.sink()
        sink.start()
        sink.maintain()  # files that are written anew stay
        lake.clock += 100
        lake.forgets(50, A, "1/1")
        assert lake.rows(A) == [(1, "z", "long")]


def _puts_a_dead_attempt_back(lake: Lake) -> None:
    """It wrote two loaded rows anew and died; the next one cuts the same commits differently."""
    lake.feed.commits([update(A, "1", "y", ...)], [update(A, "1", "z", ...), delete(A, "2")])
    lake.dies.append("rows applied")
    with pytest.raises(KilledError):
        lake.apply()
    assert lake.rows(A) == [(1, "x", "long"), (2, "x", "long")]

    lake.apply(max_rows=1)

    assert lake.rows(A) == [(1, "z", "long")]


def test_scd1_has_the_last_state_of_each_key_at_each_watermark(
    make_lake: Callable[[str], Lake],
) -> None:
    lake = make_lake("scd1")
    feed = lake.feed
    feed.start()
    for one in (A, B):
        feed.load(one, LoadPhase.BEGIN)
        feed.load(one, LoadPhase.CHUNK, ["1", "x", "long"], ["2", "x", "long"])
        feed.load(one, LoadPhase.END)
    lake.apply()
    loaded = lake.marks().newest()

    # An attempt writes both tables and dies; the next one cuts the same commits differently.
    feed.commits([update(A, "1", "y", ...), insert(A, "3", "y", "t")])
    feed.commits([delete(A, "2"), insert(B, "3", "y", "t"), update(A, "1", "z", ...)])
    lake.dies.append("rows applied")
    with pytest.raises(KilledError):
        lake.apply()
    assert lake.rows(A) == [(1, "x", "long"), (2, "x", "long")]
    lake.apply(max_rows=2)

    assert lake.rows(A) == [(1, "z", "long"), (3, "y", "t")]
    assert lake.rows(B) == [(1, "x", "long"), (2, "x", "long"), (3, "y", "t")]

    # The same attempt again is found done; DDL, a changed key and TRUNCATE follow.
    feed.commits(
        [update(A, "5", "k", ..., old="1")],
        [truncate(B), truncate(B), insert(B, "9", "only", None)],
    )
    _knows_what_changes_are(lake)
    lake.dies.append("rows applied")
    with pytest.raises(KilledError):
        lake.apply()
    heads = [lake.tables.head(one.id) for one in (A, B)]
    lake.apply()
    assert [lake.tables.head(one.id) for one in (A, B)] == heads
    # Rows of both shapes are one write; what a dead attempt dropped is back for the commit before.
    feed.commits(
        [insert(A, "6", "old", "t")],
        [update(A, "6", "older", ...), alter(A, WIDE), insert(WIDE, "7", "new", "w")],
    )
    lake.dies.append("rows applied")
    with pytest.raises(KilledError):
        lake.apply()
    lake.apply(max_rows=1)

    assert lake.rows(WIDE, "id", "v", "w") == [
        (3, "y", "was"), (5, "k", "was"), (6, "older", "was"), (7, "new", "w"),
    ]  # fmt: skip
    narrow = read_at(lake.spark, feed.source, "1/5", kind=lake.kind, dsn=lake.dsn)["public.a"]
    assert sorted((r.id, r.t) for r in narrow.collect()) == [(3, "t"), (5, "long"), (6, "t")]
    assert lake.rows(B) == [(9, "only", None)]
    assert loaded is not None
    assert lake.at(loaded, A) == [(1, "x", "long"), (2, "x", "long")]
    older = read_at(lake.spark, feed.source, "1/1", kind=lake.kind, dsn=lake.dsn, is_exact=True)
    assert older.ledger.seq == 1
    assert sorted(r.id for r in older["public.a"].collect()) == [1, 2, 3]

    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    for said, here in (
        ('"bank"', repr(feed.source)),
        ('"iceberg"', repr(lake.kind)),
        ('"/srv/lake"', repr(lake.dsn)),
        ("public.account", "public.a"),
    ):
        example = example.replace(said, here)
    exec(compile(example, "docs/lakes.md", "exec"), {"spark": lake.spark})

    # A renamed table stays where it is; another one takes its name.
    feed.commits([alter(B, RENAMED), alter(None, B), insert(B, "1", "new", None)])
    feed.commits([update(RENAMED, "9", "late", ...)])
    lake.dies.append("rows applied")
    with pytest.raises(KilledError):
        lake.apply()
    lake.apply()
    assert lake.rows(RENAMED) == [(9, "late", None)]
    assert lake.rows(B) == [(1, "new", None)]
    assert lake.at(loaded, B) == [(1, "x", "long"), (2, "x", "long")]

    # A DELETE may have been lost: what comes may be there, or come twice.
    hole = Hole(str(B.id), "seen", "lost")
    feed.commits(Tx([insert(B, "1", "again", None), insert(B, "2", "x", None)], (hole,)))
    feed.commits([insert(B, "2", "y", None)])
    lake.apply()
    assert lake.rows(B) == [(1, "again", None), (2, "y", None)]

    # Who has no Spark sees the same ledger; and nothing that is promised goes.
    inspector = SINKS[lake.kind].inspector(Setup(feed.source, dsn=lake.dsn))
    assert inspector.ledger() == lake.marks().newest().ledger
    sink = lake.sink()
    sink.start()
    sink.maintain()
    assert lake.at(loaded, A) == [(1, "x", "long"), (2, "x", "long")]
    assert lake.rows(RENAMED) == [(9, "late", None)]
    marks = [mark for mark in lake.watermarks() if mark.written_at < (lake.clock - 150) * 1e6]
    oldest = max(marks, key=lambda mark: mark.number)  # it was the newest one 150 seconds ago
    rows = lake.at(oldest, WIDE, "id", "v", "w")
    lake.forgets(150, A, "1/1")
    assert min(mark.number for mark in lake.watermarks()) == oldest.number
    assert lake.at(oldest, WIDE, "id", "v", "w") == rows
    assert lake.rows(RENAMED) == [(9, "late", None)]


def _knows_what_changes_are(lake: Lake) -> None:
    """The check counts rows of a segment that waits, few or many, and says what they are."""
    newest, key = lake.marks().newest(), ("id",)
    assert newest is not None
    (segment,) = lake.segments(newest.ledger)
    for rows in (segment.rows, 1_000_000):
        one, staged = replace(segment, rows=rows), lake.staged(segment)
        staged.check(one, {str(table): key for table in staged.tables})
        for table in staged.tables:
            changes = staged.between(table, FIRST, LAST)
            assert changes is not None
            assert staged.kinds(table, key) == kinds(changes, key)
        staged.close()
        twice = FrameRows((), {A.id: lambda rows=changes: [rows.union(rows)]})
        with pytest.raises(Incomplete, match="rows are there twice"):
            twice.check(one, {})
        twice.close()


# One of its commits takes seconds: here is only what differs from Iceberg, the versions.
@pytest.mark.parametrize("make_lake", ["delta"], indirect=True)
def test_delta_puts_a_table_back_that_a_dead_attempt_wrote(
    make_lake: Callable[[str], Lake],
) -> None:
    lake = make_lake("scd1")
    feed = lake.feed
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.CHUNK, ["1", "x", "long"], ["2", "x", "long"])
    lake.apply()
    loaded = lake.marks().newest()

    feed.load(A, LoadPhase.END)
    _puts_a_dead_attempt_back(lake)

    # A small table's file is written anew, with half of the jobs.
    assert not lake.files(A, "deletion_vector")
    # Each statement of a schema change is a version; texts go with their column.
    other = replace(A, columns=(A.columns[0], replace(A.columns[1], name="w"), A.columns[2]))
    feed.commits([insert(A, "3", r"\xff", "t"), replace(alter(A, other), renamed={"v": "w"})])
    lake.dies.append("rows applied")
    with pytest.raises(KilledError):
        lake.apply()
    sink = lake.sink()
    sink.start()
    sink.maintain()  # the table is put back here, and goes on from what this names
    lake.apply()
    assert lake.rows(other, "id", "w", "_exact") == [(1, "z", None), (3, None, {"w": r"\xff"})]
    assert loaded is not None
    assert lake.at(loaded, A) == [(1, "x", "long"), (2, "x", "long")]
    inspector = SINKS["delta"].inspector(Setup(feed.source, dsn=lake.dsn))
    newest = lake.marks().newest()
    assert newest is not None
    assert inspector.ledger() == newest.ledger

    _refuses_columns_of_others(lake, other, "8")
    head = lake.tables.head(A.id)
    assert head is not None
    lake.spark.sql(f"ALTER TABLE {lake.tables.name(A.id)} ADD COLUMNS (mine STRING)")
    with pytest.raises(TargetRefused, match="somebody added columns"):
        lake.tables.put_back(A.id, head, head.id)

    # Delta counts from when a file went: without retention all but the newest version's go.
    assert isinstance(lake.tables, DeltaTables)
    tables = DeltaTables(lambda: lake.spark, lake.tables._place, feed.source, "scd1", keep=0)
    made = tables.write(B.id, None, Begin(B), Stamp())
    first, second = (lake.spark.createDataFrame([(i, "x", "t", None)], _COLUMNS) for i in (1, 2))
    old = tables.append(B.id, made, first, Stamp())
    new = tables.replace(B.id, old, second, Stamp())
    there = lake.files(B)
    tables.expire(B.id, new.id, 0)
    assert lake.files(B) < there
    assert tables.head(B.id) == new
    assert [row.id for row in tables.read(B.id, new.id).collect()] == [2]


def test_scd2_has_each_state_with_the_commits_between_which_it_held(
    make_lake: Callable[[str], Lake],
) -> None:
    lake = make_lake("scd2")
    S = replace(A, columns=(*A.columns[:2], replace(A.columns[2], name="seq")))  # noqa: N806
    feed = lake.feed
    feed.start()
    feed.load(S, LoadPhase.BEGIN)
    feed.load(S, LoadPhase.CHUNK, ["1", "x", "long"], ["2", "x", "long"])
    feed.load(S, LoadPhase.END)
    feed.commits([update(S, "1", "y", ...)], [update(S, "1", "z", ...), insert(S, "3", "x", "t")])
    feed.commits([update(S, "3", "half", ...), delete(S, "3")], [update(S, "4", "k", ..., old="2")])
    lake.apply()
    feed.commits(
        [update(S, "5", ..., "key", old="4"), insert(S, "4", "n", "t"),
         update(S, "6", ..., ..., old="4"), update(S, "4", ..., ..., old="5")],
    )  # fmt: skip
    N = replace(S, columns=(*S.columns[:2], replace(S.columns[2], name="w")))  # noqa: N806
    # Under partition-by = "primary-key" a TRUNCATE stands in each partition.
    feed.commits([alter(S, N), truncate(N), truncate(N), insert(N, "1", "new", "w")])
    lake.apply()

    rows = lake.rows(S, "id", "_valid_from", "_valid_to", "v", "seq", "_is_current")
    at = [(1 << 40) + seq for seq in range(7)]
    assert rows == [
        (1, at[0], at[1], "x", "long", False),
        (1, at[1], at[2], "y", "long", False),
        (1, at[2], at[6], "z", "long", False),
        (1, at[6], None, "new", None, True),
        (2, at[0], at[4], "x", "long", False),
        (3, at[2], at[3], "x", "t", False),
        (4, at[4], at[5], "k", "long", False),
        (4, at[5], at[6], "k", "key", False),
        (6, at[5], at[6], "n", "t", False),
    ]
    assert [w for *_, w in lake.rows(S, "id", "_valid_from", "w") if w is not None] == ["w"]
    for *_, upto, ended in lake.rows(S, "id", "_valid_from", "_valid_to", "_valid_to_timestamp"):
        assert ended == (upto and datetime.fromtimestamp(upto - at[0]))  # noqa: DTZ006  as Spark


# Rows of the test below: id, values of w and t, texts.
TEXTS = {
    "scd1": [
        r"1 {} {'w': '\\xff'}", "2 {'w': 'y'} {}", r"3 {} {'w': '\\xfd'}",
        "4 {'w': 'n'} {}", "5 {'w': 'n'} {}", "6 {'t': 'new', 'w': 'n'} {}",
    ],
    "scd2": [
        r"1 {'t__dropped': 'u'} {'w': '\\xff'}", r"1 {'t__dropped': 'x'} {'w': '\\xff'}",
        r"2 {'w': 'y'} {'t__dropped': '\\xfe'}", r"3 {'t__dropped': 'z'} {'w': '\\xfd'}",
        r"4 {'w': 'n'} {'t__dropped': '\\xfc'}", "5 {'w': 'n'} {}",
        "6 {'t': 'new', 'w': 'n'} {}",
    ],
    "log": [
        "1 {'t__dropped': 'u'} {} not ['w']", r"1 {'t__dropped': 'x'} {'w': '\\xff'}",
        r"2 {'w': 'y'} {'t__dropped': '\\xfe'}", r"3 {'t__dropped': 'z'} {'w': '\\xfd'}",
        r"4 {'w': 'n'} {'t__dropped': '\\xfc'}", "5 {'w': 'n'} {}",
        "6 {'t': 'new', 'w': 'n'} {}",
    ],
}  # fmt: skip


@pytest.mark.parametrize("mode", TEXTS)
def test_texts_go_with_their_column_and_no_column_has_those_of_another(
    make_lake: Callable[[str], Lake], mode: str
) -> None:
    """What Spark cannot hold, under the names that columns have and had."""
    lake = make_lake(mode)
    feed = lake.feed
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.CHUNK, ["1", r"\xff", "x"], ["2", "y", r"\xfe"])
    feed.load(A, LoadPhase.END)
    w, t = replace(A.columns[1], name="w"), A.columns[2]
    R = replace(A, columns=(A.columns[0], w, t))  # noqa: N806
    N = replace(A, columns=(A.columns[0], w))  # noqa: N806
    feed.commits(
        [update(A, "1", ..., "u"), replace(alter(A, R), renamed={"v": "w"}),
         insert(R, "3", r"\xfd", "z")],
    )  # fmt: skip
    lake.dies += ["rows applied"] * (mode == "scd1")
    with suppress(KilledError):
        lake.apply()
    lake.apply()
    feed.commits([insert(R, "4", "n", r"\xfc"), alter(R, N), insert(N, "5", "n")])
    feed.commits([alter(N, R), insert(R, "6", "n", "new")])
    lake.apply()

    def has(row: Row) -> str:
        cells = {c: row[c] for c in sorted(row.asDict()) if c[0] in "wt" and row[c] is not None}
        unsent = row.asDict().get("_unsent")
        return f"{row.id} {cells} {row._exact or {}}" + (f" not {unsent}" if unsent else "")

    rows = read_at(lake.spark, feed.source, kind=lake.kind, dsn=lake.dsn)[str(A.id)].collect()
    assert sorted(map(has, rows)) == TEXTS[mode]


def test_of_two_appliers_the_older_one_writes_no_watermark(
    make_lake: Callable[[str], Lake],
) -> None:
    lake = make_lake("log")
    feed = lake.feed
    sleeper = lake.marks()
    assert sleeper.newest() is None  # it looks before there is anything
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    # An interrupted load is finished by a re-read, whose rows have great ordinals.
    feed.load(A, LoadPhase.CHUNK, ["0", "r", "t"], first=of_reread(3))
    feed.load(A, LoadPhase.END)
    lake.apply()
    with pytest.raises(Superseded):
        sleeper.append(None, Watermark(1, Ledger(feed.source, fence=1)))
    loaded = lake.tables.head(A.id)
    feed.commits(
        [insert(A, "1", "x", "t")],
        [alter(A, NARROW), update(NARROW, "1", "y"), delete(NARROW, "1")],
    )
    old = lake.sink()
    ledger = old.start()
    (segment,) = lake.segments(ledger)
    staged, marks = lake.staged(segment), old._marks
    marks.newest()  # it looks, and sleeps
    lake.apply()

    with pytest.raises(Superseded):
        marks.append(marks._seen[0], marks._seen[0])  # type: ignore[arg-type]
    staged.close()
    rows = lake.rows(A, "_change_type", "id", "v", "t", "_commit_version", "_ordinal")
    epoch = 1 << 40
    assert rows == [
        ("delete", 1, None, None, epoch + 2, 2),
        ("insert", 0, "r", "t", epoch, of_reread(3)),
        ("insert", 1, "x", "t", epoch + 1, 0),
        ("update_postimage", 1, "y", None, epoch + 2, 1),
    ]
    assert lake.marks().newest().ledger == lake.sink()._marks.newest().ledger

    # Columns are the table's; its head stays where it was until who altered it comes further.
    class Late(IcebergTables):
        def _reshape(self, table: TableId, head: TableVersion) -> None:
            super()._reshape(table, head)
            said = f"SET TBLPROPERTIES ('gauss-cdc.columns' = '{json.dumps(['late'])}')"
            for change in (said, "ADD COLUMNS (late STRING)"):
                lake.spark.sql(f"ALTER TABLE {self.name(table)} {change}")

    feed.commits([insert(NARROW, "2", "x")])
    (segment,) = lake.segments(lake.sink().start())
    staged, head = lake.staged(segment), lake.tables.head(A.id)
    work = Apply(staged.between(A.id, FIRST, LAST), A.key, is_exact=True)
    with pytest.raises(Superseded, match="another writer altered the table"):
        Late(lambda: lake.spark, "lake", "log").write(A.id, head, work, Stamp())
    staged.close()
    assert lake.tables.head(A.id) == head
    lake.apply()
    assert "late" not in lake.tables.read(A.id).columns

    _takes_no_version_away(lake, loaded)
    _refuses_columns_of_others(lake, NARROW, "7", "8")


def _takes_no_version_away(lake: Lake, loaded: TableVersion | None) -> None:
    """A load begins a table anew: one that is overtaken, one that dies, and CREATE OR REPLACE."""
    spark, feed, head = lake.spark, lake.feed, lake.tables.head(A.id)
    assert loaded is not None
    assert head is not None
    columns, rows = lake.tables.read(A.id).columns, len(lake.rows(A, "id"))

    class Dies(IcebergTables):
        def _commit(self, *_: Any) -> TableVersion:
            raise KilledError

    with pytest.raises(Superseded):
        lake.tables.write(A.id, loaded, Begin(WIDE), Stamp(base=loaded.id))
    assert lake.tables.read(A.id).columns == columns
    with pytest.raises(KilledError):
        Dies(lambda: spark, "lake", "log").write(A.id, head, Begin(WIDE), Stamp(base=head.id))
    assert "w" in lake.tables.read(A.id).columns
    assert lake.tables.head(A.id) == head

    replaced = f"CREATE OR REPLACE TABLE {lake.tables.name(A.id)} (id INT) USING iceberg"
    spark.sql(replaced)  # as our own did, and anybody may: no branch `main` is left
    assert len(lake.rows(A, "id")) == rows
    feed.commits([insert(NARROW, "3", "x")])
    lake.apply()
    assert len(lake.rows(A, "id")) == rows + 1
    assert lake.tables.read(A.id).columns == columns
    spark.sql(replaced)
    feed.load(NARROW, LoadPhase.BEGIN)
    feed.load(NARROW, LoadPhase.CHUNK, ["4", "y"])
    feed.load(NARROW, LoadPhase.END)
    lake.apply()
    assert lake.rows(A, "id", "v") == [(4, "y")]
    before = read_at(spark, feed.source, "1/3", kind=lake.kind, dsn=lake.dsn)["public.a"]
    assert before.count() == rows


def _refuses_columns_of_others(lake: Lake, shape: TableSchema, *ids: str) -> None:
    """A column that somebody added, and what stands in it, stays until somebody drops it."""
    spark, name, feed = lake.spark, lake.tables.name(A.id), lake.feed

    def is_refused() -> None:
        with pytest.raises(TargetRefused, match="somebody added columns") as raised:
            lake.apply()
        assert raised.value.where["columns"] == "mine"

    for row in ids:  # 8: a load begins
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS (mine STRING)")
        if row == "7":
            feed.commits([insert(shape, row, "x", *["t"] * (len(shape.columns) - 2))])
            is_refused()
        else:
            feed.load(shape, LoadPhase.BEGIN)
        spark.sql(f"INSERT INTO {name} (id, mine) VALUES (99, 'noted')")
        is_refused()
        assert [row.mine for row in lake.tables.read(A.id).where("id = 99").collect()] == ["noted"]
        spark.sql(f"ALTER TABLE {name} DROP COLUMN mine")
        lake.apply()
        assert "mine" not in lake.tables.read(A.id).columns
        assert not lake.rows(A, "id").count((99,))
