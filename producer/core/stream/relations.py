"""The table shapes in force at a position of the stream.

A source that describes statements resolves their changes itself, and updates `known` before it
returns them.  Otherwise a row whose shape differs from the one in force is an inferred change
(`core/stream/inference.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from producer.core.catalog.look import Told
from producer.core.changes import Relation
from producer.core.shape_change import ShapeChange, StatementChanges
from producer.core.stream.inference import (
    agrees,
    as_printed,
    difference,
    followed,
    made_again,
    merge,
)
from producer.errors import DecodeError
from schemas.control import Hole
from schemas.tables import ReplicaIdentity, TableId, TableSchema

ReadCatalog = Callable[[TableId], TableSchema | None]
NameType = Callable[[int, int], str]
NameTable = Callable[[int], TableId | None]

_READINGS: Final = 3  # of a table that is renamed meanwhile


class Relations:
    """The tables of one stream: what is in force, and what each relation id means now."""

    def __init__(
        self,
        known: dict[TableId, TableSchema],
        *,
        read_catalog: ReadCatalog,
        name_type: NameType = lambda _oid, _mod: "",
        name_table: NameTable | None = None,
        root_of: Callable[[int], int] = lambda _oid: 0,
        wanted: Callable[[TableId], bool],
        new_tables_are_complete: bool,
        reports_ddl: bool = False,
        had: Callable[[int], bool] = lambda _oid: False,
        compares: Callable[[int], bool] = lambda _oid: True,
    ) -> None:
        """`known`: the tables in force, one state that is shared with the source.

        `had` says of a table's oid whether it was there, unknown, at an earlier place, `compares`
        whether the look before has it: what was generated then, the next one finds.

        `reports_ddl`: the source describes every statement, with the shapes of tables after it.

        `name_table` returns the present name of the table with an oid; None, if the stream's
        relation ids are not oids.  `root_of` returns the oid of a partition's present root.
        """
        self._known = known
        self._read_catalog, self._name_type = read_catalog, name_type
        self._name_table, self._root_of = name_table, root_of
        self._roots: dict[int, int] = {}  # of partitions, as rows came that are theirs by now, too
        self._wanted = wanted
        self._given_up: set[int] = set()  # oids of tables that were dropped here, unsure
        self._new_tables_are_complete, self._had = new_tables_are_complete, had
        self._compares = compares
        self._described: dict[int, Relation] = {}
        self._reports_ddl = reports_ddl
        self._stated: set[TableId] = set()  # tables whose shape is a statement's
        self._told = Told()

    @property
    def known(self) -> Mapping[TableId, TableSchema]:
        """The tables as they are known at this place; they change with it."""
        return self._known

    @property
    def reports_ddl(self) -> bool:
        """Say whether the source describes each statement."""
        return self._reports_ddl

    # ------------------------------------------------------------ what the source says
    def describe(self, relation: Relation) -> None:
        """Take a relation message: in force from here on."""
        self._described[relation.relation] = relation
        if relation.replica_identity is ReplicaIdentity.FULL:
            self._told.describe(relation.relation)

    def describe_statements(self, *, is_on: bool) -> None:
        """From here on the source describes every statement, or none."""
        self._reports_ddl = is_on
        if not is_on:
            self._stated.clear()

    def take_told(self) -> Told:
        """Return what the stream said of tables since the call before."""
        told, self._told = self._told, Told()
        return told

    def empty(self, relation_id: int, xid: int) -> None:
        """Take a TRUNCATE of a table, by a transaction."""
        found = self.look_up(relation_id)
        self._told.empty(found.id, xid, relation_id)

    def fill(self, relation_id: int) -> None:
        """Take it that a table has a row, perhaps."""
        self._told.fill(relation_id)

    def apply(self, statement: StatementChanges) -> None:
        """Take a statement's changes: shapes are the statement's own from here on."""
        self._told.state(statement)
        for change in statement.changes:
            if change.moved is not None and change.after is not None:
                self._told.fill(change.after.oid)
            if change.before is not None:
                self._stated.discard(change.before.id)
            if change.after is not None:
                self._stated.add(change.after.id)

    def adopt(self, table: TableSchema) -> None:
        """Take the shape under which a table was read again: in force from here on."""
        self._known[table.id] = table
        self._given_up.discard(table.oid)
        self._told.fill(table.oid)

    # ------------------------------------------------------------ what only the catalog says
    def drop(self, table: TableSchema) -> ShapeChange:
        """Remove a table that the catalog does not show any more."""
        del self._known[table.id]
        return ShapeChange(table, None, "DROP TABLE")

    def alter(self, before: TableSchema, after: TableSchema, why: str) -> ShapeChange:
        """Take a shape of the catalog under which older rows are printed differently."""
        self._known[after.id] = after
        holes = (Hole(str(after.id), "seen", why),)
        return ShapeChange(before, after, "ALTER TABLE", holes, why)

    # ------------------------------------------------------------ what a row finds
    def look_up(self, relation_id: int) -> Relation:
        """Return the stream's description of a relation; raise DecodeError without one."""
        try:
            return self._described[relation_id]
        except KeyError:
            raise DecodeError(
                "a row of a relation that the stream did not describe", relation=relation_id
            ) from None

    def is_wanted(self, relation: Relation) -> bool:
        """Say whether rows of this table are to be delivered."""
        return self._wanted(relation.id)

    def wants(self, table: TableId) -> bool:
        """Say whether rows of the table with this name are to be delivered."""
        return self._wanted(table)

    def renamed(self, relation: Relation) -> list[ShapeChange]:
        """Return renames and drops that the oids show.

        While a table exists, its oid belongs to no other.  So if a name has another oid, the
        former table lost that name; an oid with another name is a rename.  A described statement
        leaves none to be seen; a trigger that was off does.
        """
        if self._name_table is None:
            return []
        table_id = relation.id
        mine = self._at(relation.relation)
        if mine is not None and mine.id == table_id:
            return []
        if not self._wanted(table_id):
            if mine is None:
                return []
            del self._known[mine.id]
            why = f"is not captured any more: it is {table_id} now"
            return [ShapeChange(mine, mine, "ALTER TABLE", (Hole(str(mine.id), "seen", why),), why)]
        changes: list[ShapeChange] = []
        aside: tuple[TableSchema, TableId] | None = None
        other = self._known.get(table_id)
        if other is not None and other.oid:
            now = self._name_table(other.oid)
            if now is None or not self._wanted(now):
                # Rows of it may still come, if it had another name again before it was dropped.
                self._given_up.add(other.oid)
                del self._known[table_id]
                changes.append(ShapeChange(other, None, "DROP TABLE"))
            elif now == table_id:  # it has its name again by now: the next look gives it back
                changes.append(self._rename(other, _passing(other)))
            elif now in self._known:  # names that swap, or it gets its own back later
                changes.append(self._rename(other, _passing(other)))
                aside = self._known[_passing(other)], now
            else:
                changes.append(self._rename(other, now))
        if mine is not None:
            changes.append(self._rename(mine, table_id))
        if aside is not None and aside[1] not in self._known:
            changes.append(self._rename(*aside))
        return changes

    def _at(self, oid: int) -> TableSchema | None:
        """The table with this oid, if it is captured and its oid is known."""
        return next((t for t in self._known.values() if t.oid == oid), None) if oid else None

    def sent_as(self, partition: int, root: int) -> Iterator[Hole]:
        """Note gaps where a row of a table that is captured by itself came as one of its root.

        It is a partition here, or has this one.  The catalog may not show that any more, nor what
        it had in between.
        """
        if self._name_table is None:
            return
        table, other = self._at(partition), self.look_up(root)
        if table is None and not self._reports_ddl and self._roots.get(partition) != root:
            if (now := self._root_of(partition)) == root:
                self._roots[partition] = root
            table = self._at(now)
        if table is None or table.oid == root or not self._wanted(table.id):
            return
        name = other.id
        yield Hole(str(table.id), "seen", f"it was a partition: its rows came as those of {name}")
        if self._wanted(name):
            yield Hole(
                str(name), "seen", f"{table.id} was a partition: its rows came, and no other"
            )

    def _rename(self, table: TableSchema, to: TableId) -> ShapeChange:
        after = replace(table, id=to)
        del self._known[table.id]
        self._known[to] = after
        return ShapeChange(table, after, "ALTER TABLE")

    def resolve(
        self, relation: Relation, *, is_shown: bool = False
    ) -> tuple[TableSchema, ShapeChange | None]:
        """Return the table's shape, and the change if it is not the one known until now.

        `is_shown`: a look shows another one, perhaps of a column that was made again.
        """
        table_id = relation.id
        known = self._known.get(table_id)
        reports_ddl = self._reports_ddl or table_id in self._stated
        if reports_ddl and not is_shown and known is not None and agrees(relation, known):
            return known, None  # as of this very place, which a reading of now is not
        reading = self._reading(relation)
        table = self._named(merge(relation, reading, known))
        if known is not None:
            table = as_printed(known, table)
        if self._name_table is not None:
            table = replace(table, oid=relation.relation)
        self._known[table_id] = table
        if known is None:
            holes: tuple[Hole, ...] = ()
            why = ""
            if not self._new_tables_are_complete:
                why = "the table joined the publication later: its older rows were not copied"
            elif self._had(relation.relation):
                why = "the table had another name, which was not captured"
            elif relation.relation in self._given_up:
                why = "the table had another name; its older rows were dropped with it"
            if why:
                holes = (Hole(str(table_id), "suspected", why),)
            return table, ShapeChange(None, table, "CREATE TABLE", holes)
        if followed(known) == followed(table) and not made_again(known, table):
            return table, None
        return table, self._doubted(difference(known, table), reading, relation.relation)

    def withheld(self, relation: Relation) -> list[str]:
        """Return columns that the table has still, and the stream does not send: a column list.

        A column's number is never used again, so one that has it was not dropped.
        """
        known = self._known.get(relation.id)
        said = {column.name for column in relation.columns}
        if known is None or {column.name for column in known.columns} <= said:
            return []
        reading = self._reading(relation)
        there = {c.number for c in reading.columns if c.name not in said} if reading else set()
        return [c.name for c in known.columns if c.number and c.number in there]

    def _reading(self, relation: Relation) -> TableSchema | None:
        """Read the table that the stream means, whatever its name is by now.

        It may be renamed between the two questions.
        """
        if self._name_table is None:
            return self._read_catalog(relation.id)
        for _ in range(_READINGS):
            if (now := self._name_table(relation.relation)) is None:
                return None
            found = self._read_catalog(now)
            if found is not None and found.oid == relation.relation:
                return found
        return None

    def _doubted(self, change: ShapeChange, reading: TableSchema | None, oid: int) -> ShapeChange:
        """Note a gap where a table is there, and older rows may have values in columns that came.

        They were not read: with a default?  They may be gone by now, or the table was not read at
        all.  Or no look has compared the table: they may have been there, and generated.
        """
        before, after = change.before, change.after
        assert before is not None
        assert after is not None
        there = (*before.columns, *(reading.columns if reading is not None else ()))
        unread = {c.name for c in after.columns} - {c.name for c in there}
        came = {c.name for c in after.columns if c.missing is None}
        came -= {*before.names(), *change.renamed.values()}
        if unread:
            why = f"columns were added, and could not be read: {', '.join(sorted(unread))}"
        elif came and not self._compares(oid):
            why = (
                f"columns of a new table came, perhaps generated before: {', '.join(sorted(came))}"
            )
        else:
            return change
        if change.lossy or self._name_table is None or self._name_table(oid) is None:
            return change
        return replace(change, holes=(Hole(str(after.id), "suspected", why),), lossy=why)

    def _named(self, table: TableSchema) -> TableSchema:
        """Name the types of columns that were dropped since: a target still creates them."""
        if all(c.type_name for c in table.columns):
            return table
        columns = tuple(
            c if c.type_name else replace(c, type_name=self._name_type(c.type_oid, c.type_mod))
            for c in table.columns
        )
        return replace(table, columns=columns)

    def widen(self, table_id: TableId, column: str) -> TableSchema:
        """Allow NULL in a column: a row proved the catalog reading too young."""
        known = self._known[table_id]
        columns = tuple(replace(c, nullable=True) if c.name == column else c for c in known.columns)
        self._known[table_id] = table = replace(known, columns=columns)
        return table


def _passing(table: TableSchema) -> TableId:
    """Name a table in the schema that it leaves, while its next name is another one's still."""
    return TableId(table.id.schema, f"gauss_cdc_{table.oid}")
