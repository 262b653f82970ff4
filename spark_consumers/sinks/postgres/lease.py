"""The lease of a source at a PostgreSQL target: a row, by the server's clock.

The holder's sessions stand there, too.  A holder that has none left was killed, and is replaced
at once.  Those of one that fell silent are ended: they may hold locks.
"""
# ruff: noqa: S608  the statements have no text of others'

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from spark_consumers.sinks.lease import SILENCE, Watched, own_name
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, sqlstate
from spark_consumers.sinks.postgres.products import TargetProduct
from spark_consumers.sinks.postgres.refusals import ours
from spark_consumers.sinks.postgres.waits import REPORT_EVERY, WHO, person

_NO_RIGHT: Final = "42501"
# A session of the holder.  Of those of another role nobody else sees when they began.  A copy of
# the database, beside it, names the sessions of the original.
_ITS: Final = (
    "(a.datname = pg_catalog.current_database()"
    " AND (a.{session} = l.keeper AND coalesce(a.backend_start = l.keeper_since, true)"
    " OR a.{session} = l.worker AND coalesce(a.backend_start = l.worker_since, true)))"
)
_READ: Final = (
    "SELECT l.holder, l.expires::text, l.expires <= clock_timestamp()"
    " OR coalesce(l.keeper, l.worker) IS NOT NULL"
    f" AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity a WHERE {_ITS})"
    " FROM gauss_cdc.lease l WHERE l.source = %s"
)
_PEOPLE: Final = (
    f"SELECT a.pid, {WHO} FROM gauss_cdc.lease l"
    f" JOIN pg_catalog.pg_stat_activity a ON {_ITS} WHERE l.source = %s"
)
_SESSIONS: Final = (
    "SELECT a.pid, a.{session} FROM gauss_cdc.lease l JOIN pg_catalog.pg_stat_activity a"
    f" ON {_ITS} WHERE l.source = %s"
)
# The sessions stand there until they are ended: who takes it may be killed before that.
_TAKE: Final = (
    "UPDATE gauss_cdc.lease SET holder = %s"
    " WHERE source = %s AND holder = %s AND expires = %s::timestamptz"
)
_RENEW: Final = (
    "UPDATE gauss_cdc.lease"
    f" SET expires = clock_timestamp() + interval '{SILENCE:g} seconds', {{which}} ="
    " (SELECT max(a.{session}) FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_backend_pid()),"
    " {which}_since = (SELECT max(a.backend_start) FROM pg_catalog.pg_stat_activity a"
    " WHERE a.pid = pg_backend_pid()) WHERE source = %s AND holder = %s"
)

_MAKE: Final = (
    "INSERT INTO gauss_cdc.lease (source, holder, expires) VALUES (%s, %s, clock_timestamp())"
)
_GIVE_BACK: Final = "DELETE FROM gauss_cdc.lease WHERE source = %s AND holder = %s"


def is_held(cursor: Any, source: str, product: TargetProduct) -> bool:
    """Say whether an applier of a source writes to the target now."""
    cursor.execute(_READ.format(session=product.session), (source,))
    return any(not is_free for _, _, is_free in cursor.fetchall())


class PostgresLease:
    """Implements `lease.Lease`; taken by the session of the steps, renewed by one of its own."""

    def __init__(
        self,
        connect: Callable[[], Any],
        source: str,
        product: TargetProduct,
        *,
        on_wait: Callable[[str], None],
    ) -> None:
        self.name = own_name()
        self._connect, self._source, self._product = connect, source, product
        self._on_wait = on_wait
        self.guard = ""  # before a statement on the lease, once our tables are there
        self._clock = time.monotonic
        self._noted = float("-inf")
        self._watched = Watched()  # another one's row: the server's clock may go back
        self._conn: Any = None  # of the thread that renews

    def take(self, cursor: Any) -> bool:
        """Become the holder; False: another applier is.  Each statement is a transaction."""
        now = self._clock()  # before the look: this process may be stopped between the two
        cursor.execute(self._said(_READ), (self._source,))
        row = cursor.fetchone()
        if row is None:
            cursor.execute(self._said(_MAKE), (self._source, self.name))
        elif row[0] != self.name:
            holder, expires, is_free = row
            stands = self._watched.seconds((holder, expires), now, self._clock())
            if not is_free and stands <= SILENCE:
                self._report(cursor, holder)
                return False
            cursor.execute(self._said(_SESSIONS), (self._source,))
            sessions = cursor.fetchall()
            cursor.execute(self._said(_TAKE), (self.name, self._source, holder, expires))
            if cursor.rowcount != 1:
                return False
            self._on_wait(f"{holder} is silent or gone; this applier takes over")
            self._end(cursor, sessions)
        return self.record(cursor) == self.name

    def record(self, cursor: Any) -> str:
        """Renew, and note the session of the steps; return the name of the holder."""
        return self._renewed(cursor, "worker")

    def holder(self, cursor: Any) -> str:
        """Return the name of the holder."""
        cursor.execute(self._said(_READ), (self._source,))
        return next((str(row[0]) for row in cursor.fetchall()), "")

    def renew(self) -> str:
        try:
            if self._conn is None:
                self._conn = self._connect()
                self._conn.autocommit = True
                with self._conn.cursor() as cursor:
                    cursor.execute(self._product.settings)
                    # It need not outlive a crash, nor wait for a standby.
                    cursor.execute("SET synchronous_commit = off")
            with self._conn.cursor() as cursor:
                return self._renewed(cursor, "keeper")
        except DRIVER_ERRORS as error:
            self._hang_up()
            raise ours(error) from error

    def close(self) -> None:
        with suppress(*DRIVER_ERRORS):
            if self._conn is not None:
                with self._conn.cursor() as cursor:
                    cursor.execute(self._said(_GIVE_BACK), (self._source, self.name))
        self._hang_up()

    def _renewed(self, cursor: Any, which: str) -> str:
        cursor.execute(self._said(_RENEW, which=which), (self._source, self.name))
        if cursor.rowcount == 1:
            return self.name
        return self.holder(cursor)

    def _report(self, cursor: Any, holder: str) -> None:
        if time.monotonic() - self._noted < REPORT_EVERY:
            return
        self._noted = time.monotonic()
        cursor.execute(self._said(_PEOPLE), (self._source,))
        who = ", ".join(map(person, cursor.fetchall()))
        self._on_wait(
            f"another applier of {self._source} holds the target, {who or 'which'} is {holder}; "
            f"waiting for it to end, or to be silent for {SILENCE:g} s"
        )

    def _end(self, cursor: Any, sessions: list[tuple[int, int]]) -> None:
        """End sessions, where the role may."""
        for pid, session in sessions:
            try:
                cursor.execute(self._product.end_session, {"pid": pid, "session": session})
            except DRIVER_ERRORS as error:
                if sqlstate(error) != _NO_RIGHT:
                    raise
                self._on_wait(f"the role may not end its session {pid}, which may hold locks")

    def _said(self, statement: str, **more: str) -> str:
        return self.guard + statement.format(session=self._product.session, **more)

    def _hang_up(self) -> None:
        if self._conn is not None:
            with suppress(*DRIVER_ERRORS):
                self._conn.close()
            self._conn = None
