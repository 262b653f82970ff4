"""The records of one chunk of a load: rows of one table, under one snapshot.

`Chunk` is the interface; `PlainChunk` takes what was encoded in Python.  A native chunk takes
lines of COPY, too, and leaves unusual ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from producer.core.changes import Cells
from producer.core.events import Record, Records
from producer.core.records.reference import TransactionConstants
from producer.core.records.row_plan import RowPlan
from schemas.headers import row_headers, transaction_headers
from schemas.positions import CommitKey, Lsn


class Chunk(Protocol):
    """Collects records until they are written."""

    @property
    def size(self) -> int:
        """Bytes of values."""

    def __len__(self) -> int: ...

    def put(self, partition: int, key: bytes | None, value: bytes, ordinal: int) -> None:
        """Add a record."""

    def take(self, rows: Sequence[Cells], at: int, end: int, ordinal: int) -> int:
        """Add rows from `at` on, before `end`; return the first that was left.

        The first one gets `ordinal`, each later one the next.
        """

    def finish(self) -> Records:
        """Return the records; what follows is of the next chunk."""


class Chunks(Protocol):
    """Makes native chunks."""

    def chunk(
        self,
        plan: RowPlan,
        constants: TransactionConstants,
        *,
        topic: str,
        partition: int,
        key: bytes,
        max_row_bytes: int,
    ) -> Chunk:
        """Make a chunk of rows that `plan` describes and that go to one place."""


class PlainChunk:
    """`Chunk` in Python."""

    def __init__(self, topic: str, epoch: int, seq: int, point: Lsn, csn: int) -> None:
        """`seq`: the newest commit before; `point`: the consistent point, the rows' position."""
        self._topic, self._epoch, self._seq, self._point = topic, epoch, seq, point
        self._constant = transaction_headers(0, csn)
        self._records: list[Record] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self._records)

    def put(self, partition: int, key: bytes | None, value: bytes, ordinal: int) -> None:
        """Add a record."""
        position = CommitKey(self._epoch, self._seq, ordinal)
        headers = row_headers(self._constant, self._point, position)
        self._records.append((self._topic, partition, key, value, headers))
        self.size += len(value)

    def take(self, _rows: Sequence[Cells], at: int, _end: int, _ordinal: int) -> int:
        """Leave all rows to Python."""
        return at

    def finish(self) -> Records:
        """Return the records; what follows is of the next chunk."""
        records, self._records, self.size = self._records, [], 0
        return records
