"""How a producer takes over: protocol section 2, "Start", as one pure procedure.

`take_over` is a generator: it yields the name of each step before it is done, or a wait, and
returns the writer's state.  Source and log of cuts are ports; `producer/start.py` passes real ones,
the simulation its own, and both may stop at any yield, as a crash does.  The steps, behind `lock`
and `look`, the newest record of cuts:

    an epoch goes on   take slot, compare, fence, compare again, write START
    an epoch begins    fence, look again, make slot, write START; then the load, and `take_slot`
    a slot is lost     compare, fence, compare again, make slot, write START, take slot

Why this order ([Hn]: the histories in the protocol):
- the lock, then the slot, then the fence: a producer is not fenced by one that cannot get its slot
  [H8];
- `confirmed_flush` is read when the slot is taken, before the high watermark that is waited for: a
  cut may be decided and confirmed before its marker is visible [H32];
- differences stop the start before anything is fenced: a misconfigured second `run` must not kill
  a healthy one;
- the tail is read again after the fence: nothing seen before is used later;
- a slot is made only by the session that holds the lock, after the fence, and only if the tail is
  still empty, or an epoch is still to begin [H33];
- a promoted server is gone on with only if it has all that was delivered [H17]
  (`core/takeover/promotion`): an epoch of its own, which continues.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from producer.core.delivery.engine import WriterState
from producer.core.events import Records
from producer.core.key_ranges import voided
from producer.core.takeover.comparison import (
    Log,
    Looking,
    Slot,
    TakeoverRequest,
    difference,
    is_same_content,
    other_source,
    place_of,
    preflight,
    slot_ahead,
)
from producer.errors import (
    CdcError,
    CutsBroken,
    GroupUnusable,
    TopicHeld,
    Unsupported,
)
from schemas.accept import CutReplay
from schemas.control import GAP, PENDING, Head, LoadPhase, Looked, Prev, Start
from schemas.errors import LOAD_AGAIN, Verdict
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.topics import Topics, rewritten

__all__ = [
    "Log",
    "Looking",
    "MadeSlot",
    "Restate",
    "Slot",
    "Source",
    "Step",
    "TakeoverRequest",
    "TakeoverResult",
    "foresee",
    "is_same_content",
    "take_over",
    "take_slot",
]


class Step(NamedTuple):
    """The present step; a waiting step is tried again after a pause."""

    name: str
    waits_for: str = ""  # what, for how long at most, and what can be done
    says: str = ""  # what the operator is told of a call that may take long


_LOCK_SPACE: Final = 0x6763_6463  # "gcdc": the first half of our advisory locks


def lock_of(slot: str) -> tuple[int, int]:
    """Return the two numbers of a slot's advisory lock, as pg_advisory_lock takes them: signed.

    >>> lock_of("gauss_cdc")
    (1734567011, -1022642474)
    """
    return _LOCK_SPACE, binascii.crc32(slot.encode()) - (1 << 31)


_LOCKED: Final = (
    "another run holds the lock of this slot; a standby waits here for as long as that one runs."
    " A killed run lets go at once, a frozen one when the server ends its session: after three"
    " times source.status-interval at PostgreSQL, logical_sender_timeout elsewhere. Any role may"
    " take it: `SELECT pid, usename FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND granted AND (classid, objid, objsubid) = ({}, {}, 2)"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())` names it"
)
_TAKEN: Final = (
    "another connection streams from the slot; that of a killed run ends at once, one whose network"
    " is cut when the server gives it up; pg_stat_replication there says whose it is"
)
_MAKING: Final = (
    "the slot is in use, or waits for open transactions: for as long as they run; the source's"
    " own lines name them, and how to end them"
)
_UNDECIDED: Final = (
    "the end of open transactions on cuts; Kafka ends those of a killed run, at the latest after"
    " kafka.transaction-timeout; then this start stops, and says who holds the topic"
)
_FENCING: Final = (
    "fencing older runs of this prefix: Kafka ends what they left open, mostly within a second,"
    " and at the latest in 30 s, or this start tries again"
)


@dataclass(frozen=True, slots=True)
class MadeSlot:
    """A slot made just now; the snapshot lives as long as its session is left alone."""

    consistent_point: Lsn
    snapshot: str


class Source(Looking, Protocol):
    """The source as far as a takeover needs it."""

    def try_lock(self) -> bool:
        """Take the advisory lock named after the slot, for the life of the session."""

    def try_take(self) -> bool:
        """START_REPLICATION at 0/0; False while another connection streams from the slot."""

    def make_slot(self) -> MadeSlot | None:
        """Drop an old slot of ours, make it with its snapshot.

        None while the old one is in use, or the new one waits for open transactions.
        """

    def captured(self, made: MadeSlot) -> tuple[str, ...]:
        """Tables to be loaded, schema.table, as the slot's snapshot sees them.

        Listed before the slot, a table made and filled in between would be in neither the
        load nor the stream.
        """

    def looked(self, made: MadeSlot) -> Looked | None:
        """Return what the slot's snapshot shows of the catalog; None: it is not compared."""


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """The takeover's result."""

    writer_state: WriterState
    confirmed: Lsn  # the source sends every transaction that begins here or later
    csn: int = 0  # the newest of the commits in the last cuts
    made: MadeSlot | None = None  # an epoch begins: load under this snapshot, then take_slot
    continues: bool = False  # an epoch begins, and goes on with what the one before it delivered


Restate = Callable[[Start], Records]  # the shapes of all tables, for an epoch that continues


def take_over(
    source: Source,
    log: Log,
    request: TakeoverRequest,
    *,
    patience: int = 6000,
    restate: Restate = lambda _: (),
) -> Generator[Step, None, TakeoverResult]:
    """Take over the prefix; raise a CdcError that says what differs.

    `patience` bounds the waits for the end of another writer's open transaction,
    in tries.  `restate` gives the tables' shapes to an epoch that continues.

    `request`: who this run is, and what its operator accepts.
    """
    yield Step("lock")
    space, number = lock_of(request.identity.slot)
    while not source.try_lock():
        yield Step("lock", _LOCKED.format(space, number % (1 << 32)))  # an oid has no sign
    while True:
        yield Step("look")
        once_held = _once_held(log, request)
        replay = yield from _settled_tail(log, patience)
        reason = _why_begin(source, log, request, replay, once_held=once_held)
        if reason is not None:
            result = yield from _begin_epoch(source, log, request, patience)
            if result is None:
                continue  # another writer's START became visible
            return result
        assert replay is not None  # else an epoch begins
        steps = _go_on(source, log, request, replay, patience=patience, restate=restate)
        return (yield from steps)


def foresee(
    source: Looking, log: Log, request: TakeoverRequest, *, patience: int = 100
) -> Generator[Step, None, str | CutReplay]:
    """Find what `take_over` would do next, and change nothing.

    Returns why an epoch would begin, or the cuts that it would go on with; raises what would
    stop it.

    `patience`: see `take_over`.
    """
    once_held = _once_held(log, request)
    replay = yield from _settled_tail(log, patience)
    reason = _why_begin(source, log, request, replay, once_held=once_held)
    if reason is not None:
        return reason
    assert replay is not None  # else an epoch begins
    slot = _fit_slot(source, log, request, replay)
    return (yield from _compare(source, log, request, slot.confirmed, patience))


def take_slot(source: Source, resume: Lsn) -> Generator[Step, None, None]:
    """Take the slot and compare it with `resume`: after a first load.

    Raises SlotAhead where it was confirmed beyond, or is gone.
    """
    yield Step("take slot")
    while not source.try_take():
        yield Step("take slot", _TAKEN)
    slot = source.slot()
    if slot is None or slot.confirmed > resume:
        raise slot_ahead(slot, resume)


def _go_on(
    source: Source,
    log: Log,
    request: TakeoverRequest,
    seen: CutReplay,
    *,
    patience: int,
    restate: Restate,
) -> Generator[Step, None, TakeoverResult]:
    """Steps 1 to 6 of an ordinary start."""
    if request.accept_switch and not source.tells_switches and not request.resumes:
        raise Unsupported(
            "--accept-switch reads every table again, which this source cannot", hint=LOAD_AGAIN
        )
    if request.accept_switch and _needs_slot(source, request, seen):
        return (yield from _go_on_anew(source, log, request, patience=patience, restate=restate))
    _fit_slot(source, log, request, seen)
    yield Step("take slot")
    while not source.try_take():
        yield Step("take slot", _TAKEN)
    slot = source.slot()
    preflight(slot, request)
    assert slot is not None
    confirmed = slot.confirmed
    replay = yield from _fence(source, log, request, confirmed, patience)
    if replay.is_loading() and replay.seq == 0 and not request.resumes:
        # Its lock was lost with its session, and it went on until our fence.
        raise GroupUnusable("another run began a load while this one started")
    start = _start(source, log, request, replay)
    yield Step("write START")
    offset = log.write_start(start, restate(start) if start.continues else ())
    state = _writer_state(start, offset)
    return TakeoverResult(state, confirmed, csn=replay.csn, continues=bool(start.continues))


def _fence(
    source: Looking, log: Log, request: TakeoverRequest, confirmed: Lsn, patience: int
) -> Generator[Step, None, CutReplay]:
    """Fence older selves; return the cuts as they stand then, and raise what does not fit."""
    yield from _compare(source, log, request, confirmed, patience)
    yield Step("fence", says=_FENCING)
    log.init_transactions()
    yield from _wait_for_lso(log, patience)
    yield Step("compare again")
    replay = log.tail()
    if (problem := difference(source, log, request, replay, confirmed)) is not None:
        raise problem
    assert replay is not None
    return replay


def _start(source: Source, log: Log, request: TakeoverRequest, replay: CutReplay) -> Start:
    """Make the START that goes on where the last producer was; in a new epoch on a new timeline."""
    assert replay.state is not None
    known = replay.state.topics
    topics = {
        name: topic
        for name, topic in log.topics().items()
        if request.is_ours(name) or known.get(name) == topic
    }
    place = place_of(source, request, replay)
    head = Head(
        replay.n + 1,
        replay.epoch,
        replay.writer + 1,
        request.instance,
        replay.seq,
        place,
        -1,
    )
    start = Start(
        head,
        request.identity,
        request.fingerprint,
        request.cluster_id,
        topics,
        dict(replay.loads),
        looked=replay.looked,
        upto=dict(replay.upto),
        targeted=dict(replay.targeted),
        had_loads=replay.notes_loads,
    )
    was = replay.state.identity.timeline
    at = source.switch_point(was)
    if was == request.identity.timeline or at is None:
        return start
    lost = log.tail_behind(at, replay)
    tables = lost.tables if lost.is_known else lost.tables | _delivered(request, replay)
    reason = f"the source was promoted: timeline {was} ends at {lsn_text(at)}"
    return _continued(start, replay, tables, reason)


def _continued(start: Start, replay: CutReplay, gaps: Iterable[str], reason: str) -> Start:
    """Open an epoch that goes on with what was delivered, but for gaps in some tables."""
    loads = dict(replay.loads)
    for table in (rewritten(text, start.topics) for text in gaps):
        if loads.get(table, LoadPhase.END) == LoadPhase.END:
            loads[table] = GAP
    return replace(
        start,
        head=replace(start.head, epoch=replay.epoch + 1, last_seq=0),
        loads=loads,
        upto={},
        targeted={table: voided(text) for table, text in replay.targeted.items()},
        prev=Prev(replay.epoch, replay.seq, replay.n),
        continues=True,
        reason=reason,
    )


def _delivered(request: TakeoverRequest, replay: CutReplay) -> set[str]:
    """Return the tables that a target may have: loaded ones, and those that the stream brought."""
    assert replay.state is not None
    names = Topics(request.ddl_topic.removesuffix(".ddl"))
    found = (names.table_of(topic) for topic in replay.state.topics)
    return {*replay.loads, *(str(table) for table in found if table is not None)}


def _needs_slot(source: Source, request: TakeoverRequest, seen: CutReplay) -> bool:
    """Say whether the slot does not have what comes behind the last cut, as far as is known.

    Where no switch point is told, nothing says which positions were positions of the old primary.
    """
    slot, identity = source.slot(), request.identity
    if slot is None:
        return True
    if (slot.plugin, slot.database) != (identity.plugin, identity.database):
        return False
    if not source.tells_switches:
        return True
    return bool(slot.invalid) or slot.confirmed > place_of(source, request, seen)


def _go_on_anew(
    source: Source, log: Log, request: TakeoverRequest, *, patience: int, restate: Restate
) -> Generator[Step, None, TakeoverResult]:
    """Go on by a new slot: commits before it may be missing, so every table is read again."""
    replay = yield from _fence(source, log, request, NOWHERE, patience)
    yield Step("make slot")
    while (made := source.make_slot()) is None:
        yield Step("make slot", _MAKING)
    new = dict.fromkeys(source.captured(made), PENDING)
    start = _start(source, log, request, replay)
    start = replace(start, head=replace(start.head, resume=made.consistent_point))
    tables = _delivered(request, replay)
    lost = "the slot was lost, and made again"
    reason = lost if source.tells_switches else "a switch-over was forced: --accept-switch"
    start = _continued(start, replay, tables, reason)
    start = replace(start, loads={**new, **start.loads})
    yield Step("write START")
    offset = log.write_start(start, restate(start))
    yield from take_slot(source, made.consistent_point)
    return TakeoverResult(_writer_state(start, offset), made.consistent_point, continues=True)


def _fit_slot(source: Looking, log: Log, request: TakeoverRequest, seen: CutReplay) -> Slot:
    """Give the slot that the cuts were read through, or raise why it is not ours to take."""
    slot = source.slot()
    try:
        preflight(slot, request)
    except CdcError as unfit:  # another source has no such slot, but that is not the reason
        raise other_source(source, log, seen, request) or unfit from None
    assert slot is not None
    return slot


def _compare(
    source: Looking, log: Log, request: TakeoverRequest, confirmed: Lsn, patience: int
) -> Generator[Step, None, CutReplay]:
    """Return the cuts that fit; raise what does not, once all that could explain it is decided."""
    _, high = log.bounds()
    yield Step("compare")
    tries = 0
    while True:
        is_settled = log.lso() >= high  # asked before the tail is read, or the tail is too old
        replay = log.tail()
        problem = difference(source, log, request, replay, confirmed)
        if problem is None:
            assert replay is not None  # else that is the problem
            return replay
        if is_settled:
            raise problem
        if tries >= patience:
            raise _held()  # the record that would explain it may be the one that is undecided
        tries += 1
        yield Step("compare", f"{_UNDECIDED}. As far as it is decided, it stops: {problem.what}")


def _begin_epoch(
    source: Source, log: Log, request: TakeoverRequest, patience: int
) -> Generator[Step, None, TakeoverResult | None]:
    """Step 0: the first start of a prefix, or a new epoch by command."""
    yield Step("fence", says=_FENCING)
    log.init_transactions()
    once_held = _once_held(log, request)
    yield from _wait_for_lso(log, patience)
    yield Step("look again")
    replay = log.tail()
    reason = _why_begin(source, log, request, replay, once_held=once_held)
    if reason is None:
        return None
    yield Step("make slot")
    while (made := source.make_slot()) is None:
        yield Step("make slot", _MAKING)
    tables = source.captured(made)  # their topics stand in START also where nothing is loaded
    n, epoch, writer = (replay.n, replay.epoch, replay.writer) if replay else (0, 0, 0)
    prev = Prev(replay.epoch, replay.seq, replay.n) if replay else None
    if replay is None and reason != _FIRST:  # readers may be in any epoch that the log once had
        epoch = max(request.newest_epoch, 1)
        prev = Prev(epoch, 0, 0)
    if replay is not None:  # another client's START may be the first one that is left [H42]
        epoch = max(epoch, min(replay.greatest, request.newest_epoch))
    head = Head(n + 1, epoch + 1, writer + 1, request.instance, 0, made.consistent_point, -1)
    topics = {name: topic for name, topic in log.topics().items() if request.is_ours(name)}
    start = Start(
        head,
        request.identity,
        request.fingerprint,
        request.cluster_id,
        topics,
        dict.fromkeys(tables if request.load else (), PENDING),
        prev,
        None if prev is None else False,
        reason,
        looked=source.looked(made),
        had_loads=request.load,
    )
    yield Step("write START")
    offset = log.write_start(start)
    return TakeoverResult(_writer_state(start, offset), made.consistent_point, made=made)


_FIRST = "first start"
_ASKED = "asked for by --accept-gap"


def _once_held(log: Log, request: TakeoverRequest) -> bool:
    """Say whether cuts must have held a record by now.

    Asked before the tail is settled and read: another run's START and its first DDL may
    become visible at any moment, and what was there before must be in that tail.
    """
    first, _ = log.bounds()
    ddl = log.high_watermarks(log.topics([request.ddl_topic]))
    return first > 0 or any(end > 0 for ends in ddl.values() for end in ends.values())


def _why_begin(
    source: Looking,
    log: Log,
    request: TakeoverRequest,
    replay: CutReplay | None,
    *,
    once_held: bool,
) -> str | None:
    """Say why an epoch must begin; None for an ordinary start."""
    if replay is None:
        if not once_held:
            return _FIRST
        if not request.accept_gap:
            raise CutsBroken(
                "the cuts topic holds no record, but it once did",
                hint=f"retention removed them, or the topic was deleted: {LOAD_AGAIN}",
            )
        return "the cuts topic holds no record any more"
    if replay.is_loading() and replay.seq == 0 and not request.resumes:
        problem = other_source(source, log, replay, request)
        if problem is not None and not request.accept_gap:
            raise problem
        return "the first load did not finish"
    if not request.accept_gap:
        return None
    try:
        slot = source.slot()
        preflight(slot, request)
    except CdcError as problem:
        if problem.verdict is not Verdict.STOP:
            raise
        return problem.what
    assert slot is not None
    problem_found = difference(source, log, request, replay, slot.confirmed)
    # The stop may come from the stream or from a reader: then nothing differs here.
    return _ASKED if problem_found is None else problem_found.what


def _settled_tail(log: Log, patience: int) -> Generator[Step, None, CutReplay | None]:
    """The tail; 'no record' only counts when nothing undecided is left before it."""
    _, high = log.bounds()
    tries = 0
    while True:
        is_settled = log.lso() >= high  # asked before the tail is read, or the tail is too old
        replay = log.tail()
        if replay is not None or is_settled:
            return replay
        if tries >= patience:
            raise _held()
        tries += 1
        yield Step("look", _UNDECIDED)


def _wait_for_lso(log: Log, patience: int) -> Generator[Step, None, None]:
    _, high = log.bounds()
    tries = 0
    while log.lso() < high:
        if tries >= patience:
            raise _held()
        tries += 1
        yield Step("fence", _UNDECIDED)


def _held() -> TopicHeld:
    return TopicHeld(
        "another transactional producer holds the cuts topic open",
        hint="find it with `kafka-transactions.sh find-hanging`, end it with "
        "`kafka-transactions.sh abort`; no other writer is allowed below our prefix",
    )


def _writer_state(start: Start, offset: int) -> WriterState:
    return WriterState(
        start.head,
        offset,
        start.identity,
        start.content,
        start.cluster_id,
        start.topics,
        start.loads,
        start.looked,
        start.upto,
        start.targeted,
        start.had_loads,
    )
