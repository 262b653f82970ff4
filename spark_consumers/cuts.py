"""Cut records -> segments: which whole commits become one step of a target.

Pure.  `segments` takes what the acceptance function let through, in order, and
a ledger, and yields steps that follow each other without a gap:

    START     one step that moves only the ledger; a new epoch must name the
              place where the ledger stands as the end of the one before, unless it
              loads all tables: then it does not matter what the target missed
    TABLE     steps of loads that follow each other, packed up to `max_rows`: loads begin,
              bring chunks, end
    COMMITS   whole commits, packed up to `max_rows`, also across records; a
              commit larger than that, or with DDL, is a step of its own
    STATE, HEARTBEAT  no step; they must repeat the n that was reached

An empty target begins with the START of the first epoch, or of one that is
that loads all tables; earlier records of a truncated log do not concern it.

A record may be split between two commits: then `seq` moves, and `n` and
`next_offset` wait for its last commit, so that the ledger names it again.

`check_complete` is the other half of the promise: what was read is exactly
what the cut lists, even if a reader missed a record or saw it twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from schemas.accept import reloads
from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    Head,
    Heartbeat,
    Hole,
    LoadPhase,
    Range,
    SchemaChange,
    Start,
    State,
    TableLoad,
)
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.errors import ApplyError, CutsGap, Incomplete, LedgerForeign
from spark_consumers.model import (
    Change,
    CommitRows,
    Ledger,
    ReadEntries,
    Rows,
    Segment,
    columns_of,
    joined_ids,
)
from spark_consumers.native import is_packed
from spark_consumers.sizes import Sizes

if TYPE_CHECKING:
    from spark_consumers.native._native import PackedRows

EXACT = "EXACT"
LOADING = "LOADING"
_MOST_TABLES: Final = 50  # whose loads are one step: a target holds a lock for each
NOT_LOADED = "not loaded"  # why a table is not exact that an epoch begins without


@dataclass(frozen=True, slots=True)
class _Run:
    """Commits of one record that follow each other, and the ledger after them."""

    cut: Commits
    first: int  # index of the first, and after the last
    last: int
    ranges: tuple[Range, ...]  # the commits' own share of each of the record's
    commit_rows: bytes  # see `Columns.rows`
    rows: int
    holes: tuple[Hole, ...]
    has_ddl: bool
    upto: Ledger


def segments(
    ledger: Ledger,
    accepted: Iterable[tuple[int, Cut]],
    *,
    max_rows: int = 5_000,
    strict: bool = False,
    sizes: Sizes | None = None,
) -> Iterator[Segment]:
    """Yield the steps that bring a target from `ledger` to the last of `accepted`.

    `accepted` are (offset in cuts, record) pairs from `ledger.next_offset` on.  `sizes` says how
    many rows a step has; without it there are always up to `max_rows`.
    """
    sizes = sizes or Sizes(max_rows)
    coming = _Coming(accepted)
    at = ledger
    packing = _Packing(sizes, coming, strict=strict)
    skipped = 0
    try:
        for offset, cut in coming:
            if not at.instance and not _begins(cut):
                skipped += 1
                continue
            match cut:
                case Commits():
                    yield from packing.end_loads()
                    record = _CommitsRecord(at, offset, cut)
                    while record.left:
                        at = packing.take_commits(at, record)
                        if record.left or packing.is_full:
                            yield from packing.end()
                case TableLoad():
                    if at.instance:
                        _follows(at, offset, cut.head)
                    if not packing.has_room(cut):
                        yield from packing.end()
                    at = packing.take_load(at, offset, cut)
                case Start():
                    yield from packing.end()
                    if at.instance and not _is_new(at, cut):
                        _follows(at, offset, cut.head)
                    before, at = at, _started(at, offset, cut)
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
                        at = _stated(at, cut)
    except ApplyError:  # comes behind what was there before
        yield from packing.end()
        raise
    yield from packing.end()
    if skipped and not at.instance:
        raise CutsGap(
            "an empty target needs cuts from a beginning",
            hint=LOAD_AGAIN,
        )


class _Packing:
    """The segment that is being made: commits, or steps of loads."""

    def __init__(self, sizes: Sizes, coming: _Coming, *, strict: bool) -> None:
        self._sizes, self._coming, self._strict = sizes, coming, strict
        self._runs: list[_Run] = []
        self._loads: list[TableLoad] = []
        self._after = self._upto = Ledger("")
        self._waiting = 0  # rows that it could have
        self._rows = self._limit = 0

    def take_commits(self, at: Ledger, record: _CommitsRecord) -> Ledger:
        """Take those that fit, at least one into an empty segment; return the ledger after them."""
        is_begun = bool(self._runs)
        self._open(at, record.rows_left, record.schema_ids)
        end = record.fitting(self._rows, self._limit, strict=self._strict, is_begun=is_begun)
        if end == record.at:
            return at
        run = record.take(end, at)
        self._runs.append(run)
        self._rows, self._upto = self._rows + run.rows, run.upto
        return run.upto

    def take_load(self, at: Ledger, offset: int, cut: TableLoad) -> Ledger:
        """Take a step of a load; return the ledger after it."""
        self._open(at, cut.rows, cut.schema_ids)
        self._loads.append(cut)
        self._rows, self._upto = self._rows + cut.rows, _loaded(at, offset, cut)
        return self._upto

    def has_room(self, cut: TableLoad) -> bool:
        """Say whether a step of a load may come to others.

        A load begins in a segment of its own if rows of an earlier one of its table are there:
        all rows of a table are of one load.
        """
        loads = self._loads
        if self._runs or not loads:
            return not self._runs
        if self._rows + cut.rows > min(self._limit, self._limit_of(cut.schema_ids)):
            return False
        tables = {load.table for load in loads}
        return cut.phase is not LoadPhase.BEGIN or (
            cut.table not in tables and len(tables) < _MOST_TABLES
        )

    @property
    def is_full(self) -> bool:
        """Say whether no commit may come to those that are there."""
        return self._strict or self._runs[-1].has_ddl or self._rows >= self._limit

    def end_loads(self) -> Iterator[Segment]:
        """Give the segment, if it is one of loads."""
        if self._loads:
            yield from self.end()

    def end(self) -> Iterator[Segment]:
        """Give the segment, if there is one, and begin another."""
        runs, loads = self._runs, self._loads
        self._runs, self._loads = [], []
        if runs:
            yield _pack(self._after, runs)
        if loads:
            yield Segment(
                loads[-1],
                self._after,
                self._upto,
                rows=self._rows,
                ranges=_joined(r for load in loads for r in load.ranges),
                loads=tuple(loads),
            )

    def _open(self, at: Ledger, rows: int, schema_ids: Mapping[str, tuple[int, ...]]) -> None:
        """Count on `rows` by these schemas, and on what waits behind them."""
        if self._runs or self._loads:
            self._limit = min(self._limit, self._limit_of(schema_ids))
            return
        if not self._strict:
            self._coming.look(self._sizes.lookahead)
        self._after, self._rows, self._waiting = at, 0, rows + self._coming.rows
        self._limit = self._limit_of(schema_ids)

    def _limit_of(self, schema_ids: Mapping[str, tuple[int, ...]]) -> int:
        return self._sizes.limit(self._waiting, schema_ids)


class _Coming:
    """Accepted records, some of them looked at before their turn: what waits behind the first."""

    def __init__(self, accepted: Iterable[tuple[int, Cut]]) -> None:
        self._accepted = iter(accepted)
        self._seen: deque[tuple[int, Cut]] = deque()
        self._error: ApplyError | None = None  # comes behind what was seen
        self._is_over = False
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
        if self._is_over:
            return False
        try:
            record = next(self._accepted, None)
        except ApplyError as error:
            self._error, record = error, None
        if record is None:
            self._is_over = True
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
    ranges = _joined(r for segment in several for r in segment.ranges)
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
        holes=tuple(gap for segment in several for gap in segment.holes),
    )


def check_complete(segment: Segment, content: Rows) -> None:
    """Raise Incomplete unless `content` is exactly what the segment's cut promises.

    For every commit the ordinals 0..rows-1, DDL and TRUNCATE included; a TRUNCATE may
    stand in several partitions under one ordinal.  For loads, the number of rows of each table.
    """
    if segment.loads:
        _check_loads(segment, content)
        return
    ticks = _Ticks(segment)
    for changes in content.changes.values():
        if is_packed(changes):
            ticks.take_packed(changes)
        else:
            ticks.take(changes)
    ticks.take(content.ddl)
    ticks.check()


def chunk_rows(segment: Segment) -> dict[TableId, int]:
    """Rows that a segment of loads brings to each table."""
    rows: dict[TableId, int] = {}
    for load in segment.loads:
        if load.phase is LoadPhase.CHUNK:
            rows[load.table] = rows.get(load.table, 0) + load.rows
    return rows


def _check_loads(segment: Segment, content: Rows) -> None:
    rows = chunk_rows(segment)
    found = {table: len(changes) for table, changes in content.changes.items() if len(changes)}
    for table in rows.keys() | found.keys():
        there, promised = found.get(table, 0), rows.get(table, 0)
        if there != promised:
            what = f"{there} of {promised} rows of a load"
            raise _incomplete(segment, what, table=table)
    shapes = segment.rows - sum(rows.values())
    if shapes not in (0, len(content.ddl)):  # BEGIN need not count its own
        raise _incomplete(segment, f"{len(content.ddl)} of {shapes} shapes of loads")


class _Ticks:
    """A tick for each ordinal of each commit of a segment."""

    def __init__(self, segment: Segment) -> None:
        self._segment, self._first = segment, segment.commit_rows.first
        self._places = segment.commit_rows.places()
        self._bytes = self._places.tobytes()
        self._ticks = bytearray(self._places[-1])

    def take_packed(self, changes: PackedRows) -> None:
        """Tick what is there; raises Incomplete for what has no place, or is there twice."""
        if (unfit := changes.tick(self._first, self._bytes, self._ticks)) >= 0:
            self._take(changes[unfit])  # raises

    def take(self, changes: Sequence[Change | SchemaChange]) -> None:
        """Tick what is there; raises Incomplete for what has no place, or is there twice."""
        for change in changes:
            self._take(change)

    def check(self) -> None:
        """Raise Incomplete where one is missing."""
        if (missing := self._ticks.find(0)) < 0:
            return
        commit = bisect_right(self._places, missing) - 1
        of = self._ticks[self._places[commit] : self._places[commit + 1]]
        raise _incomplete(
            self._segment,
            f"{of.count(0)} of {len(of)} rows are missing",
            seq=self._first + commit,
        )

    def _take(self, change: Change | SchemaChange) -> None:
        seq, ordinal = change.seq, change.ordinal
        if not 0 <= ordinal < self._segment.commit_rows.get(seq, 0):
            raise _incomplete(
                self._segment,
                "a record that is not of this commit stands in its range",
                seq=seq,
                ordinal=ordinal,
            )
        place = self._places[seq - self._first] + ordinal
        if self._ticks[place] and not (isinstance(change, Change) and change.op == "t"):
            raise _incomplete(self._segment, "a row is there twice", seq=seq, ordinal=ordinal)
        self._ticks[place] = 1


def _incomplete(segment: Segment, what: str, **where: object) -> Incomplete:
    return Incomplete(
        what,
        hint=f"if it stays, the topic and the cuts differ: {LOAD_AGAIN}",
        n=segment.cut.head.n,
        **where,
    )


class _CommitsRecord:
    """A COMMITS record as it is taken, commit by commit, by columns: it may have thousands."""

    def __init__(self, ledger: Ledger, offset: int, cut: Commits) -> None:
        """`ledger` may have its first commits already; raises CutsGap."""
        _follows(ledger, offset, cut.head, epoch=True)
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
        if ledger.seq >= first:
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

    def fitting(self, rows: int, max_rows: int, *, strict: bool, is_begun: bool) -> int:
        """Return the index after the last commit that fits behind so many rows.

        The first one of a segment always fits; one with DDL, and with `strict` any, stands alone.
        """
        at = self.at
        if strict or rows >= max_rows:
            return at if is_begun else at + 1
        barrier = next((place for place in self._barriers if place >= at), self._size)
        end = self._columns.fitting(at, barrier, max_rows - rows)
        return end if is_begun else max(end, at + 1)

    def take(self, end: int, ledger: Ledger) -> _Run:
        """Take the commits up to an index; `ledger` is what holds before them."""
        first, cut = self.at, self._cut
        special = [self._special[at] for at in sorted(self._special) if first <= at < end]
        holes = tuple(gap for entry in special for gap in entry.holes)
        ends = self._ends(end)
        ranges = tuple(
            Range(r.topic, r.partition, *own)
            for r, *own in zip(cut.ranges, self._starts, ends, strict=True)
        )
        self.at, self._starts = end, ends
        return _Run(
            cut,
            first,
            end,
            ranges,
            self._columns.rows(first, end),
            self._columns.total(first, end),
            holes,
            any(entry.ddl for entry in special),
            self._after(ledger, end - 1, holes),
        )

    def _after(self, ledger: Ledger, at: int, holes: Sequence[Hole]) -> Ledger:
        """Return the ledger after a commit."""
        head, seq = self._cut.head, self._columns.first + at
        csn, commit_lsn, committed_at = self._columns.place(at)
        inexact = {**ledger.inexact, **{gap.table: f"{gap.kind}: {gap.why}" for gap in holes}}
        is_last = at == self._size - 1
        return replace(
            ledger,
            seq=seq,
            csn=csn,
            commit_lsn=commit_lsn,
            committed_at=committed_at,
            inexact=inexact,
            state=_state(inexact),
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


def _pack(after: Ledger, runs: list[_Run]) -> Segment:
    """Join consecutive commits into one segment."""
    ranges = _joined(r for run in runs for r in run.ranges)
    ids = joined_ids(run.cut.schema_ids for run in runs)
    return Segment(
        cut=Commits(runs[-1].cut.head, (), ranges, ids),
        after=after,
        upto=runs[-1].upto,
        first_seq=after.seq + 1,
        last_seq=runs[-1].upto.seq,
        rows=sum(run.rows for run in runs),
        ranges=ranges,
        commit_rows=CommitRows.of(after.seq + 1, (run.commit_rows for run in runs)),
        is_barrier=any(run.has_ddl for run in runs),
        holes=tuple(gap for run in runs for gap in run.holes),
    )


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
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


def _begins(cut: Cut) -> bool:
    """Say whether an empty target may begin here: at the first epoch, or one that loads."""
    return isinstance(cut, Start) and (cut.head.n == 1 or reloads(cut))


def starts_anew(ledger: Ledger, accepted: Iterable[tuple[int, Cut]]) -> tuple[int, Start] | None:
    """Find the newest START with which everything is loaded again, whatever is before it."""
    found = None
    for offset, cut in accepted:
        if isinstance(cut, Start) and _is_new(ledger, cut):
            found = offset, cut
    return found


def _is_new(at: Ledger, cut: Cut) -> bool:
    """Say whether everything is loaded again from here on, whatever the target missed."""
    return reloads(cut) and cut.head.epoch > at.epoch


def _follows(at: Ledger, offset: int, head: Head, *, epoch: bool = False) -> None:
    if head.n != at.n + 1 or (epoch and head.epoch != at.epoch):
        raise CutsGap(
            "cuts do not continue what the target holds",
            n=head.n,
            expected=at.n + 1,
            epoch=head.epoch,
            offset=offset,
            hint=f"cuts expired or were lost: {LOAD_AGAIN}",
        )


def _started(at: Ledger, offset: int, cut: Start) -> Ledger:
    head = cut.head
    if not _is_new(at, cut):
        _same_place(at, cut)
    inexact, known = at.inexact, at.topics
    if head.epoch != at.epoch:
        place = (at.epoch, at.seq, at.n)
        if at.epoch and cut.prev != place and not _is_new(at, cut):
            raise CutsGap(
                "an epoch does not begin where the target stands", prev=cut.prev, at=place
            )
        if not cut.continues:
            inexact, known = dict.fromkeys(_tables(at.source, cut), NOT_LOADED), {}
    elif head.last_seq != at.seq:
        raise CutsGap("a takeover knows other commits", last_seq=head.last_seq, known=at.seq)
    return replace(
        at,
        epoch=head.epoch,
        n=head.n,
        seq=head.last_seq,
        writer=head.writer,
        instance=head.instance,
        next_offset=offset + 1,
        cluster_id=cut.cluster_id,
        topics=_topic_ids(known, cut),
        inexact=inexact,
        state=_state(inexact),
        resume=head.resume,
    )


def _stated(at: Ledger, cut: State) -> Ledger:
    """Topics made since START become known; the next step carries them into the ledger."""
    _same_place(at, cut)
    return replace(at, topics=_topic_ids(at.topics, cut))


def _loaded(at: Ledger, offset: int, cut: TableLoad) -> Ledger:
    table = str(cut.table)
    inexact = dict(at.inexact)
    match cut.phase:
        case LoadPhase.BEGIN | LoadPhase.CHUNK:
            inexact[table] = "loading"
        case LoadPhase.END:
            inexact.pop(table, None)
            inexact.pop(Topics(at.source).table(cut.table), None)
            if cut.lossy is not None:
                inexact[table] = f"seen: {cut.lossy}"
    return replace(
        at,
        n=cut.head.n,
        next_offset=offset + 1,
        inexact=inexact,
        state=_state(inexact),
        resume=max(at.resume, cut.head.resume),
    )


def _state(inexact: Mapping[str, str]) -> str:
    return LOADING if inexact else EXACT


def _tables(source: str, cut: State) -> Iterator[str]:
    """Tables that an epoch begins without: those it loads; without a load, all it ever names.

    A topic whose name has no way back stands for itself.
    """
    if cut.loads:
        yield from cut.loads
        return
    names = Topics(source)
    control = {names.cuts, names.ddl, names.transaction, names.message, names.quarantine}
    for topic in cut.topics:
        if topic not in control:
            table = names.table_of(topic)
            yield topic if table is None else str(table)


def _same_place(at: Ledger, cut: State) -> None:
    """Offsets mean something in one cluster and one life of a topic only."""
    hint = f"offsets of another cluster mean nothing here: {LOAD_AGAIN}"
    if at.cluster_id and cut.cluster_id != at.cluster_id:
        raise LedgerForeign(
            "the cuts are of another Kafka cluster than the target's",
            hint=hint,
            ours=at.cluster_id,
            theirs=cut.cluster_id,
        )


def _topic_ids(before: Mapping[str, str], cut: State) -> dict[str, str]:
    new = {name: topic.id for name, topic in cut.topics.items()}
    for name, known in before.items():
        if known and new.get(name, known) != known:
            raise LedgerForeign(
                "a topic was deleted and made again",
                hint=f"what stood in it is lost: {LOAD_AGAIN}",
                topic=name,
            )
    return {**before, **new}
