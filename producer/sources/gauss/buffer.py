"""Buffers source transactions until their COMMIT, then returns them as the core's messages.

GaussDB's streams report a transaction's xid, CSN, time and position partly at
BEGIN and partly at COMMIT, and no mode reports the commit's position before its
end.  Headers are never guessed, and a transaction that an earlier run delivered
is dropped by that position.  So rows wait, undecoded, in memory up to a limit and
then in a spill file, and are returned together.

Positions: if a COMMIT reports the end of its record, we take the byte before it
as the start; if it reports the start, we take the byte after it as the end
(commit records are longer).  Both keep `commit_start < resume` exact as long as
a stream reports one kind, so the kind is part of the epoch's content.  A
CSN-ordered slot resumes by CSN, which is used for both in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from producer.core.changes import Begin, Commit, Logical, Message, Undecoded
from producer.errors import DdlMalformed, DecodeError, SourceSwitched
from producer.sources.decoders import Naming
from producer.sources.gauss.boundaries import Boundaries, Place, together
from producer.sources.gauss.ddl import jddl
from producer.sources.gauss.ddl import pairs as ddl_pairs
from producer.sources.gauss.decoders.messages import (
    Change,
    Ddl,
    Heartbeat,
    NamedTruncate,
    TxBegin,
    TxCommit,
)
from producer.sources.gauss.mixed import Holds, Mixed, Wrote
from producer.sources.gauss.resolver import RelationResolver
from producer.sources.gauss.system_schemas import is_system_schema
from producer.wire.replication import WalMessage
from schemas.errors import LOAD_AGAIN
from schemas.positions import Lsn
from schemas.tables import TableId

HOLD_BYTES: Final = 64 << 20
_ROW_COST: Final = 60  # bytes of memory for a buffered record, in addition to its own

# CSNs of neighbours may descend (a CSN is assigned before the commit record is written), but only
# over as many transactions as can commit at one time.
_CSN_SLACK: Final = 1 << 16

_INSTANT: Final = re.compile(
    r"(\d{4,6})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
    r"([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?"
)
_2000: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Spill(Protocol):
    """Records on disk, in order."""

    def add(self, position: int, record: bytes) -> None:
        """Append a record."""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Read them back from the first."""

    def close(self) -> None:
        """Remove all records, and the file."""


def _nobody_knows(_table: TableId, _xid: int) -> bool | None:
    return None


def _may_hold_more(_table: TableId, _xid: int, _rows: int) -> bool:
    return False


class TransactionBuffer:
    """One stream's open transaction."""

    def __init__(
        self,
        decoder: Naming,
        relations: RelationResolver,
        *,
        spill: Callable[[], Spill],
        hold_bytes: int = HOLD_BYTES,
        by_csn: bool = False,
        resume: int = 0,
        newest_csn: int = 0,
        loses_rows_behind_ddl: bool = False,
        wrote: Wrote = _nobody_knows,
        holds: Holds = _may_hold_more,
    ) -> None:
        self._decoder, self._relations = decoder, relations
        self._make_spill, self._hold_bytes, self._by_csn = spill, hold_bytes, by_csn
        self._resume, self._newest_csn = resume, newest_csn
        self._mixed = Mixed() if loses_rows_behind_ddl else None
        self._wrote, self._holds = wrote, holds
        self._first: ddl_pairs.Waiting | None = None  # a statement that may have more messages
        self._boundaries = Boundaries()
        self._records: list[tuple[int, bytes]] = []
        self._size = 0
        self._spill: Spill | None = None
        self._undecoded: list[tuple[int, Undecoded]] = []  # of the open transaction
        self._undecoded_size = 0
        self.heartbeat: Heartbeat | None = None  # the newest

    def feed(self, received: Sequence[WalMessage]) -> Iterator[tuple[int, Message]]:
        """Take received messages; yield (position, message) of the transactions that ended.

        An undecodable message becomes Undecoded, in its transaction.
        """
        split, is_row, hold = self._decoder.split, self._decoder.is_row, self._hold
        boundaries = self._boundaries
        for start, _, payload in received:
            try:
                records = split(start, payload)
            except DecodeError as error:
                yield from self._put_aside(start, Undecoded(payload, str(error)))
                continue
            for position, record in records:
                if is_row(record) and boundaries.is_open:
                    hold(position, record)
                else:
                    yield from self._rare(position, record)

    def _rare(self, position: int, record: bytes) -> Iterator[tuple[int, Message]]:
        try:
            decoded = self._decoder.decode(position, record)
        except DecodeError as error:
            yield from self._put_aside(position, Undecoded(record, str(error)))
            return
        if isinstance(decoded, Heartbeat):
            self.heartbeat = decoded
            return
        if isinstance(decoded, Logical):
            yield position, Undecoded(record, "a logical message, which no option requests")
            return
        match self._boundaries.step(decoded):
            case begun, ended:
                yield from self._release(begun, ended)
            case Place.WITHIN:
                self._hold(position, record)
            case Place.BEGINS:
                pass
            case Place.STRAY | Place.OUTSIDE:
                yield position, Undecoded(record, self._boundaries.stray(decoded))

    def _put_aside(self, position: int, found: Undecoded) -> Iterator[tuple[int, Message]]:
        """Report it now, or at the head of its transaction, before any of its rows is passed on."""
        if not self._boundaries.is_open:
            yield position, found
            return
        self._undecoded.append((position, found))
        self._undecoded_size += len(found.payload) + _ROW_COST
        if self._undecoded_size > self._hold_bytes:  # a COMMIT may never come
            raise DecodeError(
                "a transaction has more undecodable bytes than source.hold-bytes",
                messages=len(self._undecoded),
                position=Lsn(position),
                hint="the source is damaged, or writes an unknown format: "
                f"`gauss-cdc record --redact` keeps it for a report; {LOAD_AGAIN}",
            )

    def _hold(self, position: int, record: bytes) -> None:
        if self._spill is not None:
            self._spill.add(position, record)
            return
        self._records.append((position, record))
        self._size += len(record) + _ROW_COST
        if self._size > self._hold_bytes:
            self._spill = self._make_spill()
            for held in self._records:
                self._spill.add(*held)
            self._records, self._size = [], 0

    # ------------------------------------------------------------ COMMIT
    def _release(self, begun: TxBegin, ended: TxCommit) -> Iterator[tuple[int, Message]]:
        records: Sequence[tuple[int, bytes]] | Spill = self._spill or self._records
        spill = self._spill
        self._records, self._size, self._spill = [], 0, None
        undecoded, self._undecoded, self._undecoded_size = self._undecoded, [], 0
        try:
            begin, commit = self._framed(begun, ended)
            yield int(begin.commit_lsn), begin
            if begin.commit_lsn >= self._resume:  # else delivered: the shapes are later ones
                yield from undecoded
                for position, record in records:
                    yield from self._decoded(position, record)
                yield from self._let_go()
                if self._mixed is not None:
                    for lost in self._mixed.end(begin.xid, self._wrote, self._holds):
                        yield int(commit.end_lsn), lost
            yield int(commit.end_lsn), commit
        finally:
            if spill is not None:
                spill.close()

    def _framed(self, begun: TxBegin, ended: TxCommit) -> tuple[Begin, Commit]:
        """Combine BEGIN and COMMIT."""
        xid, csn, said = together(begun, ended)
        if self._by_csn:
            if csn is None:
                raise DecodeError("a transaction without CSN from a slot ordered by CSN", xid=xid)
            start, end = csn - 1, csn
        elif ended.end_lsn is not None:
            start, end = int(ended.end_lsn) - 1, int(ended.end_lsn)
        elif ended.commit_lsn is not None:
            start, end = int(ended.commit_lsn), int(ended.commit_lsn) + 1
        else:
            raise DecodeError("a COMMIT without position", xid=xid)
        if csn is not None and start >= self._resume and csn + _CSN_SLACK < self._newest_csn:
            raise SourceSwitched(
                "the source's CSNs went back: it was restored, or another node took over by force",
                csn=csn,
                newest=self._newest_csn,
                # The slot exists, so only this makes a takeover accept a gap.
                hint=f"what was committed there in between is lost; {LOAD_AGAIN}",
            )
        at = instant(said) if said else 0
        # sql_decoding has no xid at all; 0 is PostgreSQL's value for "no transaction id".
        begin = Begin(Lsn(start), at, xid or 0, csn, begun.user)
        return begin, Commit(Lsn(start), Lsn(end), at)

    def _decoded(self, position: int, record: bytes) -> Iterator[tuple[int, Message]]:
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
            case Change():
                for message in self._relations.row(decoded):
                    yield position, message
                if self._mixed is not None and not is_system_schema(decoded.schema):
                    self._mixed.row(decoded.schema, decoded.table, decoded.op)
            case NamedTruncate():
                for message in self._relations.emptied(decoded):
                    yield position, message
            case _:
                yield position, Undecoded(record, f"{type(decoded).__name__} inside a transaction")

    # ------------------------------------------------------------ DDL
    def _stated(self, position: int, ddl: Ddl) -> Iterator[tuple[int, Message]]:
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

    def _let_go(self) -> Iterator[tuple[int, Message]]:
        """Yield the waiting statement, if there is one."""
        if self._first is None:
            return
        first, self._first = self._first, None
        for message in self._relations.statement(first.ddl, first.statement):
            yield first.position, message
        if self._mixed is not None:
            self._mixed.statement(first.statement)


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
