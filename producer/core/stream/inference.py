"""Infers a change of shape that no statement described.

Columns and their order are the stream's; nullability, type text, key and unique
indexes come from a catalog reading, which may be younger than the row.  Of it,
only what the stream confirms (name, type, modifier of a column) is used; the
rest stays unknown and is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from producer.core.changes import Relation, RelationColumn
from producer.core.shape_change import ShapeChange
from schemas.control import Hole
from schemas.tables import Column, ReplicaIdentity, TableSchema, Unique, UserType


def merge(
    relation: Relation, catalog: TableSchema | None, known: TableSchema | None
) -> TableSchema:
    """Merge a relation of the stream with what a catalog reading may add to it."""
    readings = [source for source in (catalog, known) if source is not None]
    columns = []
    for said in relation.columns:
        column = Column(said.name, said.type_oid, -1 if said.type_mod is None else said.type_mod)
        for source in readings:
            match = next((c for c in source.columns if c.name == said.name), None)
            if match and _is_confirmed(said, match):
                column = match
                break
        columns.append(column)
    names = {said.name for said in relation.columns}
    identity = tuple(said.name for said in relation.columns if said.identity)
    # With the default identity the stream itself says which columns are the primary key (unless
    # it is deferrable), with an index those that name rows; their order, and the key under
    # another identity, say the catalog.
    by_key = relation.replica_identity in {ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX}
    is_said = by_key and bool(identity)
    key = identity if is_said else ()
    unique: tuple[Unique, ...] = ()
    for source in readings:
        if set(source.key) == set(identity) if is_said else set(source.key) <= names:
            key = source.key
            unique = tuple(u for u in source.unique if set(u.columns) <= names)
            break
    return TableSchema(
        relation.id,
        tuple(columns),
        key,
        unique,
        relation.replica_identity,
        identity,
    )


def as_printed(known: TableSchema, table: TableSchema) -> TableSchema:
    """Keep of a column's type what older values were printed with.

    A reading shows what was altered since, and targets have older rows: the look that finds it says
    so.
    """
    before = {c.name: c for c in known.columns} | {c.number: c for c in known.columns if c.number}

    def kept(column: Column) -> Column:
        was = before.get(column.number or column.name)
        if was is None or was.type_oid != column.type_oid:
            return column
        return replace(column, user_type=_with_labels(column.user_type, was.user_type))

    return replace(table, columns=tuple(map(kept, table.columns)))


def _with_labels(now: UserType | None, was: UserType | None) -> UserType | None:
    if now is None or was is None or (now.kind, now.type_oid) != (was.kind, was.type_oid):
        return now
    return replace(now, labels=was.labels, of=_with_labels(now.of, was.of))


def agrees(relation: Relation, known: TableSchema) -> bool:
    """Say whether the stream describes a table as it is known."""
    if relation.replica_identity is not known.replica_identity:
        return False
    return len(relation.columns) == len(known.columns) and all(
        said.name == column.name
        and said.identity == (column.name in known.identity_columns)
        and _is_confirmed(said, column)
        for said, column in zip(relation.columns, known.columns, strict=True)
    )


def _is_confirmed(said: RelationColumn, read: Column) -> bool:
    """Say whether a column of a catalog reading is the one the stream means."""
    if said.type_oid != read.type_oid:
        return False
    return said.type_mod is None or said.type_mod == read.type_mod


def followed(table: TableSchema) -> tuple[object, ...]:
    """Return what a target must follow; not nullability, since only its keys are NOT NULL."""
    columns = tuple((c.name, c.type_oid, c.type_mod) for c in table.columns)
    return columns, table.key


def difference(before: TableSchema, after: TableSchema) -> ShapeChange:
    """Return an inferred change; a possible loss is a gap.

    A rename looks like a drop and an add in a relation message.  Numbers of
    columns tell the two apart: one is never used twice.  Without them a column
    added is always the last one and may have any type, so a new name that
    precedes a known column, has the type of a dropped one, or stands where the
    last column went, may be a rename: it is followed as a drop and an add, which
    loses values, and is a gap.  So is a name that another column has now, since
    the reading may be younger than the rows to come.  Of a key that may have been
    renamed no older row can be found again: targets drop them all.  Targets do
    not judge it again.
    """
    pairs = list(_pairs(before, after))
    left = {was.name for was, _ in pairs}
    there = {now.name for _, now in pairs}
    gone = [c for c in before.columns if c.name not in left]
    come = [c for c in after.columns if c.name not in there]
    renamed = {was.name: now.name for was, now in pairs if was.name != now.name}
    types = {(c.type_oid, c.type_mod) for c in gone}
    places = [c.name for c in after.columns]
    last_known = max((places.index(name) for name in there), default=-1)
    may_be_renamed = any(
        (c.type_oid, c.type_mod) in types or places.index(c.name) < last_known for c in come
    )
    # Its type may have been altered, too; a number that no column had shows an added one.
    all_numbered = all(c.number for c in before.columns)
    last_went = any(c in gone for c in before.columns[-1:])
    at_the_end = last_went and not all(all_numbered and c.number for c in come)
    lossy = None
    again = made_again(before, after)
    taken = _renumbered(before, after) - again
    if taken or (gone and come and any(_is_other(*pair) for pair in pairs)):
        lossy = f"columns may have taken names of each other: {', '.join(sorted(taken or places))}"
    elif may_be_renamed or (come and at_the_end):
        lossy = "a column was renamed, or dropped and another added: " + ", ".join(
            f"{', '.join(c.name for c in each)} {how}"
            for each, how in ((gone, "went"), (come, "came"))
        )
    elif again or any(c.missing is None and (c.has_default or not c.nullable) for c in come):
        lossy = "an added column has a default, and its value for older rows is not known"
        if again:  # a reading may be younger than the rows to come
            lossy = f"a column was dropped and made again: {', '.join(sorted(again))}"
    elif [c.name for c, _ in pairs] != [c.name for c in before.columns if c.name in left]:
        lossy = "a column was dropped and made again: its values in older rows are not known"
    elif any(not _keeps_values(*pair) for pair in pairs):
        lossy = "a column has another type: its values in older rows were computed by the source"
    holes = (Hole(str(after.id), "suspected", lossy),) if lossy else ()
    values = dict.fromkeys(again | ({c.name for c in come} & {*before.names()}), "new")
    return ShapeChange(before, after, "ALTER TABLE", holes, lossy, renamed=renamed, values=values)


def _pairs(before: TableSchema, after: TableSchema) -> Iterator[tuple[Column, Column]]:
    """Yield columns before and after that are the same one, in the order after.

    By number where all are numbered: but for one that was made again, and where one has the name of
    another, which a target cannot follow at once.  Else by name, and by number where a name went.
    """
    numbers = {c.number: c for c in before.columns if c.number}
    names = {c.name: c for c in before.columns}
    stayed = {c.name for c in after.columns if c.name in names}
    are_numbered = all(c.number for c in (*before.columns, *after.columns))
    moved = {c.name for c in after.columns if c.number in numbers} & _renumbered(before, after)
    if are_numbered and not moved:
        stayed = made_again(before, after)
    for column in after.columns:
        same = numbers.get(column.number)
        if column.name in stayed:
            yield names[column.name], column
        elif same is not None and same.name not in stayed:
            yield same, column


def made_again(before: TableSchema, after: TableSchema) -> set[str]:
    """Return columns that have their name and type still, but another number."""
    old = {c.name: c.number for c in before.columns}
    there = {c.number for c in after.columns}
    return {name for name in _renumbered(before, after) if old[name] not in there}


def _renumbered(before: TableSchema, after: TableSchema) -> set[str]:
    """Return names that another column has now, as far as numbers are known."""
    old = {c.name: c.number for c in before.columns if c.number}
    return {c.name for c in after.columns if c.number and old.get(c.name, c.number) != c.number}


def _is_other(old: Column, new: Column) -> bool:
    """Say whether a name may be another column's now: no number says no, and its type changed."""
    is_same = bool(old.number) and old.number == new.number
    return not is_same and (old.type_oid, old.type_mod) != (new.type_oid, new.type_mod)


# type -> types whose values read the same after an ALTER TYPE without USING.  The stream
# never reports USING.
_INT2, _INT4, _INT8, _TEXT, _VARCHAR = 21, 23, 20, 25, 1043
_WIDER: Final = {_INT2: {_INT4, _INT8}, _INT4: {_INT8}, _VARCHAR: {_TEXT}, _TEXT: {_VARCHAR}}


def _keeps_values(old: Column, new: Column) -> bool:
    """Say whether a column's older values are the same under its new type.

    A shorter varchar is where USING cuts values off.
    """
    if new.type_oid == _VARCHAR and new.type_mod != -1:
        return old.type_oid == _VARCHAR and -1 < old.type_mod <= new.type_mod
    if old.type_oid == new.type_oid:
        return old.type_mod == new.type_mod or old.type_oid == _VARCHAR
    return new.type_oid in _WIDER.get(old.type_oid, ())
