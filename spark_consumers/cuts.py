"""Cut records -> segments: which whole commits become one step of a target.

Pure.  `segments` takes what the acceptance function let through, in order, and
a ledger, and yields steps that follow each other without a gap:

    START     one step that moves only the ledger; a new epoch must name the
              place where the ledger stands as the end of the one before, unless it
              loads all tables: then it does not matter what the target missed
    TABLE     one step each: a load begins, brings a chunk, or ends
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.accept import reloads
from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    Head,
    Heartbeat,
    LoadPhase,
    Range,
    SchemaChange,
    Start,
    State,
    TableLoad,
)
from schemas.errors import LOAD_AGAIN
from schemas.topics import Topics
from spark_consumers.errors import CutsGap, Incomplete, LedgerForeign
from spark_consumers.model import Change, Ledger, Rows, Segment

EXACT = "EXACT"
LOADING = "LOADING"
NOT_LOADED = "not loaded"  # why a table is not exact that an epoch begins without


@dataclass(frozen=True, slots=True)
class _Part:
    """One commit with its own sub-ranges, and the ledger after it."""

    entry: CommitEntry
    ranges: tuple[Range, ...]  # consecutive offsets of this commit's records
    upto: Ledger
    head: Head
    schema_ids: dict[str, tuple[int, ...]]


def segments(
    ledger: Ledger,
    accepted: Iterable[tuple[int, Cut]],
    *,
    max_rows: int = 5_000,
    strict: bool = False,
) -> Iterator[Segment]:
    """Yield the steps that bring a target from `ledger` to the last of `accepted`.

    `accepted` are (offset in cuts, record) pairs from `ledger.next_offset` on.
    """
    at = at_first = ledger
    packed: list[_Part] = []
    rows = 0
    skipped = 0
    for offset, cut in accepted:
        if not at.instance and not _begins(cut):
            skipped += 1
            continue
        match cut:
            case Commits():
                for part in _parts(at, offset, cut):
                    alone = strict or bool(part.entry.ddl)
                    if packed and (alone or rows + part.entry.rows > max_rows):
                        yield _pack(at_first, packed)
                        packed, rows = [], 0
                    if not packed:
                        at_first = at
                    packed.append(part)
                    rows += part.entry.rows
                    at = part.upto
                    if alone or rows >= max_rows:
                        yield _pack(at_first, packed)
                        packed, rows = [], 0
            case Start() | TableLoad():
                if packed:
                    yield _pack(at_first, packed)
                    packed, rows = [], 0
                if at.instance and not _is_new(at, cut):
                    _follows(at, offset, cut.head)
                before = at
                if isinstance(cut, Start):
                    at = _started(at, offset, cut)
                    yield Segment(cut, before, at)
                else:
                    at = _loaded(at, offset, cut)
                    yield Segment(cut, before, at, rows=cut.rows, ranges=_joined(cut.ranges))
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
    if packed:
        yield _pack(at_first, packed)
    if skipped and not at.instance:
        raise CutsGap(
            "an empty target needs cuts from a beginning",
            hint=LOAD_AGAIN,
        )


def entries(segment: Segment) -> Sequence[CommitEntry]:
    """The source transactions of a segment; none for START and TABLE."""
    return segment.cut.commits if isinstance(segment.cut, Commits) else ()


def check_complete(segment: Segment, content: Rows) -> None:
    """Raise Incomplete unless `content` is exactly what the segment's cut promises.

    For every commit the ordinals 0..rows-1, DDL and TRUNCATE included; a TRUNCATE may
    stand in several partitions under one ordinal.  For a load, the number of rows.
    """
    if isinstance(segment.cut, TableLoad):
        found = sum(len(changes) for changes in content.changes.values())
        if segment.cut.rows not in (found, found + len(content.ddl)):
            raise _incomplete(segment, f"{found} of {segment.cut.rows} rows of a load")
        return
    seen = {seq: bytearray(rows) for seq, rows in segment.commit_rows.items()}
    for changes in content.changes.values():
        for change in changes:
            _tick(segment, seen, change)
    for ddl in content.ddl:
        _tick(segment, seen, ddl)
    for seq, ordinals in seen.items():
        if missing := ordinals.count(0):
            raise _incomplete(segment, f"{missing} of {len(ordinals)} rows are missing", seq=seq)


def _tick(segment: Segment, seen: dict[int, bytearray], change: Change | SchemaChange) -> None:
    ordinals = seen.get(change.seq)
    if ordinals is None or not 0 <= change.ordinal < len(ordinals):
        raise _incomplete(
            segment,
            "a record that is not of this commit stands in its range",
            seq=change.seq,
            ordinal=change.ordinal,
        )
    if ordinals[change.ordinal] and not (isinstance(change, Change) and change.op == "t"):
        raise _incomplete(segment, "a row is there twice", seq=change.seq, ordinal=change.ordinal)
    ordinals[change.ordinal] = 1


def _incomplete(segment: Segment, what: str, **where: object) -> Incomplete:
    return Incomplete(
        what,
        hint=f"if it stays, the topic and the cuts differ: {LOAD_AGAIN}",
        n=segment.cut.head.n,
        **where,
    )


def _parts(at: Ledger, offset: int, cut: Commits) -> Iterator[_Part]:
    """The commits of one record that the ledger does not have yet."""
    _follows(at, offset, cut.head, epoch=True)
    first, last = cut.commits[0].seq, cut.commits[-1].seq
    if first > at.seq + 1 or [e.seq for e in cut.commits] != list(range(first, last + 1)):
        raise CutsGap("commits are missing in cuts", first=first, known=at.seq, offset=offset)
    cursor = [r.start for r in cut.ranges]
    split: list[tuple[CommitEntry, tuple[Range, ...]]] = []
    for entry in cut.commits:
        mine = []
        for index, count in sorted(entry.counts.items()):
            whole = cut.ranges[index]
            mine.append(Range(whole.topic, whole.partition, cursor[index], cursor[index] + count))
            cursor[index] += count
        if sum(entry.counts.values()) < entry.rows:
            raise CutsGap("a commit has more rows than its ranges", seq=entry.seq, offset=offset)
        split.append((entry, tuple(mine)))
    if cursor != [r.end for r in cut.ranges]:
        raise CutsGap("counts do not fill the ranges of a cut", n=cut.head.n, offset=offset)
    for entry, mine_of in split:
        if entry.seq <= at.seq:
            continue
        inexact = {**at.inexact, **{gap.table: f"{gap.kind}: {gap.why}" for gap in entry.holes}}
        at = replace(
            at,
            seq=entry.seq,
            csn=entry.csn,
            commit_lsn=entry.commit_start,
            committed_at=entry.committed_at,
            inexact=inexact,
            state=_state(inexact),
        )
        if entry.seq == last:
            at = replace(at, n=cut.head.n, next_offset=offset + 1, resume=cut.head.resume)
        else:
            at = replace(at, next_offset=offset)
        yield _Part(entry, mine_of, at, cut.head, dict(cut.schema_ids))


def _pack(after: Ledger, parts: list[_Part]) -> Segment:
    """Join consecutive commits into one segment, whose `cut` names exactly these."""
    ranges = _joined(r for part in parts for r in part.ranges)
    starts = [r[:3] for r in ranges]
    commits = []
    ids: dict[str, tuple[int, ...]] = {}
    for part in parts:
        counts: dict[int, int] = {}
        for r in part.ranges:
            index = bisect_right(starts, r[:3]) - 1
            counts[index] = counts.get(index, 0) + r.end - r.start
        commits.append(replace(part.entry, counts=counts))
        for topic, more in part.schema_ids.items():
            known = ids.get(topic, ())
            ids[topic] = known + tuple(i for i in more if i not in known)
    first, last = parts[0].entry, parts[-1].entry
    return Segment(
        cut=Commits(parts[-1].head, tuple(commits), ranges, ids),
        after=after,
        upto=parts[-1].upto,
        first_seq=first.seq,
        last_seq=last.seq,
        rows=sum(part.entry.rows for part in parts),
        ranges=ranges,
        commit_rows={part.entry.seq: part.entry.rows for part in parts},
        is_barrier=any(part.entry.ddl for part in parts),
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
