"""What a decoder says: one frozen vocabulary for all plugins.

A cell is the value's text, exactly as the type's output function prints it
(bool `t`, bits without `B''`, no SQL quotes), as bytes in the session's or
database's encoding; None for NULL, or UNCHANGED for an unsent TOAST value.

Two families share it.  pgoutput describes relations and sends cells by their
number (`Relation`, `Insert`, `Update`, `Delete`).  GaussDB's plugins and
test_decoding name table and columns in every row (`Change`), and tell xid, CSN
and positions wherever the mode does (`Begun`, `Ended`).  `core/held.py` turns
the second family into the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from producer.core.shape_change import StatementChanges
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
    csn: int | None = None  # None: the source has none; the commit LSN stands for it
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
    type_mod: int | None  # None: the wire does not tell it
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


@dataclass(frozen=True, slots=True)
class Lost:
    """Something of a table is missing at this place, and we know it: `kind` of schemas' Hole."""

    schema: str
    table: str
    kind: str  # "seen" or "suspected"
    why: str


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Bytes that are no message; what becomes of them is a setting."""

    payload: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL statement as the plugin prints it; `form` says how `content` is to be read.

    "TDDL": SQL text.  "JDDL": a JSON document.  "deparse": openGauss' JSON, or a
    literal for the two "start" types, with `command` its cmdtype, `sql` what follows
    "decode to", `owner` its owner.
    """

    form: str
    content: str
    sql: str | None = None
    command: str | None = None
    relation: int | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class StatementsDescribed:
    """From here on the source describes every statement (`is_on`), or none."""

    is_on: bool


Message: TypeAlias = (
    Begin
    | Commit
    | Relation
    | TypeName
    | Insert
    | Update
    | Delete
    | Truncate
    | Logical
    | Origin
    | Lost
    | StatementChanges
    | StatementsDescribed
    | Undecoded
)


# ---- plugins that name table and columns in every row


@dataclass(frozen=True, slots=True)
class Begun:
    """BEGIN, as far as the mode tells; None is what it does not tell."""

    xid: int | None = None
    csn: int | None = None
    first_lsn: Lsn | None = None
    committed_at: str | None = None  # as printed: a timestamptz in the session's zone
    user: str | None = None
    origin_id: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """COMMIT.  One of `end_lsn` (of its record) and `commit_lsn` (its start) is known."""

    xid: int | None = None
    csn: int | None = None
    committed_at: str | None = None
    end_lsn: Lsn | None = None
    commit_lsn: Lsn | None = None


@dataclass(frozen=True, slots=True)
class RowShape:
    """Columns of a row as the wire names them, in its order; decoders share one per shape."""

    names: tuple[str, ...]  # unquoted; () where the wire gives none (an INSERT of sql_decoding)
    oids: tuple[int, ...]  # 0 where not told
    types: tuple[str, ...]  # format_type() without modifier; "" where not told


@dataclass(slots=True)
class NamedRow:
    """A row; as many cells as `shape` has names, unless it has none."""

    shape: RowShape
    cells: Cells


@dataclass(slots=True)
class Change:
    """A row of a table: op "c" (only new), "u" (new; old if sent), "d" (old if sent).

    `old` holds the columns of the replica identity only.  sql_decoding's UPDATE is
    two of these, a "d" and a "c".
    """

    op: str
    schema: str
    table: str
    new: NamedRow | None
    old: NamedRow | None


@dataclass(frozen=True, slots=True)
class Emptied:
    """TRUNCATE, tables by name: (schema, table)."""

    tables: tuple[tuple[str, str], ...]
    cascade: bool = False
    restart_identity: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """GaussDB's `h`: positions (CSNs through a CN) and the time of the newest record read."""

    read: int  # end of WAL read, or the newest CSN sent
    flushed: int  # WAL on disk, or the next CSN
    at: int  # since 1970, in the unit of the server (not documented)


# Logical only of PostgreSQL's test_decoding; it may stand outside of a transaction.
Told: TypeAlias = Begun | Ended | Change | Emptied | Ddl | Heartbeat | Logical
