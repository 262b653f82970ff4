"""Requests for re-reads, seen where points are made, and answered where they were written [H46]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.key_ranges import Key
from producer.core.ports import Wish
from producer.sources import requests
from producer.sources.postgres.catalog import QueryingConnection
from producer.sources.postgres.primary import Primary


class AskedTables:
    """The tables that somebody asks a `run` to read again."""

    def __init__(self, slot: str, reading: Connection, primary: Primary) -> None:
        """`reading` is a session at the server that is read, where a request was replayed."""
        self._slot, self._reading, self._primary = slot, reading, primary
        self._open = requests.OpenRequests(slot)
        self._answered: dict[Wish, int] = {}  # a standby may still show them
        self._is_said = False

    def newest(self, note: Callable[[str], None]) -> Mapping[Wish, int]:
        """Return the newest request for each table; none while none could be answered."""
        asked = self._open.newest(QueryingConnection(self._reading), note)
        asked = {wish: n for wish, n in asked.items() if n > self._answered_to(wish)}
        if not asked or self._primary.answers:
            self._is_said = False
            return asked
        if not self._is_said:
            note("requests for re-reads wait: the primary, which has them, cannot be reached")
        self._is_said = True
        return {}

    def _answered_to(self, wish: Wish) -> int:
        """Up to which request; a load for all targets answers those for one."""
        return max(self._answered.get(one, 0) for one in (wish, Wish(wish.table)))

    def named(self, wish: Wish) -> tuple[int, Sequence[Key]]:
        """Return number and keys of the oldest request; no keys: it is for all rows."""
        return requests.named(QueryingConnection(self._reading), self._slot, wish)

    def answer(self, wish: Wish, number: int, *, alone: bool = False) -> None:
        """Forget requests up to a number, or one alone."""
        primary = QueryingConnection(self._primary.connection)
        requests.forget(primary, self._slot, wish, number, alone=alone)
        if not self._primary.is_read:  # else they are gone, and numbers may begin anew
            self._answered[wish] = number
