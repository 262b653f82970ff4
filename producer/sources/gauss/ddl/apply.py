"""Computes a table's shape after a statement from its shape before.

Nothing is guessed.  What the statement does not contain (a user-defined type, the
columns of an index that it only names) is listed in `unknown`; changes of rows
that are not sent are listed in `lost`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from producer.core.statements.disclosed import redacted
from producer.sources.gauss.ddl.defaults import value_of
from producer.sources.gauss.ddl.model import (
    ROWS_MOVE,
    Action,
    AddColumn,
    AddConstraint,
    AlterType,
    Aside,
    ChangeColumn,
    ColumnSpec,
    Constraint,
    DropColumn,
    DropConstraint,
    OnPartition,
    Rename,
    RenameColumn,
    SetDefault,
    SetIdentity,
    SetNotNull,
    Statement,
    TypeSpec,
    Unread,
)
from producer.sources.gauss.ddl.types import column_of, written
from schemas import type_names
from schemas.sql_text import NotRead, Token, tokens
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique
from schemas.types import AS_PRINTED

# A cast to or from the first kind is by the session's time zone; between the others, by how it
# writes dates, intervals, floats or bytes.  A statement is sent without its settings.
_ZONED: Final = {1184, 1266}
_WRITTEN_BY_SETTINGS: Final = {1082, 1114, 1186, 790, 17, 700, 701, 9003}
_TEXTS: Final = {18, 19, 25, 1042, 1043, 3969}
WHETHER_KEY: Final = "whether a constraint was a key"  # that was dropped


@dataclass(frozen=True, slots=True)
class Applied:
    """A table after a statement, with what was lost and what is unknown."""

    after: TableSchema
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)  # see SchemaChange
    lost: tuple[str, ...] = ()  # rows that the statement changed and the stream does not show
    unknown: tuple[str, ...] = ()  # what the statement does not contain of the new shape


def created(statement: Statement, table: TableId) -> Applied:
    """Return the shape that a CREATE TABLE creates."""
    making = _Making(TableSchema(table, ()))
    for spec in statement.columns:
        making.add(spec)
    for constraint in statement.constraints:
        making.constrain(constraint)
    making.unknown += [f"a part of the table: {redacted(text)}" for text in statement.unread]
    return making.done()


def altered(before: TableSchema, actions: tuple[Action, ...]) -> Applied:
    """Return the shape after an ALTER TABLE, with names and schema."""
    making = _Making(before)
    for action in actions:
        making.take(action)
    return making.done()


class _Making:
    """A shape while actions are applied to it."""

    def __init__(self, before: TableSchema) -> None:
        self._before, self._id = before, before.id
        self._columns = list(before.columns)
        self._old = {column.name: column.name for column in before.columns}  # now -> before
        self._key, self._unique = before.key, list(before.unique)
        self._letter = before.replica_identity
        self._identity = before.identity_columns
        self._values: dict[str, str] = {}
        self.lost: list[str] = []
        self.unknown: list[str] = []

    def done(self) -> Applied:
        names = tuple(column.name for column in self._columns)
        match self._letter:
            case ReplicaIdentity.FULL:
                carried = {c.name for c in self._columns if not c.generated}
            case ReplicaIdentity.NOTHING:
                carried = set()
            case _:
                carried = set(self._key)
        after = replace(
            self._before,
            id=self._id,
            columns=tuple(
                replace(c, nullable=False) if c.name in self._key else c for c in self._columns
            ),
            key=self._key,
            unique=tuple(self._unique),
            replica_identity=self._letter,
            identity_columns=tuple(name for name in names if name in carried),
        )
        renamed = {was: now for now, was in self._old.items() if was != now}
        return Applied(after, renamed, self._values, tuple(self.lost), tuple(self.unknown))

    def take(self, action: Action) -> None:
        match action:
            case AddColumn(spec, if_not_exists):
                if not (if_not_exists and self._at(spec.name) is not None):
                    self.add(spec, has_rows=True)
            case DropColumn(name, _):
                self._drop(name)
            case AlterType(name, spec, using):
                self._retype(name, spec, using)
            case ChangeColumn(name, spec):
                self._change(name, spec)
            case SetDefault(name, default):
                self._set(name, default=default, has_default=default is not None)
            case SetNotNull(name, not_null):
                self._set(name, nullable=not not_null)
            case RenameColumn(old, new):
                self._rename(old, new)
            case Rename(_, new_name):
                self._id = TableId(new_name.schema or self._id.schema, new_name.name)
            case AddConstraint(constraint):
                self.constrain(constraint)
            case DropConstraint(name):
                self._unconstrain(name)
            case SetIdentity(letter, index):
                self._identify(letter, index)
            case OnPartition(does, names, _):
                if does in ROWS_MOVE:
                    which = ", ".join(names) or "a partition"
                    self.lost.append(f"{does.upper()} PARTITION {which}: its rows are not sent")
            case Aside():
                pass
            case Unread():
                self.unknown.append(f"what was done: {redacted(action.text)}")
            case _:
                assert_never(action)

    # ------------------------------------------------------------ columns
    def _at(self, name: str) -> int | None:
        return next((at for at, c in enumerate(self._columns) if c.name == name), None)

    def add(self, spec: ColumnSpec, *, has_rows: bool = False) -> None:
        if self._at(spec.name) is not None:
            self.unknown.append(f"column {spec.name}: it is added and was there")
            return
        column = self._column(spec)
        if has_rows:
            is_known, value = value_of(spec.default, column)
            if spec.generated is not None or spec.is_identity or not is_known:
                self._values[spec.name] = "lost"
                self.lost.append(f"column {spec.name}: the source computed it for older rows")
            elif spec.name in {c.name for c in self._before.columns}:
                self._values[spec.name] = "new"
            column = replace(column, missing=value)
        if spec.rest:
            self.unknown.append(f"column {spec.name}: {redacted(spec.rest)}")
        at = len(self._columns)
        if spec.place == "":
            at = 0
        elif spec.place is not None and (behind := self._at(spec.place)) is not None:
            at = behind + 1
        self._columns.insert(at, column)

    def _column(self, spec: ColumnSpec) -> Column:
        column = self._typed(spec.name, spec.type)
        return replace(
            column,
            nullable=not spec.not_null,
            generated="s" if spec.generated is not None else "",
            has_default=spec.default is not None or spec.is_identity,
            default=spec.default if spec.generated is None else spec.generated,
        )

    def _typed(self, name: str, spec: TypeSpec) -> Column:
        column = column_of(name, spec)
        if column is not None:
            return column
        self.unknown.append(f"column {name}: type {written(spec)}")
        return Column(name, 0, -1, "")

    def _drop(self, name: str) -> None:
        at = self._at(name)
        if at is None:
            return  # IF EXISTS
        del self._columns[at]
        self._old.pop(name, None)
        if name in self._key:
            self._key = ()
        self._unique = [u for u in self._unique if name not in u.columns]

    def _retype(self, name: str, spec: TypeSpec, using: str | None) -> None:
        at = self._at(name)
        if at is None:
            self.unknown.append(f"column {name}: its type changes, and it is not known")
            return
        made = self._typed(name, spec)
        old = self._columns[at]
        self._columns[at] = replace(
            old, type_oid=made.type_oid, type_mod=made.type_mod, type_name=made.type_name,
            user_type=None,
        )  # fmt: skip
        is_computed = _is_by_settings(old.type_oid, made.type_oid)
        if using is not None or is_computed:
            is_lost = is_computed or not _is_cast(using or "", name)
            how = "lost" if is_lost else "explicit"
            self._values[name] = how
            if how == "lost":
                self.lost.append(f"column {name}: the source computed new values")

    def _change(self, name: str, spec: ColumnSpec) -> None:
        if name != spec.name:
            self._rename(name, spec.name)
        at = self._at(spec.name)
        if at is None:
            self.unknown.append(f"column {name}: it changes, and it is not known")
            return
        old, made = self._columns[at], self._column(spec)
        if (old.type_oid, old.type_mod) != (made.type_oid, made.type_mod):
            self._values[spec.name] = "explicit"  # converts more than an assignment would
        if _is_by_settings(old.type_oid, made.type_oid):
            self._values[spec.name] = "lost"
            self.lost.append(f"column {spec.name}: the source computed new values")
        # A compatibility keeps what MODIFY does not mention; the others set defaults.
        keeps = spec.default is None and not spec.not_null
        self._columns[at] = replace(
            made,
            number=old.number,
            missing=old.missing,
            nullable=old.nullable if keeps else made.nullable,
            has_default=old.has_default if keeps else made.has_default,
            default=old.default if keeps else made.default,
        )
        if spec.rest:
            self.unknown.append(f"column {spec.name}: {redacted(spec.rest)}")
        if spec.place is not None:
            column = self._columns.pop(at)
            behind = self._at(spec.place) if spec.place else -1
            self._columns.insert(len(self._columns) if behind is None else behind + 1, column)

    def _set(self, name: str, **changes: object) -> None:
        at = self._at(name)
        if at is None:
            self.unknown.append(f"column {name}: it changes, and it is not known")
            return
        self._columns[at] = replace(self._columns[at], **changes)  # type: ignore[arg-type]

    def _rename(self, old: str, new: str) -> None:
        at = self._at(old)
        if at is None or self._at(new) is not None:
            self.unknown.append(f"column {old}: its new name {new}")
            return
        self._columns[at] = replace(self._columns[at], name=new)
        if old in self._old:
            self._old[new] = self._old.pop(old)

        def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(new if name == old else name for name in names)

        self._key = renamed(self._key)
        self._unique = [replace(u, columns=renamed(u.columns)) for u in self._unique]
        if old in self._values:
            self._values[new] = self._values.pop(old)

    # ------------------------------------------------------------ what identifies a row
    def constrain(self, constraint: Constraint) -> None:
        names = {column.name for column in self._columns}
        columns = constraint.columns
        if constraint.kind not in {"primary key", "unique"}:
            return
        taken = next((u for u in self._unique if u.name == constraint.index), None)
        if taken is not None:  # the index gets the constraint's name
            columns = taken.columns
            self._unique.remove(taken)
        if columns is None or not set(columns) <= names:
            self.unknown.append(f"columns of a constraint: {redacted(constraint.text)}")
        elif constraint.kind == "primary key":
            if self._letter is not ReplicaIdentity.INDEX:
                self._key = columns
        else:
            name = constraint.name or f"{self._id.name}_{'_'.join(columns)}_key"
            self._unique = [u for u in self._unique if u.name != name]
            self._unique.append(Unique(name, columns))

    def _unconstrain(self, name: str | None) -> None:
        kept = [u for u in self._unique if u.name != name]
        if len(kept) < len(self._unique):
            self._unique = kept
        elif name is None or name == f"{self._before.id.name}_pkey":
            self._key = ()
        elif self._key or self._unique:
            # Only the catalog has the name of a key or a unique constraint: earlier DDL may
            # have named it, and a renamed table's constraint keeps its name.
            self.unknown.append(f"{WHETHER_KEY}: {name}")

    def _identify(self, letter: str, index: str | None) -> None:
        self._letter = ReplicaIdentity(letter)
        if index is None:
            return
        found = next((u for u in self._unique if u.name == index), None)
        if found is None:
            self.unknown.append(f"columns of index {index}, which identifies rows from here on")
        else:
            self._key = found.columns


def _is_by_settings(old: int, new: int) -> bool:
    """Say whether a target's session may convert values into others than the source's did.

    >>> _is_by_settings(1114, 1184), _is_by_settings(1114, 25), _is_by_settings(23, 20)
    (True, True, False)
    """
    pair = {old, new}
    if AS_PRINTED & pair:
        return True
    return old != new and bool(_ZONED & pair or (_TEXTS & pair and _WRITTEN_BY_SETTINGS & pair))


def _is_cast(expression: str, column: str) -> bool:
    """Say whether a USING only casts the column itself.

    >>> _is_cast("(a)::numeric(10,2)", "a"), _is_cast('CAST("A" AS text)', "A")
    (True, True)
    >>> _is_cast("a::text || 'x'", "a"), _is_cast("a", "a")
    (False, False)
    """
    try:
        words = tokens(expression)
        while _is_wrapped(words):
            words = words[1:-1]
        if [word.upper for word in words[:2]] == ["CAST", "("]:
            name, rest = words[2:3], words[4:-1]
            if words[3].upper != "AS" or words[-1].upper != ")":
                return False
        else:
            at = next((n for n, word in enumerate(words) if word.upper == "::"), len(words))
            name, rest = words[:at], words[at + 1 :]
            while _is_wrapped(name):
                name = name[1:-1]
        return [n.name for n in name] == [column] and type_names.read(rest, 0)[1] == len(rest)
    except (NotRead, IndexError):
        return False


def _is_wrapped(words: list[Token]) -> bool:
    """Say whether one pair of brackets encloses the whole text."""
    depth = 0
    for at, word in enumerate(words):
        depth += (word.upper == "(") - (word.upper == ")")
        if depth == 0:
            return at > 0 and at == len(words) - 1
    return False
