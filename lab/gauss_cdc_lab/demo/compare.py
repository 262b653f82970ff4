"""Source and target, row by row, in the servers' own text forms.

Both sides are streamed in the order of their keys and merged, so that nothing is
held but two rows.  What differs is named by key and column, never by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

import psycopg2
from psycopg2 import sql

Cells: TypeAlias = tuple[str | None, ...]
_NAMED: Final = count()
_BATCH: Final = 500
_MOST: Final = 20  # differences printed of one table

_COLUMNS: Final = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_KEY: Final = """
    SELECT a.attname FROM pg_index i
    CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY k.place"""
_TABLES: Final = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_'
      AND n.nspname NOT IN ('information_schema', 'gauss_cdc', 'gauss_compat') ORDER BY 1, 2"""


@dataclass(slots=True)
class Comparison:
    """What was compared, and where it differs."""

    rows: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not self.differences


def compare(source_url: str, target_url: str) -> Comparison:
    """Compare every table of both databases."""
    found = Comparison()
    with closing(_snapshot(source_url)) as source, closing(_snapshot(target_url)) as target:
        tables, copies = _tables(source), _tables(target)
        for table in sorted(tables ^ copies):
            side = "target" if table in tables else "source"
            found.differences.append(f"{_name(table)}: not at the {side}")
        for table in sorted(tables & copies):
            _compare(source, target, table, found)
    return found


def _compare(source: Any, target: Any, table: tuple[str, str], found: Comparison) -> None:
    name = _name(table)
    shapes = [_ask(side, _COLUMNS, _quoted(table, side)) for side in (source, target)]
    if shapes[0] != shapes[1]:
        found.differences.append(f"{name}: columns {shapes[0]} at the source, {shapes[1]} here")
        found.rows[name] = 0
        return
    columns = [column for column, _ in shapes[0]]
    key = [column for (column,) in _ask(source, _KEY, _quoted(table, source))]
    differing = rows = 0
    for ours, theirs in _merged(
        _stream(source, table, columns, key or columns),
        _stream(target, table, columns, key or columns),
        len(key or columns),
    ):
        rows += ours is not None
        if ours == theirs:
            continue
        differing += 1
        if differing <= _MOST:
            found.differences.append(f"{name}: {_difference(ours, theirs, key, columns)}")
    if differing > _MOST:
        found.differences.append(f"{name}: {differing} rows differ in all")
    found.rows[name] = rows


def _difference(
    ours: Cells | None, theirs: Cells | None, key: list[str], columns: list[str]
) -> str:
    row = ours or theirs
    assert row is not None
    place = (
        ", ".join(f"{name}={value}" for name, value in zip(key, row, strict=False))
        if key
        else "a row without key"
    )
    if ours is None or theirs is None:
        return f"{place}: only at the {'source' if theirs is None else 'target'}"
    cells = zip(columns, ours[len(key) :], theirs[len(key) :], strict=True)
    return f"{place}: {', '.join(name for name, a, b in cells if a != b)} differ"


def _merged(
    left: Iterator[Cells], right: Iterator[Cells], width: int
) -> Iterator[tuple[Cells | None, Cells | None]]:
    """Pair rows of the same order key; the first `width` cells are that key."""

    def order(row: Cells) -> tuple[tuple[bool, bytes], ...]:
        # As the servers sort: by bytes, NULL last.
        return tuple((cell is None, (cell or "").encode()) for cell in row[:width])

    ours, theirs = next(left, None), next(right, None)
    while ours is not None or theirs is not None:
        if theirs is None or (ours is not None and order(ours) < order(theirs)):
            yield ours, None
            ours = next(left, None)
        elif ours is None or order(theirs) < order(ours):
            yield None, theirs
            theirs = next(right, None)
        else:
            yield ours, theirs
            ours, theirs = next(left, None), next(right, None)


def _stream(
    connection: Any, table: tuple[str, str], columns: list[str], order: list[str]
) -> Iterator[Cells]:
    """Rows as text: the order key first, then all columns."""
    text = sql.SQL('{}::text COLLATE "C"')
    wanted = [text.format(sql.Identifier(column)) for column in order + columns]
    query = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
        sql.SQL(", ").join(wanted),
        sql.Identifier(*table),
        sql.SQL(", ").join(sql.SQL(str(place + 1)) for place in range(len(order))),
    )
    with connection.cursor(name=f"compare_{next(_NAMED)}") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(query)
        yield from cursor


def _snapshot(url: str) -> Any:
    connection = psycopg2.connect(url, application_name="gauss-cdc compare")
    connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
    with connection.cursor() as cursor:
        cursor.execute("SET TimeZone = 'UTC'; SET extra_float_digits = 3")
    return connection


def _tables(connection: Any) -> set[tuple[str, str]]:
    return {(schema, name) for schema, name in _ask(connection, _TABLES)}


def _ask(connection: Any, query: str, *arguments: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, arguments)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _quoted(table: tuple[str, str], connection: Any) -> str:
    return str(sql.Identifier(*table).as_string(connection))


def _name(table: tuple[str, str]) -> str:
    return ".".join(table)
