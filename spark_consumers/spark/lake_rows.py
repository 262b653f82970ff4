"""A segment's rows as Spark's executors hold them: one typed frame for each table.

The driver holds schema changes and counts only.  Frames are kept until the step is over: they are
counted first, and a lake reads them more than once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from schemas.control import Range, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import Column, TableId, TableSchema
from schemas.topics import Topics
from spark_consumers.cuts.complete import chunk_rows
from spark_consumers.dialects.spark import literal, older_value, quote, type_name, with_texts
from spark_consumers.errors import Incomplete, NotExpressible, StreamError, TargetFailed
from spark_consumers.kafka.read import RangeReader, SchemaOf
from spark_consumers.model import Segment
from spark_consumers.sinks.lakes import changes
from spark_consumers.sinks.lakes.changes import behind
from spark_consumers.sinks.lakes.joined import Joined
from spark_consumers.sinks.step import FIRST, LAST, Place
from spark_consumers.spark.frames import TaskLogin, changes_frame, records, typed_changes
from spark_consumers.spark.jvm import SPARK_ERRORS, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Schemas: TypeAlias = Mapping[int, dict[str, Any]]

_SAID: Final = 5  # commits that an error names
_PLACE: Final = ("seq", "ordinal", "op")
# How many ordinals there are, and how many come again.
_DISTINCT: Final = (
    "count(DISTINCT ordinal)",
    "count_if(op != 't') - count(DISTINCT ordinal) FILTER (WHERE op != 't')",
)
# The same where they fit into memory: half of the stages.
_COLLECTED: Final = (
    "CAST(size(collect_set(ordinal)) AS BIGINT)",
    "count_if(op != 't') - size(collect_set(ordinal) FILTER (WHERE op != 't'))",
)
_FEW_ROWS: Final = 50_000


class FrameReader:
    """Reads segments for lakes."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        driver: RangeReader,
        schema_of: SchemaOf,
        *,
        login: TaskLogin,
    ) -> None:
        """`login`: how tasks come to Kafka; it is closed with this reader."""
        self._spark, self._driver, self._schema_of = spark, driver, schema_of
        self._names, self._login = Topics(login.source), login

    def __call__(self, segment: Segment) -> FrameRows:
        """Find out what there is; nothing is read before the sink asks."""
        if not segment.ranges:
            return FrameRows((), {})
        is_committed = self._driver.prepare(segment)
        ddl = self._driver.read_ddl(segment, is_committed=is_committed)
        altered = {one.id for change in ddl for one in (change.before, change.after) if one}
        frames: dict[TableId, TableFrames] = {}
        held: list[DataFrame] = []
        for topic in sorted({r.topic for r in segment.ranges} - {self._names.ddl}):
            schemas = {i: self._schema_of(i) for i in segment.schema_ids.get(topic, ())}
            table = next((self._names.table_by(topic, s) for s in schemas.values()), None)
            if table is None:
                raise StreamError("a range names a topic that is not a table's", topic=topic)
            ranges = [r for r in segment.ranges if r.topic == topic]

            def read(ranges: Any = ranges) -> DataFrame:
                return records(self._spark(), self._login, ranges, is_committed=is_committed)

            def make(schemas: Schemas, ranges: Any = ranges) -> DataFrame:
                return changes_frame(
                    self._spark(), self._login, ranges, schemas, is_committed=is_committed
                )

            frames[table] = TableFrames(
                read,
                make,
                partial(typed_changes, topic=topic, native=self._login.native),
                schemas,
                is_apart=table in altered,
                hold=held.append,
            )

        def ask_driver() -> None:
            self._driver.content(_beginnings(segment.ranges), is_committed=is_committed)

        return FrameRows(ddl, frames, held, ask_driver)

    def close(self) -> None:
        """Remove what was written for tasks; frames are let go of by their step."""
        self._login.close()


class TableFrames:
    """A table's changes; around schema changes each writer's columns stay apart.

    A cut names the shapes of all its commits, a segment may have some of them: its own rows say
    which columns there are.
    """

    def __init__(
        self,
        read: Callable[[], DataFrame],
        make: Callable[[Schemas], DataFrame],
        decode: Callable[[DataFrame, Schemas], DataFrame],
        schemas: Schemas,
        *,
        is_apart: bool,
        hold: Callable[[DataFrame], None] = lambda _: None,
    ) -> None:
        """`read` gives records, `decode` makes typed changes of them, `make` both at once.

        `schemas` are those of the writers.  `hold` is given what is read more than once, and lets
        go of it when the step is over.
        """
        self._read, self._make, self._decode, self._schemas = read, make, decode, dict(schemas)
        self._is_apart, self._hold = is_apart, hold

    def __call__(self) -> list[DataFrame]:
        """Return frames of changes: one, or one for each schema."""
        schemas = self._schemas
        if len(schemas) == 1:
            return [self._make(schemas)]
        rows = self._read()
        self._hold(rows.persist())  # else each schema reads all of them from Kafka
        found = rows.selectExpr("hex(substring(value, 2, 4))").distinct().collect()
        there = schemas.keys() & {int(row[0], 16) for row in found} or {max(schemas)}
        schemas = {schema_id: schemas[schema_id] for schema_id in there}
        if not self._is_apart or len(schemas) == 1:
            return [self._decode(rows, schemas)]
        return [
            self._decode(
                rows.where(f"substring(value, 2, 4) = X'{schema_id:08X}'"), {schema_id: one}
            )
            for schema_id, one in schemas.items()
        ]


class FrameRows:
    """Implements `lakes.core.SegmentContent`."""

    def __init__(
        self,
        ddl: Sequence[SchemaChange],
        frames: Mapping[TableId, Callable[[], list[DataFrame]]],
        held: Iterable[DataFrame] = (),
        ask_driver: Callable[[], None] = lambda: None,
    ) -> None:
        """`held`: what else to let go of when the step is over.

        `ask_driver`, where tasks could not read, raises what the driver knows of the reason.
        """
        self.ddl = ddl
        self._make, self._held, self._ask_driver = frames, held, ask_driver
        self._frames: dict[TableId, list[DataFrame]] = {}
        self._spans: dict[tuple[TableId, int], tuple[Place, Place]] = {}  # of frames with rows
        self._counts = Counter[TableId]()
        self._kinds: dict[tuple[TableId, tuple[str, ...]], changes.Kinds] = {}

    @property
    def tables(self) -> Sequence[TableId]:
        return list(self._make)

    def check(self, segment: Segment, keys: Mapping[str, tuple[str, ...]]) -> None:
        """Count every commit's ordinals; see `cuts.check_complete`."""
        if segment.loads:
            self._check_loads(segment)
            return
        found: Counter[int] = Counter(change.seq for change in self.ddl)
        for _, seq, rows, again, first, last in self._counted(segment, keys):
            found[seq] += rows
            if again:
                raise _incomplete(segment, "rows are there twice", seq=seq)
            if not 0 <= first <= last < segment.commit_rows.get(seq, 0):
                raise _incomplete(segment, "a record that is not of a commit", seq=seq)
        wrong = {seq: n for seq, n in segment.commit_rows.items() if found[seq] != n}
        if wrong or found.keys() - segment.commit_rows.keys():
            text = ", ".join(
                f"{seq}: {found[seq]} of {n}" for seq, n in list(wrong.items())[:_SAID]
            )
            raise _incomplete(segment, f"rows of {len(wrong)} commits are missing", commits=text)

    def _check_loads(self, segment: Segment) -> None:
        promised, found = chunk_rows(segment), Counter[TableId]()
        for table, _, rows, *_ in self._counted(segment, {}):
            found[table] += rows
        for table in self._make.keys() | promised.keys():
            if found[table] != promised.get(table, 0):
                what = f"{found[table]} of {promised.get(table, 0)} rows of a load"
                raise _incomplete(segment, what, table=table)

    def count(self, table: TableId) -> int:
        return self._counts[table]

    def kinds(self, table: TableId, key: tuple[str, ...]) -> changes.Kinds | None:
        return self._kinds.get((table, key))

    def between(
        self, table: TableId, after: Place, before: Place, shape: Joined | None = None
    ) -> DataFrame | None:
        frames = self._of(table)
        if (after, before) == (FIRST, LAST) and len(frames) == 1 and shape is None:
            return frames[0]
        # Schema changes take an ordinal, so that no change stands at either place.
        where = f"{behind(after)} AND NOT {behind(before)}"
        some = []
        for at, frame in enumerate(frames):
            first, last = self._spans.get((table, at), (FIRST, FIRST))
            if first > before or last < after:
                continue
            one = frame.where(where)
            if (after < first and last < before) or not one.isEmpty():
                some.append(one)
        is_known = shape is None or all(_fits(_columns(one), shape) for one in some)
        if shape is not None and is_known:
            some = _shaped(some, table, shape)
        if not is_known or len({str(_columns(one)) for one in some}) > 1:
            raise NotExpressible(
                "rows of one table were written with different columns, and no schema change is"
                " between them",
                table=table,
                hint=LOAD_AGAIN,
            )
        return reduce(type(some[0]).unionByName, some) if some else None

    def close(self) -> None:
        """Let go of what executors hold."""
        for frame in chain(self._held, *self._frames.values()):
            frame.unpersist()
        self._frames.clear()

    def _of(self, table: TableId) -> list[DataFrame]:
        if table not in self._frames:
            with self._by_tasks():
                self._frames[table] = [frame.persist() for frame in self._make[table]()]
        return self._frames[table]

    @contextmanager
    def _by_tasks(self) -> Iterator[None]:
        """Where tasks could not read, say why."""
        try:
            yield
        except SPARK_ERRORS as error:
            self._ask_driver()
            raise TargetFailed("Spark failed: rows are read", cause=kind_of(error)) from error

    def _counted(
        self, segment: Segment, keys: Mapping[str, tuple[str, ...]]
    ) -> Iterator[tuple[TableId, int, int, int, int, int]]:
        """Yield (table, seq, rows, double ones, least ordinal, greatest), by one job.

        A TRUNCATE may stand in several partitions under one ordinal.  The same job says of tables
        that follow rows by a key what their changes are.
        """
        from pyspark.sql import DataFrame  # noqa: PLC0415  only where Spark is

        made = [(table, at) for table in self._make for at in range(len(self._of(table)))]
        if not made:
            return
        by = {table: self._key(table, keys) for table in self._make}
        told = any(by.values())
        places = reduce(
            DataFrame.unionByName,
            (
                self._of(table)[at].selectExpr(
                    f"{number} AS made", *_PLACE, *(changes.flags(by[table] or ()) if told else ())
                )
                for number, (table, at) in enumerate(made)
            ),
        )
        distinct = _DISTINCT if segment.rows > _FEW_ROWS else _COLLECTED
        counts = ("count(*)", "0L") if segment.loads else distinct
        ends, more = ("min(ordinal)", "max(ordinal)"), changes.COUNTED if told else ()
        counted = places.groupBy("made", "seq").agg(*changes.exprs(*counts, *ends, *more))
        with self._by_tasks():
            rows = counted.collect()
        for number, seq, count, double, low, high, *_ in rows:
            first, last = self._spans.get(made[number], (LAST, FIRST))
            span = min(first, (seq, low)), max(last, (seq, high))
            self._spans[made[number]] = span
            self._counts[made[number][0]] += count
            yield made[number][0], seq, count, double, low, high
        for table, key in by.items():
            if key is not None:
                number = made.index((table, 0))
                self._kinds[table, key] = changes.kinds_of(r[6:] for r in rows if r[0] == number)

    def _key(self, table: TableId, keys: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
        """Return a table's key, where it has one and all its rows are in one frame with it."""
        key, frames = keys.get(str(table)), self._of(table)
        return key if key and len(frames) == 1 and {*key} <= _columns(frames[0]).keys() else None


def _beginnings(ranges: Iterable[Range]) -> list[Range]:
    """Return the first record of each partition: where it is there, all behind it are."""
    firsts = {(r.topic, r.partition): r for r in sorted(ranges, reverse=True)}
    return [r._replace(end=r.start + 1) for r in firsts.values()]


def _shaped(frames: Iterable[DataFrame], table: TableId, shape: Joined) -> list[DataFrame]:
    """Give old and new rows of each frame the columns of `shape`."""
    frames, schema = list(frames), TableSchema(table, shape.columns)
    fields = [_columns(frame) for frame in frames]
    types = {name: type_ for one in fields for name, type_ in one.items()}

    older = {c.name: older_value(schema, c, shape.come[c.name])
             for c in shape.columns if c.name in shape.come}  # fmt: skip

    def cell(row: str, column: Column, there: Mapping[str, str]) -> str:
        name = quote(column.name)
        if column.name in there:
            return f"{row}.{name} AS {name}"
        value = older[column.name].value if column.name in older else "NULL"
        return f"CAST({value} AS {types.get(column.name) or type_name(schema, column)}) AS {name}"

    def texts_of(texts: str, row: str, there: Mapping[str, str]) -> str:
        # The text of a value that went would be that of a later column of the name.
        if gone := there.keys() - {column.name for column in shape.columns}:
            names = ", ".join(map(literal, sorted(gone)))
            stay = f"map_filter({texts}, (k, v) -> k NOT IN ({names}))"
            texts = f"if(size({stay}) > 0, {stay}, NULL)"
        come = {name: it.exact for name, it in older.items() if it.exact and name not in there}
        return f"if({row} IS NULL, {texts}, {with_texts(texts, come)})" if come else texts

    def shaped(frame: DataFrame, there: Mapping[str, str]) -> DataFrame:
        made = {"exact": texts_of("exact", "after", there),
                "before_exact": texts_of("before_exact", "before", there)}  # fmt: skip
        for row in ("before", "after"):
            cells = ", ".join(cell(row, column, there) for column in shape.columns)
            made[row] = f"if({row} IS NULL, NULL, struct({cells}))"
        return frame.selectExpr(*(f"{made.get(name, name)} AS {name}" for name in frame.columns))

    return [shaped(frame, there) for frame, there in zip(frames, fields, strict=True)]


def _fits(there: Iterable[str], shape: Joined) -> bool:
    """Say whether rows lack, and have, only columns that came or went."""
    lack = {c.name for c in shape.columns if not c.generated} - {*there} - shape.come.keys()
    more = {*there} - {c.name for c in shape.columns}
    return all(name.casefold() in shape.gone for name in lack | more)


def _columns(frame: DataFrame) -> dict[str, str]:
    """Return the columns of a frame of changes, and their types."""
    row: Any = frame.schema["after"].dataType
    return {field.name: field.dataType.simpleString() for field in row.fields}


def _incomplete(segment: Segment, what: str, **where: Any) -> Incomplete:
    return Incomplete(what, n=segment.cut.head.n, **where)
