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
from typing import TYPE_CHECKING, Protocol

from spark_consumers.jvm import Files
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
        self._files = Files(spark, folder)

    def read(self) -> Ledger | None:
        numbers = self._numbers()
        if not numbers:
            return None
        return Ledger(**json.loads(self._files.read(_name(max(numbers)))))

    def write(self, ledger: Ledger) -> None:
        before = self._numbers()
        self._files.write(_name(max(before, default=0) + 1), _text(ledger).encode())
        for number in before:
            self._files.delete(_name(number))

    def _numbers(self) -> list[int]:
        parts = (name.partition(".") for name in self._files.names())
        return [int(stem) for stem, _, end in parts if stem.isdecimal() and end == "json"]


def _name(number: int) -> str:
    return f"{number}.json"


def _text(ledger: Ledger) -> str:
    fields = {k: dict(v) if isinstance(v, Mapping) else v for k, v in asdict(ledger).items()}
    return json.dumps(fields, ensure_ascii=False)
