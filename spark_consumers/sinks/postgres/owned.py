"""Which tables of the target are a source's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from schemas.tables import TableId
from spark_consumers.errors import TargetNotEmpty
from spark_consumers.sinks.postgres.noted import OF_TABLE, Noted

# Rows of ours are in these: their shapes were kept.
_TAKEN: Final = """
SELECT o.table_schema, o.table_name, o.source FROM gauss_cdc.tables o
JOIN gauss_cdc.shapes s USING (table_schema, table_name)
JOIN pg_catalog.pg_namespace n ON n.nspname = o.table_schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = o.table_name
WHERE s.source = %s AND o.source <> s.source AND NOT EXISTS (
    SELECT 1 FROM gauss_cdc.tables m WHERE m.source = s.source
    AND m.table_schema = o.table_schema AND m.table_name = o.table_name)
ORDER BY 1, 2 LIMIT 1
"""


def refuse_taken(cursor: Any, source: str) -> None:
    """Raise TargetNotEmpty where another source took a table of this one by `--replace`.

    The caller holds the ledger's lock, as who takes a table does.
    """
    cursor.execute(_TAKEN, (source,))
    for schema, name, other in cursor.fetchall():
        raise TargetNotEmpty(
            "another source took a table of this one, with `apply --replace`",
            table=TableId(schema, name),
            source=other,
            hint="apply this one into another database, which begins with a load",
        )


class Owned(Noted[bool]):
    """The tables of one source, each with whether the source's stream made it."""

    _ours, _value = "gauss_cdc.tables", "made"
    _of_others: Mapping[TableId, str] | None = None  # as of this transaction

    @property
    def source(self) -> str:
        """Whose tables these are."""
        return self._source

    def made(self, cursor: Any, table: TableId) -> bool | None:
        """Say whether we made a table; None: it is not ours."""
        return self._read(cursor).get(table)

    def take(self, cursor: Any, table: TableId) -> None:
        """A table becomes ours alone, which others made, if it is there."""
        self._read(cursor)[table] = False
        self._take_away(cursor, table)
        cursor.execute("INSERT INTO gauss_cdc.tables VALUES (%s, %s, %s)", (self._source, *table))

    def rename(self, cursor: Any, was: TableId, now: TableId) -> None:
        """A table of ours has another name now, which is ours alone."""
        self._take_away(cursor, now)
        super().rename(cursor, was, now)

    def _take_away(self, cursor: Any, table: TableId) -> None:
        if self.by_another(cursor, table) is not None:
            cursor.execute(
                "DELETE FROM gauss_cdc.tables"
                " WHERE source <> %s AND table_schema = %s AND table_name = %s",
                (self._source, *table),
            )

    def by_another(self, cursor: Any, table: TableId) -> str | None:
        """Name another source that writes a table here; none takes one until the step's end.

        None: no other does.
        """
        if self._of_others is None:
            cursor.execute("LOCK TABLE gauss_cdc.tables IN SHARE ROW EXCLUSIVE MODE")
            cursor.execute(
                "SELECT table_schema, table_name, source FROM gauss_cdc.tables WHERE source <> %s",
                (self._source,),
            )
            self._of_others = {TableId(s, t): source for s, t, source in cursor.fetchall()}
        return self._of_others.get(table)

    def forget_others(self) -> None:
        """A transaction begins: others may have taken tables since."""
        self._of_others = None

    def note_made(self, cursor: Any, table: TableId) -> None:
        """A table of ours was not there, and we made it."""
        self._read(cursor)[table] = True
        cursor.execute(
            f"UPDATE gauss_cdc.tables SET made = true WHERE {OF_TABLE}",  # noqa: S608
            (self._source, *table),
        )
