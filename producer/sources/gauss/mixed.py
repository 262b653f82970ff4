"""Suspected gaps of one transaction: rows after its DDL that were not sent.

GaussDB sends no row after a DDL or DCL statement of the same transaction, but it
does send statements.  A single statement looks like ordinary DDL that is committed
at once, and raises no suspicion; a statement with rows, or with another statement,
shows a longer transaction.  CREATE TABLE looks the same with or without AS SELECT:
the source is queried for the rows of the new table, and where it cannot answer,
the table is suspected.

The tables that the transaction names are the likely ones, not the only possible.
For rows followed only by CREATE TABLE, the manual shows the same stream with and
without lost rows.  Of the new tables the source says which are empty.  The others
are suspected: as many rows of the transaction as were sent may be other ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from producer.core.changes import Lost
from producer.sources.gauss.ddl.model import Rename, Statement
from schemas.tables import TableId

# Whether a transaction wrote rows into the table that it created; None: unknown.
Wrote: TypeAlias = Callable[[TableId, int], bool | None]

BEHIND = "rows after a DDL statement of their transaction are not sent"
FILLED = "CREATE TABLE AS and SELECT INTO look like CREATE TABLE: their rows are not sent"
FOUND = "it holds rows of its own transaction, which are not sent (CREATE TABLE AS)"


class Mixed:
    """One transaction at a time."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[tuple[str, str], None] = {}  # tables that have some, in order
        self._touched: dict[tuple[str, str], None] = {}  # by statements, in order
        self._made: dict[tuple[str, str], bool] = {}  # -> is it partitioned
        self._statements = 0
        self._former: set[tuple[str, str]] = set()  # names, by which rows were sent

    def row(self, schema: str, table: str) -> None:
        """Note a row."""
        self._rows[schema, table] = None

    def statement(self, statement: Statement) -> None:
        """Note a statement."""
        self._statements += 1
        if statement.kind != "table":
            return
        for name in statement.names:
            table = (name.schema or "public", name.name)
            if statement.tag == "DROP TABLE":
                self._touched.pop(table, None)
                self._made.pop(table, None)
                self._rows.pop(table, None)
                continue
            self._touched[table] = None
            self._follow(table, statement)
            if statement.tag == "CREATE TABLE" and statement.persistence == "p":
                self._made[table] = statement.partitioning is not None

    def _follow(self, table: tuple[str, str], statement: Statement) -> None:
        """Let a table that gets another name be suspected under that one: targets follow, too."""
        for action in statement.actions:
            if isinstance(action, Rename) and table[1] == action.old.name:
                new = (action.new.schema or table[0], action.new.name)
                self._former.add(table)
                for noted in (self._rows, self._touched):
                    if table in noted:
                        del noted[table]
                        noted[new] = None
                if table in self._made:
                    self._made[new] = self._made.pop(table)

    @property
    def named(self) -> frozenset[TableId] | None:
        """Tables that are judged at the end: of rows and statements; None: no statement came.

        A table that a lone ALTER TABLE names is none: nothing tells whether rows followed.
        """
        if not self._statements:
            return None
        judged = (*self._rows, *self._touched, *self._former) if self._is_mixed else self._made
        return frozenset(TableId(*table) for table in judged)

    @property
    def _is_mixed(self) -> bool:
        return self._statements > 1 or bool(self._statements and self._rows)

    def end(self, xid: int, wrote: Wrote) -> Iterator[Lost]:
        """Yield the detected and suspected gaps of the transaction that ends here."""
        named = {*self._rows, *self._touched} if self._is_mixed else {*self._made}
        for schema, table in sorted(named):
            is_divided = self._made.get((schema, table), True)  # its rows would be stored elsewhere
            is_new = (schema, table) in self._made and (schema, table) not in self._rows
            found = wrote(TableId(schema, table), xid) if is_new else None
            if found is False and not is_divided:
                continue
            if self._is_mixed:
                yield Lost(schema, table, "suspected", BEHIND)
            elif found:
                yield Lost(schema, table, "seen", FOUND)
            else:
                yield Lost(schema, table, "suspected", FILLED)
        self._clear()
