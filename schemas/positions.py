"""Where a change stands in the history of its source.

Two orders exist and must not be mixed.  An `Lsn` orders bytes of the log; a
`CommitKey` orders row changes.  A long transaction that commits late carries
low LSNs and a high commit key, so rows may be ordered by `CommitKey` only.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NewType, Self

_LSN_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


# A byte address in the source's log, or a CSN, where GaussDB sends transactions by their CSN: what
# `run` resumes at and confirms.  A number of its own for the type checker, an int when it runs:
# an object for each row would cost 3 % of all.
Lsn = NewType("Lsn", int)

NOWHERE: Final = Lsn(0)


def parse_lsn(text: str) -> Lsn:
    """Read the text form; raise ValueError for anything else.

    >>> parse_lsn("16/B374D848")
    97500059720
    """
    if (match := _LSN_TEXT.fullmatch(text)) is None:
        raise ValueError(f"not an LSN: {text!r}")
    high, low = (int(part, 16) for part in match.groups())
    return Lsn(high << 32 | low)


def lsn_text(lsn: Lsn) -> str:
    """Write a position as PostgreSQL does.

    >>> lsn_text(Lsn(97500059720))
    '16/B374D848'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFF_FFFF:X}"


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
