"""The open source transaction: its number, the ordinals of its records, its gaps.

A transaction that begins before `resume` was delivered by an earlier run and is dropped
whole: `commit_start < resume`, strictly, since an idle position may equal the start of the
next commit.  `Redelivery` compares it with what was delivered.  One without a record gets no
number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from producer.core.changes import Begin, Commit
from producer.core.events import (
    Fate,
    Happened,
    PositionReached,
    Record,
    RowsAssembled,
    SchemaUsed,
    TransactionEnded,
)
from producer.core.records.encode import TransactionConstants
from producer.core.records.transaction_topic import Counted, TransactionWriter
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.walk import Lent, Stage, Walk
from producer.errors import DecodeError
from producer.wire.replication import EPOCH_2000_US
from schemas.control import Hole
from schemas.headers import POSITION, Headers, transaction_headers
from schemas.positions import Lsn, lsn_text
from schemas.tables import TableId

_BATCH_BYTES: Final = 1 << 20
_BEHIND: Final = {Stage.BEGUN, Stage.NUMBERED}  # stages of a transaction that is not dropped


class Transactions:
    """Numbers source transactions and collects their events."""

    def __init__(
        self,
        *,
        epoch: int,
        seq: int,
        redelivery: Redelivery,
        now_us: Callable[[], int],
        ddl_topic: str,
        frames: TransactionWriter | None = None,
        positions_are_csns: bool = True,
    ) -> None:
        """`redelivery` says which were delivered; `frames`: BEGIN and END."""
        self._positions_are_csns = positions_are_csns
        self._epoch, self._seq, self.redelivery = epoch, seq, redelivery
        self._now_us, self._ddl_topic, self._frames = now_us, ddl_topic, frames
        self.begin: Begin | None = None  # of the open one
        self.is_skipped = False  # the open one was delivered by an earlier run
        self.constants: TransactionConstants | None = None  # once it has a number
        self.ordinal = 0  # of the next record
        self._is_framed = False  # the open one has a BEGIN and an END
        self._begins = False  # BEGIN is still to be written, before the first event
        self._headers: Headers = []
        self._position = b""
        self._ddl: list[int] = []
        self._gaps: list[Hole] = []
        self._fates: list[Fate] = []
        self._batch: list[Record] = []
        self._size = 0
        self._lsn = -1
        self._lsn_header = b""
        self._happened: list[Happened] = []

    @property
    def position(self) -> str:
        """The commit key of the next record: epoch/seq/ordinal."""
        return f"{self._epoch}/{self._seq}/{self.ordinal}"

    # ------------------------------------------------------------ from BEGIN to COMMIT
    def open(self, begin: Begin, *, is_ours: bool = False) -> None:
        """Take a BEGIN; raise HistoryDiffers where it is not the one that was delivered."""
        if self.begin is not None:
            raise DecodeError("BEGIN inside a transaction", xid=begin.xid)
        self.begin = begin
        self.is_skipped = begin.commit_lsn < self.redelivery.resume
        if not is_ours:
            self.redelivery.begin(begin)
        if self.is_skipped:
            return
        self.ordinal = 0
        self._ddl, self._gaps, self._fates = [], [], []
        self.constants = None
        self._is_framed = self._frames is not None and not is_ours

    def open_own(self, position: Lsn) -> None:
        """Open a transaction of our own at a place between two of the source's."""
        at = self._now_us() - EPOCH_2000_US
        csn = None if self._positions_are_csns else 0
        self.open(Begin(position, at, 0, csn), is_ours=True)

    def number(self, now_us: int | None = None) -> TransactionConstants:
        """Give the open transaction its number: it has a record that survives."""
        begin = self.begin
        assert begin is not None
        self._seq += 1
        csn = csn_of(begin)
        self.constants = TransactionConstants(
            xid=begin.xid,
            csn=csn,
            epoch=self._epoch,
            seq=self._seq,
            committed_at_us=begin.committed_at + EPOCH_2000_US,
            now_us=self._now_us() if now_us is None else now_us,
            commit_lsn=begin.commit_lsn,
        )
        if self._is_framed:
            self.constants.counted = Counted(f"{begin.xid}:{begin.commit_lsn}")
            self._begins = True
        self._headers = transaction_headers(begin.xid, csn, begin.user)
        self._position = f"{self._epoch}/{self._seq}/".encode()
        return self.constants

    def close(self, commit: Commit) -> None:
        """Take a COMMIT.  Raises DecodeError where no transaction is open."""
        begin, self.begin = self.begin, None
        if begin is None:
            raise DecodeError("COMMIT outside a transaction", lsn=lsn_text(commit.commit_lsn))
        if self.is_skipped:
            self.is_skipped = False
            self.redelivery.reached(commit.end_lsn)
            return
        if self.constants is None:
            self._happened.append(PositionReached(commit.end_lsn))
            return
        self._frame_end(self.constants)
        self.hand_over()
        self._happened.append(
            TransactionEnded(
                seq=self._seq,
                xid=begin.xid,
                csn=csn_of(begin),
                commit_start=begin.commit_lsn,
                end_lsn=commit.end_lsn,
                committed_at=begin.committed_at + EPOCH_2000_US,
                user=begin.user,
                rows=self.ordinal,
                ddl_ordinals=tuple(self._ddl),
                holes=tuple(self._gaps),
                fates=tuple(self._fates),
            )
        )

    def close_own(self, end: Lsn) -> None:
        """Close a transaction of our own; one without a record leaves no trace."""
        begin = self.begin
        assert begin is not None
        if self.constants is None and not self.is_skipped:
            self.begin = None
            return
        self.close(Commit(begin.commit_lsn, end, begin.committed_at))

    # ------------------------------------------------------------ the native walker
    def lend(self) -> Lent:
        """Give the numbers away, for one call of the walker; records of ours go before its own."""
        self.hand_over()
        begin = self.begin
        if begin is None:
            return Lent(Stage.NONE, self._seq, 0, 0)
        if self.is_skipped:
            stage = Stage.SKIPPED
        else:
            stage = Stage.BEGUN if self.constants is None else Stage.NUMBERED
        return Lent(
            stage,
            self._seq,
            self.ordinal,
            0 if self.constants is None else self.constants.now_us,
            begin.commit_lsn,
            begin.committed_at,
            begin.xid,
            is_plain=not (self._ddl or self._gaps),
            csn=begin.csn,
        )

    def take_back(self, walk: Walk) -> Begin | None:
        """Take the numbers, and what was done with them; return the BEGIN of what is open.

        None: nothing is open.
        """
        if walk.walked or walk.position or walk.open.stage in _BEHIND:
            self.redelivery.end()
        elif walk.passed:
            self.redelivery.reached(walk.passed)
        self._happened += walk.walked
        if walk.position:
            self._happened.append(PositionReached(walk.position))
        was, now = self.begin, walk.open
        if now.stage is Stage.NONE:
            self.begin, self.is_skipped = None, False
        elif was is None or (was.xid, was.commit_lsn) != (now.xid, now.commit_lsn):
            self.begin = None
            self.open(Begin(now.commit_lsn, now.committed_at, now.xid, now.csn))
        if now.stage is Stage.NUMBERED and self.constants is None:
            self._seq = now.seq - 1
            self.number(now.now_us)
        self._seq, self.ordinal = now.seq, now.ordinal
        return self.begin

    # ------------------------------------------------------------ records
    def put(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, lsn: Lsn
    ) -> None:
        """Add a record with the next ordinal; a tombstone has that of its delete."""
        if self._begins and topic != self._ddl_topic:
            self._frame_begin()
        if lsn != self._lsn:
            # As Lsn prints it; one made for each row cost 3 % of all.
            self._lsn, self._lsn_header = lsn, b"%X/%X" % (lsn >> 32, lsn & 0xFFFF_FFFF)
        ordinal = self.ordinal if value is not None else self.ordinal - 1
        headers = [
            *self._headers,
            ("lsn", self._lsn_header),
            (POSITION, self._position + b"%d" % ordinal),
        ]
        self._batch.append((topic, partition, key, value, headers))
        self.ordinal = ordinal + 1
        self._size += len(key or b"") + len(value or b"")
        if self._size >= _BATCH_BYTES:
            self.hand_over()

    def put_change(self, key: bytes, value: bytes, lsn: Lsn) -> None:
        """Add a record of the DDL topic."""
        self._ddl.append(self.ordinal)
        self.put(self._ddl_topic, 0, key, value, lsn)

    def put_unnumbered(self, topic: str, key: bytes, value: bytes, lsn: Lsn) -> None:
        """Add a record that has no ordinal: readers of cuts do not need it."""
        if self._begins:
            self._frame_begin()
        headers = [*self._headers, ("lsn", lsn_text(lsn).encode())]
        self._batch.append((topic, 0, key, value, headers))
        self._size += len(key) + len(value)

    def add_gap(self, gap: Hole, *, tables: Iterable[str] | None = None) -> None:
        """Note a gap of the open transaction, once; it gets a number for that alone.

        `tables`: those that are exact again when they were read again, if not the gap's own.
        """
        if gap not in self._gaps:
            if self.constants is None:
                self.number()
            self._gaps.append(gap)
            self._fates += [
                Fate(table, table) for table in ((gap.table,) if tables is None else tables)
            ]

    def end_name(self, table: TableId, now: TableId | None) -> None:
        """Note that a table is renamed, or (None) dropped, in the open transaction."""
        self._fates.append(Fate(str(table), None if now is None else str(now)))

    def move_rows(self, table: TableId, to: TableId) -> None:
        """Note that rows of a table went into another one, in the open transaction."""
        self._fates.append(Fate(str(table), str(to), is_of_rows=True))

    # ------------------------------------------------------------ what happened
    def use_schema(self, topic: str, schema_id: int) -> None:
        """From the next record on, values of a topic have this registry id."""
        self._happened.append(SchemaUsed(topic, schema_id))

    def hand_over(self) -> None:
        """End a batch."""
        if self._batch:
            self._happened.append(RowsAssembled(self._batch, self._size))
            self._batch, self._size = [], 0

    def take(self) -> list[Happened]:
        """Return what happened since the last call."""
        self.hand_over()
        happened, self._happened = self._happened, []
        return happened

    # ------------------------------------------------------------ BEGIN and END
    def _frame_begin(self) -> None:
        """Write BEGIN, before the first event; a transaction of DDL alone has none."""
        constants = self.constants
        assert self._frames is not None
        assert constants is not None
        assert constants.counted is not None
        self._frame(self._frames.begin(constants.counted.id, constants.committed_at_us))
        self._begins = False

    def _frame_end(self, constants: TransactionConstants) -> None:
        """Write END, behind the last event."""
        if self._frames is None or constants.counted is None or self._begins:
            self._begins = False
            return
        self._frame(self._frames.end(constants.counted, constants.committed_at_us))

    def _frame(self, record: tuple[bytes, bytes]) -> None:
        assert self._frames is not None
        self._batch.append((self._frames.topic, 0, *record, [*self._headers]))
        self._size += len(record[1])


def csn_of(begin: Begin) -> int:
    """PostgreSQL has no CSN: the commit LSN takes its place."""
    return begin.commit_lsn if begin.csn is None else begin.csn
