"""What the event triggers of a PostgreSQL source say about a statement.

JSON in a logical message of the statement's own transaction, written by
`producer/drivers/ddl_triggers.sql`.  `end`: what stands there after a statement;
`drop`: what it dropped; `install` and `uninstall`: from where to where every
statement is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

from producer.core.catalog_rows import Index, as_sent, table_schema, user_types
from producer.errors import DecodeError
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema

PREFIX: Final = "gauss-cdc.ddl"
_VERSION: Final = 1

# Why a table was rewritten: bits of pg_event_trigger_table_rewrite_reason().
BY_DEFAULT: Final = 2  # an added column's default is volatile
BY_TYPE: Final = 4  # a column's values were converted


@dataclass(frozen=True, slots=True)
class Shape:
    """A table after the statement."""

    table: TableSchema  # as pgoutput describes it: without generated columns
    persistence: str  # pg_class.relpersistence: "p" stands in the log, "u" does not
    is_partition: bool
    publications: frozenset[str]
    is_empty: bool = False  # known to have no rows: none has a value that nobody sent


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
class Told:
    """One message."""

    event: str  # end | drop | install | uninstall
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


def read(content: bytes) -> Told:
    """Read a message; raise DecodeError where it is not one of ours, or of a newer release."""
    try:
        raw = json.loads(content)
        if raw["version"] != _VERSION:
            raise DecodeError(
                "schema changes told by triggers of another release",
                version=raw["version"],
                ours=_VERSION,
                hint="run `gauss-cdc ddl install` of this release",
            )
        return Told(
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
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DecodeError("a message of our triggers that cannot be read") from error


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
    )


def _reasons(told: Any) -> int:
    """Join `oid:reason` of all tables: a partitioned one's own leaves are rewritten, not it."""
    out = 0
    for one in told:
        out |= int(one.partition(":")[2])
    return out
