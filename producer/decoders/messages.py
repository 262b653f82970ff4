"""What a decoder says: one frozen vocabulary for all plugins.

A cell is the value's text as bytes in the session's encoding, None for NULL,
or UNCHANGED for an unsent TOAST value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from schemas.positions import Lsn
from schemas.tables import Missing, ReplicaIdentity

Cell: TypeAlias = bytes | Missing | None
Cells: TypeAlias = list[Cell]


@dataclass(frozen=True, slots=True)
class Begin:
    """First message of a transaction; `commit_lsn` is where its commit record begins."""

    commit_lsn: Lsn
    committed_at: int  # µs since 2000-01-01 UTC, as on the wire
    xid: int


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
    type_mod: int
    identity: bool  # part of what old rows carry


@dataclass(frozen=True, slots=True)
class Relation:
    """A table's shape, in force from here on."""

    relation: int
    schema: str
    table: str
    replica_identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    """Name of a type that is not built in."""

    type_oid: int
    schema: str
    name: str


@dataclass(slots=True)
class Insert:
    """A new row; cells stand in the order of the last relation message."""

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
class Origin:
    """The transaction came by replication from elsewhere."""

    lsn: Lsn
    name: str


Message: TypeAlias = (
    Begin | Commit | Relation | TypeName | Insert | Update | Delete | Truncate | Logical | Origin
)
