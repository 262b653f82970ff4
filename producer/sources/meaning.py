"""What a table's name means: rows are read by it, and a lock of the table does not hold it.

A schema may be renamed, and another one get its name, while tables of both are locked and read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from producer.core.changes import Cells
from producer.errors import TableChanging
from producer.sources.session import Asks
from schemas.quoting import constant
from schemas.tables import TableId

NOT_THERE: Final = frozenset({"42P01", "3F000"})  # SQLSTATE: no such table, no such schema


class Meant(NamedTuple):
    """The table, and what wrote the row of its schema."""

    oid: str | None
    schema_xid: str | None


def meaning(asks: Asks, table: TableId) -> Meant | None:
    """Read what a name means; None: nothing."""
    rows = asks.query(
        "SELECT c.oid::text, n.xmin::text FROM pg_catalog.pg_class c"  # noqa: S608  quoted
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {constant(table.schema)} AND c.relname = {constant(table.name)}"
    )
    return Meant(*rows[0]) if rows else None


def renamed(table: TableId) -> TableChanging:
    """Make the error of a table whose name means another one, or none, though it is locked."""
    return TableChanging(
        "a schema was renamed or altered while a table of it was read",
        table=table,
        hint="the load starts over",
    )


class MeantRows:
    """Hands rows of a COPY on, if the name that it read meant the table of the snapshot."""

    def __init__(
        self,
        table: TableId,
        read: Meant | None,
        now: Asks,
        hand_on: Callable[[Sequence[Cells]], None],
    ) -> None:
        """Look before the COPY; `read`: what the snapshot shows.  Raises TableChanging."""
        self._table, self._now, self._hand_on, self._is_checked = table, now, hand_on, False
        self._meant = meaning(now, table)
        if self._meant is None or read is None or self._meant.oid != read.oid:
            raise renamed(table)

    def __call__(self, rows: Sequence[Cells]) -> None:
        """Hand on; raise TableChanging."""
        self.check()
        self._hand_on(rows)

    def check(self) -> None:
        """Look once behind the COPY's begin: it has taken the name for what it means.

        Raises TableChanging where that is another table, or none.
        """
        if not self._is_checked and meaning(self._now, self._table) != self._meant:
            raise renamed(self._table)
        self._is_checked = True
