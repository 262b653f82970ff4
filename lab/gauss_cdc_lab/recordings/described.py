"""pgoutput as a plugin that names table and columns in every row.

pgoutput describes a relation once and may describe it again at any time, while a
record waits for its COMMIT.  So a record is the server's message with the number of
the description in force in place of the relation's oid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from producer.core.changes import (
    Begin,
    Cells,
    Commit,
    Delete,
    Insert,
    Logical,
    Message,
    Relation,
    Truncate,
    Update,
)
from producer.errors import DecodeError
from producer.sources.gauss.decoders.messages import (
    DecodedMessage,
    NamedChange,
    NamedRow,
    NamedTruncate,
    RowShape,
    TxBegin,
    TxCommit,
)
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, ReplicaIdentity

_2000: Final = datetime(2000, 1, 1, tzinfo=UTC)
_ROWS: Final = b"IUD"
_OIDS_OF_TRUNCATE: Final = 6  # where they begin, behind their number and the flags


@dataclass(slots=True)
class KeyedChange(NamedChange):
    """A change of a row of a described relation."""

    key: tuple[str, ...] = ()  # columns that name one row


@dataclass(frozen=True, slots=True)
class _Description:
    relation: Relation
    shape: RowShape
    key: tuple[str, ...]
    key_shape: RowShape


class DescribedRows:
    """A decoder as those of `NAMING`; its records are valid for this stream only."""

    def __init__(self, decode: Callable[[bytes], Message]) -> None:
        self._decode = decode
        self._descriptions: list[_Description] = []
        self._newest: dict[int, int] = {}  # oid -> number of its description

    def split(self, start: Lsn, payload: bytes) -> list[tuple[Lsn, bytes]]:
        return list(self.walk(start, payload))

    def walk(self, start: Lsn, payload: bytes) -> Iterator[tuple[Lsn, bytes]]:
        """Yield the message, if it is about a transaction or a row."""
        tag = payload[:1]
        if tag in b"RYO" and isinstance(message := self._decode(payload), Relation):
            self._newest[message.relation] = len(self._descriptions)
            self._descriptions.append(_described(message))
        elif tag and tag in _ROWS:
            yield start, payload[:1] + self._number(payload[1:5]) + payload[5:]
        elif tag == b"T":
            head, oids = payload[:_OIDS_OF_TRUNCATE], payload[_OIDS_OF_TRUNCATE:]
            numbers = (self._number(oids[at : at + 4]) for at in range(0, len(oids), 4))
            yield start, head + b"".join(numbers)
        elif tag not in b"YO":
            yield start, payload

    def _number(self, raw: bytes) -> bytes:
        oid = int.from_bytes(raw, "big")
        try:
            return self._newest[oid].to_bytes(4, "big")
        except KeyError:
            raise DecodeError(
                "a row of a relation that the stream did not describe", relation=oid
            ) from None

    def is_row(self, record: bytes) -> bool:
        return record[:1] in _ROWS

    def decode(self, position: int, record: bytes) -> DecodedMessage:  # noqa: ARG002  the protocol's
        """Decode one record of `walk`, or raise DecodeError."""
        message = self._decode(record)
        match message:
            case Begin():
                return TxBegin(message.xid, message.csn)
            case Commit():
                return TxCommit(
                    committed_at=_instant(message.committed_at), end_lsn=message.end_lsn
                )
            case Insert() | Update() | Delete():
                return _row(message, self._descriptions[message.relation])
            case Truncate():
                about = [self._descriptions[number].relation for number in message.relations]
                return NamedTruncate(
                    tuple((each.schema, each.table) for each in about),
                    cascade=message.cascade,
                    restart_identity=message.restart_identity,
                )
            case Logical():
                return message
            case _:
                raise AssertionError("`walk` omits it")


def _described(relation: Relation) -> _Description:
    columns = relation.columns
    shape = RowShape(
        tuple(column.name for column in columns),
        tuple(column.type_oid for column in columns),
        ("",) * len(columns),
    )
    identity = [column for column in columns if column.identity]
    key = RowShape(
        tuple(column.name for column in identity),
        tuple(column.type_oid for column in identity),
        ("",) * len(identity),
    )
    # All columns are not a key.
    names = () if relation.replica_identity is ReplicaIdentity.FULL else key.names
    return _Description(relation, shape, names, key)


def _row(message: Insert | Update | Delete, about: _Description) -> KeyedChange:
    where = about.relation.schema, about.relation.table
    if isinstance(message, Insert):
        return KeyedChange(
            "c", *where, NamedRow(about.shape, _all(about, message.new)), None, about.key
        )
    old = None
    if message.old is not None:
        old = NamedRow(about.shape, _all(about, message.old))
        if message.old_kind == "K":  # the other cells are not NULL but not there
            cells = [
                cell
                for cell, column in zip(message.old, about.relation.columns, strict=True)
                if column.identity
            ]
            old = NamedRow(about.key_shape, cells)
    if isinstance(message, Delete):
        return KeyedChange("d", *where, None, old, about.key)
    new = _all(about, message.new)
    if message.old_kind == "O" and message.old is not None:
        # A value that did not change is not sent again, but the old row has it.
        new = [
            was if cell is UNCHANGED else cell for was, cell in zip(message.old, new, strict=True)
        ]
    return KeyedChange("u", *where, NamedRow(about.shape, new), old, about.key)


def _all(about: _Description, cells: Cells) -> Cells:
    if len(cells) != len(about.relation.columns):
        raise DecodeError(
            "a row with another number of columns than its relation",
            relation=about.relation.relation,
            cells=len(cells),
            columns=len(about.relation.columns),
        )
    return cells


def _instant(microseconds: int) -> str:
    """Print a time as openGauss does at UTC."""
    try:
        instant = _2000 + timedelta(microseconds=microseconds)
    except OverflowError:
        raise DecodeError("a commit time out of range") from None
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".") + "+00"
