"""The transactions of a recorded stream, for display.

They are found as in `run` (`TransactionBuffer`).  No database is needed: what the stream
does not contain is missing unless a file about the tables has it (`Known`).

A transaction's position is what confirms it: the end of its COMMIT record; in
decode-styles t and j without batches only the record's start is sent, and then
it is that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from gauss_cdc_lab.recordings.described import DescribedRows, KeyedChange
from producer.core.changes import Cell, Cells, Logical
from producer.errors import DecodeError, Unsupported
from producer.sources.decoders import DECODERS, NAMING, Format, Naming
from producer.sources.gauss.boundaries import together
from producer.sources.gauss.buffer import BufferedTransaction, TransactionBuffer
from producer.sources.gauss.decoders.literals import NUMBER
from producer.sources.gauss.decoders.messages import (
    Ddl,
    DecodedMessage,
    NamedChange,
    NamedRow,
    NamedTruncate,
    RowShape,
    ServerHeartbeat,
    TxBegin,
    TxCommit,
)
from producer.sources.gauss.decoders.tuples import readings
from producer.sources.gauss.spill import SpillFile
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.tables import TableId

# Types whose literals stand bare, so that a text in such a column shows a wrong guess.
_NUMERIC: Final = frozenset({"tinyint", "smallint", "integer", "bigint", "numeric", "oid"})

Columns: TypeAlias = tuple[tuple[str, Cell], ...]


@dataclass(frozen=True, slots=True)
class KnownTable:
    """The description of a table in a file, in its final form."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...] = ()  # of the primary key
    identity: tuple[str, ...] = ()  # what old rows carry
    is_gapless: bool = False  # no column was ever dropped: attnums run from 1

    @property
    def unique(self) -> tuple[str, ...]:
        """Columns that name one row; an identity of all columns (FULL) does not."""
        return self.key or (self.identity if set(self.identity) != set(self.names) else ())


Known: TypeAlias = Mapping[TableId, KnownTable]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of a row, as far as it was sent.  `key` are columns known to name a row."""

    op: str  # INSERT, UPDATE, DELETE
    table: TableId
    after: Columns | None
    before: Columns | None
    key: tuple[str, ...] = ()
    is_sure: bool = True  # False: another schema and table are written the same way
    types: RowShape | None = None  # of the old row, or else the new one


_Item: TypeAlias = RowChange | NamedTruncate | Ddl | Logical


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """A committed transaction; None is what the stream did not contain."""

    xid: int | None
    csn: int | None
    position: Lsn | None
    committed_at: str | None
    changes: tuple[_Item, ...]

    @property
    def has_rows(self) -> bool:
        """Say whether a row was changed."""
        return any(isinstance(change, RowChange) for change in self.changes)


def _decoder(written: Format) -> Naming:
    if written.plugin in DECODERS:
        return DescribedRows(DECODERS[written.plugin])
    make = NAMING.get((written.plugin, written.style))
    if make is None:
        raise Unsupported(
            "an unsupported output plugin or decode-style",
            plugin=written.plugin,
            style=written.style,
        )
    return make(written)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A decoder whose records can be decoded: damage is found at its line, not at COMMIT."""

    decoder: Naming

    def split(self, start: Lsn, payload: bytes) -> Iterator[tuple[Lsn, bytes]]:
        for position, record in self.decoder.walk(start, payload):
            message = self.decoder.decode(position, record)
            if not isinstance(message, Logical) or message.transactional:
                yield position, record

    walk = split

    def is_row(self, record: bytes) -> bool:
        return self.decoder.is_row(record)

    def decode(self, position: Lsn, record: bytes) -> DecodedMessage:
        return self.decoder.decode(position, record)


class RecordedStream:
    """One stream of a recording; raises Unsupported for an unknown plugin."""

    def __init__(self, written: Format, known: Known) -> None:
        self._known, self._is_spaced = known, written.style == "t"
        self._decoder = _decoder(written)
        self._is_described = isinstance(self._decoder, DescribedRows)
        self._buffer = TransactionBuffer(_Checked(self._decoder), spill=SpillFile)
        self._parts: tuple[bool, ...] | None = None  # of its COMMITs: they depend on its options

    @property
    def is_open(self) -> bool:
        """Say whether a transaction has begun and not ended."""
        return self._buffer.is_open

    def feed(self, start: Lsn, payload: bytes) -> Iterator[RecordedTransaction]:
        """Take one XLogData message; a batch may hold many transactions.  Raises DecodeError."""
        for found in self._buffer.feed([(start, start, payload)]):
            if not isinstance(found, BufferedTransaction):
                position, undecoded = found
                raise DecodeError(undecoded.why, position=lsn_text(position))
            yield self._ended(found)

    def _ended(self, transaction: BufferedTransaction) -> RecordedTransaction:
        begun, ended = transaction.begun, transaction.ended
        position = ended.commit_lsn if ended.end_lsn is None else ended.end_lsn
        # A BEGIN with xid has a COMMIT with it; the CSN may stand at one of the ends alone.
        if begun.xid is not None and ended.xid is None and not self._is_described:
            raise DecodeError(
                "a COMMIT of another transaction than its BEGIN",
                position=lsn_text(position or NOWHERE),
            )
        xid, csn, committed_at = together(begun, ended)
        parts = ended.xid is None, ended.csn is None, ended.committed_at is None
        if self._parts not in (None, parts):
            raise DecodeError(
                "a COMMIT with other parts than those before it",
                position=lsn_text(position or NOWHERE),
            )
        self._parts = parts
        changes = [self._item(*record) for record in transaction.records]
        if csn is not None:
            changes = [_without_guess(change) for change in changes]
        return RecordedTransaction(xid, csn, position, committed_at, tuple(changes))

    def _item(self, position: Lsn, record: bytes) -> _Item:
        match message := self._decoder.decode(position, record):
            case NamedChange():
                return self._change(message)
            case NamedTruncate() | Ddl() | Logical():
                return message
            case TxBegin() | TxCommit() | ServerHeartbeat():
                raise AssertionError("a boundary is nothing within a transaction")
            case _:
                assert_never(message)

    def _change(self, change: NamedChange) -> RowChange:
        op = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[change.op]
        table, is_sure = TableId(change.schema, change.table), True
        if self._is_spaced and " " in change.table:
            table, is_sure = self._meant(change)
        known = self._known.get(table)
        key = known.unique if known is not None else ()
        if isinstance(change, KeyedChange):
            key = change.key
        row = change.old or change.new
        return RowChange(
            op,
            table,
            None if change.new is None else _columns(change.new, known),
            None if change.old is None else _columns(change.old, known),
            key,
            is_sure,
            None if row is None else row.shape,
        )

    def _meant(self, change: NamedChange) -> tuple[TableId, bool]:
        """Choose among the readings of a name the one that is known, if one is."""
        found = [
            table
            for table in (TableId(*pair) for pair in readings(change.schema, change.table))
            if table in self._known
        ]
        row = change.new or change.old
        names = set(row.shape.names) if row is not None else set()
        # Columns may have gone since: where none fits, the name alone decides.
        fitting = [table for table in found if names <= set(self._known[table].names)] or found
        if len(fitting) == 1:
            return fitting[0], True
        return TableId(change.schema, change.table), False


def _without_guess(change: _Item) -> _Item:
    """Forget the key of an UPDATE without its old row.

    PostgreSQL, which has no CSNs, sends no old row where the key did not change;
    openGauss sends one always, and none where the table has no replica identity.
    """
    if isinstance(change, RowChange) and change.op == "UPDATE" and change.before is None:
        return replace(change, key=())
    return change


def _columns(row: NamedRow, known: KnownTable | None) -> Columns:
    """Name the cells; `$1`, `$2`, … where their names are unknown."""
    names = row.shape.names
    if not names:
        if known is not None and _fits(row.cells, known):
            names = known.names[: len(row.cells)]
        else:
            names = tuple(f"${number}" for number in range(1, len(row.cells) + 1))
    return tuple(zip(names, row.cells, strict=True))


def _fits(cells: Cells, known: KnownTable) -> bool:
    """Say whether values without names can be this table's: it may have been altered since.

    Columns are added at the end, so a row of fewer has the first ones, if none was dropped.
    """
    most = len(known.names)
    is_possible = len(cells) == most or (known.is_gapless and len(cells) < most)
    return is_possible and all(
        not isinstance(cell, bytes) or kind not in _NUMERIC or bool(NUMBER.fullmatch(cell))
        for cell, kind in zip(cells, known.types[: len(cells)], strict=True)
    )
