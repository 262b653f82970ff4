"""A deparsed statement -> what changed, table by table.

The counterpart of `follow`, for sources that send each statement at its place
in the stream.  Shapes are made from those known until here; what a statement
does not contain is read from the catalog and used where the statement confirms
it, and reported in `lossy` where it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from producer.core.shape_change import ShapeChange
from producer.core.statements.sql_words import Words
from producer.sources.gauss.ddl import jddl
from producer.sources.gauss.ddl.apply import WHETHER_KEY, Applied, altered, created
from producer.sources.gauss.ddl.losses import clauses_lost
from producer.sources.gauss.ddl.model import Name, OnPartition, Rename, Statement
from producer.sources.gauss.decoders.messages import Ddl
from producer.sources.gauss.system_schemas import is_system_schema
from schemas.control import Hole
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique

_TEXT = 25  # the oid of the type
_UNTYPED = "the type of column"


@dataclass(slots=True)
class Deparsed:
    """The tables known so far, updated by each statement."""

    known: dict[TableId, TableSchema]
    wanted: Callable[[TableId], bool]
    read_catalog: Callable[[TableId], TableSchema | None]
    hidden: set[TableId] = field(default_factory=set)  # wanted later, unless the stream made them

    def follow(self, ddl: Ddl) -> list[ShapeChange]:
        """Return the changes of one statement, in the order in which they apply.

        Raises DdlMalformed for a document that cannot be read.
        """
        statement = jddl.read(ddl)
        if statement is None:  # "Drop table command start": the statement itself follows
            return []
        return self.state(statement, loses_clauses=ddl.form != "deparse")

    def state(self, statement: Statement, *, loses_clauses: bool) -> list[ShapeChange]:
        """Return the changes of a parsed statement; GaussDB's text lacks some clauses."""
        lost = clauses_lost(statement) if loses_clauses else None
        return [
            replace(
                change,
                canonical=statement.sql,
                lossy="; ".join(filter(None, (change.lossy, lost))) or None,
            )
            for change in self.changes(statement)
        ]

    def changes(self, statement: Statement) -> Iterator[ShapeChange]:
        """Yield the changes, without the fields that are the same for all."""
        if statement.names and all(is_system_schema(n.schema or "") for n in statement.names):
            return
        match statement.tag, statement.kind:
            case "CREATE TABLE", _:
                yield from self._created(statement)
            case "ALTER TABLE", "table":
                yield from self._altered(statement)
            case ("UPDATE", _) | ("", _):
                yield from self._done_to(statement)
            case "DROP TABLE", _:
                for name in statement.names:
                    yield from self._dropped(statement, name)
            case "CREATE INDEX", _ if statement.index is not None:
                yield from self._indexed(statement)
            case "DROP INDEX" | "ALTER INDEX", _:
                for name in statement.names:
                    yield from self._index_changed(statement, name)
            case "DROP SCHEMA" | "ALTER SCHEMA", _:
                yield from self._other(statement)
                yield from self._schema_changed(statement)
            case _:
                yield from self._other(statement)

    # ------------------------------------------------------------ tables
    def _created(self, statement: Statement) -> Iterator[ShapeChange]:
        [name] = statement.names
        table = TableId(name.schema, name.name) if name.schema is not None else None
        if table is None or statement.persistence != "p":
            yield from self._other(statement)  # its rows are not in the stream
            return
        if not self.wanted(table):
            return
        self.hidden.discard(table)
        before = self.known.pop(table, None)
        if before is not None:
            why = "it is created again, and its DROP was not sent"
            gap = Hole(str(table), "suspected", why)
            yield ShapeChange(before, None, "DROP TABLE", (gap,), why)
        made = self._completed(created(statement, table))
        self.known[table] = made.after
        yield ShapeChange(None, made.after, statement.tag, *_gaps(made))

    def _altered(self, statement: Statement) -> Iterator[ShapeChange]:
        # RENAME TABLE names several; any other statement one.
        renames = [a for a in statement.actions if isinstance(a, Rename)]
        for at, name in enumerate(statement.names):
            before = self._find(name)
            actions = statement.actions
            if len(statement.names) > 1:
                actions = (renames[at],) if at < len(renames) else ()
            if before is None:
                new = renames[at].new if at < len(renames) else None
                if new is not None and new.schema and self.wanted(TableId(new.schema, new.name)):
                    yield from self._came_in(statement, TableId(new.schema, new.name))
                else:
                    yield from self._other(statement)
                continue
            made = self._completed(altered(before, actions))
            del self.known[before.id]
            holes, lossy = _gaps(made)
            if not self.wanted(made.after.id):
                yield _gone_out(before, made.after, statement)
                continue
            self.hidden.discard(made.after.id)
            self.known[made.after.id] = made.after
            yield ShapeChange(
                before, made.after, statement.tag, holes, lossy,
                renamed=made.renamed, values=made.values,
            )  # fmt: skip
            yield from self._exchanged(statement)

    def _done_to(self, statement: Statement) -> Iterator[ShapeChange]:
        """Yield the gap of values that the source computed (openGauss), or of unknown DDL."""
        before = self._find(statement.names[0]) if statement.names else None
        if before is None:
            yield from self._other(statement)
            return
        kind, why = "suspected", "an unknown statement affects it"
        if statement.tag == "UPDATE":
            kind, why = "seen", "the source computed values of a new column for older rows"
        gap = Hole(str(before.id), kind, why)
        yield ShapeChange(before, before, statement.tag or "DDL", (gap,), why)

    def _came_in(self, statement: Statement, table: TableId) -> Iterator[ShapeChange]:
        """Yield a table that got a captured name; its older rows were not captured."""
        if table in self.hidden:
            return
        read = self.read_catalog(table)
        if read is None:
            yield from self._other(statement)
            return
        self.known[table] = read
        why = "it has a captured name from here on; its older rows were not copied"
        yield ShapeChange(None, read, statement.tag, (Hole(str(table), "seen", why),), why)

    def _exchanged(self, statement: Statement) -> Iterator[ShapeChange]:
        """EXCHANGE PARTITION … WITH TABLE t: the other table's rows changed, too."""
        for action in statement.actions:
            if not (isinstance(action, OnPartition) and action.does == "exchange"):
                continue
            words = Words(action.text)
            while words and not words.take("WITH", "TABLE"):
                words.step()
            parts = words.dotted()
            name = Name(parts[-2] if len(parts) > 1 else None, parts[-1]) if parts else None
            other = self._find(name) if name is not None else None
            if other is not None:
                why = "its rows were exchanged with those of a partition"
                gap = Hole(str(other.id), "seen", why)
                yield ShapeChange(other, other, statement.tag, (gap,), why)

    def _dropped(self, statement: Statement, name: Name) -> Iterator[ShapeChange]:
        before = self._find(name)
        if before is None:
            yield from self._other(statement, name)
            return
        del self.known[before.id]
        yield ShapeChange(before, None, statement.tag)

    def _find(self, name: Name) -> TableSchema | None:
        """Return the captured table of this name; without a schema, the only one."""
        if name.schema is not None:
            return self.known.get(TableId(name.schema, name.name))
        found = [table for table in self.known.values() if table.id.name == name.name]
        return found[0] if len(found) == 1 else None

    def _completed(self, made: Applied) -> Applied:
        """Read from the catalog the types and constraints that the statement only names."""
        if any(why.startswith(WHETHER_KEY) for why in made.unknown):
            made = _keyed(made, self.read_catalog(made.after.id))
        if all(column.type_oid for column in made.after.columns):
            return made
        read = self.read_catalog(made.after.id)
        known = {column.name: column for column in read.columns} if read is not None else {}
        columns = tuple(
            column if column.type_oid else _typed(column, known.get(column.name))
            for column in made.after.columns
        )
        settled = tuple(f"column {column.name}: type " for column in columns if column.type_oid)
        unknown = [said for said in made.unknown if not said.startswith(settled)]
        # The table is gone or not visible yet.  Its values are sent as text, so targets take that.
        untyped = [column.name for column in columns if not column.type_oid]
        unknown += [f"{_UNTYPED} {name}, which the catalog does not show" for name in untyped]
        columns = tuple(_as_text(c) if c.name in untyped else c for c in columns)
        after = replace(made.after, columns=columns)
        return replace(made, after=after, unknown=tuple(unknown))

    # ------------------------------------------------------------ indexes and schemas
    def _indexed(self, statement: Statement) -> Iterator[ShapeChange]:
        index = statement.index
        assert index is not None
        before = self._find(index.table)
        if before is None or not (index.is_unique and index.columns and statement.names):
            yield from self._other(statement)
            return
        name = statement.names[0].name
        kept = tuple(u for u in before.unique if u.name != name)
        after = replace(before, unique=(*kept, Unique(name, index.columns)))
        self.known[before.id] = after
        yield ShapeChange(before, after, statement.tag)

    def _index_changed(self, statement: Statement, name: Name) -> Iterator[ShapeChange]:
        new = next((a.new.name for a in statement.actions if isinstance(a, Rename)), None)
        for before in list(self.known.values()):
            has = any(u.name == name.name for u in before.unique)
            if not has or name.schema not in {None, before.id.schema}:
                continue
            if statement.tag == "DROP INDEX":
                unique = tuple(u for u in before.unique if u.name != name.name)
            elif new is not None:
                unique = tuple(
                    replace(u, name=new) if u.name == name.name else u for u in before.unique
                )
            else:
                continue
            after = replace(before, unique=unique)
            self.known[before.id] = after
            yield ShapeChange(before, after, statement.tag)
            return
        yield from self._other(statement, name)

    def _schema_changed(self, statement: Statement) -> Iterator[ShapeChange]:
        """Tables are dropped with their schema; whether the server sends each is unknown."""
        new = next((a.new.name for a in statement.actions if isinstance(a, Rename)), None)
        for name in statement.names:
            for before in [t for t in self.known.values() if t.id.schema == name.name]:
                if statement.tag == "DROP SCHEMA":
                    del self.known[before.id]
                    yield ShapeChange(before, None, statement.tag)
                elif new is not None:
                    after = replace(before, id=TableId(new, before.id.name))
                    del self.known[before.id]
                    if not self.wanted(after.id):
                        yield _gone_out(before, after, statement)
                        continue
                    self.known[after.id] = after
                    yield ShapeChange(before, after, statement.tag)

    def _other(self, statement: Statement, name: Name | None = None) -> Iterator[ShapeChange]:
        """An object that is not a captured table: reported as well."""
        names = (name,) if name is not None else statement.names or (None,)
        for each in names:
            schema = "" if each is None else each.schema or each.name
            named = None if each is None else TableId(schema, each.name)
            if named is not None and (not self.wanted(named) or named in self.hidden):
                continue
            yield ShapeChange(
                None,
                None,
                statement.tag or "DDL",
                lossy="an unknown statement" if statement.unread else None,
                kind=statement.kind or "other",
                identity=None if each is None else str(each),
            )


def _gone_out(before: TableSchema, after: TableSchema, statement: Statement) -> ShapeChange:
    """Return the gap of a table that got a name that is not captured."""
    why = f"is not captured any more: it is {after.id} now"
    gap = Hole(str(before.id), "seen", why)
    return ShapeChange(before, before, statement.tag, (gap,), why)


def _gaps(made: Applied) -> tuple[tuple[Hole, ...], str | None]:
    """Rows that changed without being sent are a gap; an unknown action may be one."""
    table = str(made.after.id)
    holes = [Hole(table, "seen", why) for why in made.lost]
    holes += [
        Hole(table, "suspected", why)
        for why in made.unknown
        if why.startswith(("what was done", WHETHER_KEY, _UNTYPED))
    ]
    return tuple(holes), "; ".join([*made.lost, *made.unknown]) or None


def _keyed(made: Applied, read: TableSchema | None) -> Applied:
    """Determine what a dropped constraint was from the constraints that the table has now.

    Where the catalog shows the same key, it was another constraint; where it shows none, the key.
    Anything else stays unknown, and is a gap: rows that are not unique would become one.
    """
    if read is None or read.key not in {made.after.key, ()}:
        return made
    there = {unique.columns for unique in read.unique}
    kept = tuple(unique for unique in made.after.unique if unique.columns in there)
    is_carried = made.after.replica_identity is ReplicaIdentity.DEFAULT
    after = replace(
        made.after,
        key=read.key,
        unique=kept,
        identity_columns=read.key if is_carried else made.after.identity_columns,
    )
    unknown = tuple(why for why in made.unknown if not why.startswith(WHETHER_KEY))
    return replace(made, after=after, unknown=unknown)


def _as_text(column: Column) -> Column:
    return replace(column, type_oid=_TEXT, type_mod=-1, type_name="text", user_type=None)


def _typed(column: Column, read: Column | None) -> Column:
    if read is None:
        return column
    return replace(
        column,
        type_oid=read.type_oid,
        type_mod=read.type_mod,
        type_name=read.type_name,
        user_type=read.user_type,
    )
