"""The columns of a lake's tables, and the statements that bring them to another shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schemas.control import SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId, TableSchema
from spark_consumers.dialects.spark import quote, statements, type_name
from spark_consumers.errors import NotExpressible
from spark_consumers.sinks.lakes.changes import MORE, WORKING


def columns(schema: TableSchema, mode: str) -> str:
    """Return what stands in the brackets of CREATE TABLE."""
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
    table's name as statements have it.  What only older rows know stays in a history.
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
    known = {name.casefold() for name in there}
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
    names = {pending.get(column.name, column.name) for column in old}
    old += [c for c in after.columns if c.name not in names and c.name.casefold() in known]
    rest = replace(change, before=replace(before, id=place, columns=tuple(old)), renamed=pending)
    altered = [text for text in statements(rest) if text.startswith("ALTER")]
    if mode != "scd1":
        altered = [text for text in altered if " DROP COLUMN " not in text]
        on_rows = [f"{text} WHERE `_is_current`" for text in on_rows] if mode == "scd2" else []
    return altered, on_rows


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
