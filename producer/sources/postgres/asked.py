"""Requests for re-reads, seen where points are made, and answered where they were written [H46]."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.sources import requests
from producer.sources.postgres.catalog import QueryingConnection
from producer.sources.postgres.primary import Primary
from schemas.tables import TableId


class AskedTables:
    """The tables that somebody asks a `run` to read again."""

    def __init__(self, slot: str, reading: Connection, primary: Primary) -> None:
        """`reading` is a session at the server that is read, where a request was replayed."""
        self._slot, self._reading, self._primary = slot, reading, primary
        self._open = requests.OpenRequests(slot)
        self._answered: dict[TableId, int] = {}  # a standby may still show them
        self._is_said = False

    def newest(self, note: Callable[[str], None]) -> Mapping[TableId, int]:
        """Return the newest request for each table; none while none could be answered."""
        asked = self._open.newest(QueryingConnection(self._reading), note)
        asked = {table: n for table, n in asked.items() if n > self._answered.get(table, 0)}
        if not asked or self._primary.answers:
            self._is_said = False
            return asked
        if not self._is_said:
            note("requests for re-reads wait: the primary, which has them, cannot be reached")
        self._is_said = True
        return {}

    def answer(self, table: TableId, number: int) -> None:
        """Forget requests for a table, up to a number."""
        primary = QueryingConnection(self._primary.connection)
        requests.forget(primary, self._slot, table, number)
        self._answered[table] = number
