"""What has to be written while a standby is read: it is written at the primary, and replayed.

A standby takes no publication, no request and no answer to one, and cannot make a slot by itself:
decoding begins at a record of the running transactions, which a primary writes every 15 seconds,
if anything else was written.  What the primary did counts here once the standby has replayed it:
only then a place that is made at the standby lies behind it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import (
    ConnectionLost,
    NotPermitted,
    RoleDiffers,
    SourceBusy,
    SourceSwitched,
)
from producer.sources.dial import ConnectionArguments
from producer.sources.postgres import catalog, running
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.running import Blocker
from producer.wire.commands import SlotCreated
from schemas.positions import lsn_text

OLDEST: Final = 160_000  # from here on standbys decode
_REPLAY_SECONDS: Final = 8.0  # SIGTERM is answered within 10
_REPLAY_PAUSE: Final = 0.02
_AGAIN: Final = 30.0  # seconds until one that did not answer is tried again: the stream waits
_EVERY: Final = 0.2  # seconds between two records of the running transactions
_WAY_OUT: Final = "name the primary, too, in [source] hosts"
# Superusers may, and who was granted it.  An id alone gets the primary to do it within 15 s.
_LOG_RUNNING: Final = "SELECT pg_log_standby_snapshot()"
_WRITE_SOMETHING: Final = "SELECT pg_current_xact_id()"
_GRANT: Final = (
    "there, GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() to the role makes it do so at once"
)


_IDENTIFIER: Final = "SELECT system_identifier FROM pg_control_system()"
# A promoted server's control file has the older timeline until its first checkpoint.
_WRITTEN: Final = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
_FOLLOWED: Final = """
SELECT greatest(timeline_id, (SELECT max(received_tli) FROM pg_stat_wal_receiver))
FROM pg_control_checkpoint()
"""


def history_of(session: Connection) -> tuple[str, int]:
    """Return system identifier and timeline of a server."""
    timeline = _FOLLOWED if catalog.in_recovery(session) else _WRITTEN
    return str(_value(session, _IDENTIFIER)), _value(session, timeline)


def at_primary(arguments: ConnectionArguments) -> ConnectionArguments:
    """Return the arguments of the server that is written to.

    Raises RoleDiffers where they name a standby only.
    """
    if arguments.role == "standby" and not arguments.hosts:
        raise RoleDiffers("a standby cannot be written to", host=arguments.host, hint=_WAY_OUT)
    return replace(arguments, role="primary")


class Primary:
    """The primary of the server that is read, which may be that server itself."""

    def __init__(self, arguments: ConnectionArguments, reading: Connection) -> None:
        """`arguments` are those of all servers; `reading` is a session at the one that is read."""
        self.is_read = not catalog.in_recovery(reading)
        self._arguments, self._reading = arguments, reading
        self._session: Connection | None = None
        self._failure: ConnectionLost | None = None
        self._again = 0.0  # when it is tried again
        self._next = 0.0
        self._log = _LOG_RUNNING
        self._is_asked = True

    @property
    def connection(self) -> Connection:
        """A session with it.

        Raises ConnectionLost; RoleDiffers where it was left behind; SourceSwitched where it is a
        stranger.
        """
        if self.is_read:
            return self._reading
        if self._session is not None and not self._session.closed:
            return self._session
        if self._failure is not None and time.monotonic() < self._again:
            raise self._failure
        try:
            self._session = self._opened()
        except ConnectionLost as error:
            self._failure, self._again = error, time.monotonic() + _AGAIN
            raise
        return self._session

    def _opened(self) -> Connection:
        session = catalog.connect(at_primary(self._arguments))
        try:
            self._check(session)
        except BaseException:
            session.close()
            raise
        return session

    def _check(self, session: Connection) -> None:
        """See that what is written there comes to the server that is read."""
        where = f"{session.info.host}:{session.info.port}"
        if _value(session, _IDENTIFIER) != _value(self._reading, _IDENTIFIER):
            raise SourceSwitched(
                "the primary in [source] hosts is of another cluster than the standby that is read",
                primary=where,
                hint="correct [source] hosts: nothing was written there",
            )
        written, followed = _value(session, _WRITTEN), _value(self._reading, _FOLLOWED)
        if written < followed:
            raise RoleDiffers(
                "the primary was left behind: the standby follows one that was promoted",
                primary=where, timeline=written, followed=followed, hint=_WAY_OUT,
            )  # fmt: skip

    @property
    def answers(self) -> bool:
        """Say whether it can be written to."""
        try:
            return self.connection is not None
        except ConnectionLost:
            return False

    def await_replay(self) -> None:
        """Wait until the server that is read has all that was written until now.

        Raises SourceBusy where it is too far behind.
        """
        if self.is_read:
            return
        goal, end = catalog.log_end(self.connection), time.monotonic() + _REPLAY_SECONDS
        while (at := catalog.log_end(self._reading)) < goal:
            if time.monotonic() > end:
                raise SourceBusy(
                    "the standby has not replayed yet what the primary wrote",
                    waited=f"{_REPLAY_SECONDS:g} s", replayed=lsn_text(at), written=lsn_text(goal),
                )  # fmt: skip
            time.sleep(_REPLAY_PAUSE)

    def begun(self, wire: ReplicationConnection, timeout: float) -> SlotCreated | None:
        """Return the slot that `wire` has begun; None: not within `timeout` seconds, or less.

        A standby's waits for a record of the running transactions, sometimes for several.
        """
        if self.is_read:
            return wire.begun_slot(timeout)
        self._log_running()
        return wire.begun_slot(max(0.0, min(timeout, _EVERY)))

    def _log_running(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        try:
            self._is_asked = False
            self._run(self._log)
            self._is_asked = self._log == _LOG_RUNNING
        except ConnectionLost:
            pass
        except NotPermitted:
            self._log = _WRITE_SOMETHING

    def blockers(self, waiter: int) -> list[Blocker]:
        """List the transactions that a slot in the making waits for; `waiter`: its session.

        A standby does not know of the primary's transactions: there, all that are open.
        """
        if self.is_read:
            return running.blockers(self._reading, waiter=waiter)
        try:
            return running.blockers(self.connection)
        except ConnectionLost:
            return []

    @property
    def delay(self) -> str:
        """Say why slots are made slowly; "" where they are not."""
        if self._is_asked:
            return ""
        after = "a slot of a standby is made up to 15 s after the primary's next write"
        if self._log == _WRITE_SOMETHING:
            return f"{after}: {_GRANT}"
        return f"{after}, which cannot be reached: {_WAY_OUT}"

    def close(self) -> None:
        """Log out."""
        if self._session is not None:
            self._session.close()

    def _run(self, statement: str) -> None:
        with catalog.asking(self.connection) as cursor:
            cursor.execute(statement)


def _value(session: Connection, question: str) -> int:
    with catalog.asking(session) as cursor:
        cursor.execute(question)
        return int(cursor.fetchone()[0])
