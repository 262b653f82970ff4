"""A told statement -> what changed, table by table.

The shapes that a message carries are compared with those known until here:
tables by oid and columns by number, so that renames are renames.  What the
statement did to rows that are not sent again is kept where a copy can repeat
it, and is a hole, *seen*, where it cannot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from producer.core.canonical import canonical, moved_object
from producer.core.catalog_rows import reads_otherwise
from producer.core.shape_change import ShapeChange
from producer.core.told import BY_TYPE, Dropped, Shape, Told
from producer.core.using import conversions, converted
from schemas.conditions import written
from schemas.control import Hole, Moved
from schemas.sql_text import NotRead
from schemas.tables import Column, TableId, TableSchema

Infer = Callable[[TableSchema, TableSchema], ShapeChange]

_CREATES: Final = ("CREATE TABLE", "CREATE TABLE AS", "SELECT INTO", "CREATE SCHEMA")
_BOOL: Final = 16
_MONEY: Final = 790
_PLAIN: Final = {21, 23, 20, _BOOL, 25, 1043, 2950}  # int2, int4, int8, bool, text, varchar, uuid
# A constant as pg_get_expr() prints it; a backslash may have been doubled.
_CONSTANT: Final = re.compile(
    r"""(?:'(?P<text>(?:[^'\\]|'')*)'|(?P<number>\d+)|\((?P<negative>-\d+)\)|(?P<word>true|false))
        (?:::[a-z ]+(?:\(\d+\))?)?""",
    re.VERBOSE,
)

_STORED: Final = re.compile(r"\bDROP\s+EXPRESSION\b", re.IGNORECASE)


@dataclass(slots=True)
class Follower:
    """The tables known so far, as statements move them on."""

    known: dict[TableId, TableSchema]
    wanted: Callable[[TableId], bool]
    publication: str
    infer: Infer  # for shapes known without column numbers

    def follow(self, told: Told) -> list[ShapeChange]:
        """Return the changes of one statement, in the order in which they apply."""
        if told.event == "drop":
            out = [*self._dropped(told), *self._altered(told)]
        else:
            out = [*self._detached(told), *self._attached(told), *self._altered(told)]
            out += self._others(told, out)
            # A column's default may speak of the sequence that comes with its table.
            out.sort(key=lambda c: (c.kind, c.tag) != ("sequence", "CREATE SEQUENCE"))
        return [replace(c, canonical=c.canonical or canonical(c)) for c in out]

    def at(self, oid: int) -> TableSchema | None:
        """The table with this oid, if it is captured and its oid was ever told."""
        return next((t for t in self.known.values() if t.oid == oid), None) if oid else None

    # ------------------------------------------------------------ partitions
    def _detached(self, told: Told) -> Iterator[ShapeChange]:
        shapes = {s.table.oid: s for s in told.tables}
        for oid, root_oid, bound in told.detached:
            root = self.at(root_oid)
            if root is None:
                continue
            where, problem = _where(bound)
            part = shapes.get(oid)
            if part is not None and self._is_captured(part, told):
                self.known[part.table.id] = part.table
                if where is not None:
                    yield ShapeChange(
                        None, part.table, told.tag, moved=Moved("move", root.id, where)
                    )
                    continue
                yield ShapeChange(None, part.table, told.tag, *_hole(part.table.id, problem))
                yield ShapeChange(root, root, told.tag, *_hole(root.id, problem))
            elif where is not None:
                yield ShapeChange(root, root, told.tag, moved=Moved("delete", root.id, where))
            else:
                yield ShapeChange(root, root, told.tag, *_hole(root.id, problem))

    def _attached(self, told: Told) -> Iterator[ShapeChange]:
        made = {c.oid for c in told.commands if c.tag == "CREATE TABLE"}
        for oid, root_oid in told.attached:
            root, part = self.at(root_oid), self.at(oid)
            if root is None:
                if part is not None and told.via_root:
                    del self.known[part.id]
                    why = "became a partition of a table that is not captured"
                    yield ShapeChange(part, part, told.tag, *_hole(part.id, why))
                continue
            if part is not None:
                del self.known[part.id]
                yield ShapeChange(root, root, told.tag, moved=Moved("move", part.id))
                yield ShapeChange(part, None, told.tag)
            elif oid not in made:
                why = "a partition was attached whose rows were not captured"
                yield ShapeChange(root, root, told.tag, *_hole(root.id, why))

    # ------------------------------------------------------------ tables
    def _dropped(self, told: Told) -> Iterator[ShapeChange]:
        tables = {d.oid for d in told.dropped if d.kind == "table"}
        for gone in told.dropped:
            if gone.kind == "table":
                yield from self._dropped_table(gone, told, tables)
            elif gone.kind == "index":
                yield from self._dropped_index(gone, told)
            elif gone.is_original and self._is_in_scope(gone.schema or gone.name, gone.identity):
                yield ShapeChange(
                    None,
                    None,
                    told.tag,
                    kind=gone.kind,
                    identity=gone.identity,
                    canonical=f"DROP {gone.kind.upper()} IF EXISTS {gone.identity}",
                )

    def _dropped_table(self, gone: Dropped, told: Told, all_of: set[int]) -> Iterator[ShapeChange]:
        table = self.at(gone.oid)
        if table is None and gone.schema and gone.name:
            named = self.known.get(TableId(gone.schema, gone.name))
            table = named if named is not None and not named.oid else None
        if table is not None:
            del self.known[table.id]
            yield ShapeChange(table, None, told.tag)
        elif gone.root and gone.root not in all_of and (root := self.at(gone.root)) is not None:
            where, problem = _where(gone.bound)
            if where is not None:
                yield ShapeChange(root, root, told.tag, moved=Moved("delete", root.id, where))
            else:
                yield ShapeChange(root, root, told.tag, *_hole(root.id, problem))

    def _dropped_index(self, gone: Dropped, told: Told) -> Iterator[ShapeChange]:
        for table in list(self.known.values()):
            kept = tuple(u for u in table.unique if u.name != gone.name)
            if table.id.schema == gone.schema and len(kept) < len(table.unique):
                after = replace(table, unique=kept)
                self.known[table.id] = after
                yield ShapeChange(table, after, told.tag)
                return
        yield ShapeChange(
            None,
            None,
            told.tag,
            kind=gone.kind,
            identity=gone.identity,
            canonical=f"DROP INDEX IF EXISTS {gone.identity}",
        )

    def _is_captured(self, shape: Shape, told: Told) -> bool:
        return (
            self.wanted(shape.table.id)
            and shape.persistence == "p"
            and not (shape.is_partition and told.via_root)
            and (shape.table.oid in told.joined or self.publication in shape.publications)
        )

    def _altered(self, told: Told) -> Iterator[ShapeChange]:
        made = {c.oid for c in told.commands if c.tag in _CREATES and c.kind == "table"}
        # A name that is taken over was given up by the same statement or one before.
        for shape in told.tables:
            after = shape.table
            before = self.at(after.oid) or self._unnumbered(after)
            if not self._is_captured(shape, told):
                if before is not None:
                    del self.known[before.id]
                    why = f"is not captured any more: it is {after.id} now, or not in the log"
                    yield ShapeChange(before, before, told.tag, *_hole(before.id, why))
                continue
            if before is None:
                if self.known.get(after.id) == after:
                    continue  # a detached partition
                self.known[after.id] = after
                yield ShapeChange(None, after, told.tag, *_begun(after, told, made))
                continue
            if before.id != after.id:
                del self.known[before.id]
            self.known[after.id] = after
            change = self.compare(before, after, told, is_empty=shape.is_empty)
            if change is not None:
                yield change

    def _unnumbered(self, after: TableSchema) -> TableSchema | None:
        """A table known by its name only: by the stream, or from before oids were kept."""
        before = self.known.get(after.id)
        return before if before is not None and not before.oid else None

    def compare(
        self, before: TableSchema, after: TableSchema, told: Told, *, is_empty: bool = False
    ) -> ShapeChange | None:
        """Name what changed; None where nothing did that anybody could follow."""
        if told.event == "install" or not all(c.number for c in before.columns):
            if _shape(before) != _shape(after):
                return replace(self.infer(before, after), tag=told.tag)
            is_same = before.oid == after.oid and _defaults(before) == _defaults(after)
            return None if is_same else ShapeChange(before, after, told.tag)
        is_same = before == after and before.oid == after.oid
        if is_same and _defaults(before) == _defaults(after) and not told.rewritten & BY_TYPE:
            return None
        old = {c.number: c for c in before.columns}
        stayed = {c.name for c in after.columns if c.number in old}
        made_again = {c.name for c in before.columns} - stayed
        is_converted = bool(told.rewritten & BY_TYPE)
        renamed: dict[str, str] = {}
        values: dict[str, str] = {}
        lost: list[str] = []
        constants: dict[str, str | None] = {}
        for column in after.columns:
            was = old.get(column.number)
            how: str | None = ""
            if was is None:
                if _is_unknown_default(column, told.rewritten):
                    constants[column.name] = _constant(column)
                    if constants[column.name] is None:
                        lost.append(column.name)
                elif column.missing is None and _STORED.search(told.sql or ""):
                    lost.append(column.name)  # generated until now, and never sent
                if column.name in made_again:
                    values[column.name] = "new"
                continue
            if was.name != column.name:
                renamed[was.name] = column.name
            if is_converted:
                how = converted(told.sql, before.id.name, was.name, column.type_name)
            has_type = (was.type_oid, was.type_mod) == (column.type_oid, column.type_mod)
            if is_converted and not has_type and _MONEY in {was.type_oid, column.type_oid}:
                how = "lost"  # by lc_monetary, a locale that the target may not have
            if how == "lost" or reads_otherwise(was, column) or (how is None and not has_type):
                lost.append(column.name)
            if how != "" and not has_type:
                values[column.name] = how or "lost"
        lossy = None
        if is_empty:
            pass
        elif lost:
            lossy = f"the source computed values of older rows and sent none: {', '.join(lost)}"
        elif is_converted and not conversions(told.sql or ""):
            lossy = "the source may have computed values of older rows, and sent none"
        holes, lossy = _hole(after.id, lossy) if lossy else ((), None)
        columns = tuple(replace(c, missing=constants.get(c.name, c.missing)) for c in after.columns)
        after = replace(after, columns=columns)
        return ShapeChange(before, after, told.tag, holes, lossy, renamed=renamed, values=values)

    # ------------------------------------------------------------ the rest
    def _others(self, told: Told, changed: list[ShapeChange]) -> Iterator[ShapeChange]:
        """Objects that are no tables, and statements that change no shape: told all the same."""
        for command in told.commands:
            table = self.at(command.oid) if command.kind.startswith("table") else None
            if command.kind.startswith("table") and changed:
                continue
            if command.kind == "index" and any(_has_index(c, command.identity) for c in changed):
                continue
            if table is not None and command.kind == "table" and told.tag != "COMMENT":
                yield ShapeChange(table, table, command.tag)
            elif self._is_in_scope(command.schema or command.identity, command.identity):
                yield ShapeChange(
                    None,
                    None,
                    command.tag,
                    kind=command.kind,
                    identity=command.identity,
                    canonical=moved_object(command, told.sql) or command.definition,
                )

    def _is_in_scope(self, schema: str | None, identity: str) -> bool:
        return self.wanted(TableId((schema or "").strip('"'), identity))


def _begun(after: TableSchema, told: Told, made: set[int]) -> tuple[tuple[Hole, ...], str | None]:
    """What is not known of a table that is captured from here on."""
    if after.oid in made:
        if told.joined.get(after.oid):
            why = "its first rows were written before it joined the publication"
            return _hole(after.id, why)
        return (), None
    if told.event == "install" or told.joined.get(after.oid, True):
        return _hole(after.id, "the table is captured from here on; older rows were not copied")
    return (), None


def _hole(table: TableId, why: str) -> tuple[tuple[Hole, ...], str]:
    return (Hole(str(table), "seen", why),), why


def _where(bound: str | None) -> tuple[str | None, str]:
    """A partition's bound as a condition that a copy can use, or why not."""
    if bound is None:
        return None, "rows of a partition left, and its bounds are not known"
    try:
        written(bound)
    except NotRead:
        return None, "rows of a partition left, whose bounds only the source can compute"
    return bound, ""  # whoever runs it reads it again, and writes it anew


def _is_unknown_default(column: Column, rewritten: int) -> bool:
    """Say whether older rows got a value that the catalog does not keep."""
    if column.missing is not None or not rewritten:
        return False
    of_domain = column.user_type is not None and column.user_type.kind == "d"
    return column.has_default or bool(column.identity) or of_domain


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
    name = identity.rpartition(".")[2].strip('"')
    return any(u.name == name for u in table.unique) or bool(table.key and change.before is None)
