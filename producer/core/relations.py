"""Which table shape is in force at this place in the stream.

Columns and their order are the stream's; nullability, type text, key and unique
indexes come from a catalog reading, which may be younger than the row.  Only
what the stream confirms (name, type, modifier of a column) is taken over from
it; the rest is left open, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from producer.core.changes import Ddl, Relation, RelationColumn
from producer.core.shape_change import ShapeChange
from producer.errors import DecodeError, Unsupported
from producer.sources.gauss.ddl.deparsed import Deparsed
from producer.sources.postgres.triggers.follow import Follower
from producer.sources.postgres.triggers.records import CHANNEL, COLUMNS, Told, Trust
from schemas.control import Hole
from schemas.errors import LOAD_AGAIN
from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique

ReadCatalog = Callable[[TableId], TableSchema | None]
NameType = Callable[[int, int], str]
NameTable = Callable[[int], TableId | None]
Judge = Callable[[int], Trust]  # by the oid of a table

__all__ = [
    "Judge",
    "NameTable",
    "NameType",
    "ReadCatalog",
    "Relations",
    "ShapeChange",
    "is_channel",
    "merge",
]


class Relations:
    """The tables of one stream: what was known, and what each relation id means now."""

    def __init__(
        self,
        known: dict[TableId, TableSchema],
        *,
        read_catalog: ReadCatalog,
        name_type: NameType = lambda _oid, _mod: "",
        name_table: NameTable | None = None,
        wanted: Callable[[TableId], bool],
        new_tables_are_complete: bool,
        is_told: bool = False,
        publication: str = "",
        judge: Judge = lambda _: Trust.FOREIGN,
    ) -> None:
        """`is_told`: event triggers describe each statement, with the shapes of tables after it.

        `judge` says who may write the table of an oid that is named as theirs.

        `name_table` says what the table of an oid is called by now; None, where the stream's
        relation ids are no oids.
        """
        self._known = dict(known)
        self._read_catalog, self._name_type = read_catalog, name_type
        self._name_table = name_table
        self._wanted = wanted
        self._given_up: set[int] = set()  # oids of tables that were dropped here, unsure
        self._new_tables_are_complete = new_tables_are_complete
        self._described: dict[int, Relation] = {}
        self._is_told = is_told
        self._judge = judge
        self._channels: dict[int, Trust] = {}
        self._follower = Follower(self._known, wanted, publication, difference)
        self._deparsed = Deparsed(self._known, wanted, read_catalog)
        self._stated: set[TableId] = set()  # tables whose shape is a statement's
        self.emptied: set[int] = set()  # relations that the stream truncated; whoever looks clears

    @property
    def known(self) -> dict[TableId, TableSchema]:
        """The tables as they are known at this place."""
        return dict(self._known)

    @property
    def is_told(self) -> bool:
        """Say whether event triggers tell each statement."""
        return self._is_told

    def drop(self, table: TableSchema) -> ShapeChange:
        """Take a table for gone that the catalog does not have any more."""
        del self._known[table.id]
        return ShapeChange(table, None, "DROP TABLE")

    def alter(self, before: TableSchema, after: TableSchema, why: str) -> ShapeChange:
        """Take a shape of the catalog's under which older rows read otherwise."""
        self._known[after.id] = after
        holes = (Hole(str(after.id), "seen", why),)
        return ShapeChange(before, after, "ALTER TABLE", holes, why)

    def describe(self, relation: Relation) -> None:
        """Take a relation message: in force from here on."""
        said = TableId(relation.schema, relation.table)
        if self._is_told and (now := self._follower.named(relation.relation, said)) != said:
            relation = replace(relation, schema=now.schema, table=now.name)
        self._described[relation.relation] = relation

    def channel(self, relation: Relation) -> Trust | None:
        """Say who writes a table that is named as our triggers' own; None: it is not so named.

        The catalog is asked each time: rights may have been given since. A table that is gone by
        now stays what it was.
        """
        if not is_channel(relation):
            return None
        trust = self._judge(relation.relation)
        if tuple(c.name for c in relation.columns) != COLUMNS:
            trust = Trust.FOREIGN
        if trust is Trust.UNKNOWN and self._channels.get(relation.relation) is Trust.OURS:
            trust = Trust.OURS
        self._channels[relation.relation] = trust
        return trust

    def lose(self, why: str) -> list[ShapeChange]:
        """Return a hole of every table: a record is there that nobody can read."""
        return self._follower.all_unknown("", why)

    def look_up(self, relation_id: int) -> Relation:
        """Return what the stream said about a relation; raise DecodeError if it said nothing."""
        try:
            return self._described[relation_id]
        except KeyError:
            raise DecodeError(
                "a row of a relation that the stream did not describe", relation=relation_id
            ) from None

    def is_wanted(self, relation: Relation) -> bool:
        """Say whether rows of this table are to be delivered."""
        return self._wanted(TableId(relation.schema, relation.table))

    def wants(self, table: TableId) -> bool:
        """Say the same of a table by name."""
        return self._wanted(table)

    def tell(self, told: Told, lsn: int = 0, commit: int = 0) -> list[ShapeChange]:
        """Take what the triggers say: in force from here on; return what changed, in order.

        `lsn`: where the record stands; `commit`: where its transaction does.
        """
        if told.event == "uninstall":
            self._is_told = False
            return []
        self._is_told = True
        changes = self._follower.follow(told, lsn, commit)
        for change in changes:
            # A partitioned table that gets another name is not described again: its partitions
            # are, when something happens to them.  The stream's relation ids are oids.
            after = change.after
            if after is not None and (known := self._described.get(after.oid)) is not None:
                named = replace(known, schema=after.id.schema, table=after.id.name)
                self._described[after.oid] = named
        return changes

    def state(self, ddl: Ddl) -> list[ShapeChange]:
        """Take a statement that the stream tells: in force from here on; return what changed.

        Raises DdlMalformed.
        """
        changes = self._deparsed.follow(ddl)
        for change in changes:
            if change.before is not None:
                self._stated.discard(change.before.id)
            if change.after is not None:
                self._stated.add(change.after.id)
        return changes

    def awaits(self, relation: Relation) -> bool:
        """Say whether a message about this new table must still come in this transaction.

        CREATE TABLE AS writes its rows before its trigger runs.
        """
        return self._is_told and TableId(relation.schema, relation.table) not in self._known

    def renamed(self, relation: Relation) -> list[ShapeChange]:
        """Return what happened to tables by name, where nobody told: renames and drops.

        An oid is never another table's, as long as the table lives.  So a name with another
        oid was given up by the table that had it, and an oid with another name is a rename.
        """
        if self._name_table is None or self._is_told:
            return []
        table_id = TableId(relation.schema, relation.table)
        mine = self._follower.at(relation.relation)
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
                # Rows of it may still come, if it had yet another name before it went.
                self._given_up.add(other.oid)
                del self._known[table_id]
                changes.append(ShapeChange(other, None, "DROP TABLE"))
            elif now in self._known:  # names that swap, or it gets its own back later
                passing = TableId(now.schema, f"gauss_cdc_{other.oid}")
                changes.append(self._rename(other, passing))
                aside = self._known[passing], now
            else:
                changes.append(self._rename(other, now))
        if mine is not None:
            changes.append(self._rename(mine, table_id))
        if aside is not None and aside[1] not in self._known:
            changes.append(self._rename(*aside))
        return changes

    def _rename(self, table: TableSchema, to: TableId) -> ShapeChange:
        after = replace(table, id=to)
        del self._known[table.id]
        self._known[to] = after
        return ShapeChange(table, after, "ALTER TABLE")

    def resolve(self, relation: Relation) -> tuple[TableSchema, ShapeChange | None]:
        """Return the table's shape, and the change if it is not the one known until now."""
        table_id = TableId(relation.schema, relation.table)
        known = self._known.get(table_id)
        is_told = self._is_told or table_id in self._stated
        if is_told and known is not None and _agrees(relation, known):
            return known, None  # as of this very place, which a reading of now is not
        table = self._named(merge(relation, self._read_catalog(table_id), known))
        if self._name_table is not None:
            table = replace(table, oid=relation.relation)
        self._known[table_id] = table
        if known is None:
            holes: tuple[Hole, ...] = ()
            why = ""
            if not self._new_tables_are_complete:
                why = "the table joined the publication later: its older rows were not copied"
            elif relation.relation in self._given_up:
                why = "the table had another name; its older rows were dropped with that"
            if why:
                holes = (Hole(str(table_id), "suspected", why),)
            return table, ShapeChange(None, table, "CREATE TABLE", holes)
        if _shape(known) == _shape(table) and not _made_again(known, table):
            return table, None
        return table, difference(known, table)

    def _named(self, table: TableSchema) -> TableSchema:
        """Name the types of columns that are gone by now: a target makes them all the same."""
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


def is_channel(relation: Relation) -> bool:
    """Say whether a table is named as the one that our triggers write to."""
    return (relation.schema, relation.table) == (OWN_SCHEMA, CHANNEL)


def merge(
    relation: Relation, catalog: TableSchema | None, known: TableSchema | None
) -> TableSchema:
    """Put together what the stream says and what a catalog reading may add to it."""
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
        TableId(relation.schema, relation.table),
        tuple(columns),
        key,
        unique,
        relation.replica_identity,
        identity,
    )


def _agrees(relation: Relation, known: TableSchema) -> bool:
    if relation.replica_identity is not known.replica_identity:
        return False
    return len(relation.columns) == len(known.columns) and all(
        said.name == column.name and _is_confirmed(said, column)
        for said, column in zip(relation.columns, known.columns, strict=True)
    )


def _is_confirmed(said: RelationColumn, read: Column) -> bool:
    """Say whether a column of a catalog reading is the one the stream means."""
    if said.type_oid != read.type_oid:
        return False
    return said.type_mod is None or said.type_mod == read.type_mod


def _shape(table: TableSchema) -> tuple[object, ...]:
    """What a target must follow.  Nullability is not part of it: only keys are NOT NULL there."""
    columns = tuple((c.name, c.type_oid, c.type_mod) for c in table.columns)
    return columns, table.key


def difference(before: TableSchema, after: TableSchema) -> ShapeChange:
    """Name an inferred change; what cannot be told apart stops, what may be lost is a hole.

    A rename looks like a drop and an add in a relation message.  A column added
    is always the last one and may have any type, so a new name is refused, not
    guessed, if it stands before a known column or has the type of a dropped one.
    """
    old = {c.name: c for c in before.columns}
    new = {c.name: c for c in after.columns}
    # A number is never used twice, and a reading confirmed it: this one is the same column.
    numbers = {c.number: c.name for c in after.columns if c.number and c.name not in old}
    renamed = {
        c.name: numbers[c.number]
        for c in before.columns
        if c.name not in new and c.number in numbers
    }
    old = {renamed.get(c.name, c.name): c for c in before.columns}
    gone = [c for name, c in old.items() if name not in new]
    come = [c for c in after.columns if c.name not in old]
    stayed = [name for name in new if name in old]
    last_known = max((at for at, name in enumerate(new) if name in old), default=-1)
    types = {(c.type_oid, c.type_mod) for c in gone}
    if gone and any(
        (c.type_oid, c.type_mod) in types or list(new).index(c.name) < last_known for c in come
    ):
        raise Unsupported(
            "a column was renamed, or dropped and another added: the stream does not tell which",
            table=after.id,
            gone=",".join(c.name for c in gone),
            come=",".join(c.name for c in come),
            hint=f"{LOAD_AGAIN}; with `gauss-cdc ddl install` (PostgreSQL) the next one is known",
        )
    lossy = None
    again = _made_again(before, after)
    if again or any(c.missing is None and (c.has_default or not c.nullable) for c in come):
        lossy = "an added column has a default, and its value for older rows is not known"
        if again:  # a reading may be younger than the rows to come
            lossy = f"a column was dropped and made again: {', '.join(sorted(again))}"
    elif stayed != [name for name in old if name in new]:
        lossy = "a column was dropped and made again: its values in older rows are not known"
    elif any(not _keeps_values(old[name], new[name]) for name in stayed):
        lossy = "a column has another type: its values in older rows were computed by the source"
    holes = (Hole(str(after.id), "suspected", lossy),) if lossy else ()
    values = dict.fromkeys(again, "new")
    return ShapeChange(before, after, "ALTER TABLE", holes, lossy, renamed=renamed, values=values)


def _made_again(before: TableSchema, after: TableSchema) -> set[str]:
    """Return columns that have their name and type still, but another number."""
    old = {c.name: c for c in before.columns if c.number}
    return {
        c.name
        for c in after.columns
        if c.number
        and c.name in old
        and old[c.name].number != c.number
        and old[c.name].number not in {other.number for other in after.columns}
    }


# type -> types whose values read the same after an ALTER TYPE without USING.  What USING does,
# the stream never tells.
_INT2, _INT4, _INT8, _TEXT, _VARCHAR = 21, 23, 20, 25, 1043
_WIDER: Final = {_INT2: {_INT4, _INT8}, _INT4: {_INT8}, _VARCHAR: {_TEXT}, _TEXT: {_VARCHAR}}


def _keeps_values(old: Column, new: Column) -> bool:
    """Say whether a column's older values are the same under its new type."""
    if old.type_oid == new.type_oid:
        return old.type_mod == new.type_mod or old.type_oid == _VARCHAR
    return new.type_oid in _WIDER.get(old.type_oid, ())
