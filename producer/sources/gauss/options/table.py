"""Every decoding option of GaussDB and openGauss, as one table.

Source: GaussDB manual, "Logical Decoding Options"; what openGauss takes was read
in its source and seen on a live server.  The documentation's table is made from this
one, and so are all checks: there is no second list of options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Product(StrEnum):
    """Whose server it is."""

    OPENGAUSS = "opengauss"
    GAUSSDB = "gaussdb"


class Mode(StrEnum):
    """How changes are decoded."""

    SERIAL = "serial"  # a stream, parallel-decode-num = 1
    PARALLEL = "parallel"  # a stream, parallel-decode-num = 2..20
    SQL = "sql"  # pg_logical_slot_peek_changes and its like


class Use(Enum):
    """What becomes of an option in a mode."""

    TAKEN = "taken"
    IDLE = "its range is checked; it has no effect"
    REFUSED = "refused"


class OptionKind(StrEnum):
    """How a value is written."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    TIME = "milliseconds"
    STYLE = "j, t or b"
    TABLES = "schema.table, …"
    NAMES = "names"
    OIDS = "OIDs"
    POSITION = "CSN/LSN"


class Treatment(StrEnum):
    """Who decides about an option."""

    OURS = "set by us"
    SENT = "yours; always sent"
    YOURS = "yours"
    INTERNAL = "internal"
    REFUSED = "refused"


class OptionGroup(StrEnum):
    """The manual's chapter that an option stands in, where that decides."""

    GENERAL = "general"
    DISTRIBUTED = "distributed"  # only with output-order = 1
    SERIAL = "serial"
    PARALLEL = "parallel"  # only with parallel-decode-num of 2 and more


Uses = tuple[Use, Use, Use]  # serial, parallel, SQL functions

T, I, R = Use.TAKEN, Use.IDLE, Use.REFUSED  # noqa: E741  a table is read in columns
_ALL: Final[Uses] = (T, T, T)
_STREAM: Final[Uses] = (T, T, R)
_NOWHERE: Final[Uses] = (R, R, R)
_MODES: Final = tuple(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option; `low` and `high` bound an INTEGER or TIME."""

    name: str
    kind: OptionKind
    low: int = 0
    high: int = 0
    unit: str = ""
    default: str | Mapping[Mode, str] = ""  # the server's; "" = nothing
    gaussdb: Uses
    opengauss: Uses
    opengauss_since: str = ""  # where not all versions have it
    group: OptionGroup = OptionGroup.GENERAL
    dn_only: bool = False  # refused by a coordinator (CN)
    dn_effect: bool = False  # taken by a coordinator, without any effect
    share: int = 0  # GaussDB, parallel: up to so many percent of max_process_memory instead
    also: str = ""  # what a value must be besides
    treatment: Treatment = Treatment.YOURS
    removes: str = ""  # which changes never arrive because of it
    meaning: str
    why: str = ""  # why we treat it so

    def use(self, product: Product, mode: Mode) -> Use:
        """Say what becomes of it."""
        uses = self.gaussdb if product == Product.GAUSSDB else self.opengauss
        return uses[_MODES.index(mode)]

    def server_default(self, mode: Mode) -> str:
        """Give the value that the server takes where none is sent."""
        return self.default if isinstance(self.default, str) else self.default[mode]

    @property
    def range(self) -> str:
        """Its values, for people."""
        match self.kind:
            case OptionKind.BOOLEAN:
                return "true or false"
            case OptionKind.INTEGER | OptionKind.TIME:
                unit = f" {self.unit}" if self.unit else ""
                between = "or" if self.high == self.low + 1 else "to"
                return f"{self.low} {between} {self.high}{unit}{self.also}"
            case _:
                return self.kind.value


_HOLDS_KEYS: Final = "our records name transaction, time and position: they must be in the stream"

OPTIONS: Final = (
    # -------------------------------------------------------- how it is decoded
    Option(
        name="parallel-decode-num",
        kind=OptionKind.INTEGER,
        low=1,
        high=20,
        default="1",
        gaussdb=(T, T, I),
        opengauss=(T, T, I),
        treatment=Treatment.SENT,
        meaning="Decoder threads; 1 is serial decoding.",
        why="the server's logical_decode_options_default could turn a stream parallel unasked",
    ),
    Option(
        name="decode-style",
        kind=OptionKind.STYLE,
        default={Mode.SERIAL: "", Mode.PARALLEL: "b; as the parallel_*_decoding plugin says"}
        | {Mode.SQL: ""},
        gaussdb=(R, T, R),
        opengauss=(R, T, R),
        group=OptionGroup.PARALLEL,
        treatment=Treatment.SENT,
        meaning="Format of parallel decoding: JSON, text or binary.",
        why="b by default: j cuts a value off at a zero byte",
    ),
    Option(
        name="sending-batch",
        kind=OptionKind.INTEGER,
        low=0,
        high=1,
        default={Mode.SERIAL: "", Mode.PARALLEL: "0", Mode.SQL: ""},
        gaussdb=(R, T, R),
        opengauss=(R, T, R),
        group=OptionGroup.PARALLEL,
        treatment=Treatment.SENT,
        meaning="1 sends results in batches of 1 MB, up to a second later.",
    ),
    Option(
        name="parallel-queue-size",
        kind=OptionKind.INTEGER,
        low=2,
        high=1024,
        default={Mode.SERIAL: "", Mode.PARALLEL: "128", Mode.SQL: ""},
        gaussdb=(R, T, R),
        opengauss=(R, T, R),
        group=OptionGroup.PARALLEL,
        also=", a power of two",
        meaning="Queue between decoder threads; costs memory.",
    ),
    Option(
        name="output-order",
        kind=OptionKind.INTEGER,
        low=0,
        high=1,
        default="0",
        gaussdb=(T, T, I),
        opengauss=_NOWHERE,
        meaning="0: in the order of commit LSNs. 1: in the order of CSNs, with a slot made for it.",
    ),
    # -------------------------------------------------------- what our records need
    Option(
        name="include-xids",
        kind=OptionKind.BOOLEAN,
        default="true",
        gaussdb=_ALL,
        opengauss=_ALL,
        treatment=Treatment.OURS,
        meaning="Transaction ids.",
        why=_HOLDS_KEYS,
    ),
    Option(
        name="include-timestamp",
        kind=OptionKind.BOOLEAN,
        default={Mode.SERIAL: "true", Mode.PARALLEL: "false", Mode.SQL: "true"},
        gaussdb=_ALL,
        opengauss=_ALL,
        treatment=Treatment.OURS,
        meaning="Commit times.",
        why=_HOLDS_KEYS,
    ),
    Option(
        name="skip-empty-xacts",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_ALL,
        opengauss=_ALL,
        treatment=Treatment.OURS,
        meaning="Leave out transactions without changes.",
        why="true in serial decoding of a stream, whose keepalives say how far an idle source was "
        "read; else false, where only the end of an empty transaction does",
    ),
    Option(
        name="standby-connection",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_STREAM,
        opengauss=_STREAM,
        dn_only=True,
        treatment=Treatment.OURS,
        meaning="Refuse to decode on a primary.",
        why='`[source] role` says it: true for "standby"',
    ),
    # -------------------------------------------------------- which changes
    Option(
        name="only-local",
        kind=OptionKind.BOOLEAN,
        default="true",
        gaussdb=_ALL,
        opengauss=_ALL,
        treatment=Treatment.SENT,
        removes="changes that reached the source by replication from elsewhere",
        meaning="Leave out changes that came by replication from elsewhere.",
        why="false by default: a copy has them, too",
    ),
    Option(
        name="white-table-list",
        kind=OptionKind.TABLES,
        gaussdb=_ALL,
        opengauss=_ALL,
        removes="tables that are not in the list",
        meaning="The only tables to decode; * for a whole part.",
    ),
    Option(
        name="exclude-users",
        kind=OptionKind.NAMES,
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        removes="changes of these users",
        meaning="Users whose changes are left out.",
    ),
    Option(
        name="exclude-userids",
        kind=OptionKind.OIDS,
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        dn_only=True,
        removes="changes of users with these OIDs",
        meaning="The same by OID.",
    ),
    Option(
        name="dynamic-resolution",
        kind=OptionKind.BOOLEAN,
        default="true",
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        meaning="false: stop where a name in exclude-users is of nobody.",
    ),
    Option(
        name="include-user",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        meaning="BEGIN names the user who logged in.",
    ),
    Option(
        name="include-originid",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_NOWHERE,
        opengauss=_ALL,
        opengauss_since="5.0",
        meaning="BEGIN names the replication origin.",
    ),
    Option(
        name="skip-generated-columns",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        meaning="Leave stored generated columns out of new rows; old rows keep them.",
    ),
    Option(
        name="enable-ddl-decoding",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        meaning="Send DDL.",
    ),
    Option(
        name="enable-ddl-json-format",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        meaning="DDL as JSON, whatever decode-style is.",
    ),
    Option(
        name="decode-sequence",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        meaning="Changes of sequences.",
        why="the server itself takes only false",
    ),
    Option(
        name="timezone-is-utc",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=(T, T, I),
        opengauss=_NOWHERE,
        meaning="Print times with a zone in UTC.",
    ),
    Option(
        name="force-binary",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=(I, R, T),
        opengauss=(I, R, T),
        group=OptionGroup.SERIAL,
        meaning="No meaning in a stream; the text functions take only false.",
    ),
    # -------------------------------------------------------- the session
    Option(
        name="sender-timeout",
        kind=OptionKind.TIME,
        low=0,
        high=2**31 - 1,
        unit="ms",
        default="logical_sender_timeout",
        gaussdb=_STREAM,
        opengauss=_STREAM,
        meaning="The server leaves a client it has not heard for so long; 0: never.",
    ),
    Option(
        name="enable-heartbeat",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_STREAM,
        opengauss=_NOWHERE,
        meaning="Send heartbeats.",
    ),
    Option(
        name="auto-advance",
        kind=OptionKind.BOOLEAN,
        default="false",
        gaussdb=_STREAM,
        opengauss=_NOWHERE,
        treatment=Treatment.REFUSED,
        meaning="The server moves the slot by itself.",
        why="it would move the slot past our last durable cut; only false is taken",
    ),
    # -------------------------------------------------------- memory
    Option(
        name="max-txn-in-memory",
        kind=OptionKind.INTEGER,
        low=0,
        high=100,
        unit="MB",
        default={
            Mode.SERIAL: "0",
            Mode.PARALLEL: "0; GaussDB: max_process_memory / 4",
            Mode.SQL: "0",
        },
        gaussdb=_ALL,
        opengauss=_ALL,
        share=25,
        meaning="A larger transaction is spilled to disk; 0: no such limit. "
        "GaussDB, parallel: up to 25 % of max_process_memory.",
    ),
    Option(
        name="max-reorderbuffer-in-memory",
        kind=OptionKind.INTEGER,
        low=0,
        high=100,
        unit="GB",
        default={
            Mode.SERIAL: "0",
            Mode.PARALLEL: "0; GaussDB: max_process_memory / 2",
            Mode.SQL: "0",
        },
        gaussdb=_ALL,
        opengauss=_ALL,
        share=50,
        meaning="Transactions are spilled when all of them take more; 0: no such limit. "
        "GaussDB, parallel: up to 50 % of max_process_memory.",
    ),
    Option(
        name="desc-memory-limit",
        kind=OptionKind.INTEGER,
        low=10,
        high=1024,
        unit="MB",
        default="100",
        gaussdb=_ALL,
        opengauss=_NOWHERE,
        meaning="Memory for descriptions of tables, beyond which some are dropped.",
    ),
    Option(
        name="change-log-max-len",
        kind=OptionKind.INTEGER,
        low=1,
        high=65535,
        unit="bytes",
        default="4096",
        gaussdb=(I, T, I),
        opengauss=_NOWHERE,
        dn_effect=True,
        meaning="Buffer of one decoded change; not below 1024.",
    ),
    Option(
        name="max-decode-to-sender-cache-num",
        kind=OptionKind.INTEGER,
        low=1,
        high=65535,
        default="4096",
        gaussdb=(I, T, I),
        opengauss=_NOWHERE,
        dn_effect=True,
        meaning="Decoded changes whose memory is used again.",
    ),
    # -------------------------------------------------------- distributed decoding
    Option(
        name="logical-receiver-num",
        kind=OptionKind.INTEGER,
        low=1,
        high=20,
        default="1",
        gaussdb=(T, T, I),
        opengauss=_NOWHERE,
        group=OptionGroup.DISTRIBUTED,
        meaning="Receivers of a coordinator; at most one for each shard.",
    ),
    Option(
        name="slice-id",
        kind=OptionKind.INTEGER,
        low=0,
        high=8192,
        default="-1",
        gaussdb=_STREAM,
        opengauss=_NOWHERE,
        group=OptionGroup.DISTRIBUTED,
        dn_only=True,
        treatment=Treatment.INTERNAL,
        meaning="Number of the shard, for replicated tables.",
        why="sent by a coordinator to its data nodes; the manual advises against it by hand",
    ),
    Option(
        name="start-position",
        kind=OptionKind.POSITION,
        gaussdb=_STREAM,
        opengauss=_NOWHERE,
        group=OptionGroup.DISTRIBUTED,
        dn_only=True,
        treatment=Treatment.INTERNAL,
        meaning="Leave out what stands before this CSN and LSN.",
        why="sent by a coordinator to its data nodes; the manual advises against it by hand",
    ),
)

BY_NAME: Final[Mapping[str, Option]] = {option.name: option for option in OPTIONS}

# sql_decoding of openGauss has a reader of its own, which knows these only.  Even
# parallel-decode-num, which the walsender reads before it, is unknown there.
SQL_DECODING: Final = frozenset(
    {"include-xids", "include-timestamp", "skip-empty-xacts", "only-local"}
)

PLUGINS: Final[Mapping[Product, tuple[str, ...]]] = {
    Product.OPENGAUSS: ("mppdb_decoding", "sql_decoding", "test_decoding"),
    Product.GAUSSDB: (
        "mppdb_decoding",
        "sql_decoding",
        "test_decoding",
        "parallel_binary_decoding",
        "parallel_json_decoding",
        "parallel_text_decoding",
    ),
}
# Plugins that exist for one style of parallel decoding.
DEFAULT_PLUGIN: Final = "mppdb_decoding"
