"""The messages of a source: one frozen vocabulary for all products.

A cell is the value's text, exactly as the type's output function prints it
(bool `t`, bits without `B''`, no SQL quotes), as bytes in the session's or
database's encoding; None for NULL, or UNCHANGED for an unsent TOAST value.

A relation is described before its rows, which refer to it by number, as in
pgoutput.  The changes of a statement are resolved by the source, and come at
their position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field
from typing import TypeAlias

from producer.core.shape_change import StatementChanges
from producer.wire.replication import WalMessage
from schemas.positions import Lsn
from schemas.tables import Missing, ReplicaIdentity, TableId

Cell: TypeAlias = bytes | Missing | None
Cells: TypeAlias = list[Cell]


@dataclass(frozen=True, slots=True)
class Begin:
    """First message of a transaction; `commit_lsn` is where its commit record begins."""

    commit_lsn: Lsn
    committed_at: int  # µs since 2000-01-01 UTC, as on the wire
    xid: int
    # None: the source has none, and the commit LSN takes its place; 0: it is not known.
    csn: int | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Last message of a transaction; `end_lsn` is what we may confirm once durable."""

    commit_lsn: Lsn
    end_lsn: Lsn
    committed_at: int  # µs since 2000-01-01 UTC


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the stream describes it."""

    name: str
    type_oid: int
    type_mod: int | None  # None: not on the wire
    identity: bool  # part of what old rows carry


@dataclass(frozen=True, slots=True)
class Relation:
    """A table's shape, in force from here on."""

    relation: int
    schema: str
    table: str
    replica_identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]

    @property
    def id(self) -> TableId:
        """Its name at that place."""
        return TableId(self.schema, self.table)


@dataclass(frozen=True, slots=True)
class TypeMessage:
    """Name of a type that is not built in."""

    type_oid: int
    schema: str
    name: str


@dataclass(slots=True)
class Insert:
    """A new row; cells are in the order of the last relation message."""

    relation: int
    new: Cells


@dataclass(slots=True)
class Update:
    """A changed row.  `old` is the whole old row (`old_kind` "O"), its key ("K"), or None."""

    relation: int
    old_kind: str
    old: Cells | None
    new: Cells


@dataclass(slots=True)
class Delete:
    """A removed row; `old` as in Update."""

    relation: int
    old_kind: str
    old: Cells


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables emptied by one statement."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class Logical:
    """A message written by pg_logical_emit_message."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class OriginMessage:
    """The transaction was replicated from another server."""

    lsn: Lsn
    name: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The open transaction is one of `run`'s own: an end of a window (`core/loads/window.py`)."""

    token: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A gap of a table at this position; `kind` is that of schemas' Hole."""

    schema: str
    table: str
    kind: str  # "seen" or "suspected"
    why: str


@dataclass(frozen=True, slots=True)
class SentAgain:
    """The open transaction was delivered, and has rows of these tables, by their names then."""

    tables: Iterable[TableId]  # found as they are asked for
    oids: Sequence[int] = ()  # of the same tables, if the stream's relation ids are oids


@dataclass(frozen=True, slots=True)
class Undecoded:
    """An undecodable message; a setting decides what is done with it."""

    payload: bytes
    why: str


@dataclass(slots=True)
class Stretch:
    """Messages of one read that nobody has decoded; who takes some moves `at`.

    Of a source that holds transactions until their COMMIT: its records of whole ones.
    """

    messages: Sequence[WalMessage] | Sized
    at: int = 0
    begin: Begin | None = None  # of the transaction that is open behind what the walker took
    begun: list[int] = field(default_factory=list)  # xids that it has seen begin


@dataclass(frozen=True, slots=True)
class StatementsDescribed:
    """From here on the source describes every statement (`is_on`), or none."""

    is_on: bool


Message: TypeAlias = (
    Begin
    | Commit
    | Relation
    | TypeMessage
    | Insert
    | Update
    | Delete
    | Truncate
    | Logical
    | OriginMessage
    | Mark
    | Lost
    | SentAgain
    | StatementChanges
    | StatementsDescribed
    | Stretch
    | Undecoded
)
