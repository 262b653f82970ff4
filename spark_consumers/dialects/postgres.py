"""Schema changes as PostgreSQL says them.

A target is a copy: it gets columns, types, the key and unique indexes, but no
foreign keys, defaults, checks or triggers, which would only refuse or change
what the source has decided already.  Only key columns are NOT NULL.

Statements are made from the tables before and after, never from the source's
own text: that one is asked only whether it was a rename, and whether values
were computed (`USING`), which nobody can repeat here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from schemas.control import Origin, SchemaChange
from schemas.tables import Column, TableId, TableSchema, Unique
from schemas.types import BY_OID
from spark_consumers.dialects.base import literal, quote
from spark_consumers.errors import NotExpressible

_MODIFIER: Final = re.compile(r"\([0-9, -]*\)")
_TYPE: Final = re.compile(r'(?:[\w .,()\[\]$-]|"(?:[^"\0]|"")+")+')
_QUOTED: Final = re.compile(r'"(?:[^"]|"")+"')
_NAME: Final = r'("(?:[^"]|"")+"|[\w$]+)'
_RENAME: Final = re.compile(rf"\bRENAME\s+(?:COLUMN\s+)?{_NAME}\s+TO\s+{_NAME}", re.IGNORECASE)
_USING: Final = re.compile(r"\bUSING\b", re.IGNORECASE)
# Widenings that keep every value as it is, so that nobody has to know how they were done.
_WIDER: Final = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "character varying": ("character varying", "text"),
    "numeric": ("numeric",),
    "bit varying": ("bit varying",),
}


def statements(change: SchemaChange) -> list[str]:
    """Return what brings a copy from `change.before` to `change.after`, in order."""
    before, after = change.before, change.after
    if after is None:
        return [] if before is None else [f"DROP TABLE IF EXISTS {_table(before.id)}"]
    if before is None or change.origin is Origin.SNAPSHOT:
        return list(_create(after))
    return list(_alter(before, after, change.sql or change.canonical))


def _create(table: TableSchema) -> Iterator[str]:
    columns = [
        f"{quote(c.name)} {_type(table, c)}" + (" NOT NULL" if c.name in table.key else "")
        for c in table.columns
    ]
    if table.key:
        columns.append(f"PRIMARY KEY ({_names(table.key)})")
    yield f"CREATE SCHEMA IF NOT EXISTS {quote(table.id.schema)}"
    yield f"CREATE TABLE IF NOT EXISTS {_table(table.id)} ({', '.join(columns)})"
    for unique in table.unique:
        yield _create_unique(table.id, unique)


def _alter(before: TableSchema, after: TableSchema, sql: str | None) -> Iterator[str]:
    if before.id.schema != after.id.schema:
        yield f"CREATE SCHEMA IF NOT EXISTS {quote(after.id.schema)}"
        yield f"ALTER TABLE {_table(before.id)} SET SCHEMA {quote(after.id.schema)}"
    if before.id.name != after.id.name:
        moved = TableId(after.id.schema, before.id.name)
        yield f"ALTER TABLE {_table(moved)} RENAME TO {quote(after.id.name)}"
    table = _table(after.id)
    renamed = _renamed(before, after, sql)
    old = {renamed.get(c.name, c.name): c for c in before.columns}
    new = {c.name: c for c in after.columns}
    key = tuple(renamed.get(name, name) for name in before.key)
    uniques = {u.name: tuple(renamed.get(c, c) for c in u.columns) for u in before.unique}
    kept = {u.name for u in after.unique if uniques.get(u.name) == u.columns}

    for name in uniques:
        if name not in kept:
            yield f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {quote(name)}"
            yield f"DROP INDEX IF EXISTS {quote(after.id.schema)}.{quote(name)}"
    if key and key != after.key:
        pkey = quote(f"{before.id.name}_pkey")
        yield f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {pkey}"
    for was, name in renamed.items():
        yield f"ALTER TABLE {table} RENAME COLUMN {quote(was)} TO {quote(name)}"
    for name in old:
        if name not in new:
            yield f"ALTER TABLE {table} DROP COLUMN IF EXISTS {quote(name)}"
    for name, column in new.items():
        if name not in old:
            yield from _add(after, column)
        else:
            yield from _change(after, old[name], column, sql)
    if after.key and key != after.key:
        yield f"ALTER TABLE {table} ADD PRIMARY KEY ({_names(after.key)})"
    for unique in after.unique:
        if unique.name not in kept:
            yield _create_unique(after.id, unique)


def _renamed(before: TableSchema, after: TableSchema, sql: str | None) -> dict[str, str]:
    """Columns that have another name now; refuse what may be a rename or a drop and an add."""
    gone = [c for c in before.columns if c.name not in after.names()]
    come = [c for c in after.columns if c.name not in before.names()]
    if not gone or not come:
        return {}
    if sql is not None:
        found = {_plain(a): _plain(b) for a, b in _RENAME.findall(sql)}
        names = {c.name for c in come}
        told = {c.name: found[c.name] for c in gone if found.get(c.name) in names}
        if found and not told:
            raise NotExpressible(
                "a rename of columns that is not told plainly",
                table=after.id,
                hint="change the target by hand, then load the table again",
            )
        return told
    places = {before.names().index(c.name): c for c in gone}
    for column in come:
        was = places.get(after.names().index(column.name))
        if was is not None and was.type_oid == column.type_oid:
            raise NotExpressible(
                "a column was renamed, or one dropped and another added: the stream does not say",
                table=after.id,
                column=was.name,
                hint="install the event triggers (gauss-cdc ddl install), or change the target by "
                "hand and load the table again",
            )
    return {}


def _add(table: TableSchema, column: Column) -> Iterator[str]:
    name, head = quote(column.name), f"ALTER TABLE {_table(table.id)}"
    added = f"{head} ADD COLUMN {name} {_type(table, column)}"
    if column.missing is None:
        yield added
    else:  # rows that were there before have this value without having been written again
        yield f"{added} DEFAULT {literal(column.missing)}"
        yield f"{head} ALTER COLUMN {name} DROP DEFAULT"


def _change(table: TableSchema, old: Column, new: Column, sql: str | None) -> Iterator[str]:
    head = f"ALTER TABLE {_table(table.id)} ALTER COLUMN {quote(new.name)}"
    if (old.type_oid, old.type_mod) != (new.type_oid, new.type_mod):
        was, now = _type(table, old), _type(table, new)
        if not _keeps_values(was, now) and (sql is None or _USING.search(sql)):
            raise NotExpressible(
                "a column's type changed and its values may have been computed",
                table=table.id,
                column=new.name,
                type=new.type_name,
                hint="change the target by hand, then load the table again",
            )
        if was != now:
            yield f"{head} TYPE {now}"
    if not old.nullable and new.nullable and new.name not in table.key:
        yield f"{head} DROP NOT NULL"


def _keeps_values(was: str, now: str) -> bool:
    return was == now or _base(now) in _WIDER.get(_base(was), ())


def _base(type_name: str) -> str:
    return type_name.split("(", 1)[0].strip()


def _create_unique(table: TableId, unique: Unique) -> str:
    return (
        f"CREATE UNIQUE INDEX IF NOT EXISTS {quote(unique.name)} "
        f"ON {_table(table)} ({_names(unique.columns)})"
    )


def _type(table: TableSchema, column: Column) -> str:
    """The type's own text: it comes from format_type() and is checked all the same.

    A type that PostgreSQL has not is written as the one that the table of types names.
    """
    entry = BY_OID.get(column.type_oid)
    if entry is not None and (target := entry.ddl.get("postgres")) is not None:
        modifier = _MODIFIER.search(column.type_name)
        return target.replace("{}", modifier[0] if modifier else "")
    outside = _QUOTED.sub("", column.type_name)
    if _TYPE.fullmatch(column.type_name) is None or "--" in outside:
        raise NotExpressible(
            "the type of a column is not known by name",
            table=table.id,
            column=column.name,
            oid=column.type_oid,
        )
    return column.type_name


def _table(table: TableId) -> str:
    return f"{quote(table.schema)}.{quote(table.name)}"


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(quote(name) for name in columns)


def _plain(name: str) -> str:
    """A name as the catalog spells it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
