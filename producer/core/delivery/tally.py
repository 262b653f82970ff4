"""The books of the open group: its source transactions, their records, acknowledged offsets.

The engine decides when a group closes; this module knows what its cut will say.  `Tally` is
the interface; `PlainTally` is the implementation in Python, and defines what any other does.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from producer.core.events import Acknowledgement, Batch, Place, Records, TransactionEnded
from producer.errors import GroupUnusable
from schemas.control import CommitEntry, DdlPlace, Range
from schemas.positions import Lsn


class Entries(NamedTuple):
    """What one COMMITS record says about source transactions."""

    commits: Sequence[CommitEntry]
    ranges: tuple[Range, ...]
    seq: int  # of the last one
    end_lsn: Lsn  # of the last one


class Tally(Protocol):
    """The books of one open group after the other; offsets outlive a group."""

    @property
    def commits(self) -> int:
        """Source transactions that are complete."""

    @property
    def cut_bytes(self) -> int:
        """How large their entries will be, about."""

    @property
    def is_open(self) -> bool:
        """Say whether a transaction without its COMMIT has records here."""

    def add(self, records: Records) -> None:
        """Count records of the open transaction."""

    def end(self, ended: TransactionEnded) -> None:
        """Complete the open transaction."""

    def take(self, batch: Batch) -> None:
        """Count a batch of the native walker, and complete the transactions that it ends."""

    def acknowledge(self, runs: Iterable[Acknowledgement]) -> int:
        """Take acknowledged offsets, per partition in order; return how many there are.

        Raises GroupUnusable for an offset that is unknown, or goes backwards.
        """

    def close(self) -> list[Entries]:
        """Give each complete transaction its offsets, and forget it.

        A transaction with DDL or gaps gets a record of cuts of its own.  Raises GroupUnusable
        where not all their records were acknowledged.
        """


class Runs:
    """Acknowledged offsets of one partition as maximal runs, oldest first.

    A commit marker, an aborted attempt or another writer's record opens a new run,
    so that "start + count" never covers a record that is not ours.
    """

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self._runs: deque[list[int]] = deque()
        self.count = 0

    def add(self, start: int, end: int) -> None:
        """Take acknowledged offsets start..end-1; they come in order.

        Raises GroupUnusable if not.
        """
        runs = self._runs
        if runs and runs[-1][1] == start:
            runs[-1][1] = end
        elif runs and runs[-1][1] > start:
            raise GroupUnusable(
                "acknowledged offsets go backwards", offset=start, known=runs[-1][1]
            )
        else:
            runs.append([start, end])
        self.count += end - start

    def take(self, count: int) -> list[tuple[int, int]]:
        """Remove the oldest `count` offsets and return their runs."""
        out = []
        self.count -= count
        while count:
            run = self._runs[0]
            size = min(count, run[1] - run[0])
            out.append((run[0], run[0] + size))
            run[0] += size
            count -= size
            if run[0] == run[1]:
                self._runs.popleft()
        return out


@dataclass(slots=True)
class _Whole:
    """A source transaction of the group that is complete."""

    ended: TransactionEnded
    counts: dict[Place, int]  # in order of first use


class PlainTally:
    """`Tally` in Python."""

    def __init__(self, *, ddl_topic: str, untracked_topics: frozenset[str]) -> None:
        """`untracked_topics`: of records that no cut names."""
        self._ddl_topic, self._untracked = ddl_topic, untracked_topics
        self._whole: list[_Whole] = []
        self._open: dict[Place, int] = {}  # records of the open transaction
        self._runs: defaultdict[Place, Runs] = defaultdict(Runs)
        self.cut_bytes = 0

    @property
    def commits(self) -> int:
        """Source transactions that are complete."""
        return len(self._whole)

    @property
    def is_open(self) -> bool:
        """Say whether a transaction without its COMMIT has records here."""
        return bool(self._open)

    def add(self, records: Records) -> None:
        """Count records of the open transaction."""
        counts = self._open
        for record in records:
            place = record[0], record[1]
            counts[place] = counts.get(place, 0) + 1

    def end(self, ended: TransactionEnded) -> None:
        """Complete the open transaction."""
        self._whole.append(_Whole(ended, self._open))
        self.cut_bytes += 60 + 6 * len(self._open) + 12 * len(ended.ddl_ordinals)
        self._open = {}

    def take(self, batch: Batch) -> None:
        """Count a batch of the native walker, and complete the transactions that it ends."""
        for counts, ended in batch.transactions():
            for place, count in counts.items():
                self._open[place] = self._open.get(place, 0) + count
            if ended is not None:
                self.end(ended)

    def acknowledge(self, runs: Iterable[Acknowledgement]) -> int:
        """Take acknowledged offsets, per partition in order; return how many there are."""
        count = 0
        for topic, partition, start, end in runs:
            if start < 0:
                raise GroupUnusable("a record was acknowledged without an offset", topic=topic)
            self._runs[topic, partition].add(start, end)
            count += end - start
        return count

    def close(self) -> list[Entries]:
        """Give each complete transaction its offsets, and forget it."""
        out = [self._entries(wholes) for wholes in _alone_where_needed(self._whole)]
        self._whole, self.cut_bytes = [], 0
        return out

    def _entries(self, wholes: list[_Whole]) -> Entries:
        """Give each transaction its offsets: the oldest acknowledged ones of each partition."""
        ranges: list[list[object]] = []
        last: dict[Place, int] = {}  # place -> index of its newest range
        ends: dict[Place, int] = {}
        entries = []
        for whole in wholes:
            counts: dict[int, int] = {}
            offsets: list[int] = []
            for place, count in whole.counts.items():
                runs = self._runs[place]
                if runs.count < count:
                    raise GroupUnusable("a record was not acknowledged", topic=place[0])
                if place[0] in self._untracked:
                    runs.take(count)
                    continue
                for start, end in runs.take(count):
                    if place in last and ends[place] == start:
                        ranges[last[place]][3] = end
                    else:
                        last[place] = len(ranges)
                        ranges.append([*place, start, end])
                    ends[place] = end
                    index = last[place]
                    counts[index] = counts.get(index, 0) + end - start
                    if place[0] == self._ddl_topic:
                        offsets += range(start, end)
            ended = whole.ended
            entries.append(
                CommitEntry(
                    seq=ended.seq,
                    xid=ended.xid,
                    csn=ended.csn,
                    commit_start=ended.commit_start,
                    end_lsn=ended.end_lsn,
                    committed_at=ended.committed_at,
                    rows=ended.rows,
                    counts=counts,
                    ddl=tuple(
                        DdlPlace(*place) for place in zip(ended.ddl_ordinals, offsets, strict=True)
                    ),
                    holes=ended.holes,
                    user=ended.user,
                )
            )
        newest = wholes[-1].ended
        return Entries(
            tuple(entries),
            tuple(Range(*r) for r in ranges),  # type: ignore[arg-type]
            newest.seq,
            newest.end_lsn,
        )


def _alone_where_needed(group: list[_Whole]) -> list[list[_Whole]]:
    """Split a group so that each transaction with DDL or gaps is alone."""
    out: list[list[_Whole]] = []
    join = False
    for whole in group:
        alone = bool(whole.ended.ddl_ordinals or whole.ended.holes)
        if join and not alone:
            out[-1].append(whole)
        else:
            out.append([whole])
        join = not alone
    return out
