"""The bounds of a stream's transactions, and the combined data of BEGIN and COMMIT."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from producer.core.changes import Logical
from producer.errors import DecodeError
from producer.sources.gauss.decoders.messages import (
    Ddl,
    DecodedMessage,
    NamedChange,
    NamedTruncate,
    ServerHeartbeat,
    TxBegin,
    TxCommit,
)

Pair: TypeAlias = tuple[TxBegin, TxCommit]


class Place(Enum):
    """The place of a message relative to the open transaction."""

    BEGINS = auto()
    WITHIN = auto()
    OUTSIDE = auto()  # in no transaction: a heartbeat, a message that is not transactional
    STRAY = auto()  # not allowed here


class Boundaries:
    """One stream: BEGIN and COMMIT alternate, and changes are between them."""

    def __init__(self) -> None:
        self._begun: TxBegin | None = None

    @property
    def is_open(self) -> bool:
        """Say whether a transaction has begun and not ended."""
        return self._begun is not None

    def step(self, message: DecodedMessage) -> Pair | Place:
        """Take the next message; the pair of BEGIN and COMMIT where it ends a transaction."""
        match message, self._begun:
            case ServerHeartbeat(), _:
                return Place.OUTSIDE
            case Logical(transactional=False), _:
                return Place.OUTSIDE
            case TxBegin(), None:
                self._begun = message
                return Place.BEGINS
            case TxCommit(), TxBegin() as begun:
                self._begun = None
                return begun, message
            case ((NamedChange() | NamedTruncate() | Ddl() | Logical()), TxBegin()):
                return Place.WITHIN
            case _:
                return Place.STRAY

    def stray(self, message: DecodedMessage) -> str:
        """Say why a message is not allowed here."""
        where = "within" if self.is_open else "outside of"
        return f"{type(message).__name__} {where} a transaction"


class Together(NamedTuple):
    """The data of BEGIN and COMMIT of one transaction; None is what neither has."""

    xid: int | None
    csn: int | None
    committed_at: str | None  # as printed


def together(begun: TxBegin, ended: TxCommit) -> Together:
    """Combine both; raise DecodeError if they belong to different transactions."""
    for name, first, second in (("xid", begun.xid, ended.xid), ("csn", begun.csn, ended.csn)):
        if first is not None and second is not None and first != second:
            raise DecodeError(f"BEGIN and COMMIT differ in {name}", begin=first, commit=second)
    return Together(
        xid=begun.xid if ended.xid is None else ended.xid,
        csn=begun.csn if ended.csn is None else ended.csn,
        committed_at=ended.committed_at or begun.committed_at,
    )
