"""What one transaction lets us suspect: rows that stood behind its DDL and were not sent.

GaussDB sends no row behind a DDL or DCL statement of the same transaction, but
statements it does send.  One statement alone is what an ordinary, committed-at-
once DDL looks like and raises no suspicion; a statement beside rows, or beside
another statement, shows that somebody worked in a transaction.  CREATE TABLE
looks the same whether it was AS SELECT or not, so it is suspected by itself.

The tables that the transaction names are the likely ones, not the only possible.
"""

from __future__ import annotations

from collections.abc import Iterator

from producer.core.ddl_model import Statement
from producer.decoders.messages import Lost

BEHIND = "rows behind a DDL statement of their transaction are not sent"
FILLED = "CREATE TABLE AS and SELECT INTO look like CREATE TABLE: their rows are not sent"


class Mixed:
    """One transaction at a time."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._rows: set[tuple[str, str]] = set()
        self._touched: dict[tuple[str, str], None] = {}  # by statements, in order
        self._made: dict[tuple[str, str], None] = {}
        self._statements = 0

    def row(self, schema: str, table: str) -> None:
        """Note a row."""
        self._rows.add((schema, table))

    def statement(self, told: Statement) -> None:
        """Note a statement."""
        self._statements += 1
        if told.kind != "table":
            return
        for name in told.names:
            table = (name.schema or "public", name.name)
            if told.tag == "DROP TABLE":
                self._touched.pop(table, None)
                self._made.pop(table, None)
                self._rows.discard(table)
                continue
            self._touched[table] = None
            if told.tag == "CREATE TABLE" and told.persistence == "p":
                self._made[table] = None

    def end(self) -> Iterator[Lost]:
        """Say what is suspected of the transaction that ends here."""
        is_mixed = self._statements > 1 or (self._statements and self._rows)
        tables = sorted({*self._rows, *self._touched}) if is_mixed else sorted(self._made)
        for schema, table in tables:
            why = FILLED if not is_mixed else BEHIND
            yield Lost(schema, table, "suspected", why)
        self._clear()
