"""Which tables of the target are a source's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.tables import TableId
from spark_consumers.sinks.postgres.noted import OF_TABLE, Noted


class Owned(Noted[bool]):
    """The tables of one source, each with whether the source's stream made it."""

    _ours, _value = "gauss_cdc.tables", "made"
    _of_others: Mapping[TableId, str] = {}

    def made(self, cursor: Any, table: TableId) -> bool | None:
        """Say whether we made a table; None: it is not ours."""
        return self._read(cursor).get(table)

    def take(self, cursor: Any, table: TableId) -> None:
        """A table becomes ours, which others made, if it is there."""
        self._read(cursor)[table] = False
        cursor.execute("INSERT INTO gauss_cdc.tables VALUES (%s, %s, %s)", (self._source, *table))

    def by_another(self, cursor: Any, table: TableId) -> str | None:
        """Name another source that writes a table here."""
        self._read(cursor)
        return self._of_others.get(table)

    def note_made(self, cursor: Any, table: TableId) -> None:
        """A table of ours was not there, and we made it."""
        self._read(cursor)[table] = True
        cursor.execute(
            f"UPDATE gauss_cdc.tables SET made = true WHERE {OF_TABLE}",  # noqa: S608
            (self._source, *table),
        )

    def _read(self, cursor: Any) -> dict[TableId, bool]:
        if self._known is None:
            cursor.execute(
                "SELECT table_schema, table_name, source FROM gauss_cdc.tables WHERE source <> %s",
                (self._source,),
            )
            self._of_others = {TableId(s, t): source for s, t, source in cursor.fetchall()}
        return super()._read(cursor)
