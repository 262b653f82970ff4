"""What the source sends again, beside what was delivered: up to `resume` both must be the same.

The source sends every transaction from `confirmed_flush` on.  Those that begin before `resume` were
delivered, and are dropped.  Of a source that was restored from an older copy, and has written past
its old position, they are others, and dropping them loses them [H48].  Cuts and stream are in
commit order, so both are merged, a record of cuts at a time:

    in both       with one xid and one time: delivered, its rows are passed over
    in cuts only  the source has lost it
    sent only     its rows say whether it was to be delivered

PostgreSQL chooses rows by the catalog as it was at their commit: each row in cuts is sent again.
Of other sources only those count of tables that are delivered now, and had no gap.

Of what is sent only, rows of tables count that were exact at that place, and are delivered now.
What a hidden table's load had, what came while a table was not in [tables], or had a gap, is in no
cut.  A table is exact at a record if its load had ended, and `loads` name it as at the end of the
log; or if its END came since.  One that `loads` do not name is exact from its first row to the next
START.  What an older timeline has behind a switch point is sent by nobody.  What retention removed
from cuts cannot be compared, which is said.  Rows are not counted.

A table is the one with its name at that place, and also the one with its oid: the other history may
have renamed it.  So may ours, between that place and now, and then its loads have the former name.
So oids count only behind the last schema change of what was delivered.  Where PostgreSQL chose the
rows, `loads` of the STATE before a place count as well, whatever the table is called now, up to the
next schema change, load or gap of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from producer.core.changes import Begin
from producer.errors import HistoryDiffers
from producer.wire.replication import EPOCH_2000_US
from schemas.errors import LOAD_AGAIN
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.tables import TableId

Names = Callable[[], Collection[str]]


class Delivered(NamedTuple):
    """A transaction that stands in cuts."""

    commit_start: Lsn
    xid: int
    committed_at: int  # µs since 1970
    is_compared: bool  # it has rows that the source must send again


class DeliveredPart(NamedTuple):
    """What one record of cuts says of the commits before its `resume`."""

    resume: Lsn
    commits: Sequence[Delivered]
    exact: Collection[str]  # topics of tables of which no row is missing there
    names_hold: bool = False  # no schema change follows: tables have the names that they have now
    names: Names = frozenset  # texts of tables of which no row is missing, as they were called


_NOTHING: Final = DeliveredPart(Lsn(1 << 64), (), ())


class Redelivery:
    """Says which transactions were delivered; raises HistoryDiffers where they are others."""

    def __init__(
        self,
        resume: Lsn,
        *,
        confirmed: Lsn = NOWHERE,
        parts: Iterable[DeliveredPart] = (),
        topics: Mapping[TableId, str] | None = None,
        oids: Mapping[int, TableId] | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`parts` cover the commits from `confirmed` to `resume`; 0: nothing is compared.

        `topics` are those of the tables that are delivered now, `oids` name them by their oids.
        """
        self.resume, self._confirmed = resume, confirmed
        self.is_over = not 0 < confirmed < resume  # nothing is left to compare
        self._unknown: Begin | None = None  # of the open transaction, if it is not in cuts
        self._parts, self._topics, self._note = iter(parts), topics or {}, note
        self._oids = oids or {}
        self._part = DeliveredPart(confirmed, (), ())
        self._left: deque[Delivered] = deque()  # of it, and not sent yet
        self._compared = 0

    @property
    def is_unknown(self) -> bool:
        """Say whether the open transaction is not in cuts: the tables of its rows are asked for."""
        return self._unknown is not None

    def begin(self, begin: Begin) -> None:
        """Take the BEGIN of a transaction of the source."""
        self._unknown = None
        if begin.commit_lsn >= self.resume:
            self.end()
        elif not self.is_over and not self._is_known(begin):
            self._unknown = begin

    def rows_of(self, tables: Iterable[TableId], oids: Iterable[int] = ()) -> None:
        """Take tables of which the open transaction has rows, by their names there and oids.

        Raises HistoryDiffers where the transaction was not delivered, though all rows of one were.
        """
        if (begin := self._unknown) is None:
            return
        part = self._part
        also = (self._oids[oid] for oid in oids if part.names_hold and oid in self._oids)
        for table in chain(tables, also):
            if self._topics.get(table) in part.exact or str(table) in part.names():
                raise differs(
                    "the source sends a transaction that was not delivered, where all were",
                    begin.commit_lsn,
                    xid=begin.xid,
                    table=table,
                )

    def reached(self, position: Lsn) -> None:
        """Take note that everything committed before a position was sent."""
        if position >= self.resume:
            self.end()

    def end(self) -> None:
        """Take note that everything committed before `resume` was sent."""
        if self.is_over:
            return
        self._pass(self.resume)
        self.is_over = True
        if self._compared:
            again = f"{self._compared:,} transactions from {lsn_text(self._confirmed)} on"
            self._note(f"the source sent {again} again: they are the ones that were delivered")

    def _is_known(self, begin: Begin) -> bool:
        at = begin.commit_lsn
        self._pass(at)
        here: list[Delivered] = []
        while self._left and self._left[0].commit_start == at:
            here.append(self._left.popleft())
        if any(_is_same(known, begin) for known in here):
            self._compared += 1
            return True
        for known in here:
            if known.is_compared:
                raise differs(
                    "a transaction that the source sends again is not the one that was delivered",
                    at,
                    ours=known.xid,
                    theirs=begin.xid,
                )
        return False

    def _pass(self, position: Lsn) -> None:
        """Move on to a position: what was delivered before it must have been sent."""
        while True:
            while self._left and self._left[0].commit_start < position:
                lost = self._left.popleft()
                if lost.is_compared:
                    raise differs(
                        "the source does not send a transaction again that was delivered",
                        lost.commit_start,
                        xid=lost.xid,
                    )
            if self._part.resume > position:
                return
            self._part = next(self._parts, _NOTHING)
            since = self._confirmed
            self._left = deque(c for c in self._part.commits if c.commit_start >= since)


def _is_same(known: Delivered, begin: Begin) -> bool:
    """Compare xid and time, as far as the source tells them."""
    at = begin.committed_at + EPOCH_2000_US
    return all(
        was == now or unknown in {was, now}
        for was, now, unknown in (
            (known.xid, begin.xid, 0),
            (known.committed_at, at, EPOCH_2000_US),
        )
    )


def differs(what: str, position: Lsn, **where: object) -> HistoryDiffers:
    """Make the error of a source whose history is not the one that was delivered."""
    return HistoryDiffers(
        what,
        lsn=lsn_text(position),
        **where,
        hint="the source was restored from an older copy, or replaced: targets have commits that it"
        f" does not have; {LOAD_AGAIN}; openGauss and GaussDB, where a switch-over was forced: `run"
        " --accept-switch`",
    )
