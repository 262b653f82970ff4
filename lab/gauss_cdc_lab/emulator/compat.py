"""What a GaussDB client asks of SQL that PostgreSQL has not: one schema, one list of names.

`compat.sql` makes the schema `gauss_compat` in a database; `rewrite` sends the names
of `FUNCTIONS` and `VIEWS` there, whether qualified with pg_catalog or not, and
answers SHOW for settings that only GaussDB has.  Nothing else of a statement is
touched: literals, quoted names and comments are skipped.

Every table is made REPLICA IDENTITY FULL below, so that old keys and unchanged
TOAST values are in the log as openGauss has them; what was declared is kept in
`declared` and shown by the view of pg_class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final, NamedTuple

from gauss_cdc_lab.emulator.frames import ErrorResponse
from gauss_cdc_lab.emulator.quoting import literal
from schemas.positions import NOWHERE, Lsn, parse_lsn

SCHEMA: Final = "gauss_compat"
PUBLICATION: Final = "gauss_compat"
DDL_PREFIX: Final = "gauss_compat.ddl"
RESULT: Final = "gauss_compat.changes"  # a session setting: rows of peek and get, as JSON

# As on a server with its default configuration; `Product.settings` adds and overrides.
SETTINGS: Final = {
    "logical_sender_timeout": "30000",
    "wal_sender_timeout": "6000",
    "enable_thread_pool": "on",
    "ssl": "on",
    "max_process_memory": "12582912",
    "enable_logical_replication_ddl": "on",
    "enable_xlog_prune": "on",
    "enable_logicalrepl_xlog_prune": "off",
    "max_size_for_xlog_retention": "0",
    "max_size_for_xlog_prune": "2147483647",
    "max_files_per_process": "1000",
    "recovery_parse_workers": "1",
    "session_timeout": "600",
    "sql_compatibility": "PG",
    "server_version": "9.2.4",
    "server_version_num": "90204",
    "pgxc_node_name": "dn_6001",
    "gauss_compat.shards": "0",
}

VIEWS: Final = frozenset(
    {
        *("pg_class", "pg_index", "pg_attribute", "pg_type", "pg_database"),
        *("pg_settings", "pg_replication_slots", "pgxc_node", "pg_stat_activity"),
    }
)
FUNCTIONS: Final = frozenset(
    {
        *("version", "opengauss_version", "gs_deployment", "current_setting", "format_type"),
        *("current_database", "txid_current", "txid_current_snapshot", "pg_terminate_session"),
        *("pg_current_xlog_location", "pg_current_xlog_insert_location", "pg_xlog_location_diff"),
        *("pg_get_replication_slots", "pg_create_logical_replication_slot"),
        *("pg_drop_replication_slot", "pg_replication_slot_advance"),
        *("pg_logical_slot_peek_changes", "pg_logical_slot_get_changes"),
        *("pg_logical_slot_peek_binary_changes", "pg_logical_slot_get_binary_changes"),
    }
)

_INSTALL: Final = "compat.sql"

# On GaussDB a slot also has its CSN; openGauss' view has no such column.
_SLOTS_VIEW: Final = """
DROP VIEW IF EXISTS gauss_compat.pg_replication_slots;
CREATE VIEW gauss_compat.pg_replication_slots AS
SELECT r.slot_name, r.plugin, r.slot_type, r.datoid, CASE d.datname
       WHEN pg_catalog.current_database() THEN gauss_compat.current_database()
       ELSE d.datname END AS database, r.active, r.xmin, r.catalog_xmin, r.restart_lsn,
       r.dummy_standby, r.confirmed_flush{}
FROM gauss_compat.pg_get_replication_slots() r LEFT JOIN pg_database d ON d.oid = r.datoid
LEFT JOIN gauss_compat.plugins p USING (slot_name);
"""
_CSN: Final = """,
       CASE p.output_order WHEN 1 THEN
       trunc((r.confirmed_flush::pg_lsn - '0/0'::pg_lsn) / 8)::text::xid END AS confirmed_csn"""


def install(settings: Mapping[str, str], *, is_gaussdb: bool) -> str:
    """The statements that prepare a database; may be run again."""
    values = ", ".join(f"({literal(name)}, {literal(text)})" for name, text in settings.items())
    known = (
        f"INSERT INTO gauss_compat.settings VALUES {values}"  # noqa: S608  quoted
        " ON CONFLICT (name) DO UPDATE SET setting = excluded.setting;"
    )
    script = (resources.files(__package__) / _INSTALL).read_text(encoding="utf-8")
    return script + _SLOTS_VIEW.format(_CSN if is_gaussdb else "") + (known if values else "")


class SlotCall(NamedTuple):
    """A call that drops a slot, or moves it; `upto` 0 is as far as there is."""

    slot: str
    upto: Lsn | None = None  # None: drop it


class ChangesCall(NamedTuple):
    """A call of peek or get."""

    slot: str
    upto_lsn: Lsn | None
    upto_changes: int | None
    options: tuple[tuple[str, str | None], ...]
    is_binary: bool
    is_get: bool


_TOKEN: Final = re.compile(
    r"""(?P<skip> '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/
                | \$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$ )
      | (?<![\w.\"])(?P<path>(?:pg_catalog\s*\.\s*)?)(?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_REGCLASS: Final = re.compile(r"'(?:pg_catalog\.)?(\w+)'")
_CALL: Final = re.compile(
    r"\bpg_logical_slot_(?P<what>peek|get)_(?P<binary>binary_)?changes\s*\((?P<args>[^()]*)\)",
    re.IGNORECASE,
)
_CHANGE: Final = re.compile(
    r"\bpg_(?:(?P<drop>drop_replication_slot)|replication_slot_advance)\s*"
    r"\(\s*'(?P<slot>[^']*)'\s*(?:,\s*(?:'(?P<upto>[^']*)'|null)\s*)?\)",
    re.IGNORECASE,
)
_ARGUMENT: Final = re.compile(
    r"\s*(?:'(?P<text>(?:[^']|'')*)'(?:\s*::\s*\w+)?|(?P<number>\d+)|(?P<null>null))\s*",
    re.IGNORECASE,
)
_SHOW: Final = re.compile(r"\s*SHOW\s+([A-Za-z_]\w*)\s*;?\s*", re.IGNORECASE)


def rewrite(text: str, settings: Mapping[str, str]) -> str:
    """The statement as PostgreSQL with `gauss_compat` understands it."""
    shown = _SHOW.fullmatch(text)
    if shown is not None and (value := settings.get(shown[1].lower())) is not None:
        return f'SELECT {literal(value)}::text AS "{shown[1].lower()}"'

    def replaced(found: re.Match[str]) -> str:
        behind = found.string[found.end() :].lstrip()
        if found["skip"] is not None:
            named = _REGCLASS.fullmatch(found[0])
            if named and behind.startswith("::regclass") and named[1].lower() in VIEWS:
                return f"'{SCHEMA}.{named[1].lower()}'"
            return found[0]
        name, behind = found["name"].lower(), behind[:1]
        if (name in FUNCTIONS and behind == "(") or (name in VIEWS and behind not in {"(", "."}):
            return f"{SCHEMA}.{name}"
        return found[0]

    return _TOKEN.sub(replaced, text)


def slot_change(text: str) -> SlotCall | None:
    """The call in a statement that drops or moves a slot."""
    if (call := _CHANGE.search(text)) is None:
        return None
    if call["drop"]:
        return SlotCall(call["slot"])
    return SlotCall(call["slot"], parse_lsn(call["upto"]) if call["upto"] else NOWHERE)


def changes_asked(text: str) -> ChangesCall | None:
    """The call of peek or get in a statement; Refused if it cannot be answered ahead."""
    if "pg_logical_slot_" not in text.lower():
        return None
    calls = list(_CALL.finditer(text))
    if not calls:
        return None
    if len(calls) > 1:
        raise ErrorResponse("the emulator answers one call of peek or get in a statement", "0A000")
    call = calls[0]
    values: list[str | None] = []
    at, args = 0, call["args"]
    while at < len(args):
        found = _ARGUMENT.match(args, at)
        if found is None or args[found.end() : found.end() + 1] not in {"", ","}:
            raise ErrorResponse(
                "the emulator needs constants as arguments of peek and get", "0A000"
            )
        quoted = found["text"]
        values.append(quoted.replace("''", "'") if quoted is not None else found["number"])
        at = found.end() + 1
    if len(values) < 3:
        raise ErrorResponse("function pg_logical_slot_changes does not exist", "42883")
    slot, upto, count, *rest = values
    if slot is None:
        raise ErrorResponse("slot name must not be null", "22004")
    if rest == [None]:
        rest = []
    if len(rest) % 2:
        raise ErrorResponse("array must have even number of elements", "0A000")
    names = rest[::2]
    if any(name is None for name in names):
        raise ErrorResponse("array must not contain nulls", "22004")
    return ChangesCall(
        slot=slot,
        upto_lsn=parse_lsn(upto) if upto is not None else None,
        upto_changes=int(count) if count is not None else None,
        options=tuple((str(name), value) for name, value in zip(names, rest[1::2], strict=True)),
        is_binary=call["binary"] is not None,
        is_get=call["what"].lower() == "get",
    )
