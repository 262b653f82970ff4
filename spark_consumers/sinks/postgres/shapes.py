"""What a table of the target was when rows of the source came into it, and whether it still is.

Its owner may give a column a type that rounds, another key, or another table its name: what was
written is not the source's then, nor is what follows, and no statement fails.  So a table's shape
is kept when its load begins, and with each schema change of the stream.  Whoever writes compares
it, once for each look at the table; so does who is about to keep another one, and END of the load,
under a lock.  One that was altered is not exact until it is loaded again.  What holds the rows as
well, such as a wider type, is no difference.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from schemas.tables import TableId
from spark_consumers.dialects.fitting import fits
from spark_consumers.sinks.postgres.catalog import TargetTable, read_tables
from spark_consumers.sinks.postgres.noted import Noted
from spark_consumers.sinks.postgres.products import TargetProduct


class Shapes(Noted[str]):
    """The shapes of one source's tables."""

    _ours, _value = "gauss_cdc.shapes", "shape"

    def keep(self, cursor: Any, renewed: Collection[TableId], there: Sequence[TargetTable]) -> None:
        """Of these tables, those that are there are as they shall be."""
        for name in renewed:
            self.leave(cursor, name)
        new = {table.id: written_down(table) for table in there}
        self._read(cursor).update(new)
        if new:
            rows = ", ".join(["(%s, %s, %s, %s)"] * len(new))
            cursor.execute(
                f"INSERT INTO gauss_cdc.shapes VALUES {rows}",  # noqa: S608  our own
                [cell for name, shape in new.items() for cell in (self._source, *name, shape)],
            )

    def settle(self, cursor: Any, product: TargetProduct, home: int) -> None:
        """In a restored database, `home` its ledger's oid, know tables as they are there.

        A dump keeps neither oids nor numbers: without those of here, nobody would notice another
        table, or column, that takes a name later.
        """
        kept = self._read(cursor)
        restored = [name for name, shape in kept.items() if json.loads(shape)[0] != home]
        if restored:
            there = read_tables(cursor, restored, product).values()
            same = [table for table in there if not difference(kept[table.id], table)]
            self.keep(cursor, [table.id for table in same], same)

    def rename(self, cursor: Any, was: TableId, now: TableId) -> None:
        """A table has another name now."""
        self.leave(cursor, now)
        super().rename(cursor, was, now)

    def difference(self, cursor: Any, table: TargetTable) -> str:
        """Say why it is another one than when rows came into it; "": it is not."""
        kept = self._read(cursor).get(table.id)
        if kept is not None:
            return difference(kept, table)
        self.keep(cursor, (), [table])  # loaded by a release that kept none
        return ""


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
    if is_restored and oid == table.oid:
        return "the ledger was restored, and not it"
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
