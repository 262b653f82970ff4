"""How a producer takes over: protocol section 2, "Start", as one pure procedure.

`take_over` is a generator: it yields the name of each step before it is done,
or a wait, and returns the writer's state.  The source and the log of cuts are
ports; `producer/start.py` passes real ones, the simulation its own, and both
may stop at any yield, as a crash does.

Why this order (letters: the scenarios in the protocol):
- the lock, then the slot, then the fence: a producer is not fenced by one that
  cannot get its slot [H8];
- `confirmed_flush` is read when the slot is taken, before the high watermark
  that is waited for: a cut may be decided and confirmed before its marker is
  visible [H32];
- differences stop the start before anything is fenced: a misconfigured second
  `run` must not kill a healthy one;
- the tail is read again after the fence: nothing seen before is used later;
- a slot is made only by the session that holds the lock, after the fence, and
  only if the tail is still empty [H33].
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from producer.core.engine import WriterState
from producer.errors import (
    CdcError,
    ContentChanged,
    CutsBroken,
    GroupUnusable,
    SlotAhead,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SourceSwitched,
    TopicHeld,
    TopicReplaced,
)
from schemas.accept import CutReplay
from schemas.control import PENDING, Head, Identity, Prev, Start, Topic
from schemas.errors import LOAD_AGAIN, Verdict
from schemas.positions import Lsn


class Step(NamedTuple):
    """The present step; a waiting step is tried again after a pause."""

    name: str
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot as the catalog shows it."""

    plugin: str
    database: str
    confirmed: int
    invalid: str = ""  # the server's reason


@dataclass(frozen=True, slots=True)
class MadeSlot:
    """A slot made just now; the snapshot lives as long as its session is left alone."""

    consistent_point: int
    snapshot: str


class Looking(Protocol):
    """The source as far as it is only read."""

    def slot(self) -> Slot | None:
        """Look at the slot."""


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


class Log(Protocol):
    """The cuts topic and its one writer."""

    def bounds(self) -> tuple[int, int]:
        """First offset and high watermark of cuts, asked of the broker now."""

    def lso(self) -> int:
        """End of what read_committed readers see."""

    def tail(self) -> CutReplay | None:
        """What is known at the end of what is visible; None: no record."""

    def topics(self) -> Mapping[str, tuple[Topic, Mapping[int, int]]]:
        """Our topics as they are: name -> topic, partition -> high watermark."""

    def init_transactions(self) -> None:
        """Fence older selves; their open transactions are decided."""

    def write_start(self, start: Start) -> int:
        """Write START, durable; return its offset."""


@dataclass(frozen=True, slots=True)
class TakeoverRequest:
    """What this run is configured to be."""

    identity: Identity
    fingerprint: str  # of the configuration
    cluster_id: str
    instance: str
    ddl_topic: str
    accept_gap: bool = False  # begin a new epoch, for any reason of a stop
    load: bool = True
    resumes: bool = False  # the source can read a table again: a load that was left is finished
    newest_epoch: int = 0  # the greatest epoch, for a log that does not show it


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """The takeover's result."""

    writer_state: WriterState
    known: Mapping[int, int] = field(default_factory=dict)  # commit_start -> xid, last cut
    csn: int = 0  # the newest of the commits in the last cuts
    made: MadeSlot | None = None  # an epoch begins: load under this snapshot, then take_slot


_ANOTHER_SLOT = f"choose another name in [source] slot, then {LOAD_AGAIN}"


def take_over(
    source: Source, log: Log, request: TakeoverRequest, *, patience: int = 6000
) -> Generator[Step, None, TakeoverResult]:
    """Take over the prefix; raise a CdcError that says what differs.

    `patience` bounds the waits for the end of another writer's open transaction,
    in tries.
    """
    yield Step("lock")
    while not source.try_lock():
        yield Step("lock", "another run holds the lock of this slot")
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
        return (yield from _go_on(source, log, request, replay, patience))


def foresee(
    source: Looking, log: Log, request: TakeoverRequest, *, patience: int = 100
) -> Generator[Step, None, str | None]:
    """Find what `take_over` would do next, and change nothing.

    Returns why an epoch would begin, None where it would go on; raises what would stop it.
    """
    once_held = _once_held(log, request)
    replay = yield from _settled_tail(log, patience)
    reason = _why_begin(source, log, request, replay, once_held=once_held)
    if reason is not None:
        return reason
    assert replay is not None  # else an epoch begins
    slot = _fit_slot(source, request, replay)
    yield from _compare(log, request, slot.confirmed, patience)
    return None


def take_slot(source: Source, resume: int) -> Generator[Step, None, None]:
    """Take the slot and compare it with `resume`: after a first load."""
    yield Step("take slot")
    while not source.try_take():
        yield Step("take slot", "another connection streams from the slot")
    slot = source.slot()
    if slot is None or slot.confirmed > resume:
        raise _slot_ahead(slot, resume)


def _go_on(
    source: Source, log: Log, request: TakeoverRequest, seen: CutReplay, patience: int
) -> Generator[Step, None, TakeoverResult]:
    """Steps 1 to 6 of an ordinary start."""
    _fit_slot(source, request, seen)
    yield Step("take slot")
    while not source.try_take():
        yield Step("take slot", "another connection streams from the slot")
    slot = source.slot()
    _preflight(slot, request)
    assert slot is not None
    confirmed = slot.confirmed
    yield from _compare(log, request, confirmed, patience)
    yield Step("fence")
    log.init_transactions()
    yield from _wait_for_lso(log, patience)
    yield Step("compare again")
    replay = log.tail()
    if (problem := _difference(log, request, replay, confirmed)) is not None:
        raise problem
    assert replay is not None
    if replay.is_loading() and replay.seq == 0 and not request.resumes:
        # Its lock was lost with its session, and it went on until our fence.
        raise GroupUnusable("another run began a load while this one started")
    head = Head(
        replay.n + 1,
        replay.epoch,
        replay.writer + 1,
        request.instance,
        replay.seq,
        replay.resume,
        -1,
    )
    topics = {name: topic for name, (topic, _) in log.topics().items()}
    start = Start(
        head, request.identity, request.fingerprint, request.cluster_id, topics, dict(replay.loads)
    )
    yield Step("write START")
    offset = log.write_start(start)
    known = dict(replay.known.values())
    return TakeoverResult(_writer_state(start, offset), known, csn=replay.csn)


def _fit_slot(source: Looking, request: TakeoverRequest, seen: CutReplay) -> Slot:
    """Give the slot that the cuts were read through, or raise why it is not ours to take."""
    slot = source.slot()
    try:
        _preflight(slot, request)
    except CdcError as unfit:  # another source has no such slot, but that is not the reason
        raise _other_source(seen, request) or unfit from None
    assert slot is not None
    return slot


def _compare(
    log: Log, request: TakeoverRequest, confirmed: int, patience: int
) -> Generator[Step, None, None]:
    """Raise what makes going on wrong, once all that could explain it is decided."""
    _, high = log.bounds()
    yield Step("compare")
    tries = 0
    while True:
        is_settled = log.lso() >= high  # asked before the tail is read, or the tail is too old
        problem = _difference(log, request, log.tail(), confirmed)
        if problem is None:
            return
        if is_settled:
            raise problem
        if tries >= patience:
            raise _held()  # the record that would explain it may be the one that is undecided
        tries += 1
        yield Step("compare", "the end of open transactions on cuts")


def _begin_epoch(
    source: Source, log: Log, request: TakeoverRequest, patience: int
) -> Generator[Step, None, TakeoverResult | None]:
    """Step 0: the first start of a prefix, or a new epoch by command."""
    yield Step("fence")
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
        yield Step("make slot", "the slot is in use, or waits for open transactions")
    tables = source.captured(made) if request.load else ()
    n, epoch, writer = (replay.n, replay.epoch, replay.writer) if replay else (0, 0, 0)
    prev = Prev(replay.epoch, replay.seq, replay.n) if replay else None
    if replay is None and reason != _FIRST:  # readers may be in any epoch that the log once had
        epoch = max(request.newest_epoch, 1)
        prev = Prev(epoch, 0, 0)
    head = Head(n + 1, epoch + 1, writer + 1, request.instance, 0, made.consistent_point, -1)
    topics = {name: topic for name, (topic, _) in log.topics().items()}
    start = Start(
        head,
        request.identity,
        request.fingerprint,
        request.cluster_id,
        topics,
        dict.fromkeys(tables, PENDING),
        prev,
        None if prev is None else False,
        reason,
    )
    yield Step("write START")
    offset = log.write_start(start)
    return TakeoverResult(_writer_state(start, offset), made=made)


_FIRST = "first start"
_ASKED = "asked for by --accept-gap"


def _once_held(log: Log, request: TakeoverRequest) -> bool:
    """Say whether cuts must have held a record by now.

    Asked before the tail is settled and read: another run's START and its first DDL may
    become visible at any moment, and what was there before must be in that tail.
    """
    first, _ = log.bounds()
    _, ddl = log.topics().get(request.ddl_topic, (None, {0: 0}))
    return first > 0 or ddl.get(0, 0) > 0


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
        problem = _other_source(replay, request)
        if problem is not None and not request.accept_gap:
            raise problem
        return "the first load did not finish"
    if not request.accept_gap:
        return None
    try:
        slot = source.slot()
        _preflight(slot, request)
    except CdcError as problem:
        if problem.verdict is not Verdict.STOP:
            raise
        return problem.what
    assert slot is not None
    problem_found = _difference(log, request, replay, slot.confirmed)
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
        yield Step("look", "the end of open transactions on cuts")


def _wait_for_lso(log: Log, patience: int) -> Generator[Step, None, None]:
    _, high = log.bounds()
    tries = 0
    while log.lso() < high:
        if tries >= patience:
            raise _held()
        tries += 1
        yield Step("fence", "the end of open transactions on cuts")


def _held() -> TopicHeld:
    return TopicHeld(
        "another transactional producer holds the cuts topic open",
        hint="find it with `kafka-transactions.sh find-hanging`, end it with "
        "`kafka-transactions.sh abort`; no other writer is allowed below our prefix",
    )


def _preflight(slot: Slot | None, request: TakeoverRequest) -> None:
    """Refuse a slot that cannot be ours."""
    identity = request.identity
    if slot is None:
        raise SlotMissing(
            "cuts exist, but the replication slot does not", slot=identity.slot, hint=LOAD_AGAIN
        )
    if (slot.plugin, slot.database) != (identity.plugin, identity.database):
        raise SlotMismatch(
            "the slot belongs to another plugin or database",
            slot=identity.slot,
            plugin=slot.plugin,
            database=slot.database,
            hint=_ANOTHER_SLOT,
        )
    if slot.invalid:
        raise SlotInvalid(
            "the server invalidated the slot; the WAL it needs is gone",
            slot=identity.slot,
            reason=slot.invalid,
            hint=f"{LOAD_AGAIN}; raise max_slot_wal_keep_size (GaussDB, openGauss: "
            "max_size_for_xlog_retention) so that it does not happen again",
        )


def _difference(
    log: Log, request: TakeoverRequest, replay: CutReplay | None, confirmed: int
) -> CdcError | None:
    """Return what makes going on from `replay` wrong, or None."""
    if replay is None or replay.state is None:
        return CutsBroken(
            "the records of cuts are gone", hint=f"were its topics deleted? {LOAD_AGAIN}"
        )
    if replay.suspect is not None:
        return CutsBroken(
            f"the records of cuts do not follow each other: {replay.suspect}",
            hint="records were lost, or another writer has access to the topic "
            f"(`gauss-cdc check` prints the ACLs that it needs); {LOAD_AGAIN}",
        )
    if (problem := _other_source(replay, request)) is not None:
        return problem
    was = replay.state
    if not is_same_content(was.content, request.fingerprint, resumes=request.resumes):
        return ContentChanged(
            "what decides which rows exist differs from the last run",
            hint=f"put them back, or: {LOAD_AGAIN}",
        )
    topics = log.topics()
    for name, topic in was.topics.items():
        there = topics.get(name)
        if there is None or there[0].id != topic.id:
            return TopicReplaced(
                "a topic was deleted or made again",
                topic=name,
                hint=f"what it held is gone: {LOAD_AGAIN}",
            )
        if there[0].partitions != topic.partitions:
            return TopicReplaced(
                "partitions were added to a topic: rows of one key would change partitions",
                topic=name,
                hint=LOAD_AGAIN,
            )
    for (name, partition), end in replay.ends.items():
        high = topics[name][1].get(partition, 0) if name in topics else 0
        if high < end:
            return TopicReplaced(
                "a topic ends before rows that a cut names: the cluster lost its tail",
                topic=f"{name}/{partition}",
                end=high,
                named=end,
                hint=f"restore the cluster, or: {LOAD_AGAIN}",
            )
    if confirmed > replay.resume:
        return _slot_ahead(Slot("", "", confirmed), replay.resume)
    return None


def is_same_content(was: str, now: str, *, resumes: bool) -> bool:
    """Say whether a run may go on with what the last one was configured to be.

    A hash of all that decides which rows exist, and (not in records of older releases) a dash
    and one of all but [tables]: where a table can be read again, [tables] may differ.
    """
    whole, _, rest = now.partition("-")
    was_whole, _, was_rest = was.partition("-")
    return was_whole == whole or (resumes and bool(rest) and was_rest == rest)


def _other_source(replay: CutReplay, request: TakeoverRequest) -> CdcError | None:
    """Return how source or cluster differ from those of the last run, or None."""
    assert replay.state is not None
    was, now = replay.state, request.identity
    if (was.identity.system_id, was.identity.timeline) != (now.system_id, now.timeline):
        return SourceSwitched(
            "the source is a different server, or was promoted",
            was=f"{was.identity.system_id}/{was.identity.timeline}",
            now=f"{now.system_id}/{now.timeline}",
            hint=LOAD_AGAIN,
        )
    if was.identity != now:
        return SlotMismatch(
            "the prefix belongs to another database, slot or plugin",
            was=f"{was.identity.database}/{was.identity.slot}/{was.identity.plugin}",
            now=f"{now.database}/{now.slot}/{now.plugin}",
            hint="put source.dsn, source.slot and source.plugin back; or one source, one prefix: "
            f"choose another kafka.prefix; if the prefix goes on with this one, {LOAD_AGAIN}",
        )
    if was.cluster_id != request.cluster_id:
        return TopicReplaced(
            "the Kafka cluster is a different one",
            was=was.cluster_id,
            now=request.cluster_id,
            hint=f"offsets differ there, so its cuts mean nothing: {LOAD_AGAIN}",
        )
    return None


def _slot_ahead(slot: Slot | None, resume: int) -> SlotAhead:
    return SlotAhead(
        "the slot was confirmed beyond our last cut: rows between are gone",
        slot_at=Lsn(slot.confirmed) if slot else "missing",
        ours=Lsn(resume),
        hint=f"another program advanced it (pg_replication_slot_advance?); {LOAD_AGAIN}",
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
    )
