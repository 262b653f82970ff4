"""What makes going on wrong: the source, the topics and the cuts, beside what was delivered.

Nothing is changed here; every difference is an error that says what to do.  `takeover` asks before
and after the fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from producer.core.events import Records
from producer.core.takeover.promotion import Tail
from producer.errors import (
    CdcError,
    ContentChanged,
    CutsBroken,
    SlotAhead,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SourceSwitched,
    TopicReplaced,
)
from schemas.accept import CutReplay
from schemas.control import Identity, Start, Topic
from schemas.errors import LOAD_AGAIN
from schemas.positions import Lsn, lsn_text


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot as the catalog shows it."""

    plugin: str
    database: str
    confirmed: Lsn
    invalid: str = ""  # the server's reason


class Looking(Protocol):
    """The source as far as it is only read."""

    def slot(self) -> Slot | None:
        """Look at the slot.  None: there is none."""

    @property
    def tells_switches(self) -> bool:
        """Say whether a server's history tells where it left older timelines."""

    def switch_point(self, timeline: int) -> Lsn | None:
        """Where the server's history left an older timeline; None: it was never on it."""

    def lacks(self, resume: Lsn, xid: int) -> str:
        """Say what shows that a server lacks what was delivered, up to `resume` and with `xid`.

        "": nothing does, or the server tells its switches.  `xid`: 0 where none is known.
        """


class Log(Protocol):
    """The cuts topic and its one writer."""

    def bounds(self) -> tuple[int, int]:
        """First offset and high watermark of cuts, asked of the broker now."""

    def lso(self) -> int:
        """End of what read_committed readers see."""

    def tail(self) -> CutReplay | None:
        """What is known at the end of what is visible; None: no record."""

    def topics(self, names: Collection[str] = ()) -> Mapping[str, Topic]:
        """Topics below the prefix as they are, or those of these names that exist."""

    def high_watermarks(self, topics: Mapping[str, Topic]) -> Mapping[str, Mapping[int, int]]:
        """High watermarks by partition, asked now."""

    def init_transactions(self) -> None:
        """Fence older selves; their open transactions are decided."""

    def tail_behind(self, position: Lsn, replay: CutReplay) -> Tail:
        """Return what of an epoch was delivered of commits that end behind a position."""

    def write_start(self, start: Start, shapes: Records = ()) -> int:
        """Write START, and records of ddl with it, durable; return its offset."""


@dataclass(frozen=True, slots=True)
class TakeoverRequest:
    """What this run is configured to be."""

    identity: Identity
    fingerprint: str  # of the configuration
    cluster_id: str
    instance: str
    ddl_topic: str
    accept_gap: bool = False  # begin a new epoch, for any reason of a stop
    accept_switch: bool = False  # go on without a lost tail or slot: tables are read again
    load: bool = True
    resumes: bool = False  # the source can read a table again: a load that was left is finished
    newest_epoch: int = 0  # the greatest epoch, for a log that does not show it
    is_ours: Callable[[str], bool] = lambda _: True  # of a topic below the prefix


# The way out where a table can be read again.
SWITCH: Final = (
    "`gauss-cdc run --accept-switch` continues, and reads the tables again that it concerns"
)
# Where the server does not tell which those are.
SWITCH_ALL: Final = (
    "`gauss-cdc run --accept-switch` continues by a new slot and reads every table again; targets"
    " keep what they have until then"
)
_ANOTHER_SLOT = f"choose another name in [source] slot, then {LOAD_AGAIN}"


def _or_switch(request: TakeoverRequest) -> str:
    return f"{SWITCH}; {LOAD_AGAIN}" if request.resumes else LOAD_AGAIN


def preflight(slot: Slot | None, request: TakeoverRequest) -> None:
    """Refuse a slot that cannot be ours."""
    identity = request.identity
    if slot is None:
        raise SlotMissing(
            "cuts exist, but the replication slot does not",
            slot=identity.slot,
            hint=_or_switch(request),
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
            "the server invalidated the slot: what it needs is gone",
            slot=identity.slot,
            reason=slot.invalid,
            hint=f"{_or_switch(request)}; raise max_slot_wal_keep_size (GaussDB, openGauss: "
            "max_size_for_xlog_retention) so that it does not happen again; at a standby "
            "rows_removed is prevented by hot_standby_feedback = on and primary_slot_name there, "
            "wal_level_insufficient by wal_level = logical at its primary",
        )


def difference(
    source: Looking,
    log: Log,
    request: TakeoverRequest,
    replay: CutReplay | None,
    confirmed: Lsn,
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
    if (problem := other_source(source, log, replay, request)) is not None:
        return problem
    was = replay.state
    if not is_same_content(was.content, request.fingerprint, resumes=request.resumes):
        return ContentChanged(
            "what decides which rows exist differs from the last run",
            hint=f"put them back, or: {LOAD_AGAIN}",
        )
    named = {name for name, _ in replay.ends}
    topics = log.topics({*was.topics, *named})
    for name, topic in was.topics.items():
        if not (request.is_ours(name) or name in named):
            continue  # of a table that is not captured any more, or a reader's
        there = topics.get(name)
        if there is None or there.id != topic.id:
            return TopicReplaced(
                "a topic was deleted or made again",
                topic=name,
                hint=f"what it held is gone: {LOAD_AGAIN}",
            )
        if there.partitions != topic.partitions:
            return TopicReplaced(
                "partitions were added to a topic: rows of one key would change partitions",
                topic=name,
                hint=LOAD_AGAIN,
            )
    highs = log.high_watermarks({name: topics[name] for name in named & topics.keys()})
    for (name, partition), end in replay.ends.items():
        high = highs.get(name, {}).get(partition, 0)
        if high < end:
            return TopicReplaced(
                "a topic ends before rows that a cut names: the cluster lost its tail",
                topic=f"{name}/{partition}",
                end=high,
                named=end,
                hint=f"restore the cluster, or: {LOAD_AGAIN}",
            )
    if confirmed > (place := place_of(source, request, replay)):
        return slot_ahead(Slot("", "", confirmed), place)
    return None


def is_same_content(was: str, now: str, *, resumes: bool) -> bool:
    """Say whether a run may go on with what the last one was configured to be.

    A hash of all that decides which rows exist, and (not in records of older releases) a dash
    and one of all but [tables]: where a table can be read again, [tables] may differ.
    """
    whole, _, rest = now.partition("-")
    was_whole, _, was_rest = was.partition("-")
    return was_whole == whole or (resumes and bool(rest) and was_rest == rest)


def other_source(
    source: Looking, log: Log, replay: CutReplay, request: TakeoverRequest
) -> CdcError | None:
    """Return how source or cluster differ from those of the last run, or None."""
    assert replay.state is not None
    was, now = replay.state, request.identity
    if source.tells_switches:
        problem = _other_history(source, log, replay, request)
    else:
        problem = _forced_switch(source, replay, request)
    if problem is not None:
        return problem
    # Records of older releases do not tell the oid.
    oid = was.identity.database_oid or now.database_oid
    if replace(was.identity, timeline=now.timeline, database_oid=oid) != now:
        return SlotMismatch(
            "the prefix belongs to another database, slot or plugin",
            was=_place_said(was.identity),
            now=_place_said(now),
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


def _forced_switch(source: Looking, replay: CutReplay, request: TakeoverRequest) -> CdcError | None:
    """As `_other_history`, of openGauss and GaussDB, which tell no switch points.

    Their manual does not support a forced switch-over: all has to be read again behind it.
    """
    assert replay.state is not None
    was, now = replay.state.identity, request.identity
    where = _named(was, now)
    if was.system_id != now.system_id:
        return SourceSwitched("the source is a different server", hint=LOAD_AGAIN, **where)
    if request.accept_switch:
        return None
    hint = f"{SWITCH_ALL}; {LOAD_AGAIN}" if request.resumes else LOAD_AGAIN
    if was.timeline != now.timeline:
        what = "the source is on another timeline: it was restored, or a switch-over was forced"
        return SourceSwitched(what, hint=hint, **where)
    xid = max((xid for _, xid in replay.known.values()), default=0)
    if how := source.lacks(replay.resume, xid):
        what = "the source lacks what was delivered: it was restored, or a switch-over was forced"
        return SourceSwitched(what, hint=hint, shown_by=how, slot=now.slot)
    return None


def _place_said(at: Identity) -> str:
    oid = f" ({at.database_oid})" if at.database_oid else ""
    return f"{at.database}{oid}/{at.slot}/{at.plugin}"


def _named(was: Identity, now: Identity) -> dict[str, object]:
    return {
        "was": f"{was.system_id}/{was.timeline}",
        "now": f"{now.system_id}/{now.timeline}",
    }


def _other_history(
    source: Looking, log: Log, replay: CutReplay, request: TakeoverRequest
) -> CdcError | None:
    """Return how the server's history is not the one that was delivered, or None."""
    assert replay.state is not None
    was, now = replay.state.identity, request.identity
    if (was.system_id, was.timeline) == (now.system_id, now.timeline):
        return None
    where = _named(was, now)
    at = source.switch_point(was.timeline) if was.system_id == now.system_id else None
    if at is None:
        return SourceSwitched(
            "the source is a different server, or its history is not the one that was delivered",
            hint=f"is it an old primary, or a restored one? Name the right one; or: {LOAD_AGAIN}",
            **where,
        )
    lost = log.tail_behind(at, replay)
    if lost.is_empty or request.accept_switch:
        return None
    return SourceSwitched(
        "the promoted server lacks commits that were delivered",
        hint=f"its standby had not received them: {SWITCH}",
        switch_point=lsn_text(at),
        delivered=lsn_text(replay.resume),
        tables=", ".join(sorted(lost.tables)) if lost.is_known else "any",
        **where,
    )


def slot_ahead(slot: Slot | None, resume: Lsn) -> SlotAhead:
    """Make the error of a slot that is beyond the last cut, or gone."""
    return SlotAhead(
        "the slot was confirmed beyond our last cut: rows between are gone",
        slot_at=lsn_text(slot.confirmed) if slot else "missing",
        ours=lsn_text(resume),
        hint=f"another program advanced it (pg_replication_slot_advance?); {LOAD_AGAIN}",
    )


def place_of(source: Looking, request: TakeoverRequest, replay: CutReplay) -> Lsn:
    """Where reading the source goes on: behind a promotion, not behind what the server has.

    An idle source moves `resume` to the end of its log, which a standby may not have had whole.
    """
    assert replay.state is not None
    if replay.state.identity.timeline == request.identity.timeline:
        return replay.resume
    at = source.switch_point(replay.state.identity.timeline)
    return replay.resume if at is None else min(replay.resume, at)
