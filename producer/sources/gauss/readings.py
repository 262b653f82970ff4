"""What `check` and the start of `run` read from openGauss and GaussDB, in one place.

Only SQL and its answers; their meaning is in `producer/sources/gauss/checks/` and
`producer/sources/gauss/options/`.  Columns that not every version has are looked up
first.  It requires an ordinary session: some queries may be refused, and a
replication session does not survive that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from producer.errors import ConnectionLost, SourceError
from producer.sources import patterns
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import gaps
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.gaps import DecodingMode
from producer.sources.gauss.options import Effective, ServerFacts
from producer.sources.gauss.server import QUESTION, Product, Server, parse_server
from producer.sources.gauss.slots import OpenTransaction, SlotReading
from producer.sources.gauss.system_schemas import is_system_schema
from producer.sources.session import Asks
from schemas.positions import NOWHERE, Lsn, parse_lsn
from schemas.quoting import constant, one_of
from schemas.tables import TableId, TableSchema

# Settings that the rules use; pg_settings' units.
SETTINGS: Final = (
    *("wal_level", "ssl", "max_replication_slots", "max_wal_senders", "enable_thread_pool"),
    *("enableSeparationOfDuty", "enable_logical_replication_ddl", "enable_data_replicate"),
    *("enable_xlog_prune", "enable_logicalrepl_xlog_prune", "max_size_for_xlog_retention"),
    *("wal_keep_segments", "max_files_per_process", "max_process_memory"),
    *("logical_sender_timeout", "logical_decode_options_default"),
    *("synchronous_commit", "synchronous_standby_names", "most_available_sync"),
    "enable_slot_log",  # openGauss: standbys have logical slots, too
)
_COLUMNS: Final = re.compile(r"orientation *= *(column|orc)", re.IGNORECASE)
_USTORE: Final = re.compile(r"storage_type *= *ustore", re.IGNORECASE)


class ReadingSession(Protocol):
    """An ordinary session."""

    @property
    def is_encrypted(self) -> bool:
        """By TLS."""

    def query(self, sql: str) -> list[list[str | None]]:
        """Run one statement; raises SourceError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleReading:
    """Our role at the source."""

    name: str
    is_initial: bool = False  # the user that the installation created
    has_replication: bool = False
    is_system_admin: bool = False
    is_member: bool = False  # of gs_role_replication


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """How a table is stored, besides its shape."""

    id: TableId
    persistence: str = "p"  # p logged, u unlogged, g global temporary, t temporary
    is_columnar: bool = False
    is_ustore: bool = False
    is_interval: bool = False  # partitions that are created as rows need them
    is_ledger: bool = False  # of a tamper-proof schema
    has_system_key: bool = False  # its primary key has a system column
    shape: TableSchema | None = None  # None: not captured


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Everything that the rules use."""

    server: Server
    settings: Mapping[str, str] = field(default_factory=dict)
    is_encrypted: bool = True
    role: RoleReading
    slots: tuple[SlotReading, ...] = ()
    standbys: int = 0  # configured: replconninfo1, 2, …
    senders: int = 0  # walsenders that run
    wal_end: Lsn = NOWHERE
    open_transactions: tuple[OpenTransaction, ...] = ()  # that a new slot would wait for
    tables: tuple[TableReading, ...] = ()  # that match [tables]
    node: str = ""  # "CN", "DN"; "" centralized, or unknown
    shards: int | None = None

    def slot(self, name: str) -> SlotReading | None:
        """Find one of the slots."""
        return next((slot for slot in self.slots if slot.name == name), None)

    def number(self, setting: str) -> int | None:
        """Give a setting that is a number; None where the server lacks it."""
        text = self.settings.get(setting, "")
        return int(text) if re.fullmatch(r"-?\d+", text) else None

    def is_on(self, setting: str) -> bool | None:
        """Give a setting that is on or off; None where the server lacks it."""
        text = self.settings.get(setting)
        return None if text is None else text == "on"

    def facts(self, slot: str) -> ServerFacts:
        """Return what the rules of decoding options use."""
        ours = self.slot(slot)
        has_csn = self.server.has_csn_slots
        return ServerFacts(
            version=self.server.number or None,
            is_standby=not self.server.is_primary,
            node=self.node,
            shards=self.shards,
            max_process_memory_kb=self.number("max_process_memory"),
            sender_timeout_ms=self.number("logical_sender_timeout"),
            default_options=self.settings.get("logical_decode_options_default"),
            has_slot=ours is not None,
            confirmed_csn=(ours.confirmed_csn or 0) if ours is not None and has_csn else None,
            ddl_is_logged=self.is_on("enable_logical_replication_ddl"),
        )


def read_server(
    session: ReadingSession, slot: str, server: Server, node_of_it: tuple[str, int | None]
) -> ServerFacts:
    """Read only what the rules of decoding options use, before START_REPLICATION."""
    node, shards = node_of_it
    found = gauss_slots.find(session, slot)
    readings = Readings(
        server=server,
        settings=gauss_catalog.settings(session, SETTINGS),
        role=RoleReading(name=""),
        slots=() if found is None else (found,),
        node=node,
        shards=shards,
    )
    return readings.facts(slot)


def read(session: ReadingSession, include: Sequence[str], exclude: Sequence[str]) -> Readings:
    """Read it all; raises SourceError, ConnectionLost."""
    server = parse_server(session.query(QUESTION))
    node, shards = node_of(session, server)
    standbys, senders = _counts(session)
    return Readings(
        server=server,
        settings=gauss_catalog.settings(session, SETTINGS),
        is_encrypted=session.is_encrypted,
        role=_role(session),
        slots=tuple(gauss_slots.slots(session)),
        standbys=standbys,
        senders=senders,
        wal_end=wal_end(session),
        open_transactions=tuple(gauss_slots.blockers(session)),
        tables=_tables(session, include, exclude),
        node=node,
        shards=shards,
    )


def decoding_mode(session: ReadingSession, decided: Effective) -> DecodingMode:
    """Return the mode of a stream; openGauss decodes DDL where a publication says so."""
    mode = gaps.decoding_mode(decided)
    return mode if mode.is_gaussdb else replace(mode, decodes_ddl=publishes_ddl(session))


def publishes_ddl(session: ReadingSession) -> bool:
    """Say whether openGauss logs DDL for decoding: a publication with `ddl` exists.

    From version 6 on; the plugins print it whatever publication a client names.
    """
    if "pubddl" not in _columns(session, "pg_publication"):
        return False
    return bool(session.query("SELECT 1 FROM pg_catalog.pg_publication WHERE pubddl <> 0 LIMIT 1"))


def wal_end(session: Asks) -> Lsn:
    """Where the next record of the log is put, on a standby the end of replay.

    Everything committed before is below: what is written may lag behind that.
    """
    in_recovery = session.query("SELECT pg_is_in_recovery()") == [["t"]]
    names = ("pg_last_xlog_replay_location", "pg_last_wal_replay_lsn")
    if not in_recovery:
        names = ("pg_current_xlog_insert_location", "pg_current_wal_insert_lsn")
    rows = session.query(
        f"SELECT DISTINCT proname FROM pg_catalog.pg_proc WHERE proname IN {one_of(names)}"  # noqa: S608  quoted
        " ORDER BY proname DESC"  # PostgreSQL's name, which a compatible server may have, too, last
    )
    at = session.query(f"SELECT pg_catalog.{rows[0][0]}()::text")[0][0]
    return parse_lsn(at or "0/0")


def next_xid(session: Asks) -> int | None:
    """An id behind all that have ended; None where the server does not say it.

    Transactions that run may have it, or greater ones.
    """
    try:
        rows = session.query("SELECT txid_snapshot_xmax(txid_current_snapshot())::text")
    except ConnectionLost:
        raise
    except SourceError:
        return None
    return int(rows[0][0] or 0) or None


def _role(session: ReadingSession) -> RoleReading:
    admin = "rolsystemadmin" if "rolsystemadmin" in _columns(session, "pg_roles") else "false"
    name, initial, replication, is_admin = session.query(
        f"SELECT rolname, rolsuper, rolreplication, {admin}"  # noqa: S608  a column
        " FROM pg_catalog.pg_roles WHERE rolname = current_user"
    )[0]
    try:
        member = session.query("SELECT pg_has_role('gs_role_replication', 'member')")[0][0]
    except ConnectionLost:
        raise
    except SourceError:  # no such role in older versions
        member = "f"
    return RoleReading(
        name=name or "",
        is_initial=initial == "t",
        has_replication=replication == "t",
        is_system_admin=is_admin == "t",
        is_member=member == "t",
    )


def _counts(session: ReadingSession) -> tuple[int, int]:
    standbys, senders = session.query(
        "SELECT (SELECT count(*) FROM pg_catalog.pg_settings"
        " WHERE name ~ '^replconninfo[0-9]+$' AND setting <> ''),"
        " (SELECT count(*) FROM pg_catalog.pg_stat_replication)"
    )[0]
    return int(standbys or 0), int(senders or 0)


def node_of(session: ReadingSession, server: Server) -> tuple[str, int | None]:
    """Which node of a distributed GaussDB we are at, "CN" or "DN", and how many shards it has."""
    if server.product is not Product.GAUSSDB:
        return "", None
    try:
        if session.query("SELECT gs_deployment()")[0][0] != "Distribute":
            return "", None
    except ConnectionLost:
        raise
    except SourceError:  # not in older kernels
        return "", None
    rows = session.query(
        "SELECT (SELECT node_type::text FROM pg_catalog.pgxc_node WHERE node_name ="
        " (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'pgxc_node_name')),"
        " (SELECT count(*) FROM pg_catalog.pgxc_node WHERE node_type = 'D')"
    )
    kind, shards = rows[0]
    return {"C": "CN", "D": "DN"}.get(kind or "", ""), int(shards or 0) or None


def _tables(
    session: ReadingSession, include: Sequence[str], exclude: Sequence[str]
) -> tuple[TableReading, ...]:
    """Tables that match the patterns, captured or not."""
    wanted = [patterns.parse(text) for text in include]
    unwanted = [patterns.parse(text) for text in exclude]
    interval = ledger = "false"
    if _columns(session, "pg_partition"):
        interval = (
            "EXISTS (SELECT 1 FROM pg_catalog.pg_partition p WHERE p.parentid = c.oid"
            " AND p.parttype = 'r' AND p.partstrategy = 'i')"
        )
    if "nspblockchain" in _columns(session, "pg_namespace"):
        ledger = "n.nspblockchain"
    rows = session.query(
        "SELECT n.nspname, c.relname, c.relpersistence::text,"  # noqa: S608  no value in it
        " coalesce(array_to_string(c.reloptions, ','), ''),"
        f" {interval}, coalesce({ledger}, false),"
        " EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid"
        " AND i.indisprimary AND i.indkey::text ~ '-')"
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') ORDER BY 1, 2"
    )
    found = []
    for schema, name, persistence, stored, is_interval, is_ledger, system_key in rows:
        table = TableId(schema or "", name or "")
        if (
            is_system_schema(table.schema)
            or not any(pattern.matches(table) for pattern in wanted)
            or any(pattern.matches(table) for pattern in unwanted)
        ):
            continue
        found.append(
            TableReading(
                id=table,
                persistence=persistence or "p",
                is_columnar=_COLUMNS.search(stored or "") is not None,
                is_ustore=_USTORE.search(stored or "") is not None,
                is_interval=is_interval == "t",
                is_ledger=is_ledger == "t",
                has_system_key=system_key == "t",
            )
        )
    captured = [one.id for one in found if one.persistence == "p" and not one.is_columnar]
    shapes = {shape.id: shape for shape in gauss_catalog.table_schemas(session, captured)}
    return tuple(replace(one, shape=shapes.get(one.id)) for one in found)


def _columns(session: ReadingSession, relation: str) -> set[str]:
    """Names of a catalog's columns; empty where there is no such catalog."""
    rows = session.query(
        "SELECT a.attname FROM pg_catalog.pg_attribute a"  # noqa: S608  quoted
        " JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = 'pg_catalog' AND c.relname = {constant(relation)} AND a.attnum > 0"
    )
    return {row[0] or "" for row in rows}
