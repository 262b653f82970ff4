"""The records in which the event triggers of a PostgreSQL source describe a statement.

JSON in a row of the statement's own transaction, written by
`producer/sources/postgres/triggers/ddl_triggers.sql` into a table that only its owner can write.
`end`: the objects after a statement; `drop`: what it dropped; `gap`: what could not
be described; `install` and `uninstall`: the range in which every statement is
described.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from operator import itemgetter
from typing import Any, Final

from producer.core.catalog.catalog_rows import PlainIndex, as_sent, table_schema, user_types
from producer.errors import DecodeError
from schemas.encodings import is_text
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema

CHANNEL: Final = "ddl_log"  # the table, in our own schema
COLUMNS: Final = ("id", "body")
_VERSION: Final = 1

# Why a table was rewritten: bits of pg_event_trigger_table_rewrite_reason().
BY_LOGGING: Final = 1  # SET UNLOGGED or SET LOGGED: changes before or after it are not in the log
BY_TYPE: Final = 4  # a column's values were converted


class Trust(Enum):
    """Who writes to a table that has the name of our channel."""

    OURS = auto()  # our triggers, and no other role
    UNKNOWN = auto()  # unknown: the table is gone, or others may write to it
    FOREIGN = auto()  # the table is another owner's: its rows are ignored


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """A table after the statement."""

    table: TableSchema  # as pgoutput describes it: without generated columns
    persistence: str  # pg_class.relpersistence: "p" is logged, "u" is not
    is_partition: bool
    publications: frozenset[str]
    is_empty: bool = False  # known to have no rows, so none with a value that was not sent
    space: int = 0  # oid of the schema, which may be renamed before this transaction commits
    stored: frozenset[int] = frozenset()  # columns that this statement made ordinary
    loose: str = ""  # a key that some partition lacks: rows may be equal in it
    is_text: bool = True  # false: a database without an encoding has names that are not text


@dataclass(frozen=True, slots=True)
class Command:
    """A row of pg_event_trigger_ddl_commands()."""

    tag: str
    kind: str  # object_type: table, index, view, ...
    schema: str | None
    identity: str
    oid: int
    definition: str | None  # its definition, by pg_get_…def()


@dataclass(frozen=True, slots=True)
class DroppedObject:
    """A row of pg_event_trigger_dropped_objects()."""

    kind: str
    schema: str | None
    name: str | None
    identity: str
    oid: int
    is_original: bool
    root: int | None  # of a partition: its parent
    bound: str | None  # and the rows that belonged to it


@dataclass(frozen=True, slots=True)
class TriggerMessage:
    """One record."""

    event: str  # end | drop | gap | install | uninstall
    tag: str = ""
    sql: str | None = None  # the client's text, which may hold more than this statement
    settings: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[RecordedTable, ...] = ()
    commands: tuple[Command, ...] = ()
    dropped: tuple[DroppedObject, ...] = ()
    attached: tuple[tuple[int, int], ...] = ()  # partition, root
    detached: tuple[tuple[int, int, str | None], ...] = ()  # partition, root, its bound
    rewritten: int = 0  # reasons, of all tables of the statement
    joined: Mapping[int, bool] = field(default_factory=dict)  # oid -> has older rows
    via_root: bool = True  # a partition's rows are published as its root's
    is_top: bool = False  # a statement of the client's text, not of a function
    is_plain: bool = False  # and no USING in all of that text
    casts: frozenset[tuple[int, int]] = frozenset()  # created by users, and used implicitly
    spaces: tuple[tuple[int, str], ...] = ()  # schemas that the statement made or renamed
    unknown: tuple[int, ...] | None = None  # tables of a gap; None: all of them
    # Storage files that it replaced: oid, file before (0: not told), file after (0: it hides rows).
    files: tuple[tuple[int, int, int], ...] = ()


def read(content: bytes) -> TriggerMessage:
    """Read a record; raise DecodeError where it cannot be read, or is of a newer release."""
    try:
        raw = json.loads(content.decode("utf-8", "surrogateescape"))
        if raw["version"] != _VERSION:
            raise DecodeError(
                "schema changes recorded by triggers of another release",
                version=raw["version"],
                ours=_VERSION,
                hint="run `gauss-cdc ddl install` of this release",
            )
        message = TriggerMessage(
            event=raw["event"],
            tag=raw.get("tag", ""),
            sql=raw.get("sql"),
            settings=raw.get("settings", {}),
            tables=tuple(map(shape, raw.get("tables", ()))),
            commands=tuple(Command(*c) for c in raw.get("commands", ())),
            dropped=tuple(DroppedObject(*d) for d in raw.get("dropped", ())),
            attached=tuple((p, root) for p, root in raw.get("attached", ())),
            detached=tuple((p, root, bound) for p, root, bound in raw.get("detached", ())),
            rewritten=_reasons(raw.get("rewritten", ())),
            joined=dict(raw.get("joined", ())),
            via_root=raw.get("via_root", True),
            is_top=raw.get("top") is True,
            is_plain=raw.get("plain") is True,
            casts=frozenset((source, target) for source, target in raw.get("casts", ())),
            spaces=tuple((oid, name) for oid, name in raw.get("spaces", ())),
            unknown=tuple(raw["oids"]) if raw.get("oids") else None,
            files=tuple(_files(raw.get("files", ()), raw.get("rewritten", ()))),
        )
        return message if is_text(json.dumps(raw, ensure_ascii=False)) else _legible(message)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DecodeError("an unreadable record of our triggers") from error


def _legible(message: TriggerMessage) -> TriggerMessage:
    """Remove what is not text: names and constants of a database without an encoding."""
    return replace(
        message,
        sql=None,
        commands=tuple(c for c in message.commands if is_text(f"{c.identity}{c.definition}")),
        dropped=tuple(
            replace(d, bound=d.bound if is_text(d.bound or "") else None)
            for d in message.dropped
            if d.kind == "table" or is_text(d.identity)
        ),
        detached=tuple((p, r, b if is_text(b or "") else None) for p, r, b in message.detached),
        spaces=tuple((oid, name) for oid, name in message.spaces if is_text(name)),
    )


def shape(raw: Mapping[str, Any]) -> RecordedTable:
    """Read the result of gauss_cdc.ddl_look()."""
    said = {oid: tuple(rest) for oid, *rest in raw["types"]}
    made = user_types(said, [c[1] for c in raw["columns"]])
    columns = [
        Column(
            name=name,
            type_oid=oid,
            type_mod=mod,
            type_name=type_name,
            nullable=nullable,
            generated=generated,
            identity=identity,
            missing=missing if listed is None else listed,
            has_default=has_default,
            user_type=made.get(oid),
            number=number,
            default=default,
        )
        for (
            name, oid, mod, type_name, nullable, generated, identity, missing, has_default, number,
            default, listed,
        ) in raw["columns"]
    ]  # fmt: skip
    names = {column.number: column.name for column in columns}
    indexes = [
        # Triggers of releases before column numbers record names.
        PlainIndex(name, tuple(n if isinstance(n, str) else names[n] for n in numbers), *flags)
        for name, numbers, *flags in sorted(raw["indexes"], key=itemgetter(0))
    ]
    table = table_schema(
        TableId(raw["schema"], raw["name"]), ReplicaIdentity(raw["identity"]), columns, indexes
    )
    return RecordedTable(
        replace(as_sent(table), oid=raw["oid"]),
        raw["persistence"],
        raw["is_partition"],
        frozenset(raw["publications"]),
        is_empty=bool(raw.get("empty")),
        space=raw.get("space", 0),
        stored=frozenset(raw.get("stored", ())),
        loose=_loose(table, indexes) if raw.get("kind") == "p" else "",
        is_text=is_text(json.dumps(raw, ensure_ascii=False)),
    )


def _loose(table: TableSchema, indexes: list[PlainIndex]) -> str:
    by_index = table.replica_identity is ReplicaIdentity.INDEX
    keys = (i for i in indexes if (i.is_identity if by_index else i.is_primary))
    return next((key.name for key in keys if not key.is_unique), "")


def _reasons(reasons: Any) -> int:
    """Join `oid:reason` of all tables: a partitioned one's own leaves are rewritten, not it."""
    out = 0
    for _, _, reason in map(_parted, reasons):
        out |= int(reason)
    return out


def _parted(reason: str) -> tuple[str, str, str]:
    return reason.partition(":")


def _files(files: Any, reasons: Any) -> Iterator[tuple[int, int, int]]:
    """Yield the files of a statement; no statement tells what was done to an unlogged table."""
    hiding = {oid for oid, _, reason in map(_parted, reasons) if int(reason) & BY_LOGGING}
    for oid, was, now in files:
        yield oid, was, 0 if str(oid) in hiding else now
