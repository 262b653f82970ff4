"""A replication connection to PostgreSQL: log in, query, create a slot, stream.

After any error the connection is closed, except after a refused command (`query`,
`create_slot`, `drop_slot`, `start`): then the session continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from producer.errors import (
    ConnectionLost,
    DecodeError,
    RoleDiffers,
    SlotInvalid,
    SlotMismatch,
)
from producer.sources import hosts, session_settings
from producer.sources.connection import ServerConnection
from producer.sources.dial import ConnectionArguments, Link, dial, parse_dsn
from producer.sources.postgres.managed import ASKED, refuse_pooler
from producer.sources.session import Session
from producer.sources.streaming import Streaming
from producer.wire import commands, protocol
from producer.wire.auth import Login
from producer.wire.commands import SlotCreated, Snapshot, TimelineSwitch
from producer.wire.protocol import Copying, Frame, ServerError
from producer.wire.replication import POSTGRES, Split, split
from producer.wire.sqlstate import Asked, refusal
from schemas.encodings import WITHOUT
from schemas.errors import LOAD_AGAIN
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.quoting import constant

__all__ = ["ConnectionArguments", "ReplicationConnection", "parse_dsn"]

_log = logging.getLogger(__name__)


class ReplicationConnection(ServerConnection):
    """One session with a walsender; a context manager that closes itself."""

    def __init__(self, link: Link, arguments: ConnectionArguments) -> None:
        super().__init__(link, Session(link, refusal), arguments)

    @classmethod
    def open(cls, arguments: ConnectionArguments, *, replication: bool = True) -> Self:
        """Connect and log in; where the arguments name several hosts, to the one of their role.

        Raises ConnectionLost, LoginRefused, NotPermitted.  Without `replication`
        the session is an ordinary one, which has no slot commands.
        """
        arguments = reach(arguments)
        deadline = time.monotonic() + arguments.connect_timeout
        link = dial(arguments, deadline)
        try:
            connection = cls(link, arguments)
            connection._log_in(deadline, replication=replication)
            ((pid,),) = connection.query(ASKED)
            refuse_pooler(connection.backend_pid, int(pid or 0), arguments.host)
            if not replication:
                connection.query(session_settings.WHERE_KNOWN)
            if connection.parameters.get("server_encoding") == WITHOUT:
                # A conversion to UTF-8 would fail for bytes that are not text.
                connection.query(f"SET client_encoding = '{WITHOUT}'")
        except BaseException as error:
            link.close()
            if isinstance(error, ConnectionLost):
                error.where.setdefault("host", arguments.host)
            raise
        _log.info(
            "connected host=%s port=%d dbname=%s user=%s tls=%s server=%s",
            arguments.host,
            arguments.port,
            arguments.dbname,
            arguments.user,
            link.is_encrypted,
            connection.parameters.get("server_version", ""),
        )
        return connection

    # ---- queries

    def timeline_as_primary(self) -> int:
        """Return the timeline that the server writes; raise RoleDiffers for a standby."""
        ((name,),) = self.query(_WRITES)
        if name is None:
            raise RoleDiffers("the server is a standby", hint=NAME_PRIMARY)
        return int(name[:8], 16)

    def standing(self, slot: str) -> tuple[bool, bool, int]:
        """Say whether the server is a standby, and whether it has a slot that can be read there.

        Third is the timeline that a primary writes; 0: it is a standby.
        """
        ((is_standby, has_slot),) = self.query(_STANDING.format(slot=constant(slot)))
        if is_standby == "t":
            return True, has_slot == "t", 0
        return False, has_slot == "t", self.timeline_as_primary()

    def timeline_history(self, timeline: int) -> tuple[TimelineSwitch, ...]:
        """Read the history of `timeline`: former timelines and where each ended."""
        if timeline <= 1:
            return ()
        return commands.parse_timeline_history(self.query(commands.timeline_history(timeline)))

    def create_slot(
        self,
        name: str,
        plugin: str,
        *,
        temporary: bool = False,
        snapshot: Snapshot = Snapshot.EXPORT,
    ) -> SlotCreated:
        """Create a logical slot; waits until all transactions open now have ended.

        An exported snapshot lives until the next command of this session.
        """
        sql = commands.create_slot(name, plugin, temporary=temporary, snapshot=snapshot)
        rows = self._ask(sql, Asked.CREATE_SLOT, slot=name)
        created = commands.parse_slot_created(rows)
        _log.info(
            "slot created slot=%s consistent_point=%s", name, lsn_text(created.consistent_point)
        )
        return created

    def begin_slot(
        self, name: str, plugin: str, *, temporary: bool = False, failover: bool = False
    ) -> None:
        """Begin to create a logical slot that exports its snapshot; `begun_slot` returns it."""
        self._slot = name
        self._session.begin(
            commands.create_slot(
                name, plugin, temporary=temporary, snapshot=Snapshot.EXPORT, failover=failover
            )
        )

    def make_failover(self, name: str) -> None:
        """Have standbys synchronize a slot that nobody uses; servers from 17 on."""
        self.query(commands.make_failover(name))

    def begun_slot(self, timeout: float) -> SlotCreated | None:
        """Return the slot that was begun, or None if it is not created within `timeout` seconds.

        The server creates it once all transactions open now have ended.

        Raises the narrowest SourceError for a refusal.
        """
        answer = self._session.poll(timeout)
        if answer is None:
            return None
        if answer.error is not None:
            raise refusal(answer.error, Asked.CREATE_SLOT, slot=self._slot)
        created = commands.parse_slot_created(answer.rows)
        _log.info(
            "slot created slot=%s consistent_point=%s",
            self._slot,
            lsn_text(created.consistent_point),
        )
        return created

    def start(
        self, slot: str, options: Mapping[str, str], at: Lsn = NOWHERE, *, split: Split = split
    ) -> None:
        """Begin to stream; 0 is the slot's confirmed position.  `split` cuts messages.

        Raises SlotMissing, SlotTaken, SlotInvalid, SlotMismatch, NotPermitted.
        """
        answer = self._session.say(commands.start(slot, options, at))
        if answer.error is not None:
            if answer.error.sqlstate == "55000":
                self._explain_unusable(slot)
            raise refusal(answer.error, Asked.START, slot=slot)
        if answer.copying is not Copying.BOTH:
            raise DecodeError("the server did not turn to streaming", slot=slot)
        session, self._slot = self._session, slot
        self._streaming = Streaming(
            self._link,
            POSTGRES,
            refusal,
            self._hear,
            slot=slot,
            split=split,
            early=session.frames.rest(),
        )
        _log.info("took slot=%s from=%s", slot, lsn_text(at) if at else "where it was confirmed")

    def _hear(self, got: Frame) -> None:
        """Take a notice; raise where the server leaves out changes with a warning.

        From 18 on it does where the publication was not there; before, it ended the stream.
        """
        self._session.note(got)
        if got.tag == "N":
            said = ServerError.parse(got.body)
            if (said.severity, said.routine) == ("WARNING", _LOADS_PUBLICATIONS):
                raise refusal(replace(said, sqlstate="42704"), Asked.STREAM, slot=self._slot)

    def _explain_unusable(self, slot: str) -> None:
        """Raise the meaning of 55000, which has several: the catalog says which applies."""
        # All slots are read: a walsender takes no parameters, and they are few.
        # wal_status is a column from 13 on only, hence the detour by JSON.
        rows = self.query(
            "SELECT slot_name, slot_type = 'logical' AND database = current_database(),"
            " to_jsonb(s)->>'wal_status' = 'lost' FROM pg_replication_slots s"
        )
        found = {row[0]: row[1:] for row in rows}.get(slot)
        if found is None:
            return
        is_ours, is_lost = found
        if is_ours != "t":
            raise SlotMismatch(
                "the slot is a physical one, or another database's",
                hint="choose another name in [source] slot",
                slot=slot,
                dbname=self.arguments.dbname,
            )
        if is_lost == "t":
            raise SlotInvalid(
                "the server invalidated the slot: changes since its position are gone",
                hint=f"raise max_slot_wal_keep_size; {LOAD_AGAIN}",
                slot=slot,
            )

    def copy_lines(self, sql: str) -> Iterator[list[bytes]]:
        """Run a COPY TO STDOUT; its lines without their ends, some at a time."""
        return self._session.copy_lines(sql)

    # ---- the stream

    def _log_in(self, deadline: float, *, replication: bool) -> None:
        arguments, link = self.arguments, self._link
        parameters = {
            "user": arguments.user,
            "database": arguments.dbname or arguments.user,
            "application_name": arguments.application_name,
            **session_settings.POSTGRES,
        }
        if replication:
            parameters["replication"] = "database"
        if arguments.options:
            parameters["options"] = arguments.options
        self._login = Login(link.credentials(arguments))
        self._session.log_in(
            protocol.startup(parameters),
            self._login,
            deadline,
            asked=Asked.REPLICATION_LOGIN if replication else Asked.LOGIN,
            host=arguments.host,
            user=arguments.user,
            dbname=arguments.dbname,
        )


# Of the server: it warns of a publication that was not there, as of other things, by 55000.
_LOADS_PUBLICATIONS: Final = "LoadPublications"
# The control file has the timeline of the last checkpoint, which a promotion is ahead of.
_WRITES: Final = (
    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END"
)


# A slot that a standby synchronizes from its primary cannot be read before a promotion.
_STANDING: Final = (
    "SELECT pg_is_in_recovery(), EXISTS (SELECT FROM pg_replication_slots s"
    " WHERE slot_name = {slot}"
    " AND NOT (pg_is_in_recovery() AND coalesce(to_jsonb(s)->>'synced', 'false') = 'true'))"
)
NAME_PRIMARY: Final = (
    'name the primary, or all servers, in [source] hosts; from 16 on role = "standby" reads there'
)


def reach(arguments: ConnectionArguments) -> ConnectionArguments:
    """Return the arguments of the server of the role, where they name several hosts.

    All hosts are asked: an old primary may still be there, on an older timeline, after another
    server was promoted.  Raises as `hosts.first_that_opens` does.
    """
    if not arguments.hosts:
        return arguments
    if arguments.role != "primary":
        return _reach_reader(arguments)

    def attempt(at: ConnectionArguments) -> tuple[int, ConnectionArguments]:
        with ReplicationConnection.open(at, replication=False) as session:
            return session.timeline_as_primary(), at

    candidates = hosts.targets(replace(arguments, hosts=()), arguments.hosts)
    found = hosts.all_that_open(candidates, attempt)
    timeline, newest = max(found, key=lambda one: one[0])
    if len(found) > 1:
        _warn_of_several([at for _, at in found], timeline)
    return newest


def _warn_of_several(primaries: Sequence[ConnectionArguments], timeline: int) -> None:
    _log.warning(
        "several servers are primaries, the newest timeline counts hosts=%s timeline=%d",
        ",".join(f"{at.host}:{at.port}" for at in primaries),
        timeline,
    )


def _reach_reader(arguments: ConnectionArguments) -> ConnectionArguments:
    """Return the arguments of the server that has the slot, else of the first of the role.

    A slot stays on its server, also when that is promoted.  An old primary is not read, though it
    may have the slot still.
    """

    def attempt(at: ConnectionArguments) -> tuple[bool, bool, int, ConnectionArguments]:
        with ReplicationConnection.open(at, replication=False) as session:
            return *session.standing(arguments.slot), at

    candidates = hosts.targets(replace(arguments, hosts=()), arguments.hosts)
    answers = hosts.all_that_open(candidates, attempt)
    newest = max(timeline for _, _, timeline, _ in answers)
    found = [
        (is_standby, has_slot, at)
        for is_standby, has_slot, timeline, at in answers
        if is_standby or timeline == newest
    ]
    if len(found) < len(answers):
        _warn_of_several([at for is_standby, *_, at in answers if not is_standby], newest)
    fit = [one for one in found if one[0] or arguments.role == "any"]
    if not fit:
        moved = [f"{at.host}:{at.port}" for _, has_slot, at in found if has_slot]
        raise RoleDiffers(
            "none of the hosts that answer is a standby",
            hosts=",".join(arguments.hosts),
            hint=f'{moved[0]} has the slot, and is a primary now: role = "any" continues there'
            if moved
            else 'start a standby, or leave out role = "standby"',
        )
    if len(answers) < len(candidates) and not any(has_slot for _, has_slot, _ in fit):
        raise ConnectionLost(
            "no server that answers has the slot, and not all of them answer",
            slot=arguments.slot,
            hosts=",".join(arguments.hosts),
        )
    return max(fit, key=lambda one: (one[1], one[0]))[2]
