"""GaussDB's stream as the core's messages, a transaction at a time.

GaussDB's streams report a transaction's xid, CSN, time and position partly at
BEGIN and partly at COMMIT, and no mode reports the commit's position before its
end.  Headers are never guessed, and a transaction that an earlier run delivered
is dropped by that position: so `TransactionBuffer` holds it until COMMIT.

Positions: if a COMMIT reports the end of its record, we take the byte before it
as the start; if it reports the start, we take the byte after it as the end
(commit records are longer).  Both keep `commit_start < resume` exact as long as
a stream reports one kind, so the kind is part of the epoch's content.  A
CSN-ordered slot resumes by CSN, which is used for both in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from producer.core.changes import Begin, Commit, Logical, Message, SentAgain, Stretch, Undecoded
from producer.core.takeover.comparison import SWITCH_ALL
from producer.errors import DdlMalformed, DecodeError, SourceSwitched
from producer.sources.decoders import Naming
from producer.sources.gauss.boundaries import together
from producer.sources.gauss.buffer import (
    HOLD_BYTES,
    BufferedTransaction,
    Spill,
    TransactionBuffer,
)
from producer.sources.gauss.csn_order import Passed, Taken, advance
from producer.sources.gauss.ddl import jddl
from producer.sources.gauss.ddl import pairs as ddl_pairs
from producer.sources.gauss.decoders.messages import (
    Ddl,
    NamedChange,
    NamedTruncate,
    TxBegin,
    TxCommit,
)
from producer.sources.gauss.held import Held, Layouts
from producer.sources.gauss.mixed import Mixed, Wrote
from producer.sources.gauss.resolver import RelationResolver
from producer.sources.gauss.system_schemas import is_system_schema
from producer.wire.replication import WalMessage
from schemas.errors import LOAD_AGAIN
from schemas.positions import NOWHERE, Lsn
from schemas.tables import TableId, TableSchema

# CSNs of neighbours may descend (a CSN is assigned before the commit record is written), but only
# over as many transactions as can commit at one time.
_CSN_SLACK: Final = 1 << 16

_MOST_DECODED: Final = 256  # records in a row that are not the native walker's
_MOST_HELD: Final = 5_000  # rows of a transaction on disk that the walker is given at once
_MOST_HELD_BYTES: Final = 4 << 20

_INSTANT: Final = re.compile(
    r"(\d{4,6})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
    r"([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?"
)
_2000: Final = datetime(2000, 1, 1, tzinfo=UTC)


def _nobody_knows(_table: TableId, _xid: int) -> bool | None:
    return None


class GaussStream:
    """One stream from START_REPLICATION on."""

    def __init__(
        self,
        decoder: Naming,
        relations: RelationResolver,
        *,
        spill: Callable[[], Spill],
        hold_bytes: int = HOLD_BYTES,
        by_csn: bool = False,
        resume: Lsn = NOWHERE,
        newest_csn: int = 0,
        loses_rows_behind_ddl: bool = False,
        wrote: Wrote = _nobody_knows,
        judged: Callable[[int, frozenset[TableId]], None] = lambda _xid, _tables: None,
        held: Held | None = None,
        style: str = "",
    ) -> None:
        """`held`: for the native walker, which takes transactions of this decode-style.

        `judged` is told the tables of a transaction whose statements came: their gaps are known.
        """
        self._decoder, self._relations, self._by_csn = decoder, relations, by_csn
        self._buffer = TransactionBuffer(decoder, spill=spill, hold_bytes=hold_bytes)
        self._resume, self._newest_csn = resume, newest_csn
        self._mixed = Mixed() if loses_rows_behind_ddl else None
        self._is_counted = False  # rows of the transaction are noted in `_mixed`
        self._wrote, self._judged = wrote, judged
        self._first: ddl_pairs.Waiting | None = None  # a statement that may have more messages
        self._held = held
        self._passed: Passed = Taken() if held is None else held
        self._is_slow = False  # the walker takes nothing
        self._layouts = None if held is None else Layouts(held, style, relations)

    @property
    def last_csn(self) -> int:
        """The CSN of the newest transaction that was taken, in the order of CSNs; 0 before."""
        return self._passed.last_csn

    @property
    def told_end(self) -> Lsn:
        """What the newest heartbeat says of the log on disk; 0: none came."""
        return max(self._buffer.told_end, NOWHERE if self._held is None else self._held.told_end)

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[Lsn, Message]]:
        """Take received messages; yield (position, message) of the transactions that ended.

        `one_by_one`: leave none to the walker, so that the caller may stop before any.
        """
        self._is_slow = one_by_one
        if self._held is None:
            yield from self._buffered(received)
        else:
            yield from self._walked(self._held, received)

    def adopt(self, table: TableSchema) -> None:
        """Take the shape under which a table was read again."""
        self._relations.adopt(table)

    def forget(self, table: TableId) -> None:
        """Take it that a table is gone."""
        self._relations.forget(table)

    def close(self) -> None:
        """Free the disk space of the transactions that are held."""
        self._buffer.close()

    def _buffered(self, received: Sequence[WalMessage]) -> Iterator[tuple[Lsn, Message]]:
        for found in self._buffer.feed(received):
            if isinstance(found, BufferedTransaction):
                yield from self._release(found)
            else:
                yield found

    # ------------------------------------------------------------ the native walker
    def _walked(self, held: Held, received: Sequence[WalMessage]) -> Iterator[tuple[Lsn, Message]]:
        """Let the walker take whole transactions; an unusual message is buffered here."""
        at = 0
        while at < len(received):
            if not self._buffer.is_open:
                at = held.take(received, at)
                yield from self._whole(held)
                if at == len(received):
                    return
                self._buffer.adopt(_given(held), on_disk=held.is_full)
            yield from self._buffered(received[at : at + 1])
            at += 1
            if (records := self._buffer.give_up()) and not held.adopt(records):
                self._buffer.adopt(records, stays=True)

    def _whole(self, held: Held) -> Iterator[tuple[Lsn, Message]]:
        """Yield what is held; the walker takes what it can."""
        stretch, size, may_walk = Stretch(held), len(held), not self._is_slow
        burst = 1  # records that are decoded here before the walker is asked again
        while stretch.at < size:
            if may_walk:
                at = stretch.at
                yield from self._asked(stretch)
                burst = 1 if stretch.at > at else min(2 * burst, _MOST_DECODED)
            end = min(stretch.at + burst, size)
            while stretch.at < end:
                at = stretch.at
                stretch.at += 1
                bounds = held.bounds(at)
                if bounds is None or bounds[0] < at < bounds[1]:
                    self._is_counted = False
                    yield from self._decoded(*held[at])
                    continue
                begin, commit = self._framed(*self._ends(held, *bounds))
                if at == bounds[1]:
                    may_walk = not self._is_slow
                    yield commit.end_lsn, commit
                    continue
                self._advance(begin)
                may_walk = not self._is_slow and _may_walk(begin)
                yield begin.commit_lsn, begin
                if begin.commit_lsn < self._resume:  # delivered: the shapes are later ones
                    rows = (held[each] for each in range(at + 1, bounds[1]))
                    yield begin.commit_lsn, SentAgain(self._tables(rows))
                    stretch.at = bounds[1]
        held.drop()

    def _asked(self, stretch: Stretch) -> Iterator[tuple[Lsn, Message]]:
        """Ask the walker."""
        assert self._layouts is not None
        self._layouts.check()
        yield NOWHERE, stretch

    def _ends(self, held: Held, first: int, last: int) -> tuple[TxBegin, TxCommit]:
        begun, ended = self._decoder.decode(*held[first]), self._decoder.decode(*held[last])
        assert isinstance(begun, TxBegin)
        assert isinstance(ended, TxCommit)
        return begun, ended

    def _rows(
        self, transaction: BufferedTransaction, begin: Begin
    ) -> Iterator[tuple[Lsn, Message]]:
        """Yield the records of a transaction that was buffered here."""
        if self._held is None or not transaction.is_plain or not _may_walk(begin):
            for position, record in transaction.records:
                yield from self._decoded(position, record)
            return
        some: list[tuple[Lsn, bytes]] = []
        size = 0
        for position, record in transaction.records:
            some.append((position, record))
            size += len(record)
            if len(some) >= _MOST_HELD or size >= _MOST_HELD_BYTES:
                self._held.rows(some)
                yield from self._whole(self._held)
                some, size = [], 0
        self._held.rows(some)
        yield from self._whole(self._held)

    # ------------------------------------------------------------ a transaction
    def _release(self, transaction: BufferedTransaction) -> Iterator[tuple[Lsn, Message]]:
        begin, commit = self._framed(transaction.begun, transaction.ended)
        self._advance(begin)
        yield begin.commit_lsn, begin
        self._is_counted = not transaction.is_plain
        if begin.commit_lsn < self._resume:  # delivered: the shapes are later ones
            yield begin.commit_lsn, SentAgain(self._tables(transaction.records))
        else:
            yield from transaction.undecoded
            yield from self._rows(transaction, begin)
            yield from self._let_go()
            if self._mixed is not None and self._is_counted:
                if (named := self._mixed.named) is not None:
                    self._judged(begin.xid, named)
                for lost in self._mixed.end(begin.xid, self._wrote):
                    yield commit.end_lsn, lost
        yield commit.end_lsn, commit

    def _tables(self, records: Iterable[tuple[Lsn, bytes]]) -> Iterator[TableId]:
        """Name the tables of rows that are sent again."""
        for position, record in records:
            try:
                decoded = self._decoder.decode(position, record)
            except DecodeError:
                continue
            if isinstance(decoded, NamedChange):
                yield self._relations.table_of(decoded)
            elif isinstance(decoded, NamedTruncate):
                yield from (TableId(*name) for name in decoded.tables)

    def _advance(self, begin: Begin) -> None:
        if self._by_csn:
            advance(self._passed, begin)

    def _framed(self, begun: TxBegin, ended: TxCommit) -> tuple[Begin, Commit]:
        """Combine BEGIN and COMMIT."""
        xid, csn, said = together(begun, ended)
        if self._by_csn:
            if csn is None:
                raise DecodeError("a transaction without CSN from a slot ordered by CSN", xid=xid)
            start, end = csn - 1, csn
        elif ended.end_lsn is not None:
            start, end = ended.end_lsn - 1, ended.end_lsn
        elif ended.commit_lsn is not None:
            start, end = ended.commit_lsn, ended.commit_lsn + 1
        else:
            raise DecodeError("a COMMIT without position", xid=xid)
        if csn is not None and start >= self._resume and csn + _CSN_SLACK < self._newest_csn:
            raise SourceSwitched(
                "the source's CSNs went back: it was restored, or another node took over by force",
                csn=csn,
                newest=self._newest_csn,
                hint=f"what was committed there in between is lost; {SWITCH_ALL}; {LOAD_AGAIN}",
            )
        at = instant(said) if said else 0
        # sql_decoding has no xid at all; 0 is PostgreSQL's value for "no transaction id".
        begin = Begin(Lsn(start), at, xid or 0, csn or 0, begun.user)
        return begin, Commit(Lsn(start), Lsn(end), at)

    def _decoded(self, position: Lsn, record: bytes) -> Iterator[tuple[Lsn, Message]]:
        try:
            decoded = self._decoder.decode(position, record)
        except DecodeError as error:
            yield position, Undecoded(record, str(error))
            return
        if isinstance(decoded, Ddl):
            yield from self._stated(position, decoded)
            return
        if self._first is not None:
            yield from self._let_go()
        match decoded:
            case NamedChange():
                for message in self._relations.row(decoded):
                    yield position, message
                if self._layouts is not None:
                    self._layouts.learn(record, decoded)
                if self._mixed is not None and self._is_counted:
                    self._count(self._mixed, decoded)
            case NamedTruncate():
                for message in self._relations.emptied(decoded):
                    yield position, message
            case Logical():
                yield position, Undecoded(record, "a logical message, which no option requests")
            case _:
                yield position, Undecoded(record, f"{type(decoded).__name__} inside a transaction")

    @staticmethod
    def _count(mixed: Mixed, row: NamedChange) -> None:
        if not is_system_schema(row.schema):
            mixed.row(row.schema, row.table)

    # ------------------------------------------------------------ DDL
    def _stated(self, position: Lsn, ddl: Ddl) -> Iterator[tuple[Lsn, Message]]:
        """Read a statement; one that may have a second message waits for it."""
        try:
            statement = jddl.read(ddl)
        except DdlMalformed as error:
            yield from self._let_go()
            yield position, Undecoded(ddl.content.encode(), str(error))
            return
        first = self._first
        if first is not None and statement is not None:
            self._first = ddl_pairs.joined(first, ddl, statement)
            if self._first is not None:
                if self._first.is_whole:
                    yield from self._let_go()
                return
            self._first = first
        yield from self._let_go()
        if statement is not None:  # else "Drop table command start": the statement itself follows
            self._first = ddl_pairs.Waiting(position, ddl, statement)
            if not ddl_pairs.waits(ddl, statement):
                yield from self._let_go()

    def _let_go(self) -> Iterator[tuple[Lsn, Message]]:
        """Yield the waiting statement, if there is one."""
        if self._first is None:
            return
        first, self._first = self._first, None
        for message in self._relations.statement(first.ddl, first.statement):
            yield first.position, message
        if self._mixed is not None:
            self._mixed.statement(first.statement)


def _given(held: Held) -> Iterator[tuple[Lsn, bytes]]:
    while records := held.give_up(_MOST_HELD):
        yield from records


def _may_walk(begin: Begin) -> bool:
    """Say whether rows may be the walker's: it writes no user, and numbers of 63 bits."""
    return begin.user is None and max(begin.xid, begin.csn or 0, begin.commit_lsn) < 1 << 63


def instant(text: str) -> int:
    """Read a timestamptz as the server prints it in any zone; µs since 2000-01-01 UTC.

    Raises DecodeError.

    >>> instant("2000-01-01 08:00:01.5+08")
    1500000
    """
    if (match := _INSTANT.fullmatch(text.strip())) is None:
        raise DecodeError("a time that is not an ISO timestamp with time zone", size=len(text))
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    micros = int((match[7] or "").ljust(6, "0"))
    offset = timedelta(
        hours=int(match[9]), minutes=int(match[10] or 0), seconds=int(match[11] or 0)
    )
    try:
        local = datetime(year, month, day, hour, minute, second, micros, tzinfo=UTC)
    except ValueError as error:
        raise DecodeError("an invalid time", size=len(text)) from error
    moment = local - offset if match[8] == "+" else local + offset
    return (moment - _2000) // timedelta(microseconds=1)
