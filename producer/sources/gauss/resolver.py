"""Converts rows that name table and columns themselves into rows of described relations.

GaussDB's plugins and test_decoding do not describe relations: each row contains
its names, and types by OID or by name.  It never contains keys, nullability or
modifiers; a row of a DELETE does not even contain all columns.  Here the rows
get a relation whose columns are those of the newest row seen, or of a catalog
reading if none was seen yet.  So later modules (`Relations`, the assembler) are
the same for every plugin.

A reading of the catalog may be younger than the row.  It is never used for a
column that the row does not confirm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from producer.core.changes import (
    Cells,
    Delete,
    Insert,
    Lost,
    Mark,
    Message,
    Relation,
    RelationColumn,
    Truncate,
    Update,
)
from producer.core.shape_change import ShapeChange, StatementChanges
from producer.errors import Unsupported
from producer.sources.gauss.ddl.deparsed import Deparsed
from producer.sources.gauss.ddl.model import Statement
from producer.sources.gauss.decoders.messages import (
    Ddl,
    NamedChange,
    NamedRow,
    NamedTruncate,
    RowShape,
)
from producer.sources.gauss.decoders.tuples import readings
from schemas.control import Origin
from schemas.errors import LOAD_AGAIN
from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import ReplicaIdentity, TableId, TableSchema

ReadCatalog = Callable[[TableId], TableSchema | None]
OidOf = Callable[[str], int | None]

MARKS = TableId(OWN_SCHEMA, "snapshot_marks")  # see `marks`
_NOTHING = RowShape((), (), ())
_SKIP = "to continue without such rows: tables.without-identity = 'skip-and-record'"
_TEXT, _CLOB = 25, 90


@dataclass(slots=True)
class _Plan:
    """How rows of one pair of shapes become cells of their relation."""

    relation: int
    kind: str  # "O": all old columns, "K": the identity's columns, "": none
    places: tuple[int, ...] | None  # of each column in the old row, -1: not sent; None: as it is
    shapes: tuple[RowShape, RowShape]  # kept alive: plans are found by their ids


@dataclass(frozen=True, slots=True)
class Resolved:
    """How rows like one that was resolved are: `relation` 0: their table is not captured."""

    relation: int
    kind: str  # as in `_Plan`
    old: tuple[int, ...]  # of each old cell: its column, or -1
    width: int  # columns of the relation


@dataclass(slots=True)
class _Table:
    """A table as its rows show it."""

    id: TableId
    names: tuple[str, ...]
    oids: tuple[int, ...]
    identity: tuple[str, ...]
    letter: ReplicaIdentity
    has_key: bool
    plans: dict[tuple[int, int], _Plan] = field(default_factory=dict)
    relations: dict[tuple[str, ...], int] = field(default_factory=dict)  # identity -> id


class RelationResolver:
    """The tables of one stream, by name."""

    def __init__(
        self,
        known: dict[TableId, TableSchema],
        *,
        wanted: Callable[[TableId], bool],
        read_catalog: ReadCatalog,
        oid_of: OidOf,
        skip_unidentified: bool = False,
        names_run_together: bool = False,
        hidden: set[TableId] | None = None,
    ) -> None:
        """`known`: the tables in force, shared with the assembler; statements update them here.

        `skip_unidentified`: a change that does not identify its row becomes Lost, instead
        of raising Unsupported.  `names_run_together`: decode-style t, which
        writes a blank between schema and table and quotes neither.  `hidden` tables are wanted
        later; one whose creation the stream reports is taken out of them.
        """
        self._wanted, self._hidden = wanted, set() if hidden is None else hidden
        self._gone: set[TableId] = set()  # of the hidden ones
        # By the start and by statements: what rows showed since is in force as they are given here.
        self._said = {table.id: table for table in known.values() if _is_typed(table)}
        self._read: dict[TableId, TableSchema] = {}  # by the catalog, since the last statement
        self._deparsed = Deparsed(known, wanted, read_catalog, self._hidden)
        self._read_catalog, self._oid_of = read_catalog, oid_of
        self._skip_unidentified = skip_unidentified
        self._names_run_together = names_run_together
        self._meant: dict[tuple[str, str], tuple[str, str]] = {}  # as split -> as it is
        self._tables: dict[tuple[str, str], _Table] = {}
        self._unwanted: set[tuple[str, str]] = set()
        self.left_out = 0  # rows of tables that are not captured
        self.version = 0  # another one: what `resolved` said may not be true any more
        self._next = 1

    def statement(self, ddl: Ddl, statement: Statement) -> Iterator[Message]:
        """Return the resolved changes of a statement; a TRUNCATE by relations.

        Shapes are those after it.  `ddl` is what `statement` was read from.
        """
        # What was read of the catalog may belong to another table now.
        self.version += 1
        self._read.clear()
        self._meant.clear()
        if statement.tag == "TRUNCATE TABLE":
            named = tuple((name.schema or "public", name.name) for name in statement.names)
            yield from self.emptied(NamedTruncate(named))
            return
        changes = self._deparsed.state(statement, loses_clauses=ddl.form != "deparse")
        for change in changes:
            self._take(change)
        if statement.unread:
            self._said.clear()
        for seen in self._tables.values():
            seen.plans.clear()
        if changes:
            is_text = ddl.form == "TDDL"
            yield StatementChanges(
                tuple(changes),
                Origin.DEPARSED,
                sql=ddl.content if is_text else ddl.sql,
                jddl=None if is_text else ddl.content,
            )

    def _take(self, change: ShapeChange) -> None:
        """Discard the columns that rows showed of a changed table; keep those of its statement."""
        before, after = change.before, change.after
        for table in (before, after):
            if table is not None:
                self._tables.pop((table.id.schema, table.id.name), None)
        was_said = before is None or self._said.pop(before.id, None) is not None
        if after is not None and was_said and _is_typed(after):
            self._said[after.id] = after

    def adopt(self, table: TableSchema) -> None:
        """Take the shape under which a table was read again: in force from here on."""
        self.forget(table.id)
        if _is_typed(table):
            self._said[table.id] = table

    def forget(self, table: TableId) -> None:
        """Take it that a table is gone, or another one: what rows showed of it is no more."""
        self.version += 1
        self._tables.pop((table.schema, table.name), None)
        self._read.pop(table, None)
        self._meant.clear()
        self._said.pop(table, None)

    def table_of(self, change: NamedChange) -> TableId:
        """Name a row's table."""
        if self._names_run_together and " " in change.table:
            return TableId(*self._name_of(change))
        return TableId(change.schema, change.table)

    def row(self, change: NamedChange) -> Iterator[Message]:
        """Yield the row's relation if it is new, then the row."""
        if change.old is not None and not change.old.cells:
            change.old = None  # it identifies no row
        new, old = change.new, change.old
        if self._names_run_together and " " in change.table:
            change.schema, change.table = self._name_of(change)
        table = self._tables.get((change.schema, change.table))
        if table is not None:
            at = (id(new.shape if new else None), id(old.shape if old else None))
            if (plan := table.plans.get(at)) is not None:
                yield from self._filled(change, table, plan)
                return
        elif self._is_unwanted(change.schema, change.table):
            self.left_out += 1
            if (change.schema, change.table) == MARKS and change.op == "c" and new:
                yield from marks_of(new.cells)
            return
        if table is None and self._is_hidden_and_gone(TableId(change.schema, change.table)):
            yield Lost(change.schema, change.table, "seen", "a row of a table that was not loaded")
            return
        try:
            table = self._table(change, table)
        except _ColumnsUnknown as unknown:
            if not self._skip_unidentified:
                raise
            yield Lost(change.schema, change.table, "seen", unknown.what)
            return
        described: list[Relation] = []
        plan = self._plan(table, new, old, described)
        yield from described
        yield from self._filled(change, table, plan)

    def resolved(self, change: NamedChange) -> Resolved | None:
        """Say how rows like this one are, which was resolved; None: each one by itself."""
        new, old = change.new, change.old
        table = self._tables.get((change.schema, change.table))
        if table is None:
            is_left_out = (change.schema, change.table) in self._unwanted
            return Resolved(0, "", (), 0) if is_left_out else None
        plan = table.plans.get((id(new.shape if new else None), id(old.shape if old else None)))
        width = len(table.names)
        is_simple = {
            "c": new is not None and old is None,
            "u": new is not None and old is not None,
            "d": new is None and old is not None,
        }[change.op]
        if plan is None or not is_simple or (new is not None and len(new.cells) != width):
            return None
        at: dict[int, int] = {}  # of each old cell: its column
        if plan.places is not None:
            at = {sent: column for column, sent in enumerate(plan.places)}
        count = len(old.cells) if old is not None else 0
        places = tuple(n if plan.places is None else at.get(n, -1) for n in range(count))
        return Resolved(plan.relation, plan.kind, places, width)

    def emptied(self, truncate: NamedTruncate) -> Iterator[Message]:
        """Yield a TRUNCATE by relations."""
        relations = []
        for schema, name in truncate.tables:
            if self._is_unwanted(schema, name):
                continue
            table = self._tables.get((schema, name))
            if table is None:
                reading = self._reading(TableId(schema, name), ())
                if reading is None:
                    yield Lost(schema, name, "seen", "TRUNCATE of a table that was dropped since")
                    continue
                table = self._from_reading(reading)
            described: list[Relation] = []
            relations.append(self._relation(table, table.identity, described))
            yield from described
        if relations:
            yield Truncate(tuple(relations), truncate.cascade, truncate.restart_identity)

    # ------------------------------------------------------------ tables
    def _is_unwanted(self, schema: str, name: str) -> bool:
        if (schema, name) not in self._unwanted:
            if self._wanted(TableId(schema, name)):
                return False  # rows of a hidden table, too: a window is watched for them
            self._unwanted.add((schema, name))
        return True

    def _is_hidden_and_gone(self, table: TableId) -> bool:
        """Say whether nothing of a table is delivered, and nothing tells what its rows mean.

        A window of it is watched for them all the same.
        """
        if table not in self._hidden:
            return False
        if table not in self._gone and self._reading(table, ()) is None:
            self._gone.add(table)  # the catalog is not read for each row
        return table in self._gone

    def _name_of(self, change: NamedChange) -> tuple[str, str]:
        """Return the table that a row of decode-style t means; raise Unsupported for two."""
        said = change.schema, change.table
        if (meant := self._meant.get(said)) is None:
            sent = (change.new or change.old or NamedRow(_NOTHING, [])).shape.names
            fit = [
                pair
                for pair in readings(*said)
                if pair in self._tables or self._reading(TableId(*pair), sent) is not None
            ]
            if not fit:  # columns may have been dropped since
                fit = [
                    pair
                    for pair in readings(*said)
                    if self._reading(TableId(*pair), ()) is not None
                ]
            if len(fit) > 1:
                raise Unsupported(
                    "decode-style t prints two tables in the same way: it does not quote names",
                    tables=", ".join(str(TableId(*pair)) for pair in fit),
                    hint="set decode-style = 'b' in [source.options] and start again",
                )
            meant = self._meant[said] = fit[0] if fit else said
        return meant

    def _table(self, change: NamedChange, known: _Table | None) -> _Table:
        """Return the table as this row shows it; another shape starts a new one."""
        new = change.new
        if new is None:
            old = change.old.shape.names if change.old else ()
            if known is not None and set(old) <= set(known.names):
                return known
            reading = self._reading(TableId(change.schema, change.table), old)
            if reading is None:
                raise _ColumnsUnknown(
                    "an old row of a table whose columns are not known: it was altered or "
                    "dropped since, and no new row of it was seen",
                    table=TableId(change.schema, change.table),
                    hint=f"{_SKIP}; or {LOAD_AGAIN}",
                )
            return self._from_reading(reading)
        shape = new.shape
        names, oids = shape.names, shape.oids
        if not names and new.cells:
            if known is not None and len(known.names) == len(new.cells):
                return known
            return self._positional(change, len(new.cells))
        reading = None
        table_id = TableId(change.schema, change.table)
        if known is None or known.names != names or any(oid == 0 for oid in oids):
            reading = self._reading(table_id, names)
        oids = self._oids(shape, reading, known)
        if known is not None and (known.names, known.oids) == (names, oids):
            return known
        source = reading or self._said.get(table_id) or self._read.get(table_id)
        has = set(names)
        identity = source.identity_columns if source else ()
        table = _Table(
            table_id,
            names,
            oids,
            identity if set(identity) <= has else (),
            source.replica_identity if source else ReplicaIdentity.DEFAULT,
            bool(source and source.key and set(source.key) <= has),
        )
        self.version += 1
        self._tables[table_id.schema, table_id.name] = table
        return table

    def _positional(self, change: NamedChange, count: int) -> _Table:
        """Use a reading's columns for a row without names, if it has as many."""
        table = TableId(change.schema, change.table)
        reading = self._reading(table, ())
        if reading is None or len(reading.columns) != count:  # altered since it was read
            self._said.pop(table, None)
            self._read.pop(table, None)
            reading = self._reading(table, ())
        if reading is None or len(reading.columns) != count:
            raise _ColumnsUnknown(
                "the plugin does not name columns, and the catalog shows another number",
                table=table,
                sent=count,
                known=len(reading.columns) if reading else "none",
                hint="a DDL lies between the row and now; with [source] plugin = 'mppdb_decoding' "
                f"columns are named; {_SKIP}; or {LOAD_AGAIN}",
            )
        return self._from_reading(reading)

    def _from_reading(self, reading: TableSchema) -> _Table:
        table = _Table(
            reading.id,
            reading.names(),
            tuple(column.type_oid for column in reading.columns),
            reading.identity_columns,
            reading.replica_identity,
            bool(reading.key),
        )
        self.version += 1
        self._tables[reading.id.schema, reading.id.name] = table
        return table

    def _reading(self, table: TableId, names: tuple[str, ...]) -> TableSchema | None:
        """Return a table that has all of `names`: as it was described, or as of now."""
        for known in (self._said.get(table), self._read.get(table)):
            if known is not None and set(names) <= set(known.names()):
                return known
        read = self._read_catalog(table)
        if read is None or not set(names) <= set(read.names()):
            return None
        self._read[table] = read
        return read

    def _oids(
        self, shape: RowShape, reading: TableSchema | None, known: _Table | None
    ) -> tuple[int, ...]:
        """Types by OID: as sent, by the type's name, or as read of a column of that name."""
        read = {c.name: c.type_oid for c in reading.columns} if reading else {}
        if known is not None:
            read = {**dict(zip(known.names, known.oids, strict=True)), **read}
        return tuple(
            oid or self._oid(name, read.get(column, 0))
            for column, oid, name in zip(shape.names, shape.oids, shape.types, strict=True)
        )

    def _oid(self, name: str, read: int) -> int:
        """Return the type of a column whose type the stream names or leaves out."""
        said = (self._oid_of(name) if name else 0) or read
        return read if (said, read) == (_TEXT, _CLOB) else said  # clob is printed as text

    # ------------------------------------------------------------ plans
    def _plan(
        self,
        table: _Table,
        new: NamedRow | None,
        old: NamedRow | None,
        described: list[Relation],
    ) -> _Plan:
        identity, kind, places = table.identity, "", None
        if old is not None:
            sent = old.shape.names
            if sent == table.names:
                kind = "O"
            else:
                at = {name: place for place, name in enumerate(sent)}
                places = tuple(at.get(name, -1) for name in table.names)
                # Old rows contain a generated column although new ones may omit it.
                kept = tuple(name for name in table.names if name in at)
                kind = "O" if len(kept) == len(table.names) else "K"
                if kind == "K":
                    identity = kept
        relation = self._relation(table, identity, described)
        shapes = (new.shape if new else _NOTHING, old.shape if old else _NOTHING)
        plan = _Plan(relation, kind, places, shapes)
        table.plans[id(new.shape if new else None), id(old.shape if old else None)] = plan
        return plan

    def _relation(self, table: _Table, identity: tuple[str, ...], described: list[Relation]) -> int:
        """Return the id of the table with this identity; describe it at its first use."""
        order = tuple(name for name in table.names if name in set(identity))
        if (found := table.relations.get(order)) is not None:
            return found
        number, self._next = self._next, self._next + 1
        table.relations[order] = number
        is_read = set(identity) == set(table.identity)
        letter = table.letter if is_read else ReplicaIdentity.INDEX
        columns = tuple(
            RelationColumn(name, oid, None, name in order)
            for name, oid in zip(table.names, table.oids, strict=True)
        )
        described.append(Relation(number, table.id.schema, table.id.name, letter, columns))
        return number

    def _filled(self, change: NamedChange, table: _Table, plan: _Plan) -> Iterator[Message]:
        new, old = change.new, change.old
        cells: Cells | None = None
        if old is not None:
            cells = old.cells
            if plan.places is not None:
                cells = [None if at < 0 else old.cells[at] for at in plan.places]
        if change.op != "d" and new is None:
            yield self._unidentified(table, "INSERT" if change.op == "c" else "UPDATE", "new")
        elif change.op == "c" and new is not None:
            yield Insert(plan.relation, new.cells)
        elif change.op == "u" and new is not None:
            if cells is None and not table.has_key:
                yield self._unidentified(table, "UPDATE")
            else:
                if cells is None:
                    yield Lost(*table.id, "suspected", "an UPDATE without old key values")
                yield Update(plan.relation, plan.kind, cells, new.cells)
        elif cells is not None:
            yield Delete(plan.relation, plan.kind, cells)
        else:
            yield self._unidentified(table, "DELETE")

    def _unidentified(self, table: _Table, what: str, values: str = "old") -> Lost:
        if self._skip_unidentified:
            return Lost(*table.id, "seen", f"{what} without {values} values: it identifies no row")
        raise Unsupported(
            f"{what} without {values} values: it does not identify its row",
            table=table.id,
            hint=f"ALTER TABLE {table.id} REPLICA IDENTITY FULL, or give it a primary key, for "
            f"later rows; {_SKIP}",
        )


def marks_of(cells: Cells) -> Iterator[Mark]:
    """Read the token of a mark (`marks`); another role's table may have any rows.

    >>> list(marks_of([b"4711", b"bank"])), list(marks_of([]))
    ([Mark(token=4711)], [])
    """
    for token in cells[:1]:
        if isinstance(token, bytes) and token.isdigit():
            yield Mark(int(token))


class _ColumnsUnknown(Unsupported):
    """A row whose columns neither the stream nor the catalog contains any more."""


def _is_typed(table: TableSchema) -> bool:
    """Say whether the types of all columns are known: a statement may only name them."""
    return all(column.type_oid for column in table.columns)
