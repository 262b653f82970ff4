"""Where the rows of a load are until its END, while readers see those of an earlier commit.

A shadow table has the columns that the load brings, in the target's types, and its key, but no
NOT NULL, default or other index: what the target asks for is asked at END.  It stands in schema
`gauss_cdc`, where readers do not look, and is logged like any other: an unlogged one is empty
after a crash of the server, and the load's chunks are not sent again.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import TableId
from spark_consumers.dialects.base import quote
from spark_consumers.sinks.postgres.catalog import TargetTable
from spark_consumers.sinks.postgres.noted import Noted


class Shadows(Noted[str]):
    """The shadow tables of one source, by their names in our schema."""

    _ours, _value = "gauss_cdc.shadows", "shadow"

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._prefix = f"shadow_{zlib.crc32(source.encode()):08x}"

    def find(self, cursor: Any, tables: Iterable[TableId]) -> dict[TableId, TableId]:
        """Name the shadows of those tables that have one."""
        known = self._read(cursor)
        return {table: TableId(OWN_SCHEMA, known[table]) for table in tables if table in known}

    def place(self, cursor: Any, table: TableId) -> TableId:
        """Where a table's rows are written."""
        return self.find(cursor, [table]).get(table, table)

    def make(self, cursor: Any, table: TargetTable, columns: Sequence[str]) -> None:
        """Begin a load beside a table's rows."""
        shadow = TableId(OWN_SCHEMA, f"{self._prefix}_{table.oid}")
        names = ", ".join(map(quote, columns))
        cursor.execute(
            f"CREATE TABLE {written(shadow)} AS "
            f"SELECT {names} FROM {written(table.id)} WITH NO DATA"
        )
        if table.key and set(table.key) <= set(columns):
            late = " DEFERRABLE INITIALLY DEFERRED" * table.key_is_deferrable
            key = ", ".join(map(quote, table.key))
            cursor.execute(f"ALTER TABLE {written(shadow)} ADD PRIMARY KEY ({key}){late}")
        cursor.execute(
            "INSERT INTO gauss_cdc.shadows VALUES (%s, %s, %s, %s)",
            (self._source, *table.id, shadow.name),
        )
        self._read(cursor)[table.id] = shadow.name

    def leave(self, cursor: Any, table: TableId) -> str | None:
        """Drop a table's shadow; return its name, if it had one.  Else None."""
        shadow = super().leave(cursor, table)
        if shadow is not None:
            cursor.execute(f"DROP TABLE {written(TableId(OWN_SCHEMA, shadow))}")
        return shadow


def written(table: TableId) -> str:
    """A table's name in a statement without arguments."""
    return f"{quote(table.schema)}.{quote(table.name)}"
