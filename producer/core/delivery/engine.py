"""Delivery and confirmation as a pure state machine.

`Engine.step` takes one event and returns the commands that it requires, in order.  `core/loop.py`
executes them, and tells what came of them as further events.  Here is no socket, clock or thread.

A group is made of whole source transactions and becomes one Kafka transaction:

    SENDING   rows go out as they come; the group closes when it is large or old, or input ends
    FLUSHING  the group is closed, acknowledgements are awaited: they bring the rows' offsets
    CUTTING   its cuts, which name these offsets, are written; the commit is in flight
    PARTING   a part of a giant transaction is being committed, without a cut

From FLUSHING it comes to CUTTING if a commit or a STATE is to be written, else to PARTING; from
both back to SENDING.  Only in SENDING input is taken; else it is buffered, in order, until then.

Promises:
- `Confirm(lsn)` is only ever returned for the `resume` of a record of cuts that is durable, an idle
  source's position too: a HEARTBEAT goes first [H1].  What no cut has, the source sends again.
- `n`, `seq` and `resume` move when their record is durable, not when it is asked for.
- A cut names only offsets that were acknowledged; one that is missing is GroupUnusable [H3].

So a group may be lost at any moment before: no cut names it, and nothing of it was confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias, assert_never

from producer.core.delivery.fates import followed, followed_for_one
from producer.core.delivery.tally import Tally
from producer.core.events import (
    Acknowledged,
    Acknowledgement,
    Command,
    CommitPart,
    Confirm,
    CutsDurable,
    Flush,
    Happened,
    InputDrained,
    Limits,
    PartDurable,
    PositionReached,
    RowsAssembled,
    SchemaUsed,
    SendRows,
    StopAsked,
    Stopped,
    Ticked,
    TopicsChanged,
    TransactionEnded,
    Walked,
    WriteCuts,
)
from producer.core.key_ranges import voided
from producer.errors import GroupUnusable
from schemas.control import (
    Commits,
    Cut,
    Head,
    Heartbeat,
    Identity,
    LoadPhase,
    Looked,
    State,
    Topic,
)
from schemas.positions import Lsn

_HURRY_SECONDS: Final = 0.2  # between two answers to a source that shuts down


@dataclass(frozen=True, slots=True)
class _Marked:
    """Loads were noted while input waited; None: there is none any more."""

    loads: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class _Compared:
    """The catalog was compared while input waited, in which the findings may be."""

    looked: Looked


# Buffered in order while a group is being finished: rows use the schema before them.
Input: TypeAlias = RowsAssembled | Walked | TransactionEnded | SchemaUsed | _Marked | _Compared


class Phase(Enum):
    """The state of the open group."""

    SENDING = "sending"
    FLUSHING = "flushing"
    CUTTING = "cutting"
    PARTING = "parting"


@dataclass(frozen=True, slots=True)
class WriterState:
    """Where a writer begins: the contents and the offset of its own START."""

    head: Head  # of the newest durable record of ours
    state_from: int  # offset of our newest START or STATE
    identity: Identity
    content: str
    cluster_id: str
    topics: Mapping[str, Topic]
    loads: Mapping[str, str]
    looked: Looked | None = None
    upto: Mapping[str, str] = field(default_factory=dict)  # of loads that have commits between
    targeted: Mapping[str, str] = field(default_factory=dict)  # of loads for one target
    had_loads: bool = False  # the tables of all `loads` are gone

    @property
    def notes_loads(self) -> bool:
        """Say whether the epoch loads what comes, as `State.notes_loads`."""
        return bool(self.loads) or self.had_loads


_Loads = tuple[Mapping[str, str], Mapping[str, str]]  # of all targets, and for one


class Engine:
    """One source, one slot, one order."""

    def __init__(self, writer_state: WriterState, limits: Limits, tally: Tally) -> None:
        """`writer_state`: as behind our START; `limits`: when a group closes.

        `tally` keeps the books of the open group; it is empty.
        """
        self._limits = limits
        self._writer_state = writer_state
        head = writer_state.head
        self._n, self._seq, self._resume = head.n, head.last_seq, head.resume
        self._topics = dict(writer_state.topics)
        self._state_from = writer_state.state_from
        self._loads, self._upto = dict(writer_state.loads), writer_state.upto
        self._targeted = writer_state.targeted
        self.notes_loads = writer_state.notes_loads  # also while `loads` are empty
        # Of the loads, in front of the first commit of the open group that changes them.
        self._before: _Loads | None = None
        self._looked = writer_state.looked
        self._state_due = False
        self._records_since_state = 0
        self._phase = Phase.SENDING
        self._now = 0.0
        self._wall_us, self._told_end = head.written_at, 0
        self._state_at = 0.0
        self._tally = tally
        self._rows = 0  # sent in the open Kafka transaction, open source transaction included
        self._awaited = 0
        self._opened_at = 0.0  # when the first row of the open Kafka transaction was sent
        self._schema_ids: dict[str, list[int]] = {}
        self._current_ids: dict[str, int] = {}
        self._waiting: deque[Input] = deque()
        self._in_flight: tuple[Cut, ...] = ()
        self._position = head.resume  # greatest idle position seen
        self._written_at = 0.0  # when the newest record of ours was asked for
        self._stopping = False
        self._said_goodbye = False  # the last heartbeat was written on leaving
        self._discarded = False  # input was dropped on leaving: idle positions are no longer valid
        self._drained = False
        self._hurry = False  # the source waits for a confirmation
        self._stopped = False
        self.buffered = 0  # bytes held while a group is being finished: back-pressure for the loop

    @property
    def phase(self) -> Phase:
        """The state of the open group, for progress reports."""
        return self._phase

    @property
    def seq(self) -> int:
        """The newest source transaction that is durable."""
        return self._seq

    @property
    def resume(self) -> Lsn:
        """The position of the newest durable record."""
        return self._resume

    @property
    def is_idle(self) -> bool:
        """Say whether everything received is durable."""
        return not (
            self._tally.commits
            or self._tally.is_open
            or self._discarded
            or self._phase is not Phase.SENDING
        )

    @property
    def is_settled(self) -> bool:
        """Say whether nothing is to be written before a load: no rows, no STATE."""
        return self.is_idle and not self._state_due

    @property
    def loads(self) -> Mapping[str, str]:
        """How far the load of each table is; another mapping after each change."""
        return self._loads

    @property
    def upto(self) -> Mapping[str, str]:
        """How far loads have come that have commits between their chunks."""
        return self._upto

    @property
    def targeted(self) -> Mapping[str, str]:
        """How far loads for one target have come; another mapping after each change."""
        return self._targeted

    def begin_anew(self, table: str) -> None:
        """Note that a table's load for one target begins again: a STATE will say it.

        It is durable no later than the commit that is the reason.
        """
        if (text := self._targeted.get(table)) is not None:
            self._note_targeted({**self._targeted, table: voided(text)})

    def _note_targeted(self, targeted: Mapping[str, str]) -> None:
        if targeted != self._targeted:
            self._targeted, self._state_due = targeted, True

    def mark_loads(self, loads: Mapping[str, str | None]) -> None:
        """Note loads that are to come, or (None) that came to nothing: a STATE will say it.

        Input that waits came before: what it says of a table of the same name does not undo this.
        """
        if self._waiting:
            self._waiting.append(_Marked(loads))
        self._mark(loads)

    def _mark(self, loads: Mapping[str, str | None]) -> None:
        after = dict(self._loads)
        for table, phase in loads.items():
            if phase is None:
                after.pop(table, None)
            else:
                after[table] = phase
        self._note_loads(after)

    def _note_loads(self, loads: dict[str, str]) -> None:
        if loads != self._loads:
            self._loads, self._state_due = loads, True
            self.notes_loads = self.notes_loads or bool(loads)

    def mark_looked(self, looked: Looked) -> None:
        """Note what the catalog was when it was compared last: a STATE will say it.

        Not before what was found is in Kafka, or a crash between the two would lose it [H49].
        """
        if self._phase is not Phase.SENDING:
            self._waiting.append(_Compared(looked))
        else:
            self._compared(looked)

    def _compared(self, looked: Looked) -> None:
        self._state_due = self._state_due or not looked.is_as(self._looked)
        self._looked = looked

    def lend(self) -> WriterState:
        """Give the numbers away while nothing is open: records of a load are written with them."""
        assert self.is_settled
        return replace(
            self._writer_state,
            head=self._head(self._n, self._seq, self._resume),
            state_from=self._state_from,
            topics=dict(self._topics),
            loads=dict(self._loads),
            looked=self._looked,
            upto=self._upto,
            targeted=self._targeted,
            had_loads=self.notes_loads,
        )

    def take_back(self, writer_state: WriterState) -> None:
        """Take the numbers as the newest durable record of a load has them.

        `writer_state`: what `lend` gave, moved on by what was written since.
        """
        self._records_since_state += writer_state.head.n - self._n
        self._n, self._loads = writer_state.head.n, dict(writer_state.loads)
        self._upto, self._targeted = writer_state.upto, writer_state.targeted
        self.notes_loads = writer_state.notes_loads
        self._resume = writer_state.head.resume
        self._written_at = self._now

    def step(self, happened: Happened) -> list[Command]:
        """Return the commands that `happened` calls for, in order; [] once it has stopped.

        Raises GroupUnusable where acknowledgements and records do not match: start again from cuts.
        """
        out: list[Command] = []
        if self._stopped:
            return out
        match happened:
            case RowsAssembled() | Walked() | TransactionEnded() | SchemaUsed():
                self._drained = False
                self._close_if_due(out)  # it may have grown old since its last commit
                if self._phase is Phase.SENDING:
                    self._take(happened, out)
                else:
                    self._waiting.append(happened)
                    if isinstance(happened, RowsAssembled | Walked):
                        self.buffered += happened.size
            case Acknowledged(runs):
                self._acknowledge(runs)
                self._after_acknowledgements(out)
            case CutsDurable(offsets):
                self._cuts_durable(offsets, out)
            case PartDurable():
                self._phase = Phase.SENDING
                self._rows = 0
                self._go_on(out)
            case PositionReached(position, is_urgent):
                self._position = max(self._position, position)
                if is_urgent:
                    self._hurry = True
                    self._heartbeat_if_due(out)
            case InputDrained():
                self._drained = True
                self._close_if_due(out)
            case TopicsChanged(topics):
                if (now := {**self._topics, **topics}) != self._topics:
                    self._topics = now
                    self._state_due = True
            case Ticked(now, wall_us, told_end):
                self._now, self._wall_us, self._told_end = now, wall_us, told_end
                self._state_at = self._state_at or now
                self._close_if_due(out)
                self._part_if_giant(out)
                self._heartbeat_if_due(out)
            case StopAsked():
                self._stopping = True
                self._close_if_due(out)
                self._heartbeat_if_due(out)
            case _:
                assert_never(happened)
        self._stop_if_done(out)
        return out

    # ------------------------------------------------------------ rows and groups
    def _take(self, happened: Input, out: list[Command]) -> None:
        """Put input into the open group.  Called in SENDING only."""
        if isinstance(happened, SchemaUsed):
            self._current_ids[happened.topic] = happened.schema_id
            return
        if isinstance(happened, _Marked):
            self._mark(happened.loads)
            return
        if isinstance(happened, _Compared):
            self._compared(happened.looked)
            return
        tally = self._tally
        if isinstance(happened, TransactionEnded):
            tally.end(happened)
            if happened.fates or happened.holes:  # in the Kafka transaction of its own cut
                lacking = {gap.table for gap in happened.holes}
                loads = followed(self._loads, happened.fates, lacking, notes_loads=self.notes_loads)
                targeted = followed_for_one(self._targeted, happened.fates, lacking)
                if (loads, targeted) != (self._loads, self._targeted):
                    self._before = self._before or (self._loads, self._targeted)
                    self._loads, self._targeted = loads, targeted
        else:
            if not self._rows:
                self._opened_at = self._now
            topics: Iterable[str]
            if isinstance(happened, Walked):
                tally.take(happened.records)
                topics = happened.records.topics
            else:
                tally.add(happened.records)
                topics = {record[0] for record in happened.records}
            for topic in topics:
                self._use_schema(topic)
            self._rows += len(happened.records)
            self._awaited += len(happened.records)
            out.append(SendRows(happened.records))
        if not tally.is_open and self._is_full():
            self._close(out)

    def _is_full(self) -> bool:
        """Close the group by rows, by commits, by age, or before its cut gets too large."""
        tally, limits = self._tally, self._limits
        return (
            self._rows >= limits.group_rows
            or tally.commits >= limits.group_commits
            or self._now - self._opened_at >= limits.group_seconds
            or tally.cut_bytes >= limits.cut_bytes
        )

    def _close_if_due(self, out: list[Command]) -> None:
        """Close a group of whole transactions: nothing more is coming, or it is old."""
        if self._phase is not Phase.SENDING or self._tally.is_open or not self._tally.commits:
            return
        if self._drained or self._stopping or self._is_full():
            self._close(out)

    def _close(self, out: list[Command]) -> None:
        self._phase = Phase.FLUSHING
        if self._awaited:
            out.append(Flush())  # the answer brings the rest of the acknowledgements
        else:
            self._after_acknowledgements(out)

    def _part_if_giant(self, out: list[Command]) -> None:
        """Commit a part of a transaction that outlives a third of the Kafka timeout."""
        if self._phase is not Phase.SENDING or not self._tally.is_open:
            return
        if self._now - self._opened_at >= self._limits.transaction_timeout / 3:
            self._close(out)

    # ------------------------------------------------------------ acknowledgements and cuts
    def _acknowledge(self, runs: Iterable[Acknowledgement]) -> None:
        self._awaited -= self._tally.acknowledge(runs)
        if self._awaited < 0:
            raise GroupUnusable("more acknowledgements than records")

    def _after_acknowledgements(self, out: list[Command]) -> None:
        if self._phase is not Phase.FLUSHING or self._awaited:
            return
        if self._tally.commits or self._state_due:
            self._write(self._make_cuts(), out)
        else:
            self._phase = Phase.PARTING
            out.append(CommitPart())

    def _write(self, cuts: tuple[Cut, ...], out: list[Command]) -> None:
        self._phase = Phase.CUTTING
        self._in_flight = cuts
        self._written_at = self._now
        out.append(WriteCuts(cuts))

    def _make_cuts(self) -> tuple[Cut, ...]:
        """Build the records of the closed group.

        A transaction with DDL or gaps gets a record of its own; all of them
        become durable in the group's one Kafka transaction.

        Topics stand in front of rows in them.  How far loads are behind the group's renames, drops
        and gaps stands behind those: a reader takes a table that the loads do not name for one
        that is gone, before it knows the new name.
        """
        cuts: list[Cut] = []
        n, seq, resume = self._n, self._seq, self._resume
        if self._is_state_due():
            cuts.append(self._state(n, seq, resume, self._before))
        ids = {topic: tuple(ids) for topic, ids in self._schema_ids.items()}
        for commits, ranges, seq, end_lsn in self._tally.close():
            n, resume = n + 1, max(resume, end_lsn)
            used = {r.topic: ids[r.topic] for r in ranges if r.topic in ids}
            cuts.append(Commits(self._head(n, seq, resume), commits, ranges, used))
        if self._before is not None:
            cuts.append(self._state(n, seq, resume))
            self._before = None
        if not self._tally.is_open:  # else the open transaction has rows of these schemas, too
            self._schema_ids = {}
        return tuple(cuts)

    def _cuts_durable(self, offsets: tuple[int, ...], out: list[Command]) -> None:
        if len(offsets) != len(self._in_flight):
            raise GroupUnusable("a cut was committed without an offset")
        for cut, offset in zip(self._in_flight, offsets, strict=True):
            self._n, self._seq = cut.head.n, cut.head.last_seq
            self._resume = cut.head.resume
            if isinstance(cut, State):
                self._state_from, self._records_since_state = offset, 0
                self._state_at = self._now
        self._records_since_state += len(offsets)
        self._phase = Phase.SENDING
        self._rows = 0
        out.append(Confirm(self._resume))
        self._go_on(out)

    def _go_on(self, out: list[Command]) -> None:
        """Take what came while the last group was being finished."""
        self._opened_at = self._now
        if self._stopping and self._waiting:  # not durable, so the source will send it again
            self._waiting.clear()
            self._discarded = True
        while self._waiting and self._phase is Phase.SENDING:
            happened = self._waiting.popleft()
            if isinstance(happened, RowsAssembled | Walked):
                self.buffered -= happened.size
            self._take(happened, out)
        self._close_if_due(out)
        self._heartbeat_if_due(out)

    # ------------------------------------------------------------ idle, state, stop
    def _heartbeat_if_due(self, out: list[Command]) -> None:
        """Put an idle position into a durable record before it may be confirmed."""
        if not self.is_idle or self._said_goodbye:
            return
        moved = self._position > self._resume
        waited = self._now - self._written_at
        due = (
            self._state_due
            or waited >= self._limits.heartbeat_seconds
            or (moved and (self._stopping or (self._hurry and waited >= _HURRY_SECONDS)))
        )
        if not due:
            return
        self._hurry = False
        self._said_goodbye = self._stopping  # a busy source moves on for ever
        resume = max(self._resume, self._position)
        cuts: list[Cut] = []
        if self._is_state_due():
            cuts.append(self._state(self._n, self._seq, self._resume))
        cuts.append(Heartbeat(self._head(self._n, self._seq, resume)))
        self._write(tuple(cuts), out)

    def _is_state_due(self) -> bool:
        limits = self._limits
        return (
            self._state_due
            or self._records_since_state >= limits.state_records
            or self._now - self._state_at >= limits.state_seconds
        )

    def _state(self, n: int, seq: int, resume: Lsn, loads: _Loads | None = None) -> State:
        """`loads`: those of an earlier place than now."""
        self._state_due = False
        phases, targeted = loads or (self._loads, self._targeted)
        writer_state = self._writer_state
        return State(
            replace(self._head(n, seq, resume), state_from=-1),
            writer_state.identity,
            writer_state.content,
            writer_state.cluster_id,
            dict(self._topics),
            dict(phases),
            looked=self._looked,
            upto={t: key for t, key in self._upto.items() if phases.get(t) == LoadPhase.CHUNK},
            targeted=targeted,
            had_loads=self.notes_loads,
        )

    def _head(self, n: int, seq: int, resume: Lsn) -> Head:
        head = self._writer_state.head
        return Head(
            *(n, head.epoch, head.writer, head.instance, seq, resume),
            *(self._state_from, self._wall_us, self._told_end or None),
        )

    def _use_schema(self, topic: str) -> None:
        """Note that the rows just sent to `topic` are of its current schema."""
        if (schema_id := self._current_ids.get(topic)) is None:
            return
        ids = self._schema_ids.setdefault(topic, [])
        if schema_id not in ids:
            ids.append(schema_id)

    def _stop_if_done(self, out: list[Command]) -> None:
        if not self._stopping or self._phase is not Phase.SENDING:
            return
        # Rows of an open source transaction cannot become durable without its commit: the whole
        # Kafka transaction is aborted, and the source sends the group again.
        self._stopped = True
        out.append(Stopped(abort=self._tally.is_open))
