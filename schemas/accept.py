"""Which records of `<prefix>.cuts` count: the one acceptance function.

The producer replays the topic when it starts, a reader all the time.  The broker's
fence makes records of an overtaken writer impossible; this function is the second
line of defence: an unexpected record is ignored and counted, and a missing record
stops the replay.

    none    --START/STATE-->  accepted as it is, everything before is skipped
    cur     --START-->        writer greater than cur: taken over; else ignored
    cur     --other-->        of cur: checked; of an older writer: ignored;
                              of a newer writer: its START is missing, a gap

START, COMMITS and TABLE carry the known n + 1; HEARTBEAT and STATE repeat it.
Commits at or before the known `seq` were delivered before and are only compared.

Everybody who may write to the topic can write records that look like ours, so only
its ACLs make it trustworthy.  Records that can be distinguished do no harm:

    foreign         cannot be decoded, or has another key: skipped, an alarm
    does not follow refused, and suspected: the log goes on, and ends with CutGap
                    unless cur goes on behind it as if it were not there.  Then it was
                    not lost but written by another client: n has no gap without it
    new history     a START that begins an epoch which loads all tables (`reloads`)
                    does not depend on earlier records: it ends any gap
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias, assert_never

from schemas.control import (
    Commits,
    Cut,
    Head,
    Heartbeat,
    Looked,
    NewerFormat,
    Range,
    Start,
    State,
    TableLoad,
    are_loading,
    greatest_csn,
    identities_of,
    note_load,
)
from schemas.positions import NOWHERE, Lsn, lsn_text


class CutGap(ValueError):
    """A record of cuts is missing: something was lost."""


class CutIdentity(ValueError):
    """One seq names two different source transactions."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A record in a control topic that, by its bytes, is not ours."""

    why: str
    is_newer: bool = False  # of a later release's format: must not be skipped silently


Record: TypeAlias = Cut | Foreign


def judge(
    key: bytes | None, value: bytes | None, *, source: str, read: Callable[[bytes], Cut]
) -> Record:
    """Read a record of `<prefix>.cuts`; `source` is the prefix, the key of all of ours.

    `read` raises ValueError for an undecodable record and for one of another schema; its other
    errors are the registry's.  The reasons contain nothing of the record's content.

    >>> judge(b"other", b"", source="bank", read=lambda value: None)
    Foreign(why='its key is not the prefix', is_newer=False)
    """
    if key != source.encode():
        return Foreign("its key is not the prefix")
    if value is None:
        return Foreign("it has no value")
    try:
        return read(value)
    except NewerFormat as error:
        return Foreign(str(error), is_newer=True)
    except ValueError:
        return Foreign(f"{len(value)} bytes are not a record of cuts")


@dataclass(slots=True)
class CutReplay:
    """What a reader knows after the records so far; `accept` moves it by one."""

    n: int = 0
    epoch: int = 0
    seq: int = 0
    resume: Lsn = NOWHERE
    writer: int = 0
    instance: str | None = None  # None: none yet
    state: State | None = None  # newest accepted START or STATE
    loads: dict[str, str] = field(default_factory=dict)  # schema.table -> phase, of this epoch
    upto: dict[str, str] = field(default_factory=dict)  # schema.table -> how far its load is
    targeted: dict[str, str] = field(default_factory=dict)  # the same, of loads for one target
    looked: Looked | None = None  # the source's catalog as it was compared with the stream last
    # seq -> (commit_start, xid)
    known: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)  # partition -> end of our rows
    csn: int = 0  # the newest of this epoch's commits, as far as they were read
    alarms: int = 0  # records that no producer of ours can have written here
    alarm: str = ""  # the newest of them
    suspect: CutGap | CutIdentity | None = None  # why the replay stops, if it stays
    greatest: int = 0  # epoch of all records, those that do not count, too: a reader may be in it

    @classmethod
    def from_nobody(cls) -> Self:
        """Begin at the log's start, or at the offset named by a `state_from`."""
        return cls()

    @classmethod
    def resumed(
        cls, *, n: int, epoch: int, seq: int, writer: int, instance: str, resume: Lsn = NOWHERE
    ) -> Self:
        """Go on where a ledger stands; `resume` NOWHERE: it is not known, and not compared."""
        return cls(n=n, epoch=epoch, seq=seq, writer=writer, instance=instance, resume=resume)

    @classmethod
    def behind(cls, head: Head) -> Self:
        """Go on behind a record that counts."""
        replay = cls()
        replay._stand(head)
        return replay

    def accept(self, offset: int, cut: Record) -> Cut | None:
        """Return `cut` if it counts, None if it is to be ignored; raise CutGap or CutIdentity.

        A COMMITS record that counts may begin at or before the `seq` known until then: only its
        later commits are new.  After an error the caller may continue with the next record; what is
        in `suspect` at the log's end remains an error.  `offset` is for messages.
        """
        if isinstance(cut, Foreign):
            if not cut.is_newer:
                self._alarm(offset, cut.why)
                return None
            self.suspect = self.suspect or CutGap(f"offset {offset}: {cut.why}")
            raise self.suspect
        self.greatest = max(self.greatest, cut.head.epoch)
        try:
            counts = self._accept(offset, cut)
        except (CutGap, CutIdentity) as error:
            self.suspect = self.suspect or error
            raise
        if counts is not None and self.suspect is not None:
            if not reloads(cut):
                self._alarm(offset, f"not ours: {self.suspect}")
            self.suspect = None
        return counts

    def follow(self, offset: int, cut: Record) -> Cut | None:
        """Accept, and continue after a record that does not follow: it stays in `suspect`.

        None: it does not count.
        """
        try:
            return self.accept(offset, cut)
        except (CutGap, CutIdentity):
            return None

    def _alarm(self, offset: int, why: str) -> None:
        self.alarms += 1
        self.alarm = f"offset {offset}: {why}"

    def _accept(self, offset: int, cut: Cut) -> Cut | None:
        head = cut.head
        if self.instance is None:
            return self._begin(cut) if isinstance(cut, State) else None
        if isinstance(cut, Start):
            if reloads(cut) and head.epoch > self.epoch:
                self.known, self.ends, self.csn = {}, {}, 0
                return self._begin(cut)
            return self._take_over(offset, cut) if head.writer > self.writer else None
        if (head.writer, head.instance) != (self.writer, self.instance):
            if head.writer > self.writer:
                raise CutGap(f"offset {offset}: the START of writer {head.writer} is missing")
            self._alarm(offset, f"writer {head.writer} was overtaken by {self.writer}")
            return None
        if head.epoch != self.epoch:
            raise CutGap(
                f"offset {offset}: epoch {head.epoch} without its START, known {self.epoch}"
            )
        match cut:
            case Commits():
                return self._commits(offset, cut)
            case TableLoad():
                self._counted(offset, head)
                note_load(cut, self.loads, self.upto, self.targeted)
                if cut.looked is not None and self.looked is not None:
                    self.looked = self.looked.with_table(cut.looked)
                self._reach(cut.ranges)
            case State():
                self._repeated(offset, head)
                self._take_state(cut)
            case Heartbeat():
                self._repeated(offset, head)
            case _:
                assert_never(cut)
        self.resume = max(self.resume, head.resume)
        return cut

    @property
    def notes_loads(self) -> bool:
        """Say whether this epoch loads what comes, as `State.notes_loads`."""
        return bool(self.loads) or (self.state is not None and self.state.notes_loads)

    def is_loading(self) -> bool:
        """Say whether a table of this epoch was begun and not ended."""
        return are_loading(self.loads)

    def _stand(self, head: Head) -> None:
        self.n, self.epoch, self.seq, self.resume = head.n, head.epoch, head.last_seq, head.resume
        self.writer, self.instance = head.writer, head.instance

    def _begin(self, cut: State) -> Cut:
        self._stand(cut.head)
        self._take_state(cut)
        return cut

    def _take_state(self, cut: State) -> None:
        self.state, self.looked = cut, cut.looked
        self.loads, self.upto = dict(cut.loads), dict(cut.upto)
        self.targeted = dict(cut.targeted)

    def _take_over(self, offset: int, cut: Start) -> Cut:
        head = cut.head
        self._counted(offset, head, move=False)
        if head.writer != self.writer + 1:  # each START counts: it cannot have been the next one
            raise CutGap(f"offset {offset}: START of writer {head.writer} after {self.writer}")
        if head.epoch != self.epoch:
            if cut.prev != (self.epoch, self.seq, self.n):
                known = (self.epoch, self.seq, self.n)
                raise CutGap(f"offset {offset}: epoch {head.epoch} follows {cut.prev}, not {known}")
            self.known, self.ends, self.csn = {}, {}, 0
        elif head.last_seq != self.seq or (self.resume and head.resume != self.resume):
            raise CutGap(
                f"offset {offset}: START knows seq {head.last_seq} resume {lsn_text(head.resume)}, "
                f"accepted are seq {self.seq} resume {lsn_text(self.resume)}"
            )
        return self._begin(cut)

    def _commits(self, offset: int, cut: Commits) -> Cut | None:
        mine = identities_of(cut.commits)
        seqs = list(mine)
        is_whole = len(seqs) == len(cut.commits)  # no seq twice
        if not seqs or not is_whole or seqs != list(range(seqs[0], cut.head.last_seq + 1)):
            raise CutGap(f"offset {offset}: commits {seqs} up to seq {cut.head.last_seq}")
        first, last = seqs[0], seqs[-1]
        for seq in range(first, min(last, self.seq) + 1):
            if self.known.get(seq, mine[seq]) != mine[seq]:
                raise CutIdentity(f"offset {offset}: seq {seq} is two transactions")
        if last <= self.seq:
            return None
        self._counted(offset, cut.head, move=False)
        if first > self.seq + 1:
            raise CutGap(f"offset {offset}: commits begin at seq {first}, known is {self.seq}")
        self.n, self.seq = cut.head.n, last
        self.known = mine
        self.resume = max(self.resume, cut.head.resume)
        self.csn = max(self.csn, greatest_csn(cut.commits))
        self._reach(cut.ranges)
        return cut

    def _reach(self, ranges: tuple[Range, ...]) -> None:
        for r in ranges:
            self.ends[r.topic, r.partition] = r.end

    def _counted(self, offset: int, head: Head, *, move: bool = True) -> None:
        if head.n != self.n + 1:
            raise CutGap(f"offset {offset}: n is {head.n}, expected {self.n + 1}")
        if move:
            self.n = head.n

    def _repeated(self, offset: int, head: Head) -> None:
        if head.n != self.n:
            raise CutGap(f"offset {offset}: n is {head.n}, known is {self.n}")


def counts(cut: Cut) -> bool:
    """Say whether a record carries the next `n`, rather than that of the one before it."""
    return isinstance(cut, Commits | TableLoad | Start)


def reloads(cut: Cut) -> bool:
    """Say whether a record begins an epoch that loads all tables, whatever came before it."""
    return isinstance(cut, Start) and cut.prev is not None and cut.continues is False


Records = list[tuple[int, Record]]
_NEAR: Final = 256  # offsets
_FEW: Final = 64  # of these: a record may name thousands of commits


def backwards(
    read: Callable[[int, int], Records],
    start: int,
    end: int,
    n: int,
    *,
    writer: int,
    instance: str | None = None,
) -> Iterator[tuple[int, Cut]]:
    """Yield the records in [start, end) that count, the newest first, whose `n` is given.

    `writer`: of the newest; `instance`: its name, None where that is not known.  Records that do
    not count are passed over: one that a stranger wrote says of an earlier place what is not true
    of this one, and a START of theirs would take the number of ours.

    `read`: see `replay_tail`.
    """
    for high in range(end, start, -_FEW):
        for offset, cut in reversed(read(max(start, high - _FEW), high)):
            if isinstance(cut, Foreign) or (cut.head.n, cut.head.writer) != (n, writer):
                continue
            if instance not in {None, cut.head.instance}:
                continue
            instance = cut.head.instance
            if isinstance(cut, Start):
                writer, instance = writer - 1, None
            n -= counts(cut)
            yield offset, cut


def replay_tail(read: Callable[[int, int], Records], start: int, end: int) -> CutReplay | None:
    """Find what is known at the log's end.

    Walks from the `state_from` of the newest record that counts; its `suspect` says what at
    the end does not follow.

    `read(low, high)` returns the committed records of cuts in [low, high); `start` is the log's
    start, `end` its LSO.  The last offset is usually a marker, so the tail is looked for backwards
    in windows that double.  None: nothing is committed there.

    A START or STATE must follow the record before it, or the replay begins at an older one: taken
    without that, a forged one would count.  Where none follows, the newest is taken.
    """
    return _tail(read, start, end, is_strict=True) or _tail(read, start, end, is_strict=False)


def _tail(
    read: Callable[[int, int], Records], start: int, end: int, *, is_strict: bool
) -> CutReplay | None:
    window, looked = _NEAR, end
    passed: set[int] = set()  # offsets of no START or STATE, or of one that follows nothing
    while True:
        low = max(start, end - window)
        records = read(low, end)
        for offset, cut in reversed(records):
            if offset >= looked or isinstance(cut, Foreign):
                continue
            base = offset if cut.head.state_from < 0 else cut.head.state_from
            if base < start or base in passed:
                continue
            replayed = records if base >= low else _from_state(read, base, end)
            first = next((record for at, record in replayed if at == base), None)
            is_first = isinstance(first, State)
            if not is_first or (is_strict and not _is_linked(read, start, base, replayed)):
                passed.add(base)
                continue
            replay, counts = CutReplay.from_nobody(), False
            for at, record in replayed:
                if at >= base and replay.follow(at, record) is not None:
                    counts = counts or at == offset
            if counts:
                return replay
        if low == start:
            return None
        window, looked = window * 2, low


def _from_state(read: Callable[[int, int], Records], base: int, end: int) -> Records:
    """Read from a START or STATE on; nothing where there is none."""
    is_there = any(isinstance(record, State) for _, record in read(base, base + 1))
    return read(base, end) if is_there else []


def _is_linked(
    read: Callable[[int, int], Records], start: int, base: int, replayed: Records
) -> bool:
    """Say whether the START or STATE at `base` follows what stands before it, if that is near."""
    low = max(start, base - _NEAR)
    before = [(at, record) for at, record in replayed if low <= at < base]
    if not before and base > low:
        before = read(low, base)
    replay = CutReplay.from_nobody()
    if low and (oldest := next((r for _, r in before if not isinstance(r, Foreign)), None)):
        replay = CutReplay.behind(oldest.head)
    for at, record in before:
        replay.follow(at, record)
    return any(replay.follow(at, record) is not None for at, record in replayed if at == base)
