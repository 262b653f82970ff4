"""Where a program without a target of its own keeps its position: a ledger in a file.

On this machine it is written and renamed; on any other file system Spark writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from spark_consumers.model import Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        return Ledger.read(json.loads(self._path.read_text("utf-8")))

    def write(self, ledger: Ledger) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            file.write(_text(ledger))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


class SparkPosition:
    """A ledger on any file system that Spark knows (`s3a://`, `hdfs://`, `abfss://`).

    Each has a number, and the greatest counts.  Two folders take turns: whatever a crash leaves of
    the newest one, the one before it is whole.  It costs a job of Spark.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """`folder` is a URL; Spark makes it."""
        self._spark, self._folder = spark, folder
        self._number = 0
        self._ledger: Ledger | None = None
        for text in (*self._lines(0), *self._lines(1)):
            number, _, ledger = text.partition(" ")
            if int(number) > self._number:
                self._number, self._ledger = int(number), Ledger.read(json.loads(ledger))

    def read(self) -> Ledger | None:
        return self._ledger

    def write(self, ledger: Ledger) -> None:
        number = self._number + 1
        frame = self._spark.sql("SELECT ? AS line", args=[f"{number} {_text(ledger)}"])
        frame.write.mode("overwrite").text(self._place(number))
        self._number, self._ledger = number, ledger

    def _lines(self, number: int) -> list[str]:
        from pyspark.errors import AnalysisException  # noqa: PLC0415  only where Spark is

        try:
            return [row.value for row in self._spark.read.text(self._place(number)).collect()]
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return []

    def _place(self, number: int) -> str:
        return f"{self._folder}/{number % 2}"


def _text(ledger: Ledger) -> str:
    fields = {k: dict(v) if isinstance(v, Mapping) else v for k, v in asdict(ledger).items()}
    return json.dumps(fields, ensure_ascii=False)
