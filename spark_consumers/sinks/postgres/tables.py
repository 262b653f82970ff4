"""Tables of a PostgreSQL target as the stream makes and changes them.

A table is ours once a load or a CREATE in the stream took it; one that held rows
before is refused, so that no data are mixed or removed without a request.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from schemas import conditions, type_names
from schemas.control import Moved, Origin, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.ownership import is_trusted
from schemas.positions import NOWHERE
from schemas.sql_text import NotRead
from schemas.system_schemas import SEARCH_PATH
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.dialects import COLUMN_TYPES, user_types
from spark_consumers.dialects.base import Dialect, Extras, LeftOut, quote, refuse_reserved
from spark_consumers.dialects.fitting import fits
from spark_consumers.errors import MissingColumn, NotExpressible, TargetNotEmpty
from spark_consumers.sinks.postgres.apply import Catalog, heirs_problem
from spark_consumers.sinks.postgres.catalog import TargetColumn, TargetTable
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, part, sqlstate
from spark_consumers.sinks.postgres.lease import is_held
from spark_consumers.sinks.postgres.ledger import lock_ledger, mark_taken
from spark_consumers.sinks.postgres.noted import OF_TABLE
from spark_consumers.sinks.postgres.owned import Owned
from spark_consumers.sinks.postgres.products import TargetProduct
from spark_consumers.sinks.postgres.rights import owner_problems
from spark_consumers.sinks.postgres.shadows import Shadows, written

# Each part in quotes, whether it needs them or not: as type_names.parse() writes them.  A table
# that is copied is no type of another one's column: it could be neither dropped nor altered.
_TYPES: Final = f"""
SELECT said.qualified, said.name FROM (
    SELECT '"' || replace(n.nspname, '"', '""') || '"."' || replace(t.typname, '"', '""') || '"',
           '"' || replace(t.typname, '"', '""') || '"', t.typtype
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    WHERE t.typtype <> 'p' AND {part(is_trusted("t.typowner"))} AND NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid AND c.relkind <> 'c')
) said (qualified, name, typtype)
WHERE said.qualified = ANY (%s) OR said.typtype = 'b' AND '*.' || said.name = ANY (%s)
"""
# Of a domain over another one, the last is what it is made of in the end.
_BASES: Final = """
WITH RECURSIVE made_of (name, oid, modifier, depth) AS (
    SELECT '"' || replace(n.nspname, '"', '""') || '"."' || replace(t.typname, '"', '""') || '"',
           t.typbasetype, t.typtypmod, 1
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    WHERE t.typtype = 'd'
    UNION ALL
    SELECT m.name, t.typbasetype, t.typtypmod, m.depth + 1
    FROM made_of m JOIN pg_catalog.pg_type t ON t.oid = m.oid WHERE t.typtype = 'd'
)
SELECT name, pg_catalog.format_type(oid, modifier) FROM made_of WHERE name = ANY (%s) ORDER BY depth
"""
_DROPS: Final = re.compile(r'^DROP TABLE |^ALTER TABLE (?:"(?:[^"]|"")*+"\.?)++ DROP COLUMN ')
_DEPENDENT: Final = "2BP01"


def _with_types_of_the_target(cursor: Any, change: SchemaChange) -> SchemaChange:
    if not (names := user_types.needed_names(change)):
        return user_types.settled(change, ())
    cursor.execute(_TYPES, (names, names))
    there = set()
    for qualified, name in cursor.fetchall():
        there |= {qualified, f"*.{name}={qualified}"}
    if bases := [(name, *base) for name, *base in user_types.needed_bases(change) if name in there]:
        cursor.execute(_BASES, ([name for name, *_ in bases],))
        made_of = dict(cursor.fetchall())
        there -= {
            name
            for name, needed, own in bases
            if (found := made_of.get(name, needed)) != own and not fits(found, needed)
        }
    return user_types.settled(change, there)


def _try(cursor: Any, statement: str) -> str | None:
    """Run a statement that may fail; return the SQLSTATE if it did."""
    cursor.execute("SAVEPOINT gauss_cdc_ddl")
    try:
        cursor.execute(statement)
    except DRIVER_ERRORS as error:
        code = sqlstate(error)
        if code is None:
            raise
        cursor.execute("ROLLBACK TO SAVEPOINT gauss_cdc_ddl")
        return code
    cursor.execute("RELEASE SAVEPOINT gauss_cdc_ddl")
    return None


def _has_schema(cursor: Any, catalog: Catalog, table: TableSchema | None) -> bool:
    if table is None:
        return False
    schema = table.id.schema
    if schema not in catalog.schemas:
        cursor.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,))
        if cursor.fetchone() is None:
            return False
        catalog.schemas.add(schema)
    return True


def lock_table(cursor: Any, table: TableId) -> None:
    """Lock a table against other writers until this transaction ends."""
    cursor.execute(f"LOCK TABLE {written(table)} IN SHARE ROW EXCLUSIVE MODE")


class OpenLoads:
    """Loads that began and did not end, and how many rows each brought.

    Between two steps of a load, of which the second may come after days and a restart, any client
    may write into the table.  So the first chunk of each run and the end count what is there.
    """

    def __init__(self, source: str, *, replace: bool) -> None:
        self._source, self._replace = source, replace
        self._counted: set[TableId] = set()

    def begin(self, cursor: Any, table: TableId, *, counts: bool) -> None:
        """The table was emptied; `counts`: nothing but the load will write into it."""
        self.leave(cursor, table)
        if not counts:
            return
        cursor.execute("INSERT INTO gauss_cdc.loads VALUES (%s, %s, %s, 0)", (self._source, *table))

    def add(self, cursor: Any, table: TableId, rows: int, *, place: TableId) -> None:
        """A chunk is about to be written: ask whether `place` holds the ones before it alone."""
        if table not in self._counted:
            lock_table(cursor, place)
            self._compare(cursor, table, place, self._loaded(cursor, table))
            self._counted.add(table)
        cursor.execute(
            f"UPDATE gauss_cdc.loads SET loaded = loaded + %s WHERE {OF_TABLE}",
            (rows, self._source, *table),
        )

    def end(self, cursor: Any, table: TableId, *, place: TableId) -> None:
        """The table is to be called exact: `place` must hold what was loaded, and nothing else."""
        for one in dict.fromkeys((table, place)):
            lock_table(cursor, one)
        self._compare(cursor, table, place, self.leave(cursor, table))

    def rename(self, cursor: Any, was: TableId, now: TableId) -> None:
        """A table has another name now."""
        cursor.execute(
            f"UPDATE gauss_cdc.loads SET table_schema = %s, table_name = %s WHERE {OF_TABLE}",
            (*now, self._source, *was),
        )

    def ask_again(self) -> None:
        """A transaction was undone, or another run begins."""
        self._counted.clear()

    def _compare(self, cursor: Any, table: TableId, place: TableId, loaded: int | None) -> None:
        if loaded is None:
            return
        cursor.execute(f"SELECT count(*) FROM {written(place)}")
        there = cursor.fetchone()[0]
        if there == loaded:
            return
        if self._replace and not loaded:
            cursor.execute(f"DELETE FROM {written(place)}")
            return
        raise TargetNotEmpty(
            "a table that is being loaded holds other rows than those of the load",
            table=table,
            rows=there,
            loaded=loaded,
            hint="another client, or a trigger, writes into it: end that, then "
            + (LOAD_AGAIN if loaded else "empty it, or apply with --replace"),
        )

    def _loaded(self, cursor: Any, table: TableId) -> int | None:
        """None: it began under a release that did not count."""
        cursor.execute(
            f"SELECT loaded FROM gauss_cdc.loads WHERE {OF_TABLE}", (self._source, *table)
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])

    def leave(self, cursor: Any, table: TableId) -> int | None:
        """Forget the load, and what the rows before it met; the same as `_loaded`.

        None: no load was open.
        """
        self._counted.discard(table)
        cursor.execute(
            f"DELETE FROM gauss_cdc.conflicts WHERE {OF_TABLE};"
            f" DELETE FROM gauss_cdc.loads WHERE {OF_TABLE} RETURNING loaded",
            (self._source, *table) * 2,
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])


class Tables:
    """What one source may do to a target's tables."""

    def __init__(
        self,
        source: str,
        dialect: Dialect,
        shadows: Shadows,
        loads: OpenLoads,
        *,
        inside: Dialect,
        replace: bool,
        apply: str = "tables",
        extras: Extras | None = None,
        code: bool = False,
        on_note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`apply`: what of schema changes is followed, "none", "tables" or "all".

        `inside` is the dialect for shadow tables, which stand in a schema of ours.
        `code`: with "all", also what runs code of the source's at the target.
        """
        self._dialect, self._replace = dialect, replace
        self.unmet: set[TableId] = set()  # their unique indexes are not made: rows refuse them
        self.follows = apply != "none"
        self._owned, self._loads = Owned(source), loads
        self._shadows, self._inside = shadows, inside
        self._apply, self._extras, self.on_note = apply, extras, on_note
        self._code = code
        self._left_out = 0

    def forget_others(self) -> None:
        """A transaction begins: others may have taken tables since."""
        self._owned.forget_others()

    def ask_again(self) -> None:
        """A transaction was undone, or another run begins."""
        self._owned.ask_again()
        self._shadows.ask_again()
        self._loads.ask_again()

    def alter(
        self, cursor: Any, catalog: Catalog, change: SchemaChange, *, is_exact: bool = True
    ) -> bool:
        """Run a schema change in its place; a table that is not exact may lose its rows by it.

        Say whether readers lose rows in this way that a load left them.
        """
        if not self.follows:
            for change_inside in self._in_shadows(cursor, change):  # they are ours
                self._follow_inside(cursor, change_inside)
            self._check_followed(cursor, catalog, change)
            return False
        before, after = change.before, change.after
        refuse_reserved(*(table.id for table in (before, after) if table is not None))
        if after is not None and (before is None or before.id != after.id):
            self._make_room(cursor, catalog, after.id)
        if before is not None and after is not None and before.id != after.id:
            why = "is renamed by the stream"
            self._ask_others(cursor, catalog, after.id, why=why)
            self._owned.rename(cursor, before.id, after.id)
            self._loads.rename(cursor, before.id, after.id)
            self._shadows.rename(cursor, before.id, after.id)
            if catalog.shapes is not None:
                catalog.shapes.rename(cursor, before.id, after.id)
            self.own(cursor, catalog, after.id, why=why)
        elif after is not None and before is None:
            self.own(cursor, catalog, after.id, why="is created by the stream")
        elif before is not None and after is None:
            self._owned.leave(cursor, before.id)
            self._loads.leave(cursor, before.id)
            self._shadows.leave(cursor, before.id)
        if self._apply == "all":
            change = self._rename_types(cursor, change)
        is_lost = self.create(cursor, catalog, change, is_exact=is_exact)
        self._go_beyond(cursor, change)
        return is_lost

    @staticmethod
    def _check_followed(cursor: Any, catalog: Catalog, change: SchemaChange) -> None:
        """See that a table which its owner alters holds what comes; a row asks for its columns."""
        if change.after is None or change.before == change.after:
            return
        catalog.forget(cursor, change.after.id)
        owners = Catalog(product=catalog.product)  # where readers look, not a load's rows
        for problem in shape_problems(cursor, owners, change):
            if not isinstance(problem, MissingColumn):
                raise problem

    def _make_room(self, cursor: Any, catalog: Catalog, name: TableId) -> None:
        """Give up a table of ours whose name another one takes at the source.

        It left the stream before: it was made UNLOGGED there, or dropped without a report.
        """
        made = self._owned.leave(cursor, name)
        self._loads.leave(cursor, name)
        if self._shadows.leave(cursor, name):
            catalog.forget(cursor, name)
        if made is None or not catalog.has(cursor, name):
            return
        table = f"{quote(name.schema)}.{quote(name.name)}"
        # A table that others created keeps its shape.
        cursor.execute(f"DROP TABLE {table}" if made else f"DELETE FROM {table}")
        catalog.forget(cursor, name)
        self.on_note(f"{name}: the rows of an older table of this name are dropped")

    def _rename_types(self, cursor: Any, change: SchemaChange) -> SchemaChange:
        """Rename the types that the source renamed; else their columns would become text.

        Only where the target has the older name and not the newer one: the first table of a type
        does it for all of them.
        """
        names = user_types.renamed(change)
        if not names:
            return change
        for was, now in names.items():
            cursor.execute(_TYPES, ([was, now], []))
            there = {name for name, _ in cursor.fetchall()}
            old, new = type_names.parse(was), type_names.parse(now)
            if there != {was} or old.schema is None or new.schema is None:
                continue
            refuse_reserved(TableId(old.schema, old.name), TableId(new.schema, new.name))
            schema, name = quote(old.schema), quote(old.name)
            new_schema, new_name = quote(new.schema), quote(new.name)
            for statement in (
                f"CREATE SCHEMA IF NOT EXISTS {new_schema}" * (schema != new_schema),
                f"ALTER TYPE {was} SET SCHEMA {new_schema}" * (schema != new_schema),
                f"ALTER TYPE {new_schema}.{name} RENAME TO {new_name}" * (name != new_name),
            ):
                if statement and (why := _try(cursor, statement)) is not None:
                    self.on_note(f"type {was} is not renamed to {now}: the target says {why}")
                    break
        cursor.execute(_TYPES, (sorted(names.values()), []))
        there = {name for name, _ in cursor.fetchall()}
        return user_types.with_new_names(change) if there >= set(names.values()) else change

    def _go_beyond(self, cursor: Any, change: SchemaChange) -> None:
        """NOT NULL, defaults, other objects: what the target cannot express is reported."""
        table = change.after or change.before
        about = str(table.id) if table is not None else change.identity
        if self._apply != "all" or self._extras is None:
            if change.before is None and change.after is None:
                self.on_note(f"{change.tag} of {about} is not applied: [ddl] apply = tables")
            return
        if not (statements := self._extras(change, code=self._code)):
            return
        if self._code:  # names in functions are those that their callers see
            cursor.execute("SET LOCAL search_path TO DEFAULT")
        for statement in statements:
            if isinstance(statement, LeftOut):
                self._left_out += 1
                self.on_note(
                    f"{change.tag} of {about} is not applied: {statement.why};"
                    f" {statement.way_out} ({self._left_out} of this kind since apply began)"
                )
            elif (why := _try(cursor, statement)) is not None:
                self.on_note(f"{change.tag} of {about} is not applied: the target says {why}")
        if self._code:
            cursor.execute(f"SET LOCAL search_path TO {SEARCH_PATH}")

    def begin(
        self, cursor: Any, catalog: Catalog, change: SchemaChange, *, keeps: bool = False
    ) -> bool:
        """A load begins: a table of our own making takes the shape that the source has by now.

        It may have been made by an earlier load, before columns came and went.  Say whether a
        table of ours was there and has its rows; they go with its old shape, unless `keeps`.

        Raises NotExpressible without a shape.
        """
        table = change.after
        if table is None:
            raise NotExpressible("a load of a table without a shape")
        made = self._owned.made(cursor, table.id)
        has_rows = made is not None and catalog.has(cursor, table.id)
        if has_rows and made:
            there = catalog.tables[table.id]
            is_other = (set(there.columns), set(there.key)) != (set(table.names()), set(table.key))
            is_other = is_other or any(shape_problems(cursor, catalog, change))
            if is_other and not (keeps and self._reshape(cursor, catalog, change)):
                cursor.execute(f"DROP TABLE {written(table.id)}")
                has_rows = False
            is_loose = has_rows and self._loosen(cursor, there, table)
            if is_other or is_loose:
                catalog.forget(cursor, table.id)
        self.check_shape(cursor, catalog, change)
        self.own(cursor, catalog, table.id, why="is to be loaded first")
        self.create(cursor, catalog, change)
        return has_rows

    def _loosen(self, cursor: Any, there: TargetTable, table: TableSchema) -> bool:
        """Allow NULL where the source does by now, which no statement may have told."""
        firm = {name for name, column in there.columns.items() if not column.nullable}
        free = firm & {c.name for c in table.columns if c.nullable} - {*table.key}
        for name in sorted(free):
            head = f"ALTER TABLE {written(table.id)} ALTER COLUMN {quote(name)}"
            cursor.execute(f"{head} DROP NOT NULL")
        return bool(free)

    def _reshape(self, cursor: Any, catalog: Catalog, change: SchemaChange) -> bool:
        """Let columns come, go and get types around the rows that readers see, if they can."""
        table = change.after
        if table is None or set((there := catalog.tables[table.id]).key) != set(table.key):
            return False
        gone = (Column(n, 25, -1, "text") for n in there.columns if n not in table.names())
        type_of = COLUMN_TYPES[catalog.product.dialect]
        settled = _with_types_of_the_target(cursor, change).after or table
        known = [
            c
            if fits(found.type_name, type_of(table, needed))
            else replace(c, type_oid=0, type_mod=-1, type_name=found.type_name, user_type=None)
            for c, needed in zip(table.columns, settled.columns, strict=True)
            if (found := there.columns.get(c.name)) is not None
        ]
        before = replace(table, columns=(*known, *gone))
        altered = replace(change, before=before, origin=Origin.INFERRED, sql="", lossy="loaded")
        statements = self._statements(cursor, altered)
        return all(_try(cursor, statement) is None for statement in statements)

    def _statements(self, cursor: Any, change: SchemaChange) -> list[str]:
        before, after = change.before, change.after
        if after is not None and after.unique and after.id in self.unmet:
            self.on_note(
                f"WARNING: {after.id}: rows of the source do not meet a unique index of its own:"
                " none is made"
            )
            before = before and replace(before, unique=())
            change = replace(change, before=before, after=replace(after, unique=()))
        return [*self._dialect(_with_types_of_the_target(cursor, change))]

    def create(
        self, cursor: Any, catalog: Catalog, change: SchemaChange, *, is_exact: bool = True
    ) -> bool:
        """Run a schema change's statements, also in shadows; see `alter`."""
        table = change.after
        is_new = table is not None and change.before is None and not catalog.has(cursor, table.id)
        schema = f"CREATE SCHEMA IF NOT EXISTS {quote(table.id.schema)}" if table else ""
        inside = [*self._in_shadows(cursor, change)]
        seen = replace(change, moved=None) if inside else change
        is_lost = False
        for statement in self._statements(cursor, seen):
            if statement == schema and _has_schema(cursor, catalog, table):
                continue  # it would ask for CREATE on the database all the same
            if statement.startswith("SET LOCAL "):
                self._set(cursor, statement)
            elif is_exact or change.before is None or table is None:
                self._run(cursor, statement)
            elif (why := _try(cursor, statement)) is not None:
                if why != _DEPENDENT:
                    self._empty(cursor, change.before.id, table.id)
                    is_lost = bool(inside)
                self._run(cursor, statement)
        for change_inside in inside:
            self._follow_inside(cursor, change_inside)
        catalog.forget(cursor, *self._touched(change))
        if is_new and table is not None:
            self._owned.note_made(cursor, table.id)
        return is_lost

    def has_moved(self, cursor: Any, moved: Moved) -> bool:
        """Say whether the target may have rows that the source moved, or dropped.

        Under `none` its owner may have dropped the partition, too.
        """
        if moved.op != "delete" or moved.where is None:
            return True
        try:
            where = conditions.written(moved.where)
        except NotRead:
            return True
        some = f"SELECT FROM {quote(moved.table.schema)}.{quote(moved.table.name)} WHERE {where}"
        return _try(cursor, f"SELECT 1 / (1 - count(*)) FROM ({some} LIMIT 1) r") is not None

    def _touched(self, change: SchemaChange) -> Iterator[TableId]:
        """Tables that a schema change leaves otherwise than they were; none: nobody knows.

        With `all`, types and views follow that other tables have.
        """
        if self._apply == "all":
            return
        yield from (table.id for table in (change.before, change.after) if table is not None)
        if change.moved is not None:
            yield change.moved.table

    def _in_shadows(self, cursor: Any, change: SchemaChange) -> Iterator[SchemaChange]:
        """The same change of shadows; rows that moved between tables move where changes go."""
        table, moved = change.after, change.moved
        if table is None or change.before is None:
            return
        places = self._shadows.find(cursor, [table.id, *([moved.table] if moved else [])])
        place = places.get(table.id)
        now = replace(table, id=place or table.id, unique=())
        if place is not None:
            was = replace(change.before, id=place, unique=())
            yield replace(change, before=was, after=now, moved=None)
        if places and moved is not None:
            taken = replace(moved, table=places.get(moved.table, moved.table))
            yield replace(change, before=now, after=now, moved=taken)

    def _follow_inside(self, cursor: Any, change: SchemaChange) -> None:
        """Run a change of a shadow, which may lack rows, or have others, until END."""
        assert change.before is not None
        assert change.after is not None
        for statement in self._inside(_with_types_of_the_target(cursor, change)):
            if _try(cursor, statement) is not None:
                self._empty(cursor, change.before.id, change.after.id)
                self._run(cursor, statement)

    def _empty(self, cursor: Any, was: TableId, now: TableId) -> None:
        """Unknown rows conflict: a table with a gap continues without them."""
        for there in (was, now):
            name = f"{quote(there.schema)}.{quote(there.name)}"
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (name,))
            if cursor.fetchone()[0]:
                cursor.execute(f"DELETE FROM {name}")
        self.on_note(f"{now}: its rows are dropped, they were not exact")

    def _run(self, cursor: Any, statement: str) -> None:
        """Run a statement of the dialect; with `all`, views that we made go with what they show.

        The source's own are gone by then, or it would have refused.
        """
        if self._apply != "all" or not _DROPS.search(statement):
            cursor.execute(statement)
        elif (why := _try(cursor, statement)) is not None:
            if why != _DEPENDENT:
                cursor.execute(statement)  # fails again, with the whole error
            cursor.execute(f"{statement} CASCADE")
            self.on_note("objects of the target that the source has no more are dropped")

    @staticmethod
    def check_rows(cursor: Any) -> None:
        """Have rows checked that wait for it: no table is altered while its own do.

        Those of other tables may wait for what the commit still brings: then all of them do.
        """
        _try(cursor, "SET CONSTRAINTS ALL IMMEDIATE")

    @staticmethod
    def _set(cursor: Any, statement: str) -> None:
        """Take over a setting of the session that changed a type at the source."""
        if (why := _try(cursor, statement)) is not None:
            raise NotExpressible(
                "a type was changed under a setting of the source's that the target refuses",
                setting=statement.removeprefix("SET LOCAL "),
                sqlstate=why,
                hint=f"a time zone may be missing in its tzdata; {LOAD_AGAIN}",
            )

    def own(self, cursor: Any, catalog: Catalog, table: TableId, *, why: str) -> None:
        """A table becomes ours; refuse one that someone else filled."""
        if self._owned.made(cursor, table) is not None:
            return
        self._ask_others(cursor, catalog, table, why=why)
        self._owned.take(cursor, table)
        if not catalog.has(cursor, table):
            return
        lock_table(cursor, table)  # what is asked here must still be so when the step commits
        for problem in owner_problems(cursor, [table]):
            raise problem
        if self._replace:
            return
        cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {written(table)})")
        if cursor.fetchone()[0]:
            raise TargetNotEmpty(
                f"a table that {why} holds rows already",
                table=table,
                hint="empty it, or apply with --replace",
            )

    def _ask_others(self, cursor: Any, catalog: Catalog, table: TableId, *, why: str) -> None:
        """Refuse a name that another source has; with --replace tell it that it lost it."""
        if (other := self._owned.by_another(cursor, table)) is None:
            return
        what = f"a table that {why} is another source's at the target"
        if not self._replace:
            way_out = "apply into another database, or with --replace if that source is no more"
            raise TargetNotEmpty(what, table=table, source=other, hint=way_out)
        if is_held(cursor, other, catalog.product):  # it would write on, and nobody notice
            raise _running(what, table, other)
        ledger = lock_ledger(cursor, other, "")  # who starts meanwhile waits for it
        if is_held(cursor, other, catalog.product):
            raise _running(what, table, other)
        if ledger is not None:
            mark_taken(cursor, ledger, str(table), by=self._owned.source)

    @staticmethod
    def check_shape(cursor: Any, catalog: Catalog, change: SchemaChange) -> None:
        """A table that is there must be able to hold the source's.

        Raises MissingColumn or NotExpressible if it cannot.
        """
        for problem in shape_problems(cursor, catalog, change):
            raise problem


def _running(what: str, table: TableId, other: str) -> TargetNotEmpty:
    way_out = "end it for good, then start this one again"
    return TargetNotEmpty(f"{what}, whose `apply` runs", table=table, source=other, hint=way_out)


def _is_loose(column: Column) -> bool:
    return column.user_type is not None and column.user_type.name == "citext"


def shape_problems(
    cursor: Any, catalog: Catalog, change: SchemaChange
) -> Iterator[MissingColumn | NotExpressible]:
    """Why a table of the target cannot hold the rows of the source's `change.after`."""
    if change.after is None or not catalog.has(cursor, change.after.id):
        return
    there = catalog.tables[change.after.id]
    if lost := [name for name in change.after.names() if name not in there.columns]:
        yield MissingColumn(
            "the target's table lacks columns of the source's",
            table=change.after.id,
            columns=", ".join(lost),
            hint="add them, or drop the table and let apply create it",
        )
    if there.has_heirs:
        yield heirs_problem(change.after.id)
    if there.persistence != "p":
        yield NotExpressible(
            "the target's table is not logged: a crash of the server would empty it",
            table=change.after.id,
            hint="ALTER TABLE … SET LOGGED",
        )
    for column, found, needed in _in_both(cursor, catalog.product, there, change):
        if found.is_generated:
            if not column.generated:
                yield NotExpressible(
                    "the target computes a column that the source does not",
                    table=change.after.id,
                    column=column.name,
                    hint="drop it, and add it as an ordinary column",
                )
            continue
        if column.name in there.loose and column.name in there.key and not _is_loose(column):
            yield NotExpressible(
                "different keys of the source would be one at the target",
                table=change.after.id,
                column=column.name,
                hint='ALTER TABLE … ALTER COLUMN … TYPE text COLLATE "C"',
            )
        if not fits(found.type_name, needed):
            yield NotExpressible(
                "a column of the target has a type that does not hold the source's values as they "
                "are",
                table=change.after.id,
                column=column.name,
                source=needed,
                target=found.type_name,
                hint="ALTER TABLE … ALTER COLUMN … TYPE, or drop the table and let apply create it",
            )
    if change.after.key and there.key and set(change.after.key) != set(there.key):
        yield NotExpressible(
            "the target's table has another primary key than the source's",
            table=change.after.id,
            source=", ".join(change.after.key),
            target=", ".join(there.key),
            hint="give it the source's, or drop the table and let apply create it",
        )


def narrow_columns(
    cursor: Any, product: TargetProduct, there: TargetTable, shape: TableSchema
) -> list[str]:
    """Columns whose types at the target do not hold the source's values as they are."""
    both = _in_both(cursor, product, there, as_load(shape))
    return [column.name for column, found, needed in both if not fits(found.type_name, needed)]


def _in_both(
    cursor: Any, product: TargetProduct, there: TargetTable, change: SchemaChange
) -> Iterator[tuple[Column, TargetColumn, str]]:
    """Columns of source and target, with the type that the source's needs."""
    if (settled := _with_types_of_the_target(cursor, change).after) is not None:
        for column in settled.columns:
            if (found := there.columns.get(column.name)) is not None:
                yield column, found, COLUMN_TYPES[product.dialect](settled, column)


def as_load(shape: TableSchema) -> SchemaChange:
    """The record that a load of the table would begin with."""
    return SchemaChange(
        epoch=0,
        seq=0,
        ordinal=0,
        xid=0,
        csn=0,
        lsn=NOWHERE,
        origin=Origin.SNAPSHOT,
        tag="CREATE TABLE",
        before=None,
        after=shape,
    )
