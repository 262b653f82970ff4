"""Which tables of the target are a source's.

The applier that holds the ledger is the only one that writes this, so it is read once, and again
after what was undone.
"""

from __future__ import annotations

from typing import Any, Final

from schemas.tables import TableId

_OF_TABLE: Final = "source = %s AND table_schema = %s AND table_name = %s"


class Owned:
    """The tables of one source, each with whether the source's stream made it."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: dict[TableId, bool] | None = None
        self._of_others: dict[TableId, str] = {}

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
            f"UPDATE gauss_cdc.tables SET made = true WHERE {_OF_TABLE}",  # noqa: S608
            (self._source, *table),
        )

    def rename(self, cursor: Any, was: TableId, now: TableId) -> None:
        """A table of ours has another name now."""
        known = self._read(cursor)
        if (made := known.pop(was, None)) is not None:
            known[now] = made
        cursor.execute(
            "UPDATE gauss_cdc.tables SET table_schema = %s, table_name = %s "  # noqa: S608
            f"WHERE {_OF_TABLE}",
            (*now, self._source, *was),
        )

    def leave(self, cursor: Any, table: TableId) -> bool | None:
        """Let go of a table; say whether we made it, None: it was not ours."""
        made = self._read(cursor).pop(table, None)
        if made is not None:
            cursor.execute(
                f"DELETE FROM gauss_cdc.tables WHERE {_OF_TABLE}",  # noqa: S608
                (self._source, *table),
            )
        return made

    def ask_again(self) -> None:
        """A transaction was undone, or another run begins."""
        self._known = None

    def _read(self, cursor: Any) -> dict[TableId, bool]:
        if self._known is None:
            cursor.execute("SELECT source, table_schema, table_name, made FROM gauss_cdc.tables")
            rows = cursor.fetchall()
            mine = [row for row in rows if row[0] == self._source]
            self._known = {TableId(*name): bool(made) for _, *name, made in mine}
            self._of_others = {
                TableId(*name): source for source, *name, _ in rows if source != self._source
            }
        return self._known
