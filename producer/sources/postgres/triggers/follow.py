"""Converts a statement that the triggers describe into changes, table by table.

The shapes in a record are compared with the shapes known so far: tables by oid
and columns by number, so that a rename is recognized.  A change of rows that are
not sent again is recorded if a copy can repeat it; otherwise it is a gap, *seen*.

A record shows the catalog as it was when the statement ran, and applies when its
transaction commits.  The lock on the table keeps most of it valid until then, but
not the names of schemas and types, nor those of a partition's root.  If another
transaction changed them and committed in between, its change remains in force.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from producer.core.catalog.catalog_differences import reads_as_before
from producer.core.catalog.catalog_rows import reads_otherwise
from producer.core.shape_change import ShapeChange
from producer.core.statements.canonical import canonical
from producer.core.statements.sql_words import Words
from producer.sources.postgres.triggers.moved import moved_object
from producer.sources.postgres.triggers.records import (
    BY_TYPE,
    Command,
    DroppedObject,
    RecordedTable,
    TriggerMessage,
)
from producer.sources.postgres.triggers.using import converted
from schemas.conditions import is_of_source, written
from schemas.control import Hole, Moved
from schemas.encodings import is_text
from schemas.positions import NOWHERE, Lsn
from schemas.sql_text import NotRead
from schemas.tables import Column, TableId, TableSchema, UserType
from schemas.types import AS_PRINTED, BY_OID, FIRST_OF_USERS

Infer = Callable[[TableSchema, TableSchema], ShapeChange]

_CREATES: Final = ("CREATE TABLE", "CREATE TABLE AS", "SELECT INTO", "CREATE SCHEMA")
_OF_TYPES: Final = ("ALTER TYPE", "ALTER DOMAIN")
_OF_TABLES: Final = ("trigger", "rule", "policy")
_BOOL: Final = 16
_MONEY: Final = 790
_PLAIN: Final = {21, 23, 20, _BOOL, 25, 1043, 2950}  # int2, int4, int8, bool, text, varchar, uuid
_OF_USERS: Final = 0
# Built-in types between which ALTER TYPE rewrites nothing: texts, oids, and others.
_STORED_ALIKE: Final = (
    {25, 1043, 1042},
    {23, 26},
    {1114, 1184},  # where the session's time zone is UTC
    {1560, 1562},  # bit
    {650, 869},  # cidr, inet
)
_SET_DEFAULT: Final = re.compile(r"set\s+default")
_OF_SOURCE: Final = "rows of a partition left, whose bounds only the source can compute"
# A constant as pg_get_expr() prints it; a backslash may have been doubled.
_CONSTANT: Final = re.compile(
    r"""(?:'(?P<text>(?:[^'\\]|'')*)'|(?P<number>\d+)|\((?P<negative>-\d+)\)|(?P<word>true|false))
        (?:::[a-z ]+(?:\(\d+\))?)?""",
    re.VERBOSE,
)


@dataclass(slots=True)
class Follower:
    """The tables known so far, updated by each statement."""

    known: dict[TableId, TableSchema]
    wanted: Callable[[TableId], bool]
    publication: str
    infer: Infer  # for shapes known without column numbers
    # Present name of the table with an oid; None if it is gone.
    name_now: Callable[[int], TableId | None] = lambda _: None
    hidden: set[TableId] = field(default_factory=set)  # wanted later, unless the stream made them
    # Where the transaction that changed them last committed, and their names since.
    _spaces: dict[int, tuple[int, str]] = field(default_factory=dict)  # schemas
    _named: dict[int, int] = field(default_factory=dict)  # tables
    _types: dict[tuple[int, int], tuple[int, UserType, str]] = field(default_factory=dict)
    _former: dict[int, set[TableId]] = field(default_factory=lambda: defaultdict(set))

    def follow(
        self,
        message: TriggerMessage,
        lsn: Lsn = NOWHERE,
        commit: int = 0,
        *,
        is_older: bool = False,
    ) -> list[ShapeChange]:
        """Return the changes of one statement, in the order in which they apply.

        `lsn`: position of its record; `commit`: that of its transaction's commit.  `is_older`: an
        earlier run may already have followed what other transactions changed after the record.
        """
        if message.event == "gap":
            return list(self._unknown(message))
        message = self._as_of_commit(message, lsn, commit)
        if is_older:
            message = self._as_of_now(message)
        spaces = self._old_names(message)
        before = dict(self.known)
        out = self._changes(message)
        out += self._renamed_with(message, spaces)
        self._remember(message, before, commit)
        out += self._typed_with(message, before, commit)
        return [replace(c, canonical=c.canonical or canonical(c)) for c in out]

    def _changes(self, message: TriggerMessage) -> list[ShapeChange]:
        if message.event == "drop":
            out = [*self._dropped(message), *self._altered(message)]
        else:
            out = [*self._detached(message), *self._attached(message), *self._altered(message)]
            out += self._others(message, out)
            # A column's default may refer to the sequence that is created with its table.
            out.sort(key=lambda c: (c.kind, c.tag) != ("sequence", "CREATE SEQUENCE"))
        return out

    def all_unknown(self, tag: str, why: str) -> list[ShapeChange]:
        """Return a gap of every table: there was a statement, and it is not known which."""
        return [ShapeChange(t, t, tag, *_gap(t.id, why)) for t in self.known.values()]

    def _unknown(self, message: TriggerMessage) -> Iterator[ShapeChange]:
        why = "a schema change could not be described by the triggers"
        if message.unknown is None:
            yield from self.all_unknown(message.tag, why)
            return
        for oid in dict.fromkeys(message.unknown):
            if (table := self.at(oid)) is not None:
                yield ShapeChange(table, table, message.tag, *_gap(table.id, why))

    # ------------------------------------------------------------ other transactions
    def named(self, oid: int, said: TableId) -> TableId:
        """Return the present name of a table that the stream refers to by an earlier name."""
        table = self.at(oid) if said in self._former.get(oid, ()) else None
        return table.id if table is not None else said

    def _as_of_commit(self, message: TriggerMessage, lsn: Lsn, commit: int) -> TriggerMessage:
        """Apply names that another transaction changed since the statement, and committed.

        What its own transaction changed before, the statement has seen.
        """
        shapes = []
        for shape in message.tables:
            table = shape.table
            known = self.at(table.oid)
            since, schema = self._spaces.get(shape.space, (0, ""))
            if lsn < since != commit:
                table = replace(table, id=TableId(schema, table.id.name))
            if known is not None and lsn < self._named.get(table.oid, 0) != commit:
                table = replace(table, id=known.id)
            if table.id != shape.table.id:
                self._former[table.oid].add(shape.table.id)
            columns = tuple(self._column(c, lsn, commit) for c in table.columns)
            shapes.append(replace(shape, table=replace(table, columns=columns)))
        return replace(message, tables=tuple(shapes))

    def _as_of_now(self, message: TriggerMessage) -> TriggerMessage:
        """Apply present names of the catalog, where another transaction may have changed them.

        If they were changed once more since, the stream reports it later.
        """
        types = {
            (c.type_oid, c.type_mod): c
            for table in self.known.values()
            for c in table.columns
            if c.user_type is not None and message.tag not in _OF_TYPES
        }
        shapes = []
        for shape in message.tables:
            table = shape.table
            known = self.at(table.oid)
            if known is None or known.id != table.id:
                table = replace(table, id=self.name_now(table.oid) or table.id)
            if table.id != shape.table.id:
                self._former[table.oid].add(shape.table.id)
            columns = tuple(
                replace(c, user_type=now.user_type, type_name=now.type_name)
                if (now := types.get((c.type_oid, c.type_mod))) is not None
                else c
                for c in table.columns
            )
            shapes.append(replace(shape, table=replace(table, columns=columns)))
        return replace(message, tables=tuple(shapes))

    def _column(self, column: Column, lsn: Lsn, own: int = 0) -> Column:
        """Give a column its type as another transaction, not that of `own`, left it since."""
        since, user_type, name = self._types.get(
            (column.type_oid, column.type_mod), (0, column.user_type, column.type_name)
        )
        if since <= lsn or since == own:
            return column
        return replace(column, user_type=user_type, type_name=name)

    def _old_names(self, message: TriggerMessage) -> dict[str, str]:
        """Map names of schemas before the statement to their names after it."""
        out = {}
        for oid, name in message.spaces:
            if message.tag != "ALTER SCHEMA":
                continue
            if oid in self._spaces:
                out[self._spaces[oid][1]] = name
            for shape in message.tables:
                known = self.at(shape.table.oid) if shape.space == oid else None
                if known is not None:
                    out[known.id.schema] = name
        return out

    def _renamed_with(
        self, message: TriggerMessage, spaces: dict[str, str]
    ) -> Iterator[ShapeChange]:
        """Return tables of a renamed schema that the statement did not see: committed later."""
        seen = {shape.table.oid for shape in message.tables}
        for table in list(self.known.values()):
            name = spaces.get(table.id.schema, table.id.schema)
            if name == table.id.schema or table.oid in seen:
                continue
            after = replace(table, id=TableId(name, table.id.name))
            del self.known[table.id]
            if self._is_wanted(after.id):
                self.known[after.id] = after
                yield ShapeChange(table, after, message.tag)
            else:
                why = f"is not captured any more: it is {after.id} now"
                yield ShapeChange(table, table, message.tag, *_gap(table.id, why))

    def _typed_with(
        self, message: TriggerMessage, before: dict[TableId, TableSchema], commit: int
    ) -> Iterator[ShapeChange]:
        """Return tables with a column of a changed type that the statement did not see."""
        for table in list(self.known.values()):
            if before.get(table.id) is not table or all(c.user_type is None for c in table.columns):
                continue
            # At this position, not before: what this statement itself recorded there.
            columns = tuple(self._column(c, Lsn(commit - 1)) for c in table.columns)
            if columns != table.columns:
                after = replace(table, columns=columns)
                change = self.compare(table, after, message)
                self.known[table.id] = after
                if change is not None:
                    yield change

    def _remember(
        self, message: TriggerMessage, before: dict[TableId, TableSchema], commit: int
    ) -> None:
        for oid, name in message.spaces:
            self._spaces[oid] = (commit, name)
        old = {table.oid: table for table in before.values() if table.oid}
        for table in self.known.values():
            was = old.get(table.oid)
            if was is None or was is table:
                continue
            if was.id != table.id:
                self._former[table.oid].add(was.id)
                self._former[table.oid].discard(table.id)
                if not message.spaces:
                    self._named[table.oid] = commit
            types = {c.number: c.user_type for c in was.columns}
            for c in table.columns:
                is_other = types.get(c.number, c.user_type) != c.user_type
                if c.user_type is not None and is_other and message.tag in _OF_TYPES:
                    self._types[c.type_oid, c.type_mod] = (commit, c.user_type, c.type_name)

    def at(self, oid: int) -> TableSchema | None:
        """The table with this oid, if it is captured and its oid is known.  Else None."""
        return next((t for t in self.known.values() if t.oid == oid), None) if oid else None

    # ------------------------------------------------------------ partitions
    def _detached(self, message: TriggerMessage) -> Iterator[ShapeChange]:
        shapes = {s.table.oid: s for s in message.tables}
        for oid, root_oid, bound in message.detached:
            root = self.at(root_oid)
            if root is None:
                continue
            where, problem = _where(bound)
            part = shapes.get(oid)
            if part is not None and self._is_captured(part, message):
                self.known[part.table.id] = part.table
                if where is not None:
                    yield ShapeChange(
                        None, part.table, message.tag, moved=Moved("move", root.id, where)
                    )
                    continue
                yield ShapeChange(None, part.table, message.tag, *_gap(part.table.id, problem))
                yield ShapeChange(root, root, message.tag, *_gap(root.id, problem))
            else:
                yield _without(root, message.tag, where, problem)

    def _attached(self, message: TriggerMessage) -> Iterator[ShapeChange]:
        made = {c.oid for c in message.commands if c.tag == "CREATE TABLE"}
        for oid, root_oid in message.attached:
            root, part = self.at(root_oid), self.at(oid)
            if root is None:
                if part is not None and message.via_root:
                    del self.known[part.id]
                    if self._is_coming(root_oid, message):
                        yield ShapeChange(part, None, message.tag)  # the root is loaded with it
                        continue
                    why = "became a partition of a table that is not captured"
                    yield ShapeChange(part, part, message.tag, *_gap(part.id, why))
                continue
            if part is not None:
                del self.known[part.id]
                yield ShapeChange(root, root, message.tag, moved=Moved("move", part.id))
                yield ShapeChange(part, None, message.tag)
            elif oid not in made:
                why = "a partition was attached whose rows were not captured"
                yield ShapeChange(root, root, message.tag, *_gap(root.id, why))

    def _is_coming(self, root_oid: int, message: TriggerMessage) -> bool:
        """Say whether a root is published, and its first load is to come."""
        return any(
            s.table.oid == root_oid
            and s.table.id in self.hidden
            and self.publication in s.publications
            for s in message.tables
        )

    # ------------------------------------------------------------ tables
    def _dropped(self, message: TriggerMessage) -> Iterator[ShapeChange]:
        tables = {d.oid for d in message.dropped if d.kind == "table"}
        for gone in message.dropped:
            if gone.kind == "table":
                yield from self._dropped_table(gone, message, tables)
            elif gone.kind == "index":
                yield from self._dropped_index(gone, message)
            elif gone.is_original and self._is_wanted(_place(gone, gone.schema or gone.name)):
                yield _dropped(gone, message.tag)

    def _dropped_table(
        self, gone: DroppedObject, message: TriggerMessage, all_of: set[int]
    ) -> Iterator[ShapeChange]:
        table = self.at(gone.oid)
        if table is None and gone.schema and gone.name:
            named = self.known.get(TableId(gone.schema, gone.name))
            table = named if named is not None and not named.oid else None
        if table is not None:
            del self.known[table.id]
            yield ShapeChange(table, None, message.tag)
        elif gone.root and gone.root not in all_of and (root := self.at(gone.root)) is not None:
            yield _without(root, message.tag, *_where(gone.bound))

    def _dropped_index(self, gone: DroppedObject, message: TriggerMessage) -> Iterator[ShapeChange]:
        for table in list(self.known.values()):
            kept = tuple(u for u in table.unique if u.name != gone.name)
            if table.id.schema == gone.schema and len(kept) < len(table.unique):
                after = replace(table, unique=kept)
                self.known[table.id] = after
                yield ShapeChange(table, after, message.tag)
                return
        if self._is_wanted(_place(gone, gone.schema)):
            yield _dropped(gone, message.tag)

    def _is_captured(self, shape: RecordedTable, message: TriggerMessage) -> bool:
        return (
            self._is_wanted(shape.table.id)
            and shape.persistence == "p"
            and not (shape.is_partition and message.via_root)
            and (shape.table.oid in message.joined or self.publication in shape.publications)
        )

    def _altered(self, message: TriggerMessage) -> Iterator[ShapeChange]:
        made = {c.oid for c in message.commands if c.tag in _CREATES and c.kind == "table"}
        # A name that is reused was released by the same statement or an earlier one.
        for shape in message.tables:
            after = shape.table
            before = self.at(after.oid) or self._unnumbered(after)
            if before is not None or after.oid in made:
                self.hidden.discard(after.id)
            if not shape.is_text and is_text(str(after.id)):
                if before is not None:
                    why = "a name or a default is not text: the database has no encoding"
                    yield ShapeChange(before, before, message.tag, *_gap(before.id, why))
                continue
            if not is_text(str(after.id)) or not self._is_captured(shape, message):
                if before is not None:
                    del self.known[before.id]
                    now = str(after.id).encode(errors="backslashreplace").decode()
                    why = f"is not captured any more: it is {now} now, or not in the log"
                    yield ShapeChange(before, before, message.tag, *_gap(before.id, why))
                continue
            if before is None:
                if self.known.get(after.id) == after:
                    continue  # a detached partition
                self.known[after.id] = after
                yield ShapeChange(None, after, message.tag, *_begun(after, message, made))
                continue
            if before.id != after.id:
                del self.known[before.id]
            self.known[after.id] = after
            change = self.compare(
                before,
                after,
                message,
                is_empty=shape.is_empty,
                loose=shape.loose,
                stored=shape.stored,
            )
            if change is not None:
                yield change

    def _unnumbered(self, after: TableSchema) -> TableSchema | None:
        """Return a table known by its name only: from the stream, or recorded without an oid."""
        before = self.known.get(after.id)
        return before if before is not None and not before.oid else None

    def compare(
        self,
        before: TableSchema,
        after: TableSchema,
        message: TriggerMessage,
        *,
        is_empty: bool = False,
        loose: str = "",
        stored: frozenset[int] = frozenset(),
    ) -> ShapeChange | None:
        """Return the change; None if there is none that a target follows."""
        if message.event == "install" or not all(c.number for c in before.columns):
            if _shape(before) != _shape(after):
                change = replace(self.infer(before, after), tag=message.tag)
                return _untold(change) if message.event == "install" else change
            is_same = before.oid == after.oid and _defaults(before) == _defaults(after)
            return None if is_same else ShapeChange(before, after, message.tag)
        is_same = before == after and before.oid == after.oid
        if is_same and _defaults(before) == _defaults(after) and not message.rewritten & BY_TYPE:
            return None
        old = {c.number: c for c in before.columns}
        stayed = {c.name for c in after.columns if c.number in old}
        made_again = {c.name for c in before.columns} - stayed
        is_converted = bool(message.rewritten & BY_TYPE)
        renamed: dict[str, str] = {}
        values: dict[str, str] = {}
        lost: list[str] = []
        altered: list[str] = []  # by who waits for no row
        constants: dict[str, str | None] = {}
        for column in after.columns:
            was = old.get(column.number)
            how: str | None = ""
            if was is None:
                if column.number in stored:
                    lost.append(column.name)  # generated until now, or of many values: never sent
                elif column.missing is None and message.rewritten and _may_set_default(message):
                    lost.append(column.name)  # it may have got another one than the catalog has
                elif _is_unknown_default(column, message.rewritten):
                    constants[column.name] = _constant(column)
                    if constants[column.name] is None:
                        lost.append(column.name)
                if column.name in made_again:
                    values[column.name] = "new"
                continue
            if was.name != column.name:
                renamed[was.name] = column.name
            has_type = (was.type_oid, was.type_mod) == (column.type_oid, column.type_mod)
            if is_converted:
                how = _conversion(message, before.id.name, was, column, has_type=has_type)
            elif not has_type and not is_empty and not _is_stored_alike(was, column):
                how = "lost"  # it was rewritten while the trigger that tells was off
            if is_converted and not has_type and _MONEY in {was.type_oid, column.type_oid}:
                how = "lost"  # by lc_monetary, a locale that the target may not have
            if not has_type and AS_PRINTED & {_stored_as(was), _stored_as(column)}:
                how = "lost"
            if how == "lost" or reads_otherwise(was, column):
                lost.append(column.name)
            if not reads_as_before(was, column.user_type):
                altered.append(column.name)
            if how != "" and not has_type:
                values[column.name] = how or "lost"
        lossy = None
        if lost and not is_empty:
            lossy = f"the source computed values of older rows and sent none: {', '.join(lost)}"
        elif altered:  # their rows come behind it, with labels and attributes of before
            lossy = f"open transactions may have values of a type as it was: {', '.join(altered)}"
        elif is_empty:
            pass
        elif loose and after.key != before.key:
            lossy = f"has key {loose}, which is not valid: rows may be equal in it"
        elif is_converted and not _is_readable(message):
            lossy = "the source may have computed values of older rows, and sent none"
        holes, lossy = _gap(after.id, lossy) if lossy else ((), None)
        columns = tuple(replace(c, missing=constants.get(c.name, c.missing)) for c in after.columns)
        after = replace(after, columns=columns)
        return ShapeChange(before, after, message.tag, holes, lossy, renamed=renamed, values=values)

    # ------------------------------------------------------------ the rest
    def _others(self, message: TriggerMessage, changed: list[ShapeChange]) -> Iterator[ShapeChange]:
        """Return changes of objects other than tables, and statements that change no shape."""
        for command in message.commands:
            table = self.at(command.oid) if command.kind.startswith("table") else None
            if command.kind.startswith("table") and changed:
                continue
            if command.kind == "index" and any(_has_index(c, command.identity) for c in changed):
                continue
            if table is not None and command.kind == "table" and message.tag != "COMMENT":
                yield ShapeChange(table, table, command.tag)
            elif self._is_wanted(_place(command, command.schema or command.identity)):
                yield ShapeChange(
                    None,
                    None,
                    command.tag,
                    kind=command.kind,
                    identity=command.identity,
                    canonical=moved_object(command, message.sql if message.is_top else None)
                    or command.definition,
                )

    def _is_wanted(self, table: TableId) -> bool:
        return self.wanted(table) and table not in self.hidden


def _without(root: TableSchema, tag: str, where: str | None, problem: str) -> ShapeChange:
    """A partition took its rows along: those of a condition, or nobody knows which."""
    if where is None:
        return ShapeChange(root, root, tag, *_gap(root.id, problem))
    return ShapeChange(root, root, tag, moved=Moved("delete", root.id, where))


def _dropped(gone: DroppedObject, tag: str) -> ShapeChange:
    """An object that holds no rows is gone."""
    canonical = f"DROP {gone.kind.upper()} IF EXISTS {gone.identity}"
    return ShapeChange(None, None, tag, kind=gone.kind, identity=gone.identity, canonical=canonical)


def _place(told: Command | DroppedObject, schema: str | None) -> TableId:
    """What `tables.include` is asked for: of a trigger, a rule or a policy it is the table.

    >>> _place(DroppedObject("rule", None, None, 'r on "a b".t', 1, True, None, None), None)
    TableId(schema='a b', name='t')
    """
    if told.kind in _OF_TABLES:
        words = Words(told.identity)
        words.identifier()
        if words.take("ON") and len(table := words.dotted()) > 1:
            return TableId(*table[-2:])
    return TableId((schema or "").strip('"'), told.identity)


def _is_readable(message: TriggerMessage) -> bool:
    """Say whether it is known which columns a statement converted."""
    return message.is_plain or (message.is_top and bool(message.sql))


def _conversion(
    message: TriggerMessage, table: str, was: Column, column: Column, *, has_type: bool
) -> str:
    """How a rewritten table's column got its values: "" as before or by assignment."""
    how: str | None = "" if message.is_plain else None
    if not message.is_plain and _is_readable(message):
        how = converted(message.sql or "", table, was.name, column.type_name)
    if how is None:
        return "" if has_type else "lost"
    # A cast created by users may be a different one at the target.
    is_ours = any(pair in message.casts for pair in product(_castable(was), _castable(column)))
    return "lost" if is_ours and not has_type else how


def _castable(column: Column) -> set[int]:
    """Return the oids whose casts a conversion may use: its own, below domains, of elements."""
    oid, said = column.type_oid, column.user_type
    oids = {oid}
    while said is not None and said.kind in {"d", "a"}:
        oid, said = said.type_oid, said.of
        oids.add(oid)
    entry = BY_OID.get(oid)
    return oids | {*entry.element.oids} if entry and entry.element else oids


def _is_stored_alike(was: Column, now: Column) -> bool:
    """Say whether a value may be of the other type as it is stored: no rewrite is needed then."""
    types = {_stored_as(was), _stored_as(now)}
    return len(types) == 1 or _OF_USERS in types or any(types <= alike for alike in _STORED_ALIKE)


def _stored_as(column: Column) -> int:
    """Return the oid below domains; of base types that users made one for all."""
    oid, said = column.type_oid, column.user_type
    while said is not None and said.kind == "d":
        oid, said = said.type_oid, said.of
    is_base = oid >= FIRST_OF_USERS and (said is None or said.kind == "b")
    return _OF_USERS if is_base else oid


def _begun(
    after: TableSchema, message: TriggerMessage, made: set[int]
) -> tuple[tuple[Hole, ...], str | None]:
    """Return the gap of a table that is captured from here on."""
    if after.oid in made:
        if message.joined.get(after.oid):
            why = "its first rows were written before it joined the publication"
            return _gap(after.id, why)
        return (), None
    if message.event == "install" or message.joined.get(after.oid, True):
        return _gap(after.id, "the table is captured from here on; older rows were not copied")
    return (), None


def _untold(change: ShapeChange) -> ShapeChange:
    """Note a gap where columns came before the triggers: one may have been generated until then."""
    assert change.before is not None
    assert change.after is not None
    known = {*change.before.names(), *change.renamed.values()}
    came = [c.name for c in change.after.columns if c.name not in known and c.missing is None]
    if not came or change.lossy:
        return change
    why = f"columns came before the triggers, perhaps generated until then: {', '.join(came)}"
    return replace(change, holes=(Hole(str(change.after.id), "suspected", why),), lossy=why)


def _gap(table: TableId, why: str) -> tuple[tuple[Hole, ...], str]:
    return (Hole(str(table), "seen", why),), why


def _where(bound: str | None) -> tuple[str | None, str]:
    """A partition's bound as a condition that a copy can use, or why not."""
    if bound is None:
        return None, "rows of a partition left, and its bounds are not known"
    try:
        written(bound)
    except NotRead:
        return None, _OF_SOURCE
    if is_of_source(bound):
        return None, _OF_SOURCE
    return bound, ""  # its reader parses it again, and writes it anew


def _is_unknown_default(column: Column, rewritten: int) -> bool:
    """Say whether older rows got a value that the catalog does not keep."""
    if column.missing is not None or not rewritten:
        return False
    of_domain = column.user_type is not None and column.user_type.kind == "d"
    return column.has_default or bool(column.identity) or of_domain


def _may_set_default(message: TriggerMessage) -> bool:
    """Say whether a column may have another default now than the one that it was added with.

    SET DEFAULT of the same ALTER TABLE comes behind ADD COLUMN.  The text is not parsed: one that
    has both words together may be such, and with a comment, which may part them, both anywhere.
    """
    if not message.is_top or message.sql is None:
        return True
    text = message.sql.lower()
    if "--" in text or "/*" in text:
        return "set" in text and "default" in text
    return _SET_DEFAULT.search(text) is not None


def _constant(column: Column) -> str | None:
    """Return what an added column's default is in older rows, if it is a plain constant.

    Where the same statement rewrites the table, the catalog does not keep it. Only types that
    read the same under all settings.
    """
    if column.type_oid not in _PLAIN or column.identity or column.default is None:
        return None
    found = _CONSTANT.fullmatch(column.default)
    if found is None:
        return None
    if found["word"]:
        return found["word"][0] if column.type_oid == _BOOL else None
    text = found["text"]
    return text.replace("''", "'") if text is not None else found["number"] or found["negative"]


def _shape(table: TableSchema) -> tuple[object, ...]:
    return table.id, tuple((c.name, c.type_oid, c.type_mod) for c in table.columns), table.key


def _defaults(table: TableSchema) -> tuple[object, ...]:
    return tuple((c.number, c.default) for c in table.columns)


def _has_index(change: ShapeChange, identity: str) -> bool:
    """Say whether an index is the key or a unique index of a changed table."""
    table = change.after
    if table is None:
        return False
    name = TableId.of(identity).name
    return any(u.name == name for u in table.unique) or bool(table.key and change.before is None)
