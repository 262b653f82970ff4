"""What a table of ours at the target notes of each table of a source: a value by its name.

The applier that holds the ledger is the only one that writes it, so it is read once, and again
after what was undone.
"""
# ruff: noqa: S608  every name in a statement is our own

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, TypeVar

from schemas.tables import TableId

Value = TypeVar("Value")

OF_TABLE: Final = "source = %s AND table_schema = %s AND table_name = %s"


class Noted(Generic[Value]):
    """The notes of one source."""

    _ours: ClassVar[str]  # the table
    _value: ClassVar[str]  # its last column

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: dict[TableId, Value] | None = None

    def rename(self, cursor: Any, was: TableId, now: TableId) -> None:
        """A table has another name now."""
        known = self._read(cursor)
        if (value := known.pop(was, None)) is not None:
            known[now] = value
            cursor.execute(
                f"UPDATE {self._ours} SET table_schema = %s, table_name = %s WHERE {OF_TABLE}",
                (*now, self._source, *was),
            )

    def leave(self, cursor: Any, table: TableId) -> Value | None:
        """Forget what is noted of a table, and return it.  None: nothing is."""
        value = self._read(cursor).pop(table, None)
        if value is not None:
            cursor.execute(f"DELETE FROM {self._ours} WHERE {OF_TABLE}", (self._source, *table))
        return value

    def ask_again(self) -> None:
        """A transaction was undone, or another run begins."""
        self._known = None

    def _read(self, cursor: Any) -> dict[TableId, Value]:
        if self._known is None:
            cursor.execute(
                f"SELECT table_schema, table_name, {self._value} FROM {self._ours}"
                " WHERE source = %s",
                (self._source,),
            )
            self._known = {TableId(s, t): value for s, t, value in cursor.fetchall()}
        return self._known
