"""Who keeps an applier waiting at the target: pid, user, application, since when, and where.

Only another session can see which lock a session waits for.  One is opened when a
step has lasted some seconds, asked, and closed.  The text of a statement is never
reported: it may hold values.
"""
# ruff: noqa: S608  the statements have no text of others'

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS

LOCK_LIMIT: Final = "30s"
_PATIENCE: Final = 5.0  # seconds of one transaction until the blocker is looked up
REPORT_EVERY: Final = 30.0
_LOOK: Final = 0.5
_GOODBYE: Final = 2.0  # it may be connecting to a server that does not answer

WHO: Final = (
    "a.pid, coalesce(a.usename::text, '?'), coalesce(nullif(a.application_name, ''), '?'),"
    " coalesce(host(a.client_addr), 'local'),"
    " to_char(coalesce(a.query_start, a.backend_start), 'YYYY-MM-DD HH24:MI:SS TZ'),"
    " coalesce(a.state, '?')"
)
# Prepared transactions hold locks, too, and have no session.
_BLOCKERS: Final = {
    True: f"SELECT p.pid, {WHO} FROM (SELECT DISTINCT unnest(pg_blocking_pids(%s)) AS pid) AS p"
    " LEFT JOIN pg_stat_activity a ON a.pid = p.pid",
    False: f"SELECT DISTINCT h.pid, {WHO} FROM pg_locks w JOIN pg_locks h"
    " ON h.granted AND h.pid IS DISTINCT FROM w.pid AND h.locktype = w.locktype"
    " AND h.database IS NOT DISTINCT FROM w.database"
    " AND h.relation IS NOT DISTINCT FROM w.relation"
    " AND h.transactionid IS NOT DISTINCT FROM w.transactionid"
    " LEFT JOIN pg_stat_activity a ON a.pid = h.pid WHERE w.pid = %s AND NOT w.granted",
}
_WHERE: Final = """
SELECT l.relation::regclass::text FROM pg_locks l
WHERE l.pid = %s AND l.relation IS NOT NULL AND NOT l.granted
"""
# A wait for a row shows as a wait for a transaction: the table is one that both sessions write.
_BOTH: Final = """
SELECT DISTINCT l.relation::regclass::text FROM pg_locks l JOIN pg_locks h USING (relation)
JOIN pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p')
WHERE l.pid = %s AND h.pid = ANY(%s) AND l.mode = 'RowExclusiveLock' AND h.granted
"""


class Waits:
    """Reports which sessions block a transaction that lasts."""

    def __init__(
        self,
        connect: Callable[[], Any],
        note: Callable[[str], None],
        *,
        has_blocking_pids: bool = True,
        patience: float = _PATIENCE,
    ) -> None:
        self._connect, self._note = connect, note
        self._blockers = _BLOCKERS[has_blocking_pids]
        self._patience = patience
        self._busy: tuple[int, float] | None = None  # backend's pid, since
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watched(self, pid: int) -> Iterator[None]:
        """Look at the session `pid` while the block runs, if it runs long."""
        if self._thread is None:
            self._closing.clear()
            self._thread = threading.Thread(target=self._run, name="waits", daemon=True)
            self._thread.start()
        self._busy = pid, time.monotonic()
        try:
            yield
        finally:
            self._busy = None

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_GOODBYE)
            self._thread = None

    def _run(self) -> None:
        noted: tuple[tuple[int, float] | None, float] = None, 0.0
        while not self._closing.wait(_LOOK):
            busy, now = self._busy, time.monotonic()
            if busy is None or now - busy[1] < self._patience:
                continue
            if noted[0] == busy and now - noted[1] < REPORT_EVERY:
                continue
            try:
                found = self._ask(busy[0])
            except DRIVER_ERRORS:  # the transaction's own error is what counts
                found = ""
            if found:
                self._note(f"waiting since {now - busy[1]:.0f} s {found}")
                noted = busy, now

    def _ask(self, pid: int) -> str:
        with closing(self._connect()) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(self._blockers, (pid,))
                people = cursor.fetchall()
                if not people:
                    return ""
                cursor.execute(_WHERE, (pid,))
                where = [name for (name,) in cursor.fetchall()]
                if not where:
                    cursor.execute(_BOTH, (pid, [person[0] for person in people]))
                    where = [name for (name,) in cursor.fetchall()]
        place = f"for a lock on {', '.join(where)}" if where else "for a lock"
        return f"{place}, held by {', '.join(map(person, people))}"


def person(row: Any) -> str:
    """Write a session, of pid and WHO."""
    pid, _, user, application, address, since, state = row
    if row[1] is None:
        return f"pid {pid}" if pid else "a prepared transaction (see pg_prepared_xacts)"
    return (
        f"pid {pid} (user {user}, application {application}, from {address}, {state},"
        f" since {since or '?'})"
    )
