"""The one loop: read -> decode -> assemble -> step -> execute.

One slot is one ordered stream, so one thread reads, decodes and encodes.  The engine decides;
this module moves messages between ports and watches the clock.  `pipeline.py` runs it on
sockets and librdkafka, `tests/sim` on simulated ports that move one step at a time.

A pass does these, in this order, and each of them returns soon:

    re-reads  the place of the next table is made, or a piece of one is written at its place.  Where
              the stream stands at a place and not all before it is durable, nothing is read.
    source    what has come is received, decoded, and given to the assembler in slices.  Nothing is
              received while more than `buffer_bytes` wait for Kafka: the source's socket fills.
    catalog   a look is taken every few seconds, and judged once the stream has passed its place.
              What the stream has not said is a transaction of its own: schema changes and gaps.
    Kafka     acknowledgements are collected; a cut that is durable is told to the engine.
    clock     the engine closes a group that is old enough; the source is told what is confirmed.
    leave     once it is asked to: the open transaction gets five seconds to end, and is left then.

Each thing that happens is one event (`core/events`).  The engine answers with commands, and these
alone act: rows are sent, a group is flushed, cuts are written, a position is confirmed.

Two positions are told apart.  `_at` is the end of what the assembler was given: looks and re-reads
are compared with it.  `_confirmed` is what a durable cut covers: the source is told that, and never
more, so that it keeps all that a crash would lose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, assert_never

from producer.core.catalog.catalog_differences import Dropped, Unseen
from producer.core.catalog.catalog_watch import CatalogWatch, Newcomers
from producer.core.catalog.look import Look, Unchanged
from producer.core.changes import Begin, Lost, Message, Stretch, Undecoded
from producer.core.delivery.engine import Engine
from producer.core.events import (
    Acknowledged,
    Command,
    CommitPart,
    Confirm,
    CutsDurable,
    Flush,
    Happened,
    InputDrained,
    PartDurable,
    PositionReached,
    Records,
    RowsAssembled,
    SendRows,
    StopAsked,
    Stopped,
    Ticked,
    TopicsChanged,
    TransactionEnded,
    Walked,
    WriteCuts,
    sizes_of,
)
from producer.core.loads.queue import OPEN
from producer.core.loads.reread import Placed, Rereads
from producer.core.log.cuts_log import CutsLog
from producer.core.ports import (
    Blocking,
    Clock,
    Delivery,
    Quarantine,
    RunObserver,
    RunOptions,
    ShutdownRequested,
    Source,
)
from producer.core.stream.assemble import Assembler
from producer.core.stream.relations import Relations
from producer.errors import BrokerDown, CdcError, DecodeError
from producer.wire.replication import Received
from schemas.control import ANY, GAP, PENDING, Cut
from schemas.errors import LOAD_AGAIN
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.tables import TableId, argument

BEAT: Final = 0.5  # seconds: well below any wal_sender_timeout that a server is run with
_BUSY_WAIT: Final = 0.02  # seconds to wait for input while something is open
_IDLE_WAIT: Final = 0.5
_SLICE_STRETCHES: Final = 3
_LEAVE_SECONDS: Final = 5.0  # for the open source transaction to end before the group is aborted
_GIVE_UP_SECONDS: Final = 8.0  # on leaving; what is not durable then, the source sends again
_CONFIRM_SECONDS: Final = 0.1  # status messages at most this often


@dataclass(slots=True)
class Progress:
    """What a run has done; read by its observers."""

    rows: int = 0
    commits: int = 0
    seq: int = 0
    resume: Lsn = NOWHERE
    received: Lsn = NOWHERE  # greatest position mentioned by the source
    told_end: int = 0  # of its log, or of its CSNs; 0: it does not tell
    committed_at: int = 0  # µs since 1970 of the newest delivered commit
    retries: int = 0
    takeovers: int = 0
    has_streamed: bool = False
    is_idle: bool = True  # all that was received is durable
    waits_for: str = ""  # what the stream is to come to, so that a table can be read
    loads: Mapping[str, str] = field(default_factory=dict)  # schema.table -> phase; never changed


class Loop:
    """From START_REPLICATION to the end of one turn."""

    def __init__(
        self,
        options: RunOptions,
        *,
        source: Source,
        delivery: Delivery,
        quarantine: Quarantine,
        blocking: Blocking,
        clock: Clock,
        observer: RunObserver,
        log: CutsLog,
        engine: Engine,
        assembler: Assembler,
        relations: Relations,
        catalog: CatalogWatch,
        progress: Progress,
        rereads: Rereads,
        left: Sequence[TableId],
        changed: list[TopicsChanged],
        advice: Callable[[TableId], str],
    ) -> None:
        """`changed` is filled by the publisher; `advice` says how a new table is captured.

        `left` are tables that were captured by the run before, and are not any more.
        """
        self._options, self._observer, self._progress = options, observer, progress
        self._source, self._delivery = source, delivery
        self._quarantine, self._log, self._clock = quarantine, log, clock
        self._blocking = blocking
        blocking.beat = lambda: self._tell_source(force=True)
        self._changed, self._advice = changed, advice
        self._engine, self._assembler, self._relations = engine, assembler, relations
        self._rereads, self._left = rereads, left
        self._catalog = catalog
        self._gaps: dict[str, str] = {}  # schema.table -> why, as far as it was said
        self._gaps_noted: set[str] = set()  # of them, those that a re-read mends
        self._refused: set[str] = set()  # sentences about tables that cannot be captured
        self._loads_seen: tuple[object, object] = (None, None)  # the loads that `rereads` knows
        self._look_due = self._look_took = 0.0
        self._at = engine.resume  # everything committed before was fed to the assembler
        self._pending: Iterator[tuple[Lsn, Message]] | None = None  # None: all of a read was taken
        self._lost_between: Lost | None = None  # outside a transaction: a gap of the next one
        self._received = Received()
        self._confirmed = 0
        self._status_at = self._read_at = 0.0
        self._reported = 0  # the newest position that the source was sent
        self._answered_at = clock.now()
        self._progress_seen = 0
        self._leaving_since: float | None = None
        self._stopped: Stopped | None = None
        self._in_flight: Sequence[Cut] = ()
        self._made: deque[tuple[int, int]] = deque()  # (end_lsn, committed_at), not durable yet

    def run(self) -> bool:
        """Run until asked to stop; leave no open transaction at the source or in Kafka.

        Returns whether a session of the source is to be begun anew: what it knows has passed.
        Raises CdcError, and ShutdownRequested where Kafka is too slow for the last group.
        """
        self._observer.on_note(f"streaming from {lsn_text(self._engine.resume)}")
        self._progress.has_streamed = True
        self._give_up_left()
        self._tick()
        try:
            # Before the first row, too: a table that was there, and is renamed, has older ones.
            self._watch_catalog()  # before a re-read holds the next one up: looks are compared
            while self._stopped is None:
                if not (self._ends_session() or self._read_again()):
                    self._read()
                self._watch_catalog()
                self._poll_delivery()
                self._tick()
                self._leave_if_asked()
        finally:
            self._rereads.let_go()
        if self._stopped.abort:
            self._delivery.abort(3.0)
        self._tell_source(force=True)
        return self._catalog.has_outlived and self._leaving_since is None

    # ------------------------------------------------------------ source
    def _read(self) -> None:
        """Read what the source has, unless too much of it waits for Kafka.

        A source that holds transactions may give millions of messages for one read: they are
        taken in slices, with Kafka and the clock between, before the socket is read again.
        """
        engine, delivery = self._engine, self._delivery
        is_calm = engine.is_idle and self._rereads.table_beside is None
        wait = _IDLE_WAIT if is_calm else _BUSY_WAIT
        if engine.buffered > self._options.tuning.buffer_bytes:
            delivery.wait(wait)
            return
        self._observer.on_step("run: read")
        if self._pending is None:
            self._receive(wait)
        self._take(self._slice())
        if self._pending is None:
            self._end_read(self._received)

    def _receive(self, wait: float) -> None:
        wake = (*self._delivery.filenos(), *self._rereads.filenos())
        self._received = self._source.wire.receive(wait, wake)
        self._pending = self._source.messages(
            self._received.messages, one_by_one=self._rereads.looks_at_all
        )
        if self._received.reply_requested:
            self._tell_source(force=True)
        self._read_at = self._clock.now()

    def _slice(self) -> Iterator[tuple[Lsn, Message]]:
        """Yield messages of a read, for as long as Kafka and the source may wait.

        A statement costs a thousand times as much as a row: its schema is registered.
        """
        pending, tuning, now = self._pending, self._options.tuning, self._clock.now
        assert pending is not None
        until = now() + tuning.slice_seconds
        stretches = 0  # of which the walker took some: it makes a few MB at once
        for count, (lsn, message) in enumerate(pending, 1):
            if self._rereads.stops(message):
                self._pending = chain([(lsn, message)], pending)
                return
            if (gap := self._rereads.watch(message)) is not None:
                yield lsn, gap
            at = message.at if isinstance(message, Stretch) else 0
            yield lsn, message
            stretches += isinstance(message, Stretch) and message.at > at
            if count >= tuning.slice_messages or stretches >= _SLICE_STRETCHES or now() >= until:
                return
        self._pending = None

    def _end_read(self, received: Received) -> None:
        """Look at what came with the messages of a read: the source's own position."""
        end = received.keepalive_end
        is_between = not self._assembler.is_open and self._lost_between is None
        if end and is_between and self._source.keepalives_move:
            self._assembler.reached(end)
            self._progress.received = max(self._progress.received, end)
            self._step(PositionReached(end, received.reply_requested))
        if received.reply_requested:
            self._tell_source(force=True)
        if not received.messages or not self._source.wire.has_input():
            self._step(InputDrained())

    def _take(self, messages: Iterator[tuple[Lsn, Message]]) -> None:
        self._step_all(self._assembler.feed(self._checked(messages)))

    def _step_all(self, assembled: list[Happened]) -> None:
        while self._changed:  # before the rows: their cut must not come before the topics
            self._step(self._changed.pop(0))
        for happened in assembled:
            self._step(happened)

    def _checked(self, messages: Iterator[tuple[Lsn, Message]]) -> Iterator[tuple[Lsn, Message]]:
        """Keep what could not be decoded; then stop before it, or continue with a gap."""
        options = self._options
        for lsn, message in messages:
            if isinstance(message, Stretch) and self._lost_between is not None:
                continue  # the next BEGIN is needed here
            if not isinstance(message, Undecoded):
                yield lsn, message
                if self._lost_between is not None and isinstance(message, Begin):
                    yield lsn, self._lost_between
                    self._lost_between = None
                continue
            topic = options.topics.quarantine
            self._blocking(self._quarantine.put, message.payload, lsn=lsn, why=message.why)
            self._observer.warn(f"an undecodable message went to {topic}: {message.why}")
            if options.unknown_message == "stop":
                raise DecodeError(
                    "the source sent a message that this plugin does not have",
                    lsn=lsn_text(lsn),
                    why=message.why,
                    topic=topic,
                    hint="send it to us (gauss-cdc record); to continue without it: "
                    "source.unknown-message = 'quarantine'",
                )
            lost = Lost("", "", "seen", f"an undecodable message, kept in {topic}")
            if self._assembler.is_open:
                yield lsn, lost
            else:  # it may have been a whole transaction, or its BEGIN
                self._lost_between = lost

    # ------------------------------------------------------------ re-reads
    def _give_up_left(self) -> None:
        """Leave a gap in tables that are not captured any more, before anything else.

        The STATE that notes them is due and comes with it.
        """
        for table in self._left:
            self._observer.on_note(f"{table} is not in [tables] any more; targets keep what it was")
        gaps = [Unseen(table, "is not captured any more: it left [tables]") for table in self._left]
        self._step_all(self._assembler.explain(gaps, self._at))

    def _read_again(self) -> bool:
        """Bring a re-read forward; True where the stream stands still for it."""
        rereads, engine = self._rereads, self._engine
        if self._leaving_since is not None:
            rereads.let_go()
            return False
        loads = engine.loads, engine.targeted
        if any(was is not now for was, now in zip(self._loads_seen, loads, strict=True)):
            self._follow_gaps()
            self._loads_seen = loads
            if self._source.rereads:
                rereads.follow(loads[0], engine.upto, loads[1], self._relations.known)
        if (complete := rereads.needless()) is not None:
            engine.mark_loads({str(complete): None})
        if not rereads.is_under_way:
            if self._pending is None and (noted := rereads.make_point(self._relations.known)):
                engine.mark_loads(noted)
            self._step_all([])  # the point's table may have a topic since
            return False
        is_between = not self._assembler.is_open and self._lost_between is None
        rereads.reach(self._at, self._relations.known, is_between=is_between)
        self._step_all([])
        if not rereads.is_standing:
            rereads.be_patient()
        elif engine.is_settled:
            self._read_at_point()
        else:
            self._step(InputDrained())
            self._delivery.wait(_BUSY_WAIT)
            return True
        return False

    def _read_at_point(self) -> None:
        """Read the table, or pass one that is gone: all before the point is durable."""
        rereads, engine = self._rereads, self._engine
        if not rereads.has_point:
            self._place()
            return
        if (passed := rereads.pass_gone(engine.lend())) is not None:
            writer_state, gone = passed
            engine.take_back(writer_state)
            engine.mark_loads({str(gone): None})
            self._catalog.look_again()  # it may be there again, and all as at the look before
            return
        self._observer.on_step("run: a table is read again")
        if (placed := rereads.read(engine.lend(), self._relations.known)) is not None:
            self._take_back(placed)

    def _place(self) -> None:
        """Write the next piece of a load that the stream does not wait for."""
        engine, known = self._engine, self._relations.known
        placed = self._rereads.place(engine.lend(), self._at, known)
        if placed is not None:
            self._take_back(placed)

    def _take_back(self, placed: Placed) -> None:
        """Go on behind what was written of a load; one for a target changes nothing for others."""
        self._engine.take_back(placed.writer_state)
        if placed.shape is not None:
            self._assembler.adopt(placed.shape)
            self._source.adopt(placed.shape)
            self._catalog.read_again(placed.shape.id, placed.looked)
            self._note_looked()

    def _follow_gaps(self) -> None:
        """Forget gaps that were mended; say those that an earlier run left."""
        gaps = {table for table, phase in self._engine.loads.items() if phase == GAP}
        for table in self._gaps_noted - gaps:
            self._gaps.pop(table, None)
        self._gaps_noted = gaps
        for table in sorted(gaps - self._gaps.keys()):
            self._say_gap(table, "it had a gap before", mends=True)

    def _say_gap(self, table: str, why: str, *, mends: bool) -> None:
        """Say once that a table has a gap; `mends`: reading the table again does."""
        if self._gaps.get(table) == why:
            return
        self._gaps[table] = why
        line = f"{table} is not exact any more: {why}"
        if not mends:
            self._observer.warn(line)
        elif not self._source.rereads:
            self._observer.warn(f"{line}; a load makes it equal: {LOAD_AGAIN}")
        elif self._options.repair == "auto" and self._engine.notes_loads:
            self._observer.on_note(f"{line}; it is read again")
        else:
            asking = f"gauss-cdc snapshot --table {argument(table)}"
            self._observer.warn(f"{line}; `{asking}` reads it again")

    # ------------------------------------------------------------ catalog
    def _watch_catalog(self) -> None:
        """Compare what the stream has said with the catalog, every few seconds; see the module."""
        catalog, relations = self._catalog, self._relations
        if self._assembler.is_open or self._pending is not None or self._leaving_since is not None:
            return
        if self._rereads.has_point:
            return  # what it writes would stand before the point
        if not catalog.is_waiting:
            began = self._clock.now()
            if began < self._look_due:
                return
            known = relations.known
            look = self._source.look(known, unless=catalog.unless(known), before=catalog.before)
            now = self._clock.now()
            took, options = now - began, self._options
            # One slow look alone says that others had the processor: `wait` waits for the next.
            rest = options.tuning.look_share * min(took, self._look_took)
            self._look_due, self._look_took = now + max(options.look_seconds, rest), took
            if isinstance(look, Unchanged):
                catalog.take_unchanged(look)
            if not isinstance(look, Look):
                return
            for table, why in catalog.take(look, relations.known).items():
                self._observer.on_note(f"new: {why or self._advice(table)}")
        if self._lost_between is not None:
            return
        if self._at < catalog.due_at:
            return
        found = catalog.judge(
            self._at,
            relations.known,
            reports_ddl=relations.reports_ddl,
            told=relations.take_told(),
            is_marked=lambda table: (
                not self._rereads.is_read_beside(table)
                and self._engine.loads.get(str(table)) in {GAP, *OPEN}
            ),
        )
        for finding in found:
            self._observer.on_note(f"the catalog shows what the stream did not: {finding}")
        self._step_all(self._assembler.explain(found, self._at))
        for finding in found:
            if isinstance(finding, Dropped):
                self._source.forget(finding.table)
        self._note_looked()
        self._take_in(catalog.newcomers(relations.known))

    def _ends_session(self) -> bool:
        """Stop where the catalog has outlived the session, once what that marks is durable."""
        if not self._catalog.has_outlived:
            return False
        if self._engine.is_settled:
            self._observer.on_note("begins a session anew: a root of partitions was moved")
            self._step(StopAsked())
        else:
            self._step(InputDrained())
            self._delivery.wait(_BUSY_WAIT)
        return True

    def _note_looked(self) -> None:
        if (looked := self._catalog.looked) is not None:
            self._engine.mark_looked(looked)

    def _take_in(self, came: Newcomers) -> None:
        """Capture tables that came without a statement: hidden first, then published, then read.

        What the stream says of one before its point is in the snapshot.  An epoch that began
        without a load loads none.  A crash in between: the next start finds it captured and not
        known, and reads it.
        """
        rereads, engine, note = self._rereads, self._engine, self._observer.on_note
        if not self._source.rereads or not engine.notes_loads:
            for table in came.unpublished:
                note(f"new: {self._advice(table)}")
            return
        for table in (*came.published, *came.unpublished):
            is_noted = engine.loads.get(str(table)) in OPEN
            if is_noted and table in came.published:
                continue  # a noted one that was made again has left the publication
            rereads.queue.hide(table)
            refused = ""
            if table in came.unpublished:
                try:
                    refused = self._blocking(self._source.publish, table)
                except CdcError as error:
                    refused = f"{table} is captured later: {error}"
                    self._catalog.look_again()
            if not refused:
                note(f"new: table {table} is captured, and loaded beside the stream")
                engine.mark_loads({str(table): PENDING})
                continue
            if not is_noted:
                rereads.queue.show(table)
            if refused not in self._refused:
                note(f"new: {refused}")
            self._refused.add(refused)

    def _tell_source(self, *, force: bool = False) -> None:
        now = self._clock.now()
        due = now - self._status_at
        # What is confirmed is not sent again: the next start could not compare it.
        confirmed = self._confirmed if self._assembler.has_compared else 0
        moved = confirmed > self._reported and due >= _CONFIRM_SECONDS
        # While the socket is not read, the server's request for an answer is not seen.
        is_deaf = now - self._read_at >= BEAT
        every = min(BEAT, self._options.status_seconds) if is_deaf else self._options.status_seconds
        if force or moved or due >= every:
            self._source.wire.send_status(Lsn(confirmed))
            self._status_at, self._reported = now, confirmed
            if moved:
                self._observer.on_step("run: confirmed")

    # ------------------------------------------------------------ Kafka
    def _poll_delivery(self) -> None:
        delivery = self._delivery
        if acknowledged := delivery.poll():
            self._step(Acknowledged(acknowledged))
        for answer in delivery.answers():
            match answer:
                case Acknowledged() | PartDurable():
                    self._step(answer)
                case CutsDurable(offsets):
                    cuts = self._in_flight
                    self._log.judge_own(cuts, offsets)
                    self._source.delivered(cuts)
                    self._observer.on_step("run: cut durable, not confirmed")
                    self._step(answer)
                    self._progress.seq = self._engine.seq
                    self._progress.resume = self._engine.resume
                    self._tell_durable(cuts)
                case CdcError():
                    raise answer
                case _:
                    assert_never(answer)
        if delivery.is_busy:
            self._check_timeout()

    def _tell_durable(self, cuts: Sequence[Cut]) -> None:
        """Say what became durable to who counts it."""
        if (on_durable := self._observer.on_durable) is None:
            return
        made, resume = [], self._engine.resume
        while self._made and self._made[0][0] <= resume:
            made.append(self._made.popleft()[1])
        on_durable(cuts, made)

    # ------------------------------------------------------------ engine
    def _tick(self) -> None:
        progress = self._progress
        progress.received = max(progress.received, self._source.wire.received_end)
        progress.told_end = told_end = self._source.told_end
        progress.is_idle = self._engine.is_idle and not self._assembler.is_open
        progress.waits_for = self._rereads.waits_for
        progress.loads = self._engine.loads
        self._step(Ticked(self._clock.now(), self._clock.wall_us(), told_end))
        self._tell_source()

    def _step(self, happened: Happened) -> None:
        if isinstance(happened, TransactionEnded):
            self._ended(1, happened)
            self._rereads.meet(happened.fates, {gap.table for gap in happened.holes})
            mended = {fate.table for fate in happened.fates if fate.table == fate.now}
            for gap in happened.holes:
                for table in sorted(mended) if gap.table == ANY else (gap.table,):
                    self._say_gap(table, gap.why, mends=table in mended)
        elif isinstance(happened, Walked) and happened.commits:
            self._ended(happened.commits, happened)
        elif isinstance(happened, PositionReached):
            self._at = max(self._at, happened.position)
        if self._observer.on_bytes is not None and isinstance(happened, RowsAssembled | Walked):
            self._observer.on_bytes(sizes_of(happened))
        for command in self._engine.step(happened):
            self._execute(command)

    def _ended(self, commits: int, newest: TransactionEnded | Walked) -> None:
        progress = self._progress
        progress.commits += commits
        progress.rows += newest.rows
        progress.committed_at = newest.committed_at
        self._at = newest.end_lsn
        if self._observer.on_durable is not None:
            self._made.append((newest.end_lsn, newest.committed_at))

    def _execute(self, command: Command) -> None:
        delivery, observer = self._delivery, self._observer
        self._answered_at = self._clock.now()  # Kafka's time for it begins here
        match command:
            case SendRows(records):
                observer.on_step("run: rows sent")
                self._send(records)
            case Flush():
                observer.on_step("run: waiting for acknowledgements")
                delivery.flush()
            case CommitPart():
                observer.on_step("run: part of a giant committed")
                delivery.commit_part()
            case WriteCuts(cuts):
                observer.on_step("run: cut written, not committed")
                self._in_flight = cuts
                delivery.write_cuts([self._log.framed(cut) for cut in cuts])
            case Confirm(lsn):
                self._confirmed = lsn
            case Stopped():
                self._stopped = command
            case _:
                assert_never(command)

    def _send(self, records: Records) -> None:
        """Pass rows to librdkafka; while it has no room, keep the source's session alive."""
        delivery, sent = self._delivery, 0
        while (sent := delivery.send(records, sent)) < len(records):
            self._check_timeout()
            self._tell_source()

    def _check_timeout(self) -> None:
        """Raise BrokerDown when nothing came from Kafka for too long.

        A PostgreSQL that is shutting down waits for our confirmation: its session ends then.
        """
        now = self._clock.now()
        if (progress := self._delivery.progress) != self._progress_seen:
            self._progress_seen, self._answered_at = progress, now
        silent = now - self._answered_at
        if silent > self._options.kafka_silence_seconds:
            raise BrokerDown(
                "Kafka does not answer; the source is released meanwhile", seconds=round(silent)
            )

    def _leave_if_asked(self) -> None:
        if not self._observer.stop_asked(0):
            return
        now = self._clock.now()
        if self._leaving_since is None:
            self._leaving_since = now
            self._observer.on_note("leaving")
        if not self._assembler.is_open or now - self._leaving_since > _LEAVE_SECONDS:
            self._step(StopAsked())
        if self._stopped is None and now - self._leaving_since > _GIVE_UP_SECONDS:
            self._observer.on_note("Kafka is slow: left without the last group, which comes again")
            raise ShutdownRequested
