"""The port of the native walker: many messages to finished records in one call.

The walker takes what is common: BEGIN, COMMIT, rows of described tables.  It stops at
anything else, which the source decodes and the assembler takes, and goes on behind it.
Without a walker the assembler takes everything; the records are the same.

`Transactions` owns the numbers of the open transaction.  It lends them for a call.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from producer.core.delivery.tally import Tally
from producer.core.events import Walked
from producer.core.records.chunk import Chunks
from producer.core.records.row_plan import KeyPlan, RowPlan
from producer.wire.replication import WalMessage
from schemas.positions import NOWHERE, Lsn

# Of one call: some milliseconds; and as many commits, which a group that is almost full takes.
MAX_ROWS: Final = 2_500


class Stage(IntEnum):
    """How far the open source transaction is."""

    NONE = 0  # none is open
    BEGUN = 1  # it has no record yet, and no number
    NUMBERED = 2
    SKIPPED = 3  # an earlier run delivered it


class Lent(NamedTuple):
    """The numbers of the open source transaction, lent to the walker for a call."""

    stage: Stage
    seq: int  # of the newest transaction that has a number
    ordinal: int  # of the next record
    now_us: int  # µs since 1970: when it was read
    commit_lsn: Lsn = NOWHERE
    committed_at: int = 0  # µs since 2000-01-01 UTC
    xid: int = 0
    is_plain: bool = True  # no DDL, no gap: its COMMIT may be taken
    csn: int | None = None  # None: the commit LSN takes its place


class Walk(NamedTuple):
    """What one call did."""

    at: int  # the next message: an unusual one, or the walker had enough
    walked: list[Walked]
    open: Lent
    position: Lsn  # greatest end of a transaction without records; 0 = none
    begun: list[int]  # xids
    passed: Lsn = NOWHERE  # end of a delivered transaction, whose COMMIT came


class Walker(Protocol):
    """Makes records of messages."""

    def bind(
        self,
        relation: int,
        plan: RowPlan,
        *,
        topic: str,
        partition: int,
        key: bytes | None,
        by_key: KeyPlan | None = None,
    ) -> None:
        """Take rows of a relation from here on.

        `partition` and `key` are those of every row, unless `by_key` has others.
        """

    def forget(self, relation: int) -> None:
        """Stop at rows of a relation: it is to be bound first, or always to be left to Python."""

    def walk(
        self,
        messages: Sequence[WalMessage] | Sized,
        at: int,
        open_: Lent,
        *,
        now_us: int,
        max_rows: int,
    ) -> Walk:
        """Take messages, or records of whole transactions that a source holds, from `at` on.

        `now_us`: µs since 1970, for transactions that get their number here.  A BEGIN of a
        transaction that was delivered is left to Python, its rows and its COMMIT are not.
        """


class Native(Chunks, Protocol):
    """Makes the native parts of one turn: they share numbers of topics and partitions."""

    def walker(self, *, epoch: int, resume: Lsn, max_row_bytes: int) -> Walker:
        """Make a walker; transactions that begin before `resume` were delivered."""

    def tally(self, *, ddl_topic: str, untracked_topics: frozenset[str]) -> Tally:
        """Make empty books, as `PlainTally` does."""
