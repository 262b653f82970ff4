"""What a table of the target was when rows of the source came into it, and whether it still is.

Its owner may give a column a type that rounds, another key, or another table its name: what was
written is not the source's then, nor is what follows, and no statement fails.  So a table's shape
is kept when its load begins, and with each schema change of the stream.  Whoever writes compares
it, once for each look at the table; so does who is about to keep another one, and END of the load,
under a lock.  One that was altered is not exact until it is loaded again.  What holds the rows as
well, such as a wider type, is no difference.
"""
# ruff: noqa: S608  every name in a statement is our own

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from schemas.tables import TableId
from spark_consumers.dialects.fitting import fits
from spark_consumers.sinks.postgres.catalog import TargetTable

_OF_TABLE: Final = "source = %s AND table_schema = %s AND table_name = %s"


class Shapes:
    """The shapes of one source's tables; who holds its ledger is the only one that writes them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: dict[TableId, str] | None = None

    def keep(self, cursor: Any, renewed: Collection[TableId], there: Sequence[TargetTable]) -> None:
        """Of these tables, those that are there are as they shall be."""
        known = self._read(cursor)
        for name in renewed:
            if known.pop(name, None) is not None:
                cursor.execute(
                    f"DELETE FROM gauss_cdc.shapes WHERE {_OF_TABLE}", (self._source, *name)
                )
        new = {table.id: written_down(table) for table in there}
        known |= new
        if new:
            rows = ", ".join(["(%s, %s, %s, %s)"] * len(new))
            cursor.execute(
                f"INSERT INTO gauss_cdc.shapes VALUES {rows}",
                [cell for name, shape in new.items() for cell in (self._source, *name, shape)],
            )

    def rename(self, cursor: Any, was: TableId, now: TableId) -> None:
        """A table has another name now."""
        self.keep(cursor, [now], [])
        known = self._read(cursor)
        if (kept := known.pop(was, None)) is not None:
            known[now] = kept
            cursor.execute(
                f"UPDATE gauss_cdc.shapes SET table_schema = %s, table_name = %s WHERE {_OF_TABLE}",
                (*now, self._source, *was),
            )

    def difference(self, cursor: Any, table: TargetTable) -> str:
        """Say why it is another one than when rows came into it; "": it is not."""
        kept = self._read(cursor).get(table.id)
        if kept is not None:
            return difference(kept, table)
        self.keep(cursor, (), [table])  # loaded by a release that kept none
        return ""

    def ask_again(self) -> None:
        """A transaction was undone, or another run begins."""
        self._known = None

    def _read(self, cursor: Any) -> dict[TableId, str]:
        if self._known is None:
            cursor.execute(
                "SELECT table_schema, table_name, shape FROM gauss_cdc.shapes WHERE source = %s",
                (self._source,),
            )
            self._known = {TableId(s, t): shape for s, t, shape in cursor.fetchall()}
        return self._known


def written_down(table: TargetTable) -> str:
    """Write what `difference` compares."""
    columns = {
        name: [table.numbers.get(name, 0), column.type_name, name in table.loose,
               column.is_generated]
        for name, column in table.columns.items()
    }  # fmt: skip
    return json.dumps(
        [table.home, table.oid, table.persistence, sorted(table.key), columns], ensure_ascii=False
    )


def difference(kept: str, table: TargetTable) -> str:
    """Say why rows may be others than those that were written; "": they are not."""
    home, oid, persistence, key, columns = json.loads(kept)
    is_restored = home != table.home  # with other numbers: the ledger has another one, too
    if not is_restored and oid != table.oid:
        return "another table has its name"
    if table.persistence != persistence:
        return "it is not logged: a crash of the server empties it"
    if sorted(table.key) != key:
        return "it has another primary key"
    for name, (number, kind, is_loose, is_generated) in columns.items():
        column = table.columns.get(name)
        if column is None or (not is_restored and table.numbers.get(name, 0) != number):
            return f"column {name} is another one"
        if column.is_generated != is_generated:
            return f"column {name} is computed, or was"
        if not fits(column.type_name, kind):
            return f"column {name} has type {column.type_name}, and had {kind}"
        if name in table.loose and not is_loose:
            return f"different values of column {name} are equal"
    return ""
