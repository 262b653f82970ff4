"""A changed table as one statement of PostgreSQL, however it was typed at the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from producer.core.shape_change import ShapeChange
from producer.core.sql_words import Words, cut, statements
from producer.sources.gauss.ddl import tddl
from producer.sources.gauss.ddl.model import Rename
from producer.sources.postgres.triggers.records import Command
from schemas.quoting import identifier, names, qualified
from schemas.tables import Column, TableId, TableSchema

_NAMED: Final = frozenset(
    {"index", "view", "materialized view", "sequence", "function", "procedure", "trigger"}
)


def canonical(change: ShapeChange) -> str | None:
    """Return the statement; None where a table's shape did not change."""
    before, after = change.before, change.after
    if after is None:
        return None if before is None else f"DROP TABLE {qualified(before.id)}"
    if before is None:
        return _create(after)
    parts = []
    if before.id.schema != after.id.schema:
        parts.append(f"ALTER TABLE {qualified(before.id)} SET SCHEMA {identifier(after.id.schema)}")
    if before.id.name != after.id.name:
        moved = TableId(after.id.schema, before.id.name)
        parts.append(f"ALTER TABLE {qualified(moved)} RENAME TO {identifier(after.id.name)}")
    table = f"ALTER TABLE {qualified(after.id)}"
    parts += [
        f"{table} RENAME COLUMN {identifier(was)} TO {identifier(name)}"
        for was, name in change.renamed.items()
    ]
    if actions := list(_actions(change, before, after)):
        parts.append(f"{table} {', '.join(actions)}")
    return "; ".join(parts) or None


def moved_object(command: Command, sql: str | None) -> str | None:
    """Return the statement that gave an object that is no table its name or its schema.

    A definition says only what it is called by now; what it was before says the client's text.
    """
    if sql is None or command.kind not in _NAMED:
        return None
    verb = f"ALTER {command.kind.upper()}"
    name = Words(command.identity).dotted()[-1:]
    for words in filter(None, statements(cut(sql))):
        said = tddl.statement(sql[words[0].start : words[-1].end])
        # PostgreSQL takes ALTER TABLE for indexes, views and sequences, too.
        if said.tag != command.tag or said.tag not in {verb, "ALTER TABLE"}:
            continue
        for move in said.actions:
            if isinstance(move, Rename) and (move.new.name,) == name:
                return _moved(verb, command, move)
    return None


def _moved(verb: str, command: Command, move: Rename) -> str | None:
    if command.kind == "trigger":
        table = command.identity.partition(" on ")[2]
        old, new = identifier(move.old.name), identifier(move.new.name)
        return f"{verb} {old} ON {table} RENAME TO {new}"
    # Whoever gets another name stays in the schema.
    is_renamed = move.old.name != move.new.name
    schema = command.schema if is_renamed else move.old.schema
    if schema is None or command.schema is None:
        return None
    old = qualified(TableId(schema, move.old.name))
    if command.kind in {"function", "procedure"}:
        old += command.identity[command.identity.index("(") :]
    if is_renamed:
        return f"{verb} {old} RENAME TO {identifier(move.new.name)}"
    return f"{verb} {old} SET SCHEMA {identifier(command.schema)}"


def _create(table: TableSchema) -> str:
    parts = [f"{identifier(c.name)} {_definition(c)}" for c in table.columns]
    if table.key:
        parts.append(f"PRIMARY KEY ({names(table.key)})")
    return f"CREATE TABLE {qualified(table.id)} ({', '.join(parts)})"


def _actions(change: ShapeChange, before: TableSchema, after: TableSchema) -> Iterator[str]:
    new = {name for name, how in change.values.items() if how == "new"}
    old = {change.renamed.get(c.name, c.name): c for c in before.columns}
    key = tuple(change.renamed.get(name, name) for name in before.key)
    if key and key != after.key:
        yield "DROP PRIMARY KEY"
    for name in old:
        if name not in after.names() or name in new:
            yield f"DROP COLUMN {identifier(name)}"
    for column in after.columns:
        was = old.get(column.name)
        if was is None or column.name in new:
            yield f"ADD COLUMN {identifier(column.name)} {_definition(column)}"
            continue
        head = f"ALTER COLUMN {identifier(column.name)}"
        if (was.type_oid, was.type_mod) != (column.type_oid, column.type_mod):
            how = change.values.get(column.name)
            using = f" USING {identifier(column.name)}::{column.type_name}" * (how == "explicit")
            yield f"{head} TYPE {column.type_name}{using}"
        if was.nullable != column.nullable:
            yield f"{head} {'DROP' if column.nullable else 'SET'} NOT NULL"
        if was.default != column.default:
            yield f"{head} " + (
                "DROP DEFAULT" if column.default is None else f"SET DEFAULT {column.default}"
            )
    if after.key and key != after.key:
        yield f"ADD PRIMARY KEY ({names(after.key)})"


def _definition(column: Column) -> str:
    default = f" DEFAULT {column.default}" if column.default is not None else ""
    return f"{column.type_name}{default}{'' if column.nullable else ' NOT NULL'}"
