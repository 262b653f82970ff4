"""A COMMITS record, taken commit by commit.

A record may be divided between two commits: then `seq` moves, and `n` and `next_offset` wait for
its last commit, so that the ledger names it again.  Pure, and by columns: a record may have
thousands of commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from schemas.control import CommitEntry, Commits, Range
from schemas.topics import rewritten
from spark_consumers.cuts.ledger import follows, left_out, remarked, state_of
from spark_consumers.errors import CutsGap
from spark_consumers.model import Ledger, ReadEntries, columns_of


@dataclass(frozen=True, slots=True)
class Run:
    """Commits of one record that follow each other, and the ledger after them."""

    cut: Commits
    first: int  # index of the first, and after the last
    last: int
    ranges: tuple[Range, ...]  # the commits' own share of each of the record's
    commit_rows: bytes  # see `Columns.rows`
    rows: int
    marks: Mapping[str, str]  # what its gaps say of tables
    has_ddl: bool
    upto: Ledger


class CommitsRecord:
    """A COMMITS record as it is taken, commit by commit, by columns: it may have thousands."""

    def __init__(self, ledger: Ledger, offset: int, cut: Commits) -> None:
        """`ledger` may have its first commits already; raises CutsGap."""
        follows(ledger, offset, cut.head, epoch=True)
        self._offset, self._cut = offset, cut
        commits = cut.commits
        self._special: Mapping[int, CommitEntry] = {}
        self._columns = columns_of(commits)
        is_whole = True
        if not isinstance(commits, ReadEntries):
            self._special = {at: e for at, e in enumerate(commits) if e.ddl or e.holes}
            is_whole = all(e.seq == seq for seq, e in enumerate(commits, commits[0].seq))
        self._barriers = [at for at, entry in self._special.items() if entry.ddl]
        self._size, first = len(self._columns), self._columns.first
        if first > ledger.seq + 1 or not is_whole:
            raise CutsGap(
                "commits are missing in cuts", first=first, known=ledger.seq, offset=offset
            )
        self._starts = [r.start for r in cut.ranges]
        self._check()
        self.at = 0
        at = min(ledger.seq - first + 1, self._size)
        self._starts, self.at = self._ends(at), at

    @property
    def left(self) -> int:
        """How many commits were not taken yet."""
        return self._size - self.at

    @property
    def schema_ids(self) -> Mapping[str, tuple[int, ...]]:
        """The writers' schemas of its rows."""
        return self._cut.schema_ids

    @property
    def rows_left(self) -> int:
        """And how many rows they have."""
        return self._columns.total(self.at, self._size)

    def fitting(
        self, rows: int, max_rows: int, *, strict: bool, ddl_apart: bool, is_begun: bool
    ) -> int:
        """Return the index after the last commit that fits behind so many rows.

        The first one of a segment always fits; with `ddl_apart` one with DDL, and with `strict`
        any, stands alone.
        """
        at = self.at
        if strict:
            return at if is_begun else at + 1
        barriers = self._barriers if ddl_apart else ()
        barrier = next((place for place in barriers if place >= at), self._size)
        end = self._columns.fitting(at, barrier, max_rows - rows)
        return end if is_begun else max(end, at + 1)

    def take(self, end: int, ledger: Ledger) -> Run:
        """Take the commits up to an index; `ledger` is what holds before them."""
        first, cut = self.at, self._cut
        special = [self._special[at] for at in sorted(self._special) if first <= at < end]
        marks = _marks(special, ledger.topics)
        ends = self._ends(end)
        ranges = tuple(
            Range(r.topic, r.partition, *own)
            for r, *own in zip(cut.ranges, self._starts, ends, strict=True)
        )
        if ledger.inexact:
            brought = {r.topic for r in ranges if r.start < r.end}
            ledger = replace(ledger, inexact={**ledger.inexact, **left_out(ledger, brought)})
        self.at, self._starts = end, ends
        return Run(
            cut,
            first,
            end,
            ranges,
            self._columns.rows(first, end),
            self._columns.total(first, end),
            marks,
            any(entry.ddl for entry in special),
            self._after(ledger, end - 1, marks),
        )

    def _after(self, ledger: Ledger, at: int, marks: Mapping[str, str]) -> Ledger:
        """Return the ledger after a commit."""
        head, seq = self._cut.head, self._columns.first + at
        csn, commit_lsn, committed_at = self._columns.place(at)
        known = ledger.inexact
        gaps = {table: remarked(known.get(table), why) for table, why in marks.items()}
        inexact = {**known, **gaps}
        is_last = at == self._size - 1
        return replace(
            ledger,
            seq=seq,
            csn=csn,
            commit_lsn=commit_lsn,
            committed_at=committed_at,
            inexact=inexact,
            state=state_of(inexact),
            n=head.n if is_last else ledger.n,
            next_offset=self._offset + is_last,
            resume=head.resume if is_last else ledger.resume,
        )

    def _ends(self, end: int) -> list[int]:
        """Where the shares of the commits up to an index end in the record's ranges."""
        records = self._columns.records(self.at, end, len(self._starts))
        if records is None:
            raise CutsGap("a commit has rows in no range of its cut", offset=self._offset)
        return [start + more for start, more in zip(self._starts, records, strict=True)]

    def _check(self) -> None:
        """Each commit has its rows in the ranges, and the commits fill them."""
        if (at := self._columns.lacking()) >= 0:
            raise CutsGap(
                "a commit has more rows than its ranges",
                seq=self._columns.first + at,
                offset=self._offset,
            )
        self.at = 0
        if self._ends(self._size) != [r.end for r in self._cut.ranges]:
            raise CutsGap(
                "counts do not fill the ranges of a cut", n=self._cut.head.n, offset=self._offset
            )


def _marks(entries: Iterable[CommitEntry], topics: Collection[str]) -> dict[str, str]:
    """Marks by gaps; of several of a table one that was seen: it says what ends it."""
    holes = sorted((h for e in entries for h in e.holes), key=lambda hole: hole.kind == "seen")
    return {rewritten(hole.table, topics): f"{hole.kind}: {hole.why}" for hole in holes}
