"""The one loop: read -> decode -> assemble -> step -> obey.

One slot is one ordered stream, so one thread reads, decodes and encodes; the
broker's blocking calls have a thread of their own (`kafka/delivery.py`).  Policy
is the engine's; this file moves bytes and watches the clock.
"""

from __future__ import annotations

import logging
import random
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import assert_never

import tenacity

from producer.core.assemble import Assembler, World
from producer.core.catalog_watch import CatalogWatch
from producer.core.changes import Begin, Lost, Message, Undecoded
from producer.core.engine import Engine, Standing
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
    Record,
    SendRows,
    StopAsked,
    Stopped,
    Ticked,
    TopicsChanged,
    TransactionEnded,
    WriteCuts,
)
from producer.core.records.encode import TransactionConstants
from producer.core.relations import Relations
from producer.core.takeover import Taken, Wanted, take_over, take_slot
from producer.core.unfit import Unfit
from producer.errors import BrokerDown, CdcError, DecodeError
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.delivery import CutsCommitted, Delivery, Flushed, PartCommitted
from producer.kafka.quarantine import Quarantine
from producer.kafka.registry import Registry
from producer.kafka.topics import TopicAdmin
from producer.meanwhile import BEAT, Meanwhile
from producer.options import Options
from producer.publish import Publisher, fingerprint
from producer.sources.catalog_look import chooser, not_captured
from producer.sources.kinds import SOURCES, Source
from producer.start import (
    PAUSE,
    CutsLog,
    Leaving,
    Loader,
    Watch,
    drive,
    keep,
    known_tables,
    new_instance,
    now_us,
)
from producer.wire.replication import Received
from schemas.control import Cut
from schemas.errors import Verdict
from schemas.positions import Lsn
from schemas.tables import TableId, TableSchema

_log = logging.getLogger(__name__)

_BUFFER_BYTES = 12 << 20  # of values held while a group is being finished; a row costs 5 times that
_SLICE, _SLICE_SECONDS = 2_000, 0.2  # messages between two looks at Kafka, and how long at most
_BACKOFF, _BACKOFF_MAX = 0.5, 15.0  # seconds
_BUSY_WAIT = 0.02  # seconds to wait for input while something is open
_IDLE_WAIT = 0.5
_LEAVE_SECONDS = 5.0  # for the open source transaction to end before the group is aborted
_GIVE_UP_SECONDS = 8.0  # on leaving; what is not durable then, the source sends again
_LOOK_SHARE = 50  # a look that takes long is taken as rarely: 2 % of the time
_CONFIRM_SECONDS = 0.1  # status messages at most this often


@dataclass(slots=True)
class Progress:
    """What a run has done; read by whoever watches."""

    rows: int = 0
    commits: int = 0
    bytes: int = 0
    seq: int = 0
    resume: int = 0
    received: int = 0  # greatest position mentioned by the source
    committed_at: int = 0  # µs since 1970 of the newest delivered commit
    retries: int = 0
    takeovers: int = 0
    has_streamed: bool = False
    is_idle: bool = True  # all that was received is durable


def run(options: Options, watch: Watch, progress: Progress | None = None) -> bool:
    """Capture until asked to stop; come back by itself after errors that pass.

    Returns whether a stream began before it was left.  Raises the CdcError that needs a person.
    """
    progress = progress or Progress()

    def passes(error: BaseException) -> bool:
        return isinstance(error, CdcError) and error.verdict is Verdict.RETRY

    reached, tries = progress.resume, 0

    def wait(_: tenacity.RetryCallState) -> float:
        """Grow with failures in a row; a turn that moved on begins anew."""
        nonlocal reached, tries
        tries = tries + 1 if progress.resume == reached else 0
        reached = progress.resume
        return min(_BACKOFF_MAX, _BACKOFF * 2.0**tries) * random.uniform(0.5, 1)  # noqa: S311

    def note(state: tenacity.RetryCallState) -> None:
        progress.retries += 1
        watch.retrying(state.outcome and state.outcome.exception(), state.upcoming_sleep)

    def pause(seconds: float) -> None:
        if watch.stop_asked(seconds):
            raise Leaving

    try:
        tenacity.Retrying(
            retry=tenacity.retry_if_exception(passes),
            wait=wait,
            sleep=pause,
            before_sleep=note,
            reraise=True,
        )(_run_once, options, watch, progress)
    except Leaving:
        if not progress.has_streamed:
            watch.on_note("left before the stream began: the next run starts over")
    return progress.has_streamed


def create_slot(options: Options, watch: Watch) -> bool:
    """Open a prefix without a first load: START and slot, then leave; options.load is False.

    False where a stop was asked for before: a slot that waited for open transactions is dropped.
    """
    try:
        _run_once(options, watch, Progress(), stream=False)
    except Leaving:
        return False
    return True


def _run_once(options: Options, watch: Watch, progress: Progress, *, stream: bool = True) -> None:
    with ExitStack() as stack:
        watch.on_step("start: connect")
        topics = options.topics
        registry = Registry(options.registry_url, options.registry_options)
        stack.callback(registry.close)
        admin = TopicAdmin(options.client, options.topic_settings)
        changed: list[TopicsChanged] = []
        publisher = Publisher(
            options,
            admin=admin,
            registry=registry,
            on_topics=lambda found: changed.append(TopicsChanged(found)),
        )
        publisher.prepare()
        reader = CutsReader(options.client, topics.cuts)
        stack.callback(reader.close)
        ddl_reader = CutsReader(options.client, topics.ddl)
        stack.callback(ddl_reader.close)
        source = SOURCES[options.kind](options, publisher.prepare_tables)
        stack.callback(source.close)
        publisher.encoding = source.encoding
        quarantine = Quarantine(options.client, admin, topics.quarantine)
        delivery = Delivery(
            options.client,
            prefix=options.prefix,
            cuts_topic=topics.cuts,
            transaction_timeout=options.limits.transaction_timeout,
            exactly_once=options.exactly_once,
            max_row_bytes=options.max_row_bytes,
            silence=options.kafka_silence_seconds,
        )
        stack.callback(delivery.close)
        meanwhile = Meanwhile(lambda: source.keep_alive(force=True))
        stack.callback(meanwhile.close)
        log = CutsLog(
            options,
            reader=reader,
            registry=registry,
            delivery=delivery,
            admin=admin,
            meanwhile=meanwhile,
        )
        stack.callback(_undo, options, source, log, watch)
        publisher.prepare_tables(source.prepare(watch.on_note))
        wanted = Wanted(
            identity=source.identity(),
            content=fingerprint(options, source.decides()),
            cluster_id=admin.cluster_id(),
            instance=new_instance(),
            ddl_topic=topics.ddl,
            # For one takeover: what differs weeks later, in a retry, a person decides again.
            accept_gap=options.accept_gap and not progress.takeovers,
            load=options.load,
            newest_epoch=now_us() // 1_000_000,
        )
        patience = round(options.limits.transaction_timeout / PAUSE)
        taken = drive(take_over(source, log, wanted, patience=patience), watch, source)
        progress.takeovers += 1
        for subject in meanwhile(registry.repair, options.prefix):
            watch.on_note(f"{subject}: its compatibility is what it was before an older run ended")
        standing: Standing = taken.standing
        known: dict[TableId, TableSchema]
        if taken.made is not None:
            loader = Loader(
                options,
                standing,
                source=source,
                log=log,
                delivery=delivery,
                publisher=publisher,
                watch=watch,
                made=taken.made,
                quarantine=quarantine,
            )
            standing, known = loader.run(source.tables)
            drive(take_slot(source, standing.head.resume), watch, source)
        else:
            head = standing.head
            known = meanwhile(
                known_tables, ddl_reader, registry, epoch=head.epoch, seq=head.last_seq
            )
        changed.clear()
        if not stream:
            return
        loop = _Loop(
            options,
            watch,
            progress,
            source=source,
            delivery=delivery,
            publisher=publisher,
            quarantine=quarantine,
            meanwhile=meanwhile,
            log=log,
            standing=standing,
            taken=taken,
            known=known,
            changed=changed,
        )
        loop.run()


def _undo(options: Options, source: Source, log: CutsLog, watch: Watch) -> None:
    """Drop what was made for a START that was never written, or say what stays.

    Until then nobody knows of slot and publication, and no run would go on from them. What a
    crash leaves, the next start drops.
    """
    if log.has_started:
        return
    if not log.begins:
        source.discard(watch.on_note)
        return
    watch.on_note(
        f"slot {options.slot} was made and stays: whether its START is durable, the next run "
        "finds out; to give up: gauss-cdc slot drop --yes"
    )


class _Loop:
    """From START_REPLICATION to the end of one turn."""

    def __init__(
        self,
        options: Options,
        watch: Watch,
        progress: Progress,
        *,
        source: Source,
        delivery: Delivery,
        publisher: Publisher,
        quarantine: Quarantine,
        meanwhile: Meanwhile,
        log: CutsLog,
        standing: Standing,
        taken: Taken,
        known: dict[TableId, TableSchema],
        changed: list[TopicsChanged],
    ) -> None:
        self._options, self._watch, self._progress = options, watch, progress
        self._source = source
        self._delivery, self._quarantine, self._log = delivery, quarantine, log
        self._meanwhile = meanwhile
        meanwhile.beat = lambda: self._tell_source(force=True)
        self._changed = changed
        topics = options.topics
        standing = replace(standing, beside=frozenset({topics.message, topics.transaction}))
        self._engine = Engine(standing, options.limits)
        head = standing.head
        source.start_reading(known, resume=head.resume, csn=taken.csn)
        self._relations = Relations(
            known,
            read_catalog=source.shape,
            name_type=source.type_name,
            name_table=source.table_name if source.ids_are_oids else None,
            wanted=chooser(options),
            new_tables_are_complete=source.new_tables_are_complete,
            is_told=source.tells_changes,
            publication=options.publication,
            judge=source.judge,
        )
        self._assembler = Assembler(
            relations=self._relations,
            world=World(
                lambda table: meanwhile(publisher.publish, table),
                publisher.encode_change,
                TransactionConstants,
                now_us,
                self._put_aside if options.unfit_row == "quarantine" else None,
            ),
            epoch=head.epoch,
            seq=head.last_seq,
            resume=head.resume,
            ddl_topic=options.topics.ddl,
            max_row_bytes=options.max_row_bytes,
            known=taken.known,
            messages=publisher.messages(),
            transactions=publisher.transactions(),
            quarantines=options.incompatible == "quarantine",
            note=watch.on_note,
        )
        self._catalog = CatalogWatch(wanted=self._relations.wants, publication=options.publication)
        self._look_due = 0.0
        self._at = head.resume  # everything committed before was fed to the assembler
        self._pending: Iterator[tuple[int, Message]] | None = None
        self._is_read = False  # all of it was taken
        self._lost_between: Lost | None = None  # outside a transaction: a hole of the next one
        self._received = Received()
        self._confirmed = 0
        self._status_at = self._read_at = 0.0
        self._told = 0
        self._answered_at = time.monotonic()
        self._progress_seen = 0
        self._is_waiting = False
        self._leaving_since: float | None = None
        self._stopped: Stopped | None = None
        self._in_flight: Sequence[Cut] = ()

    def run(self) -> None:
        """Go on until asked to stop; leave source and Kafka tidy."""
        watch = self._watch
        watch.on_step("run: read")
        watch.on_note(f"streaming from {Lsn(self._engine.resume)}")
        self._progress.has_streamed = True
        self._tick()
        while self._stopped is None:
            self._read()
            self._watch_catalog()
            self._hear_from_kafka()
            self._tick()
            self._leave_if_asked()
        if self._stopped.abort:
            self._delivery.abort(3.0)
        self._tell_source(force=True)

    # ------------------------------------------------------------ source
    def _read(self) -> None:
        """Read what the source has, unless too much of it waits for Kafka.

        A source that holds transactions may give millions of messages for one read: they are
        taken in slices, with Kafka and the clock between, before the socket is read again.
        """
        engine, delivery = self._engine, self._delivery
        wait = _IDLE_WAIT if engine.is_idle else _BUSY_WAIT
        if engine.buffered > _BUFFER_BYTES:
            select.select([delivery.fileno()], [], [], wait)
            return
        self._watch.on_step("run: read")
        if self._pending is None:
            self._received = self._source.wire.receive(wait, (delivery.fileno(),))
            self._pending = self._source.messages(self._received.messages)
            if self._received.reply_requested:
                self._tell_source(force=True)
            self._read_at = time.monotonic()
        self._is_read = False
        self._take(self._slice(self._pending))
        if self._is_read:
            self._pending = None
            self._end_read(self._received)

    def _slice(self, pending: Iterator[tuple[int, Message]]) -> Iterator[tuple[int, Message]]:
        """Give messages of a read, for as long as Kafka and the source may be left alone.

        A statement costs a thousand times as much as a row: its schema is registered.
        """
        until = time.monotonic() + _SLICE_SECONDS
        for count, message in enumerate(pending, 1):
            yield message
            if count >= _SLICE or time.monotonic() >= until:
                return
        self._is_read = True

    def _end_read(self, received: Received) -> None:
        """Look at what came with the messages of a read: the source's own position."""
        end = int(received.keepalive_end)
        is_told = not self._assembler.is_open and self._lost_between is None
        if end and is_told and self._source.keepalives_move:
            self._progress.received = max(self._progress.received, end)
            self._step(PositionReached(end, received.reply_requested))
        if received.reply_requested:
            self._tell_source(force=True)
        if not received.messages or not select.select([self._source.wire.fileno()], [], [], 0)[0]:
            self._step(InputDrained())

    def _take(self, messages: Iterator[tuple[int, Message]]) -> None:
        assembled = self._assembler.feed(self._checked(messages))
        while self._changed:  # before the rows: their cut must not come before the topics
            self._step(self._changed.pop(0))
        for happened in assembled:
            self._step(happened)

    def _checked(self, messages: Iterator[tuple[int, Message]]) -> Iterator[tuple[int, Message]]:
        """Put aside what could not be decoded, then stop before it, or go on with a hole."""
        options = self._options
        for lsn, message in messages:
            if not isinstance(message, Undecoded):
                yield lsn, message
                if self._lost_between is not None and isinstance(message, Begin):
                    yield lsn, self._lost_between
                    self._lost_between = None
                continue
            topic = options.topics.quarantine
            self._meanwhile(self._quarantine.put, message.payload, lsn=lsn, why=message.why)
            self._watch.on_note(f"bytes that are no message went to {topic}: {message.why}")
            if options.unknown_message == "stop":
                raise DecodeError(
                    "the source sent bytes that are no message of this plugin",
                    lsn=Lsn(lsn),
                    why=message.why,
                    topic=topic,
                    hint="send them to us (gauss-cdc record); to go on without them: "
                    "source.unknown-message = 'quarantine'",
                )
            lost = Lost("", "", "seen", f"bytes that are no message, kept in {topic}")
            if self._assembler.is_open:
                yield lsn, lost
            else:  # it may have been a whole transaction, or its BEGIN
                self._lost_between = lost

    def _put_aside(self, unfit: Unfit) -> None:
        self._meanwhile(keep, self._quarantine, unfit, self._watch)

    # ------------------------------------------------------------ catalog
    def _watch_catalog(self) -> None:
        """Compare what the stream has told with the catalog, every few seconds; see the module."""
        catalog, relations = self._catalog, self._relations
        if self._assembler.is_open or self._pending is not None or self._leaving_since is not None:
            return
        if not catalog.is_waiting:
            began = time.monotonic()
            if began < self._look_due:
                return
            look = self._source.look(relations.known, unless=catalog.signature)
            now = time.monotonic()
            self._look_due = now + max(self._options.look_seconds, _LOOK_SHARE * (now - began))
            if look is None:
                return
            for table in catalog.take(look, relations.known):
                self._watch.on_note(f"new: {not_captured(self._options, table)}")
        if self._lost_between is not None:
            return
        if self._at < catalog.due_at:
            return
        emptied = frozenset(relations.emptied)
        relations.emptied.clear()
        found = catalog.judge(self._at, relations.known, is_told=relations.is_told, emptied=emptied)
        for finding in found:
            self._watch.on_note(f"the catalog shows what the stream did not tell: {finding}")
        if found:
            happened = self._assembler.explain(found, self._at)
            while self._changed:
                self._step(self._changed.pop(0))
            for each in happened:
                self._step(each)
            self._step(InputDrained())

    def _tell_source(self, *, force: bool = False) -> None:
        now = time.monotonic()
        due = now - self._status_at
        moved = self._confirmed > self._told and due >= _CONFIRM_SECONDS
        # While the socket is not read, nobody sees that the server asks for an answer.
        is_deaf = now - self._read_at >= BEAT
        every = min(BEAT, self._options.status_seconds) if is_deaf else self._options.status_seconds
        if force or moved or due >= every:
            self._source.wire.send_status(Lsn(self._confirmed))
            self._status_at, self._told = now, self._confirmed
            if moved:
                self._watch.on_step("run: confirmed")

    # ------------------------------------------------------------ Kafka
    def _hear_from_kafka(self) -> None:
        delivery = self._delivery
        if acknowledged := delivery.poll():
            self._answered_at = time.monotonic()
            self._step(Acknowledged(acknowledged))
        for answer in delivery.answers():
            self._answered_at = time.monotonic()
            match answer:
                case Flushed(acknowledged):
                    self._step(Acknowledged(acknowledged))
                case PartCommitted():
                    self._step(PartDurable())
                case CutsCommitted(offsets):
                    self._log.judge_own(self._in_flight, offsets)
                    self._watch.on_step("run: cut durable, not confirmed")
                    self._step(CutsDurable(offsets))
                    self._progress.seq = self._engine.seq
                    self._progress.resume = self._engine.resume
                case CdcError():
                    raise answer
                case _:
                    assert_never(answer)
        if delivery.is_busy:
            self._bear_silence()

    # ------------------------------------------------------------ engine
    def _tick(self) -> None:
        progress = self._progress
        progress.received = max(progress.received, self._source.wire.received_end)
        progress.is_idle = self._engine.is_idle and not self._assembler.is_open
        self._step(Ticked(time.monotonic(), now_us()))
        self._tell_source()

    def _step(self, happened: Happened) -> None:
        if isinstance(happened, TransactionEnded):
            self._progress.commits += 1
            self._progress.rows += happened.rows
            self._progress.committed_at = happened.committed_at
            self._at = max(self._at, happened.end_lsn)
        elif isinstance(happened, PositionReached):
            self._at = max(self._at, happened.position)
        for command in self._engine.step(happened):
            self._obey(command)

    def _obey(self, command: Command) -> None:
        delivery, watch = self._delivery, self._watch
        match command:
            case SendRows(records):
                watch.on_step("run: rows sent")
                self._send(records)
            case Flush():
                watch.on_step("run: waiting for acknowledgements")
                self._answered_at = time.monotonic()
                delivery.flush()
            case CommitPart():
                watch.on_step("run: part of a giant committed")
                delivery.commit_part()
            case WriteCuts(cuts):
                watch.on_step("run: cut written, not committed")
                self._answered_at = time.monotonic()
                self._in_flight = cuts
                delivery.write_cuts([self._log.framed(cut) for cut in cuts])
            case Confirm(lsn):
                self._confirmed = lsn
            case Stopped():
                self._stopped = command
            case _:
                assert_never(command)

    def _send(self, records: Sequence[Record]) -> None:
        """Hand rows to librdkafka; where it has no room, go on telling the source that we live."""
        delivery, sent = self._delivery, 0
        while (sent := delivery.send(records, sent)) < len(records):
            if not self._is_waiting:
                self._is_waiting, self._answered_at = True, time.monotonic()
            self._bear_silence()
            self._tell_source()
        self._is_waiting = False

    def _bear_silence(self) -> None:
        """Raise BrokerDown when nothing came from Kafka for too long.

        A PostgreSQL that is being stopped waits for our confirmation: it is let go then.
        """
        now = time.monotonic()
        if (progress := self._delivery.progress) != self._progress_seen:
            self._progress_seen, self._answered_at = progress, now
        silent = now - self._answered_at
        if silent > self._options.kafka_silence_seconds:
            raise BrokerDown(
                "Kafka does not answer; the source is let go meanwhile", seconds=round(silent)
            )

    def _leave_if_asked(self) -> None:
        if not self._watch.stop_asked(0):
            return
        now = time.monotonic()
        if self._leaving_since is None:
            self._leaving_since = now
            self._watch.on_note("leaving")
        if not self._assembler.is_open or now - self._leaving_since > _LEAVE_SECONDS:
            self._step(StopAsked())
        if self._stopped is None and now - self._leaving_since > _GIVE_UP_SECONDS:
            self._watch.on_note("Kafka is slow: left without the last group, which comes again")
            raise Leaving
