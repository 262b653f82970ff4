"""What cuts say of the commits from a position on: the one half of `redelivery`.

The log is looked back through to the newest record whose `resume` is at or before the position, and
read forward from there, some records at a time.  Which tables are exact at a record is known by
what their loads are at the end of the log, and by what was said of them since.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Final

from producer.core.stream.redelivery import Delivered, DeliveredPart, differs
from producer.errors import CutsBroken, GroupUnusable, HistoryDiffers
from schemas.accept import CutReplay, Records, backwards
from schemas.control import (
    ANY,
    GAP,
    CommitEntry,
    Commits,
    Cut,
    Head,
    LoadPhase,
    Start,
    State,
    TableLoad,
    is_for_all,
)
from schemas.errors import LOAD_AGAIN
from schemas.positions import Lsn, lsn_text
from schemas.tables import TableId
from schemas.topics import rewritten

_WINDOW: Final = 64  # offsets of cuts that are read at once: up to 64,000 commits
_ENDLESS: Final = Lsn(1 << 64)


@dataclass(slots=True)
class _Range:
    """The records of cuts from a position on."""

    offset: int  # of the first one
    head: Head | None = None
    is_whole: bool = False  # it begins before the position
    changed: set[str] = field(default_factory=set)  # tables whose load changed its phase
    gaps: set[str] = field(default_factory=set)  # tables that had one
    ends: dict[int, Lsn] = field(default_factory=dict)  # epoch -> where another one goes on
    described: int = -1  # offset of the newest commits with a schema change


def delivered(
    read: Callable[[int, int], Records],
    start: Callable[[], int],
    end: int,
    *,
    head: Head,
    loads: Mapping[str, str],
    confirmed: Lsn,
    topics: Mapping[TableId, str],
    note: Callable[[str], None],
    has_triggers: bool = False,
    keeps_confirmed: bool = False,
    is_sent: Callable[[str], bool] | None = None,
) -> Iterator[DeliveredPart]:
    """Read what was delivered of the commits from `confirmed` on, lazily.

    `read(low, high)` returns the committed records of cuts in [low, high).  `start` returns the
    log's start, `end` is the offset of a START with `head` and `loads`, up to which is read.
    `has_triggers`: a commit of nothing but schema changes has a row in the stream, too.
    `keeps_confirmed`: a slot stands at the `resume` of a record, or somebody else made or moved
    it, and what was delivered before is not sent again: HistoryDiffers.
    `is_sent`: of which topics all rows that were delivered are sent again, whatever their tables
    are called now; None: of tables that are delivered now, and had no gap.
    Raises GroupUnusable where retention takes records before they are compared: the next start
    begins behind them, and says so.
    """
    found = _look_back(read, start(), end, head=head, loads=loads, confirmed=confirmed)
    first = found.head or head
    if keeps_confirmed and found.is_whole and first.resume != confirmed:
        raise HistoryDiffers(
            "the slot stands where no `run` left it: somebody else made or advanced it, and commits"
            " before it are not compared with those that were delivered",
            lsn=lsn_text(confirmed),
            before=lsn_text(first.resume),
            hint=LOAD_AGAIN,
        )
    if not found.is_whole:
        note(
            "retention removed records of cuts: of what the source sends again, only what begins at"
            f" {lsn_text(first.resume)} or later is compared with what was delivered"
        )
    exact = _ExactTables(found, loads, topics, has_triggers=has_triggers, is_sent=is_sent)
    names = _NamesOfThen(
        cache(partial(_names_at, read, start, found)), is_known=is_sent is not None
    )
    records = _behind(first, read, start, range(found.offset + 1, end), upto=head.n)
    return _parts(records, first, found, exact, names)


def recent(
    read: Callable[[int, int], Records], start: int, end: int, *, head: Head, since: Lsn
) -> Iterator[Cut]:
    """Read the records behind `since`, the newest first, before a START with `head` at `end`."""
    for _, cut in backwards(read, start, end, head.n - 1, writer=head.writer - 1):
        if cut.head.resume <= since:
            return
        yield cut


def _look_back(
    read: Callable[[int, int], Records],
    start: int,
    end: int,
    *,
    head: Head,
    loads: Mapping[str, str],
    confirmed: Lsn,
) -> _Range:
    """Find the newest record with a `resume` of at most `confirmed`; what is behind it is new.

    An epoch that continues goes on at the switch point: what the one before it delivered of later
    commits is the lost tail, and not sent by anybody.
    """
    found, epoch, opened = _Range(end - 1), head.epoch, head.resume
    _note(found, loads, loads)
    for offset, cut in backwards(read, start, end, head.n - 1, writer=head.writer - 1):
        if cut.head.epoch != epoch:
            epoch = cut.head.epoch
            found.ends[epoch] = opened
        found.offset, found.head = offset, cut.head
        found.is_whole = cut.head.resume <= confirmed
        if isinstance(cut, State):
            _note(found, cut.loads, loads)
        elif isinstance(cut, Commits):
            if found.described < 0 and any(commit.ddl for commit in cut.commits):
                found.described = offset
        elif isinstance(cut, TableLoad) and is_for_all(cut) and not found.is_whole:
            found.changed.add(str(cut.table))
        if found.is_whole:
            break
        if isinstance(cut, Start):
            opened = cut.head.resume
            if cut.reason is not None and not cut.continues:
                raise differs("the slot is older than its load", confirmed, load=lsn_text(opened))
    return found


def _names_at(
    read: Callable[[int, int], Records], start: Callable[[], int], found: _Range
) -> frozenset[str]:
    """Texts of the tables that are exact behind the first record, by the STATE before it.

    It may be an hour back, so this is asked only of a transaction that was not delivered.
    """
    said: dict[str, bool] = {}
    if (head := found.head) is None:
        return frozenset()
    records = backwards(read, start(), found.offset + 1, head.n, writer=head.writer)
    for _, cut in records:
        if (more := _said(cut)) is None:
            break
        said = {**more, **said}
        if isinstance(cut, State):
            return _exact_of(said)
    return frozenset()


def _said(cut: Cut) -> Mapping[str, bool] | None:
    """Say of tables whether they are exact behind a record; None: any may have another name."""
    match cut:
        case State(loads=loads):
            return {name: phase == LoadPhase.END for name, phase in loads.items()}
        case TableLoad(table=table, phase=phase) if is_for_all(cut):
            return {str(table): phase is LoadPhase.END}
        case Commits(commits=commits):
            lost = {hole.table: False for commit in commits for hole in commit.holes}
            return None if ANY in lost or any(commit.ddl for commit in commits) else lost
        case _:
            return {}


def _exact_of(said: Mapping[str, bool]) -> frozenset[str]:
    return frozenset(name for name, is_exact in said.items() if is_exact)


def _in_both(names: _NamesOfThen, behind: _NamesOfThen) -> frozenset[str]:
    return names() & behind()


def _note(found: _Range, loads: Mapping[str, str], at_the_end: Mapping[str, str]) -> None:
    found.changed.update(name for name, _ in loads.items() ^ at_the_end.items())
    found.gaps.update(name for name, phase in loads.items() if phase == GAP)


def _parts(
    records: Iterable[tuple[int, int, Cut]],
    first: Head,
    found: _Range,
    exact: _ExactTables,
    names: _NamesOfThen,
) -> Iterator[DeliveredPart]:
    """Go forward through the records behind the first one; `names`: behind that one."""
    ends = found.ends
    yield DeliveredPart(min(first.resume, ends.get(first.epoch, first.resume)), (), ())
    for offset, seq, cut in records:
        upto = ends.get(cut.head.epoch, _ENDLESS)
        commits = exact.commits(cut, seq, upto) if isinstance(cut, Commits) else ()
        names_hold = offset > found.described
        behind = names.behind(cut)
        sure = partial(_in_both, names, behind)
        yield DeliveredPart(min(cut.head.resume, upto), commits, exact.topics, names_hold, sure)
        names = behind
        exact.follow(cut)


def _behind(
    first: Head,
    read: Callable[[int, int], Records],
    start: Callable[[], int],
    offsets: range,
    *,
    upto: int,
) -> Iterator[tuple[int, int, Cut]]:
    """Yield (offset, `seq` before it, record) of each that counts, up to the START of `upto`."""
    replay = CutReplay.behind(first)
    for low in offsets[::_WINDOW]:
        for offset, record in read(low, min(low + _WINDOW, offsets.stop)):
            seq = replay.seq
            if (cut := replay.follow(offset, record)) is not None:
                yield offset, seq, cut
    if replay.suspect is None and replay.n >= upto - 1:
        return
    if start() > offsets.start:
        raise GroupUnusable("retention removed records of cuts before they were compared")
    why = replay.suspect or f"after n {replay.n} comes {upto}"
    raise CutsBroken(f"the records of cuts do not follow each other: {why}", hint=LOAD_AGAIN)


@dataclass(frozen=True, slots=True)
class _NamesOfThen:
    """Texts of the tables that are exact at a record, as they were called; asked for lazily."""

    before: Callable[[], frozenset[str]]
    since: Mapping[str, bool] = field(default_factory=dict)  # what records said of tables since
    is_known: bool = field(default=True, kw_only=True)  # not where rows are chosen by names of now

    def __call__(self) -> frozenset[str]:
        if not self.is_known:
            return frozenset()
        return _exact_of({**dict.fromkeys(self.before(), True), **self.since})

    def behind(self, cut: Cut) -> _NamesOfThen:
        """Return those behind a record."""
        said = _said(cut)
        if said is None or isinstance(cut, State):
            return replace(self, before=frozenset, since=said or {})
        return replace(self, since={**self.since, **said}) if said else self


class _ExactTables:
    """Which tables are exact at a record of cuts."""

    def __init__(
        self,
        found: _Range,
        loads: Mapping[str, str],
        topics: Mapping[TableId, str],
        *,
        has_triggers: bool,
        is_sent: Callable[[str], bool] | None,
    ) -> None:
        """`loads` are those at the end of the range.

        A table that is not in `loads` was made under a publication of all tables, or its epoch
        began without a load: it counts from its first row on.
        """
        named = {str(table): topic for table, topic in topics.items()}
        self._named = named.values()
        changed = {name: named[name] for name in found.changed & named.keys()}
        calm = {name: topic for name, topic in named.items() if name not in changed}
        self._changed = changed
        self._unnoted = {name: topic for name, topic in calm.items() if name not in loads}
        self._of_unnoted = {*self._unnoted.values()}
        # Of a gap's table nothing is certain: it may not be asked for any more.
        calm_now = {topic for name, topic in named.items() if name not in found.gaps}
        self._is_sent = is_sent or calm_now.__contains__
        self.topics = {t for name, t in calm.items() if loads.get(name) == LoadPhase.END}
        self._has_triggers = has_triggers

    def commits(self, cut: Commits, seq: int, upto: Lsn) -> list[Delivered]:
        """Return the commits behind `seq` that end at `upto` or before."""
        counts = [self._is_sent(r.topic) for r in cut.ranges]
        return [
            Delivered(c.commit_start, c.xid, c.committed_at, self._is_compared(c, counts))
            for c in cut.commits
            if c.seq > seq and (c.end_lsn or c.commit_start) <= upto
        ]

    def _is_compared(self, commit: CommitEntry, counts: Sequence[bool]) -> bool:
        if commit.ddl and len(commit.ddl) == sum(commit.counts.values()):  # and no rows
            # xid 0: the catalog showed it, and no transaction of the stream.
            return self._has_triggers and commit.xid != 0
        return any(counts[at] for at in commit.counts)

    def follow(self, cut: Cut) -> None:
        """Go behind a record."""
        match cut:
            case State():
                if isinstance(cut, Start):  # [tables] may be others from there on
                    self.topics -= self._of_unnoted
                changed = self._changed.items()
                self.topics -= {t for name, t in changed if cut.loads.get(name) != LoadPhase.END}
            case TableLoad(table=table, phase=phase) if is_for_all(cut):
                if (topic := self._changed.get(str(table))) is not None:
                    change = self.topics.add if phase is LoadPhase.END else self.topics.discard
                    change(topic)
            case Commits():
                self.topics |= self._of_unnoted & {r.topic for r in cut.ranges}
                holes = (hole.table for commit in cut.commits for hole in commit.holes)
                lost = {rewritten(text, self._named) for text in holes}
                of = self._unnoted.keys() if ANY in lost else self._unnoted.keys() & lost
                self.topics -= {self._unnoted[name] for name in of}
            case _:
                pass
