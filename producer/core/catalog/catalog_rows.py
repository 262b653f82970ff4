"""Builds a table's shape from the rows of a catalog.

Shared by PostgreSQL and openGauss, whose catalog queries differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, TypeAlias

from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique, UserType
from schemas.types import BY_OID, NAMES

# kind, name, made of, its oid, its modifier, delimiter, labels: see UserType
TypeRow: TypeAlias = tuple[str, str, str, int, int, str, Sequence[str]]
_DEEPEST: Final = 40  # nesting of types: any role may create thousands
_MOST_PARTS: Final = 2_000
_DIGEST = "#"  # precedes the digest that replaces too many attributes
_LABEL = "="  # precedes an enum's labels among a composite's attributes


@dataclass(frozen=True, slots=True)
class TableRights:
    """What the connected role may do with a table."""

    id: TableId
    uses_schema: bool
    selects: bool  # the whole table: a lock is taken on it, so single columns are not enough
    owns: bool
    sees_all_rows: bool = True  # no policy of row security leaves out any


@dataclass(frozen=True, slots=True)
class PlainIndex:
    """An index over plain columns, in its own order."""

    name: str
    columns: tuple[str, ...]
    is_primary: bool  # and checked at once: a late one lets two rows have one key for a while
    is_unique: bool  # over plain columns, whole and usable
    is_identity: bool


def table_schema(
    table: TableId, identity: ReplicaIdentity, columns: list[Column], indexes: list[PlainIndex]
) -> TableSchema:
    """Put a table's columns and indexes together.

    The key is what names a row in the stream: the primary key, or the index that the replica
    identity uses, since then nothing else says which row an old one was.
    """
    by_index = identity is ReplicaIdentity.INDEX
    names_rows = next((i for i in indexes if (i.is_identity if by_index else i.is_primary)), None)
    key = names_rows.columns if names_rows is not None else ()
    match identity:
        case ReplicaIdentity.DEFAULT | ReplicaIdentity.INDEX:
            carried = set(key)
        case ReplicaIdentity.FULL:
            carried = {column.name for column in columns if not column.generated}
        case ReplicaIdentity.NOTHING:
            carried = set()
    return TableSchema(
        id=table,
        columns=tuple(columns),
        key=key,
        unique=tuple(
            Unique(index.name, index.columns)
            for index in indexes
            if index.is_unique and not index.is_primary and index is not names_rows
        ),
        replica_identity=identity,
        identity_columns=tuple(column.name for column in columns if column.name in carried),
    )


def as_sent(table: TableSchema) -> TableSchema:
    """A table as a stream without generated columns describes it.

    A key or unique index over a generated column identifies no row; the target does not get it.
    """
    made = {column.name for column in table.columns if column.generated}
    if not made:
        return table
    return replace(
        table,
        columns=tuple(column for column in table.columns if not column.generated),
        key=() if made & set(table.key) else table.key,
        unique=tuple(unique for unique in table.unique if not made & set(unique.columns)),
        identity_columns=tuple(name for name in table.identity_columns if name not in made),
    )


def not_sent(table: TableSchema) -> str:
    """Say which columns of a table no copy has; "": all are sent."""
    names = ", ".join(column.name for column in table.columns if column.generated)
    return f"generated columns are not sent by the source, and not copied: {names}" if names else ""


def user_types(said: Mapping[int, TypeRow], wanted: Iterable[int]) -> dict[int, UserType]:
    """Make descriptions of the wanted types; `said` also has what they are made of."""
    known: dict[int, UserType | None] = {}

    def described(oid: int, depth: int = 0) -> UserType | None:
        if oid in BY_OID or oid not in said:
            return None
        if oid not in known:
            known[oid] = made(oid, depth)
        return known[oid]

    def made(oid: int, depth: int) -> UserType:
        kind, name, made_of, inner, modifier, delimiter, own = said[oid]
        if depth >= _DEEPEST:
            return UserType("b", name)  # its values are texts
        labels = list(own)
        for attribute in own if kind == "c" else ():
            labels += _parts(described(int(attribute.split(":")[1]), depth + 1))
        if kind == "c" and len(labels) > _MOST_PARTS:  # composites of composites double each time
            labels = [_DIGEST + sha256(repr(labels).encode()).hexdigest()]
        return UserType(
            kind,
            name,
            made_of,
            inner,
            modifier,
            delimiter,
            tuple(labels),
            described(inner, depth + 1),
        )

    return {oid: found for oid in wanted if (found := described(oid)) is not None}


def reads_otherwise(old: Column, new: Column) -> bool:
    """Say whether a value of `old` is printed differently by now: composites were altered."""
    return attributes_changed(_attributes(old.user_type), _attributes(new.user_type))


def attributes_changed(was: Sequence[str], now: Sequence[str]) -> bool:
    """Say whether what composites are made of is another; labels of their enums may come."""
    labels = {part for part in was if part.startswith(_LABEL)}
    return bool(was) and (
        bool(labels - set(now))
        or [p for p in was if p not in labels] != [p for p in now if not p.startswith(_LABEL)]
    )


def _parts(said: UserType | None) -> list[str]:
    """What an attribute adds to its composite: attributes, or labels of an enum.

    Of a domain, array or range its oid does not say that its values name objects: this does.
    """
    if said is None or said.kind == "c":
        return list(_attributes(said))
    if said.type_oid in NAMES:
        return [f"0:{said.type_oid}:-1"]
    return [_LABEL + one for one in said.labels] if said.kind == "e" else _parts(said.of)


def _attributes(said: UserType | None) -> tuple[str, ...]:
    if said is None:
        return ()
    if said.kind in {"r", "m"}:  # its text has those of its bounds
        return tuple(_parts(said.of))
    return said.labels if said.kind == "c" else _attributes(said.of)
