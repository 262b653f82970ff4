"""What the native walker needs of a stream that names table and columns in every row.

`Held` holds the records of transactions until their COMMIT, as `TransactionBuffer` does, and
gives whole ones to the walker.  It takes messages of BEGIN, rows and COMMIT in their places; any
other message is left to `TransactionBuffer`, with the open transaction before it.

Rows of one shape are the same bytes around other cells: a `RowLayout`.  The first one is decoded
and resolved here; later ones are read by their layout.  A layout is what `RelationResolver` made
of a row, and is forgotten when that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Final, Protocol

from producer.sources.gauss.decoders import binary, json_rows, tuples
from producer.sources.gauss.decoders.messages import NamedChange
from producer.sources.gauss.resolver import RelationResolver, Resolved
from producer.wire.replication import WalMessage
from schemas.positions import Lsn

NO_COLUMN: Final = -1
_MOST: Final = 4096  # layouts at a time, as in `names.Cache`
# By decode-style: what stands around the cells of a row, one piece more than cells; None: unknown.
_PIECES: Final[Mapping[str, Callable[[bytes], list[bytes] | None]]] = {
    "b": binary.pieces,
    "t": tuples.pieces,
    "j": json_rows.pieces,
}


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Bytes that rows of one shape share, and where their cells belong."""

    pieces: tuple[bytes, ...]  # before each cell, and behind the last one
    new: tuple[int, ...]  # of each cell: its column in the new row, or NO_COLUMN
    old: tuple[int, ...]  # the same in the old row
    relation: int  # 0: its table is not captured, and rows are passed over
    op: str
    old_kind: str  # as in `changes.Update`
    width: int  # columns of the relation


class Held(Sized, Protocol):
    """Records of whole transactions, and of one that is open behind them.

    Its length is the number of whole ones' records.
    """

    last_csn: int  # as in `csn_order.Passed`; the walker counts what it takes in that order
    told_end: Lsn  # of the source's log, by the newest heartbeat; 0: none came

    def __getitem__(self, at: int, /) -> tuple[Lsn, bytes]:
        """Return position and record."""

    def bounds(self, at: int) -> tuple[int, int] | None:
        """Return BEGIN and COMMIT of the transaction that a record is of; None: rows alone."""

    def take(self, messages: Sequence[WalMessage], at: int) -> int:
        """Hold messages from `at` on; return the first that is left to Python.

        Nothing of that message is held.  One more is left where the open transaction is larger
        than `hold_bytes`.
        """

    def drop(self) -> None:
        """Forget whole transactions."""

    @property
    def is_full(self) -> bool:
        """Say whether the open transaction is larger than `hold_bytes`."""

    def give_up(self, most: int) -> list[tuple[Lsn, bytes]]:
        """Return the next records of the open transaction, its BEGIN first.

        None: nothing is held any more.  Whole transactions were dropped before.
        """

    def adopt(self, records: list[tuple[Lsn, bytes]]) -> bool:
        """Hold an open transaction, its BEGIN first; False: it is left to Python.

        Nothing else is held.
        """

    def rows(self, records: list[tuple[Lsn, bytes]]) -> None:
        """Hold rows of a transaction whose BEGIN was taken; nothing else is held."""

    def knows(self, record: bytes) -> bool:
        """Say whether a row has a layout that was learnt."""

    def learn(self, layout: RowLayout) -> None:
        """Take a layout."""

    def forget(self) -> None:
        """Forget all layouts."""


class Layouts:
    """Teaches the layouts of rows that were decoded."""

    def __init__(self, held: Held, style: str, relations: RelationResolver) -> None:
        self._held, self._style, self._relations = held, style, relations
        self._pieces = _PIECES[style]
        self._version = relations.version
        self._taken: set[RowLayout] = set()

    def check(self) -> None:
        """Forget what is not true any more; before each walk."""
        if self._version != self._relations.version:
            self._forget()
            self._version = self._relations.version

    def _forget(self) -> None:
        self._held.forget()
        self._taken.clear()

    def learn(self, record: bytes, change: NamedChange) -> None:
        """Take the layout of a row that was just resolved, if later rows may have it."""
        self.check()
        if self._held.knows(record):  # its values are unusual
            return
        if self._style == "t" and set(" :") & {*change.schema, *change.table}:
            return  # its table is found by more than these bytes
        resolved = self._relations.resolved(change)
        pieces = None if resolved is None else self._pieces(record)
        if resolved is None or pieces is None:
            return
        layout = _layout(pieces, change, resolved, old_first=self._style == "t")
        if layout in self._taken:  # but a value is not readable by it: an infinity
            return
        if len(self._taken) >= _MOST:
            self._forget()
        self._taken.add(layout)
        self._held.learn(layout)


def _layout(
    pieces: list[bytes], change: NamedChange, resolved: Resolved, *, old_first: bool
) -> RowLayout:
    cells = len(pieces) - 1
    if not resolved.relation:
        nowhere = (NO_COLUMN,) * cells
        return RowLayout(tuple(pieces), nowhere, nowhere, 0, change.op, "", 0)
    news = [(at, NO_COLUMN) for at in range(0 if change.new is None else resolved.width)]
    olds = [(NO_COLUMN, at) for at in resolved.old]
    columns = olds + news if old_first else news + olds
    return RowLayout(
        tuple(pieces),
        tuple(new for new, _ in columns),
        tuple(old for _, old in columns),
        resolved.relation,
        change.op,
        resolved.kind,
        resolved.width,
    )
