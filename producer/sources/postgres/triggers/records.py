"""What the event triggers of a PostgreSQL source say about a statement.

JSON in a row of the statement's own transaction, written by
`producer/sources/postgres/triggers/ddl_triggers.sql` into a table that only its owner can write.
`end`: what stands there after a statement; `drop`: what it dropped; `gap`: what
could not be described; `install` and `uninstall`: from where to where every
statement is described.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from operator import itemgetter
from typing import Any, Final

from producer.core.catalog_rows import Index, as_sent, table_schema, user_types
from producer.errors import DecodeError
from schemas.encodings import is_text
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema

CHANNEL: Final = "ddl_log"  # the table, in our own schema
COLUMNS: Final = ("id", "body")
_VERSION: Final = 1

# Why a table was rewritten: a bit of pg_event_trigger_table_rewrite_reason().
BY_TYPE: Final = 4  # a column's values were converted


class Trust(Enum):
    """Who wrote what comes by a table that is named as our channel."""

    OURS = auto()  # our triggers, and nobody else can
    UNKNOWN = auto()  # nobody can tell any more: the table is gone, or others may write it
    FOREIGN = auto()  # the table is somebody else's: nothing in it means anything


@dataclass(frozen=True, slots=True)
class Shape:
    """A table after the statement."""

    table: TableSchema  # as pgoutput describes it: without generated columns
    persistence: str  # pg_class.relpersistence: "p" stands in the log, "u" does not
    is_partition: bool
    publications: frozenset[str]
    is_empty: bool = False  # known to have no rows: none has a value that nobody sent
    space: int = 0  # oid of the schema, which may get another name before this one commits
    stored: frozenset[int] = frozenset()  # columns that this statement made ordinary ones
    is_text: bool = True  # all of it: a database without an encoding has other names, too


@dataclass(frozen=True, slots=True)
class Command:
    """A row of pg_event_trigger_ddl_commands()."""

    tag: str
    kind: str  # object_type: table, index, view, ...
    schema: str | None
    identity: str
    oid: int
    definition: str | None  # what makes it anew, by pg_get_…def()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row of pg_event_trigger_dropped_objects()."""

    kind: str
    schema: str | None
    name: str | None
    identity: str
    oid: int
    is_original: bool
    root: int | None  # of a partition: whose it was
    bound: str | None  # and which of its rows stood there


@dataclass(frozen=True, slots=True)
class TriggerMessage:
    """One record."""

    event: str  # end | drop | gap | install | uninstall
    tag: str = ""
    sql: str | None = None  # the client's text, which may hold more than this statement
    settings: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[Shape, ...] = ()
    commands: tuple[Command, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    attached: tuple[tuple[int, int], ...] = ()  # partition, root
    detached: tuple[tuple[int, int, str | None], ...] = ()  # partition, root, its bound
    rewritten: int = 0  # reasons, of all tables of the statement
    joined: Mapping[int, bool] = field(default_factory=dict)  # oid -> has rows from before
    via_root: bool = True  # a partition's rows are published as its root's
    is_top: bool = False  # a statement of the client's text itself, and of no function
    is_plain: bool = False  # and no USING in all of that text
    casts: frozenset[tuple[int, int]] = frozenset()  # made by users, and used without being named
    spaces: tuple[tuple[int, str], ...] = ()  # schemas that the statement made or renamed
    unknown: tuple[int, ...] | None = None  # tables of a gap; None: all of them


def read(content: bytes) -> TriggerMessage:
    """Read a record; raise DecodeError where it cannot be read, or is of a newer release."""
    try:
        raw = json.loads(content.decode("utf-8", "surrogateescape"))
        if raw["version"] != _VERSION:
            raise DecodeError(
                "schema changes told by triggers of another release",
                version=raw["version"],
                ours=_VERSION,
                hint="run `gauss-cdc ddl install` of this release",
            )
        told = TriggerMessage(
            event=raw["event"],
            tag=raw.get("tag", ""),
            sql=raw.get("sql"),
            settings=raw.get("settings", {}),
            tables=tuple(map(shape, raw.get("tables", ()))),
            commands=tuple(Command(*c) for c in raw.get("commands", ())),
            dropped=tuple(Dropped(*d) for d in raw.get("dropped", ())),
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
        )
        return told if is_text(json.dumps(raw, ensure_ascii=False)) else _legible(told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DecodeError("a record of our triggers that cannot be read") from error


def _legible(told: TriggerMessage) -> TriggerMessage:
    """Leave out what is no text: names and constants of a database without an encoding."""
    return replace(
        told,
        sql=None,
        commands=tuple(c for c in told.commands if is_text(f"{c.identity}{c.definition}")),
        dropped=tuple(
            replace(d, bound=d.bound if is_text(d.bound or "") else None)
            for d in told.dropped
            if d.kind == "table" or is_text(d.identity)
        ),
        detached=tuple((p, r, b if is_text(b or "") else None) for p, r, b in told.detached),
        spaces=tuple((oid, name) for oid, name in told.spaces if is_text(name)),
    )


def shape(raw: Mapping[str, Any]) -> Shape:
    """Read what gauss_cdc.ddl_look() gave."""
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
        # Triggers that were installed before numbers were told say names.
        Index(name, tuple(n if isinstance(n, str) else names[n] for n in numbers), *flags)
        for name, numbers, *flags in sorted(raw["indexes"], key=itemgetter(0))
    ]
    table = table_schema(
        TableId(raw["schema"], raw["name"]), ReplicaIdentity(raw["identity"]), columns, indexes
    )
    return Shape(
        replace(as_sent(table), oid=raw["oid"]),
        raw["persistence"],
        raw["is_partition"],
        frozenset(raw["publications"]),
        is_empty=bool(raw.get("empty")),
        space=raw.get("space", 0),
        stored=frozenset(raw.get("stored", ())),
        is_text=is_text(json.dumps(raw, ensure_ascii=False)),
    )


def _reasons(told: Any) -> int:
    """Join `oid:reason` of all tables: a partitioned one's own leaves are rewritten, not it."""
    out = 0
    for one in told:
        out |= int(one.partition(":")[2])
    return out
