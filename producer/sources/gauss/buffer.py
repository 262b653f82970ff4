"""Holds the records of a stream until their COMMIT; gives whole transactions.

Used wherever transactions are read: by `run` and by `decode`.  Records wait
undecoded, in memory up to a limit and then in a spill file: nobody knows before
COMMIT whether the transaction was delivered, and a giant one has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from producer.core.changes import Undecoded
from producer.errors import DecodeError
from producer.sources.decoders import Naming
from producer.sources.gauss.boundaries import Boundaries, Place
from producer.sources.gauss.decoders.messages import ServerHeartbeat, TxBegin, TxCommit
from producer.wire.replication import WalMessage
from schemas.errors import LOAD_AGAIN
from schemas.positions import NOWHERE, Lsn, lsn_text

HOLD_BYTES: Final = 64 << 20
_ROW_COST: Final = 60  # bytes of memory for a buffered record, in addition to its own

Aside: TypeAlias = tuple[Lsn, Undecoded]  # what could not be read, and its position


class Spill(Protocol):
    """Records on disk, in order."""

    def add(self, position: Lsn, record: bytes) -> None:
        """Append a record."""

    def __iter__(self) -> Iterator[tuple[Lsn, bytes]]:
        """Read them back from the first."""

    def close(self) -> None:
        """Remove all records, and the file."""


@dataclass(frozen=True, slots=True)
class BufferedTransaction:
    """A transaction whose COMMIT was received; valid until the next one is asked for."""

    begun: TxBegin
    ended: TxCommit
    records: Sequence[tuple[Lsn, bytes]] | Spill  # undecoded
    undecoded: Sequence[Aside] = ()
    is_plain: bool = False  # there are rows only


class TransactionBuffer:
    """One stream's open transaction."""

    def __init__(
        self, decoder: Naming, *, spill: Callable[[], Spill], hold_bytes: int = HOLD_BYTES
    ) -> None:
        self._decoder, self._make_spill, self._hold_bytes = decoder, spill, hold_bytes
        self._boundaries = Boundaries()
        self._records: list[tuple[Lsn, bytes]] = []
        self._size = 0
        self._spill: Spill | None = None
        self._released: Spill | None = None  # of the transaction that is being read
        self._undecoded: list[Aside] = []  # of the open transaction
        self._undecoded_size = 0
        self._begun: tuple[Lsn, bytes] | None = None  # the record of the open transaction's BEGIN
        self._is_plain = True  # the open transaction has rows only
        self._stays = False  # it is not given up any more
        self.told_end = NOWHERE  # of the source's log, by the newest heartbeat; 0: none came

    @property
    def is_open(self) -> bool:
        """Say whether a transaction has begun and not ended."""
        return self._boundaries.is_open

    def feed(self, received: Sequence[WalMessage]) -> Iterator[BufferedTransaction | Aside]:
        """Take received messages; yield the transactions that ended, and what is in none.

        An undecodable message becomes Undecoded, in its transaction.
        """
        split, is_row, hold = self._decoder.split, self._decoder.is_row, self._hold
        boundaries = self._boundaries  # which only `give_up` replaces, between calls
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

    def adopt(
        self, records: Iterable[tuple[Lsn, bytes]], *, on_disk: bool = False, stays: bool = False
    ) -> None:
        """Hold an open transaction that another one held: its BEGIN, and rows.

        `stays`: the other one does not take it, so that it is not given up again.
        """
        if on_disk:
            self._spill = self._make_spill()
        for position, record in records:
            if self.is_open:
                self._hold(position, record)
            else:
                for _ in self._rare(position, record):
                    pass  # of a BEGIN nothing is reported
        self._stays = stays

    def give_up(self) -> list[tuple[Lsn, bytes]]:
        """Return BEGIN and rows of the open transaction, to be held by another one.

        Nothing where none is open, or where there is more in it, or it is on disk, or stays here.
        """
        is_held = self._spill is not None or self._stays
        if self._begun is None or not self._is_plain or is_held:
            return []
        records = [self._begun, *self._records]
        self._records, self._size = [], 0
        self._begun = None
        self._boundaries = Boundaries()
        return records

    def _rare(self, position: Lsn, record: bytes) -> Iterator[BufferedTransaction | Aside]:
        try:
            decoded = self._decoder.decode(position, record)
        except DecodeError as error:
            yield from self._put_aside(position, Undecoded(record, str(error)))
            return
        if isinstance(decoded, ServerHeartbeat):
            self.told_end = decoded.flushed
            return
        match self._boundaries.step(decoded):
            case begun, ended:
                yield from self._release(begun, ended)
            case Place.WITHIN:
                self._is_plain = False
                self._hold(position, record)
            case Place.BEGINS:
                self._begun = position, record
            case Place.STRAY | Place.OUTSIDE:
                yield position, Undecoded(record, self._boundaries.stray(decoded))

    def _put_aside(self, position: Lsn, found: Undecoded) -> Iterator[Aside]:
        """Report it now, or with its transaction."""
        if not self._boundaries.is_open:
            yield position, found
            return
        self._is_plain = False
        self._undecoded.append((position, found))
        self._undecoded_size += len(found.payload) + _ROW_COST
        if self._undecoded_size > self._hold_bytes:  # a COMMIT may never come
            raise DecodeError(
                "a transaction has more undecodable bytes than are kept in memory",
                messages=len(self._undecoded),
                position=lsn_text(position),
                hint="the source is damaged, or writes an unknown format: "
                f"`gauss-cdc record --redact` keeps it for a report; {LOAD_AGAIN}",
            )

    def _hold(self, position: Lsn, record: bytes) -> None:
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

    def _release(self, begun: TxBegin, ended: TxCommit) -> Iterator[BufferedTransaction]:
        spill, undecoded = self._spill, self._undecoded
        records: Sequence[tuple[Lsn, bytes]] | Spill = spill or self._records
        self._records, self._size, self._spill = [], 0, None
        self._undecoded, self._undecoded_size = [], 0
        is_plain, self._is_plain, self._begun = self._is_plain, True, None
        self._stays = False
        self._released = spill
        try:
            yield BufferedTransaction(begun, ended, records, undecoded, is_plain)
        finally:
            if spill is not None:
                spill.close()
            self._released = None

    def close(self) -> None:
        """Free the disk space, also of a transaction that nobody reads to its end."""
        for spill in (self._spill, self._released):
            if spill is not None:
                spill.close()
