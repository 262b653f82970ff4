"""What Spark has below SparkSession: the one module that uses py4j and SparkContext.

    the start of a JVM        its lines come to a pipe of ours, and no secret stands in its command
                              line: SparkSession's builder does neither
    a job's description       SparkContext's only; it names the commits in Spark's pages
    a job's end               SparkSession's tags are of the thread that set them; `apply` stops
                              jobs of another one
    cores, files, master      SparkContext's only, where there is no Spark Connect
    tasks of plain Python     of RDDs, which SparkSession does not have
    micro-batches             the end of one, and how many rows it moved: a function for
                              `foreachBatch` is told neither, and gives neither back
    tables of Iceberg         their metadata, and the commit that compares: SQL has neither
    tables of Delta           the newest version and what it says: SQL makes a job of it
    errors                    what Java raises is py4j's where PySpark does not know its class

All that is for `apply`, a driver program, and for lakes.  What other programs use does without, but
for the files of their tasks, and works over Spark Connect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

# What Spark and its gateway raise; and what a JVM that is gone does.
SPARK_ERRORS: Final = (PySparkException, Py4JError)
GONE_ERRORS: Final = (*SPARK_ERRORS, OSError)

T = TypeVar("T")
R = TypeVar("R")

_DESCRIPTION: Final = "spark.job.description"
_QUERY: Final = "sql.streaming.queryId"
# What makes a job one of a micro-batch; the group is cancelled when its query ends.
_OF_BATCHES: Final = (_QUERY, "streaming.sql.batchId", "spark.jobGroup.id")


# ---------------------------------------------------------------- the start
def has_context() -> bool:
    """Say whether Spark runs in this process."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001


def launch(conf: SparkConf, output: int) -> None:
    """Start a JVM with these settings in its command line; it writes to the descriptor `output`."""
    gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def is_launched() -> bool:
    """Say whether this process has a JVM."""
    return SparkContext._gateway is not None  # noqa: SLF001


def start(complete: Callable[[SparkConf], None], properties: Mapping[str, str]) -> None:
    """Start Spark in the JVM; `complete` adds to the settings that it has already."""
    SparkContext._ensure_initialized()  # noqa: SLF001
    java: Any = SparkContext._jvm  # noqa: SLF001
    conf = SparkConf(_jvm=java)
    complete(conf)
    for name, value in properties.items():
        java.java.lang.System.setProperty(name, value)
    SparkContext(conf=conf)


# ---------------------------------------------------------------- jobs
def cores(spark: SparkSession) -> int:
    """How many tasks run at once, as far as Spark knows."""
    return int(spark.sparkContext.defaultParallelism)


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """The calling thread's jobs have a tag from now on."""
    spark.sparkContext.addJobTag(tag)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    """Cancel the jobs that run and have the tag."""
    spark.sparkContext.cancelJobsWithTag(tag)


def has_tasks(spark: SparkSession, tag: str) -> bool:
    """Say whether a task of the jobs with the tag runs, or none of their stages has begun."""
    context: Any = spark.sparkContext
    tracker = context._jsc.sc().statusTracker()  # noqa: SLF001  PySpark's knows no tags
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForTag(tag)]
    stages = [
        tracker.getStageInfo(number)
        for job in jobs
        if job.isDefined()
        for number in job.get().stageIds()
    ]
    running = [stage.get().numActiveTasks() for stage in stages if stage.isDefined()]
    return not running or any(running)


@contextmanager
def described(
    spark: SparkSession, description: str, tag: str, properties: Mapping[str, str]
) -> Iterator[None]:
    """Jobs of the block, in this thread, have a description, properties and one more tag."""
    context: Any = spark.sparkContext
    given = {_DESCRIPTION: description, **properties}
    before = {name: context.getLocalProperty(name) for name in given}
    for name, value in given.items():
        context.setLocalProperty(name, value)
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)
        for name, value in before.items():
            context.setLocalProperty(name, value)


def tasks(spark: SparkSession, work: Sequence[T], do: Callable[[T], R]) -> list[R]:
    """Do each piece of work in a task of its own, in Python; return what the tasks return.

    Nothing of the JVM but the scheduler: what a task needs is pickled, and so is what it returns.
    """
    pieces = spark.sparkContext.parallelize(work, len(work))
    return list(pieces.mapPartitions(partial(map, do)).collect())


# ---------------------------------------------------------------- micro-batches
class MicroBatch:
    """A batch of a query on one Kafka partition, as a function of `foreachBatch` finds it."""

    def __init__(self, spark: SparkSession) -> None:
        """`spark`: the session that started the query."""
        context: Any = spark.sparkContext
        found = {name: context.getLocalProperty(name) for name in _OF_BATCHES}
        self.properties = {name: value for name, value in found.items() if value is not None}
        query: Any = spark.streams.get(self.properties[_QUERY])
        execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001
        self._scan = execution.executedPlan().collectLeaves().head()

    def end(self) -> int:
        """Return the offset behind the last record that it names."""
        (partitions,) = json.loads(self._scan.end().json()).values()
        (offset,) = partitions.values()
        return int(offset)

    def count(self, rows: int) -> None:
        """Let Spark's progress say that it read so many rows."""
        self._scan.metrics().get("numOutputRows").get().add(rows)


# ---------------------------------------------------------------- the application
def is_local(spark: SparkSession) -> bool:
    """Say whether tasks run in this machine's JVM; over Spark Connect nobody knows."""
    return not _is_remote(spark) and names_local(str(spark.sparkContext.master))


def names_local(master: str) -> bool:
    """Say whether a master is this machine's JVM; `local-cluster` has executors of its own.

    >>> names_local("local"), names_local("local[*]"), names_local("local-cluster[2,1,1024]")
    (True, True, False)
    """
    return master.split("[", maxsplit=1)[0] == "local"


def application(spark: SparkSession) -> str:
    """Its id, which no other one has; over Spark Connect, that of the session."""
    if _is_remote(spark):
        return str(cast("Any", spark).session_id)
    return str(spark.sparkContext.applicationId)


def send_file(spark: SparkSession, path: str) -> None:
    """Send a file to all executors, which find it by its name."""
    if _is_remote(spark):
        spark.addArtifacts(path, file=True)
    else:
        spark.sparkContext.addFile(path)


def _is_remote(spark: SparkSession) -> bool:
    """Say whether a session is one of Spark Connect."""
    return not hasattr(spark, "sparkContext")


def is_alive(spark: SparkSession) -> bool:
    """Say whether the JVM answers."""
    with suppress(*GONE_ERRORS):
        return bool(spark.sparkContext.version)
    return False


# ---------------------------------------------------------------- files
def read_text(spark: SparkSession, place: str) -> str | None:
    """Read a small file of any file system that Spark knows; None where there is none."""
    path, files = _file(spark, place)
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return str(_java(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_text(spark: SparkSession, place: str, text: str) -> None:
    """Write a small file, over what is there."""
    path, files = _file(spark, place)
    stream = files.create(path, True)  # noqa: FBT003  Java's
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def _file(spark: SparkSession, place: str) -> tuple[Any, Any]:
    path = _java(spark).org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(_java_session(spark).sessionState().newHadoopConf())


# ---------------------------------------------------------------- Iceberg
def iceberg(spark: SparkSession) -> Any:
    """Iceberg's package."""
    return _java(spark).org.apache.iceberg


def iceberg_table(spark: SparkSession, name: str) -> Any:
    """Load a table of Iceberg, as it is now."""
    table = iceberg(spark).spark.Spark3Util.loadIcebergTable(_java_session(spark), name)
    table.refresh()
    return table


def iceberg_schema(spark: SparkSession, columns: str) -> Any:
    """Return columns, as CREATE TABLE has them, in Iceberg's types."""
    shape = _java(spark).org.apache.spark.sql.types.StructType.fromDDL(columns)
    return iceberg(spark).spark.SparkSchemaUtil.convert(shape)


# ---------------------------------------------------------------- Delta
class DeltaHead(NamedTuple):
    """The newest version of a table."""

    version: int
    info: str  # `commitInfo`, JSON
    table: str  # the table's id
    properties: Mapping[str, str]


def delta_head(spark: SparkSession, name: str) -> DeltaHead | None:
    """Look at the newest version of a table; None: no such table.

    `DESCRIBE HISTORY` says the same by two jobs of Spark.
    """
    log, snapshot = _delta(spark, name)
    version = snapshot.version()
    if version < 0:
        return None
    commit = _java(spark).org.apache.hadoop.fs.Path(log.logPath(), f"{version:020d}.json")
    table, info = json.loads(str(snapshot.metadata().json()))["metaData"], "{}"
    lines = log.store().read(commit, log.newDeltaHadoopConf()).iterator()
    while lines.hasNext():
        line = str(lines.next())
        if line.startswith('{"commitInfo"'):
            info = line
            break
    return DeltaHead(version, info, table["id"], table.get("configuration", {}))


def delta_id(spark: SparkSession, name: str, version: int) -> str:
    """Return the id that a table had at a version; '' where that is not there."""
    log, _ = _delta(spark, name)
    defaults = [getattr(log, f"getSnapshotAt$default${at}")() for at in (2, 3, 4)]
    try:
        return str(log.getSnapshotAt(version, *defaults).metadata().id())
    except SPARK_ERRORS as error:
        if kind_of(error).endswith(("IllegalStateException", "FileNotFoundException")):
            return ""
        raise


def delta_folder(spark: SparkSession, name: str) -> str | None:
    """Return where a table is; None: no such table."""
    log, snapshot = _delta(spark, name)
    return str(log.dataPath().toString()) if snapshot.version() >= 0 else None


def delta_bytes(spark: SparkSession, name: str) -> int:
    """Return the size of a table's files."""
    return int(_delta(spark, name)[1].sizeInBytes())


def _delta(spark: SparkSession, name: str) -> tuple[Any, Any]:
    """Return a table's log, and its newest version."""
    session = _java_session(spark)
    place = session.sessionState().sqlParser().parseTableIdentifier(name)
    delta = _java(spark).org.apache.spark.sql.delta
    found = delta.DeltaLog.forTableWithSnapshot(session, place)
    return found.productElement(0), found.productElement(1)


def _java(spark: Any) -> Any:
    return spark._jvm  # noqa: SLF001


def _java_session(spark: Any) -> Any:
    return spark._jsparkSession  # noqa: SLF001


# ---------------------------------------------------------------- errors
def text_of(error: BaseException) -> str:
    """What Java or Python says, in Java's case with the class."""
    if isinstance(error, Py4JJavaError):
        with suppress(Py4JError, OSError):
            return str(error.java_exception.toString())
    return str(error)


def reason(error: BaseException) -> str:
    """The first line of Java's or Python's message, without the stack trace."""
    text = text_of(error) or type(error).__name__
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 300 else line[:299] + "…"


def kind_of(error: BaseException) -> str:
    """Name an error by its condition or class; its message may hold values of a row."""
    if isinstance(error, PySparkException) and (condition := error.getCondition()):
        return condition
    if isinstance(error, Py4JJavaError):
        return text_of(error).partition(":")[0].strip()
    return type(error).__name__
