"""What `check` and `status` ask of a lake: the newest watermark, read without Spark.

It stands in the metadata of the newest version of its table, which is JSON in both kinds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from schemas.findings import Finding, Level
from schemas.tables import TableSchema
from spark_consumers.errors import ApplyError, LedgerUnseen, TargetDown
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Inspector, Setup
from spark_consumers.sinks.lakes import places, shapes
from spark_consumers.sinks.lakes.core import Watermark, check_mode, stamp_of
from spark_consumers.sinks.lakes.marks import read_mark, table_of
from spark_consumers.spark import folders

_DELTA: Final = re.compile(r"(\d{20})\.json")
_ICEBERG: Final = re.compile(r"v(\d+)\.metadata\.json")


class LakeInspector(Inspector):
    """Implements `Inspector` for a folder; of a catalog only Spark knows."""

    def __init__(self, setup: Setup, stamps: Callable[[_Folder], Iterable[str]]) -> None:
        """`stamps` yields what versions say of themselves, the newest first."""
        self._setup, self._stamps = setup, stamps

    def ledger(self) -> Ledger | None:
        mark = self._mark()
        return None if mark is None else mark.ledger

    def _mark(self) -> Watermark | None:
        if places.is_catalog(self._setup.dsn):
            raise LedgerUnseen(
                "the ledger of a lake in a catalog can be read by Spark only",
                hint=f"its watermarks are in the table {table_of(self._setup.source)}",
            )
        table = table_of(self._setup.source)
        where = folders.below(folders.below(places.root(self._setup.dsn), table.schema), table.name)
        try:
            for text in self._stamps(_Folder(where)):
                mark = read_mark(stamp_of(text)[0].note)
                if mark is not None:
                    return mark
        except (OSError, ArrowException) as error:
            raise TargetDown("the lake cannot be read", place=where) from error
        return None

    def reach(self) -> Iterable[Finding]:
        if places.is_catalog(self._setup.dsn):
            yield Finding(Level.OK, "target", f"catalog {self._setup.dsn}, as Spark's settings say")
        else:
            yield Finding(Level.OK, "target", f"lake in {places.root(self._setup.dsn)}")

    def tables(self, shapes_: Sequence[TableSchema], *, are_loaded: bool) -> Iterable[Finding]:
        mark = self._mark() if are_loaded and not places.is_catalog(self._setup.dsn) else None
        named = {} if mark is None else mark.tables
        for schema in shapes_:
            try:
                shapes.columns(schema, self._setup.mode)
                if str(schema.id) in named:
                    check_mode(named[str(schema.id)].mode, self._setup.mode, schema.id)
            except ApplyError as error:
                yield Finding(Level.ERROR, f"table {schema.id}", str(error))
                continue
            if not schema.key and self._setup.mode != "log":
                yield Finding(
                    Level.ERROR,
                    f"table {schema.id}",
                    "has no key, and a lake follows rows by their key",
                )


class _Folder:
    """Files of a folder, wherever it is."""

    def __init__(self, where: str) -> None:
        local = folders.local(where)
        self._system: Any = LocalFileSystem()
        self._path = str(local)
        if local is None:
            self._system, self._path = FileSystem.from_uri(re.sub("^s3a:", "s3:", where))

    def files(self, below: str, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
        """Numbers and paths of files whose names fit, the greatest first."""
        chosen = FileSelector(f"{self._path}/{below}", allow_not_found=True)
        found = [
            (int(fit[1]), info.path)
            for info in self._system.get_file_info(chosen)
            if info.type is FileType.File and (fit := pattern.fullmatch(info.base_name))
        ]
        return sorted(found, reverse=True)

    def text(self, path: str) -> str:
        """Read a file."""
        with self._system.open_input_stream(path) as stream:
            return str(stream.read().decode())


def delta_stamps(folder: _Folder) -> Iterable[str]:
    """Yield what Delta's commits say."""
    for _, path in folder.files("_delta_log", _DELTA):
        for line in folder.text(path).splitlines():
            if "commitInfo" in (said := json.loads(line)):
                yield said["commitInfo"].get("userMetadata", "")


def iceberg_stamps(folder: _Folder) -> Iterable[str]:
    """Yield what Iceberg's snapshots say."""
    for _, path in folder.files("metadata", _ICEBERG)[:1]:
        said = json.loads(folder.text(path))
        by_id = {one["snapshot-id"]: one for one in said.get("snapshots", ())}
        at = said.get("current-snapshot-id")
        while at in by_id:
            yield by_id[at].get("summary", {}).get("gauss-cdc.stamp", "")
            at = by_id[at].get("parent-snapshot-id")
