"""The lease of a source at a lake: a file whose text changes for as long as its holder is there.

No server says what time it is.  Who waits looks at the file by a clock of its own: a text that has
stood for `SILENCE` is that of a holder which is gone.  A file cannot be compared and set: one that
was frozen may write late, over anybody's text.  So a claim counts once nobody has objected to it
for `OBJECTION`, and to whom the fence belongs writes its own text again.

A folder and HDFS show a file that is being written as an empty one.  So that is somebody's, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from spark_consumers.errors import ApplyError, TargetDown
from spark_consumers.sinks.lease import RENEW, Watched, own_name
from spark_consumers.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SILENCE: Final = 5.0  # seconds
OBJECTION: Final = RENEW + 1.0  # seconds
_NAME: Final = "_gauss_cdc_lease"  # what begins with _ is no file of the table to any engine
_NOBODYS: Final = "\n"
_BEING_WRITTEN: Final = ""
_UNREADABLE: Final = "a holder that cannot be read"
_REPORT_EVERY: Final = 30.0


class LeaseFile(Protocol):
    """One small text, replaced as a whole; an ApplyError where that fails."""

    def read(self) -> str | None:
        """Return it; '' while it is being written, None: there is no place for it yet."""

    def write(self, text: str) -> None:
        """Replace it."""


class SparkFile:
    """A text in the folder of a table, wherever Spark finds that."""

    def __init__(self, spark: Callable[[], SparkSession], folder: Callable[[], str | None]) -> None:
        """`folder`: None while there is no such table, and nobody to wait for."""
        self._spark, self._folder = spark, folder
        self._place = ""

    def read(self) -> str | None:
        if not (place := self._found()):
            return None
        try:
            text = jvm.read_text(self._spark(), place)
        except jvm.GONE_ERRORS:
            return _BEING_WRITTEN
        return _NOBODYS if text is None else text

    def write(self, text: str) -> None:
        place = self._found()
        try:
            if place:
                jvm.write_text(self._spark(), place, text)
        except jvm.GONE_ERRORS as error:
            why = jvm.kind_of(error)
            raise TargetDown("the lease cannot be written", place=place, cause=why) from error

    def _found(self) -> str:
        if not self._place and (folder := self._folder()):
            self._place = f"{folder}/{_NAME}"
        return self._place


class FileLease:
    """Implements `lease.Lease`."""

    def __init__(
        self,
        file: LeaseFile,
        source: str,
        newest_fence: Callable[[], int | None],
        *,
        on_wait: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`newest_fence`: the lake's, which any applier may have taken."""
        self.name = own_name()
        self.fence: int | None = None  # the lake's, as long as the lease is this applier's
        self._file, self._source, self._newest_fence = file, source, newest_fence
        self._on_wait, self._clock = on_wait, clock
        self._watched = Watched()  # a text of somebody else's
        self._claimed: float | None = None  # since when a claim stands
        self._noted = float("-inf")
        self._count = 0

    def take(self) -> bool:
        """Become the holder; False: another applier is, or may be."""
        now = self._clock()  # before the look: this process may be stopped between the two
        text = self._file.read()
        holder = _holder(text)
        if text is not None and (holder != self.name or self._claimed is None):
            if holder in {"", self.name} or self._is_silent(text, now):
                return not self._claim()
            return False
        if self._claimed is not None and now - self._claimed < OBJECTION:
            return False
        self._claimed, self.fence = None, self._newest_fence()
        return self._file.read() == text

    def renew(self) -> str:
        holder = _holder(self._file.read())
        if holder not in {"", self.name} and self._newest_fence() != self.fence:
            return holder
        self._write()
        return self.name

    def close(self) -> None:
        if not self._count:
            return
        with suppress(ApplyError):
            if _holder(self._file.read()) == self.name:
                self._file.write(_NOBODYS)

    def _is_silent(self, text: str, now: float) -> bool:
        """Say whether somebody's text has stood for too long."""
        holder = _holder(text)
        if self._watched.seconds(text, now, self._clock()) >= SILENCE:
            self._on_wait(f"{holder} is silent; this applier takes over")
            return True
        if now - self._noted >= _REPORT_EVERY:
            self._noted = now
            self._on_wait(
                f"another applier of {self._source} holds the lake, {holder}; "
                f"waiting for it to end, or to be silent for {SILENCE:g} s"
            )
        return False

    def _claim(self) -> bool:
        """Write a claim; False: the lake takes no such file, and nobody can be kept waiting."""
        try:
            self._write()
        except ApplyError as error:
            self._on_wait(f"WARNING: a second applier would not wait for this one: {error}")
            self.fence = self._newest_fence()
            return False
        self._claimed = self._clock()  # behind the write, as `take` looks at it before
        return True

    def _write(self) -> None:
        self._count += 1
        self._file.write(f"{self.name}\n{self._count}")


def _holder(text: str | None) -> str:
    return _UNREADABLE if text == _BEING_WRITTEN else (text or "").partition("\n")[0]
