"""The columns of a lake's tables, and the statements that bring them to another shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Final

from schemas.control import SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId, TableSchema
from spark_consumers.dialects.spark import EXACT, literal, quote, statements, type_name
from spark_consumers.errors import NotExpressible, TargetRefused
from spark_consumers.sinks.lakes.changes import MORE, WORKING

_ASIDE: Final = re.compile(r"__dropped\d*$", re.IGNORECASE)


def columns(schema: TableSchema, mode: str) -> str:
    """Return what stands in the brackets of CREATE TABLE.

    Raises NotExpressible for names that differ by case only, or that we have taken.
    """
    _check_names(schema, mode)
    seen: dict[str, str] = {}
    for name in schema.names():
        if (other := seen.setdefault(name.casefold(), name)) != name:
            raise NotExpressible(
                "two columns differ by case only, which Spark does not see",
                table=schema.id,
                columns=f"{other},{name}",
            )
    own = [
        f"{quote(c.name)} {type_name(schema, c)}"
        + " NOT NULL" * (mode == "scd1" and c.name in schema.key)
        for c in schema.columns
    ]
    return ", ".join([*own, *(f"{quote(name)} {type_}" for name, type_ in MORE[mode].items())])


def altering(
    change: SchemaChange, there: Sequence[str], *, place: TableId, mode: str
) -> tuple[list[str], list[str]]:
    """Return the statements that alter a table with the columns `there`, and those on its rows.

    An earlier attempt may have altered it already: only what is missing is said.  `place` is the
    table's name as statements have it.  What only older rows know stays in a history; where
    another column takes its name, it is called `<name>__dropped`.

    Raises NotExpressible where rows moved between tables, and for names as `columns` does.
    """
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    if change.moved is not None:
        raise NotExpressible(
            "rows moved between tables at the source", table=after.id, hint=LOAD_AGAIN
        )
    _check_names(after, mode)
    change = replace(change, before=replace(before, id=place), after=replace(after, id=place))
    on_rows = [text for text in statements(change) if not text.startswith("ALTER")]
    aside = _aside(change, there, mode) if mode != "scd1" else {}
    known = {name.casefold() for name in there if name not in aside}
    pending = {
        was: name
        for was, name in change.renamed.items()
        if was.casefold() in known and name.casefold() not in known
    }
    old = []
    for column in before.columns:
        renamed = change.renamed.get(column.name, column.name)
        if column.name.casefold() in known and (renamed == column.name or column.name in pending):
            old.append(column)
        elif renamed.casefold() in known:
            old.append(replace(column, name=renamed))
    names = {pending.get(column.name, column.name).casefold() for column in old}
    old += [c for c in after.columns if c.name.casefold() in known - names]
    rest = replace(change, before=replace(before, id=place, columns=tuple(old)), renamed=pending)
    altered = [text for text in statements(rest) if text.startswith("ALTER")]
    gone = _gone(change)
    if mode != "scd1":
        altered = [text for text in altered if " DROP COLUMN " not in text]
        on_rows = [f"{text} WHERE `_is_current`" for text in on_rows] if mode == "scd2" else []
        gone = frozenset()
    table = f"{quote(place.schema)}.{quote(place.name)}"
    for was, name in aside.items():
        altered.insert(0, f"ALTER TABLE {table} RENAME COLUMN {quote(was)} TO {quote(name)}")
    # First: what comes may have a text under a name that one which went had.
    return altered, [*_naming(table, {**change.renamed, **aside}, gone, mode), *on_rows]


def refuse_columns(table: TableId, there: Iterable[str], known: Iterable[str]) -> None:
    """Refuse columns that no applier made: they would go with the next write.

    `known` are those that appliers made, and may have made.
    """
    names = {name.casefold() for name in known}
    more = [n for n in there if n.casefold() not in names and not _ASIDE.search(n)]
    if more:
        raise TargetRefused(
            "somebody added columns to a table of the lake, and apply would remove them",
            table=table,
            columns=",".join(more),
            hint="drop them there; what is yours belongs in a table of your own, with the same key",
        )


def _gone(change: SchemaChange) -> frozenset[str]:
    """Name the columns that a change drops, also where it makes another one of the name."""
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    return frozenset(
        name
        for name in before.names()
        if change.renamed.get(name, name) not in after.names() or change.values.get(name) == "new"
    )


def _aside(change: SchemaChange, there: Sequence[str], mode: str) -> dict[str, str]:
    """Return new names of columns that stay though they went, where another one takes their name.

    The values of one column would stand under the other's name, and in its type.
    """
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    gone = _gone(change)
    last = {change.renamed.get(name, name) for name in before.names() if name not in gone}
    comes = {*after.names()} - last | {*change.renamed.values()}
    live = {name.casefold() for name in before.names() if name not in gone}
    taken = {name.casefold() for name in (*there, *before.names(), *after.names(), *MORE[mode])}
    out: dict[str, str] = {}
    for name in there:
        if name.casefold() in live or name.casefold() not in {one.casefold() for one in comes}:
            continue
        names = chain([f"{name}__dropped"], (f"{name}__dropped{at}" for at in count(2)))
        out[name] = next(one for one in names if one.casefold() not in taken)
        taken.add(out[name].casefold())
    return out


def _naming(table: str, renamed: Mapping[str, str], gone: Iterable[str], mode: str) -> list[str]:
    """Return what brings names of columns in the values of our own columns to those of the table.

    An entry of a column that went would be another one's, which has its name later.  Spark does
    not see the case of a name.
    """
    to = {was.lower(): name for was, name in renamed.items()}
    off = {name.lower() for name in (*gone, *renamed.values())} - to.keys()
    off |= {name.lower() for name in gone}
    if not to and not off:
        return []

    def listed(names: Iterable[str]) -> str:
        return ", ".join(map(literal, sorted(names)))

    stays = f"lower(k) NOT IN ({listed(off)})" if off else "true"
    cases = "".join(f" WHEN {literal(was)} THEN {literal(to[was])}" for was in sorted(to))
    named = f"CASE lower(k){cases} ELSE k END" if to else "k"
    exact = f"transform_keys(map_filter({EXACT}, (k, v) -> {stays}), (k, v) -> {named})"
    sets = [f"{EXACT} = if(size({exact}) > 0, {exact}, NULL)"]
    concerned = f"k -> lower(k) IN ({listed(to.keys() | off)})"
    # Both lakes know of a file whether it has texts at all.
    where = [f"({EXACT} IS NOT NULL AND exists(map_keys({EXACT}), {concerned}))"]
    if "_unsent" in MORE[mode]:
        sets.append(f"_unsent = transform(filter(_unsent, k -> {stays}), k -> {named})")
        where.append(f"exists(_unsent, {concerned})")
    return [f"UPDATE {table} SET {', '.join(sets)} WHERE {' OR '.join(where)}"]  # noqa: S608


def _check_names(schema: TableSchema, mode: str) -> None:
    """Refuse names of columns that a table, or a frame on its way there, has for itself."""
    own = {*MORE[mode], *(WORKING if mode == "scd1" else ())}
    if taken := own & {name.casefold() for name in schema.names()}:
        raise NotExpressible(
            "a column has a name that a lake's table needs for itself",
            table=schema.id,
            columns=",".join(sorted(taken)),
            hint="rename it at the source, or leave the table out of [tables]",
        )
