"""The connection that streams from a standby."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from producer.core.takeover.history import OneHistory, ServerHistory
from producer.sources.dial import ConnectionArguments
from producer.sources.postgres.connection import ReplicationConnection
from producer.wire.commands import SlotCreated
from producer.wire.replication import Received


class StandbyConnection(ReplicationConnection):
    """One session with a walsender of a standby, and another one that asks for its timeline."""

    _asker: ReplicationConnection
    _history: OneHistory

    @classmethod
    def open(cls, arguments: ConnectionArguments, *, replication: bool = True) -> Self:
        """Connect twice."""
        asker = ReplicationConnection.open(arguments)
        try:
            connection = super().open(arguments, replication=replication)
            connection.watch(asker)
        except BaseException:
            asker.close()
            raise
        return connection

    def watch(self, asker: ReplicationConnection) -> None:
        """Hold to the history that the server has now; `asker` is ours from here on."""

        def ask() -> ServerHistory:
            said = asker.identify()
            return said.system_id, said.timeline

        self._asker, self._history = asker, OneHistory(ask)

    def begun_slot(self, timeout: float) -> SlotCreated | None:
        """Return the slot that was begun; its place is one of this history.

        `timeout`: seconds; None: not by then.
        """
        return self._history.made(lambda: super(StandbyConnection, self).begun_slot(timeout))

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read as any stream does; raise ConnectionLost where the server's history is another."""
        return self._history.read(lambda: super(StandbyConnection, self).receive(timeout, wake_fds))

    def close(self) -> None:
        """End both sessions."""
        super().close()
        self._asker.close()
