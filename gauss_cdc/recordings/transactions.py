"""Recorded messages folded into whole transactions, for display.

It needs no database: what the stream does not contain is missing unless a file about
the tables has it (`Known`).  The bounds of transactions are decided as in `run`
(`boundaries`).

A transaction's position is what confirms it: the end of its COMMIT record; in
decode-styles t and j without batches only the record's start is sent, and then
it is that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, TypeAlias, assert_never

from producer.core.changes import (
    Begin,
    Cell,
    Cells,
    Commit,
    Delete,
    Insert,
    Logical,
    Relation,
    Truncate,
    Update,
)
from producer.errors import DecodeError, Unsupported
from producer.sources.decoders import DECODERS, NAMING, Format, Naming
from producer.sources.gauss.boundaries import Boundaries, Place, together
from producer.sources.gauss.decoders.literals import NUMBER
from producer.sources.gauss.decoders.messages import (
    Change,
    Ddl,
    DecodedMessage,
    Heartbeat,
    NamedRow,
    NamedTruncate,
    RowShape,
    TxBegin,
    TxCommit,
)
from producer.sources.gauss.decoders.tuples import readings
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, ReplicaIdentity, TableId

_2000: Final = datetime(2000, 1, 1, tzinfo=UTC)
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
    old_types: RowShape | None = None  # types of old columns, where the stream contains them


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


class Fold(Protocol):
    """Takes the messages of one stream, gives its transactions."""

    def feed(self, start: int, payload: bytes) -> Iterator[RecordedTransaction]:
        """Take one XLogData message.  Raises DecodeError."""

    @property
    def is_open(self) -> bool:
        """Say whether a transaction has begun and not ended."""


def fold(written: Format, known: Known) -> Fold:
    """Return the fold of a stream; raises Unsupported for an unknown plugin."""
    if written.plugin in DECODERS:
        return PgoutputFold()
    make = NAMING.get((written.plugin, written.style))
    if make is None:
        raise Unsupported(
            "an unsupported output plugin or decode-style",
            plugin=written.plugin,
            style=written.style,
        )
    return NamingFold(make(written), known, spaced=written.style == "t")


@dataclass(slots=True)
class NamingFold:
    """Fold of the plugins that name table and columns in every row."""

    decoder: Naming
    known: Known
    spaced: bool = False  # decode-style t, whose table names have several readings
    _boundaries: Boundaries = field(default_factory=Boundaries)
    _changes: list[_Item] = field(default_factory=list)
    _parts: tuple[bool, ...] | None = None  # of the stream's COMMITs: they depend on its options

    @property
    def is_open(self) -> bool:
        """Say whether a transaction has begun and not ended."""
        return self._boundaries.is_open

    def feed(self, start: int, payload: bytes) -> Iterator[RecordedTransaction]:
        """Take one message; a batch may hold many transactions."""
        decode = self.decoder.decode
        for position, record in self.decoder.walk(start, payload):
            message = decode(position, record)
            match self._boundaries.step(message):
                case begun, ended:
                    yield self._ended(begun, ended, position)
                case Place.BEGINS:
                    self._changes = []
                case Place.WITHIN:
                    self._changes.append(self._item(message))
                case Place.OUTSIDE:
                    pass
                case Place.STRAY:
                    raise DecodeError(self._boundaries.stray(message), position=Lsn(position))

    def _item(self, message: DecodedMessage) -> _Item:
        match message:
            case Change():
                return self._change(message)
            case NamedTruncate() | Ddl() | Logical():
                return message
            case TxBegin() | TxCommit() | Heartbeat():
                raise AssertionError("a boundary is nothing within a transaction")
            case _:
                assert_never(message)

    def _ended(self, begun: TxBegin, ended: TxCommit, position: int) -> RecordedTransaction:
        # A BEGIN with xid has a COMMIT with it; the CSN may stand at one of the ends alone.
        if begun.xid is not None and ended.xid is None:
            raise DecodeError(
                "a COMMIT of another transaction than its BEGIN", position=Lsn(position)
            )
        xid, csn, committed_at = together(begun, ended)
        parts = ended.xid is None, ended.csn is None, ended.committed_at is None
        if self._parts not in (None, parts):
            raise DecodeError(
                "a COMMIT with other parts than those before it", position=Lsn(position)
            )
        self._parts = parts
        return RecordedTransaction(
            xid=xid,
            csn=csn,
            position=ended.commit_lsn if ended.end_lsn is None else ended.end_lsn,
            committed_at=committed_at,
            changes=tuple(self._changes if csn is None else map(_without_guess, self._changes)),
        )

    def _change(self, change: Change) -> RowChange:
        op = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[change.op]
        table, is_sure = TableId(change.schema, change.table), True
        if self.spaced and " " in change.table:
            table, is_sure = self._meant(change)
        known = self.known.get(table)
        return RowChange(
            op,
            table,
            None if change.new is None else _columns(change.new, known),
            None if change.old is None else _columns(change.old, known),
            known.unique if known is not None else (),
            is_sure,
            None if change.old is None else change.old.shape,
        )

    def _meant(self, change: Change) -> tuple[TableId, bool]:
        """Choose among the readings of a name the one that is known, if one is."""
        found = [
            table
            for table in (TableId(*pair) for pair in readings(change.schema, change.table))
            if table in self.known
        ]
        row = change.new or change.old
        names = set(row.shape.names) if row is not None else set()
        # Columns may have gone since: where none fits, the name alone decides.
        fitting = [table for table in found if names <= set(self.known[table].names)] or found
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


@dataclass(slots=True)
class PgoutputFold:
    """Fold of pgoutput, which describes its relations."""

    _relations: dict[int, Relation] = field(default_factory=dict)
    _types: dict[int, RowShape] = field(default_factory=dict)
    _begin: Begin | None = None
    _changes: list[_Item] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Say whether a transaction has begun and not ended."""
        return self._begin is not None

    def feed(self, start: int, payload: bytes) -> Iterator[RecordedTransaction]:
        """Take one message."""
        message = DECODERS["pgoutput"](payload)
        match message:
            case Begin() if self._begin is None:
                self._begin, self._changes = message, []
            case Commit() if self._begin is not None:
                begin, self._begin = self._begin, None
                yield RecordedTransaction(
                    begin.xid,
                    begin.csn,
                    message.end_lsn,
                    _instant(message.committed_at),
                    tuple(self._changes),
                )
            case Relation():
                self._relations[message.relation] = message
                columns = message.columns
                self._types[message.relation] = RowShape(
                    tuple(column.name for column in columns),
                    tuple(column.type_oid for column in columns),
                    ("",) * len(columns),
                )
            case Insert() | Update() | Delete() if self._begin is not None:
                self._changes.append(self._row(message))
            case Truncate() if self._begin is not None:
                tables = [self._relation(relation) for relation in message.relations]
                self._changes.append(
                    NamedTruncate(
                        tuple((table.schema, table.table) for table in tables),
                        cascade=message.cascade,
                        restart_identity=message.restart_identity,
                    )
                )
            case Logical():
                if message.transactional:
                    self._changes.append(message)
            case Begin() | Commit() | Insert() | Update() | Delete() | Truncate():
                where = "within" if self.is_open else "outside of"
                raise DecodeError(
                    f"{type(message).__name__} {where} a transaction", position=Lsn(start)
                )
            case _:  # names of types, origins
                pass

    def _row(self, message: Insert | Update | Delete) -> RowChange:
        relation = self._relation(message.relation)
        table = TableId(relation.schema, relation.table)
        key = tuple(column.name for column in relation.columns if column.identity)
        if relation.replica_identity is ReplicaIdentity.FULL:
            key = ()  # all columns, which is not a key
        if isinstance(message, Insert):
            return RowChange("INSERT", table, _all(relation, message.new), None, key)
        before, types = None, self._types[message.relation]
        if message.old is not None:
            before = _all(relation, message.old)
            if message.old_kind == "K":  # the other cells are not NULL but not there
                before = tuple(pair for pair in before if pair[0] in key)
        if isinstance(message, Delete):
            return RowChange("DELETE", table, None, before, key, old_types=types)
        after = _all(relation, message.new)
        if message.old_kind == "O" and before is not None:
            # A value that did not change is not sent again, but the old row has it.
            old = dict(before)
            after = tuple((name, old[name] if c is UNCHANGED else c) for name, c in after)
        return RowChange("UPDATE", table, after, before, key, old_types=types)

    def _relation(self, number: int) -> Relation:
        try:
            return self._relations[number]
        except KeyError:
            raise DecodeError(
                "a row of a relation that the stream did not describe", relation=number
            ) from None


def _all(relation: Relation, cells: Cells) -> Columns:
    if len(cells) != len(relation.columns):
        raise DecodeError(
            "a row with another number of columns than its relation",
            relation=relation.relation,
            cells=len(cells),
            columns=len(relation.columns),
        )
    return tuple((column.name, cell) for column, cell in zip(relation.columns, cells, strict=True))


def _instant(microseconds: int) -> str:
    """Print a time as openGauss does at UTC."""
    try:
        instant = _2000 + timedelta(microseconds=microseconds)
    except OverflowError:
        raise DecodeError("a commit time out of range") from None
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".") + "+00"
