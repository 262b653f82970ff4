"""What happened in the emulated database, and the decoding options of a client.

Everything stands as the server knows it before any output plugin has seen it: a
transaction holds all that its WAL says, also what a mode will not send.  Encoders
(`formats`) drop, order and print; nothing here depends on a mode.

Values are the type's output text in the DATABASE's encoding: bool `t`/`f`, bits
without `B''`, no SQL quotes.  Names are unquoted text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from schemas.positions import Lsn
from schemas.tables import Missing, TableId

# ---- products


class DdlOutput(StrEnum):
    """How a product's serial decoding prints DDL."""

    NONE = "none"
    DEPARSE = "deparse"  # openGauss 6+: lines "prefix: deparse, …", if a publication logs DDL
    TAGGED = "tagged"  # GaussDB: {"TDDL":…} or {"JDDL":…}, if enable-ddl-decoding


@dataclass(frozen=True, slots=True)
class Profile:
    """Which blocks and spellings a product has: see `sources/gauss/recorded.py`."""

    name: str
    begin_xid: bool = False  # xid in a parallel BEGIN ("X", " xid: "): openGauss since 6.0
    begin_user: bool = False  # "N" in a binary BEGIN, with include-user: GaussDB
    origin: bool = False  # include-originid: openGauss since 5.0
    first_lsn_label: str = "first_lsn"  # openGauss 3.0 wrote commit_lsn
    commit_label: str = "commit xid: "  # GaussDB's manual: COMMIT XID:
    truncate: bool = False  # serial plugins print a TRUNCATE line: openGauss since 6.0
    ddl: DdlOutput = DdlOutput.NONE
    rows_after_ddl: bool = True  # serial decoding sends rows behind DDL of their transaction
    heartbeat: bool = False  # enable-heartbeat: GaussDB
    gauss: bool = True  # False: PostgreSQL, which has neither CSNs nor parallel decoding


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("og3", first_lsn_label="commit_lsn"),
        Profile("og5", origin=True),
        Profile("og6", begin_xid=True, origin=True, truncate=True, ddl=DdlOutput.DEPARSE),
        Profile("og7", begin_xid=True, origin=True, truncate=True, ddl=DdlOutput.DEPARSE),
        Profile(
            "gaussdb",
            begin_user=True,
            commit_label="COMMIT XID: ",
            ddl=DdlOutput.TAGGED,
            rows_after_ddl=False,
            heartbeat=True,
        ),
        Profile("postgres", truncate=True, gauss=False),
    )
}


# ---- what happened


class Op(StrEnum):
    """What was done to a row."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Field(NamedTuple):
    """A column of a row and its value."""

    name: str
    type_name: str  # format_type() without modifier
    type_oid: int
    value: bytes | Missing | None  # None: NULL.  UNCHANGED_TOAST: PostgreSQL did not log it
    generated: bool = False  # a stored generated column, which skip-generated-columns leaves out


class Row(NamedTuple):
    """A changed row.  `old` holds the replica identity's columns, or is None without one."""

    lsn: Lsn  # start of its record; rows of one COPY share it
    op: Op
    schema: str
    table: str
    new: Sequence[Field] | None
    old: Sequence[Field] | None
    last_dropped: bool = False  # the table's last column was dropped: sql_decoding shows it


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables emptied by one statement; to parallel decoding it is an invisible `Ddl`."""

    lsn: Lsn
    tables: tuple[TableId, ...]
    cascade: bool = False
    restart_identity: bool = False


@dataclass(frozen=True, slots=True)
class Ddl:
    """A change of the catalog (in GaussDB also DCL), logged as a message or not.

    Without `content` and `sql` it is only the place behind which rows are lost.
    openGauss prints `content` and `sql`; GaussDB `content` as JDDL, `sql` as TDDL.
    """

    lsn: Lsn  # start of its first record
    end_lsn: Lsn | None = None  # end of the message's record: where serial decoding puts it
    content: bytes | None = None  # JSON as logged, or the literal of the two "start" commands
    sql: bytes | None = None
    command: str = "Simple"  # openGauss' cmdtype
    relation: int = 0
    owner: str | None = None


Item: TypeAlias = Row | Truncate | Ddl


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction: its items in WAL order, rolled back ones left out."""

    xid: int
    csn: int
    first_lsn: Lsn | None  # first record of it that decoding tracks; None: none but the commit
    commit_lsn: Lsn  # start of the commit record
    end_lsn: Lsn  # end of the commit record: what a client confirms
    committed_at: str  # timestamptz as printed in the decoding session's zone
    items: Sequence[Item]
    user: str | None = None
    origin_id: int = 0  # 0: local
    # First heap record of it, also of a catalog or rolled back: what a parallel BEGIN names.
    first_change_lsn: Lsn | None = None  # None: that of the first item, or else the commit's


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """GaussDB's `h` (manual, option enable-heartbeat)."""

    read: int  # end of WAL read, or the newest CSN sent
    flushed: int  # WAL on disk, or the next CSN
    at: int  # since 1970-01-01; the manual names no unit, the emulator sends µs


# ---- how it was asked for


@dataclass(frozen=True, slots=True)
class Mode:
    """Options of START_REPLICATION that shape the bytes; defaults are serial decoding's."""

    plugin: str = "mppdb_decoding"
    parallel_decode_num: int = 1  # 1: serial
    decode_style: str = ""  # "b", "j" or "t"; "": what the plugin means
    sending_batch: bool = False
    include_xids: bool = True
    include_timestamp: bool = True  # parallel decoding's default is false: pass it
    skip_empty_xacts: bool = False
    include_originid: bool = False
    only_local: bool = True
    white_table_list: tuple[tuple[str, str], ...] = ()  # (schema, table), "*" for all; () no filter
    # GaussDB
    include_user: bool = False
    enable_heartbeat: bool = False
    exclude_users: frozenset[str] = frozenset()
    skip_generated_columns: bool = False
    enable_ddl_decoding: bool = False
    enable_ddl_json_format: bool = False
    output_order: int = 0  # 1: by CSN

    @property
    def parallel(self) -> bool:
        """Whether decoder threads print, which know nothing of plugins."""
        return self.parallel_decode_num > 1

    @property
    def style(self) -> str:
        """Letter of parallel decoding's style, "" in serial mode."""
        if not self.parallel:
            return ""
        return self.decode_style[:1] or _PLUGIN_STYLES.get(self.plugin, "b")


_PLUGIN_STYLES: Final[Mapping[str, str]] = {
    "parallel_binary_decoding": "b",
    "parallel_json_decoding": "j",
    "parallel_text_decoding": "t",
}


# ---- what an encoder is


class Sent(NamedTuple):
    """One XLogData: its dataStart, which walEnd repeats, and the payload."""

    start: Lsn  # a CSN with output-order 1; 0 before a delayed BEGIN
    payload: bytes


class Encoder(Protocol):
    """The output of one stream.  It has state: what is buffered, and the last position.

    Transactions are fed in the order of their commit records, from the first one
    that the restart rule lets through.
    """

    def feed(self, item: Transaction | Heartbeat) -> Iterator[Sent]:
        """Yield the messages that are due now; a batch may keep some for later.

        The iterator must be exhausted before the next call.
        """

    def idle(self) -> Iterator[Sent]:
        """Yield what is buffered.  To be called when nothing was sent for one second."""
