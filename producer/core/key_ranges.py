"""Ranges of a table's key, each as a snapshot of its own shows it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, cast

from producer.core.catalog.look import Before
from producer.core.changes import Cells
from schemas.positions import Lsn
from schemas.tables import TableSchema

Key: TypeAlias = tuple[bytes, ...]  # cells of the key's columns, in the key's order


@dataclass(frozen=True, slots=True)
class NamedKeys:
    """Keys whose rows are to be read, instead of a range; their texts may be anybody's."""

    keys: tuple[Key, ...]


_XID_BITS: Final = 32  # of a transaction's id in the stream; a snapshot counts on behind them


@dataclass(frozen=True, slots=True)
class Upto:
    """How far a load has come that goes on after a crash; a text of `run`'s own."""

    key: Key = ()  # the greatest that was read; (): none was
    lossy: str | None = None  # rows are missing, and why
    request: int | None = None  # that it answers
    target: str = ""  # for whom it is; "": for all
    is_void: bool = False  # it does not go on: another BEGIN comes
    order: str = ""  # in which the key was read; "": an older release did not say
    rows: int = 0  # in Kafka; 0: none, or an older release did not say

    @property
    def text(self) -> str:
        """As it stands in a record of cuts."""
        raw: dict[str, object] = {"key": [cell.decode() for cell in self.key]}
        raw |= {"lossy": self.lossy, "request": self.request}
        if self.order:
            raw["order"] = self.order
        if self.rows:
            raw["rows"] = self.rows
        if self.target:
            raw |= {"target": self.target, "void": self.is_void}
        return json.dumps(raw)

    @classmethod
    def of(cls, text: str) -> Upto:
        """Read what `text` wrote.

        >>> found = Upto.of(Upto((b"7", b"x"), None, 3, "lake").text)
        >>> found.key, found.request, found.target, found.is_void
        ((b'7', b'x'), 3, 'lake', False)
        """
        raw = json.loads(text)
        key = tuple(cell.encode() for cell in raw["key"])
        more = raw.get("target", ""), raw.get("void", False), raw.get("order", "")
        rows = raw.get("rows", 0)
        return cls(key, raw["lossy"], raw["request"], *more, rows)


def rows_so_far(text: str | None) -> int:
    """Return how many rows of a load are in Kafka, by its newest text; 0: it does not say."""
    return Upto.of(text).rows if text else 0


def voided(text: str) -> str:
    """Return the text of a load that is to begin again."""
    return replace(Upto.of(text), is_void=True).text


@dataclass(frozen=True, slots=True)
class Visible:
    """Which transactions a snapshot shows: those below `end` that were not `running`.

    Source: PostgreSQL manual, "Transaction ID and Snapshot Information Functions".
    """

    end: int
    running: frozenset[int] = frozenset()

    @classmethod
    def but(cls, running: Iterable[int], next_xid: int) -> Visible:
        """What a snapshot shows that was taken behind the answers to two questions, in this order.

        `running`: transactions that had an id and were not visible yet; of ids that begin again
        after 32 bits.  `next_xid`: a whole id behind all that have ended; those that run may have
        greater ones, and keep their ids whatever ends between two snapshots.

        >>> Visible.but([7], (1 << 32) + 9).has(7), Visible.but([7], (1 << 32) + 9).has(8)
        (False, True)
        >>> Visible.but([9], 9).running == Visible.but([9], 11).running
        True
        """
        whole = 1 << _XID_BITS
        first = next_xid - whole // 2
        return cls(next_xid, frozenset(first + (x - first) % whole for x in running))

    def lacks(self, running: Iterable[int]) -> frozenset[int]:
        """Return which of these transactions, of whole ids, it does not show.

        >>> sorted(Visible(12, frozenset([10])).lacks([9, 10, 12]))
        [10, 12]
        """
        return frozenset(xid for xid in running if xid >= self.end or xid in self.running)

    def beside(self, running: Iterable[int]) -> Visible:
        """Add those that had an id before it was taken, and that it does not show.

        A snapshot lists none from `end` on: it begins behind the newest that has ended, and
        transactions with greater ids may be in the log already, and delivered.

        >>> sorted(Visible(12, frozenset([10])).beside([9, 10, 12]).running)
        [10, 12]
        """
        listed = Visible.but(running, self.end).running
        return Visible(self.end, self.running | self.lacks(listed))

    def has(self, xid: int) -> bool:
        """Say whether it shows a transaction of which the stream gave 32 bits of its id.

        >>> Visible(12, frozenset([10])).has(10), Visible(12, frozenset([10])).has(11)
        (False, True)
        >>> Visible((1 << 32) + 5).has((1 << 32) - 1), Visible((1 << 32) + 5).has(7)
        (True, False)
        >>> Visible((1 << 32) - 5).has(7), Visible((1 << 32) - 5).has((1 << 32) - 6)
        (False, True)
        """
        whole = 1 << _XID_BITS
        behind = (self.end - 1 - xid) % whole  # half of all ids are older, the others newer
        return behind < whole // 2 and self.end - 1 - behind not in self.running


@dataclass(frozen=True, slots=True)
class RangeRead:
    """What a range was when it was read; without rows, the table's shape alone."""

    shape: TableSchema | None  # None: it is not captured any more
    shown: Visible
    high: Lsn  # where the log ended behind the snapshot: it shows nothing that is written later
    looked: Before | None = None  # the table in the catalog
    rows: Sequence[Cells] = ()
    last: Key | None = None  # the greatest key of the range; None: it is open upwards
    gone: Sequence[Key] = ()  # of named keys, as the server prints them: those without a row
    left: tuple[Key, ...] = ()  # and those that were not read
    order: str = ""  # of the key's values: with another one a key tells nothing of what was read


def key_places(table: TableSchema) -> tuple[int, ...]:
    """Return which columns are the key, in its order."""
    names = table.names()
    return tuple(names.index(name) for name in table.key)


def key_columns(table: TableSchema) -> list[tuple[int, str, int, int]]:
    """What a row's key is read by, and what its order is: place, name and type of each column."""
    columns = [(at, table.columns[at]) for at in key_places(table)]
    return [(at, column.name, column.type_oid, column.type_mod) for at, column in columns]


def key_of(row: Cells, places: Sequence[int]) -> Key:
    """Return the key of a row."""
    return tuple(cast("bytes", row[at]) for at in places)
