"""For other Spark programs: typed changes of one table, and a function for each group of commits.

    options = Options({"bootstrap.servers": "..."}, "http://registry", "bank")
    frame = changes(spark, options, TableId("public", "account"), after=100, upto=200)

    def fn(group):
        for table in group.tables: group.changes(table).write...
    for_each_commit_group(spark, options, fn, checkpoint="state/mine")

Both cut exactly at commits; nothing of an aborted, repeated or half-seen
transaction is ever in a frame.  Both work over Spark Connect, too.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from schemas.control import LoadPhase, SchemaChange
from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.cuts.ledger import LATE, is_unloaded
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import StreamError
from spark_consumers.kafka.history import History
from spark_consumers.kafka.logins import check_logins
from spark_consumers.kafka.read import CutReader, RangeReader, SchemaOf, registry_at
from spark_consumers.kafka.registry import newest_id
from spark_consumers.loop.job import SILENT, Observer
from spark_consumers.loop.job import PassOptions as LoopOptions
from spark_consumers.loop.run import Polling, run
from spark_consumers.model import Ledger, Segment
from spark_consumers.sinks.callback import CallbackSink, Group
from spark_consumers.sinks.positions import LocalPosition, Position, SparkPosition
from spark_consumers.spark import folders
from spark_consumers.spark.frames import TaskLogin, changes_frame, net_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG: Final = logging.getLogger("gauss_cdc.api")


@dataclass(frozen=True, slots=True)
class Options:
    """Where a source's topics are."""

    client: Mapping[str, str] = field(repr=False)  # librdkafka's settings
    registry: str | SchemaOf  # URL, or what finds a schema by id
    source: str  # kafka.prefix
    registry_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    allow_plaintext_login: bool = False  # to servers that are not this machine, without TLS

    def __post_init__(self) -> None:
        """Raise SettingRefused for a login that others could read on the network."""
        if not self.allow_plaintext_login:
            check_logins(self.client, self.registry, self.registry_options)

    def schema_of(self) -> SchemaOf:
        """Find schemas by id."""
        if isinstance(self.registry, str):
            return registry_at(self.registry, self.registry_options)
        return self.registry


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What is known of a group before its rows are read."""

    ddl: tuple[SchemaChange, ...] = ()
    is_committed: bool = True


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """Whole commits, or steps of loads (`segment.loads`), as the function gets them."""

    spark: SparkSession
    options: Options
    segment: Segment
    ddl: tuple[SchemaChange, ...]
    schema_of: SchemaOf
    is_committed: bool = True  # False: another client's open transaction had to be skipped

    @property
    def upto(self) -> Ledger:
        """Store it with your effects to have each group exactly once."""
        return self.segment.upto

    @property
    def gaps(self) -> Mapping[str, str]:
        """Tables, as text, of which rows are missing behind this group, and why.

        Their next load ends it.  A load that is to come, or under way, is no gap, unless the
        program began behind it.
        """
        marks = self.segment.upto.inexact
        return {t: why for t, why in marks.items() if why == LATE or not is_unloaded(why)}

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Tables with changes in this group."""
        names = Topics(self.options.source)
        found = (
            names.table_by(topic, self.schema_of(schema_id))
            for topic in sorted({r.topic for r in self.segment.ranges} - {names.ddl})
            for schema_id in self.segment.schema_ids.get(topic, ())[:1]
        )
        return tuple(table for table in found if table is not None)

    @property
    def emptied(self) -> tuple[TableId, ...]:
        """Tables whose load, or re-read, begins here: their copies are emptied before any row."""
        begins = [load.table for load in self.segment.loads if load.phase is LoadPhase.BEGIN]
        return tuple(begins)

    def changes(self, table: TableId) -> DataFrame:
        """Typed changes of one table; sort by (seq, ordinal) where order matters."""
        named = {r.topic for r in self.segment.ranges}
        topic = Topics(self.options.source).of(table, named)
        ranges = [r for r in self.segment.ranges if r.topic == topic]
        ids = self.segment.schema_ids.get(topic, ())
        schemas = {schema_id: self.schema_of(schema_id) for schema_id in ids}
        return changes_frame(
            self.spark,
            _login(self.options),
            ranges,
            schemas,
            is_committed=self.is_committed,
            newest=ids[-1] if ids else None,
        )

    def net(self, table: TableId, keys: Sequence[str]) -> DataFrame:
        """What the group comes to: the last state of each key, see `frames.net_changes`."""
        return net_changes(self.changes(table), keys)


def changes(
    spark: SparkSession,
    options: Options,
    table: TableId,
    *,
    after: int | str = 0,
    upto: int | str | None = None,
    on_gap: Callable[[str], None] | None = None,
) -> DataFrame:
    """Typed changes of a table by the commits behind `after`, up to `upto`.

    Both are a `seq` of the newest epoch, or `epoch/seq`; None: the newest commit.  Loads are not
    commits and not in it.  Without such commits the frame is empty.  `on_gap` is told what the
    rows do not show, each with its commit; without it the call raises StreamError.  So it does
    where a commit is yet to come.  Raises SubjectUnknown for a table that has no topic,
    RangeExpired where Kafka deleted the commits.
    """
    schema_of = options.schema_of()
    with closing(History(options.client, options.source, schema_of)) as history:
        epoch = history.newest().version.epoch

        def commit(named: int | str) -> Version:
            return Version.parse(named) if isinstance(named, str) else Version(epoch, named)

        walk = history.walk([table], history.behind(commit(after)), loads=False)
        found = walk.take_all(None if upto is None else commit(upto))
        is_committed = history.readable(found)
    for note in found.notes:
        if on_gap is None:
            raise StreamError(
                "rows changed in this range, and no record of it says how",
                hint="read up to the commit before it, and load the table again; or let `on_gap`"
                " be told, and go on",
                table=table,
                commit=note.version,
                why=note.why,
            )
        on_gap(f"{table} is not exact since commit {note.version}: {note.why}")
    ids = tuple(i for one in found.topics.values() for i in one.schema_ids)
    ids = ids or (newest_id(schema_of, Topics(options.source).names(table)),)
    return changes_frame(
        spark,
        _login(options),
        found.ranges,
        {schema_id: schema_of(schema_id) for schema_id in ids},
        is_committed=is_committed,
        newest=ids[-1],
    )


_logins: dict[tuple[object, ...], TaskLogin] = {}


def _login(options: Options) -> TaskLogin:
    """Return how tasks log in: frames are read later, so that it stays as long as this process."""
    key = (options.source, *sorted(options.client.items()))
    if key not in _logins:
        _logins[key] = TaskLogin(options.client, options.source)
        atexit.register(_logins[key].close)
    return _logins[key]


def for_each_commit_group(
    spark: SparkSession,
    options: Options,
    fn: Callable[[CommitGroup], None],
    *,
    checkpoint: str,
    held: Callable[[], Ledger | None] | None = None,
    stop: threading.Event | None = None,
    max_rows: int = 100_000,
    observer: Observer = SILENT,
    on_gap: Callable[[str], None] = _LOG.warning,
) -> None:
    """Call `fn` for each group of whole commits, in order, until `stop` is set.

    Its position is kept in `checkpoint`, a folder of this machine or of any file system that Spark
    knows (`s3a://`, `hdfs://`), or given by `held` (see CommitGroup.upto).
    `on_gap` is told of each table of which rows are missing (see CommitGroup.gaps), before `fn`.
    Kafka or a registry that does not answer is waited for (`observer` is informed); any
    other ApplyError is raised, and so is what `fn` raises.
    """
    event = stop or threading.Event()
    schema_of = options.schema_of()
    home = folders.local(checkpoint)
    position: Position = (
        LocalPosition((home or Path()) / "ledger.json")
        if home is not None or held is not None
        else SparkPosition(spark, folders.below(checkpoint, "position"))
    )

    told: Mapping[str, str] = {}

    def hand_over(group: Group) -> None:
        nonlocal told
        found = group.content
        one = CommitGroup(spark, options, group.segment, found.ddl, schema_of, found.is_committed)
        for table, why in sorted(one.gaps.items() - told.items()):
            on_gap(f"{table}: {why}")
        told = one.gaps
        fn(one)

    sink = CallbackSink(hand_over, options.source, position=position, held=held)
    cuts = CutReader(options.client, options.source, schema_of)
    driver = RangeReader(options.client, options.source, schema_of)

    def read(segment: Segment) -> Any:
        if not segment.ranges:
            return _Prepared()
        is_committed = driver.prepare(segment)
        ddl = tuple(driver.read_ddl(segment, is_committed=is_committed))
        return _Prepared(ddl, is_committed)

    def asked(seconds: float = 0, /) -> bool:
        return event.wait(seconds) if seconds else event.is_set()

    with closing(cuts), closing(driver):
        how = LoopOptions(max_rows=max_rows)
        run(sink, cuts, read, Polling(cuts.wait), options=how, stop=asked, observer=observer)
