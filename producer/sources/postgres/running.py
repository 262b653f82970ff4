"""Transactions that are running, and what waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import CdcError
from producer.sources.postgres.catalog import asking
from schemas.quoting import literal


def still_running(connection: Connection, xids: Sequence[int]) -> list[int]:
    """Return those of these transactions that have not ended for other sessions.

    A commit is sent once it is in the log; the transaction releases the lock on its own id
    only when it is visible to other sessions, with a synchronous standby much later.
    """
    return _ids(connection, "l.transactionid::text::bigint = ANY (%s)", [list(xids)])


def with_ids(connection: Connection) -> list[int]:
    """Return all that have an id, and are not visible to other sessions yet."""
    return _ids(connection, "true", [])


def awaiting_standbys(connection: Connection) -> list[int]:
    """Return transactions whose commits may be in the log, and wait for a synchronous standby.

    For a prepared one another session waits.  Not every role is shown what others wait for.
    """
    return _ids(
        connection,
        "(a.wait_event = 'SyncRep' OR"
        " l.pid IS NULL AND EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep') OR"
        " l.pid IS NOT NULL AND a.state IS NULL"
        " AND current_setting('synchronous_standby_names') <> '')",
        [],
    )


def _ids(connection: Connection, which: str, values: Sequence[object]) -> list[int]:
    with asking(connection) as cursor:
        cursor.execute(
            "SELECT l.transactionid::text::bigint FROM pg_locks l"  # noqa: S608  our own
            " LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
            " WHERE l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'"
            f" AND {which}",
            values,
        )
        return [xid for (xid,) in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Blocker:
    """A transaction that a slot waits for, or would wait for."""

    xid: str
    pid: int | None  # None: it is prepared
    gid: str  # of a prepared one
    user: str
    database: str
    state: str = field(compare=False)  # "" where the role may not see it
    since: str  # with time zone; "" likewise
    seconds: int | None = field(compare=False)

    def __str__(self) -> str:
        if self.pid is None:
            who = f"prepared transaction {self.gid!r} of {self.user} in {self.database}"
        else:
            who = f"session {self.pid} of {self.user} in {self.database}"
            who += f", {self.state}" if self.state else ""
        when = f"since {self.since} ({self.seconds} s)" if self.since else "start time not shown"
        return f"{who}, xid {self.xid}, {when}"

    @property
    def way_out(self) -> str:
        """How to end it."""
        if self.pid is None:
            said = literal(self.gid)
            return f"in {self.database}: COMMIT PREPARED {said} or ROLLBACK PREPARED {said}"
        seen = "" if self.since else "; with GRANT pg_read_all_stats its start is shown"
        return f"let it end, or SELECT pg_terminate_backend({self.pid}){seen}"


# Begin times of other roles' sessions are shown to members of pg_read_all_stats only.
_BLOCKERS: Final = """
SELECT DISTINCT ON (l.virtualtransaction) l.transactionid::text, l.pid, coalesce(p.gid, ''),
       coalesce(a.usename, p.owner, ''), coalesce(a.datname, p.database, ''),
       coalesce(a.state, ''),
       coalesce(date_trunc('second', coalesce(a.xact_start, p.prepared))::text, ''),
       floor(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)))::int
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND (%(waiter)s::int IS NULL OR l.transactionid IN
       (SELECT w.transactionid FROM pg_locks w WHERE w.pid = %(waiter)s AND NOT w.granted))
ORDER BY l.virtualtransaction, age(l.transactionid) DESC
"""


def blockers(connection: Connection, *, waiter: int | None = None) -> list[Blocker]:
    """List the transactions with an id, of all databases, oldest first.

    A new slot waits for all that are open when it is created. With a `waiter`, only those that
    this backend waits for now.
    """
    with asking(connection) as cursor:
        cursor.execute(_BLOCKERS, {"waiter": waiter})
        found = [Blocker(*row) for row in cursor.fetchall()]
    return sorted(found, key=lambda blocker: -(blocker.seconds or 0))


def end_waiter(connection: Connection, waiter: int) -> None:
    """End the session of a slot that is not made yet: it does not notice a closed connection.

    Otherwise it would make the slot in the end, which would keep WAL without a reader.
    """
    with suppress(CdcError), asking(connection) as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [waiter])
