"""Where a program without a target of its own keeps its position: a ledger in a file.

On this machine it is written and renamed.  On any other file system it is written by Spark's own
writer of checkpoints, which knows how a file becomes visible as a whole there: by a rename in HDFS,
by one request in an object store.  That one has no form outside of the JVM; over Spark Connect,
where there is no stream on cuts either, a program keeps `group.upto` with its effects.
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
    """Ledgers in a folder of any file system that Spark knows (`s3a://`, `hdfs://`, `abfss://`).

    Each has a number and a file of its own, and the greatest counts: not every file system
    replaces a file as a whole, but each makes a new one so.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """`folder` is a URL; Spark makes it."""
        session: Any = spark
        self._jvm: Any = session._jvm  # noqa: SLF001  see above
        self._folder = folder
        conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        self._files = self._manager(conf)
        self._files.createCheckpointDirectory()

    def read(self) -> Ledger | None:
        numbers = self._numbers()
        if not numbers:
            return None
        file = self._files.open(self._path(max(numbers)))
        try:
            text = bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(file)).decode()
        finally:
            file.close()
        return Ledger(**json.loads(text))

    def write(self, ledger: Ledger) -> None:
        before = self._numbers()
        file = self._files.createAtomic(self._path(max(before, default=0) + 1), False)  # noqa: FBT003
        try:
            file.write(bytearray(_text(ledger).encode()))
        except BaseException:
            file.cancel()
            raise
        file.close()
        for number in before:
            self._files.delete(self._path(number))

    def _numbers(self) -> list[int]:
        names = (str(one.getPath().getName()) for one in self._files.list(self._path()))
        return [int(stem) for stem, dot, end in (n.partition(".") for n in names) if _is(stem, end)]

    def _path(self, number: int | None = None) -> Any:
        name = self._folder if number is None else f"{self._folder}/{number}.json"
        return self._jvm.org.apache.hadoop.fs.Path(name)

    def _manager(self, conf: Any) -> Any:
        from py4j.java_gateway import JavaClass  # noqa: PLC0415  comes with pyspark

        for name in _MANAGERS:
            found = self._jvm
            for part in name.split("."):
                found = getattr(found, part)
            if isinstance(found, JavaClass):  # else py4j takes the name for a package's
                return found.create(self._path(), conf)
        raise SparkFailed("this Spark has no writer of checkpoints that is known here")


def _is(stem: str, end: str) -> bool:
    return stem.isdecimal() and end == "json"


def _text(ledger: Ledger) -> str:
    fields = {k: dict(v) if isinstance(v, Mapping) else v for k, v in asdict(ledger).items()}
    return json.dumps(fields, ensure_ascii=False)
