"""A changed table as one statement of PostgreSQL, however it was typed at the source."""

from __future__ import annotations

from collections.abc import Iterator

from producer.core.shape_change import ShapeChange
from schemas.quoting import identifier, names, qualified
from schemas.tables import Column, TableId, TableSchema


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
