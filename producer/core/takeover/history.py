"""Reading from a standby: the stream ends where the server's history takes another way.

A standby that is promoted, or follows a server that was, goes on sending: behind the switch point
its commits are another timeline's, and the next START would take them for a tail that was lost
[H45].  So nothing of a read is taken before the server has said, behind the read, that its history
is still the one of START: all that it had sent by then, it had replayed before.  The same holds
for the place of a slot, where an epoch begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from producer.errors import ConnectionLost
from producer.wire.replication import Received

Made = TypeVar("Made")
ServerHistory: TypeAlias = tuple[str, int]  # system id and timeline


class OneHistory:
    """Reads as long as the server's history is the first one that it told."""

    def __init__(self, ask: Callable[[], ServerHistory]) -> None:
        """`ask` asks the server, in another session than the stream's."""
        self._ask, self._first = ask, ask()

    def read(self, receive: Callable[[], Received]) -> Received:
        """Return what `receive` does; raise ConnectionLost where the history is another by then."""
        received = receive()
        if received.messages or received.keepalive_end:
            self.check()
        return received

    def made(self, make: Callable[[], Made | None]) -> Made | None:
        """Return what `make` does; raise ConnectionLost where its place is in another history.

        None: `make` is to be tried again.
        """
        if (made := make()) is not None:
            self.check()
        return made

    def check(self) -> None:
        """Raise ConnectionLost where the history is another one now."""
        if (now := self._ask()) != self._first:
            raise ConnectionLost(
                "the standby was promoted, or follows a server that was",
                timeline=now[1],
                before=self._first[1],
            )
