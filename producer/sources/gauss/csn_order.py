"""The order of CSNs: each commit has a greater one than the commit before it.

A slot in this order goes on behind a CSN, at the server and here.  So a transaction whose CSN is
not above the last one (a second piece of it, or one that comes late) would be taken for delivered
at the next start.  GaussDB's manual describes this order (decoding options, output-order); no
GaussDB was at hand to show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from producer.core.changes import Begin
from producer.core.ports import Wire
from producer.errors import CsnOrderBroken
from producer.wire.replication import Received
from schemas.errors import LOAD_AGAIN
from schemas.positions import NOWHERE, Lsn


class Passed(Protocol):
    """A place in a stream in the order of CSNs."""

    last_csn: int  # of the newest transaction that was taken; 0: none was


@dataclass(slots=True)
class Taken:
    """A place of a stream that Python alone takes."""

    last_csn: int = 0


def advance(passed: Passed, begin: Begin) -> None:
    """Take the next transaction; raise CsnOrderBroken where its CSN is not above the last one."""
    csn = begin.csn or 0
    if csn <= passed.last_csn:
        raise CsnOrderBroken(
            "the source's CSNs do not rise: a restart would take a transaction for delivered",
            csn=csn,
            before=passed.last_csn,
            xid=begin.xid,
            hint="nothing of it was delivered; this server does not send what its manual describes "
            "(please send us a recording: gauss-cdc record); read each data node by itself, with a "
            f"slot and a prefix of its own and output-order = 0; {LOAD_AGAIN}",
        )
    passed.last_csn = csn


class OneBehind:
    """A session that streams in the order of CSNs; it confirms a commit once a later one came.

    Until then more may come under the same CSN, which the server would skip after a restart.  So a
    restart brings the newest commit again, and what followed under its CSN: `advance` sees that.
    """

    def __init__(self, wire: Wire, newest: Callable[[], int]) -> None:
        """`newest` returns the CSN of the newest transaction that was taken."""
        self._wire, self._newest = wire, newest
        self._durable = self._sure = NOWHERE

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read what has arrived."""
        return self._wire.receive(timeout, wake_fds)

    def has_input(self) -> bool:
        """Say whether more can be read at this moment."""
        return self._wire.has_input()

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        """Confirm the greatest position that was durable and is below the newest commit's."""
        newest = self._newest()
        for durable in (self._durable, flush):
            if durable < newest:
                self._sure = max(self._sure, durable)
        self._durable = max(self._durable, flush)
        self._wire.send_status(self._sure, reply=reply)

    @property
    def received_end(self) -> Lsn:
        """The greatest position the source has mentioned."""
        return self._wire.received_end
