"""Where a change stands in the history of its source.

Two orders exist and must not be mixed.  An `Lsn` orders bytes of the log; a
`CommitKey` orders row changes.  A long transaction that commits late carries
low LSNs and a high commit key, so rows may be ordered by `CommitKey` only.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_LSN_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class Lsn(int):
    """A byte address in the source's log, written `16/B374D848`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raise ValueError for anything else.

        >>> Lsn.parse("16/B374D848")
        16/B374D848
        """
        if (match := _LSN_TEXT.fullmatch(text)) is None:
            raise ValueError(f"not an LSN: {text!r}")
        high, low = (int(part, 16) for part in match.groups())
        return cls(high << 32 | low)

    def __repr__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFF_FFFF:X}"

    __str__ = __repr__


def of_reread(n: int) -> int:
    """Return the first ordinal of a table that is read again behind the `n`-th record of cuts.

    Its rows have the number of the commit before them, which has fewer rows than 2^61.  A record
    of cuts names fewer than 2^24 rows of a load, so no two of them have one position.
    """
    return (1 << 61) + (n << 24)


class CommitKey(NamedTuple):
    """Total order over the row changes of one source.

    Its text form, `epoch/seq/ordinal`, is the Kafka header `position`.
    """

    epoch: int  # opens a new history: slot made again, source failed over
    seq: int  # of the transaction, counted by us at commit, from 1, without gaps; 0 = first load
    ordinal: int  # of the row or DDL inside its transaction, from 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raise ValueError for anything else.

        >>> CommitKey.parse("1/5001/0")
        CommitKey(epoch=1, seq=5001, ordinal=0)
        """
        parts = text.split("/")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"not a position: {text!r}")
        return cls(*(int(part) for part in parts))

    def __str__(self) -> str:
        return f"{self.epoch}/{self.seq}/{self.ordinal}"
