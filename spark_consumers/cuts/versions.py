"""Commits as versions, and which part of a cut belongs to some of them.

Pure.  A version is (epoch, seq); as one number, for columns and options, it is
epoch * 2^40 + seq: it grows over epochs, and has room for a trillion commits in each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Self

from schemas.control import CommitEntry, Commits, Range
from spark_consumers.errors import CutsGap
from spark_consumers.model import ReadEntries, columns_of

_SEQ_BITS: Final = 40


class Version(NamedTuple):
    """A commit of the source; seq 0: the epoch's loads."""

    epoch: int
    seq: int

    def __int__(self) -> int:
        """Return the number for `_commit_version`.

        >>> int(Version(2, 5001)), Version.of(2199023260553)
        (2199023260553, Version(epoch=2, seq=5001))
        """
        return self.epoch << _SEQ_BITS | self.seq

    def __str__(self) -> str:
        return f"{self.epoch}/{self.seq}"

    def before(self) -> Version:
        """Return the version before; that of an epoch's loads is the end of the epoch before.

        >>> Version(2, 5).before(), Version(2, 0).before() < Version(2, 0)
        (Version(epoch=2, seq=4), True)
        """
        if self.seq:
            return self._replace(seq=self.seq - 1)
        return Version(self.epoch - 1, (1 << _SEQ_BITS) - 1)

    @classmethod
    def of(cls, number: int) -> Self:
        """Undo `int`."""
        return cls(number >> _SEQ_BITS, number & (1 << _SEQ_BITS) - 1)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `epoch/seq`, or the number; raise ValueError.

        >>> Version.parse("2/5001") == Version.parse("2199023260553")
        True
        """
        epoch, slash, seq = text.partition("/")
        found = cls(int(epoch), int(seq)) if slash else cls.of(int(text))
        if found.epoch < 1 or not 0 <= found.seq < 1 << _SEQ_BITS:
            raise ValueError(f"not a commit: {text}")
        return found


class Portion(NamedTuple):
    """What consecutive commits of one record have in some topics."""

    last_seq: int
    ranges: tuple[Range, ...]
    special: Sequence[CommitEntry] = ()  # commits with gaps or schema changes


def part(cut: Commits, topics: Collection[str], after: int, upto: int | None = None) -> Portion:
    """Return the ranges that the commits `after < seq <= upto` of a record have in topics.

    `upto` None: to its last.  Raises CutsGap where a commit names a range that is not there.
    """
    columns = columns_of(cut.commits)
    size, start = len(columns), columns.first
    first = min(size, max(0, after + 1 - start))
    last = size if upto is None else min(size, max(first, upto + 1 - start))
    ranges = [r for r in cut.ranges if r.topic in topics]
    if ranges and (first > 0 or last < size):
        width = len(cut.ranges)
        before, mine = columns.records(0, first, width), columns.records(first, last, width)
        if before is None or mine is None:
            raise CutsGap("a commit names a range that its record has not", n=cut.head.n)
        ranges = [
            Range(r.topic, r.partition, r.start + skipped, r.start + skipped + taken)
            for r, skipped, taken in zip(cut.ranges, before, mine, strict=True)
            if r.topic in topics
        ]
    special = (
        ()
        if isinstance(cut.commits, ReadEntries)  # is read only where there are none
        else [entry for entry in cut.commits[first:last] if entry.holes or entry.ddl]
    )
    return Portion(start + last - 1, tuple(r for r in ranges if r.start < r.end), special)


def fitting(cut: Commits, topics: Collection[str], after: int, room: int) -> int:
    """Return the last commit until which topics have at most `room` records; at least one."""
    columns = columns_of(cut.commits)
    first = max(0, after + 1 - columns.first)
    places = [at for at, r in enumerate(cut.ranges) if r.topic in topics]

    def records(last: int) -> int:
        found = columns.records(first, last, len(cut.ranges)) or ()
        return sum(found[at] for at in places)

    if sum(cut.ranges[at].end - cut.ranges[at].start for at in places) <= room:
        return cut.head.last_seq
    lasts = range(first + 1, len(columns) + 1)
    return columns.first + first + max(0, bisect_right(lasts, room, key=records) - 1)
