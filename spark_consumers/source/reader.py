"""The readers that Spark asks: planning on the driver, reading on executors.

An offset is {"epoch", "seq", "cut", "state", "instance"}: the last whole commit, the first record
of cuts that is not wholly behind it, and the START or STATE from which a reader comes there, with
its writer.  The end of the first batch also has "first", its beginning: Spark keeps no beginning,
and asks for it again when that batch is repeated, when `latest` is another commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from schemas.control import Range
from schemas.tables import TableId
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import SettingRefused, StreamError
from spark_consumers.kafka.history import (
    CommitWalk,
    Found,
    History,
    Standing,
    TableNote,
    TopicFound,
)
from spark_consumers.kafka.ranges import Fetch, divided
from spark_consumers.kafka.read import CLIENTS, Clients
from spark_consumers.kafka.registry import SchemaCache
from spark_consumers.source.batches import change_batches
from spark_consumers.source.options import SourceOptions
from spark_consumers.source.rows import (
    OURS,
    ChangeRows,
    check_shape,
    made_of,
    nested,
    shape_of,
)
from spark_consumers.spark.executors import KEPT, fetched, spare_next_task
from spark_consumers.spark.given import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

try:  # Spark 4.2 and later say what they want, and where the query stands
    limits: Any = import_module("pyspark.sql.streaming.datasource")
except ImportError:
    limits = None
_AvailableNow: Any = getattr(limits, "SupportsTriggerAvailableNow", object)

Offset: TypeAlias = dict[str, Any]

_ROWS_A_TASK: Final = 100_000


@dataclass(frozen=True)
class CommitShare(InputPartition):
    """Exact offsets of a table that one task reads, and what it needs to decode them."""

    table: TableId
    ranges: tuple[Range, ...]
    schemas: Mapping[int, dict[str, Any]] = field(repr=False)
    notes: tuple[TableNote, ...] = ()
    is_committed: bool = True


class _SharedReader:
    """What both readers do."""

    def __init__(
        self, options: SourceOptions, schema: StructType, *, clients: Clients = CLIENTS
    ) -> None:
        if schema.fieldNames()[-len(OURS) :] != [name for name, _ in OURS]:
            raise SettingRefused(
                "gauss_cdc has columns of its own",
                hint="leave out schema(), and select after load()",
            )
        self._options, self._schema, self._clients = options, schema, clients
        self._registry: SchemaCache | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave connections and their memory on the driver."""
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**{name.removeprefix("_"): value for name, value in state.items()})  # type: ignore[misc]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read a task's share; raise Incomplete unless exactly its records are there.

        None: Spark makes one task of no share.
        """
        if partition is None:
            return
        assert isinstance(partition, CommitShare)
        if not self._options.is_nested:
            yield from self._rows(partition, self._schema)
            return
        table, schema = partition.table, arrow_schema(self._schema)
        for batch in self._rows(partition, shape_of(self._schema, table)):
            yield nested(batch, table, schema)

    def _rows(self, partition: CommitShare, shape: StructType) -> Iterator[pa.RecordBatch]:
        columns = shape.fieldNames()[: -len(OURS)]
        batches = change_batches(columns, arrow_schema(shape), partition.schemas)
        for note in partition.notes:
            batches.let_add(partial(ChangeRows.note, note=note))
        if partition.ranges:
            yield from fetched(
                self._fetch(), partition.ranges, batches, is_committed=partition.is_committed
            )
        yield from batches.taken()
        spare_next_task()

    def _fetch(self) -> Fetch:
        """Return the reader of this worker."""
        clients = self._clients
        return KEPT.reader(
            self._options.client,
            self._options.prefix,
            consumer=clients.consumer,
            cluster=clients.cluster,
            now=clients.now,
        )

    def _known(self) -> SchemaCache:
        if self._registry is None:
            self._registry = self._options.schema_of()
        return self._registry

    def _shares(self, history: History, found: Found) -> Sequence[CommitShare]:
        """Divide what was found among tasks; raise ShapeChanged, RangeExpired."""
        topics = found.topics
        schemas = {topic: self._checked(one) for topic, one in topics.items()}
        is_committed = history.readable(found)
        notes: dict[TableId, list[TableNote]] = {}
        for note in found.notes:
            notes.setdefault(note.table, []).append(note)
        return [
            *(CommitShare(table, (), {}, tuple(said)) for table, said in notes.items()),
            *(
                CommitShare(topics[topic].table, ranges, schemas[topic], is_committed=is_committed)
                for ranges in shares_of(found.ranges, _ROWS_A_TASK)
                for topic in [ranges[0].topic]
            ),
        ]

    def _checked(self, topic: TopicFound) -> Mapping[int, dict[str, Any]]:
        """Return a topic's schemas by id; raise ShapeChanged."""
        schema_of, newest = self._known(), made_of(self._schema)
        own = self._schema
        if self._options.is_nested:
            own = shape_of(own, topic.table)
        wanted = {one.name: one.dataType.simpleString() for one in own.fields[: -len(OURS)]}
        schemas = {schema_id: schema_of(schema_id) for schema_id in topic.schema_ids}
        for schema_id, schema in schemas.items():
            check_shape(schema, wanted, is_newer=newest is not None and schema_id > newest)
        return schemas


class ChangesReader(_SharedReader, DataSourceReader):
    """Reads all commits from one to another, once."""

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks of the batch: shares of exact offsets; none where nothing came.

        Raises StreamError where its end has not come, RangeExpired, ShapeChanged.
        """
        with closing(self._options.history(self._known(), self._clients)) as history:
            return self._shares(history, self._options.all_of(history))


class ChangesStream(_SharedReader, DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]
    """Reads commits as they come, some at a time."""

    def __init__(
        self, options: SourceOptions, schema: StructType, *, clients: Clients = CLIENTS
    ) -> None:
        super().__init__(options, schema, clients=clients)
        self._history: History | None = None
        self._walk: CommitWalk | None = None
        self._initial: Offset | None = None
        self._planned: Offset | None = None  # the end of what Spark was told
        self._found: tuple[Offset, Offset, Found] | None = None
        self._last: Standing | None = None  # of a query that ends when it is there

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the place of `startingVersion` or `startingTimestamp`; it stays the same.

        Raises StreamError where that is yet to come.
        """
        if self._initial is None:
            self._initial = _offset(self._options.first(self._opened()))
        return self._initial

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Rows of a micro-batch, about: whole commits are read. Spark 4.2 and later ask."""
        return limits.ReadMaxRows(self._options.rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the newest durable commit as the end of this query; later ones are not read."""
        self._last = self._opened().newest()

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Return the end of the next batch: whole commits, about as many rows as are wished.

        Spark 4.1 tells neither where the query stands (`partitions` does, when it starts again)
        nor how much it wants.
        """
        rows: int | None = self._options.rows
        if limit is not None:  # of any other kind than a number of rows: all that there is
            rows = getattr(limit, "max_rows", None)
        begin = start or self._planned or self.initialOffset()
        if self._walk is None or begin != self._planned:
            self._walk = self._opened().walk(self._options.tables, _standing(begin))
        self._planned = begin
        found = self._walk.take(rows, self._last)
        if not found.ranges and not found.notes and found.place.state == begin["state"]:
            return begin  # nothing of these tables: no batch, until reading would begin elsewhere
        end = _offset(found.place)
        if begin == self._initial:
            end["first"] = {name: begin[name] for name in _PARTS}
        self._found, self._planned = (begin, end, found), end
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch, also of one that Spark repeats after a crash.

        Raises StreamError where the cuts end before `end`, RangeExpired, ShapeChanged.
        """
        if start == end:  # Spark says where the query stands
            self._planned, self._walk = end, None
            return []
        if self._found is not None and self._found[:2] == (start, end):
            return self._shares(self._opened(), self._found[2])
        begin = _standing(end.get("first", start))
        self._walk = None  # one at a time
        with closing(self._options.history(self._known(), self._clients)) as history:
            found = history.walk(self._options.tables, begin).take(upto=_standing(end))
            if not found.place.has(_standing(end)):
                raise StreamError(
                    "the cuts do not go as far as this batch did",
                    hint="was the topic made again? then begin with a new checkpoint",
                    last=str(found.place.version),
                    needed=str(_standing(end).version),
                )
            self._planned = end
            return self._shares(history, found)

    def commit(self, end: Offset) -> None:
        """Spark's checkpoint holds the offsets; nothing here does."""

    def stop(self) -> None:
        """Close the consumers that planning opened on the driver."""
        if self._history is not None:
            self._history.close()

    def _opened(self) -> History:
        if self._history is None:
            self._history = self._options.history(self._known(), self._clients)
        return self._history


_PARTS: Final = ("epoch", "seq", "cut", "state", "instance")


def _offset(place: Standing) -> Offset:
    values = (*place.version, place.cut, place.state, place.instance)
    return dict(zip(_PARTS, values, strict=True))


def _standing(offset: Mapping[str, Any]) -> Standing:
    epoch, seq, *rest = (offset[name] for name in _PARTS)
    return Standing(Version(epoch, seq), *rest)


def shares_of(ranges: Sequence[Range], size: int) -> Iterator[tuple[Range, ...]]:
    """Divide ranges into shares of one partition each, of at most so many offsets.

    >>> list(shares_of([Range("t", 0, 5, 8), Range("t", 0, 9, 10), Range("t", 1, 0, 2)], 2))[:2]
    [(Range(topic='t', partition=0, start=5, end=7),), (Range(topic='t', partition=0, start=7, \
end=8), Range(topic='t', partition=0, start=9, end=10))]
    """
    for _, mine in groupby(sorted(ranges), key=itemgetter(0, 1)):
        yield from map(tuple, divided(list(mine), size))
