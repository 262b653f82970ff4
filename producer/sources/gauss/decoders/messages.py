"""What a decoder of GaussDB's plugins says: table and columns stand in every row.

xid, CSN and positions are there wherever the mode has them.  `buffer` and `resolver` turn this
vocabulary into the core's, which describes relations and sends cells by their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from producer.core.changes import Cells, Logical
from schemas.positions import Lsn


@dataclass(frozen=True, slots=True)
class TxBegin:
    """BEGIN, with the data that the mode sends; None is what it does not send."""

    xid: int | None = None
    csn: int | None = None
    first_lsn: Lsn | None = None
    committed_at: str | None = None  # as printed: a timestamptz in the session's zone
    user: str | None = None
    origin_id: int | None = None


@dataclass(frozen=True, slots=True)
class TxCommit:
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
    oids: tuple[int, ...]  # 0 where not sent
    types: tuple[str, ...]  # format_type() without modifier; "" where not sent


@dataclass(slots=True)
class NamedRow:
    """A row; as many cells as `shape` has names, unless it has none."""

    shape: RowShape
    cells: Cells


@dataclass(slots=True)
class NamedChange:
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
class NamedTruncate:
    """TRUNCATE, tables by name: (schema, table)."""

    tables: tuple[tuple[str, str], ...]
    cascade: bool = False
    restart_identity: bool = False


@dataclass(frozen=True, slots=True)
class ServerHeartbeat:
    """GaussDB's `h`: positions (CSNs through a CN) and the time of the newest record read."""

    read: int  # end of WAL read, or the newest CSN sent
    flushed: Lsn  # WAL on disk, or the next CSN
    at: int  # since 1970, in the unit of the server (not documented)


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


# Logical only of PostgreSQL's test_decoding; it may stand outside of a transaction.
DecodedMessage: TypeAlias = (
    TxBegin | TxCommit | NamedChange | NamedTruncate | Ddl | ServerHeartbeat | Logical
)
