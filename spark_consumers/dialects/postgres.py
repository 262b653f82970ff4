"""Schema changes in PostgreSQL's SQL.

A target is a copy: it gets columns, types, the key and unique indexes, but no
foreign keys, defaults, checks or triggers, which would only refuse or change
what the source has decided already.  Only key columns are NOT NULL.

Statements are made from the tables before and after, never from the source's
own text: that one shows only whether it was a rename, and whether values were
computed (`USING`), which cannot be repeated here.  Where event triggers captured the
change, columns are known by number and `renamed` and `values` describe it fully.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from schemas import conditions, type_names
from schemas.control import CAST_SETTINGS, Moved, Origin, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.sql_text import NotRead, tokens
from schemas.tables import Column, TableId, TableSchema, Unique
from schemas.types import BY_OID
from spark_consumers.dialects import definitions
from spark_consumers.dialects.base import (
    NOT_TOLD,
    LeftOut,
    literal,
    quote,
    refuse_reserved,
    spelled,
)
from spark_consumers.dialects.definitions import RunsCode, block
from spark_consumers.errors import NotExpressible

# The comment of a unique index that was made after the source's.
OF_SOURCE: Final = "made by gauss-cdc: the source had this unique index"
_NAME: Final = r'("(?:[^"]|"")+"|[\w$]+)'
_RENAME: Final = re.compile(rf"\bRENAME\s+(?:COLUMN\s+)?{_NAME}\s+TO\s+{_NAME}", re.IGNORECASE)
_USING: Final = re.compile(r"\bUSING\b", re.IGNORECASE)
# Widenings that keep every value, so that it does not matter how they were done.
_WIDER: Final = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "character varying": ("character varying", "text"),
    "text": ("character varying",),
    "numeric": ("numeric",),
    "bit varying": ("bit varying",),
}
_AS_BEFORE: Final = "SELECT " + ", ".join(
    f"set_config('{name}', current_setting('gauss_cdc.{name}'), true)" for name in CAST_SETTINGS
)
_PASSING: Final = "gauss_cdc_moves"  # a table's name while it goes from schema to schema
# Types whose texts no setting changes: int2, int4, int8, numeric, bool, text, varchar, char, uuid.
_PRINTED_ALIKE: Final = {21, 23, 20, 1700, 16, 25, 1043, 1042, 2950}
_OTHERS: Final = (
    *("index", "view", "materialized view", "function", "procedure", "sequence", "schema"),
    *("trigger", "type", "table", "table column", "domain", "aggregate"),
)


def statements(change: SchemaChange, *, inside: bool = False) -> list[str]:
    """Return what brings a copy from `change.before` to `change.after`, in order.

    `inside`: it is a table of our own, in our schema.
    """
    before, after = change.before, change.after
    if not inside:
        refuse_reserved(*(table.id for table in (before, after) if table is not None))
        if change.moved is not None:
            refuse_reserved(change.moved.table)
    if after is None:
        return [] if before is None else [f"DROP TABLE IF EXISTS {_table(before.id)}"]
    if before is None or change.origin is Origin.SNAPSHOT:
        return [*_create(after), *_move(after, change.moved)]
    return [*_alter(before, after, change), *_move(after, change.moved)]


def extras(change: SchemaChange, *, code: bool = False) -> list[str | LeftOut]:
    """Return what goes beyond rows: NOT NULL, defaults, other objects.

    A target may lack what they refer to; each may fail, and is reported then.  What would run
    code of the source's at the target is left out, unless `code` trusts it.
    """
    after = change.after
    if change.origin is Origin.DEPARSED:
        return []  # words of another family
    if after is None:
        return list(_other(change, code=code)) if change.before is None else []
    return [*beyond(change, after, code=code)]


def beyond(
    change: SchemaChange, after: TableSchema, *, code: bool = False
) -> Iterator[str | LeftOut]:
    """Give a table's defaults and NOT NULL, for a target that has the source's expressions."""
    was = {change.renamed.get(c.name, c.name): c for c in (change.before or after).columns}
    for column in after.columns:
        head = f"ALTER TABLE {_table(after.id)} ALTER COLUMN {quote(column.name)}"
        old = was.get(column.name) if change.before is not None else None
        if column.default is not None and (old is None or old.default != column.default):
            try:
                yield f"{head} SET DEFAULT {definitions.expression(column.default)}"
            except (NotRead, RunsCode) as why:
                if code:
                    yield block(
                        f"BEGIN EXECUTE {literal(f'{head} SET DEFAULT {column.default}')}; END"
                    )
                else:
                    yield LeftOut(f"the default of {column.name}: {why}")
        elif column.default is None and old is not None and old.default is not None:
            yield f"{head} DROP DEFAULT"
        is_new = old is None or old.nullable
        if not column.nullable and is_new and column.name not in after.key:
            yield f"{head} SET NOT NULL"


def _other(change: SchemaChange, *, code: bool) -> Iterator[str | LeftOut]:
    """An object that is not a table, by the definition that the source's server printed."""
    text = change.canonical
    if change.kind not in _OTHERS:
        return
    if text is None:
        yield NOT_TOLD
    elif change.kind == "domain" and change.tag == "ALTER DOMAIN" and change.identity is not None:
        yield _uncheck(change.identity)
    elif change.kind == "type" and change.tag == "ALTER TYPE" and change.identity is not None:
        # What was renamed came with the tables that have it; of others the older name stays.
        if labels := _labels(text):
            yield from _add_labels(_type_name(change.identity), (), labels)
        else:
            yield from defined(change.kind, text, code=code)
    else:
        yield from defined(change.kind, text, code=code)


def defined(kind: str, text: str, *, code: bool) -> Iterator[str | LeftOut]:
    """Return the statement that creates an object other than a table, or why it is not run."""
    try:
        yield definitions.statement(kind, text)
    except (NotRead, RunsCode) as why:
        yield definitions.trusted(kind, text) if code else LeftOut(str(why))


def _labels(text: str) -> tuple[str, ...]:
    """Read the labels of `CREATE TYPE … AS ENUM ('a', 'b')`, as our triggers print it; else ()."""
    try:
        words = tokens(text)
    except NotRead:
        return ()
    start = next((n for n, word in enumerate(words) if word.upper == "ENUM"), len(words))
    inside = words[start + 2 : -1]
    labels = tuple(word.text for word in inside[::2] if word.kind == "string")
    shape = [word.upper or word.kind for word in words[start + 1 :]]
    expected = ["(", *["string", ","] * (len(labels) - 1), "string", ")"]
    return labels if labels and shape == expected else ()


def _uncheck(domain: str) -> str:
    """Take a domain's checks away: the source has its own, which are others by now."""
    said = literal(_type_name(domain))
    return block(
        "DECLARE k text; BEGIN FOR k IN SELECT conname FROM pg_catalog.pg_constraint"
        f" WHERE contypid = {said}::regtype AND contype = 'c' LOOP"
        f" EXECUTE 'ALTER DOMAIN ' || {said}::regtype || ' DROP CONSTRAINT ' || quote_ident(k);"
        f" END LOOP; EXECUTE 'ALTER DOMAIN ' || {said}::regtype || ' DROP NOT NULL'; END"
    )


def _add_labels(type_name: str, was: tuple[str, ...], now: tuple[str, ...]) -> Iterator[str]:
    for before, label in zip((None, *now), now, strict=False):
        place = f" AFTER {literal(before)}" if before is not None else ""
        if label not in was:
            yield f"ALTER TYPE {type_name} ADD VALUE IF NOT EXISTS {literal(label)}{place}"


def _move(after: TableSchema, moved: Moved | None) -> Iterator[str]:
    """Rows that the source moved between tables, or dropped with a partition."""
    if moved is None:
        return
    where = ""
    if moved.where is not None:
        try:
            where = f" WHERE {conditions.written(moved.where)}"
        except NotRead as why:
            raise NotExpressible(
                "rows moved or were removed by a condition that is not a comparison of columns",
                table=moved.table,
                why=why,
                hint=LOAD_AGAIN,
            ) from None
    if moved.op == "move":
        names = _names(after.names())
        taken = f"SELECT {names} FROM {_table(moved.table)}{where}"
        yield f"INSERT INTO {_table(after.id)} ({names}) {taken}"
    yield f"DELETE FROM {_table(moved.table)}{where}"


def _create(table: TableSchema) -> Iterator[str]:
    columns = [
        f"{quote(c.name)} {column_type(table, c)}" + (" NOT NULL" if c.name in table.key else "")
        for c in table.columns
    ]
    if table.key:
        columns.append(f"PRIMARY KEY ({_names(table.key)})")
    yield f"CREATE SCHEMA IF NOT EXISTS {quote(table.id.schema)}"
    yield f"CREATE TABLE IF NOT EXISTS {_table(table.id)} ({', '.join(columns)})"
    for unique in table.unique:
        yield _create_unique(table.id, unique)


def _alter(before: TableSchema, after: TableSchema, change: SchemaChange) -> Iterator[str]:
    sql = change.sql  # our own text does not show how values were computed
    yield from _rename(before.id, after.id)
    table = _table(after.id)
    is_told = _is_told(change)
    renamed = change.renamed if change.renamed or is_told else _renamed(before, after, sql)
    again = {name for name, how in change.values.items() if how == "new"}
    # Read late, the catalog may call a column nullable that was in the key: the target's is not.
    old = {
        renamed.get(c.name, c.name): replace(c, nullable=c.nullable and c.name not in before.key)
        for c in before.columns
    }
    new = {c.name: c for c in after.columns}
    key = tuple(renamed.get(name, name) for name in before.key)
    uniques = {u.name: tuple(renamed.get(c, c) for c in u.columns) for u in before.unique}
    kept = {
        u.name
        for u in after.unique
        if uniques.get(u.name) == u.columns and not again & set(u.columns)
    }

    for name in uniques:
        if name not in kept:
            yield f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {quote(name)}"
            yield f"DROP INDEX IF EXISTS {quote(after.id.schema)}.{quote(name)}"
    rekeyed = key != after.key or bool(again & set(key))
    if key and rekeyed:
        yield _drop_key(after.id)
    for was, name in renamed.items():
        yield f"ALTER TABLE {table} RENAME COLUMN {quote(was)} TO {quote(name)}"
    for name in old:
        if name not in new or name in again:
            yield f"ALTER TABLE {table} DROP COLUMN IF EXISTS {quote(name)}"
    depends = is_told and any(
        _type_of(old[n]) != _type_of(new[n])
        and not {old[n].type_oid, new[n].type_oid} <= _PRINTED_ALIKE
        for n in new
        if n in old
    )
    if depends:
        yield from _as_at_the_source(change)
    for name, column in new.items():
        if name not in old or name in again:
            yield from _add(after, column)
        elif is_told:
            yield from _convert(after, old[name], column, change.values.get(name, ""))
        else:
            yield from _change(after, old[name], column, change, sql)
    if depends:
        yield _AS_BEFORE
    if after.key and rekeyed:
        blank = {n for n, c in new.items() if n in again or (n not in old and c.missing is None)}
        if blank & set(after.key):  # a key cannot be unknown: the table is read again
            yield f"DELETE FROM {table}"
        yield f"ALTER TABLE {table} ADD PRIMARY KEY ({_names(after.key)})"
    for unique in after.unique:
        if unique.name not in kept:
            yield _create_unique(after.id, unique)


def _rename(at: TableId, to: TableId) -> Iterator[str]:
    """Give a table another name and schema, past what has only one of the two there."""
    is_moved = at.schema != to.schema
    if is_moved:
        yield f"CREATE SCHEMA IF NOT EXISTS {quote(to.schema)}"
        yield _indexes_apart(at, to.schema)
    if is_moved and at.name != to.name:
        passing = TableId(at.schema, _PASSING)
        yield f"ALTER TABLE {_table(at)} RENAME TO {quote(passing.name)}"
        at = passing
    if is_moved:
        yield f"ALTER TABLE {_table(at)} SET SCHEMA {quote(to.schema)}"
    if at.name != to.name:
        at = TableId(to.schema, at.name)
        yield f"ALTER TABLE {_table(at)} RENAME TO {quote(to.name)}"


def _indexes_apart(table: TableId, schema: str) -> str:
    """Move a table's indexes out of the way where the schema it moves to has one of their names.

    The target named that of the key itself, after the table's first name.  Another one is left
    out, as where it is to be made under a name that is taken.
    """
    at = f"{literal(quote(table.schema))} || '.' || quote_ident(i.relname)"
    body = (
        "DECLARE k text; BEGIN FOR k IN SELECT CASE WHEN x.indisprimary"
        f" THEN 'ALTER INDEX ' || {at} || ' RENAME TO '"
        " || quote_ident('gauss_cdc_' || i.oid::text || '_pkey')"
        f" ELSE 'DROP INDEX ' || {at} END"
        " FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid"
        f" WHERE x.indrelid = {literal(_table(table))}::regclass AND (x.indisprimary OR NOT EXISTS"
        " (SELECT 1 FROM pg_catalog.pg_constraint WHERE conindid = i.oid)) AND EXISTS (SELECT 1"
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {literal(schema)} AND c.relname = i.relname)"
        " LOOP EXECUTE k; END LOOP; END"
    )
    return block(body)


def _is_told(change: SchemaChange) -> bool:
    """Say whether `renamed` and `values` are all there is: by the statement, or by numbers."""
    return change.origin is Origin.DEPARSED or (
        change.origin is Origin.TRIGGER
        and change.before is not None
        and all(c.number for c in change.before.columns)
    )


def _drop_key(table: TableId) -> str:
    """Drop the primary key, whatever its name is by now: a renamed table's keeps its own."""
    said = literal(_table(table))
    body = (
        "DECLARE k text; BEGIN FOR k IN SELECT conname FROM pg_catalog.pg_constraint"
        f" WHERE contype = 'p' AND conrelid = {said}::regclass LOOP"
        f" EXECUTE 'ALTER TABLE ' || {said} || ' DROP CONSTRAINT ' || quote_ident(k);"
        " END LOOP; END"
    )
    return block(body)


def _as_at_the_source(change: SchemaChange) -> Iterator[str]:
    """Let casts read and print as they did in the session that changed the type."""
    names = [name for name in CAST_SETTINGS if name in change.settings]
    saved = ", ".join(
        f"set_config({literal(f'gauss_cdc.{name}')}, current_setting({literal(name)}), true)"
        for name in CAST_SETTINGS
    )
    yield f"SELECT {saved}"
    for name in names:
        yield f"SET LOCAL {name} TO {literal(change.settings[name])}"


def _convert(table: TableSchema, old: Column, new: Column, how: str) -> Iterator[str]:
    """A column's type, with its values as the source converted them."""
    head = f"ALTER TABLE {_table(table.id)} ALTER COLUMN {quote(new.name)}"
    if _type_of(old) != _type_of(new):
        now = column_type(table, new)
        if how == "lost":
            if new.name in table.key:  # a key cannot be unknown
                yield f"DELETE FROM {_table(table.id)}"
            yield f"{head} TYPE {now} USING NULL"
        elif how == "explicit":
            yield f"{head} TYPE {now} USING {quote(new.name)}::{now}"
        elif column_type(table, old) != now:
            yield f"{head} TYPE {now}"
    yield from _relabel(table, old, new)
    if not old.nullable and new.nullable and new.name not in table.key:
        yield f"{head} DROP NOT NULL"


def _relabel(table: TableSchema, old: Column, new: Column) -> Iterator[str]:
    """Labels of an enum that were renamed or added: in the target's own type, or in its texts."""
    before, after = _enum(old), _enum(new)
    if before is None or after is None:
        return
    (_, was), (type_name, now) = before, after
    renamed = [(a, b) for a, b in zip(was, now, strict=False) if a != b] * (len(was) == len(now))
    type_text, name = column_type(table, new), quote(new.name)
    if type_text in {"text", "text[]"}:
        if not renamed:
            return
        cases = " ".join(f"WHEN {literal(a)} THEN {literal(b)}" for a, b in renamed)
        labels = ", ".join(literal(a) for a, _ in renamed)
        if type_text == "text":
            changed, where = f"CASE {name} {cases} END", f"{name} IN ({labels})"
        else:
            changed, where = name, f"{name} && ARRAY[{labels}]"
            for a, b in renamed:
                changed = f"array_replace({changed}, {literal(a)}, {literal(b)})"
        yield f"UPDATE {_table(table.id)} SET {name} = {changed} WHERE {where}"
        return
    for a, b in renamed:  # tables of one type share it
        yield block(
            f"BEGIN IF EXISTS (SELECT 1 FROM pg_catalog.pg_enum WHERE enumtypid ="
            f" {literal(type_name)}::regtype AND enumlabel = {literal(a)}) THEN"
            f" ALTER TYPE {type_name} RENAME VALUE {literal(a)} TO {literal(b)}; END IF; END"
        )
    if not renamed:
        yield from _add_labels(type_name, was, now)


def _enum(column: Column) -> tuple[str, tuple[str, ...]] | None:
    """The enum in a column, by itself or in arrays and domains: its name and labels."""
    name, said = column.type_name, column.user_type
    while said is not None and said.kind in {"a", "d"}:
        name, said = said.made_of, said.of
    return None if said is None or said.kind != "e" else (_type_name(name), said.labels)


def _type_of(column: Column) -> tuple[int, int]:
    return column.type_oid, column.type_mod


def _renamed(before: TableSchema, after: TableSchema, sql: str | None) -> dict[str, str]:
    """Columns that the statement's text gives another name.

    Where there is none, they are followed as drops and adds: what may have been a rename, the
    source's half has marked as a gap, and the table is read again.
    """
    gone = [c for c in before.columns if c.name not in after.names()]
    come = {c.name for c in after.columns if c.name not in before.names()}
    if sql is None or not gone or not come:
        return {}
    found = {_plain(a): _plain(b) for a, b in _RENAME.findall(sql)}
    renamed = {c.name: found[c.name] for c in gone if found.get(c.name) in come}
    if found and not renamed:
        raise NotExpressible("an ambiguous rename of columns", table=after.id, hint=LOAD_AGAIN)
    return renamed


def _add(table: TableSchema, column: Column) -> Iterator[str]:
    name, head = quote(column.name), f"ALTER TABLE {_table(table.id)}"
    added = f"{head} ADD COLUMN {name} {column_type(table, column)}"
    if column.missing is None:
        yield added
    else:  # rows that were there before have this value without having been written again
        yield f"{added} DEFAULT {literal(column.missing)}"
        yield f"{head} ALTER COLUMN {name} DROP DEFAULT"


def _change(
    table: TableSchema, old: Column, new: Column, change: SchemaChange, sql: str | None
) -> Iterator[str]:
    head = f"ALTER TABLE {_table(table.id)} ALTER COLUMN {quote(new.name)}"
    if (old.type_oid, old.type_mod) != (new.type_oid, new.type_mod):
        was, now = column_type(table, old), column_type(table, new)
        if _keeps_values(was, now) or (sql is not None and not _USING.search(sql)):
            if was != now:
                yield f"{head} TYPE {now}"
        elif change.lossy is not None:  # the table is marked: what reads as the new type stays
            yield f"{head} TYPE {now} USING {quote(new.name)}::text::{now}"
        else:
            raise NotExpressible(
                "a column's type changed and its values may have been computed",
                table=table.id,
                column=new.name,
                type=new.type_name,
                hint=LOAD_AGAIN,
            )
    if not old.nullable and new.nullable and new.name not in table.key:
        yield f"{head} DROP NOT NULL"


def _keeps_values(was: str, now: str) -> bool:
    return was == now or _base(now) in _WIDER.get(_base(was), ())


def _base(type_name: str) -> str:
    return type_name.split("(", 1)[0].strip()


def _create_unique(table: TableId, unique: Unique) -> str:
    """Make a unique index that is known as the source's; rows that it refuses are the truth.

    A catalog that is read late shows indexes that came after these rows.
    """
    name = quote(unique.name)
    body = (
        f"BEGIN CREATE UNIQUE INDEX {name} ON {_table(table)} ({_names(unique.columns)});"
        f" COMMENT ON INDEX {quote(table.schema)}.{name} IS {literal(OF_SOURCE)};"
        " EXCEPTION WHEN duplicate_table OR unique_violation THEN NULL; END"
    )
    return block(body)


_UNNAMED: Final = f"exclude the tables that have it; then {LOAD_AGAIN}"


def column_type(table: TableSchema, column: Column) -> str:
    """The type, parsed from its text and printed again.

    A type that PostgreSQL lacks is written as the one that the table of types names.

    Raises NotExpressible for a type that is not known by name.
    """
    entry = BY_OID.get(column.type_oid)
    target = entry.ddl.get("postgres") if entry is not None else None
    try:
        found = type_names.parse(column.type_name or (target or "").replace("{}", ""))
    except NotRead as why:
        raise NotExpressible(
            "the type of a column is not known by name",
            table=table.id,
            column=column.name,
            oid=column.type_oid,
            why=why,
            hint=_UNNAMED,
        ) from None
    return str(found) if target is None else spelled(target, found.modifiers)


def _type_name(text: str) -> str:
    """The name of a type that is not a column's, printed again."""
    try:
        return type_names.written(text)
    except NotRead as why:
        raise NotExpressible("a type is not known by name", why=why, hint=_UNNAMED) from None


def _table(table: TableId) -> str:
    return f"{quote(table.schema)}.{quote(table.name)}"


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(quote(name) for name in columns)


def _plain(name: str) -> str:
    """A name as the catalog spells it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
