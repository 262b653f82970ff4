"""Rows of a buffered transaction that exceed memory, on disk.

A file without a name: it disappears with the process, and the source sends the
transaction again.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Iterator
from typing import Final

from producer.errors import DiskFull
from schemas.positions import Lsn

_HEAD: Final = struct.Struct("<QI")  # position, length of the record
_BUFFER: Final = 1 << 20


class SpillFile:
    """Records on disk, in order: written once, then read once."""

    def __init__(self, folder: str | None = None) -> None:
        """Open a file in `folder`, or where the system keeps temporary files."""
        self._folder = folder
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER)  # noqa: SIM115
        except OSError as error:
            raise self._failed(error) from error

    def add(self, position: Lsn, record: bytes) -> None:
        """Append a record; raise DiskFull where there is no room."""
        try:
            self._file.write(_HEAD.pack(position, len(record)))
            self._file.write(record)
        except OSError as error:
            raise self._failed(error) from error

    def __iter__(self) -> Iterator[tuple[Lsn, bytes]]:
        try:
            self._file.seek(0)
            while head := self._file.read(_HEAD.size):
                position, size = _HEAD.unpack(head)
                yield position, self._file.read(size)
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Free the disk space; never fails."""
        with contextlib.suppress(OSError):  # buffered bytes that are not used
            self._file.close()

    def _failed(self, error: OSError) -> DiskFull:
        return DiskFull(
            "a transaction that is buffered until its COMMIT cannot be written to disk",
            folder=self._folder or tempfile.gettempdir(),
            reason=error.strerror,
            hint="free disk space, or set TMPDIR to a folder on a larger disk",
        )
