"""Where a program without a target of its own keeps its position: a ledger in a file.

On this machine it is written and renamed.  On any other file system it is written by Spark's own
writer of checkpoints, which knows how a file is replaced there: a rename in HDFS, one request in an
object store.  That one has no form outside of the JVM; over Spark Connect, where there is no stream
on cuts either, a program keeps `group.upto` with its effects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from spark_consumers.errors import SparkFailed
from spark_consumers.model import Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MANAGERS: Final = (  # Spark 4.1 moved it
    "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.CheckpointFileManager",
)


class Position(Protocol):
    """One ledger, replaced as a whole."""

    def read(self) -> Ledger | None:
        """Return what was written last; None: nothing yet."""

    def write(self, ledger: Ledger) -> None:
        """Replace it, durable before it is visible."""


class LocalPosition:
    """A ledger in a file of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Ledger | None:
        if not self._path.exists():
            return None
        return Ledger(**json.loads(self._path.read_text("utf-8")))

    def write(self, ledger: Ledger) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            file.write(_text(ledger))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


class HadoopPosition:
    """A ledger in a file of any file system that Spark knows (`s3a://`, `hdfs://`, `abfss://`)."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """`path` is a URL; raises SparkFailed where Spark cannot make its folder."""
        session: Any = spark
        self._jvm: Any = session._jvm  # noqa: SLF001  see above
        self._path = self._jvm.org.apache.hadoop.fs.Path(path)
        conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        self._files = self._manager(conf)
        self._files.createCheckpointDirectory()

    def read(self) -> Ledger | None:
        if not self._files.exists(self._path):
            return None
        file = self._files.open(self._path)
        try:
            text = bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(file)).decode()
        finally:
            file.close()
        return Ledger(**json.loads(text))

    def write(self, ledger: Ledger) -> None:
        file = self._files.createAtomic(self._path, True)  # noqa: FBT003  py4j has no names
        try:
            file.write(bytearray(_text(ledger).encode()))
        except BaseException:
            file.cancel()
            raise
        file.close()

    def _manager(self, conf: Any) -> Any:
        from py4j.java_gateway import JavaClass  # noqa: PLC0415  comes with pyspark

        for name in _MANAGERS:
            found = self._jvm
            for part in name.split("."):
                found = getattr(found, part)
            if isinstance(found, JavaClass):  # else py4j takes the name for a package's
                return found.create(self._path.getParent(), conf)
        raise SparkFailed("this Spark has no writer of checkpoints that is known here")


def _text(ledger: Ledger) -> str:
    fields = {k: dict(v) if isinstance(v, Mapping) else v for k, v in asdict(ledger).items()}
    return json.dumps(fields, ensure_ascii=False)
