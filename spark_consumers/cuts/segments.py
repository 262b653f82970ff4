"""Cut records -> segments: which whole commits become one step of a target.

Pure.  `segments` takes what the acceptance function let through, in order, and
a ledger, and yields steps that follow each other without a gap:

    START     one step that moves only the ledger
    TABLE     steps of loads that follow each other, packed up to `max_rows`: loads begin,
              bring chunks, end; those of a load for another target are passed by
    COMMITS   whole commits, packed up to `max_rows`, also across records; a
              commit larger than that is a step of its own, and so is one with DDL, unless the
              target takes schema changes in the midst of others
    STATE, HEARTBEAT  no step; they must repeat the n that was reached.  An empty target begins late
              with the newest STATE where no START is there that it may begin with

Where the ledger stands after each is `ledger.py`'s; `complete.py` is the other half of the
promise: what was read is exactly what the cut lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from schemas.control import (
    Commits,
    Cut,
    Heartbeat,
    LoadPhase,
    Range,
    Start,
    State,
    TableLoad,
    mends,
)
from schemas.errors import LOAD_AGAIN
from spark_consumers.cuts.commits import CommitsRecord, Run
from spark_consumers.cuts.ledger import (
    Known,
    all_topics,
    begins,
    begun_late,
    follows,
    is_for,
    is_new,
    loaded,
    passed,
    started,
    stated,
)
from spark_consumers.cuts.sizes import Sizes
from spark_consumers.errors import ApplyError, CutsGap
from spark_consumers.model import CommitRows, Ledger, Segment, columns_of, joined_ids

_MOST_TABLES: Final = 50  # whose loads are one step: a target holds a lock for each


def segments(
    ledger: Ledger,
    accepted: Iterable[tuple[int, Cut]],
    *,
    max_rows: int = 5_000,
    strict: bool = False,
    ddl_apart: bool = True,
    sizes: Sizes | None = None,
    target: str = "",
    known: Known = all_topics,
) -> Iterator[Segment]:
    """Yield the steps that bring a target from `ledger` to the last of `accepted`.

    `accepted` are (offset in cuts, record) pairs from `ledger.next_offset` on.  `sizes` says how
    many rows a step has; without it there are always up to `max_rows`.  `target` is the name of
    the one that takes them.  `known`: see `begun_late`.

    Raises CutsGap where `accepted` do not follow the ledger, behind the steps before.
    """
    sizes = sizes or Sizes(max_rows)
    coming = _Coming(accepted)
    at = ledger
    packing = _Packing(sizes, coming, strict=strict, ddl_apart=ddl_apart)
    newest: tuple[int, State] | None = None  # of those in which an empty target does not begin
    try:
        for offset, cut in coming:
            if not at.instance and not begins(cut):
                newest = (offset, cut) if isinstance(cut, State) else newest
                continue
            match cut:
                case Commits():
                    yield from packing.end_loads()
                    record = CommitsRecord(at, offset, cut)
                    while record.left:
                        at = packing.take_commits(at, record)
                        if record.left or packing.is_barrier:
                            yield from packing.end()
                case TableLoad():
                    follows(at, offset, cut.head)
                    if not is_for(at, cut, target):
                        at = packing.pass_by(at, offset, cut)
                        continue
                    if not packing.has_room(cut):
                        yield from packing.end()
                    at = packing.take_load(at, offset, cut)
                case Start():
                    yield from packing.end()
                    if not is_new(at, cut):
                        follows(at, offset, cut.head)
                    before, at = at, started(at, offset, cut)
                    yield Segment(cut, before, at)
                case State() | Heartbeat():
                    if cut.head.n != at.n:
                        raise CutsGap(
                            "a record of cuts is missing",
                            n=cut.head.n,
                            known=at.n,
                            offset=offset,
                            hint=LOAD_AGAIN,
                        )
                    if isinstance(cut, State):
                        before, at = at, stated(at, cut)
                        if at.inexact != before.inexact:  # nothing else may ever come
                            yield from packing.end()
                            yield Segment(cut, before, at)
    except ApplyError:  # comes behind what was there before
        yield from packing.end()
        raise
    yield from packing.end()
    if newest is not None and not at.instance:
        yield Segment(newest[1], at, begun_late(at, *newest, known))


class _Packing:
    """The segment that is being made: commits, or steps of loads."""

    def __init__(self, sizes: Sizes, coming: _Coming, *, strict: bool, ddl_apart: bool) -> None:
        self._sizes, self._coming = sizes, coming
        self._strict, self._ddl_apart = strict, ddl_apart
        self._runs: list[Run] = []
        self._loads: list[TableLoad] = []
        self._passed: TableLoad | None = None  # the newest in the segment
        self._after: Ledger  # of the segment, from its beginning on
        self._upto: Ledger
        self._waiting: int  # rows that it could have
        self._rows: int
        self._limit: int

    def take_commits(self, at: Ledger, record: CommitsRecord) -> Ledger:
        """Take those that fit, at least one into an empty segment; return the ledger after them."""
        is_begun = bool(self._runs)
        self._open(at, record.rows_left, len(record.schema_ids))
        end = record.fitting(
            self._rows,
            self._limit,
            strict=self._strict,
            ddl_apart=self._ddl_apart,
            is_begun=is_begun,
        )
        if end == record.at:
            return at
        run = record.take(end, at)
        self._runs.append(run)
        self._rows, self._upto = self._rows + run.rows, run.upto
        return run.upto

    def take_load(self, at: Ledger, offset: int, cut: TableLoad) -> Ledger:
        """Take a step of a load; return the ledger after it."""
        self._open(at, cut.rows, len(cut.schema_ids))
        self._loads.append(cut)
        self._rows, self._upto = self._rows + cut.rows, loaded(at, offset, cut)
        return self._upto

    def pass_by(self, at: Ledger, offset: int, cut: TableLoad) -> Ledger:
        """Take a step of a load for another target, which has nothing for this one."""
        if not (self._runs or self._loads or self._passed):
            self._after = at
        self._passed, self._upto = cut, passed(at, offset, cut)
        return self._upto

    def has_room(self, cut: TableLoad) -> bool:
        """Say whether a step of a load may come to others.

        A load begins in a segment of its own if rows of an earlier one of its table are there:
        all rows of a table are of one load.  Rows of some keys, which are of none, are alone.
        """
        if not self._loads:
            return not self._runs
        if mends(cut) or mends(self._loads[-1]):
            return False
        if self._rows + cut.rows > min(self._limit, self._limit_of(len(cut.schema_ids))):
            return False
        tables = {load.table for load in self._loads}
        return cut.phase is not LoadPhase.BEGIN or (
            cut.table not in tables and len(tables) < _MOST_TABLES
        )

    @property
    def is_barrier(self) -> bool:
        """Say whether no commit may come to the one that is there."""
        return self._ddl_apart and self._runs[0].has_ddl

    def end_loads(self) -> Iterator[Segment]:
        """Give the segment, if it is one of loads."""
        if self._loads:
            yield from self.end()

    def end(self) -> Iterator[Segment]:
        """Give the segment, if there is one, and begin another."""
        runs, loads, left_out = self._runs, self._loads, self._passed
        self._runs, self._loads, self._passed = [], [], None
        if runs:
            yield _pack(self._after, runs, self._upto)
        elif left_out is not None and not loads:
            yield Segment(left_out, self._after, self._upto)
        if loads:
            yield Segment(
                loads[-1],
                self._after,
                self._upto,
                rows=self._rows,
                ranges=joined_ranges(r for load in loads for r in load.ranges),
                loads=tuple(loads),
            )

    def _open(self, at: Ledger, rows: int, tables: int) -> None:
        """Count on `rows` of so many tables, and on what waits behind them."""
        if self._runs or self._loads:
            self._limit = min(self._limit, self._limit_of(tables))
            return
        self._coming.look(self._sizes.lookahead)
        self._after = at if self._passed is None else self._after
        self._rows, self._waiting = 0, rows + self._coming.rows
        self._limit = self._limit_of(tables)

    def _limit_of(self, tables: int) -> int:
        return self._sizes.limit(self._waiting, tables)


class _Coming:
    """Accepted records, some of them looked at before their turn: what waits behind the first."""

    def __init__(self, accepted: Iterable[tuple[int, Cut]]) -> None:
        self._accepted = iter(accepted)
        self._seen: deque[tuple[int, Cut]] = deque()
        self._error: ApplyError | None = None  # comes behind what was seen
        self.rows = 0  # of what was seen and is still to come

    def __iter__(self) -> Iterator[tuple[int, Cut]]:
        while self._seen or self._see():
            offset, cut = self._seen.popleft()
            self.rows -= _rows(cut)
            yield offset, cut
        if self._error is not None:
            raise self._error

    def look(self, rows: int) -> None:
        """See so many rows, or all there are."""
        while self.rows < rows and self._see():
            pass

    def _see(self) -> bool:
        try:
            record = next(self._accepted, None)
        except ApplyError as error:
            self._error, record = error, None
        if record is None:
            return False
        self.rows += _rows(record[1])
        self._seen.append(record)
        return True


def _rows(cut: Cut) -> int:
    match cut:
        case Commits():
            columns = columns_of(cut.commits)
            return columns.total(0, len(columns))
        case TableLoad():
            return cut.rows
        case _:
            return 0


def joined(several: Sequence[Segment]) -> Segment:
    """Join consecutive segments of commits into one, to be read at once."""
    first, last = several[0], several[-1]
    ids = joined_ids(segment.schema_ids for segment in several)
    ranges = joined_ranges(r for segment in several for r in segment.ranges)
    return Segment(
        Commits(last.cut.head, (), ranges, ids),
        after=first.after,
        upto=last.upto,
        first_seq=first.first_seq,
        last_seq=last.last_seq,
        rows=sum(segment.rows for segment in several),
        ranges=ranges,
        commit_rows=CommitRows.of(
            first.first_seq, (segment.commit_rows.tobytes() for segment in several)
        ),
        is_barrier=any(segment.is_barrier for segment in several),
        marks=dict(mark for segment in several for mark in segment.marks.items()),
    )


def _pack(after: Ledger, runs: list[Run], upto: Ledger) -> Segment:
    """Join consecutive commits into one segment; `upto` may be behind what is passed by."""
    ranges = joined_ranges(r for run in runs for r in run.ranges)
    ids = joined_ids(run.cut.schema_ids for run in runs)
    return Segment(
        cut=Commits(runs[-1].cut.head, (), ranges, ids),
        after=after,
        upto=upto,
        first_seq=after.seq + 1,
        last_seq=runs[-1].upto.seq,
        rows=sum(run.rows for run in runs),
        ranges=ranges,
        commit_rows=CommitRows.of(after.seq + 1, (run.commit_rows for run in runs)),
        is_barrier=any(run.has_ddl for run in runs),
        marks=dict(mark for run in runs for mark in run.marks.items()),
    )


def joined_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Join neighbours of one partition; empty ones vanish."""
    out: list[Range] = []
    for r in sorted(ranges):
        if r.start >= r.end:
            continue
        if out and out[-1][:2] == r[:2] and out[-1].end == r.start:
            out[-1] = Range(r.topic, r.partition, out[-1].start, r.end)
        else:
            out.append(r)
    return tuple(out)
