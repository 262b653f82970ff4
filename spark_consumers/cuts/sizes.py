"""How many rows a segment holds: few while the target keeps up, many where much waits.

    rows that wait in cuts      rows of a segment
    up to 4 x `few`             `few`
    more                        `many`, once it is known what rows weigh; 2 x `few` before; and
                                more of more than 100 tables

A step has statements for each table, so the rows of many tables are taken together: 500 tables
cost 8 CPU-s per million rows.

Segments have fewer rows where these are large: what a process holds of a segment is bounded by
bytes.  A cut names no bytes: what rows weighed so far tells.  A commit is never divided, whatever
it weighs: what is too large to be held is read in parts, inside one step.

Few rows mean that the first of them are visible soon, and that reading and applying overlap; many,
that a task of Spark and a transaction of the target cost little a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_consumers.model import Change, Rows
from spark_consumers.native import is_packed

HELD_BYTES: Final = 32 << 20  # of what is applied next; as much is read ahead
WHOLE_BYTES: Final = 2 * HELD_BYTES  # of a segment in one piece: what is larger comes in parts
PART_RECORDS: Final = 10_000  # after which it is looked how much is held
_BEHIND: Final = 4  # times `few`; up to there Spark would not be asked for rows
_FEW_TABLES: Final = 100  # whose statements cost a step little beside its rows
_SAMPLE: Final = 100  # changes that are weighed of those that are objects
_OBJECT: Final = 64  # bytes of a Python object, about


def of_tables(rows: int, tables: int) -> int:
    """Give the rows of a step that has `rows` of few tables."""
    return rows * max(tables, _FEW_TABLES) // _FEW_TABLES


class Sizes:
    """The rule, and what it learns of rows."""

    def __init__(self, few: int, many: int = 0) -> None:
        """`many`: rows where much waits; 0: always `few`."""
        self._few, self._many = few, many
        self.row_bytes = 0.0  # that a process holds of a row; 0: not known

    @property
    def lookahead(self) -> int:
        """How many rows must be known to wait, if there are so many."""
        return _BEHIND * self._few + 1 if self._many > self._few else 0

    @property
    def everything(self) -> int:
        """As many rows as nothing may be held beside."""
        return 1 << 62

    def limit(self, waiting: int, tables: int) -> int:
        """Rows of a segment, where so many wait, of so many tables."""
        rows = self._few
        if self._many > self._few and waiting > _BEHIND * self._few:
            rows = of_tables(2 * self._few, tables)
            if self.row_bytes:
                rows = max(rows, self._many)
        return min(rows, self._rows_in(HELD_BYTES))

    def together(self, rows: int) -> int:
        """How many segments of so many rows tasks may bring at once."""
        return max(1, self._rows_in(HELD_BYTES) // max(1, rows))

    def fit(self, rows: int) -> bool:
        """Say whether so many rows may be held by their bytes alone, which tasks have counted."""
        return rows <= self._rows_in(2 * HELD_BYTES)

    def may_be_held(self, rows: int, tables: int) -> bool:
        """Say whether so many rows may be held at once, of several segments."""
        most = max(of_tables(_BEHIND * self._few, tables), 2 * self._many)
        return rows <= min(most, self._rows_in(2 * HELD_BYTES))

    def learn(self, rows: Rows) -> None:
        """Weigh what was read: larger rows count at once, smaller ones as they go on coming."""
        count = sum(len(changes) for changes in rows.changes.values())
        if not count:
            return
        found = sum(_held(changes) for changes in rows.changes.values()) / count
        self.row_bytes = max(found, (3 * self.row_bytes + found) / 4)

    def _rows_in(self, limit: int) -> int:
        return max(1, int(limit / self.row_bytes)) if self.row_bytes else limit


def _held(changes: Sequence[Change]) -> float:
    """Bytes that changes of one table take in memory, about."""
    if is_packed(changes):
        return changes.held()
    some = changes[:: max(1, len(changes) // _SAMPLE)]
    return len(changes) / len(some) * sum(map(_weight, some)) if some else 0


def _weight(change: Change) -> int:
    cells = [*(change.before or ()), *(change.after or ())]
    return _OBJECT * (1 + len(cells)) + sum(len(cell) for cell in cells if isinstance(cell, str))
