"""Every decoding option of GaussDB and openGauss, as one table.

Source: GaussDB manual, "Logical Decoding Options"; openGauss' options are from its
source code and a live server.  The documentation's table and all checks are made from
this one: there is no second list of options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Vendor(StrEnum):
    """Whose server it is."""

    OPENGAUSS = "opengauss"
    GAUSSDB = "gaussdb"


class Decoding(StrEnum):
    """How changes are decoded."""

    SERIAL = "serial"  # a stream, parallel-decode-num = 1
    PARALLEL = "parallel"  # a stream, parallel-decode-num = 2..20
    SQL = "sql"  # pg_logical_slot_peek_changes and its like


class Use(Enum):
    """The effect of an option in a mode."""

    TAKEN = "taken"
    IDLE = "its range is checked; it has no effect"
    REFUSED = "refused"


class OptionKind(StrEnum):
    """The type of a value."""

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
    """The manual's chapter of an option, where that matters."""

    GENERAL = "general"
    DISTRIBUTED = "distributed"  # only with output-order = 1
    SERIAL = "serial"
    PARALLEL = "parallel"  # only with parallel-decode-num of 2 and more


Uses = tuple[Use, Use, Use]  # serial, parallel, SQL functions

T, I, R = Use.TAKEN, Use.IDLE, Use.REFUSED  # noqa: E741  a table is read in columns
_ALL: Final[Uses] = (T, T, T)
_STREAM: Final[Uses] = (T, T, R)
_NOWHERE: Final[Uses] = (R, R, R)
_MODES: Final = tuple(Decoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option; `low` and `high` bound an INTEGER or TIME."""

    name: str
    kind: OptionKind
    low: int = 0
    high: int = 0
    unit: str = ""
    default: str | Mapping[Decoding, str] = ""  # the server's; "" = nothing
    gaussdb: Uses
    opengauss: Uses
    opengauss_since: str = ""  # where not all versions have it
    group: OptionGroup = OptionGroup.GENERAL
    dn_only: bool = False  # refused by a coordinator (CN)
    dn_effect: bool = False  # accepted by a coordinator, without any effect
    share: int = 0  # GaussDB, parallel: up to so many percent of max_process_memory instead
    also: str = ""  # a further condition on a value
    treatment: Treatment = Treatment.YOURS
    removes: str = ""  # which changes it omits
    meaning: str
    why: str = ""  # why we treat it so

    def use(self, product: Vendor, mode: Decoding) -> Use:
        """Return its effect."""
        uses = self.gaussdb if product == Vendor.GAUSSDB else self.opengauss
        return uses[_MODES.index(mode)]

    def server_default(self, mode: Decoding) -> str:
        """Return the value that the server uses where none is sent."""
        return self.default if isinstance(self.default, str) else self.default[mode]

    @property
    def range(self) -> str:
        """Its values, for display."""
        match self.kind:
            case OptionKind.BOOLEAN:
                return "true or false"
            case OptionKind.INTEGER | OptionKind.TIME:
                unit = f" {self.unit}" if self.unit else ""
                between = "or" if self.high == self.low + 1 else "to"
                return f"{self.low} {between} {self.high}{unit}{self.also}"
            case _:
                return self.kind.value


_HOLDS_KEYS: Final = "our records name transaction, time and position"

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
        meaning="Decoder threads; 1: serial decoding.",
        why="the server's logical_decode_options_default may say otherwise",
    ),
    Option(
        name="decode-style",
        kind=OptionKind.STYLE,
        default={
            Decoding.SERIAL: "",
            Decoding.PARALLEL: "b, or that of the plugin",
        }
        | {Decoding.SQL: ""},
        gaussdb=(R, T, R),
        opengauss=(R, T, R),
        group=OptionGroup.PARALLEL,
        treatment=Treatment.SENT,
        meaning="Format of parallel decoding: JSON, text or binary.",
        why="b by default, as j ends a value at a zero byte",
    ),
    Option(
        name="sending-batch",
        kind=OptionKind.INTEGER,
        low=0,
        high=1,
        default={Decoding.SERIAL: "", Decoding.PARALLEL: "0", Decoding.SQL: ""},
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
        default={Decoding.SERIAL: "", Decoding.PARALLEL: "128", Decoding.SQL: ""},
        gaussdb=(R, T, R),
        opengauss=(R, T, R),
        group=OptionGroup.PARALLEL,
        also=", a power of two",
        meaning="Length of the queue between decoder threads; costs memory.",
    ),
    Option(
        name="output-order",
        kind=OptionKind.INTEGER,
        low=0,
        high=1,
        default="0",
        gaussdb=(T, T, I),
        opengauss=_NOWHERE,
        meaning="0: by commit LSN; 1: by CSN, with a slot made for that.",
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
        default={
            Decoding.SERIAL: "true",
            Decoding.PARALLEL: "false",
            Decoding.SQL: "true",
        },
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
        why="true only in serial decoding of a stream: keepalives tell an idle source's place",
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
        why='true where `[source] role` is "standby"',
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
        meaning="Leave out changes that came by replication.",
        why="false by default",
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
        meaning="false: stop where a name in exclude-users does not exist.",
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
        why="the server accepts only false",
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
        meaning="No meaning in a stream; the text functions accept only false.",
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
        meaning="The server disconnects a client that is silent for longer; 0: never.",
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
        why="it would move the slot past our last durable cut",
    ),
    # -------------------------------------------------------- memory
    Option(
        name="max-txn-in-memory",
        kind=OptionKind.INTEGER,
        low=0,
        high=100,
        unit="MB",
        default={
            Decoding.SERIAL: "0",
            Decoding.PARALLEL: "0; GaussDB: max_process_memory / 4",
            Decoding.SQL: "0",
        },
        gaussdb=_ALL,
        opengauss=_ALL,
        share=25,
        meaning="A larger transaction is spilled to disk; 0: no limit. "
        "GaussDB, parallel: up to 25 % of max_process_memory.",
    ),
    Option(
        name="max-reorderbuffer-in-memory",
        kind=OptionKind.INTEGER,
        low=0,
        high=100,
        unit="GB",
        default={
            Decoding.SERIAL: "0",
            Decoding.PARALLEL: "0; GaussDB: max_process_memory / 2",
            Decoding.SQL: "0",
        },
        gaussdb=_ALL,
        opengauss=_ALL,
        share=50,
        meaning="Transactions are spilled when all of them take more; 0: no limit. "
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
        meaning="Decoded changes whose memory is reused.",
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
        meaning="Shard, for replicated tables.",
        why="a coordinator sends it",
    ),
    Option(
        name="start-position",
        kind=OptionKind.POSITION,
        gaussdb=_STREAM,
        opengauss=_NOWHERE,
        group=OptionGroup.DISTRIBUTED,
        dn_only=True,
        treatment=Treatment.INTERNAL,
        meaning="Omit what precedes this CSN and LSN.",
        removes="changes before that position",
        why="a coordinator sends it",
    ),
)

BY_NAME: Final[Mapping[str, Option]] = {option.name: option for option in OPTIONS}

# sql_decoding of openGauss parses its own options, and has only these: not even
# parallel-decode-num, which the walsender reads before.
SQL_DECODING: Final = frozenset(
    {"include-xids", "include-timestamp", "skip-empty-xacts", "only-local"}
)

PLUGINS: Final[Mapping[Vendor, tuple[str, ...]]] = {
    Vendor.OPENGAUSS: ("mppdb_decoding", "sql_decoding", "test_decoding"),
    Vendor.GAUSSDB: (
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
