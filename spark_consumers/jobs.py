"""Spark jobs of a driver program: the one module of the lanes that reaches below SparkSession.

`apply` is a driver program, and what stands here has no public form that would serve it:

    the description of a job     SparkContext's only; it names the commits in Spark's UI
    its end, when `apply` stops  SparkSession's tags are of the thread that set them
    the number of cores          SparkContext's only
    files for executors          SparkContext's only, where there is no Spark Connect
    `mapInArrow`                 asks the driver for pandas, which neither it nor workers use

A job is cancelled by its tag, so that the group of a streaming query stays its own.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_consumers.executors import SecretFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_DESCRIPTION: Final = "spark.job.description"
_LOOK: Final = 0.2  # seconds between two looks at `stop`


def cores(spark: SparkSession) -> int:
    """How many tasks run at once, as far as Spark knows."""
    return int(spark.sparkContext.defaultParallelism)


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str
) -> DataFrame:
    """`frame.mapInArrow(function, schema)`, without pandas."""
    from pyspark.sql import DataFrame  # noqa: PLC0415  only where Spark is
    from pyspark.sql.pandas import functions  # noqa: PLC0415
    from pyspark.util import PythonEvalType  # noqa: PLC0415

    udf = _untyped(functions).vectorized_udf(
        function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = udf(*[frame[name] for name in frame.columns])
    return DataFrame(_untyped(frame)._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: FBT003, SLF001


def _untyped(what: Any) -> Any:
    return what


def collected(
    spark: SparkSession, frame: DataFrame, *, description: str, stop: Callable[[], bool]
) -> list[Row]:
    """Run a job under a description of its own; it is cancelled when `stop` says so."""
    context: Any = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    tag, done = f"gauss-cdc-{uuid.uuid4().hex}", threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK):
            if stop():
                context.cancelJobsWithTag(tag)  # again: it may come before the job has begun

    watcher = threading.Thread(target=watch, name="a job's stop", daemon=True)
    context.setLocalProperty(_DESCRIPTION, description)
    context.addJobTag(tag)
    watcher.start()
    try:
        return frame.collect()
    finally:
        done.set()
        watcher.join()
        context.removeJobTag(tag)
        context.setLocalProperty(_DESCRIPTION, before)


class Secrets:
    """A file of secrets for tasks: of this machine, or sent by Spark to where its tasks run."""

    def __init__(self, secrets: Mapping[str, str], *, are_sent: bool = True) -> None:
        """`are_sent`: executors of a cluster get them; else they have their own."""
        self._secrets, self._are_sent = dict(secrets), are_sent
        self._folder: Path | None = None
        self._given: tuple[str, SecretFile] | None = None  # application, file

    def given(self, spark: SparkSession) -> SecretFile | None:
        """Say where tasks find them; the first call of a session puts them there."""
        context = spark.sparkContext
        is_local = str(context.master).split("[")[0] == "local"
        if not self._secrets or not (is_local or self._are_sent):
            return None
        application = str(context.applicationId)
        if self._given is None or self._given[0] != application:
            path = self._written()
            if not is_local:
                context.addFile(str(path))
            file = SecretFile(str(path) if is_local else path.name, is_sent=not is_local)
            self._given = application, file
        return self._given[1]

    def _written(self) -> Path:
        """Write a file that nobody else may read; its name is no other application's."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-"))  # 0700
        path = self._folder / f"target-{uuid.uuid4().hex}.json"
        path.touch(0o600)
        path.write_text(json.dumps(self._secrets), "utf-8")
        return path

    def close(self) -> None:
        """Remove the file."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._given = None
