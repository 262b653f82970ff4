"""A place between two commits where no slot exports a snapshot: a window that is quiet.

    low     a mark in the log; what was committed before it is visible
    read    a snapshot begins: it shows every commit before low, and none behind high
    high    a second mark

Which commits between the marks the snapshot shows is not known.  So the stream is watched: if none
of them touched the table, the snapshot shows the table as it is at high.  Otherwise another window
is opened.  A window takes a moment, however large the table is: its rows are read under the
snapshot, afterwards.

The whole table is watched, not each key.  Keys that are touched could be read again, but a later
reading of some keys stands at another place, and values that are not sent, and keys that change
into others, would have to be followed from one reading to the next [H14].

A window needs the transactions that ran at low to have ended, both marks in the stream, and no DDL
between them.  One whose marks do not come is given up after 10 minutes, the next one after twice as
long.  From the fourth on the table is locked (SHARE) for the moment of the window.  In the order of
CSNs low is a transaction committed before the snapshot, high one after it, whose end is the point.
For SQL functions the log is flushed behind high: the next call that comes to the log's end has
given everything before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from producer.core.catalog.look import Before
from producer.core.changes import (
    Begin,
    Cells,
    Delete,
    Insert,
    Lost,
    Mark,
    Message,
    Relation,
    Truncate,
    Undecoded,
    Update,
)
from producer.core.ports import Reading
from producer.core.shape_change import StatementChanges
from schemas.positions import NOWHERE, Lsn
from schemas.tables import Column, TableId, TableSchema

UNKNOWN: Final = Lsn(1 << 63)  # behind every position


# What an operator can do where the marks never come.
UNSEEN: Final = (
    "either the stream is that far behind (`gauss-cdc status`), or the server does not decode rows"
    " of schema gauss_cdc; then only a slot in the order of LSNs can load tables: remove"
    " output-order from [source.options], choose another [source] slot, `run --accept-gap`"
)


class NothingThere:
    """`ports.Reading` of a table that is gone."""

    def shapes(self, tables: list[TableId]) -> list[TableSchema]:  # noqa: ARG002
        """None: that is what it is made for."""
        return []

    def estimated_rows(self, table: TableId) -> int:  # noqa: ARG002
        return 0

    def copy_rows(
        self, table: TableId, columns: Sequence[Column], hand_on: Callable[[Sequence[Cells]], None]
    ) -> None:
        """Send nothing."""


class MarkTokens(NamedTuple):
    """Tokens of two transactions of `run`'s own, which are found in the stream.

    Each holds one row, of a table of ours.  Ids would not do: a server may leave out transactions
    without changes, and each node of a distributed one gives out its own.
    """

    low: int
    high: int


@dataclass(slots=True)
class QuietWindow:
    """`ports.Point`, if `is_quiet` in the end."""

    table: TableId
    reading: Reading
    let_go: Callable[[], object]  # of the snapshot
    low: Lsn = UNKNOWN
    at: Lsn = UNKNOWN  # high
    marks: MarkTokens | None = None  # the positions are those of these transactions
    is_quiet: bool = True
    passed: int = 0  # transactions that the stream showed since
    left_out: str = ""  # a mark that the stream has passed and did not show: this is no point
    looked: Before | None = None  # the table in the catalog
    _position: Lsn = NOWHERE  # of the open transaction
    _is_within: bool = False

    def close(self) -> None:
        self.let_go()

    @property
    def awaited(self) -> str:
        """Name the mark that the stream has not shown yet; "": none, or positions tell them."""
        if self.marks is None or self.at != UNKNOWN:
            return ""
        if self.low == UNKNOWN:
            return f"the low mark, {self.marks.low}"
        return f"the high mark, {self.marks.high}"

    def pass_by(self, begin: Begin) -> None:
        """Take the beginning of the next transaction of the stream."""
        self.passed += 1
        self._position = begin.commit_lsn
        self._is_within = self.low <= self._position < self.at

    def watch(self, message: Message, look_up: Callable[[int], Relation]) -> None:
        """Take what the open transaction changed.

        A window is watched from its low mark on.  Without it, what touched the table is not known.
        A high mark has nothing to deliver, and the point is behind it.
        """
        if isinstance(message, Mark) and self.marks is not None:
            if message.token == self.marks.low:
                self.low = self._position
            elif message.token == self.marks.high:
                if self.low == UNKNOWN:
                    self.left_out = self.awaited
                self.at = Lsn(self._position + 1)
        elif self._is_within and self.is_quiet:
            self.is_quiet = not self._is_touched(message, look_up)

    def _is_touched(self, message: Message, look_up: Callable[[int], Relation]) -> bool:
        match message:
            case Insert(relation) | Update(relation) | Delete(relation):
                return self._is_mine(look_up(relation))
            case Truncate(relations):
                return any(self._is_mine(look_up(relation)) for relation in relations)
            case Lost(schema, table):
                return not schema or (schema, table) == self.table
            case StatementChanges() | Undecoded():
                return True  # GaussDB sends no row behind a statement of the same transaction
            case _:
                return False

    def _is_mine(self, relation: Relation) -> bool:
        return (relation.schema, relation.table) == self.table
