"""The stream of a standby, which ends where the server's history takes another way.

A standby that is promoted, or follows a server that was, goes on sending: behind the switch point
its commits are those of another timeline, and the next START would take them for a tail that was
lost [H45].  So nothing that the stream sends is taken before the server has said, afterwards,
that its history is still the one of START: what it had sent by then, it had replayed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from producer.errors import ConnectionLost
from producer.sources.dial import ConnectionArguments
from producer.sources.postgres.connection import ReplicationConnection
from producer.wire.replication import Received


class StandbyConnection(ReplicationConnection):
    """One session with a walsender of a standby, and another one that asks for its timeline."""

    _asker: ReplicationConnection
    _server: tuple[str, int]

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
        self._asker = asker
        self._server = self._asked()

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read as any stream; raise ConnectionLost where the server's history is another one."""
        received = super().receive(timeout, wake_fds)
        if (received.messages or received.keepalive_end) and self._asked() != self._server:
            raise ConnectionLost(
                "the standby was promoted, or follows a server that was",
                timeline=self._asked()[1], before=self._server[1],
            )  # fmt: skip
        return received

    def close(self) -> None:
        """End both sessions."""
        super().close()
        self._asker.close()

    def _asked(self) -> tuple[str, int]:
        said = self._asker.identify()
        return said.system_id, said.timeline
