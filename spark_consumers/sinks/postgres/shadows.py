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
from typing import Any, Final

from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import TableId
from spark_consumers.dialects.base import quote
from spark_consumers.sinks.postgres.catalog import TargetTable

_OF_TABLE: Final = "source = %s AND table_schema = %s AND table_name = %s"


class Shadows:
    """The shadow tables of one source."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: dict[TableId, TableId] | None = None
        self._prefix = f"shadow_{zlib.crc32(source.encode()):08x}"

    def find(self, cursor: Any, tables: Iterable[TableId]) -> dict[TableId, TableId]:
        """Name the shadows of those tables that have one."""
        known = self._read(cursor)
        return {table: known[table] for table in tables if table in known}

    def place(self, cursor: Any, table: TableId) -> TableId:
        """Where a table's rows are written."""
        return self._read(cursor).get(table, table)

    def ask_again(self) -> None:
        """A transaction was undone, or another run begins."""
        self._known = None

    def _read(self, cursor: Any) -> dict[TableId, TableId]:
        """All of the source: who holds its ledger is the only one that writes this."""
        if self._known is None:
            cursor.execute(
                "SELECT table_schema, table_name, shadow FROM gauss_cdc.shadows WHERE source = %s",
                (self._source,),
            )
            self._known = {
                TableId(s, t): TableId(OWN_SCHEMA, name) for s, t, name in cursor.fetchall()
            }
        return self._known

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
        self._read(cursor)[table.id] = shadow

    def rename(self, cursor: Any, was: TableId, now: TableId) -> None:
        """A table has another name now."""
        known = self._read(cursor)
        if (shadow := known.pop(was, None)) is None:
            return
        known[now] = shadow
        cursor.execute(
            f"UPDATE gauss_cdc.shadows SET table_schema = %s, table_name = %s WHERE {_OF_TABLE}",
            (*now, self._source, *was),
        )

    def leave(self, cursor: Any, table: TableId) -> bool:
        """Drop a table's shadow; say whether it had one."""
        shadow = self._read(cursor).pop(table, None)
        if shadow is None:
            return False
        cursor.execute(f"DROP TABLE {written(shadow)}")
        cursor.execute(f"DELETE FROM gauss_cdc.shadows WHERE {_OF_TABLE}", (self._source, *table))
        return True


def written(table: TableId) -> str:
    """A table's name in a statement without arguments."""
    return f"{quote(table.schema)}.{quote(table.name)}"
