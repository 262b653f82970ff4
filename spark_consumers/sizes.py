"""How many rows a segment holds: few while the target keeps up, many where much waits.

    rows that wait in cuts      by executors     by the driver
    up to 4 x `few`             `few`            `few`
    more                        `many`           2 x `few`, and more of more than 100 tables;
                                                 `driver`, where it is to take what waits

A step has statements for each table, so the rows of many tables are taken together: 500 tables
cost 8 CPU-s per million rows, and 108 by executors, whose staging tables are the server's work
besides.  Executors get the rows of few tables.

Segments have fewer rows where these are large: what the driver holds of a segment, and what
executors bring near the target, is bounded by bytes.  A cut names no bytes: what rows weighed so
far tells.  A commit is never divided, whatever it weighs.

Few rows mean that the first of them are visible soon, and that reading and applying overlap; many,
that a job of Spark and a transaction of the target cost little a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from spark_consumers.model import Change, Rows
from spark_consumers.native import is_packed

# Whether executors can take rows by the schema ids of their topics, at this moment.
Spreads: TypeAlias = Callable[[Mapping[str, tuple[int, ...]]], bool]

DRIVER_BYTES: Final = 32 << 20  # of a segment that the driver holds; another one is read ahead
SPREAD_BYTES: Final = 1 << 30  # of a segment that executors bring near the target
_BEHIND: Final = 4  # times `few`; up to there Spark would not be asked for rows
_DRIVEN_TABLES: Final = 100  # whose statements cost a step of the driver little beside its rows
_SPREAD_TABLES: Final = 20  # to stage one costs as much as some thousand rows
_SAMPLE: Final = 100  # changes that are weighed of those that are objects
_OBJECT: Final = 64  # bytes of a Python object, about


def driven(rows: int, tables: int) -> int:
    """Give the rows of a step by the driver, of few tables `rows`."""
    return rows * max(tables, _DRIVEN_TABLES) // _DRIVEN_TABLES


def nowhere(_: Mapping[str, tuple[int, ...]]) -> bool:
    """`Spreads` without executors."""
    return False


class Sizes:
    """The rule, and what it learns of rows."""

    def __init__(
        self, few: int, many: int = 0, *, driver: int = 0, spreads: Spreads = nowhere
    ) -> None:
        """`many`: rows for executors where much waits; 0: always `few`.

        `driver`: rows for the driver there, once it is known what rows weigh; 0: 2 x `few`.
        """
        self._few, self._many, self._driver, self._spreads = few, many, driver, spreads
        self.row_bytes = 0.0  # that the driver holds of a row; 0: not known

    @property
    def lookahead(self) -> int:
        """How many rows must be known to wait, if there are so many."""
        return _BEHIND * self._few + 1 if self._many > self._few else 0

    def limit(self, waiting: int, schema_ids: Mapping[str, tuple[int, ...]]) -> int:
        """Rows of a segment, where so many wait, and some of them were written by these schemas."""
        is_behind = self._many > self._few and waiting > _BEHIND * self._few
        tables = len(schema_ids)
        spread = min(self._many, self._rows_in(SPREAD_BYTES))
        is_large = is_behind and spread > _BEHIND * self._few
        if is_large and tables <= _SPREAD_TABLES and self._spreads(schema_ids):
            return spread
        rows = driven(2 * self._few, tables) if is_behind else self._few
        if is_behind and self.row_bytes:
            rows = max(rows, self._driver)
        return min(rows, self._rows_in(DRIVER_BYTES))

    def may_be_held(self, rows: int, tables: int) -> bool:
        """Say whether the driver may hold so many rows at once, of several segments."""
        most = max(driven(_BEHIND * self._few, tables), 2 * self._driver)
        return rows <= min(most, self._rows_in(2 * DRIVER_BYTES))

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
