"""What is asked of a comparison, and what it reports to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from gauss_cdc.verify.text import BUCKET_BITS

ALL: Final = 1 << BUCKET_BITS
MOST_KEYS: Final = 10_000  # of a table that are read alone; where more differ, all rows are
_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """How many rows are compared: a share, or about a number of each table."""

    share: float = 1.0
    rows: int | None = None

    def limit(self, expected: int) -> int:
        """Buckets of a key's hash below which rows are compared."""
        share = self.share
        if self.rows is not None:
            share = self.rows / expected if expected > self.rows else 1.0
        return max(1, min(ALL, round(share * ALL)))


@dataclass(frozen=True, slots=True)
class VerifyObserver:
    """What a comparison reports to."""

    note: Callable[[str], None]
    on_rows: Callable[[str, int, int], None]  # table, rows compared, rows expected
    pause: Callable[[float], bool]  # waits; True: stop


@dataclass(frozen=True, slots=True)
class Request:
    """What is compared, and how much of what differs is kept."""

    tables: Collection[str] = ()  # (): all
    sample: Sample = Sample()
    keys: int = 20  # of a table's rows that differ
    named: int = 20  # of these, of which the columns are looked for
    rounds: int = _ROUNDS
