"""Compares what the stream has described with what a look at the catalog shows.

A change that can still be followed becomes the same message as the stream's own (`Described`,
`Dropped`); one that cannot is a gap (`Altered`, `Unseen`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from producer.core.catalog.catalog_rows import attributes_changed
from producer.core.catalog.look import Look, Seen
from producer.core.changes import Relation, RelationColumn
from schemas.control import Hole
from schemas.quoting import identifier, qualified
from schemas.tables import Column, TableId, TableSchema, UserType


@dataclass(frozen=True, slots=True)
class Described:
    """The stream would describe a table differently if a row of it came now."""

    table: TableId
    relation: Relation

    @property
    def is_renamed(self) -> bool:
        """Say whether it has another name by now; its shape may be another one besides."""
        return self.relation.id != self.table

    def __str__(self) -> str:
        how = f"is {self.relation.id} now" if self.is_renamed else "has another shape"
        return f"{self.table} {how}"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table is gone."""

    table: TableId
    known: TableSchema
    how: str = "was dropped"

    def __str__(self) -> str:
        return f"{self.table} {self.how}"


@dataclass(frozen=True, slots=True)
class Altered:
    """Values of older rows are printed differently than they were sent."""

    table: TableId
    before: TableSchema
    after: TableSchema
    why: str

    def __str__(self) -> str:
        return f"{self.table}: {self.why}"


@dataclass(frozen=True, slots=True)
class Unseen:
    """Changes of a table were not sent, or are no longer sent."""

    table: TableId
    why: str
    kind: str = "seen"  # or "suspected": it may have been without effect

    @property
    def gap(self) -> Hole:
        """The gap for a record of cuts; its table is written as `schema.table`."""
        return Hole(str(self.table), self.kind, self.why)

    def __str__(self) -> str:
        return f"{self.table} {self.why}"


Finding: TypeAlias = Described | Dropped | Altered | Unseen
Known: TypeAlias = Mapping[TableId, TableSchema]


def differences(
    known: Known,
    look: Look,
    *,
    wanted: Callable[[TableId], bool],
    publication: str,
    reports_ddl: bool = False,
) -> Iterator[Finding]:
    """Compare known tables with a look; `reports_ddl`: event triggers report each statement."""
    by_name = {seen.id: seen for seen in look.tables.values()}
    for table in known.values():
        seen = look.tables.get(table.oid) if table.oid else by_name.get(table.id)
        if not wanted(table.id):
            if seen is not None and seen.id not in known and wanted(seen.id):
                yield from _come_back(table, seen)
        elif seen is None:
            other = by_name.get(table.id)
            if other is not None and not other.is_published and _is_sent_else(other, wanted):
                yield _sent_else(table, other)
            else:
                yield _gone(table, other, look, publication, reports_ddl=reports_ddl)
        elif not seen.is_logged:
            what = "has an UNLOGGED partition" if seen.is_partitioned else "is UNLOGGED now"
            why = f"{what}: its later rows are not in the log; SET LOGGED, and load again"
            yield Unseen(table.id, why)
        elif seen.is_published and seen.shape is not None:
            yield from _compared(table, seen.shape)
        elif not wanted(seen.id):
            yield Unseen(table.id, f"is not captured any more: it is {seen.id} now")
        elif _is_sent_else(seen, wanted):
            yield _sent_else(table, seen)
        elif seen.partly:
            yield Unseen(table.id, partly_published(seen, publication))
        elif not seen.is_published:
            yield Unseen(table.id, unpublished(seen, look, publication, "is not"))


def _come_back(table: TableSchema, seen: Seen) -> Iterator[Described]:
    """A table left [tables], which name what it is called now: its next row would say no less."""
    if seen.is_logged and seen.is_published and seen.shape is not None:
        yield Described(table.id, relation_of(seen.shape))


def _is_sent_else(seen: Seen, wanted: Callable[[TableId], bool]) -> bool:
    return seen.sent_as is not None and all(map(wanted, seen.sent_as))


def _sent_else(table: TableSchema, seen: Seen) -> Dropped:
    """Targets have its rows under other names; what they have under its own would grow old."""
    names = ", ".join(map(str, seen.sent_as or ())) or "no table"
    return Dropped(table.id, table, f"is sent as {names} now: targets drop its own table")


def _gone(
    table: TableSchema,
    other: Seen | None,
    look: Look,
    publication: str,
    *,
    reports_ddl: bool,
) -> Dropped | Described | Unseen:
    """A table is gone; `other` has its name now, and may be a new one that is to be published."""
    can_join = look.is_ours and not reports_ddl
    if other is None or (can_join and not other.is_published):
        return Dropped(table.id, table)
    if not other.is_published or other.shape is None:
        how = "was dropped and made again, and the new table is not"
        return Unseen(table.id, unpublished(other, look, publication, how))
    if reports_ddl:
        return Unseen(table.id, "was dropped and made again, and no statement came; load again")
    return Described(table.id, relation_of(other.shape))


def unpublished(seen: Seen, look: Look, publication: str, how: str) -> str:
    """Say that changes of a table are not sent, and the way out; one FOR ALL TABLES takes none."""
    name = identifier(publication)
    way = f"ALTER PUBLICATION {name} ADD TABLE {qualified(seen.id)}, and load again"
    if look.all_tables:
        if not seen.is_logged:
            way = f"ALTER TABLE {qualified(seen.id)} SET LOGGED, and load again"
        elif seen.is_partitioned:
            way = f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"
        else:
            way = "but as those of its root, which [tables] does not name; name it there"
    return f"{how} in publication {publication}: its changes are not sent; {way}"


def partly_published(seen: Seen, publication: str) -> str:
    """Say which changes of a table are not sent, and the way out."""
    return (
        f"is not published whole: publication {publication} {seen.partly}; it is read again once"
        f" that is taken back"
    )


def left_out(
    look: Look, known: Container[int], wanted: Callable[[TableId], bool], publication: str
) -> dict[TableId, str]:
    """Say which tables match, and are not captured, as they are published in part; by oids known.

    What others undo captures them.
    """
    return {
        seen.id: f"table {seen.id} matches [tables] and is not captured: publication {publication}"
        f" {seen.partly}; it is captured once that is taken back"
        for oid, seen in look.tables.items()
        if seen.partly and not seen.sent_as and oid not in known and wanted(seen.id)
    }


def _compared(table: TableSchema, now: TableSchema) -> Iterator[Finding]:
    if table.id != now.id or not _is_one_shape(table, now):
        yield Described(table.id, relation_of(now))
        return
    read = {column.name: column for column in now.columns}
    columns = tuple(replace(c, user_type=read[c.name].user_type) for c in table.columns)
    if changed := [c.name for c in table.columns if not reads_as_before(c, read[c.name].user_type)]:
        why = f"labels or attributes of a type changed, in columns {', '.join(changed)}"
        yield Altered(table.id, table, replace(table, columns=columns), why)


def _is_one_shape(table: TableSchema, now: TableSchema) -> bool:
    """Say whether a target has nothing to follow; a column made again has another number."""
    return (
        table.key == now.key
        and len(table.columns) == len(now.columns)
        and all(
            (c.name, c.type_oid, c.type_mod) == (n.name, n.type_oid, n.type_mod)
            and (c.number == n.number or not (c.number and n.number))
            for c, n in zip(table.columns, now.columns, strict=True)
        )
    )


def reads_as_before(column: Column, now: UserType | None) -> bool:
    """Say whether older values of a column have the same text: labels may only be added."""
    was = column.user_type
    while was is not None and now is not None:
        if (was.kind, was.type_oid) != (now.kind, now.type_oid):
            return True  # made again under an oid of its own: the column's type would be another
        if was.kind == "c" and attributes_changed(was.labels, now.labels):
            return False
        left = iter(now.labels)
        if was.kind == "e" and not all(label in left for label in was.labels):
            return False
        was, now = was.of, now.of
    return True


def relation_of(table: TableSchema) -> Relation:
    """Describe a table as the stream would before its next row."""
    return Relation(
        table.oid,
        table.id.schema,
        table.id.name,
        table.replica_identity,
        tuple(
            RelationColumn(c.name, c.type_oid, c.type_mod, c.name in table.identity_columns)
            for c in table.columns
        ),
    )
