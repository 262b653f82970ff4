"""Types that a target may not have: enums, domains, composites, types of extensions.

A type of the same name is used, a domain where it is made of what holds the values.  Without it a
domain becomes what it is made of, an array an array of what its elements become, and anything else
text, which holds every value of every type.  Nothing is created: a type with other labels or checks
would refuse rows which the source has.  So does one whose values name objects
(regclass), where the target has none of that name: it is never used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from schemas import type_names
from schemas.control import SchemaChange
from schemas.sql_text import NotRead
from schemas.tables import Column, TableSchema, UserType
from schemas.types import BY_OID, FIRST_OF_USERS, unseen_renames
from spark_consumers.dialects.base import quote, spelled

_RENAMED_ALONE: Final = ("c", "d", "e")  # arrays follow; types of an extension are its own


def needed_names(change: SchemaChange) -> list[str]:
    """Return the names to look for at the target, with each part in quotes."""
    tables = (change.before, change.after)
    columns = [column for table in tables if table is not None for column in table.columns]
    return sorted({name for column in columns for name in _names(column) if name})


def needed_bases(change: SchemaChange) -> set[tuple[str, str, str]]:
    """Return what domains of the source are made of in the end, each behind its name.

    As PostgreSQL has it, and as the source spells it: a target of its kind has that.
    """
    tables = (change.before, change.after)
    columns = [column for table in tables if table is not None for column in table.columns]
    return {found for column in columns for found in _bases(column)}


def settled(change: SchemaChange, there: Collection[str]) -> SchemaChange:
    """Return the change with types of the target; `there`: those that it has."""
    return replace(
        change, before=_settled(change.before, there), after=_settled(change.after, there)
    )


def renamed(change: SchemaChange) -> dict[str, str]:
    """Return the enums, domains and composites in a table's columns whose name is another now."""
    return {
        was: now
        for old, new in _pairs(change).values()
        for was, now in _names_of(old, new)
        if was != now and was and now
    }


def with_new_names(change: SchemaChange) -> SchemaChange:
    """Return the change as if types had been named before as they are after it."""
    if change.before is None or not (pairs := _pairs(change)):
        return change
    columns = (
        replace(column, type_name=new.type_name, user_type=_named(column.user_type, new.user_type))
        if (new := pairs.get(column.name, (None, None))[1]) is not None
        else column
        for column in change.before.columns
    )
    return replace(change, before=replace(change.before, columns=tuple(columns)))


def _pairs(change: SchemaChange) -> dict[str, tuple[Column, Column]]:
    """Return columns that stayed and are of one of the users' types still, by their older name."""
    if change.before is None or change.after is None:
        return {}
    after = {column.name: column for column in change.after.columns}
    out = {}
    for old in change.before.columns:
        new = after.get(change.renamed.get(old.name, old.name))
        if new is not None and old.user_type is not None and new.user_type is not None:
            same = (old.type_oid, old.type_mod) == (new.type_oid, new.type_mod)
            if same and old.type_oid >= FIRST_OF_USERS:
                out[old.name] = old, new
    return out


def _names_of(old: Column, new: Column) -> Iterator[tuple[str, str]]:
    """Give the names of one type, and of those that it is made of, before and after."""
    was, now = old.user_type, new.user_type
    if was is None or now is None or was.kind != now.kind:
        return
    if was.kind in _RENAMED_ALONE:
        yield _bare(old.type_name), _bare(new.type_name)
    yield from _names_of(
        Column("", was.type_oid, -1, was.made_of, user_type=was.of),
        Column("", now.type_oid, -1, now.made_of, user_type=now.of),
    )


def _named(was: UserType | None, now: UserType | None) -> UserType | None:
    if was is None or now is None:
        return was
    return replace(was, name=now.name, made_of=now.made_of, of=_named(was.of, now.of))


def _settled(table: TableSchema | None, there: Collection[str]) -> TableSchema | None:
    if table is None or not any(map(_is_of_users, table.columns)):
        return table
    columns = tuple(
        replace(column, type_name=_type(column, there)) if _is_of_users(column) else column
        for column in table.columns
    )
    return replace(table, columns=columns)


def _is_of_users(column: Column) -> bool:
    return column.user_type is not None or (
        not column.type_name and column.type_oid >= FIRST_OF_USERS
    )


def _type(column: Column, there: Collection[str]) -> str:
    said = column.user_type
    if said is None:
        return _built_in(column) or "text"  # that one is made of; or gone, without a name
    name = _bare(column.type_name)
    if name in there and not unseen_renames([column]):
        return column.type_name
    inner = Column(column.name, said.type_oid, said.type_mod, said.made_of, user_type=said.of)
    if said.kind == "d":
        return _type(inner, there)
    if said.kind == "b" and (found := _elsewhere(said.name, there)):
        return _with_modifiers(found, column.type_name)
    if said.kind == "a" and said.delimiter == ",":
        element = _type(inner, there)
        # Arrays of domains over arrays are not arrays of more dimensions: their text differs.
        return "text" if element.endswith("[]") else f"{element}[]"
    return "text"


def _built_in(column: Column) -> str:
    """Name a type of the server; of what PostgreSQL lacks, the type that holds its values."""
    entry = BY_OID.get(column.type_oid)
    if entry is None or (target := entry.ddl.get("postgres")) is None:
        return column.type_name
    try:
        return spelled(target, type_names.parse(column.type_name).modifiers)
    except NotRead:
        return column.type_name


def _bases(column: Column) -> Iterator[tuple[str, str, str]]:
    said = column.user_type
    if said is None:
        return
    inner = Column(column.name, said.type_oid, said.type_mod, said.made_of, user_type=said.of)
    if said.kind == "d":
        own = said
        while own.of is not None and own.of.kind == "d":
            own = own.of
        yield _bare(column.type_name), _type(inner, ()), own.made_of
    yield from _bases(inner)


def _names(column: Column) -> Iterator[str]:
    said = column.user_type
    if said is None:
        return
    yield _bare(column.type_name)
    if said.kind == "b":
        yield f"*.{quote(said.name)}"  # an extension may have been put into any schema
    yield from _names(Column(column.name, said.type_oid, -1, said.made_of, user_type=said.of))


def _elsewhere(name: str, there: Collection[str]) -> str | None:
    """Find an extension's type in the schema where the target has it."""
    mark = f"*.{quote(name)}="
    return next((found.removeprefix(mark) for found in there if found.startswith(mark)), None)


def _bare(type_name: str) -> str:
    """Remove brackets and a modifier from a type's name; quote it again.

    A text that does not name a type is returned as it is: the target does not have it.
    """
    try:
        return type_names.parse(type_name).bare
    except NotRead:
        return ""


def _with_modifiers(found: str, type_name: str) -> str:
    """Give a type of the target the modifiers that the source's has."""
    said = type_names.parse(type_name)
    return str(replace(type_names.parse(found), modifiers=said.modifiers))
